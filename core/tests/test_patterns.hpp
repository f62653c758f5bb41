// The patterns that the tests of the core run with: native ones, an automaton that may be cut at
// blanks, two steps, and an automaton with gaps that may not be cut.
#pragma once

#include <string>
#include <vector>

#include "pattern.hpp"

namespace tilth::bpe {

inline std::vector<Pattern> test_patterns() {
  const std::vector<std::vector<std::string>> steps = {{"cl100k"},
                                                       {"llama3"},
                                                       {"qwen2"},
                                                       {"o200k"},
                                                       {"tekken"},
                                                       {R"(\p{N}{1,3})", "gpt2"},
                                                       {R"([ab]+ ?|!(?=\s))"}};
  std::vector<Pattern> patterns = {Pattern::gpt2};
  for (const auto& each : steps) patterns.emplace_back(each);
  return patterns;
}

}  // namespace tilth::bpe
