// encode: text to token ids, by byte-level BPE.
//
//     const Token special[] = {{50256, "<|endoftext|>"}};
//     Encoder encoder({.tokens = tokens, .merges = merges, .special_tokens = special});
//     Array<std::uint32_t> ids;
//     encoder.encode("Once upon a time<|endoftext|>", true, ids);
//
// The order of encoding: find special tokens in the text, except normalized ones; normalize the
// rest; find the normalized special tokens; split the rest into pieces; merge each piece.
//
// Contract: the ids are those of the definition in merge.hpp for each piece of the splitter, for
// any vocabulary and any bytes. Immutable; any number of threads can use one Encoder at once.
// Throws std::invalid_argument for an inconsistent vocabulary, MissingByte for a byte of the text
// that has no token, std::bad_alloc; after an exception, discard the ids that were appended.
//
// Complexity: linear in the text; a piece that is in the cache costs about one cache line. Memory:
// about 80 bytes per token (4 MB for GPT-2), and one PieceCache for each concurrent thread, of
// which most_kept_workspaces are kept between calls. A cache grows with the number of distinct
// pieces, at most to PieceCache::most_bytes if there is one, and to a quarter of that if there are
// four or more, also of concurrent calls.
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
#include "normalize.hpp"
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
  bool whole_piece_first = false;     // a piece that is a token becomes that token before any merge
  const MergeRules* rules = nullptr;  // of the merges, if they come from ranks (vocabulary.hpp)
  std::span<const TokenOptions> token_options = {};     // of special tokens
  std::span<const NormalizationForm> normalizers = {};  // applied one after the other
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
  // between them is encoded separately; otherwise they are encoded as text. Text is normalized in
  // both cases.
  void encode(std::string_view text, bool allow_special, TokenIds& ids,
              const InterruptCheck& check = {}) const;
  void encode_ordinary(std::string_view text, TokenIds& ids,
                       const InterruptCheck& check = {}) const {
    encode(text, false, ids, check);
  }

  // Return the number of ids, without storing them all.
  std::size_t count(std::string_view text, bool allow_special,
                    const InterruptCheck& check = {}) const;

  // Also append the bytes of the text that each token comes from. Normalized text refers to whole
  // characters of the text, as Normalizer::normalize_aligned says.
  void encode_with_offsets(std::string_view text, bool allow_special, TokenIds& ids,
                           Array<ByteRange>& ranges, const InterruptCheck& check = {}) const;

  // Call `visit` for each special token with its id and range, and for each normalized text between
  // two of them with no_token and the source of each of its bytes.
  using VisitPart = std::function<void(std::string_view part, std::span<const ByteRange> sources,
                                       std::uint32_t id)>;
  void visit_parts(std::string_view text, bool allow_special, const VisitPart& visit) const;

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

  // Return the last place where cut_at_blanks could cut a text that continues, or 0.
  std::size_t last_cut(std::string_view text, bool allow_special) const;

  // Return whether text is not normalized and special tokens have no options.
  bool is_plain() const { return is_plain_; }

  // For text that continues (encode_stream.hpp), if is_plain(): append the ids of the pieces that
  // end at or before `limit`, with special tokens encoded as text. Return where the last of these
  // pieces ends.
  std::size_t encode_until(std::string_view text, std::size_t limit, TokenIds& ids,
                           const InterruptCheck& check = {}) const;

  // The special tokens that are found in text before it is normalized.
  const SpecialTokens& special_tokens() const { return special_tokens_; }

  // The normalized content of a special token that normalization changes; empty for other ids.
  std::string_view normalized_content(std::uint32_t id) const;
  bool has_normalized_contents() const { return !normalized_contents_.empty(); }
  const Pattern& pattern() const { return pattern_; }

 private:
  struct Workspace;
  class Checkout;
  // A piece of a block: its key, and the line of the cache where it may be.
  struct Pending {
    PieceKey key;
    const PieceCache::Slot* line;
  };
  // A piece that was not in the cache, and the index of its first id among the ids so far.
  struct Missed {
    PieceKey key;
    std::string_view piece;
    std::size_t place;
  };

  std::vector<char> find_kept_tokens(const EncoderOptions& options) const;
  void prepare_cache(Workspace& workspace, std::size_t text_bytes, std::size_t num_workers) const;
  void encode_with(Workspace& workspace, std::string_view text, bool allow_special, TokenIds& ids,
                   const InterruptCheck& check) const;
  void set_special_tokens(const EncoderOptions& options);
  void encode_parts_with_offsets(std::string_view text, bool allow_special, TokenIds& ids,
                                 Array<ByteRange>& ranges, const InterruptCheck& check) const;
  void encode_parts(Workspace& workspace, std::string_view text, bool allow_special, TokenIds& ids,
                    const InterruptCheck& check) const;
  void encode_normalized(Workspace& workspace, std::string_view text, bool allow_special,
                         TokenIds& ids, const InterruptCheck& check) const;
  std::string align(std::string_view text, std::vector<ByteRange>& sources) const;
  bool may_cut(bool allow_special) const;
  bool may_cut_at(std::string_view text, std::size_t place, bool allow_special) const;
  std::size_t encode_pieces(std::string_view text, std::size_t limit, Workspace& workspace,
                            TokenIds& ids, const InterruptCheck& check) const;
  std::size_t encode_known(std::string_view text, std::size_t limit, Workspace& workspace,
                           TokenIds& ids, const InterruptCheck& check) const;
  template <typename Splitter>
  std::size_t encode_split(Splitter splitter, std::string_view text, std::size_t limit,
                           Workspace& workspace, TokenIds& ids, const InterruptCheck& check) const;
  void insert_missed(Workspace& workspace, TokenIds& ids) const;
  void add_missed(std::span<const Missed> missed, Workspace& workspace) const;
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
  SpecialTokens special_tokens_, normalized_tokens_;
  std::vector<NormalizationForm> normalizers_;
  std::unordered_map<std::uint32_t, std::string> normalized_contents_;
  bool is_plain_ = true;
  TokenTable table_;
  std::vector<std::uint32_t> lengths_;  // in bytes, by id; 0 in a gap
  // Tokens that merging does not produce but whole_piece_first does.
  std::unordered_map<std::string, std::uint32_t, HashBytes, std::equal_to<>> whole_pieces_;

  // Unused workspaces. Atomic slots instead of a locked list: if a process forks while a thread
  // holds a lock, the lock stays closed in the child.
  mutable std::array<std::atomic<Workspace*>, most_kept_workspaces> workspaces_{};
  mutable std::atomic<std::size_t> num_workspaces_ = 0;  // in use or kept
};

}  // namespace tilth::bpe
