// decoder: token ids in, logits out, one call for the whole network.
//
// clang-format off
//     Decoder decoder(std::make_shared<const Network>(...), 2);
//     std::vector<float> logits(vocab_size);
//     decoder.extend(prompt, Logits::last, logits);      // reads the prompt, several tokens at once
//     decoder.extend({&next, 1}, Logits::last, logits);  // and one more
//     decoder.truncate(prompt.size());                   // back to the prompt, which is still read
// clang-format on
//
// Promise: the logits equal those of tilth.model.TransformerLM for all ids so far, up to rounding.
// They are the same bits for any number of threads and however the ids are cut into calls. Memory
// is in proportion to the ids read, never to the context length: it is allocated for
// first_positions when a decoder is made, and doubled when they are used up. One extend at a time.
//
// Complexity: every weight is read once for a token, and once for tokens_per_block tokens of a
// longer call; attention reads the keys and values of all positions before.
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

  // Forget what was read behind the first `length` ids.
  void truncate(std::size_t length);

  // Read ids behind those read so far; logits is (vocab_size) or (ids, vocab_size), row by row.
  // Throws std::invalid_argument for logits of another size, for an id outside the vocabulary and
  // for more ids than the context takes, before anything is read. What an interrupted call has read
  // is forgotten.
  void extend(std::span<const std::uint32_t> ids, Logits wanted, std::span<float> logits,
              const InterruptCheck& check = {});

  // Throws std::invalid_argument unless `num_ids` more ids fit into the context.
  void check_fits(std::size_t num_ids) const;

  static constexpr std::size_t tokens_per_block = 32;
  static constexpr std::size_t first_positions = 1024;

 private:
  // Vectors for each token of a block, one behind the other.
  struct Rows {
    Rows() = default;
    explicit Rows(std::size_t size)
        : width(padded(size)),
          numbers(Array<float>::zeros(checked_multiply(tokens_per_block, width))) {}
    float* operator[](std::size_t token) { return numbers.data() + token * width; }
    std::size_t width = 0;
    Array<float> numbers;
  };

  void make_room(std::size_t positions, Interruption& interruption);
  void read_block(std::span<const std::uint32_t> ids, Logits wanted, std::span<float> logits,
                  Interruption& interruption);
  void attend(const Layer& layer, std::size_t layer_index, std::size_t num_tokens);
  void feed_forward(const Layer& layer, std::size_t num_tokens);
  void place_heads(const Layer& layer, std::size_t layer_index, std::size_t num_tokens);
  void turn(float* head, std::size_t position) const;
  void add_to_stream(Rows& addend, std::size_t num_tokens);
  Rows& normalised(const Array<float>& weight, std::size_t num_tokens);
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
  std::size_t num_positions_ = 0;  // that there is room for: whole blocks of keys
  Array<float> cosines_, sines_;   // (num_positions_, d_head / 2)
  Array<float> keys_, values_;     // (num_layers, num_kv_heads, num_positions_, head)
  Rows stream_, normalised_, heads_, mixed_, added_, hidden_;
  Array<float> worker_scratch_;
  // The operand of the present product, in int8.
  Array<std::int8_t> quantized_;
  Array<float> scales_;
};

}  // namespace tilth::decoder
