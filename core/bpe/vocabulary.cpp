#include "vocabulary.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <numeric>
#include <stdexcept>

#include "../common/limits.hpp"
#include "../common/pool.hpp"
#include "code_points.hpp"
#include "hexadecimal.hpp"
#include "loading.hpp"
#include "merge_group.hpp"
#include "piece_table.hpp"
#include "utf8.hpp"

namespace tilth::bpe {
namespace {

constexpr std::size_t block_bytes = std::size_t{1} << 20;

// Pairs that recover_merges searches among all tokens, which is quadratic in a token: about 0.1 s.
constexpr std::size_t most_searched = 2'000'000;

// Of recover_merges: two parts that are not known, the groups of tokens that are worth a thread,
// and how far the places of new rules are prefetched.
constexpr std::pair<Symbol, Symbol> unknown_parts{MergeRules::no_symbol, MergeRules::no_symbol};
constexpr std::size_t jobs_per_thread = 8;
constexpr std::size_t rules_ahead = 8;

// Merge a group of tokens; store the two parts of each that merges to two.
void find_last_two(GroupMerger& merger, const MergeRules& rules, std::span<const Token> tokens,
                   std::pair<Symbol, Symbol>* found) {
  std::array<std::string_view, GroupMerger::most_pieces> pieces;
  std::array<std::size_t, GroupMerger::most_pieces> places;
  std::size_t count = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::string_view bytes = tokens[i].bytes;
    if (bytes.size() < 2 || bytes.size() > GroupMerger::longest_piece) continue;
    pieces[count] = bytes;
    places[count++] = i;
  }
  merger.merge(rules, std::span(pieces).first(count));
  for (std::size_t i = 0; i < count; ++i) {
    const std::span<const Symbol> symbols = merger.symbols(i);
    if (symbols.size() == 2) found[places[i]] = {symbols[0], symbols[1]};
  }
}

std::uint64_t hash_of(std::string_view bytes) {
  const PieceKey key = bytes.size() <= longest_key ? make_key_at_end(bytes.data(), bytes.size())
                                                   : make_long_key(bytes);
  return mix_hash(hash_key(key));
}

std::uint64_t pair_of(std::uint32_t left, std::uint32_t right) {
  return (std::uint64_t{left} + 1) << 32 | right;
}

}  // namespace

std::uint32_t VocabularyTable::find(std::string_view bytes) const {
  return index_.empty() || bytes.empty() ? none : find(bytes, hash_of(bytes));
}

std::uint32_t VocabularyTable::find(std::string_view bytes, std::uint64_t hash) const {
  const std::size_t mask = index_.size() - 1;
  for (std::size_t place = hash & mask; index_[place] != 0; place = (place + 1) & mask) {
    if (index_[place] >> 32 != hash >> 32) continue;
    const auto token = static_cast<std::uint32_t>(index_[place]) - 1;
    if (tokens_[token].bytes == bytes) return token;
  }
  return none;
}

// False if another token has the same bytes.
bool VocabularyTable::insert(std::uint32_t token, std::uint64_t hash) {
  const std::size_t mask = index_.size() - 1;
  std::size_t place = hash & mask;
  for (; index_[place] != 0; place = (place + 1) & mask) {
    if (index_[place] >> 32 != hash >> 32) continue;
    const auto other = static_cast<std::uint32_t>(index_[place]) - 1;
    if (tokens_[other].bytes == tokens_[token].bytes) return false;
  }
  index_[place] = hash >> 32 << 32 | (token + 1);
  return true;
}

void VocabularyTable::reserve(std::size_t num_tokens) {
  const std::size_t slots = std::bit_ceil(2 * std::min(num_tokens, max_tokens) + 2);
  if (slots > index_.size()) grow_index(slots);
}

void VocabularyTable::grow_index(std::size_t slots) {
  index_.assign(slots, 0);
  for (std::uint32_t token = 0; token < num_indexed_; ++token) {
    insert(token, hash_of(tokens_[token].bytes));
  }
}

bool VocabularyTable::add(std::uint32_t id, std::string_view bytes) {
  return append(id, bytes) && finish_tokens();
}

bool VocabularyTable::append(std::uint32_t id, std::string_view bytes) {
  if (id >= max_vocab_size || bytes.empty() || bytes.size() > longest_token) return false;
  if (has_id(id)) return false;
  if (id >= ids_.size()) ids_.resize(std::max<std::size_t>(id + 1, 2 * ids_.size()));
  ids_[id] = true;
  if (blocks_.empty() || blocks_.back().capacity() - blocks_.back().size() < bytes.size()) {
    blocks_.emplace_back().reserve_more(std::max(block_bytes, bytes.size()));
  }
  Array<char>& block = blocks_.back();
  const std::string_view copy(block.end(), bytes.size());
  block.append({bytes.data(), bytes.size()});
  tokens_.push_back({id, copy});
  return tokens_.size() - num_indexed_ < group_size || finish_tokens();
}

bool VocabularyTable::finish_tokens() {
  if (2 * tokens_.size() > index_.size()) {
    grow_index(std::bit_ceil(std::max<std::size_t>(1024, 4 * tokens_.size())));
  }
  std::array<std::uint64_t, group_size> hashes;
  const std::size_t first = num_indexed_;
  for (std::size_t i = first; i < tokens_.size(); ++i) {
    hashes[i - first] = hash_of(tokens_[i].bytes);
    __builtin_prefetch(&index_[hashes[i - first] & (index_.size() - 1)]);
  }
  for (; num_indexed_ < tokens_.size(); ++num_indexed_) {
    if (!insert(static_cast<std::uint32_t>(num_indexed_), hashes[num_indexed_ - first])) {
      return false;
    }
  }
  return true;
}

// In rounds, each of which reads what the one before prefetched: the index, the tokens, their
// bytes, then the pairs. Without them, loading 200,000 merges took twice as long.
bool VocabularyTable::add_merges(std::span<const MergedToken> merges) {
  if (index_.empty()) return merges.empty();
  if (merges_.size() + merges.size() > max_merges) return false;
  struct Side {
    std::string_view bytes;
    std::uint64_t hash;
    std::uint32_t token;
  };
  std::array<std::array<Side, 2>, group_size> sides;
  const std::size_t mask = index_.size() - 1;
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const auto& [bytes, left_size] = merges[i];
    if (left_size == 0 || left_size >= bytes.size()) return false;
    sides[i] = {Side{bytes.substr(0, left_size), 0, none}, Side{bytes.substr(left_size), 0, none}};
    for (Side& side : sides[i]) {
      side.hash = hash_of(side.bytes);
      __builtin_prefetch(&index_[side.hash & mask]);
    }
  }
  const auto each_guess = [&](auto visit) {
    for (std::size_t i = 0; i < merges.size(); ++i) {
      for (const Side& side : sides[i]) {
        const std::uint64_t found = index_[side.hash & mask];
        if (found != 0) visit(tokens_[static_cast<std::uint32_t>(found) - 1]);
      }
    }
  };
  each_guess([](const Token& token) { __builtin_prefetch(&token); });
  each_guess([](const Token& token) { __builtin_prefetch(token.bytes.data()); });

  const std::size_t wanted =
      std::bit_ceil(2 * std::max(merges_.size() + merges.size(), tokens_.size()) + 2);
  if (wanted > pairs_.size()) {
    const std::vector<std::uint64_t> old =
        std::exchange(pairs_, std::vector<std::uint64_t>(wanted));
    for (const std::uint64_t pair : old) {
      if (pair != 0) pairs_[place_of(pair)] = pair;
    }
  }
  for (std::size_t i = 0; i < merges.size(); ++i) {
    for (Side& side : sides[i]) {
      side.token = find(side.bytes, side.hash);
      if (side.token == none) return false;
    }
    __builtin_prefetch(&pairs_[first_place_of(pair_of(sides[i][0].token, sides[i][1].token))]);
  }
  for (std::size_t i = 0; i < merges.size(); ++i) {
    // Merges usually make tokens in the order of their ids.
    std::uint32_t result = last_result_ + 1;
    if (result >= tokens_.size() || tokens_[result].bytes != merges[i].bytes) {
      result = find(merges[i].bytes);
    }
    last_result_ = result;
    if (result == none) return false;
    const std::uint32_t left = sides[i][0].token, right = sides[i][1].token;
    const std::uint64_t pair = pair_of(left, right);
    const std::size_t place = place_of(pair);
    if (pairs_[place] == pair) return false;
    pairs_[place] = pair;
    merges_.push_back({tokens_[left].id, tokens_[right].id, tokens_[result].id});
  }
  return true;
}

// The place of a pair, or the empty place where it belongs.
std::size_t VocabularyTable::place_of(std::uint64_t pair) const {
  std::size_t place = first_place_of(pair);
  while (pairs_[place] != 0 && pairs_[place] != pair) place = (place + 1) & (pairs_.size() - 1);
  return place;
}

std::size_t VocabularyTable::first_place_of(std::uint64_t pair) const {
  return mix_hash(pair) & (pairs_.size() - 1);
}

// The merge of a token is the pair of its last two parts when its bytes alone are merged by rank
// (`recover_merges` in formats/tiktoken.py, with the proof that no other pair makes the token).
// Merges of lower rank are known when a token is reached, and merging always takes the lowest rank.
// So if the known merges leave two parts, these are the parts. If they leave more, a merge of a
// higher rank may be between them, which only a search among all tokens finds.
bool VocabularyTable::recover_merges() {
  for (int byte = 0; byte < 256; ++byte) {
    const char only = static_cast<char>(byte);
    if (find({&only, 1}) == none) return false;
  }
  // Merge a range of tokens by the rules before it, in groups and on several threads. A rule of the
  // range changes nothing if two parts are left: it has a higher rank than those rules, so it comes
  // after them, and only the merge of the token itself joins its two parts. In ranges of a quarter
  // of the tokens before them, 1.2% of o200k leave more than two parts, which are merged again.
  GrowingRules recovered(tokens_);
  std::size_t searched = 0;
  std::vector<std::unique_ptr<GroupMerger>> mergers(
      num_workers_for(max_threads, loading_threads()));
  std::vector<std::pair<Symbol, Symbol>> found;
  for (std::size_t first = 0, last = 0; first < tokens_.size(); first = last) {
    last = std::min(first + std::max(GroupMerger::most_pieces, first / 4), tokens_.size());
    found.assign(last - first, unknown_parts);
    const std::size_t num_jobs =
        (last - first + GroupMerger::most_pieces - 1) / GroupMerger::most_pieces;
    const std::size_t num_workers = num_workers_for(num_jobs / jobs_per_thread, mergers.size());
    run_jobs(num_jobs, num_workers, {}, [&](std::size_t job, Worker& worker) {
      auto& merger = mergers[worker.index()];
      if (merger == nullptr) merger = std::make_unique<GroupMerger>();
      const std::size_t start = first + job * GroupMerger::most_pieces;
      find_last_two(
          *merger, recovered.rules(),
          std::span(tokens_).subspan(start, std::min(GroupMerger::most_pieces, last - start)),
          found.data() + (start - first));
    });
    for (std::size_t i = first; i < last; ++i) {
      if (i + rules_ahead < last) {
        const auto& [left, right] = found[i + rules_ahead - first];
        recovered.rules().prefetch(left, right);
      }
      const std::string_view bytes = tokens_[i].bytes;
      if (bytes.size() < 2) continue;
      std::optional<std::pair<Symbol, Symbol>> parts = found[i - first];
      if (parts == unknown_parts) parts = recovered.last_two(bytes);
      if (!parts) {
        searched += bytes.size() * bytes.size();
        if (searched > most_searched) return false;
        parts = search_last_two(bytes);
      }
      if (!parts) continue;
      recovered.add(parts->first, parts->second, static_cast<std::uint32_t>(i));
      merges_.push_back({tokens_[parts->first].id, tokens_[parts->second].id, tokens_[i].id});
    }
  }
  rules_ = recovered.take();
  return true;
}

std::optional<std::pair<Symbol, Symbol>> VocabularyTable::search_last_two(
    std::string_view bytes) const {
  // Parts by their starts; each round joins the adjacent parts of the lowest rank.
  std::vector<std::size_t> starts(bytes.size() + 1);
  std::iota(starts.begin(), starts.end(), 0);
  while (starts.size() > 3) {
    std::uint32_t lowest = none;
    std::size_t place = 0;
    for (std::size_t k = 0; k + 2 < starts.size(); ++k) {
      const std::uint32_t rank = find(bytes.substr(starts[k], starts[k + 2] - starts[k]));
      if (rank >= lowest) continue;
      lowest = rank;
      place = k;
    }
    if (lowest == none) return std::nullopt;
    starts.erase(starts.begin() + static_cast<std::ptrdiff_t>(place) + 1);
  }
  const std::uint32_t left = find(bytes.substr(0, starts[1])),
                      right = find(bytes.substr(starts[1]));
  if (left == none || right == none) return std::nullopt;
  return std::pair(left, right);
}

// --- tiktoken's ranks ----------------------------------------------------------------------------

namespace {

constexpr auto base64_values = [] {
  std::array<std::int8_t, 256> values{};
  values.fill(-1);
  constexpr std::string_view alphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (std::size_t i = 0; i < alphabet.size(); ++i) {
    values[static_cast<unsigned char>(alphabet[i])] = static_cast<std::int8_t>(i);
  }
  return values;
}();

// Decode strict base64 with padding; false if it is malformed.
bool decode_base64(std::string_view text, std::string& bytes) {
  bytes.clear();
  if (text.empty() || text.size() % 4 != 0) return false;
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  for (std::size_t i = 0; i < text.size(); i += 4) {
    std::uint32_t word = 0;
    for (std::size_t k = 0; k < 4; ++k) {
      const bool is_padding = i + k >= text.size() - padding;
      const int value = is_padding ? 0 : base64_values[static_cast<unsigned char>(text[i + k])];
      if (value < 0) return false;
      word = word << 6 | static_cast<std::uint32_t>(value);
    }
    const char decoded[3] = {static_cast<char>(word >> 16), static_cast<char>(word >> 8),
                             static_cast<char>(word)};
    bytes.append(decoded, 3);
  }
  bytes.resize(bytes.size() - padding);
  return true;
}

// Read a decimal number below max_vocab_size without leading zeros; -1 if there is none.
std::int64_t read_id(const char*& place, const char* end) {
  const char* const first = place;
  std::int64_t value = 0;
  while (place != end && *place >= '0' && *place <= '9' && place - first < 9) {
    value = 10 * value + (*place++ - '0');
  }
  const bool is_valid = place != first && (*first != '0' || place - first == 1) &&
                        (place == end || *place < '0' || *place > '9');
  return is_valid && value < std::int64_t{max_vocab_size} ? value : -1;
}

}  // namespace

std::optional<VocabularyTable> read_ranks(std::string_view content) {
  VocabularyTable table;
  table.reserve(content.size() / 16);  // a line of o200k has 18 bytes
  std::string bytes;
  std::int64_t last_rank = -1;
  const char* place = content.data();
  const char* const end = place + content.size();
  while (place != end) {
    const auto* blank =
        static_cast<const char*>(std::memchr(place, ' ', static_cast<std::size_t>(end - place)));
    if (blank == nullptr || table.tokens().size() == max_tokens) return std::nullopt;
    if (!decode_base64({place, blank}, bytes)) return std::nullopt;
    place = blank + 1;
    const std::int64_t rank = read_id(place, end);
    if (rank <= last_rank || !table.append(static_cast<std::uint32_t>(rank), bytes)) {
      return std::nullopt;
    }
    last_rank = rank;
    if (place != end && *place++ != '\n') return std::nullopt;
  }
  if (table.tokens().empty() || !table.finish_tokens()) return std::nullopt;
  if (!table.recover_merges()) return std::nullopt;
  return table;
}

// --- tokenizer.json ------------------------------------------------------------------------------

namespace {

// The byte that a character of GPT-2's alphabet spells, or -1. A byte whose Latin-1 character is
// visible spells itself; the others are the code points from 256 on, in order.
constexpr auto spelled_bytes = [] {
  std::array<std::int16_t, 324> bytes{};
  bytes.fill(-1);
  std::size_t hidden = 256;
  for (std::int16_t byte = 0; byte < 256; ++byte) {
    const bool is_visible = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
    bytes[is_visible ? static_cast<std::size_t>(byte) : hidden++] = byte;
  }
  return bytes;
}();

// Append the bytes that a text of valid UTF-8 spells; false if a character spells none.
bool append_unspelled(std::string_view spelling, std::string& bytes) {
  for (std::size_t i = 0; i < spelling.size();) {
    const CodePoint found = decode_code_point(spelling, i);
    if (found.value >= spelled_bytes.size() || spelled_bytes[found.value] < 0) return false;
    bytes += static_cast<char>(spelled_bytes[found.value]);
    i += found.length;
  }
  return true;
}

struct Malformed {};  // thrown inside this file only

class JsonReader {
 public:
  explicit JsonReader(std::string_view content) : content_(content) {}

  std::size_t position() {
    skip_space();
    return position_;
  }
  char peek() {
    skip_space();
    return position_ < content_.size() ? content_[position_] : '\0';
  }
  bool take(char c) {
    if (peek() != c) return false;
    ++position_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) throw Malformed();
  }

  // Call visit(key) before each value of an object; it must read the value.
  template <typename Visit>
  void object(Visit visit) {
    expect('{');
    if (take('}')) return;
    std::string key;
    do {
      string(key);
      expect(':');
      visit(key);
    } while (take(','));
    expect('}');
  }

  template <typename Visit>
  void array(Visit visit) {
    expect('[');
    if (take(']')) return;
    do {
      visit();
    } while (take(','));
    expect(']');
  }

  void string(std::string& value) {
    value.clear();
    expect('"');
    for (;;) {
      const std::size_t first = position_;
      while (position_ < content_.size() && content_[position_] != '"' &&
             content_[position_] != '\\' &&
             static_cast<unsigned char>(content_[position_]) >= 0x20) {
        ++position_;
      }
      value.append(content_, first, position_ - first);
      if (position_ == content_.size()) throw Malformed();
      if (content_[position_] == '"') break;
      if (content_[position_] != '\\') throw Malformed();
      escape(value);
    }
    ++position_;
  }

  std::uint32_t id() {
    skip_space();
    const char* place = content_.data() + position_;
    const std::int64_t value = read_id(place, content_.data() + content_.size());
    if (value < 0) throw Malformed();
    position_ = static_cast<std::size_t>(place - content_.data());
    if (position_ < content_.size() && std::strchr(".eE", content_[position_]) != nullptr) {
      throw Malformed();
    }
    return static_cast<std::uint32_t>(value);
  }

  // Skip any value; Python checks what was skipped.
  void skip(int depth = 0) {
    if (depth == 64) throw Malformed();
    const char first = peek();
    std::string unused;
    if (first == '{') {
      object([&](const std::string&) { skip(depth + 1); });
    } else if (first == '[') {
      array([&] { skip(depth + 1); });
    } else if (first == '"') {
      string(unused);
    } else {
      const std::size_t start = position_;
      while (position_ < content_.size() &&
             std::strchr("+-.0123456789truefalsnE", content_[position_]) != nullptr &&
             content_[position_] != '\0') {
        ++position_;
      }
      if (position_ == start) throw Malformed();
    }
  }

 private:
  void skip_space() {
    while (position_ < content_.size() &&
           (content_[position_] == ' ' || content_[position_] == '\n' ||
            content_[position_] == '\r' || content_[position_] == '\t')) {
      ++position_;
    }
  }

  void escape(std::string& value) {
    if (content_.size() - position_ < 2) throw Malformed();
    const char kind = content_[position_ + 1];
    position_ += 2;
    constexpr std::string_view kinds = "\"\\/bfnrt", values = "\"\\/\b\f\n\r\t";
    if (const std::size_t place = kinds.find(kind); place != std::string_view::npos) {
      value += values[place];
      return;
    }
    if (kind != 'u') throw Malformed();
    std::uint32_t code_point = hexadecimal();
    if (code_point >= 0xD800 && code_point < 0xDC00 && content_.substr(position_, 2) == "\\u") {
      position_ += 2;
      const std::uint32_t low = hexadecimal();
      if (low < 0xDC00 || low > 0xDFFF) throw Malformed();
      code_point = 0x10000 + ((code_point - 0xD800) << 10) + (low - 0xDC00);
    }
    if (code_point >= 0xD800 && code_point < 0xE000) throw Malformed();  // a lone surrogate
    append_utf8(code_point, [&](char byte) { value += byte; });
  }

  std::uint32_t hexadecimal() {
    const std::size_t first = position_;
    const std::uint32_t value = read_hexadecimal(content_, position_, 4);
    if (position_ - first != 4) throw Malformed();
    return value;
  }

  std::string_view content_;
  std::size_t position_ = 0;
};

class TokenizerJsonReader {
 public:
  explicit TokenizerJsonReader(std::string_view content) : content_(content), json_(content) {}

  TokenizerJson read() {
    json_.object([&](const std::string& key) {
      if (key != "model") {
        json_.skip();
        return;
      }
      if (std::exchange(has_model_, true)) throw Malformed();
      json_.object([&](const std::string& name) { read_model(name); });
    });
    if (json_.position() != content_.size() || ranges_.size() != 2) throw Malformed();
    std::size_t start = 0;
    for (const auto& [first, last] : ranges_) {
      made_.rest.append(content_, start, first - start);
      made_.rest += content_[first] == '{' ? "{}" : "[]";
      start = last;
    }
    made_.rest.append(content_, start);
    if (are_merges_first_) {
      JsonReader merges(content_.substr(merges_start_));
      read_merges(merges);
    }
    return std::move(made_);
  }

 private:
  void read_model(const std::string& name) {
    if (name != "vocab" && name != "merges") {
      json_.skip();
      return;
    }
    const std::size_t first = json_.position();
    const bool is_vocab = name == "vocab";
    if (std::exchange(is_vocab ? has_vocab_ : has_merges_, true)) throw Malformed();
    if (is_vocab) {
      made_.table.reserve(content_.size() / 64);
      std::string bytes;
      json_.object([&](const std::string& key) {
        bytes.clear();
        if (!append_unspelled(key, bytes)) {
          made_.unspelled.push_back(key);
          bytes = key;
        }
        if (made_.table.tokens().size() == max_tokens || !made_.table.append(json_.id(), bytes)) {
          throw Malformed();
        }
      });
      if (!made_.table.finish_tokens()) throw Malformed();
    } else {
      if (json_.peek() != '[') throw Malformed();
      if (has_vocab_) {
        read_merges(json_);
      } else {  // they need the tokens: read them at the end
        are_merges_first_ = true;
        merges_start_ = first;
        json_.skip();
      }
    }
    ranges_.emplace_back(first, json_.position());
  }

  void read_merges(JsonReader& json) {
    // A group of merges: their bytes, and where each and its right part start.
    std::string bytes, spelling;
    std::vector<std::pair<std::size_t, std::size_t>> starts;
    const auto add_group = [&] {
      std::vector<VocabularyTable::MergedToken> merges;
      for (std::size_t i = 0; i < starts.size(); ++i) {
        const auto& [first, right] = starts[i];
        const std::size_t last = i + 1 < starts.size() ? starts[i + 1].first : bytes.size();
        merges.push_back({std::string_view(bytes).substr(first, last - first), right - first});
      }
      if (!made_.table.add_merges(merges)) throw Malformed();
      starts.clear();
      bytes.clear();
    };
    const auto append = [&](std::string_view part) {
      if (!append_unspelled(part, bytes)) throw Malformed();
    };
    json.array([&] {
      const std::size_t first = bytes.size();
      std::size_t right = 0;
      if (json.peek() == '"') {  // the format until 2024
        json.string(spelling);
        const std::string_view view = spelling;
        const std::size_t blank = view.find(' ');
        if (blank == std::string_view::npos) throw Malformed();
        append(view.substr(0, blank));
        right = bytes.size();
        append(view.substr(blank + 1));
      } else {
        json.expect('[');
        json.string(spelling);
        append(spelling);
        right = bytes.size();
        json.expect(',');
        json.string(spelling);
        append(spelling);
        json.expect(']');
      }
      starts.emplace_back(first, right);
      if (starts.size() == VocabularyTable::group_size) add_group();
    });
    add_group();
  }

  std::string_view content_;
  JsonReader json_;
  TokenizerJson made_;
  std::vector<std::pair<std::size_t, std::size_t>> ranges_;  // of the values to leave out, in order
  std::size_t merges_start_ = 0;
  bool has_model_ = false, has_vocab_ = false, has_merges_ = false, are_merges_first_ = false;
};

}  // namespace

std::optional<TokenizerJson> read_tokenizer_json(std::string_view content) {
  if (well_formed_size(content) != content.size()) return std::nullopt;
  try {
    return TokenizerJsonReader(content).read();
  } catch (const Malformed&) {
    return std::nullopt;
  }
}

// --- writing -------------------------------------------------------------------------------------

namespace {

constexpr auto spellings = [] {
  std::array<std::uint32_t, 256> found{};
  for (std::uint32_t i = 0; i < spelled_bytes.size(); ++i) {
    if (spelled_bytes[i] >= 0) found[static_cast<std::size_t>(spelled_bytes[i])] = i;
  }
  return found;
}();

// Append the JSON string that spells these bytes; all its characters are visible.
void append_spelled(std::string_view bytes, std::string& json) {
  json += '"';
  for (const char byte : bytes) {
    if (byte == '"' || byte == '\\') json += '\\';
    append_utf8(spellings[static_cast<unsigned char>(byte)], [&](char c) { json += c; });
  }
  json += '"';
}

// The tokens of the table and `others` in rising order of their ids; of equal ids, the other.
std::vector<Token> merged_by_id(const VocabularyTable& table, std::span<const Token> others) {
  std::vector<Token> tokens(others.begin(), others.end());
  tokens.insert(tokens.end(), table.tokens().begin(), table.tokens().end());
  const auto by_id = [](const Token& a, const Token& b) { return a.id < b.id; };
  std::stable_sort(tokens.begin(), tokens.end(), by_id);
  const auto same_id = [](const Token& a, const Token& b) { return a.id == b.id; };
  tokens.erase(std::unique(tokens.begin(), tokens.end(), same_id), tokens.end());
  return tokens;
}

// The bytes of each id of the table.
std::vector<std::string_view> bytes_by_id(const VocabularyTable& table) {
  std::vector<std::string_view> bytes;
  for (const Token& token : table.tokens()) {
    if (token.id >= bytes.size()) bytes.resize(token.id + 1);
    bytes[token.id] = token.bytes;
  }
  return bytes;
}

// Byte strings after their lengths.
class Joined {
 public:
  void append(std::string_view part) {
    if (!lengths_.empty()) lengths_ += ' ';
    lengths_ += std::to_string(part.size());
    parts_ += part;
  }
  std::string whole() const { return lengths_ + ':' + parts_; }

 private:
  std::string lengths_, parts_;
};

}  // namespace

VocabularyJson write_vocabulary_json(const VocabularyTable& table, std::span<const Token> named) {
  VocabularyJson json{"{", "["};
  std::size_t place = 0;
  for (const Token& token : merged_by_id(table, named)) {
    if (json.vocab.size() > 1) json.vocab += ", ";
    if (place < named.size() && named[place].id == token.id) {
      json.vocab += named[place++].bytes;
    } else {
      append_spelled(token.bytes, json.vocab);
    }
    json.vocab += ": ";
    json.vocab += std::to_string(token.id);
  }
  json.vocab += '}';
  const std::vector<std::string_view> bytes = bytes_by_id(table);
  for (const Merge& merge : table.merges()) {
    json.merges += json.merges.size() > 1 ? ", [" : "[";
    append_spelled(bytes[merge.left], json.merges);
    json.merges += ", ";
    append_spelled(bytes[merge.right], json.merges);
    json.merges += ']';
  }
  json.merges += ']';
  return json;
}

JoinedVocabulary join_vocabulary(const VocabularyTable& table, std::span<const Token> added) {
  Joined ids, tokens, merges;
  for (const Token& token : merged_by_id(table, added)) {
    ids.append(std::to_string(token.id));
    tokens.append(token.bytes);
  }
  const std::vector<std::string_view> bytes = bytes_by_id(table);
  for (const Merge& merge : table.merges()) {
    merges.append(bytes[merge.left]);
    merges.append(bytes[merge.right]);
  }
  return {ids.whole(), tokens.whole(), merges.whole()};
}

}  // namespace tilth::bpe
