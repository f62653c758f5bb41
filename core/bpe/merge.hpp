// merge: byte-pair merging of one piece, exactly as its definition says.
//
// Definition: a piece begins as its bytes. Of all adjacent pairs that have a rule, the one of
// lowest rank is replaced by the rule's result, the leftmost first among equal ranks, until no pair
// has a rule. The rules may come in any order, even one where a rule uses a token that a later rule
// makes.
//
//     MergeRules rules = MergeRules::from_merges(tokens, merges);
//     Merger merger;
//     std::span<const Symbol> symbols = merger.merge(rules, "hello");
//     rules.id_of(symbols[0]);
//
// Promise: MergeRules does not change once made and is shared between threads; a Merger is the
// memory that one thread works in. A piece of n bytes takes O(n) steps, and memory for its tokens
// alone; with tokens of some hundred bytes it may take up to 40 bytes for each of its own, and O(n
// log n) steps where a rule comes before one that makes its left or right side (no training gives
// such). At most max_tokens tokens and max_merges rules.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
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

// Where `left` stands before `right`, both become `result`. The place in the list is the rank.
struct Merge {
  std::uint32_t left, right, result;  // token ids
};

// A token by its place in the list of tokens; behind the last, one for each byte without a token,
// so that a piece always begins as symbols and the missing byte is only met if it stays.
using Symbol = std::uint32_t;

class MergeRules {
 public:
  static constexpr std::uint32_t no_rank = 0xFFFFFF;
  static_assert(no_rank == max_merges + 1 && max_tokens + 256 == 1 << 20, "see rank_of");

  // The rules of a merges list (GPT-2, Hugging Face). A pair listed twice counts where it is first.
  static MergeRules from_merges(std::span<const Token> tokens, std::span<const Merge> merges);

  std::uint32_t rank_of(Symbol left, Symbol right) const {
    const std::uint64_t pair = std::uint64_t{left} << 20 | right;
    std::size_t place = (pair * multiplier) >> shift_;
    for (; pairs_[place] != no_pair; place = (place + 1) & mask_) {
      if (pairs_[place] >> 24 == pair) return pairs_[place] & 0xFFFFFF;
    }
    return no_rank;
  }
  std::uint32_t rank_of_bytes(unsigned char left, unsigned char right) const {
    return byte_pair_ranks_[std::size_t{left} << 8 | right];
  }
  Symbol result_of(std::uint32_t rank) const { return results_[rank]; }
  Symbol symbol_of(unsigned char byte) const { return byte_symbols_[byte]; }

  std::size_t num_tokens() const { return ids_.size(); }
  std::size_t num_ranks() const { return results_.size(); }
  bool is_token(Symbol symbol) const { return symbol < ids_.size(); }
  std::uint32_t id_of(Symbol symbol) const { return ids_[symbol]; }

  // Whether every rule comes after all rules that make its left and right side.
  bool is_well_ordered() const { return is_well_ordered_; }

  // Whether some rule can ever join these two bytes, side by side, into one token. Where it is
  // false a piece falls into two that merge independently: every symbol that would span the place
  // is a token with these two bytes inside.
  bool may_join(unsigned char left, unsigned char right) const {
    return (joins_[left * 4u + right / 64u] >> (right % 64u) & 1) != 0;
  }

 private:
  struct Rule {
    Symbol left, right, result;
    std::uint32_t rank;
  };
  explicit MergeRules(std::span<const Token> tokens);
  void add_rules(std::span<const Token> tokens, std::span<const Rule> rules);

  // One word a pair: 20 bits each for left and right, 24 for the rank; linear probing at most half
  // full. 1 MB for GPT-2, half of what separate 32-bit fields take; it is read about twice a merge.
  static constexpr std::uint64_t no_pair = ~std::uint64_t{0};
  static constexpr std::uint64_t multiplier = 0x9E3779B97F4A7C15u;
  std::vector<std::uint64_t> pairs_;
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
  // What the piece becomes; valid until the next call. The place of a symbol that is no token (a
  // byte that the vocabulary lacks) is found by adding up lengths, as all else is.
  std::span<const Symbol> merge(const MergeRules& rules, std::string_view piece);

  // The three ways, apart so that tests can hold them equal: merge() takes the first up to
  // longest_scanned bytes, the second up to longest_queued.
  static constexpr std::size_t longest_scanned = 96;
  static constexpr std::size_t longest_queued = 1 << 13;
  std::span<const Symbol> merge_by_scanning(const MergeRules& rules, std::string_view piece);
  std::span<const Symbol> merge_by_queue(const MergeRules& rules, std::string_view piece);
  std::span<const Symbol> merge_by_windows(const MergeRules& rules, std::string_view piece,
                                           std::size_t window, std::size_t overlap);

  // Give back the memory that a long piece took.
  void forget_long_pieces() {
    if (std::max(places_.capacity(), symbols_.capacity()) > 2 * longest_queued) *this = Merger();
  }

 private:
  using Position = std::uint32_t;
  static constexpr Position nowhere = 0xFFFFFFFF;

  // All of a place in one: a merge touches four or so, each of them one or two cache lines.
  struct Place {
    Symbol symbol;
    std::uint32_t rank;       // of the pair that begins here
    Position next, previous;  // in the piece
    Position later, earlier;  // in the bucket of its rank
  };

  void merge_places(const MergeRules& rules, std::string_view piece);
  Position answer_with_tail();
  void run_ordered(const MergeRules& rules);
  void run_unordered(const MergeRules& rules);
  Position join(const MergeRules& rules, Position at);
  std::uint32_t rank_at(const MergeRules& rules, Position at) const;
  void link(Position at);
  void unlink(Position at);

  std::vector<Symbol> symbols_;  // the answer
  Array<Place> places_;
  std::vector<std::pair<Position, Symbol>> tail_;  // what the window before made of this one
  std::vector<Position> bucket_heads_;             // by rank; all `nowhere` between calls
  std::vector<std::uint64_t> filled_buckets_;      // a bit for each rank; all zero between calls
  Array<Position> drained_;
};

}  // namespace tilth::bpe
