#include "piece_records.hpp"

#include <algorithm>
#include <limits>
#include <vector>

#include "pretokenize.hpp"

namespace tilth::bpe {
namespace {

// Training needs a 32-bit position for every byte.
constexpr std::uint64_t max_piece_bytes = std::numeric_limits<std::uint32_t>::max();

constexpr std::size_t block_bytes = std::size_t{1} << 20;

void add_checked(std::uint64_t& sum, std::uint64_t count) {
  if (__builtin_add_overflow(sum, count, &sum)) {
    throw std::invalid_argument("the counts of the pieces add up to more than 64 bits");
  }
}

class RecordWriter {
 public:
  explicit RecordWriter(const BlockSink& sink) : sink_(sink) {}

  void add(std::string_view piece, std::uint64_t count) {
    add_checked(totals_.count, count);
    ++totals_.num_pieces;
    write_number(piece.size());
    block_ += piece;
    write_number(count);
    if (block_.size() >= block_bytes) flush();
  }

  RecordTotals finish() {
    flush();
    return totals_;
  }

 private:
  void flush() {
    if (!block_.empty()) sink_(block_);
    block_.clear();
  }

  void write_number(std::uint64_t number) {
    for (; number >= 0x80; number >>= 7) block_ += static_cast<char>(number | 0x80);
    block_ += static_cast<char>(number);
  }

  const BlockSink& sink_;
  std::string block_;
  RecordTotals totals_;
};

// The first eight bytes as a number: they decide most comparisons. A shorter piece is padded with
// zeros, which keeps the order or leaves a tie.
std::uint64_t first_bytes(std::string_view piece) {
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < 8; ++i) {
    word = word << 8 | (i < piece.size() ? static_cast<unsigned char>(piece[i]) : 0);
  }
  return word;
}

}  // namespace

// Throw "BEFORE the WHAT of piece N AFTER".
void RecordReader::fail(const char* before, const char* what, const char* after) const {
  const std::string number = std::to_string(totals_.num_pieces + 1);
  throw RecordError(before + ("the " + (what + (" of piece " + number))) + after, index_);
}

// Append a block to the unread bytes; return false at the end.
bool RecordReader::fetch() {
  buffer_.erase(0, place_);
  place_ = 0;
  const std::string_view block = source_();
  buffer_ += block;
  return !block.empty();
}

std::uint64_t RecordReader::read_number(const char* what) {
  std::uint64_t number = 0;
  for (unsigned shift = 0;; shift += 7) {
    if (place_ == buffer_.size() && !fetch()) fail("it ends in ", what, "");
    const std::uint64_t bits = static_cast<unsigned char>(buffer_[place_++]);
    if (shift == 63 && bits > 1) fail("", what, " exceeds 64 bits");
    number |= (bits & 0x7F) << shift;
    if (bits >= 0x80) continue;
    if (number == 0) fail("", what, " is 0");
    if (bits == 0) fail("", what, " ends with a zero byte");
    return number;
  }
}

bool RecordReader::next() {
  if (place_ == buffer_.size() && !fetch()) return false;
  piece_.swap(previous_);
  const std::uint64_t size = read_number("size");
  if (size > max_piece_bytes) fail("", "size", " exceeds 32 bits");
  while (buffer_.size() - place_ < size) {
    if (!fetch()) fail("it ends in ", "text", "");
  }
  piece_.assign(buffer_, place_, static_cast<std::size_t>(size));
  place_ += static_cast<std::size_t>(size);
  count_ = read_number("count");
  if (totals_.num_pieces > 0 && piece_ <= previous_) {
    fail("", "text", piece_ == previous_ ? " is that of the piece before" : " is not sorted");
  }
  if (__builtin_add_overflow(totals_.count, count_, &totals_.count)) {
    fail("", "count", " makes the total exceed 64 bits");
  }
  ++totals_.num_pieces;
  return true;
}

RecordTotals write_records(const PieceCounts& counts, const BlockSink& sink,
                           const InterruptCheck& check) {
  struct Key {
    std::uint64_t first_bytes;
    std::size_t index;
  };
  std::vector<Key> order;
  order.reserve(counts.size());
  for (std::size_t i = 0; i < counts.size(); ++i)
    order.push_back({first_bytes(counts.piece(i)), i});
  Interruption interruption(check);
  std::size_t until_check = pieces_between_checks;
  std::sort(order.begin(), order.end(), [&](const Key& a, const Key& b) {
    if (--until_check == 0) {
      until_check = pieces_between_checks;
      interruption.poll();
    }
    if (a.first_bytes != b.first_bytes) return a.first_bytes < b.first_bytes;
    return counts.piece(a.index) < counts.piece(b.index);
  });
  RecordWriter writer(sink);
  for (std::size_t i = 0; i < order.size();) {
    const std::string_view piece = counts.piece(order[i].index);
    std::uint64_t count = 0;
    for (; i < order.size() && counts.piece(order[i].index) == piece; ++i) {
      add_checked(count, counts.counts[order[i].index]);
    }
    writer.add(piece, count);
  }
  return writer.finish();
}

RecordTotals merge_records(std::span<RecordReader> readers, const BlockSink& sink) {
  // A heap of the sources by their pieces, smallest first.
  std::vector<RecordReader*> heap;
  const auto is_after = [](const RecordReader* a, const RecordReader* b) {
    return a->piece() > b->piece();
  };
  for (RecordReader& reader : readers) {
    if (reader.next()) heap.push_back(&reader);
  }
  std::make_heap(heap.begin(), heap.end(), is_after);
  RecordWriter writer(sink);
  std::string piece;
  while (!heap.empty()) {
    piece.assign(heap.front()->piece());
    std::uint64_t count = 0;
    while (!heap.empty() && heap.front()->piece() == piece) {
      std::pop_heap(heap.begin(), heap.end(), is_after);
      add_checked(count, heap.back()->count());
      if (heap.back()->next()) {
        std::push_heap(heap.begin(), heap.end(), is_after);
      } else {
        heap.pop_back();
      }
    }
    writer.add(piece, count);
  }
  return writer.finish();
}

}  // namespace tilth::bpe
