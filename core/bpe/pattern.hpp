// pattern: how text is split into pieces. A native splitter, regular expressions, or not at all.
//
//     const Pattern digits_then_words({R"(\p{N})", "gpt2"});
//     digits_then_words.with_splitter("a 12", [](auto splitter) {
//       splitter.next();  // "a", then " ", "1", "2", and an empty view at the end
//     });
//
// A step is a name ("gpt2", or one of named_patterns) or a regular expression (regex.hpp). Each
// step splits the pieces of the step before it. A single step that has a name is split by vector
// instructions, which is several times as fast as the automaton of the same pattern.
//
// A Pattern is immutable and cheap to copy; splitters refer to it and must not outlive it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "block_splitter.hpp"
#include "pretokenize.hpp"
#include "regex.hpp"

namespace tilth::bpe {

// Splits by regular expressions, one after the other.
class RegexSplitter {
 public:
  static constexpr std::size_t max_steps = 8;

  RegexSplitter(std::string_view text, std::span<const Regex> steps) : text_(text), steps_(steps) {
    ends_[0] = text.size();
  }

  std::string_view next() {
    const std::size_t start = position_;
    if (start == text_.size()) return {};
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      if (ends_[i + 1] > start) continue;  // inside a piece of this step
      ends_[i + 1] = steps_[i].piece_end(text_.substr(0, ends_[i]), start);
    }
    position_ = ends_[steps_.size()];
    return text_.substr(start, position_ - start);
  }

  std::size_t next_ends(const char** ends, std::size_t capacity) {
    std::size_t count = 0;
    for (; count < capacity; ++count) {
      const std::string_view piece = next();
      if (piece.empty()) break;
      ends[count] = piece.data() + piece.size();
    }
    return count;
  }

 private:
  std::string_view text_;
  std::span<const Regex> steps_;
  std::array<std::size_t, max_steps + 1> ends_{};  // the end of the text, then of a piece by step
  std::size_t position_ = 0;
};

struct NamedPattern {
  std::string_view name, regex;
  SplitRules rules;
};
std::span<const NamedPattern> named_patterns();

class Pattern {
 public:
  static const Pattern gpt2, none;  // none: the text is one piece

  // Throws RegexUnsupported for a step that is neither a name nor a supported regular expression.
  explicit Pattern(std::span<const std::string> steps);

  // Call `visit` with a splitter of the text, which has next() and next_ends(); return its result.
  template <typename Visit>
  decltype(auto) with_splitter(std::string_view text, Visit&& visit) const {
    switch (kind_) {
      case Kind::gpt2:
        return visit(Gpt2Splitter(text));
      case Kind::blocks:
        return visit(BlockSplitter(text, *blocks_));
      case Kind::regexes:
        return visit(RegexSplitter(text, *regexes_));
      case Kind::none:
        break;
    }
    return visit(WholeSplitter(text));
  }

  // Return whether a piece ends before every blank (U+0020) that follows a character other than
  // white space, and nothing before it depends on the text after it: text may be cut there.
  bool splits_before_blanks() const { return splits_before_blanks_; }

  // Return whether the pattern splits wherever a letter or number is followed by another character,
  // and looks at most at a run of white space after a piece: GPT-2, cl100k, Llama 3, Qwen.
  bool splits_after_words() const {
    return kind_ == Kind::gpt2 || (kind_ == Kind::blocks && !blocks_->rules.has_case_words);
  }

  bool operator==(const Pattern&) const = default;

 private:
  enum class Kind : std::uint8_t { none, gpt2, blocks, regexes };
  explicit Pattern(Kind kind) : kind_(kind), splits_before_blanks_(kind != Kind::none) {}

  Kind kind_;
  bool splits_before_blanks_;
  std::shared_ptr<const BlockPattern> blocks_;
  std::shared_ptr<const std::vector<Regex>> regexes_;
};

// Return whether text[position] is a blank after a character other than white space.
bool is_blank_after_word(std::string_view text, std::size_t position);

// Return the last such position in text[start, end), or `start`.
std::size_t last_blank_after_word(std::string_view text, std::size_t start, std::size_t end);

}  // namespace tilth::bpe
