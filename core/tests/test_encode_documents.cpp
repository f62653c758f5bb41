// Documents are encoded separately, each followed by the end token. Also tests text_hash.

#include "../bpe/encode_documents.hpp"
#include "../bpe/text_hash.hpp"
#include "check.hpp"
#include "reference_bpe.hpp"

using namespace tilth::bpe;

namespace {

constexpr std::uint32_t end_id = 9;

template <typename Id>
void check_documents(const Encoder& encoder, const std::vector<std::string>& documents,
                     std::size_t num_threads) {
  Ids expected_ids;
  std::vector<std::uint64_t> expected_ends;
  for (const std::string& document : documents) {
    TokenIds ids;
    encoder.encode_ordinary(document, ids);
    expected_ids.insert(expected_ids.end(), ids.view().begin(), ids.view().end());
    expected_ids.push_back(end_id);
    expected_ends.push_back(expected_ids.size());
  }
  const std::vector<std::string_view> views(documents.begin(), documents.end());
  const auto encoded = encode_documents<Id>(encoder, views, end_id, num_threads);
  const Ids ids(encoded.ids.view().begin(), encoded.ids.view().end());
  const std::vector<std::uint64_t> ends(encoded.ends.view().begin(), encoded.ends.view().end());
  CHECK_EQUAL(ids == expected_ids, true);
  CHECK_EQUAL(ends == expected_ends, true);
}

// Random text of bytes that all vocabularies of this test have.
std::string document_of(std::mt19937& random, std::size_t longest) {
  std::string text = random_text(random, longest);
  std::erase_if(text, [](char byte) { return reference_alphabet.find(byte) == std::string::npos; });
  return text;
}

template <typename Work>
bool is_refused(const Work& work) {
  try {
    work();
  } catch (const std::invalid_argument&) {
    return true;
  }
  return false;
}

}  // namespace

int main() {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    const Encoder encoder = make_encoder(random_vocabulary(random, Oddity::none));
    std::vector<std::string> documents(random() % 8);
    for (std::string& document : documents) document = document_of(random, 60);
    check_documents<std::uint16_t>(encoder, documents, 1 + random() % 3);
    check_documents<std::uint32_t>(encoder, documents, 1 + random() % 3);
  }

  // Longer than a group, so slices of one document are joined; with an empty document in between.
  const Encoder encoder = make_encoder(random_vocabulary(random, Oddity::none));
  std::string longest;
  while (longest.size() < (std::size_t{20} << 20)) longest += document_of(random, 60);
  check_documents<std::uint16_t>(encoder, {"a b", longest, "", "c", longest + "b"}, 1);
  check_documents<std::uint16_t>(encoder, {longest}, 3);

  const std::string_view text = "a";
  CHECK_EQUAL(is_refused([&] { encode_documents<std::uint16_t>(encoder, {&text, 1}, 65536, 1); }),
              true);
  CHECK_EQUAL(is_refused([&] { encode_documents<std::uint16_t>(encoder, {&text, 1}, 65535, 1); }),
              false);

  using Views = std::vector<std::string_view>;
  CHECK_EQUAL(*split_documents("", "|") == Views{}, true);
  CHECK_EQUAL(*split_documents("a|||b| \t\n|", "||") == (Views{"a", "|b| \t\n|"}), true);
  CHECK_EQUAL(*split_documents("|a|\v\f\r|\u00a0|b", "|") == (Views{"a", "\u00a0", "b"}), true);
  CHECK_EQUAL(split_documents("a|\xC3|b", "|").has_value(), false);
  CHECK_EQUAL(split_documents("a", "").has_value(), false);

  CHECK_EQUAL(text_hash("") == text_hash(std::string_view("\0", 1)), false);
  CHECK_EQUAL(text_hash("12345678") == text_hash(std::string_view("12345678\0", 9)), false);
}
