// The Python bindings, the only file of this folder that includes Python headers. Exceptions of the
// core become ValueError, MemoryError and OSError.

#include "../common/bindings.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "../common/array.hpp"
#include "../common/limits.hpp"
#include "count.hpp"
#include "decode.hpp"
#include "encode.hpp"
#include "encode_documents.hpp"
#include "encode_stream.hpp"
#include "normalize.hpp"
#include "piece_records.hpp"
#include "pretokenize.hpp"
#include "text_hash.hpp"
#include "train.hpp"
#include "unicode_tables.hpp"
#include "utf8.hpp"
#include "vocabulary.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace tilth::bpe;
using namespace tilth::python;
using tilth::Array;
using tilth::InterruptCheck;

namespace {

// --- from Python ---------------------------------------------------------------------------------

std::string_view view_of(const nb::bytes& bytes) {
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

// --- to Python -----------------------------------------------------------------------------------

nb::list list_of(std::span<const std::uint32_t> ids) {
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

// --- splitting -----------------------------------------------------------------------------------

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

// --- normalization -------------------------------------------------------------------------------

NormalizationForm form_of(std::string_view name) {
  if (name == "NFC") return NormalizationForm::nfc;
  if (name == "NFD") return NormalizationForm::nfd;
  if (name == "NFKC") return NormalizationForm::nfkc;
  if (name == "NFKD") return NormalizationForm::nfkd;
  throw nb::value_error("a normalizer is NFC, NFD, NFKC or NFKD");
}

std::vector<NormalizationForm> forms_of(const std::vector<std::string>& names) {
  std::vector<NormalizationForm> forms;
  for (const std::string& name : names) forms.push_back(form_of(name));
  return forms;
}

nb::str normalize(nb::handle text, const std::string& form) {
  const Utf8 utf8(text);
  std::string buffer;
  const std::string_view normalized =
      Normalizer(form_of(form)).normalize(utf8.view(), buffer, check_signals);
  return nb::str(normalized.data(), normalized.size());
}

// The number of characters before a byte of a text, in constant time.
class CharacterIndex {
 public:
  explicit CharacterIndex(std::string_view text) : text_(text) {
    std::size_t count = 0;
    for (std::size_t place = 0; place < text.size(); place += block) {
      counts_.push_back(count);
      count += starts(place, std::min(place + block, text.size()));
    }
    counts_.push_back(count);
  }

  // The characters that have bytes in a range.
  nb::tuple range(ByteRange bytes) const {
    const bool splits = bytes.start < text_.size() && !starts_at(bytes.start);
    return nb::make_tuple(before(bytes.start) - (splits ? 1 : 0), before(bytes.end));
  }

 private:
  static constexpr std::size_t block = 64;

  bool starts_at(std::size_t place) const { return (text_[place] & 0xC0) != 0x80; }
  std::size_t starts(std::size_t from, std::size_t to) const {
    std::size_t count = 0;
    for (; from < to; ++from) count += starts_at(from);
    return count;
  }
  std::size_t before(std::size_t place) const {
    return counts_[place / block] + starts(place / block * block, place);
  }

  std::string_view text_;
  std::vector<std::size_t> counts_;
};

// --- encoding and decoding -----------------------------------------------------------------------

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
      if (!made.add_merge(view_of(left), view_of(right))) {
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

nb::object read_ranks_bytes(const nb::bytes& content) {
  std::optional<VocabularyTable> table;
  {
    const nb::gil_scoped_release released;
    table = read_ranks(view_of(content));
  }
  return table ? nb::cast(Table(std::move(*table))) : nb::none();
}

nb::object read_json_bytes(const nb::bytes& content) {
  std::optional<TokenizerJson> json;
  {
    const nb::gil_scoped_release released;
    json = read_tokenizer_json(view_of(content));
  }
  if (!json) return nb::none();
  nb::list unspelled;
  for (const std::string& key : json->unspelled) unspelled.append(nb::str(key.data(), key.size()));
  return nb::make_tuple(Table(std::move(json->table)),
                        nb::bytes(json->rest.data(), json->rest.size()), unspelled);
}

// Return the value of an int of one digit, which every token id is; -1 for any other object. No
// function call: reading a list of ids takes half of the time of decoding.
inline std::int64_t small_int(PyObject* object) {
  if (!PyLong_CheckExact(object)) return -1;
#if PY_VERSION_HEX >= 0x030C0000
  const auto* number = reinterpret_cast<PyLongObject*>(object);
  return PyUnstable_Long_IsCompact(number) ? PyUnstable_Long_CompactValue(number) : -1;
#else
  const Py_ssize_t digits = Py_SIZE(object);
  if (digits == 1) return reinterpret_cast<PyLongObject*>(object)->ob_digit[0];
  return digits == 0 ? 0 : -1;
#endif
}

// Convert any other int: a NumPy integer or a large int. May call Python code.
std::uint32_t id_by_index(const nb::object& object) {
  const nb::object number = nb::steal(PyNumber_Index(object.ptr()));
  if (!number.is_valid()) throw nb::python_error();
  int overflow = 0;
  const long long id = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (overflow != 0 || id < 0 || id > 0xFFFFFFFFLL) {
    const std::string text = nb::cast<std::string>(nb::str(object));
    throw nb::value_error(("token id " + text + " is not in the vocabulary").c_str());
  }
  return static_cast<std::uint32_t>(id);
}

void decode_sequence(const Decoder& decoder, nb::handle sequence, Array<char>& bytes) {
  const nb::object items = nb::steal(PySequence_Fast(sequence.ptr(), "ids are a sequence of ints"));
  if (!items.is_valid()) throw nb::python_error();
  const auto size = static_cast<std::size_t>(PySequence_Fast_GET_SIZE(items.ptr()));
  constexpr std::size_t block = 1024;  // an array of all ids would cost page faults
  std::uint32_t ids[block];
  bytes.reserve_more(4 * size);  // typical of English; memory that is not written costs nothing
  for (std::size_t first = 0; first < size; first += block) {
    const std::size_t count = std::min(block, size - first);
    PyObject** objects = PySequence_Fast_ITEMS(items.ptr()) + first;
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t small = small_int(objects[i]);
      if (small >= 0) {
        ids[i] = static_cast<std::uint32_t>(small);
        continue;
      }
      ids[i] = id_by_index(nb::borrow(objects[i]));
      if (static_cast<std::size_t>(PySequence_Fast_GET_SIZE(items.ptr())) != size) {
        throw nb::value_error("the list of ids changed while it was decoded");
      }
      objects = PySequence_Fast_ITEMS(items.ptr()) + first;
    }
    try {
      decoder.decode(std::span<const std::uint32_t>(ids, count), bytes);
    } catch (const UnknownId& error) {
      throw UnknownId(error.id(), first + error.place());
    }
  }
}

nb::bytes bytes_of(const Array<char>& buffer) {
  PyObject* bytes = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(buffer.size()));
  if (bytes == nullptr) throw nb::python_error();
  tilth::prefer_large_pages(PyBytes_AS_STRING(bytes), buffer.size());
  if (!buffer.empty()) std::memcpy(PyBytes_AS_STRING(bytes), buffer.data(), buffer.size());
  return nb::steal<nb::bytes>(bytes);
}

// (id, lstrip, rstrip, single_word, normalized)
using OptionsTuple = std::tuple<std::uint32_t, bool, bool, bool, bool>;

std::vector<TokenOptions> options_of(const std::vector<OptionsTuple>& tuples) {
  std::vector<TokenOptions> options;
  for (const auto& [id, lstrip, rstrip, single_word, normalized] : tuples) {
    options.push_back({id, lstrip, rstrip, single_word, normalized});
  }
  return options;
}

// A normalized special token is decoded as its normalized content.
Decoder decoder_of(const VocabularyTable& table, const TokenList& special_tokens,
                   const Encoder& encoder) {
  if (!encoder.has_normalized_contents()) {
    return Decoder(table.tokens(), special_tokens.tokens());
  }
  std::vector<Token> decoded[] = {{table.tokens().begin(), table.tokens().end()},
                                  special_tokens.tokens()};
  for (std::vector<Token>& list : decoded) {
    for (Token& token : list) {
      const std::string_view content = encoder.normalized_content(token.id);
      if (!content.empty()) token.bytes = content;
    }
  }
  return Decoder(decoded[0], decoded[1]);
}

// An Encoder and the Decoder of the same vocabulary.
class Codec {
 public:
  Codec(const Table& table, const nb::list& special_tokens, const Steps& pattern,
        bool whole_piece_first, const std::vector<OptionsTuple>& token_options,
        const std::vector<std::string>& normalizers)
      : Codec(table.table(), TokenList(special_tokens), pattern, whole_piece_first,
              options_of(token_options), forms_of(normalizers)) {}

  nb::list encode(nb::handle text, bool allow_special) const {
    return list_of(ids_of_text(text, allow_special, 1).view());
  }

  Numbers<std::uint32_t> encode_array(nb::handle text, bool allow_special,
                                      const nb::int_& threads) const {
    return numbers_of(ids_of_text(text, allow_special, threads_of(threads)));
  }

  nb::list encode_batch(const nb::list& texts, bool allow_special, const nb::int_& threads) const {
    const std::size_t num_threads = threads_of(threads);
    const Utf8List utf8(texts);
    Encoder::Batch batch;
    {
      const Released released(utf8.bytes());
      batch = encoder_.encode_batch(utf8.views(), allow_special, num_threads, released.check());
    }
    nb::list rows;
    for (std::size_t i = 0; i < utf8.views().size(); ++i) {
      const std::size_t first = batch.row_offsets[i], last = batch.row_offsets[i + 1];
      rows.append(list_of(batch.ids.view().subspan(first, last - first)));
    }
    return rows;
  }

  nb::tuple encode_documents(const nb::list& documents, std::uint32_t end_id, bool wide,
                             const nb::int_& threads, const nb::object& check) const {
    const std::size_t num_threads = threads_of(threads);
    return wide ? documents_as<std::uint32_t>(documents, end_id, num_threads, check)
                : documents_as<std::uint16_t>(documents, end_id, num_threads, check);
  }

  nb::tuple encode_with_offsets(nb::handle text, bool allow_special) const {
    const Utf8 utf8(text);
    TokenIds ids;
    Array<ByteRange> ranges;
    {
      const Released released(utf8.view().size());
      encoder_.encode_with_offsets(utf8.view(), allow_special, ids, ranges, released.check());
    }
    const CharacterIndex index(utf8.view());
    nb::list offsets;
    for (const ByteRange& range : ranges.view()) offsets.append(index.range(range));
    return nb::make_tuple(list_of(ids.view()), offsets);
  }

  // Return (part, id, offsets) of each special token and of each normalized text between them,
  // which has the id None and the offsets of each character; no offsets unless `with_offsets`.
  nb::list split_parts(nb::handle text, bool allow_special, bool with_offsets) const {
    const Utf8 utf8(text);
    const CharacterIndex index(with_offsets ? utf8.view() : std::string_view());
    nb::list parts;
    encoder_.visit_parts(
        utf8.view(), allow_special,
        [&](std::string_view part, std::span<const ByteRange> sources, std::uint32_t id) {
          nb::list offsets;
          for (std::size_t i = 0; with_offsets && i < sources.size(); ++i) {
            if (id != no_token || (part[i] & 0xC0) != 0x80) offsets.append(index.range(sources[i]));
          }
          const nb::object found = id == no_token ? nb::none() : nb::object(nb::int_(id));
          parts.append(nb::make_tuple(nb::str(part.data(), part.size()), found, offsets));
        });
    return parts;
  }

  std::size_t count(nb::handle text, bool allow_special) const {
    const Utf8 utf8(text);
    const Released released(utf8.view().size());
    return encoder_.count(utf8.view(), allow_special, released.check());
  }

  nb::bytes decode_bytes(nb::handle ids) const {
    Array<char> bytes;
    using Ids32 = nb::ndarray<const std::uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
    using Ids16 = nb::ndarray<const std::uint16_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
    Ids32 ids32;
    Ids16 ids16;
    if (PyList_Check(ids.ptr()) || PyTuple_Check(ids.ptr())) {
      decode_sequence(decoder_, ids, bytes);
    } else if (nb::try_cast(ids, ids32, false)) {
      decoder_.decode(std::span(ids32.data(), ids32.size()), bytes);
    } else if (nb::try_cast(ids, ids16, false)) {
      decoder_.decode(std::span(ids16.data(), ids16.size()), bytes);
    } else {  // another dtype, or any sequence of ints
      decode_sequence(decoder_, ids, bytes);
    }
    return bytes_of(bytes);
  }

  const Encoder& encoder() const { return encoder_; }

 private:
  Codec(const VocabularyTable& table, const TokenList& special_tokens, const Steps& pattern,
        bool whole_piece_first, const std::vector<TokenOptions>& token_options,
        const std::vector<NormalizationForm>& normalizers)
      : encoder_({.tokens = table.tokens(),
                  .merges = table.merges(),
                  .special_tokens = special_tokens.tokens(),
                  .pattern = Pattern(pattern),
                  .whole_piece_first = whole_piece_first,
                  .rules = table.rules(),
                  .token_options = token_options,
                  .normalizers = normalizers}),
        decoder_(decoder_of(table, special_tokens, encoder_)) {}

  TokenIds ids_of_text(nb::handle text, bool allow_special, std::size_t threads) const {
    const Utf8 utf8(text);
    const Released released(utf8.view().size());
    if (threads > 1) {
      return encoder_.encode_parallel(utf8.view(), allow_special, threads, released.check());
    }
    TokenIds ids;
    encoder_.encode(utf8.view(), allow_special, ids, released.check());
    return ids;
  }

  template <typename Id>
  nb::tuple documents_as(const nb::list& documents, std::uint32_t end_id, std::size_t threads,
                         const nb::object& check) const {
    const Utf8List utf8(documents);
    // Python handles signals in the main thread only; elsewhere an exception of `check` stops.
    const InterruptCheck check_both = [&check] {
      const nb::gil_scoped_acquire gil;
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      if (!check.is_none()) check();
    };
    EncodedDocuments<Id> encoded;
    {
      const nb::gil_scoped_release released;
      encoded =
          tilth::bpe::encode_documents<Id>(encoder_, utf8.views(), end_id, threads, check_both);
    }
    return nb::make_tuple(numbers_of(std::move(encoded.ids)), numbers_of(std::move(encoded.ends)));
  }

  Encoder encoder_;
  Decoder decoder_;
};

class Stream {
 public:
  Stream(const Codec& codec, bool allow_special) : stream_(codec.encoder(), allow_special) {}

  nb::list feed(nb::handle text) {
    const Busy busy(is_busy_, busy_message);
    const Utf8 utf8(text);
    TokenIds ids;
    {
      const Released released(utf8.view().size());
      stream_.feed(utf8.view(), ids, released.check());
    }
    return list_of(ids.view());
  }

  nb::list finish() {
    const Busy busy(is_busy_, busy_message);
    TokenIds ids;
    stream_.finish(ids);
    return list_of(ids.view());
  }

 private:
  static constexpr const char* busy_message = "this stream is at work in another thread";

  StreamEncoder stream_;
  std::atomic<bool> is_busy_ = false;
};

// --- training ------------------------------------------------------------------------------------

// Calls a Python function (phase, done, total) and the handler of Ctrl-C from the working thread.
// An exception of either stops the work.
ProgressFunction progress_function(const nb::object& function, const char* phase) {
  return [&function, phase](const Progress& progress) {
    const nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (!function.is_none()) function(phase, progress.done, progress.total);
  };
}

// Calls a Python function () -> bytes for each block. Call it without the GIL.
class PythonSource {
 public:
  explicit PythonSource(const nb::object& read) : read_(read) {}
  std::string_view operator()() {
    const nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    block_ = nb::cast<nb::bytes>(read_());
    return view_of(block_);
  }

 private:
  nb::object read_;
  nb::bytes block_;
};

BlockSink python_sink(const nb::object& write) {
  return [&write](std::string_view block) {
    const nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    write(nb::bytes(block.data(), block.size()));
  };
}

// (number of pieces, sum of their counts)
nb::tuple tuple_of(const RecordTotals& totals) {
  return nb::make_tuple(totals.num_pieces, totals.count);
}

nb::list merge_sources(const nb::list& reads, const nb::object& write) {
  std::vector<PythonSource> sources;  // destroyed with the GIL
  for (const nb::handle read : reads) sources.emplace_back(nb::borrow(read));
  std::vector<RecordReader> readers;
  for (PythonSource& source : sources) readers.emplace_back(std::ref(source), readers.size());
  RecordTotals totals;
  {
    const nb::gil_scoped_release released;
    totals = merge_records(readers, python_sink(write));
  }
  nb::list all;
  all.append(tuple_of(totals));
  for (const RecordReader& reader : readers) all.append(tuple_of(reader.totals()));
  return all;
}

// Counts the pieces of a corpus, then learns merges from them.
class Trainer {
 public:
  Trainer(std::vector<std::string> special_tokens, const Steps& pattern, const nb::int_& threads,
          nb::object progress)
      : progress_(std::move(progress)) {
    counter_.emplace(CountOptions{.special_tokens = std::move(special_tokens),
                                  .pattern = Pattern(pattern),
                                  .num_threads = threads_of(threads),
                                  .progress = progress_function(progress_, "count")});
  }

  void add_files(const std::vector<std::string>& paths) {
    const Busy busy(is_busy_, busy_message);
    try {
      const nb::gil_scoped_release released;
      counter_->add_files(paths);
    } catch (const std::runtime_error& error) {
      PyErr_SetString(PyExc_OSError, error.what());
      throw nb::python_error();
    }
  }

  void add_texts(const nb::list& texts) {
    const Busy busy(is_busy_, busy_message);
    const Utf8List utf8(texts);
    const nb::gil_scoped_release released;
    counter_->add_texts(utf8.views());
  }

  // Add a piece that was split and counted in Python.
  void add_piece(const nb::bytes& piece, std::uint64_t count) {
    const Busy busy(is_busy_, busy_message);
    pieces_.add(view_of(piece), count);
  }

  // Add the pieces of records: `num_pieces` of them in `num_bytes` bytes, used to allocate once.
  nb::tuple add_records(const nb::object& read, std::uint64_t num_pieces, std::uint64_t num_bytes) {
    const Busy busy(is_busy_, busy_message);
    PythonSource source(read);
    RecordReader reader(std::ref(source));
    {
      const nb::gil_scoped_release released;
      pieces_.reserve(num_pieces, num_bytes);
      while (reader.next()) pieces_.add(reader.piece(), reader.count());
    }
    return tuple_of(reader.totals());
  }

  nb::tuple write_records(const nb::object& write) {
    const Busy busy(is_busy_, busy_message);
    RecordTotals totals;
    {
      const nb::gil_scoped_release released;
      if (pieces_.size() == 0) pieces_ = counter_->finish();
      totals = tilth::bpe::write_records(pieces_, python_sink(write), check_signals);
    }
    return tuple_of(totals);
  }

  // Return the merges as pairs of ids: 0 to 255 are the bytes, 256 + i is the result of merge i.
  nb::list train(const nb::int_& most_merges) {
    const Busy busy(is_busy_, busy_message);
    const std::size_t num_merges = size_of("num_merges", most_merges, tilth::max_merges, 0);
    std::vector<TrainedMerge> merges;
    {
      const nb::gil_scoped_release released;
      if (pieces_.size() == 0) pieces_ = counter_->finish();
      merges = tilth::bpe::train(pieces_, num_merges,
                                 {.progress = progress_function(progress_, "merge")});
    }
    nb::list pairs;
    for (const auto& merge : merges) pairs.append(nb::make_tuple(merge.left, merge.right));
    return pairs;
  }

 private:
  static constexpr const char* busy_message = "this trainer is at work already";

  nb::object progress_;
  std::optional<PieceCounter> counter_;
  PieceCounts pieces_;
  std::atomic<bool> is_busy_ = false;
};

}  // namespace

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

  nb::class_<Table>(m, "VocabularyTable", "Tokens and merges; see vocabulary.hpp.")
      .def(nb::init<nb::list, nb::list>(), "tokens"_a, "merges"_a,
           nb::sig("def __init__(self, tokens: list[tuple[int, bytes]], "
                   "merges: list[tuple[bytes, bytes]]) -> None"))
      .def("has_id", &Table::has_id, "id"_a)
      .def("__len__", &Table::num_tokens)
      .def_prop_ro("num_merges", &Table::num_merges)
      .def_prop_ro("vocab_size", &Table::vocab_size)
      .def("tokens", &Table::tokens, nb::sig("def tokens(self) -> dict[int, bytes]"))
      .def("merges", &Table::merges, nb::sig("def merges(self) -> tuple[tuple[bytes, bytes], ...]"))
      .def("find", &Table::find, "token"_a, nb::sig("def find(self, token: bytes) -> int | None"));
  m.def("read_ranks", &read_ranks_bytes, "content"_a,
        nb::sig("def read_ranks(content: bytes) -> VocabularyTable | None"),
        "Read tiktoken's ranks; None if the file has an unusual form.");
  m.def("read_tokenizer_json", &read_json_bytes, "content"_a,
        nb::sig("def read_tokenizer_json(content: bytes) -> "
                "tuple[VocabularyTable, bytes, list[str]] | None"),
        "Read the vocabulary of a tokenizer.json; None if it has an unusual form.");

  nb::class_<Codec>(m, "Encoder", "Encodes and decodes with one vocabulary; see encode.hpp.")
      .def(nb::init<const Table&, nb::list, const Steps&, bool, const std::vector<OptionsTuple>&,
                    const std::vector<std::string>&>(),
           "vocabulary"_a, "special_tokens"_a, "pattern"_a, "whole_piece_first"_a,
           "token_options"_a = std::vector<OptionsTuple>(),
           "normalizers"_a = std::vector<std::string>(),
           nb::sig("def __init__(self, vocabulary: VocabularyTable, "
                   "special_tokens: list[tuple[int, bytes]], pattern: list[str], "
                   "whole_piece_first: bool, "
                   "token_options: list[tuple[int, bool, bool, bool, bool]] = [], "
                   "normalizers: list[str] = []) -> None"))
      .def("encode", &Codec::encode,
           nb::sig("def encode(self, text: str | bytes, allow_special: bool) -> list[int]"))
      .def("encode_array", &Codec::encode_array, "text"_a, "allow_special"_a, "threads"_a)
      .def("encode_batch", &Codec::encode_batch,
           nb::sig("def encode_batch(self, texts: list[str | bytes], allow_special: bool, "
                   "threads: int) -> list[list[int]]"))
      .def("encode_documents", &Codec::encode_documents, "documents"_a, "end_id"_a, "wide"_a,
           "threads"_a, "check"_a.none(),
           nb::sig(
               "def encode_documents(self, documents: list[str | bytes], end_id: int, "
               "wide: bool, threads: int, check: object | None) -> tuple[NDArray[numpy.uint32] | "
               "NDArray[numpy.uint16], NDArray[numpy.uint64]]"),
           "Return the ids of all documents, each followed by end_id, and where each ends.")
      .def("encode_with_offsets", &Codec::encode_with_offsets,
           nb::sig("def encode_with_offsets(self, text: str | bytes, allow_special: bool) -> "
                   "tuple[list[int], list[tuple[int, int]]]"))
      .def("split_parts", &Codec::split_parts, "text"_a, "allow_special"_a, "with_offsets"_a,
           nb::sig("def split_parts(self, text: str | bytes, allow_special: bool, "
                   "with_offsets: bool) -> list[tuple[str, int | None, list[tuple[int, int]]]]"),
           "Return the special tokens of a text and the normalized text between them.")
      .def("count", &Codec::count,
           nb::sig("def count(self, text: str | bytes, allow_special: bool) -> int"))
      .def("decode_bytes", &Codec::decode_bytes,
           nb::sig("def decode_bytes(self, ids: object) -> bytes"))
      .def(
          "stream",
          [](const Codec& codec, bool allow_special) {
            return std::make_unique<Stream>(codec, allow_special);
          },
          "allow_special"_a, nb::keep_alive<0, 1>());
  nb::class_<Stream>(m, "Stream", "Encodes text that arrives in chunks; see encode_stream.hpp.")
      .def("feed", &Stream::feed, nb::sig("def feed(self, text: str | bytes) -> list[int]"))
      .def("finish", &Stream::finish, nb::sig("def finish(self) -> list[int]"));

  nb::class_<Trainer>(m, "Trainer", "Learns merges from a corpus; see count.hpp and train.hpp.")
      .def(nb::init<std::vector<std::string>, const Steps&, nb::int_, nb::object>(),
           "special_tokens"_a, "pattern"_a, "threads"_a, "progress"_a.none())
      .def("add_files", &Trainer::add_files, "paths"_a)
      .def("add_texts", &Trainer::add_texts,
           nb::sig("def add_texts(self, texts: list[str] | list[bytes]) -> None"))
      .def("add_piece", &Trainer::add_piece, "piece"_a, "count"_a)
      .def("train", &Trainer::train, "num_merges"_a,
           nb::sig("def train(self, num_merges: int) -> list[tuple[int, int]]"))
      .def("add_records", &Trainer::add_records,
           nb::sig(
               "def add_records(self, read: collections.abc.Callable[[], bytes], num_pieces: int, "
               "num_bytes: int) -> tuple[int, int]"))
      .def("write_records", &Trainer::write_records,
           nb::sig("def write_records(self, write: collections.abc.Callable[[bytes], object]) -> "
                   "tuple[int, int]"),
           "Write the counted pieces, sorted; return their number and the sum of their counts.");

  m.def("merge_records", &merge_sources,
        nb::sig("def merge_records(reads: list[collections.abc.Callable[[], bytes]], "
                "write: collections.abc.Callable[[bytes], object]) -> list[tuple[int, int]]"),
        "Write the sum of sorted records; return the number of pieces and the sum of their counts "
        "of the result, then of each source.");
  // Its args are the problem and the index of the source.
  nb::object record_error =
      nb::steal(PyErr_NewException("tilth.tokenizer._core.RecordError", PyExc_ValueError, nullptr));
  m.attr("RecordError") = record_error;
  nb::register_exception_translator(
      [](const std::exception_ptr& thrown, void* type) {
        try {
          std::rethrow_exception(thrown);
        } catch (const RecordError& error) {
          const nb::tuple arguments = nb::make_tuple(error.what(), error.source());
          PyErr_SetObject(static_cast<PyObject*>(type), arguments.ptr());
        }
      },
      record_error.release().ptr());
}
