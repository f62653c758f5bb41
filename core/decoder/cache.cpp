#include "cache.hpp"

#include <algorithm>

#include "../common/checked.hpp"

namespace tilth::decoder {

Cache::Cache(const Shape& shape)
    : num_kv_heads_(shape.num_kv_heads),
      head_size_(checked_multiply(positions_per_block, shape.d_head + padded(shape.d_head, 8))),
      block_size_(checked_multiply(checked_multiply(shape.num_layers, num_kv_heads_), head_size_)) {
}

void Cache::reserve(std::size_t positions) {
  const std::size_t num_blocks = padded(positions, positions_per_block) / positions_per_block;
  for (std::size_t i = length_ / positions_per_block; i < num_blocks; ++i) {
    if (i < blocks_.size() && blocks_[i].use_count() == 1) continue;
    auto made = std::make_shared<Array<float>>(Array<float>::zeros(block_size_));
    pointers_.reserve(num_blocks);
    if (i < blocks_.size()) {
      std::copy_n(blocks_[i]->data(), block_size_, made->data());
      blocks_[i] = std::move(made);
    } else {
      blocks_.push_back(std::move(made));
    }
    update_pointers();
  }
}

void Cache::truncate(std::size_t length) {
  length_ = std::min(length_, length);
  const std::size_t used = padded(length_, positions_per_block) / positions_per_block;
  if (used < blocks_.size()) blocks_.resize(used);
  update_pointers();
}

void Cache::share(const Cache& other, std::size_t length) {
  length = std::min(length, other.length_);
  const std::size_t used = padded(length, positions_per_block) / positions_per_block;
  std::vector<Block> blocks(other.blocks_.begin(),
                            other.blocks_.begin() + static_cast<std::ptrdiff_t>(used));
  pointers_.reserve(used);
  blocks_ = std::move(blocks);
  length_ = length;
  update_pointers();
}

void Cache::update_pointers() {
  pointers_.clear();
  for (const Block& block : blocks_) pointers_.push_back(block->data());
}

}  // namespace tilth::decoder
