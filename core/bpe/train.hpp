// train: learn the merges of a byte-level BPE vocabulary from the counts of its pieces.
//
//     PieceCounts counts;
//     counts.add("low", 5), counts.add("lower", 2), counts.add("widest", 3), counts.add("newest",
//     6); std::vector<TrainedMerge> merges = train(counts, 2);
// XX
//
// Promise: exactly what the plain algorithm gives that counts all pairs anew at every step.
//   - A piece begins as its bytes. Each step takes the pair of neighbours that is most frequent (a
//     piece counts as often as it occurs; "aaa" holds the pair (a, a) twice) and joins it in every
//     piece, from left to right.
//   - Of equally frequent pairs it takes the greatest, compared as a pair of byte strings: of
//     (A, B), (A, C), (B, ZZ), (BA, A) that is (BA, A).
//   - No two tokens have the same bytes: it cannot happen, as train.cpp proves.
//   - It ends early when no pair is left.
// The order of the pieces does not matter.
//
// Time: each occurrence of a joined pair is visited once, as are the two neighbours whose pairs it
// changes; nothing is proportional to steps times pieces. Memory: two bytes (with over 65,278
// merges four) for each byte of the pieces, and four for each occurrence of a pair that is frequent
// enough to matter.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "count.hpp"

namespace tilth::bpe {

// Token ids below 256 are bytes, and merge i makes token 256 + i.
struct TrainedMerge {
  std::uint32_t left, right;
  std::uint64_t count;  // how often the pair stood there when it was joined
  bool operator==(const TrainedMerge&) const = default;
};

struct TrainOptions {
  ProgressFunction progress;
  // Pairs below this count are looked at again only when no other is left; 0 chooses by the size of
  // the corpus. It changes the time and the memory, never the result.
  std::uint64_t first_threshold = 0;
};

// Throws Interrupted, std::bad_alloc, std::invalid_argument (a piece of count 0, counts that add up
// to more than 64 bits hold) or std::length_error (pieces of over 4 GiB in all).
std::vector<TrainedMerge> train(const PieceCounts& pieces, std::size_t num_merges,
                                const TrainOptions& options = {});

// What training keeps its pairs in: not for other uses.
namespace training {

using Position = std::uint32_t;

// Lists of positions, freed together.
class PositionArena {
 public:
  Position* allocate(std::size_t size) {
    if (size > num_free_) {
      blocks_.emplace_back(std::max<std::size_t>(size, std::size_t{1} << 20));
      next_ = blocks_.back().begin();
      num_free_ = blocks_.back().size();
    }
    Position* const list = next_;
    next_ += size;
    num_free_ -= size;
    return list;
  }
  void clear() { *this = PositionArena(); }

 private:
  std::vector<counting::HugeArray<Position>> blocks_;
  Position* next_ = nullptr;
  std::size_t num_free_ = 0;
};

struct Pair {
  std::uint32_t left, right;
  std::uint64_t count;
  const Position* positions;
  std::size_t num_positions;
};

// The pairs that are followed, and where each is in `pairs`.
class PairTable {
 public:
  std::vector<Pair> pairs;

  void clear() {
    pairs.clear();
    slots_.assign(1024, 0);
  }

  Pair* find(std::uint32_t left, std::uint32_t right) {
    const std::size_t slot = find_slot(left, right);
    return slots_[slot] == 0 ? nullptr : &pairs[slots_[slot] - 1];
  }

  std::uint32_t find_or_add(std::uint32_t left, std::uint32_t right) {
    if (2 * pairs.size() >= slots_.size()) grow();
    const std::size_t slot = find_slot(left, right);
    if (slots_[slot] == 0) {
      pairs.push_back({left, right, 0, nullptr, 0});
      slots_[slot] = static_cast<std::uint32_t>(pairs.size());
    }
    return slots_[slot] - 1;
  }

 private:
  std::size_t find_slot(std::uint32_t left, std::uint32_t right) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t slot = counting::mix(std::uint64_t{left} << 32 | right) >> 32 & mask;
    while (slots_[slot] != 0) {
      const Pair& pair = pairs[slots_[slot] - 1];
      if (pair.left == left && pair.right == right) break;
      slot = (slot + 1) & mask;
    }
    return slot;
  }

  void grow() {
    slots_.assign(2 * slots_.size(), 0);
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      slots_[find_slot(pairs[i].left, pairs[i].right)] = static_cast<std::uint32_t>(i + 1);
    }
  }

  std::vector<std::uint32_t> slots_ = std::vector<std::uint32_t>(1024, 0);  // index + 1; 0: empty
};

}  // namespace training

}  // namespace tilth::bpe
