"""bfloat16: which values are in which type, and runs that repeat every bit.

torch computes bfloat16 on every CPU, slowly where the instructions are missing: the tests replace
the check for them.
"""

from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.training.comparing import difference, final_state
from tests.training.test_step import batch
from tilth.model import TransformerLM
from tilth.optim import muon
from tilth.runs.run import open_run
from tilth.training import machine as machine_module
from tilth.training import resume, train
from tilth.training.step import (
    accumulate_gradients,
    autocast_of,
    make_loss,
    make_optimizer,
    make_scaler,
    update,
)

PRODUCTS = {"mm", "bmm", "addmm", "baddbmm"}
# Everything that norms, softmax and loss consist of, besides products.
STATISTICS = {"rsqrt", "mean", "exp", "exp_", "log", "amax", "sum", "pow", "_log_softmax", "norm"}


@pytest.fixture
def _instructions(monkeypatch):
    monkeypatch.setattr(machine_module, "cpu_has_bfloat16", lambda: True)


def in_bfloat16(config, **machine):
    return replace(config, machine=replace(config.machine, dtype="bfloat16", **machine))


class Types(TorchDispatchMode):
    """Record the floating-point types of the arguments and results of every operation."""

    def __init__(self):
        super().__init__()
        self.of = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        for value in (*args, *(out if isinstance(out, tuple | list) else (out,))):
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                self.of.setdefault(name, set()).add(value.dtype)
        return out


def test_types_of_a_step(config):
    """Products are in bfloat16; norms, softmax, loss, gradients and weights in float32."""
    config = in_bfloat16(config)
    torch.manual_seed(0)
    model = TransformerLM(replace(config.model, qk_norm=True))
    loss_of = make_loss(model, config.machine)
    x, y = batch(config, 2)
    with Types() as forward:
        loss = loss_of(x, y)
    with Types() as backward:
        loss.backward()
    assert loss.dtype == torch.float32
    for found in (forward.of, backward.of):
        assert PRODUCTS & found.keys()
        for name in PRODUCTS & found.keys():
            assert found[name] == {torch.bfloat16}, name
        for name in STATISTICS & found.keys():
            assert found[name] == {torch.float32}, name
    assert {"rsqrt", "exp_", "log"} <= forward.of.keys()
    assert {parameter.grad.dtype for parameter in model.parameters()} == {torch.float32}

    optimizer = make_optimizer(model, config.optimizer, "bfloat16")
    with Types() as updating:
        update(optimizer, loss, 1e-2, 1.0, make_scaler(config.machine))
    assert updating.of["bmm"] == updating.of["baddbmm"] == {torch.bfloat16}
    state = {t.dtype for each in optimizer.state.values() for t in each.values()}
    assert state | {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_types_at_the_boundaries_of_the_layers(config):
    """The residual stream stays float32: sums over layers would lose digits in bfloat16."""
    config = in_bfloat16(config)
    model = TransformerLM(config.model)
    found = {}

    def note(name):
        def hook(_module, inputs, output):
            found[name] = inputs[0].dtype, output.dtype

        return hook

    for name, module in model.named_modules():
        module.register_forward_hook(note(name))
    with autocast_of(config.machine)():
        hidden = model.hidden(batch(config, 2)[0])
    wide, narrow = torch.float32, torch.bfloat16
    assert hidden.dtype == wide
    assert found["token_embeddings"] == (torch.int64, wide)
    for number in range(config.model.num_layers):
        assert found[f"layers.{number}"] == (wide, wide)
        for norm in ("ln1", "ln2"):
            assert found[f"layers.{number}.{norm}"] == (wide, wide)
        for part in ("attn", "ffn"):
            assert found[f"layers.{number}.{part}"] == (wide, narrow)


def test_softmax_of_the_fused_attention_is_in_float32():
    """Its log-sum-exp is float32, and a sum of 4,096 weights is exact to 0.1%.

    Summed in bfloat16, weights of 1 would end at 256, and the mean of ones would be 16.
    """
    q, k = torch.zeros(2, 1, 1, 4096, 8, dtype=torch.bfloat16)
    v = torch.ones(1, 1, 4096, 8, dtype=torch.bfloat16)
    attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    mixed, log_sums = attention(q, k, v, 0.0, True)
    assert mixed.dtype == torch.bfloat16
    assert log_sums.dtype == torch.float32
    sums = torch.arange(1.0, 4097.0)
    torch.testing.assert_close(log_sums.exp().flatten(), sums, rtol=1e-3, atol=0.0)
    assert torch.equal(mixed, v)


def test_gradients_are_those_of_float32(config):
    """Each gradient differs by some roundings of bfloat16, over all parameters by 1%."""
    torch.manual_seed(0)
    model = TransformerLM(config.model)
    x, y = batch(config, 4)
    found = []
    for each in (config, in_bfloat16(config)):
        model.zero_grad()
        scaler = make_scaler(each.machine)
        loss = accumulate_gradients(make_loss(model, each.machine), x, y, 2, scaler)
        found.append((loss, torch.cat([p.grad.flatten() for p in model.parameters()])))
    (wide_loss, wide), (narrow_loss, narrow) = found
    assert narrow_loss.item() == pytest.approx(wide_loss.item(), rel=2e-3)
    assert 0 < (narrow - wide).norm() < 0.02 * wide.norm()


@pytest.mark.usefixtures("_instructions")
@pytest.mark.parametrize(
    "compiling",
    [
        False,
        pytest.param(
            True,
            marks=[pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")],
        ),
    ],
)
def test_resumed_run_equals_uninterrupted_run(config, tmp_path, compiling):
    config = in_bfloat16(config, compile=compiling)
    list(train(config, tmp_path / "whole"))
    for stop in (1, 5) if not compiling else (5,):
        folder = tmp_path / f"run-{stop}"
        records = train(config, folder)
        next(record for record in records if record.step == stop)
        records.close()
        list(resume(folder))
        assert difference(folder, tmp_path / "whole") is None
    assert open_run(tmp_path / "whole").config.machine.dtype == "bfloat16"
    tensors, _ = final_state(tmp_path / "whole")
    assert {t.dtype for t in tensors.values() if t.is_floating_point()} == {torch.float32}


@pytest.mark.usefixtures("_instructions")
def test_resumed_run_needs_the_instructions(config, tmp_path, monkeypatch):
    records = train(in_bfloat16(config), tmp_path / "run")
    next(records)
    records.close()
    monkeypatch.setattr(machine_module, "cpu_has_bfloat16", lambda: False)
    with pytest.raises(ValueError, match="no instructions for bfloat16"):
        resume(tmp_path / "run")


def test_iteration_of_muon_in_bfloat16_is_near_that_in_float32():
    torch.manual_seed(0)
    matrix = torch.randn(24, 40)
    exact = muon.orthogonalize(matrix.double())
    narrow = muon.orthogonalize(matrix.bfloat16()).double()
    assert (narrow - exact).norm() < 0.05 * exact.norm()
