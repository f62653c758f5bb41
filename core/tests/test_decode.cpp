// Decoding: concatenated bytes, unknown ids, tokens of every length.

#include "../bpe/decode.hpp"
#include "check.hpp"
#include "reference_bpe.hpp"

using namespace tilth::bpe;
using tilth::Array;

int main() {
  std::mt19937 random(8);
  std::vector<std::pair<std::uint32_t, std::string>> entries;
  for (std::uint32_t i = 0; i < 300; ++i) {
    std::string bytes;
    for (std::size_t k = 1 + (i % 40); k > 0; --k) bytes += static_cast<char>(random());
    entries.emplace_back(3 * i + 1, bytes);
  }
  entries.emplace_back(2, std::string(100000, 'x'));
  const auto tokens = Vocabulary::as_tokens(entries);
  const std::vector<Token> special = {{1, entries[0].second}, {5000, "<|endoftext|>"}};
  const Decoder decoder(tokens, special);

  for (int round = 0; round < 50; ++round) {
    std::vector<std::uint32_t> ids;
    std::vector<std::uint16_t> narrow;
    std::string expected = "before";
    for (std::size_t i = random() % 5000; i > 0; --i) {
      const auto& [id, bytes] = entries[random() % 300];
      ids.push_back(id);
      expected += bytes;
    }
    if (round % 5 == 0) {
      ids.push_back(2);
      ids.push_back(5000);
      expected += entries.back().second + "<|endoftext|>";
    }
    narrow.assign(ids.begin(), ids.end());
    Array<char> bytes, narrow_bytes;
    bytes.append(std::string_view("before"));
    narrow_bytes.append(std::string_view("before"));
    decoder.decode(ids, bytes);
    decoder.decode(narrow, narrow_bytes);
    CHECK_EQUAL(std::string_view(bytes.data(), bytes.size()) == expected, true);
    CHECK_EQUAL(std::string_view(narrow_bytes.data(), narrow_bytes.size()) == expected, true);

    for (const std::uint32_t hole : {0u, 3u, 5001u, 0xFFFFFFFFu}) {
      const std::size_t place = random() % (ids.size() + 1);
      auto with_hole = ids;
      with_hole.insert(with_hole.begin() + static_cast<std::ptrdiff_t>(place), hole);
      try {
        decoder.decode(with_hole, bytes);
        CHECK_EQUAL(std::string("no exception"), "an exception");
      } catch (const UnknownId& unknown) {
        CHECK_EQUAL(unknown.id(), hole);
        CHECK_EQUAL(unknown.place(), place);
        CHECK_EQUAL(bytes.size(), expected.size());  // nothing was appended
      }
    }
  }
  for (const auto& [id, bytes] : entries) CHECK_EQUAL(decoder.bytes_of(id), bytes);

  const Decoder nothing({});
  Array<char> bytes;
  nothing.decode(std::span<const std::uint32_t>(), bytes);
  CHECK_EQUAL(bytes.size(), 0u);
  return 0;
}
