#include "normalize.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "characters.hpp"
#include "code_points.hpp"
#include "normalization_tables.hpp"

namespace tilth::bpe {
namespace {

constexpr std::size_t bytes_between_checks = std::size_t{1} << 22;

bool composes(NormalizationForm form) {
  return form == NormalizationForm::nfc || form == NormalizationForm::nfkc;
}

bool is_compatibility(NormalizationForm form) {
  return form == NormalizationForm::nfkc || form == NormalizationForm::nfkd;
}

bool is_plain(std::uint32_t code_point, unsigned form) {
  const std::uint32_t row = quick_block_row[code_point / normalization_block_size];
  const std::uint32_t place = row * normalization_block_size;
  return quick_block_values[place + code_point % normalization_block_size] >> form & 1;
}

const NormalizationRecord& record_of(std::uint32_t code_point) {
  const std::uint32_t row = record_block_row[code_point / normalization_block_size];
  const std::uint32_t place = row * normalization_block_size;
  return normalization_records[record_block_values[place + code_point % normalization_block_size]];
}

// --- Hangul, by arithmetic (section 3.12 of the Unicode Standard)
// ---------------------------------

constexpr std::uint32_t first_syllable = 0xAC00, first_leading = 0x1100, first_vowel = 0x1161,
                        before_trailing = 0x11A7, num_leading = 19, num_vowels = 21,
                        num_trailing = 28, num_syllables = num_leading * num_vowels * num_trailing;

std::uint32_t compose_hangul(std::uint32_t first, std::uint32_t second) {
  if (first - first_leading < num_leading && second - first_vowel < num_vowels) {
    const std::uint32_t block = (first - first_leading) * num_vowels + (second - first_vowel);
    return first_syllable + block * num_trailing;
  }
  const bool has_no_trailing =
      first - first_syllable < num_syllables && (first - first_syllable) % num_trailing == 0;
  const std::uint32_t trailing = second - before_trailing;
  return has_no_trailing && 0 < trailing && trailing < num_trailing ? first + trailing : 0;
}

// Return the primary composite of two code points, or 0.
std::uint32_t compose(std::uint32_t first, std::uint32_t second) {
  if (const std::uint32_t syllable = compose_hangul(first, second); syllable != 0) return syllable;
  const std::uint64_t pair = std::uint64_t{first} << 32 | second;
  const auto* const end = std::end(composition_pairs);
  const auto* const found = std::lower_bound(std::begin(composition_pairs), end, pair);
  return found != end && *found == pair ? composition_results[found - composition_pairs] : 0;
}

void append_utf8(std::uint32_t code_point, std::string& to) {
  const auto put = [&](std::uint32_t byte) { to += static_cast<char>(byte); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

// Return a mask of the bytes at text[place, place + 64) with which a code point starts that may not
// be plain. The others are plain: ASCII, Chinese characters (first bytes E4 to E9) and, in forms
// that compose, Cyrillic (D0, D1) and most Hangul syllables (EB, EC); in NFC, all below U+0300.
std::uint64_t bytes_to_examine(std::string_view text, std::size_t place, NormalizationForm form) {
  char copy[64];
  const char* bytes = text.data() + place;
  if (text.size() - place < sizeof copy) {
    std::memset(copy, 0, sizeof copy);
    std::memcpy(copy, bytes, text.size() - place);
    bytes = copy;
  }
  detail::Bytes16 blocks[4];
  std::memcpy(blocks, bytes, 64);
  // Most blocks of text in Latin letters are ASCII.
  if (detail::top_bits(blocks[0] | blocks[1] | blocks[2] | blocks[3]) == 0) return 0;
  // Bit i: byte i is in [first, first + range].
  const auto bytes_in = [&](std::uint8_t first, std::uint8_t range) {
    std::uint64_t mask = 0;
    for (int i = 0; i < 4; ++i) {
      mask |= detail::top_bits(static_cast<detail::Mask16>(blocks[i] - first <= range)) << 16 * i;
    }
    return mask;
  };
  const std::uint8_t limit = form == NormalizationForm::nfc ? 0xCC : 0xC2;
  const std::uint64_t mask = bytes_in(limit, 0xFF - limit) & ~bytes_in(0xE4, 5);
  return composes(form) ? mask & ~(bytes_in(0xD0, 1) | bytes_in(0xEB, 1)) : mask;
}

// Return whether the code point that starts with text[place] is plain; of malformed bytes,
// anything.
bool may_be_plain(std::string_view text, std::size_t place, unsigned form) {
  const auto byte = [&](std::size_t i) {
    return std::uint32_t{static_cast<unsigned char>(text[i])};
  };
  if ((byte(place) & 0xF0) != 0xE0 || text.size() - place < 3) {
    return is_plain(decode_code_point(text, place).value, form);
  }
  // Without validation, which takes longer than the rest.
  return is_plain(
      (byte(place) & 0x0F) << 12 | (byte(place + 1) & 0x3F) << 6 | (byte(place + 2) & 0x3F), form);
}

}  // namespace

NormalizationForm combined_form(std::span<const NormalizationForm> forms) {
  const bool any_compatibility = std::any_of(forms.begin(), forms.end(), is_compatibility);
  if (composes(forms.back())) {
    return any_compatibility ? NormalizationForm::nfkc : NormalizationForm::nfc;
  }
  return any_compatibility ? NormalizationForm::nfkd : NormalizationForm::nfd;
}

// Return the next span that may not be normalized, from a place where a span may start; at the end
// of the text, an empty one. A span starts at a code point that does not combine with the text
// before it, and ends before the next such code point, so spans are normalized separately.
Normalizer::Span Normalizer::next_span(std::string_view text, std::size_t from) const {
  const auto form = static_cast<unsigned>(form_);
  const auto starts_span = [&](const NormalizationRecord& record) {
    return record.flags >> (4 + form) & 1;
  };
  for (std::size_t block = from; block < text.size();) {
    std::uint64_t mask = bytes_to_examine(text, block, form_);
    std::size_t place = block;
    for (; mask != 0; mask &= mask - 1) {
      place = block + static_cast<std::size_t>(std::countr_zero(mask));
      if (!may_be_plain(text, place, form)) [[unlikely]]
        break;
    }
    if (mask == 0) {
      block += 64;
      continue;
    }

    CodePoint next = decode_code_point(text, place);
    if (is_malformed(next)) {
      from = block = place + 1;
      continue;
    }
    const NormalizationRecord* record = &record_of(next.value);
    std::size_t start = place;
    if (!starts_span(*record) && place > from) {
      const CodePoint base = previous_code_point(text, place);  // plain
      if (!is_malformed(base)) start -= base.length;
    }
    bool is_normalized = true;
    for (std::uint8_t last_class = 0;;) {
      const std::uint8_t combining_class = record->combining_class;
      is_normalized &= (record->flags >> form & 1) != 0;
      is_normalized &= combining_class == 0 || combining_class >= last_class;
      last_class = combining_class;
      place += next.length;
      if (place == text.size()) break;
      next = decode_code_point(text, place);
      record = &record_of(next.value);
      if (starts_span(*record)) break;
    }
    if (!is_normalized) return {start, place};
    from = block = place;
  }
  return {text.size(), text.size()};
}

// Decompose, order and compose again.
void Normalizer::rewrite(std::string_view span, Units& units) const {
  units.clear();
  for (std::size_t place = 0; place < span.size();) {
    const CodePoint source = decode_code_point(span, place);
    place += source.length;
    const NormalizationRecord& record = record_of(source.value);
    const std::uint16_t decomposition =
        is_compatibility(form_) ? record.compatibility : record.canonical;
    if (decomposition == 0) {
      units.push_back({source.value, 1, record.combining_class});
    } else if (decomposition == 1) {
      const std::uint32_t syllable = source.value - first_syllable;
      units.push_back({first_leading + syllable / (num_vowels * num_trailing), 1, 0});
      units.push_back({first_vowel + syllable / num_trailing % num_vowels, 0, 0});
      if (const std::uint32_t trailing = syllable % num_trailing; trailing != 0) {
        units.push_back({before_trailing + trailing, 0, 0});
      }
    } else {
      const std::uint32_t* const code_points = decomposition_pool + decomposition + 1;
      for (std::uint32_t i = 0; i < code_points[-1]; ++i) {
        const std::uint8_t combining_class = record_of(code_points[i]).combining_class;
        units.push_back({code_points[i], i == 0 ? 1u : 0u, combining_class});
      }
    }
  }

  // Order each run of marks by combining class; the sort is stable and takes O(n log n).
  const auto by_class = [](const Unit& a, const Unit& b) {
    return a.combining_class < b.combining_class;
  };
  const auto is_starter = [](const Unit& unit) { return unit.combining_class == 0; };
  for (auto first = units.begin(); first != units.end();) {
    first = std::find_if_not(first, units.end(), is_starter);
    const auto last = std::find_if(first, units.end(), is_starter);
    if (!std::is_sorted(first, last, by_class)) std::stable_sort(first, last, by_class);
    first = last;
  }

  if (!composes(form_)) return;
  // Compose each unit with the last starter, unless a unit between them blocks it: one of the same
  // or a higher class, or another starter.
  std::size_t size = 0, starter = 0;
  bool has_starter = false;
  int last_class = -1;  // of the unit before, after the starter; -1 if there is none
  for (const Unit& unit : units) {
    if (has_starter && last_class < int{unit.combining_class}) {
      Unit& first = units[starter];
      if (const std::uint32_t composite = compose(first.code_point, unit.code_point)) {
        first.code_point = composite;
        first.num_characters += unit.num_characters;
        continue;
      }
    }
    last_class = unit.combining_class;
    if (unit.combining_class == 0) {
      starter = size;
      has_starter = true;
      last_class = -1;
    }
    units[size++] = unit;
  }
  units.resize(size);
}

std::string_view Normalizer::normalize(std::string_view text, std::string& buffer,
                                       const InterruptCheck& check) const {
  Units units;
  std::string rewritten;
  std::size_t copied = 0, checked = 0;  // bytes of the text
  for (Span span = next_span(text, 0); span.start < text.size(); span = next_span(text, span.end)) {
    if (check && span.end - checked > bytes_between_checks) {
      checked = span.end;
      check();
    }
    const std::string_view source = text.substr(span.start, span.end - span.start);
    rewrite(source, units);
    rewritten.clear();
    for (const Unit& unit : units) append_utf8(unit.code_point, rewritten);
    if (rewritten == source) continue;
    if (copied == 0) {
      buffer.clear();
      buffer.reserve(text.size() + text.size() / 8);
    }
    buffer.append(text.substr(copied, span.start - copied)).append(rewritten);
    copied = span.end;
  }
  if (copied == 0) return text;
  return buffer.append(text.substr(copied));
}

void Normalizer::normalize_aligned(std::string_view text, std::string& buffer,
                                   std::vector<ByteRange>& alignments) const {
  buffer.clear();
  std::vector<ByteRange> sources;
  Units units;
  const auto copy = [&](std::size_t start, std::size_t end) {
    buffer.append(text.substr(start, end - start));
    sources.insert(sources.end(), alignments.begin() + static_cast<std::ptrdiff_t>(start),
                   alignments.begin() + static_cast<std::ptrdiff_t>(end));
  };
  std::size_t copied = 0;
  for (Span span = next_span(text, 0); span.start < text.size(); span = next_span(text, span.end)) {
    copy(copied, span.start);
    rewrite(text.substr(span.start, span.end - span.start), units);
    std::size_t place = span.start;
    for (const Unit& unit : units) {
      // A unit that takes no character follows one that does: marks of one decomposition stay in
      // order.
      const ByteRange source = alignments[unit.num_characters > 0 ? place : place - 1];
      for (std::uint32_t i = 0; i < unit.num_characters; ++i) {
        place += decode_code_point(text, place).length;
      }
      append_utf8(unit.code_point, buffer);
      sources.resize(buffer.size(), source);
    }
    copied = span.end;
  }
  copy(copied, text.size());
  alignments.swap(sources);
}

}  // namespace tilth::bpe
