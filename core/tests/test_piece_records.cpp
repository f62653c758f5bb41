// Compare sorted records with a std::map: round trips, merges in any block size, damaged bytes.

#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "../bpe/piece_records.hpp"
#include "check.hpp"

using namespace tilth::bpe;

namespace {

using Counts = std::map<std::string, std::uint64_t>;

constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();

BlockSource source_of(const std::string& bytes, std::size_t block_bytes) {
  return [&bytes, block_bytes, place = std::size_t{0}]() mutable {
    const std::string_view block = std::string_view(bytes).substr(place, block_bytes);
    place += block.size();
    return block;
  };
}

PieceCounts pieces_of(const Counts& counts) {
  PieceCounts pieces;
  for (const auto& [piece, count] : counts) {  // in two parts, which add up
    if (count > 1) pieces.add(piece, count - 1);
    pieces.add(piece, 1);
  }
  return pieces;
}

std::string records_of(const Counts& counts) {
  std::string bytes;
  const RecordTotals totals =
      write_records(pieces_of(counts), [&](std::string_view block) { bytes += block; });
  CHECK_EQUAL(totals.num_pieces, counts.size());
  return bytes;
}

Counts read(const std::string& bytes, std::size_t block_bytes) {
  RecordReader reader(source_of(bytes, block_bytes));
  Counts counts;
  while (reader.next()) counts[std::string(reader.piece())] = reader.count();
  CHECK_EQUAL(reader.totals().num_pieces, counts.size());
  return counts;
}

Counts random_counts(std::mt19937_64& random) {
  Counts counts;
  for (std::size_t n = random() % 50; n > 0; --n) {
    std::string piece;
    const std::size_t size = random() % 8 == 0 ? 1 + random() % 300 : 1 + random() % 12;
    while (piece.size() < size) piece += static_cast<char>(random() % 3 == 0 ? random() : 'a');
    counts[piece] = 1 + (random() >> (10 + random() % 54));
  }
  return counts;
}

void test_round_trips_and_merges() {
  std::mt19937_64 random(7);
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<std::string> sources;
    Counts sum;
    std::uint64_t total = 0;
    for (std::size_t n = random() % 6; n > 0; --n) {
      const Counts counts = random_counts(random);
      sources.push_back(records_of(counts));
      CHECK_EQUAL(read(sources.back(), 1 + random() % 400) == counts, true);
      for (const auto& [piece, count] : counts) sum[piece] += count, total += count;
    }
    std::vector<RecordReader> readers;
    for (const std::string& bytes : sources) {
      readers.emplace_back(source_of(bytes, 1 + random() % 400), readers.size());
    }
    std::string merged;
    const RecordTotals totals =
        merge_records(readers, [&](std::string_view block) { merged += block; });
    CHECK_EQUAL(merged, records_of(sum));
    CHECK_EQUAL(totals.num_pieces, sum.size());
    CHECK_EQUAL(totals.count, total);
  }
}

void test_bytes() {
  CHECK_EQUAL(
      records_of({{"b", 128}, {"ab", 1}, {std::string("a\0", 2), 2}, {"\xFF", most - 131}}),
      std::string("\2a\0\2\2ab\1\1b\x80\1\1\xFF\xFC\xFE\xFF\xFF\xFF\xFF\xFF\xFF\xFF\1", 24));
  const Counts large = {{std::string(3'000'000, 'x'), 5}, {"y", 1}};
  CHECK_EQUAL(read(records_of(large), 4096) == large, true);
}

std::string problem_of(const std::string& bytes) {
  try {
    read(bytes, 3);
  } catch (const RecordError& error) {
    return error.what();
  }
  return "";
}

void test_damage() {
  const std::string good("\1a\1\1b\1", 6);
  CHECK_EQUAL(problem_of(good), "");
  CHECK_EQUAL(problem_of(good.substr(0, 5)), "it ends in the count of piece 2");
  CHECK_EQUAL(problem_of(good.substr(0, 4)), "it ends in the text of piece 2");
  CHECK_EQUAL(problem_of("\x80"), "it ends in the size of piece 1");
  CHECK_EQUAL(problem_of("\1b\1\1a\1"), "the text of piece 2 is not sorted");
  CHECK_EQUAL(problem_of("\1a\1\1a\1"), "the text of piece 2 is that of the piece before");
  CHECK_EQUAL(problem_of(std::string("\0a\1", 3)), "the size of piece 1 is 0");
  CHECK_EQUAL(problem_of(std::string("\1a\0", 3)), "the count of piece 1 is 0");
  CHECK_EQUAL(problem_of(std::string("\1a\x81\0", 4)),
              "the count of piece 1 ends with a zero byte");
  const std::string ones(9, '\xFF');
  CHECK_EQUAL(problem_of("\1a" + ones + "\1"), "");
  CHECK_EQUAL(problem_of("\1a" + ones + "\2"), "the count of piece 1 exceeds 64 bits");
  CHECK_EQUAL(problem_of("\1a" + ones + "\x81"), "the count of piece 1 exceeds 64 bits");
  CHECK_EQUAL(problem_of("\1a" + ones + "\1\1b\1"),
              "the count of piece 2 makes the total exceed 64 bits");
  CHECK_EQUAL(problem_of("\xFF\xFF\xFF\xFF\x10"
                         "a"),
              "the size of piece 1 exceeds 32 bits");
  CHECK_EQUAL(problem_of("\xFF\xFF\xFF\xFF\xF"
                         "a"),
              "it ends in the text of piece 1");

  // A merge names the source.
  std::vector<RecordReader> readers;
  const std::string unsorted = "\1b\1\1a\1";
  readers.emplace_back(source_of(good, 2), 0);
  readers.emplace_back(source_of(unsorted, 2), 1);
  std::size_t source = 0;
  try {
    merge_records(readers, [](std::string_view) {});
  } catch (const RecordError& error) {
    source = error.source();
  }
  CHECK_EQUAL(source, 1u);
}

void test_sums_beyond_64_bits() {
  const std::string full = records_of({{"a", most}}), one = records_of({{"b", 1}});
  for (const std::string* second : {&full, &one}) {
    std::vector<RecordReader> readers;
    readers.emplace_back(source_of(full, 100), 0);
    readers.emplace_back(source_of(*second, 100), 1);
    std::string problem;
    try {
      merge_records(readers, [](std::string_view) {});
    } catch (const std::invalid_argument& error) {
      problem = error.what();
    }
    CHECK_EQUAL(problem, "the counts of the pieces add up to more than 64 bits");
  }
}

}  // namespace

int main() {
  test_round_trips_and_merges();
  test_bytes();
  test_damage();
  test_sums_beyond_64_bits();
}
