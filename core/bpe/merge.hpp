// merge: byte-pair merging of one piece.
//
// Definition: start with the bytes of the piece. Of all adjacent pairs that have a rule, replace
// the one of lowest rank by the result of the rule, the leftmost first among equal ranks. Repeat
// until no pair has a rule. Rules may come in any order: a rule may use a token that a later rule
// makes.
//
//     MergeRules rules = MergeRules::from_merges(tokens, merges);
//     Merger merger;
//     std::span<const Symbol> symbols = merger.merge(rules, "hello");
//     rules.id_of(symbols[0]);
//
// Contract: MergeRules is immutable and can be shared between threads; a Merger is the workspace of
// one thread. At most max_tokens tokens and max_merges rules.
//
// Complexity: a piece of n bytes takes O(n) time. It takes O(n log n) if a rule precedes a rule
// that makes its left or right side; training never produces this order. Memory beyond the result
// is bounded by the window, unless tokens have some hundred bytes: then up to 40 bytes for each
// byte of the piece.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "../common/array.hpp"
#include "../common/limits.hpp"

namespace tilth::bpe {

struct Token {
  std::uint32_t id;
  std::string_view bytes;
};

// `left` followed by `right` becomes `result`. The rank of a merge is its index in the list.
struct Merge {
  std::uint32_t left, right, result;  // token ids
};

// The index of a token in the list of tokens. Bytes without a token have symbols after the last
// token, so any piece has initial symbols; a missing byte is an error only if it is not merged.
using Symbol = std::uint32_t;

class MergeRules {
 public:
  static constexpr std::uint32_t no_rank = 0xFFFFFF;
  static_assert(no_rank == max_merges + 1 && max_tokens + 256 == 1 << 20, "see rank_of");

  // The rules of a list of merges (GPT-2, Hugging Face). Of a repeated pair, the first counts.
  static MergeRules from_merges(std::span<const Token> tokens, std::span<const Merge> merges);

  // A symbol that is in no rule, as all tokens are below max_tokens.
  static constexpr Symbol no_symbol = (1 << 20) - 1;

  // Without branches that depend on the pair, unless a bucket is full: a match clears all bits
  // above the rank, so the least word is the rank.
  std::uint32_t rank_of(Symbol left, Symbol right) const {
    const std::uint64_t pair = pair_of(left, right);
    const std::uint64_t wanted = pair << 24;
    for (std::size_t bucket = bucket_of(pair);; bucket = (bucket + 1) & mask_) {
      const auto& words = pairs_[bucket].words;
      const std::uint64_t first = std::min(words[0] ^ wanted, words[1] ^ wanted);
      const std::uint64_t second = std::min(words[2] ^ wanted, words[3] ^ wanted);
      const auto rank = std::min(std::min(first, second), std::uint64_t{no_rank});
      const bool is_full = words[3] != no_pair;
      if (!is_full || rank != no_rank) [[likely]]
        return static_cast<std::uint32_t>(rank);
    }
  }
  void prefetch(Symbol left, Symbol right) const {
    __builtin_prefetch(&pairs_[bucket_of(pair_of(left, right))]);
  }
  // For no_rank too, without a branch.
  void prefetch_result(std::uint32_t rank) const {
    __builtin_prefetch(results_.data() + (rank == no_rank ? 0 : rank));
  }
  void prefetch_id(Symbol symbol) const { __builtin_prefetch(ids_.data() + symbol); }
  std::uint32_t rank_of_bytes(unsigned char left, unsigned char right) const {
    return byte_pair_ranks_[std::size_t{left} << 8 | right];
  }
  Symbol result_of(std::uint32_t rank) const { return results_[rank]; }
  Symbol symbol_of(unsigned char byte) const { return byte_symbols_[byte]; }

  // Call visit(left, right, rank) for each rule, in any order, without those of a repeated pair.
  template <typename Visit>
  void for_each_rule(Visit visit) const {
    for (const Bucket& bucket : pairs_) {
      for (const std::uint64_t word : bucket.words) {
        if (word == no_pair) break;
        visit(static_cast<Symbol>(word >> 44), static_cast<Symbol>(word >> 24 & 0xFFFFF),
              static_cast<std::uint32_t>(word & 0xFFFFFF));
      }
    }
  }

  std::size_t num_tokens() const { return ids_.size(); }
  std::size_t num_ranks() const { return results_.size(); }
  bool is_token(Symbol symbol) const { return symbol < ids_.size(); }
  std::uint32_t id_of(Symbol symbol) const { return ids_[symbol]; }

  // Whether every rule comes after all rules that make its left and right sides.
  bool is_well_ordered() const { return is_well_ordered_; }

  // Whether the result of some rule contains these two bytes, one after the other.
  //
  // Lemma: if not, a piece can be split between the two bytes, and the parts merge independently.
  // Proof: a symbol that spans the border is the result of a rule and contains both bytes. So no
  // merge crosses the border; see Lemma 1 in merge.cpp.
  bool may_join(unsigned char left, unsigned char right) const {
    return (joins_[left * 4u + right / 64u] >> (right % 64u) & 1) != 0;
  }

 private:
  struct Rule {
    Symbol left, right, result;
    std::uint32_t rank;
  };
  friend class GrowingRules;
  explicit MergeRules(std::span<const Token> tokens);
  void reserve(std::size_t num_rules);
  // Add the rule of the next rank; false if the pair has one already, which stays.
  bool add_rule(std::span<const Token> tokens, const Rule& rule);

  static std::uint64_t pair_of(Symbol left, Symbol right) {
    return std::uint64_t{left} << 20 | right;
  }
  std::size_t bucket_of(std::uint64_t pair) const { return pair * multiplier >> shift_; }

  // A hash table of buckets of four words, at most half full; a pair that finds its bucket full is
  // in a later one. One word per pair: 20 bits each for left and right, 24 for the rank. 1 MB for
  // GPT-2; each merge reads it twice.
  struct alignas(32) Bucket {
    std::array<std::uint64_t, 4> words;
  };
  static constexpr std::uint64_t no_pair = ~std::uint64_t{0};
  static constexpr std::uint64_t multiplier = 0x9E3779B97F4A7C15u;
  std::vector<Bucket> pairs_;
  std::size_t mask_ = 0;
  int shift_ = 0;

  std::vector<std::uint32_t> byte_pair_ranks_;  // 256 by 256
  std::vector<Symbol> results_;                 // by rank
  std::vector<std::uint32_t> ids_;              // by symbol
  std::array<Symbol, 256> byte_symbols_{};
  std::array<std::uint64_t, 1024> joins_{};  // 256 by 256 bits
  bool is_well_ordered_ = true;
};

class Merger {
 public:
  // Return the symbols of the merged piece, valid until the next call. A byte that has no token and
  // was not merged is a symbol for which MergeRules::is_token is false.
  std::span<const Symbol> merge(const MergeRules& rules, std::string_view piece);

  // The three algorithms, public for the tests that compare them. merge() scans pieces of up to
  // longest_scanned bytes, and merges longer ones in windows of longest_queued bytes.
  static constexpr std::size_t longest_scanned = 96;
  static constexpr std::size_t longest_queued = 1 << 13;
  std::span<const Symbol> merge_by_scanning(const MergeRules& rules, std::string_view piece);
  std::span<const Symbol> merge_by_queue(const MergeRules& rules, std::string_view piece);
  std::span<const Symbol> merge_by_windows(const MergeRules& rules, std::string_view piece,
                                           std::size_t window, std::size_t overlap);

  // Free the memory that a long piece needed.
  void forget_long_pieces() {
    if (std::max(places_.capacity(), symbols_.capacity()) > 2 * longest_queued) *this = Merger();
  }

 private:
  using Position = std::uint32_t;
  static constexpr Position nowhere = 0xFFFFFFFF;

  // One struct, not an array per field: a merge touches about four places, one or two cache lines
  // each.
  struct Place {
    Symbol symbol;
    std::uint32_t rank;       // of the pair that begins here
    Position next, previous;  // in the piece
    Position later, earlier;  // in the bucket of its rank
  };

  void merge_places(const MergeRules& rules, std::string_view piece);
  Position append_tail();
  void run_ordered(const MergeRules& rules);
  void run_unordered(const MergeRules& rules);
  Position join(const MergeRules& rules, Position at);
  std::uint32_t rank_at(const MergeRules& rules, Position at) const;
  void link(Position at);
  void unlink(Position at);

  std::vector<Symbol> symbols_;  // the result
  Array<Place> places_;
  std::vector<std::pair<Position, Symbol>> tail_;  // of the previous window, in the overlap
  std::vector<Position> bucket_heads_;             // by rank; all `nowhere` between calls
  std::vector<std::uint64_t> filled_buckets_;      // a bit for each rank; all zero between calls
  Array<Position> drained_;
};

// Rules that are learnt token by token, to recover merges from ranks.
class GrowingRules {
 public:
  // At most one rule per token.
  explicit GrowingRules(std::span<const Token> tokens);

  // Return the two tokens that the rules so far leave of these bytes, by their indices; nothing if
  // they leave more, or a byte without a token.
  std::optional<std::pair<Symbol, Symbol>> last_two(std::string_view bytes);

  const MergeRules& rules() const { return rules_; }

  // Add a rule: the tokens of these indices become the token `result`.
  void add(std::uint32_t left, std::uint32_t right, std::uint32_t result);

  MergeRules take() { return std::move(rules_); }

 private:
  std::span<const Token> tokens_;
  MergeRules rules_;
  Merger merger_;
};

}  // namespace tilth::bpe
