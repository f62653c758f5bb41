// piece_table: from the bytes of a short piece to its token ids, in one cache line.
//
//     TokenTable   the tokens that stay whole when merged; made once, shared between threads
//     PieceCache   other pieces that one thread has met lately, with what they became
//
//     PieceKey key = make_key_at_end("hello", 5);
//     std::uint32_t id = table.find(key, hash_key(key));  // or no_token
//
// Promise: a look-up reads one line of 64 bytes and never a chain; a key is at most 15 bytes. A
// TokenTable may leave tokens out (they are found through the cache then), a PieceCache forgets:
// neither is ever wrong. Bounds: 32 to 64 bytes a token for the table, PieceCache::most_bytes for a
// cache.
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

#include "buffer.hpp"

namespace tilth::bpe {

static_assert(std::endian::native == std::endian::little, "keys are read as little-endian words");

inline constexpr std::size_t longest_key = 15;
inline constexpr std::uint32_t no_token = 0xFFFFFFFF;

// The bytes of a piece, zeros behind them, and its length in the last byte: two pieces have the
// same key only if they are the same.
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

// Zeros that begin at a cache line. From calloc, so that lines which are never written cost
// nothing.
template <typename T>
class ZeroedLines {
 public:
  ZeroedLines() = default;
  explicit ZeroedLines(std::size_t size) {
    const std::size_t bytes = size * sizeof(T);
    const std::size_t alignment = bytes < large_page ? 64 : large_page;
    std::size_t space = bytes + alignment;
    memory_.reset(std::calloc(space, 1));
    if (memory_ == nullptr) throw std::bad_alloc();
    void* place = memory_.get();
    data_ = static_cast<T*>(std::align(alignment, bytes, place, space));
    prefer_large_pages(data_, bytes);
  }
  T* data() const { return data_; }

 private:
  static constexpr std::size_t large_page = std::size_t{2} << 20;
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::unique_ptr<void, Free> memory_;
  T* data_ = nullptr;
};

}  // namespace detail

// `bytes` must be readable for 16 bytes, whatever the length (1 to 15): reading them all and
// masking has no branch on the length, which text makes unpredictable.
inline PieceKey make_key(const char* bytes, std::size_t length) {
  PieceKey key;
  std::memcpy(&key, bytes, 16);
  const detail::KeyMask& mask = detail::key_masks[length];
  key.low &= mask.low;
  key.high = (key.high & mask.high) | std::uint64_t{length} << 56;
  return key;
}

// The same where fewer than 16 bytes are readable.
inline PieceKey make_key_at_end(const char* bytes, std::size_t length) {
  char padded[16] = {};
  std::memcpy(padded, bytes, length);
  return make_key(padded, length);
}

inline std::uint64_t hash_key(PieceKey key) {
  __extension__ typedef unsigned __int128 Wide;
  const Wide product = Wide{key.low ^ 0x9E3779B97F4A7C15u} * (key.high ^ 0xD1B54A32D192ED03u);
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

// Four slots of 16 bytes a line: up to 12 bytes of a token, 24 bits of its id, its length. 49,000
// of GPT-2's 50,000 tokens are that short, and they make up 93 of 100 pieces of English.
class TokenTable {
 public:
  static constexpr std::size_t longest_token = 12;

  TokenTable() : TokenTable(0) {}
  explicit TokenTable(std::size_t num_tokens) {
    const std::size_t lines = std::bit_ceil(num_tokens / 2 + 2);  // 1 to 2 tokens a line of 4
    slots_ = detail::ZeroedLines<Slot>(4 * lines);
    mask_ = lines - 1;
  }

  // Of tokens that share a line the first four stay: add the most frequent first.
  void add(std::string_view token, std::uint32_t id) {
    if (token.size() > longest_token || id > 0xFFFFFF) return;
    const PieceKey key = make_key_at_end(token.data(), token.size());
    Slot* line = line_of(hash_key(key));
    for (std::size_t i = 0; i < 4; ++i) {
      if (line[i].high != 0) continue;
      line[i] = {key.low, key.high | std::uint64_t{id} << 32};
      return;
    }
  }

  const void* address(std::uint64_t hash) const { return line_of(hash); }

  std::uint32_t find(PieceKey key, std::uint64_t hash) const {
    const Slot* line = line_of(hash);
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
  Slot* line_of(std::uint64_t hash) const { return slots_.data() + 4 * (hash & mask_); }

  detail::ZeroedLines<Slot> slots_;
  std::uint64_t mask_ = 0;
};

// Two slots of 32 bytes a line: the key and up to four ids; longer lists lie in a pool beside. A
// piece may lie in either of two lines, which lets the cache fill up before anything is lost. With
// one line each, 46,000 different pieces in 131,000 slots lost 8,000 at every pass over their text.
class PieceCache {
 public:
  static constexpr std::size_t first_lines = std::size_t{1} << 12;
  static constexpr std::size_t most_lines = std::size_t{1} << 17;
  static constexpr std::size_t most_pooled_ids = std::size_t{1} << 19;
  static constexpr std::size_t most_bytes = most_lines * 64 + most_pooled_ids * 4;  // 10 MB

  PieceCache() { resize(first_lines); }

  const void* address(std::uint64_t hash) const { return first_line(hash); }

  // Writes the ids of a piece to `out`, which has room for 16, and returns their number; 0 if the
  // piece is not here.
  std::size_t find(PieceKey key, std::uint64_t hash, std::uint32_t* out) const {
    const Slot* slot = find_in(first_line(hash), key);
    if (slot == nullptr) slot = find_in(second_line(hash), key);
    if (slot == nullptr) return 0;
    std::memcpy(out, slot->ids, sizeof slot->ids);  // all four: no branch on the count
    const std::size_t count = slot->high >> 60;
    if (count != pooled) return count;
    std::memcpy(out, pool_.data() + slot->ids[0], 16 * sizeof(std::uint32_t));
    return slot->ids[1];
  }

  // Remember a piece that is not here, of at most 15 ids.
  void add(PieceKey key, std::uint64_t hash, std::span<const std::uint32_t> ids) {
    if (pool_.size() + 16 > most_pooled_ids) clear();
    if (++added_ > num_lines_ && num_lines_ < most_lines) {
      resize(std::min(8 * num_lines_, most_lines));
    }
    Slot slot{key.low, key.high | std::uint64_t{ids.size()} << 60, {}};
    if (ids.size() <= 4) {
      std::copy(ids.begin(), ids.end(), slot.ids);
    } else {
      slot.high = key.high | pooled << 60;
      slot.ids[0] = static_cast<std::uint32_t>(pool_.size());
      slot.ids[1] = static_cast<std::uint32_t>(ids.size());
      pool_.reserve_more(32);  // find() reads 16 from any place
      pool_.append(ids);
    }
    put(slot, hash);
  }

 private:
  static constexpr std::uint64_t count_bits = std::uint64_t{0xF} << 60;
  static constexpr std::uint64_t pooled = 5;
  struct Slot {
    std::uint64_t low, high;  // of the key; the top four bits count the ids
    std::uint32_t ids[4];     // or the place in the pool and the number of ids there
  };

  Slot* first_line(std::uint64_t hash) const { return slots_.data() + 2 * (hash >> shift_); }
  Slot* second_line(std::uint64_t hash) const {
    return slots_.data() + 2 * (std::rotl(hash, 32) >> shift_);
  }

  static const Slot* find_in(const Slot* line, PieceKey key) {
    for (std::size_t i = 0; i < 2; ++i) {
      if (line[i].low == key.low && ((line[i].high ^ key.high) & ~count_bits) == 0) return line + i;
    }
    return nullptr;
  }

  void put(const Slot& slot, std::uint64_t hash) {
    Slot* const first = first_line(hash);
    Slot* const second = second_line(hash);
    for (Slot* place : {first, first + 1, second, second + 1}) {
      if (place->high == 0) {
        *place = slot;
        return;
      }
    }
    first[1] = first[0];  // the older one goes
    first[0] = slot;
  }

  void clear() {
    resize(num_lines_, false);
    pool_.clear();
  }

  void resize(std::size_t lines, bool keep = true) {
    const detail::ZeroedLines<Slot> old =
        std::exchange(slots_, detail::ZeroedLines<Slot>(2 * lines));
    const std::size_t old_slots = 2 * std::exchange(num_lines_, lines);
    shift_ = 64 - std::countr_zero(lines);
    for (std::size_t i = 0; keep && i < old_slots; ++i) {
      const Slot& slot = old.data()[i];
      if (slot.high != 0) put(slot, hash_key({slot.low, slot.high & ~count_bits}));
    }
    added_ = 0;
  }

  detail::ZeroedLines<Slot> slots_;
  std::size_t num_lines_ = 0;
  std::size_t added_ = 0;  // since the last resize
  int shift_ = 0;
  Buffer<std::uint32_t> pool_;
};

}  // namespace tilth::bpe
