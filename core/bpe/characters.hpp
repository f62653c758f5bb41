// characters: classify characters as letter, number, white space or other.
//
//     Character c = decode_character("\xC3\xA9t\xC3\xA9", 0);  // c.kind == letter, c.length == 2
//
// Contract: accepts any bytes; each byte of malformed UTF-8 is `other`. Reads no byte outside the
// given text. Complexity: O(1) per code point; 64 ASCII bytes take a few vector instructions.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

#include "code_points.hpp"
#include "unicode_tables.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
// For functions that are called only if the processor has these instructions.
#define TILTH_AVX2 __attribute__((target("avx2,bmi,popcnt")))
#define TILTH_AVX512 \
  __attribute__((target("avx512f,avx512bw,avx512vbmi2,avx2,bmi,bmi2,lzcnt,popcnt")))
#endif

namespace tilth::bpe {

enum class CharacterClass : std::uint8_t { other = 0, letter = 1, number = 2, space = 3 };

// The class of a code point below 0x110000.
inline CharacterClass classify_code_point(std::uint32_t code_point) {
  const std::uint32_t row = unicode_block_row[code_point / unicode_block_size];
  const std::uint32_t place = row * unicode_block_size + code_point % unicode_block_size;
  return static_cast<CharacterClass>(unicode_block_classes[place / 4] >> 2 * (place % 4) & 3);
}

struct Character {
  CharacterClass kind;
  std::uint8_t length;  // in bytes
};

// Decode the character at text[position]; a malformed byte is `other` with length 1.
inline Character decode_character(std::string_view text, std::size_t position) {
  const CodePoint found = decode_code_point(text, position);
  return {classify_code_point(found.value), found.length};
}

// The classes of 64 bytes: bit i is for byte i. Only non_ascii is set for bytes outside ASCII.
struct ByteMasks {
  std::uint64_t letters = 0;
  std::uint64_t uppers = 0;  // A to Z
  std::uint64_t numbers = 0;
  std::uint64_t spaces = 0;       // all white space
  std::uint64_t line_ends = 0;    // \r, \n
  std::uint64_t slashes = 0;      // /
  std::uint64_t apostrophes = 0;  // '
  std::uint64_t blanks = 0;       // U+0020
  std::uint64_t non_ascii = 0;
};

// Letters that a machine may know without decoding: bit i is for a character that starts at byte i.
struct KnownLetters {
  std::uint64_t uppers = 0, lowers = 0;  // two bytes each
  std::uint64_t caseless = 0;            // three bytes each
};

namespace detail {

// Portable vectors of GCC and Clang: SSE2 on x86-64, NEON on arm64.
using Bytes16 = std::uint8_t __attribute__((vector_size(16)));
using Mask16 = std::int8_t __attribute__((vector_size(16)));  // each byte 0 or -1

// Bit i of the result is the top bit of byte i.
inline std::uint64_t top_bits(Bytes16 v) {
#if defined(__x86_64__)
  return static_cast<std::uint32_t>(_mm_movemask_epi8(reinterpret_cast<__m128i>(v)));
#else
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "bytes are gathered in this order");
  std::uint64_t halves[2];
  std::memcpy(halves, &v, 16);
  // The multiplication moves bit 8i of its operand to bit 56 + i, without carries.
  const auto gather = [](std::uint64_t x) {
    return ((x >> 7 & 0x0101010101010101u) * 0x0102040810204080u) >> 56;
  };
  return gather(halves[0]) | gather(halves[1]) << 8;
#endif
}

inline std::uint64_t top_bits(Mask16 v) { return top_bits(reinterpret_cast<Bytes16>(v)); }

}  // namespace detail

// Classify the 64 bytes at `bytes`, which must be readable.
inline ByteMasks classify_64_bytes(const char* bytes) {
  ByteMasks masks;
  for (int i = 0; i < 64; i += 16) {
    detail::Bytes16 c;
    std::memcpy(&c, bytes + i, 16);
    // Unsigned subtraction wraps: x - low <= high - low tests low <= x <= high.
    const auto is_letter = static_cast<detail::Mask16>((c | 0x20) - 'a' <= 25);
    const auto is_upper = static_cast<detail::Mask16>(c - 'A' <= 25);
    const auto is_number = static_cast<detail::Mask16>(c - '0' <= 9);
    const auto is_line_end =
        static_cast<detail::Mask16>(c == '\r') | static_cast<detail::Mask16>(c == '\n');
    const auto is_blank = static_cast<detail::Mask16>(c == ' ');
    const auto is_space = static_cast<detail::Mask16>(c - '\t' <= 4) | is_blank;
    masks.letters |= detail::top_bits(is_letter) << i;
    masks.uppers |= detail::top_bits(is_upper) << i;
    masks.line_ends |= detail::top_bits(is_line_end) << i;
    masks.slashes |= detail::top_bits(static_cast<detail::Mask16>(c == '/')) << i;
    masks.numbers |= detail::top_bits(is_number) << i;
    masks.spaces |= detail::top_bits(is_space) << i;
    masks.blanks |= detail::top_bits(is_blank) << i;
    masks.apostrophes |= detail::top_bits(static_cast<detail::Mask16>(c == '\'')) << i;
    masks.non_ascii |= detail::top_bits(c) << i;
  }
  return masks;
}

#if defined(__x86_64__)

inline bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
         __builtin_cpu_supports("popcnt");
}

// The same with vectors of 32 bytes.
TILTH_AVX2 inline ByteMasks classify_64_bytes_avx2(const char* bytes) {
  ByteMasks masks;
  for (int i = 0; i < 64; i += 32) {
    const __m256i c = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes + i));
    // For unsigned bytes, x <= most is min(x, most) == x.
    const __m256i letter =
        _mm256_sub_epi8(_mm256_or_si256(c, _mm256_set1_epi8(0x20)), _mm256_set1_epi8('a'));
    const __m256i is_letter =
        _mm256_cmpeq_epi8(_mm256_min_epu8(letter, _mm256_set1_epi8(25)), letter);
    const __m256i upper = _mm256_sub_epi8(c, _mm256_set1_epi8('A'));
    const __m256i is_upper = _mm256_cmpeq_epi8(_mm256_min_epu8(upper, _mm256_set1_epi8(25)), upper);
    const __m256i is_line_end = _mm256_or_si256(_mm256_cmpeq_epi8(c, _mm256_set1_epi8('\r')),
                                                _mm256_cmpeq_epi8(c, _mm256_set1_epi8('\n')));
    const __m256i is_slash = _mm256_cmpeq_epi8(c, _mm256_set1_epi8('/'));
    const __m256i number = _mm256_sub_epi8(c, _mm256_set1_epi8('0'));
    const __m256i is_number =
        _mm256_cmpeq_epi8(_mm256_min_epu8(number, _mm256_set1_epi8(9)), number);
    const __m256i control = _mm256_sub_epi8(c, _mm256_set1_epi8('\t'));
    const __m256i is_control =
        _mm256_cmpeq_epi8(_mm256_min_epu8(control, _mm256_set1_epi8(4)), control);
    const __m256i is_blank = _mm256_cmpeq_epi8(c, _mm256_set1_epi8(' '));
    const __m256i is_apostrophe = _mm256_cmpeq_epi8(c, _mm256_set1_epi8('\''));
    // Not a lambda: it would not be compiled for AVX2.
#define TILTH_TOP_BITS(v) (std::uint64_t{static_cast<std::uint32_t>(_mm256_movemask_epi8(v))} << i)
    masks.letters |= TILTH_TOP_BITS(is_letter);
    masks.uppers |= TILTH_TOP_BITS(is_upper);
    masks.line_ends |= TILTH_TOP_BITS(is_line_end);
    masks.slashes |= TILTH_TOP_BITS(is_slash);
    masks.numbers |= TILTH_TOP_BITS(is_number);
    masks.spaces |= TILTH_TOP_BITS(_mm256_or_si256(is_control, is_blank));
    masks.blanks |= TILTH_TOP_BITS(is_blank);
    masks.apostrophes |= TILTH_TOP_BITS(is_apostrophe);
    masks.non_ascii |= TILTH_TOP_BITS(c);
#undef TILTH_TOP_BITS
  }
  return masks;
}

// Such a processor has LZCNT too, whose name Clang 15 does not know.
inline bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("bmi2");
}

// The same with one vector of 64 bytes.
TILTH_AVX512 inline ByteMasks classify_64_bytes_avx512(const char* bytes) {
  const __m512i c = _mm512_loadu_si512(bytes);
  const auto equals = [&](char byte) __attribute__((target("avx512f,avx512bw"))) {
    return _cvtmask64_u64(_mm512_cmpeq_epi8_mask(c, _mm512_set1_epi8(byte)));
  };
  const auto within = [](__m512i v, char first,
                         char size) __attribute__((target("avx512f,avx512bw"))) {
    return _cvtmask64_u64(_mm512_cmple_epu8_mask(_mm512_sub_epi8(v, _mm512_set1_epi8(first)),
                                                 _mm512_set1_epi8(size)));
  };
  ByteMasks masks;
  masks.letters = within(_mm512_or_si512(c, _mm512_set1_epi8(0x20)), 'a', 25);
  masks.uppers = within(c, 'A', 25);
  masks.numbers = within(c, '0', 9);
  masks.blanks = equals(' ');
  masks.spaces = within(c, '\t', 4) | masks.blanks;
  masks.line_ends = equals('\r') | equals('\n');
  masks.slashes = equals('/');
  masks.apostrophes = equals('\'');
  masks.non_ascii = _cvtmask64_u64(_mm512_movepi8_mask(c));
  return masks;
}

// Of the 64 bytes at `bytes`: letters of Latin-1, U+0400 to U+045F, most kana, U+4000 to U+9FFF
// without hexagrams, and Hangul syllables. Only characters that end in the block.
TILTH_AVX512 inline KnownLetters known_letters_avx512(const char* bytes) {
  const __m512i c = _mm512_loadu_si512(bytes);
  const auto equals = [&](int byte) __attribute__((target("avx512f,avx512bw"))) {
    return _cvtmask64_u64(_mm512_cmpeq_epi8_mask(c, _mm512_set1_epi8(static_cast<char>(byte))));
  };
  const auto within = [&](int first, int last) __attribute__((target("avx512f,avx512bw"))) {
    return _cvtmask64_u64(
        _mm512_cmple_epu8_mask(_mm512_sub_epi8(c, _mm512_set1_epi8(static_cast<char>(first))),
                               _mm512_set1_epi8(static_cast<char>(last - first))));
  };
  const std::uint64_t continuations = within(0x80, 0xBF);
  const std::uint64_t second = continuations >> 1, third = continuations >> 2;
  KnownLetters known;
  const std::uint64_t latin = equals(0xC3), cyrillic = equals(0xD0);
  known.uppers = (latin & (within(0x80, 0x9E) & ~equals(0x97)) >> 1) |  // U+00D7: a sign
                 (cyrillic & within(0x80, 0xAF) >> 1);
  known.lowers = (latin & (within(0x9F, 0xBF) & ~equals(0xB7)) >> 1) |  // U+00F7: a sign
                 (cyrillic & within(0xB0, 0xBF) >> 1) | (equals(0xD1) & within(0x80, 0x9F) >> 1);
  const std::uint64_t kana = (equals(0x81) >> 1 & ~(equals(0x80) >> 2)) |
                             (equals(0x83) >> 1 & ~(equals(0xBB) >> 2)) |
                             (equals(0x82) >> 1 & ~((within(0x97, 0x9C) | equals(0xA0)) >> 2));
  known.caseless =
      (within(0xE5, 0xE9) | within(0xEB, 0xEC) | (equals(0xE3) & kana) |
       (equals(0xE4) & ~(equals(0xB7) >> 1)) | (equals(0xEA) & within(0xB0, 0xBF) >> 1) |
       (equals(0xED) & within(0x80, 0x9D) >> 1)) &
      second & third;
  return known;
}

#else

inline bool has_avx2() { return false; }
// Such a processor has LZCNT too, whose name Clang 15 does not know.
inline bool has_avx512() { return false; }

#endif

}  // namespace tilth::bpe
