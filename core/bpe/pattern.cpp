#include "pattern.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>

#include "characters.hpp"

namespace tilth::bpe {
namespace {

constexpr std::string_view gpt2_regex =
    R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// A word of o200k is upper-case letters, then lower-case letters; one of the two may be missing.
#define TILTH_LOWER_WORD \
  R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
#define TILTH_UPPER_WORD \
  R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
#define TILTH_CONTRACTION R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"
#define TILTH_SPACES R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"
#define TILTH_LETTERS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|)"
#define TILTH_OTHERS R"(| ?[^\s\p{L}\p{N}]+[\r\n]*)"
#define TILTH_OTHERS_AND_SLASHES R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*)"

constexpr NamedPattern named[] = {
    // \s+(?![\s\S]) is \s+$ without the line end that `$` allows.
    {"cl100k",
     R"('(?i:[sdmt]|ll|ve|re))" TILTH_LETTERS R"(\p{N}{1,3})" TILTH_OTHERS
     R"(|\s+(?![\s\S])|\s*[\r\n]|\s+(?!\S)|\s)",
     {.contractions = Contractions::pieces}},
    {"llama3",
     TILTH_CONTRACTION TILTH_LETTERS R"(\p{N}{1,3})" TILTH_OTHERS TILTH_SPACES,
     {.contractions = Contractions::pieces}},
    {"qwen2",
     TILTH_CONTRACTION TILTH_LETTERS R"(\p{N})" TILTH_OTHERS TILTH_SPACES,
     {.contractions = Contractions::pieces, .has_single_digits = true}},
    {"o200k",
     TILTH_LOWER_WORD TILTH_CONTRACTION "?|" TILTH_UPPER_WORD TILTH_CONTRACTION
                                        R"(?|\p{N}{1,3})" TILTH_OTHERS_AND_SLASHES TILTH_SPACES,
     {.contractions = Contractions::suffixes, .has_case_words = true, .has_slashes = true}},
    {"tekken",
     TILTH_LOWER_WORD "|" TILTH_UPPER_WORD R"(|\p{N})" TILTH_OTHERS_AND_SLASHES TILTH_SPACES,
     {.has_case_words = true, .has_single_digits = true, .has_slashes = true}},
};

const NamedPattern* find_named(std::string_view step) {
  const auto found = std::find_if(std::begin(named), std::end(named), [&](const auto& each) {
    return each.name == step || each.regex == step;
  });
  return found == std::end(named) ? nullptr : found;
}

// The compiled pattern, shared by all users and never freed. An atomic slot instead of a lock: if a
// process forks while a thread holds a lock, the lock stays closed in the child.
std::shared_ptr<const BlockPattern> compiled(const NamedPattern& pattern) {
  static std::array<std::atomic<const BlockPattern*>, std::size(named)> slots{};
  std::atomic<const BlockPattern*>& slot = slots[static_cast<std::size_t>(&pattern - named)];
  const BlockPattern* found = slot.load(std::memory_order_acquire);
  if (found == nullptr) {
    auto made = std::make_unique<const BlockPattern>(pattern.regex, pattern.rules);
    if (slot.compare_exchange_strong(found, made.get(), std::memory_order_acq_rel)) {
      found = made.release();
    }
  }
  return {std::shared_ptr<const BlockPattern>(), found};
}

}  // namespace

std::span<const NamedPattern> named_patterns() { return named; }

const Pattern Pattern::gpt2(Kind::gpt2);
const Pattern Pattern::none(Kind::none);

Pattern::Pattern(std::span<const std::string> steps) : Pattern(Kind::none) {
  if (steps.empty()) return;
  if (steps.size() == 1 && steps[0] == "gpt2") {
    *this = gpt2;
    return;
  }
  if (const NamedPattern* found = find_named(steps[0]); found != nullptr && steps.size() == 1) {
    blocks_ = compiled(*found);
    kind_ = Kind::blocks;
    splits_before_blanks_ = true;
    return;
  }
  if (steps.size() > RegexSplitter::max_steps) throw RegexUnsupported("has too many steps");
  std::vector<Regex> regexes;
  for (const std::string& step : steps) {
    const NamedPattern* const found = find_named(step);
    regexes.emplace_back(step == "gpt2"     ? gpt2_regex
                         : found != nullptr ? found->regex
                                            : std::string_view(step));
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
