#include "merge_group.hpp"

#include <algorithm>
#include <bit>

#include "characters.hpp"

namespace tilth::bpe {
namespace {

constexpr std::size_t stride = 32;  // words

struct AnyMachine {
  // The least of `count` words, a positive multiple of `stride`.
  static std::uint32_t least(const std::uint32_t* words, std::size_t count) {
    std::uint32_t best[4] = {words[0], words[1], words[2], words[3]};
    for (std::size_t i = 4; i < count; i += 4) {
      for (std::size_t k = 0; k < 4; ++k) best[k] = std::min(best[k], words[i + k]);
    }
    return std::min(std::min(best[0], best[1]), std::min(best[2], best[3]));
  }
};

#if defined(__x86_64__)
struct WideMachine {
  TILTH_AVX2 static std::uint32_t least(const std::uint32_t* words, std::size_t count) {
    __m256i best = least_of_32(words);
    if (count > stride) best = _mm256_min_epu32(best, least_of_32(words + stride));
    __m128i half = _mm_min_epu32(_mm256_castsi256_si128(best), _mm256_extracti128_si256(best, 1));
    half = _mm_min_epu32(half, _mm_shuffle_epi32(half, 0x4E));
    half = _mm_min_epu32(half, _mm_shuffle_epi32(half, 0xB1));
    return static_cast<std::uint32_t>(_mm_cvtsi128_si32(half));
  }

 private:
  TILTH_AVX2 static __m256i least_of_32(const std::uint32_t* words) {
    const auto* vectors = reinterpret_cast<const __m256i*>(words);
    return _mm256_min_epu32(
        _mm256_min_epu32(_mm256_loadu_si256(vectors), _mm256_loadu_si256(vectors + 1)),
        _mm256_min_epu32(_mm256_loadu_si256(vectors + 2), _mm256_loadu_si256(vectors + 3)));
  }
};
#endif

}  // namespace

GroupMerger::GroupMerger(bool wide) : wide_(wide && has_avx2()) {}

[[gnu::always_inline]] inline void GroupMerger::start(const MergeRules& rules, Lane& lane,
                                                      std::size_t index, std::string_view piece) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(piece.data());
  const std::size_t count = piece.size();
  lane.piece = index;
  lane.num_words = count + 2 > stride ? 2 * stride : stride;
  lane.starts = count == longest_piece ? ~std::uint64_t{0} : (std::uint64_t{4} << count) - 1;
  std::fill_n(lane.words.data(), lane.num_words, no_pair);
  lane.symbols[0] = lane.symbols[count + 1] = MergeRules::no_symbol;
  lane.symbols[1] = rules.symbol_of(bytes[0]);
  for (std::size_t i = 1; i < count; ++i) {
    lane.symbols[i + 1] = rules.symbol_of(bytes[i]);
    lane.words[i] = word_of(rules.rank_of_bytes(bytes[i - 1], bytes[i]), i);
  }
  // Nothing to look up: the pair before the first symbol.
  lane.before = lane.at = 0;
  lane.after = static_cast<std::uint32_t>(count + 1);
}

// Look up the ranks of the two pairs that the last merge made.
[[gnu::always_inline]] inline void GroupMerger::look_up(const MergeRules& rules, Lane& lane) {
  const Symbol symbol = lane.symbols[lane.at];
  const std::uint32_t before = rules.rank_of(lane.symbols[lane.before], symbol);
  const std::uint32_t after = rules.rank_of(symbol, lane.symbols[lane.after]);
  lane.words[lane.before] = word_of(before, lane.before);
  lane.words[lane.at] = word_of(after, lane.at);
  rules.prefetch_result(before);
  rules.prefetch_result(after);
}

// Merge the pair of the word `best`.
[[gnu::always_inline]] inline void GroupMerger::join(const MergeRules& rules, Lane& lane,
                                                     std::uint32_t best) {
  const std::uint32_t at = best % num_places;
  const std::uint64_t later = lane.starts & (~std::uint64_t{1} << at);
  const std::uint64_t rest = later & (later - 1);  // without the right side of the pair
  const std::uint64_t earlier = lane.starts & ((std::uint64_t{1} << at) - 1);
  const Symbol result = rules.result_of(best >> place_bits);
  lane.words[static_cast<std::size_t>(std::countr_zero(later))] = no_pair;
  lane.symbols[at] = result;
  lane.starts ^= later ^ rest;
  lane.at = at;
  lane.after = static_cast<std::uint32_t>(std::countr_zero(rest));
  lane.before = static_cast<std::uint32_t>(63 - std::countl_zero(earlier));
  rules.prefetch(result, lane.symbols[lane.after]);
  rules.prefetch(lane.symbols[lane.before], result);
}

[[gnu::always_inline]] inline void GroupMerger::finish(const MergeRules& rules, const Lane& lane) {
  Symbol* const first = symbols_.data() + num_symbols_;
  Symbol* last = first;
  std::uint64_t rest = lane.starts & (lane.starts - 1);  // without the places at both ends
  for (; (rest & (rest - 1)) != 0; rest &= rest - 1) {
    *last = lane.symbols[static_cast<std::size_t>(std::countr_zero(rest))];
    rules.prefetch_id(*last++);
  }
  results_[lane.piece] = {first, last};
  num_symbols_ += static_cast<std::size_t>(last - first);
}

// A turn looks up the pairs of all lanes, then makes one merge in each. In between, the words that
// were stored reach the cache: a vector cannot be loaded from stores that have not.
template <typename Machine>
[[gnu::always_inline]] inline void GroupMerger::merge_on(const MergeRules& rules,
                                                         std::span<const std::string_view> pieces) {
  num_symbols_ = 0;
  std::size_t next = 0, num_used = 0;
  for (; num_used < num_lanes && next < pieces.size(); ++num_used, ++next) {
    start(rules, lanes_[num_used], next, pieces[next]);
  }
  while (num_used > 0) {
    for (std::size_t i = 0; i < num_used; ++i) look_up(rules, lanes_[i]);
    for (std::size_t i = 0; i < num_used;) {
      Lane& lane = lanes_[i];
      const std::uint32_t best = Machine::least(lane.words.data(), lane.num_words);
      if (best < no_pair) {
        join(rules, lane, best);
        ++i;
        continue;
      }
      finish(rules, lane);
      if (next < pieces.size()) {
        start(rules, lane, next, pieces[next]);
        ++next;
        ++i;
      } else if (--num_used != i) {
        lane = lanes_[num_used];
      }
    }
  }
}

#if defined(__x86_64__)
TILTH_AVX2 void GroupMerger::merge_wide(const MergeRules& rules,
                                        std::span<const std::string_view> pieces) {
  merge_on<WideMachine>(rules, pieces);
}
#else
void GroupMerger::merge_wide(const MergeRules& rules, std::span<const std::string_view> pieces) {
  merge_on<AnyMachine>(rules, pieces);
}
#endif

void GroupMerger::merge(const MergeRules& rules, std::span<const std::string_view> pieces) {
  if (wide_) {
    merge_wide(rules, pieces);
  } else {
    merge_on<AnyMachine>(rules, pieces);
  }
}

}  // namespace tilth::bpe
