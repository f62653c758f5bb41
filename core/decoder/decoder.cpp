#include "decoder.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "../common/checked.hpp"

namespace tilth::decoder {
namespace {

// Bytes of weights of one job: small enough that no thread waits long for the last job of another,
// large enough that taking a job is cheap.
constexpr std::size_t job_bytes = std::size_t{1} << 15;
// Operations between two checks for an interrupt: less than 0.2 s on one slow thread.
constexpr double operations_per_check = 1e9;
constexpr std::size_t first_positions = 1024;

std::vector<Cache> make_caches(const Shape& shape, std::size_t num_rows, CachePrecision precision) {
  if (num_rows < 1 || num_rows > Decoder::max_rows) {
    throw std::invalid_argument("rows is " + std::to_string(num_rows) + "; give 1 to " +
                                std::to_string(Decoder::max_rows));
  }
  return std::vector<Cache>(num_rows, Cache(shape, precision));
}

}  // namespace

Decoder::Decoder(std::shared_ptr<const Network> network, std::size_t num_threads,
                 std::size_t num_rows, const Kernels& kernels, CachePrecision cache_precision)
    : network_(std::move(network)),
      kernels_(kernels),
      shape_(network_->shape()),
      team_(num_threads),
      cache_precision_(cache_precision),
      caches_(make_caches(shape_, num_rows, cache_precision)),
      stream_(shape_.d_model),
      normalized_(shape_.d_model),
      heads_(shape_.d_query() + 2 * shape_.d_kv()),
      mixed_(shape_.d_query()),
      added_(shape_.d_model),
      hidden_(shape_.d_ff) {
  if (network_->head().is_quantized()) {
    const std::size_t widest = padded(std::max({shape_.d_model, shape_.d_ff, shape_.d_query()}));
    quantized_ = Array<std::int8_t>::zeros(checked_multiply(tokens_per_block, widest));
    scales_ = Array<float>::zeros(tokens_per_block * (widest / block_columns));
    sums_ = Array<std::int32_t>::zeros(2 * scales_.size());
  }
  worker_scratch_ =
      Array<float>::zeros(checked_multiply(team_.num_threads(), attention_scratch(shape_.d_head)));
  Interruption none({});
  reserve(std::min(first_positions, shape_.context_length), none);
}

// Grow the rotation tables to at least `positions`, by doubling. An exception
// leaves them unchanged.
void Decoder::reserve(std::size_t positions, Interruption& interruption) {
  if (positions <= capacity_) return;
  const std::size_t most = padded(shape_.context_length, positions_per_block);
  const std::size_t wanted = padded(std::max(positions, 2 * capacity_), positions_per_block);
  const std::size_t capacity = std::min(wanted, most), half = shape_.d_head / 2;
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
  cosines_ = std::move(cosines);
  sines_ = std::move(sines);
  capacity_ = capacity;
}

std::size_t Decoder::length(std::size_t row) const {
  if (row < caches_.size()) return caches_[row].length();
  throw std::invalid_argument("there is no row " + std::to_string(row) + " of " +
                              std::to_string(caches_.size()));
}

void Decoder::truncate(std::size_t row, std::size_t length) {
  if (length > this->length(row)) {
    throw std::invalid_argument("cannot keep " + std::to_string(length) + " tokens of " +
                                std::to_string(this->length(row)));
  }
  caches_[row].truncate(length);
}

void Decoder::share(std::size_t from, std::size_t to, std::size_t length) {
  if (length > this->length(from)) {
    throw std::invalid_argument("cannot share " + std::to_string(length) + " tokens of " +
                                std::to_string(this->length(from)));
  }
  static_cast<void>(this->length(to));  // there is such a row
  if (from == to) return truncate(to, length);
  caches_[to].share(caches_[from], length);
}

void Decoder::check(std::span<const Ids> ids) const {
  if (ids.size() != caches_.size()) {
    throw std::invalid_argument("give one list of ids for each of the " +
                                std::to_string(caches_.size()) + " rows");
  }
  for (std::size_t row = 0; row < ids.size(); ++row) {
    const std::size_t length = caches_[row].length();
    if (ids[row].size() > shape_.context_length - length) {
      throw std::invalid_argument("the context length is " + std::to_string(shape_.context_length) +
                                  ", and " + std::to_string(length) + " tokens and " +
                                  std::to_string(ids[row].size()) + " more do not fit");
    }
    for (const std::uint32_t id : ids[row]) {
      if (id >= shape_.vocab_size) {
        throw std::invalid_argument("token id " + std::to_string(id) +
                                    " is not within the vocabulary of " +
                                    std::to_string(shape_.vocab_size));
      }
    }
  }
}

void Decoder::extend(std::span<const Ids> ids, Logits wanted, std::span<float> logits,
                     const InterruptCheck& check_interrupt) {
  check(ids);
  const std::size_t most = longest(ids), per_row = wanted == Logits::every ? most : 1;
  if (logits.size() != checked_multiply(shape_.vocab_size, ids.size(), per_row)) {
    throw std::invalid_argument("logits must have one row of numbers for each row, or each id");
  }
  Interruption interruption(check_interrupt);
  const auto logits_of = [&](std::size_t row, std::size_t i, std::size_t) {
    const bool is_wanted = wanted == Logits::every || i + 1 == ids[row].size();
    const std::size_t place = row * per_row + (wanted == Logits::every ? i : 0);
    return is_wanted ? logits.data() + place * shape_.vocab_size : nullptr;
  };
  read(ids, interruption, logits_of, [](std::span<const Token>) {});
}

void Decoder::score(std::span<const Ids> ids, std::span<const Ids> targets, std::size_t vocab_size,
                    std::span<double> log_probabilities, const InterruptCheck& check_interrupt) {
  check(ids);
  if (vocab_size < 1 || vocab_size > shape_.vocab_size) {
    throw std::invalid_argument("the vocabulary has " + std::to_string(vocab_size) + " of " +
                                std::to_string(shape_.vocab_size) + " ids");
  }
  const std::size_t most = longest(ids);
  if (targets.size() != ids.size() ||
      log_probabilities.size() != checked_multiply(ids.size(), most)) {
    throw std::invalid_argument("give targets for each row, and a number for each");
  }
  for (std::size_t row = 0; row < ids.size(); ++row) {
    if (targets[row].size() > ids[row].size()) {
      throw std::invalid_argument("a row has more targets than ids");
    }
    for (const std::uint32_t id : targets[row]) {
      if (id < vocab_size) continue;
      throw std::invalid_argument("target " + std::to_string(id) +
                                  " is not within the vocabulary of " + std::to_string(vocab_size));
    }
  }
  Interruption interruption(check_interrupt);
  auto logits = Array<float>::zeros(checked_multiply(tokens_per_block, shape_.vocab_size));
  std::vector<std::size_t> lengths;
  for (const Cache& cache : caches_) lengths.push_back(cache.length());
  // The last ids of a row are those with targets.
  const auto first_of = [&](std::size_t row) { return ids[row].size() - targets[row].size(); };
  const auto logits_of = [&](std::size_t row, std::size_t i, std::size_t token) {
    return i < first_of(row) ? nullptr : logits.data() + token * shape_.vocab_size;
  };
  read(ids, interruption, logits_of, [&](std::span<const Token> tokens) {
    team_.run(tokens.size(), [&](std::size_t t, std::size_t) {
      const Token& token = tokens[t];
      if (token.logits == nullptr) return;
      const std::size_t i = token.position - lengths[token.row] - first_of(token.row);
      log_probabilities[token.row * most + i] =
          static_cast<double>(token.logits[targets[token.row][i]]) -
          kernels_.log_sum_exp(token.logits, vocab_size);
    });
  });
}

std::size_t Decoder::longest(std::span<const Ids> ids) {
  std::size_t most = 0;
  for (const Ids& row : ids) most = std::max(most, row.size());
  return most;
}

// Read the ids in blocks of tokens. logits_of(row, i, token) is the place for the logits after id
// i of a row, which is a token of its block; null if they are not wanted. Call finish(tokens) after
// each block. An exception leaves the sequences unchanged.
template <typename LogitsOf, typename Finish>
void Decoder::read(std::span<const Ids> ids, Interruption& interruption, const LogitsOf& logits_of,
                   const Finish& finish) {
  std::vector<std::size_t> lengths;
  std::size_t positions = 0;
  for (std::size_t row = 0; row < ids.size(); ++row) {
    lengths.push_back(caches_[row].length());
    positions = std::max(positions, lengths[row] + ids[row].size());
  }
  reserve(positions, interruption);
  try {
    std::vector<Token> tokens;
    tokens.reserve(tokens_per_block);
    const auto read_tokens = [&] {
      read_block(tokens, interruption);
      finish(std::span<const Token>(tokens));
      for (const Token& token : tokens) caches_[token.row].append(1);
      tokens.clear();
    };
    for (std::size_t row = 0; row < ids.size(); ++row) {
      for (std::size_t i = 0; i < ids[row].size(); ++i) {
        tokens.push_back({.id = ids[row][i],
                          .row = row,
                          .position = lengths[row] + i,
                          .logits = logits_of(row, i, tokens.size())});
        if (tokens.size() == tokens_per_block) read_tokens();
      }
    }
    if (!tokens.empty()) read_tokens();
  } catch (...) {
    for (std::size_t row = 0; row < ids.size(); ++row) caches_[row].truncate(lengths[row]);
    throw;
  }
}

void Decoder::choose(std::span<const Choice> choices, std::span<std::size_t> tokens) {
  if (tokens.size() != choices.size()) throw std::invalid_argument("give a token for each choice");
  team_.run(choices.size(), [&](std::size_t i, std::size_t) {
    const Choice& each = choices[i];
    tokens[i] = tilth::decoder::choose(each.scores, each.filters, each.unit);
  });
}

// Run the tokens of a block through the network, and the output matrix where logits are wanted.
void Decoder::read_block(std::span<const Token> tokens, Interruption& interruption) {
  const std::size_t num_tokens = tokens.size(), d_model = shape_.d_model;
  for (std::size_t t = 0; t < num_tokens; ++t) {
    caches_[tokens[t].row].reserve(tokens[t].position + 1);
    std::copy_n(network_->embedding(tokens[t].id), d_model, stream_[t]);
  }
  for (std::size_t i = 0; i < network_->layers().size(); ++i) {
    const Layer& layer = network_->layers()[i];
    attend(layer, i, tokens, interruption);
    feed_forward(layer, num_tokens, interruption);
    interruption.poll();
  }
  std::vector<float*> wanted;
  for (std::size_t t = 0; t < num_tokens; ++t) {
    if (tokens[t].logits == nullptr) continue;
    if (wanted.size() < t) std::copy_n(stream_[t], d_model, stream_[wanted.size()]);
    wanted.push_back(tokens[t].logits);
  }
  if (wanted.empty()) return;
  Rows& output =
      network_->ln_final().size() > 0 ? normalized(network_->ln_final(), wanted.size()) : stream_;
  multiply(network_->head(), output, wanted.size(), 1, interruption,
           [&](std::size_t group, const float* numbers) {
             const std::size_t row = group * group_rows;
             const std::size_t count = std::min(group_rows, shape_.vocab_size - row);
             for (std::size_t t = 0; t < wanted.size(); ++t) {
               std::copy_n(numbers + t * group_rows, count, wanted[t] + row);
             }
           });
}

void Decoder::attend(const Layer& layer, std::size_t layer_index, std::span<const Token> tokens,
                     Interruption& interruption) {
  const std::size_t num_tokens = tokens.size();
  Rows& input = shape_.norm == Norm::pre ? normalized(layer.ln1, num_tokens) : stream_;
  multiply(layer.queries_keys_values, input, num_tokens, heads_, interruption);
  const std::size_t d_head = shape_.d_head, group = shape_.num_heads / shape_.num_kv_heads;
  // The queries of a row for the same keys are in one job, so that these stay in the processor's
  // cache; unless they take too long, or are more than the share of a thread.
  std::size_t num_rows = 1, positions = tokens[0].position + 1;
  for (std::size_t t = 1; t < num_tokens; ++t) {
    if (tokens[t].row != tokens[t - 1].row) ++num_rows;
    positions = std::max(positions, tokens[t].position + 1);
  }
  const std::size_t share =
      (num_tokens * shape_.num_kv_heads + team_.num_threads() - 1) / team_.num_threads();
  const double operations = 4.0 * static_cast<double>(positions * group * d_head);  // of a token
  const std::size_t most = std::min(  // tokens of a job
      share, static_cast<std::size_t>(std::max(operations_per_check / operations, 1.0)));
  std::vector<std::size_t> starts;  // of the tokens of each job
  for (std::size_t t = 0; t < num_tokens; ++t) {
    const bool is_other = t == 0 || tokens[t].row != tokens[t - 1].row;
    if (is_other || t - starts.back() == most) starts.push_back(t);
  }
  const std::size_t num_parts = starts.size();
  starts.push_back(num_tokens);
  const auto place = [&](std::size_t first, std::size_t last, std::size_t kv_head) {
    for (std::size_t t = first; t < last; ++t) {
      place_heads(layer, layer_index, kv_head, tokens[t], heads_[t]);
    }
  };
  const bool is_split = num_parts > num_rows;
  if (is_split) {  // jobs need the keys that others would store
    team_.run(num_tokens * shape_.num_kv_heads, [&](std::size_t job, std::size_t) {
      const std::size_t t = job / shape_.num_kv_heads;
      place(t, t + 1, job % shape_.num_kv_heads);
    });
  }
  const double job_operations = operations * static_cast<double>(std::min(most, num_tokens));
  run(num_parts * shape_.num_kv_heads, job_operations, interruption,
      [&](std::size_t job, std::size_t worker) {
        const std::size_t part = job / shape_.num_kv_heads, kv_head = job % shape_.num_kv_heads;
        if (!is_split) place(starts[part], starts[part + 1], kv_head);
        const Cache& cache = caches_[tokens[starts[part]].row];
        float* scratch = worker_scratch_.data() + worker * attention_scratch(d_head);
        Query queries[max_queries];
        std::size_t count = 0;
        const auto attend_all = [&] {
          kernels_.attend(queries, count, cache.blocks(), cache.offset(layer_index, kv_head),
                          d_head, cache_precision_, scratch);
          count = 0;
        };
        for (std::size_t t = starts[part]; t < starts[part + 1]; ++t) {
          for (std::size_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
            queries[count++] = {heads_[t] + head * d_head, tokens[t].position + 1,
                                mixed_[t] + head * d_head};
            if (count == max_queries) attend_all();
          }
        }
        if (count > 0) attend_all();
      });
  multiply(layer.output, mixed_, num_tokens, added_, interruption);
  add_to_stream(layer.ln1, num_tokens);
}

void Decoder::feed_forward(const Layer& layer, std::size_t num_tokens, Interruption& interruption) {
  Rows& input = shape_.norm == Norm::pre ? normalized(layer.ln2, num_tokens) : stream_;
  // Eight gates, then their eight values.
  const std::size_t step = shape_.is_gated ? 2 : 1;
  multiply(layer.gate_value, input, num_tokens, step, interruption,
           [&](std::size_t group, const float* numbers) {
             kernels_.activate(numbers, num_tokens, shape_.is_gated, hidden_.width,
                               hidden_[0] + group / step * group_rows);
           });
  multiply(layer.down, hidden_, num_tokens, added_, interruption);
  add_to_stream(layer.ln2, num_tokens);
}

// Add biases, normalize and rotate the key of a head and its queries; store key and value in the
// cache.
void Decoder::place_heads(const Layer& layer, std::size_t layer_index, std::size_t kv_head,
                          const Token& token, float* heads) {
  const std::size_t d_head = shape_.d_head, group = shape_.num_heads / shape_.num_kv_heads;
  const float scale = 1.0f / std::sqrt(static_cast<float>(d_head));
  const auto add_bias = [&](std::size_t first) {
    if (layer.biases.size() == 0) return;
    for (std::size_t d = first; d < first + d_head; ++d) heads[d] += layer.biases[d];
  };
  const auto normalize = [&](float* head, const Array<float>& weight) {
    if (weight.size() == 0) return;
    float squares = 0.0f;
    for (std::size_t d = 0; d < d_head; ++d) squares += head[d] * head[d];
    const float inverse =
        1.0f / std::sqrt(squares / static_cast<float>(d_head) + shape_.norm_epsilon);
    for (std::size_t d = 0; d < d_head; ++d) head[d] *= inverse * weight.data()[d];
  };
  for (std::size_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
    float* query = heads + h * d_head;
    add_bias(h * d_head);
    normalize(query, layer.q_norm);
    rotate(query, token.position);
    for (std::size_t d = 0; d < d_head; ++d) query[d] *= scale;
  }
  const std::size_t place = shape_.d_query() + kv_head * d_head;
  float* key = heads + place;
  add_bias(place);
  add_bias(place + shape_.d_kv());
  normalize(key, layer.k_norm);
  rotate(key, token.position);
  caches_[token.row].store(layer_index, kv_head, token.position, key, key + shape_.d_kv());
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

void Decoder::add_to_stream(const Array<float>& post_norm, std::size_t num_tokens) {
  for (std::size_t t = 0; t < num_tokens; ++t) {
    for (std::size_t i = 0; i < shape_.d_model; ++i) stream_[t][i] += added_[t][i];
    if (shape_.norm != Norm::post) continue;
    kernels_.rms_norm(stream_[t], post_norm.data(), shape_.norm_epsilon, shape_.d_model,
                      stream_[t]);
  }
}

Decoder::Rows& Decoder::normalized(const Array<float>& weight, std::size_t num_tokens) {
  for (std::size_t t = 0; t < num_tokens; ++t) {
    kernels_.rms_norm(stream_[t], weight.data(), shape_.norm_epsilon, shape_.d_model,
                      normalized_[t]);
  }
  return normalized_;
}

// Multiply the vector of each token; call finish(group, numbers) with the products of `step`
// groups, starting with `group`: 8 * step numbers for each token. A job multiplies some groups with
// all tokens, so a block of tokens reads each weight from memory once.
template <typename Finish>
void Decoder::multiply(const Matrix& matrix, Rows& input, std::size_t num_tokens, std::size_t step,
                       Interruption& interruption, const Finish& finish) {
  const std::size_t columns = matrix.columns(), num_blocks = columns / block_columns;
  if (matrix.is_quantized()) {
    team_.run(num_tokens, [&](std::size_t t, std::size_t) {
      kernels_.quantize(input[t], columns, quantized_.data() + t * columns,
                        scales_.data() + t * num_blocks, sums_.data() + 2 * t * num_blocks);
    });
  }
  const std::size_t num_steps = matrix.num_groups() / step;
  const std::size_t steps_per_job = job_bytes / (step * matrix.group_bytes()) + 1;
  const std::size_t num_jobs = (num_steps + steps_per_job - 1) / steps_per_job;
  const Operand x = {input[0], {quantized_.data(), scales_.data(), sums_.data()}};
  const double operations = 2.0 * static_cast<double>(steps_per_job * step * group_rows) *
                            static_cast<double>(columns) * static_cast<double>(num_tokens);
  run(num_jobs, operations, interruption, [&](std::size_t job, std::size_t) {
    const std::size_t last = std::min(num_steps, (job + 1) * steps_per_job);
    for (std::size_t i = job * steps_per_job; i < last; ++i) {
      float numbers[tokens_per_block * 2 * group_rows];
      matrix.multiply(kernels_, x, num_tokens, i * step, step, numbers);
      finish(i * step, numbers);
    }
  });
}

void Decoder::multiply(const Matrix& matrix, Rows& input, std::size_t num_tokens, Rows& output,
                       Interruption& interruption) {
  multiply(matrix, input, num_tokens, 1, interruption,
           [&](std::size_t group, const float* numbers) {
             for (std::size_t t = 0; t < num_tokens; ++t) {
               std::copy_n(numbers + t * group_rows, group_rows, output[t] + group * group_rows);
             }
           });
}

// Run jobs in phases of about operations_per_check, and poll after each.
template <typename Work>
void Decoder::run(std::size_t num_jobs, double job_operations, Interruption& interruption,
                  const Work& work) {
  const double most = static_cast<double>(team_.num_threads()) * operations_per_check;
  const double jobs = std::clamp(most / job_operations, 1.0, static_cast<double>(num_jobs));
  const std::size_t per_phase = std::max(static_cast<std::size_t>(jobs), team_.num_threads());
  for (std::size_t first = 0; first < num_jobs; first += per_phase) {
    if (first > 0) interruption.poll();
    team_.run(std::min(per_phase, num_jobs - first),
              [&](std::size_t job, std::size_t worker) { work(first + job, worker); });
  }
}

}  // namespace tilth::decoder
