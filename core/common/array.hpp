// Array: a growable array of trivially copyable values, and the only owner of raw memory.
//
//     Array<std::uint32_t> ids;
//     ids.append(7);
//     ids.view();  // a span of one
//     Array<float> zeros = Array<float>::zeros(1'000'000);  // no page touched yet
//
// Contract: grown memory and zeros are untouched until written, so unused pages cost no memory. A
// failed allocation throws std::bad_alloc and leaves the array unchanged. Allocations of 2 MB or
// more request large pages. std::vector offers none of this: resize() writes zeros, and growing
// copies where realloc remaps pages.
//
// Complexity: append is amortized O(1); zeros is O(1) until the pages are touched.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

#include "checked.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace tilth {

inline constexpr std::size_t cache_line_bytes = 64;
inline constexpr std::size_t large_page_bytes = std::size_t{2} << 20;

// Request pages of 2 MB. The first touch of 32 MB took 4 ms instead of 20 ms on a virtual machine,
// and reading all weights for each token misses the TLB less often. The system may ignore it.
inline void prefer_large_pages([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) {
#if defined(MADV_HUGEPAGE)
  // Rounded outwards: an excluded first page would split the mapping, and then mremap fails and
  // realloc copies (0.14 s for 267 MB).
  constexpr std::size_t page = 4096;
  if (bytes < large_page_bytes) return;
  const auto first = reinterpret_cast<std::uintptr_t>(memory) / page * page;
  const auto last = (reinterpret_cast<std::uintptr_t>(memory) + bytes + page - 1) / page * page;
  madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#endif
}

template <typename T>
class Array {
  static_assert(std::is_trivially_copyable_v<T>, "realloc moves the values as bytes");

 public:
  Array() = default;
  Array(Array&& other) noexcept { swap(other); }
  Array& operator=(Array&& other) noexcept {
    swap(other);
    return *this;
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() { std::free(block_); }

  // Return `size` zeros, aligned to a cache line, or to a large page if they fill one.
  static Array zeros(std::size_t size) {
    const std::size_t bytes = checked_multiply(size, sizeof(T));
    const std::size_t alignment = bytes < large_page_bytes ? cache_line_bytes : large_page_bytes;
    std::size_t space = checked_add(bytes, alignment);
    Array made;
    made.block_ = std::calloc(space, 1);
    if (made.block_ == nullptr) throw std::bad_alloc();
    void* place = made.block_;
    made.data_ = static_cast<T*>(std::align(alignment, bytes, place, space));
    made.size_ = made.capacity_ = size;
    prefer_large_pages(place, bytes);
#if defined(__SANITIZE_ADDRESS__)
    ASAN_POISON_MEMORY_REGION(static_cast<char*>(place) + bytes, space - bytes);
#endif
    return made;
  }

  std::size_t size() const { return size_; }
  std::size_t capacity() const { return capacity_; }
  bool empty() const { return size_ == 0; }
  T* data() { return data_; }
  const T* data() const { return data_; }
  T* begin() { return data_; }
  const T* begin() const { return data_; }
  T* end() { return data_ + size_; }
  const T* end() const { return data_ + size_; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  std::span<const T> view() const { return {data_, size_}; }

  void clear() { size_ = 0; }

  // Reserve capacity for `more` values after the last. They may be written before set_size() counts
  // them.
  void reserve_more(std::size_t more) {
    if (more > capacity_ - size_) grow(more);
  }

  // Requires `size` <= capacity().
  void set_size(std::size_t size) { size_ = size; }

  void append(T value) {
    reserve_more(1);
    data_[size_++] = value;
  }

  void append(std::span<const T> values) {
    if (values.empty()) return;
    reserve_more(values.size());
    std::memcpy(data_ + size_, values.data(), values.size() * sizeof(T));
    size_ += values.size();
  }

  // Free the unused capacity if realloc can do so.
  void shrink() {
    if (size_ == 0 || size_ == capacity_ || !is_resizable()) return;
    if (void* smaller = std::realloc(block_, size_ * sizeof(T)); smaller != nullptr) {
      block_ = smaller;
      data_ = static_cast<T*>(smaller);
      capacity_ = size_;
    }
  }

  void swap(Array& other) noexcept {
    std::swap(block_, other.block_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }

 private:
  bool is_resizable() const { return block_ == data_; }  // false for aligned zeros

  void grow(std::size_t more) {
    constexpr std::size_t most = max_bytes / sizeof(T);
    if (more > most - size_) throw std::bad_alloc();
    std::size_t capacity = size_ + more;
    if (capacity < 2 * capacity_) capacity = 2 * capacity_;
    if (capacity < 64) capacity = 64;
    if (capacity > most) capacity = most;
    void* larger = std::realloc(is_resizable() ? block_ : nullptr, capacity * sizeof(T));
    if (larger == nullptr) throw std::bad_alloc();
    if (!is_resizable()) {
      std::memcpy(larger, data_, size_ * sizeof(T));
      std::free(block_);
    }
    block_ = larger;
    data_ = static_cast<T*>(larger);
    capacity_ = capacity;
    prefer_large_pages(larger, capacity * sizeof(T));
  }

  void* block_ = nullptr;  // the argument of free()
  T* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

}  // namespace tilth
