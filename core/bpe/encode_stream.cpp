#include "encode_stream.hpp"

#include <algorithm>

#include "characters.hpp"

namespace tilth::bpe {
namespace {

// Return the last place of a text that continues such that every piece which ends there is final.
//
// A native pattern: a piece depends on its bytes, on the run of white space after it, and on the
// character after that run. (The `\s*[\r\n]` of cl100k extends to the last line end of a run.) A
// contraction has at most five bytes, a character four. So a piece is final if a character that is
// not white space follows at or after its end, with a few more bytes after it.
//
// Regular expressions: the last place where text may be cut.
std::size_t final_limit(std::string_view text, const Pattern& pattern) {
  if (!pattern.splits_after_words()) {
    return pattern.splits_before_blanks() ? last_blank_after_word(text, 0, text.size()) : 0;
  }
  constexpr std::size_t bytes_behind = 8;
  if (text.size() < bytes_behind) return 0;
  for (std::size_t place = text.size() - bytes_behind; place > 0; --place) {
    const bool is_inside_character = (text[place] & 0xC0) == 0x80;
    if (!is_inside_character && decode_character(text, place).kind != CharacterClass::space) {
      return place;
    }
  }
  return 0;
}

}  // namespace

void StreamEncoder::feed(std::string_view chunk, TokenIds& ids, const InterruptCheck& check) {
  while (!chunk.empty()) {
    const std::size_t taken = std::min(chunk.size(), wanted_bytes_ - held_.size());
    held_ += chunk.substr(0, taken);
    chunk.remove_prefix(taken);
    if (held_.size() == wanted_bytes_) advance(false, ids, check);
  }
}

void StreamEncoder::finish(TokenIds& ids, const InterruptCheck& check) {
  advance(true, ids, check);
  passed_bytes_ = 0;
}

void StreamEncoder::advance(bool is_end, TokenIds& ids, const InterruptCheck& check) {
  const std::string_view text = held_;
  std::size_t start = 0;
  try {
    if (!encoder_->is_plain()) {
      const std::size_t end = is_end ? text.size() : encoder_->last_cut(text, allow_special_);
      encoder_->encode(text.substr(0, end), allow_special_, ids, check);
      start = searched_ = end;
    }
    while (encoder_->is_plain()) {
      SpecialTokens::Found found{text.size(), 0, 0};
      if (allow_special_) found = encoder_->special_tokens().find(text, searched_, is_end);
      const std::string_view segment = text.substr(start, found.start - start);
      searched_ = found.start + found.length;
      if (found.length > 0 || is_end) {  // the segment is complete
        encoder_->encode_ordinary(segment, ids, check);
        start = searched_;
        if (found.length == 0) break;
        ids.append(found.id);
      } else {
        start +=
            encoder_->encode_until(segment, final_limit(segment, encoder_->pattern()), ids, check);
        break;
      }
    }
  } catch (const MissingByte& missing) {
    throw MissingByte(missing.byte(), passed_bytes_ + start + missing.offset());
  }
  passed_bytes_ += start;
  searched_ -= start;
  held_.erase(0, start);
  // Text without a final piece is examined again only when it has grown by a quarter, which keeps
  // the total work linear.
  wanted_bytes_ = held_.size() + std::max(block_bytes, held_.size() / 4);
}

}  // namespace tilth::bpe
