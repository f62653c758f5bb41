// Conversions between Python and the core, shared by the bindings*.cpp of this folder. Only these
// files include Python headers. Exceptions of the core become ValueError, MemoryError and OSError.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../common/array.hpp"
#include "../common/bindings.hpp"
#include "normalize.hpp"
#include "utf8.hpp"
#include "vocabulary.hpp"

namespace tilth::bpe::bindings {

namespace nb = nanobind;
using namespace nb::literals;
using namespace tilth::python;

// Each adds the classes and functions of one file to the module; the first must come first.
void bind_vocabulary(nb::module_& m);
void bind_encoding(nb::module_& m);
void bind_training(nb::module_& m);

inline std::string_view view_of(const nb::bytes& bytes) {
  return {static_cast<const char*>(bytes.data()), bytes.size()};
}

// Append the UTF-8 of code units of any size. Surrogate pairs are joined; a lone one becomes
// U+FFFD.
template <typename Unit>
void append_utf8(std::span<const Unit> units, Array<char>& bytes) {
  const auto code_point_at = [&](std::size_t& i) {
    const std::uint32_t unit = units[i++];
    if ((unit & ~0x7FFu) != 0xD800) return unit;
    const bool is_pair = unit < 0xDC00 && i < units.size() && (units[i] & ~0x3FFu) == 0xDC00;
    if (!is_pair) return std::uint32_t{0xFFFD};
    return 0x10000 + ((unit - 0xD800) << 10) + (std::uint32_t{units[i++]} - 0xDC00);
  };
  std::size_t size = 0;
  for (std::size_t i = 0; i < units.size();) {
    const std::uint32_t code_point = code_point_at(i);
    size += code_point < 0x80 ? 1 : code_point < 0x800 ? 2 : code_point < 0x10000 ? 3 : 4;
  }
  bytes.reserve_more(size);
  char* out = bytes.end();
  for (std::size_t i = 0; i < units.size();) {
    tilth::bpe::append_utf8(code_point_at(i), [&](char byte) { *out++ = byte; });
  }
  bytes.set_size(bytes.size() + size);
}

// A view of a Python str or bytes as UTF-8, valid while this object lives. Lone surrogates and
// malformed bytes become U+FFFD; surrogate pairs are joined.
class Utf8 {
 public:
  explicit Utf8(nb::handle text) : text_(nb::borrow(text)) {
    if (PyBytes_Check(text_.ptr())) {
      view_ = view_of(nb::cast<nb::bytes>(text_));
      if (well_formed_size(view_) == view_.size()) return;
      text_ = text_.attr("decode")("utf-8", "replace");
    }
    if (!PyUnicode_Check(text_.ptr())) throw nb::type_error("a text is a str or bytes");
    if (!PyUnicode_IS_COMPACT_ASCII(text_.ptr()) &&
        PyUnicode_GET_LENGTH(text_.ptr()) >= transcoded_length) {
      transcode();
      return;
    }
    if (read()) return;
    if (PyErr_ExceptionMatches(PyExc_UnicodeEncodeError) == 0) throw nb::python_error();
    PyErr_Clear();
    text_ = text_.attr("encode")("utf-16", "surrogatepass").attr("decode")("utf-16", "replace");
    if (!read()) throw nb::python_error();
  }
  std::string_view view() const { return view_; }

 private:
  // Python keeps the UTF-8 of a string with it, and needs four bytes per character to make it.
  // Longer strings are transcoded into a buffer that is freed with this object.
  static constexpr Py_ssize_t transcoded_length = Py_ssize_t{1} << 25;

  void transcode() {
    const auto length = static_cast<std::size_t>(PyUnicode_GET_LENGTH(text_.ptr()));
    const void* const units = PyUnicode_DATA(text_.ptr());
    switch (PyUnicode_KIND(text_.ptr())) {
      case PyUnicode_1BYTE_KIND:
        append_utf8(std::span(static_cast<const Py_UCS1*>(units), length), buffer_);
        break;
      case PyUnicode_2BYTE_KIND:
        append_utf8(std::span(static_cast<const Py_UCS2*>(units), length), buffer_);
        break;
      default:
        append_utf8(std::span(static_cast<const Py_UCS4*>(units), length), buffer_);
    }
    view_ = {buffer_.data(), buffer_.size()};
  }

  bool read() {
    Py_ssize_t size = 0;
    const char* data = PyUnicode_AsUTF8AndSize(text_.ptr(), &size);
    if (data != nullptr) view_ = {data, static_cast<std::size_t>(size)};
    return data != nullptr;
  }

  nb::object text_;
  std::string_view view_;
  Array<char> buffer_;
};

// The steps of a pattern: names or regular expressions. Without steps, the text is one piece.
using Steps = std::vector<std::string>;

// Views of a list of texts, valid while this object lives.
class Utf8List {
 public:
  explicit Utf8List(const nb::list& texts) {
    texts_.reserve(texts.size());
    views_.reserve(texts.size());
    // By index: converting a text may call Python code, which may change the list.
    for (std::size_t i = 0; i < texts.size(); ++i) {
      views_.push_back(texts_.emplace_back(texts[i]).view());
      bytes_ += views_.back().size();
    }
  }
  std::span<const std::string_view> views() const { return views_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::vector<Utf8> texts_;
  std::vector<std::string_view> views_;
  std::size_t bytes_ = 0;
};

// Releases the GIL for long work; for short texts, releasing costs more than encoding.
class Released {
 public:
  explicit Released(std::size_t bytes) {
    if (bytes >= 4096) release_.emplace();
  }
  InterruptCheck check() const {
    return release_ ? InterruptCheck(check_signals) : InterruptCheck();
  }

 private:
  std::optional<nb::gil_scoped_release> release_;
};

inline nb::list list_of(std::span<const std::uint32_t> ids) {
  nb::object list = nb::steal(PyList_New(static_cast<Py_ssize_t>(ids.size())));
  if (!list.is_valid()) throw nb::python_error();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    PyObject* number = PyLong_FromUnsignedLong(ids[i]);
    if (number == nullptr) throw nb::python_error();
    PyList_SET_ITEM(list.ptr(), static_cast<Py_ssize_t>(i), number);
  }
  return nb::borrow<nb::list>(list);
}

template <typename T>
using Numbers = nb::ndarray<nb::numpy, T, nb::ndim<1>>;

template <typename T>
Numbers<T> numbers_of(Array<T> array) {
  array.shrink();
  const std::size_t size = array.size();
  return numpy_of<Numbers<T>>(std::move(array), {size});
}

inline NormalizationForm form_of(std::string_view name) {
  if (name == "NFC") return NormalizationForm::nfc;
  if (name == "NFD") return NormalizationForm::nfd;
  if (name == "NFKC") return NormalizationForm::nfkc;
  if (name == "NFKD") return NormalizationForm::nfkd;
  throw nb::value_error("a normalizer is NFC, NFD, NFKC or NFKD");
}

inline std::vector<NormalizationForm> forms_of(const std::vector<std::string>& names) {
  std::vector<NormalizationForm> forms;
  for (const std::string& name : names) forms.push_back(form_of(name));
  return forms;
}

// (id, bytes) pairs, valid while this object lives. By index: a pair may be of any type, whose code
// may change the list.
class TokenList {
 public:
  explicit TokenList(const nb::list& pairs) {
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      const nb::object pair = pairs[i];
      bytes_.push_back(nb::cast<nb::bytes>(pair[1]));
      tokens_.push_back({nb::cast<std::uint32_t>(pair[0]), view_of(bytes_.back())});
    }
  }
  const std::vector<Token>& tokens() const { return tokens_; }

 private:
  std::vector<nb::bytes> bytes_;
  std::vector<Token> tokens_;
};

// The tokens and merges of a vocabulary, shared by Python and encoders.
class Table {
 public:
  explicit Table(VocabularyTable table)
      : table_(std::make_shared<const VocabularyTable>(std::move(table))) {}

  Table(const nb::list& tokens, const nb::list& merges) {
    VocabularyTable made;
    add_tokens(TokenList(tokens), made);
    for (std::size_t i = 0; i < merges.size(); ++i) {
      const nb::object pair = merges[i];
      const nb::bytes left = nb::cast<nb::bytes>(pair[0]), right = nb::cast<nb::bytes>(pair[1]);
      const std::string joined = std::string(view_of(left)).append(view_of(right));
      const VocabularyTable::MergedToken merge{joined, left.size()};
      if (!made.add_merges({&merge, 1})) {
        throw nb::value_error("a merge is repeated, or uses or makes bytes that are not a token");
      }
    }
    table_ = std::make_shared<const VocabularyTable>(std::move(made));
  }

  std::size_t num_tokens() const { return table_->tokens().size(); }
  std::size_t num_merges() const { return table_->merges().size(); }
  std::size_t vocab_size() const {
    std::size_t size = 0;
    for (const Token& token : table_->tokens()) size = std::max<std::size_t>(size, token.id + 1);
    return size;
  }

  nb::dict tokens() const {
    nb::dict made;
    for (const Token& token : table_->tokens()) made[nb::int_(token.id)] = bytes_of_token(token);
    return made;
  }

  nb::tuple merges() const {
    std::vector<nb::bytes> tokens(vocab_size());  // one object per token, shared by its merges
    for (const Token& token : table_->tokens()) tokens[token.id] = bytes_of_token(token);
    nb::list pairs;
    for (const Merge& merge : table_->merges()) {
      pairs.append(nb::make_tuple(tokens[merge.left], tokens[merge.right]));
    }
    return nb::tuple(pairs);
  }

  // The id of a token, or None.
  nb::object find(const nb::bytes& token) const {
    const std::uint32_t found = table_->find(view_of(token));
    if (found == VocabularyTable::none) return nb::none();
    return nb::int_(table_->tokens()[found].id);
  }

  bool has_id(std::uint32_t id) const { return table_->has_id(id); }

  const VocabularyTable& table() const { return *table_; }

 private:
  static nb::bytes bytes_of_token(const Token& token) {
    return nb::bytes(token.bytes.data(), token.bytes.size());
  }
  static void add_tokens(const TokenList& tokens, VocabularyTable& table) {
    for (const Token& token : tokens.tokens()) {
      if (table.add(token.id, token.bytes)) continue;
      throw nb::value_error(("token " + std::to_string(token.id) +
                             " has an id or bytes that are taken or out of range")
                                .c_str());
    }
  }

  std::shared_ptr<const VocabularyTable> table_;
};

}  // namespace tilth::bpe::bindings
