// Decoder: computes the logits of several growing sequences of token ids, with key/value caches.
//
// clang-format off
//     Decoder decoder(std::make_shared<const Network>(...), 2, 3);  // two threads, three rows
//     std::vector<float> logits(3 * vocab_size);
//     decoder.extend({{prompt, {}, other}}, Logits::last, logits);  // rows 0 and 2, at once
//     decoder.share(0, 1, prompt.size());                           // row 1 starts with the prompt
//     decoder.extend({{{&next, 1}, {&third, 1}, {}}}, Logits::last, logits);
//     decoder.truncate(2, 0);                                       // free row 2 for another text
// clang-format on
//
// Contract:
// - The logits of a row equal those of tilth.model.TransformerLM for all its ids so far, up to
//   rounding.
// - They have the same bits for any number of threads, any split of the ids into calls, and any
//   other rows.
// - Memory is proportional to the number of ids, not to the context length; see Cache.
// - One call at a time.
//
// Complexity: a call reads every weight once per tokens_per_block tokens of all rows together, at
// least once. Attention of a token reads the keys and values of all positions before it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "../common/array.hpp"
#include "../common/interrupt.hpp"
#include "cache.hpp"
#include "draw.hpp"
#include "network.hpp"
#include "team.hpp"

namespace tilth::decoder {

enum class Logits { last, every };

class Decoder {
 public:
  using Ids = std::span<const std::uint32_t>;

  Decoder(std::shared_ptr<const Network> network, std::size_t num_threads, std::size_t num_rows = 1,
          const Kernels& kernels = best_kernels(),
          CachePrecision cache_precision = CachePrecision::float32);

  const Network& network() const { return *network_; }
  std::size_t num_rows() const { return caches_.size(); }
  std::size_t length(std::size_t row) const;

  // Keep the first `length` ids of a row only.
  void truncate(std::size_t row, std::size_t length);

  // Replace a row by the first `length` ids of another, without reading them.
  void share(std::size_t from, std::size_t to, std::size_t length);

  // Append ids to each row; a row may have none. Write the logits after the last id of each row,
  // (rows, vocab_size), or after every id, (rows, most ids of a row, vocab_size), row-major; other
  // numbers stay unchanged. Throws std::invalid_argument for logits of another size, for an id
  // outside of the vocabulary and for more ids than fit into the context. A call that throws leaves
  // the sequences unchanged.
  void extend(std::span<const Ids> ids, Logits wanted, std::span<float> logits,
              const InterruptCheck& check = {});

  // Append ids to each row; write the log-probabilities of targets, (rows, most ids of a row). Row
  // r has at most as many targets as ids: target i follows id i of its last ids. Only the first
  // vocab_size logits count. Exact to 1e-6. Throws as extend does.
  void score(std::span<const Ids> ids, std::span<const Ids> targets, std::size_t vocab_size,
             std::span<double> log_probabilities, const InterruptCheck& check = {});

  // Choose a token for each row of scores, in the threads; see draw.hpp. Writes no_choice for a row
  // whose largest score is not finite.
  struct Choice {
    std::span<const float> scores;
    Filters filters;
    double unit;
  };
  void choose(std::span<const Choice> choices, std::span<std::size_t> tokens);

  // Throws std::invalid_argument unless there is one list for each row, and the ids are within the
  // vocabulary and fit into the context.
  void check(std::span<const Ids> ids) const;

  static constexpr std::size_t tokens_per_block = max_tokens;
  static constexpr std::size_t max_rows = 4096;

 private:
  struct Token {
    std::uint32_t id;
    std::size_t row, position;
    float* logits;  // null: not wanted
  };

  // One vector for each token of a block, contiguous.
  struct Rows {
    Rows() = default;
    explicit Rows(std::size_t size)
        : width(padded(size)),
          numbers(Array<float>::zeros(checked_multiply(tokens_per_block, width))) {}
    float* operator[](std::size_t token) { return numbers.data() + token * width; }
    std::size_t width = 0;
    Array<float> numbers;
  };

  static std::size_t longest(std::span<const Ids> ids);
  template <typename LogitsOf, typename Finish>
  void read(std::span<const Ids> ids, Interruption& interruption, const LogitsOf& logits_of,
            const Finish& finish);
  void reserve(std::size_t positions, Interruption& interruption);
  void read_block(std::span<const Token> tokens, Interruption& interruption);
  void attend(const Layer& layer, std::size_t layer_index, std::span<const Token> tokens,
              Interruption& interruption);
  void feed_forward(const Layer& layer, std::size_t num_tokens, Interruption& interruption);
  void place_heads(const Layer& layer, std::size_t layer_index, std::size_t kv_head,
                   const Token& token, float* heads);
  void rotate(float* head, std::size_t position) const;
  void add_to_stream(const Array<float>& post_norm, std::size_t num_tokens);
  Rows& normalized(const Array<float>& weight, std::size_t num_tokens);
  template <typename Finish>
  void multiply(const Matrix& matrix, Rows& input, std::size_t num_tokens, std::size_t step,
                Interruption& interruption, const Finish& finish);
  void multiply(const Matrix& matrix, Rows& input, std::size_t num_tokens, Rows& output,
                Interruption& interruption);
  template <typename Work>
  void run(std::size_t num_jobs, double job_operations, Interruption& interruption,
           const Work& work);

  std::shared_ptr<const Network> network_;
  const Kernels& kernels_;
  const Shape& shape_;
  Team team_;
  const CachePrecision cache_precision_;
  std::vector<Cache> caches_;     // of each row
  std::size_t capacity_ = 0;      // in positions, of the tables
  Array<float> cosines_, sines_;  // (capacity_, d_head / 2)
  Rows stream_, normalized_, heads_, mixed_, added_, hidden_;
  Array<float> worker_scratch_;
  // The operand of the current product, in int8.
  Array<std::int8_t> quantized_;
  Array<float> scales_;
  Array<std::int32_t> sums_;
};

}  // namespace tilth::decoder
