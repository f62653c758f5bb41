// The only file of this folder that knows Python: strings and lists on one side, views on the
// other.

#include <nanobind/nanobind.h>

#include <string_view>

#include "pretokenize.hpp"
#include "unicode_tables.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using tilth::bpe::Gpt2Splitter;

namespace {

// A Python string as UTF-8, valid while this object lives. Surrogates, which UTF-8 cannot hold, are
// joined where they make a pair and become U+FFFD where they do not.
class Utf8 {
 public:
  explicit Utf8(nb::str text) : text_(std::move(text)) {
    if (!read()) {
      if (PyErr_ExceptionMatches(PyExc_UnicodeEncodeError) == 0) throw nb::python_error();
      PyErr_Clear();
      text_ = nb::str(
          text_.attr("encode")("utf-16", "surrogatepass").attr("decode")("utf-16", "replace"));
      if (!read()) throw nb::python_error();
    }
  }
  std::string_view view() const { return view_; }

 private:
  bool read() {
    Py_ssize_t size = 0;
    const char* data = PyUnicode_AsUTF8AndSize(text_.ptr(), &size);
    if (data != nullptr) view_ = {data, static_cast<std::size_t>(size)};
    return data != nullptr;
  }

  nb::str text_;
  std::string_view view_;
};

// Often enough to answer Ctrl-C at once, rarely enough to cost nothing.
constexpr std::size_t pieces_between_signal_checks = std::size_t{1} << 16;

template <typename Visit>
void for_each_piece(std::string_view text, Visit visit) {
  Gpt2Splitter splitter(text);
  std::size_t until_check = pieces_between_signal_checks;
  for (auto piece = splitter.next(); !piece.empty(); piece = splitter.next()) {
    visit(piece);
    if (--until_check == 0) {
      nb::gil_scoped_acquire gil;
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      until_check = pieces_between_signal_checks;
    }
  }
}

nb::list split(nb::str text) {
  const Utf8 utf8(std::move(text));
  nb::list pieces;
  for_each_piece(utf8.view(), [&](std::string_view piece) {
    pieces.append(nb::str(piece.data(), piece.size()));
  });
  return pieces;
}

std::size_t count_pieces(nb::str text) {
  const Utf8 utf8(std::move(text));
  const nb::gil_scoped_release no_gil;
  std::size_t count = 0;
  for_each_piece(utf8.view(), [&](std::string_view) { ++count; });
  return count;
}

}  // namespace

NB_MODULE(_core, m) {
  m.doc() = "The native core of tilth.tokenizer; its specification is tilth.tokenizer.reference.";
  m.attr("unicode_version") = tilth::bpe::unicode_version;
  m.def("split", &split, "text"_a, nb::sig("def split(text: str) -> list[str]"),
        "Cut a text into pieces by the GPT-2 pattern; joined, the pieces are the text again.\n\n"
        "A lone surrogate, which UTF-8 cannot hold, becomes U+FFFD.");
  m.def("count_pieces", &count_pieces, "text"_a,
        "The number of pieces that split would return, without making them.");
}
