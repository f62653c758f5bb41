#include "decoder.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "../common/checked.hpp"

namespace tilth::decoder {
namespace {

// Bytes of weights of one job: small enough that no thread waits long for the last job of another,
// large enough that taking a job is cheap.
constexpr std::size_t job_bytes = std::size_t{1} << 15;

}  // namespace

Decoder::Decoder(std::shared_ptr<const Network> network, std::size_t num_threads,
                 const Kernels& kernels)
    : network_(std::move(network)),
      kernels_(kernels),
      shape_(network_->shape()),
      team_(num_threads),
      stream_(shape_.d_model),
      normalized_(shape_.d_model),
      heads_(shape_.d_query() + 2 * shape_.d_kv()),
      mixed_(shape_.d_query()),
      added_(shape_.d_model),
      hidden_(shape_.d_ff) {
  if (network_->precision() == Precision::int8) {
    const std::size_t widest = padded(std::max({shape_.d_model, shape_.d_ff, shape_.d_query()}));
    quantized_ = Array<std::int8_t>::zeros(checked_multiply(tokens_per_block, widest));
    scales_ = Array<float>::zeros(tokens_per_block * (widest / block_columns));
  }
  Interruption none({});
  reserve(std::min(first_positions, shape_.context_length), none);
}

// Grow the rotation tables and caches to at least `positions`, by doubling. An exception leaves
// them unchanged.
void Decoder::reserve(std::size_t positions, Interruption& interruption) {
  if (positions <= capacity_) return;
  const std::size_t most = padded(shape_.context_length, positions_per_block);
  const std::size_t wanted = padded(std::max(positions, 2 * capacity_), positions_per_block);
  const std::size_t capacity = std::min(wanted, most);
  const std::size_t d_head = shape_.d_head, value_width = padded(d_head, 8), half = d_head / 2;
  const std::size_t num_caches = checked_multiply(shape_.num_layers, shape_.num_kv_heads);

  auto keys = Array<float>::zeros(checked_multiply(num_caches, capacity, d_head));
  auto values = Array<float>::zeros(checked_multiply(num_caches, capacity, value_width));
  const std::size_t scratch_size = checked_add(capacity, padded(d_head));
  auto scratch = Array<float>::zeros(checked_multiply(team_.num_threads(), scratch_size));
  const std::size_t read = padded(length_, positions_per_block);
  for (std::size_t i = 0; i < num_caches; ++i) {
    std::copy_n(keys_.data() + i * capacity_ * d_head, read * d_head,
                keys.data() + i * capacity * d_head);
    std::copy_n(values_.data() + i * capacity_ * value_width, length_ * value_width,
                values.data() + i * capacity * value_width);
    interruption.poll();
  }
  Array<float> cosines, sines;
  if (shape_.has_rope()) {
    cosines = Array<float>::zeros(checked_multiply(capacity, half));
    sines = Array<float>::zeros(checked_multiply(capacity, half));
    std::copy_n(cosines_.data(), cosines_.size(), cosines.data());
    std::copy_n(sines_.data(), sines_.size(), sines.data());
    for (std::size_t position = capacity_; position < capacity; ++position) {
      for (std::size_t k = 0; k < half; ++k) {
        const double angle = static_cast<double>(position) * shape_.rope_frequencies[k];
        cosines[position * half + k] = static_cast<float>(std::cos(angle));
        sines[position * half + k] = static_cast<float>(std::sin(angle));
      }
      interruption.poll();
    }
  }
  keys_ = std::move(keys);
  values_ = std::move(values);
  worker_scratch_ = std::move(scratch);
  cosines_ = std::move(cosines);
  sines_ = std::move(sines);
  capacity_ = capacity;
}

float* Decoder::keys(std::size_t layer, std::size_t kv_head) {
  const std::size_t cache = layer * shape_.num_kv_heads + kv_head;
  return keys_.data() + cache * capacity_ * shape_.d_head;
}

float* Decoder::values(std::size_t layer, std::size_t kv_head) {
  const std::size_t cache = layer * shape_.num_kv_heads + kv_head;
  return values_.data() + cache * capacity_ * padded(shape_.d_head, 8);
}

void Decoder::check_fits(std::size_t num_ids) const {
  if (num_ids <= shape_.context_length - length_) return;
  throw std::invalid_argument("the context length is " + std::to_string(shape_.context_length) +
                              ", and " + std::to_string(length_) + " tokens and " +
                              std::to_string(num_ids) + " more do not fit");
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
  check_fits(ids.size());
  if (logits.size() != shape_.vocab_size * (wanted == Logits::every ? ids.size() : 1)) {
    throw std::invalid_argument("logits must have the size of one row, or of one row for each id");
  }
  for (const std::uint32_t id : ids) {
    if (id >= shape_.vocab_size) {
      throw std::invalid_argument("token id " + std::to_string(id) +
                                  " is not within the vocabulary of " +
                                  std::to_string(shape_.vocab_size));
    }
  }
  Interruption interruption(check);
  reserve(length_ + ids.size(), interruption);
  const std::size_t length_before = length_;
  try {
    for (std::size_t first = 0; first < ids.size(); first += tokens_per_block) {
      const auto block = ids.subspan(first, std::min(tokens_per_block, ids.size() - first));
      if (wanted == Logits::every) {
        const std::size_t size = block.size() * shape_.vocab_size;
        read_block(block, wanted, logits.subspan(first * shape_.vocab_size, size), interruption);
      } else {
        const bool is_last = first + block.size() == ids.size();
        read_block(block, wanted, is_last ? logits : std::span<float>(), interruption);
      }
      length_ += block.size();
    }
  } catch (...) {
    length_ = length_before;
    throw;
  }
}

// Run a block of tokens through the network; skip the output matrix if `logits` is empty.
void Decoder::read_block(std::span<const std::uint32_t> ids, Logits wanted, std::span<float> logits,
                         Interruption& interruption) {
  const std::size_t num_tokens = ids.size(), d_model = shape_.d_model;
  for (std::size_t t = 0; t < num_tokens; ++t) {
    std::copy_n(network_->embedding(ids[t]), d_model, stream_[t]);
  }
  for (std::size_t i = 0; i < network_->layers().size(); ++i) {
    const Layer& layer = network_->layers()[i];
    attend(layer, i, num_tokens);
    feed_forward(layer, num_tokens);
    interruption.poll();
  }
  if (logits.empty()) return;

  // Of the last token only, unless every token is wanted.
  const std::size_t first = wanted == Logits::every ? 0 : num_tokens - 1;
  if (first > 0) std::copy_n(stream_[first], d_model, stream_[0]);
  Rows& output = network_->ln_final().size() > 0
                     ? normalized(network_->ln_final(), num_tokens - first)
                     : stream_;
  multiply(network_->head(), output, num_tokens - first, 1,
           [&](std::size_t token, std::size_t group, const float* eight) {
             const std::size_t row = group * group_rows;
             std::copy_n(eight, std::min(group_rows, shape_.vocab_size - row),
                         logits.data() + token * shape_.vocab_size + row);
           });
}

void Decoder::attend(const Layer& layer, std::size_t layer_index, std::size_t num_tokens) {
  Rows& input = shape_.norm == Norm::pre ? normalized(layer.ln1, num_tokens) : stream_;
  multiply(layer.queries_keys_values, input, num_tokens, heads_);
  place_heads(layer, layer_index, num_tokens);
  const std::size_t d_head = shape_.d_head, group = shape_.num_heads / shape_.num_kv_heads;
  // All tokens of a head in one job, so its keys and values stay in the processor's cache.
  team_.run(shape_.num_heads, [&](std::size_t head, std::size_t worker) {
    float* scores = worker_scratch_.data() + worker * (capacity_ + padded(d_head));
    float* mixture = scores + capacity_;
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
      kernels_.rms_norm(stream_[t], layer.ln1.data(), shape_.norm_epsilon, shape_.d_model,
                        stream_[t]);
    }
  }
}

void Decoder::feed_forward(const Layer& layer, std::size_t num_tokens) {
  Rows& input = shape_.norm == Norm::pre ? normalized(layer.ln2, num_tokens) : stream_;
  // Eight gates, then their eight values.
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
      kernels_.rms_norm(stream_[t], layer.ln2.data(), shape_.norm_epsilon, shape_.d_model,
                        stream_[t]);
    }
  }
}

// Normalize and rotate queries and keys; store keys and values in the cache.
void Decoder::place_heads(const Layer& layer, std::size_t layer_index, std::size_t num_tokens) {
  const std::size_t d_head = shape_.d_head, value_width = padded(d_head, 8);
  const float scale = 1.0f / std::sqrt(static_cast<float>(d_head));
  const auto normalize = [&](float* head, const Array<float>& weight) {
    if (weight.size() == 0) return;
    float squares = 0.0f;
    for (std::size_t d = 0; d < d_head; ++d) squares += head[d] * head[d];
    const float inverse =
        1.0f / std::sqrt(squares / static_cast<float>(d_head) + shape_.norm_epsilon);
    for (std::size_t d = 0; d < d_head; ++d) head[d] *= inverse * weight.data()[d];
  };
  for (std::size_t t = 0; t < num_tokens; ++t) {
    const std::size_t position = length_ + t;
    for (std::size_t i = 0; i < layer.biases.size(); ++i) heads_[t][i] += layer.biases.data()[i];
    for (std::size_t h = 0; h < shape_.num_heads; ++h) {
      float* query = heads_[t] + h * d_head;
      normalize(query, layer.q_norm);
      rotate(query, position);
      for (std::size_t d = 0; d < d_head; ++d) query[d] *= scale;
    }
    for (std::size_t h = 0; h < shape_.num_kv_heads; ++h) {
      float* key = heads_[t] + shape_.d_query() + h * d_head;
      normalize(key, layer.k_norm);
      rotate(key, position);
      float* column = keys(layer_index, h) +
                      position / positions_per_block * positions_per_block * d_head +
                      position % positions_per_block;
      for (std::size_t d = 0; d < d_head; ++d) column[d * positions_per_block] = key[d];
      std::copy_n(key + shape_.d_kv(), d_head, values(layer_index, h) + position * value_width);
    }
  }
}

void Decoder::rotate(float* head, std::size_t position) const {
  if (!shape_.has_rope()) return;
  const std::size_t half = shape_.d_head / 2;
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

Decoder::Rows& Decoder::normalized(const Array<float>& weight, std::size_t num_tokens) {
  for (std::size_t t = 0; t < num_tokens; ++t) {
    kernels_.rms_norm(stream_[t], weight.data(), shape_.norm_epsilon, shape_.d_model,
                      normalized_[t]);
  }
  return normalized_;
}

// Multiply the vector of each token; call finish(token, group, numbers) with the products of `step`
// groups, starting with `group`. A job multiplies some groups with all tokens, so a block of tokens
// reads each weight from memory once.
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
  const std::size_t steps_per_job = job_bytes / (step * matrix.group_bytes()) + 1;
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
