// reference_bpe: byte-pair encoding by its definition, and random vocabularies. For tests only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../bpe/encode.hpp"
#include "../bpe/pretokenize.hpp"

namespace tilth::bpe {

// A vocabulary that owns its bytes.
struct Vocabulary {
  std::vector<std::pair<std::uint32_t, std::string>> entries;
  std::vector<Merge> merges;
  std::vector<std::pair<std::uint32_t, std::string>> special;
  bool whole_piece_first = false;
  Pattern pattern = Pattern::gpt2;

  static std::vector<Token> as_tokens(
      const std::vector<std::pair<std::uint32_t, std::string>>& list) {
    std::vector<Token> tokens;
    for (const auto& [id, bytes] : list) tokens.push_back({id, bytes});
    return tokens;
  }
};

// The tokens must live only until the Encoder is constructed.
inline Encoder make_encoder(const Vocabulary& vocabulary) {
  const auto tokens = Vocabulary::as_tokens(vocabulary.entries);
  const auto special = Vocabulary::as_tokens(vocabulary.special);
  return Encoder({.tokens = tokens,
                  .merges = vocabulary.merges,
                  .special_tokens = special,
                  .pattern = vocabulary.pattern,
                  .whole_piece_first = vocabulary.whole_piece_first});
}

using Ids = std::vector<std::uint32_t>;

// Encodes by the definition; returns nullopt if a byte has no token.
class ReferenceEncoder {
 public:
  explicit ReferenceEncoder(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {
    for (const auto& [id, bytes] : vocabulary.entries) {
      bytes_[id] = bytes;
      const auto [place, is_new] = ids_.emplace(bytes, id);
      if (!is_new) place->second = std::min(place->second, id);
    }
    for (std::size_t rank = 0; rank < vocabulary.merges.size(); ++rank) {
      const Merge& merge = vocabulary.merges[rank];
      rules_.emplace(std::pair(merge.left, merge.right), std::pair(rank, merge.result));
    }
  }

  std::optional<Ids> encode_piece(const std::string& piece) const {
    if (vocabulary_.whole_piece_first && ids_.contains(piece)) return Ids{ids_.at(piece)};
    return merge_by_list(piece);
  }

  std::optional<Ids> encode(std::string_view text, bool allow_special) const {
    Ids ids;
    std::size_t start = 0;  // of the ordinary text before `place`
    std::size_t place = 0;
    while (place <= text.size()) {
      const std::pair<std::uint32_t, std::string>* longest = nullptr;
      for (const auto& special : vocabulary_.special) {
        if (allow_special && text.substr(place).starts_with(special.second) &&
            (longest == nullptr || special.second.size() > longest->second.size())) {
          longest = &special;
        }
      }
      if (longest == nullptr && place < text.size()) {
        ++place;
        continue;
      }
      for (const std::string& piece : split(text.substr(start, place - start))) {
        const auto piece_ids = encode_piece(piece);
        if (!piece_ids) return std::nullopt;
        ids.insert(ids.end(), piece_ids->begin(), piece_ids->end());
      }
      if (longest == nullptr) break;
      ids.push_back(longest->first);
      place += longest->second.size();
      start = place;
    }
    return ids;
  }

  const std::string& bytes_of(std::uint32_t id) const { return bytes_.at(id); }

 private:
  std::vector<std::string> split(std::string_view text) const {
    std::vector<std::string> pieces;
    vocabulary_.pattern.with_splitter(text, [&](auto splitter) {
      for (auto piece = splitter.next(); !piece.empty(); piece = splitter.next()) {
        pieces.emplace_back(piece);
      }
    });
    return pieces;
  }

  std::optional<Ids> merge_by_list(const std::string& piece) const {
    Ids parts;
    for (const char byte : piece) {
      const auto found = ids_.find(std::string(1, byte));
      if (found == ids_.end()) return std::nullopt;
      parts.push_back(found->second);
    }
    while (true) {
      std::pair<std::size_t, std::size_t> best(~std::size_t{0}, 0);  // rank, place
      for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
        const auto rule = rules_.find({parts[i], parts[i + 1]});
        if (rule != rules_.end()) best = std::min(best, {rule->second.first, i});
      }
      if (best.first == ~std::size_t{0}) return parts;
      parts[best.second] = vocabulary_.merges[best.first].result;
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best.second) + 1);
    }
  }

  const Vocabulary& vocabulary_;
  std::map<std::string, std::uint32_t> ids_;
  std::map<std::uint32_t, std::string> bytes_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::pair<std::size_t, std::uint32_t>> rules_;
};

// The alphabet of the vocabularies below: small, so merges interact; with multi-byte characters.
inline const std::string reference_alphabet = "abc '\n1!\xE3\x81\x82\xC3\xA9";

enum class Oddity { none, shuffled_merges, missing_bytes, duplicates };

// Bytes, then merges of existing tokens; with oddities that training never produces.
inline Vocabulary random_vocabulary(std::mt19937& random, Oddity oddity) {
  Vocabulary vocabulary;
  auto next_id = static_cast<std::uint32_t>(random() % 5);
  const auto add = [&](std::string bytes) {
    vocabulary.entries.emplace_back(next_id, std::move(bytes));
    next_id += static_cast<std::uint32_t>(1 + random() % 3);  // gaps
    return vocabulary.entries.back().first;
  };
  for (const char byte : reference_alphabet) {
    if (oddity == Oddity::missing_bytes && random() % 6 == 0) continue;
    add(std::string(1, byte));
  }
  const std::size_t num_merges = random() % 60;
  for (std::size_t i = 0; i < num_merges && !vocabulary.entries.empty(); ++i) {
    const auto left = vocabulary.entries[random() % vocabulary.entries.size()];
    const auto right = vocabulary.entries[random() % vocabulary.entries.size()];
    const std::string bytes = left.second + right.second;
    if (bytes.size() > 40) continue;
    const auto same = std::find_if(vocabulary.entries.begin(), vocabulary.entries.end(),
                                   [&](const auto& entry) { return entry.second == bytes; });
    if (same != vocabulary.entries.end() && oddity != Oddity::duplicates) continue;
    const bool take_same = same != vocabulary.entries.end() && random() % 2 == 0;
    vocabulary.merges.push_back({left.first, right.first, take_same ? same->first : add(bytes)});
  }
  if (oddity == Oddity::duplicates && !vocabulary.merges.empty()) {
    vocabulary.merges.push_back(vocabulary.merges[random() % vocabulary.merges.size()]);
  }
  if (oddity == Oddity::shuffled_merges) {
    std::shuffle(vocabulary.merges.begin(), vocabulary.merges.end(), random);
  }
  std::shuffle(vocabulary.entries.begin(), vocabulary.entries.end(), random);
  return vocabulary;
}

inline std::string random_text(std::mt19937& random, std::size_t longest) {
  const std::vector<std::string> parts = {
      "a",   "b",        "c",   "ab", "ca",           " ",        " ",
      "'",   "\n",       "1",   "!",  "\xE3\x81\x82", "\xC3\xA9", "  ",
      "aaa", "\xE3\x81", "<s>", "<s", "<s>x y"};
  const std::size_t kinds = 2 + random() % (parts.size() - 1);
  std::string text;
  const std::size_t length = random() % (longest + 1);
  while (text.size() < length) text += parts[random() % kinds];
  return text;
}

}  // namespace tilth::bpe
