// encode_stream: encode text that arrives in chunks.
//
//     StreamEncoder stream(encoder, true);
//     for (std::string_view chunk : chunks) stream.feed(chunk, ids);
//     stream.finish(ids);
//
// Contract: the ids are those of the joined text, wherever it is cut. They are appended when a
// block of 64 KB is full. The encoder must outlive the stream; a stream belongs to one thread.
// After an exception, discard the stream; the offset of MissingByte is relative to the start of the
// stream.
//
// Complexity: linear in the text, also for chunks of one byte and a piece of a megabyte. The buffer
// holds a block, the longest special token, and the longest piece with the white space after it,
// plus a quarter. With normalizers or options of special tokens, it holds the text after the last
// blank at which Encoder::cut_at_blanks may cut.
#pragma once

#include <string>
#include <string_view>

#include "encode.hpp"

namespace tilth::bpe {

class StreamEncoder {
 public:
  StreamEncoder(const Encoder& encoder, bool allow_special)
      : encoder_(&encoder), allow_special_(allow_special) {}

  // Append the ids of all pieces that are final by now.
  void feed(std::string_view chunk, TokenIds& ids, const InterruptCheck& check = {});

  // Append the remaining ids. The stream can then be used again.
  void finish(TokenIds& ids, const InterruptCheck& check = {});

  std::size_t held_bytes() const { return held_.size(); }

 private:
  static constexpr std::size_t block_bytes = std::size_t{1} << 16;

  void advance(bool is_end, TokenIds& ids, const InterruptCheck& check);

  const Encoder* encoder_;
  bool allow_special_;
  std::string held_;                        // starts at the start of a piece
  std::size_t searched_ = 0;                // no special token starts before this place
  std::size_t wanted_bytes_ = block_bytes;  // the size of held_ at the next advance()
  std::size_t passed_bytes_ = 0;            // of the stream, before held_
};

}  // namespace tilth::bpe
