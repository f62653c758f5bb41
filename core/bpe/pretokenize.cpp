#include "pretokenize.hpp"

#include <cstring>

#include "block_machine.hpp"

// The GPT-2 pattern as bit arithmetic. "Space" is any white space, "blank" is U+0020. A piece
// starts at a character that is
//
//   not a space,  if the previous character has another class, except after a blank, which belongs
//                 to the piece that follows it;
//   a space,      if the previous character is not a space (a run of spaces starts here), or the
//                 next one is not: `\s+(?!\S)` excludes the last space of a run, which is then a
//                 single piece, or belongs to the next piece if it is a blank.
//
// The end of the text counts as a space: a run of spaces that ends there is one piece. Contractions
// are the only exception, and rare enough to be handled one by one. If a piece starts with an
// apostrophe and is 's, 't, 'll, ..., the letters belong to it, and a piece starts after them.

namespace tilth::bpe {
namespace {

// Return the length of the contraction that starts at the apostrophe text[position], or 0.
std::size_t contraction_length(std::string_view text, std::size_t position) {
  const std::string_view tail = text.substr(position + 1, 2);
  if (tail == "ll" || tail == "ve" || tail == "re") return 3;
  const bool one_letter =
      !tail.empty() && (tail[0] == 's' || tail[0] == 'd' || tail[0] == 'm' || tail[0] == 't');
  return one_letter ? 2 : 0;
}

}  // namespace

Gpt2Splitter::Gpt2Splitter(std::string_view text, int level)
    : text_(text), level_(machine_level(level)) {}

template <typename Machine>
[[gnu::always_inline]] inline void Gpt2Splitter::read_block_on() {
  const std::size_t left = text_.size() - position_;
  const bool is_last = left <= 64;
  const char* const block = text_.data() + position_;
  ByteMasks masks;
  if (left >= 64) {
    masks = Machine::classify(block);
  } else {
    char padded[64];
    std::memset(padded, ' ', sizeof padded);  // the end of the text counts as a space
    std::memcpy(padded, block, left);
    masks = Machine::classify(padded);
  }

  std::uint64_t continuations = 0;  // the bytes of a character after its first
  std::uint64_t open = masks.non_ascii;
  if (left >= 64 && std::popcount(open) > most_decoded) {
    const KnownLetters known = Machine::known_letters(block);
    const std::uint64_t starts = known.uppers | known.lowers | known.caseless;
    continuations = starts << 1 | known.caseless << 2;
    masks.letters |= starts | continuations;
    open &= ~(starts | continuations);
  }
  while (open != 0) {
    const auto i = static_cast<std::size_t>(std::countr_zero(open));
    const Character character = decode_character(text_, position_ + i);
    const std::uint64_t its_bytes = bits_below(character.length) << i;
    if (character.kind == CharacterClass::letter) masks.letters |= its_bytes;
    if (character.kind == CharacterClass::number) masks.numbers |= its_bytes;
    if (character.kind == CharacterClass::space) masks.spaces |= its_bytes;
    continuations |= its_bytes & ~bit(i);
    open &= ~its_bytes;
  }

  // The last block is decided completely. In any other, the decided part ends at a character
  // boundary and leaves enough bytes after it: three for a contraction, one character for a space.
  std::size_t decided = is_last ? left : 60;
  while (!is_last && (continuations & bit(decided)) != 0) --decided;

  const std::uint64_t letters = masks.letters, numbers = masks.numbers, spaces = masks.spaces;
  const std::uint64_t others = ~(letters | numbers | spaces);
  const std::uint64_t same_as_before = (letters & (letters << 1 | before_.letter)) |
                                       (numbers & (numbers << 1 | before_.number)) |
                                       (others & (others << 1 | before_.other));
  const std::uint64_t after_blank = masks.blanks << 1 | before_.blank;
  const std::uint64_t after_space = spaces << 1 | before_.space;
  const std::uint64_t before_space = spaces >> 1 | bit(63);  // bit 63 counts in the last block only

  std::uint64_t last_spaces = spaces & ~before_space;  // the last byte of each run
  for (std::uint64_t wide = last_spaces & continuations; wide != 0; wide &= wide - 1) {
    // A space of several bytes starts at its first one.
    auto i = static_cast<std::size_t>(std::countr_zero(wide));
    last_spaces &= ~bit(i);
    while ((continuations & bit(i)) != 0) --i;
    last_spaces |= bit(i);
  }

  std::uint64_t starts =
      (~spaces & ~same_as_before & ~after_blank) | (spaces & ~after_space) | last_spaces;
  starts &= bits_below(decided);

  for (std::uint64_t open = starts & masks.apostrophes; open != 0; open &= open - 1) {
    const auto i = static_cast<std::size_t>(std::countr_zero(open));
    const std::size_t length = contraction_length(text_, position_ + i);
    if (length == 0) continue;
    if (i + length < decided) {
      starts = (starts & ~bit(i + 1)) | bit(i + length);
    } else if (is_last) {
      starts &= ~bit(i + 1);  // the contraction ends the text
    } else {
      decided = i;  // it extends beyond this block: the next block starts with it
      starts &= bits_below(decided);
      break;
    }
  }

  if (position_ == 0) starts &= ~bit(0);  // no piece ends at the start of the text
  block_ = position_;
  starts_ = starts;
  position_ += decided;
  const std::size_t last = decided - 1;
  before_ = {letters >> last & 1, numbers >> last & 1, others >> last & 1, spaces >> last & 1,
             masks.blanks >> last & 1};
}

template <typename Machine>
[[gnu::always_inline]] inline std::size_t Gpt2Splitter::next_ends_on(const char** ends,
                                                                     std::size_t capacity) {
  std::size_t count = 0;
  while (position_ < text_.size() && count + 64 <= capacity) {
    read_block_on<Machine>();
    const std::uint64_t starts = std::exchange(starts_, 0);
    Machine::write_ends(text_.data() + block_, starts, ends + count);
    count += static_cast<std::size_t>(std::popcount(starts));
  }
  // The last piece ends at the end of the text.
  if (position_ == text_.size() && count < capacity && piece_start_ < text_.size()) {
    piece_start_ = text_.size();
    ends[count++] = text_.data() + text_.size();
  }
  return count;
}

#if defined(__x86_64__)
TILTH_AVX2 void Gpt2Splitter::read_block_avx2() { read_block_on<Avx2Machine>(); }
TILTH_AVX512 void Gpt2Splitter::read_block_avx512() { read_block_on<Avx512Machine>(); }
TILTH_AVX2 std::size_t Gpt2Splitter::next_ends_avx2(const char** ends, std::size_t capacity) {
  return next_ends_on<Avx2Machine>(ends, capacity);
}
TILTH_AVX512 std::size_t Gpt2Splitter::next_ends_avx512(const char** ends, std::size_t capacity) {
  return next_ends_on<Avx512Machine>(ends, capacity);
}
#else
void Gpt2Splitter::read_block_avx2() { read_block_on<AnyMachine>(); }
void Gpt2Splitter::read_block_avx512() { read_block_on<AnyMachine>(); }
std::size_t Gpt2Splitter::next_ends_avx2(const char** ends, std::size_t capacity) {
  return next_ends_on<AnyMachine>(ends, capacity);
}
std::size_t Gpt2Splitter::next_ends_avx512(const char** ends, std::size_t capacity) {
  return next_ends_on<AnyMachine>(ends, capacity);
}
#endif

void Gpt2Splitter::read_block() {
  if (level_ == 2) {
    read_block_avx512();
  } else if (level_ == 1) {
    read_block_avx2();
  } else {
    read_block_on<AnyMachine>();
  }
}

std::size_t Gpt2Splitter::next_ends(const char** ends, std::size_t capacity) {
  if (level_ == 2) return next_ends_avx512(ends, capacity);
  return level_ == 1 ? next_ends_avx2(ends, capacity) : next_ends_on<AnyMachine>(ends, capacity);
}

}  // namespace tilth::bpe
