// vocabulary: the tokens and merges of a tokenizer file, in memory of their own.
//
//     std::optional<VocabularyTable> table = read_ranks(content_of("o200k_base.tiktoken"));
//     table->tokens()[0].bytes;  // "!"
//     table->find("hello");      // the index of the token, or no_token
//
// Contract: immutable. Token bytes and ids are distinct; every merge names three tokens of the
// table, whose bytes fit; no pair is repeated. The readers accept files in the form that all tools
// write, and return nothing for any other content, however close: the readers in Python, which are
// fifty times slower, then explain what is wrong, or read an unusual form.
//
// Complexity: linear in the file. A file of 200,000 ranks takes about 0.1 s.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../common/array.hpp"
#include "merge.hpp"

namespace tilth::bpe {

class VocabularyTable {
 public:
  static constexpr std::size_t longest_token = 65535;
  static constexpr std::uint32_t none = 0xFFFFFFFF;

  std::span<const Token> tokens() const { return tokens_; }
  std::span<const Merge> merges() const { return merges_; }

  // The index of the token with these bytes, or `none`.
  std::uint32_t find(std::string_view bytes) const;

  // The rules of the merges if they come from ranks: then a token of several bytes that a merge
  // makes is what its bytes merge to, and no other is. Otherwise null.
  const MergeRules* rules() const { return rules_ ? &*rules_ : nullptr; }

  bool has_id(std::uint32_t id) const { return id < ids_.size() && ids_[id]; }

  // Prepare the index for this many tokens.
  void reserve(std::size_t num_tokens);
  // Append a token; false if its id or its bytes are taken or out of range.
  bool add(std::uint32_t id, std::string_view bytes);
  // The same for many tokens: some are indexed later, in groups, which overlaps the cache misses.
  // Taken bytes give false in a later call. After the last token, call finish_tokens().
  bool append(std::uint32_t id, std::string_view bytes);
  bool finish_tokens();

  // A token, and the length of the left part from which it is merged.
  struct MergedToken {
    std::string_view bytes;
    std::size_t left_size;
  };
  static constexpr std::size_t group_size = 64;
  // Append up to group_size merges; false if a token is missing or a pair is repeated.
  bool add_merges(std::span<const MergedToken> merges);
  // Recover the merges from the order of the tokens, which must be that of their ranks. False if a
  // byte is not a token, or if it takes too long: for long tokens that no two tokens make.
  bool recover_merges();

 private:
  // The last two parts of a token when its bytes are merged by the ranks of all tokens.
  std::optional<std::pair<Symbol, Symbol>> search_last_two(std::string_view bytes) const;
  void grow_index(std::size_t slots);
  bool insert(std::uint32_t token, std::uint64_t hash);
  std::uint32_t find(std::string_view bytes, std::uint64_t hash) const;
  std::size_t place_of(std::uint64_t pair) const;
  std::size_t first_place_of(std::uint64_t pair) const;

  // Tokens are views of blocks, which never move.
  std::vector<Array<char>> blocks_;
  std::vector<Token> tokens_;
  std::vector<Merge> merges_;
  std::vector<bool> ids_;             // which ids are taken
  std::vector<std::uint64_t> index_;  // hash table: the upper half of the hash, token index + 1
  std::vector<std::uint64_t> pairs_;  // hash table: the token indices of merged pairs
  std::size_t num_indexed_ = 0;       // tokens
  std::uint32_t last_result_ = none;
  std::optional<MergeRules> rules_;
};

// tiktoken's ranks: a token in base64, a blank and its rank per line, in rising order.
std::optional<VocabularyTable> read_ranks(std::string_view content);

// The vocabulary of a `tokenizer.json`, and the rest of the file: the same JSON with an empty
// `vocab` and empty `merges` in its `model`.
struct TokenizerJson {
  VocabularyTable table;
  std::string rest;
  std::vector<std::string> unspelled;  // keys of `vocab` that spell no bytes: their UTF-8 is taken
};
std::optional<TokenizerJson> read_tokenizer_json(std::string_view content);

// The values of `vocab`, in the order of the ids, and of `merges`, as JSON. `named` has ids in
// rising order and their keys in JSON; they may be in the table.
struct VocabularyJson {
  std::string vocab, merges;
};
VocabularyJson write_vocabulary_json(const VocabularyTable& table, std::span<const Token> named);

// The ids in decimal, the tokens, and the two parts of each merge, each joined after the lengths.
// `added` are tokens that are not in the table, in rising order of their ids.
struct JoinedVocabulary {
  std::string ids, tokens, merges;
};
JoinedVocabulary join_vocabulary(const VocabularyTable& table, std::span<const Token> added);

}  // namespace tilth::bpe
