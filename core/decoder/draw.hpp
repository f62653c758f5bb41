// draw: scores in, the next token out.
//
//     const Filters filters = {.temperature = 0.8, .top_p = 0.95};
//     const std::size_t id = draw(std::span<const float>(logits), largest, filters, unit);
//
// Promise: this is the token that stands at `unit`, a number from 0 to 1, when the tokens of
// tilth.generation.sampling.next_token_distribution are laid side by side by id, each as wide as
// it is likely. Weights are float32, their sums float64, so the ends of a token are right to 1e-6,
// and of tokens that are so near to where a filter ends another may be kept.
//
// Complexity: linear. Where top-k and top-p end is found by counting, as sorting the 10,000 weights
// of a vocabulary takes longer than all the rest.
#pragma once

#include <cstddef>
#include <span>

namespace tilth::decoder {

// As tilth.generation.Sampling has them. The temperature is above 0.
struct Filters {
  double temperature = 1.0;
  std::size_t top_k = 0;  // 0: all
  double top_p = 1.0;
  double min_p = 0.0;
};

// `largest` is that of the scores, and finite; with a smaller one some token comes out. A score
// that is NaN counts as -infinity. Throws std::invalid_argument without scores.
std::size_t draw(std::span<const float> scores, double largest, const Filters& filters,
                 double unit);
std::size_t draw(std::span<const double> scores, double largest, const Filters& filters,
                 double unit);

}  // namespace tilth::decoder
