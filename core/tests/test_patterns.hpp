// The patterns that the tests of the core run with: native ones, an automaton that may be cut at
// blanks, two steps, and an automaton with gaps that may not be cut.
#pragma once

#include <string>
#include <vector>

#include "pattern.hpp"

namespace tilth::bpe {

inline std::vector<Pattern> test_patterns() {
  const std::string o200k =
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
      R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const std::vector<std::vector<std::string>> steps = {
      {o200k}, {R"(\p{N}{1,3})", "gpt2"}, {R"([ab]+ ?|!(?=\s))"}};
  std::vector<Pattern> patterns = {Pattern::gpt2, Pattern::cl100k};
  for (const auto& each : steps) patterns.emplace_back(each);
  return patterns;
}

}  // namespace tilth::bpe
