// decode: token ids to bytes.
//
//     Decoder decoder(tokens, special_tokens);
//     const std::uint32_t ids[] = {15496, 995};
//     Array<char> bytes;
//     decoder.decode(ids, bytes);  // "Hello world"
//
// Contract: immutable, can be shared between threads. An id without a token throws UnknownId, and
// nothing is appended.
//
// Complexity: linear in the ids and the bytes. Memory: 16 bytes per id, gaps included, plus the
// tokens of more than 15 bytes.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "../common/array.hpp"
#include "merge.hpp"

namespace tilth::bpe {

class UnknownId : public std::invalid_argument {
 public:
  UnknownId(std::uint32_t id, std::size_t place);
  std::uint32_t id() const { return id_; }
  std::size_t place() const { return place_; }  // index in the given ids

 private:
  std::uint32_t id_;
  std::size_t place_;
};

class Decoder {
 public:
  // An id may be in both lists; then its bytes must be the same.
  explicit Decoder(std::span<const Token> tokens, std::span<const Token> special_tokens = {});

  // Append the bytes of all ids.
  void decode(std::span<const std::uint32_t> ids, Array<char>& bytes) const;
  void decode(std::span<const std::uint16_t> ids, Array<char>& bytes) const;

  // Return the bytes of one id; the view is valid as long as the decoder.
  std::string_view bytes_of(std::uint32_t id) const;

 private:
  // A token of up to 15 bytes is stored inline: decoding copies 16 bytes and advances by the
  // length.
  struct Entry {
    char bytes[15];
    std::uint8_t length;  // 0: no token; `is_long`: `bytes` is a LongPlace in long_tokens_
  };
  static constexpr std::uint8_t is_long = 255;
  struct LongPlace {
    std::uint32_t start, length;
  };
  static LongPlace long_place(const Entry& entry);
  void add(const Token& token);
  template <typename Id>
  void decode_ids(std::span<const Id> ids, Array<char>& bytes) const;

  std::vector<Entry> entries_;  // by id
  std::string long_tokens_;
};

}  // namespace tilth::bpe
