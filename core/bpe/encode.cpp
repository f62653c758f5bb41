#include "encode.hpp"

#include <algorithm>
#include <cstring>

#include "encode_workspace.hpp"
#include "pretokenize.hpp"

namespace tilth::bpe {
namespace {

constexpr std::uint32_t most_ids = std::uint32_t{1} << 24;  // what tables by id are made for

constexpr std::size_t pieces_between_checks = std::size_t{1} << 16;  // a few milliseconds
constexpr std::size_t ids_at_once = 8;                               // copied in a row

std::string missing_byte_message(unsigned char byte, std::size_t offset) {
  constexpr char digits[] = "0123456789ABCDEF";
  return std::string("byte 0x") + digits[byte / 16] + digits[byte % 16] + " at offset " +
         std::to_string(offset) + " has no token in this vocabulary";
}

}  // namespace

MissingByte::MissingByte(unsigned char byte, std::size_t offset)
    : std::invalid_argument(missing_byte_message(byte, offset)), byte_(byte), offset_(offset) {}

Encoder::Encoder(const EncoderOptions& options)
    : pattern_(options.pattern),
      rules_(MergeRules::from_merges(options.tokens, options.merges)),
      special_tokens_(options.special_tokens),
      table_(options.tokens.size()) {
  std::vector<Token> by_id(options.tokens.begin(), options.tokens.end());
  std::sort(by_id.begin(), by_id.end(), [](const Token& a, const Token& b) { return a.id < b.id; });
  std::uint32_t last_id = by_id.empty() ? 0 : by_id.back().id;
  for (const Token& token : options.special_tokens) last_id = std::max(last_id, token.id);
  if (last_id >= most_ids) {
    throw std::invalid_argument("token id " + std::to_string(last_id) + " is too large: at most " +
                                std::to_string(most_ids - 1) + " is possible");
  }
  lengths_.assign(std::size_t{last_id} + 1, 0);

  // Ids follow training, so that low ones are frequent: they come first in the table.
  Merger merger;
  for (const Token& token : by_id) {
    lengths_[token.id] = static_cast<std::uint32_t>(token.bytes.size());
    const std::span<const Symbol> symbols = merger.merge(rules_, token.bytes);
    const bool stays_whole = symbols.size() == 1 && rules_.id_of(symbols[0]) == token.id;
    if (stays_whole) {
      table_.add(token.bytes, token.id);
    } else if (options.whole_piece_first) {
      whole_pieces_.emplace(token.bytes, token.id);  // of two ids for the same bytes, the lower
    }
  }
  for (const Token& token : options.special_tokens) {
    const auto same = std::lower_bound(by_id.begin(), by_id.end(), token.id,
                                       [](const Token& a, std::uint32_t id) { return a.id < id; });
    if (same != by_id.end() && same->id == token.id && same->bytes != token.bytes) {
      throw std::invalid_argument("special token " + std::to_string(token.id) +
                                  " has other bytes than the token of that id");
    }
    lengths_[token.id] = static_cast<std::uint32_t>(token.bytes.size());
  }
}

Encoder::~Encoder() {
  for (auto& slot : workspaces_) delete slot.load();
}

void Encoder::encode(std::string_view text, bool allow_special, TokenIds& ids,
                     const InterruptCheck& check) const {
  Checkout workspace(*this);
  encode_with(*workspace, text, allow_special, ids, check);
}

// In slices, so that the ids stay in a small buffer: fresh memory costs more than looking pieces
// up.
std::size_t Encoder::count(std::string_view text, bool allow_special,
                           const InterruptCheck& check) const {
  constexpr std::size_t slice_bytes = std::size_t{1} << 18;
  TokenIds ids;
  std::size_t total = 0;
  for (const std::string_view slice : cut_at_blanks(text, allow_special, slice_bytes)) {
    ids.clear();
    try {
      encode(slice, allow_special, ids, check);
    } catch (const MissingByte& missing) {
      throw MissingByte(missing.byte(),
                        missing.offset() + static_cast<std::size_t>(slice.data() - text.data()));
    }
    total += ids.size();
  }
  return total;
}

// Tokens joined are the text again, so their lengths are all that offsets need.
void Encoder::encode_with_offsets(std::string_view text, bool allow_special, TokenIds& ids,
                                  Buffer<std::uint64_t>& offsets,
                                  const InterruptCheck& check) const {
  const std::size_t first = ids.size();
  encode(text, allow_special, ids, check);
  offsets.reserve_more(ids.size() - first + 1);
  std::uint64_t offset = 0;
  for (const std::uint32_t id : ids.view().subspan(first)) {
    offsets.append(offset);
    offset += lengths_[id];
  }
  offsets.append(offset);
}

void Encoder::encode_with(Workspace& workspace, std::string_view text, bool allow_special,
                          TokenIds& ids, const InterruptCheck& check) const {
  workspace.text = text;
  // A third of the bytes is more ids than most text gives; memory that is not written costs
  // nothing.
  ids.reserve_more(text.size() / 3 + 16);
  for (std::size_t start = 0; start < text.size();) {
    SpecialTokens::Found found{text.size(), 0, 0};
    if (allow_special) found = special_tokens_.find(text, start, true);
    const std::string_view segment = text.substr(start, found.start - start);
    encode_pieces(segment, segment.size(), workspace, ids, check);
    if (found.length > 0) ids.append(found.id);
    start = found.start + found.length;
  }
}

std::size_t Encoder::encode_until(std::string_view text, std::size_t limit, TokenIds& ids,
                                  const InterruptCheck& check) const {
  Checkout workspace(*this);
  workspace->text = text;
  return encode_pieces(text, limit, *workspace, ids, check);
}

std::size_t Encoder::encode_pieces(std::string_view text, std::size_t limit, Workspace& workspace,
                                   TokenIds& ids, const InterruptCheck& check) const {
  switch (pattern_) {
    case Pattern::gpt2:
      return split_and_encode<Gpt2Splitter>(text, limit, workspace, ids, check);
    case Pattern::cl100k:
      return split_and_encode<Cl100kSplitter>(text, limit, workspace, ids, check);
    case Pattern::none:
      return split_and_encode<WholeSplitter>(text, limit, workspace, ids, check);
  }
  throw std::invalid_argument("an Encoder was given a pattern that does not exist");
}

// Pieces are taken in blocks: all are split off, hashed and their table lines asked for before the
// first is looked up, and likewise with cache lines, so that the waits for memory overlap. Against
// one piece at a time (interleaved, same process order) OpenWebText went from 164 to 234 MB/s,
// TinyStories from 359 to 428; asking for cache lines too gave another tenth on all but
// TinyStories.
template <typename Splitter>
std::size_t Encoder::split_and_encode(std::string_view text, std::size_t limit,
                                      Workspace& workspace, TokenIds& ids,
                                      const InterruptCheck& check) const {
  struct Pending {
    PieceKey key;
    std::uint64_t hash;  // or the length of a piece that is too long for a key
    const char* start;
  };
  constexpr std::size_t block_size = 64;
  constexpr PieceKey no_key{~std::uint64_t{0}, ~std::uint64_t{0}};  // no piece is that long
  Pending block[block_size];
  std::uint32_t found_ids[block_size + ids_at_once];
  std::uint8_t missing[block_size + 1];  // the places of those that are not in the table

  const char* const limit_end = text.data() + limit;
  // Of a piece that ends here or before, 16 bytes may be read. The whole text counts, not only what
  // lies between two specials.
  const char* const text_end = workspace.text.data() + workspace.text.size();
  const char* const all_readable = std::min(
      limit_end, text_end - std::min<std::ptrdiff_t>(16, text_end - workspace.text.data()));
  const char* done = text.data();
  const bool may_cut = whole_pieces_.empty();
  std::string_view rest;  // of a long piece that is being cut
  Splitter splitter(text);
  std::size_t until_check = pieces_between_checks;
  std::size_t filled = block_size;
  while (filled == block_size) {
    for (filled = 0; filled < block_size; ++filled) {
      Pending& pending = block[filled];
      const bool is_rest = !rest.empty();
      std::string_view piece = is_rest ? rest : splitter.next();
      const char* const end = piece.data() + piece.size();
      // One branch for all that is rare: the end of the text, a long piece, a part of one.
      if (piece.size() - 1 >= longest_key || end > all_readable || is_rest) [[unlikely]] {
        if (piece.empty() || end > limit_end) break;
        done = end;
        if (may_cut && (is_rest || piece.size() > longest_key)) {
          const std::size_t part = first_part(piece);
          rest = piece.substr(part);
          piece = piece.substr(0, part);
        }
        if (piece.size() > longest_key) {
          pending = {no_key, piece.size(), piece.data()};
          continue;
        }
        const bool is_readable = text_end - piece.data() >= 16;
        pending.key = is_readable ? make_key(piece.data(), piece.size())
                                  : make_key_at_end(piece.data(), piece.size());
      } else {
        done = end;
        pending.key = make_key(piece.data(), piece.size());
      }
      pending.hash = hash_key(pending.key);
      pending.start = piece.data();
      __builtin_prefetch(table_.address(pending.hash));
    }

    std::size_t num_missing = 0;
    for (std::size_t i = 0; i < filled; ++i) {
      const Pending& pending = block[i];
      found_ids[i] = table_.find(pending.key, pending.hash);
      if (found_ids[i] == no_token) {
        __builtin_prefetch(workspace.cache.address(pending.hash));
        missing[num_missing++] = static_cast<std::uint8_t>(i);
      }
    }
    missing[num_missing] = static_cast<std::uint8_t>(filled);

    // From one missing piece to the next, ids are copied in rows, a few too many at a time.
    std::size_t place = 0;
    for (std::size_t m = 0; m <= num_missing; ++m) {
      const std::size_t row = missing[m] - place;
      ids.reserve_more(block_size + ids_at_once);
      for (std::size_t k = 0; k < row; k += ids_at_once) {
        std::memcpy(ids.end() + k, found_ids + place + k, ids_at_once * sizeof(std::uint32_t));
      }
      ids.set_size(ids.size() + row);
      place = std::size_t{missing[m]} + 1;
      if (m == num_missing) break;
      const Pending& pending = block[missing[m]];
      if (pending.key.high == no_key.high) {
        encode_whole({pending.start, pending.hash}, workspace, ids);
      } else {
        encode_short({pending.start, pending.key.high >> 56}, pending.key, pending.hash, workspace,
                     ids);
      }
    }

    until_check -= filled;
    if (until_check < block_size) {
      until_check = pieces_between_checks;
      if (check) check();
    }
  }
  return static_cast<std::size_t>(done - text.data());
}

// Where the first part of a piece ends: the first place that no token could span. The parts merge
// independently. In GPT-2's vocabulary Chinese falls apart into characters, a megabyte of emoji
// into emoji: 800,000 parts of the long pieces of mixed_scripts.txt are 8,500 different ones.
std::size_t Encoder::first_part(std::string_view piece) const {
  const auto* bytes = reinterpret_cast<const unsigned char*>(piece.data());
  std::size_t end = 1;
  while (end < piece.size() && rules_.may_join(bytes[end - 1], bytes[end])) ++end;
  return end;
}

// A piece that is not in the table: from the cache, or merged and put there.
void Encoder::encode_short(std::string_view piece, PieceKey key, std::uint64_t hash,
                           Workspace& workspace, TokenIds& ids) const {
  ids.reserve_more(16);
  const std::size_t first = ids.size();
  const std::size_t found = workspace.cache.find(key, hash, ids.end());
  if (found > 0) {
    ids.set_size(first + found);
    return;
  }
  encode_whole(piece, workspace, ids);
  workspace.cache.add(key, hash, ids.view().subspan(first));
}

void Encoder::encode_whole(std::string_view piece, Workspace& workspace, TokenIds& ids) const {
  if (!whole_pieces_.empty()) {
    if (const auto whole = whole_pieces_.find(piece); whole != whole_pieces_.end()) {
      ids.append(whole->second);
      return;
    }
  }
  const std::size_t part = first_part(piece);
  if (part == piece.size()) {
    merge_part(piece, workspace, ids);
    return;
  }
  encode_part(piece.substr(0, part), workspace, ids);
  for (piece.remove_prefix(part); !piece.empty();) {
    const std::size_t next = first_part(piece);
    encode_part(piece.substr(0, next), workspace, ids);
    piece.remove_prefix(next);
  }
}

void Encoder::encode_part(std::string_view part, Workspace& workspace, TokenIds& ids) const {
  // The cache knows whole pieces. Where those are not always what merging gives, parts stay out.
  if (part.size() > longest_key || !whole_pieces_.empty()) {
    merge_part(part, workspace, ids);
    return;
  }
  ids.reserve_more(16);
  const PieceKey key = make_key_at_end(part.data(), part.size());
  const std::uint64_t hash = hash_key(key);
  const std::size_t first = ids.size();
  if (const std::uint32_t id = table_.find(key, hash); id != no_token) {
    ids.append(id);
  } else if (const std::size_t found = workspace.cache.find(key, hash, ids.end()); found > 0) {
    ids.set_size(first + found);
  } else {
    merge_part(part, workspace, ids);
    workspace.cache.add(key, hash, ids.view().subspan(first));
  }
}

void Encoder::merge_part(std::string_view part, Workspace& workspace, TokenIds& ids) const {
  const std::span<const Symbol> symbols = workspace.merger.merge(rules_, part);
  ids.reserve_more(symbols.size());
  std::uint32_t* out = ids.end();
  const char* place = part.data();
  for (const Symbol symbol : symbols) {
    if (!rules_.is_token(symbol)) {
      throw MissingByte(static_cast<unsigned char>(*place),
                        static_cast<std::size_t>(place - workspace.text.data()));
    }
    *out = rules_.id_of(symbol);
    place += lengths_[*out++];
  }
  ids.set_size(ids.size() + symbols.size());
}

}  // namespace tilth::bpe
