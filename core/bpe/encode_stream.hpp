// encode_stream: encode text that arrives in chunks, cut anywhere.
//
//     StreamEncoder stream(encoder, true);
//     for (std::string_view chunk : chunks) stream.feed(chunk, ids);
//     stream.finish(ids);  // ids are those of the joined text, whatever the cuts
//
// Promise: exactly the ids of the joined text. Time is linear in all that was fed, also for chunks
// of one byte and a piece of a megabyte. Held at any time: a block of 64 KB, the longest special
// token, and a little over the longest piece (a quarter more, and a run of white space before the
// next). Ids come out when their block is full. The encoder must outlive the stream; one stream
// belongs to one thread. After an exception (MissingByte counts its offset from the beginning of
// the stream) the stream is to be discarded.
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

  // Append the rest. The stream is then as new.
  void finish(TokenIds& ids, const InterruptCheck& check = {});

  std::size_t held_bytes() const { return held_.size(); }

 private:
  static constexpr std::size_t block_bytes = std::size_t{1} << 16;

  void advance(bool is_end, TokenIds& ids, const InterruptCheck& check);

  const Encoder* encoder_;
  bool allow_special_;
  std::string held_;                        // begins where a piece begins
  std::size_t searched_ = 0;                // no special token begins before this place
  std::size_t wanted_bytes_ = block_bytes;  // to hold before pieces are looked for again
  std::size_t passed_bytes_ = 0;            // of the stream, before held_
};

}  // namespace tilth::bpe
