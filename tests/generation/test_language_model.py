"""Tests of `LanguageModel` and `load`: text, scores, batches, and damaged runs."""

import inspect
import itertools
import json
import math
import os
import re
import shutil
import subprocess
import sys
from dataclasses import fields, replace

import numpy as np
import pytest
import torch

from tilth.files import FileError
from tilth.generation import GenerationOptions, LanguageModel, _core
from tilth.generation.decoding import PART_TOKENS, Drafter
from tilth.generation.language_model import load as load_model
from tilth.runs.run import open_run
from tilth.tokenizer import Tokenizer


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.0},
        {"temperature": 0.9, "top_p": 0.9, "seed": 4},
        {"top_k": 20, "repetition_penalty": 1.5, "seed": 2, "sample_index": 3},
        {"min_p": 0.1},
    ],
)
def test_cached_text_equals_uncached_text_past_the_context(make_model, load, tokenizer, options):
    """80 tokens in a context of 24, so the context slides several times."""
    model = make_model()
    stream = load(model).generate("Once", max_tokens=80, **options)
    uncached = LanguageModel.from_model(model, tokenizer, cached=False)
    assert "".join(stream) == "".join(uncached.generate("Once", max_tokens=80, **options))
    assert len(stream.token_ids) <= 80


def test_equal_seeds_give_equal_text(make_model, load):
    model = load(make_model())
    texts = ["".join(model.generate("a", max_tokens=30, seed=7)) for _ in range(3)]
    assert len(set(texts)) == 1
    others = {"".join(model.generate("a", max_tokens=30, seed=s)) for s in range(4)}
    samples = {"".join(model.generate("a", max_tokens=30, sample_index=s)) for s in range(4)}
    assert len(others) == len(samples) == 4


def test_longer_prompt_continues_the_same_random_sequence(make_model, load):
    """Positions count from the start of the prompt, so a longer prompt has the same rest."""
    ascii_alone = Tokenizer({i: bytes([i]) for i in range(128)}, [])
    model = replace(load(make_model(context_length=64)), tokenizer=ascii_alone)
    text = "".join(model.generate("a", max_tokens=30))
    assert "".join(model.generate("a" + text[:10], max_tokens=20)) == text[10:]


def test_ids_outside_the_tokenizer_are_never_chosen(make_model, load):
    model = make_model()  # vocabulary of 260; the tokenizer has 257
    with torch.no_grad():
        hidden = model.hidden(torch.tensor([list(b"ab")]))[0, -1]
        model.lm_head.weight[258] = 100 * hidden
    token = next(load(model).generate("ab", temperature=0.0).tokens)
    assert token.id < 257


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"max_tokens": 0}, "max_tokens must be at least 1, not 0."),
        ({"temperature": -1.0}, "temperature is -1; it must be at least 0."),
        ({"top_p": 2.0}, "top_p is 2; it must be at most 1."),
        ({"sample_index": -1}, "sample_index must be at least 0, not -1"),
        ({"past_context": "wrap"}, "past_context 'wrap' is unknown; choose one of slide, stop."),
        ({"stop": "word"}, "stop must be a list, not 'word'"),
        ({"stop": ["a", ""]}, r"stop\[1\] must have at least 1 character"),
    ],
)
def test_invalid_options_are_rejected(make_model, load, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        load(make_model()).generate("a", **options)


def test_signature_of_generate_has_every_option():
    """`help` and editors show the names and the defaults of all options."""
    shown = inspect.signature(LanguageModel.generate).parameters.values()
    options = {each.name: each.default for each in shown if each.kind is each.KEYWORD_ONLY}
    assert options == {each.name: each.default for each in fields(GenerationOptions)}


def test_prompt_longer_than_the_context_is_rejected(make_model, load):
    model = load(make_model())
    with pytest.raises(ValueError, match="has 25 tokens, and the context length is 24; shorten it"):
        model.generate("a" * 25)
    with pytest.raises(ValueError, match="alternatives must be at least 0, not -1"):
        model.generate("a", alternatives=-1)


@pytest.mark.parametrize("quantize", [None, "int8"])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_weights_that_are_not_finite_are_rejected(make_model, load, bad, quantize):
    names = list(make_model(qk_norm=True).state_dict())
    assert len(names) == 2 * 11 + 3
    for name in names:
        model = make_model(qk_norm=True)
        model.state_dict()[name].view(-1)[-1] = bad
        with pytest.raises(ValueError, match=f"{name} has values that are not finite"):
            load(model, quantize=quantize)


@pytest.mark.parametrize(
    "precision", [{}, {"quantize": "int8"}, {"cache": "int8"}], ids=["float32", "int8", "cache"]
)
@pytest.mark.parametrize("names", [("q_proj", "k_proj"), ("v_proj", "output_proj"), ("w1", "w3")])
def test_activations_that_overflow_are_reported(make_model, load, names, precision):
    """NaN reaches the logits, as in torch, although every comparison with NaN is false."""
    model = make_model()
    for path, weight in model.state_dict().items():
        if any(name in path for name in names):
            weight.mul_(1e30)
    assert model(torch.tensor([list(b"abc")]))[0, -1].isnan().all()
    with pytest.raises(ValueError, match="no token to choose, as the largest logit is nan"):
        next(load(model, **precision).generate("abc"))


# --- scores ---


def log_probabilities(model, ids, vocab_size=257):
    """Over the ids of the tokenizer only: the vocabulary of a model may be padded."""
    with torch.no_grad():
        return model(torch.tensor([ids]))[0, :, :vocab_size].double().log_softmax(-1).numpy()


def test_tokens_have_log_probabilities(make_model, load):
    model = make_model()
    stream = load(model).generate("ab", max_tokens=15, temperature=0.5, alternatives=4).tokens
    tokens = list(stream)
    ids = [*b"ab", *(token.id for token in tokens)]
    exact = log_probabilities(model, ids)
    for place, token in enumerate(tokens, start=1):
        row = exact[place]
        assert token.log_probability == pytest.approx(row[token.id], abs=1e-4)
        assert [i for i, _ in token.alternatives] == np.argsort(-row)[:4].tolist()
        for i, value in token.alternatives:
            assert value == pytest.approx(row[i], abs=1e-4)
    token_id, _, alternatives = next(load(model).generate("ab", temperature=0.0).tokens)
    assert (token_id, alternatives) == (int(exact[1].argmax()), ())


@pytest.mark.parametrize("integer", [np.int64, np.uint64, np.int8])
def test_numpy_integers_are_accepted(make_model, load, integer):
    model, options = load(make_model()), {"seed": 5, "sample_index": 3, "max_tokens": 4}
    same = {name: integer(value) for name, value in options.items()}
    assert "".join(model.generate("a", **options)) == "".join(model.generate("a", **same))


def test_scores_equal_log_softmax(make_model, load):
    model = make_model()
    text = "a cat, a dog."
    scored = load(model).score(text, alternatives=2)
    exact = log_probabilities(model, [256, *text.encode()])
    assert [token.id for token in scored] == list(text.encode())
    for place, token in enumerate(scored):
        assert token.log_probability == pytest.approx(exact[place, token.id], abs=1e-4)
        assert [i for i, _ in token.alternatives] == np.argsort(-exact[place])[:2].tolist()
    assert load(model).score("") == []
    with pytest.raises(ValueError, match="alternatives must be at least 0, not -1"):
        load(model).score("a", alternatives=-1)


@pytest.mark.parametrize("context_length", [1, 2, 5, 24, 150])
def test_long_texts_are_scored_after_at_least_half_a_context(make_model, load, context_length):
    model = make_model(context_length=context_length)
    text = "many words, and more. " * (4 if context_length < 100 else 12)
    ids = [256, *text.encode()]
    scored = load(model).score(text)
    assert [token.id for token in scored] == ids[1:]
    half = context_length // 2
    step = max(1, context_length - half)
    for place, token in enumerate(scored):
        # The first window that contains the previous token; windows start every `step` ids.
        start = max(0, -(-(place + 1 - context_length) // step) * step)
        assert place == len(ids) or place - start + 1 >= min(place + 1, half)
        exact = log_probabilities(model, ids[start : place + 1])[-1, token.id]
        assert token.log_probability == pytest.approx(exact, abs=1e-4)


def test_first_token_is_not_scored_without_an_end_token(make_model):
    model = make_model()
    weights = {name: weight.numpy() for name, weight in model.state_dict().items()}
    tokenizer = Tokenizer({i: bytes([i]) for i in range(256)}, [])
    loaded = LanguageModel.from_weights(model.config, weights, tokenizer)
    exact = log_probabilities(model, list(b"abc"), vocab_size=256)
    found = [token.log_probability for token in loaded.score("abc")]
    assert found == pytest.approx([exact[0, ord("b")], exact[1, ord("c")]], abs=1e-4)
    assert loaded.score("a") == []


def test_special_tokens_are_text_unless_allowed(make_model, load):
    model = load(make_model(context_length=64))
    assert len(model.score("<|endoftext|>")) == 13
    assert [token.id for token in model.score("<|endoftext|>", allow_special=True)] == [256]


# --- batches ---


@pytest.mark.parametrize("backend", ["native", "torch"])
def test_batch_equals_single_sequences(make_model, load, tokenizer, backend):
    """Rows with prompts, slides and ends at different positions equal single sequences."""
    model = make_model()
    with torch.no_grad():  # makes the end token likely
        model.lm_head.weight[256] *= 2
    prompts = ["a", "Once upon a time", "", "a" * 24]
    options = {"max_tokens": 50, "temperature": 0.7, "seed": 1}
    native = load(model)
    batches = native if backend == "native" else LanguageModel.from_model(model, tokenizer)
    texts = batches.generate_batch(prompts, **options)
    alone = [
        "".join(native.generate(prompt, sample_index=row, **options))
        for row, prompt in enumerate(prompts)
    ]
    assert texts == alone
    assert len({len(text) for text in texts}) > 1
    stop = [alone[0][3:5], alone[1][7:9]]
    assert batches.generate_batch(prompts, stop=stop, **options) == [
        "".join(native.generate(prompt, sample_index=row, stop=stop, **options))
        for row, prompt in enumerate(prompts)
    ]
    assert batches.generate_batch([]) == []
    with pytest.raises(ValueError, match="takes a list of prompts"):
        batches.generate_batch("a prompt")
    for prompts in (["a prompt"], []):
        with pytest.raises(ValueError, match="max_tokens must be at least 1, not 0"):
            batches.generate_batch(prompts, max_tokens=0)


def test_options_that_a_batch_sets_itself_are_rejected(make_model, load):
    model = load(make_model())
    with pytest.raises(ValueError, match="texts only; omit alternatives, or call generate_samples"):
        model.generate_batch(["a"], alternatives=2)
    for call in (model.generate_batch, model.generate_samples):
        with pytest.raises(ValueError, match=f"{call.__name__} gives .*; omit sample_index, or"):
            call(["a"], sample_index=1)


def test_native_batches_have_the_texts_of_single_sequences(make_model, load):
    model = load(make_model(context_length=24))
    prompts = [f"{'once upon' if i % 3 else 'a'} {i}" for i in range(70)]  # more than the rows
    options = {"max_tokens": 40, "temperature": 0.9, "seed": 3, "stop": ["x", "ab"]}
    alone = [
        "".join(model.generate(prompt, sample_index=index, **options))
        for index, prompt in enumerate(prompts)
    ]
    assert model.generate_batch(prompts, **options) == alone
    found = list(model.generate_samples(["a", "once"], 3, alternatives=2, **options))
    for text, (prompt, index) in zip(
        found, itertools.product(["a", "once"], range(3)), strict=True
    ):
        stream = model.generate(prompt, sample_index=index, alternatives=2, **options)
        assert text.text == "".join(stream)
        assert text.stop_reason == stream.stop_reason
        assert (text.token_ids, text.scored_tokens) == (stream.token_ids, stream.scored_tokens)


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.0},
        {"temperature": 0.9, "top_p": 0.95},
        {"temperature": 0.9, "repetition_penalty": 1.3},
    ],
    ids=["greedy", "sampled", "penalized"],
)
@pytest.mark.parametrize("quantize", [None, "bfloat16", "int8", "int4"])
@pytest.mark.parametrize("cache", ["float32", "int8"])
def test_batches_of_every_precision_have_the_texts_of_single_sequences(
    make_model, load, cache, quantize, options
):
    model = load(make_model(context_length=24), quantize=quantize, cache=cache)
    prompts = [f"{'once upon' if i % 3 else 'a'} {i}" for i in range(9)]
    options = {"max_tokens": 30, "seed": 3, **options}
    alone = [
        "".join(model.generate(prompt, sample_index=index, **options))
        for index, prompt in enumerate(prompts)
    ]
    assert model.generate_batch(prompts, **options) == alone
    assert len(set(alone)) > 1


def test_long_prompts_beside_other_rows_have_the_texts_of_single_sequences(make_model, load):
    """Prompts and slides of more tokens than a row reads in one step."""
    model = load(make_model(context_length=2 * PART_TOKENS + 100, num_layers=1))
    prompts = ["a", "b" * 599, "ab" * 299, "ab" * 299 + "c", "ab" * 290 + "c", "b" * 612]
    options = {"max_tokens": 30, "temperature": 0.9, "seed": 3}
    alone = [
        "".join(model.generate(prompt, sample_index=index, **options))
        for index, prompt in enumerate(prompts)
    ]
    assert model.generate_batch(prompts, **options) == alone


# --- prompts and the end token ---


def test_special_tokens_in_prompts_are_text(make_model, load, tokenizer):
    model = load(make_model(context_length=99))
    assert model.prompt_ids("<|endoftext|>") == list(b"<|endoftext|>")
    assert model.prompt_ids("<|endoftext|>", allow_special=True) == [256]
    assert model.prompt_ids("") == [256]
    assert len(model.prompt_ids("a" * 99)) == 99
    with pytest.raises(ValueError, match="has 100 tokens, and the context length is 99; shorten"):
        model.prompt_ids("a" * 100)
    with pytest.raises(ValueError, match="the prompt is empty, and the tokenizer has no <"):
        replace(model, tokenizer=Tokenizer({0: b"a"}, [])).prompt_ids("")


def test_custom_end_token(make_model):
    """A tokenizer with `</s>` and `<|endoftext|>`: the model names its end token."""
    specials = ["<|endoftext|>", "</s>"]
    tokenizer = Tokenizer({i: bytes([i]) for i in range(256)}, [], special_tokens=specials)
    model = make_model(vocab_size=258)
    with torch.no_grad():
        model.lm_head.weight[257] *= 3
    weights = {name: weight.numpy() for name, weight in model.state_dict().items()}
    model = LanguageModel.from_weights(model.config, weights, tokenizer, end_token="</s>")
    assert (model.end_token, model.end_id) == ("</s>", 257)
    assert model.prompt_ids("") == [257]
    reasons = []
    for seed in range(20):
        stream = model.generate("a", seed=seed, max_tokens=200)
        assert "</s>" not in "".join(stream)
        reasons.append(stream.stop_reason)
    assert reasons.count("end token") > 10
    assert all("</s>" not in text for text in model.generate_batch(["a"] * 20, max_tokens=200))
    other = replace(model, end_token="<|endoftext|>")
    assert any("</s>" in text for text in other.generate_batch(["a"] * 20, max_tokens=200))
    first = [each.score("ab")[0].log_probability for each in (model, other)]
    assert first[0] != first[1]


# --- loading ---


@pytest.mark.parametrize("backend", ["native", "torch"])
def test_load_reads_the_best_checkpoint_or_a_given_step(run, make_model, backend):
    ids = [1, 2, 3]
    for step, seed in ((None, 5), (5, 5), (10, 10)):
        with torch.no_grad():
            expected = make_model(seed=seed)(torch.tensor([ids]))[0, -1:].numpy()
        for source in (run, run.folder, str(run.folder)):
            loaded = load_model(source, step=step, backend=backend)
            found = loaded.decoder(1).extend([ids])[0]
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


def test_a_run_generates_and_scores(run):
    model = load_model(run)
    text = "".join(model.generate("Once", max_tokens=10, seed=1))
    assert text == "".join(load_model(run.folder).generate("Once", max_tokens=10, seed=1))
    assert len(model.score("Once")) == 4
    quantized = load_model(run, quantize="int8")
    assert "".join(quantized.generate("Once", max_tokens=10, seed=1))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"step": 7}, "has no checkpoint of step 7; there are 5, 10"),
        (
            {"quantize": "int3"},
            "quantize 'int3' is unknown; choose one of None, bfloat16, int8, int4",
        ),
        ({"quantize": "int8", "device": "cuda"}, "int8 weights are for the CPU; omit --quantize"),
        ({"cache": "int4"}, "cache 'int4' is unknown; choose one of float32, int8"),
        ({"cache": "int8", "device": "cuda"}, "a cache in int8 is for the CPU; omit --cache"),
        ({"backend": "gpu"}, "backend 'gpu' is unknown; choose one of native, torch"),
        ({"backend": "native", "device": "cuda"}, "runs on the cpu, not on cuda; use torch"),
        ({"threads": 0}, "threads is 0; give 1 or more."),
        ({"threads": 30_000}, "threads is 30,000, and this machine has"),
        ({"device": "privateuseone"}, "the device privateuseone cannot be used"),
        ({"device": "quantum"}, r"the device quantum cannot be used \(.*\); use cpu"),
    ],
)
def test_invalid_load_options_are_rejected(run, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        load_model(run, **options)


def test_folder_without_a_run_is_rejected(run, tmp_path):
    with pytest.raises(FileError, match=r"is not a run \(it has no config.toml\)"):
        load_model(tmp_path)
    bare = tmp_path / "bare"
    shutil.copytree(run.folder, bare)
    shutil.rmtree(bare / "checkpoints")
    with pytest.raises(FileError, match="bare has no checkpoint yet; train it first"):
        load_model(bare)


def test_load_checkpoint_folder(run, tmp_path):
    for step in (5, 10):
        folder = run.folder / "checkpoints" / f"step-{step:06}"
        texts = [
            "".join(model.generate("a", max_tokens=9))
            for model in (load_model(folder), load_model(run, step=step))
        ]
        assert texts[0] == texts[1]
    load_model(folder, step=10)
    with pytest.raises(FileError, match="is not the checkpoint of step 5; name the run directory"):
        load_model(folder, step=5)
    shutil.copytree(folder, tmp_path / "step-000010")
    with pytest.raises(FileError, match="is a checkpoint outside of a run directory; a checkpoint"):
        load_model(tmp_path / "step-000010")


@pytest.fixture
def changed(run, tmp_path):
    """Return a function that copies the run and changes one number of its config."""

    def change(name, number):
        folder = tmp_path / f"{name}-{number}"
        shutil.copytree(run.folder, folder)
        config = folder / "config.toml"
        text, count = re.subn(rf"(?m)^{name} = \d+$", f"{name} = {number}", config.read_text())
        assert count == 1
        config.write_text(text)
        return folder

    return change


@pytest.mark.parametrize("backend", ["native", "torch"])
@pytest.mark.parametrize(
    ("name", "number", "sentence"),
    [
        ("num_layers", 3_000_000, "num_layers must be at most 10000, not 3000000"),
        ("num_layers", 10_000, r"does not fit the config of the run \(only the model has layers"),
        ("vocab_size", 2**24, r"does not fit the config of the run \(token_embeddings"),
        ("d_ff", 2**22, r"does not fit the config of the run \(layers"),
        ("context_length", 2**60, "context_length must be at most 16777216"),
        ("context_length", 2**64, "context_length|an integer"),
    ],
)
def test_config_that_does_not_fit_the_weights_is_rejected_before_allocating(
    changed, backend, name, number, sentence
):
    with pytest.raises(ValueError, match=sentence):
        load_model(changed(name, number), backend=backend)


def test_long_context_allocates_no_memory_until_used(changed):
    model = load_model(changed("context_length", 2**24))
    assert "".join(model.generate("a", max_tokens=5))


@pytest.mark.parametrize(
    "name",
    [
        "manifest.json",
        "config.toml",
        "tokenizer.json",
        "checkpoints/step-000005/state.json",
        "checkpoints/step-000005/model.safetensors",
    ],
)
def test_named_pipe_is_rejected_without_blocking(run, tmp_path, name):
    copy = tmp_path / "copy"
    shutil.copytree(run.folder, copy)
    (copy / name).unlink()
    os.mkfifo(copy / name)
    with pytest.raises(ValueError, match=r"pipe|is not a run|regular file"):
        load_model(copy, step=5)


def test_end_token_of_a_run(run, tmp_path):
    """A manifest without an end token is of an older version."""
    assert load_model(run).end_token == "<|endoftext|>"
    copy = tmp_path / "copy"
    shutil.copytree(run.folder, copy)
    manifest = json.loads((copy / "manifest.json").read_text())
    assert manifest.pop("end_token") == "<|endoftext|>"
    (copy / "manifest.json").write_text(json.dumps(manifest))
    assert load_model(copy).end_token == "<|endoftext|>"
    for end_token, sentence in (("</s>", "names the end token '</s>', which"), (7, "end_token")):
        (copy / "manifest.json").write_text(json.dumps({**manifest, "end_token": end_token}))
        with pytest.raises(FileError, match=sentence):
            load_model(copy)


def test_damaged_files_are_named(run, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(run.folder, copy)
    weights = copy / "checkpoints" / "step-000005" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    with pytest.raises(
        FileError, match=r"step-000005/model.safetensors is damaged; choose another"
    ):
        load_model(copy)
    load_model(copy, step=10)
    other = Tokenizer({i: bytes([255 - i]) for i in range(256)}, [], ["<|endoftext|>"])
    other.save(copy / "tokenizer.json", overwrite=True)
    with pytest.raises(FileError, match="is not the tokenizer that the run was trained with"):
        load_model(open_run(copy), step=10)


def test_tokenizer_larger_than_the_vocabulary_is_rejected(make_model):
    model = make_model(vocab_size=256)
    weights = {name: weight.numpy() for name, weight in model.state_dict().items()}
    tokenizer = Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<|endoftext|>"])
    with pytest.raises(ValueError, match="has ids up to 256, and the vocabulary of the model ends"):
        LanguageModel.from_weights(model.config, weights, tokenizer)


def test_generation_on_a_cpu_does_not_import_torch(run):
    code = f"""
import sys
import tilth
model = tilth.load({str(run.folder)!r})
assert list(model.generate("Once", max_tokens=5)) and model.score("a")
assert model.generate_batch(["Once", "a"], max_tokens=5)
sys.exit("torch" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_batched_scores_equal_those_of_one_text(make_model, load, tokenizer):
    """Texts shorter and longer than the context of 24, and an empty one."""
    torch_model = make_model()
    model = load(torch_model)
    texts = ["a cat sat", "", "x" * 23, "the dog " * 20, *(f"text {i}" for i in range(20))]
    batch = model.score_batch(texts)
    assert batch == [model.score(text) for text in texts]
    with_torch = LanguageModel.from_model(torch_model, tokenizer)
    for text, scored, reference in zip(texts, batch, with_torch.score_batch(texts), strict=True):
        assert [token.id for token in scored] == [token.id for token in reference]
        assert len(scored) == len(text.encode())
        found = [token.log_probability for token in scored]
        slow = [token.log_probability for token in model.score(text, alternatives=1)]
        assert found == pytest.approx(slow, abs=1e-6)
        assert found == pytest.approx([token.log_probability for token in reference], abs=1e-4)
    assert model.score_batch([]) == []
    with pytest.raises(ValueError, match="takes a list of texts"):
        model.score_batch("text")


class Counted(_core.Decoder):
    """Counts the calls and the ids of each."""

    calls = ()

    def extend(self, ids, every=False):
        Counted.calls += (sum(map(len, ids)),)
        return super().extend(ids, every)


@pytest.mark.parametrize("quantize", [None, "int8"])
def test_drafts_leave_the_text_unchanged(make_model, load, monkeypatch, quantize):
    """Greedy and sampled, beyond the context, with stop strings and without a repetition."""
    monkeypatch.setattr(_core, "Decoder", Counted)
    model = load(make_model(context_length=40, vocab_size=257), quantize=quantize)
    saved = 0
    for options in (
        {"temperature": 0.0, "max_tokens": 100},
        {"temperature": 0.0, "max_tokens": 100, "past_context": "stop"},
        {"temperature": 0.05, "seed": 3, "max_tokens": 100, "alternatives": 2},
        {"temperature": 0.3, "top_k": 3, "max_tokens": 60},
        {"temperature": 0.3, "repetition_penalty": 1.3, "max_tokens": 60},
    ):
        for prompt in ("abcabcabcabc", "the cat, the cat, the", "x", "a" * 40):
            texts = []
            for drafts in (False, True):
                Counted.calls = ()
                stream = model.generate(prompt, drafts=drafts, **options)
                text = "".join(stream)
                found = (text, stream.token_ids, stream.stop_reason, stream.scored_tokens)
                texts.append((found, len(Counted.calls)))
            assert texts[0][0] == texts[1][0]
            saved += texts[0][1] - texts[1][1]
            if len(text) > 4:
                stop = text[len(text) // 2 :][:2]
                both = [
                    "".join(model.generate(prompt, drafts=drafts, stop=[stop], **options))
                    for drafts in (False, True)
                ]
                assert both[0] == both[1]
    assert saved > 50


def test_drafts_follow_the_last_three_ids():
    drafter = Drafter()
    context = [1, 2, 3, 4, 1, 2, 3]
    assert drafter.draft(context, 8) == [4, 1, 2, 3]
    context += [5, 1, 2, 3]  # the latest occurrence counts
    assert drafter.draft(context, 2) == [5, 1]
    assert drafter.draft(context, 0) == []
    assert drafter.draft([7, 1, 2, 3], 8) == []  # the context slid
    assert drafter.draft([], 8) == drafter.draft([1], 8) == []
