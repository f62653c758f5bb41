// Compare the block splitter with the automaton of the same pattern, for every named pattern and
// every set of vector instructions. (tests/tokenizer/test_patterns.py compares with `regex`.)

#include <random>
#include <string>
#include <vector>

#include "../bpe/pattern.hpp"
#include "../bpe/utf8.hpp"
#include "check.hpp"

using namespace tilth::bpe;

namespace {

void check_split(const BlockPattern& pattern, const std::string& text) {
  for (const int level : {0, 1, 2}) {
    BlockSplitter one_by_one(text, pattern, level), in_blocks(text, pattern, level);
    std::vector<const char*> ends(64);  // on the heap: a sanitizer detects overruns
    std::size_t num_ends = 0, taken = 0;
    for (std::size_t start = 0; start < text.size();) {
      const std::size_t end = pattern.regex.piece_end(text, start);
      CHECK_EQUAL(one_by_one.next(), std::string_view(text).substr(start, end - start));
      if (taken == num_ends) {
        num_ends = in_blocks.next_ends(ends.data(), ends.size());
        taken = 0;
        CHECK_EQUAL(num_ends > 0, true);
      }
      CHECK_EQUAL(static_cast<std::size_t>(ends[taken++] - text.data()), end);
      start = end;
    }
    CHECK_EQUAL(one_by_one.next().size(), 0u);
    CHECK_EQUAL(in_blocks.next_ends(ends.data(), ends.size()), 0u);
  }
}

const std::vector<std::string> alphabets[] = {
    {"a", "B", "'", "'s", "'LL", "'tx", " ", "\n", "\r", "\t", "1", "23", "/", "!", "("},
    {" ", "  ", "\n", "\r\n", "\t", "\v", "a", "/", ";"},
    {"a", "A", "\xE6\x97\xA5", "\xC3\xA9", "\xC3\x89", "\xCA\xB0", "\xC7\x85", "'s", "'"},
    {"a",
     "B",
     "'",
     "s",
     " ",
     "\n",
     "\xC5\xBF",
     "\xCC\x81",
     "\xE2\x80\x99",
     "\xC2\xA0",
     "\xE3\x80\x80",
     "\xC2\x85",
     "\xC2\xBD",
     "\xD9\xA1",
     "\xF0\x9F\x98\x80",
     "\xFF",
     "\xC3",
     "1",
     "/",
     "\x1C"},
};

}  // namespace

int main() {
  std::mt19937 random(1);
  for (const NamedPattern& named : named_patterns()) {
    const BlockPattern pattern(named.regex, named.rules);
    for (int byte = 0; byte < 256; ++byte) {
      const std::string one(1, static_cast<char>(byte));
      check_split(pattern, one);
      check_split(pattern, "a" + one + "1" + one + "!" + one + " " + one + "\n" + one);
    }
    // Every place where a character, contraction or run may cross the end of a block.
    for (const char* tail : {"'s", "'llx", "'\xC5\xBF", "  x", "\n  x", "\n  \nx", "!\n/\n x",
                             "\xE3\x80\x80x", "1234567", "aBc", " ", "\n"}) {
      for (std::size_t length = 0; length < 140; ++length) {
        check_split(pattern, std::string(length, 'a') + tail);
        check_split(pattern, std::string(length, ' ') + tail + "a");
        check_split(pattern, std::string(length, '!') + tail + std::string(length, '1'));
      }
    }
    // All characters of two and three bytes, many in each block.
    for (std::uint32_t first = 0x80; first < 0x10000; first += 64) {
      if (first >= 0xD800 && first < 0xE000) continue;
      std::string text, apart;
      for (std::uint32_t i = first; i < first + 64; ++i) {
        std::string one;
        append_utf8(i, [&](char byte) { one += byte; });
        text += one;
        apart += 'a' + one;
      }
      check_split(pattern, text);
      check_split(pattern, apart);
    }
    for (const std::vector<std::string>& alphabet : alphabets) {
      for (int i = 0; i < 3000; ++i) {
        std::string text;
        const std::size_t length = random() % 120;
        for (std::size_t k = 0; k < length; ++k) text += alphabet[random() % alphabet.size()];
        check_split(pattern, text);
      }
    }
  }
}
