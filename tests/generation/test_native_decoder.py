"""Tests of the native decoder against torch: every variant, kernel and split into calls."""

import math
import os
import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.model.test_transformer import OTHER_FAMILIES, copied_into_hugging_face
from tests.model.test_transformer import VARIANTS as MODEL_VARIANTS
from tilth.generation import LanguageModel, Sampling, _core, next_token_distribution
from tilth.generation.native_decoder import NativeDecoder, make_network
from tilth.generation.sampling import choice, choose
from tilth.model import attention as attention_module
from tilth.model.attention import scaled_dot_product_attention

VARIANTS = MODEL_VARIANTS | {
    "all and more": MODEL_VARIANTS["all"] | {"head_dim": 6, "norm_eps": 1e-3, "qkv_bias": True},
    "other theta": {"rope_theta": 50.0},
    "widths that fill no register": {"d_model": 24, "d_ff": 37, "vocab_size": 271},
    "heads of three": {"d_model": 12, "d_ff": 5, "position": "none"},
    "one of each": {"d_model": 1, "num_heads": 1, "d_ff": 1, "position": "none", "num_layers": 1},
    "wide heads": {"d_model": 176, "num_heads": 2, "num_kv_heads": 1},
}
PRECISIONS = ["float32", "bfloat16", "int8", "int4"]
BOUNDS = {"float32": 0.0, "bfloat16": 0.02, "int8": 0.1, "int4": 0.5}
"""The largest error of a logit: 1e-4 plus this fraction of the largest logit, as docs/generation.md
states. Measured: 0.010, 0.042 and 0.28."""
CACHE_BOUND = 0.04  # of a cache in int8, besides; measured: 0.021
# With widths of one and two, a norm multiplies the rounding of a number near zero by up to 300.
UNBOUNDED = {("one of each", "bfloat16"), ("many layers", "int4")}
LONG = 150  # more than two blocks of keys, more than four blocks of tokens


class Single:
    """A decoder of one row, with its axis removed."""

    def __init__(self, network, threads, kernels="", cache="float32"):
        self.rows = _core.Decoder(network, threads, 1, kernels, cache)
        self.length = self.rows.length

    def extend(self, ids, every=False):
        return self.rows.extend([ids], every)[0]

    def truncate(self, length):
        self.rows.truncate(0, length)


def changed(name):
    changes = {"context_length": LONG, "d_ff": None, "num_kv_heads": None, **VARIANTS[name]}
    return changes


def network_of(model, *, precision="float32", weights=None):
    own = {name: weight.numpy() for name, weight in model.state_dict().items()}
    return make_network(model.config, weights or own, precision=precision)


def some_ids(model, length=LONG, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, model.config.vocab_size, (length,), generator=generator).tolist()


def expected(model, ids):
    """Logits of the definition in float64."""
    import copy

    exact = copy.deepcopy(model).double().use_fast_path(False)
    with torch.no_grad():
        return exact(torch.tensor([ids]))[0].numpy()


def check_near(found, exact, name, precision, cache):
    """Compare with the definition, within the bounds of a precision."""
    assert np.isfinite(found).all()
    if (name, precision) in UNBOUNDED:
        return
    fraction = BOUNDS[precision] + (CACHE_BOUND if cache == "int8" else 0.0)
    atol = 1e-4 + fraction * np.abs(exact).max()
    np.testing.assert_allclose(found, exact, rtol=0, atol=atol)


@pytest.mark.parametrize("kernels", _core.runnable_kernels())
@pytest.mark.parametrize("name", VARIANTS)
def test_every_precision_is_near_torch(make_model, name, kernels):
    model = make_model(**changed(name))
    ids = some_ids(model)
    exact = expected(model, ids)
    for precision in PRECISIONS:
        network = network_of(model, precision=precision)
        for cache in ("float32", "int8"):
            found = Single(network, 2, kernels, cache).extend(ids, every=True)
            check_near(found, exact, name, precision, cache)


@pytest.mark.parametrize("kernels", _core.runnable_kernels())
@pytest.mark.parametrize("name", VARIANTS)
def test_logits_equal_those_of_torch(make_model, name, kernels):
    model = make_model(**changed(name))
    ids = some_ids(model)
    decoder = Single(network_of(model), 2, kernels)
    found = decoder.extend(ids, every=True)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected(model, ids), rtol=0, atol=1e-4)
    assert decoder.length() == LONG


@pytest.mark.parametrize("changes", OTHER_FAMILIES, ids=["llama3", "qwen2", "qwen3"])
def test_logits_equal_those_of_hugging_face(make_model, changes):
    model = make_model(context_length=LONG, **changes)
    ids = some_ids(model)
    other = copied_into_hugging_face(model)
    with torch.no_grad():
        reference = other(input_ids=torch.tensor([ids]), use_cache=False).logits[0].numpy()
    found = Single(network_of(model), 2).extend(ids, every=True)
    np.testing.assert_allclose(found, reference, rtol=0, atol=1e-4)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", ["plain", "all", "widths that fill no register"])
def test_bits_are_equal_for_any_split_and_number_of_threads(make_model, name, precision):
    model = make_model(**changed(name))
    ids = some_ids(model)
    network = network_of(model, precision=precision)
    whole = Single(network, 1).extend(ids, every=True)
    for threads in (1, 2, 5):
        decoder = Single(network, threads)
        single = [decoder.extend([token_id])[0] for token_id in ids]
        assert np.array_equal(whole, single)
        decoder.truncate(7)
        assert np.array_equal(decoder.extend(ids[7:100], every=True), whole[7:100])
        decoder.truncate(33)
        decoder.extend(ids[33:66])
        assert np.array_equal(decoder.extend(ids[66:])[0], whole[-1])


def test_truncated_ids_do_not_matter(make_model):
    model = make_model(context_length=LONG)
    decoder = Single(network_of(model), 2)
    decoder.extend(some_ids(model, seed=1))
    decoder.truncate(0)
    ids = some_ids(model, 40, seed=2)
    found = decoder.extend(ids, every=True)
    np.testing.assert_allclose(found, expected(model, ids), rtol=0, atol=1e-4)


@pytest.mark.parametrize("kernels", _core.runnable_kernels())
@pytest.mark.parametrize("name", VARIANTS)
def test_int8_rounds_weights_and_inputs_and_nothing_else(make_model, name, kernels):
    """Against float64 arithmetic with the weights and inputs of each product quantized.

    The largest weight of a row, and the largest of 32 inputs, is 127 steps.
    """
    model = make_model(**changed(name)).double()
    ids = some_ids(model, 20)

    def rounded(x, dim=-1):
        scale = x.abs().amax(dim, keepdim=True) / 127
        return torch.where(scale > 0, (x / scale.clamp(min=1e-300)).round() * scale, 0.0)

    class Rounded(torch.nn.Module):
        def __init__(self, weight, bias=None):
            super().__init__()
            self.weight = torch.nn.Parameter(rounded(weight.detach()))
            self.bias = 0.0 if bias is None else bias.detach()

        def forward(self, x):
            blocks = torch.nn.functional.pad(x, (0, -x.shape[-1] % 32)).unflatten(-1, (-1, 32))
            inputs = rounded(blocks).flatten(-2)[..., : x.shape[-1]]
            return inputs @ self.weight.T + self.bias

    weights = {name: weight.float().numpy() for name, weight in model.state_dict().items()}
    head = Rounded(model.head_weight)
    for layer in model.layers:
        for part in (layer.attn, layer.ffn):
            part.fast = False
            for child, module in list(part.named_children()):
                if child in {"q_proj", "k_proj", "v_proj", "output_proj", "w1", "w2", "w3"}:
                    setattr(part, child, Rounded(module.weight, module.bias))
    with torch.no_grad():
        reference = head(model.hidden(torch.tensor([ids])))[0].numpy()
    decoder = Single(network_of(model, precision="int8", weights=weights), 2, kernels)
    found = decoder.extend(ids, every=True)
    # A tie that is rounded differently moves a number by 1/127, which is rare and small.
    error = np.abs(found - reference)
    scale = reference.std() + 1e-9
    assert np.median(error) < 2e-3 * scale
    assert error.max() < 0.25 * scale


def test_quantized_loss_is_within_one_percent(make_model):
    """The loss of a trained model in every precision is within 1% of its float32 loss."""
    torch.manual_seed(0)
    model = make_model(context_length=64, num_layers=1).train()
    text = torch.tensor(list(b"the cat sat on the mat, and the dog ran to the red barn. " * 4))
    for _ in range(15):
        starts = torch.randint(0, len(text) - 64, (4,))
        rows = torch.stack([text[i : i + 64] for i in starts])
        loss = torch.nn.functional.cross_entropy(
            model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten()
        )
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():  # SGD by hand: torch.optim takes seconds to start
            for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                parameter.sub_(0.006 * gradient.sign())

    def loss_of(precision, cache="float32"):
        decoder = Single(network_of(model.eval(), precision=precision), 1, cache=cache)
        logits = torch.tensor(decoder.extend(text[:64].tolist(), every=True))
        return float(torch.nn.functional.cross_entropy(logits, text[1:65]))

    exact = loss_of("float32")
    assert 1.0 < exact < 3.5  # of log(260) = 5.6
    for precision in ("bfloat16", "int8", "int4"):
        assert abs(loss_of(precision) / exact - 1) < 0.01
    assert abs(loss_of("float32", cache="int8") / exact - 1) < 0.01
    assert abs(loss_of("int4", cache="int8") / exact - 1) < 0.01


@settings(max_examples=20)
@given(
    st.integers(1, 5), st.integers(1, 3), st.integers(1, 70), st.integers(1, 70), st.integers(1, 90)
)
def test_any_shape(make_model, heads, group, d_head, d_ff, length):
    model = make_model(
        d_model=heads * group * d_head,
        num_heads=heads * group,
        num_kv_heads=heads,
        d_ff=d_ff,
        position="none",
        num_layers=1,
        context_length=length,
        vocab_size=heads + d_ff,
    )
    ids = some_ids(model, length)
    for kernels in _core.runnable_kernels():
        found = Single(network_of(model), 2, kernels).extend(ids, every=True)
        np.testing.assert_allclose(found, expected(model, ids), rtol=0, atol=1e-4)


EXTREMES = {
    "more queries of a key than a call of attention takes": {
        **{"d_model": 130, "num_heads": 130, "num_kv_heads": 1, "position": "none", "d_ff": 1},
    },
    "one wide head": {"d_model": 3, "num_heads": 1, "head_dim": 1030, "d_ff": 2},
    "long rows": {"d_model": 4, "num_heads": 2, "d_ff": 5003},
    "a vocabulary of one": {"vocab_size": 1, "context_length": 1},
    "a large vocabulary": {
        **{"vocab_size": 70_001, "d_model": 1, "num_heads": 1, "position": "none"},
        "context_length": 3,
    },
    "many layers": {"d_model": 2, "num_heads": 1, "num_layers": 50, "norm": "post"},
}


@pytest.mark.parametrize("name", EXTREMES)
def test_extreme_shapes(make_model, name):
    """In every kernel, precision and cache: near the definition, and rows as single sequences."""
    changes = {"context_length": 70, "num_layers": 1, "d_ff": 8, "num_kv_heads": None}
    model = make_model(**(changes | EXTREMES[name]))
    ids = some_ids(model, model.config.context_length)
    exact = expected(model, ids)
    for precision in PRECISIONS:
        network = network_of(model, precision=precision)
        for kernels in _core.runnable_kernels():
            for cache in ("float32", "int8"):
                rows = _core.Decoder(network, 3, 9, kernels, cache)
                found = rows.extend([ids] * 9, every=True)
                check_near(found[8], exact, name, precision, cache)
                single = Single(network, 1, kernels, cache)
                alone = [single.extend([token_id])[0] for token_id in ids]
                for row in found:
                    assert np.array_equal(row, alone)
                steps = _core.Decoder(network, 2, 9, kernels, cache)
                for token_id, logits in zip(ids[:2], alone, strict=False):
                    for row in steps.extend([[token_id]] * 9)[:, 0]:
                        assert np.array_equal(row, logits)


def test_large_activations_do_not_overflow(make_model):
    """Scores far apart: the softmax and the gate must not overflow."""
    model = make_model(norm="none", num_layers=1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(6)
    ids = some_ids(model, 20)
    reference = expected(model, ids)
    for kernels in _core.runnable_kernels():
        found = Single(network_of(model), 2, kernels).extend(ids, every=True)
        np.testing.assert_allclose(found, reference, rtol=1e-3, atol=np.abs(reference).max() * 1e-5)


def test_invalid_arguments_are_rejected(make_model):
    model = make_model()
    network = network_of(model)
    decoder = Single(network, 2)
    with pytest.raises(ValueError, match="token id 260 is not within the vocabulary of 260"):
        decoder.extend([3, 260])
    with pytest.raises(ValueError, match="length is 24, and 0 tokens and 25 more do not fit"):
        decoder.extend([0] * 25)
    assert decoder.length() == 0
    decoder.extend([0] * 24)
    with pytest.raises(ValueError, match="length is 24, and 24 tokens and 1 more do not fit"):
        decoder.extend([0])
    with pytest.raises(ValueError, match="cannot keep 25 tokens of 24"):
        decoder.truncate(25)
    with pytest.raises(ValueError, match="no token ids"):
        decoder.extend([])
    with pytest.raises(ValueError, match="does not have these kernels"):
        Single(network, 1, "abacus")
    weights = {name: weight.numpy() for name, weight in model.state_dict().items()}
    name = "layers.1.ffn.w2.weight"
    for wrong, sentence in (
        ({name: None}, f"{name} is missing, or is not an array of float32"),
        ({name: weights[name].T.copy()}, f"{name} is not 32 x 64"),
        ({"bias": weights[name]}, "of 22 weights, the model has only 21"),
    ):
        changed = {key: value for key, value in (weights | wrong).items() if value is not None}
        with pytest.raises(ValueError, match=sentence.replace("(", r"\(")):
            network_of(model, weights=changed)
    with pytest.raises(
        ValueError, match=r"ffn\.w1\.weight is missing, or is not an array of float32"
    ):
        network_with({"layers.0.ffn.w1.weight": np.eye(2)})


def test_tied_matrix_may_be_given_twice(make_model, tokenizer):
    model = make_model(tie_embeddings=True)
    weights = {name: weight.numpy() for name, weight in model.state_dict().items()}
    twice = {**weights, "lm_head.weight": weights["token_embeddings.weight"].copy()}
    LanguageModel.from_weights(model.config, twice, tokenizer)
    twice["lm_head.weight"][3, 3] += 1
    with pytest.raises(ValueError, match="of 21 weights, the model has only 20"):
        LanguageModel.from_weights(model.config, twice, tokenizer)


def test_threads_share_weights_but_not_a_decoder(make_model):
    model = make_model(context_length=LONG)
    network = network_of(model)
    ids = some_ids(model)
    reference = Single(network, 1).extend(ids, every=True)
    found = [None] * 4

    def work(number):
        decoder = Single(network, 2)
        found[number] = np.concatenate([decoder.extend([token_id]) for token_id in ids])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(reference, each) for each in found)

    shared, complaints, barrier = Single(network, 1), [], threading.Barrier(2)

    def collide():
        barrier.wait()
        try:
            for _ in range(200):
                shared.extend([1])
                shared.truncate(0)
        except ValueError as error:
            complaints.append(str(error))

    threads = [threading.Thread(target=collide) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(complaints) <= 1  # of the second call, if the calls overlap
    assert all("at work in another thread; make one for each" in each for each in complaints)


# --- rows ---


@pytest.mark.parametrize(
    ("precision", "cache"), [*((each, "float32") for each in PRECISIONS), ("float32", "int8")]
)
@pytest.mark.parametrize("kernels", _core.runnable_kernels())
def test_rows_have_the_bits_of_single_sequences(make_model, precision, cache, kernels):
    """Rows begin, end, share a prefix and are cut at any time, in random order."""
    model = make_model(context_length=LONG, num_kv_heads=2, d_ff=37)
    network = network_of(model, precision=precision)
    texts = [some_ids(model, seed=seed) for seed in range(3)]
    single = [Single(network, 1, kernels, cache).extend(text, every=True) for text in texts]
    rng = np.random.default_rng(0)
    rows = _core.Decoder(network, 2, 70, kernels, cache)
    places = [(0, 0)] * 70  # text and length of each row
    for _ in range(12):
        for row in rng.choice(70, 20, replace=False).tolist():
            text, length = places[row]
            match int(rng.integers(4)):
                case 0:
                    places[row] = (text, length // 2)
                    rows.truncate(row, length // 2)
                case 1:
                    rows.truncate(row, 0)
                    places[row] = (int(rng.integers(3)), 0)
                case 2:
                    source = int(rng.integers(70))
                    text, length = places[source]
                    places[row] = (text, length // 3)
                    rows.share(source, row, length // 3)
        counts = np.where(rng.random(70) < 0.1, rng.integers(0, 90, 70), rng.integers(0, 3, 70))
        new = [
            texts[text][length : length + count]
            for (text, length), count in zip(places, counts.tolist(), strict=True)
        ]
        every = bool(rng.integers(2))
        logits = rows.extend(new, every)
        for row, ((text, length), ids) in enumerate(zip(places, new, strict=True)):
            places[row] = (text, length + len(ids))
            assert rows.length(row) == length + len(ids)
            if ids:
                found = logits[row, : len(ids)] if every else logits[row, 0]
                expected = single[text][length : length + len(ids)]
                assert np.array_equal(found, expected if every else expected[-1])


@pytest.mark.parametrize("kernels", _core.runnable_kernels())
@pytest.mark.parametrize("name", VARIANTS)
def test_int8_cache_rounds_keys_and_values_and_nothing_else(make_model, name, kernels, monkeypatch):
    def rounded(x):
        scale = x.abs().amax(-1, keepdim=True) / 127
        return (x / scale.clamp(min=1e-30)).round() * scale

    def attention(q, k, v, mask):
        return scaled_dot_product_attention(q, rounded(k), rounded(v), mask)

    model = make_model(**changed(name))
    ids = some_ids(model)
    decoder = Single(network_of(model), 2, kernels, "int8")
    found = decoder.extend(ids[:70], every=True)
    found = np.concatenate([found, decoder.extend(ids[70:], every=True)])
    exact = expected(model, ids)
    monkeypatch.setattr(attention_module, "scaled_dot_product_attention", attention)
    # A number halfway between two integers is rounded down or up, by the last bit of a key.
    differences = np.abs(found - expected(model, ids))
    assert np.quantile(differences, 0.9) < 1e-3
    assert differences.max() < 0.02
    if name == "plain":
        assert np.abs(found - exact).max() > 1e-3  # the reference does round


def test_precision_of_the_cache_is_checked(make_model):
    with pytest.raises(ValueError, match="the precisions of a cache are float32 and int8"):
        Single(network_of(make_model()), 1, cache="int4")


@pytest.mark.parametrize(
    ("precision", "cache"), [*((each, "float32") for each in PRECISIONS), ("float32", "int8")]
)
@pytest.mark.parametrize("name", ["plain", "all and more", "widths that fill no register"])
def test_avx512_has_the_bits_of_avx2(make_model, name, precision, cache):
    if "avx512" not in _core.runnable_kernels():
        pytest.skip("this processor has no AVX-512 with VNNI")
    model = make_model(**changed(name))
    network, ids = network_of(model, precision=precision), some_ids(model)
    avx2, avx512 = (Single(network, 2, kernels, cache) for kernels in ("avx2", "avx512"))
    assert np.array_equal(avx2.extend(ids, every=True), avx512.extend(ids, every=True))


@pytest.mark.parametrize("kernels", _core.runnable_kernels())
def test_bfloat16_has_the_bits_of_float32_with_rounded_weights(make_model, kernels):
    model = make_model(context_length=LONG, d_ff=37)
    weights = {name: weight.numpy() for name, weight in model.state_dict().items()}
    rounded = {
        name: weight if weight.ndim == 1 or "embed" in name else bfloat16(weight)
        for name, weight in weights.items()
    }
    ids = some_ids(model)
    found = Single(network_of(model, precision="bfloat16"), 2, kernels).extend(ids, every=True)
    expected = Single(network_of(model, weights=rounded), 2, kernels).extend(ids, every=True)
    assert np.array_equal(found, expected)


def bfloat16(weight):
    return torch.tensor(weight).bfloat16().float().numpy()


@pytest.mark.parametrize("kernels", _core.runnable_kernels())
def test_int4_rounds_the_feed_forward(make_model, kernels):
    """The logits of int4 equal those of int8 with feed-forwards rounded to 4 bits by NumPy.

    The int8 rounding of the feed-forward in the reference adds a small error.
    """
    model = make_model(context_length=LONG, d_ff=72)
    weights = {name: weight.numpy() for name, weight in model.state_dict().items()}

    def int4(weight):
        columns = weight.shape[1]
        blocks = np.pad(weight, ((0, 0), (0, -columns % 32))).reshape(len(weight), -1, 32)
        place = np.abs(blocks).argmax(-1, keepdims=True)
        scale = bfloat16(np.take_along_axis(blocks, place, -1) / -8)
        numbers = np.clip(np.rint(blocks / np.where(scale == 0, 1, scale)), -8, 7) * scale
        return numbers.reshape(len(weight), -1)[:, :columns]

    rounded = {name: int4(weight) if "ffn" in name else weight for name, weight in weights.items()}
    ids = some_ids(model)
    found = Single(network_of(model, precision="int4"), 2, kernels).extend(ids, every=True)
    expected = Single(network_of(model, precision="int8", weights=rounded), 2, kernels)
    reference = expected.extend(ids, every=True)
    unrounded = Single(network_of(model, precision="int8"), 2, kernels).extend(ids, every=True)
    error, difference = np.abs(found - reference), np.abs(unrounded - reference)
    assert np.median(error) < 0.02 * reference.std()
    assert error.max() < 0.15 * reference.std()  # measured: 0.075
    assert np.median(error) < 0.2 * np.median(difference)  # rounding to 4 bits is no small change


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("vocab_size", [1, 7, 130, 5000])
def test_rows_are_chosen_as_one_by_one(make_model, vocab_size, threads):
    """In the threads of a decoder; the definition is next_token_distribution."""
    decoder = _core.Decoder(network_of(make_model()), threads, 2)
    random = np.random.default_rng(vocab_size)
    options = [
        {},
        {"temperature": 0.0},
        {"top_p": 0.9},
        {"top_k": 3},
        {"top_k": 40, "top_p": 0.5, "min_p": 0.01},
        {"temperature": 0.3, "min_p": 0.1},
    ]
    samplings = [Sampling(**each) for each in options] * 8
    rows = (4 * random.standard_normal((len(samplings), vocab_size + 3))).astype(np.float32)
    rows[::5, : vocab_size // 2] = rows[::5, :1]  # equal scores
    rows[:, vocab_size:] = 1e3  # outside of the tokenizer's vocabulary
    scores = rows[:, :vocab_size]
    choices = [
        choice(sampling, vocab_size, sample_index=1, position=i)
        for i, sampling in enumerate(samplings)
    ]
    choices[4] = None
    found = decoder.choose(scores, choices)
    assert found[4] == -1
    for i, (sampling, token) in enumerate(zip(samplings, found, strict=True)):
        if i == 4:
            continue
        assert token == choose(scores[i], sampling, sample_index=1, position=i)
        ids, probabilities = next_token_distribution(scores[i], sampling)
        place = np.searchsorted(np.cumsum(probabilities), choices[i][-1], side="right")
        assert token in ids[max(0, place - 1) : place + 2]


def test_rows_without_a_finite_score_are_not_chosen(make_model):
    decoder = _core.Decoder(network_of(make_model()), 2, 1)
    scores = np.zeros((4, 100), np.float32)
    scores[0, 99], scores[1, 3], scores[2] = np.nan, np.inf, -np.inf
    every = [(1.0, 0, 1.0, 0.0, 0.5)] * 4
    assert decoder.choose(scores, every) == [-1, -1, -1, 50]
    for wrong in (
        [every[0]] * 3,
        [(-1.0, 0, 1.0, 0.0, 0.5)] * 4,
        [(math.nan, 0, 1.0, 0.0, 0.5)] * 4,
    ):
        with pytest.raises(ValueError, match=r"a choice for each row|at least 0"):
            decoder.choose(scores, wrong)
    with pytest.raises(ValueError, match="contiguous"):
        decoder.choose(scores.T, [None] * 100)


@pytest.mark.parametrize("kernels", _core.runnable_kernels())
@pytest.mark.parametrize("vocab_size", [1, 7, 8, 260, 2500])
def test_scores_are_those_of_the_logits(make_model, kernels, vocab_size):
    model = make_model(context_length=LONG, vocab_size=max(260, vocab_size), d_ff=37)
    network = network_of(model)
    texts = [some_ids(model, length, seed=length) for length in (100, 1, 70)]
    texts = [[i % vocab_size for i in ids] for ids in texts]
    decoder = _core.Decoder(network, 2, 3, kernels)
    ids = [texts[0][:-1], [], texts[2][:-1]]
    targets = [texts[0][1:], [], texts[2][40:]]  # the last 30 of a row
    found = decoder.score(ids, targets, vocab_size)
    assert found.shape == (3, 99)
    assert found.dtype == np.float64
    for row, (read, wanted) in enumerate(zip(ids, targets, strict=True)):
        assert decoder.length(row) == len(read)
        if wanted:
            logits = torch.tensor(expected(model, read))[-len(wanted) :, :vocab_size]
            reference = logits.log_softmax(-1)[torch.arange(len(wanted)), torch.tensor(wanted)]
            np.testing.assert_allclose(found[row, : len(wanted)], reference, rtol=0, atol=1e-4)
            exact = Single(network, 1, kernels).extend(read, every=True)[-len(wanted) :]
            exact = torch.tensor(exact[:, :vocab_size]).double().log_softmax(-1)
            exact = exact[torch.arange(len(wanted)), torch.tensor(wanted)]
            np.testing.assert_allclose(found[row, : len(wanted)], exact, rtol=0, atol=1e-6)
    alone = _core.Decoder(network, 1, 1, kernels)
    alone.extend([texts[2][:11]])
    rest = alone.score([texts[2][11:-1]], [texts[2][40:]], vocab_size)
    assert np.array_equal(rest[0, :30], found[2, :30])  # equal bits for any split


def test_invalid_targets_are_rejected(make_model):
    decoder = _core.Decoder(network_of(make_model()), 1, 2)
    for targets, vocab_size, sentence in (
        ([[1]], 260, "targets for each row"),
        ([[1, 2], []], 260, "more targets than ids"),
        ([[7], []], 7, "target 7 is not within the vocabulary of 7"),
        ([[1], []], 261, "the vocabulary has 261 of 260 ids"),
        ([[1], []], 0, "the vocabulary has 0 of 260 ids"),
    ):
        with pytest.raises(ValueError, match=sentence):
            decoder.score([[1], []], targets, vocab_size)
    with pytest.raises(ValueError, match="no token ids"):
        decoder.score([[], []], [[], []], 260)
    assert decoder.length(0) == 0


def test_rows_that_begin_alike_are_read_once(make_model, monkeypatch):
    model = make_model(context_length=LONG)
    network = network_of(model)
    text, other = some_ids(model, 100), some_ids(model, 40, seed=1)
    rows = [text[:60], text[:50] + other, text[:60], other, [text[0]], [], text[:3]]
    numbers = []

    class Counted(_core.Decoder):
        def extend(self, ids, every=False):
            numbers.append(sum(map(len, ids)))
            return super().extend(ids, every)

    monkeypatch.setattr(_core, "Decoder", Counted)
    decoder = NativeDecoder(network, 2, len(rows))
    found = decoder.extend(rows)
    alone = [NativeDecoder(network, 1).extend([ids])[0] if ids else None for ids in rows]
    for ids, logits, expected in zip(rows, found, alone, strict=True):
        assert not ids or np.array_equal(logits, expected)
    # The prefix of 50 ids; then 10, 40, 0 (the logits of row 0), 40, 1 and 1.
    assert numbers[:2] == [50, 92]
    # A row that begins later shares the cache of a row at work.
    numbers.clear()
    decoder.truncate(4, 0)
    later = decoder.extend([[7], [7], [], [], text[:55], [], []])
    assert numbers == [1 + 1 + 1]
    assert np.array_equal(later[4], NativeDecoder(network, 1).extend([text[:55]])[0])


def test_prompts_in_parts_share_what_they_have_in_common(make_model, monkeypatch):
    """Two equal rows, one that differs at the end, and one that begins when others are ahead."""
    model = make_model(context_length=LONG)
    network = network_of(model)
    numbers = []

    class Counted(_core.Decoder):
        def extend(self, ids, every=False):
            numbers.append(sum(map(len, ids)))
            return super().extend(ids, every)

    text = some_ids(model, 120)
    texts = [text, text, [*text[:-1], 7], [*text[:100], *text[:20]]]
    alone = [NativeDecoder(network, 1).extend([ids])[0] for ids in texts]
    monkeypatch.setattr(_core, "Decoder", Counted)
    decoder = NativeDecoder(network, 2, 4)
    for begin, end in ((0, 40), (40, 80)):
        decoder.extend([*[ids[begin:end] for ids in texts[:3]], []])
    assert numbers == [40, 40]  # of three rows
    found = decoder.extend([*[ids[80:] for ids in texts[:3]], texts[3][:85]])
    # The last row shares 80 ids, and 4 of the next 39; row 1 needs none of its own.
    assert numbers[2:] == [39, 1 + 1 + 1]
    for row in range(3):
        assert np.array_equal(found[row], alone[row])
    assert np.array_equal(decoder.extend([[], [], [], texts[3][85:]])[3], alone[3])
    # Rows that were given the cache of another continue on their own.
    found = decoder.extend([[1], [2], [3], []])
    for row in range(3):
        longer = NativeDecoder(network, 1).extend([[*texts[row], row + 1]])[0]
        assert np.array_equal(found[row], longer)


def test_invalid_rows_are_rejected(make_model):
    network = network_of(make_model())
    for rows in (0, -1, _core.MAX_ROWS + 1, 2**64, 10**400):
        with pytest.raises(ValueError, match=r"rows is too (large|small); give 1 to 4096"):
            _core.Decoder(network, 1, rows)
    decoder = _core.Decoder(network, 1, 2)
    for ids in ([[1]], [[1], [1], [1]]):
        with pytest.raises(ValueError, match="one list of ids for each of the 2 rows"):
            decoder.extend(ids)
    with pytest.raises(ValueError, match="no token ids"):
        decoder.extend([[], []])
    with pytest.raises(ValueError, match="do not fit"):
        decoder.extend([[1], [1] * 25])
    decoder.extend([[1, 2, 3], []])
    with pytest.raises(ValueError, match="cannot share 4 tokens of 3"):
        decoder.share(0, 1, 4)
    for row in (2, 2**63):
        for call in (decoder.truncate, lambda row, n: decoder.share(row, 0, n)):
            with pytest.raises(ValueError, match="there is no row"):
                call(row, 0)
        with pytest.raises(ValueError, match="there is no row"):
            decoder.share(0, row, 0)
        with pytest.raises(ValueError, match="there is no row"):
            decoder.length(row)
    decoder.share(0, 0, 2)
    assert (decoder.length(0), decoder.length(1)) == (2, 0)
    with pytest.raises(ValueError, match="precisions are"):
        network_with(precision="int3")


NUMBERS = [
    "vocab_size",
    "context_length",
    "d_model",
    "num_layers",
    "num_heads",
    "num_kv_heads",
    "d_head",
    "d_ff",
]


def network_with(other=(), **changes):
    """A network of one layer without norms; `changes` make its shape disagree with its weights."""
    square = np.eye(2, dtype=np.float32)
    names = ["attn.q_proj", "attn.k_proj", "attn.v_proj", "attn.output_proj", "ffn.w1", "ffn.w2"]
    weights = {f"layers.0.{name}.weight": square for name in names}
    weights["token_embeddings.weight"] = np.arange(10, dtype=np.float32).reshape(5, 2)
    weights |= dict(other)
    shape = {"vocab_size": 5, "context_length": 8, "d_model": 2, "num_layers": 1, "num_heads": 1}
    shape |= {"num_kv_heads": 1, "d_head": 2, "d_ff": 2, "rope_frequencies": [1.0]}
    flags = {"norm_epsilon": 1e-5, "norm": "none", "is_gated": False, "is_tied": True}
    flags |= {"has_qk_norm": False, "has_qkv_bias": False, "precision": "float32"}
    return _core.Network(weights, **(shape | flags | changes))


def test_as_many_rows_and_threads_as_allowed():
    """Each row and each thread has little or nothing to do."""
    network = network_with()
    reference = Single(network, 1).extend([4, 1])
    decoder = _core.Decoder(network, 64, _core.MAX_ROWS)
    found = decoder.extend([[4, 1] if row % 3 else [] for row in range(_core.MAX_ROWS)])
    for row, logits in enumerate(found):
        assert np.array_equal(logits, reference if row % 3 else 0 * reference)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", NUMBERS)
def test_every_dimension_is_checked(name, precision):
    for number in (0, -1, 2**31, 2**60, 2**61, 2**63, 2**64, 10**400):
        with pytest.raises(ValueError, match=rf"{name} is too (large|small); give 1 to 2147483647"):
            network_with(**{name: number}, precision=precision)
    if name != "context_length":  # all other numbers are dimensions of weights
        for number in (3, 7, 65_537, 2**31 - 1):
            with pytest.raises(ValueError, match=r"is not|is missing|RoPE needs|multiple"):
                network_with(**{name: number}, precision=precision)


@pytest.mark.parametrize("context_length", [40_000_000, _core.MAX_DIMENSION])
def test_memory_is_proportional_to_the_ids(context_length):
    ids = [1, 4, 0, 2]
    decoder = Single(network_with(context_length=context_length), 2)
    small = Single(network_with(), 2)
    assert np.array_equal(decoder.extend(ids, every=True), small.extend(ids, every=True))


@pytest.mark.parametrize("name", ["pre", "heads of three", "wide heads"])
def test_growing_cache_keeps_its_content(make_model, name):
    """The initial capacity is 1,024 positions."""
    changes = {**VARIANTS[name], "num_layers": 2} if name in VARIANTS else {}
    model = make_model(**({"d_ff": None, "num_kv_heads": None} | changes), context_length=4500)
    ids = some_ids(model, 2600)
    decoder = Single(network_of(model), 2)
    rows = [
        decoder.extend(ids[a:b], every=True) for a, b in ((0, 1000), (1000, 1030), (1030, 2600))
    ]
    found = np.concatenate(rows)
    whole = Single(network_of(model), 1)
    assert np.array_equal(whole.extend(ids, every=True), found)
    np.testing.assert_allclose(found[-3:], expected(model, ids)[-3:], rtol=0, atol=1e-4)
    decoder.truncate(1020)
    assert np.array_equal(decoder.extend(ids[1020:], every=True), found[1020:])


def test_number_of_threads_is_limited():
    network = network_with()
    for threads in (0, -1, _core.MAX_THREADS + 1, 2**64):
        with pytest.raises(ValueError, match=r"threads is too (large|small); give 1 to 1024"):
            Single(network, threads)


def test_draw_does_not_trust_the_largest_score():
    """Weights above 1 were once counted outside of the buckets."""
    options = {"temperature": 1.0, "top_k": 2, "top_p": 0.9, "min_p": 0.0, "unit": 0.5}
    for dtype in (np.float32, np.float64):
        scores = np.array([0.0, 500.0, 80.0, -3.0], dtype)
        for largest in (-1e300, -90.0, 0.0, 499.0):
            assert 0 <= _core.draw(scores, largest=largest, **options) < 4
        for wrong in ({"largest": float("nan")}, {"largest": float("inf")}, {"temperature": 0.0}):
            with pytest.raises(ValueError, match=r"not finite|not above 0"):
                _core.draw(scores, **{"largest": 500.0} | options | wrong)
        with pytest.raises(ValueError, match="no scores"):
            _core.draw(scores[:0], largest=0.0, **options)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning"
)  # a fork of a process with threads is intended
def test_decoder_works_in_a_forked_child(make_model):
    model = make_model()
    ids = some_ids(model, 24)
    decoder = Single(network_of(model), 3)
    expected_row = decoder.extend(ids)
    child = os.fork()
    if child == 0:
        decoder.truncate(0)
        same = np.array_equal(decoder.extend(ids), expected_row)
        del decoder
        os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.alone
def test_ctrl_c_ends_a_long_prompt_within_a_second(ctrl_c_within):
    code = """
import numpy as np, sys
from tilth.generation import _core
d, layers, n = 512, 8, 32_768
rng = np.random.default_rng(0)
square = rng.standard_normal((d, d), np.float32) * 0.04
weights = {"token_embeddings.weight": rng.standard_normal((50, d), np.float32)}
for i in range(layers):
    for part in "attn.q_proj attn.k_proj attn.v_proj attn.output_proj ffn.w1 ffn.w2".split():
        weights[f"layers.{i}.{part}.weight"] = square
network = _core.Network(weights, vocab_size=50, context_length=n, d_model=d, num_layers=layers,
    num_heads=8, num_kv_heads=8, d_head=64, d_ff=d, rope_frequencies=[1e-3] * 32,
    norm_epsilon=1e-5, norm="none", is_gated=False,
    is_tied=True, has_qk_norm=False, has_qkv_bias=False, precision="float32")
decoder = _core.Decoder(network, 2)
decoder.extend([[1] * 10])
print("ready", flush=True)
try:
    decoder.extend([[1] * (n - 10)])
except KeyboardInterrupt:
    print("interrupted", decoder.length(), flush=True)
"""
    said, _ = ctrl_c_within(1, code)
    assert said == "interrupted 10\n"
