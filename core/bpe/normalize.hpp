// normalize: Unicode normalization forms of UTF-8 text (UAX #15), with the tables of
// normalization_tables.hpp.
//
//     const Normalizer nfc(NormalizationForm::nfc);
//     std::string buffer;
//     nfc.normalize("e\xCC\x81", buffer);  // "\xC3\xA9", a view of the buffer
//     nfc.normalize("abc", buffer);        // "abc", a view of the text: nothing was copied
//
// Contract: accepts any bytes; a malformed byte stays as it is and combines with nothing. Code
// points that are not assigned in the version of the tables stay as they are.
//
// Complexity: linear, also for a starter with a million combining marks; the output is at most 11
// times as long (U+FDFA). Only spans that the quick check cannot accept are decomposed and composed
// again. Text below the first code point that a form may change (U+0300 for NFC, U+0080 otherwise)
// is skipped 64 bytes at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../common/interrupt.hpp"

namespace tilth::bpe {

enum class NormalizationForm : std::uint8_t { nfc, nfd, nfkc, nfkd };

// Return the form that has the same result as all these forms, one after the other. The last one
// decides whether to compose; any compatibility form decides for the others.
NormalizationForm combined_form(std::span<const NormalizationForm> forms);

// Bytes [start, end) of a text.
struct ByteRange {
  std::uint64_t start, end;
};

class Normalizer {
 public:
  explicit Normalizer(NormalizationForm form) : form_(form) {}

  // Return the normalized text: a view of `text` if nothing changes, else of `buffer`.
  std::string_view normalize(std::string_view text, std::string& buffer,
                             const InterruptCheck& check = {}) const;

  // The same, always in `buffer`. Also replace `alignments`, which has the source of each byte of
  // the text (a whole character), by the source of each byte of the result, as `tokenizers` does:
  // the code points of the result take the characters of the text in order. The first one of a
  // decomposition takes its character, the others share it; a composite takes all its characters
  // and its source is the first one.
  void normalize_aligned(std::string_view text, std::string& buffer,
                         std::vector<ByteRange>& alignments) const;

 private:
  struct Unit {
    std::uint32_t code_point;
    std::uint32_t num_characters;  // of the text, that it takes
    std::uint8_t combining_class;
  };
  struct Span {
    std::size_t start, end;
  };
  using Units = std::vector<Unit>;

  Span next_span(std::string_view text, std::size_t from) const;
  void rewrite(std::string_view span, Units& units) const;

  NormalizationForm form_;
};

}  // namespace tilth::bpe
