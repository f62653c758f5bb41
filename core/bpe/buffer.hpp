// buffer: a growable array that never fills memory it has not been given values for.
//
// Promise: appending is amortised constant; grown memory is left untouched until it is written, so
// that a page which is never used is never paid for; a failed allocation throws std::bad_alloc and
// leaves the buffer as it was. std::vector cannot do that: resize() writes zeros, and growing
// copies where realloc only moves pages.
//
//     Buffer<std::uint32_t> ids;
//     ids.append(7);
//     ids.view();  // a span of one
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace tilth::bpe {

// Ask for pages of 2 MB where the system gives them on request: the first touch of 32 MB took 4 ms
// instead of 20 on a virtual machine. Only a wish: nothing depends on it.
inline void prefer_large_pages(void* memory, std::size_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  constexpr std::size_t page = 4096, large_page = std::size_t{2} << 20;
  const auto first = (reinterpret_cast<std::uintptr_t>(memory) + page - 1) / page * page;
  const auto last = (reinterpret_cast<std::uintptr_t>(memory) + bytes) / page * page;
  if (bytes < large_page || last <= first) return;
  madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#else
  static_cast<void>(memory);
  static_cast<void>(bytes);
#endif
}

template <typename T>
class Buffer {
  static_assert(std::is_trivially_copyable_v<T>, "realloc moves the values as bytes");

 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { std::free(data_); }

  std::size_t size() const { return size_; }
  std::size_t capacity() const { return capacity_; }
  bool empty() const { return size_ == 0; }
  T* data() { return data_; }
  const T* data() const { return data_; }
  T* end() { return data_ + size_; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  std::span<const T> view() const { return {data_, size_}; }

  void clear() { size_ = 0; }

  // Make room for `more` values behind the last; they may be written before set_size() counts them.
  void reserve_more(std::size_t more) {
    if (more > capacity_ - size_) grow(more);
  }
  std::size_t room() const { return capacity_ - size_; }

  // `size` at most size() plus the room made before.
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

  // Give back the room behind the last value, where that is cheap.
  void shrink() {
    if (size_ == 0 || size_ == capacity_) return;
    if (void* smaller = std::realloc(data_, size_ * sizeof(T)); smaller != nullptr) {
      data_ = static_cast<T*>(smaller);
      capacity_ = size_;
    }
  }

  // Hand the memory over: the caller frees it with std::free. The buffer is empty afterwards.
  T* release() {
    size_ = capacity_ = 0;
    return std::exchange(data_, nullptr);
  }

  void swap(Buffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }

 private:
  void grow(std::size_t more) {
    constexpr std::size_t most = std::numeric_limits<std::ptrdiff_t>::max() / sizeof(T);
    if (more > most - size_) throw std::bad_alloc();
    std::size_t capacity = size_ + more;
    if (capacity < 2 * capacity_) capacity = 2 * capacity_;
    if (capacity < 64) capacity = 64;
    if (capacity > most) capacity = most;
    void* larger = std::realloc(data_, capacity * sizeof(T));
    if (larger == nullptr) throw std::bad_alloc();
    data_ = static_cast<T*>(larger);
    capacity_ = capacity;
    prefer_large_pages(larger, capacity * sizeof(T));
  }

  T* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

}  // namespace tilth::bpe
