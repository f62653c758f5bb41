// Decoder: computes the logits of a growing sequence of token ids, with a key/value cache.
//
// clang-format off
//     Decoder decoder(std::make_shared<const Network>(...), 2);
//     std::vector<float> logits(vocab_size);
//     decoder.extend(prompt, Logits::last, logits);      // reads the prompt, several tokens at once
//     decoder.extend({&next, 1}, Logits::last, logits);  // one more token
//     decoder.truncate(prompt.size());                   // back to the prompt, without reading it
// clang-format on
//
// Contract:
// - The logits equal those of tilth.model.TransformerLM for all ids so far, up to rounding.
// - They have the same bits for any number of threads and any split of the ids into calls.
// - Memory is proportional to the number of ids, not to the context length: capacity starts at
//   first_positions and doubles.
// - One call at a time.
//
// Complexity: a call reads every weight once per tokens_per_block tokens, at least once. Attention
// of a token reads the keys and values of all positions before it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "../common/array.hpp"
#include "../common/interrupt.hpp"
#include "network.hpp"
#include "team.hpp"

namespace tilth::decoder {

enum class Logits { last, every };

class Decoder {
 public:
  Decoder(std::shared_ptr<const Network> network, std::size_t num_threads,
          const Kernels& kernels = best_kernels());

  const Network& network() const { return *network_; }
  std::size_t length() const { return length_; }

  // Keep the first `length` ids only. O(1).
  void truncate(std::size_t length);

  // Append ids; write logits of shape (vocab_size) or (ids, vocab_size), row-major. Throws
  // std::invalid_argument for logits of another size, for an id outside of the vocabulary and for
  // more ids than fit into the context. A call that throws leaves the sequence unchanged.
  void extend(std::span<const std::uint32_t> ids, Logits wanted, std::span<float> logits,
              const InterruptCheck& check = {});

  // Throws std::invalid_argument unless `num_ids` more ids fit into the context.
  void check_fits(std::size_t num_ids) const;

  static constexpr std::size_t tokens_per_block = 32;
  static constexpr std::size_t first_positions = 1024;

 private:
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

  void reserve(std::size_t positions, Interruption& interruption);
  void read_block(std::span<const std::uint32_t> ids, Logits wanted, std::span<float> logits,
                  Interruption& interruption);
  void attend(const Layer& layer, std::size_t layer_index, std::size_t num_tokens);
  void feed_forward(const Layer& layer, std::size_t num_tokens);
  void place_heads(const Layer& layer, std::size_t layer_index, std::size_t num_tokens);
  void rotate(float* head, std::size_t position) const;
  void add_to_stream(Rows& addend, std::size_t num_tokens);
  Rows& normalized(const Array<float>& weight, std::size_t num_tokens);
  template <typename Finish>
  void multiply(const Matrix& matrix, Rows& input, std::size_t num_tokens, std::size_t step,
                const Finish& finish);
  void multiply(const Matrix& matrix, Rows& input, std::size_t num_tokens, Rows& output);

  float* keys(std::size_t layer, std::size_t kv_head);
  float* values(std::size_t layer, std::size_t kv_head);

  std::shared_ptr<const Network> network_;
  const Kernels& kernels_;
  const Shape& shape_;
  Team team_;
  std::size_t length_ = 0;
  std::size_t capacity_ = 0;      // in positions, whole blocks of keys
  Array<float> cosines_, sines_;  // (capacity_, d_head / 2)
  Array<float> keys_, values_;    // (num_layers, num_kv_heads, capacity_, head)
  Rows stream_, normalized_, heads_, mixed_, added_, hidden_;
  Array<float> worker_scratch_;
  // The operand of the current product, in int8.
  Array<std::int8_t> quantized_;
  Array<float> scales_;
};

}  // namespace tilth::decoder
