// special_tokens: find special tokens in text, the leftmost first and the longest at each place.
//
//     const Token tokens[] = {{50256, "<|endoftext|>"}};
//     SpecialTokens special(tokens);
//     auto found = special.find("a<|endoftext|>b", 0, true);  // start 1, length 13
//
// Contract: immutable. Complexity: find takes one step per byte, and up to the length of the
// longest special token at a byte with which one starts.
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
  // Throws std::invalid_argument for an empty token, a repeated token or a repeated id.
  explicit SpecialTokens(std::span<const Token> tokens);

  struct Found {
    std::size_t start;   // if none was found: no special token starts before this place
    std::size_t length;  // 0 if none was found
    std::uint32_t id;
  };
  // Return the first special token that starts at `from` or later. If the text may continue (not
  // `is_whole`), the search stops with length 0 at a place where more text could complete a special
  // token, or a longer one.
  Found find(std::string_view text, std::size_t from, bool is_whole) const;

  // Whether a special token starts before `place` and ends after it.
  bool spans(std::string_view text, std::size_t place) const;

  bool empty() const { return nodes_.empty(); }
  std::size_t longest_bytes() const { return longest_bytes_; }

  // Whether a special token contains a blank after its first byte: then the place before a blank in
  // the text may be inside a special token.
  bool may_span_blank() const { return may_span_blank_; }

 private:
  // A trie; the children of a node are a linked list. Special tokens are few and share prefixes
  // ("<|"), so the lists are short wherever text matches the first byte.
  struct Node {
    unsigned char byte = 0;
    bool is_end = false;
    std::uint32_t id = 0;
    std::uint32_t first_child = 0, sibling = 0;  // 0, the root, means none
  };
  std::uint32_t child(std::uint32_t node, unsigned char byte) const;

  std::vector<Node> nodes_;
  std::array<bool, 256> begins_{};
  int only_beginning_ = -1;  // the first byte of all special tokens, if they share one
  std::size_t longest_bytes_ = 0;
  bool may_span_blank_ = false;
};

}  // namespace tilth::bpe
