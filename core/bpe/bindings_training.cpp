// The Python class Trainer, and the sum of saved piece counts.

#include <atomic>
#include <functional>

#include "../common/limits.hpp"
#include "bindings.hpp"
#include "count.hpp"
#include "pattern.hpp"
#include "piece_records.hpp"
#include "train.hpp"

namespace tilth::bpe::bindings {
namespace {

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

void bind_training(nb::module_& m) {
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

}  // namespace tilth::bpe::bindings
