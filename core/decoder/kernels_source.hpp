// The source of all kernels. kernels_portable.cpp and kernels_avx2.cpp include it and are compiled
// for different instruction sets; on aarch64 the portable kernels use NEON, which every such
// processor has. Do not call functions of the standard library here: the linker keeps one copy of
// an inline function, which may be the one with AVX2 instructions.

#include "kernels.hpp"

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

namespace tilth::decoder {
namespace {

// Vectors of eight numbers; the compiler maps them to one register or several.
constexpr std::size_t lanes = 8;
typedef float Floats __attribute__((vector_size(32)));
typedef std::uint32_t Integers __attribute__((vector_size(32)));
typedef float UnalignedFloats __attribute__((vector_size(32), aligned(4), may_alias));

#define TILTH_INLINE static inline __attribute__((always_inline))

TILTH_INLINE Floats load(const float* from) {
  return *reinterpret_cast<const UnalignedFloats*>(from);
}
TILTH_INLINE void store(float* to, Floats x) { *reinterpret_cast<UnalignedFloats*>(to) = x; }
TILTH_INLINE Floats all(float x) { return Floats{x, x, x, x, x, x, x, x}; }

// The sums of eight vectors, as one vector.
TILTH_INLINE Floats sums(const Floats* x) {
  const auto halve = [](Floats a, Floats b) __attribute__((always_inline)) {
    return __builtin_shufflevector(a, b, 0, 8, 2, 10, 4, 12, 6, 14) +
           __builtin_shufflevector(a, b, 1, 9, 3, 11, 5, 13, 7, 15);
  };
  const auto quarter = [](Floats a, Floats b) __attribute__((always_inline)) {
    return __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13) +
           __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
  };
  const Floats low = quarter(halve(x[0], x[1]), halve(x[2], x[3]));
  const Floats high = quarter(halve(x[4], x[5]), halve(x[6], x[7]));
  return __builtin_shufflevector(low, high, 0, 1, 2, 3, 8, 9, 10, 11) +
         __builtin_shufflevector(low, high, 4, 5, 6, 7, 12, 13, 14, 15);
}

TILTH_INLINE float sum(Floats x) {
  return ((x[0] + x[4]) + (x[1] + x[5])) + ((x[2] + x[6]) + (x[3] + x[7]));
}

TILTH_INLINE Floats larger(Floats a, Floats b) { return a > b ? a : b; }

// e^x to 2 units in the last place, with x clamped to [-87, 88]: for a weight or a gate the ends
// are as good as 0 and infinity. NaN stays NaN, here and in quantize, and reaches the logits.
TILTH_INLINE Floats exp(Floats x) {
  x = x < all(-87.0f) ? all(-87.0f) : x;
  x = x > all(88.0f) ? all(88.0f) : x;
  // x = n log(2) + r. Adding 1.5 * 2^23 rounds to an integer, which is left in the low bits.
  const Floats magic = all(12582912.0f);
  const Floats shifted = x * all(1.44269504f) + magic;
  const Floats n = shifted - magic;
  // log(2) in two parts; the first has few bits, so its product with n is exact.
  const Floats r = (x - n * all(0.693359375f)) - n * all(-2.12194440e-4f);
  // Taylor series: |r| <= log(2) / 2, where the next term is below 1e-8.
  Floats power = all(1.0f / 5040.0f);
  power = power * r + all(1.0f / 720.0f);
  power = power * r + all(1.0f / 120.0f);
  power = power * r + all(1.0f / 24.0f);
  power = power * r + all(1.0f / 6.0f);
  power = power * r + all(0.5f);
  power = power * r + all(1.0f);
  power = power * r + all(1.0f);
  // Multiply by 2^n: add n to the exponent bits.
  const Integers exponent = __builtin_bit_cast(Integers, shifted) << 23;
  const Integers bits = __builtin_bit_cast(Integers, power) + exponent;
  return __builtin_bit_cast(Floats, bits);
}

// Row r of a tile with `columns` columns, which starts at `tile` in the first stream.
template <std::size_t columns, typename Number>
TILTH_INLINE const Number* row_of(const Number* tile, std::size_t stream_size, std::size_t r) {
  return tile + r / stream_rows * stream_size + r % stream_rows * columns;
}

void product(const float* tiles, std::size_t stream_size, const float* x, std::size_t columns,
             std::size_t num_groups, float* y) {
  for (std::size_t group = 0; group < num_groups; ++group) {
    // One accumulator of eight lanes for each row: eight chains hide the latency of an addition.
    // The order of the sum is the same for one token and for many.
    Floats row[group_rows] = {};
    for (std::size_t column = 0; column < columns; column += lanes) {
      const Floats part = load(x + column);
      for (std::size_t r = 0; r < group_rows; ++r) {
        row[r] += load(row_of<lanes>(tiles, stream_size, r)) * part;
      }
      tiles += stream_rows * lanes;
    }
    store(y + group * group_rows, sums(row));
  }
}

// The dot product of 32 int8 in [-127, 127], as partial sums in eight lanes.
#if defined(__AVX2__)
TILTH_INLINE Floats dot_32(const std::int8_t* w, const std::int8_t* x) {
  const __m256i weights = _mm256_load_si256(reinterpret_cast<const __m256i*>(w));
  const __m256i numbers = _mm256_load_si256(reinterpret_cast<const __m256i*>(x));
  // The instruction multiplies unsigned by signed numbers, so the sign of x is moved to w. Two
  // products are at most 32,258, which fits into 16 bits.
  const __m256i pairs =
      _mm256_maddubs_epi16(_mm256_abs_epi8(numbers), _mm256_sign_epi8(weights, numbers));
  const __m256i quads = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  return _mm256_cvtepi32_ps(quads);
}
#elif defined(__ARM_NEON)
TILTH_INLINE Floats dot_32(const std::int8_t* w, const std::int8_t* x) {
  Floats result;
  for (std::size_t half = 0; half < 2; ++half) {
    const int8x16_t weights = vld1q_s8(w + 16 * half), numbers = vld1q_s8(x + 16 * half);
#if defined(__ARM_FEATURE_DOTPROD)
    const int32x4_t quads = vdotq_s32(vdupq_n_s32(0), weights, numbers);
#else
    // Two products are at most 32,258, which fits into 16 bits.
    int16x8_t pairs = vmull_s8(vget_low_s8(weights), vget_low_s8(numbers));
    pairs = vmlal_s8(pairs, vget_high_s8(weights), vget_high_s8(numbers));
    const int32x4_t quads = vpaddlq_s16(pairs);
#endif
    const float32x4_t four = vcvtq_f32_s32(quads);
    for (std::size_t lane = 0; lane < 4; ++lane) result[4 * half + lane] = four[lane];
  }
  return result;
}
#else
TILTH_INLINE Floats dot_32(const std::int8_t* w, const std::int8_t* x) {
  std::int16_t pairs[16];  // two products are at most 32,258
  for (std::size_t i = 0; i < 16; ++i) {
    pairs[i] = static_cast<std::int16_t>(w[i] * x[i] + w[i + 16] * x[i + 16]);
  }
  Floats result;
  for (std::size_t i = 0; i < lanes; ++i) {
    result[i] = static_cast<float>(pairs[i] + pairs[i + lanes]);
  }
  return result;
}
#endif

void product_int8(const std::int8_t* tiles, std::size_t stream_size, const float* row_scales,
                  const std::int8_t* x, const float* x_scales, std::size_t columns,
                  std::size_t num_groups, float* y) {
  for (std::size_t group = 0; group < num_groups; ++group) {
    Floats row[group_rows] = {};
    for (std::size_t block = 0; block < columns / block_columns; ++block) {
      const Floats scale = all(x_scales[block]);
      for (std::size_t r = 0; r < group_rows; ++r) {
        const std::int8_t* weights = row_of<block_columns>(tiles, stream_size, r);
        row[r] += dot_32(weights, x + block * block_columns) * scale;
      }
      tiles += stream_rows * block_columns;
    }
    store(y + group * group_rows, sums(row) * load(row_scales + group * group_rows));
  }
}

void quantize(const float* x, std::size_t columns, std::int8_t* quantized, float* scales) {
  for (std::size_t block = 0; block < columns / block_columns; ++block) {
    Floats most = all(0.0f), zero = all(0.0f);
    for (std::size_t i = 0; i < block_columns; i += lanes) {
      const Floats part = load(x + i);
      most = larger(most, larger(part, -part));
      zero += part * all(0.0f);
    }
    float largest = 0.0f;
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      largest = most[lane] > largest ? most[lane] : largest;
    }
    scales[block] = largest / 127.0f + sum(zero);
    const Floats inverse = all(largest > 0.0f ? 127.0f / largest : 0.0f);
    for (std::size_t i = 0; i < block_columns; i += lanes) {
      // Rounded as in exp: the integer is left in the low bits.
      const Floats shifted = load(x + i) * inverse + all(12582912.0f);
      const Integers bits = __builtin_bit_cast(Integers, shifted);
      for (std::size_t lane = 0; lane < lanes; ++lane) {
        quantized[i + lane] = static_cast<std::int8_t>(bits[lane]);
      }
    }
    x += block_columns;
    quantized += block_columns;
  }
}

void rms_norm(const float* x, const float* weight, float epsilon, std::size_t size, float* out) {
  Floats squares = all(0.0f);
  for (std::size_t i = 0; i < size; i += lanes) squares += load(x + i) * load(x + i);
  const float mean = sum(squares) / static_cast<float>(size);
  const Floats inverse = all(1.0f / __builtin_sqrtf(mean + epsilon));
  for (std::size_t i = 0; i < size; i += lanes) {
    store(out + i, load(x + i) * inverse * load(weight + i));
  }
}

void silu(const float* gate, const float* value, std::size_t size, float* out) {
  for (std::size_t i = 0; i < size; i += lanes) {
    const Floats g = load(gate + i);
    const Floats passed = g / (all(1.0f) + exp(-g));
    store(out + i, value == nullptr ? passed : passed * load(value + i));
  }
}

void attend(const float* query, const float* keys, const float* values, std::size_t num_positions,
            std::size_t d_head, float* scores, float* out) {
  const std::size_t num_blocks = (num_positions + positions_per_block - 1) / positions_per_block;
  for (std::size_t block = 0; block < num_blocks; ++block) {
    Floats score[positions_per_block / lanes] = {};
    for (std::size_t d = 0; d < d_head; ++d) {
      const Floats factor = all(query[d]);
      for (std::size_t i = 0; i < positions_per_block / lanes; ++i) {
        score[i] += load(keys + i * lanes) * factor;
      }
      keys += positions_per_block;
    }
    for (std::size_t i = 0; i < positions_per_block / lanes; ++i) {
      store(scores + block * positions_per_block + i * lanes, score[i]);
    }
  }
  // Mask the positions after the last: their weights are e^-87, and the largest weight is 1.
  const std::size_t whole = (num_positions + lanes - 1) / lanes * lanes;
  for (std::size_t i = num_positions; i < whole; ++i) scores[i] = -3.0e38f;
  Floats most = load(scores);
  for (std::size_t i = lanes; i < whole; i += lanes) most = larger(most, load(scores + i));
  float largest = most[0];
  for (std::size_t lane = 1; lane < lanes; ++lane) {
    largest = most[lane] > largest ? most[lane] : largest;
  }
  Floats total = all(0.0f);
  for (std::size_t i = 0; i < whole; i += lanes) {
    const Floats weight = exp(load(scores + i) - all(largest));
    store(scores + i, weight);
    total += weight;
  }
  const Floats inverse = all(1.0f / sum(total));
  const std::size_t width = (d_head + lanes - 1) / lanes * lanes;
  std::size_t d = 0;
  const auto mix = [&]<std::size_t vectors>() __attribute__((always_inline)) {
    Floats mixed[vectors] = {};
    for (std::size_t i = 0; i < num_positions; ++i) {
      const Floats weight = all(scores[i]);
      for (std::size_t k = 0; k < vectors; ++k) {
        mixed[k] += load(values + i * width + d + k * lanes) * weight;
      }
    }
    for (std::size_t k = 0; k < vectors; ++k) store(out + d + k * lanes, mixed[k] * inverse);
    d += vectors * lanes;
  };
  while (d + 4 * lanes <= width) mix.template operator()<4>();
  while (d < width) mix.template operator()<1>();
}

}  // namespace
}  // namespace tilth::decoder
