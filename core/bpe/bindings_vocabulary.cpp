// The Python class VocabularyTable, and the readers of tokenizer files.

#include "bindings.hpp"

namespace tilth::bpe::bindings {
namespace {

nb::bytes bytes_of(const std::string& text) { return nb::bytes(text.data(), text.size()); }

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
  return nb::make_tuple(Table(std::move(json->table)), bytes_of(json->rest), unspelled);
}

nb::tuple write_json(const Table& table, const nb::list& named) {
  const VocabularyJson json = write_vocabulary_json(table.table(), TokenList(named).tokens());
  return nb::make_tuple(bytes_of(json.vocab), bytes_of(json.merges));
}

nb::tuple join(const Table& table, const nb::list& added) {
  const JoinedVocabulary joined = join_vocabulary(table.table(), TokenList(added).tokens());
  return nb::make_tuple(bytes_of(joined.ids), bytes_of(joined.tokens), bytes_of(joined.merges));
}

}  // namespace

void bind_vocabulary(nb::module_& m) {
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
      .def("find", &Table::find, "token"_a, nb::sig("def find(self, token: bytes) -> int | None"))
      .def("json", &write_json, "named"_a,
           nb::sig("def json(self, named: list[tuple[int, bytes]]) -> tuple[bytes, bytes]"))
      .def("joined", &join, "added"_a,
           nb::sig("def joined(self, added: list[tuple[int, bytes]]) -> "
                   "tuple[bytes, bytes, bytes]"));
  m.def("read_ranks", &read_ranks_bytes, "content"_a,
        nb::sig("def read_ranks(content: bytes) -> VocabularyTable | None"),
        "Read tiktoken's ranks; None if the file has an unusual form.");
  m.def("read_tokenizer_json", &read_json_bytes, "content"_a,
        nb::sig("def read_tokenizer_json(content: bytes) -> "
                "tuple[VocabularyTable, bytes, list[str]] | None"),
        "Read the vocabulary of a tokenizer.json; None if it has an unusual form.");
}

}  // namespace tilth::bpe::bindings
