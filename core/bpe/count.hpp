// count: how often each piece occurs in a corpus. The first half of training a tokenizer, and the
// only one that reads the text.
//
//     CountOptions options{.special_tokens = {"<|endoftext|>"}, .num_threads = 2};
//     PieceCounter<Gpt2Splitter> counter(options);
//     counter.add_files(std::vector<std::string>{"stories.txt"});
//     PieceCounts counts = counter.finish();  // counts.piece(0), counts.counts[0]
//
// Promises. Every file and every text is a document of its own: no piece crosses from one to the
// next, and none crosses or contains a special token. Of several special tokens that begin at one
// place, the longest counts. What is not UTF-8 is counted as if each maximal malformed part were
// U+FFFD, as Python's bytes.decode("utf-8", "replace") does. The result, its order included, is the
// same for any number of threads and any chunk size. Linear time in the text; memory in proportion
// to the different pieces (times the threads, at worst) and the longest piece, never to a file.
//
// A Splitter is a class with a constructor from std::string_view and `std::string_view next()`, as
// in pretokenize.hpp. Counting relies on three properties that the patterns of GPT-2 and cl100k
// have (`piece` means a match of the pattern):
//   1. where a piece ends depends on the text from its start on, not on what stands before;
//   2. nor on what stands more than a few characters after its end, or after the end of a run of
//      spaces that it ends in, if the text goes on that far;
//   3. between a letter or number and a character that is neither, a piece always ends.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tilth::bpe {

// The different pieces of a corpus and how often each occurs, one after the other in one array.
struct PieceCounts {
  std::vector<char> bytes;             // all pieces, without gaps
  std::vector<std::uint64_t> offsets;  // piece i is bytes[offsets[i], offsets[i + 1]); starts at 0
  std::vector<std::uint64_t> counts;

  std::size_t size() const { return counts.size(); }
  std::string_view piece(std::size_t i) const {
    return {bytes.data() + offsets[i], static_cast<std::size_t>(offsets[i + 1] - offsets[i])};
  }
  // Appends a piece. The same piece may be appended twice: its counts add up.
  void add(std::string_view piece, std::uint64_t count) {
    if (offsets.empty()) offsets.push_back(0);
    bytes.insert(bytes.end(), piece.begin(), piece.end());
    offsets.push_back(bytes.size());
    counts.push_back(count);
  }
};

// Called as an InterruptCheck is (common/interrupt.hpp), with the bytes or merges done so far and
// their total (zero where unknown). What it throws ends the work.
struct Progress {
  std::uint64_t done = 0;
  std::uint64_t total = 0;
};
using ProgressFunction = std::function<void(const Progress&)>;

struct CountOptions {
  std::vector<std::string> special_tokens;
  std::size_t num_threads = 1;
  ProgressFunction progress;
  std::size_t chunk_bytes = std::size_t{4} << 20;  // the unit of work of a thread
};

class CountingEngine;  // everything but the splitter; in count.cpp

// Adds up pieces over any number of calls. Not for two threads at once (it has its own). After an
// exception the counts are incomplete: throw the counter away. Defined for the splitters of
// pretokenize.hpp.
template <class Splitter>
class PieceCounter {
 public:
  // Throws std::invalid_argument if a special token is empty.
  explicit PieceCounter(CountOptions options = {});
  ~PieceCounter();

  // Throws std::runtime_error with the path if a file cannot be read.
  void add_files(std::span<const std::string> paths);
  void add_texts(std::span<const std::string_view> texts);
  void add_text(std::string_view text) { add_texts({&text, 1}); }

  // The counts so far, and an empty counter.
  PieceCounts finish();

 private:
  std::unique_ptr<CountingEngine> engine_;
};

}  // namespace tilth::bpe
