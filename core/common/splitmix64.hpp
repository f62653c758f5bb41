// splitmix64: a 64-bit hash of a 64-bit number.
#pragma once

#include <cstdint>

namespace tilth {

// The last steps of SplitMix64: every bit of x reaches the top ones, which tables take.
inline std::uint64_t splitmix64(std::uint64_t x) {
  x = (x ^ x >> 32) * 0x9E3779B97F4A7C15u;
  return (x ^ x >> 29) * 0xBF58476D1CE4E5B9u;
}

}  // namespace tilth
