// A stream gives the ids of the concatenated text, wherever it is cut.

#include "../bpe/encode_stream.hpp"
#include "check.hpp"
#include "reference_bpe.hpp"
#include "test_patterns.hpp"

using namespace tilth::bpe;

namespace {

Ids encode_whole(const Encoder& encoder, const std::string& text, bool allow_special) {
  TokenIds ids;
  encoder.encode(text, allow_special, ids);
  return Ids(ids.view().begin(), ids.view().end());
}

Vocabulary byte_vocabulary() {
  Vocabulary vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary.entries.emplace_back(byte, std::string(1, static_cast<char>(byte)));
  }
  // A merge for every pair that occurs in the tests: ids show the ends of pieces.
  for (const auto& pair : {"  ", " a", "aa", "'l", "'ll", "\n\n", " \n", "a1", "!!", "aaaa"}) {
    const std::string bytes = pair;
    const auto find = [&](const std::string& part) {
      return std::find_if(vocabulary.entries.begin(), vocabulary.entries.end(),
                          [&](const auto& entry) { return entry.second == part; })
          ->first;
    };
    const std::size_t cut = bytes.size() == 3 ? 2 : bytes.size() / 2;
    const auto id = static_cast<std::uint32_t>(vocabulary.entries.size());
    vocabulary.entries.emplace_back(id, bytes);
    vocabulary.merges.push_back({find(bytes.substr(0, cut)), find(bytes.substr(cut)), id});
  }
  vocabulary.special = {{1000, "<s>"}, {1001, "<s>aa"}, {1002, " a<"}, {1003, "b c"}};
  return vocabulary;
}

void feed(StreamEncoder& stream, std::string_view chunk, TokenIds& ids) {
  const std::vector<char> copy(chunk.begin(), chunk.end());  // freed after the call
  stream.feed({copy.data(), copy.size()}, ids);
}

constexpr std::size_t block = std::size_t{1} << 16;  // the block size of a stream

void check_pattern(Pattern pattern) {
  Vocabulary vocabulary = byte_vocabulary();
  vocabulary.pattern = pattern;
  const Encoder encoder = make_encoder(vocabulary);
  std::mt19937 random(7);

  // Every text near the end of a block, where pieces may not be final.
  for (const std::string tail :
       {"it's  so", "I'll've", "  \n\n  a", "<s>aab", "<s>a", " a<s>", "b cd",
        "\xE3\x80\x80\xE3\x80\x80z", "12ab\xF0\x9F\x99\x82\xF0\x9F\x99\x82", "   <s>   ",
        "a!!\n\n!!", "\xE3\x81", "\xFF\xFE\x80\x80"}) {
    for (std::size_t shift = 0; shift < 12; ++shift) {
      const std::string text =
          std::string(shift % 2, ' ') + std::string(block - shift, 'b') + tail + "aa " + tail;
      for (const bool allow_special : {false, true}) {
        TokenIds ids;
        StreamEncoder stream(encoder, allow_special);
        feed(stream, std::string_view(text).substr(0, block - 12), ids);
        for (std::size_t i = block - 12; i < text.size(); ++i) feed(stream, text.substr(i, 1), ids);
        stream.finish(ids);
        CHECK_EQUAL(
            encode_whole(encoder, text, allow_special) == Ids(ids.view().begin(), ids.view().end()),
            true);
        CHECK_EQUAL(stream.held_bytes(), 0u);
      }
    }
  }

  // Random text of several blocks, cut at random; one stream is used again after finish.
  StreamEncoder stream(encoder, true);
  for (int round = 0; round < 16; ++round) {
    std::string text;
    while (text.size() < 3 * block) text += random_text(random, 3000);
    if (round % 3 == 0)
      text.insert(text.size() / 2, std::string(2 * block, " a1\n!"[round / 3 % 5]));
    const std::size_t longest_chunk = round % 4 == 0 ? 3 : round % 4 == 1 ? 1000 : 2 * block;
    TokenIds ids;
    for (std::size_t start = 0; start < text.size();) {
      const std::size_t length = random() % (longest_chunk + 1);
      feed(stream, std::string_view(text).substr(start, length), ids);
      start += length;
      if (pattern.splits_after_words()) CHECK_EQUAL(stream.held_bytes() <= 4 * block, true);
    }
    stream.finish(ids);
    CHECK_EQUAL(encode_whole(encoder, text, true) == Ids(ids.view().begin(), ids.view().end()),
                true);
  }
}

// Special tokens that share their first two bytes, of which the second is searched for.
void check_shared_beginning() {
  Vocabulary vocabulary = byte_vocabulary();
  vocabulary.special = {{1000, "<|s>"}, {1001, "<|aa"}};
  const Encoder encoder = make_encoder(vocabulary);
  const std::string tail = "<|s> <|aa<<|s>||<|a <|s>b<";
  const Ids expected = ReferenceEncoder(vocabulary).encode("b" + tail, true).value();
  for (std::size_t shift = 0; shift < 40; ++shift) {
    const std::string text = std::string(block - shift, '\n') + "b" + tail;
    TokenIds ids;
    StreamEncoder stream(encoder, true);
    feed(stream, std::string_view(text).substr(0, block - 40), ids);
    for (std::size_t i = block - 40; i < text.size(); ++i) feed(stream, text.substr(i, 1), ids);
    stream.finish(ids);
    CHECK_EQUAL(Ids(ids.end() - expected.size(), ids.end()) == expected, true);
  }
}

// Normalizers and options of special tokens. encode() also cuts the text into slices, so compare
// with an encoder whose pattern does not allow cuts.
void check_normalizers_and_options(NormalizationForm form) {
  const Vocabulary vocabulary = byte_vocabulary();
  const auto tokens = Vocabulary::as_tokens(vocabulary.entries);
  const std::vector<std::pair<std::uint32_t, std::string>> added = {
      {1000, "<s>"}, {1001, "<l>"}, {1002, "<w>"}, {1003, "<e\xCC\x81)"}, {1004, "  "}};
  const auto special = Vocabulary::as_tokens(added);
  const TokenOptions options[] = {{.id = 1000, .rstrip = true},
                                  {.id = 1001, .lstrip = true, .normalized = true},
                                  {.id = 1002, .single_word = true},
                                  {.id = 1003, .rstrip = true, .normalized = true}};
  const std::string one_piece[] = {R"([\s\S]+)"};
  const auto encoder_of = [&](const Pattern& pattern) {
    return std::make_unique<Encoder>(EncoderOptions{.tokens = tokens,
                                                    .merges = vocabulary.merges,
                                                    .special_tokens = special,
                                                    .pattern = pattern,
                                                    .token_options = options,
                                                    .normalizers = {&form, 1}});
  };
  const auto encoder = encoder_of(Pattern::gpt2), uncut = encoder_of(Pattern(one_piece));
  CHECK_EQUAL(uncut->cut_at_blanks("a b c d", true, 2).size(), 1u);
  const std::string parts[] = {"<s>",
                               "<l>",
                               "<w>",
                               "<e\xCC\x81)",
                               "<\xC3\xA9)",
                               " ",
                               "  ",
                               "\n",
                               "a",
                               "e\xCC\x81",
                               "\xCC\xA3",
                               "\xC3\xA9",
                               "\xEF\xAC\x81",
                               "\xE1\x84\x80",
                               "\xE1\x85\xA1",
                               "\xFF",
                               "\xCC",
                               "\xE3\x80\x80",
                               "word",
                               ". "};
  std::mt19937 random(11);
  StreamEncoder stream(*encoder, true);
  for (int round = 0; round < 12; ++round) {
    std::string text;
    const std::size_t size = (round % 3 == 0 ? 9 : 2) * block;
    while (text.size() < size) text += parts[random() % std::size(parts)];
    const Ids whole = encode_whole(*encoder, text, true);
    // The special tokens, and the bytes between them, which have no digits.
    const auto outline = [&](const Ids& ids) {
      std::string found;
      for (const std::uint32_t id : ids) {
        found += id >= 1000 ? std::to_string(id) : vocabulary.entries[id].second;
      }
      return found;
    };
    CHECK_EQUAL(outline(whole) == outline(encode_whole(*uncut, text, true)), true);
    const auto batch = encoder->encode_parallel(text, true, 3);
    CHECK_EQUAL(whole == Ids(batch.view().begin(), batch.view().end()), true);

    TokenIds ids, with_offsets;
    tilth::Array<ByteRange> ranges;
    encoder->encode_with_offsets(text, true, with_offsets, ranges);
    CHECK_EQUAL(whole == Ids(with_offsets.view().begin(), with_offsets.view().end()), true);
    const std::size_t longest_chunk = round % 4 == 0 ? 3 : round % 4 == 1 ? 1000 : 2 * block;
    for (std::size_t start = 0; start < text.size();) {
      const std::size_t length = random() % (longest_chunk + 1);
      feed(stream, std::string_view(text).substr(start, length), ids);
      start += length;
      CHECK_EQUAL(stream.held_bytes() <= 2 * block, true);
    }
    stream.finish(ids);
    CHECK_EQUAL(whole == Ids(ids.view().begin(), ids.view().end()), true);
  }
}

// The offset of a missing byte is relative to the start of the stream.
void check_missing_byte() {
  const Vocabulary lacking{{{0, "a"}, {1, " "}}, {}, {{9, "<s>"}}};
  const Encoder lacking_encoder = make_encoder(lacking);
  std::string text;
  while (text.size() < 3 * block) text += "aa<s> aa";
  text.insert(text.find("aa", 2 * block), "b");
  StreamEncoder lacking_stream(lacking_encoder, true);
  TokenIds ids;
  try {
    for (const char byte : text) lacking_stream.feed({&byte, 1}, ids);
    lacking_stream.finish(ids);
    CHECK_EQUAL(std::string("no exception"), "an exception");
  } catch (const MissingByte& missing) {
    CHECK_EQUAL(missing.offset(), text.find('b'));
  }
}

}  // namespace

int main() {
  check_pattern(Pattern::none);
  for (const Pattern& pattern : test_patterns()) check_pattern(pattern);
  check_shared_beginning();
  for (const NormalizationForm form : {NormalizationForm::nfc, NormalizationForm::nfkd}) {
    check_normalizers_and_options(form);
  }
  check_missing_byte();
  return 0;
}
