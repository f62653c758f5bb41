"""save_checkpoint and load_checkpoint: exact round trips, and errors."""

import io
import json
import math
import struct

import pytest
import safetensors
import torch
from safetensors.torch import load_file
from torch import nn

from tilth.files import FileError
from tilth.runs import load_checkpoint, save_checkpoint
from tilth.runs.packing import pack, unpack
from tilth.runs.state import TensorStore


def trained(optimizer_class, steps=3, **options):
    """A small model after a few steps, and its optimizer."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))
    optimizer = optimizer_class(model.parameters(), **options)
    train(model, optimizer, steps)
    return model, optimizer


def train(model, optimizer, steps):
    for step in range(steps):
        optimizer.zero_grad()
        ids = torch.arange(6) * (step + 1) % 7
        model(ids).square().mean().backward()
        optimizer.step()


OPTIMIZERS = [
    (torch.optim.SGD, {"lr": 0.01}),
    (torch.optim.SGD, {"lr": 0.01, "momentum": 0.9}),
    (torch.optim.AdamW, {"lr": 0.01, "betas": (0.8, 0.9), "amsgrad": True}),
    (torch.optim.Adagrad, {"lr": 0.1}),
]


@pytest.mark.parametrize(("optimizer_class", "options"), OPTIMIZERS)
@pytest.mark.parametrize("where", ["path", "str", "file object"])
def test_resumed_steps_equal_uninterrupted_steps(tmp_path, optimizer_class, options, where):
    whole_model, whole_optimizer = trained(optimizer_class, 10, **options)
    model, optimizer = trained(optimizer_class, 5, **options)
    out = {
        "path": tmp_path / "c.safetensors",
        "str": str(tmp_path / "c.safetensors"),
        "file object": io.BytesIO(),
    }[where]
    save_checkpoint(model, optimizer, 5, out)
    if where == "file object":
        out.seek(0)
    again, again_optimizer = trained(optimizer_class, 1, **options)
    assert load_checkpoint(out, again, again_optimizer) == 5
    for step in range(5, 10):
        again_optimizer.zero_grad()
        again(torch.arange(6) * (step + 1) % 7).square().mean().backward()
        again_optimizer.step()
    for name, value in whole_model.state_dict().items():
        assert torch.equal(again.state_dict()[name], value), name
    assert_equal(again_optimizer.state_dict(), whole_optimizer.state_dict())


def assert_equal(found, wanted):
    """Assert that nested values have equal values and types."""
    assert type(found) is type(wanted)
    if isinstance(wanted, torch.Tensor):
        assert found.dtype == wanted.dtype
        assert torch.equal(found, wanted)
    elif isinstance(wanted, dict):
        assert list(found) == list(wanted)
        assert [type(key) for key in found] == [type(key) for key in wanted]
        for key, value in wanted.items():
            assert_equal(found[key], value)
    elif isinstance(wanted, list | tuple):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            assert_equal(one, other)
    else:
        assert found == wanted or (math.isnan(found) and math.isnan(wanted))


def test_pack_round_trip():
    value = {
        "tuple": (1, (2.5, "three"), [None, True]),
        3: {"inf": math.inf, "nan": math.nan, "minus": -math.inf},
        "$dollar": {(1, 2): "pair", True: 1},
        "tensors": [torch.arange(3), torch.tensor(2.0, dtype=torch.bfloat16), torch.empty(0, 2)],
        "turned": torch.arange(6).reshape(2, 3).T,
        "empty": [{}, [], ()],
    }
    store = TensorStore()
    packed = json.loads(json.dumps(pack(value, "state", store.store), allow_nan=False))
    loaded = safetensors.torch.load(safetensors.torch.save(store.by_name))
    assert_equal(unpack(packed, loaded), value)


def test_colliding_names_are_kept_apart():
    for value in (
        {"1": torch.zeros(2), 1: torch.ones(2)},
        {"a.b": torch.zeros(2), "a": {"b": torch.ones(2)}},
    ):
        store = TensorStore()
        packed = json.loads(json.dumps(pack(value, "state", store.store)))
        assert_equal(unpack(packed, store.by_name), value)


def test_failed_save_keeps_the_old_file(tmp_path, monkeypatch):
    model, optimizer = trained(torch.optim.SGD)
    path = tmp_path / "c.safetensors"
    save_checkpoint(model, optimizer, 3, path)

    def fail(*_arguments):
        raise OSError("the disk is gone")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="the disk is gone"):
        save_checkpoint(model, optimizer, 4, path)
    assert load_checkpoint(path, model, optimizer) == 3
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "content", ["[]", "{}", '{"version": 1}', '{"version": 1, "iteration": 1, "model": null}']
)
def test_invalid_metadata_is_rejected(content):
    data = safetensors.torch.save({"weight": torch.zeros(2)}, {"tilth checkpoint": content})
    with pytest.raises(FileError, match="is truncated or is not a checkpoint"):
        load_checkpoint(io.BytesIO(data), nn.Linear(2, 2))


def test_shared_weight_is_stored_once(tmp_path):
    model = nn.ModuleDict({"embedding": nn.Embedding(1000, 64), "head": nn.Linear(64, 1000)})
    model["head"].weight = model["embedding"].weight
    save_checkpoint(model, None, 1, tmp_path / "c.safetensors")
    assert (tmp_path / "c.safetensors").stat().st_size < 1000 * 64 * 4 * 1.1
    assert set(load_file(tmp_path / "c.safetensors")) == {
        "model.embedding.weight",
        "model.head.bias",
    }
    weight = model["embedding"].weight.detach().clone()
    model["embedding"].weight.data.zero_()
    load_checkpoint(tmp_path / "c.safetensors", model)
    assert torch.equal(model["head"].weight, weight)


def test_views_of_one_storage_round_trip(tmp_path):
    """Overlapping and transposed views."""

    class Views(nn.Module):
        def __init__(self):
            super().__init__()
            self.whole = nn.Parameter(torch.arange(6.0).reshape(2, 3))
            self.register_buffer("row", self.whole.data[0])
            self.register_buffer("turned", self.whole.data.T)
            self.register_buffer("again", self.whole.data.T)

    save_checkpoint(Views(), None, 0, tmp_path / "c.safetensors")
    model = Views()
    model.whole.data = torch.zeros(2, 3)
    model.row = torch.zeros(3)
    model.turned = torch.zeros(3, 2)
    model.again = torch.zeros(3, 2)
    load_checkpoint(tmp_path / "c.safetensors", model)
    assert torch.equal(model.row, torch.arange(3.0))
    assert torch.equal(model.turned, model.whole.T)
    assert torch.equal(model.again, model.whole.T)


def test_mismatched_checkpoint_changes_nothing(tmp_path):
    path = tmp_path / "c.safetensors"
    save_checkpoint(*trained(torch.optim.AdamW), 3, path)
    for change, problem in (
        (lambda: nn.Linear(4, 5), "only"),
        (
            lambda: nn.Sequential(nn.Embedding(8, 4), *list(trained(torch.optim.SGD)[0])[1:]),
            "shape",
        ),
    ):
        model = change()
        before = {name: value.clone() for name, value in model.state_dict().items()}
        with pytest.raises(FileError, match=rf"does not fit the model: .*{problem}"):
            load_checkpoint(path, model, torch.optim.AdamW(model.parameters()))
        for name, value in model.state_dict().items():
            assert torch.equal(before[name], value)
    model, _ = trained(torch.optim.AdamW, 1)
    before = model[0].weight.detach().clone()
    parameters = list(model.parameters())
    groups = [{"params": parameters[:2]}, {"params": parameters[2:]}]
    with pytest.raises(FileError, match="does not fit the optimizer"):
        load_checkpoint(path, model, torch.optim.AdamW(groups))
    assert torch.equal(model[0].weight, before)


def test_save_and_load_without_optimizer(tmp_path):
    model, optimizer = trained(torch.optim.SGD)
    save_checkpoint(model, None, 3, tmp_path / "c.safetensors")
    assert load_checkpoint(tmp_path / "c.safetensors", model) == 3
    with pytest.raises(FileError, match="has no optimizer state"):
        load_checkpoint(tmp_path / "c.safetensors", model, optimizer)


def test_truncated_and_foreign_files_are_rejected(tmp_path):
    model, optimizer = trained(torch.optim.AdamW)
    file = io.BytesIO()
    save_checkpoint(model, optimizer, 3, file)
    whole = file.getvalue()
    header_bytes = struct.unpack("<Q", whole[:8])[0]
    for size in (0, 7, 8, 100, 8 + header_bytes, len(whole) - 1):
        with pytest.raises(FileError, match="is truncated or is not a checkpoint"):
            load_checkpoint(io.BytesIO(whole[:size]), model, optimizer)
    foreign = safetensors.torch.save({"weight": torch.zeros(2)}, {"format": "pt"})
    with pytest.raises(FileError, match="is truncated or is not a checkpoint"):
        load_checkpoint(io.BytesIO(foreign), model, optimizer)
    with pytest.raises(FileError, match="does not exist"):
        load_checkpoint(tmp_path / "missing", model, optimizer)
    with pytest.raises(TypeError):
        save_checkpoint(model, optimizer, 5.7, io.BytesIO())


def test_unsupported_values_are_named(tmp_path):
    model, optimizer = trained(torch.optim.SGD, momentum=0.9, lr=0.1)
    optimizer.state[model[0].weight]["oracle"] = object()
    with pytest.raises(ValueError, match=r"optimizer\.state\.0\.oracle is a object"):
        save_checkpoint(model, optimizer, 1, tmp_path / "c.safetensors")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match=r"model\.weight is sparse or on the meta device"):
        save_checkpoint(nn.Linear(2, 2, device="meta"), None, 1, tmp_path / "c.safetensors")
