// train: learn the merges of a byte-level BPE vocabulary from the counts of its pieces.
//
// clang-format off
//     PieceCounts counts;
//     counts.add("low", 5), counts.add("lower", 2), counts.add("widest", 3), counts.add("newest", 6);
//     std::vector<TrainedMerge> merges = train(counts, 2);  // (s, t), then (e, st)
// clang-format on
//
// Promise: exactly what the plain algorithm gives that counts all pairs anew at every step.
//   - A piece begins as its bytes. Each step takes the pair of neighbours that is most frequent (a
//     piece counts as often as it occurs; "aaa" holds the pair (a, a) twice) and joins it in every
//     piece, from left to right.
//   - Of equally frequent pairs it takes the greatest, compared as a pair of byte strings: of
//     (A, B), (A, C), (B, ZZ), (BA, A) that is (BA, A).
//   - No two tokens have the same bytes: it cannot happen, as train.cpp proves.
//   - It ends early when no pair is left.
// The order of the pieces does not matter.
//
// Time: each occurrence of a joined pair is visited once, as are the two neighbours whose pairs it
// changes; nothing is proportional to steps times pieces. Memory: two bytes (with over 65,278
// merges four) for each byte of the pieces, and four for each occurrence of a pair that is frequent
// enough to matter.
#pragma once

#include <cstdint>
#include <vector>

#include "count.hpp"

namespace tilth::bpe {

// Token ids below 256 are bytes, and merge i makes token 256 + i.
struct TrainedMerge {
  std::uint32_t left, right;
  std::uint64_t count;  // how often the pair stood there when it was joined
  bool operator==(const TrainedMerge&) const = default;
};

struct TrainOptions {
  ProgressFunction progress;
  // Pairs below this count are looked at again only when no other is left; 0 chooses by the size of
  // the corpus. It changes the time and the memory, never the result.
  std::uint64_t first_threshold = 0;
};

// Throws what the progress function throws, std::bad_alloc, std::invalid_argument (a piece of count
// 0, counts that add up to more than 64 bits hold) or std::length_error (pieces of over 4 GiB in
// all).
std::vector<TrainedMerge> train(const PieceCounts& pieces, std::size_t num_merges,
                                const TrainOptions& options = {});

}  // namespace tilth::bpe
