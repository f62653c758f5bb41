#include "encode.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "../common/limits.hpp"
#include "../common/pool.hpp"
#include "encode_workspace.hpp"
#include "loading.hpp"
#include "pretokenize.hpp"
#include "whole_tokens.hpp"

namespace tilth::bpe {
namespace {

std::string missing_byte_message(unsigned char byte, std::size_t offset) {
  constexpr char digits[] = "0123456789ABCDEF";
  return std::string("byte 0x") + digits[byte / 16] + digits[byte % 16] + " at offset " +
         std::to_string(offset) + " has no token in this vocabulary";
}

// Pieces are processed in blocks: all are split, hashed and prefetched before the first is looked
// up, which overlaps the cache misses. Without prefetching, OpenWebText takes 1.7 times as long.
constexpr std::size_t block_size = 256;

// Insert the ids of missed pieces before more ids than these would move.
constexpr std::size_t most_moved = std::size_t{1} << 14;

// `make` is make_key or make_key_at_end. A separate function, like the next ones: the compiler then
// keeps all variables in registers.
template <PieceKey (*make)(const char*, std::size_t), typename Pending>
void prepare(const char* const* bounds, std::size_t count, PieceCache::Lines lines,
             Pending* block) {
  const char* start = bounds[0];
  for (std::size_t i = 0; i < count; ++i) {
    const char* const end = bounds[i + 1];
    const auto length = static_cast<std::size_t>(end - start);
    PieceKey key;
    if (length <= longest_key) [[likely]] {
      key = make(start, length);
    } else {
      key = length <= PieceCache::longest_piece ? make_long_key({start, length}) : no_key;
    }
    const PieceCache::Slot* const line = lines.at(hash_key(key));
    __builtin_prefetch(line);
    block[i] = {key, line};
    start = end;
  }
}

// Write the ids of cached pieces to `out`, always four; the next piece overwrites the surplus. Stop
// at a piece that is not in its line or has more than four ids, and return it.
template <typename Pending>
const Pending* write_known(const Pending* piece, const Pending* end, std::uint32_t*& out) {
  std::uint32_t* place = out;
  for (; piece != end; ++piece) {
    const PieceCache::Slot* slot = piece->line;
    // The first slot was filled first, so it tends to have the more frequent piece.
    if (!slot->is_for(piece->key)) [[unlikely]] {
      ++slot;
      if (!slot->is_for(piece->key)) break;
    }
    const std::size_t num_ids = slot->num_ids();
    if (num_ids > PieceCache::most_inline_ids) break;
    std::memcpy(place, slot->ids, sizeof slot->ids);
    place += num_ids;
  }
  out = place;
  return piece;
}

// Ids in the pool, copied after the rest of the block, when the prefetch has finished. By value, as
// the slot may be reused in the meantime.
struct Deferred {
  std::size_t to;  // index in the ids
  std::uint32_t from, num_ids;
};

void copy_deferred(std::span<const Deferred> deferred, const PieceCache& cache, TokenIds& ids) {
  constexpr std::size_t step = PieceCache::most_inline_ids;
  for (const Deferred& list : deferred) {
    const std::uint32_t* const from = cache.pooled(list.from);
    std::uint32_t* const to = ids.data() + list.to;
    // There are more ids than one step; the last step may copy some a second time.
    for (std::size_t i = 0; i + step < list.num_ids; i += step) {
      std::memcpy(to + i, from + i, step * sizeof *to);
    }
    std::memcpy(to + list.num_ids - step, from + list.num_ids - step, step * sizeof *to);
  }
}

}  // namespace

MissingByte::MissingByte(unsigned char byte, std::size_t offset)
    : std::invalid_argument(missing_byte_message(byte, offset)), byte_(byte), offset_(offset) {}

Encoder::Encoder(const EncoderOptions& options)
    : pattern_(options.pattern),
      rules_(options.rules != nullptr ? *options.rules
                                      : MergeRules::from_merges(options.tokens, options.merges)),
      normalizers_(options.normalizers.begin(), options.normalizers.end()),
      table_(options.tokens.size()) {
  const std::span<const Token> tokens = options.tokens;
  std::uint32_t last_id = 0;
  for (const Token& token : tokens) last_id = std::max(last_id, token.id);
  for (const Token& token : options.special_tokens) last_id = std::max(last_id, token.id);
  if (last_id >= max_vocab_size) {
    throw std::invalid_argument("token id " + std::to_string(last_id) + " is too large: at most " +
                                std::to_string(max_vocab_size - 1) + " is possible");
  }
  lengths_.assign(std::size_t{last_id} + 1, 0);

  std::vector<std::uint32_t> places(lengths_.size(), no_token);  // in `tokens`, by id
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    places[tokens[i].id] = static_cast<std::uint32_t>(i);
    lengths_[tokens[i].id] = static_cast<std::uint32_t>(tokens[i].bytes.size());
  }
  std::vector<char> is_special(lengths_.size());
  for (const Token& token : options.special_tokens) {
    const std::uint32_t place = places[token.id];
    if (place != no_token && tokens[place].bytes != token.bytes) {
      throw std::invalid_argument("special token " + std::to_string(token.id) +
                                  " has other bytes than the token of that id");
    }
    lengths_[token.id] = static_cast<std::uint32_t>(token.bytes.size());
    is_special[token.id] = 1;
  }
  // Ids follow the order of training, so low ids are frequent: add them to the table first.
  const std::vector<char> stay_whole = find_kept_tokens(options);
  constexpr std::size_t ahead = 16;  // to overlap the cache misses
  for (std::uint32_t id = 0; id < places.size(); ++id) {
    if (id + ahead < places.size() && places[id + ahead] != no_token) {
      table_.prefetch(tokens[places[id + ahead]].bytes);
    }
    if (places[id] == no_token) continue;
    const std::string_view bytes = tokens[places[id]].bytes;
    if (stay_whole[places[id]] != 0) {
      table_.add(bytes, id);
    } else if (options.whole_piece_first && is_special[id] == 0) {
      whole_pieces_.emplace(bytes, id);  // if two ids have these bytes, the lower one
    }
  }
  set_special_tokens(options);
}

// For each token, whether its bytes merge to it.
std::vector<char> Encoder::find_kept_tokens(const EncoderOptions& options) const {
  const std::span<const Token> tokens = options.tokens;
  std::vector<char> stay_whole(tokens.size());
  if (options.rules != nullptr) {
    std::vector<char> is_made(lengths_.size());
    for (const Merge& merge : options.merges) is_made[merge.result] = 1;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      stay_whole[i] = tokens[i].bytes.size() == 1 || is_made[tokens[i].id] != 0 ? 1 : 0;
    }
    return stay_whole;
  }
  if (auto found = find_whole_tokens(rules_)) {
    found->resize(tokens.size());
    return std::move(*found);
  }
  constexpr std::size_t job_tokens = 1 << 14;
  const std::size_t num_jobs = (tokens.size() + job_tokens - 1) / job_tokens;
  std::vector<Merger> mergers(num_workers_for(num_jobs, loading_threads()));
  run_jobs(num_jobs, mergers.size(), {}, [&](std::size_t job, Worker& worker) {
    const std::size_t first = job * job_tokens, last = std::min(first + job_tokens, tokens.size());
    for (std::size_t i = first; i < last; ++i) {
      const std::span<const Symbol> symbols =
          mergers[worker.index()].merge(rules_, tokens[i].bytes);
      stay_whole[i] = symbols.size() == 1 && symbols[0] == i ? 1 : 0;
    }
  });
  return stay_whole;
}

Encoder::~Encoder() {
  for (auto& slot : workspaces_) delete slot.load();
}

void Encoder::encode(std::string_view text, bool allow_special, TokenIds& ids,
                     const InterruptCheck& check) const {
  Checkout workspace(*this);
  prepare_cache(*workspace, text.size(), 1);
  encode_with(*workspace, text, allow_special, ids, check);
}

void Encoder::prepare_cache(Workspace& workspace, std::size_t text_bytes,
                            std::size_t num_workers) const {
  // All workspaces share the memory of one large cache, down to a quarter of it (20 MB) each: the
  // workers of this call, and those of concurrent calls.
  const std::size_t sharing = std::max(num_workers, num_workspaces_.load());
  const std::size_t divisor = std::bit_ceil(std::min(sharing, std::size_t{4}));
  workspace.cache.prepare(text_bytes, PieceCache::most_lines / divisor);
}

// In slices, which keeps the ids in a small buffer: page faults on new memory cost more than the
// look-ups.
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

// If the encoder is plain, the concatenated tokens are the text, so offsets are the cumulative
// lengths.
void Encoder::encode_with_offsets(std::string_view text, bool allow_special, TokenIds& ids,
                                  Array<ByteRange>& ranges, const InterruptCheck& check) const {
  const std::size_t first = ids.size();
  if (!is_plain_) {
    encode_parts_with_offsets(text, allow_special, ids, ranges, check);
    return;
  }
  encode(text, allow_special, ids, check);
  ranges.reserve_more(ids.size() - first);
  std::uint64_t offset = 0;
  for (const std::uint32_t id : ids.view().subspan(first)) {
    ranges.append({offset, offset + lengths_[id]});
    offset += lengths_[id];
  }
}

void Encoder::encode_with(Workspace& workspace, std::string_view text, bool allow_special,
                          TokenIds& ids, const InterruptCheck& check) const {
  workspace.text = text;
  // Nearly all text has fewer ids than half of its bytes; memory that is not written costs nothing.
  ids.reserve_more(text.size() / 2 + 16);
  if (!is_plain_) {
    encode_parts(workspace, text, allow_special, ids, check);
    return;
  }
  workspace.num_missed = 0;  // after an exception, there may be some
  for (std::size_t start = 0; start < text.size();) {
    SpecialTokens::Found found{text.size(), 0, 0};
    if (allow_special) found = special_tokens_.find(text, start, true);
    const std::string_view segment = text.substr(start, found.start - start);
    encode_known(segment, segment.size(), workspace, ids, check);
    if (found.length > 0) ids.append(found.id);
    start = found.start + found.length;
  }
  insert_missed(workspace, ids);
}

std::size_t Encoder::encode_until(std::string_view text, std::size_t limit, TokenIds& ids,
                                  const InterruptCheck& check) const {
  Checkout workspace(*this);
  workspace->text = text;
  return encode_pieces(text, limit, *workspace, ids, check);
}

std::size_t Encoder::encode_pieces(std::string_view text, std::size_t limit, Workspace& workspace,
                                   TokenIds& ids, const InterruptCheck& check) const {
  workspace.num_missed = 0;  // after an exception, there may be some
  const std::size_t end = encode_known(text, limit, workspace, ids, check);
  insert_missed(workspace, ids);
  return end;
}

// The same without the ids of some pieces, which insert_missed() inserts.
std::size_t Encoder::encode_known(std::string_view text, std::size_t limit, Workspace& workspace,
                                  TokenIds& ids, const InterruptCheck& check) const {
  return pattern_.with_splitter(text, [&](auto splitter) {
    return encode_split(splitter, text, limit, workspace, ids, check);
  });
}

template <typename Splitter>
std::size_t Encoder::encode_split(Splitter splitter, std::string_view text, std::size_t limit,
                                  Workspace& workspace, TokenIds& ids,
                                  const InterruptCheck& check) const {
  const char* bounds[block_size + 1];
  Pending block[block_size];
  Deferred deferred[block_size];

  PieceCache& cache = workspace.cache;
  const char* const limit_end = text.data() + limit;
  // 16 bytes are readable from any piece that starts before this. The limit is the end of the whole
  // text, not of the segment between two special tokens.
  const char* const text_end = workspace.text.data() + workspace.text.size();
  const char* const readable_end = text_end - std::min<std::ptrdiff_t>(15, text_end - text.data());
  std::size_t until_check = pieces_between_checks;
  bounds[0] = text.data();
  for (;;) {
    std::size_t count = splitter.next_ends(bounds + 1, block_size);
    const bool is_last = count == 0 || bounds[count] > limit_end;
    while (count > 0 && bounds[count] > limit_end) --count;

    cache.grow_or_clear();
    std::size_t num_readable = count;
    while (num_readable > 0 && bounds[num_readable - 1] >= readable_end) --num_readable;
    prepare<make_key>(bounds, num_readable, cache.lines(), block);
    prepare<make_key_at_end>(bounds + num_readable, count - num_readable, cache.lines(),
                             block + num_readable);

    ids.reserve_more(PieceCache::many * (count + 1));
    std::uint32_t* out = ids.end();
    std::size_t num_deferred = 0;
    for (std::size_t i = 0;; ++i) {
      i = static_cast<std::size_t>(write_known(block + i, block + count, out) - block);
      if (i == count) break;
      const auto [key, line] = block[i];
      const PieceCache::Slot& slot = line[line->is_for(key) ? 0 : 1];
      const std::size_t place = static_cast<std::size_t>(out - ids.data());
      if (slot.is_for(key) && slot.num_ids() < PieceCache::many) {
        __builtin_prefetch(cache.pooled(slot.ids[0]));
        deferred[num_deferred++] = {place, slot.ids[0], slot.ids[1]};
        out += slot.num_ids();
      } else {
        const std::string_view piece(bounds[i], bounds[i + 1]);
        ids.set_size(place);
        if (piece.size() > PieceCache::longest_piece) {
          encode_whole(piece, workspace, ids);
        } else if (!cache.find(piece, key, hash_key(key), ids)) {
          workspace.missed[workspace.num_missed++] = {key, piece, place};
        }
        ids.reserve_more(PieceCache::many * (count - i + 1));
        out = ids.end();
      }
    }
    ids.set_size(static_cast<std::size_t>(out - ids.data()));
    copy_deferred({deferred, num_deferred}, cache, ids);
    if (workspace.num_missed > Workspace::most_missed - block_size ||
        (workspace.num_missed > 0 && ids.size() - workspace.missed[0].place > most_moved)) {
      insert_missed(workspace, ids);
    }

    bounds[0] = bounds[count];
    if (is_last) return static_cast<std::size_t>(bounds[0] - text.data());
    until_check -= count;
    if (until_check < block_size) {
      until_check = pieces_between_checks;
      if (check) check();
    }
  }
}

// Return the end of the first part of a piece: the first place that no token can span. The parts
// merge independently, by the lemma at MergeRules::may_join, so they can be cached separately. With
// GPT-2's vocabulary, Chinese splits into characters and emoji into single emoji: the long pieces
// of mixed_scripts.txt have 800,000 parts, of which 8,500 are distinct.
std::size_t Encoder::first_part(std::string_view piece) const {
  const auto* bytes = reinterpret_cast<const unsigned char*>(piece.data());
  std::size_t end = 1;
  while (end < piece.size() && rules_.may_join(bytes[end - 1], bytes[end])) ++end;
  return end;
}

// Encode the pieces that were missed, and insert their ids. Together, as one merge waits for the
// look-ups of another: alone, the six new pieces of a block of OpenWebText took 340 ns each.
void Encoder::insert_missed(Workspace& workspace, TokenIds& ids) const {
  const std::span<const Missed> missed(workspace.missed.data(), workspace.num_missed);
  if (missed.empty()) return;
  workspace.num_missed = 0;
  add_missed(missed, workspace);
  TokenIds& inserted = workspace.missed_ids;
  inserted.clear();
  std::size_t ends[Workspace::most_missed];
  for (std::size_t k = 0; k < missed.size(); ++k) {
    encode_missed(missed[k].piece, missed[k].key, workspace, inserted);
    ends[k] = inserted.size();
  }
  // From the last, as ids move to the right.
  ids.reserve_more(inserted.size());
  std::uint32_t* const first = ids.data();
  std::size_t from = ids.size(), to = from + inserted.size();
  ids.set_size(to);
  for (std::size_t k = missed.size(); k-- > 0;) {
    const std::size_t num_known = from - missed[k].place;
    from -= num_known;
    to -= num_known;
    std::memmove(first + to, first + from, num_known * sizeof *first);
    const std::size_t start = k == 0 ? 0 : ends[k - 1];
    to -= ends[k] - start;
    std::memcpy(first + to, inserted.data() + start, (ends[k] - start) * sizeof *first);
  }
}

// Add missed pieces to the cache: those that are tokens, and short ones, which are merged together.
// encode_missed() encodes the others. Merging the parts of longer pieces together too was slower
// with GPT-2's vocabulary: 0.81 of the speed on mixed scripts (1.14 with cl100k).
void Encoder::add_missed(std::span<const Missed> missed, Workspace& workspace) const {
  PieceCache& cache = workspace.cache;
  for (const Missed& each : missed) {
    const std::uint64_t hash = hash_key(each.key);
    table_.prefetch(hash);
    cache.prefetch(hash);
  }
  // The pieces to merge, once each, found by their keys.
  std::array<std::uint16_t, 2 * Workspace::most_missed> slots{};  // index + 1
  std::uint16_t merged[Workspace::most_missed];
  std::size_t num_merged = 0;
  for (std::size_t k = 0; k < missed.size(); ++k) {
    const auto& [key, piece, place] = missed[k];
    if (piece.size() > GroupMerger::longest_piece) continue;
    const std::uint64_t hash = hash_key(key);
    std::size_t slot = hash >> (64 - std::countr_zero(slots.size()));
    while (slots[slot] != 0 && missed[slots[slot] - 1u].piece != piece) {
      slot = (slot + 1) % slots.size();
    }
    if (slots[slot] != 0) continue;
    slots[slot] = static_cast<std::uint16_t>(k + 1);
    const std::uint32_t id = piece.size() <= longest_key ? table_.find(key, hash) : no_token;
    if (id != no_token) {
      cache.add(piece, key, hash, {&id, 1});
    } else if (whole_pieces_.empty() && first_part(piece) == piece.size()) {
      merged[num_merged++] = static_cast<std::uint16_t>(k);
    }
  }
  for (std::size_t first = 0; first < num_merged; first += GroupMerger::most_pieces) {
    const std::size_t count = std::min(num_merged - first, GroupMerger::most_pieces);
    std::string_view pieces[GroupMerger::most_pieces];
    for (std::size_t k = 0; k < count; ++k) pieces[k] = missed[merged[first + k]].piece;
    workspace.group_merger.merge(rules_, {pieces, count});
    for (std::size_t k = 0; k < count; ++k) {
      const std::span<const Symbol> symbols = workspace.group_merger.symbols(k);
      std::uint32_t ids[GroupMerger::longest_piece];
      bool are_tokens = true;
      for (std::size_t j = 0; j < symbols.size(); ++j) {
        are_tokens = are_tokens && rules_.is_token(symbols[j]);
        ids[j] = are_tokens ? rules_.id_of(symbols[j]) : no_token;
      }
      const PieceKey key = missed[merged[first + k]].key;
      if (are_tokens) cache.add(pieces[k], key, hash_key(key), {ids, symbols.size()});
    }
  }
}

// Encode a piece of at most PieceCache::longest_piece bytes, and add it to the cache.
void Encoder::encode_missed(std::string_view piece, PieceKey key, Workspace& workspace,
                            TokenIds& ids) const {
  const std::uint64_t hash = hash_key(key);
  if (workspace.cache.find(piece, key, hash, ids)) return;
  const std::size_t first = ids.size();
  const std::uint32_t id = piece.size() <= longest_key ? table_.find(key, hash) : no_token;
  if (id != no_token) {
    ids.append(id);
  } else {
    encode_whole(piece, workspace, ids);
  }
  workspace.cache.add(piece, key, hash, ids.view().subspan(first));
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
  // GPT-2 has no token of two spaces: a megabyte of spaces took 21 ms through look-ups.
  if (part.size() == 1) {
    const Symbol symbol = rules_.symbol_of(static_cast<unsigned char>(part[0]));
    if (rules_.is_token(symbol)) {
      ids.append(rules_.id_of(symbol));
      return;
    }
  }
  // The cache holds whole pieces. With whole_pieces_ their ids can differ from merging, so parts
  // are not cached.
  if (part.size() > longest_key || !whole_pieces_.empty()) {
    merge_part(part, workspace, ids);
    return;
  }
  const PieceKey key = make_key_at_end(part.data(), part.size());
  const std::uint64_t hash = hash_key(key);
  const std::size_t first = ids.size();
  if (const std::uint32_t id = table_.find(key, hash); id != no_token) {
    ids.append(id);
  } else if (!workspace.cache.find(part, key, hash, ids)) {
    merge_part(part, workspace, ids);
    workspace.cache.add(part, key, hash, ids.view().subspan(first));
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
