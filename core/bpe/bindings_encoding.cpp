// The Python classes Encoder, which also decodes, and Stream.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <utility>

#include "bindings.hpp"
#include "decode.hpp"
#include "encode.hpp"
#include "encode_documents.hpp"
#include "encode_stream.hpp"
#include "text_hash.hpp"

namespace tilth::bpe::bindings {
namespace {

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

// Bytes of an unknown number. They are written once, into the object that is returned: a buffer of
// the whole text would take as long to touch as decoding takes.
class BytesBuilder {
 public:
  explicit BytesBuilder(std::size_t capacity) : capacity_(std::max<std::size_t>(capacity, 64)) {
    bytes_ = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(capacity_));
    if (bytes_ == nullptr) throw nb::python_error();
    tilth::prefer_large_pages(PyBytes_AS_STRING(bytes_), capacity_);
  }
  ~BytesBuilder() { Py_XDECREF(bytes_); }
  BytesBuilder(const BytesBuilder&) = delete;
  BytesBuilder& operator=(const BytesBuilder&) = delete;

  void append(std::span<const char> bytes) {
    if (bytes.size() > capacity_ - size_) resize(std::max(capacity_ / 2 * 3, size_ + bytes.size()));
    std::memcpy(PyBytes_AS_STRING(bytes_) + size_, bytes.data(), bytes.size());
    size_ += bytes.size();
  }

  nb::bytes finish() {
    resize(size_);
    return nb::steal<nb::bytes>(std::exchange(bytes_, nullptr));
  }

 private:
  void resize(std::size_t capacity) {
    if (_PyBytes_Resize(&bytes_, static_cast<Py_ssize_t>(capacity)) != 0) throw nb::python_error();
    capacity_ = capacity;
  }

  PyObject* bytes_ = nullptr;
  std::size_t size_ = 0, capacity_;
};

constexpr std::size_t decoded_at_once = 1024;  // ids; their bytes stay in the cache
constexpr std::size_t bytes_per_id = 5;        // memory that is not written costs nothing

template <typename Id>
nb::bytes decode_array(const Decoder& decoder, std::span<const Id> ids) {
  BytesBuilder made(bytes_per_id * ids.size());
  Array<char> bytes;
  for (std::size_t first = 0; first < ids.size(); first += decoded_at_once) {
    bytes.clear();
    try {
      decoder.decode(ids.subspan(first, std::min(decoded_at_once, ids.size() - first)), bytes);
    } catch (const UnknownId& error) {
      throw UnknownId(error.id(), first + error.place());
    }
    made.append(bytes.view());
  }
  return made.finish();
}

nb::bytes decode_sequence(const Decoder& decoder, nb::handle sequence) {
  const nb::object items = nb::steal(PySequence_Fast(sequence.ptr(), "ids are a sequence of ints"));
  if (!items.is_valid()) throw nb::python_error();
  const auto size = static_cast<std::size_t>(PySequence_Fast_GET_SIZE(items.ptr()));
  std::uint32_t ids[decoded_at_once];  // an array of all ids would cost page faults
  BytesBuilder made(bytes_per_id * size);
  Array<char> bytes;
  for (std::size_t first = 0; first < size; first += decoded_at_once) {
    const std::size_t count = std::min(decoded_at_once, size - first);
    PyObject** objects = PySequence_Fast_ITEMS(items.ptr()) + first;
    for (std::size_t i = 0; i < count; ++i) {
      // Objects of a list that was made at once are apart in memory, in order or not.
      if (i + 16 < count) __builtin_prefetch(objects[i + 16]);
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
    bytes.clear();
    try {
      decoder.decode(std::span<const std::uint32_t>(ids, count), bytes);
    } catch (const UnknownId& error) {
      throw UnknownId(error.id(), first + error.place());
    }
    made.append(bytes.view());
  }
  return made.finish();
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

  // Return the ids, the ends, the sizes in bytes and, if `with_hashes`, the hashes of the documents
  // of a text, or None if it is not UTF-8.
  nb::object encode_separated(const nb::bytes& text, const nb::bytes& separator,
                              std::uint32_t end_id, bool wide, bool with_hashes,
                              const nb::int_& threads, const nb::object& check) const {
    const std::size_t num_threads = threads_of(threads);
    std::optional<std::vector<std::string_view>> documents;
    Array<std::uint64_t> sizes, hashes;
    {
      const Released released(text.size());
      documents = split_documents(view_of(text), view_of(separator));
      if (documents) {
        for (const std::string_view each : *documents) {
          sizes.append(each.size());
          if (with_hashes) hashes.append(text_hash(each));
        }
      }
    }
    if (!documents) return nb::none();
    const nb::tuple ids = wide ? views_as<std::uint32_t>(*documents, end_id, num_threads, check)
                               : views_as<std::uint16_t>(*documents, end_id, num_threads, check);
    return nb::make_tuple(ids[0], ids[1], numbers_of(std::move(sizes)),
                          numbers_of(std::move(hashes)));
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
    using Ids32 = nb::ndarray<const std::uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
    using Ids16 = nb::ndarray<const std::uint16_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
    if (PyList_Check(ids.ptr()) || PyTuple_Check(ids.ptr())) return decode_sequence(decoder_, ids);
    if (Ids32 ids32; nb::try_cast(ids, ids32, false)) {
      return decode_array(decoder_, std::span(ids32.data(), ids32.size()));
    }
    if (Ids16 ids16; nb::try_cast(ids, ids16, false)) {
      return decode_array(decoder_, std::span(ids16.data(), ids16.size()));
    }
    return decode_sequence(decoder_, ids);  // another dtype, or any sequence of ints
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
    return views_as<Id>(utf8.views(), end_id, threads, check);
  }

  template <typename Id>
  nb::tuple views_as(std::span<const std::string_view> documents, std::uint32_t end_id,
                     std::size_t threads, const nb::object& check) const {
    // Python handles signals in the main thread only; elsewhere an exception of `check` stops.
    const InterruptCheck check_both = [&check] {
      const nb::gil_scoped_acquire gil;
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      if (!check.is_none()) check();
    };
    EncodedDocuments<Id> encoded;
    {
      const nb::gil_scoped_release released;
      encoded = tilth::bpe::encode_documents<Id>(encoder_, documents, end_id, threads, check_both);
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

}  // namespace

void bind_encoding(nb::module_& m) {
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
      .def("encode_separated", &Codec::encode_separated, "text"_a, "separator"_a, "end_id"_a,
           "wide"_a, "with_hashes"_a, "threads"_a, "check"_a.none(),
           nb::sig("def encode_separated(self, text: bytes, separator: bytes, end_id: int, "
                   "wide: bool, with_hashes: bool, threads: int, check: object | None) -> "
                   "tuple[NDArray[numpy.uint32] | NDArray[numpy.uint16], NDArray[numpy.uint64], "
                   "NDArray[numpy.uint64], NDArray[numpy.uint64]] | None"),
           "Return the ids, ends, sizes and hashes of the documents between separators; None if "
           "the text is not UTF-8.")
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
}

}  // namespace tilth::bpe::bindings
