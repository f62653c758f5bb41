#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string>
#include <unordered_map>

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

void MergeRules::add_rules(std::span<const Token> tokens, std::span<const Rule> rules) {
  const std::size_t slots = std::bit_ceil(2 * rules.size() + 2);
  pairs_.assign(slots, no_pair);
  mask_ = slots - 1;
  shift_ = 64 - std::countr_zero(slots);
  byte_pair_ranks_.assign(std::size_t{256} * 256, no_rank);

  // The last rank that makes each symbol: all rules that use it must come later.
  std::vector<std::int64_t> made_last(tokens.size() + 256, -1);
  std::vector<const Rule*> counted;
  counted.reserve(rules.size());
  for (const Rule& rule : rules) {
    if (rank_of(rule.left, rule.right) != no_rank) continue;  // repeated: the first counts
    const std::uint64_t pair = std::uint64_t{rule.left} << 20 | rule.right;
    const std::uint64_t hash = pair * multiplier;
    filter_[hash >> filter_shift >> 6] |= std::uint64_t{1} << (hash >> filter_shift) % 64;
    std::size_t place = hash >> shift_;
    while (pairs_[place] != no_pair) place = (place + 1) & mask_;
    pairs_[place] = pair << 24 | rule.rank;
    made_last[rule.result] = std::max(made_last[rule.result], std::int64_t{rule.rank});
    counted.push_back(&rule);

    const std::string_view bytes = tokens[rule.result].bytes;
    for (std::size_t i = 1; i < bytes.size(); ++i) {
      const auto left = static_cast<unsigned char>(bytes[i - 1]);
      const auto right = static_cast<unsigned char>(bytes[i]);
      joins_[left * 4u + right / 64u] |= std::uint64_t{1} << right % 64u;
    }
  }
  for (const Rule* rule : counted) {
    const std::int64_t sides = std::max(made_last[rule->left], made_last[rule->right]);
    if (std::int64_t{rule->rank} <= sides) is_well_ordered_ = false;
  }
  for (std::size_t left = 0; left < 256; ++left) {
    for (std::size_t right = 0; right < 256; ++right) {
      if (!may_join(static_cast<unsigned char>(left), static_cast<unsigned char>(right))) continue;
      byte_pair_ranks_[left << 8 | right] = rank_of(byte_symbols_[left], byte_symbols_[right]);
    }
  }
}

MergeRules MergeRules::from_merges(std::span<const Token> tokens, std::span<const Merge> merges) {
  MergeRules made(tokens);
  std::unordered_map<std::uint32_t, Symbol> symbols;
  symbols.reserve(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (!symbols.emplace(tokens[i].id, static_cast<Symbol>(i)).second) {
      refuse(name_of(tokens[i].id) + " is given twice");
    }
  }
  if (merges.size() > max_merges) {
    refuse("too many merges: at most " + std::to_string(max_merges) + " are possible");
  }
  std::vector<Rule> rules;
  rules.reserve(merges.size());
  made.results_.reserve(merges.size());
  for (const Merge& merge : merges) {
    const auto find = [&](std::uint32_t id) {
      const auto found = symbols.find(id);
      if (found == symbols.end()) {
        refuse("merge " + std::to_string(rules.size()) + " names " + name_of(id) +
               ", which is not in the vocabulary");
      }
      return found->second;
    };
    const Rule rule{find(merge.left), find(merge.right), find(merge.result),
                    static_cast<std::uint32_t>(rules.size())};
    const std::string_view left = tokens[rule.left].bytes, right = tokens[rule.right].bytes;
    const std::string_view result = tokens[rule.result].bytes;
    if (result.size() != left.size() + right.size() || !result.starts_with(left) ||
        !result.ends_with(right)) {
      refuse("merge " + std::to_string(rules.size()) + " makes " + name_of(merge.result) +
             ", whose bytes are not those of " + name_of(merge.left) + " and " +
             name_of(merge.right));
    }
    rules.push_back(rule);
    made.results_.push_back(rule.result);
  }
  made.add_rules(tokens, rules);
  return made;
}

}  // namespace tilth::bpe
