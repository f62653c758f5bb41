// text_hash: a stable 64-bit hash of a text, which decides the split of data folders.
//
//     text_hash("seed");
//
// Contract: the hash depends on the bytes only and never changes between machines or versions. Not
// cryptographic: collisions can be constructed.
//
// The text is read as little-endian words of eight bytes, the last padded with zeros. For each word
// the state becomes the xor of both halves of the 128-bit product of (state ^ word) and an odd
// constant. The initial state depends on the length, so trailing zeros count.
//
// Complexity: linear, 4 GB/s. SHA-256 would take 10% of the time of encoding.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace tilth::bpe {

inline std::uint64_t multiply_and_fold(std::uint64_t value) {
  constexpr std::uint64_t odd = 0x9E3779B97F4A7C15;  // 2^64 / the golden ratio
  __extension__ using Product = unsigned __int128;
  const Product product = static_cast<Product>(value) * odd;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

inline std::uint64_t little_endian_word(const char* bytes, std::size_t size) {
  std::uint64_t word = 0;
  if constexpr (std::endian::native == std::endian::little) {
    std::memcpy(&word, bytes, size);
  } else {
    for (std::size_t i = size; i > 0; --i) {
      word = word << 8 | static_cast<unsigned char>(bytes[i - 1]);
    }
  }
  return word;
}

inline std::uint64_t text_hash(std::string_view text) {
  std::uint64_t state = multiply_and_fold(text.size());
  std::size_t place = 0;
  for (; place + 8 <= text.size(); place += 8) {
    state = multiply_and_fold(state ^ little_endian_word(text.data() + place, 8));
  }
  if (place < text.size()) {
    const std::uint64_t last = little_endian_word(text.data() + place, text.size() - place);
    state = multiply_and_fold(state ^ last);
  }
  return multiply_and_fold(state ^ text.size());
}

}  // namespace tilth::bpe
