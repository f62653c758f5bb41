#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string>
#include <vector>

#include "../common/limits.hpp"
#include "merge.hpp"

namespace tilth::bpe {
namespace {

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument(what); }

std::string name_of(std::uint32_t id) { return "token " + std::to_string(id); }

}  // namespace

MergeRules::MergeRules(std::span<const Token> tokens) {
  if (tokens.size() > max_tokens) {
    refuse("a vocabulary of " + std::to_string(tokens.size()) + " tokens is too large: at most " +
           std::to_string(max_tokens) + " are possible");
  }
  for (std::size_t byte = 0; byte < 256; ++byte) {
    byte_symbols_[byte] = static_cast<Symbol>(tokens.size() + byte);
  }
  ids_.reserve(tokens.size());
  for (const Token& token : tokens) {
    if (token.bytes.empty()) refuse(name_of(token.id) + " is empty; every token needs bytes");
    if (token.bytes.size() == 1) {
      Symbol& symbol = byte_symbols_[static_cast<unsigned char>(token.bytes[0])];
      if (symbol >= tokens.size() || token.id < ids_[symbol]) {
        symbol = static_cast<Symbol>(ids_.size());  // if a byte has two ids, the lower one
      }
    }
    ids_.push_back(token.id);
  }
}

void MergeRules::reserve(std::size_t num_rules) {
  const std::size_t buckets = std::bit_ceil(num_rules / 2 + 2);  // a quarter to a half of the words
  pairs_.assign(buckets, {{no_pair, no_pair, no_pair, no_pair}});
  mask_ = buckets - 1;
  shift_ = 64 - std::countr_zero(buckets);
  byte_pair_ranks_.assign(std::size_t{256} * 256, no_rank);
  results_.reserve(num_rules);
}

bool MergeRules::add_rule(std::span<const Token> tokens, const Rule& rule) {
  results_.push_back(rule.result);
  if (rank_of(rule.left, rule.right) != no_rank) return false;
  const std::uint64_t pair = pair_of(rule.left, rule.right);
  std::size_t bucket = bucket_of(pair);
  while (pairs_[bucket].words[3] != no_pair) bucket = (bucket + 1) & mask_;
  auto& words = pairs_[bucket].words;
  *std::find(words.begin(), words.end(), no_pair) = pair << 24 | rule.rank;

  const std::string_view bytes = tokens[rule.result].bytes;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  for (std::size_t i = 1; i < bytes.size(); ++i) {
    joins_[byte(i - 1) * 4u + byte(i) / 64u] |= std::uint64_t{1} << byte(i) % 64u;
  }
  if (bytes.size() == 2 && byte_symbols_[byte(0)] == rule.left &&
      byte_symbols_[byte(1)] == rule.right) {
    byte_pair_ranks_[std::size_t{byte(0)} << 8 | byte(1)] = rule.rank;
  }
  return true;
}

MergeRules MergeRules::from_merges(std::span<const Token> tokens, std::span<const Merge> merges) {
  MergeRules made(tokens);
  std::uint32_t last_id = 0;
  for (const Token& token : tokens) last_id = std::max(last_id, token.id);
  if (last_id >= max_vocab_size) {
    refuse("token id " + std::to_string(last_id) + " is too large: at most " +
           std::to_string(max_vocab_size - 1) + " is possible");
  }
  constexpr Symbol none = 0xFFFFFFFF;
  std::vector<Symbol> symbols(std::size_t{last_id} + 1, none);  // by id
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    Symbol& symbol = symbols[tokens[i].id];
    if (symbol != none) refuse(name_of(tokens[i].id) + " is given twice");
    symbol = static_cast<Symbol>(i);
  }
  if (merges.size() > max_merges) {
    refuse("too many merges: at most " + std::to_string(max_merges) + " are possible");
  }
  made.reserve(merges.size());
  // The last rank that makes each symbol: all rules that use it must come later.
  std::vector<std::int64_t> made_last(tokens.size() + 256, -1);
  std::vector<Rule> counted;
  counted.reserve(merges.size());
  // Merges use tokens and pairs in any order: without prefetching, each waits for several cache
  // misses.
  constexpr std::size_t ahead = 8;
  const auto symbol_of = [&](std::uint32_t id) { return id <= last_id ? symbols[id] : none; };
  const auto prefetch = [&](std::size_t rank, bool has_tokens) {
    if (rank >= merges.size()) return;
    const Symbol left = symbol_of(merges[rank].left), right = symbol_of(merges[rank].right);
    if (left == none || right == none) return;
    if (has_tokens) {
      made.prefetch(left, right);
      __builtin_prefetch(tokens[left].bytes.data());
      __builtin_prefetch(tokens[right].bytes.data());
    } else {
      __builtin_prefetch(&tokens[left]);
      __builtin_prefetch(&tokens[right]);
    }
  };
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    prefetch(rank + 2 * ahead, false);
    prefetch(rank + ahead, true);
    const Merge& merge = merges[rank];
    const auto find = [&](std::uint32_t id) {
      if (id > last_id || symbols[id] == none) {
        refuse("merge " + std::to_string(rank) + " names " + name_of(id) +
               ", which is not in the vocabulary");
      }
      return symbols[id];
    };
    const Rule rule{find(merge.left), find(merge.right), find(merge.result),
                    static_cast<std::uint32_t>(rank)};
    const std::string_view left = tokens[rule.left].bytes, right = tokens[rule.right].bytes;
    const std::string_view result = tokens[rule.result].bytes;
    if (result.size() != left.size() + right.size() || !result.starts_with(left) ||
        !result.ends_with(right)) {
      refuse("merge " + std::to_string(rank) + " makes " + name_of(merge.result) +
             ", whose bytes are not those of " + name_of(merge.left) + " and " +
             name_of(merge.right));
    }
    if (!made.add_rule(tokens, rule)) continue;
    made_last[rule.result] = std::max(made_last[rule.result], std::int64_t{rule.rank});
    counted.push_back(rule);
  }
  for (const Rule& rule : counted) {
    const std::int64_t sides = std::max(made_last[rule.left], made_last[rule.right]);
    if (std::int64_t{rule.rank} <= sides) made.is_well_ordered_ = false;
  }
  return made;
}

GrowingRules::GrowingRules(std::span<const Token> tokens) : tokens_(tokens), rules_(tokens) {
  rules_.reserve(tokens.size());
}

std::optional<std::pair<Symbol, Symbol>> GrowingRules::last_two(std::string_view bytes) {
  const std::span<const Symbol> symbols = merger_.merge(rules_, bytes);
  if (symbols.size() != 2 || !rules_.is_token(symbols[0]) || !rules_.is_token(symbols[1])) {
    return std::nullopt;
  }
  return std::pair(symbols[0], symbols[1]);
}

void GrowingRules::add(std::uint32_t left, std::uint32_t right, std::uint32_t result) {
  const auto rank = static_cast<std::uint32_t>(rules_.num_ranks());
  rules_.add_rule(tokens_, {left, right, result, rank});
  if (std::max(left, right) > result) rules_.is_well_ordered_ = false;
}

}  // namespace tilth::bpe
