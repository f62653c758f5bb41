// draw: samples the next token from its scores.
//
//     const Filters filters = {.temperature = 0.8, .top_p = 0.95};
//     const std::size_t id = draw(std::span<const float>(logits), largest, filters, unit);
//
// Contract: the inverse of the cumulative distribution function of
// tilth.generation.sampling.next_token_distribution, in the order of ids, at `unit` in [0, 1].
// Weights are float32 and their sums float64, so the function is exact to 1e-6. Among tokens that
// close to the limit of a filter, another one may be kept.
//
// Complexity: O(scores). The limits of top-k and top-p are found by bisection, as sorting 10,000
// weights takes longer than everything else: about ten vectorized sums over all weights, then some
// over few. With top-p, weights too small to be kept are removed first.
#pragma once

#include <cstddef>
#include <span>

namespace tilth::decoder {

// The fields of tilth.generation.Sampling.
struct Filters {
  double temperature = 1.0;  // 0 only in choose
  std::size_t top_k = 0;     // 0: all
  double top_p = 1.0;
  double min_p = 0.0;
};

// `largest` is the largest score, and finite; if it is smaller, the token is unspecified. NaN
// counts as -infinity. Throws std::invalid_argument if there are no scores.
std::size_t draw(std::span<const float> scores, double largest, const Filters& filters,
                 double unit);
std::size_t draw(std::span<const double> scores, double largest, const Filters& filters,
                 double unit);

// Returned by choose if the largest score is not finite.
constexpr std::size_t no_choice = static_cast<std::size_t>(-1);

// The token with the largest score if the temperature is 0, the first of equal ones; else draw.
std::size_t choose(std::span<const float> scores, const Filters& filters, double unit);

}  // namespace tilth::decoder
