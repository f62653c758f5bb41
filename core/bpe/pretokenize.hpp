// pretokenize: cut text into pieces, the units inside which byte pairs are merged.
//
// A piece is a match of a pattern, and the pieces joined are the text again. Two are native:
//
//     GPT-2    '(?:[sdmt]|ll|ve|re) | ?\p{L}+ | ?\p{N}+ | ?[^\s\p{L}\p{N}]+ | \s+(?!\S) | \s+
//     cl100k   '(?i:[sdmt]|ll|ve|re) | [^\r\n\p{L}\p{N}]?+\p{L}++ | \p{N}{1,3}+ |
//              ?[^\s\p{L}\p{N}]++[\r\n]*+ | \s++$ | \s*[\r\n] | \s+(?!\S) | \s
//
//     Gpt2Splitter splitter("it's  so");
//     splitter.next();  // "it", then "'s", " ", " so", and an empty view at the end
//
// Promise: linear in the text, no allocation, and no piece longer or shorter than the pattern's.
// The views point into the text, which must outlive them. Malformed UTF-8 is taken byte by byte as
// characters that are neither letter, number nor space.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>
#include <utility>

namespace tilth::bpe {

class Gpt2Splitter {
 public:
  // Without `wide`, only what every machine has is used.
  explicit Gpt2Splitter(std::string_view text, bool wide = true);

  // Write where the next pieces end to `ends`, which has room for `room` (at least 64) of them, and
  // return their number: 0 when the text is used up. Faster than next(), which must not be called
  // on the same splitter.
  std::size_t next_ends(const char** ends, std::size_t room);

  // The next piece; empty when the text is used up.
  std::string_view next() {
    while (starts_ == 0) {
      if (position_ == text_.size()) {
        const auto piece = text_.substr(piece_start_);
        piece_start_ = text_.size();
        return piece;
      }
      read_block();
    }
    const std::size_t start = block_ + static_cast<std::size_t>(std::countr_zero(starts_));
    starts_ &= starts_ - 1;
    // Not substr, whose check of the place is a tenth of the instructions here.
    const std::string_view piece(text_.data() + piece_start_, start - piece_start_);
    piece_start_ = start;
    return piece;
  }

 private:
  // Finds where pieces start in the next 60 or so bytes and moves position_ past them.
  void read_block();

  // Each is compiled twice, for what every machine has and for what most have.
  template <typename Machine>
  void read_block_on();
  template <typename Machine>
  std::size_t next_ends_on(const char** ends, std::size_t room);
  void read_block_wide();
  std::size_t next_ends_wide(const char** ends, std::size_t room);

  // What the byte before position_ was, as bit 0 of each; all zero at the start of the text.
  struct Before {
    std::uint64_t letter = 0, number = 0, other = 0, space = 0, blank = 0;
  };

  std::string_view text_;
  std::size_t piece_start_ = 0;  // where the piece that next() will return begins
  std::size_t block_ = 0;        // where the block that starts_ speaks of begins
  std::uint64_t starts_ = 0;     // bit i: a piece starts at block_ + i
  std::size_t position_ = 0;     // everything before is decided; a character begins here
  Before before_;
  bool wide_;
};

// The same, for cl100k. The end of the text is the `$` of the pattern: give it whole texts, or
// texts that were cut between a character that is no space and a blank, where a piece ends in any
// case.
class Cl100kSplitter {
 public:
  explicit Cl100kSplitter(std::string_view text) : text_(text) {}

  std::size_t next_ends(const char** ends, std::size_t room) {
    std::size_t count = 0;
    while (count < room) {
      const auto piece = next();
      if (piece.empty()) break;
      ends[count++] = piece.data() + piece.size();
    }
    return count;
  }
  std::string_view next() {
    const std::size_t start = position_;
    if (start < text_.size()) position_ = match_end(start);
    return text_.substr(start, position_ - start);
  }

 private:
  std::size_t match_end(std::size_t start) const;

  std::string_view text_;
  std::size_t position_ = 0;
};

// The text as one piece: for pieces that were cut elsewhere.
class WholeSplitter {
 public:
  explicit WholeSplitter(std::string_view text) : text_(text) {}
  std::string_view next() { return std::exchange(text_, {}); }
  std::size_t next_ends(const char** ends, std::size_t) {
    const std::string_view piece = next();
    ends[0] = piece.data() + piece.size();
    return piece.empty() ? 0 : 1;
  }

 private:
  std::string_view text_;
};

}  // namespace tilth::bpe
