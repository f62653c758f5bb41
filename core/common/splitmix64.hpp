// splitmix64: a 64-bit hash of a 64-bit number. O(1).
//
//     table[splitmix64(key) >> shift];
#pragma once

#include <cstdint>

namespace tilth {

// The finalizer of SplitMix64: the top bits, which index tables, depend on every bit of x.
inline std::uint64_t splitmix64(std::uint64_t x) {
  x = (x ^ x >> 32) * 0x9E3779B97F4A7C15u;
  return (x ^ x >> 29) * 0xBF58476D1CE4E5B9u;
}

}  // namespace tilth
