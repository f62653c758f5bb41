// hexadecimal: the digits of an escape sequence, such as \u20AC.
//
//     std::size_t position = 2;
//     read_hexadecimal("\\u20AC", position, 4);  // 0x20AC; position is 6
#pragma once

#include <cstdint>
#include <string_view>

namespace tilth::bpe {

// Read up to `most_digits` (at most 8) digits at `position`, and move it past them.
inline std::uint32_t read_hexadecimal(std::string_view text, std::size_t& position,
                                      std::size_t most_digits) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < most_digits && position < text.size(); ++i, ++position) {
    const char digit = text[position];
    const char lower = static_cast<char>(digit | 0x20);
    if (digit >= '0' && digit <= '9') {
      value = 16 * value + static_cast<std::uint32_t>(digit - '0');
    } else if (lower >= 'a' && lower <= 'f') {
      value = 16 * value + static_cast<std::uint32_t>(lower - 'a' + 10);
    } else {
      break;
    }
  }
  return value;
}

}  // namespace tilth::bpe
