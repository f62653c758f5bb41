// Kernels: the arithmetic of the decoder for one instruction set, selected at run time.
//
//     const Kernels& kernels = best_kernels();  // AVX-512 with VNNI, or AVX2 with FMA
//     kernels.rms_norm(x, weight, 1e-5f, size, out);
//
// Layout: a matrix is split into groups of 8 rows, and a group into tiles. A tile has 8 rows x 8
// columns in float32 and bfloat16, 8 rows x 32 columns in int8 and int4. The matrix is stored as 4
// consecutive streams, tile by tile and group by group: each has two rows of every tile in float32
// and bfloat16, 8 of its columns in int8. Int4 has 2 streams of 16 columns, two in each byte. A
// product reads the streams in parallel, and the processor prefetches each. At 22.7M parameters a
// token takes 0.77 to 0.83 of the time of one stream (int8: 0.64 to 0.81). With 2 or 8 streams it
// takes 1.06 to 1.08 of the time of 4. Vectors are padded with zeros to a multiple of 32, matrices
// to whole tiles.
//
// Contract: every function is pure and deterministic. AVX2 and AVX-512 give the same bits; other
// instruction sets may differ in rounding.
//
// Complexity: linear in the size of the arguments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tilth::decoder {

constexpr std::size_t group_rows = 8;  // rows of a tile
constexpr std::size_t num_streams = 4;
constexpr std::size_t stream_rows = group_rows / num_streams;  // of a tile, in one stream
constexpr std::size_t block_columns = 32;        // columns of an int8 tile, padding of vectors
constexpr std::size_t tile_bytes = 64;           // of an int8 or int4 tile, in one stream
constexpr std::size_t positions_per_block = 64;  // of keys, see attend
constexpr std::size_t max_tokens = 64;           // of a product

constexpr std::size_t padded(std::size_t size, std::size_t multiple = block_columns) {
  return (size + multiple - 1) / multiple * multiple;
}

// Of the keys and values of a sequence.
enum class CachePrecision { float32, int8 };

// The floats that a block of 64 positions takes for one head; see Kernels::attend. d_head is
// checked.
constexpr std::size_t cached_head_size(std::size_t d_head, CachePrecision precision) {
  const std::size_t numbers = positions_per_block * (d_head + padded(d_head, 8));
  return precision == CachePrecision::float32 ? numbers : 2 * positions_per_block + numbers / 4;
}

// The query of a head for its first num_positions positions; out has d_head numbers.
struct Query {
  const float* query;
  std::size_t num_positions;
  float* out;
};
constexpr std::size_t max_queries = 64;

constexpr std::size_t attention_scratch(std::size_t d_head) {
  return max_queries * padded(d_head) + cached_head_size(d_head, CachePrecision::float32);
}

// Vectors in int8, contiguous: for each 32 numbers a scale, and minus the sum of columns 0 to 3 and
// of columns 4 to 7 of each eight.
struct QuantizedVectors {
  const std::int8_t* numbers;
  const float* scales;
  const std::int32_t* sums;
};

// A sum in float64, and how many numbers it has.
struct Sum {
  double mass = 0.0;
  std::size_t count = 0;
};

struct Kernels {
  const char* name;

  // Y = W X for num_groups groups of rows and at most max_tokens vectors x, each `columns` further
  // than the last; y has num_groups * 8 numbers for each token. `tiles` points to the first tile in
  // the first stream; the next stream is stream_size numbers further. The bits of a token do not
  // depend on the other tokens.
  void (*product)(const float* tiles, std::size_t stream_size, const float* x,
                  std::size_t num_tokens, std::size_t columns, std::size_t num_groups, float* y);

  // The same for weights in bfloat16, the upper half of a float32.
  void (*product_bfloat16)(const std::uint16_t* tiles, std::size_t stream_size, const float* x,
                           std::size_t num_tokens, std::size_t columns, std::size_t num_groups,
                           float* y);

  // The same for int8 weights plus 128, with a scale for each row, and vectors of `quantize`. The
  // 64 bytes of a tile in stream s are columns 8s to 8s + 7 of its rows. Sums of 16 products are
  // exact integers, which are then scaled.
  void (*product_int8)(const std::uint8_t* tiles, std::size_t stream_size, const float* row_scales,
                       const QuantizedVectors& x, std::size_t num_tokens, std::size_t columns,
                       std::size_t num_groups, float* y);

  // The same for int4 weights in [-8, 7] plus 8, with a bfloat16 scale for each row and 32 columns:
  // eight scales for the rows of a tile, tile by tile. The low halves of the 64 bytes of a tile in
  // stream s are columns 16s to 16s + 7 of its rows, the high halves the next eight.
  void (*product_int4)(const std::uint8_t* tiles, std::size_t stream_size,
                       const std::uint16_t* block_scales, const QuantizedVectors& x,
                       std::size_t num_tokens, std::size_t columns, std::size_t num_groups,
                       float* y);

  // Quantize each 32 numbers of x to int8, with the scale max |x| / 127; see QuantizedVectors.
  void (*quantize)(const float* x, std::size_t columns, std::int8_t* numbers, float* scales,
                   std::int32_t* sums);

  // out = x / sqrt(mean(x^2) + epsilon) * weight; the mean is over `size`, padding stays zero.
  void (*rms_norm)(const float* x, const float* weight, float epsilon, std::size_t size,
                   float* out);

  // out = gate * sigmoid(gate) * value: 8 numbers for each token, `stride` further than the last
  // one's. `numbers` has 8 gates and 8 values for each token; if not is_gated, gates only.
  void (*activate)(const float* numbers, std::size_t num_tokens, bool is_gated, std::size_t stride,
                   float* out);

  // out = e^((scores - largest) * factor); 0 below e^-87 and for NaN.
  void (*exponentials)(const float* scores, float largest, float factor, std::size_t size,
                       float* out);

  // The largest of at least one number, or NaN if there is one.
  float (*largest)(const float* scores, std::size_t size);

  // The sum in float64, in an order that depends on `size` only.
  double (*sum)(const float* numbers, std::size_t size);

  // The sum of the numbers of at least `least`, likewise.
  Sum (*sum_at_least)(const float* numbers, std::size_t size, float least);

  // Copy the numbers of at least `least`, and their places; return how many there are. Both outputs
  // have space for `size`.
  std::size_t (*select)(const float* numbers, std::size_t size, float least, float* selected,
                        std::uint32_t* places);

  // log(sum(e^scores)) of at least one finite number, to 1e-6.
  double (*log_sum_exp)(const float* scores, std::size_t size);

  // out = softmax(query . keys) . values for at most max_queries queries of heads with the same
  // keys, by ascending number of positions. blocks[i] + offset has the keys of 64 positions,
  // transposed: key[position][d] is at d * 64 + position. Their values follow by position, padded
  // to a multiple of 8. In int8, the scales of the 64 keys and of the 64 values come before them,
  // and a block is converted to float32 once. The softmax is computed block by block, so that all
  // queries use a block while it is in the processor's cache. The bits of a query do not depend on
  // the other queries. `scratch` has attention_scratch(d_head) numbers.
  void (*attend)(const Query* queries, std::size_t num_queries, const float* const* blocks,
                 std::size_t offset, std::size_t d_head, CachePrecision precision, float* scratch);
};

// The fastest kernels of this processor.
const Kernels& best_kernels();

// All kernels of this processor, the portable ones first; tests compare them.
std::span<const Kernels* const> runnable_kernels();

extern const Kernels portable_kernels;
#if defined(__x86_64__)
extern const Kernels avx2_kernels;
extern const Kernels avx512_kernels;
#elif defined(__aarch64__) && defined(__linux__)
extern const Kernels neon_dot_kernels;
#endif

}  // namespace tilth::decoder
