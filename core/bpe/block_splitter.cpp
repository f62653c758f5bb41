#include "block_splitter.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "block_machine.hpp"

// How the starts of pieces follow from the classes of characters. A block begins at a piece, so
// nothing before it matters. A piece starts at
//
//   a letter,  if the character before it is not a letter, and does not belong to the word. The
//              latter is white space other than a line end, or a single other character that starts
//              a piece. With case words, also at an upper-case letter after a lower-case one.
//   a number,  at the first of a run, and after every three.
//   an other,  at the first of a run, unless a blank is before it, which starts the piece instead.
//   a space,   at the first of a run; after its last line end; and at its last character if that is
//              not a line end: `\s+(?!\S)` leaves it to the next piece.
//
// Line ends after an other character belong to its piece; here they are called absorbed, and count
// neither as spaces nor as others. Contractions are handled one by one.

namespace tilth::bpe {
namespace {

// The bits of `runs` from each seed to the end of its run. Seeds are bits of `runs`.
//
// Lemma: a bit of a run is at or after a seed if and only if the sum clears it or it is a seed.
// Proof: adding the first seed of a run carries to the bit after the run and clears all bits from
// the seed on. Further seeds of the run then set single bits, their own.
constexpr std::uint64_t flood(std::uint64_t seeds, std::uint64_t runs) {
  return runs & (~(runs + seeds) | seeds);
}

// The length of the contraction at the apostrophe text[position], in any case, or 0. Requires four
// readable bytes.
std::size_t contraction_length(const char* text) {
  const char first = static_cast<char>(text[1] | 0x20), second = static_cast<char>(text[2] | 0x20);
  if ((first == 'l' && second == 'l') || ((first == 'v' || first == 'r') && second == 'e')) {
    return 3;
  }
  return first == 's' || first == 'd' || first == 'm' || first == 't' ? 2 : 0;
}

}  // namespace

BlockPattern::BlockPattern(std::string_view pattern, SplitRules split_rules)
    : regex(pattern), rules(split_rules) {
  // A class that has no range of its own stays undecided: U+017F, U+0085.
  for (const std::uint32_t range : unicode_category_ranges) {
    const std::uint32_t first = range / 32;
    const char* const category = unicode_categories + 2 * (range % 32);
    Kind kind = Kind::other;
    if (category[0] == 'L') {
      kind = category[1] == 'u' || category[1] == 't' ? Kind::upper
             : category[1] == 'l'                     ? Kind::lower
                                                      : Kind::caseless;
    } else if (category[0] == 'N' || category[0] == 'Z' ||
               (category[0] == 'M' && rules.has_case_words)) {
      kind = Kind::undecided;
    }
    if (first >= 0x80) kinds[regex.class_of(first)] = kind;
  }
}

BlockSplitter::BlockSplitter(std::string_view text, const BlockPattern& pattern, int level)
    : text_(text), pattern_(&pattern), level_(machine_level(level)) {}

template <typename Machine>
[[gnu::always_inline]] inline std::uint64_t BlockSplitter::starts_in_block(
    std::size_t& undecided_end) const {
  using Kind = BlockPattern::Kind;
  const SplitRules& rules = pattern_->rules;
  const std::size_t size = std::min<std::size_t>(64, text_.size() - position_);
  const char* const block = text_.data() + position_;
  ByteMasks masks;
  if (size == 64) {
    masks = Machine::classify(block);
  } else {
    char padded[64] = {};
    std::memcpy(padded, block, size);
    masks = Machine::classify(padded);
  }
  std::uint64_t letters = masks.letters, uppers = masks.uppers, numbers = masks.numbers;
  std::uint64_t continuations = 0, both_cases = 0;
  std::uint64_t undecided = ~bits_below(size);
  if (masks.non_ascii != 0) [[unlikely]] {
    std::uint64_t open = masks.non_ascii & bits_below(size);
    if (size == 64 && std::popcount(open) > most_decoded) {
      const KnownLetters known = Machine::known_letters(block);
      const std::uint64_t starts = known.uppers | known.lowers | known.caseless;
      continuations = starts << 1 | known.caseless << 2;
      letters |= starts | continuations;
      uppers |= known.uppers | known.uppers << 1;
      both_cases = known.caseless | known.caseless << 1 | known.caseless << 2;
      open &= ~(starts | continuations);
    }
    while (open != 0) {
      const auto i = static_cast<std::size_t>(std::countr_zero(open));
      const CodePoint found = decode_code_point(text_, position_ + i);
      const std::uint64_t its_bytes = bits_below(found.length) << i;
      const Kind kind = pattern_->kinds[pattern_->regex.class_of(found.value)];
      if (kind == Kind::undecided) undecided |= its_bytes;
      if (kind == Kind::upper) uppers |= its_bytes;
      if (kind == Kind::caseless) both_cases |= its_bytes;
      if (kind != Kind::undecided && kind != Kind::other) letters |= its_bytes;
      continuations |= its_bytes & ~bit(i);
      open &= ~its_bytes;
    }
    // A caseless letter ends a word before upper-case letters only if no lower-case letter follows.
    if (rules.has_case_words) undecided |= both_cases << 1 & uppers & ~continuations;
  }
  std::size_t limit = static_cast<std::size_t>(std::countr_zero(undecided));  // 64 if none

  const std::uint64_t spaces = masks.spaces, line_ends = masks.line_ends;
  std::uint64_t others = ~(letters | numbers | spaces);
  const std::uint64_t absorbing = rules.has_slashes ? line_ends | masks.slashes : line_ends;
  const std::uint64_t absorbed = flood(others << 1 & line_ends, absorbing);
  others &= ~absorbed;
  const std::uint64_t free_spaces = spaces & ~absorbed, free_line_ends = line_ends & ~absorbed;
  const std::uint64_t inner_spaces = spaces & ~line_ends;  // white space other than line ends

  const std::uint64_t other_starts = others & ~(others << 1) & ~(masks.blanks << 1);
  std::uint64_t joins = other_starts;  // the characters that a following letter continues
  if (continuations != 0) joins |= flood(other_starts << 1 & continuations, continuations);
  joins |= inner_spaces;
  std::uint64_t letter_starts = letters & ~(letters << 1) & ~(joins << 1);
  if (rules.has_case_words) {
    letter_starts |= uppers & (letters & ~uppers & ~both_cases) << 1 & ~continuations;
  }

  std::uint64_t number_starts = numbers;
  if (!rules.has_single_digits) {
    number_starts = numbers & ~(numbers << 1);
    const std::uint64_t fourth = numbers & numbers << 1 & numbers << 2 & numbers << 3;
    if (fourth != 0) {
      for (std::uint64_t more = number_starts; more != 0; number_starts |= more) {
        more = more << 3 & fourth;
      }
    }
  }

  std::uint64_t space_starts = free_spaces & ~(free_spaces << 1);
  space_starts |= inner_spaces & ~(spaces >> 1);
  // After the last line end of a run: a run of inner spaces between a line end and no line end.
  std::uint64_t indents = inner_spaces & free_line_ends << 1;
  if (((inner_spaces + indents) & ~inner_spaces & free_line_ends) != 0) [[unlikely]] {
    for (std::uint64_t open = indents; open != 0; open &= open - 1) {
      const std::uint64_t first = open & -open;
      if (((inner_spaces + first) & ~inner_spaces & free_line_ends) != 0) indents &= ~first;
    }
  }
  space_starts |= indents;

  std::uint64_t starts = letter_starts | number_starts | other_starts | space_starts;

  // Contractions read three more bytes.
  if (rules.contractions != Contractions::none && masks.apostrophes != 0) {
    const bool are_pieces = rules.contractions == Contractions::pieces;
    const std::uint64_t before = are_pieces ? ~std::uint64_t{0} : letters << 1;
    std::uint64_t last_end = 0;
    for (std::uint64_t open = starts & masks.apostrophes & before; open != 0; open &= open - 1) {
      const auto i = static_cast<std::size_t>(std::countr_zero(open));
      if (i + 4 > limit || (block[i + 1] & 0x80) != 0) {
        limit = std::min(limit, i);  // an unread byte, or U+017F, which is an s
        break;
      }
      const std::size_t length = contraction_length(block + i);
      // After a contraction, an apostrophe starts a piece; it cannot be a second suffix.
      if (length == 0 || (!are_pieces && bit(i) == last_end)) continue;
      const std::uint64_t inside = bits_below(length) << i;
      last_end = bit(i + length);
      starts = (starts & ~inside) | (are_pieces ? bit(i) : 0) | (last_end & letters);
    }
  }

  // A run of spaces that ends at the limit may continue: of its starts, the first is decided.
  if (limit > 0 && (spaces & bit(limit - 1)) != 0) {
    const auto run = static_cast<std::size_t>(std::countl_one(spaces << (64 - limit)));
    const std::uint64_t free_tail = free_spaces & bits_below(limit) & ~bits_below(limit - run);
    if (free_tail != 0) limit = static_cast<std::size_t>(std::countr_zero(free_tail)) + 1;
  }
  undecided &= bits_below(size);
  undecided_end =
      undecided == 0 ? 0 : position_ + static_cast<std::size_t>(std::bit_width(undecided));
  return starts & bits_below(limit) & ~bit(0);
}

template <typename Machine>
[[gnu::always_inline]] inline std::size_t BlockSplitter::next_ends_on(const char** ends,
                                                                      std::size_t capacity) {
  std::size_t count = 0;
  while (position_ < text_.size() && count + 64 <= capacity) {
    if (position_ >= automaton_) {
      std::size_t undecided_end = 0;
      const std::uint64_t starts = starts_in_block<Machine>(undecided_end);
      if (starts != 0) [[likely]] {
        Machine::write_ends(text_.data() + position_, starts, ends + count);
        position_ += static_cast<std::size_t>(std::bit_width(starts)) - 1;
        count += static_cast<std::size_t>(std::popcount(starts));
        continue;
      }
      automaton_ = undecided_end;
    }
    position_ = pattern_->regex.piece_end(text_, position_);
    ends[count++] = text_.data() + position_;
  }
  return count;
}

#if defined(__x86_64__)
TILTH_AVX2 std::size_t BlockSplitter::next_ends_avx2(const char** ends, std::size_t capacity) {
  return next_ends_on<Avx2Machine>(ends, capacity);
}
TILTH_AVX512 std::size_t BlockSplitter::next_ends_avx512(const char** ends, std::size_t capacity) {
  return next_ends_on<Avx512Machine>(ends, capacity);
}
#else
std::size_t BlockSplitter::next_ends_avx2(const char** ends, std::size_t capacity) {
  return next_ends_on<AnyMachine>(ends, capacity);
}
std::size_t BlockSplitter::next_ends_avx512(const char** ends, std::size_t capacity) {
  return next_ends_on<AnyMachine>(ends, capacity);
}
#endif

std::size_t BlockSplitter::next_ends(const char** ends, std::size_t capacity) {
  if (level_ == 2) return next_ends_avx512(ends, capacity);
  return level_ == 1 ? next_ends_avx2(ends, capacity) : next_ends_on<AnyMachine>(ends, capacity);
}

std::string_view BlockSplitter::next() {
  if (taken_ == buffered_) {
    buffered_ = next_ends(buffer_.data(), buffer_.size());
    taken_ = 0;
    if (buffered_ == 0) return {};
  }
  const auto end = static_cast<std::size_t>(buffer_[taken_++] - text_.data());
  const std::size_t start = std::exchange(piece_start_, end);
  return text_.substr(start, end - start);
}

}  // namespace tilth::bpe
