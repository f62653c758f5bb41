#include "network.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "../common/checked.hpp"
#include "../common/limits.hpp"

namespace tilth::decoder {
namespace {

constexpr std::size_t float_columns = 8;  // of a tile

std::vector<const float*> rows_of(const float* data, std::size_t rows, std::size_t columns) {
  std::vector<const float*> pointers(rows);
  for (std::size_t i = 0; i < rows; ++i) pointers[i] = data + i * columns;
  return pointers;
}

// Round to nearest, ties to even. Weights are finite; an overflow becomes infinity.
std::uint16_t bfloat16_of(float number) {
  const auto bits = std::bit_cast<std::uint32_t>(number);
  return static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

float float_of(std::uint16_t bfloat16) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bfloat16) << 16);
}

Array<float> padded_copy(const float* data, std::size_t size) {
  auto copy = Array<float>::zeros(padded(size));
  std::copy_n(data, size, copy.data());
  return copy;
}

}  // namespace

void Shape::check() const {
  const auto reject = [](const std::string& problem) { throw std::invalid_argument(problem); };
  const std::pair<const char*, std::size_t> numbers[] = {
      {"vocab_size", vocab_size}, {"context_length", context_length},
      {"d_model", d_model},       {"num_layers", num_layers},
      {"num_heads", num_heads},   {"num_kv_heads", num_kv_heads},
      {"d_head", d_head},         {"d_ff", d_ff}};
  for (const auto& [name, number] : numbers) {
    if (number < 1 || number > max_dimension) {
      reject(std::string(name) + " is " + std::to_string(number) + "; give 1 to " +
             std::to_string(max_dimension));
    }
  }
  if (num_heads % num_kv_heads != 0) reject("num_heads is not a multiple of num_kv_heads");
  if (has_rope() && (d_head % 2 != 0 || rope_frequencies.size() != d_head / 2)) {
    reject("RoPE needs heads of an even width, and a frequency for each pair");
  }
}

Matrix::Matrix(const std::vector<const float*>& rows, std::size_t columns, Precision precision)
    : num_groups_(padded(rows.size(), group_rows) / group_rows), columns_(padded(columns)) {
  const std::size_t size = checked_multiply(num_groups_, group_rows, columns_);
  if (precision == Precision::float32) {
    tiles_ = Array<float>::zeros(size);
  } else if (precision == Precision::bfloat16) {
    half_tiles_ = Array<std::uint16_t>::zeros(size);
  } else if (precision == Precision::int8) {
    quantized_tiles_ = Array<std::uint8_t>::zeros(size);
    std::fill_n(quantized_tiles_.data(), size, std::uint8_t{128});
    row_scales_ = Array<float>::zeros(num_groups_ * group_rows);
  } else {
    packed_tiles_ = Array<std::uint8_t>::zeros(size / 2);
    std::fill_n(packed_tiles_.data(), size / 2, std::uint8_t{0x88});
    block_scales_ = Array<std::uint16_t>::zeros(size / block_columns);
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] == nullptr) continue;
    if (precision == Precision::int8) {
      set_row_int8(i, rows[i], columns);
    } else if (precision == Precision::int4) {
      set_row_int4(i, rows[i], columns);
    } else {
      set_row(i, rows[i], columns);
    }
  }
}

void Matrix::set_row(std::size_t i, const float* row, std::size_t columns) {
  const std::size_t stream = i % group_rows / stream_rows, r = i % stream_rows;
  std::size_t tile =
      stream * stream_size() + i / group_rows * stream_rows * columns_ + r * float_columns;
  for (std::size_t column = 0; column < columns; column += float_columns) {
    const std::size_t count = std::min(float_columns, columns - column);
    if (tiles_.size() > 0) {
      std::copy_n(row + column, count, tiles_.data() + tile);
    } else {
      std::transform(row + column, row + column + count, half_tiles_.data() + tile, bfloat16_of);
    }
    tile += stream_rows * float_columns;
  }
}

// The byte of a weight, in streams of 8 columns of a tile (int8) or of 16 (int4).
std::size_t Matrix::place_of(std::size_t i, std::size_t column, std::size_t stream_columns) const {
  const std::size_t tile = i / group_rows * (columns_ / block_columns) + column / block_columns;
  const std::size_t stream = column % block_columns / stream_columns;
  return stream * stream_size() + tile * tile_bytes + i % group_rows * 8 + column % 8;
}

void Matrix::set_row_int8(std::size_t i, const float* row, std::size_t columns) {
  float largest = 0.0f;
  for (std::size_t column = 0; column < columns; ++column) {
    largest = std::max(largest, std::fabs(row[column]));
  }
  row_scales_.data()[i] = largest / 127.0f;
  const float inverse = largest > 0.0f ? 127.0f / largest : 0.0f;
  for (std::size_t column = 0; column < columns; ++column) {
    quantized_tiles_.data()[place_of(i, column, 8)] =
        static_cast<std::uint8_t>(std::lrint(row[column] * inverse) + 128);
  }
}

// The number with the largest magnitude becomes -8, so its sign is that of the scale.
void Matrix::set_row_int4(std::size_t i, const float* row, std::size_t columns) {
  const std::size_t num_blocks = columns_ / block_columns;
  for (std::size_t first = 0; first < columns; first += block_columns) {
    const std::size_t count = std::min(block_columns, columns - first);
    float largest = 0.0f;
    for (std::size_t k = 0; k < count; ++k) {
      if (std::fabs(row[first + k]) > std::fabs(largest)) largest = row[first + k];
    }
    const std::uint16_t scale = bfloat16_of(largest / -8.0f);
    const std::size_t block = i / group_rows * num_blocks + first / block_columns;
    block_scales_.data()[block * group_rows + i % group_rows] = scale;
    const float width = float_of(scale);
    if (width == 0.0f) continue;
    for (std::size_t column = first; column < first + count; ++column) {
      const auto four =
          static_cast<unsigned>(std::clamp(std::lrint(row[column] / width), -8l, 7l) + 8);
      std::uint8_t& byte = packed_tiles_.data()[place_of(i, column, 16)];
      byte = static_cast<std::uint8_t>(column % 16 < 8 ? (byte & 0xF0) | four
                                                       : (byte & 15) | four << 4);
    }
  }
}

std::size_t Matrix::group_bytes() const {
  return (tiles_.size() * sizeof(float) + half_tiles_.size() * sizeof(std::uint16_t) +
          quantized_tiles_.size() + packed_tiles_.size()) /
         num_groups_;
}

void Matrix::multiply(const Kernels& kernels, const Operand& x, std::size_t num_tokens,
                      std::size_t first_group, std::size_t num_groups, float* y) const {
  const std::size_t start = first_group * stream_rows * columns_, stream = stream_size();
  if (tiles_.size() > 0) {
    kernels.product(tiles_.data() + start, stream, x.values, num_tokens, columns_, num_groups, y);
  } else if (half_tiles_.size() > 0) {
    kernels.product_bfloat16(half_tiles_.data() + start, stream, x.values, num_tokens, columns_,
                             num_groups, y);
  } else if (quantized_tiles_.size() > 0) {
    kernels.product_int8(quantized_tiles_.data() + start, stream,
                         row_scales_.data() + first_group * group_rows, x.quantized, num_tokens,
                         columns_, num_groups, y);
  } else {
    kernels.product_int4(packed_tiles_.data() + start, stream,
                         block_scales_.data() + first_group * group_rows * columns_ / block_columns,
                         x.quantized, num_tokens, columns_, num_groups, y);
  }
}

Network::Network(const Shape& shape, Precision precision, const WeightSource& source)
    : shape_(shape), precision_(precision) {
  shape.check();
  const std::size_t d_model = shape.d_model, d_ff = shape.d_ff;
  const std::size_t d_query = shape.d_query(), d_kv = shape.d_kv();
  // Of the head and of attention.
  const Precision most = precision == Precision::int4 ? Precision::int8 : precision;
  const float* embeddings = source("token_embeddings.weight", shape.vocab_size, d_model);
  embeddings_ = Array<float>::zeros(checked_multiply(shape.vocab_size, d_model));
  std::copy_n(embeddings, embeddings_.size(), embeddings_.data());
  const float* head =
      shape.is_tied ? embeddings_.data() : source("lm_head.weight", shape.vocab_size, d_model);
  head_ = Matrix(rows_of(head, shape.vocab_size, d_model), d_model, most);
  if (shape.norm == Norm::pre) {
    ln_final_ = padded_copy(source("ln_final.weight", 1, d_model), d_model);
  }

  for (std::size_t i = 0; i < shape.num_layers; ++i) {
    const auto weight = [&](const std::string& name, std::size_t rows, std::size_t columns) {
      return source("layers." + std::to_string(i) + "." + name + ".weight", rows, columns);
    };
    const auto bias = [&](const std::string& name, std::size_t size) {
      return source("layers." + std::to_string(i) + "." + name + ".bias", 1, size);
    };
    Layer& layer = layers_.emplace_back();
    if (shape.norm != Norm::none) {
      layer.ln1 = padded_copy(weight("ln1", 1, d_model), d_model);
      layer.ln2 = padded_copy(weight("ln2", 1, d_model), d_model);
    }
    if (shape.has_qk_norm) {
      layer.q_norm = padded_copy(weight("attn.q_norm", 1, shape.d_head), shape.d_head);
      layer.k_norm = padded_copy(weight("attn.k_norm", 1, shape.d_head), shape.d_head);
    }
    auto rows = rows_of(weight("attn.q_proj", d_query, d_model), d_query, d_model);
    for (const char* name : {"attn.k_proj", "attn.v_proj"}) {
      const auto more = rows_of(weight(name, d_kv, d_model), d_kv, d_model);
      rows.insert(rows.end(), more.begin(), more.end());
    }
    layer.queries_keys_values = Matrix(rows, d_model, most);
    layer.output = Matrix(rows_of(weight("attn.output_proj", d_model, d_query), d_model, d_query),
                          d_query, most);
    if (shape.has_qkv_bias) {
      layer.biases = Array<float>::zeros(d_query + 2 * d_kv);
      std::copy_n(bias("attn.q_proj", d_query), d_query, layer.biases.data());
      std::copy_n(bias("attn.k_proj", d_kv), d_kv, layer.biases.data() + d_query);
      std::copy_n(bias("attn.v_proj", d_kv), d_kv, layer.biases.data() + d_query + d_kv);
    }

    std::vector<std::vector<const float*>> parts = {
        rows_of(weight("ffn.w1", d_ff, d_model), d_ff, d_model)};
    if (shape.is_gated) parts.push_back(rows_of(weight("ffn.w3", d_ff, d_model), d_ff, d_model));
    rows.clear();
    for (std::size_t first = 0; first < d_ff; first += group_rows) {
      for (const auto& part : parts) {
        for (std::size_t row = first; row < first + group_rows; ++row) {
          rows.push_back(row < d_ff ? part[row] : nullptr);
        }
      }
    }
    layer.gate_value = Matrix(rows, d_model, precision);
    layer.down = Matrix(rows_of(weight("ffn.w2", d_model, d_ff), d_model, d_ff), d_ff, precision);
  }
}

}  // namespace tilth::decoder
