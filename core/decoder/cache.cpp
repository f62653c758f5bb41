#include "cache.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "../common/checked.hpp"

namespace tilth::decoder {
namespace {

// Write numbers as int8, each `stride` after the last; return their scale, max |x| / 127. It is NaN
// if a number is not finite, which so reaches the logits.
float quantize(const float* numbers, std::size_t size, std::int8_t* to, std::size_t stride) {
  float largest = 0.0f, zero = 0.0f;
  for (std::size_t i = 0; i < size; ++i) {
    largest = std::max(largest, std::fabs(numbers[i]));
    zero += numbers[i] * 0.0f;
  }
  const bool is_finite = zero == 0.0f;
  const float inverse = is_finite && largest > 0.0f ? 127.0f / largest : 0.0f;
  for (std::size_t i = 0; i < size; ++i) {
    const float rounded = is_finite ? std::nearbyint(numbers[i] * inverse) : 0.0f;
    to[i * stride] = static_cast<std::int8_t>(std::clamp(rounded, -127.0f, 127.0f));
  }
  return is_finite ? largest / 127.0f : std::numeric_limits<float>::quiet_NaN();
}

}  // namespace

Cache::Cache(const Shape& shape, CachePrecision precision)
    : precision_(precision),
      d_head_(shape.d_head),
      num_kv_heads_(shape.num_kv_heads),
      head_size_(cached_head_size(shape.d_head, precision)),
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

void Cache::store(std::size_t layer, std::size_t kv_head, std::size_t position, const float* key,
                  const float* value) {
  float* head = pointers_[position / positions_per_block] + offset(layer, kv_head);
  const std::size_t place = position % positions_per_block, width = padded(d_head_, 8);
  if (precision_ == CachePrecision::float32) {
    for (std::size_t d = 0; d < d_head_; ++d) head[d * positions_per_block + place] = key[d];
    std::copy_n(value, d_head_, head + positions_per_block * d_head_ + place * width);
    return;
  }
  auto* keys = reinterpret_cast<std::int8_t*>(head + 2 * positions_per_block);
  auto* values = keys + positions_per_block * d_head_;
  head[place] = quantize(key, d_head_, keys + place, positions_per_block);
  head[positions_per_block + place] = quantize(value, d_head_, values + place * width, 1);
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
