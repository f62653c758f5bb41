#include "draw.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
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

// The limit of top-k followed by top-p.
End end_of(std::span<const float> weights, const Filters& filters) {
  if (filters.top_k == 0 && filters.top_p == 1.0) return {};
  const Ranking ranking(weights);
  const End of_k = ranking.fewest(
      [&](std::size_t count, double) { return filters.top_k > 0 && count >= filters.top_k; });
  if (filters.top_p == 1.0) return of_k;
  const double share = filters.top_p * of_k.mass;
  return ranking.fewest([&](std::size_t, double mass) { return mass >= share; });
}

// e^((scores - largest) / temperature); 0 for NaN.
std::vector<float> weights_of(std::span<const double> scores, double largest, double temperature) {
  std::vector<float> weights(scores.size());
  std::transform(scores.begin(), scores.end(), weights.begin(), [&](double score) {
    // exp is 0 below -104. This order of arguments turns NaN into -200.
    return std::exp(static_cast<float>(std::max(-200.0, (score - largest) / temperature)));
  });
  return weights;
}

std::vector<float> weights_of(std::span<const float> scores, double largest, double temperature) {
  if (temperature < 1e-6) {  // its inverse may overflow
    const std::vector<double> wide(scores.begin(), scores.end());
    return weights_of(wide, largest, temperature);
  }
  std::vector<float> weights(scores.size());
  best_kernels().exponentials(scores.data(), static_cast<float>(largest),
                              static_cast<float>(1.0 / temperature), scores.size(), weights.data());
  return weights;
}

template <typename Score>
std::size_t draw_from(std::span<const Score> scores, double largest, const Filters& filters,
                      double unit) {
  if (scores.empty()) throw std::invalid_argument("there are no scores to draw from");
  std::vector<float> weights = weights_of(scores, largest, filters.temperature);
  End end = end_of(weights, filters);
  double mass = 0.0;
  for (float& weight : weights) {
    bool is_kept = weight > end.least;
    if (weight == end.least && end.num_equal > 0) {
      is_kept = true;
      --end.num_equal;
    }
    if (!is_kept || weight < static_cast<float>(filters.min_p)) weight = 0.0f;
    mass += weight;
  }
  const double point = unit * mass;
  double reached = 0.0;
  std::size_t last = 0;
  for (std::size_t id = 0; id < weights.size(); ++id) {
    if (weights[id] == 0.0f) continue;
    last = id;
    reached += weights[id];
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

}  // namespace tilth::decoder
