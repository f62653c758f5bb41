// regex: a pattern of a pre-tokenizer, compiled to a deterministic finite automaton.
//
//     const Regex regex(R"( ?\p{L}+| ?[^\s\p{L}]+|\s+(?!\S)|\s+)");
//     regex.piece_end("it is", 0);  // 2: "it"
//     regex.piece_end("it is", 2);  // 5: " is"
//
// Contract: a match is the one that a backtracking matcher finds (leftmost, the first alternative
// that matches wins). Text between two matches is a piece too, so the pieces joined are the text.
// Malformed UTF-8 counts, byte by byte, as U+FFFD. A match takes time linear in the bytes that are
// read, at most to the end of the text. All methods are const and safe to call from many threads.
//
// Supported:
//   alternation a|b, groups (?:...) and (...), (?i:...) around ASCII letters
//   characters, escapes \t \n \r \f \v \xHH \uHHHH \x{H...} and \ before punctuation
//   classes \s \S \d \D \p{L} \P{Lu} [a-z\p{M}] [^\r\n] over Unicode general categories
//   repetition ? * + {m} {m,} {m,n}, greedy
//   possessive repetition (?+ *+ ++ {m,n}+) of a class, where it equals the greedy one
//   lookahead (?=C) and (?!C) for one character of class C
// Everything else throws RegexUnsupported: lazy repetition, anchors, `.`, \w, \b, back references,
// set operations, patterns that match the empty string, and automata above `max_states`.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace tilth::bpe {

class RegexUnsupported : public std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

class Regex {
 public:
  static constexpr std::size_t max_pattern_bytes = 4096;
  static constexpr std::size_t max_nodes = 2000;
  static constexpr std::size_t max_states = 2000;

  explicit Regex(std::string_view pattern);

  // Return the end of the piece that begins at text[start]: a match, or the text before the next
  // match. Requires start < text.size().
  std::size_t piece_end(std::string_view text, std::size_t start) const {
    const std::size_t end = match_end(text, start);
    return end != no_match ? end : gap_end(text, start);
  }

  // The class of a code point: characters of one class are in the same sets of the pattern.
  std::uint8_t class_of(std::uint32_t code_point) const {
    return class_blocks_[block_rows_[code_point / 128] * std::size_t{128} + code_point % 128];
  }

  // Return whether no match goes on from a character other than white space to a blank (U+0020),
  // and the blank decides a match as the end of the text would.
  bool stops_at_blanks() const { return stops_at_blanks_; }

  // Return whether every character alone is a match, so that there is no text between matches.
  bool matches_every_character() const { return matches_every_character_; }

 private:
  static constexpr std::size_t no_match = SIZE_MAX;

  std::size_t match_end(std::string_view text, std::size_t start) const;
  std::size_t gap_end(std::string_view text, std::size_t start) const;

  // A transition is 2 * next state + 1 if the text up to here, without the character that is read,
  // is a match. State 0 is dead; 1 is the start. The last class of a state is the end of the text.
  std::vector<std::uint16_t> transitions_;
  std::uint32_t num_classes_ = 0;  // the end of the text included
  // The same transitions by state and ASCII byte: 128 entries a state, one look-up instead of two.
  std::vector<std::uint16_t> ascii_transitions_;
  // The class of code point c is class_blocks_[block_rows_[c / 128] * 128 + c % 128].
  std::vector<std::uint16_t> block_rows_;
  std::vector<std::uint8_t> class_blocks_;
  bool stops_at_blanks_ = true, matches_every_character_ = true;
};

}  // namespace tilth::bpe
