#include "whole_tokens.hpp"

#include <algorithm>
#include <cstdint>

#include "../common/pool.hpp"
#include "loading.hpp"

// Let the rules be well ordered, one for each token, and let x and y be tokens whose bytes merge to
// them. When does merging xy make x and y, before a merge crosses the border? Merging xy makes the
// merges of x and of y in the order of their ranks until a merge crosses. So the two symbols at the
// border are at any time a part of x at its right edge and a part of y at its left edge, as far as
// the merges up to now have made them. Go back in time from x, y: undo the later merge of the two.
// If both have the same rank, that is the one of y, as equal ranks merge from the left. A pair
// (a, b) that appears at the border in this way is merged if its rank comes before the merge that
// takes a or b away:
//
//   the merge of a into a larger part of x, if the rank is lower; the merge of the same rank in x
//   is further left and comes first;
//   the merge of b into a larger part of y, if the rank is lower or equal.
//
// The bytes of a token merge to it if those of its two sides do, and no merge crosses their border
// before both are made: its own rule is then the only one that is left.

namespace tilth::bpe {
namespace {

// Rank `time - 1` makes the token of `left` and `right`. A time of 0: no rule makes it.
struct Origin {
  Symbol left = 0, right = 0;
  std::uint32_t time = 0;
};

bool is_crossed(const MergeRules& rules, std::span<const Origin> origins, Symbol left,
                Symbol right) {
  for (;;) {
    const Origin& before = origins[left];
    const Origin& after = origins[right];
    std::uint32_t limit = 0;  // a pair of a lower rank is merged
    if (before.time > after.time) {
      limit = before.time - 1;
      left = before.right;
    } else if (after.time > 0) {
      limit = after.time;
      right = after.left;
    } else {
      return false;
    }
    if (rules.rank_of(left, right) < limit) return true;
  }
}

}  // namespace

std::optional<std::vector<char>> find_whole_tokens(const MergeRules& rules) {
  if (!rules.is_well_ordered()) return std::nullopt;
  std::vector<Origin> origins(rules.num_tokens() + 256);
  bool is_repeated = false;
  rules.for_each_rule([&](Symbol left, Symbol right, std::uint32_t rank) {
    Origin& origin = origins[rules.result_of(rank)];
    is_repeated = is_repeated || origin.time != 0;
    origin = {left, right, rank + 1};
  });
  if (is_repeated) return std::nullopt;

  std::vector<char> is_whole(origins.size());
  for (int byte = 0; byte < 256; ++byte) {
    is_whole[rules.symbol_of(static_cast<unsigned char>(byte))] = 1;
  }
  constexpr std::size_t job_tokens = 1 << 14;
  const std::size_t num_jobs = (rules.num_tokens() + job_tokens - 1) / job_tokens;
  const std::size_t num_workers = num_workers_for(num_jobs, loading_threads());
  run_jobs(num_jobs, num_workers, {}, [&](std::size_t job, Worker&) {
    const std::size_t last = std::min((job + 1) * job_tokens, rules.num_tokens());
    for (std::size_t i = job * job_tokens; i < last; ++i) {
      const Origin& origin = origins[i];
      if (origin.time == 0) continue;
      is_whole[i] = is_crossed(rules, origins, origin.left, origin.right) ? 0 : 1;
    }
  });
  // In the order of ranks, sides are decided before the tokens that they make.
  for (std::uint32_t rank = 0; rank < rules.num_ranks(); ++rank) {
    const Symbol result = rules.result_of(rank);
    const Origin& origin = origins[result];
    if (origin.time == rank + 1 && (is_whole[origin.left] & is_whole[origin.right]) == 0) {
      is_whole[result] = 0;
    }
  }
  return is_whole;
}

}  // namespace tilth::bpe
