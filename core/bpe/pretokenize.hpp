// pretokenize: split text into pieces (pre-tokens), the units within which byte pairs are merged.
//
// A piece is a match of a pattern; the concatenated pieces are the text. Here: GPT-2's pattern,
//
//     '(?:[sdmt]|ll|ve|re) | ?\p{L}+ | ?\p{N}+ | ?[^\s\p{L}\p{N}]+ | \s+(?!\S) | \s+
//
//     Gpt2Splitter splitter("it's  so");
//     splitter.next();  // "it", then "'s", " ", " so", and an empty view at the end
//
// Contract: the pieces are exactly the matches of the pattern. They are views of the text, which
// must outlive them. Each byte of malformed UTF-8 is a character that is neither letter, number nor
// white space. Complexity: linear in the text, no allocation.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>
#include <utility>

namespace tilth::bpe {

// Pieces between two calls of an InterruptCheck: a few milliseconds of work.
inline constexpr std::size_t pieces_between_checks = std::size_t{1} << 16;

class Gpt2Splitter {
 public:
  // `level` limits the vector instructions: 0 portable, 1 AVX2, 2 AVX-512.
  explicit Gpt2Splitter(std::string_view text, int level = 2);

  // Write the ends of the next pieces to `ends`, which has a capacity of at least 64, and return
  // their number: 0 at the end of the text. Faster than next(); do not mix the two.
  std::size_t next_ends(const char** ends, std::size_t capacity);

  // Return the next piece; empty at the end of the text.
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
    // Not substr, whose bounds check is a tenth of the instructions here.
    const std::string_view piece(text_.data() + piece_start_, start - piece_start_);
    piece_start_ = start;
    return piece;
  }

 private:
  // Find the starts of pieces in the next 60 or so bytes, and move position_ past them.
  void read_block();

  // Each is compiled for every machine of block_machine.hpp.
  template <typename Machine>
  void read_block_on();
  template <typename Machine>
  std::size_t next_ends_on(const char** ends, std::size_t capacity);
  void read_block_avx2();
  void read_block_avx512();
  std::size_t next_ends_avx2(const char** ends, std::size_t capacity);
  std::size_t next_ends_avx512(const char** ends, std::size_t capacity);

  // The class of the byte before position_, in bit 0 of each; all zero at the start of the text.
  struct Before {
    std::uint64_t letter = 0, number = 0, other = 0, space = 0, blank = 0;
  };

  std::string_view text_;
  std::size_t piece_start_ = 0;  // the start of the piece that next() returns
  std::size_t block_ = 0;        // the start of the block that starts_ describes
  std::uint64_t starts_ = 0;     // bit i: a piece starts at block_ + i
  std::size_t position_ = 0;     // the text before it is done; a character starts here
  Before before_;
  int level_;
};

// The text as one piece, for text that is already split.
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
