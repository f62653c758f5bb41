#include "decode.hpp"

#include <algorithm>
#include <cstring>

#include "../common/limits.hpp"

namespace tilth::bpe {

UnknownId::UnknownId(std::uint32_t id, std::size_t place)
    : std::invalid_argument("token id " + std::to_string(id) + " (at place " +
                            std::to_string(place) + ") is not in the vocabulary"),
      id_(id),
      place_(place) {}

Decoder::Decoder(std::span<const Token> tokens, std::span<const Token> special_tokens) {
  std::uint32_t last_id = 0;
  for (const auto list : {tokens, special_tokens}) {
    for (const Token& token : list) last_id = std::max(last_id, token.id);
  }
  if (last_id >= max_vocab_size) {
    throw std::invalid_argument("token id " + std::to_string(last_id) + " is too large: at most " +
                                std::to_string(max_vocab_size - 1) + " is possible");
  }
  if (!tokens.empty() || !special_tokens.empty())
    entries_.resize(std::size_t{last_id} + 1, Entry{});
  for (const auto list : {tokens, special_tokens}) {
    for (const Token& token : list) add(token);
  }
}

void Decoder::add(const Token& token) {
  const std::string name = "token " + std::to_string(token.id);
  if (token.bytes.empty()) throw std::invalid_argument(name + " is empty; every token needs bytes");
  Entry& entry = entries_[token.id];
  if (entry.length != 0) {
    if (bytes_of(token.id) == token.bytes) return;
    throw std::invalid_argument(name + " is given twice, with different bytes");
  }
  if (token.bytes.size() < sizeof entry) {
    std::memcpy(entry.bytes, token.bytes.data(), token.bytes.size());
    entry.length = static_cast<std::uint8_t>(token.bytes.size());
    return;
  }
  const LongPlace place{static_cast<std::uint32_t>(long_tokens_.size()),
                        static_cast<std::uint32_t>(token.bytes.size())};
  long_tokens_ += token.bytes;
  if (long_tokens_.size() > 0xFFFFFFFF) throw std::length_error("a vocabulary of 4 GB or more");
  std::memcpy(entry.bytes, &place, sizeof place);
  entry.length = is_long;
}

Decoder::LongPlace Decoder::long_place(const Entry& entry) {
  LongPlace place;
  std::memcpy(&place, entry.bytes, sizeof place);
  return place;
}

std::string_view Decoder::bytes_of(std::uint32_t id) const {
  if (id >= entries_.size() || entries_[id].length == 0) throw UnknownId(id, 0);
  const Entry& entry = entries_[id];
  if (entry.length != is_long) return {entry.bytes, entry.length};
  const LongPlace place = long_place(entry);
  return std::string_view(long_tokens_).substr(place.start, place.length);
}

void Decoder::decode(std::span<const std::uint32_t> ids, Array<char>& bytes) const {
  decode_ids(ids, bytes);
}

void Decoder::decode(std::span<const std::uint16_t> ids, Array<char>& bytes) const {
  decode_ids(ids, bytes);
}

template <typename Id>
void Decoder::decode_ids(std::span<const Id> ids, Array<char>& bytes) const {
  const std::size_t before = bytes.size();
  try {
    // In blocks of ids: capacity is reserved once per block, and the inner loop checks only the id.
    constexpr std::size_t block = 1024;
    for (std::size_t first = 0; first < ids.size(); first += block) {
      const std::size_t last = std::min(first + block, ids.size());
      bytes.reserve_more(16 * (last - first));
      char* out = bytes.end();
      for (std::size_t i = first; i < last; ++i) {
        const std::uint32_t id = ids[i];
        if (id >= entries_.size()) throw UnknownId(id, i);
        const Entry& entry = entries_[id];
        std::memcpy(out, &entry, 16);  // the next token overwrites the surplus
        if (entry.length - 1u < 15u) {
          out += entry.length;
          continue;
        }
        if (entry.length == 0) throw UnknownId(id, i);
        const LongPlace place = long_place(entry);
        bytes.set_size(static_cast<std::size_t>(out - bytes.data()));
        bytes.reserve_more(place.length + 16 * (last - i));
        out = bytes.end();
        std::memcpy(out, long_tokens_.data() + place.start, place.length);
        out += place.length;
      }
      bytes.set_size(static_cast<std::size_t>(out - bytes.data()));
    }
  } catch (...) {
    bytes.set_size(before);
    throw;
  }
}

}  // namespace tilth::bpe
