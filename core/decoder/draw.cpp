#include "draw.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <vector>

#include "kernels.hpp"

namespace tilth::decoder {
namespace {

// Weights with the same exponent and four leading bits share a bucket. The last bucket holds the
// largest weight, 1, and any weight above it, as `largest` is not trusted.
constexpr int bucket_shift = 19;
constexpr std::size_t num_buckets = (std::bit_cast<std::uint32_t>(1.0f) >> bucket_shift) + 1;
std::size_t bucket_of(float weight) {
  return std::min<std::size_t>(std::bit_cast<std::uint32_t>(weight) >> bucket_shift,
                               num_buckets - 1);
}

constexpr std::size_t part_size = 128;

struct Bucket {
  double mass = 0.0;
  std::size_t count = 0;
};

// The limit of a filter: weights above `least` are kept, and the first `num_equal` of those equal
// to it. `mass` is the sum of the kept weights.
struct End {
  float least = 0.0f;
  std::size_t num_equal = 0;
  double mass = 0.0;
};

// Weights in descending order, sorted only within the bucket where a filter ends.
class Ranking {
 public:
  explicit Ranking(std::span<const float> weights) : weights_(weights) {
    for (const float weight : weights) {
      Bucket& bucket = buckets_[bucket_of(weight)];
      bucket.mass += weight;
      ++bucket.count;
    }
  }

  // The smallest prefix, of at least one weight, for which is_enough(count, mass) is true; all
  // weights if there is none.
  template <typename IsEnough>
  End fewest(const IsEnough& is_enough) const {
    std::size_t count = 0;
    End end;
    for (std::size_t i = num_buckets; i-- > 0;) {
      const Bucket& bucket = buckets_[i];
      if (bucket.count == 0) continue;
      if (is_enough(count + bucket.count, end.mass + bucket.mass)) {
        for (const float weight : sorted(i)) {
          end.num_equal = weight == end.least ? end.num_equal + 1 : 1;
          end.least = weight;
          end.mass += weight;
          if (is_enough(++count, end.mass)) break;
        }
        return end;
      }
      count += bucket.count;
      end.mass += bucket.mass;
    }
    return end;
  }

 private:
  std::vector<float> sorted(std::size_t bucket) const {
    std::vector<float> found;
    found.reserve(buckets_[bucket].count);
    for (const float weight : weights_) {
      if (bucket_of(weight) == bucket) found.push_back(weight);
    }
    std::sort(found.begin(), found.end(), std::greater<>());
    return found;
  }

  std::span<const float> weights_;
  std::array<Bucket, num_buckets> buckets_;
};

// Not set to zeros: for a large vocabulary that takes as long as the rest of a draw.
template <typename Number>
struct Uninitialized {
  explicit Uninitialized(std::size_t count)
      : numbers(std::make_unique_for_overwrite<Number[]>(count)), size(count) {}
  std::unique_ptr<Number[]> numbers;
  std::size_t size;

  Number& operator[](std::size_t i) { return numbers[i]; }
  std::span<const Number> span() const { return {numbers.get(), size}; }
};

// e^((scores - largest) / temperature); 0 for NaN.
Uninitialized<float> weights_of(std::span<const double> scores, double largest,
                                double temperature) {
  Uninitialized<float> weights(scores.size());
  std::transform(scores.begin(), scores.end(), weights.numbers.get(), [&](double score) {
    // exp is 0 below -104. This order of arguments turns NaN into -200.
    return std::exp(static_cast<float>(std::max(-200.0, (score - largest) / temperature)));
  });
  return weights;
}

Uninitialized<float> weights_of(std::span<const float> scores, double largest, double temperature) {
  if (temperature < 1e-6) {  // its inverse may overflow
    const std::vector<double> wide(scores.begin(), scores.end());
    return weights_of(wide, largest, temperature);
  }
  Uninitialized<float> weights(scores.size());
  best_kernels().exponentials(scores.data(), static_cast<float>(largest),
                              static_cast<float>(1.0 / temperature), scores.size(),
                              weights.numbers.get());
  return weights;
}

// Weights that may be kept, and their ids, ascending.
struct Candidates {
  Uninitialized<float> weights;
  Uninitialized<std::uint32_t> ids;

  template <typename IsKept>
  void keep(const IsKept& is_kept) {
    std::size_t count = 0;
    for (std::size_t i = 0; i < weights.size; ++i) {
      const float weight = weights[i];
      weights[count] = weight;
      ids[count] = ids[i];
      count += is_kept(weight) ? 1 : 0;
    }
    weights.size = ids.size = count;
  }
};

// The weights that pass the filters, and possibly those below `min_p` where top-k follows.
Candidates kept_of(std::span<const float> weights, const Filters& filters) {
  const Kernels& kernels = best_kernels();
  float least = std::numeric_limits<float>::denorm_min();
  double mass = 0.0;
  if (filters.top_k == 0) least = std::max(least, static_cast<float>(filters.min_p));
  if (filters.top_k == 0 && filters.top_p < 1.0) {
    // All weights below this limit have less than 1 - top_p of the mass, so none of them is kept.
    // Without them the ranking has a few hundred weights.
    mass = kernels.sum(weights.data(), weights.size());
    const double rest = 0.999 * (1.0 - filters.top_p) * mass;
    least = std::max(least, static_cast<float>(rest / static_cast<double>(weights.size())));
  }
  Candidates found{Uninitialized<float>(weights.size()),
                   Uninitialized<std::uint32_t>(weights.size())};
  found.weights.size = found.ids.size = kernels.select(
      weights.data(), weights.size(), least, found.weights.numbers.get(), found.ids.numbers.get());
  if (filters.top_k == 0 && filters.top_p == 1.0) return found;
  End end;
  {
    const Ranking ranking(found.weights.span());
    if (filters.top_k > 0) {
      end = ranking.fewest([&](std::size_t n, double) { return n >= filters.top_k; });
      mass = end.mass;
    }
    if (filters.top_p < 1.0) {
      const double share = filters.top_p * mass;
      end = ranking.fewest([&](std::size_t, double reached) { return reached >= share; });
    }
  }
  found.keep([&](float weight) {
    const bool is_first = weight == end.least && end.num_equal > 0;
    end.num_equal -= is_first ? 1 : 0;
    return (weight > end.least || is_first) && weight >= static_cast<float>(filters.min_p);
  });
  return found;
}

template <typename Score>
std::size_t draw_from(std::span<const Score> scores, double largest, const Filters& filters,
                      double unit) {
  if (scores.empty()) throw std::invalid_argument("there are no scores to draw from");
  const auto weights = weights_of(scores, largest, filters.temperature);
  Candidates kept = kept_of(weights.span(), filters);
  // By parts, as the sum of a part is fast.
  const std::size_t count = kept.weights.size;
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
