// Compare the trainer with the plain algorithm, which counts all pairs at every step.

#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "../bpe/train.hpp"
#include "check.hpp"

using namespace tilth::bpe;

namespace {

struct Step {
  std::string left, right;
  std::uint64_t count;
};

// Symbols are byte strings; the last of the most frequent pairs in the map is the greatest.
std::vector<Step> plain_train(const PieceCounts& pieces, std::size_t num_merges) {
  std::vector<std::vector<std::string>> words;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    words.emplace_back();
    for (const char c : pieces.piece(i)) words.back().emplace_back(1, c);
  }
  std::vector<Step> steps;
  while (steps.size() < num_merges) {
    std::map<std::pair<std::string, std::string>, std::uint64_t> counts;
    for (std::size_t i = 0; i < words.size(); ++i) {
      for (std::size_t j = 0; j + 1 < words[i].size(); ++j) {
        counts[{words[i][j], words[i][j + 1]}] += pieces.counts[i];
      }
    }
    if (counts.empty()) break;
    auto best = counts.begin();
    for (auto it = counts.begin(); it != counts.end(); ++it) {
      if (it->second >= best->second) best = it;
    }
    const auto [left, right] = best->first;
    steps.push_back({left, right, best->second});
    for (auto& word : words) {
      std::vector<std::string> joined;
      for (std::size_t j = 0; j < word.size(); ++j) {
        const bool is_pair = j + 1 < word.size() && word[j] == left && word[j + 1] == right;
        joined.push_back(is_pair ? left + right : word[j]);
        j += is_pair ? 1 : 0;
      }
      word = joined;
    }
  }
  return steps;
}

std::vector<std::string> token_bytes(const std::vector<TrainedMerge>& merges) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (const TrainedMerge& merge : merges)
    tokens.push_back(tokens[merge.left] + tokens[merge.right]);
  return tokens;
}

void check_train(const PieceCounts& pieces, std::size_t num_merges, std::uint64_t threshold) {
  const auto expected = plain_train(pieces, num_merges);
  TrainOptions options;
  options.first_threshold = threshold;
  const auto merges = train(pieces, num_merges, options);
  CHECK_EQUAL(merges.size(), expected.size());
  const auto tokens = token_bytes(merges);
  for (std::size_t i = 0; i < merges.size(); ++i) {
    CHECK_EQUAL(tokens[merges[i].left], expected[i].left);
    CHECK_EQUAL(tokens[merges[i].right], expected[i].right);
    CHECK_EQUAL(merges[i].count, expected[i].count);
  }
  // No token is created twice (Lemma 3 in train.cpp): the plain algorithm would merge equal bytes.
  CHECK_EQUAL(std::set<std::string>(tokens.begin(), tokens.end()).size(), tokens.size());
}

PieceCounts random_pieces(std::mt19937& random) {
  PieceCounts pieces;
  const std::size_t num_pieces = random() % 12, num_letters = 1 + random() % 4;
  const std::uint64_t max_count = random() % 2 == 0 ? 2 : 40;
  for (std::size_t i = 0; i < num_pieces; ++i) {
    std::string piece;
    const std::size_t length = random() % 8 == 0 ? random() % 100 : random() % 10;
    for (std::size_t j = 0; j < length; ++j)
      piece += static_cast<char>('a' + random() % num_letters);
    if (random() % 8 == 0) piece += '\0';
    if (random() % 8 == 0) piece += '\xFF';
    pieces.add(piece, 1 + random() % max_count);
  }
  return pieces;
}

std::string words_of(const PieceCounts& pieces, std::size_t num_merges) {
  const auto merges = train(pieces, num_merges);
  const auto tokens = token_bytes(merges);
  std::string words;
  for (const auto& merge : merges) words += tokens[merge.left] + " " + tokens[merge.right] + ", ";
  return words;
}

}  // namespace

int main() {
  PieceCounts example;
  for (const auto& [piece, count] : std::map<std::string, std::uint64_t>{
           {"low", 5}, {"lower", 2}, {"widest", 3}, {"newest", 6}}) {
    example.add(piece, count);
  }
  CHECK_EQUAL(words_of(example, 12),
              "s t, e st, o w, l ow, w est, n e, ne west, w i, wi d, wid est, low e, lowe r, ");
  CHECK_EQUAL(train(example, 1000).size(), 12u);   // then no pair is left
  CHECK_EQUAL(train(example, 70000).size(), 12u);  // symbols of four bytes
  CHECK_EQUAL(train(example, 0).size(), 0u);
  CHECK_EQUAL(train({}, 10).size(), 0u);

  // Ties: of (A, B), (A, C), (B, ZZ), (BA, A), it takes (BA, A).
  PieceCounts ties;
  ties.add("ZZ", 100), ties.add("BA", 50);
  ties.add("AB", 9), ties.add("AC", 9), ties.add("BZZ", 9), ties.add("BAA", 9);
  CHECK_EQUAL(words_of(ties, 3), "Z Z, B A, BA A, ");

  PieceCounts repeats;
  repeats.add("aaaaa", 1);
  CHECK_EQUAL(words_of(repeats, 9), "a a, aa aa, aaaa a, ");
  const auto once = train(repeats, 1);
  CHECK_EQUAL(once[0].count, 4u);

  // The counts of a repeated piece add up.
  PieceCounts twice;
  twice.add("ab", 2), twice.add("cd", 3), twice.add("ab", 2);
  CHECK_EQUAL(words_of(twice, 1), "a b, ");

  std::mt19937 random(1);
  for (int round = 0; round < 6000; ++round) {
    const PieceCounts pieces = random_pieces(random);
    check_train(pieces, random() % 4 == 0 ? random() % 10 : 200, random() % 40);
  }

  // Counts beyond 32 bits, and counts that do not fit in 64.
  PieceCounts large;
  large.add("ab", std::uint64_t{1} << 60), large.add("cab", 1);
  const auto counted = train(large, 1);
  CHECK_EQUAL(counted[0].count, (std::uint64_t{1} << 60) + 1);
  large.add("abab", std::uint64_t{1} << 62);
  bool is_refused = false;
  try {
    train(large, 1);
  } catch (const std::invalid_argument&) {
    is_refused = true;
  }
  CHECK_EQUAL(is_refused, true);

  // Interruption.
  PieceCounts many;
  for (int i = 0; i < 300000; ++i) many.add(std::to_string(random()) + std::to_string(random()), 1);
  TrainOptions options;
  std::size_t num_calls = 0;
  options.progress = [&](const Progress& progress) {
    CHECK_EQUAL(progress.total, 60000u);
    if (++num_calls == 3) throw std::out_of_range("stop");
  };
  bool is_interrupted = false;
  try {
    train(many, 60000, options);
  } catch (const std::out_of_range&) {
    is_interrupted = true;
  }
  CHECK_EQUAL(is_interrupted, true);
  CHECK_EQUAL(num_calls, 3u);
}
