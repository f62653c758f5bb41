#include "cut.hpp"

#include <algorithm>

#include "characters.hpp"

namespace tilth::bpe {
namespace {

// No splitter looks further beyond the end of a piece: a contraction, or a space of several bytes
// and the character after it (property 2 in count.hpp).
constexpr std::size_t look_ahead_bytes = 16;

// Whether a special token contains U+FFFD: replacing malformed bytes, which follows cutting, could
// then create one.
bool has_replacement_character(const std::vector<std::string>& tokens) {
  return std::any_of(tokens.begin(), tokens.end(), [](const std::string& token) {
    return token.find("\xEF\xBF\xBD") != std::string::npos;
  });
}

std::vector<Token> numbered(const std::vector<std::string>& special_tokens) {
  std::vector<Token> tokens;
  for (const std::string& token : special_tokens) {
    tokens.push_back({static_cast<std::uint32_t>(tokens.size()), token});
  }
  return tokens;
}

bool continues(char byte) { return (byte & 0xC0) == 0x80; }

}  // namespace

Cutter::Cutter(const std::vector<std::string>& special_tokens, const Pattern& pattern)
    : special_tokens_(numbered(special_tokens)),
      may_cut_(pattern.splits_before_blanks() && !has_replacement_character(special_tokens)),
      splits_after_words_(pattern.splits_after_words()) {}

std::size_t Cutter::find_cut(std::string_view text, std::size_t start, std::size_t end) const {
  if (!may_cut_) return std::string_view::npos;
  // A byte that is not a continuation byte starts a character, in malformed text too.
  while (start < end && continues(text[start])) ++start;
  for (bool is_after_word = false; start < end;) {
    const Character character = decode_character(text, start);
    const bool is_word = splits_after_words_ ? character.kind == CharacterClass::letter ||
                                                   character.kind == CharacterClass::number
                                             : character.kind != CharacterClass::space;
    const bool may_begin = splits_after_words_ ? !is_word : text[start] == ' ';
    if (is_after_word && may_begin && !continues(text[start]) &&
        !special_tokens_.spans(text, start)) {
      return start;
    }
    is_after_word = is_word;
    start += character.length;
  }
  return std::string_view::npos;
}

std::uint64_t Cutter::find_cut(const Document& document, std::uint64_t start, std::uint64_t end,
                               DocumentReader& reader, std::vector<char>& window) const {
  end = std::min(end, document.size);
  const std::uint64_t margin = special_tokens_.longest_bytes() + 8;
  const std::uint64_t window_start = start - std::min(start, margin);
  for (std::uint64_t reach = 1024;; reach *= 4) {  // cuts are frequent in text: try nearby first
    const std::uint64_t near_end = std::min(start + reach, end);
    const auto size =
        static_cast<std::size_t>(std::min(near_end + margin, document.size) - window_start);
    window.resize(size);
    reader.read(document, window.data(), size, window_start);
    const std::size_t cut =
        find_cut({window.data(), size}, static_cast<std::size_t>(start - window_start),
                 static_cast<std::size_t>(near_end - window_start));
    if (cut != std::string_view::npos) return window_start + cut;
    if (near_end == end) return no_cut;
  }
}

std::size_t Cutter::decided_size(std::string_view text) const {
  return text.size() - std::min(text.size(), special_tokens_.longest_bytes() + 1);
}

std::size_t Cutter::final_limit(std::string_view text, std::size_t start) const {
  const std::size_t decided = decided_size(text);
  if (!splits_after_words_) return may_cut_ ? last_blank_after_word(text, start, decided) : start;
  if (decided < start + look_ahead_bytes) return start;
  // A run of white space that extends to here is not cut, however long it is. cl100k takes it whole
  // if a special token follows, else it splits after the last line end.
  std::size_t limit = decided - look_ahead_bytes;
  for (std::size_t before = limit; before > start;) {
    do --before;
    while (before > start && continues(text[before]));
    if (decode_character(text, before).kind != CharacterClass::space) break;
    limit = before;
  }
  return limit;
}

}  // namespace tilth::bpe
