// Cache: the keys and values of one sequence, in blocks of 64 positions.
//
//     Cache cache(shape, CachePrecision::float32);
//     cache.reserve(70);   // two blocks; memory follows the ids, not the context length
//     cache.append(70);
//     other.share(cache, 64);  // the first 64 ids, without a copy
//
// Contract: caches share blocks. A block is written only by its single owner: reserve copies a
// shared block that has free positions. An exception leaves the ids of a cache unchanged.
//
// Complexity: a block has all layers of its positions. share is O(blocks), reserve O(new blocks). A
// number takes 4 bytes in float32; in int8 1 byte, and 4 bytes for each key or value of a head.
#pragma once

#include <memory>
#include <vector>

#include "../common/array.hpp"
#include "network.hpp"

namespace tilth::decoder {

class Cache {
 public:
  Cache(const Shape& shape, CachePrecision precision);

  std::size_t length() const { return length_; }

  // Make the blocks of positions length() to `positions` - 1 writable.
  void reserve(std::size_t positions);
  void append(std::size_t num_ids) { length_ += num_ids; }

  // Keep the first `length` ids, at most length(), and release other blocks.
  void truncate(std::size_t length);

  // Replace the content by the first `length` ids of another cache, at most its length.
  void share(const Cache& other, std::size_t length);

  // Store the key and the value of a head, d_head numbers each, at a writable position.
  void store(std::size_t layer, std::size_t kv_head, std::size_t position, const float* key,
             const float* value);

  // For each block of 64 positions: the keys and values of the first head of the first layer. Those
  // of another head are `offset` numbers further; see Kernels::attend.
  const float* const* blocks() const { return pointers_.data(); }
  std::size_t offset(std::size_t layer, std::size_t kv_head) const {
    return (layer * num_kv_heads_ + kv_head) * head_size_;
  }

 private:
  using Block = std::shared_ptr<Array<float>>;
  void update_pointers();

  CachePrecision precision_;
  std::size_t d_head_, num_kv_heads_, head_size_, block_size_, length_ = 0;
  std::vector<Block> blocks_;
  std::vector<float*> pointers_;
};

}  // namespace tilth::decoder
