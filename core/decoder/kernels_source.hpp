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
constexpr std::size_t line = 16;  // numbers of a cache line
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
  // Sums of pairs: two of a and two of b in each half.
  const auto pairs = [](Floats a, Floats b) __attribute__((always_inline)) {
    return __builtin_shufflevector(a, b, 0, 2, 8, 10, 4, 6, 12, 14) +
           __builtin_shufflevector(a, b, 1, 3, 9, 11, 5, 7, 13, 15);
  };
  const Floats low = pairs(pairs(x[0], x[1]), pairs(x[2], x[3]));
  const Floats high = pairs(pairs(x[4], x[5]), pairs(x[6], x[7]));
  return __builtin_shufflevector(low, high, 0, 1, 2, 3, 8, 9, 10, 11) +
         __builtin_shufflevector(low, high, 4, 5, 6, 7, 12, 13, 14, 15);
}

TILTH_INLINE std::int64_t load_eight(const void* from) {
  std::int64_t bytes;
  __builtin_memcpy(&bytes, from, sizeof(bytes));
  return bytes;
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
// The sums of the rows of all streams, in the order of `sums`.
TILTH_INLINE Floats all_sums(const Wide* streams) {
  const auto pairs = [](Wide a, Wide b) __attribute__((always_inline)) {
    return _mm512_shuffle_ps(a, b, 0x88) + _mm512_shuffle_ps(a, b, 0xDD);
  };
  // Each quarter has half of a sum of rows 0, 2, 4 and 6 or of rows 1, 3, 5 and 7.
  const Wide halves = pairs(pairs(streams[0], streams[1]), pairs(streams[2], streams[3]));
  const Floats total = __builtin_shufflevector(halves, halves, 0, 1, 2, 3, 8, 9, 10, 11) +
                       __builtin_shufflevector(halves, halves, 4, 5, 6, 7, 12, 13, 14, 15);
  return __builtin_shufflevector(total, total, 0, 4, 1, 5, 2, 6, 3, 7);
}

constexpr std::size_t tokens_at_once = 6;  // 24 of 32 registers are accumulators

// Add the products of some columns of a group to the sums of `tokens` tokens.
template <std::size_t tokens, typename Weight>
TILTH_INLINE void add_columns(const Weight* tiles, std::size_t stream_size, const float* x,
                              std::size_t columns, std::size_t count, Wide (*sums)[num_streams]) {
  Wide total[tokens][num_streams];
#pragma GCC unroll 6
  for (std::size_t t = 0; t < tokens; ++t) {
#pragma GCC unroll 4
    for (std::size_t s = 0; s < num_streams; ++s) total[t][s] = sums[t][s];
  }
  for (std::size_t column = 0; column < count; column += lanes) {
    Wide weights[num_streams];
#pragma GCC unroll 4
    for (std::size_t s = 0; s < num_streams; ++s) {
      weights[s] = load_two_rows(tiles + s * stream_size);
      // The processor prefetches too little beside the products of several tokens: 8 take 0.6 to
      // 0.8 of the time. To prefetch each line in one run only, x too, or further ahead takes 1.03
      // to 1.27 of it.
      if (tokens > 1) __builtin_prefetch(tiles + s * stream_size + stream_rows * columns);
    }
#pragma GCC unroll 6
    for (std::size_t t = 0; t < tokens; ++t) {
      const Wide part = twice(load(x + t * columns + column));
#pragma GCC unroll 4
      for (std::size_t s = 0; s < num_streams; ++s) total[t][s] += weights[s] * part;
    }
    tiles += stream_rows * lanes;
  }
#pragma GCC unroll 6
  for (std::size_t t = 0; t < tokens; ++t) {
#pragma GCC unroll 4
    for (std::size_t s = 0; s < num_streams; ++s) sums[t][s] = total[t][s];
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

// Call work.operator()<n>(first) for runs of n tokens of nearly equal length, at most
// tokens_at_once: 8 as 4 and 4, as a run of 2 has too few sums at once to hide their latency.
template <typename Work>
TILTH_INLINE void for_tokens(std::size_t num_tokens, const Work& work) {
  for (std::size_t t = 0; t < num_tokens;) {
    const std::size_t left = num_tokens - t;
    const std::size_t num_runs = (left + tokens_at_once - 1) / tokens_at_once;
    const std::size_t count = (left + num_runs - 1) / num_runs;
    switch (count) {
      case 1:
        work.template operator()<1>(t);
        break;
      case 2:
        work.template operator()<2>(t);
        break;
      case 3:
        work.template operator()<3>(t);
        break;
#if defined(__AVX512F__)
      case 4:
        work.template operator()<4>(t);
        break;
      case 5:
        work.template operator()<5>(t);
        break;
      case 6:
        work.template operator()<6>(t);
        break;
#endif
    }
    t += count;
  }
}

template <typename Weight>
void product(const Weight* tiles, std::size_t stream_size, const float* x, std::size_t num_tokens,
             std::size_t columns, std::size_t num_groups, float* y) {
#if defined(__AVX512F__)
  if (num_tokens <= tokens_at_once) {
    // The sums stay in registers: one token takes 0.91 of the time.
    for_tokens(num_tokens, [&]<std::size_t tokens>(std::size_t) __attribute__((always_inline)) {
      for (std::size_t group = 0; group < num_groups; ++group) {
        Wide total[tokens][num_streams] = {};
        add_columns<tokens>(tiles + group * stream_rows * columns, stream_size, x, columns, columns,
                            total);
        for (std::size_t t = 0; t < tokens; ++t) {
          store(y + (t * num_groups + group) * group_rows, all_sums(total[t]));
        }
      }
    });
    return;
  }
  // All tokens take some columns before the next ones. Few tokens take few, so that the processor
  // reads weights from memory all the time: 8 take 0.75 (1,344 columns) to 0.93 (512) of the time.
  // The columns of many stay in the nearest cache: 64 take 0.86 of the time (1,344).
  const std::size_t part = num_tokens <= 2 * tokens_at_once ? 128 : 512;
  Wide totals[max_tokens][num_streams];
  for (std::size_t group = 0; group < num_groups; ++group) {
    for (std::size_t t = 0; t < num_tokens; ++t) {
      for (std::size_t s = 0; s < num_streams; ++s) totals[t][s] = Wide{};
    }
    for (std::size_t first = 0; first < columns; first += part) {
      const std::size_t count = columns - first < part ? columns - first : part;
      for_tokens(num_tokens, [&]<std::size_t tokens>(std::size_t t) __attribute__((always_inline)) {
        add_columns<tokens>(tiles, stream_size, x + t * columns + first, columns, count,
                            totals + t);
      });
      tiles += stream_rows * count;
    }
    for (std::size_t t = 0; t < num_tokens; ++t) {
      store(y + (t * num_groups + group) * group_rows, all_sums(totals[t]));
    }
  }
#else
  const std::size_t y_stride = num_groups * group_rows;
  for_tokens(num_tokens, [&]<std::size_t tokens>(std::size_t t) __attribute__((always_inline)) {
    product_of<tokens>(tiles, stream_size, x + t * columns, columns, num_groups, y_stride,
                       y + t * y_stride);
  });
#endif
}

// --- int8 and int4 ---

// A product has 16 sums for the 8 rows of a tile: lanes 2r and 2r + 1 are row r, with columns 0 to
// 3 and 4 to 7 of each eight. These are one vector or several parts. Sums of 16 products are exact
// integers. Weights are stored unsigned, with 128 added to int8 and 8 to int4.
//
// start<is_int4>(sums) is the value of a sum before the first product: where dot<is_int4>
// multiplies unsigned weights, minus the sum of x times what was added to them. dot adds the
// products of 8 columns.
#if defined(__AVX512VNNI__)
typedef Wide Part;
typedef __m512i Dots;
typedef __m512i Bytes;

TILTH_INLINE Bytes load_bytes(const std::uint8_t* from) { return _mm512_load_si512(from); }
TILTH_INLINE Bytes low_halves(Bytes x) { return _mm512_and_si512(x, _mm512_set1_epi8(15)); }
TILTH_INLINE Bytes high_halves(Bytes x) { return low_halves(_mm512_srli_epi16(x, 4)); }

template <bool is_int4>
TILTH_INLINE Dots start(const std::int32_t* sums) {
  return _mm512_slli_epi32(_mm512_set1_epi64(load_eight(sums)), is_int4 ? 3 : 7);
}
template <bool is_int4>
TILTH_INLINE Dots dot(Dots sum, Bytes weights, const std::int8_t* x) {
  return _mm512_dpbusd_epi32(sum, weights, _mm512_set1_epi64(load_eight(x)));
}
TILTH_INLINE Part numbers_of(Dots sum) { return _mm512_cvtepi32_ps(sum); }
// The scales of the rows of a part, each in two lanes.
TILTH_INLINE Part scales_of(const std::uint16_t* scales) {
  const __m512i each =
      _mm512_cvtepu16_epi64(_mm_loadu_si128(reinterpret_cast<const __m128i*>(scales)));
  // Two bytes of each eight, twice, above two zeros.
  const __m512i order =
      _mm512_broadcast_i32x4(_mm_set_epi64x(0x0908FFFF0908FFFF, 0x0100FFFF0100FFFF));
  return _mm512_castsi512_ps(_mm512_shuffle_epi8(each, order));
}
#elif defined(__AVX2__)
typedef Floats Part;
typedef __m256i Dots;
typedef __m256i Bytes;

TILTH_INLINE Bytes load_bytes(const std::uint8_t* from) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(from));
}
TILTH_INLINE Bytes low_halves(Bytes x) { return _mm256_and_si256(x, _mm256_set1_epi8(15)); }
TILTH_INLINE Bytes high_halves(Bytes x) { return low_halves(_mm256_srli_epi16(x, 4)); }

template <bool is_int4>
TILTH_INLINE Dots start(const std::int32_t* sums) {
  if (!is_int4) return _mm256_setzero_si256();
  return _mm256_slli_epi32(_mm256_set1_epi64x(load_eight(sums)), 3);
}
template <bool is_int4>
TILTH_INLINE Dots dot(Dots sum, Bytes weights, const std::int8_t* x) {
  // The instruction multiplies unsigned by signed numbers and adds pairs in 16 bits. Pairs of int4
  // fit; in int8 the sign of x is moved to the signed weights, and pairs are at most 32,258.
  const __m256i numbers = _mm256_set1_epi64x(load_eight(x));
  const __m256i pairs =
      is_int4 ? _mm256_maddubs_epi16(weights, numbers)
              : _mm256_maddubs_epi16(
                    _mm256_abs_epi8(numbers),
                    _mm256_sign_epi8(_mm256_xor_si256(weights, _mm256_set1_epi8(-128)), numbers));
  return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
TILTH_INLINE Part numbers_of(Dots sum) { return _mm256_cvtepi32_ps(sum); }
TILTH_INLINE Part scales_of(const std::uint16_t* scales) {
  const __m256i each =
      _mm256_cvtepu16_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(scales)));
  const __m256i order =
      _mm256_broadcastsi128_si256(_mm_set_epi64x(0x0908FFFF0908FFFF, 0x0100FFFF0100FFFF));
  return _mm256_castsi256_ps(_mm256_shuffle_epi8(each, order));
}
#else
template <bool is_int4, typename Weights>
TILTH_INLINE Weights signed_weights(Weights x) {
  return is_int4 ? x - 8 : x ^ static_cast<std::int8_t>(-128);
}
#if defined(__ARM_NEON)
typedef float Part __attribute__((vector_size(16)));
typedef int32x4_t Dots;
typedef int8x16_t Bytes;

TILTH_INLINE Bytes load_bytes(const std::uint8_t* from) {
  return vreinterpretq_s8_u8(vld1q_u8(from));
}
TILTH_INLINE Bytes low_halves(Bytes x) { return vandq_s8(x, vdupq_n_s8(15)); }
TILTH_INLINE Bytes high_halves(Bytes x) {
  return vreinterpretq_s8_u8(vshrq_n_u8(vreinterpretq_u8_s8(x), 4));
}

template <bool is_int4>
TILTH_INLINE Dots start(const std::int32_t*) {
  return vdupq_n_s32(0);
}
template <bool is_int4>
TILTH_INLINE Dots dot(Dots sum, Bytes bytes, const std::int8_t* x) {
  const int8x16_t weights = signed_weights<is_int4>(bytes);
  const int8x16_t numbers = vreinterpretq_s8_s64(vdupq_n_s64(load_eight(x)));
#if defined(__ARM_FEATURE_DOTPROD)
  return vdotq_s32(sum, weights, numbers);
#else
  const int16x8_t low = vmull_s8(vget_low_s8(weights), vget_low_s8(numbers));
  const int16x8_t high = vmull_s8(vget_high_s8(weights), vget_high_s8(numbers));
  return vaddq_s32(sum, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
#endif
}
TILTH_INLINE Part numbers_of(Dots sum) { return __builtin_convertvector(sum, Part); }
#else
typedef Floats Part;
typedef std::int32_t Dots __attribute__((vector_size(32)));
typedef std::int8_t Bytes __attribute__((vector_size(32)));

TILTH_INLINE Bytes load_bytes(const std::uint8_t* from) {
  return *reinterpret_cast<const Bytes __attribute__((may_alias))*>(from);
}
TILTH_INLINE Bytes low_halves(Bytes x) { return x & 15; }
TILTH_INLINE Bytes high_halves(Bytes x) { return (x >> 4) & 15; }

template <bool is_int4>
TILTH_INLINE Dots start(const std::int32_t*) {
  return Dots{};
}
template <bool is_int4>
TILTH_INLINE Dots dot(Dots sum, Bytes bytes, const std::int8_t* x) {
  const Bytes weights = signed_weights<is_int4>(bytes);
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    for (std::size_t k = 0; k < 4; ++k) sum[lane] += weights[4 * lane + k] * x[lane % 2 * 4 + k];
  }
  return sum;
}
TILTH_INLINE Part numbers_of(Dots sum) { return __builtin_convertvector(sum, Part); }
#endif
TILTH_INLINE Part scales_of(const std::uint16_t* scales) {
  Part result;
  for (std::size_t lane = 0; lane < sizeof(Part) / sizeof(float); ++lane) {
    result[lane] = __builtin_bit_cast(float, static_cast<std::uint32_t>(scales[lane / 2]) << 16);
  }
  return result;
}
#endif

constexpr std::size_t part_bytes = sizeof(Bytes);
constexpr std::size_t num_parts = tile_bytes / part_bytes;
constexpr std::size_t part_rows = group_rows / num_parts;

// scaled(sum, scale, block, part) scales the sums of a part; finish(token, group, rows) gets
// products.
template <bool is_int4, std::size_t tokens, typename Scale, typename Finish>
TILTH_INLINE void product_quantized(const std::uint8_t* tiles, std::size_t stream_size,
                                    const QuantizedVectors& x, std::size_t columns,
                                    std::size_t num_groups, const Scale& scaled,
                                    const Finish& finish) {
  const std::size_t num_blocks = columns / block_columns;
  for (std::size_t group = 0; group < num_groups; ++group) {
    Part total[tokens][num_parts] = {};
    for (std::size_t block = 0; block < num_blocks; ++block) {
#pragma GCC unroll 4
      for (std::size_t part = 0; part < num_parts; ++part) {
        Bytes weights[block_columns / 8];
#pragma GCC unroll 4
        for (std::size_t s = 0; s < (is_int4 ? num_streams / 2 : num_streams); ++s) {
          const Bytes bytes = load_bytes(tiles + s * stream_size + part * part_bytes);
          if (is_int4) {
            weights[2 * s] = low_halves(bytes);
            weights[2 * s + 1] = high_halves(bytes);
          } else {
            weights[s] = bytes;
          }
        }
#pragma GCC unroll 6
        for (std::size_t t = 0; t < tokens; ++t) {
          const std::size_t place = t * num_blocks + block;
          Dots sum = start<is_int4>(x.sums + 2 * place);
#pragma GCC unroll 4
          for (std::size_t k = 0; k < block_columns / 8; ++k) {
            sum = dot<is_int4>(sum, weights[k], x.numbers + place * block_columns + 8 * k);
          }
          const Part numbers = numbers_of(sum);
          total[t][part] += scaled(numbers, x.scales[place], group * num_blocks + block, part);
        }
      }
      tiles += tile_bytes;
    }
    for (std::size_t t = 0; t < tokens; ++t) {
      // The two sums of each row.
      const auto low = load(reinterpret_cast<const float*>(total[t]));
      const auto high = load(reinterpret_cast<const float*>(total[t]) + lanes);
      finish(t, group,
             __builtin_shufflevector(low, high, 0, 2, 4, 6, 8, 10, 12, 14) +
                 __builtin_shufflevector(low, high, 1, 3, 5, 7, 9, 11, 13, 15));
    }
  }
}

TILTH_INLINE QuantizedVectors from_token(const QuantizedVectors& x, std::size_t t,
                                         std::size_t columns) {
  const std::size_t block = t * columns / block_columns;
  return {x.numbers + t * columns, x.scales + block, x.sums + 2 * block};
}

void product_int8(const std::uint8_t* tiles, std::size_t stream_size, const float* row_scales,
                  const QuantizedVectors& x, std::size_t num_tokens, std::size_t columns,
                  std::size_t num_groups, float* y) {
  const std::size_t y_stride = num_groups * group_rows;
  for_tokens(num_tokens, [&]<std::size_t tokens>(std::size_t t) __attribute__((always_inline)) {
    product_quantized<false, tokens>(
        tiles, stream_size, from_token(x, t, columns), columns, num_groups,
        [](Part sum, float scale, std::size_t, std::size_t)
            __attribute__((always_inline)) { return sum * scale; },
        [&](std::size_t token, std::size_t group, Floats row) __attribute__((always_inline)) {
          store(y + (t + token) * y_stride + group * group_rows,
                row * load(row_scales + group * group_rows));
        });
  });
}

void product_int4(const std::uint8_t* tiles, std::size_t stream_size,
                  const std::uint16_t* block_scales, const QuantizedVectors& x,
                  std::size_t num_tokens, std::size_t columns, std::size_t num_groups, float* y) {
  const std::size_t y_stride = num_groups * group_rows;
  for_tokens(num_tokens, [&]<std::size_t tokens>(std::size_t t) __attribute__((always_inline)) {
    product_quantized<true, tokens>(
        tiles, stream_size, from_token(x, t, columns), columns, num_groups,
        [&](Part sum, float scale, std::size_t block, std::size_t part)
            __attribute__((always_inline)) {
              return sum * scale * scales_of(block_scales + block * group_rows + part * part_rows);
            },
        [&](std::size_t token, std::size_t group, Floats row) __attribute__((always_inline)) {
          store(y + (t + token) * y_stride + group * group_rows, row);
        });
  });
}

void quantize(const float* x, std::size_t columns, std::int8_t* numbers, float* scales,
              std::int32_t* sums) {
  typedef std::int8_t Eight __attribute__((vector_size(8)));
  for (std::size_t block = 0; block < columns / block_columns; ++block) {
    Floats most = all(0.0f), zero = all(0.0f);
    for (std::size_t i = 0; i < block_columns; i += lanes) {
      const Floats part = load(x + i);
      most = larger(most, larger(part, -part));
      zero += part * all(0.0f);
    }
    most = larger(most, __builtin_shufflevector(most, most, 4, 5, 6, 7, 0, 1, 2, 3));
    most = larger(most, __builtin_shufflevector(most, most, 2, 3, 0, 1, 6, 7, 4, 5));
    const float largest = most[0] > most[1] ? most[0] : most[1];
    scales[block] = largest / 127.0f + sum(zero);
    const Floats inverse = all(largest > 0.0f ? 127.0f / largest : 0.0f);
    const Floats magic = all(12582912.0f);
    Integers total = {};
    for (std::size_t i = 0; i < block_columns; i += lanes) {
      // Rounded as in exp: the integer is left in the low bits.
      const Integers rounded = __builtin_bit_cast(Integers, load(x + i) * inverse + magic) -
                               __builtin_bit_cast(Integers, magic);
      const Eight bytes = __builtin_convertvector(rounded, Eight);
      __builtin_memcpy(numbers + i, &bytes, sizeof(bytes));
      total -= rounded;
    }
    total += __builtin_shufflevector(total, total, 1, 0, 3, 2, 5, 4, 7, 6);
    total += __builtin_shufflevector(total, total, 2, 3, 0, 1, 6, 7, 4, 5);
    sums[2 * block] = static_cast<std::int32_t>(total[0]);
    sums[2 * block + 1] = static_cast<std::int32_t>(total[4]);
    x += block_columns;
    numbers += block_columns;
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

void activate(const float* numbers, std::size_t num_tokens, bool is_gated, std::size_t stride,
              float* out) {
  for (std::size_t t = 0; t < num_tokens; ++t) {
    const Floats gate = load(numbers);
    Floats passed = gate / (all(1.0f) + exp(-gate));
    if (is_gated) passed *= load(numbers + group_rows);
    store(out + t * stride, passed);
    numbers += is_gated ? 2 * group_rows : group_rows;
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

// The largest number, or NaN if there is one.
float largest_of(const float* scores, std::size_t size) {
  Floats most = all(scores[0]), zero = all(0.0f);
  const auto add = [&](Floats part) __attribute__((always_inline)) {
    most = larger(part, most);
    zero += part - part;  // not 0 for an infinity or NaN
  };
  std::size_t i = 0;
  for (; i + lanes <= size; i += lanes) add(load(scores + i));
  float rest[lanes];
  for (std::size_t lane = 0; lane < lanes; ++lane)
    rest[lane] = scores[i + lane < size ? i + lane : 0];
  add(load(rest));
  float largest = most[0];
  for (std::size_t lane = 1; lane < lanes; ++lane) {
    largest = most[lane] > largest ? most[lane] : largest;
  }
  if (sum(zero) == 0.0f) return largest;
  largest = scores[0];
  for (i = 0; i < size; ++i) {
    if (scores[i] != scores[i]) return scores[i];
    largest = scores[i] > largest ? scores[i] : largest;
  }
  return largest;
}

double sum_of(const float* numbers, std::size_t size) {
  typedef double Doubles __attribute__((vector_size(64)));
  Doubles total = {};
  std::size_t i = 0;
  for (; i + lanes <= size; i += lanes)
    total += __builtin_convertvector(load(numbers + i), Doubles);
  for (std::size_t lane = 0; i + lane < size; ++lane) total[lane] += numbers[i + lane];
  return ((total[0] + total[4]) + (total[1] + total[5])) +
         ((total[2] + total[6]) + (total[3] + total[7]));
}

Sum sum_at_least(const float* numbers, std::size_t size, float least) {
  typedef double Doubles __attribute__((vector_size(64)));
  typedef std::int32_t Signed __attribute__((vector_size(32)));
  Doubles total[2] = {};
  Signed count = {};
  const auto add = [&](Doubles& sum, Floats part) __attribute__((always_inline)) {
    const Signed is_kept = part >= all(least);
    sum += __builtin_convertvector(is_kept ? part : all(0.0f), Doubles);
    count -= is_kept;
  };
  std::size_t i = 0;
  for (; i + 2 * lanes <= size; i += 2 * lanes) {
    add(total[0], load(numbers + i));
    add(total[1], load(numbers + i + lanes));
  }
  Sum sum;
  for (; i < size; ++i) {
    if (!(numbers[i] >= least)) continue;
    sum.mass += static_cast<double>(numbers[i]);
    ++sum.count;
  }
  const Doubles both = total[0] + total[1];
  sum.mass +=
      ((both[0] + both[4]) + (both[1] + both[5])) + ((both[2] + both[6]) + (both[3] + both[7]));
  for (std::size_t lane = 0; lane < lanes; ++lane)
    sum.count += static_cast<std::size_t>(count[lane]);
  return sum;
}

std::size_t select(const float* numbers, std::size_t size, float least, float* selected,
                   std::uint32_t* places) {
  std::size_t count = 0, i = 0;
#if defined(__AVX512F__)
  const __m512i ascending = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  for (; i + 16 <= size; i += 16) {
    const __m512 part = _mm512_loadu_ps(numbers + i);
    const __mmask16 mask = _mm512_cmp_ps_mask(part, _mm512_set1_ps(least), _CMP_GE_OQ);
    const __m512i ids = _mm512_add_epi32(ascending, _mm512_set1_epi32(static_cast<int>(i)));
    // Not stored with a mask, which is slow: there is space for all numbers.
    _mm512_storeu_ps(selected + count, _mm512_maskz_compress_ps(mask, part));
    _mm512_storeu_si512(places + count, _mm512_maskz_compress_epi32(mask, ids));
    count += static_cast<std::size_t>(__builtin_popcount(mask));
  }
#endif
  for (; i < size; ++i) {
    selected[count] = numbers[i];
    places[count] = static_cast<std::uint32_t>(i);
    count += numbers[i] >= least ? 1 : 0;
  }
  return count;
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

// The scores of `count` queries with some keys of a block. Each score is a sum in the order of d.
template <std::size_t count, std::size_t vectors>
TILTH_INLINE void score_part(const Query* queries, const float* keys, std::size_t d_head,
                             std::size_t first, float (*scores)[positions_per_block]) {
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

// The scores of at least the first num_positions keys. A block in use has free positions, and the
// caches of many rows are read from memory, so these are not read.
template <std::size_t count>
TILTH_INLINE void score(const Query* queries, const float* keys, std::size_t num_positions,
                        std::size_t d_head, float (*scores)[positions_per_block]) {
  constexpr std::size_t vectors = 4;
  std::size_t first = 0;
  for (; first + (vectors - 1) * vector_size < num_positions; first += vectors * vector_size) {
    score_part<count, vectors>(queries, keys, d_head, first, scores);
  }
  for (; first < num_positions; first += vector_size) {
    score_part<count, 1>(queries, keys, d_head, first, scores);
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
  score<count>(queries, keys, num_positions, d_head, scores);
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

TILTH_INLINE Floats load_int8(const std::int8_t* from) {
  typedef std::int8_t Eight __attribute__((vector_size(8)));
  typedef std::int32_t Wider __attribute__((vector_size(32)));
  return __builtin_convertvector(
      __builtin_convertvector(__builtin_bit_cast(Eight, load_eight(from)), Wider), Floats);
}

// Convert the keys of a block and the values of its first num_positions from int8 to float32.
void convert_block(const float* head, std::size_t num_positions, std::size_t d_head, float* to) {
  const float *key_scales = head, *value_scales = head + positions_per_block;
  const auto* numbers = reinterpret_cast<const std::int8_t*>(head + 2 * positions_per_block);
  for (std::size_t d = 0; d < d_head; ++d) {
    for (std::size_t i = 0; i < num_positions; i += lanes) {
      store(to + i, load_int8(numbers + i) * load(key_scales + i));
    }
    numbers += positions_per_block;
    to += positions_per_block;
  }
  const std::size_t width = (d_head + lanes - 1) / lanes * lanes;
  for (std::size_t i = 0; i < num_positions; ++i) {
    for (std::size_t d = 0; d < width; d += lanes) {
      store(to + d, load_int8(numbers + d) * all(value_scales[i]));
    }
    numbers += width;
    to += width;
  }
}

void attend(const Query* queries, std::size_t num_queries, const float* const* blocks,
            std::size_t offset, std::size_t d_head, CachePrecision precision, float* scratch) {
  const std::size_t width = (d_head + lanes - 1) / lanes * lanes;
  Progress progress[max_queries];
  for (std::size_t i = 0; i < num_queries * width; ++i) scratch[i] = 0.0f;
  float* converted = scratch + max_queries * padded(d_head);
  std::size_t begin = 0;  // of the queries that see the block
  for (std::size_t first = 0; first < queries[num_queries - 1].num_positions;
       first += positions_per_block) {
    const float* keys = blocks[first / positions_per_block] + offset;
    const auto seen = [&](std::size_t q) {
      const std::size_t left = queries[q].num_positions - first;
      return left < positions_per_block ? left : positions_per_block;
    };
    while (queries[begin].num_positions <= first) ++begin;
    if (precision == CachePrecision::int8) {
      convert_block(keys, seen(num_queries - 1), d_head, converted);
      keys = converted;
    } else if (num_queries <= queries_at_once) {
      // The caches of many rows are read from memory: request all at once, and the values before
      // the scores.
      for (std::size_t d = 0; d < d_head; ++d) {
        for (std::size_t i = 0; i < seen(num_queries - 1); i += line) {
          __builtin_prefetch(keys + d * positions_per_block + i);
        }
      }
      const float* values = keys + positions_per_block * d_head;
      for (std::size_t i = 0; i < seen(num_queries - 1) * width; i += line) {
        __builtin_prefetch(values + i);
      }
    }
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
