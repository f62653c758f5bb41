// Compare the splitters with slow matchers that try the alternatives of the pattern in order.
// (test_block_splitter.cpp tests the other patterns.)

#include <random>
#include <string>
#include <thread>
#include <vector>

#include "../bpe/characters.hpp"
#include "../bpe/pretokenize.hpp"
#include "../bpe/utf8.hpp"
#include "check.hpp"

using namespace tilth::bpe;
using Kind = CharacterClass;

namespace {

// Return the end of the match at `start`, trying each alternative from left to right.
std::size_t match_end(std::string_view text, std::size_t start) {
  const auto kind_at = [&](std::size_t i) { return decode_character(text, i).kind; };
  const auto run_end = [&](std::size_t i, Kind kind) {
    while (i < text.size() && kind_at(i) == kind) i += decode_character(text, i).length;
    return i;
  };
  for (const std::string_view ending : {"'s", "'d", "'m", "'t", "'ll", "'ve", "'re"}) {
    if (text.substr(start).starts_with(ending)) return start + ending.size();
  }
  const std::size_t after_blank = start + (text[start] == ' ' ? 1 : 0);
  for (const Kind kind : {Kind::letter, Kind::number, Kind::other}) {
    const std::size_t end = run_end(after_blank, kind);
    if (end > after_blank) return end;
  }
  const std::size_t end = run_end(start, Kind::space);
  if (end == text.size()) return end;
  std::size_t last = start;  // the last space of the run
  for (std::size_t i = start; i < end; i += decode_character(text, i).length) last = i;
  return last > start ? last : end;
}

// All ends of pieces, with this capacity per call.
template <typename Splitter>
std::vector<std::size_t> all_ends(Splitter splitter, const std::string& text,
                                  std::size_t capacity) {
  std::vector<std::size_t> ends;
  std::vector<const char*> some(capacity);  // on the heap: a sanitizer detects overruns
  for (std::size_t count; (count = splitter.next_ends(some.data(), capacity)) > 0;) {
    for (std::size_t i = 0; i < count; ++i) {
      ends.push_back(static_cast<std::size_t>(some[i] - text.data()));
    }
  }
  CHECK_EQUAL(splitter.next_ends(some.data(), capacity), 0u);  // and stays at the end
  return ends;
}

void check_split(const std::string& text) {
  std::vector<std::size_t> ends;
  for (std::size_t start = 0; start < text.size();) {
    start = match_end(text, start);
    ends.push_back(start);
  }
  for (const int level : {0, 1, 2}) {
    Gpt2Splitter splitter(text, level);
    std::size_t start = 0;
    for (const std::size_t end : ends) {
      CHECK_EQUAL(splitter.next(), std::string_view(text).substr(start, end - start));
      start = end;
    }
    CHECK_EQUAL(splitter.next().size(), 0u);
    CHECK_EQUAL(splitter.next().size(), 0u);
    for (const std::size_t capacity : {64u, 100u, 256u}) {
      CHECK_EQUAL(all_ends(Gpt2Splitter(text, level), text, capacity) == ends, true);
    }
  }
}

std::string random_text(std::mt19937& random, const std::vector<std::string>& alphabet) {
  std::string text;
  const std::size_t length = random() % 300;
  for (std::size_t i = 0; i < length; ++i) text += alphabet[random() % alphabet.size()];
  return text;
}

}  // namespace

int main() {
  for (const char* text :
       {"", " ", "  ", "a", "it's  so", "I'll've", "'s's", "''s", "\n's", "x \n y",
        "\xC2\xA0\xC2\xA0z", "\xE3\x80\x80z", "12ab 34", "\xFF\xFE", "\xE2\x82"}) {
    check_split(text);
  }

  // Every single byte, at every place where a character or contraction may span two blocks.
  for (int byte = 0; byte < 256; ++byte) {
    const std::string one(1, static_cast<char>(byte));
    check_split(one);
    check_split("a" + one + "1" + one + "!" + one + " " + one + "\n" + one);
  }
  for (const char* tail :
       {"'s", "'ll", "'llx", "'sx", "  x", "\xE3\x80\x80x", "\xF0\x9F\x99\x82", " "}) {
    for (std::size_t length = 0; length < 200; ++length) {
      check_split(std::string(length, 'a') + tail);
      check_split(std::string(length, ' ') + tail);
      check_split(std::string(length, '!') + tail + std::string(length, 'a'));
    }
  }

  // All characters of two and three bytes, many in each block; also cut short.
  for (std::uint32_t first = 0x80; first < 0x10000; first += 64) {
    if (first >= 0xD800 && first < 0xE000) continue;
    std::string text, apart;
    for (std::uint32_t i = first; i < first + 64; ++i) {
      std::string one;
      append_utf8(i, [&](char byte) { one += byte; });
      text += one;
      apart += 'a' + one;
    }
    check_split(text);
    check_split(apart);
    for (std::size_t i = 60; i < 70; ++i) check_split(text.substr(0, i) + text.substr(i + 1));
  }

  // As many pieces as bytes.
  std::string alternating;
  for (int i = 0; i < 400; ++i) check_split(alternating += i % 2 == 0 ? 'a' : '1');

  std::mt19937 random(1);
  const std::vector<std::string> ascii = {"a", "s", "l",  "t", "'", "'",
                                          " ", " ", "\n", "1", "!", "\t"};
  const std::vector<std::string> mixed = {"a",
                                          "'",
                                          "s",
                                          " ",
                                          " ",
                                          "7",
                                          "?",
                                          "\n",
                                          "\xC3\xA9",
                                          "\xC2\xA0",
                                          "\xE3\x80\x80",
                                          "\xE4\xB8\xAD",
                                          "\xF0\x9F\x99\x82",
                                          "\xD9\xA3",
                                          "\xFF",
                                          "\xE2",
                                          "\x80"};
  for (int i = 0; i < 20'000; ++i) {
    check_split(random_text(random, ascii));
    check_split(random_text(random, mixed));
  }

  // Many threads split at once and share nothing (checked by TSan).
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads.emplace_back([seed, &mixed] {
      std::mt19937 own(seed);
      for (int i = 0; i < 200; ++i) check_split(random_text(own, mixed));
    });
  }
  for (auto& thread : threads) thread.join();
  std::cout << "pretokenize: ok\n";
}
