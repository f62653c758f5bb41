// The Python module: splitting, normalization and hashes. The other classes and functions are in
// bindings_vocabulary.cpp, bindings_encoding.cpp and bindings_training.cpp.

#include "bindings.hpp"

#include "../common/limits.hpp"
#include "pattern.hpp"
#include "pretokenize.hpp"
#include "text_hash.hpp"
#include "unicode_tables.hpp"

namespace tilth::bpe::bindings {
namespace {

template <typename Visit>
void for_each_piece(const Pattern& pattern, std::string_view text, Visit visit) {
  pattern.with_splitter(text, [&](auto splitter) {
    std::size_t until_check = pieces_between_checks;
    for (auto piece = splitter.next(); !piece.empty(); piece = splitter.next()) {
      visit(piece);
      if (--until_check == 0) {
        check_signals();
        until_check = pieces_between_checks;
      }
    }
  });
}

nb::list split(nb::handle text, const Steps& pattern) {
  const Utf8 utf8(text);
  nb::list pieces;
  for_each_piece(Pattern(pattern), utf8.view(), [&](std::string_view piece) {
    pieces.append(nb::str(piece.data(), piece.size()));
  });
  return pieces;
}

std::size_t count_pieces(nb::handle text, const Steps& steps) {
  const Utf8 utf8(text);
  const Pattern pattern(steps);
  const nb::gil_scoped_release released;
  std::size_t count = 0;
  for_each_piece(pattern, utf8.view(), [&](std::string_view) { ++count; });
  return count;
}

Numbers<std::uint64_t> text_hashes(const nb::list& texts) {
  const Utf8List utf8(texts);
  Array<std::uint64_t> hashes;
  {
    const Released released(utf8.bytes());
    for (const std::string_view text : utf8.views()) hashes.append(text_hash(text));
  }
  return numbers_of(std::move(hashes));
}

nb::str normalize(nb::handle text, const std::string& form) {
  const Utf8 utf8(text);
  std::string buffer;
  const std::string_view normalized =
      Normalizer(form_of(form)).normalize(utf8.view(), buffer, check_signals);
  return nb::str(normalized.data(), normalized.size());
}

}  // namespace
}  // namespace tilth::bpe::bindings

using namespace tilth::bpe;
using namespace tilth::bpe::bindings;

NB_MODULE(_core, m) {
  m.doc() = "The native core of tilth.tokenizer; its specification is tilth.tokenizer.reference.";
  m.attr("unicode_version") = unicode_version;
  m.attr("MAX_THREADS") = tilth::max_threads;
  m.attr("MAX_VOCAB_SIZE") = tilth::max_vocab_size;
  m.attr("MAX_TOKENS") = tilth::max_tokens;
  nb::dict patterns;
  for (const NamedPattern& named : named_patterns()) {
    patterns[nb::str(named.name.data(), named.name.size())] =
        nb::str(named.regex.data(), named.regex.size());
  }
  m.def(
      "named_patterns", [patterns] { return patterns; },
      nb::sig("def named_patterns() -> dict[str, str]"),
      "Return the regexes of the native patterns.");

  m.def("split", &split, "text"_a, "pattern"_a,
        nb::sig("def split(text: str | bytes, pattern: list[str]) -> list[str]"),
        "Split a text into pieces, whose concatenation is the text.");
  m.def("count_pieces", &count_pieces, "text"_a, "pattern"_a,
        nb::sig("def count_pieces(text: str | bytes, pattern: list[str]) -> int"),
        "Return the number of pieces of a text.");

  m.def("normalize", &normalize, "text"_a, "form"_a,
        nb::sig("def normalize(text: str | bytes, form: str) -> str"),
        "Return a text in the form NFC, NFD, NFKC or NFKD.");

  m.def("text_hashes", &text_hashes, "texts"_a,
        nb::sig("def text_hashes(texts: list[str] | list[bytes]) -> "
                "NDArray[numpy.uint64]"),
        "Return a stable 64-bit hash of the UTF-8 of each text; see text_hash.hpp.");

  bind_vocabulary(m);
  bind_encoding(m);
  bind_training(m);
}
