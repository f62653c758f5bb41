// merge_group: byte-pair merging of many short pieces at once.
//
//     GroupMerger merger;
//     merger.merge(rules, pieces);
//     merger.symbols(0);  // of the first piece
//
// Gives the symbols of Merger::merge for each piece. A Merger waits for each look-up of a pair,
// which misses the cache, and predicts branches that depend on it; here sixteen pieces take turns
// of one merge each, prefetch the look-ups of their next turn, and have no such branches.
//
// Contract: pieces have 1 to longest_piece bytes, and there are at most most_pieces. A GroupMerger
// is the workspace of one thread. Complexity: O(n * merges) for a piece of n bytes, as
// Merger::merge_by_scanning.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "merge.hpp"

namespace tilth::bpe {

class GroupMerger {
 public:
  static constexpr std::size_t longest_piece = 62;
  static constexpr std::size_t most_pieces = 256;

  // `wide` allows AVX2 if the processor has it.
  explicit GroupMerger(bool wide = true);

  void merge(const MergeRules& rules, std::span<const std::string_view> pieces);

  // The symbols of a piece, valid until the next call. A byte that has no token and was not merged
  // is a symbol for which MergeRules::is_token is false.
  std::span<const Symbol> symbols(std::size_t piece) const { return results_[piece]; }

 private:
  static constexpr std::size_t num_lanes = 16;

  // A place for each byte, one before the first and one after the last; these two have a symbol
  // without rules, so that every symbol has neighbours. Places never move.
  static constexpr int place_bits = 6;
  static constexpr std::size_t num_places = std::size_t{1} << place_bits;
  static_assert(longest_piece + 2 == num_places);

  // A word has the rank of the pair that starts at a place, then the place: the smallest word is
  // the lowest rank, and the leftmost of equal ranks.
  static constexpr std::uint32_t no_pair = MergeRules::no_rank << place_bits;
  static_assert(MergeRules::no_rank < std::uint32_t{1} << (32 - place_bits));

  struct Lane {
    std::array<std::uint32_t, num_places> words;
    std::array<Symbol, num_places> symbols;
    std::uint64_t starts;  // bit i: a symbol starts at place i
    std::size_t num_words, piece;
    // The last merge made the symbol at `at`, between those at `before` and `after`; the ranks of
    // the two new pairs are looked up in the next turn.
    std::uint32_t at, before, after;
  };

  template <typename Machine>
  void merge_on(const MergeRules& rules, std::span<const std::string_view> pieces);
  void merge_wide(const MergeRules& rules, std::span<const std::string_view> pieces);

  static void start(const MergeRules& rules, Lane& lane, std::size_t index, std::string_view piece);
  static void look_up(const MergeRules& rules, Lane& lane);
  static void join(const MergeRules& rules, Lane& lane, std::uint32_t best);
  void finish(const MergeRules& rules, const Lane& lane);

  static std::uint32_t word_of(std::uint32_t rank, std::size_t place) {
    return rank << place_bits | static_cast<std::uint32_t>(place);
  }

  bool wide_;
  std::array<Lane, num_lanes> lanes_;
  std::array<Symbol, most_pieces * longest_piece> symbols_;  // of finished pieces
  std::size_t num_symbols_ = 0;
  std::array<std::span<const Symbol>, most_pieces> results_;
};

}  // namespace tilth::bpe
