// network: the weights of a model, laid out for the kernels, and never changed.
//
// clang-format off
//     const auto source = [&](const std::string& name, std::size_t rows, std::size_t columns) {
//       return weights.at(name).data();  // rows * columns floats, row by row
//     };
//     const Network network(shape, Precision::float32, source);
// clang-format on
//
// Promise: one Network serves any number of decoders at once. It holds a copy: what the source
// gives need not outlive the call. 4 bytes a weight in float32, 1 byte and a scale for each row in
// int8; embeddings and norms are float32 always. Throws std::invalid_argument for a shape that no
// network has, what the source throws, and std::bad_alloc.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "../common/array.hpp"
#include "kernels.hpp"

namespace tilth::decoder {

enum class Norm { pre, post, none };
enum class Precision { float32, int8 };

// As in tilth.model.config.
struct Shape {
  std::size_t vocab_size, context_length, d_model, num_layers, num_heads, num_kv_heads, d_ff;
  double rope_theta = 10000.0;
  float norm_epsilon;  // of every RMSNorm
  Norm norm = Norm::pre;
  bool has_rope = true;
  bool is_gated = true;  // swiglu, else silu
  bool is_tied = false;
  bool has_qk_norm = false;

  std::size_t d_head() const { return d_model / num_heads; }
  std::size_t d_kv() const { return num_kv_heads * d_head(); }

  // Throws std::invalid_argument unless every number is from 1 to max_dimension and the heads
  // divide as they must: whoever has a Network may divide by these and multiply any two.
  void check() const;
};

using WeightSource =
    std::function<const float*(const std::string& name, std::size_t rows, std::size_t columns)>;

// A vector as the product takes it: floats, or int8 with a scale for each 32.
struct Operand {
  const float* values;
  const std::int8_t* quantized;
  const float* scales;
};

class Matrix {
 public:
  Matrix() = default;
  // Rows may be nullptr, which is all zeros.
  Matrix(const std::vector<const float*>& rows, std::size_t columns, Precision precision);

  std::size_t num_groups() const { return num_groups_; }
  std::size_t columns() const { return columns_; }  // padded
  std::size_t group_bytes() const;

  // y[0] to y[8 * num_groups - 1]: the products of these groups' rows with x.
  void multiply(const Kernels& kernels, const Operand& x, std::size_t first_group,
                std::size_t num_groups, float* y) const;

 private:
  std::size_t stream_size() const { return num_groups_ * stream_rows * columns_; }

  std::size_t num_groups_ = 0, columns_ = 0;
  Array<float> tiles_;  // in float32, else these:
  Array<std::int8_t> quantized_tiles_;
  Array<float> row_scales_;
};

struct Layer {
  Array<float> ln1, ln2, q_norm, k_norm;  // empty where there is none
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
  const Array<float>& ln_final() const { return ln_final_; }  // empty where there is none
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
