// train: learn the merges of a byte-level BPE vocabulary from the counts of pieces.
//
// clang-format off
//     PieceCounts counts;
//     counts.add("low", 5), counts.add("lower", 2), counts.add("widest", 3), counts.add("newest", 6);
//     std::vector<TrainedMerge> merges = train(counts, 2);  // (s, t), then (e, st)
// clang-format on
//
// Contract: the merges are those of the plain algorithm, which counts all pairs at every step.
//   - A piece starts as its bytes. Each step takes the most frequent pair of neighbours and joins
//   it
//     in every piece, from left to right. A piece is weighted by its count; "aaa" has the pair
//     (a, a) twice.
//   - Ties go to the greatest pair, compared as a pair of byte strings: of (A, B), (A, C), (B, ZZ),
//     (BA, A) that is (BA, A).
//   - All tokens have different bytes (Lemma 3 in train.cpp).
//   - Training stops early when no pair is left.
// The result does not depend on the order of the pieces.
//
// Complexity: each occurrence of a joined pair and its two neighbours are visited once; no cost is
// proportional to steps times pieces. Memory: 2 bytes (4 with more than 65,278 merges) per byte of
// the pieces, and 4 per occurrence of a pair whose count reaches the threshold.
#pragma once

#include <cstdint>
#include <vector>

#include "count.hpp"

namespace tilth::bpe {

// Token ids below 256 are bytes, and merge i makes token 256 + i.
struct TrainedMerge {
  std::uint32_t left, right;
  std::uint64_t count;  // of the pair when it was joined
  bool operator==(const TrainedMerge&) const = default;
};

struct TrainOptions {
  ProgressFunction progress;
  // Pairs below this count are ignored until no other is left; 0 derives it from the size of the
  // corpus. It affects time and memory, never the result.
  std::uint64_t first_threshold = 0;
};

// Throws std::bad_alloc, std::invalid_argument (a count is 0, or the total exceeds 64 bits),
// std::length_error (the pieces exceed 4 GiB), and any exception of the progress function.
std::vector<TrainedMerge> train(const PieceCounts& pieces, std::size_t num_merges,
                                const TrainOptions& options = {});

}  // namespace tilth::bpe
