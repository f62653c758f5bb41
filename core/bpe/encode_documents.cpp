#include "encode_documents.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "utf8.hpp"

namespace tilth::bpe {
namespace {

// The size of a group of slices that is encoded at once. It bounds the buffer of 32-bit ids.
constexpr std::size_t group_bytes = std::size_t{8} << 20;

template <typename Id>
void append_narrowed(std::span<const std::uint32_t> ids, Array<Id>& to) {
  to.reserve_more(ids.size());
  Id* out = to.end();
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    largest = ids[i] > largest ? ids[i] : largest;
    out[i] = static_cast<Id>(ids[i]);
  }
  if (largest > std::numeric_limits<Id>::max()) {
    throw std::invalid_argument("a token id does not fit into the integers of the token file");
  }
  to.set_size(to.size() + ids.size());
}

}  // namespace

template <typename Id>
EncodedDocuments<Id> encode_documents(const Encoder& encoder,
                                      std::span<const std::string_view> documents,
                                      std::uint32_t end_id, std::size_t num_threads,
                                      const InterruptCheck& check) {
  EncodedDocuments<Id> encoded;
  // A group may take less than the interval between checks, so this Interruption spans all groups.
  Interruption interruption(check);
  std::vector<std::string_view> group;
  std::vector<bool> ends_document;  // by slice of the group
  std::size_t bytes = 0;
  const auto encode_group = [&] {
    interruption.poll();
    const Encoder::Batch batch = encoder.encode_batch(group, false, num_threads, check);
    for (std::size_t i = 0; i < group.size(); ++i) {
      const std::size_t first = batch.row_offsets[i], last = batch.row_offsets[i + 1];
      append_narrowed(batch.ids.view().subspan(first, last - first), encoded.ids);
      if (!ends_document[i]) continue;
      append_narrowed({&end_id, 1}, encoded.ids);
      encoded.ends.append(encoded.ids.size());
    }
    group.clear();
    ends_document.clear();
    bytes = 0;
  };
  for (const std::string_view document : documents) {
    std::vector<std::string_view> slices = encoder.cut_at_blanks(document, false, group_bytes);
    if (slices.empty()) slices.push_back(document);
    for (std::size_t i = 0; i < slices.size(); ++i) {
      group.push_back(slices[i]);
      ends_document.push_back(i + 1 == slices.size());
      bytes += slices[i].size();
      if (bytes >= group_bytes) encode_group();
    }
  }
  encode_group();
  return encoded;
}

// One check is enough: in well-formed UTF-8, a well-formed separator starts and ends between
// characters.
std::optional<std::vector<std::string_view>> split_documents(std::string_view text,
                                                             std::string_view separator) {
  if (separator.empty() || well_formed_size(text) != text.size()) return std::nullopt;
  constexpr std::string_view white_space = " \t\n\r\v\f";
  std::vector<std::string_view> documents;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t end = std::min(text.find(separator, start), text.size());
    const std::string_view document = text.substr(start, end - start);
    if (document.find_first_not_of(white_space) != document.npos) documents.push_back(document);
    start = end + separator.size();
  }
  return documents;
}

template EncodedDocuments<std::uint16_t> encode_documents(const Encoder&,
                                                          std::span<const std::string_view>,
                                                          std::uint32_t, std::size_t,
                                                          const InterruptCheck&);
template EncodedDocuments<std::uint32_t> encode_documents(const Encoder&,
                                                          std::span<const std::string_view>,
                                                          std::uint32_t, std::size_t,
                                                          const InterruptCheck&);

}  // namespace tilth::bpe
