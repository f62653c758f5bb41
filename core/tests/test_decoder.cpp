// Tests of Decoder against a reference in double precision, for every variant, kernel and
// precision; equal bits for any number of threads and any split into calls.

#include <cmath>
#include <map>
#include <random>
#include <stdexcept>
#include <string>

#include "../decoder/decoder.hpp"
#include "check.hpp"

using namespace tilth::decoder;

namespace {

using Vector = std::vector<double>;
using Weights = std::map<std::string, std::vector<float>>;

// --- reference implementation ---

Vector product(const std::vector<float>& matrix, const Vector& x) {
  Vector y(matrix.size() / x.size());
  for (std::size_t r = 0; r < y.size(); ++r) {
    for (std::size_t c = 0; c < x.size(); ++c) y[r] += matrix[r * x.size() + c] * x[c];
  }
  return y;
}

Vector norm(const Vector& x, const std::vector<float>& weight) {
  double squares = 0;
  for (const double number : x) squares += number * number;
  const double inverse = 1 / std::sqrt(squares / static_cast<double>(x.size()) + 1e-5);
  Vector y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] * inverse * weight[i];
  return y;
}

std::vector<double> frequencies_of(std::size_t d_head) {
  std::vector<double> frequencies(d_head / 2);
  for (std::size_t k = 0; k < frequencies.size(); ++k) {
    frequencies[k] = std::pow(10000.0, -2.0 * static_cast<double>(k) / static_cast<double>(d_head));
  }
  return frequencies;
}

Vector sum(const Vector& a, const Vector& b) {
  Vector y(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) y[i] = a[i] + b[i];
  return y;
}

Vector part(const Vector& x, std::size_t first, std::size_t size) {
  const auto begin = x.begin() + static_cast<std::ptrdiff_t>(first);
  return Vector(begin, begin + static_cast<std::ptrdiff_t>(size));
}

double silu(double x) { return x / (1 + std::exp(-x)); }

class Reference {
 public:
  Reference(const Shape& shape, const Weights& weights) : shape_(shape), weights_(weights) {
    keys_.resize(shape.num_layers);
    values_.resize(shape.num_layers);
  }

  Vector read(std::uint32_t id) {
    const auto& table = weights_.at("token_embeddings.weight");
    Vector x(table.begin() + static_cast<std::ptrdiff_t>(id * shape_.d_model),
             table.begin() + static_cast<std::ptrdiff_t>((id + 1) * shape_.d_model));
    for (std::size_t i = 0; i < shape_.num_layers; ++i) {
      const std::string layer = "layers." + std::to_string(i) + ".";
      const bool pre = shape_.norm == Norm::pre, post = shape_.norm == Norm::post;
      const Vector in1 = pre ? norm(x, weights_.at(layer + "ln1.weight")) : x;
      x = sum(x, attention(in1, i, layer + "attn."));
      if (post) x = norm(x, weights_.at(layer + "ln1.weight"));
      const Vector in2 = pre ? norm(x, weights_.at(layer + "ln2.weight")) : x;
      x = sum(x, feed_forward(in2, layer + "ffn."));
      if (post) x = norm(x, weights_.at(layer + "ln2.weight"));
    }
    if (shape_.norm == Norm::pre) x = norm(x, weights_.at("ln_final.weight"));
    ++position_;
    return product(shape_.is_tied ? table : weights_.at("lm_head.weight"), x);
  }

 private:
  Vector head(const Vector& x, std::size_t h, const std::string& norm_name) const {
    Vector y = part(x, h * shape_.d_head, shape_.d_head);
    if (shape_.has_qk_norm) y = norm(y, weights_.at(norm_name));
    for (std::size_t k = 0; shape_.has_rope() && k < y.size(); k += 2) {
      const double angle =
          static_cast<double>(position_) *
          std::pow(10000.0, -static_cast<double>(k) / static_cast<double>(y.size()));
      const double even = y[k], odd = y[k + 1];
      y[k] = even * std::cos(angle) - odd * std::sin(angle);
      y[k + 1] = even * std::sin(angle) + odd * std::cos(angle);
    }
    return y;
  }

  Vector attention(const Vector& x, std::size_t layer, const std::string& name) {
    const auto projected = [&](const std::string& part) {
      const Vector y = product(weights_.at(name + part + ".weight"), x);
      if (!shape_.has_qkv_bias) return y;
      const auto& bias = weights_.at(name + part + ".bias");
      return sum(y, Vector(bias.begin(), bias.end()));
    };
    const Vector q = projected("q_proj"), k = projected("k_proj");
    const std::size_t d_head = shape_.d_head, group = shape_.num_heads / shape_.num_kv_heads;
    Vector all_keys;
    for (std::size_t h = 0; h < shape_.num_kv_heads; ++h) {
      const Vector key = head(k, h, name + "k_norm.weight");
      all_keys.insert(all_keys.end(), key.begin(), key.end());
    }
    keys_[layer].push_back(all_keys);
    values_[layer].push_back(projected("v_proj"));
    Vector mixed(shape_.d_query());
    for (std::size_t h = 0; h < shape_.num_heads; ++h) {
      const Vector query = head(q, h, name + "q_norm.weight");
      const std::size_t first = h / group * d_head;
      Vector weight;
      double total = 0;
      for (const Vector& key : keys_[layer]) {
        double score = 0;
        for (std::size_t d = 0; d < d_head; ++d) score += query[d] * key[first + d];
        weight.push_back(std::exp(score / std::sqrt(static_cast<double>(d_head))));
        total += weight.back();
      }
      for (std::size_t i = 0; i < weight.size(); ++i) {
        for (std::size_t d = 0; d < d_head; ++d) {
          mixed[h * d_head + d] += weight[i] / total * values_[layer][i][first + d];
        }
      }
    }
    return product(weights_.at(name + "output_proj.weight"), mixed);
  }

  Vector feed_forward(const Vector& x, const std::string& name) const {
    Vector hidden = product(weights_.at(name + "w1.weight"), x);
    for (double& number : hidden) number = silu(number);
    if (shape_.is_gated) {
      const Vector value = product(weights_.at(name + "w3.weight"), x);
      for (std::size_t i = 0; i < hidden.size(); ++i) hidden[i] *= value[i];
    }
    return product(weights_.at(name + "w2.weight"), hidden);
  }

  Shape shape_;
  const Weights& weights_;
  std::size_t position_ = 0;
  std::vector<std::vector<Vector>> keys_, values_;
};

// --- comparison ---

// A source that draws each weight at random on request.
WeightSource drawn(Weights& weights, std::mt19937& random) {
  return [&](const std::string& name, std::size_t rows, std::size_t columns) {
    auto& numbers = weights[name];
    std::normal_distribution<float> normal(rows == 1 ? 1.0f : 0.0f,
                                           rows == 1 ? 0.3f : 1.0f / std::sqrt(float(columns)));
    numbers.resize(rows * columns);
    for (float& number : numbers) number = normal(random);
    return numbers.data();
  };
}

void extend(Decoder& decoder, Decoder::Ids ids, Logits wanted, std::span<float> logits) {
  const Decoder::Ids rows[] = {ids};
  decoder.extend(rows, wanted, logits);
}

double largest_difference(std::span<const float> found, const std::vector<Vector>& expected) {
  double largest = 0;
  std::size_t i = 0;
  for (const Vector& row : expected) {
    for (const double number : row) largest = std::max(largest, std::abs(found[i++] - number));
  }
  return largest;
}

void check_shape(const Shape& shape, std::mt19937& random) {
  Weights weights;
  const WeightSource source = drawn(weights, random);
  const auto network = std::make_shared<const Network>(shape, Precision::float32, source);
  const auto again = [&](const std::string& name, std::size_t, std::size_t) {
    return static_cast<const float*>(weights.at(name).data());
  };
  const auto int8 = std::make_shared<const Network>(shape, Precision::int8, again);
  std::vector<std::uint32_t> ids(shape.context_length);
  std::vector<Vector> expected;
  Reference reference(shape, weights);
  for (std::uint32_t& id : ids) {
    id = static_cast<std::uint32_t>(random() % shape.vocab_size);
    expected.push_back(reference.read(id));
  }

  std::vector<float> int8_logits;
  for (const Kernels* kernels : runnable_kernels()) {
    Decoder decoder(network, 2, 1, *kernels);
    std::vector<float> logits(ids.size() * shape.vocab_size);
    extend(decoder, ids, Logits::every, logits);
    CHECK_EQUAL(largest_difference(logits, expected) < 1e-4, true);

    Decoder quantized(int8, 2, 1, *kernels);
    std::vector<float> rounded(logits.size());
    extend(quantized, ids, Logits::every, rounded);
    if (int8_logits.empty()) int8_logits = rounded;
    double between = 0;
    for (std::size_t i = 0; i < rounded.size(); ++i) {
      between = std::max<double>(between, std::abs(rounded[i] - int8_logits[i]));
    }
    CHECK_EQUAL(between < 0.3, true);  // kernels may round a tie differently

    Decoder small(network, 3, 1, *kernels, CachePrecision::int8);
    std::vector<float> cached(logits.size());
    extend(small, ids, Logits::every, cached);
    CHECK_EQUAL(largest_difference(cached, expected) < 0.3, true);

    std::vector<Decoder::Choice> choices;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto row =
          std::span<const float>(logits).subspan(i * shape.vocab_size, shape.vocab_size);
      choices.push_back({row, {.temperature = 0.7, .top_p = 0.9}, 0.6});
    }
    std::vector<std::size_t> tokens(choices.size());
    small.choose(choices, tokens);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      CHECK_EQUAL(tokens[i], choose(choices[i].scores, choices[i].filters, choices[i].unit));
    }

    for (const std::size_t num_threads : {1u, 3u}) {
      for (const auto& [both, whole] : {std::pair(network, logits), std::pair(int8, rounded)}) {
        Decoder other(both, num_threads, 1, *kernels);
        std::vector<float> row(shape.vocab_size);
        for (std::size_t first = 0; first < ids.size();) {
          const std::size_t count = std::min<std::size_t>(1 + random() % 40, ids.size() - first);
          extend(other, std::span(ids).subspan(first, count), Logits::last, row);
          first += count;
          CHECK_EQUAL(other.length(0), first);
          const auto begin = whole.begin() + std::ptrdiff_t((first - 1) * shape.vocab_size);
          CHECK_EQUAL(std::equal(row.begin(), row.end(), begin), true);
          if (random() % 3 == 0) {  // truncate, and read again
            first -= random() % (first + 1);
            other.truncate(0, first);
          }
        }
      }
    }
  }
}

std::string message_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "none";
}

}  // namespace

int main() {
  std::mt19937 random(7);
  const Shape plain = {.vocab_size = 45,
                       .context_length = 80,
                       .d_model = 32,
                       .num_layers = 2,
                       .num_heads = 4,
                       .num_kv_heads = 4,
                       .d_head = 8,
                       .d_ff = 40,
                       .rope_frequencies = frequencies_of(8),
                       .norm_epsilon = 1e-5f};
  std::vector<Shape> shapes(10, plain);
  shapes[1].num_kv_heads = 2;
  shapes[2].norm = Norm::post;
  shapes[3].norm = Norm::none;
  shapes[4].rope_frequencies.clear();
  shapes[5].is_gated = false;
  shapes[6].is_tied = true;
  shapes[7].has_qk_norm = true;
  shapes[8].has_qkv_bias = true;
  shapes[9].d_head = 22;
  shapes[9].rope_frequencies = frequencies_of(22);
  for (int i = 0; i < 6; ++i) {
    Shape shape = plain;
    shape.num_kv_heads = 1 + random() % 3;
    shape.num_heads = shape.num_kv_heads * (1 + random() % 3);
    const bool has_rope = random() % 2 == 0;
    shape.d_head = (1 + random() % 20) * (has_rope ? 2 : 1);
    shape.rope_frequencies = frequencies_of(has_rope ? shape.d_head : 0);
    shape.d_model = 1 + random() % 90;
    shape.d_ff = 1 + random() % 90;
    shape.vocab_size = 1 + random() % 70;
    shape.context_length = 1 + random() % 140;
    shape.norm = static_cast<Norm>(random() % 3);
    shape.is_gated = random() % 2 == 0;
    shape.is_tied = random() % 2 == 0;
    shape.has_qk_norm = random() % 2 == 0;
    shape.has_qkv_bias = random() % 2 == 0;
    shapes.push_back(shape);
  }
  for (const Shape& shape : shapes) check_shape(shape, random);

  Weights weights;
  const auto network =
      std::make_shared<const Network>(plain, Precision::float32, drawn(weights, random));
  Decoder decoder(network, 2);
  std::vector<float> logits(plain.vocab_size);
  const std::vector<std::uint32_t> many(81, 1), wrong = {1, 45};
  CHECK_EQUAL(message_of([&] { extend(decoder, many, Logits::last, logits); }),
              "the context length is 80, and 0 tokens and 81 more do not fit");
  CHECK_EQUAL(message_of([&] { extend(decoder, wrong, Logits::last, logits); }),
              "token id 45 is not within the vocabulary of 45");
  CHECK_EQUAL(message_of([&] { decoder.truncate(0, 1); }), "cannot keep 1 tokens of 0");
  CHECK_EQUAL(decoder.length(0), 0u);
  return 0;
}
