#include "draw.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include "../common/array.hpp"
#include "kernels.hpp"

namespace tilth::decoder {
namespace {

constexpr std::size_t part_size = 128;

// The limit of a filter: weights above `least` are kept, and the first `num_equal` of those equal
// to it. `sum` is that of the kept weights.
struct End {
  float least = 0.0f;
  std::size_t num_equal = 0;
  Sum sum;
};

// Not set to zeros: for a large vocabulary that takes as long as the rest of a draw.
template <typename Number>
Array<Number> unset(std::size_t size) {
  Array<Number> made;
  made.reserve_more(size);
  made.set_size(size);
  return made;
}

// e^((scores - largest) / temperature); 0 for NaN.
Array<float> weights_of(std::span<const double> scores, double largest, double temperature) {
  auto weights = unset<float>(scores.size());
  std::transform(scores.begin(), scores.end(), weights.data(), [&](double score) {
    // exp is 0 below -104. This order of arguments turns NaN into -200.
    return std::exp(static_cast<float>(std::max(-200.0, (score - largest) / temperature)));
  });
  return weights;
}

Array<float> weights_of(std::span<const float> scores, double largest, double temperature) {
  if (temperature < 1e-6) {  // its inverse may overflow
    const std::vector<double> wide(scores.begin(), scores.end());
    return weights_of(wide, largest, temperature);
  }
  auto weights = unset<float>(scores.size());
  best_kernels().exponentials(scores.data(), static_cast<float>(largest),
                              static_cast<float>(1.0 / temperature), scores.size(), weights.data());
  return weights;
}

// Weights that may be kept, and their ids, ascending.
struct Candidates {
  Array<float> weights;
  Array<std::uint32_t> ids;

  void set_size(std::size_t size) {
    weights.set_size(size);
    ids.set_size(size);
  }

  template <typename IsKept>
  void keep(const IsKept& is_kept) {
    std::size_t count = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const float weight = weights[i];
      weights[count] = weight;
      ids[count] = ids[i];
      count += is_kept(weight) ? 1 : 0;
    }
    set_size(count);
  }
};

// The smallest set of largest weights, of at least one, for which is_enough(sum) is true; all
// weights if there is none. They are at least `least`, which is positive, and not NaN.
//
// Positive numbers have the order of their bits, so the smallest kept weight is found by bisection.
template <typename IsEnough>
End fewest(std::span<const float> weights, float least, const IsEnough& is_enough) {
  const Kernels& kernels = best_kernels();
  const Sum all = kernels.sum_at_least(weights.data(), weights.size(), least);
  if (!is_enough(all)) return {0.0f, 0, all};
  // Weights from `low` on are enough, those from `high` on are not; the sums of both. `part` has
  // the weights between them, after a while without the others; `dropped` is the sum of those
  // above.
  auto low = std::bit_cast<std::uint32_t>(least);
  auto high = std::bit_cast<std::uint32_t>(std::numeric_limits<float>::infinity()) + 1;
  Sum from_low = all, above, dropped;
  Array<float> between;
  std::span<const float> part = weights;
  while (high - low > 1) {
    const std::uint32_t middle = low + (high - low) / 2;
    Sum sum = kernels.sum_at_least(part.data(), part.size(), std::bit_cast<float>(middle));
    sum = {sum.mass + dropped.mass, sum.count + dropped.count};
    const bool is_low = sum.count > 0 && is_enough(sum);
    (is_low ? low : high) = middle;
    (is_low ? from_low : above) = sum;
    if (8 * (from_low.count - above.count) > part.size()) continue;
    auto left = unset<float>(part.size());
    std::size_t num_left = 0;
    for (const float weight : part) {
      const auto bits = std::bit_cast<std::uint32_t>(weight);
      left[num_left] = weight;
      num_left += low <= bits && bits < high ? 1 : 0;
    }
    left.set_size(num_left);
    between = std::move(left);
    part = between.view();
    dropped = above;
  }
  End end{std::bit_cast<float>(low), 0, above};
  do {
    ++end.num_equal;
    ++end.sum.count;
    end.sum.mass += end.least;
  } while (!is_enough(end.sum) && end.sum.count < all.count);
  return end;
}

// The weights that pass the filters.
Candidates kept_of(std::span<const float> weights, const Filters& filters) {
  const Kernels& kernels = best_kernels();
  float least = std::numeric_limits<float>::denorm_min();
  double mass = 0.0;
  if (filters.top_k == 0) least = std::max(least, static_cast<float>(filters.min_p));
  if (filters.top_k == 0 && filters.top_p < 1.0) {
    // All weights below this limit have less than 1 - top_p of the mass, so none of them is kept.
    // Without them, a few hundred weights of a trained model are left.
    mass = kernels.sum(weights.data(), weights.size());
    const double rest = 0.999 * (1.0 - filters.top_p) * mass;
    least = std::max(least, static_cast<float>(rest / static_cast<double>(weights.size())));
  }
  Candidates found{unset<float>(weights.size()), unset<std::uint32_t>(weights.size())};
  const auto select = [&](float limit) {
    found.set_size(kernels.select(weights.data(), weights.size(), limit, found.weights.data(),
                                  found.ids.data()));
  };
  select(least);
  if (filters.top_k == 0 && filters.top_p == 1.0) return found;
  End end;
  if (filters.top_k > 0) {
    end = fewest(found.weights.view(), least,
                 [&](const Sum& sum) { return sum.count >= filters.top_k; });
    mass = end.sum.mass;
  }
  if (filters.top_p < 1.0) {
    const double share = filters.top_p * mass;
    end = fewest(found.weights.view(), least, [&](const Sum& sum) { return sum.mass >= share; });
  }
  select(std::max({least, end.least, static_cast<float>(filters.min_p)}));
  if (found.weights.size() <= end.sum.count) return found;
  found.keep([&](float weight) {
    const bool is_first = weight == end.least && end.num_equal > 0;
    end.num_equal -= is_first ? 1 : 0;
    return weight > end.least || is_first;
  });
  return found;
}

template <typename Score>
std::size_t draw_from(std::span<const Score> scores, double largest, const Filters& filters,
                      double unit) {
  if (scores.empty()) throw std::invalid_argument("there are no scores to draw from");
  const auto weights = weights_of(scores, largest, filters.temperature);
  Candidates kept = kept_of(weights.view(), filters);
  // By parts, as the sum of a part is fast.
  const std::size_t count = kept.weights.size();
  const auto sum_of = [&](std::size_t first) {
    return best_kernels().sum(&kept.weights[first], std::min(part_size, count - first));
  };
  double mass = 0.0;
  for (std::size_t first = 0; first < count; first += part_size) mass += sum_of(first);
  const double point = unit * mass;
  double reached = 0.0;
  std::size_t i = 0;
  for (; i + part_size < count; i += part_size) {
    const double next = reached + sum_of(i);
    if (next > point) break;
    reached = next;
  }
  std::size_t last = 0;
  for (; i < count; ++i) {
    last = kept.ids[i];
    reached += kept.weights[i];
    if (reached > point) break;  // if never, by rounding, the last token is drawn
  }
  return last;
}

}  // namespace

std::size_t draw(std::span<const float> scores, double largest, const Filters& filters,
                 double unit) {
  return draw_from(scores, largest, filters, unit);
}

std::size_t draw(std::span<const double> scores, double largest, const Filters& filters,
                 double unit) {
  return draw_from(scores, largest, filters, unit);
}

std::size_t choose(std::span<const float> scores, const Filters& filters, double unit) {
  if (scores.empty()) return no_choice;
  const float largest = best_kernels().largest(scores.data(), scores.size());
  if (!std::isfinite(largest)) return no_choice;
  if (filters.temperature > 0) return draw(scores, static_cast<double>(largest), filters, unit);
  return static_cast<std::size_t>(std::find(scores.begin(), scores.end(), largest) -
                                  scores.begin());
}

}  // namespace tilth::decoder
