// Tests of draw against its definition: sort all weights and sum them, in double precision.

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "../decoder/draw.hpp"
#include "check.hpp"

using namespace tilth::decoder;

namespace {

// The probability of every token.
std::vector<double> defined(const std::vector<float>& scores, const Filters& filters) {
  const double largest = *std::max_element(scores.begin(), scores.end());
  std::vector<double> weights;
  for (const float score : scores) {
    weights.push_back(std::exp((double(score) - largest) / filters.temperature));
  }
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return weights[a] > weights[b]; });
  if (filters.top_k > 0) order.resize(std::min(order.size(), filters.top_k));
  double total = 0.0;
  for (const std::size_t id : order) total += weights[id];
  std::vector<double> kept(scores.size(), 0.0);
  double mass = 0.0;
  for (const std::size_t id : order) {
    if (mass > 0 && filters.top_p < 1.0 && mass >= filters.top_p * total) break;
    mass += weights[id];
    if (weights[id] >= filters.min_p) kept[id] = weights[id];
  }
  const double sum = std::accumulate(kept.begin(), kept.end(), 0.0);
  for (double& weight : kept) weight /= sum;
  return kept;
}

void check(const std::vector<float>& scores, const Filters& filters) {
  const double largest = *std::max_element(scores.begin(), scores.end());
  const std::vector<double> wide(scores.begin(), scores.end());
  const auto drawn = [&](double unit) {
    const std::size_t id = draw(std::span<const float>(scores), largest, filters, unit);
    CHECK_EQUAL(draw(std::span<const double>(wide), largest, filters, unit), id);
    return id;
  };
  const std::vector<double> expected = defined(scores, filters);
  double begin = 0.0;
  for (std::size_t id = 0; id < scores.size(); ++id) {
    if (expected[id] < 1e-4) {
      begin += expected[id];
      continue;
    }
    // Just inside both ends of its interval, and in the middle.
    for (const double part : {0.01, 0.5, 0.99}) {
      CHECK_EQUAL(drawn(begin + part * expected[id]), id);
    }
    begin += expected[id];
  }
  CHECK_EQUAL(expected[drawn(0.0)] > 0, true);
  CHECK_EQUAL(expected[drawn(1.0)] > 0, true);
}

}  // namespace

int main() {
  std::mt19937 random(7);
  const float infinity = std::numeric_limits<float>::infinity();
  for (int round = 0; round < 40; ++round) {
    std::vector<float> scores(1 + random() % 300);
    const bool has_ties = round % 2 == 0;
    std::normal_distribution<float> normal(0.0f, has_ties ? 2.0f : 4.0f);
    for (float& score : scores) {
      score = has_ties ? std::round(normal(random)) : normal(random);
      if (random() % 50 == 0) score = -infinity;
    }
    scores[random() % scores.size()] = 1.0f;  // at least one finite score
    for (const double temperature : {0.5, 1.0, 1.7}) {
      for (const std::size_t top_k :
           {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{120}, std::size_t{5000}}) {
        // Odd values, which no sum of equal weights equals up to rounding.
        for (const double top_p : {1.0, 0.9511, 0.61803, 1e-9}) {
          for (const double min_p : {0.0, 0.0503}) {
            check(scores, {temperature, top_k, top_p, min_p});
          }
        }
      }
    }
  }
  // Half of ten equal weights is five, and half of four is two: the first ones.
  const std::vector<float> equal(10, 3.5f);
  check(equal, {.top_p = 0.5});
  check(equal, {.top_k = 4, .top_p = 0.5});
  check(equal, {.top_p = 0.0});
  // One weight of 0.49 and many equal ones: the first of those is kept, though each has little more
  // than the least weight that could be.
  std::vector<float> many(200, 0.0f);
  many[100] = std::log(0.49f / (0.51f / 199));
  check(many, {.top_p = 0.5});
  check(equal, {.min_p = 1.0});
  check({2.5f}, {.top_k = 1, .top_p = 0.0, .min_p = 1.0});
  // A temperature so low that one token remains, and so high that all are equally likely.
  check({1.0f, 1.5f, -infinity}, {.temperature = 5e-324});
  check({1.0f, 1.5f, 9.0f}, {.temperature = 1e300});
  // NaN is never drawn, for any filter.
  const std::vector<float> scores = {std::numeric_limits<float>::quiet_NaN(), 1.0f, -infinity};
  for (const Filters& filters : {Filters{}, Filters{.top_k = 1}, Filters{.top_k = 3, .top_p = 0.9},
                                 Filters{.top_p = 0.999}, Filters{.min_p = 0.5}}) {
    for (const double unit : {0.0, 0.5, 1.0}) {
      CHECK_EQUAL(draw(std::span<const float>(scores), 1.0, filters, unit), 1u);
    }
  }
  // choose finds the largest score itself; without a finite one there is no choice.
  for (const std::size_t size : {1u, 7u, 8u, 300u}) {
    std::vector<float> some(size);
    for (float& score : some) score = static_cast<float>(random() % 50);
    const auto likeliest = std::max_element(some.begin(), some.end());
    CHECK_EQUAL(choose(some, {.temperature = 0.0}, 0.5), std::size_t(likeliest - some.begin()));
    for (const double unit : {0.0, 0.3, 0.9}) {
      const Filters filters = {.temperature = 5.0, .top_p = 0.9};
      CHECK_EQUAL(choose(some, filters, unit),
                  draw(std::span<const float>(some), *likeliest, filters, unit));
    }
    for (const float wrong : {infinity, std::numeric_limits<float>::quiet_NaN()}) {
      some[size / 2] = wrong;
      CHECK_EQUAL(choose(some, {}, 0.5), no_choice);
    }
  }
  CHECK_EQUAL(choose({}, {}, 0.5), no_choice);
  CHECK_EQUAL(choose(std::vector<float>(9, -infinity), {}, 0.5), no_choice);
  return 0;
}
