#include "pattern.hpp"

#include <algorithm>

#include "characters.hpp"

namespace tilth::bpe {
namespace {

constexpr std::string_view gpt2_regex =
    R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

}  // namespace

const Pattern Pattern::gpt2(Kind::gpt2);
const Pattern Pattern::cl100k(Kind::cl100k);
const Pattern Pattern::none(Kind::none);

Pattern::Pattern(std::span<const std::string> steps) : Pattern(Kind::none) {
  if (steps.empty()) return;
  if (steps.size() == 1 && (steps[0] == "gpt2" || steps[0] == "cl100k")) {
    *this = steps[0] == "gpt2" ? gpt2 : cl100k;
    return;
  }
  if (steps.size() > RegexSplitter::max_steps) throw RegexUnsupported("has too many steps");
  std::vector<Regex> regexes;
  for (const std::string& step : steps) {
    if (step == "cl100k") throw RegexUnsupported("has cl100k as one of several steps");
    regexes.emplace_back(step == "gpt2" ? gpt2_regex : std::string_view(step));
  }
  // No match of any step spans such a place, and the last step has no gaps that could.
  splits_before_blanks_ = regexes.back().matches_every_character() &&
                          std::all_of(regexes.begin(), regexes.end(),
                                      [](const Regex& regex) { return regex.stops_at_blanks(); });
  kind_ = Kind::regexes;
  regexes_ = std::make_shared<const std::vector<Regex>>(std::move(regexes));
}

bool is_blank_after_word(std::string_view text, std::size_t position) {
  if (position == 0 || text[position] != ' ') return false;
  std::size_t before = position - 1;
  while (before > 0 && position - before < 4 && (text[before] & 0xC0) == 0x80) --before;
  const Character character = decode_character(text, before);
  return character.kind != CharacterClass::space && before + character.length == position;
}

std::size_t last_blank_after_word(std::string_view text, std::size_t start, std::size_t end) {
  for (std::size_t position = std::min(end, text.size()); position > start + 1;) {
    if (is_blank_after_word(text, --position)) return position;
  }
  return start;
}

}  // namespace tilth::bpe
