// count_table: a hash table from pieces to counts, one per thread.
//
//     PieceTable table;
//     table.add(piece, end_of_text);
//     table.flush();
//     table.visit([](std::string_view piece, std::uint64_t count) { ... });
//
// Contract: the result of visit, including its order, depends on the pieces and their counts only.
// Complexity: amortised O(1) per piece. Memory: 24 bytes per slot for pieces of up to 15 bytes; 32
// and their bytes for longer ones.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "../common/array.hpp"
#include "../common/splitmix64.hpp"

namespace tilth::bpe {

// Open addressing with linear probing, at most three quarters full. The slot is the top bits of the
// hash, so the table is nearly sorted by hash. Growing it and merging two tables therefore read
// memory in order, not at random for each piece.
template <class Entry>
class Slots {
 public:
  std::size_t num_used = 0;

  void prefetch(std::uint64_t hash) const { __builtin_prefetch(&slots_[hash >> shift_], 1); }

  // Reserve capacity for `more` additional entries.
  void reserve_more(std::size_t more) {
    while ((num_used + more) * 4 > (std::size_t{3} << (64 - shift_))) rebuild(shift_ - 1, tail_);
  }

  // Return the slot whose entry is_same accepts, else the empty slot for this entry.
  template <class IsSame>
  Entry& find(std::uint64_t hash, IsSame is_same) {
    for (;;) {
      for (std::size_t i = hash >> shift_; i < slots_.size(); ++i) {
        if (slots_[i].is_empty() || is_same(slots_[i])) return slots_[i];
      }
      // Probing does not wrap around, which keeps the order; it may use the tail, which grows.
      rebuild(shift_, tail_ * 2);
    }
  }

  // Call visit(entry) for each entry, nearly sorted by hash.
  template <class Visit>
  void visit(Visit visit) {
    for (const Entry& entry : slots_) {
      if (!entry.is_empty()) visit(entry);
    }
  }

  // Call visit(entry) for each entry, sorted by hash and then by is_less: an order that depends
  // neither on the size of the table nor on the order of insertion. An entry is never before its
  // slot nor after an empty one, so it suffices to sort each run of used slots.
  template <class IsLess, class Visit>
  void visit_in_order(IsLess is_less, Visit visit) {
    const auto comes_before = [&](const Entry& a, const Entry& b) {
      return a.hash() != b.hash() ? a.hash() < b.hash() : is_less(a, b);
    };
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      std::size_t end = i;
      while (end < slots_.size() && !slots_[end].is_empty()) ++end;
      if (end - i > 1) std::sort(&slots_[i], &slots_[i] + (end - i), comes_before);
      for (; i < end; ++i) visit(slots_[i]);
    }
  }

 private:
  void rebuild(unsigned shift, std::size_t tail) {
    auto old = Array<Entry>::zeros((std::size_t{1} << (64 - shift)) + tail);
    old.swap(slots_);
    shift_ = shift;
    tail_ = tail;
    for (const Entry& entry : old) {
      if (!entry.is_empty()) find(entry.hash(), [](const Entry&) { return false; }) = entry;
    }
  }

  unsigned shift_ = 64 - 12;
  std::size_t tail_ = 64;
  Array<Entry> slots_ = Array<Entry>::zeros((std::size_t{1} << 12) + 64);
};

// The counts of one thread. A piece of up to 15 bytes is its key, two words that are compared at
// once; a longer one is stored in an arena.
class PieceTable {
 public:
  // Increment the count of a piece. `readable_end` is the end of the readable memory after it.
  void add(std::string_view piece, const char* readable_end) {
    if (piece.size() > max_short_size) return add_long(piece, 1);
    queue(make_key(piece, readable_end));
  }

  // Count the queued pieces. (A cache of frequent pieces in front of the table did not help: with
  // 200 to 800 KB, counting took 1.0 to 1.3 times as long.)
  void flush() { settle_queue(); }

  // Add all counts of another table, and free it. Both must be flushed.
  void add_all(PieceTable other) {
    // Count the new pieces first, and grow before adding them. Pieces come in the order of the
    // slots: half of them would overfill the first half of a table that has not grown. That took
    // 14 s instead of 0.1 s.
    std::size_t num_new = 0;
    for (const bool is_adding : {false, true}) {
      if (is_adding) short_pieces_.reserve_more(num_new);
      other.short_pieces_.visit([&](const ShortPiece& entry) {
        if (is_adding) return add_short(entry);
        const auto is_same = [&](const ShortPiece& mine) { return mine.is_same(entry); };
        num_new += short_pieces_.find(entry.hash(), is_same).is_empty();
      });
    }
    other.long_pieces_.visit([&](const LongPiece& entry) {
      add_long({other.arena_.data() + entry.offset, entry.size}, entry.count);
    });
  }

  std::size_t size() const { return short_pieces_.num_used + long_pieces_.num_used; }

  // Call visit(piece, count) for every piece, in an order that depends on the pieces only.
  template <class Visit>
  void visit(Visit visit) {
    short_pieces_.visit_in_order(
        [](const ShortPiece& a, const ShortPiece& b) {
          return a.low != b.low ? a.low < b.low : a.high < b.high;
        },
        [&](const ShortPiece& entry) {
          const std::uint64_t words[2] = {entry.low, entry.high};
          char bytes[16];
          std::memcpy(bytes, words, 16);
          visit(std::string_view(bytes, entry.high >> 56), entry.count);
        });
    const auto bytes_of = [&](const LongPiece& entry) {
      return std::string_view(arena_.data() + entry.offset, entry.size);
    };
    long_pieces_.visit_in_order(
        [&](const LongPiece& a, const LongPiece& b) { return bytes_of(a) < bytes_of(b); },
        [&](const LongPiece& entry) { visit(bytes_of(entry), entry.count); });
  }

 private:
  static constexpr std::size_t max_short_size = 15;
  static_assert(std::endian::native == std::endian::little, "the size is the last byte of a key");

  // The bytes, padded with zeros, and the size in the last byte. The size is never 0, so 0 marks an
  // empty slot.
  struct ShortPiece {
    std::uint64_t low, high, count;
    std::uint64_t hash() const {
      return splitmix64(low ^ std::rotl(high * 0x9FB21C651E98DF25u, 23));
    }
    bool is_empty() const { return high == 0; }
    bool is_same(const ShortPiece& other) const { return low == other.low && high == other.high; }
  };
  struct LongPiece {
    std::uint64_t hash_value, offset, size, count;
    std::uint64_t hash() const { return hash_value; }
    bool is_empty() const { return size == 0; }
  };

  // Words, not an array or a ShortPiece: GCC would emit two stores and one wide load, which waits
  // for both (a third of the counting time).
  static std::uint64_t read_word(const char* from) {
    std::uint64_t word;
    std::memcpy(&word, from, 8);
    return word;
  }

  static ShortPiece make_key(std::string_view piece, const char* readable_end) {
    std::uint64_t low = 0, high = 0;
    if (readable_end - piece.data() >= 16) [[likely]] {
      // Masks from a table: a branch on more than 8 bytes is unpredictable.
      low = read_word(piece.data()) & read_word(ones + 16 - piece.size());
      high = read_word(piece.data() + 8) & read_word(ones + 24 - piece.size());
    } else {
      char bytes[16] = {};
      std::memcpy(bytes, piece.data(), piece.size());
      low = read_word(bytes);
      high = read_word(bytes + 8);
    }
    return {low, high | std::uint64_t{piece.size()} << 56, 1};
  }

  // Sixteen bytes of ones, then zeros: a read at 16 - n starts with n ones.
  static constexpr char ones[33] =
      "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff";

  void queue(const ShortPiece& key) {
    short_pieces_.prefetch(key.hash());
    ShortPiece& last = queue_[num_queued_++];
    last.low = key.low;
    last.high = key.high;
    last.count = key.count;
    if (num_queued_ == queue_.size()) settle_queue();
  }

  // A batch of prefetches hides most of the memory latency.
  void settle_queue() {
    short_pieces_.reserve_more(num_queued_);
    for (std::size_t i = 0; i < num_queued_; ++i) add_short(queue_[i]);
    num_queued_ = 0;
  }

  void add_short(const ShortPiece& key) {
    ShortPiece& entry =
        short_pieces_.find(key.hash(), [&](const ShortPiece& other) { return other.is_same(key); });
    short_pieces_.num_used += entry.is_empty();
    entry.low = key.low;
    entry.high = key.high;
    entry.count += key.count;
  }

  void add_long(std::string_view piece, std::uint64_t count) {
    std::uint64_t hash = piece.size(), word = 0;
    std::size_t i = 0;
    for (; i + 8 <= piece.size(); i += 8) {
      std::memcpy(&word, piece.data() + i, 8);
      hash = (std::rotl(hash, 29) ^ word) * 0x9FB21C651E98DF25u;
    }
    word = 0;
    std::memcpy(&word, piece.data() + i, piece.size() - i);
    hash = splitmix64(std::rotl(hash, 29) ^ word);

    long_pieces_.reserve_more(1);
    LongPiece& entry = long_pieces_.find(hash, [&](const LongPiece& other) {
      return other.hash_value == hash && other.size == piece.size() &&
             std::memcmp(arena_.data() + other.offset, piece.data(), piece.size()) == 0;
    });
    if (entry.is_empty()) {
      const std::size_t offset = arena_.size();
      arena_.insert(arena_.end(), piece.begin(), piece.end());  // may throw: before the entry
      entry = {hash, offset, piece.size(), 0};
      ++long_pieces_.num_used;
    }
    entry.count += count;
  }

  Slots<ShortPiece> short_pieces_;
  Slots<LongPiece> long_pieces_;
  std::vector<char> arena_;
  std::array<ShortPiece, 32> queue_;
  std::size_t num_queued_ = 0;
};

}  // namespace tilth::bpe
