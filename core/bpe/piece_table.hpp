// piece_table: from the bytes of a piece to its token ids, in one cache line.
//
//     PieceCache   the recent pieces of one thread, with their ids
//     TokenTable   tokens that merging reproduces from their bytes, for pieces that are not in the
//                  cache; immutable after construction and shared between threads
//
//     PieceKey key = make_key_at_end("hello", 5);
//     std::uint32_t id = table.find(key, hash_key(key));  // or no_token
//
// Contract: both are incomplete but never wrong. A TokenTable may omit tokens, which merging then
// produces; a PieceCache may drop pieces.
//
// Complexity: a look-up reads one line of 64 bytes; a PieceCache may read a second line and its
// pool. Memory: 32 to 64 bytes per token for the table, PieceCache::most_bytes for a cache.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string_view>
#include <utility>

#include "../common/array.hpp"

namespace tilth::bpe {

static_assert(std::endian::native == std::endian::little, "keys are read as little-endian words");

inline constexpr std::size_t longest_key = 15;
inline constexpr std::uint32_t no_token = 0xFFFFFFFF;

// The bytes of a piece, padded with zeros, and its length in the last byte: different pieces have
// different keys.
struct PieceKey {
  std::uint64_t low, high;
};

namespace detail {

struct KeyMask {
  std::uint64_t low, high;
};
inline constexpr auto key_masks = [] {
  std::array<KeyMask, 16> masks{};
  for (std::size_t length = 0; length < 16; ++length) {
    masks[length].low = length >= 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << 8 * length) - 1;
    masks[length].high = length <= 8 ? 0 : (std::uint64_t{1} << 8 * (length - 8)) - 1;
  }
  return masks;
}();

}  // namespace detail

// 16 bytes must be readable at `bytes`, for any length (1 to 15). Masking avoids a branch on the
// length, which is unpredictable in text.
inline PieceKey make_key(const char* bytes, std::size_t length) {
  PieceKey key;
  std::memcpy(&key, bytes, 16);
  const detail::KeyMask& mask = detail::key_masks[length];
  key.low &= mask.low;
  key.high = (key.high & mask.high) | std::uint64_t{length} << 56;
  return key;
}

// The same if fewer than 16 bytes are readable.
inline PieceKey make_key_at_end(const char* bytes, std::size_t length) {
  char padded[16] = {};
  std::memcpy(padded, bytes, length);
  return make_key(padded, length);
}

// All bits of the key affect the top bits, which the tables use. A 128-bit product would mix the
// other bits too, with twice the instructions.
inline std::uint64_t hash_key(PieceKey key) {
  return key.low * 0x9E3779B97F4A7C15u + key.high * 0xD1B54A32D192ED03u;
}

// A second hash, derived from the first.
inline std::uint64_t mix_hash(std::uint64_t hash) {
  return (hash ^ hash >> 32) * 0xBF58476D1CE4E5B9u;
}

// The key of a piece of more than 15 bytes is a hash: equal keys require a comparison of the bytes.
// It differs from the key of any short piece, whose last byte is not 0, and from no_key.
inline PieceKey make_long_key(std::string_view piece) {
  std::uint64_t hash = 0;
  const auto mix = [&](const char* bytes) {
    PieceKey words;
    std::memcpy(&words, bytes, 16);
    hash = mix_hash(hash_key({words.low ^ hash, words.high}));
  };
  for (std::size_t i = 0; i + 16 < piece.size(); i += 16) mix(piece.data() + i);
  mix(piece.data() + piece.size() - 16);
  return {hash, std::uint64_t{piece.size()} << 1 | 1};
}

inline constexpr PieceKey no_key{0, 2};  // not the key of any piece

// Four slots of 16 bytes per line: up to 12 bytes of a token, 24 bits of its id, its length. 49,000
// of GPT-2's 50,000 tokens are that short; they are 93% of the pieces of English text.
class TokenTable {
 public:
  static constexpr std::size_t longest_token = 12;

  TokenTable() : TokenTable(0) {}
  explicit TokenTable(std::size_t num_tokens) {
    const std::size_t lines = std::bit_ceil(num_tokens / 2 + 2);  // 1 to 2 tokens per line of 4
    slots_ = Array<Slot>::zeros(4 * lines);
    shift_ = 64 - std::countr_zero(lines);
  }

  // A line keeps its first four tokens: add the most frequent first.
  void add(std::string_view token, std::uint32_t id) {
    if (token.size() > longest_token || id > 0xFFFFFF) return;
    const PieceKey key = make_key_at_end(token.data(), token.size());
    Slot* line = slots_.data() + line_of(hash_key(key));
    for (std::size_t i = 0; i < 4; ++i) {
      if (line[i].high != 0) continue;
      line[i] = {key.low, key.high | std::uint64_t{id} << 32};
      return;
    }
  }

  void prefetch(std::uint64_t hash) const { __builtin_prefetch(slots_.data() + line_of(hash)); }
  void prefetch(std::string_view token) const {
    if (token.size() <= longest_token) {
      prefetch(hash_key(make_key_at_end(token.data(), token.size())));
    }
  }

  std::uint32_t find(PieceKey key, std::uint64_t hash) const {
    const Slot* line = slots_.data() + line_of(hash);
    for (std::size_t i = 0; i < 4; ++i) {
      const std::uint64_t difference = line[i].high ^ key.high;
      if (line[i].low == key.low && (difference & 0xFF000000FFFFFFFFu) == 0) {
        return static_cast<std::uint32_t>(difference >> 32);
      }
    }
    return no_token;
  }

 private:
  struct Slot {
    std::uint64_t low, high;  // of the key, with the id in bytes 12 to 14
  };
  std::size_t line_of(std::uint64_t hash) const { return 4 * (hash >> shift_); }

  Array<Slot> slots_;
  int shift_ = 0;
};

// Two slots of 32 bytes per line: the key and up to four ids. Longer lists, and the bytes of long
// pieces, are in a separate pool. Single tokens are cached too: one look-up serves every piece,
// which is faster than trying the TokenTable first (by 20% on OpenWebText). Each piece has two
// possible lines, which fills the cache before it drops pieces. With one line each, 46,000 distinct
// pieces in 131,000 slots lost 8,000 in every pass over the text.
class PieceCache {
 public:
  static constexpr std::size_t longest_piece = 255;  // in bytes; longer pieces are not cached
  static constexpr std::size_t most_inline_ids = 4;
  static constexpr std::size_t first_lines = std::size_t{1} << 12;
  static constexpr std::size_t most_lines = std::size_t{1} << 20;
  static constexpr std::size_t pooled_per_line = 4;
  static constexpr std::size_t most_bytes = most_lines * (64 + 4 * pooled_per_line);  // 80 MB

  struct Slot {
    std::uint64_t low, high;  // of the key, with the number of ids in the top four bits
    std::uint32_t ids[4];     // if there are more than four: their place in the pool, their number

    bool is_for(PieceKey key) const { return ((low ^ key.low) | (high ^ key.high) << 4) == 0; }
    std::size_t num_ids() const { return high >> 60; }  // `many` means `many` or more
  };
  static constexpr std::size_t many = 15;

  // The first line of a piece; a value type, which a loop can keep in registers.
  struct Lines {
    Slot* slots;
    int shift;
    Slot* at(std::uint64_t hash) const { return slots + 2 * (hash >> shift); }
  };

  PieceCache() { resize(first_lines); }

  // Prepare for a text of this size: the cache may grow to `line_limit` lines. It starts with a
  // line for 64 bytes of text, as growing costs more than zeros: OpenWebText took 37 ms with a line
  // for 256 bytes, 32 ms with this. Starting with the tokens of the vocabulary was slower: 52
  // instead of 28 ms for 16 MB of stories with 200,000 tokens.
  void prepare(std::size_t text_bytes, std::size_t line_limit) {
    line_limit_ = line_limit;
    const std::size_t wanted =
        std::min({std::bit_ceil(text_bytes / 64 + 1), line_limit, std::size_t{1} << 17});
    if (wanted > lines_count()) resize(wanted);
  }

  // Grow the cache if it is full, or clear it if the pool is full. Only this function and prepare()
  // move lines.
  void grow_or_clear() {
    if (pool_.size() > most_pooled() / 4 * 3) {
      resize(lines_count(), false);
      pool_.clear();
      added_ = 0;
    } else if (added_ > lines_count() && lines_count() < line_limit_) {
      resize(2 * lines_count());
    }
  }

  const Lines& lines() const { return lines_; }
  const std::uint32_t* pooled(std::uint32_t place) const { return pool_.data() + place; }

  // Append the ids of a piece and return true, if it is cached.
  bool find(std::string_view piece, PieceKey key, std::uint64_t hash,
            Array<std::uint32_t>& ids) const {
    Slot* const first = lines_.at(hash);
    for (const Slot* line : {first, lines_.at(mix_hash(hash))}) {
      // Slots are never emptied, and the second line is used only when the first is full.
      if (line != first && first[1].high == 0) return false;
      for (const Slot* slot : {line, line + 1}) {
        if (!slot->is_for(key)) continue;
        if (slot->num_ids() <= most_inline_ids) {
          ids.append(std::span(slot->ids, slot->num_ids()));
          return true;
        }
        const std::uint32_t* place = pooled(slot->ids[0]);
        if (piece.size() > longest_key) {
          if (std::memcmp(place, piece.data(), piece.size()) != 0) continue;
          place += num_words(piece);
        }
        ids.append({place, slot->ids[1]});
        return true;
      }
    }
    return false;
  }

  // Fetch both lines of a piece.
  void prefetch(std::uint64_t hash) const {
    __builtin_prefetch(lines_.at(hash));
    __builtin_prefetch(lines_.at(mix_hash(hash)));
  }

  // Add a piece that is not cached; no effect while the pool is full, until grow_or_clear().
  void add(std::string_view piece, PieceKey key, std::uint64_t hash,
           std::span<const std::uint32_t> ids) {
    const bool is_long = piece.size() > longest_key;
    Slot slot{key.low, key.high | (is_long ? many : ids.size()) << 60, {}};
    if (slot.num_ids() <= most_inline_ids) {
      std::copy(ids.begin(), ids.end(), slot.ids);
    } else {
      const std::size_t bytes_words = is_long ? num_words(piece) : 0;
      if (pool_.size() + bytes_words + ids.size() > most_pooled()) return;
      slot.ids[0] = static_cast<std::uint32_t>(pool_.size());
      slot.ids[1] = static_cast<std::uint32_t>(ids.size());
      // Once it is not small, reserve all at once: unwritten memory costs nothing, and only memory
      // that has not been written gets large pages.
      pool_.reserve_more(pool_.size() < small_pool ? bytes_words : most_pooled() - pool_.size());
      if (is_long) std::memcpy(pool_.end(), piece.data(), piece.size());
      pool_.set_size(pool_.size() + bytes_words);
      pool_.append(ids);
    }
    ++added_;
    put(slot, hash);
  }

 private:
  static constexpr std::size_t small_pool = std::size_t{1} << 14;

  static std::size_t num_words(std::string_view piece) { return (piece.size() + 3) / 4; }
  std::size_t lines_count() const { return std::size_t{1} << (64 - lines_.shift); }
  std::size_t most_pooled() const { return pooled_per_line * line_limit_; }

  void put(const Slot& slot, std::uint64_t hash) {
    Slot* const first = lines_.at(hash);
    Slot* const second = lines_.at(mix_hash(hash));
    for (Slot* place : {first, first + 1, second, second + 1}) {
      if (place->high == 0) {
        *place = slot;
        return;
      }
    }
    first[1] = first[0];  // the older one is dropped
    first[0] = slot;
  }

  void resize(std::size_t count, bool keep = true) {
    const Array<Slot> old = std::exchange(slots_, Array<Slot>::zeros(2 * count));
    const Lines before = std::exchange(lines_, {slots_.data(), 64 - std::countr_zero(count)});
    if (!keep) return;
    // First the pieces that were in their first line, as in the order of time. In the order of the
    // lines, frequent pieces would move to second slots: OpenWebText took 1.2 times as long.
    for (const bool is_first : {true, false}) {
      for (const Slot& slot : old) {
        if (slot.high == 0) continue;
        const std::uint64_t hash = hash_key({slot.low, slot.high << 4 >> 4});
        const auto line = static_cast<std::size_t>(before.at(hash) - before.slots);
        if ((line == static_cast<std::size_t>(&slot - old.data()) / 2 * 2) == is_first) {
          put(slot, hash);
        }
      }
    }
  }

  Array<Slot> slots_;
  Lines lines_{};
  std::size_t line_limit_ = most_lines;
  std::size_t added_ = 0;  // since the last clear
  Array<std::uint32_t> pool_;
};

}  // namespace tilth::bpe
