"""Saving and loading checkpoints: bitwise round trips, errors, crashes."""

import dataclasses
import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import torch
from safetensors import safe_open

from tests.full_disk import largest_file
from tests.tampering import first_row, rewrite
from tilth.config.limits import MAX_LAYERS
from tilth.files import FileError, load_manifest
from tilth.model import TransformerLM
from tilth.optim import Muon, muon_groups
from tilth.runs import state
from tilth.runs.checkpoints import list_checkpoints
from tilth.runs.state import (
    CheckpointWriter,
    load_model,
    load_state,
    random_state,
    set_random_state,
)
from tilth.training.step import make_optimizer


def save(run, training, step=7, *, keep=2, content=None, tensors=None):
    with CheckpointWriter(run.folder, keep) as writer:
        name = writer.save(step, *training, content or {}, tensors or {})
    (checkpoint,) = [each for each in list_checkpoints(run.folder) if each.name == name]
    return checkpoint


def assert_same(one, other):
    """Assert that two state dicts have equal bits and types."""
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for each, again in zip(one, other, strict=True):
            assert_same(each, again)
    else:
        assert one == other


def snapshot(training):
    model, optimizer = training
    states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    return torch.utils._pytree.tree_map(
        lambda value: value.clone() if isinstance(value, torch.Tensor) else value, states
    )


# --- round trips ----------------------------------------------------------------------------------


def test_save_and_load_round_trip(make_run, make_training):
    training, other = make_training(0), make_training(1)
    content = {"seconds": 1.5, "valid_loss": None, "guard": {"mean_loss": 0.1, "skipped": 3}}
    tensors = {"scaler": {"scale": 65536.0, 3: (1, None)}, "random": [torch.arange(3)]}
    checkpoint = save(make_run(), training, content=content, tensors=tensors)
    found = checkpoint.state()
    packed = load_state(checkpoint, found, *other)
    assert_same(snapshot(other), snapshot(training))
    assert_same(packed, tensors)
    assert {name: getattr(found, name) for name in ("step", *content)} == {"step": 7, **content}


def test_files_are_plain_safetensors_and_json(make_run, make_training):
    model, optimizer = make_training()
    checkpoint = save(make_run(), (model, optimizer))
    names = {path.name for path in checkpoint.folder.iterdir()}
    assert names == {"model.safetensors", "optimizer.safetensors", "state.json"}
    with safe_open(checkpoint.folder / "model.safetensors", "pt") as file:
        assert set(file.keys()) == set(model.state_dict())
        assert file.metadata() == {"format": "pt"}
        for name in file.keys():  # noqa: SIM118, not a dict
            assert torch.equal(file.get_tensor(name), model.state_dict()[name])
    state = load_manifest(checkpoint.folder / "state.json", kind="checkpoint", version=1)
    assert state["packed"]["optimizer"]["param_groups"][0]["betas"] == {"$tuple": [0.5, 0.75]}


def test_tied_and_strided_weights_round_trip(make_run):
    """Tied embeddings, and a weight with strides."""
    model = torch.nn.ModuleDict({"one": torch.nn.Linear(3, 3), "two": torch.nn.Linear(3, 3)})
    model["two"].weight = model["one"].weight
    model["two"].bias.data = torch.arange(6.0)[::2]
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.5)
    checkpoint = save(make_run(), (model, optimizer))
    weight = model["one"].weight.detach().clone()
    model["one"].weight.data.zero_()
    model["two"].bias.data.zero_()
    load_state(checkpoint, checkpoint.state(), model, optimizer)
    assert torch.equal(model["two"].weight, weight)
    assert model["two"].bias.tolist() == [0.0, 2.0, 4.0]


def test_resumed_steps_equal_uninterrupted_steps(make_run, make_training):
    def step(training):
        model, optimizer = training
        optimizer.zero_grad()
        model(torch.randint(0, 260, (2, 8))).square().mean().backward()
        optimizer.step()

    whole, stopped = make_training(), make_training()
    torch.manual_seed(5)
    for _ in range(3):
        step(whole)
    torch.manual_seed(5)
    step(stopped)
    checkpoint = save(make_run(), stopped, tensors={"random": random_state()})
    again = make_training(9)
    torch.manual_seed(8)
    packed = load_state(checkpoint, checkpoint.state(), *again)
    set_random_state(packed["random"])
    for _ in range(2):
        step(again)
    assert_same(snapshot(again), snapshot(whole))


# --- random generators ----------------------------------------------------------------------------


def draw():
    """Draw from every generator, also in ways that cache a number for the next call."""
    return [
        random.random(),
        random.gauss(0, 1),
        np.random.rand(),
        np.random.standard_normal(),
        torch.rand(3).tolist(),
        torch.randn(5).tolist(),
        torch.randint(0, 100, (2,)).tolist(),
    ]


@pytest.mark.parametrize("draws_before", [0, 1, 2, 400])
def test_random_generators_round_trip(make_run, make_training, draws_before):
    random.seed(1)
    np.random.seed(2)
    torch.manual_seed(3)
    for _ in range(draws_before):
        draw()
    random.gauss(0, 1)  # Python and NumPy now have a second number in hand
    np.random.standard_normal()
    state = random_state()
    expected = [draw() for _ in range(3)]
    set_random_state(state)
    assert [draw() for _ in range(3)] == expected
    set_random_state(state)
    run, training = make_run(), make_training()
    checkpoint = save(run, training, tensors={"random": state})
    draw()
    packed = load_state(checkpoint, checkpoint.state(), *training)
    set_random_state(packed["random"])
    assert [draw() for _ in range(3)] == expected


def test_reading_random_state_does_not_change_it():
    state = random_state()
    expected = draw()
    set_random_state(state)
    random_state()
    assert draw() == expected


# --- asynchronous writing -------------------------------------------------------------------------


@pytest.fixture
def slow_disk(monkeypatch):
    """Return an event; writing waits until it is set."""
    may_write = threading.Event()
    save_file = state.safetensors.torch.save_file

    def slow(*arguments):
        assert may_write.wait(10)
        save_file(*arguments)

    monkeypatch.setattr(state.safetensors.torch, "save_file", slow)
    return may_write


def test_checkpoint_holds_the_state_at_the_call(make_run, make_training, slow_disk):
    run, training = make_run(), make_training()
    content = {"guard": {"losses": [1.0, 2.0]}}
    tensors = {"random": [torch.zeros(2)], "list": [1]}
    expected = snapshot(training)
    with CheckpointWriter(run.folder, 2) as writer:
        writer.save(7, *training, content, tensors)
        model, optimizer = training
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(3.0)
        for values in optimizer.state.values():
            values["exp_avg"].fill_(4.0)
            values["step"].add_(1)
        optimizer.param_groups[0]["lr"] = 99.0
        content["guard"]["losses"].append(3.0)
        tensors["random"][0].fill_(5.0)
        tensors["list"].append(2)
        assert list_checkpoints(run.folder) == []
        slow_disk.set()
    again = make_training(1)
    (checkpoint,) = list_checkpoints(run.folder)
    found = checkpoint.state()
    packed = load_state(checkpoint, found, *again)
    assert_same(snapshot(again), expected)
    assert found.guard == {"losses": [1.0, 2.0]}
    assert_same(packed, {"random": [torch.zeros(2)], "list": [1]})


def call_until_it_raises(function):
    for _ in range(10_000):
        function()
        time.sleep(0.001)


def test_thread_error_is_raised_by_the_next_call(make_run, make_training, monkeypatch):
    run, training = make_run(), make_training()
    may_fail = threading.Event()

    def fail(*_arguments):
        assert may_fail.wait(10)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(state.safetensors.torch, "save_file", fail)
    sentence = (
        r"^cannot write the checkpoint .*step-000007 \(No space left on device\); earlier "
        r"checkpoints are intact: check the space and permissions of the folder, then `tilth "
        r"resume .*/run`$"
    )
    with CheckpointWriter(run.folder, 2) as writer:
        writer.save(7, *training, {}, {})
        writer.check()  # nothing is wrong yet
        may_fail.set()
        with pytest.raises(OSError, match=sentence):
            writer.wait()
        writer.wait()  # once
        writer.save(7, *training, {}, {})
        with pytest.raises(OSError, match=sentence):
            call_until_it_raises(writer.check)
        writer.save(7, *training, {}, {})
        with pytest.raises(OSError, match=sentence):
            writer.save(8, *training, {}, {})
    with pytest.raises(OSError, match=sentence), CheckpointWriter(run.folder, 2) as writer:
        writer.save(7, *training, {}, {})
    writer = CheckpointWriter(run.folder, 2)
    writer.save(7, *training, {}, {})
    writer.__exit__(KeyError, KeyError("an error of the training goes first"), None)


def test_failed_save_leaves_nothing(make_run, make_training):
    run, training = make_run(), make_training()
    with CheckpointWriter(run.folder, 2) as writer:
        with pytest.raises(ValueError, match=r"state\.guard is a object, which a checkpoint"):
            writer.save(7, *training, {}, {"guard": object()})
        writer.save(7, *training, {"loss": float("nan")}, {})
        with pytest.raises(ValueError):  # noqa: PT011, the words are those of json
            writer.wait()
    assert list((run.folder / "checkpoints").iterdir()) == []


def test_newest_and_best_checkpoints_are_kept(make_run, make_training):
    run, training = make_run(), make_training()
    losses = {10: 3.0, 20: 1.0, 30: 2.0, 40: None, 50: 2.5}
    with CheckpointWriter(run.folder, 2) as writer:
        for step, loss in losses.items():
            writer.save(step, *training, {"valid_loss": loss}, {})
    assert [each.step for each in list_checkpoints(run.folder)] == [20, 40, 50]
    assert run.checkpoint().step == 20


def test_damaged_checkpoint_is_replaced(make_run, make_training):
    run, training = make_run(), make_training()
    checkpoint = save(run, training)
    (checkpoint.folder / "model.safetensors").write_bytes(b"")
    (checkpoint.folder.with_name(".step-000007.partial")).mkdir()
    save(run, training)
    checkpoint.check()
    assert list_checkpoints(run.folder) == [checkpoint]
    assert list((run.folder / "checkpoints").iterdir()) == [checkpoint.folder]


# --- rejected states ------------------------------------------------------------------------------


def test_mismatched_state_changes_nothing(make_run, make_training, config):
    run, training = make_run(), make_training()
    checkpoint = save(run, training)
    model, optimizer = make_training(1)
    before = snapshot((model, optimizer))
    two_groups = torch.optim.AdamW([{"params": [p]} for p in model.parameters()])
    with pytest.raises(
        FileError, match=r"does not fit the optimizer \(.*\); make the optimizer with"
    ):
        load_state(checkpoint, checkpoint.state(), model, two_groups)
    assert_same(snapshot((model, optimizer)), before)
    other = TransformerLM(type(config.model)(**{**config.model.to_dict(), "d_ff": 32}))
    with pytest.raises(FileError, match=r"does not fit the model: .* has shape"):
        load_state(checkpoint, checkpoint.state(), other)
    with pytest.raises(FileError, match="does not fit the model: only the model has bias"):
        load_state(checkpoint, checkpoint.state(), torch.nn.Linear(2, 2))


def test_flipped_bit_is_detected(make_run, make_training):
    checkpoint = save(make_run(), make_training())
    path = checkpoint.folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    training = make_training(1)
    before = snapshot(training)
    with pytest.raises(FileError, match=r"model.safetensors is damaged; choose another checkpoint"):
        load_state(checkpoint, checkpoint.state(), *training)
    assert_same(snapshot(training), before)


@pytest.mark.parametrize(
    "packed", [None, {}, [], {"optimizer": {"$tensor": "missing"}}, {"optimizer": {"$tuple": 3}}]
)
def test_invalid_packed_state_is_rejected(make_run, make_training, packed):
    checkpoint = save(make_run(), make_training())
    rewrite(checkpoint, packed=packed)
    with pytest.raises(FileError, match=r"has an invalid state .*choose another"):
        load_state(checkpoint, checkpoint.state(), *make_training())


@pytest.mark.parametrize("of", ["model.safetensors", "optimizer.safetensors", "state.json"])
@pytest.mark.parametrize("missing", [1, "all"])
def test_full_disk_keeps_the_last_checkpoint(make_run, make_training, of, missing):
    """The disk becomes full while each of the three files is written."""
    run, training = make_run(), make_training()
    padding = {"padding": "x" * 200_000} if of == "state.json" else {}  # the largest of the three
    checkpoint = save(run, training, content=padding)
    size = (checkpoint.folder / of).stat().st_size
    sentence = (
        r"cannot write the checkpoint .*step-000008 \(.*File too large.*\); earlier checkpoints"
    )
    with (
        CheckpointWriter(run.folder, 2) as writer,
        largest_file(0 if missing == "all" else size - 1),
    ):
        writer.save(8, *training, padding, {})
        with pytest.raises(OSError, match=sentence):
            writer.wait()
    assert list((run.folder / "checkpoints").iterdir()) == [checkpoint.folder]
    checkpoint.check()
    save(run, training, 8)


# --- crashes --------------------------------------------------------------------------------------

# Each line that it reads is the step with which a child begins to write.
WRITERS = """
import os, sys
from pathlib import Path
import torch
from tilth.runs.state import CheckpointWriter

def write(step):
    with CheckpointWriter(Path(sys.argv[1]), 2) as writer:
        while True:
            model.weight.data.fill_(step)
            writer.save(step, model, optimizer, {"valid_loss": float(-step)}, {})
            step += 1

torch.set_num_threads(1)
model = torch.nn.Linear(300, 300)
optimizer = torch.optim.AdamW(model.parameters())
model(torch.ones(1, 300)).sum().backward()
optimizer.step()
for line in sys.stdin:
    child = os.fork()
    if not child:
        write(int(line))
    print(child, flush=True)
    os.waitpid(child, 0)
    print("over", flush=True)
"""


def kill_writers(run, moments):
    """Kill a writer at each moment, check the checkpoints, and return the newest step.

    A moment of 0 is that at which there is a checkpoint.
    """
    newest = before = 0
    program = [sys.executable, "-c", WRITERS, run.folder]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    with subprocess.Popen(program, **pipes) as writers:
        for moment in moments:
            print(newest + 1, file=writers.stdin)
            child = int(writers.stdout.readline())
            time.sleep(moment)
            for _ in range(6_000):
                if moment or list_checkpoints(run.folder):
                    break
                time.sleep(0.01)
            os.kill(child, signal.SIGKILL)
            assert writers.stdout.readline() == "over\n"
            checkpoints = list_checkpoints(run.folder)
            # The last two, and one that was to be removed; if none was saved and followed by
            # another, as many as there were, and one.
            has_cleaned = checkpoints and checkpoints[-1].step >= newest + 2
            assert len(checkpoints) <= (3 if has_cleaned else before + 1)
            before = len(checkpoints)
            for checkpoint in checkpoints:
                model = torch.nn.Linear(300, 300)
                load_state(
                    checkpoint, checkpoint.state(), model, torch.optim.AdamW(model.parameters())
                )
                assert (model.weight == checkpoint.step).all()
            steps = [newest, *(checkpoint.step for checkpoint in checkpoints)]
            assert steps[-1] == max(steps)
            newest = steps[-1]
        writers.stdin.close()
    return newest


def test_killed_writer_leaves_complete_checkpoints(make_run):
    assert kill_writers(make_run(), [*(0.2 * random.random() for _ in range(8)), 0]) > 0


@pytest.mark.slow
def test_writer_killed_200_times_leaves_complete_checkpoints(make_run):
    assert kill_writers(make_run(), [0.5 * random.random() for _ in range(200)]) > 0


def test_writer_stopped_before_any_system_call(make_run, make_training, monkeypatch):
    """Stop before each call that changes the disk: all listed checkpoints are intact."""
    run, training = make_run(), make_training()
    save(run, training, 1, keep=1)
    damaged = save(run, training, 2, keep=2)
    (damaged.folder / "model.safetensors").write_bytes(b"")
    shutil.copytree(run.folder, run.folder.with_name("before"))

    class Killed(BaseException):
        pass

    for last in range(100):
        shutil.rmtree(run.folder)
        shutil.copytree(run.folder.with_name("before"), run.folder)
        calls = iter(range(last))
        with monkeypatch.context() as patch:
            for name in ("mkdir", "rename", "unlink", "rmdir", "fsync"):
                usual = getattr(os, name)

                def counted(*arguments, usual=usual, calls=calls, **options):
                    if next(calls, None) is None:
                        raise Killed
                    return usual(*arguments, **options)

                patch.setattr(os, name, counted)
            try:
                with CheckpointWriter(run.folder, 1) as writer:
                    writer.save(2, *training, {"valid_loss": 1.0}, {})
                    writer.wait()
            except Killed:
                is_over = False
            else:
                is_over = True
        steps = [each.step for each in list_checkpoints(run.folder)]
        assert steps in ([1, 2], [1], [2])
        list_checkpoints(run.folder)[0].check()
        if is_over:
            break
    assert is_over
    assert last > 10
    assert steps == [2]


@pytest.mark.parametrize("name", ["lr", "eps", "weight_decay", "betas", "maximize"])
@pytest.mark.parametrize("kind", ["tensor", "pair", "long"])
def test_options_that_are_not_numbers_are_rejected(make_run, make_training, config, name, kind):
    """torch would raise a RuntimeError or an OverflowError, at loading or at the next step."""
    model, _ = make_training()
    optimizer = make_optimizer(model, config.optimizer)
    checkpoint = save(make_run(), (model, optimizer), tensors={"numbers": torch.ones(3)})
    packed = checkpoint.state().packed
    tensor = packed["numbers"]
    value = {"tensor": tensor, "pair": {"$tuple": [tensor, tensor]}, "long": 10**400}[kind]
    packed["optimizer"]["param_groups"][0][name] = value
    rewrite(checkpoint, packed=packed)
    with pytest.raises(FileError, match="does not fit the optimizer"):
        load_state(checkpoint, checkpoint.state(), model, optimizer)


# --- the model of a run ---------------------------------------------------------------------------


def test_load_model(make_run, make_training):
    run = make_run()
    with pytest.raises(FileError, match="run has no checkpoint yet; train it first"):
        load_model(run)
    with CheckpointWriter(run.folder, 9) as writer:
        for step, loss in ((10, 3.0), (20, 1.0), (30, 2.0)):
            writer.save(step, *make_training(step), {"valid_loss": loss}, {})
    for step, wanted in ((None, 20), (10, 10), (30, 30)):
        checkpoint, model = load_model(run, step)
        assert checkpoint.step == wanted
        assert_same(model.state_dict(), make_training(wanted)[0].state_dict())
    with pytest.raises(FileError, match="run has no checkpoint of step 15; there are 10, 20, 30"):
        load_model(run, 15)
    (checkpoint.folder / "optimizer.safetensors").unlink()  # it is not read
    assert_same(load_model(run, 30)[1].state_dict(), model.state_dict())


def test_load_model_rejects_a_second_output_matrix(make_run, make_training, config):
    """With tied embeddings, an output matrix may only repeat the embedding."""
    tied = dataclasses.replace(config.model, tie_embeddings=True)
    run = make_run(config=dataclasses.replace(config, model=tied))
    save(run, make_training())
    with pytest.raises(FileError, match=r"has an invalid state .*lm_head") as error:
        load_model(run)
    assert "\n" not in str(error.value)


def test_load_model_does_not_change_random_state(make_run, make_training):
    run = make_run()
    save(run, make_training())
    state = random_state()
    expected = draw()
    set_random_state(state)
    load_model(run)
    assert draw() == expected


# --- untrusted states with valid checksums --------------------------------------------------------


def test_moments_of_another_shape_are_rejected(make_run, make_training):
    checkpoint = save(make_run(), make_training())
    rewrite(checkpoint, {"optimizer.safetensors": first_row})
    checkpoint.check()  # every byte is as its checksum says
    training = make_training(1)
    before = snapshot(training)
    with pytest.raises(
        FileError, match=r"does not fit the optimizer \(exp_avg of .* has shape \(1, 16"
    ):
        load_state(checkpoint, checkpoint.state(), *training)
    assert_same(snapshot(training), before)


@pytest.mark.parametrize(
    ("option", "value"), [("betas", 1), ("betas", "ab"), ("lr", "x"), ("eps", True), ("fused", 1)]
)
def test_options_of_another_type_are_rejected(make_run, make_training, option, value):
    checkpoint = save(make_run(), make_training())
    packed = checkpoint.state().packed
    packed["optimizer"]["param_groups"][0][option] = value
    rewrite(checkpoint, packed=packed)
    with pytest.raises(FileError, match=rf"does not fit the optimizer \(its {option} is"):
        load_state(checkpoint, checkpoint.state(), *make_training(1))


def test_group_of_another_kind_is_rejected(make_run, make_training):
    """Muon would orthogonalize a vector."""
    model, _ = make_training()
    run = make_run()
    checkpoint = save(run, (model, Muon(muon_groups(model, 0.1))))
    packed = checkpoint.state().packed
    packed["optimizer"]["param_groups"][-1]["kind"] = "muon"
    packed["optimizer"]["state"] = {}
    rewrite(checkpoint, packed=packed)
    with pytest.raises(FileError, match=r"does not fit the optimizer \(its kind is 'muon'\)"):
        load_state(checkpoint, checkpoint.state(), model, Muon(muon_groups(model, 0.1)))


def test_huge_config_allocates_no_model(make_run, make_training, config):
    """Weights are compared with the config before a model is built."""
    run = make_run()
    save(run, make_training())
    many = dataclasses.replace(config.model, num_layers=MAX_LAYERS)
    hostile = dataclasses.replace(run, config=dataclasses.replace(config, model=many))
    began = time.monotonic()
    with pytest.raises(FileError, match=r"only the model has layers\.1\.ln1\.weight"):
        load_model(hostile)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda tensors: {**tensors, "more": torch.zeros(1)}, "only the checkpoint has more"),
        (lambda tensors: {"lm_head.weight": torch.zeros(1)}, "only the model has token_embeddings"),
        (
            lambda tensors: {**tensors, "lm_head.weight": torch.zeros(1, 16)},
            r"lm_head.weight has shape \(1, 16\), and in the model \(260, 16\)",
        ),
    ],
)
def test_mismatched_weights_are_rejected(make_run, make_training, change, problem):
    run = make_run()
    rewrite(save(run, make_training()), {"model.safetensors": change})
    with pytest.raises(
        FileError, match=rf"model.safetensors does not fit the config of the run \({problem}"
    ):
        load_model(run)


@pytest.mark.parametrize("place", [-1, 625, 2**31, 1.5, None])
def test_out_of_range_generator_index_is_rejected(place):
    """NumPy would read there."""
    name, keys, _, *rest = random_state()["numpy"]
    expected = random_state()
    with pytest.raises(ValueError, match="generator"):
        set_random_state({**expected, "numpy": (name, keys, place, *rest)})
    assert_same(random_state(), expected)
