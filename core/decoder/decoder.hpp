// decoder: token ids in, logits out, one call for the whole network.
//
//     Decoder decoder(std::make_shared<const Network>(...), 2);
//     std::vector<float> logits(vocab_size);
//     decoder.extend(prompt, Logits::last, logits);      // reads the prompt, several tokens at a
//     time decoder.extend({&next, 1}, Logits::last, logits);  // and one more
//     decoder.truncate(prompt.size());                   // back to the prompt, which is still read
//
// Promise: the logits equal those of tilth.model.TransformerLM for all ids so far, up to rounding.
// They are the same bits for any number of threads and however the ids are cut into calls. Memory
// is allocated when a decoder is made, and never again. One extend at a time.
//
// Complexity: every weight is read once for a token, and once for tokens_per_block tokens of a
// longer call; attention reads the keys and values of all positions before.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "network.hpp"
#include "team.hpp"

namespace tilth::decoder {

enum class Logits { last, every };

// Called some times a second; what it throws ends the work.
using InterruptCheck = std::function<void()>;

class Decoder {
 public:
  Decoder(std::shared_ptr<const Network> network, std::size_t num_threads,
          const Kernels& kernels = best_kernels());

  const Network& network() const { return *network_; }
  std::size_t length() const { return length_; }

  // Forget what was read behind the first `length` ids.
  void truncate(std::size_t length);

  // Read ids behind those read so far; logits is (vocab_size) or (ids, vocab_size), row by row.
  // Throws std::invalid_argument for an id outside the vocabulary and for more ids than the context
  // takes, before anything is read. What an interrupted call has read is forgotten.
  void extend(std::span<const std::uint32_t> ids, Logits wanted, std::span<float> logits,
              const InterruptCheck& check = {});

  static constexpr std::size_t tokens_per_block = 32;

 private:
  // Vectors for each token of a block, one behind the other.
  struct Rows {
    Rows() = default;
    explicit Rows(std::size_t size) : width(padded(size)), numbers(tokens_per_block * width) {}
    float* operator[](std::size_t token) { return numbers.data() + token * width; }
    std::size_t width = 0;
    Array<float> numbers;
  };

  void read_block(std::span<const std::uint32_t> ids, Logits wanted, std::span<float> logits,
                  const InterruptCheck& check);
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
  Array<float> cosines_, sines_;  // (context_length, d_head / 2)
  Array<float> keys_, values_;
  std::size_t keys_size_ = 0, values_size_ = 0;  // of one head
  Rows stream_, normalised_, heads_, mixed_, added_, hidden_;
  Array<float> worker_scratch_;
  std::size_t scratch_size_ = 0;  // of one worker
  // The operand of the present product, in int8.
  Array<std::int8_t> quantized_;
  Array<float> scales_;
};

}  // namespace tilth::decoder
