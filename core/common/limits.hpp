// The limits of the core. The bindings export those that Python checks too.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tilth {

// Threads of one call. More would not help, and each needs a stack.
inline constexpr std::size_t max_threads = 1024;

// Upper bound of token ids. Tables indexed by id take about 20 bytes per id, unused ids included.
inline constexpr std::uint32_t max_vocab_size = std::uint32_t{1} << 24;

// Tokens of a vocabulary, without special tokens: a pair of symbols takes 40 bits of a word, and
// 256 symbols represent bytes without a token.
inline constexpr std::size_t max_tokens = (std::size_t{1} << 20) - 256;

// Merges of a vocabulary: a rank takes the other 24 bits, and the largest value means "no rule".
inline constexpr std::size_t max_merges = (std::size_t{1} << 24) - 2;

// Every dimension of a network: the product of two dimensions fits into 64 bits.
inline constexpr std::size_t max_dimension = (std::size_t{1} << 31) - 1;

}  // namespace tilth
