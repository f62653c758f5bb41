// Merging one piece: compare scanning, queue and windows with the definition, for trained and
// arbitrary vocabularies.

#include <string>

#include "../bpe/merge.hpp"
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
  int num_unordered = 0;
  for (int round = 0; round < 300; ++round) {
    const auto oddity = static_cast<Oddity>(round % 4);
    const Vocabulary vocabulary = random_vocabulary(random, oddity);
    const MergeRules rules = make_rules(vocabulary);
    num_unordered += rules.is_well_ordered() ? 0 : 1;
    if (oddity == Oddity::none) CHECK_EQUAL(rules.is_well_ordered(), true);
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
  }
  CHECK_EQUAL(num_unordered > 20, true);

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
