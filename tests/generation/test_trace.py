"""`trace` equals the torch definition, with hooks on its modules."""

import math
import time

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tests.model.test_transformer import VARIANTS
from tilth.config.model import ModelConfig
from tilth.config.parameters import parameter_shapes
from tilth.generation import LanguageModel
from tilth.generation import trace as trace_module
from tilth.generation.trace import trace


def expected(model, ids, without=()):
    """Logits after each layer, attention, norms and losses of `TransformerLM`, in float64."""
    model = model.double().use_fast_path(False)
    streams, attention, handles = [], [], []

    def keep(found):
        return lambda _module, _inputs, output: found.append(output.detach())

    def zero(_module, _inputs, output):
        return 0 * output

    handles.append(model.token_embeddings.register_forward_hook(keep(streams)))
    for index, layer in enumerate(model.layers):
        handles.append(layer.register_forward_hook(keep(streams)))
        parts = {"attention": layer.attn, "feed_forward": layer.ffn}
        for name, part in parts.items():
            if {f"layer.{index}", f"layer.{index}.{name}"} & set(without):
                handles.append(part.register_forward_hook(zero))

        def queries_and_keys(module, inputs, _output):
            """Recompute the scores from the input of attention."""
            q, k = (
                torch.unflatten(project(inputs[0]), -1, (-1, module.d_head)).transpose(-3, -2)
                for project in (module.q_proj, module.k_proj)
            )
            q, k = module.q_norm(q), module.k_norm(k)
            if module.rope is not None:
                q, k = module.rope(q), module.rope(k)
            k = k.repeat_interleave(module.num_heads // module.num_kv_heads, dim=-3)
            scores = q @ k.transpose(-1, -2) / math.sqrt(module.d_head)
            mask = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
            attention.append(scores.masked_fill(mask, -math.inf).softmax(-1)[0])

        handles.append(layer.attn.register_forward_hook(queries_and_keys))

        def silence(_module, inputs, index=index):
            (mixed,) = inputs
            heads = mixed.unflatten(-1, (model.config.num_heads, -1)).clone()
            for head in range(model.config.num_heads):
                if f"layer.{index}.head.{head}" in without:
                    heads[..., head, :] = 0
            return (heads.flatten(-2),)

        handles.append(layer.attn.output_proj.register_forward_pre_hook(silence))
    with torch.no_grad():
        last = model(torch.tensor([ids]))[0]
        logits = torch.stack([(model.ln_final(x) @ model.head_weight.T)[0] for x in streams])
    for handle in handles:
        handle.remove()
    assert torch.equal(logits[-1], last)
    norms = torch.stack([x[0].norm(dim=-1) for x in streams])
    losses = F.cross_entropy(last[:-1], torch.tensor(ids[1:]), reduction="none")
    return logits, torch.stack(attention), norms, losses


WITHOUT = [[], ["layer.1"], ["layer.0.head.1", "layer.1.feed_forward", "layer.1.head.0"]]
WITHOUT += [["layer.0.attention"]]


@pytest.mark.parametrize("without", WITHOUT, ids=str)
@pytest.mark.parametrize("name", VARIANTS)
def test_values_equal_those_of_torch(make_model, name, without):
    model = make_model(**VARIANTS[name])
    weights = {key: weight.numpy().copy() for key, weight in model.state_dict().items()}
    ids = torch.randint(0, 260, (20,), generator=torch.Generator().manual_seed(0)).tolist()
    found = trace(model.config, weights, ids, without)
    wanted = expected(model, ids, without)
    values = found.logits, found.attention, found.residual_norms, found.losses
    for value, reference in zip(values, wanted, strict=True):
        scale = float(reference.abs().max())
        np.testing.assert_allclose(value, reference.numpy(), rtol=1e-4, atol=2e-5 * scale)
    assert found.logits.dtype == np.float32


def test_model_traces_a_text_on_both_backends(make_model, load, tokenizer):
    model = make_model()
    native, other = load(model), LanguageModel.from_model(model, tokenizer)
    found = native.trace("a cat", without=["layer.0.head.2"])
    assert found.token_ids == [256, *b"a cat"]
    assert np.array_equal(other.trace("a cat", without=["layer.0.head.2"]).logits, found.logits)
    whole = native.trace("a cat")
    scores = [token.log_probability for token in native.score("a cat")]
    np.testing.assert_allclose(whole.losses, -np.array(scores), rtol=1e-4)
    assert not np.allclose(whole.logits[-1], found.logits[-1])
    assert native.trace("").token_ids == [256]


def shaped(**shape):
    """A config and weights of ones, a few bytes for each head and layer."""
    config = ModelConfig(5, context_length=8, d_model=2, ffn="silu", d_ff=1, **shape)
    return config, {name: np.ones(part, np.float32) for name, part in parameter_shapes(config)}


def test_many_layers_take_time_in_proportion():
    began = time.process_time()
    found = trace(*shaped(num_layers=5000, num_heads=1), [0, 3, 1])
    assert found.residual_norms.shape == (5001, 3)
    assert time.process_time() - began < 10  # 1 s; if each layer reads all names, a minute


def test_a_trace_that_needs_more_than_the_memory_is_refused(monkeypatch):
    monkeypatch.setattr(trace_module, "host_memory_bytes", lambda: 100_000)
    config, weights = shaped(num_layers=100, num_heads=1)
    with pytest.raises(ValueError, match=r"a trace of 8 tokens takes .* shorten the text"):
        trace(config, weights, [0, 3, 1, 2] * 2)
    assert trace(config, weights, [0]).attention.shape == (100, 1, 1, 1)


@pytest.mark.parametrize(
    ("without", "sentence"),
    [
        ("layer.0", "without is a list of parts"),
        (["layer.2"], "there is no layer.2; the model has 2 layers of 4 heads"),
        (["layer.0.head.4"], "there is no layer.0.head.4"),
        (["layers.0"], "without has 'layers.0'; a part is layer.0,"),
        ([3], "without has 3; a part is"),
        (["layer." + "9" * 5000], "without has 'layer.999"),
    ],
)
def test_unknown_parts_are_rejected(make_model, load, without, sentence):
    with pytest.raises(ValueError, match=sentence):
        load(make_model()).trace("a", without=without)
