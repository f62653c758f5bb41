// piece_records: pieces and their counts as a sorted sequence of bytes, the body of a file of
// counts; see tilth/tokenizer/counts.py for the whole file.
//
//     std::string bytes;
//     write_records(counts, [&](std::string_view block) { bytes += block; });
//     RecordReader reader(source_of(bytes));
//     while (reader.next()) use(reader.piece(), reader.count());
//
// A record is the size of the piece, its bytes and its count. Both numbers are LEB128: seven bits
// per byte, lowest first, the top bit set in all bytes but the last, and no zero byte at the end of
// a longer number. Records are sorted by the bytes of their pieces, as memcmp compares.
//
// Contract: equal multisets of pieces have equal bytes. A reader throws RecordError unless sizes
// and counts are positive, pieces ascend strictly and the bytes end with a record. It allocates in
// proportion to the bytes that the source has provided, never to a size that it has only read.
//
// Complexity: reading is linear, and merging k sources takes log k comparisons per record. Memory
// of a reader: a block and its longest record.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "../common/interrupt.hpp"
#include "count.hpp"

namespace tilth::bpe {

// The next block of bytes, valid until the next call; empty at the end.
using BlockSource = std::function<std::string_view()>;
using BlockSink = std::function<void(std::string_view)>;

// The problem of one source in words: "piece 3 equals piece 2".
class RecordError : public std::invalid_argument {
 public:
  RecordError(const std::string& problem, std::size_t source)
      : std::invalid_argument(problem), source_(source) {}
  std::size_t source() const { return source_; }  // its position in the arguments

 private:
  std::size_t source_;
};

struct RecordTotals {
  std::uint64_t num_pieces = 0;
  std::uint64_t count = 0;  // of all pieces together
};

class RecordReader {
 public:
  explicit RecordReader(BlockSource source, std::size_t index = 0)
      : source_(std::move(source)), index_(index) {}

  // Go to the next record; return false at the end.
  bool next();
  std::string_view piece() const { return piece_; }  // valid until next()
  std::uint64_t count() const { return count_; }
  const RecordTotals& totals() const { return totals_; }

 private:
  bool fetch();
  std::uint64_t read_number(const char* what);
  [[noreturn]] void fail(const char* before, const char* what, const char* after) const;

  BlockSource source_;
  std::size_t index_;
  std::string buffer_;     // the last block, after the rest of the block before
  std::size_t place_ = 0;  // of the first unread byte in the buffer
  std::string piece_, previous_;
  std::uint64_t count_ = 0;
  RecordTotals totals_;
};

// Sort the counts and write them, in blocks of about 1 MB. The counts of a piece that was added
// twice add up. Throws std::invalid_argument if all counts add up to more than 64 bits.
RecordTotals write_records(const PieceCounts& counts, const BlockSink& sink,
                           const InterruptCheck& check = {});

// Write the sum of several sources. Throws std::invalid_argument as above.
RecordTotals merge_records(std::span<RecordReader> readers, const BlockSink& sink);

}  // namespace tilth::bpe
