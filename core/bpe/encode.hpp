// encode: text to token ids, by byte-level BPE.
//
//     const Token special[] = {{50256, "<|endoftext|>"}};
//     Encoder encoder({.tokens = tokens, .merges = merges, .special_tokens = special});
//     Array<std::uint32_t> ids;
//     encoder.encode("Once upon a time<|endoftext|>", true, ids);
//
// Contract: the ids are those of the definition in merge.hpp for each piece of the splitter, for
// any vocabulary and any bytes. Immutable; any number of threads can use one Encoder at once.
// Throws std::invalid_argument for an inconsistent vocabulary, MissingByte for a byte of the text
// that has no token, std::bad_alloc; after an exception, discard the ids that were appended.
//
// Complexity: linear in the text; a piece that is in the cache costs about one cache line. Memory:
// about 80 bytes per token (4 MB for GPT-2), and one PieceCache for each concurrent thread, of
// which most_kept_workspaces are kept between calls. A cache grows with the number of distinct
// pieces, at most to PieceCache::most_bytes on one thread, and to a quarter of that on four or
// more.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "../common/array.hpp"
#include "../common/interrupt.hpp"
#include "merge.hpp"
#include "pattern.hpp"
#include "piece_table.hpp"
#include "special_tokens.hpp"

namespace tilth::bpe {

using TokenIds = Array<std::uint32_t>;

struct EncoderOptions {
  std::span<const Token> tokens = {};  // any order; ids may have gaps, bytes may have no token
  std::span<const Merge> merges = {};  // in rank order
  std::span<const Token> special_tokens = {};
  Pattern pattern = Pattern::gpt2;
  bool whole_piece_first = false;   // a piece that is a token becomes that token before any merge
  bool merges_are_by_rank = false;  // VocabularyTable::is_by_rank()
};

// A byte of the text has no token and was not merged with its neighbours.
class MissingByte : public std::invalid_argument {
 public:
  MissingByte(unsigned char byte, std::size_t offset);
  unsigned char byte() const { return byte_; }
  std::size_t offset() const { return offset_; }

 private:
  unsigned char byte_;
  std::size_t offset_;
};

class Encoder {
 public:
  static constexpr std::size_t most_kept_workspaces = 16;

  explicit Encoder(const EncoderOptions& options);
  ~Encoder();
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  // Append the ids of a text. With `allow_special`, special tokens are found first and the text
  // between them is encoded separately; otherwise they are encoded as text.
  void encode(std::string_view text, bool allow_special, TokenIds& ids,
              const InterruptCheck& check = {}) const;
  void encode_ordinary(std::string_view text, TokenIds& ids,
                       const InterruptCheck& check = {}) const {
    encode(text, false, ids, check);
  }

  // Return the number of ids, without storing them all.
  std::size_t count(std::string_view text, bool allow_special,
                    const InterruptCheck& check = {}) const;

  // Also append the byte offset at which each token starts, then the length of the text.
  void encode_with_offsets(std::string_view text, bool allow_special, TokenIds& ids,
                           Array<std::uint64_t>& offsets, const InterruptCheck& check = {}) const;

  // Encode several texts on num_threads threads, including the calling thread; fewer if no more can
  // be started. Text i has the ids from row_offsets[i] to row_offsets[i + 1]. The result does not
  // depend on the number of threads. Long texts are cut and shared between threads.
  struct Batch {
    TokenIds ids;
    Array<std::uint64_t> row_offsets;
  };
  Batch encode_batch(std::span<const std::string_view> texts, bool allow_special,
                     std::size_t num_threads, const InterruptCheck& check = {}) const;
  TokenIds encode_parallel(std::string_view text, bool allow_special, std::size_t num_threads,
                           const InterruptCheck& check = {}) const;

  // Cut a text into slices of at least `slice_bytes` (the last may be shorter) whose ids, joined,
  // are the ids of the text. Cuts are before blanks, where a piece always ends. Returns one slice
  // if pieces or special tokens could span a cut, none for an empty text.
  std::vector<std::string_view> cut_at_blanks(std::string_view text, bool allow_special,
                                              std::size_t slice_bytes) const;

  // For text that continues (encode_stream.hpp): append the ids of the pieces that end at or before
  // `limit`, with special tokens encoded as text. Return where the last of these pieces ends.
  std::size_t encode_until(std::string_view text, std::size_t limit, TokenIds& ids,
                           const InterruptCheck& check = {}) const;

  const SpecialTokens& special_tokens() const { return special_tokens_; }
  const Pattern& pattern() const { return pattern_; }

 private:
  struct Workspace;
  class Checkout;

  std::vector<char> find_whole_tokens(std::span<const Token> tokens,
                                      const EncoderOptions& options) const;
  void prepare_cache(Workspace& workspace, std::size_t text_bytes, std::size_t num_workers) const;
  void encode_with(Workspace& workspace, std::string_view text, bool allow_special, TokenIds& ids,
                   const InterruptCheck& check) const;
  std::size_t encode_pieces(std::string_view text, std::size_t limit, Workspace& workspace,
                            TokenIds& ids, const InterruptCheck& check) const;
  template <typename Splitter>
  std::size_t encode_split(Splitter splitter, std::string_view text, std::size_t limit,
                           Workspace& workspace, TokenIds& ids, const InterruptCheck& check) const;
  void encode_missed(std::string_view piece, PieceKey key, Workspace& workspace,
                     TokenIds& ids) const;
  void encode_whole(std::string_view piece, Workspace& workspace, TokenIds& ids) const;
  std::size_t first_part(std::string_view piece) const;
  void encode_part(std::string_view part, Workspace& workspace, TokenIds& ids) const;
  void merge_part(std::string_view part, Workspace& workspace, TokenIds& ids) const;

  struct HashBytes {
    using is_transparent = void;
    std::size_t operator()(std::string_view bytes) const {
      return std::hash<std::string_view>()(bytes);
    }
  };

  Pattern pattern_;
  MergeRules rules_;
  SpecialTokens special_tokens_;
  TokenTable table_;
  std::vector<std::uint32_t> lengths_;  // in bytes, by id; 0 in a gap
  // Tokens that merging does not produce but whole_piece_first does.
  std::unordered_map<std::string, std::uint32_t, HashBytes, std::equal_to<>> whole_pieces_;

  // Unused workspaces. Atomic slots instead of a locked list: if a process forks while a thread
  // holds a lock, the lock stays closed in the child.
  mutable std::array<std::atomic<Workspace*>, most_kept_workspaces> workspaces_{};
};

}  // namespace tilth::bpe
