// The source of all kernels. kernels_portable.cpp, kernels_avx2.cpp and kernels_avx512.cpp include
// it and are compiled for different instruction sets; on aarch64 the portable kernels use NEON,
// which every such processor has. Do not call functions of the standard library here: the linker
// keeps one copy of an inline function, which may be the one with AVX2 instructions.

#include <type_traits>

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

// Load a vector of weights: float32, or bfloat16, which is the upper half of a float32.
TILTH_INLINE Floats load_weights(const float* from) { return load(from); }
TILTH_INLINE Floats load_weights(const std::uint16_t* from) {
  typedef std::uint16_t Halves __attribute__((vector_size(16), aligned(2), may_alias));
  const auto halves = *reinterpret_cast<const Halves*>(from);
  return __builtin_bit_cast(Floats, __builtin_convertvector(halves, Integers) << 16);
}

#if defined(__AVX512F__)
// Vectors of 16 numbers: two rows of a tile, which are adjacent in a stream, times eight numbers of
// x in both halves. Each row has its own eight lanes, so the bits equal those of AVX2.
typedef float Wide __attribute__((vector_size(64)));

TILTH_INLINE Wide load_two_rows(const float* from) { return _mm512_load_ps(from); }
TILTH_INLINE Wide load_two_rows(const std::uint16_t* from) {
  const __m256i halves = _mm256_load_si256(reinterpret_cast<const __m256i*>(from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}
TILTH_INLINE Wide twice(Floats x) { return _mm512_broadcast_f32x8(x); }
TILTH_INLINE Floats all_sums(const Wide* streams) {
  Floats row[group_rows];
  for (std::size_t s = 0; s < num_streams; ++s) {
    row[2 * s] = __builtin_shufflevector(streams[s], streams[s], 0, 1, 2, 3, 4, 5, 6, 7);
    row[2 * s + 1] = __builtin_shufflevector(streams[s], streams[s], 8, 9, 10, 11, 12, 13, 14, 15);
  }
  return sums(row);
}

constexpr std::size_t tokens_at_once = 6;  // 24 of 32 registers are accumulators

template <std::size_t tokens, typename Weight>
TILTH_INLINE void product_of(const Weight* tiles, std::size_t stream_size, const float* x,
                             std::size_t columns, std::size_t num_groups, std::size_t y_stride,
                             float* y) {
  for (std::size_t group = 0; group < num_groups; ++group) {
    Wide total[tokens][num_streams] = {};
    for (std::size_t column = 0; column < columns; column += lanes) {
      Wide weights[num_streams];
#pragma GCC unroll 4
      for (std::size_t s = 0; s < num_streams; ++s) {
        weights[s] = load_two_rows(tiles + s * stream_size);
      }
#pragma GCC unroll 6
      for (std::size_t t = 0; t < tokens; ++t) {
        const Wide part = twice(load(x + t * columns + column));
#pragma GCC unroll 4
        for (std::size_t s = 0; s < num_streams; ++s) total[t][s] += weights[s] * part;
      }
      tiles += stream_rows * lanes;
    }
    for (std::size_t t = 0; t < tokens; ++t) {
      store(y + t * y_stride + group * group_rows, all_sums(total[t]));
    }
  }
}
#else
constexpr std::size_t tokens_at_once = 3;

template <std::size_t tokens, typename Weight>
TILTH_INLINE void product_of(const Weight* tiles, std::size_t stream_size, const float* x,
                             std::size_t columns, std::size_t num_groups, std::size_t y_stride,
                             float* y) {
  // One token has an accumulator of eight lanes for each row: eight chains hide the latency of an
  // addition. Several tokens share each load of weights, and take the rows in two passes, whose
  // accumulators fit into 16 registers. The order of each sum is the same.
  constexpr std::size_t rows = tokens == 1 ? group_rows : group_rows / 2;
  for (std::size_t group = 0; group < num_groups; ++group) {
    Floats total[tokens][group_rows];
    for (std::size_t first = 0; first < group_rows; first += rows) {
      Floats row[tokens][rows] = {};
      const Weight* tile = tiles;
      for (std::size_t column = 0; column < columns; column += lanes) {
        Floats part[tokens];
        for (std::size_t t = 0; t < tokens; ++t) part[t] = load(x + t * columns + column);
        for (std::size_t r = 0; r < rows; ++r) {
          const Floats weights = load_weights(row_of<lanes>(tile, stream_size, first + r));
          for (std::size_t t = 0; t < tokens; ++t) row[t][r] += weights * part[t];
        }
        tile += stream_rows * lanes;
      }
      for (std::size_t t = 0; t < tokens; ++t) {
        for (std::size_t r = 0; r < rows; ++r) total[t][first + r] = row[t][r];
      }
    }
    tiles += columns * stream_rows;
    for (std::size_t t = 0; t < tokens; ++t) {
      store(y + t * y_stride + group * group_rows, sums(total[t]));
    }
  }
}
#endif

// Call work.operator()<n>(first) for runs of n tokens, at most tokens_at_once each.
template <typename Work>
TILTH_INLINE void for_tokens(std::size_t num_tokens, const Work& work) {
  std::size_t t = 0;
  for (; t + tokens_at_once <= num_tokens; t += tokens_at_once) {
    work.template operator()<tokens_at_once>(t);
  }
  switch (num_tokens - t) {
    case 1:
      work.template operator()<1>(t);
      break;
    case 2:
      work.template operator()<2>(t);
      break;
#if defined(__AVX512F__)
    case 3:
      work.template operator()<3>(t);
      break;
    case 4:
      work.template operator()<4>(t);
      break;
    case 5:
      work.template operator()<5>(t);
      break;
#endif
    default:
      break;
  }
}

template <typename Weight>
void product(const Weight* tiles, std::size_t stream_size, const float* x, std::size_t num_tokens,
             std::size_t columns, std::size_t num_groups, float* y) {
  const std::size_t y_stride = num_groups * group_rows;
  for_tokens(num_tokens, [&]<std::size_t tokens>(std::size_t t) __attribute__((always_inline)) {
    product_of<tokens>(tiles, stream_size, x + t * columns, columns, num_groups, y_stride,
                       y + t * y_stride);
  });
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

// Unpack 32 int4, stored as 16 bytes: the low halves are the first 16 numbers, plus 8.
TILTH_INLINE void unpack(const std::uint8_t* packed, std::int8_t* numbers) {
  typedef std::uint8_t Bytes __attribute__((vector_size(16), aligned(1), may_alias));
  const auto both = *reinterpret_cast<const Bytes*>(packed);
  *reinterpret_cast<Bytes*>(numbers) = (both & 15) - 8;
  *reinterpret_cast<Bytes*>(numbers + 16) = (both >> 4) - 8;
}

#if defined(__AVX512VNNI__)
// Two rows of a tile of 32 columns, as in load_two_rows.
TILTH_INLINE __m512i load_quantized(const std::int8_t* from) { return _mm512_load_si512(from); }
TILTH_INLINE __m512i load_quantized(const std::uint8_t* from) {
  const __m512i two =
      _mm512_castsi256_si512(_mm256_load_si256(reinterpret_cast<const __m256i*>(from)));
  const __m512i order = _mm512_setr_epi64(0, 1, 0, 1, 2, 3, 2, 3);
  const __m512i shifts = _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4);
  const __m512i halves = _mm512_srlv_epi64(_mm512_permutexvar_epi64(order, two), shifts);
  return _mm512_sub_epi8(_mm512_and_si512(halves, _mm512_set1_epi8(15)), _mm512_set1_epi8(8));
}

// scales_of(block, s) are the scales of both rows of stream s.
template <std::size_t tokens, typename Weight, typename Scales, typename Finish>
TILTH_INLINE void product_quantized(const Weight* tiles, std::size_t stream_size,
                                    const std::int8_t* x, const float* x_scales,
                                    std::size_t columns, std::size_t num_groups,
                                    const Scales& scaled, const Finish& finish) {
  constexpr std::size_t bytes =
      sizeof(Weight) * stream_rows * block_columns / (std::is_same_v<Weight, std::uint8_t> ? 2 : 1);
  const std::size_t num_blocks = columns / block_columns;
  for (std::size_t group = 0; group < num_groups; ++group) {
    Wide total[tokens][num_streams] = {};
    for (std::size_t block = 0; block < num_blocks; ++block) {
#pragma GCC unroll 4
      for (std::size_t s = 0; s < num_streams; ++s) {
        const __m512i weights = load_quantized(tiles + s * stream_size);
        // x has 128 added, as the instruction multiplies unsigned by signed numbers.
        const __m512i surplus = _mm512_sub_epi32(
            _mm512_setzero_si512(),
            _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(-128), weights));
#pragma GCC unroll 6
        for (std::size_t t = 0; t < tokens; ++t) {
          const __m512i numbers = _mm512_broadcast_i64x4(_mm256_load_si256(
              reinterpret_cast<const __m256i*>(x + t * columns + block * block_columns)));
          const Wide sum = _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(surplus, numbers, weights));
          const Wide scale = _mm512_set1_ps(x_scales[t * num_blocks + block]);
          scaled(total[t][s], sum, scale, group, block, s);
        }
      }
      tiles += bytes;
    }
    for (std::size_t t = 0; t < tokens; ++t) finish(t, group, all_sums(total[t]));
  }
}
#else
TILTH_INLINE Floats dot_of(const std::int8_t* weights, const std::int8_t* x) {
  return dot_32(weights, x);
}
TILTH_INLINE Floats dot_of(const std::uint8_t* weights, const std::int8_t* x) {
  alignas(32) std::int8_t numbers[block_columns];
  unpack(weights, numbers);
  return dot_32(numbers, x);
}
#endif

void product_int8(const std::int8_t* tiles, std::size_t stream_size, const float* row_scales,
                  const std::int8_t* x, const float* x_scales, std::size_t num_tokens,
                  std::size_t columns, std::size_t num_groups, float* y) {
  const std::size_t y_stride = num_groups * group_rows, num_blocks = columns / block_columns;
#if defined(__AVX512VNNI__)
  for_tokens(num_tokens, [&]<std::size_t tokens>(std::size_t t) __attribute__((always_inline)) {
    product_quantized<tokens>(
        tiles, stream_size, x + t * columns, x_scales + t * num_blocks, columns, num_groups,
        [](Wide& total, Wide sum, Wide scale, std::size_t, std::size_t, std::size_t)
            __attribute__((always_inline)) { total += sum * scale; },
        [&](std::size_t token, std::size_t group, Floats row) __attribute__((always_inline)) {
          store(y + (t + token) * y_stride + group * group_rows,
                row * load(row_scales + group * group_rows));
        });
  });
#else
  for (std::size_t t = 0; t < num_tokens; ++t) {
    const std::int8_t* tile = tiles;
    for (std::size_t group = 0; group < num_groups; ++group) {
      Floats row[group_rows] = {};
      for (std::size_t block = 0; block < num_blocks; ++block) {
        const Floats scale = all(x_scales[t * num_blocks + block]);
        for (std::size_t r = 0; r < group_rows; ++r) {
          const std::int8_t* weights = row_of<block_columns>(tile, stream_size, r);
          row[r] += dot_of(weights, x + t * columns + block * block_columns) * scale;
        }
        tile += stream_rows * block_columns;
      }
      store(y + t * y_stride + group * group_rows,
            sums(row) * load(row_scales + group * group_rows));
    }
  }
#endif
}

void product_int4(const std::uint8_t* tiles, std::size_t stream_size,
                  const std::uint16_t* block_scales, const std::int8_t* x, const float* x_scales,
                  std::size_t num_tokens, std::size_t columns, std::size_t num_groups, float* y) {
  const std::size_t y_stride = num_groups * group_rows, num_blocks = columns / block_columns;
#if defined(__AVX512VNNI__)
  for_tokens(num_tokens, [&]<std::size_t tokens>(std::size_t t) __attribute__((always_inline)) {
    product_quantized<tokens>(
        tiles, stream_size, x + t * columns, x_scales + t * num_blocks, columns, num_groups,
        [&](Wide& total, Wide sum, Wide scale, std::size_t group, std::size_t block, std::size_t s)
            __attribute__((always_inline)) {
              const Floats eight =
                  load_weights(block_scales + (group * num_blocks + block) * group_rows);
              const int first = static_cast<int>(2 * s);
              const __m512i order = _mm512_mask_set1_epi32(
                  _mm512_set1_epi32(first), static_cast<__mmask16>(0xFF00), first + 1);
              const Wide rows = _mm512_permutexvar_ps(order, twice(eight));
              total += sum * scale * rows;
            },
        [&](std::size_t token, std::size_t group, Floats row) __attribute__((always_inline)) {
          store(y + (t + token) * y_stride + group * group_rows, row);
        });
  });
#else
  for (std::size_t t = 0; t < num_tokens; ++t) {
    const std::uint8_t* tile = tiles;
    for (std::size_t group = 0; group < num_groups; ++group) {
      Floats row[group_rows] = {};
      for (std::size_t block = 0; block < num_blocks; ++block) {
        const float scale = x_scales[t * num_blocks + block];
        const Floats rows = load_weights(block_scales + (group * num_blocks + block) * group_rows);
        for (std::size_t r = 0; r < group_rows; ++r) {
          const std::uint8_t* weights = row_of<block_columns / 2>(tile, stream_size, r);
          row[r] +=
              dot_of(weights, x + t * columns + block * block_columns) * all(scale) * all(rows[r]);
        }
        tile += stream_rows * block_columns / 2;
      }
      store(y + t * y_stride + group * group_rows, sums(row));
    }
  }
#endif
}

#if defined(__AVX512VNNI__)
constexpr std::uint32_t quantized_offset = 128;  // see product_quantized
#else
constexpr std::uint32_t quantized_offset = 0;
#endif

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
        quantized[i + lane] = static_cast<std::int8_t>(bits[lane] + quantized_offset);
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

// out = e^((scores - largest) * factor) for `size` numbers; 0 below e^-87 and for NaN.
void exponentials(const float* scores, float largest, float factor, std::size_t size, float* out) {
  const auto weights_of = [&](Floats part) __attribute__((always_inline)) {
    const Floats exponent = (part - all(largest)) * all(factor);
    return exponent > all(-87.0f) ? exp(exponent) : all(0.0f);
  };
  std::size_t i = 0;
  for (; i + lanes <= size; i += lanes) store(out + i, weights_of(load(scores + i)));
  float rest[lanes] = {};
  for (std::size_t lane = 0; i + lane < size; ++lane) rest[lane] = scores[i + lane];
  store(rest, weights_of(load(rest)));
  for (std::size_t lane = 0; i + lane < size; ++lane) out[i + lane] = rest[lane];
}

double log_sum_exp(const float* scores, std::size_t size) {
  constexpr std::size_t part_size = 1024;  // numbers that are added in float32
  float largest = scores[0];
  Floats most = all(largest);
  std::size_t i = 0;
  for (; i + lanes <= size; i += lanes) most = larger(most, load(scores + i));
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    largest = most[lane] > largest ? most[lane] : largest;
  }
  for (; i < size; ++i) largest = scores[i] > largest ? scores[i] : largest;
  double total = 0.0;
  float part[part_size];
  for (std::size_t first = 0; first < size; first += part_size) {
    const std::size_t count = size - first < part_size ? size - first : part_size;
    exponentials(scores + first, largest, 1.0f, count, part);
    for (std::size_t k = count; k < padded(count, lanes); ++k) part[k] = 0.0f;
    Floats sums = all(0.0f);
    for (std::size_t k = 0; k < count; k += lanes) sums += load(part + k);
    total += static_cast<double>(sum(sums));
  }
  return static_cast<double>(largest) + __builtin_log(total);
}

#if defined(__AVX512F__)
typedef Wide Vector;
typedef float UnalignedVector __attribute__((vector_size(64), aligned(4), may_alias));
constexpr std::size_t queries_at_once = 4;  // 16 of 32 registers are accumulators
#else
typedef Floats Vector;
typedef UnalignedFloats UnalignedVector;
constexpr std::size_t queries_at_once = 2;
#endif
constexpr std::size_t vector_size = sizeof(Vector) / sizeof(float);

TILTH_INLINE Vector load_vector(const float* from) {
  return *reinterpret_cast<const UnalignedVector*>(from);
}
TILTH_INLINE void store_vector(float* to, Vector x) { *reinterpret_cast<UnalignedVector*>(to) = x; }

// The softmax of a query so far.
struct Progress {
  float largest = -3.0e38f;
  Floats total = {};
};

// The scores of `count` queries with the 64 keys of a block. Each score is a sum in the order of d.
template <std::size_t count>
TILTH_INLINE void score(const Query* queries, const float* keys, std::size_t d_head,
                        float (*scores)[positions_per_block]) {
  constexpr std::size_t vectors = 4;
  for (std::size_t first = 0; first < positions_per_block; first += vectors * vector_size) {
    Vector total[count][vectors] = {};
    for (std::size_t d = 0; d < d_head; ++d) {
      Vector part[vectors];
      for (std::size_t k = 0; k < vectors; ++k) {
        part[k] = load_vector(keys + d * positions_per_block + first + k * vector_size);
      }
      for (std::size_t q = 0; q < count; ++q) {
        const float factor = queries[q].query[d];
        for (std::size_t k = 0; k < vectors; ++k) total[q][k] += part[k] * factor;
      }
    }
    for (std::size_t q = 0; q < count; ++q) {
      for (std::size_t k = 0; k < vectors; ++k) {
        store_vector(scores[q] + first + k * vector_size, total[q][k]);
      }
    }
  }
}

// mixed = mixed * factor + weights . values, for `count` queries and num_positions values.
template <std::size_t count, typename Part, std::size_t vectors>
TILTH_INLINE void mix(const float (*weights)[positions_per_block], const float* factors,
                      const float* values, std::size_t num_positions, std::size_t width,
                      std::size_t d, float* const* mixed) {
  constexpr std::size_t size = sizeof(Part) / sizeof(float);
  typedef float Unaligned __attribute__((vector_size(sizeof(Part)), aligned(4), may_alias));
  Part total[count][vectors];
  for (std::size_t q = 0; q < count; ++q) {
    for (std::size_t k = 0; k < vectors; ++k) {
      total[q][k] = *reinterpret_cast<const Unaligned*>(mixed[q] + d + k * size) * factors[q];
    }
  }
  for (std::size_t i = 0; i < num_positions; ++i) {
    Part part[vectors];
    for (std::size_t k = 0; k < vectors; ++k) {
      part[k] = *reinterpret_cast<const Unaligned*>(values + i * width + d + k * size);
    }
    for (std::size_t q = 0; q < count; ++q) {
      for (std::size_t k = 0; k < vectors; ++k) total[q][k] += part[k] * weights[q][i];
    }
  }
  for (std::size_t q = 0; q < count; ++q) {
    for (std::size_t k = 0; k < vectors; ++k) {
      *reinterpret_cast<Unaligned*>(mixed[q] + d + k * size) = total[q][k];
    }
  }
}

// Add a block of keys and values to `count` queries, which all see the first num_positions of it.
template <std::size_t count>
TILTH_INLINE void add_block(const Query* queries, const float* keys, std::size_t num_positions,
                            std::size_t d_head, std::size_t width, Progress* progress,
                            float* mixed) {
  alignas(64) float scores[count][positions_per_block];
  float factors[count];
  float* rows[count];
  score<count>(queries, keys, d_head, scores);
  for (std::size_t q = 0; q < count; ++q) {
    rows[q] = mixed + q * width;
    for (std::size_t i = num_positions; i < positions_per_block; ++i) scores[q][i] = -3.0e38f;
    Floats most = load(scores[q]);
    for (std::size_t i = lanes; i < positions_per_block; i += lanes) {
      most = larger(most, load(scores[q] + i));
    }
    float largest = progress[q].largest;
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      largest = most[lane] > largest ? most[lane] : largest;
    }
    factors[q] = exp(all(progress[q].largest - largest))[0];
    progress[q].largest = largest;
    Floats total = progress[q].total * all(factors[q]);
    for (std::size_t i = 0; i < positions_per_block; i += lanes) {
      const Floats weight = exp(load(scores[q] + i) - all(largest));
      store(scores[q] + i, weight);
    }
    for (std::size_t i = num_positions; i < positions_per_block; ++i) scores[q][i] = 0.0f;
    for (std::size_t i = 0; i < positions_per_block; i += lanes) total += load(scores[q] + i);
    progress[q].total = total;
  }
  const float* values = keys + positions_per_block * d_head;
  std::size_t d = 0;
  for (; d + 2 * vector_size <= width; d += 2 * vector_size) {
    mix<count, Vector, 2>(scores, factors, values, num_positions, width, d, rows);
  }
  for (; d < width; d += lanes) {
    // One query at a time, so this code is small: few widths are not a multiple of 32.
    for (std::size_t q = 0; q < count; ++q) {
      mix<1, Floats, 1>(scores + q, factors + q, values, num_positions, width, d, rows + q);
    }
  }
}

void attend(const Query* queries, std::size_t num_queries, const float* const* blocks,
            std::size_t offset, std::size_t d_head, float* scratch) {
  const std::size_t width = (d_head + lanes - 1) / lanes * lanes;
  Progress progress[max_queries];
  for (std::size_t i = 0; i < num_queries * width; ++i) scratch[i] = 0.0f;
  std::size_t begin = 0;  // of the queries that see the block
  for (std::size_t first = 0; first < queries[num_queries - 1].num_positions;
       first += positions_per_block) {
    const float* keys = blocks[first / positions_per_block] + offset;
    const auto seen = [&](std::size_t q) {
      const std::size_t left = queries[q].num_positions - first;
      return left < positions_per_block ? left : positions_per_block;
    };
    while (queries[begin].num_positions <= first) ++begin;
    for (std::size_t q = begin; q < num_queries;) {
      const std::size_t last = q + queries_at_once - 1;
      // The numbers of positions ascend.
      if (last < num_queries && seen(q) == seen(last)) {
        add_block<queries_at_once>(queries + q, keys, seen(q), d_head, width, progress + q,
                                   scratch + q * width);
        q += queries_at_once;
      } else {
        add_block<1>(queries + q, keys, seen(q), d_head, width, progress + q, scratch + q * width);
        ++q;
      }
    }
  }
  for (std::size_t q = 0; q < num_queries; ++q) {
    const float inverse = 1.0f / sum(progress[q].total);
    for (std::size_t d = 0; d < d_head; ++d) queries[q].out[d] = scratch[q * width + d] * inverse;
  }
}

}  // namespace
}  // namespace tilth::decoder
