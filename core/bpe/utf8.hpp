// utf8: validation of UTF-8.
//
//     well_formed_size("ab\xFF");  // 2
//
// Contract: reads no byte outside the given view. Complexity: linear; ASCII at memory bandwidth.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace tilth::bpe {

// The character or the maximal malformed part at the start of `bytes`, which is not empty.
struct Utf8Part {
  std::size_t size;
  enum { well_formed, malformed, incomplete } state;  // incomplete: the bytes end inside it
};

inline Utf8Part read_utf8_part(std::string_view bytes) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return {1, Utf8Part::well_formed};
  if (first < 0xC2 || first > 0xF4) return {1, Utf8Part::malformed};
  const std::size_t size = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  // The second byte excludes overlong forms, surrogates and code points above U+10FFFF.
  const unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  for (std::size_t i = 1; i < size; ++i) {
    if (i == bytes.size()) return {i, Utf8Part::incomplete};
    const bool fits = i == 1 ? low <= byte(i) && byte(i) <= high : (byte(i) & 0xC0) == 0x80;
    if (!fits) return {i, Utf8Part::malformed};
  }
  return {size, Utf8Part::well_formed};
}

// Return the length in bytes of the longest well-formed prefix.
inline std::size_t well_formed_size(std::string_view bytes) {
  std::size_t i = 0;
  for (;;) {
    // Skip ASCII in strides of 32 bytes.
    for (std::uint64_t words[4]; i + 32 <= bytes.size(); i += 32) {
      std::memcpy(words, bytes.data() + i, 32);
      if (((words[0] | words[1] | words[2] | words[3]) & 0x8080808080808080u) != 0) break;
    }
    const std::size_t stop = std::min(i + 32, bytes.size());
    if (i == stop) return i;
    while (i < stop) {
      const Utf8Part part = read_utf8_part(bytes.substr(i));
      if (part.state != Utf8Part::well_formed) return i;
      i += part.size;
    }
  }
}

// Append the UTF-8 of a code point, which is not a surrogate.
template <typename Bytes>
void append_utf8(std::uint32_t code_point, Bytes&& append) {
  const auto byte = [&](std::uint32_t value) { append(static_cast<char>(value)); };
  if (code_point < 0x80) {
    byte(code_point);
    return;
  }
  if (code_point < 0x800) {
    byte(0xC0 | code_point >> 6);
  } else {
    if (code_point < 0x10000) {
      byte(0xE0 | code_point >> 12);
    } else {
      byte(0xF0 | code_point >> 18);
      byte(0x80 | (code_point >> 12 & 0x3F));
    }
    byte(0x80 | (code_point >> 6 & 0x3F));
  }
  byte(0x80 | (code_point & 0x3F));
}

}  // namespace tilth::bpe
