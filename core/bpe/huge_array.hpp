// huge_array: memory for what reaches many megabytes.
//
//     HugeArray<std::uint32_t> numbers(100'000'000);  // all zero, and no page touched yet
#pragma once

#include <cstdlib>
#include <new>
#include <type_traits>
#include <utility>

#include "buffer.hpp"

namespace tilth::bpe {

// A fixed number of zeroed elements, for what reaches many megabytes. Large blocks come from the
// kernel as zero pages, and nothing is touched before it is used.
template <class T>
class HugeArray {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  HugeArray() = default;
  explicit HugeArray(std::size_t size) : size_(size) {
    if (size == 0) return;
    data_ = static_cast<T*>(std::calloc(size, sizeof(T)));
    if (data_ == nullptr) throw std::bad_alloc();
    prefer_large_pages(data_, size * sizeof(T));
  }
  HugeArray(HugeArray&& other) noexcept { swap(other); }
  HugeArray& operator=(HugeArray&& other) noexcept {
    swap(other);
    return *this;
  }
  ~HugeArray() { std::free(data_); }

  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  std::size_t size() const { return size_; }
  void swap(HugeArray& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace tilth::bpe
