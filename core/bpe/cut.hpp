// cut: find places where a corpus can be cut without changing a piece, to share it between threads
// and to read files in parts.
//
//     const Cutter cutter({"<|endoftext|>"}, Pattern::gpt2);
//     cutter.find_cut("one two", 1, 7);  // 3: after a word
//
// Contract: a cut is safe between a letter or number and a character that is neither, outside any
// special token; see properties 1 and 3 in count.hpp. Complexity: linear in the distance to the
// cut.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "document.hpp"
#include "pattern.hpp"
#include "special_tokens.hpp"

namespace tilth::bpe {

class Cutter {
 public:
  Cutter(const std::vector<std::string>& special_tokens, const Pattern& pattern);

  const SpecialTokens& special_tokens() const { return special_tokens_; }

  // Return the first safe cut in text[start, end), or npos. The text must extend beyond both by the
  // length of the longest special token, or to the ends of the document.
  std::size_t find_cut(std::string_view text, std::size_t start, std::size_t end) const;

  static constexpr std::uint64_t no_cut = UINT64_MAX;

  // The same for bytes [start, end) of a document; reads only as much as needed.
  std::uint64_t find_cut(const Document& document, std::uint64_t start, std::uint64_t end,
                         DocumentReader& reader, std::vector<char>& window) const;

  // For a text that continues: a special token that starts before this place is complete, and so is
  // any longer one of which it is a prefix.
  std::size_t decided_size(std::string_view text) const;

  // For a text that continues: every piece from the safe cut `start` that ends at or before this
  // place is final. At least `start`.
  std::size_t final_limit(std::string_view text, std::size_t start) const;

 private:
  SpecialTokens special_tokens_;
  bool may_cut_, splits_after_words_;
};

}  // namespace tilth::bpe
