// count: count the pieces of a corpus, the first phase of training a tokenizer.
//
//     CountOptions options{.special_tokens = {"<|endoftext|>"}, .num_threads = 2};
//     PieceCounter counter(options);
//     counter.add_files(std::vector<std::string>{"stories.txt"});
//     PieceCounts counts = counter.finish();  // counts.piece(0), counts.counts[0]
//
// Contract:
//   - Every file and every text is a separate document; no piece spans two documents.
//   - No piece spans or contains a special token. Of several special tokens that start at one
//   place,
//     the longest counts.
//   - Each maximal malformed part counts as U+FFFD, as in Python's bytes.decode("utf-8",
//   "replace").
//   - The result and its order depend neither on the number of threads nor on the chunk size.
//
// Complexity: linear in the text. Memory is proportional to the distinct pieces (times the threads
// in the worst case) and the longest piece, independent of the size of a file.
//
// Counting relies on three properties of the patterns of GPT-2 and cl100k (a piece is a match of
// the pattern). Other patterns are cut only where Pattern::splits_before_blanks allows it.
//   1. The end of a piece does not depend on the text before its start.
//   2. Nor does it depend on text more than a few characters after its end, or after the end of a
//      run of white space in which it ends, if the text extends that far.
//   3. A piece always ends between a letter or number and a character that is neither.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pattern.hpp"

namespace tilth::bpe {

// The distinct pieces of a corpus, concatenated, and the count of each.
struct PieceCounts {
  std::vector<char> bytes;             // all pieces, without gaps
  std::vector<std::uint64_t> offsets;  // piece i is bytes[offsets[i], offsets[i + 1]); starts at 0
  std::vector<std::uint64_t> counts;

  std::size_t size() const { return counts.size(); }
  std::string_view piece(std::size_t i) const {
    return {bytes.data() + offsets[i], static_cast<std::size_t>(offsets[i + 1] - offsets[i])};
  }
  void reserve(std::size_t num_pieces, std::size_t num_bytes) {
    bytes.reserve(num_bytes);
    offsets.reserve(num_pieces + 1);
    counts.reserve(num_pieces);
  }
  // Append a piece. If a piece is appended twice, its counts add up.
  void add(std::string_view piece, std::uint64_t count) {
    if (offsets.empty()) offsets.push_back(0);
    bytes.insert(bytes.end(), piece.begin(), piece.end());
    offsets.push_back(bytes.size());
    counts.push_back(count);
  }
};

// Called like an InterruptCheck (common/interrupt.hpp), with the number of bytes or merges done and
// the total (0 if unknown). It may throw to stop the work.
struct Progress {
  std::uint64_t done = 0;
  std::uint64_t total = 0;
};
using ProgressFunction = std::function<void(const Progress&)>;

struct CountOptions {
  std::vector<std::string> special_tokens;
  Pattern pattern = Pattern::gpt2;
  std::size_t num_threads = 1;
  ProgressFunction progress;
  std::size_t chunk_bytes = std::size_t{4} << 20;  // size of a job
};

class CountingEngine;  // in count.cpp

// Accumulates counts over any number of calls. It starts threads, but must be called from one
// thread at a time. After an exception the counts are incomplete: discard the counter.
class PieceCounter {
 public:
  // Throws std::invalid_argument if a special token is empty.
  explicit PieceCounter(CountOptions options = {});
  ~PieceCounter();

  // Throws std::runtime_error with the path if a file cannot be read.
  void add_files(std::span<const std::string> paths);
  void add_texts(std::span<const std::string_view> texts);
  void add_text(std::string_view text) { add_texts({&text, 1}); }

  // Return the counts and reset the counter.
  PieceCounts finish();

 private:
  std::unique_ptr<CountingEngine> engine_;
};

}  // namespace tilth::bpe
