// Compare the encoder with the definition: vocabularies, special tokens, long pieces, threads.

#include <cstring>
#include <new>
#include <thread>

#include "check.hpp"
#include "reference_bpe.hpp"
#include "test_patterns.hpp"

using namespace tilth::bpe;
using tilth::Array;

namespace {

std::optional<Ids> encode(const Encoder& encoder, const std::string& text, bool allow_special) {
  // An exact copy on the heap: a sanitizer detects reads past its end.
  const std::vector<char> copy(text.begin(), text.end());
  TokenIds ids;
  try {
    encoder.encode({copy.data(), copy.size()}, allow_special, ids);
  } catch (const MissingByte& missing) {
    CHECK_EQUAL(missing.byte(), static_cast<unsigned char>(text.at(missing.offset())));
    return std::nullopt;
  }
  return Ids(ids.view().begin(), ids.view().end());
}

void check_text(const Encoder& encoder, const ReferenceEncoder& reference,
                const std::string& text) {
  for (const bool allow_special : {false, true}) {
    const auto expected = reference.encode(text, allow_special);
    CHECK_EQUAL(encode(encoder, text, allow_special) == expected, true);
    CHECK_EQUAL(encode(encoder, text, allow_special) == expected, true);  // now from the cache
    if (!expected) continue;
    CHECK_EQUAL(encoder.count(text, allow_special), expected->size());
  }
}

void check_random_vocabularies() {
  std::vector<Pattern> patterns = test_patterns();
  patterns.push_back(Pattern::none);
  std::mt19937 random(2);
  for (int round = 0; round < 150; ++round) {
    Vocabulary vocabulary = random_vocabulary(random, static_cast<Oddity>(round / 3 % 4));
    vocabulary.whole_piece_first = round % 2 == 0;
    vocabulary.pattern = patterns[static_cast<std::size_t>(round) / 2 % patterns.size()];
    vocabulary.special = {{500, "<s>"}, {501, "<s>x y"}, {502, "<"}, {503, " a"}};
    vocabulary.special.resize(random() % 5);
    const Encoder encoder = make_encoder(vocabulary);
    const ReferenceEncoder reference(vocabulary);
    for (int i = 0; i < 40; ++i)
      check_text(encoder, reference, random_text(random, i < 35 ? 80 : 400));
    for (const auto& [id, bytes] : vocabulary.entries) check_text(encoder, reference, bytes);
  }
}

// The vocabulary of the larger tests: a token for every byte, and some merges.
Vocabulary plain_vocabulary(std::size_t num_merges) {
  std::mt19937 random(3);
  Vocabulary vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary.entries.emplace_back(byte, std::string(1, static_cast<char>(byte)));
  }
  for (std::size_t i = 0; i < num_merges; ++i) {
    const auto pick = [&] {
      const std::size_t of_all = random() % vocabulary.entries.size();
      return vocabulary.entries[random() % 2 == 0 ? of_all : 'a' + random() % 4];
    };
    const auto left = pick(), right = pick();
    const auto id = static_cast<std::uint32_t>(vocabulary.entries.size());
    vocabulary.entries.emplace_back(id, left.second + right.second);
    vocabulary.merges.push_back({left.first, right.first, id});
  }
  vocabulary.special = {{100000, "<|endoftext|>"}, {100001, "<|end|>"}};
  return vocabulary;
}

std::string large_text(std::mt19937& random, std::size_t length) {
  std::string text;
  while (text.size() < length) {
    for (std::size_t i = random() % 9; i > 0; --i) text += static_cast<char>('a' + random() % 4);
    if (random() % 50 == 0) text += "<|endoftext|>";
    if (random() % 20 == 0) text += "\n\n \xE4\xB8\xAD\xE6\x96\x87";
    if (random() % 30 == 0) text += static_cast<char>(random());
    text += ' ';
  }
  return text;
}

void check_offsets() {
  const Vocabulary vocabulary = plain_vocabulary(300);
  const Encoder encoder = make_encoder(vocabulary);
  const ReferenceEncoder reference(vocabulary);
  std::mt19937 random(4);
  const std::string text = large_text(random, 5000);
  TokenIds ids;
  Array<ByteRange> ranges;
  encoder.encode_with_offsets(text, true, ids, ranges);
  CHECK_EQUAL(ranges.size(), ids.size());
  CHECK_EQUAL(ranges[ids.size() - 1].end, text.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    CHECK_EQUAL(ranges[i].start, i == 0 ? 0 : ranges[i - 1].end);
    const std::string bytes = text.substr(ranges[i].start, ranges[i].end - ranges[i].start);
    if (ids[i] < 100000) CHECK_EQUAL(bytes, reference.bytes_of(ids[i]));
    if (ids[i] == 100000) CHECK_EQUAL(bytes, "<|endoftext|>");
  }
}

// Pieces longer than any cache; compared with the reference where that is fast enough.
void check_long_pieces() {
  const Vocabulary vocabulary = plain_vocabulary(300);
  const Encoder encoder = make_encoder(vocabulary);
  const ReferenceEncoder reference(vocabulary);
  std::mt19937 random(5);
  std::string letters, emoji;
  for (int i = 0; i < 400; ++i) letters += static_cast<char>('a' + random() % 4);
  for (int i = 0; i < 100; ++i) emoji += "\xF0\x9F\x99\x82";
  for (const std::string& text : {letters, emoji, std::string(500, 'a'), std::string(500, ' ')}) {
    check_text(encoder, reference, text);
    std::string longer;  // differs in length only
    while (longer.size() < 300000) longer += text;
    Array<ByteRange> ranges;
    TokenIds ids;
    encoder.encode_with_offsets(longer, true, ids, ranges);
    CHECK_EQUAL(ranges[ids.size() - 1].end, longer.size());
  }
}

// Different pieces with the same key in the cache: two equal hashes of 16 bytes.
void check_shared_keys() {
  Vocabulary vocabulary = plain_vocabulary(300);
  vocabulary.pattern = Pattern::none;
  const Encoder encoder = make_encoder(vocabulary);
  const ReferenceEncoder reference(vocabulary);
  // hash_key is linear: incrementing `high` is compensated by a constant in `low`.
  const std::uint64_t one_low = hash_key({1, 0}), one_high = hash_key({0, 1});
  std::uint64_t inverse = 1;
  for (int i = 0; i < 6; ++i) inverse *= 2 - one_low * inverse;
  PieceKey words{0x6161616161616161u, 0x6262626262626262u};
  std::vector<std::string> pieces;
  for (int i = 0; i < 6; ++i) {
    std::string piece(16, '\0');
    std::memcpy(piece.data(), &words, 16);
    pieces.push_back(piece);
    CHECK_EQUAL(make_long_key(piece).low, make_long_key(pieces[0]).low);
    words = {words.low - one_high * inverse, words.high + 1};
  }
  for (int round = 0; round < 3; ++round) {
    for (const std::string& piece : pieces) check_text(encoder, reference, piece);
    // Pieces that differ only in the number of trailing zeros.
    for (std::size_t zeros = 0; zeros < 20; ++zeros) {
      check_text(encoder, reference, "ab" + std::string(zeros, '\0'));
    }
  }
}

// More distinct pieces than the capacity of the pool, then of the lines, compared with merging
// without a cache. Each text is encoded twice: the second time its pieces are cached.
void check_full_cache() {
  const Vocabulary vocabulary = plain_vocabulary(300);
  const Encoder encoder = make_encoder(vocabulary);
  const auto tokens = Vocabulary::as_tokens(vocabulary.entries);
  const MergeRules rules = MergeRules::from_merges(tokens, vocabulary.merges);
  Merger merger;
  std::mt19937 random(8);
  std::size_t num_pooled = 0, num_pieces = 0;
  while (num_pooled < 2 * (PieceCache::pooled_per_line * PieceCache::most_lines) ||
         num_pieces < 3 * PieceCache::most_lines) {
    const bool is_long = num_pooled < 2 * (PieceCache::pooled_per_line * PieceCache::most_lines);
    std::string text;
    Ids expected;
    for (int i = 0; i < 500; ++i) {
      std::string piece(is_long ? 16 + random() % 240 : 2 + random() % 14, ' ');
      for (char& letter : std::span(piece).subspan(1))
        letter = static_cast<char>('a' + random() % 8);
      for (const Symbol symbol : merger.merge(rules, piece))
        expected.push_back(rules.id_of(symbol));
      num_pooled += is_long ? piece.size() / 2 : 0;
      ++num_pieces;
      text += piece;
    }
    CHECK_EQUAL(encode(encoder, text, false) == expected, true);
    CHECK_EQUAL(encode(encoder, text, false) == expected, true);
  }
}

void check_threads(Pattern pattern) {
  Vocabulary vocabulary = plain_vocabulary(300);
  vocabulary.pattern = pattern;
  const Encoder encoder = make_encoder(vocabulary);
  std::mt19937 random(6);
  std::vector<std::string> texts = {"", large_text(random, 1200000), "", "a",
                                    large_text(random, 600000)};
  for (int i = 0; i < 200; ++i) texts.push_back(large_text(random, random() % 2000));
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  Ids expected;
  std::vector<std::uint64_t> rows = {0};
  for (const std::string& text : texts) {
    TokenIds ids;
    encoder.encode(text, true, ids);
    expected.insert(expected.end(), ids.view().begin(), ids.view().end());
    rows.push_back(expected.size());
  }
  for (const std::size_t num_threads : {0u, 1u, 2u, 8u}) {
    const Encoder::Batch batch = encoder.encode_batch(views, true, num_threads);
    CHECK_EQUAL(std::equal(expected.begin(), expected.end(), batch.ids.view().begin(),
                           batch.ids.view().end()),
                true);
    CHECK_EQUAL(std::equal(rows.begin(), rows.end(), batch.row_offsets.view().begin(),
                           batch.row_offsets.view().end()),
                true);
    const TokenIds alone = encoder.encode_parallel(texts[1], true, num_threads);
    CHECK_EQUAL(alone.size(), rows[2] - rows[1]);
    CHECK_EQUAL(std::memcmp(alone.data(), expected.data() + rows[1], alone.size() * 4), 0);
  }
  CHECK_EQUAL(encoder.encode_batch({}, true, 2).row_offsets.size(), 1u);

  // Several threads share one encoder.
  std::vector<std::thread> threads;
  std::vector<int> differences(4);
  for (std::size_t k = 0; k < 4; ++k) {
    threads.emplace_back([&, k] {
      for (std::size_t row = 3; row < texts.size(); ++row) {
        TokenIds ids;
        encoder.encode(texts[row], true, ids);
        differences[k] += std::memcmp(ids.data(), expected.data() + rows[row], ids.size() * 4) != 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int count : differences) CHECK_EQUAL(count, 0);
}

void check_errors() {
  const Vocabulary vocabulary{{{3, "a"}, {5, " "}}, {}, {{9, "<x y>"}}};
  const Encoder encoder = make_encoder(vocabulary);
  std::string text;
  while (text.size() < 3000000) text += "aaa aa a ";
  text[2000001] = '\x07';
  text[2900001] = '\x08';
  for (const std::size_t num_threads : {1u, 2u, 8u}) {
    try {
      encoder.encode_parallel(text, false, num_threads);
      CHECK_EQUAL(std::string("no exception"), "an exception");
    } catch (const MissingByte& missing) {
      CHECK_EQUAL(missing.offset(), 2000001u);  // the first one, for any number of threads
      CHECK_EQUAL(missing.byte(), 7);
      CHECK_EQUAL(missing.what(),
                  std::string("byte 0x07 at offset 2000001 has no token in this vocabulary"));
    }
    try {
      encoder.count(text, false);
      CHECK_EQUAL(std::string("no exception"), "an exception");
    } catch (const MissingByte& missing) {
      CHECK_EQUAL(missing.offset(), 2000001u);
    }
    int calls = 0;
    try {
      encoder.encode_parallel(text, false, num_threads, [&] {
        if (++calls == 2) throw 42;
      });
      CHECK_EQUAL(std::string("no exception"), "an exception");
    } catch (int interrupt) {
      CHECK_EQUAL(interrupt, 42);
    } catch (const MissingByte&) {  // another thread was faster
    }
  }
  const auto refuse = [&](std::vector<Token> tokens, std::vector<Token> special) {
    try {
      Encoder({.tokens = tokens, .special_tokens = special});
    } catch (const std::invalid_argument&) {
      return true;
    }
    return false;
  };
  CHECK_EQUAL(refuse({{0, "a"}}, {{0, "b"}}), true);
  CHECK_EQUAL(refuse({{0, "a"}}, {{1, ""}}), true);
  CHECK_EQUAL(refuse({{0, "a"}}, {{1, "b"}, {1, "c"}}), true);
  CHECK_EQUAL(refuse({{0, "a"}}, {{1, "b"}, {2, "b"}}), true);
  CHECK_EQUAL(refuse({{1u << 24, "a"}}, {}), true);
  CHECK_EQUAL(refuse({{0, "a"}, {7, "<s>"}}, {{7, "<s>"}}), false);
}

}  // namespace

int main() {
  check_random_vocabularies();
  check_offsets();
  check_long_pieces();
  check_shared_keys();
  check_full_cache();
  check_threads(Pattern::none);
  for (const Pattern& pattern : test_patterns()) check_threads(pattern);
  check_errors();
  return 0;
}
