// limits: the largest values that the core accepts. Each limit is defined here once; the bindings
// export those that Python checks too.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tilth {

// Threads of one call. More than this never helps, and each costs a stack.
inline constexpr std::size_t max_threads = 1024;

// Token ids are below this: tables by id take about 20 bytes for each, holes included.
inline constexpr std::uint32_t max_vocab_size = std::uint32_t{1} << 24;

// Tokens of one vocabulary, special tokens apart: a pair of symbols takes 40 bits of a word, and
// 256 symbols stand for bytes without a token.
inline constexpr std::size_t max_tokens = (std::size_t{1} << 20) - 256;

// Merges of one vocabulary: a rank takes the other 24 bits, and the last value means "no rule".
inline constexpr std::size_t max_merges = (std::size_t{1} << 24) - 2;

// Every dimension of a network: the product of two of them always fits into 64 bits.
inline constexpr std::size_t max_dimension = (std::size_t{1} << 31) - 1;

}  // namespace tilth
