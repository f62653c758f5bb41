// Overflow-checked arithmetic for sizes from untrusted input. O(1).
//
//     checked_multiply(context_length, d_head, sizeof(float));
//
// Contract: every function throws std::bad_alloc if the result exceeds max_bytes.
#pragma once

#include <cstddef>
#include <limits>
#include <new>

namespace tilth {

// The largest size of an object: pointer differences must fit too.
inline constexpr std::size_t max_bytes = std::numeric_limits<std::ptrdiff_t>::max();

inline std::size_t checked_add(std::size_t a, std::size_t b) {
  std::size_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum) || sum > max_bytes) throw std::bad_alloc();
  return sum;
}

template <typename... More>
std::size_t checked_multiply(std::size_t a, std::size_t b, More... more) {
  std::size_t product = 0;
  if (__builtin_mul_overflow(a, b, &product) || product > max_bytes) throw std::bad_alloc();
  if constexpr (sizeof...(more) == 0)
    return product;
  else
    return checked_multiply(product, more...);
}

// Round up to a multiple.
inline std::size_t checked_round_up(std::size_t size, std::size_t multiple) {
  return checked_add(size, multiple - 1) / multiple * multiple;
}

}  // namespace tilth
