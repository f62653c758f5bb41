// kernels: the arithmetic of a decoder, for each kind of processor, chosen when the program runs.
//
//     const Kernels& kernels = best_kernels();  // AVX2 with FMA where the processor has it
//
// Layout. A matrix is cut into groups of 8 rows, and a group into tiles: 8 rows times 8 columns of
// floats, or 8 rows times 32 columns of int8. It lies in 4 streams, one behind the other: in each,
// two rows of every tile, tile by tile and group by group. A product with a vector reads all four
// side by side, and the processor fetches ahead in each of them: a token of 22.7M parameters takes
// 0.77 to 0.83 of the time that one stream took (int8: 0.64 to 0.81), and with 2 or 8 streams it
// takes 1.06 to 1.08 times as long as with 4. Vectors are padded with zeros to a multiple of 32,
// and a matrix with zeros to whole tiles.
//
// Promise: every function is pure, takes time linear in what it reads, and gives the same bits for
// the same numbers; processors may differ from each other in rounding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tilth::decoder {

constexpr std::size_t group_rows = 8;  // rows of a tile
constexpr std::size_t num_streams = 4;
constexpr std::size_t stream_rows = group_rows / num_streams;  // of a tile, in one stream
constexpr std::size_t block_columns =
    32;  // columns of an int8 tile, and what vectors are padded to
constexpr std::size_t positions_per_block = 64;  // of keys, see attend

constexpr std::size_t padded(std::size_t size, std::size_t multiple = block_columns) {
  return (size + multiple - 1) / multiple * multiple;
}

struct Kernels {
  const char* name;

  // y[r] = sum over c of W[r][c] x[c], for num_groups groups of rows. `tiles` is where they begin
  // in the first stream; in the next, they begin stream_size numbers further on.
  void (*product)(const float* tiles, std::size_t stream_size, const float* x, std::size_t columns,
                  std::size_t num_groups, float* y);

  // The same of int8 weights, each row with its scale, and an int8 vector, each 32 of it with
  // theirs: sums of integers are exact, and each 32 products are scaled at once.
  void (*product_int8)(const std::int8_t* tiles, std::size_t stream_size, const float* row_scales,
                       const std::int8_t* x, const float* x_scales, std::size_t columns,
                       std::size_t num_groups, float* y);

  // x in steps of 1/127 of the largest of each 32.
  void (*quantize)(const float* x, std::size_t columns, std::int8_t* quantized, float* scales);

  // x / sqrt(mean(x^2) + epsilon) * weight; the mean is over `size`, the padding stays zero.
  void (*rms_norm)(const float* x, const float* weight, float epsilon, std::size_t size,
                   float* out);

  // gate * sigmoid(gate) * value for `size` numbers, a multiple of 8; without a value, times 1.
  void (*silu)(const float* gate, const float* value, std::size_t size, float* out);

  // softmax(query . keys) . values for one head. Keys lie in blocks of 64 positions, within a block
  // number by number of the head: key[position][d] is keys[(position / 64 * d_head + d) * 64 +
  // position % 64], so that 8 positions are scored at once. Values lie position by position, padded
  // to a multiple of 8. `scores` has room for whole blocks, and so has `out` for whole vectors.
  void (*attend)(const float* query, const float* keys, const float* values,
                 std::size_t num_positions, std::size_t d_head, float* scores, float* out);
};

// The quickest that this processor runs.
const Kernels& best_kernels();

// All that this processor runs, the portable one first: tests hold them equal.
std::span<const Kernels* const> runnable_kernels();

extern const Kernels portable_kernels;
#if defined(__x86_64__)
extern const Kernels avx2_kernels;
#endif

}  // namespace tilth::decoder
