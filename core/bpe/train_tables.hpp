// train_tables: the pairs of train.cpp and their lists of positions.
//
//     PairTable table;
//     const std::uint32_t index = table.find_or_add('a', 'b');
//     table.pairs[index].count += 5;
//
// Contract: an index stays valid until clear(), a pointer of find() until the next find_or_add().
// Complexity: amortised O(1) per operation; 4 to 8 bytes per pair in addition to the Pair.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "../common/array.hpp"
#include "../common/splitmix64.hpp"

namespace tilth::bpe::training {

using Position = std::uint32_t;

// Allocates lists of positions, which are freed together.
class PositionArena {
 public:
  Position* allocate(std::size_t size) {
    if (size > num_free_) {
      blocks_.push_back(Array<Position>::zeros(std::max<std::size_t>(size, std::size_t{1} << 20)));
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
  std::vector<Array<Position>> blocks_;
  Position* next_ = nullptr;
  std::size_t num_free_ = 0;
};

struct Pair {
  std::uint32_t left, right;
  std::uint64_t count;
  const Position* positions;
  std::size_t num_positions;
};

// A hash table with linear probing from (left, right) to an index in `pairs`.
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
    std::size_t slot = splitmix64(std::uint64_t{left} << 32 | right) >> 32 & mask;
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

}  // namespace tilth::bpe::training
