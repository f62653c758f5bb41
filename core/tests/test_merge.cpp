// Merging: compare scanning, queue, windows and groups with the definition, for trained and
// arbitrary vocabularies.

#include <memory>
#include <string>

#include "../bpe/merge.hpp"
#include "../bpe/merge_group.hpp"
#include "../bpe/whole_tokens.hpp"
#include "check.hpp"
#include "reference_bpe.hpp"

using namespace tilth::bpe;

namespace {

MergeRules make_rules(const Vocabulary& vocabulary) {
  const auto tokens = Vocabulary::as_tokens(vocabulary.entries);
  return MergeRules::from_merges(tokens, vocabulary.merges);
}

std::optional<Ids> as_ids(const MergeRules& rules, std::span<const Symbol> symbols) {
  Ids ids;
  for (const Symbol symbol : symbols) {
    if (!rules.is_token(symbol)) return std::nullopt;
    ids.push_back(rules.id_of(symbol));
  }
  return ids;
}

void check_piece(const MergeRules& rules, const ReferenceEncoder& reference, Merger& merger,
                 const std::string& piece) {
  const auto expected = reference.encode_piece(piece);
  if (piece.size() <= Merger::longest_scanned) {
    CHECK_EQUAL(as_ids(rules, merger.merge_by_scanning(rules, piece)) == expected, true);
  }
  CHECK_EQUAL(as_ids(rules, merger.merge_by_queue(rules, piece)) == expected, true);
  CHECK_EQUAL(as_ids(rules, merger.merge(rules, piece)) == expected, true);
  for (const std::size_t window : {4u, 11u, 32u, 64u}) {  // small windows often share no token
    for (const std::size_t overlap : {window / 4, window / 2}) {
      const auto symbols = merger.merge_by_windows(rules, piece, window, overlap);
      CHECK_EQUAL(as_ids(rules, symbols) == expected, true);
    }
  }
}

// Groups of all sizes, so that lanes are empty, shared by several pieces, and end in any order.
void check_groups(const MergeRules& rules, const ReferenceEncoder& reference,
                  std::span<const std::string> pieces) {
  for (const bool wide : {false, true}) {
    const auto merger = std::make_unique<GroupMerger>(wide);
    for (std::size_t size = 0; size <= pieces.size(); size += size / 2 + 1) {
      const std::vector<std::string_view> group(pieces.begin(),
                                                pieces.begin() + static_cast<std::ptrdiff_t>(size));
      merger->merge(rules, group);
      for (std::size_t i = 0; i < size; ++i) {
        CHECK_EQUAL(as_ids(rules, merger->symbols(i)) == reference.encode_piece(pieces[i]), true);
      }
    }
  }
}

// Return whether the rules decide which tokens are whole.
bool check_whole_tokens(const MergeRules& rules, const Vocabulary& vocabulary) {
  const auto is_whole = find_whole_tokens(rules);
  if (!is_whole) return false;
  Merger merger;
  for (std::size_t i = 0; i < vocabulary.entries.size(); ++i) {
    const auto symbols = merger.merge_by_queue(rules, vocabulary.entries[i].second);
    CHECK_EQUAL((*is_whole)[i] != 0, symbols.size() == 1 && symbols[0] == i);
  }
  return true;
}

template <typename Function>
std::string message_of(Function function) {
  try {
    function();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "no exception";
}

}  // namespace

int main() {
  std::mt19937 random(1);
  int num_unordered = 0, num_decided = 0;
  for (int round = 0; round < 300; ++round) {
    const auto oddity = static_cast<Oddity>(round % 4);
    const Vocabulary vocabulary = random_vocabulary(random, oddity);
    const MergeRules rules = make_rules(vocabulary);
    num_unordered += rules.is_well_ordered() ? 0 : 1;
    if (oddity == Oddity::none) CHECK_EQUAL(rules.is_well_ordered(), true);
    num_decided += check_whole_tokens(rules, vocabulary) ? 1 : 0;
    const ReferenceEncoder reference(vocabulary);
    Merger merger;
    for (int i = 0; i < 40; ++i) {
      check_piece(rules, reference, merger, random_text(random, i < 35 ? 60 : 200));
    }
    for (const auto& [id, bytes] : vocabulary.entries) check_piece(rules, reference, merger, bytes);
    for (const std::size_t length : {1u, 2u, 95u, 96u, 97u, 150u}) {
      check_piece(rules, reference, merger, std::string(length, 'a'));
    }
    merger.forget_long_pieces();

    std::vector<std::string> pieces;
    for (const auto& [id, bytes] : vocabulary.entries) pieces.push_back(bytes);
    for (const std::size_t length : {1u, 30u, 31u, 61u, 62u}) {
      pieces.push_back(std::string(length, 'a'));
      pieces.push_back(random_text(random, 4 * length).substr(0, length) + "b");
      pieces.back().resize(std::min(pieces.back().size(), length));
    }
    while (pieces.size() < GroupMerger::most_pieces) {
      pieces.push_back(random_text(random, GroupMerger::longest_piece / 2) + "c");
    }
    check_groups(rules, reference, pieces);
  }
  CHECK_EQUAL(num_unordered > 20, true);
  CHECK_EQUAL(num_decided > 100, true);

  // A run of equal bytes is paired from the left.
  const Vocabulary runs{
      {{0, "a"}, {1, "aa"}, {2, "aaaa"}, {3, "aaa"}}, {{0, 0, 1}, {1, 0, 3}, {1, 1, 2}}, {}};
  const MergeRules rules = make_rules(runs);
  Merger merger;
  CHECK_EQUAL(as_ids(rules, merger.merge(rules, "aaaaa")) == Ids({1, 3}), true);

  // Windows of the default size: runs that do not end with a window, and random letters.
  for (const std::size_t length : {8192u, 8193u, 31'000u, 100'003u}) {
    std::string chance(length, 'a');
    for (char& letter : chance) letter = "abab b"[random() % 6];
    for (const std::string& piece : {std::string(length, 'a'), chance}) {
      for (int round = 0; round < 8; ++round) {
        const MergeRules odd =
            make_rules(random_vocabulary(random, static_cast<Oddity>(round % 4)));
        const auto expected = as_ids(odd, Merger().merge_by_queue(odd, piece));
        CHECK_EQUAL(as_ids(odd, merger.merge(odd, piece)) == expected, true);
      }
    }
  }

  // Inconsistent vocabularies are refused.
  const auto refuse = [](std::vector<Token> tokens, std::vector<Merge> merges) {
    return message_of([&] { MergeRules::from_merges(tokens, merges); });
  };
  CHECK_EQUAL(refuse({{0, "a"}, {0, "b"}}, {}), "token 0 is given twice");
  CHECK_EQUAL(refuse({{0, "a"}, {1, ""}}, {}), "token 1 is empty; every token needs bytes");
  CHECK_EQUAL(refuse({{0, "a"}}, {{0, 0, 7}}),
              "merge 0 names token 7, which is not in the vocabulary");
  CHECK_EQUAL(refuse({{0, "a"}, {1, "ab"}}, {{0, 0, 1}}),
              "merge 0 makes token 1, whose bytes are not those of token 0 and token 0");
  return 0;
}
