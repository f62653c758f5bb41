// block_splitter: the patterns of GPT-4, GPT-4o, Llama 3, Qwen and Mistral, 64 bytes at a time.
//
//     const BlockPattern pattern(cl100k_regex, {.contractions = Contractions::pieces});
//     BlockSplitter splitter("It's 1234", pattern);
//     splitter.next();  // "It", then "'s", " ", "123", "4", and an empty view at the end
//
// Contract: the pieces are those of the regular expression, which must be of this form:
//
//     contraction | [^\r\n\p{L}\p{N}]? word | \p{N}{1,3} | ?[^\s\p{L}\p{N}]+[\r\n]* |
//     \s*[\r\n]+ | \s+(?!\S) | \s+
//
// SplitRules names the variants. The splitter finds the starts of pieces by bit arithmetic on the
// classes of 64 bytes, and asks the automaton of the regular expression where that is not enough:
// marks and white space beyond ASCII, pieces that do not end in the block, the end of the text.
//
// Complexity: linear, no allocation. ASCII text takes about one cycle per byte, the automaton five.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "regex.hpp"

namespace tilth::bpe {

enum class Contractions : std::uint8_t {
  none,
  pieces,   // '(?i:[sdmt]|ll|ve|re) is a piece
  suffixes  // it ends the word before it
};

struct SplitRules {
  Contractions contractions = Contractions::none;
  bool has_case_words = false;  // a word is upper-case letters, then lower-case letters (o200k)
  bool has_single_digits = false;
  bool has_slashes = false;  // [\r\n/]* follows other characters, instead of [\r\n]*

  bool operator==(const SplitRules&) const = default;
};

// A regular expression, the rules of its form, and the kinds of the characters that it tells apart.
struct BlockPattern {
  enum class Kind : std::uint8_t { undecided, upper, lower, caseless, other };

  BlockPattern(std::string_view pattern, SplitRules split_rules);

  Regex regex;
  SplitRules rules;
  std::array<Kind, 256> kinds{};  // by class of the regular expression, for non-ASCII characters
};

class BlockSplitter {
 public:
  // The pattern must outlive the splitter. `level` limits the vector instructions: 0 portable,
  // 1 AVX2, 2 AVX-512.
  BlockSplitter(std::string_view text, const BlockPattern& pattern, int level = 2);

  // Write the ends of the next pieces to `ends`, which has a capacity of at least 64, and return
  // their number: 0 at the end of the text. Faster than next(); do not mix the two.
  std::size_t next_ends(const char** ends, std::size_t capacity);

  // Return the next piece; empty at the end of the text.
  std::string_view next();

 private:
  template <typename Machine>
  std::size_t next_ends_on(const char** ends, std::size_t capacity);
  std::size_t next_ends_avx2(const char** ends, std::size_t capacity);
  std::size_t next_ends_avx512(const char** ends, std::size_t capacity);

  // Bit i: a piece starts at position_ + i. Only starts that the block decides, without position_
  // itself. `undecided_end` receives the end of the characters that only the automaton can split.
  template <typename Machine>
  std::uint64_t starts_in_block(std::size_t& undecided_end) const;

  std::string_view text_;
  const BlockPattern* pattern_;
  int level_;
  std::size_t position_ = 0;   // a piece starts here
  std::size_t automaton_ = 0;  // the automaton splits until here

  std::array<const char*, 64> buffer_;  // of next()
  std::size_t buffered_ = 0, taken_ = 0, piece_start_ = 0;
};

}  // namespace tilth::bpe
