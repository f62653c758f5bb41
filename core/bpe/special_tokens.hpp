// special_tokens: find special tokens in text, the leftmost first and at each place the longest.
//
//     const Token tokens[] = {{50256, "<|endoftext|>"}};
//     SpecialTokens special(tokens);
//     auto found = special.find("a<|endoftext|>b", 0, true);  // found.start == 1, found.length ==
//     13
//
// Promise: unchanged once made; find takes one step for each byte, and at a byte that some special
// token begins with at most as many as the longest is long.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "merge.hpp"

namespace tilth::bpe {

class SpecialTokens {
 public:
  SpecialTokens() = default;
  // An empty or repeated token, or an id for two of them, is a std::invalid_argument.
  explicit SpecialTokens(std::span<const Token> tokens);

  struct Found {
    std::size_t start;   // where there is none: all before it is known to begin no special token
    std::size_t length;  // 0 if there is none
    std::uint32_t id;
  };
  // The first special token that begins at `from` or later. If the text may go on (not `is_whole`),
  // the search stops, with length 0, at a place where more text could make a special token, or a
  // longer one.
  Found find(std::string_view text, std::size_t from, bool is_whole) const;

  // Whether a special token begins before `place` and ends behind it.
  bool spans(std::string_view text, std::size_t place) const;

  bool empty() const { return nodes_.empty(); }
  std::size_t longest_bytes() const { return longest_bytes_; }

  // Whether a special token has a blank anywhere but in front, so that the place before a blank in
  // the text may lie inside one.
  bool may_span_blank() const { return may_span_blank_; }

 private:
  // A trie: the children of a node are siblings, chained from its first. Special tokens are few and
  // share their beginnings ("<|"), so chains stay short where text gets past the first byte.
  struct Node {
    unsigned char byte = 0;
    bool is_end = false;
    std::uint32_t id = 0;
    std::uint32_t first_child = 0, sibling = 0;  // 0: none, as the root is nobody's child
  };
  std::uint32_t child(std::uint32_t node, unsigned char byte) const;

  std::vector<Node> nodes_;
  std::array<bool, 256> begins_{};
  int only_beginning_ = -1;  // the one byte that all begin with, if there is one
  std::size_t longest_bytes_ = 0;
  bool may_span_blank_ = false;
};

}  // namespace tilth::bpe
