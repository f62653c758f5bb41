// encode_documents: documents to the content of a token file: the ids of each, then the end token.
//
//     const auto encoded = encode_documents<std::uint16_t>(encoder, {"a b", "c"}, 0, 1);
//     encoded.ids.view();   // a, " b", 0, c, 0
//     encoded.ends.view();  // 3, 5
//
// Contract: special tokens in a document are encoded as text. The result does not depend on the
// number of threads. Throws as Encoder::encode does, and std::invalid_argument for an id that does
// not fit in Id.
//
// Complexity: linear. Memory beyond the documents and the result: some tens of megabytes for
// documents of any length; a single long piece may need more, see merge.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "../common/array.hpp"
#include "encode.hpp"

namespace tilth::bpe {

template <typename Id>
struct EncodedDocuments {
  Array<Id> ids;
  Array<std::uint64_t> ends;  // where each document ends in `ids`, its end token included
};

// Defined for std::uint16_t and std::uint32_t.
template <typename Id>
EncodedDocuments<Id> encode_documents(const Encoder& encoder,
                                      std::span<const std::string_view> documents,
                                      std::uint32_t end_id, std::size_t num_threads,
                                      const InterruptCheck& check = {});

// The documents of a text, between separators; those of ASCII white space only are left out, as are
// empty ones. Nothing if the text is not well-formed UTF-8. Neither text nor separator is copied;
// the separator is well-formed and not empty.
std::optional<std::vector<std::string_view>> split_documents(std::string_view text,
                                                             std::string_view separator);

}  // namespace tilth::bpe
