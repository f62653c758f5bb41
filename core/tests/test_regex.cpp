#include <string>
#include <string_view>
#include <vector>

#include "check.hpp"
#include "regex.hpp"

using tilth::bpe::Regex;
using tilth::bpe::RegexUnsupported;

namespace {

std::string split(std::string_view pattern, std::string_view text) {
  const Regex regex(pattern);
  std::string joined;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = regex.piece_end(text, start);
    joined += std::string(text.substr(start, end - start)) + "|";
    start = end;
  }
  return joined;
}

bool is_supported(std::string_view pattern) {
  try {
    const Regex regex(pattern);
    return true;
  } catch (const RegexUnsupported&) {
    return false;
  }
}

}  // namespace

int main() {
  // The first alternative that matches wins, not the longest.
  CHECK_EQUAL(split("a|ab", "ab"), "a|b|");
  CHECK_EQUAL(split("ab|a", "aab"), "a|ab|");
  CHECK_EQUAL(split("(?:ab|a)(?:c|bcd)?", "abcd"), "abc|d|");
  // Greedy repetition gives back what the rest needs.
  CHECK_EQUAL(split("a*ab", "aaab"), "aaab|");
  CHECK_EQUAL(split("a{2,3}", "aaaaaa"), "aaa|aaa|");
  CHECK_EQUAL(split("a{2}", "aaa"), "aa|a|");
  // Gaps are pieces.
  CHECK_EQUAL(split("b+", "aabbaa"), "aa|bb|aa|");
  // Lookahead, at the end of the text too.
  CHECK_EQUAL(split(R"(\s+(?!\S)|\s+|\S+)", "a   b  "), "a|  | |b|  |");
  CHECK_EQUAL(split("x(?=y)", "xyx"), "x|yx|");
  // Case, and the long s.
  CHECK_EQUAL(split("(?i:'s)", "a'S'\xC5\xBF'\xC2\xBF"), "a|'S|'\xC5\xBF|'\xC2\xBF|");
  // Escapes and classes.
  CHECK_EQUAL(split(R"([\x41-\x{43}é]+)", "ABCDé"), "ABC|D|é|");
  CHECK_EQUAL(split(R"([^a\-]+)", "bc-a"), "bc|-a|");
  CHECK_EQUAL(split(R"(\p{Lu}\p{Ll}*)", "ÄbcDe1"), "Äbc|De|1|");
  // Malformed bytes count as U+FFFD, one by one.
  CHECK_EQUAL(split(R"(\p{So})", "\xFF\xC3"), "\xFF|\xC3|");

  CHECK_EQUAL(is_supported("[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++"), true);
  for (const std::string_view pattern : {"a++ab",
                                         "a*?",
                                         "^a",
                                         "a$",
                                         ".",
                                         "\\w",
                                         "\\b",
                                         "(a)\\1",
                                         "(?<=a)b",
                                         "(?!ab)c",
                                         "[[:alpha:]]",
                                         "[a&&b]",
                                         "",
                                         "a*",
                                         "a|",
                                         "(?!a)",
                                         "(a*)*",
                                         "(",
                                         ")",
                                         "[a",
                                         "[]a]",
                                         "a{2,1}",
                                         "a{99999}",
                                         "\\p{Greek}",
                                         "\\p{",
                                         "\\x{110000}",
                                         "(?i:\\p{L})",
                                         "(?i:é)",
                                         "a**",
                                         "a{1000}{1000}",
                                         "(?:a{0,40}b{0,40}){40}",
                                         "\\"}) {
    if (is_supported(pattern)) CHECK_EQUAL(std::string(pattern), "refused");
  }
  std::string deep(3000, '(');
  CHECK_EQUAL(is_supported(deep), false);
  std::string exponential = "(?:a|b)*a";  // needs 2**k states
  for (int i = 0; i < 20; ++i) exponential += "(?:a|b)";
  CHECK_EQUAL(is_supported(exponential), false);
  CHECK_EQUAL(Regex(R"(\S+|\s+(?!\S)|\s+)").stops_at_blanks(), true);
  CHECK_EQUAL(Regex(R"(a b|\S+|\s+)").stops_at_blanks(), false);
  CHECK_EQUAL(Regex(R"(\S+|\s+)").matches_every_character(), true);
  CHECK_EQUAL(Regex(R"(\S\S|\s+)").matches_every_character(), false);
}
