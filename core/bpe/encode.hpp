// encode: text to token ids, byte-level BPE, exactly and quickly.
//
//     const Token special[] = {{50256, "<|endoftext|>"}};
//     Encoder encoder({.tokens = tokens, .merges = merges, .special_tokens = special});
//     Array<std::uint32_t> ids;
//     encoder.encode("Once upon a time<|endoftext|>", true, ids);
//
// Promise: what comes out is what the definition in merge.hpp gives for each piece of the splitter,
// for any vocabulary. Complete when made and unchanged from outside; one Encoder serves any number
// of threads at once. Time is linear in the text; a text whose pieces have been met before costs
// about one cache line a piece. Any bytes may come in.
//
// Memory: about 80 bytes a token (4 MB for GPT-2), and for each thread that encodes at the same
// time a cache of at most PieceCache::most_bytes, of which at most most_kept_workspaces are kept
// between calls.
//
// Throws std::invalid_argument for a vocabulary that contradicts itself, MissingByte for a byte of
// the text that has no token, std::bad_alloc; what has been appended by then is to be discarded.
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
#include "piece_table.hpp"
#include "special_tokens.hpp"

namespace tilth::bpe {

using TokenIds = Array<std::uint32_t>;

// How text is cut into pieces (pretokenize.hpp); `none` leaves it whole.
enum class Pattern { gpt2, cl100k, none };

struct EncoderOptions {
  std::span<const Token> tokens = {};  // in any order; ids may have holes, bytes may lack a token
  std::span<const Merge> merges = {};  // in rank order
  std::span<const Token> special_tokens = {};
  Pattern pattern = Pattern::gpt2;
  bool whole_piece_first = false;  // a piece that is a token is taken whole, before any merge
};

// A byte of the text has no token, neither alone nor merged with its neighbours.
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

  // Append the ids of a text. Special tokens in it are found first, if allowed, and what lies
  // between them is encoded each for itself; otherwise they are text like any other.
  void encode(std::string_view text, bool allow_special, TokenIds& ids,
              const InterruptCheck& check = {}) const;
  void encode_ordinary(std::string_view text, TokenIds& ids,
                       const InterruptCheck& check = {}) const {
    encode(text, false, ids, check);
  }

  // The number of ids, without keeping them.
  std::size_t count(std::string_view text, bool allow_special,
                    const InterruptCheck& check = {}) const;

  // Also the byte offset at which each token begins, and the length of the text behind the last.
  void encode_with_offsets(std::string_view text, bool allow_special, TokenIds& ids,
                           Array<std::uint64_t>& offsets, const InterruptCheck& check = {}) const;

  // Several texts on several threads, the calling one included: the ids of all, and where each
  // text's begin, with their number behind the last. The same for any number of threads; goes on
  // with fewer where no more can be started. Long texts are cut, so that one is shared between
  // threads too.
  struct Batch {
    TokenIds ids;
    Array<std::uint64_t> row_offsets;
  };
  Batch encode_batch(std::span<const std::string_view> texts, bool allow_special,
                     std::size_t num_threads, const InterruptCheck& check = {}) const;
  TokenIds encode_parallel(std::string_view text, bool allow_special, std::size_t num_threads,
                           const InterruptCheck& check = {}) const;

  // Slices of a text of at least `slice_bytes`, the last one apart, whose ids joined are the ids of
  // the text: cut at blanks, where a piece must end. One slice, if pieces or special tokens might
  // lie across; none of an empty text.
  std::vector<std::string_view> cut_at_blanks(std::string_view text, bool allow_special,
                                              std::size_t slice_bytes) const;

  // For text that goes on elsewhere (encode_stream.hpp): append the ids of the pieces that end at
  // or before `limit`, special tokens taken for text, and return where the last of them ends.
  std::size_t encode_until(std::string_view text, std::size_t limit, TokenIds& ids,
                           const InterruptCheck& check = {}) const;

  const SpecialTokens& special_tokens() const { return special_tokens_; }

 private:
  struct Workspace;
  class Checkout;

  void encode_with(Workspace& workspace, std::string_view text, bool allow_special, TokenIds& ids,
                   const InterruptCheck& check) const;
  std::size_t encode_pieces(std::string_view text, std::size_t limit, Workspace& workspace,
                            TokenIds& ids, const InterruptCheck& check) const;
  template <typename Splitter>
  std::size_t split_and_encode(std::string_view text, std::size_t limit, Workspace& workspace,
                               TokenIds& ids, const InterruptCheck& check) const;
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
  std::vector<std::uint32_t> lengths_;  // in bytes, by id; 0 in a hole
  // Tokens that merging would not make, and that are taken whole nevertheless.
  std::unordered_map<std::string, std::uint32_t, HashBytes, std::equal_to<>> whole_pieces_;

  // Workspaces that no thread uses now. Slots instead of a list with a lock: a process that forks
  // while a thread holds a lock leaves it closed for ever in the child.
  mutable std::array<std::atomic<Workspace*>, most_kept_workspaces> workspaces_{};
};

}  // namespace tilth::bpe
