"""Training on CUDA, as far as a CPU can prove it: no synchronization in a step, types, one graph.

The whole step runs on fake tensors of a CUDA device (see `fake_cuda.cpp`), in a process of its own.
"""

import json
import os
import shutil
import subprocess
import sys
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.training.test_step import batch
from tilth.model import TransformerLM
from tilth.model import loss as loss_module
from tilth.optim import AdamW, Muon, muon_groups
from tilth.training.machine import machine_settings
from tilth.training.step import compiled, make_loss

HERE = Path(__file__).parent
TORCH = Path(torch.__file__).parent


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    if torch.version.cuda or sys.platform != "linux" or shutil.which("g++") is None:
        pytest.skip("needs a CPU build of torch and g++ on Linux")
    made = tmp_path_factory.mktemp("cuda") / "fake_cuda.so"
    command = ["g++", "-std=c++20", "-fPIC", "-shared", HERE / "fake_cuda.cpp", "-o", made]
    command += [f"-I{TORCH / 'include'}", f"-L{TORCH / 'lib'}", "-lc10", "-ltorch_cpu"]
    subprocess.run(command, check=True)
    return made


def fake_step(library, *arguments):
    preload = {"LD_PRELOAD": str(library), "LD_LIBRARY_PATH": str(TORCH / "lib")}
    return subprocess.run(
        [sys.executable, "-m", "tests.training.fake_cuda", *map(str, arguments)],
        env={**os.environ, **preload, "OMP_NUM_THREADS": "1"},
        cwd=HERE.parent.parent,
        check=False,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    ("optimizer", "num_kv_heads"), [("muon", 2), pytest.param("adamw", 4, marks=pytest.mark.slow)]
)
def test_step_does_not_wait_for_the_gpu(library, optimizer, num_kv_heads):
    done = fake_step(library, optimizer, num_kv_heads)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    types = found["types"]
    types.pop("bmm")  # of attention, which fake tensors decompose
    assert types
    assert all(each == ["torch.bfloat16"] for each in types.values())
    assert found["rows_of_the_loss"] == loss_module.CHUNK_TOKENS["cuda"]
    assert found["attention"]
    for call in found["attention"]:
        # The conditions of the flash kernel: half precision, (batch, heads, tokens, width), widths
        # of a multiple of 8 up to 256, adjacent elements, no mask. It needs no repeated heads.
        q, k, v = call["shapes"]
        assert call["dtypes"] == ["torch.bfloat16"]
        assert q == [2, 4, 4096, 16]
        assert k == v == [2, num_kv_heads, 4096, 16]
        assert call["last_strides"] == [1, 1, 1]
        assert call["is_causal"]
        assert call.get("attn_mask") is None
        assert call["enable_gqa"] == (num_kv_heads < 4)


@pytest.mark.slow
def test_reading_a_value_within_the_step_is_noticed(library):
    done = fake_step(library, "muon", 4, "item")
    assert done.returncode
    assert "DataDependentOutputException" in done.stderr


@pytest.mark.parametrize("kind", [AdamW, Muon])
def test_update_that_is_not_applied_changes_nothing(config, kind):
    """`step_if(False)`, with gradients that are not finite, between two steps."""
    torch.manual_seed(0)
    ours = TransformerLM(config.model)
    theirs = deepcopy(ours)
    pairs = []
    for model in (ours, theirs):
        groups = muon_groups(model, 0.1) if kind is Muon else model.parameters()
        pairs.append((model, kind(groups, lr=1e-2)))
    yes, no = torch.tensor(True), torch.tensor(False)
    for step in range(3):
        for model, optimizer in pairs:
            torch.manual_seed(step)
            for parameter in model.parameters():
                parameter.grad = torch.randn_like(parameter)
            optimizer.step_if(yes) if model is ours else optimizer.step()
        for bad in (torch.nan, torch.inf, 1.0):
            for parameter in ours.parameters():
                parameter.grad = torch.full_like(parameter, bad)
            pairs[0][1].step_if(no)
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-6, atol=1e-7)
    for mine, other in zip(*(p[1].state_dict()["state"].values() for p in pairs), strict=True):
        for name, value in mine.items():
            assert torch.equal(value, other[name]), name


def test_chunks_depend_on_the_device(monkeypatch):
    sizes = []
    monkeypatch.setattr(
        loss_module._ChunkedLoss, "apply", lambda h, w, y, n: sizes.append(n) or h.sum()
    )
    weight, ids = torch.zeros(5, 3, requires_grad=True), torch.zeros(2, dtype=torch.int64)
    loss_module.chunked_cross_entropy(torch.zeros(2, 3), weight, ids)
    monkeypatch.setitem(loss_module.CHUNK_TOKENS, "cpu", 77)
    loss_module.chunked_cross_entropy(torch.zeros(2, 3), weight, ids)
    assert sizes == [512, 77]
    assert loss_module.CHUNK_TOKENS["cuda"] >= 8192


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # of Dynamo
@pytest.mark.parametrize("dtype", [pytest.param("float32", marks=pytest.mark.slow), "bfloat16"])
def test_loss_is_one_graph(config, dtype, monkeypatch):
    """`fullgraph=True` raises at a graph break; the graph has the loss of the uncompiled model."""
    compile_ = torch.compile
    monkeypatch.setattr(
        torch, "compile", lambda f, backend, **options: compile_(f, backend="aot_eager", **options)
    )
    machine = replace(config.machine, dtype=dtype)
    model_config = replace(config.model, num_kv_heads=1, qk_norm=True)
    torch.manual_seed(0)
    model = TransformerLM(model_config)
    loss_of = make_loss(model, machine)
    x, y = batch(config, 2)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    with machine_settings(machine):
        found = compiled(loss_of, "cpu")(x, y)
        found.backward()
    counters = torch._dynamo.utils.counters
    assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]
    torch.testing.assert_close(found, loss_of(x, y), rtol=1e-3, atol=0.0)


def test_determinism_is_a_choice(config):
    for chosen in (True, False):
        with machine_settings(replace(config.machine, deterministic=chosen)):
            assert torch.are_deterministic_algorithms_enabled() == chosen


@pytest.mark.parametrize(
    ("device", "mode", "expected"),
    [
        ("cuda", "default", ("inductor", None)),
        ("cuda", "reduce-overhead", ("inductor", "reduce-overhead")),
        ("cuda", "max-autotune", ("inductor", "max-autotune")),
        ("mps", "max-autotune", ("aot_eager", None)),
    ],
)
def test_mode_of_the_compiler(monkeypatch, device, mode, expected):
    options = {}
    monkeypatch.setattr(torch, "compile", lambda _, **given: options.update(given))
    compiled(lambda x, y: x + y, device, mode)
    assert (options["backend"], options["mode"]) == expected
    assert options["fullgraph"]
