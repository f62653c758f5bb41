// cut: where a corpus may be cut in two without changing a piece, so that threads share it and no
// file need be in memory whole.
//
//     const Cutter cutter({"<|endoftext|>"});
//     cutter.find_cut("one two", 1, 7);  // 3: between a word and what is none
//
// A cut is safe between a letter or number and a character that is neither, outside of any special
// token; count.hpp says on which properties of the splitters that relies.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "document.hpp"
#include "special_tokens.hpp"

namespace tilth::bpe {

class Cutter {
 public:
  explicit Cutter(const std::vector<std::string>& special_tokens);

  const SpecialTokens& special_tokens() const { return special_tokens_; }

  // The first safe cut in text[start, end); npos if there is none. The text must reach a special
  // token's length beyond both, or to where it begins and ends.
  std::size_t find_cut(std::string_view text, std::size_t start, std::size_t end) const;

  static constexpr std::uint64_t no_cut = UINT64_MAX;

  // The same in bytes [start, end) of a document, of which only the neighbourhood is read.
  std::uint64_t find_cut(const Document& document, std::uint64_t start, std::uint64_t end,
                         DocumentReader& reader, std::vector<char>& window) const;

  // Of a text that goes on elsewhere: a special token that begins before this place is there in
  // full, and so is any longer one that it might be the beginning of.
  std::size_t decided_size(std::string_view text) const;

  // And every piece that ends at or before this place, from the safe place `start` on, is final.
  // At least `start`.
  std::size_t final_limit(std::string_view text, std::size_t start) const;

 private:
  SpecialTokens special_tokens_;
  bool may_cut_;
};

}  // namespace tilth::bpe
