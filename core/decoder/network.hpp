// Network: the immutable weights of a model, packed for the kernels.
//
// clang-format off
//     const auto source = [&](const std::string& name, std::size_t rows, std::size_t columns) {
//       return weights.at(name).data();  // rows * columns floats, row-major
//     };
//     const Network network(shape, Precision::float32, source);
// clang-format on
//
// Contract: decoders on any number of threads share a Network. It copies the weights, so pointers
// of the source need to be valid during the constructor only. The constructor throws
// std::invalid_argument for an impossible shape, std::bad_alloc, and exceptions of the source.
//
// Complexity: O(weights). A weight takes 4 bytes in float32, 2 in bfloat16, 1 in int8 plus 4 bytes
// for each row, and 4.5 bits in int4. Embeddings, norms and biases are always float32. With int4
// the feed-forwards have int4 weights, attention and head int8.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "../common/array.hpp"
#include "kernels.hpp"

namespace tilth::decoder {

enum class Norm { pre, post, none };
enum class Precision { float32, bfloat16, int8, int4 };

// The fields of tilth.config.ModelConfig.
struct Shape {
  std::size_t vocab_size, context_length, d_model, num_layers, num_heads, num_kv_heads, d_head,
      d_ff;
  std::vector<double> rope_frequencies = {};  // radians per position of each pair; empty: no RoPE
  float norm_epsilon;                         // of every RMSNorm
  Norm norm = Norm::pre;
  bool is_gated = true;  // swiglu, else silu
  bool is_tied = false;
  bool has_qk_norm = false;
  bool has_qkv_bias = false;

  bool has_rope() const { return !rope_frequencies.empty(); }
  std::size_t d_query() const { return num_heads * d_head; }
  std::size_t d_kv() const { return num_kv_heads * d_head; }

  // Throws std::invalid_argument unless every number is in [1, max_dimension], num_kv_heads divides
  // num_heads and RoPE has d_head / 2 frequencies. After it, divisions by these numbers and
  // products of two of them are safe.
  void check() const;
};

using WeightSource =
    std::function<const float*(const std::string& name, std::size_t rows, std::size_t columns)>;

// The vectors of a product, one for each token: float32, or int8 with a scale for each 32 numbers.
struct Operand {
  const float* values;
  QuantizedVectors quantized;
};

class Matrix {
 public:
  Matrix() = default;
  // A row of nullptr is a row of zeros.
  Matrix(const std::vector<const float*>& rows, std::size_t columns, Precision precision);

  std::size_t num_groups() const { return num_groups_; }
  std::size_t columns() const { return columns_; }  // padded
  std::size_t group_bytes() const;

  bool is_quantized() const { return quantized_tiles_.size() > 0 || packed_tiles_.size() > 0; }

  // y = W x for the rows of these groups; y has 8 * num_groups numbers for each token.
  void multiply(const Kernels& kernels, const Operand& x, std::size_t num_tokens,
                std::size_t first_group, std::size_t num_groups, float* y) const;

 private:
  // Numbers of a stream; bytes in int4, which has half as many streams of half as many bytes.
  std::size_t stream_size() const { return num_groups_ * stream_rows * columns_; }
  std::size_t place_of(std::size_t i, std::size_t column, std::size_t stream_columns) const;
  void set_row(std::size_t i, const float* row, std::size_t columns);
  void set_row_int8(std::size_t i, const float* row, std::size_t columns);
  void set_row_int4(std::size_t i, const float* row, std::size_t columns);

  std::size_t num_groups_ = 0, columns_ = 0;
  Array<float> tiles_;                   // in float32
  Array<std::uint16_t> half_tiles_;      // in bfloat16
  Array<std::uint8_t> quantized_tiles_;  // in int8, with the next
  Array<float> row_scales_;
  Array<std::uint8_t> packed_tiles_;  // in int4, with the next
  Array<std::uint16_t> block_scales_;
};

struct Layer {
  Array<float> ln1, ln2, q_norm, k_norm;  // empty if absent
  Array<float> biases;                    // of queries, keys and values; empty if absent
  Matrix queries_keys_values;             // the rows of all three
  Matrix output;
  Matrix gate_value;  // 8 rows of w1, 8 of w3, 8 of w1, ...; without a gate, w1
  Matrix down;        // w2
};

class Network {
 public:
  Network(const Shape& shape, Precision precision, const WeightSource& source);

  const Shape& shape() const { return shape_; }
  Precision precision() const { return precision_; }
  const float* embedding(std::size_t id) const { return embeddings_.data() + id * shape_.d_model; }
  const std::vector<Layer>& layers() const { return layers_; }
  const Array<float>& ln_final() const { return ln_final_; }  // empty if absent
  const Matrix& head() const { return head_; }

 private:
  Shape shape_;
  Precision precision_;
  Array<float> embeddings_;
  std::vector<Layer> layers_;
  Array<float> ln_final_;
  Matrix head_;
};

}  // namespace tilth::decoder
