// code_points: UTF-8 decoding, one code point at a time.
//
//     const CodePoint c = decode_code_point("\xC3\xA9t", 0);  // c.value == 0xE9, c.length == 2
//
// A malformed byte is U+FFFD of length 1. Reads nothing outside the text.
#pragma once

#include <cstdint>
#include <string_view>

namespace tilth::bpe {

struct CodePoint {
  std::uint32_t value;
  std::uint8_t length;  // in bytes
};

inline CodePoint decode_code_point(std::string_view text, std::size_t position) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data()) + position;
  const std::size_t left = text.size() - position;
  const auto continues = [&](std::size_t i) { return (bytes[i] & 0xC0) == 0x80; };
  const std::uint32_t first = bytes[0];
  constexpr CodePoint malformed{0xFFFD, 1};

  if (first < 0x80) return {first, 1};
  if (first < 0xC2 || first > 0xF4) return malformed;
  if (first < 0xE0) {
    if (left < 2 || !continues(1)) return malformed;
    return {(first & 0x1F) << 6 | (bytes[1] & 0x3Fu), 2};
  }
  if (first < 0xF0) {
    if (left < 3 || !continues(1) || !continues(2)) return malformed;
    const std::uint32_t value = (first & 0x0F) << 12 | (bytes[1] & 0x3Fu) << 6 | (bytes[2] & 0x3Fu);
    // Below 0x800: overlong. D800 to DFFF: a surrogate.
    if (value < 0x800 || (value & 0xF800) == 0xD800) return malformed;
    return {value, 3};
  }
  if (left < 4 || !continues(1) || !continues(2) || !continues(3)) return malformed;
  const std::uint32_t value = (first & 0x07) << 18 | (bytes[1] & 0x3Fu) << 12 |
                              (bytes[2] & 0x3Fu) << 6 | (bytes[3] & 0x3Fu);
  if (value < 0x10000 || value > 0x10FFFF) return malformed;
  return {value, 4};
}

// Return whether this is a malformed byte, not U+FFFD itself.
inline bool is_malformed(CodePoint code_point) {
  return code_point.value == 0xFFFD && code_point.length == 1;
}

// Decode the code point that ends before text[position]; position > 0.
inline CodePoint previous_code_point(std::string_view text, std::size_t position) {
  for (std::uint8_t length = 1; length <= 4 && length <= position; ++length) {
    const std::size_t start = position - length;
    if ((text[start] & 0xC0) == 0x80) continue;
    const CodePoint found = decode_code_point(text.substr(0, position), start);
    if (found.length == length) return found;
    break;
  }
  return {0xFFFD, 1};
}

}  // namespace tilth::bpe
