#include "decoder.hpp"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cmath>
#include <stdexcept>
#include <string>

namespace tilth::decoder {
namespace {

constexpr float epsilon = 1e-5f;  // of RMSNorm

// Of weights: little enough that no thread waits long for another's last job, enough to make taking
// one cheap.
constexpr std::size_t job_bytes = std::size_t{1} << 15;

constexpr auto between_checks = std::chrono::milliseconds(50);

}  // namespace

Decoder::Decoder(std::shared_ptr<const Network> network, std::size_t num_threads,
                 const Kernels& kernels)
    : network_(std::move(network)),
      kernels_(kernels),
      shape_(network_->shape()),
      team_(num_threads),
      stream_(shape_.d_model),
      normalised_(shape_.d_model),
      heads_(shape_.d_model + 2 * shape_.d_kv()),
      mixed_(shape_.d_model),
      added_(shape_.d_model),
      hidden_(shape_.d_ff) {
  const std::size_t d_head = shape_.d_head(), half = d_head / 2;
  if (shape_.has_rope) {
    cosines_ = Array<float>(shape_.context_length * half);
    sines_ = Array<float>(shape_.context_length * half);
    for (std::size_t k = 0; k < half; ++k) {
      const double exponent = -static_cast<double>(2 * k) / static_cast<double>(d_head);
      const double frequency = std::pow(shape_.rope_theta, exponent);
      for (std::size_t position = 0; position < shape_.context_length; ++position) {
        const double angle = static_cast<double>(position) * frequency;
        cosines_.data()[position * half + k] = static_cast<float>(std::cos(angle));
        sines_.data()[position * half + k] = static_cast<float>(std::sin(angle));
      }
    }
  }
  const std::size_t positions = padded(shape_.context_length, positions_per_block);
  keys_size_ = positions * d_head;
  values_size_ = shape_.context_length * padded(d_head, 8);
  keys_ = Array<float>(shape_.num_layers * shape_.num_kv_heads * keys_size_);
  values_ = Array<float>(shape_.num_layers * shape_.num_kv_heads * values_size_);
  scratch_size_ = positions + padded(d_head);
  worker_scratch_ = Array<float>(team_.num_threads() * scratch_size_);
  if (network_->precision() == Precision::int8) {
    const std::size_t widest = padded(std::max(shape_.d_model, shape_.d_ff));
    quantized_ = Array<std::int8_t>(tokens_per_block * widest);
    scales_ = Array<float>(tokens_per_block * widest / block_columns);
  }
}

float* Decoder::keys(std::size_t layer, std::size_t kv_head) {
  return keys_.data() + (layer * shape_.num_kv_heads + kv_head) * keys_size_;
}

float* Decoder::values(std::size_t layer, std::size_t kv_head) {
  return values_.data() + (layer * shape_.num_kv_heads + kv_head) * values_size_;
}

void Decoder::truncate(std::size_t length) {
  if (length > length_) {
    throw std::invalid_argument("cannot keep " + std::to_string(length) + " tokens of " +
                                std::to_string(length_));
  }
  length_ = length;
}

void Decoder::extend(std::span<const std::uint32_t> ids, Logits wanted, std::span<float> logits,
                     const InterruptCheck& check) {
  assert(logits.size() == shape_.vocab_size * (wanted == Logits::every ? ids.size() : 1));
  if (ids.size() > shape_.context_length - length_) {
    throw std::invalid_argument("the context length is " + std::to_string(shape_.context_length) +
                                ", and " + std::to_string(length_) + " tokens and " +
                                std::to_string(ids.size()) + " more do not fit");
  }
  for (const std::uint32_t id : ids) {
    if (id >= shape_.vocab_size) {
      throw std::invalid_argument("token id " + std::to_string(id) +
                                  " is not within the vocabulary of " +
                                  std::to_string(shape_.vocab_size));
    }
  }
  // Over all blocks: on a quick machine no single one lasts long enough to be asked in.
  auto checked = std::chrono::steady_clock::now();
  const InterruptCheck now_and_then = [&check, &checked] {
    const auto now = std::chrono::steady_clock::now();
    if (check && now - checked > between_checks) {
      checked = now;
      check();
    }
  };
  const std::size_t length_before = length_;
  try {
    for (std::size_t first = 0; first < ids.size(); first += tokens_per_block) {
      const auto block = ids.subspan(first, std::min(tokens_per_block, ids.size() - first));
      if (wanted == Logits::every) {
        const std::size_t size = block.size() * shape_.vocab_size;
        read_block(block, wanted, logits.subspan(first * shape_.vocab_size, size), now_and_then);
      } else {
        const bool is_last = first + block.size() == ids.size();
        read_block(block, wanted, is_last ? logits : std::span<float>(), now_and_then);
      }
      length_ += block.size();
    }
  } catch (...) {
    length_ = length_before;
    throw;
  }
}

// Takes a block of tokens through the network; empty logits are not wanted.
void Decoder::read_block(std::span<const std::uint32_t> ids, Logits wanted, std::span<float> logits,
                         const InterruptCheck& check) {
  const std::size_t num_tokens = ids.size(), d_model = shape_.d_model;
  for (std::size_t t = 0; t < num_tokens; ++t) {
    std::copy_n(network_->embedding(ids[t]), d_model, stream_[t]);
  }
  for (std::size_t i = 0; i < network_->layers().size(); ++i) {
    const Layer& layer = network_->layers()[i];
    attend(layer, i, num_tokens);
    feed_forward(layer, num_tokens);
    check();
  }
  if (logits.empty()) return;

  // Only the last token's, if that is enough.
  const std::size_t first = wanted == Logits::every ? 0 : num_tokens - 1;
  if (first > 0) std::copy_n(stream_[first], d_model, stream_[0]);
  Rows& output = network_->ln_final().size() > 0
                     ? normalised(network_->ln_final(), num_tokens - first)
                     : stream_;
  multiply(network_->head(), output, num_tokens - first, 1,
           [&](std::size_t token, std::size_t group, const float* eight) {
             const std::size_t row = group * group_rows;
             std::copy_n(eight, std::min(group_rows, shape_.vocab_size - row),
                         logits.data() + token * shape_.vocab_size + row);
           });
}

void Decoder::attend(const Layer& layer, std::size_t layer_index, std::size_t num_tokens) {
  Rows& input = shape_.norm == Norm::pre ? normalised(layer.ln1, num_tokens) : stream_;
  multiply(layer.queries_keys_values, input, num_tokens, heads_);
  place_heads(layer, layer_index, num_tokens);
  const std::size_t d_head = shape_.d_head(), group = shape_.num_heads / shape_.num_kv_heads;
  // A head's tokens follow each other, so that its keys and values stay near the processor.
  team_.run(shape_.num_heads, [&](std::size_t head, std::size_t worker) {
    float* scores = worker_scratch_.data() + worker * scratch_size_;
    float* mixture = scores + padded(shape_.context_length, positions_per_block);
    for (std::size_t t = 0; t < num_tokens; ++t) {
      kernels_.attend(heads_[t] + head * d_head, keys(layer_index, head / group),
                      values(layer_index, head / group), length_ + t + 1, d_head, scores, mixture);
      std::copy_n(mixture, d_head, mixed_[t] + head * d_head);
    }
  });
  multiply(layer.output, mixed_, num_tokens, added_);
  add_to_stream(added_, num_tokens);
  if (shape_.norm == Norm::post) {
    for (std::size_t t = 0; t < num_tokens; ++t) {
      kernels_.rms_norm(stream_[t], layer.ln1.data(), epsilon, shape_.d_model, stream_[t]);
    }
  }
}

void Decoder::feed_forward(const Layer& layer, std::size_t num_tokens) {
  Rows& input = shape_.norm == Norm::pre ? normalised(layer.ln2, num_tokens) : stream_;
  // Eight gates, then the eight values they are for.
  const std::size_t step = shape_.is_gated ? 2 : 1;
  multiply(layer.gate_value, input, num_tokens, step,
           [&](std::size_t token, std::size_t group, const float* numbers) {
             kernels_.silu(numbers, shape_.is_gated ? numbers + group_rows : nullptr, group_rows,
                           hidden_[token] + group / step * group_rows);
           });
  multiply(layer.down, hidden_, num_tokens, added_);
  add_to_stream(added_, num_tokens);
  if (shape_.norm == Norm::post) {
    for (std::size_t t = 0; t < num_tokens; ++t) {
      kernels_.rms_norm(stream_[t], layer.ln2.data(), epsilon, shape_.d_model, stream_[t]);
    }
  }
}

// Normalises and turns queries and keys, and puts keys and values into the cache.
void Decoder::place_heads(const Layer& layer, std::size_t layer_index, std::size_t num_tokens) {
  const std::size_t d_head = shape_.d_head(), value_width = padded(d_head, 8);
  const float scale = 1.0f / std::sqrt(static_cast<float>(d_head));
  const auto normalise = [&](float* head, const Array<float>& weight) {
    if (weight.size() == 0) return;
    float squares = 0.0f;
    for (std::size_t d = 0; d < d_head; ++d) squares += head[d] * head[d];
    const float inverse = 1.0f / std::sqrt(squares / static_cast<float>(d_head) + epsilon);
    for (std::size_t d = 0; d < d_head; ++d) head[d] *= inverse * weight.data()[d];
  };
  for (std::size_t t = 0; t < num_tokens; ++t) {
    const std::size_t position = length_ + t;
    for (std::size_t h = 0; h < shape_.num_heads; ++h) {
      float* query = heads_[t] + h * d_head;
      normalise(query, layer.q_norm);
      turn(query, position);
      for (std::size_t d = 0; d < d_head; ++d) query[d] *= scale;
    }
    for (std::size_t h = 0; h < shape_.num_kv_heads; ++h) {
      float* key = heads_[t] + shape_.d_model + h * d_head;
      normalise(key, layer.k_norm);
      turn(key, position);
      float* column = keys(layer_index, h) +
                      position / positions_per_block * positions_per_block * d_head +
                      position % positions_per_block;
      for (std::size_t d = 0; d < d_head; ++d) column[d * positions_per_block] = key[d];
      std::copy_n(key + shape_.d_kv(), d_head, values(layer_index, h) + position * value_width);
    }
  }
}

void Decoder::turn(float* head, std::size_t position) const {
  if (!shape_.has_rope) return;
  const std::size_t half = shape_.d_head() / 2;
  const float* cosines = cosines_.data() + position * half;
  const float* sines = sines_.data() + position * half;
  for (std::size_t k = 0; k < half; ++k) {
    const float even = head[2 * k], odd = head[2 * k + 1];
    head[2 * k] = even * cosines[k] - odd * sines[k];
    head[2 * k + 1] = even * sines[k] + odd * cosines[k];
  }
}

void Decoder::add_to_stream(Rows& addend, std::size_t num_tokens) {
  for (std::size_t t = 0; t < num_tokens; ++t) {
    for (std::size_t i = 0; i < shape_.d_model; ++i) stream_[t][i] += addend[t][i];
  }
}

Decoder::Rows& Decoder::normalised(const Array<float>& weight, std::size_t num_tokens) {
  for (std::size_t t = 0; t < num_tokens; ++t) {
    kernels_.rms_norm(stream_[t], weight.data(), epsilon, shape_.d_model, normalised_[t]);
  }
  return normalised_;
}

// Multiplies each token's vector; finish(token, group, numbers) is given the products of `step`
// groups, the first of which is `group`. A job takes some groups for all tokens, so that a block
// of tokens reads each weight from memory once.
template <typename Finish>
void Decoder::multiply(const Matrix& matrix, Rows& input, std::size_t num_tokens, std::size_t step,
                       const Finish& finish) {
  const bool is_int8 = network_->precision() == Precision::int8;
  const std::size_t columns = matrix.columns(), num_blocks = columns / block_columns;
  if (is_int8) {
    for (std::size_t t = 0; t < num_tokens; ++t) {
      kernels_.quantize(input[t], columns, quantized_.data() + t * columns,
                        scales_.data() + t * num_blocks);
    }
  }
  const std::size_t num_steps = matrix.num_groups() / step;
  const std::size_t least = (num_steps + Team::most_jobs - 1) / Team::most_jobs;
  const std::size_t steps_per_job = std::max(least, job_bytes / (step * matrix.group_bytes()) + 1);
  const std::size_t num_jobs = (num_steps + steps_per_job - 1) / steps_per_job;
  team_.run(num_jobs, [&](std::size_t job, std::size_t) {
    const std::size_t last = std::min(num_steps, (job + 1) * steps_per_job);
    for (std::size_t i = job * steps_per_job; i < last; ++i) {
      for (std::size_t t = 0; t < num_tokens; ++t) {
        const Operand x = {input[t], quantized_.data() + t * columns,
                           scales_.data() + t * num_blocks};
        float numbers[2 * group_rows];
        matrix.multiply(kernels_, x, i * step, step, numbers);
        finish(t, i * step, numbers);
      }
    }
  });
}

void Decoder::multiply(const Matrix& matrix, Rows& input, std::size_t num_tokens, Rows& output) {
  multiply(matrix, input, num_tokens, 1,
           [&](std::size_t token, std::size_t group, const float* eight) {
             std::copy_n(eight, group_rows, output[token] + group * group_rows);
           });
}

}  // namespace tilth::decoder
