// Encoding with normalizers and with options of special tokens.

#include <unordered_set>

#include "code_points.hpp"
#include "encode.hpp"
#include "encode_workspace.hpp"

namespace tilth::bpe {
namespace {

// Text that is normalized at once, if it can be cut: the buffer stays in the cache.
constexpr std::size_t slice_bytes = std::size_t{1} << 18;
// Larger buffers are freed after a call.
constexpr std::size_t kept_bytes = std::size_t{1} << 21;

}  // namespace

void Encoder::set_special_tokens(const EncoderOptions& options) {
  std::unordered_set<std::uint32_t> normalized_ids;
  for (const TokenOptions& each : options.token_options) {
    if (each.normalized) normalized_ids.insert(each.id);
  }
  std::vector<Token> raw, normalized;
  for (const Token& token : options.special_tokens) {
    if (!normalized_ids.contains(token.id)) {
      raw.push_back(token);
      continue;
    }
    Token& added = normalized.emplace_back(token);
    if (normalizers_.empty()) continue;
    std::string buffer;
    const Normalizer normalizer(combined_form(normalizers_));
    const std::string_view content = normalizer.normalize(token.bytes, buffer);
    if (content == token.bytes) continue;
    added.bytes = normalized_contents_.emplace(token.id, content).first->second;
  }
  special_tokens_ = SpecialTokens(raw, options.token_options);
  normalized_tokens_ = SpecialTokens(normalized, options.token_options);
  is_plain_ = normalizers_.empty() && normalized_tokens_.empty() && !special_tokens_.has_options();
}

std::string_view Encoder::normalized_content(std::uint32_t id) const {
  const auto found = normalized_contents_.find(id);
  return found == normalized_contents_.end() ? std::string_view() : found->second;
}

// Lemma: text may be cut before a blank (U+0020) that follows a character other than white space,
// and each side normalized separately, in all four forms; then the same place is one of these in
// the normalized text. Proof: a blank has the combining class 0, does not decompose and is not the
// second part of a composite, so nothing moves or combines across its start. The decomposition of
// no character other than white space ends in white space, nor is any composite white space
// (test_normalization.py checks all code points), so the character before stays one that is not.
bool Encoder::may_cut(bool allow_special) const {
  return pattern_.splits_before_blanks() &&
         !(allow_special &&
           (special_tokens_.may_span_blank() || normalized_tokens_.may_span_blank()));
}

bool Encoder::may_cut_at(std::string_view text, std::size_t place, bool allow_special) const {
  return is_blank_after_word(text, place) &&
         !(allow_special && (special_tokens_.may_strip_after(text[place - 1]) ||
                             normalized_tokens_.may_strip_after(text[place - 1])));
}

std::size_t Encoder::last_cut(std::string_view text, bool allow_special) const {
  if (!may_cut(allow_special)) return 0;
  std::size_t place = text.size();
  do place = last_blank_after_word(text, 0, place);
  while (place > 0 && !may_cut_at(text, place, allow_special));
  return place;
}

void Encoder::encode_parts(Workspace& workspace, std::string_view text, bool allow_special,
                           TokenIds& ids, const InterruptCheck& check) const {
  const auto encode_text = [&](std::string_view part) {
    for (const std::string_view slice : cut_at_blanks(part, allow_special, slice_bytes)) {
      try {
        encode_normalized(workspace, slice, allow_special, ids, check);
      } catch (const MissingByte& missing) {
        const auto start = static_cast<std::size_t>(slice.data() - text.data());
        throw MissingByte(missing.byte(), start + missing.offset());
      }
    }
  };
  if (!allow_special) {
    encode_text(text);
  } else {
    special_tokens_.split(text, encode_text,
                          [&](const SpecialTokens::Found& found) { ids.append(found.id); });
  }
  if (workspace.normalized.capacity() > kept_bytes) std::string().swap(workspace.normalized);
}

// Encode text without special tokens other than normalized ones. The offset of MissingByte is
// relative to this text.
void Encoder::encode_normalized(Workspace& workspace, std::string_view text, bool allow_special,
                                TokenIds& ids, const InterruptCheck& check) const {
  std::string_view normalized = text;
  if (!normalizers_.empty()) {
    const Normalizer normalizer(combined_form(normalizers_));
    normalized = normalizer.normalize(text, workspace.normalized, check);
  }
  workspace.text = normalized;
  const auto encode_text = [&](std::string_view part) {
    encode_pieces(part, part.size(), workspace, ids, check);
  };
  try {
    if (!allow_special) {
      encode_text(normalized);
    } else {
      normalized_tokens_.split(normalized, encode_text,
                               [&](const SpecialTokens::Found& found) { ids.append(found.id); });
    }
  } catch (const MissingByte& missing) {
    if (normalized.data() == text.data()) throw;
    std::vector<ByteRange> sources;
    align(text, sources);
    throw MissingByte(missing.byte(), sources[missing.offset()].start);
  }
}

// Return the normalized text and the source of each of its bytes.
std::string Encoder::align(std::string_view text, std::vector<ByteRange>& sources) const {
  sources.clear();
  sources.reserve(text.size());
  for (std::size_t place = 0; place < text.size();) {
    const std::size_t end = place + decode_code_point(text, place).length;
    sources.resize(end, {place, end});
    place = end;
  }
  // Step by step: the sources differ from those of the combined form.
  std::string normalized(text), buffer;
  for (const NormalizationForm form : normalizers_) {
    Normalizer(form).normalize_aligned(normalized, buffer, sources);
    normalized.swap(buffer);
  }
  return normalized;
}

void Encoder::visit_parts(std::string_view text, bool allow_special, const VisitPart& visit) const {
  std::vector<ByteRange> sources;
  const auto visit_text = [&](std::string_view part) {
    const std::string normalized = align(part, sources);
    const auto start = static_cast<std::uint64_t>(part.data() - text.data());
    for (ByteRange& source : sources) source = {start + source.start, start + source.end};
    const auto visit_part = [&](std::string_view each, std::uint32_t id) {
      const auto first = static_cast<std::size_t>(each.data() - normalized.data());
      const ByteRange whole{sources[first].start, sources[first + each.size() - 1].end};
      visit(each,
            id == no_token ? std::span(sources).subspan(first, each.size()) : std::span(&whole, 1),
            id);
    };
    if (!allow_special) {
      visit_part(normalized, no_token);
      return;
    }
    normalized_tokens_.split(
        normalized, [&](std::string_view each) { visit_part(each, no_token); },
        [&](const SpecialTokens::Found& found) {
          visit_part(std::string_view(normalized).substr(found.start, found.length), found.id);
        });
  };
  if (!allow_special) {
    if (!text.empty()) visit_text(text);
    return;
  }
  special_tokens_.split(text, visit_text, [&](const SpecialTokens::Found& found) {
    const ByteRange range{found.start, found.start + found.length};
    visit(text.substr(found.start, found.length), {&range, 1}, found.id);
  });
}

void Encoder::encode_parts_with_offsets(std::string_view text, bool allow_special, TokenIds& ids,
                                        Array<ByteRange>& ranges,
                                        const InterruptCheck& check) const {
  Checkout workspace(*this);
  visit_parts(text, allow_special,
              [&](std::string_view part, std::span<const ByteRange> sources, std::uint32_t id) {
                if (id != no_token) {
                  ids.append(id);
                  ranges.append(sources[0]);
                  return;
                }
                const std::size_t first = ids.size();
                workspace->text = part;
                try {
                  encode_pieces(part, part.size(), *workspace, ids, check);
                } catch (const MissingByte& missing) {
                  throw MissingByte(missing.byte(), sources[missing.offset()].start);
                }
                std::size_t place = 0;
                for (const std::uint32_t each : ids.view().subspan(first)) {
                  const std::size_t end = place + lengths_[each];
                  ranges.append({sources[place].start, sources[end - 1].end});
                  place = end;
                }
              });
}

}  // namespace tilth::bpe
