// Compare counting with the simple algorithm: repair the text, remove special tokens, split, count.

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "../bpe/count.hpp"
#include "../bpe/pretokenize.hpp"
#include "check.hpp"
#include "test_patterns.hpp"

using namespace tilth::bpe;

namespace {

using Counts = std::map<std::string, std::uint64_t>;

// Whether `bytes` starts with the first `size` bytes of some character.
bool begins_character(std::string_view bytes, std::size_t size, std::size_t& length) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  if (size > bytes.size()) return false;
  if (byte(0) < 0x80)
    length = 1;
  else if (byte(0) >= 0xC2 && byte(0) <= 0xDF)
    length = 2;
  else if (byte(0) >= 0xE0 && byte(0) <= 0xEF)
    length = 3;
  else if (byte(0) >= 0xF0 && byte(0) <= 0xF4)
    length = 4;
  else
    return false;
  if (size > length) return false;
  for (std::size_t i = 1; i < size; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xBF) return false;
  }
  if (size < 2) return true;
  if (byte(0) == 0xE0 && byte(1) < 0xA0) return false;
  if (byte(0) == 0xED && byte(1) > 0x9F) return false;
  if (byte(0) == 0xF0 && byte(1) < 0x90) return false;
  return byte(0) != 0xF4 || byte(1) <= 0x8F;
}

// Equivalent to Python's bytes.decode("utf-8", "replace").
std::string repair(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    std::size_t size = 0, length = 0;
    while (begins_character(bytes, size + 1, length)) ++size;
    if (size > 0 && size == length)
      text += bytes.substr(0, size);
    else
      text += "\xEF\xBF\xBD";
    bytes.remove_prefix(std::max<std::size_t>(1, size));
  }
  return text;
}

Pattern pattern = Pattern::gpt2;  // of all functions below

Counts plain_count(const std::string& bytes, const std::vector<std::string>& special_tokens) {
  const std::string text = repair(bytes);
  Counts counts;
  const auto count = [&](const std::string& segment) {
    pattern.with_splitter(segment, [&](auto splitter) {
      for (auto piece = splitter.next(); !piece.empty(); piece = splitter.next()) {
        ++counts[std::string(piece)];
      }
    });
  };
  std::string segment;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t longest = 0;
    for (const std::string& token : special_tokens) {
      if (std::string_view(text).substr(i).starts_with(token))
        longest = std::max(longest, token.size());
    }
    if (longest == 0) {
      segment += text[i++];
    } else {
      count(segment);
      segment.clear();
      i += longest;
    }
  }
  count(segment);
  return counts;
}

Counts to_map(const PieceCounts& counts) {
  Counts map;
  for (std::size_t i = 0; i < counts.size(); ++i)
    map[std::string(counts.piece(i))] += counts.counts[i];
  CHECK_EQUAL(map.size(), counts.size());  // each piece once
  return map;
}

void check_same(const PieceCounts& actual, const Counts& expected) {
  const Counts map = to_map(actual);
  CHECK_EQUAL(map.size(), expected.size());
  for (const auto& [piece, count] : expected) {
    const auto found = map.find(piece);
    CHECK_EQUAL(found == map.end() ? "no " + piece : found->first, piece);
    CHECK_EQUAL(found->second, count);
  }
}

struct TemporaryFolder {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("tilth-test-count-" + std::to_string(::getpid()));
  TemporaryFolder() { std::filesystem::create_directories(path); }
  ~TemporaryFolder() { std::filesystem::remove_all(path); }
  std::string write(const std::string& name, const std::string& bytes) const {
    const std::string file = (path / name).string();
    std::ofstream(file, std::ios::binary) << bytes;
    return file;
  }
};

PieceCounts count_files(const std::vector<std::string>& paths, const CountOptions& options) {
  PieceCounter counter(options);
  counter.add_files(paths);
  return counter.finish();
}

PieceCounts count_text(std::string_view text, const CountOptions& options) {
  PieceCounter counter(options);
  counter.add_text(text);
  return counter.finish();
}

CountOptions make_options(std::vector<std::string> special_tokens, unsigned num_threads,
                          std::size_t chunk_bytes) {
  CountOptions options;
  options.special_tokens = std::move(special_tokens);
  options.pattern = pattern;
  options.num_threads = num_threads;
  options.chunk_bytes = chunk_bytes;
  return options;
}

template <class Error, class Action>
std::string message_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// Parts that are hard to cut: contractions, runs of spaces, multi-byte characters, malformed bytes.
const std::vector<std::string> alphabet = {"a",
                                           "ll",
                                           "s",
                                           " ",
                                           "  ",
                                           "'",
                                           "'s",
                                           "'re",
                                           "1",
                                           "!",
                                           "\n",
                                           "\r\n",
                                           "<|",
                                           "<|x|>",
                                           "|>",
                                           "\xC3\xA9",
                                           "\xE3\x80\x80",
                                           "\xE4\xB8\xAD",
                                           "\xE3\x80\x82",
                                           "\xF0\x9F\x99\x82",
                                           "\xC3",
                                           "\xE4\xB8",
                                           "\x80",
                                           "\xF0\x9F",
                                           "\xED\xA0\x80",
                                           "\xEF\xBF\xBD",
                                           "<|x y|>"};

void check_random_texts(const TemporaryFolder& folder) {
  const std::vector<std::vector<std::string>> special = {
      {}, {"<|x|>"}, {"<|x|>", "<|x|><|x|>", "a <|"}, {"<|x y|>", "s", "\xEF\xBF\xBD!", "ll ll"}};
  std::mt19937 random(3);
  for (int round = 0; round < 250; ++round) {
    std::string text;
    const std::size_t num_parts = random() % 40, num_letters = 2 + random() % (alphabet.size() - 1);
    for (std::size_t i = 0; i < num_parts; ++i) text += alphabet[random() % num_letters];
    const auto& special_tokens = special[random() % special.size()];
    const Counts expected = plain_count(text, special_tokens);
    const std::string path = folder.write("random.txt", text);
    const unsigned num_threads = round % 16 == 0 ? 3 : 1;
    const PieceCounts whole = count_files({path}, make_options(special_tokens, 1, 1 << 20));
    check_same(whole, expected);
    for (std::size_t chunk = 1; chunk <= text.size() + 1; chunk += 1 + chunk / 6) {
      const auto options = make_options(special_tokens, num_threads, chunk);
      const PieceCounts in_chunks = count_files({path}, options);
      CHECK_EQUAL(in_chunks.bytes == whole.bytes, true);  // in the same order, too
      CHECK_EQUAL(in_chunks.counts == whole.counts, true);
      check_same(count_text(text, options), expected);
    }
  }
}

// A run of spaces is one piece if a special token follows it, and more if anything else does: which
// of the two may show only long after the run began.
void check_long_spaces(const TemporaryFolder& folder) {
  for (const std::string begin : {"a\n", "! \n", "\xE3\x80\x80\r"}) {
    for (const std::string space : {" ", "\xE3\x80\x80"}) {
      for (const std::size_t length : {0u, 2u, 9u, 14u, 30u, 55u}) {
        std::string text = begin;
        for (std::size_t i = 0; i < length; ++i) text += space;
        for (const std::string end : {"<|x|>!", "<|y", "", "\n<|x|>"}) {
          const Counts expected = plain_count(text + end, {"<|x|>"});
          const std::string path = folder.write("spaces.txt", text + end);
          for (std::size_t chunk = 1; chunk <= text.size() + 6; chunk += 1 + chunk / 16) {
            check_same(count_files({path}, make_options({"<|x|>"}, 1, chunk)), expected);
          }
        }
      }
    }
  }
}

void check_large_text(const TemporaryFolder& folder) {
  std::mt19937 random(4);
  std::string text;
  while (text.size() < 600000) {
    for (std::size_t i = 0; i < 1 + random() % 7; ++i)
      text += static_cast<char>('a' + random() % 6);
    text += alphabet[random() % alphabet.size()];
    if (random() % 5000 == 0) text += std::string(30000, "a \n!"[random() % 4]);  // a long piece
  }
  const std::vector<std::string> special_tokens = {"<|x|>"};
  const Counts expected = plain_count(text, special_tokens);
  const std::string path = folder.write("large.txt", text);
  PieceCounts first;
  for (const unsigned num_threads : {1u, 2u, 8u}) {
    for (const std::size_t chunk : {1000u, 50000u, 4000000u}) {
      const PieceCounts counts =
          count_files({path}, make_options(special_tokens, num_threads, chunk));
      check_same(counts, expected);
      if (first.size() == 0) first = counts;
      CHECK_EQUAL(counts.bytes == first.bytes && counts.counts == first.counts, true);
    }
  }
  // Files in any order, and one file per text.
  std::vector<std::string> paths;
  Counts sum;
  for (int i = 0; i < 20; ++i) {
    const std::string part = text.substr(random() % 500000, random() % 3000);
    paths.push_back(folder.write("part" + std::to_string(i), part));
    for (const auto& [piece, count] : plain_count(part, special_tokens)) sum[piece] += count;
  }
  check_same(count_files(paths, make_options(special_tokens, 2, 500)), sum);
  std::reverse(paths.begin(), paths.end());
  check_same(count_files(paths, make_options(special_tokens, 8, 50)), sum);
}

}  // namespace

int main() {
  const TemporaryFolder folder;
  for (const Pattern& each : test_patterns()) {
    pattern = each;
    check_random_texts(folder);
    check_long_spaces(folder);
    check_large_text(folder);
  }
  pattern = Pattern::gpt2;

  // Documents are apart, and counts add up from call to call.
  PieceCounter counter(make_options({"<|x|>"}, 2, 1 << 20));
  counter.add_text("low");
  const std::vector<std::string_view> texts = {"er low", "", "low<|x|>er"};
  counter.add_texts(texts);
  counter.add_files(std::vector<std::string>{folder.write("empty", "")});
  counter.add_files({});
  check_same(counter.finish(), {{"low", 2}, {" low", 1}, {"er", 2}});
  CHECK_EQUAL(counter.finish().size(), 0u);
  counter.add_text("again");
  check_same(counter.finish(), {{"again", 1}});

  // A pipe has no size and no random access.
  const std::string pipe = (folder.path / "pipe").string();
  CHECK_EQUAL(std::system(("mkfifo " + pipe).c_str()), 0);
  std::thread writer([&] { std::ofstream(pipe, std::ios::binary) << "to be or not to be\xC3"; });
  const PieceCounts from_pipe = count_files({pipe}, make_options({}, 2, 5));
  writer.join();
  check_same(from_pipe,
             {{"to", 1}, {" be", 2}, {" or", 1}, {" not", 1}, {" to", 1}, {"\xEF\xBF\xBD", 1}});

  // Errors name the file.
  for (const std::string& path : {std::string("/no/such/file"), folder.path.string()}) {
    const std::string message = message_of<std::runtime_error>([&] { count_files({path}, {}); });
    CHECK_EQUAL(message.starts_with("cannot read " + path + ": "), true);
  }
  CHECK_EQUAL(message_of<std::invalid_argument>([] { count_text("a", make_options({""}, 1, 1)); }),
              "special token 0 is empty");

  // Interruption.
  std::string endless;
  for (int i = 0; i < 3000000; ++i) endless += "word" + std::to_string(i % 300000) + " ";
  CountOptions options = make_options({}, 3, 1 << 16);
  const auto calling_thread = std::this_thread::get_id();
  options.progress = [&](const Progress& progress) {
    CHECK_EQUAL(progress.total, endless.size());
    CHECK_EQUAL(std::this_thread::get_id() == calling_thread, true);
    throw std::out_of_range("stop");
  };
  CHECK_EQUAL(message_of<std::out_of_range>([&] { count_text(endless, options); }), "stop");
}
