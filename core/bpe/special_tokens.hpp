// special_tokens: find special tokens in text, the leftmost first and the longest at each place.
//
//     const Token tokens[] = {{50256, "<|endoftext|>"}};
//     SpecialTokens special(tokens);
//     auto found = special.find("a<|endoftext|>b", 0, true);  // start 1, length 13
//     special.split("a<|endoftext|>b", [](std::string_view text) { ... },
//                   [](SpecialTokens::Found found) { ... });
//
// Options (TokenOptions) have the meaning of the AddedToken of Hugging Face `tokenizers`:
//   - single_word: an occurrence next to a word character (a letter, mark, decimal digit or
//     connector) is passed over; the search continues after it.
//   - lstrip, rstrip: an occurrence includes the white space before or after it. White space
//   between
//     two tokens belongs to the first one if that has rstrip.
//   - A token that starts in the white space of an rstrip token before it is found nevertheless,
//     and the text after it is text again. If this token has lstrip and ends in that white space,
//     it is passed over; `tokenizers` raises an error if it ends before the end of the white space.
//   - normalized is for the Encoder.
//
// Contract: immutable. Complexity: find takes one step per byte, and up to the length of the
// longest special token at a byte with which one starts; white space is examined twice at most.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "merge.hpp"

namespace tilth::bpe {

struct TokenOptions {
  std::uint32_t id;
  bool lstrip = false, rstrip = false, single_word = false;
  bool normalized = false;  // found in normalized text, by its normalized content
};

class SpecialTokens {
 public:
  SpecialTokens() = default;
  // Options of other ids are ignored. Throws std::invalid_argument for an empty token, a repeated
  // token or a repeated id.
  explicit SpecialTokens(std::span<const Token> tokens, std::span<const TokenOptions> options = {});

  struct Found {
    std::size_t start;   // if none was found: no special token starts before this place
    std::size_t length;  // 0 if none was found
    std::uint32_t id;
    std::uint8_t options = 0;  // for next()
  };
  // Return the first special token that starts at `from` or later. If the text may continue (not
  // `is_whole`), the search stops with length 0 at a place where more text could complete a special
  // token, or a longer one. Without options: next() applies them.
  Found find(std::string_view text, std::size_t from, bool is_whole) const;

  // Call on_text for each part of a text without special tokens and on_token for each special token
  // with its white space, in order.
  template <typename OnText, typename OnToken>
  void split(std::string_view text, OnText on_text, OnToken on_token) const {
    for (Cursor cursor;;) {
      const std::size_t start = cursor.used;
      const Found found = next(text, cursor);
      if (found.start > start) on_text(text.substr(start, found.start - start));
      if (found.length == 0) break;
      on_token(found);
    }
  }

  // Whether a special token starts before `place` and ends after it.
  bool spans(std::string_view text, std::size_t place) const;

  bool empty() const { return nodes_.empty(); }
  std::size_t longest_bytes() const { return longest_bytes_; }

  bool has_options() const { return has_options_; }

  // For text that is cut before a blank that follows a character other than white space: whether a
  // special token may span such a cut, or depends on the text before it.
  bool may_span_blank() const { return may_span_blank_; }

  // The same: whether a token that ends with this byte includes the white space after it. True for
  // bytes outside ASCII if there is any such token, as normalization may change them.
  bool may_strip_after(char byte) const { return strips_after_[static_cast<unsigned char>(byte)]; }

 private:
  // A trie; the children of a node are a linked list. Special tokens are few and share prefixes
  // ("<|"), so the lists are short wherever text matches the first byte.
  struct Node {
    unsigned char byte = 0;
    bool is_end = false;
    std::uint8_t options = 0;
    std::uint32_t id = 0;
    std::uint32_t first_child = 0, sibling = 0;  // 0, the root, means none
  };
  // The state of a search: where it continues, the end of the last token with its white space, and
  // the end of the last run of white space that was measured.
  struct Cursor {
    std::size_t searched = 0, used = 0, space_end = 0;
  };

  std::uint32_t child(std::uint32_t node, unsigned char byte) const;
  Found next(std::string_view text, Cursor& cursor) const;

  std::vector<Node> nodes_;
  std::array<bool, 256> begins_{};
  // A byte that all special tokens share, at this place in each; -1 if there is none. In HTML, the
  // second byte of `<|endoftext|>` is rarer than the first by a factor of 360.
  int shared_byte_ = -1;
  std::size_t shared_place_ = 0;
  std::size_t longest_bytes_ = 0;
  bool may_span_blank_ = false, has_options_ = false;
  std::array<bool, 256> strips_after_{};
};

}  // namespace tilth::bpe
