"""Tests of the whole model against Hugging Face; causality, parameter names, devices."""

import copy
import math
import pickle
from dataclasses import replace
from functools import reduce

import pytest
import torch
from torch.autograd import gradcheck
from torch.nn import functional as F
from torch.testing import assert_close

from tilth.accounting import count_parameters
from tilth.config.model import ModelConfig, RopeScaling
from tilth.model.attention import MultiHeadSelfAttention
from tilth.model.transformer import TransformerBlock, TransformerLM

CONFIG = ModelConfig(vocab_size=97, context_length=24, d_model=32, num_layers=3, num_heads=4)
VARIANTS = {
    "plain": {},
    "grouped": {"num_kv_heads": 2},
    "one key head": {"num_kv_heads": 1},
    "tied": {"tie_embeddings": True},
    "qk-norm": {"qk_norm": True},
    "post-norm": {"norm": "post"},
    "no norm": {"norm": "none"},
    "no positions": {"position": "none"},
    "silu": {"ffn": "silu", "d_ff": None},
    "wider heads": {"head_dim": 14, "num_kv_heads": 2},
    "biases": {"qkv_bias": True, "num_kv_heads": 1},
    "large epsilon": {"norm_eps": 0.1, "qk_norm": True},
    "scaled rotations": {"rope_scaling": RopeScaling(8.0, original_context_length=16)},
    "all": {
        "num_kv_heads": 2,
        "tie_embeddings": True,
        "qk_norm": True,
        "norm": "post",
        "position": "none",
        "ffn": "silu",
        "d_ff": None,
    },
}
every_variant = pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
both_paths = pytest.mark.parametrize("fast", [False, True], ids=["definition", "fast"])


def make(changes=(), *, fast=True, dtype=torch.float64, seed=0):
    """A model with random norm weights."""
    torch.manual_seed(seed)
    model = TransformerLM(replace(CONFIG, **dict(changes)), dtype=dtype).use_fast_path(fast)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                parameter.copy_(1 + 0.3 * torch.randn(parameter.shape, dtype=dtype))
                assert "ln" in name or "norm" in name or name.endswith("_proj.bias")
    return model


def some_ids(*shape, seed=0):
    return torch.randint(0, 97, shape, generator=torch.Generator().manual_seed(seed))


# --- against Hugging Face ---


LLAMA_NAMES = {
    "token_embeddings": "model.embed_tokens",
    "layers.": "model.layers.",
    "ln1": "input_layernorm",
    "ln2": "post_attention_layernorm",
    "ln_final": "model.norm",
    "attn.": "self_attn.",
    "output_proj": "o_proj",
    "ffn.w1": "mlp.gate_proj",
    "ffn.w2": "mlp.down_proj",
    "ffn.w3": "mlp.up_proj",
}


def copied_into_hugging_face(model):
    """Llama, Qwen3 with qk_norm, or Qwen2 with biases, with the weights of `model`."""
    import transformers

    config = model.config
    rope = {"rope_type": "default", "rope_theta": config.rope_theta}
    if (scaling := config.rope_scaling) is not None:
        rope |= {"rope_type": "llama3", "factor": scaling.factor}
        rope |= {"original_max_position_embeddings": scaling.original_context_length}
        rope |= {"low_freq_factor": scaling.low_freq_factor}
        rope |= {"high_freq_factor": scaling.high_freq_factor}
    options = {
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "intermediate_size": config.d_ff,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.d_head,
        "max_position_embeddings": config.context_length,
        "rms_norm_eps": config.norm_eps,
        "rope_parameters": rope,
        "tie_word_embeddings": config.tie_embeddings,
        "attn_implementation": "eager",
    }
    family = "Qwen3" if config.qk_norm else "Qwen2" if config.qkv_bias else "Llama"
    other = getattr(transformers, f"{family}ForCausalLM")(
        getattr(transformers, f"{family}Config")(**options)
    )
    # Hugging Face rotates (k, k + d/2), tilth (2k, 2k+1): the even rows of a head come first.
    order = torch.cat([torch.arange(0, config.d_head, 2), torch.arange(1, config.d_head, 2)])
    weights = {}
    for name, weight in model.state_dict().items():
        rows = weight
        if any(part in name for part in ("q_proj", "k_proj", "q_norm", "k_norm")):
            rows = weight.unflatten(0, (-1, config.d_head))[:, order].flatten(0, 1)
        weights[reduce(lambda name, pair: name.replace(*pair), LLAMA_NAMES.items(), name)] = rows
    if config.tie_embeddings:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    other.load_state_dict(weights, strict=True)
    return other.eval()


# Llama 3 with scaled rotations, Qwen2 with biases, Qwen3 with its own head width.
OTHER_FAMILIES = [
    {
        "num_kv_heads": 2,
        "norm_eps": 1e-3,
        "rope_scaling": RopeScaling(
            4.0, original_context_length=20, low_freq_factor=0.5, high_freq_factor=2.0
        ),
    },
    {"num_kv_heads": 2, "qkv_bias": True, "norm_eps": 1e-6, "tie_embeddings": True},
    {"num_kv_heads": 2, "qk_norm": True, "head_dim": 14, "norm_eps": 1e-6},
]


@both_paths
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_kv_heads": 2},
        {"tie_embeddings": True},
        {"qk_norm": True, "num_kv_heads": 2},
        {"rope_theta": 500_000.0, "d_ff": 50},
        *OTHER_FAMILIES,
    ],
    ids=str,
)
def test_logits_and_gradients_equal_hugging_face(changes, fast):
    model = make(changes, fast=fast, dtype=torch.float32)
    other = copied_into_hugging_face(model)
    ids = some_ids(3, 24)
    logits, expected = model(ids), other(input_ids=ids, use_cache=False).logits
    assert_close(logits, expected, rtol=0, atol=1e-4)
    assert count_parameters(model.config).total == sum(p.numel() for p in other.parameters())
    for each in (logits, expected):
        F.cross_entropy(each.flatten(0, 1), some_ids(72, seed=1)).backward()
    assert_close(
        model.token_embeddings.weight.grad,
        other.model.embed_tokens.weight.grad,
        rtol=1e-4,
        atol=1e-6,
    )


# --- causality and positions ---


@every_variant
@both_paths
def test_causality(changes, fast):
    """A change at t does not change logits before t."""
    model = make(changes, fast=fast)
    ids = some_ids(2, 24)
    before = model(ids)
    for t in (0, 11, 23):
        changed = ids.clone()
        changed[:, t] = (ids[:, t] + 1) % 97
        after = model(changed)
        assert_close(after[:, :t], before[:, :t])
        assert (after[:, t:] != before[:, t:]).any(-1).all()


def test_causality_by_gradients():
    model = make({"num_kv_heads": 2})
    embedded = model.token_embeddings(some_ids(1, 8)).detach().requires_grad_()
    model.token_embeddings.forward = lambda _: embedded
    logits = model(some_ids(1, 8))
    for t in range(8):
        (gradient,) = torch.autograd.grad(logits[:, t].sum(), embedded, retain_graph=True)
        assert (gradient[:, t + 1 :] == 0).all()
        assert (gradient[:, : t + 1] != 0).any(-1).all()


@every_variant
@both_paths
def test_logits_do_not_depend_on_batch_or_suffix(changes, fast):
    model = make(changes, fast=fast)
    ids = some_ids(3, 24)
    logits = model(ids)
    for row, expected in zip(ids, logits, strict=True):
        assert_close(model(row), expected)
        assert_close(model(row[None])[0], expected)
        for length in (1, 7):
            assert_close(model(row[:length]), expected[:length])
    assert_close(model(ids.reshape(1, 3, 1, 24)), logits.reshape(1, 3, 1, 24, 97))


@both_paths
def test_positions(fast):
    model = make(fast=fast)
    ids = some_ids(2, 8)
    logits = model(ids)
    for positions in (torch.arange(8), torch.arange(8)[None], torch.arange(8).expand(2, 8)):
        assert_close(model(ids, positions), logits)
    # Logits depend on distances only: shifting all positions together changes nothing.
    assert_close(model(ids, torch.tensor([[0], [16]]) + torch.arange(8)), logits)
    assert not torch.allclose(model(ids, 2 * torch.arange(8)), logits)
    with pytest.raises(ValueError, match="positions 17 to 24 are not all within 0 to 23"):
        model(ids, 17 + torch.arange(8))


@every_variant
def test_sequence_longer_than_the_context_is_rejected(changes):
    sentence = "the sequence has 25 tokens, and the context length is 24; shorten it"
    with pytest.raises(ValueError, match=sentence):
        make(changes)(some_ids(1, 25))


def test_ids_outside_the_vocabulary():
    with pytest.raises(ValueError, match=r"^token ids 5 to 97 are .* vocabulary of 97; encode"):
        make()(torch.tensor([[5, 97]]))


# --- fast path, hidden states, variants ---


@every_variant
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fast_path_is_as_accurate_as_the_definition(changes, dtype):
    """Both against float64: equal numbers of roundings give errors of equal size."""
    model = make(changes, dtype=dtype)
    ids, targets = some_ids(4, 24), some_ids(96, seed=1)

    def run(working, fast):
        model.to(working).use_fast_path(fast)
        logits = model(ids)
        loss = F.cross_entropy(logits.flatten(0, 1), targets)
        return logits, *torch.autograd.grad(loss, tuple(model.parameters()))

    exact, definition, fast = run(torch.float64, False), run(dtype, False), run(dtype, True)
    assert not torch.equal(definition[0], fast[0])  # two different paths
    for reference, *rounded in zip(exact, definition, fast, strict=True):
        error, fast_error = (
            (result.double() - reference).norm() / reference.norm() for result in rounded
        )
        # About fifteen roundings a block, forward and backward, three blocks: errors of eps / 2
        # add up as a random walk to about 5 eps. Without norms the residual stream grows, and so
        # do they.
        assert error < (100 if model.config.norm == "none" else 20) * torch.finfo(dtype).eps
        # Sums with cancellation, as in gradients of biases: the definition may err by luck less.
        assert fast_error < 3 * max(error, 2 * torch.finfo(dtype).eps)


@both_paths
def test_autocast(fast):
    """Products in bfloat16, weights and statistics in float32: logits accurate to about 1%."""
    model = make({"qk_norm": True, "num_kv_heads": 2}, fast=fast, dtype=torch.float32)
    ids = some_ids(2, 24)
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(ids)
    expected = model(ids)
    assert logits.dtype == torch.bfloat16
    assert (logits - expected).norm() < 3 * torch.finfo(torch.bfloat16).eps * expected.norm()


def test_use_fast_path_sets_every_layer():
    model = make()
    parts = [part for layer in model.layers for part in (layer.attn, layer.ffn)]
    assert all(part.fast for part in parts)
    assert model.use_fast_path(False) is model
    assert not any(part.fast for part in parts)


@every_variant
def test_hidden_states_and_head(changes):
    model = make(changes)
    ids = some_ids(2, 5)
    hidden = model.hidden(ids)
    assert hidden.shape == (2, 5, 32)
    assert model.head_weight.shape == (97, 32)
    assert_close(F.linear(hidden, model.head_weight), model(ids))
    tied = model.config.tie_embeddings
    assert (model.head_weight is model.token_embeddings.weight) == tied
    assert ("lm_head.weight" in model.state_dict()) != tied
    assert ("ln_final.weight" in model.state_dict()) == (model.config.norm == "pre")


def test_variants_differ():
    ids = some_ids(2, 24)
    logits = [make(changes)(ids) for changes in VARIANTS.values()]
    for i, one in enumerate(logits):
        assert one.isfinite().all()
        for other in logits[:i]:
            assert not torch.allclose(one, other)


@pytest.mark.parametrize("norm", ["pre", "post", "none"])
def test_blocks_equal_their_formulas(norm):
    config = replace(CONFIG, norm=norm)
    torch.manual_seed(0)
    block = TransformerBlock(config, dtype=torch.float64)
    x = torch.randn(2, 5, 32, dtype=torch.float64)
    attend, feed = block.attn, block.ffn

    def rms(y):
        return F.rms_norm(y, (32,), eps=1e-5)

    if norm == "pre":
        middle = x + attend(rms(x))
        expected = middle + feed(rms(middle))
    elif norm == "post":
        middle = rms(x + attend(x))
        expected = rms(middle + feed(middle))
    else:
        middle = x + attend(x)
        expected = middle + feed(middle)
    assert_close(block(x), expected)
    assert {name.split(".")[0] for name, _ in block.named_parameters()} == (
        {"attn", "ffn"} if norm == "none" else {"ln1", "attn", "ln2", "ffn"}
    )


def test_feed_forwards_have_about_the_same_number_of_parameters():
    swiglu = ModelConfig(10_000, 256, 512, 4, 16)
    counts = [
        sum(p.numel() for p in TransformerLM(config, device="meta").layers.parameters())
        for config in (swiglu, replace(swiglu, ffn="silu", d_ff=None))
    ]
    assert abs(counts[0] / counts[1] - 1) < 0.02


def test_whole_model_gradients():
    config = ModelConfig(5, 4, 4, 1, 2, d_ff=3, num_kv_heads=1, qk_norm=True)
    torch.manual_seed(0)
    model = TransformerLM(config, dtype=torch.float64).use_fast_path(False)
    ids = torch.tensor([[0, 4, 4, 1]])
    assert gradcheck(lambda *_: model(ids), tuple(model.parameters()))


# --- names, files, devices ---


def test_parameter_names():
    names = [
        "token_embeddings.weight",
        "layers.0.ln1.weight",
        "layers.0.attn.q_proj.weight",
        "layers.0.attn.k_proj.weight",
        "layers.0.attn.v_proj.weight",
        "layers.0.attn.output_proj.weight",
        "layers.0.attn.q_norm.weight",
        "layers.0.attn.k_norm.weight",
        "layers.0.ln2.weight",
        "layers.0.ffn.w1.weight",
        "layers.0.ffn.w2.weight",
        "layers.0.ffn.w3.weight",
        "ln_final.weight",
        "lm_head.weight",
    ]
    config = replace(CONFIG, num_layers=1, qk_norm=True, num_kv_heads=2)
    model = TransformerLM(config, device="meta")
    assert list(model.state_dict()) == names
    assert [name for name, _ in model.named_parameters()] == names
    shapes = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}
    assert shapes["token_embeddings.weight"] == shapes["lm_head.weight"] == (97, 32)
    assert shapes["layers.0.attn.q_proj.weight"] == (32, 32)
    assert shapes["layers.0.attn.k_proj.weight"] == (16, 32)
    assert shapes["layers.0.attn.q_norm.weight"] == (8,)
    assert shapes["layers.0.ffn.w1.weight"] == (config.d_ff, 32)
    assert shapes["layers.0.ffn.w2.weight"] == (32, config.d_ff)


@every_variant
def test_state_dict_round_trip(changes):
    model, other = make(changes), make(changes, seed=1)
    ids = some_ids(2, 24)
    weights = {name: weight.clone() for name, weight in model.state_dict().items()}
    assert not torch.allclose(model(ids), other(ids))
    other.load_state_dict(weights, strict=True)
    assert_close(model(ids), other(ids), rtol=0, atol=0)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert_close(model(ids), twin(ids), rtol=0, atol=0)


@every_variant
def test_to_empty_from_the_meta_device(changes):
    """`to_empty` and `load_state_dict` restore the model, including the rotation tables."""
    model = make(changes)
    ids = some_ids(2, 24)
    other = TransformerLM(model.config, device="meta", dtype=torch.float64)
    other.to_empty(device="cpu").load_state_dict(model.state_dict())
    assert_close(other(ids), model(ids), rtol=0, atol=0)
    with torch.device("meta"):
        assert TransformerLM(model.config)(ids.to("meta")).shape == (2, 24, 97)


def test_parameters_can_be_counted_on_the_meta_device():
    model = TransformerLM(
        ModelConfig(50_257, 1024, d_model=1600, num_layers=48, num_heads=25, d_ff=6400),
        device="meta",
    )
    assert sum(parameter.numel() for parameter in model.parameters()) == 2_127_057_600
    assert all(tensor.is_meta for tensor in (*model.parameters(), *model.buffers()))


def test_blocks_share_their_rotation_tables():
    model = make()
    assert len(list(model.buffers())) == 2
    assert not any("rope" in name for name in model.state_dict())


# --- training ---


@pytest.mark.parametrize("vocab_size", [500, 5000])
def test_initial_loss_with_tied_embeddings(vocab_size):
    """The first loss is log(vocab_size), plus 1/2 for logits of variance 1."""
    config = ModelConfig(vocab_size, 64, 128, 2, 4, tie_embeddings=True)
    torch.manual_seed(0)
    model = TransformerLM(config)
    scale = model.token_embeddings.weight.std().item() * math.sqrt(128)
    assert scale == pytest.approx(math.sqrt(0.973), rel=0.02)
    ids = torch.randint(0, vocab_size, (8, 65))
    with torch.no_grad():
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    assert math.log(vocab_size) < loss < math.log(vocab_size) + 1


@every_variant
def test_model_overfits_one_batch(changes):
    model = make(changes, dtype=torch.float32)
    lr = 3e-3 if model.config.norm == "none" else 1e-2  # 1e-2 diverges without norms
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)
    ids = some_ids(4, 17)
    for _ in range(150):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        if loss < 0.01:
            return
        loss.backward()
        optimizer.step()
    pytest.fail(f"the loss is still {loss:.3f}")


def test_gradients_are_deterministic():
    torch.set_num_threads(2)
    torch.manual_seed(0)
    model = TransformerLM(ModelConfig(50, 128, 64, 2, 4))
    ids = some_ids(8, 129) % 50

    def gradients():
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        return torch.autograd.grad(loss, tuple(model.parameters()))

    first = gradients()
    for _ in range(3):
        assert all(torch.equal(a, b) for a, b in zip(first, gradients(), strict=True))


# --- torch.compile ---


@every_variant
def test_model_compiles_to_one_graph(changes):
    """Traces only; the slow test below runs the generated code."""
    torch.compiler.reset()
    model = make({**changes, "num_layers": 1})
    ids = some_ids(2, 24)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    assert_close(compiled(ids), model(ids))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")  # inside the compiler
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("fast", [False, True])
def test_compiled_model_is_accurate_and_deterministic(dtype, fast):
    torch.set_num_threads(2)
    config = ModelConfig(100, 128, 64, 2, 4, num_kv_heads=2, qk_norm=True)
    torch.manual_seed(0)
    model = TransformerLM(config, dtype=dtype).use_fast_path(fast)
    ids = some_ids(16, 129)
    exact = copy.deepcopy(model).double()

    def run(call, owner):
        logits = call(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        return logits, *torch.autograd.grad(loss, tuple(owner.parameters()))

    torch.use_deterministic_algorithms(True)
    try:
        compiled = torch.compile(model, fullgraph=True)
        first = run(compiled, model)
        for _ in range(5):
            assert all(torch.equal(a, b) for a, b in zip(first, run(compiled, model), strict=True))
    finally:
        torch.use_deterministic_algorithms(False)
    # Compiled loops sum float32 sequentially, eager ones pairwise. So the gradient of a norm's
    # weight over 16 x 128 tokens and 4 heads is a random walk of as many roundings.
    one_by_one = math.sqrt(16 * 128 * 4) * torch.finfo(torch.float32).eps
    for reference, result in zip(run(exact, exact), first, strict=True):
        error = (result.double() - reference).norm() / reference.norm()
        assert error < max(10 * torch.finfo(dtype).eps, one_by_one)


def test_assign_weights_to_a_meta_model():
    """Loads without allocating twice; the rotation tables are not in the state dict."""
    config = ModelConfig(vocab_size=50, context_length=16, d_model=32, num_layers=2, num_heads=4)
    model = TransformerLM(config)
    empty = TransformerLM(config, device="meta")
    empty.load_state_dict(model.state_dict(), assign=True)
    ids = torch.arange(12).reshape(2, 6)
    assert torch.equal(empty(ids), model(ids))


def test_tied_model_loads_both_names_of_its_matrix():
    config = ModelConfig(
        vocab_size=50, context_length=16, d_model=32, num_layers=1, num_heads=4, tie_embeddings=True
    )
    model = TransformerLM(config)
    state = model.state_dict()
    model.load_state_dict({**state, "lm_head.weight": state["token_embeddings.weight"]})
    with pytest.raises(RuntimeError, match=r"lm_head\.weight"):
        model.load_state_dict({**state, "lm_head.weight": state["token_embeddings.weight"] + 1})


def test_block_takes_device_and_dtype():
    config = ModelConfig(vocab_size=50, context_length=16, d_model=32, num_layers=1, num_heads=4)
    block = TransformerBlock(config, "cpu", torch.float64)
    assert block(torch.ones(1, 3, 32, dtype=torch.float64)).dtype == torch.float64
    assert (
        MultiHeadSelfAttention(32, 4, None, 2, "cpu", torch.float64).q_proj.weight.dtype
        == torch.float64
    )
