// decode: token ids back to bytes.
//
//     Decoder decoder(tokens, special_tokens);
//     const std::uint32_t ids[] = {15496, 995};
//     Array<char> bytes;
//     decoder.decode(ids, bytes);  // "Hello world"
//
// Promise: unchanged once made and shared between threads; linear in the ids and the bytes. An id
// that has no token is an UnknownId, thrown before anything is appended. 16 bytes an id, holes
// included, and the bytes of tokens longer than 15.
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
  std::size_t place() const { return place_; }  // in the ids that were given

 private:
  std::uint32_t id_;
  std::size_t place_;
};

class Decoder {
 public:
  // Special tokens that are not among the tokens are added to them. Two tokens of one id must have
  // the same bytes.
  explicit Decoder(std::span<const Token> tokens, std::span<const Token> special_tokens = {});

  // Append the bytes of all ids.
  void decode(std::span<const std::uint32_t> ids, Array<char>& bytes) const;
  void decode(std::span<const std::uint16_t> ids, Array<char>& bytes) const;

  // The bytes of one id; the view lives as long as the decoder.
  std::string_view bytes_of(std::uint32_t id) const;

 private:
  // A token of up to 15 bytes lies here whole, its length behind it, so that decoding copies 16
  // bytes without a look elsewhere and moves on by the length.
  struct Entry {
    char bytes[15];
    std::uint8_t length;  // 0: no token; `is_long`: bytes hold where it lies in long_tokens_
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
