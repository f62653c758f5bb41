// Python bindings of the decoder. Exceptions of the core become ValueError and MemoryError.

#include "../common/bindings.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "../common/checked.hpp"
#include "decoder.hpp"
#include "draw.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace tilth::decoder;
using namespace tilth::python;

namespace {

using Weight = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;
template <typename Score>
using Scores = nb::ndarray<const Score, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using RowsOfScores = nb::ndarray<const float, nb::ndim<2>, nb::device::cpu>;
// Temperature, top_k, top_p, min_p and the random number.
using Choice = std::tuple<double, std::size_t, double, double, double>;
using Rows = nb::ndarray<nb::numpy, float, nb::ndim<3>>;
using Numbers = nb::ndarray<nb::numpy, double, nb::ndim<2>>;

Norm norm_of(std::string_view name) {
  if (name == "pre") return Norm::pre;
  if (name == "post") return Norm::post;
  if (name == "none") return Norm::none;
  throw nb::value_error("the norms are pre, post and none");
}

Precision precision_of(std::string_view name) {
  if (name == "float32") return Precision::float32;
  if (name == "bfloat16") return Precision::bfloat16;
  if (name == "int8") return Precision::int8;
  if (name == "int4") return Precision::int4;
  throw nb::value_error("the precisions are float32, bfloat16, int8 and int4");
}

using Weights = nb::typed<nb::dict, nb::str, nb::object>;

std::shared_ptr<const Network> make_network(
    const Weights& weights, const nb::int_& vocab_size, const nb::int_& context_length,
    const nb::int_& d_model, const nb::int_& num_layers, const nb::int_& num_heads,
    const nb::int_& num_kv_heads, const nb::int_& d_head, const nb::int_& d_ff,
    std::vector<double> rope_frequencies, double norm_epsilon, std::string_view norm, bool is_gated,
    bool is_tied, bool has_qk_norm, bool has_qkv_bias, std::string_view precision) {
  const auto dimension = [](const char* name, const nb::int_& number) {
    return size_of(name, number, tilth::max_dimension);
  };
  const Shape shape = {.vocab_size = dimension("vocab_size", vocab_size),
                       .context_length = dimension("context_length", context_length),
                       .d_model = dimension("d_model", d_model),
                       .num_layers = dimension("num_layers", num_layers),
                       .num_heads = dimension("num_heads", num_heads),
                       .num_kv_heads = dimension("num_kv_heads", num_kv_heads),
                       .d_head = dimension("d_head", d_head),
                       .d_ff = dimension("d_ff", d_ff),
                       .rope_frequencies = std::move(rope_frequencies),
                       .norm_epsilon = static_cast<float>(norm_epsilon),
                       .norm = norm_of(norm),
                       .is_gated = is_gated,
                       .is_tied = is_tied,
                       .has_qk_norm = has_qk_norm,
                       .has_qkv_bias = has_qkv_bias};
  // The dict keeps every array alive until the network has copied it.
  std::size_t num_used = 0;
  const auto source = [&](const std::string& name, std::size_t rows, std::size_t columns) {
    Weight weight;  // never a converted copy, which would be freed after this call
    if (!weights.contains(name.c_str()) || !nb::try_cast(weights[name.c_str()], weight, false)) {
      throw nb::value_error((name + " is missing, or is not an array of float32").c_str());
    }
    const bool fits = weight.ndim() == 2
                          ? weight.shape(0) == rows && weight.shape(1) == columns
                          : weight.ndim() == 1 && rows == 1 && weight.size() == columns;
    if (!fits) {
      const std::string size = std::to_string(rows) + " x " + std::to_string(columns);
      throw nb::value_error((name + " is not " + size).c_str());
    }
    ++num_used;
    return weight.data();
  };
  auto network = std::make_shared<const Network>(shape, precision_of(precision), source);
  if (num_used < weights.size()) {
    throw nb::value_error(("of " + std::to_string(weights.size()) +
                           " weights, the model has only " + std::to_string(num_used))
                              .c_str());
  }
  return network;
}

template <typename Score>
std::size_t draw_one(const Scores<Score>& scores, double largest, double temperature,
                     std::size_t top_k, double top_p, double min_p, double unit) {
  if (!std::isfinite(largest)) throw nb::value_error("the largest score is not finite");
  if (!(temperature > 0)) throw nb::value_error("the temperature is not above 0");
  const Filters filters = {temperature, top_k, top_p, min_p};
  return draw(std::span<const Score>(scores.data(), scores.size()), largest, filters, unit);
}

template <typename Score>
void define_draw(nb::module_& m) {
  m.def("draw", &draw_one<Score>, "scores"_a, nb::kw_only(), "largest"_a, "temperature"_a,
        "top_k"_a, "top_p"_a, "min_p"_a, "unit"_a, "Sample the next token; see draw.hpp.");
}

CachePrecision cache_precision_of(std::string_view name) {
  if (name == "float32") return CachePrecision::float32;
  if (name == "int8") return CachePrecision::int8;
  throw nb::value_error("the precisions of a cache are float32 and int8");
}

const Kernels& kernels_of(std::string_view name) {
  if (name.empty()) return best_kernels();
  for (const Kernels* kernels : runnable_kernels()) {
    if (name == kernels->name) return *kernels;
  }
  throw nb::value_error("this processor does not have these kernels");
}

// A decoder that rejects concurrent calls from Python threads.
class GuardedDecoder {
 public:
  GuardedDecoder(std::shared_ptr<const Network> network, const nb::int_& threads,
                 const nb::int_& rows, std::string_view kernels, std::string_view cache)
      : decoder_(std::move(network), threads_of(threads), size_of("rows", rows, Decoder::max_rows),
                 kernels_of(kernels), cache_precision_of(cache)) {}

  Rows extend(const std::vector<std::vector<std::uint32_t>>& ids, bool every) {
    const Busy busy(is_busy_, busy_message);
    const std::vector<Decoder::Ids> spans(ids.begin(), ids.end());
    decoder_.check(spans);
    std::size_t most = 0;
    for (const auto& row : ids) most = std::max(most, row.size());
    if (most == 0) throw nb::value_error("there are no token ids to read");
    const std::size_t height = every ? most : 1, width = decoder_.network().shape().vocab_size;
    auto logits = tilth::Array<float>::zeros(tilth::checked_multiply(ids.size(), height, width));
    {
      const nb::gil_scoped_release released;
      decoder_.extend(spans, every ? Logits::every : Logits::last, {logits.data(), logits.size()},
                      check_signals);
    }
    return numpy_of<Rows>(std::move(logits), {ids.size(), height, width});
  }

  Numbers score(const std::vector<std::vector<std::uint32_t>>& ids,
                const std::vector<std::vector<std::uint32_t>>& targets, std::size_t vocab_size) {
    const Busy busy(is_busy_, busy_message);
    const std::vector<Decoder::Ids> spans(ids.begin(), ids.end());
    const std::vector<Decoder::Ids> wanted(targets.begin(), targets.end());
    decoder_.check(spans);
    std::size_t most = 0;
    for (const auto& row : ids) most = std::max(most, row.size());
    if (most == 0) throw nb::value_error("there are no token ids to read");
    auto found = tilth::Array<double>::zeros(tilth::checked_multiply(ids.size(), most));
    {
      const nb::gil_scoped_release released;
      decoder_.score(spans, wanted, vocab_size, {found.data(), found.size()}, check_signals);
    }
    return numpy_of<Numbers>(std::move(found), {ids.size(), most});
  }

  std::vector<std::ptrdiff_t> choose(const RowsOfScores& scores,
                                     const std::vector<std::optional<Choice>>& choices) {
    const Busy busy(is_busy_, busy_message);
    if (choices.size() != scores.shape(0)) throw nb::value_error("give a choice for each row");
    if (scores.size() > 0 && scores.stride(1) != 1)
      throw nb::value_error("rows must be contiguous");
    std::vector<Decoder::Choice> wanted;
    std::vector<std::size_t> rows;
    for (std::size_t row = 0; row < choices.size(); ++row) {
      if (!choices[row]) continue;
      const auto& [temperature, top_k, top_p, min_p, unit] = *choices[row];
      if (!(temperature >= 0)) throw nb::value_error("the temperature is not at least 0");
      wanted.push_back(
          {{&scores(row, 0), scores.shape(1)}, {temperature, top_k, top_p, min_p}, unit});
      rows.push_back(row);
    }
    std::vector<std::size_t> chosen(wanted.size());
    {
      const nb::gil_scoped_release released;
      decoder_.choose(wanted, chosen);
    }
    std::vector<std::ptrdiff_t> tokens(choices.size(), -1);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (chosen[i] != no_choice) tokens[rows[i]] = static_cast<std::ptrdiff_t>(chosen[i]);
    }
    return tokens;
  }

  void truncate(std::size_t row, std::size_t length) {
    const Busy busy(is_busy_, busy_message);
    decoder_.truncate(row, length);
  }

  void share(std::size_t source, std::size_t row, std::size_t length) {
    const Busy busy(is_busy_, busy_message);
    decoder_.share(source, row, length);
  }

  std::size_t length(std::size_t row) const { return decoder_.length(row); }

 private:
  static constexpr const char* busy_message =
      "this decoder is at work in another thread; make one for each thread";
  Decoder decoder_;
  std::atomic<bool> is_busy_ = false;
};

}  // namespace

NB_MODULE(_core, m) {
  m.doc() = "The native decoder of tilth.generation; its specification is tilth.model.";
  m.attr("MAX_THREADS") = tilth::max_threads;
  m.attr("MAX_DIMENSION") = tilth::max_dimension;
  m.attr("MAX_ROWS") = Decoder::max_rows;
  m.def(
      "runnable_kernels",
      [] {
        std::vector<std::string> names;
        for (const Kernels* kernels : runnable_kernels()) names.emplace_back(kernels->name);
        return names;
      },
      "The names of the kernels that this processor can run, fastest last.");

  define_draw<float>(m);
  define_draw<double>(m);

  nb::class_<Network>(m, "Network", "Weights packed for the processor; see network.hpp.")
      .def(nb::new_(&make_network), "weights"_a, nb::kw_only(), "vocab_size"_a, "context_length"_a,
           "d_model"_a, "num_layers"_a, "num_heads"_a, "num_kv_heads"_a, "d_head"_a, "d_ff"_a,
           "rope_frequencies"_a, "norm_epsilon"_a, "norm"_a, "is_gated"_a, "is_tied"_a,
           "has_qk_norm"_a, "has_qkv_bias"_a, "precision"_a);
  nb::class_<GuardedDecoder>(m, "Decoder",
                             "Computes logits of several rows, with caches; see decoder.hpp.")
      .def(nb::init<std::shared_ptr<const Network>, nb::int_, nb::int_, std::string_view,
                    std::string_view>(),
           "network"_a, "threads"_a, "rows"_a = nb::int_(1), "kernels"_a = "",
           "cache"_a = "float32")
      .def("extend", &GuardedDecoder::extend, "ids"_a, "every"_a = false,
           "Append ids to each row; return the logits after the last id, or after every id.")
      .def("score", &GuardedDecoder::score, "ids"_a, "targets"_a, "vocab_size"_a,
           "Append ids to each row; return the log-probabilities of targets after its last ids.")
      .def("choose", &GuardedDecoder::choose, "scores"_a, "choices"_a,
           "Choose a token for each row of scores that has a choice; -1 without a finite score.")
      .def("truncate", &GuardedDecoder::truncate, "row"_a, "length"_a,
           "Keep the first `length` ids of a row only.")
      .def("share", &GuardedDecoder::share, "source"_a, "row"_a, "length"_a,
           "Replace a row by the first `length` ids of another, without reading them.")
      .def("length", &GuardedDecoder::length, "row"_a = 0, "Number of ids in the cache of a row.");
}
