// Normalization forms of examples of UAX #15, and properties for random text with malformed bytes.
// tests/tokenizer/test_normalization.py compares with unicodedata2.

#include <random>
#include <string>

#include "../bpe/code_points.hpp"
#include "../bpe/normalize.hpp"
#include "check.hpp"

using namespace tilth::bpe;

namespace {

constexpr NormalizationForm forms[] = {NormalizationForm::nfc, NormalizationForm::nfd,
                                       NormalizationForm::nfkc, NormalizationForm::nfkd};

std::string normalized(NormalizationForm form, std::string_view text) {
  const std::vector<char> copy(text.begin(), text.end());  // ASan sees reads outside it
  const std::string_view view(copy.data(), copy.size());
  std::string buffer;
  const std::string result(Normalizer(form).normalize(view, buffer));

  std::string aligned;
  std::vector<ByteRange> alignments;
  for (std::size_t place = 0; place < text.size();) {
    const std::size_t end = place + decode_code_point(text, place).length;
    alignments.resize(end, {place, end});
    place = end;
  }
  Normalizer(form).normalize_aligned(view, aligned, alignments);
  CHECK_EQUAL(aligned, result);
  CHECK_EQUAL(alignments.size(), result.size());
  for (std::size_t i = 0; i < alignments.size(); ++i) {
    CHECK_EQUAL(alignments[i].start < alignments[i].end && alignments[i].end <= text.size(), true);
    CHECK_EQUAL(i == 0 || alignments[i].start >= alignments[i - 1].start, true);
  }
  return result;
}

void check_forms(std::string_view text, const char* nfc, const char* nfd, const char* nfkc,
                 const char* nfkd) {
  const std::string around[] = {"", "abc", std::string(40, 'x'), "\xFF", "\xC3\xA9"};
  for (const std::string& before : around) {
    for (const std::string& after : around) {
      const std::string whole = before + std::string(text) + after;
      const char* const expected[] = {nfc, nfd, nfkc, nfkd};
      for (int i = 0; i < 4; ++i) {
        const bool decomposes = i % 2 == 1;
        const auto context = [&](const std::string& part) {
          return part == "\xC3\xA9" && decomposes ? std::string("e\xCC\x81") : part;
        };
        CHECK_EQUAL(normalized(forms[i], whole), context(before) + expected[i] + context(after));
      }
    }
  }
}

// Alignments by hand: which characters of the text each character of the result comes from.
void check_alignment(NormalizationForm form, std::string_view text, std::string_view result,
                     std::vector<std::uint64_t> starts) {
  std::string buffer;
  std::vector<ByteRange> alignments;
  for (std::size_t place = 0; place < text.size();) {
    const std::size_t end = place + decode_code_point(text, place).length;
    alignments.resize(end, {place, end});
    place = end;
  }
  Normalizer(form).normalize_aligned(text, buffer, alignments);
  CHECK_EQUAL(buffer, result);
  std::size_t index = 0;
  for (std::size_t place = 0; place < buffer.size(); ++index) {
    CHECK_EQUAL(alignments[place].start, starts[index]);
    place += decode_code_point(buffer, place).length;
  }
  CHECK_EQUAL(index, starts.size());
}

std::string random_text(std::mt19937& random) {
  // Starters and marks of several classes, Hangul, compatibility characters, malformed bytes.
  static const std::string parts[] = {"a",
                                      " ",
                                      "e\xCC\x81",
                                      "\xC3\xA9",
                                      "\xCC\x81",
                                      "\xCC\xA3",
                                      "\xCC\xA8",
                                      "\xE1\x84\x80",
                                      "\xE1\x85\xA1",
                                      "\xE1\x86\xA8",
                                      "\xEA\xB0\x80",
                                      "\xEA\xB0\x81",
                                      "\xEF\xB7\xBA",
                                      "\xE2\x84\xAB",
                                      "\xEF\xAC\x81",
                                      "\xFF",
                                      "\x80",
                                      "\xE1\x84",
                                      "\xCD\x84",
                                      "\xE0\xBE\xB7",
                                      "\xC2\xA8",
                                      "\xF0\x9D\x85\x9E",
                                      "\xE3\x82\x9B",
                                      "\xE1\xBA\xB9"};
  std::string text;
  const std::size_t length = random() % 12;
  for (std::size_t i = 0; i < length; ++i) {
    text += parts[random() % std::size(parts)];
    if (random() % 8 == 0) text += std::string(random() % 70, 'x');
  }
  return text;
}

}  // namespace

int main() {
  using enum NormalizationForm;
  check_forms("", "", "", "", "");
  // U+212B, ANGSTROM SIGN
  check_forms("\xE2\x84\xAB", "\xC3\x85", "A\xCC\x8A", "\xC3\x85", "A\xCC\x8A");
  // U+1E9B U+0323, of figure 6
  check_forms("\xE1\xBA\x9B\xCC\xA3", "\xE1\xBA\x9B\xCC\xA3", "\xC5\xBF\xCC\xA3\xCC\x87",
              "\xE1\xB9\xA9", "s\xCC\xA3\xCC\x87");
  // U+FB01, LATIN SMALL LIGATURE FI
  check_forms("\xEF\xAC\x81", "\xEF\xAC\x81", "\xEF\xAC\x81", "fi", "fi");
  // U+1100 U+1161 U+11A8, Hangul
  check_forms("\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8", "\xEA\xB0\x81",
              "\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8", "\xEA\xB0\x81",
              "\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8");
  // U+0958 is excluded from composition
  check_forms("\xE0\xA5\x98", "\xE0\xA4\x95\xE0\xA4\xBC", "\xE0\xA4\x95\xE0\xA4\xBC",
              "\xE0\xA4\x95\xE0\xA4\xBC", "\xE0\xA4\x95\xE0\xA4\xBC");
  // U+0301 U+0323 after a base: reordered
  check_forms("q\xCC\x81\xCC\xA3", "q\xCC\xA3\xCC\x81", "q\xCC\xA3\xCC\x81", "q\xCC\xA3\xCC\x81",
              "q\xCC\xA3\xCC\x81");

  check_alignment(nfc, "xe\xCC\x81y", "x\xC3\xA9y", {0, 1, 4});
  check_alignment(nfd, "x\xC3\xA9y", "xe\xCC\x81y", {0, 1, 1, 3});
  check_alignment(nfkc, "\xEF\xAC\x81y", "fiy", {0, 0, 3});
  check_alignment(nfd, "q\xCC\x81\xCC\xA3", "q\xCC\xA3\xCC\x81", {0, 1, 3});

  // Normalized text is not copied, and neither is text with marks that stay.
  for (const std::string_view text : {"plain text", "caf\xC3\xA9", "q\xCC\x81", "\xEA\xB0\x81"}) {
    std::string buffer = "unused";
    CHECK_EQUAL(Normalizer(nfc).normalize(text, buffer).data() == text.data(), true);
    CHECK_EQUAL(buffer, "unused");
  }

  std::mt19937 random(5);
  for (int round = 0; round < 20000; ++round) {
    const std::string text = random_text(random);
    const std::string composed[] = {normalized(nfc, text), normalized(nfkc, text)};
    const std::string decomposed[] = {normalized(nfd, text), normalized(nfkd, text)};
    for (const NormalizationForm first : forms) {
      const std::string once = normalized(first, text);
      for (const NormalizationForm second : forms) {
        const NormalizationForm steps[] = {first, second};
        CHECK_EQUAL(normalized(second, once), normalized(combined_form(steps), text));
      }
    }
    CHECK_EQUAL(normalized(nfd, composed[0]), decomposed[0]);
    CHECK_EQUAL(normalized(nfc, decomposed[1]), composed[1]);
  }

  // A million marks in descending order of their classes: linear, not quadratic.
  std::string marks = "e";
  for (int i = 0; i < 500'000; ++i) marks += i % 3 == 0 ? "\xCC\x81" : "\xCC\xA3";
  const std::string ordered = normalized(nfd, marks);
  CHECK_EQUAL(ordered.size(), marks.size());
  CHECK_EQUAL(ordered.substr(0, 5), "e\xCC\xA3\xCC\xA3");
  CHECK_EQUAL(ordered.substr(ordered.size() - 2), "\xCC\x81");
  // The longest decomposition: 3 bytes become 33.
  std::string expanded;
  for (int i = 0; i < 1000; ++i) expanded += "\xEF\xB7\xBA";
  CHECK_EQUAL(normalized(nfkc, expanded).size(), 11 * expanded.size());
  return 0;
}
