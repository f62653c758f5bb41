"""Training runs: files, resuming to the same bits, errors, extension."""

import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import safetensors.torch
import torch

import tilth
from tests.full_disk import largest_file
from tests.tampering import first_row, rewrite
from tests.training.comparing import difference, final_state, losses_of
from tilth.data import Batches
from tilth.files import FileError
from tilth.model import TransformerLM
from tilth.runs.run import open_run, verify_run
from tilth.runs.state import CheckpointWriter
from tilth.training import extend, loop, preflight, resume, session, train
from tilth.training.distributed import Ranks


def run_all(records):
    return list(records)


def stop_after(records, steps):
    for record in records:
        if record.step == steps:
            records.close()
            return record
    raise AssertionError("the run ended before it was stopped")


@pytest.fixture(scope="module")
def whole(config, tmp_path_factory):
    """An uninterrupted run."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("whole") / "run"
    run_all(train(config, folder))
    return folder


def test_finished_run(whole, config):
    run = open_run(whole)
    assert run.is_finished
    assert not run.is_running
    assert run.config == config
    assert [checkpoint.step for checkpoint in run.checkpoints()] == [8, 12]
    metrics = run.metrics()
    assert [record.step for record in metrics] == list(range(1, 13))
    assert [record.tokens for record in metrics] == [64 * step for step in range(1, 13)]
    assert metrics[-1].lr == config.optimizer.min_lr
    evaluated = [record.step for record in metrics if record.evaluation]
    assert evaluated == [3, 4, 6, 8, 9, 12]
    assert [record.step for record in metrics if record.norms] == [5, 10]
    assert [sample.step for sample in run.samples()] == [4, 8, 12]
    assert all(sample.text.startswith("Once upon a time") for sample in run.samples())
    assert all(problem is None for _, problem in verify_run(run))
    assert "tilth resume" in (whole / "README.md").read_text()
    assert not list(whole.rglob("*.partial"))


def test_loss_is_measured_before_the_update(whole, config, data):
    torch.manual_seed(config.seed)
    model = TransformerLM(config.model)
    x, y = Batches(data.train, 4, 16, config.seed, config.order)[0]
    expected = torch.nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten()).item()
    assert losses_of(whole)[0]["loss"] == pytest.approx(expected, rel=1e-6)


def test_loss_decreases(change, tmp_path):
    records = run_all(train(change(steps=60).resolve(), tmp_path / "run"))
    assert records[0].loss > 5.6  # log(300) is 5.7
    assert records[-1].evaluation.loss < 5.0


@pytest.mark.parametrize("stop", [1, 4, 5, 11, 12])
def test_resumed_run_equals_uninterrupted_run(whole, config, tmp_path, stop):
    folder = tmp_path / "run"
    stop_after(train(config, folder), stop)
    assert open_run(folder).checkpoints()[-1].step == stop
    if stop < config.steps:
        run_all(resume(folder))
    assert difference(folder, whole) is None


def test_run_stopped_at_every_step(whole, config, tmp_path):
    folder = tmp_path / "run"
    stop_after(train(config, folder), 1)
    for step in range(2, config.steps):
        stop_after(resume(folder), step)
    run_all(resume(folder))
    assert difference(folder, whole) is None


def test_run_without_checkpoints_starts_again(whole, config, tmp_path):
    folder = tmp_path / "run"
    records = train(config, folder)
    next(records)
    shutil.copytree(folder, tmp_path / "killed")  # what a SIGKILL would leave
    records.close()
    run_all(resume(tmp_path / "killed"))
    assert difference(tmp_path / "killed", whole) is None


# --- completeness of the checkpoint: dropping any part changes the run ----------------------------


@contextmanager
def noise(monkeypatch):
    """Make the forward pass draw random numbers, as dropout would."""
    hidden = TransformerLM.hidden

    def noisy(self, ids, positions=None):
        out = hidden(self, ids, positions)
        if torch.is_grad_enabled():
            out = out * (1 + 0.1 * torch.rand(()) + 0.1 * np.random.rand())
        return out

    monkeypatch.setattr(TransformerLM, "hidden", noisy)
    yield


def dropped_generators(monkeypatch):
    monkeypatch.setattr(session, "set_random_state", lambda _state: None)


def dropped_position(monkeypatch):
    read = Batches.read
    monkeypatch.setattr(
        Batches, "read", lambda self, start=0, stop=None: read(self, 0, stop and stop - start)
    )


def dropped_schedule(monkeypatch):
    rate, before = session.learning_rate, 5
    monkeypatch.setattr(session, "learning_rate", lambda step, config: rate(step - before, config))


def dropped_guard(monkeypatch):
    monkeypatch.setattr(session, "read", lambda kind, values, *_, **__: kind(values["max_skipped"]))


def dropped_optimizer(monkeypatch):
    load_state = session.load_state
    monkeypatch.setattr(session, "load_state", lambda *arguments: load_state(*arguments[:3]))


def nothing_dropped(_monkeypatch):
    pass


@pytest.mark.parametrize(
    "drop",
    [
        nothing_dropped,
        dropped_generators,
        dropped_position,
        dropped_schedule,
        dropped_guard,
        dropped_optimizer,
    ],
)
def test_checkpoint_holds_all_state(config, tmp_path, monkeypatch, drop):
    with noise(monkeypatch):
        run_all(train(config, tmp_path / "whole"))
        stop_after(train(config, tmp_path / "run"), 5)
        drop(monkeypatch)
        run_all(resume(tmp_path / "run"))
    found = difference(tmp_path / "run", tmp_path / "whole")
    assert (found is None) == (drop is nothing_dropped)


# --- logs and checkpoints after a crash -----------------------------------------------------------


def test_logs_are_cut_back_to_the_checkpoint(whole, config, tmp_path):
    folder = tmp_path / "run"
    stop_after(train(config, folder), 6)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 7, "loss": 1.0}\n{"step": 8, "lo')  # then the machine went down
    with (folder / "samples.jsonl").open("a") as file:
        file.write('{"step": 8, "text": "never"}\n{')
    run_all(resume(folder))
    assert difference(folder, whole) is None


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
def test_damaged_newest_checkpoint_is_reported_and_skipped(whole, config, tmp_path, caplog, name):
    folder = tmp_path / "run"
    stop_after(train(config, folder), 6)
    damaged = folder / "checkpoints" / "step-000006" / name
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    assert [problem for _, problem in verify_run(open_run(folder)) if problem]
    with caplog.at_level(logging.WARNING):
        records = run_all(resume(folder))
    assert records[0].step == 5
    assert "step-000006" in caplog.text
    assert difference(folder, whole) is None


def test_finished_run_with_damaged_last_checkpoint_is_resumed(whole, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    (folder / "checkpoints" / "step-000012" / "model.safetensors").write_bytes(b"")
    assert run_all(resume(folder))[0].step == 9
    assert difference(folder, whole) is None


ENDS = """
import json, os, pathlib, sys, tilth
from tilth.config.training import TrainingConfig

config, out = TrainingConfig.from_dict(json.loads(sys.argv[1])), pathlib.Path(sys.argv[2])
sessions = [tilth.train(config, out / name) for name in "abc"]
for step in range(3):
    for session in sessions:
        next(session)
if os.fork() == 0:
    sys.exit()  # the child has nothing to save
os.wait()
assert not list(out.glob("*/checkpoints/*"))
(out / "b" / "checkpoints").rmdir()
(out / "b" / "checkpoints").touch()
"""


def test_program_exit_saves_a_checkpoint(config, tmp_path):
    """Also if variables hold the iterators until the interpreter shuts down."""
    words = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        ENDS,
        json.dumps(config.to_dict()),
        str(tmp_path),
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert re.fullmatch(
        r"cannot write the checkpoint .*/b/checkpoints/step-000003 .*\n", done.stderr
    )
    for name in "ac":  # whatever becomes of the one between them
        assert [each.step for each in open_run(tmp_path / name).checkpoints()] == [3]
    run_all(resume(tmp_path / "a"))


def test_interrupt_during_the_last_save_keeps_it(config, tmp_path, monkeypatch):
    write, main = CheckpointWriter._write, threading.get_ident()

    def interrupted(*arguments):
        time.sleep(0.2)
        signal.pthread_kill(main, signal.SIGINT)
        time.sleep(0.2)
        write(*arguments)

    monkeypatch.setattr(CheckpointWriter, "_write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        stop_after(train(config, tmp_path / "run"), 2)
    assert [each.step for each in open_run(tmp_path / "run").checkpoints()] == [2]


def test_no_intact_checkpoint(config, tmp_path):
    folder = tmp_path / "run"
    stop_after(train(config, folder), 2)
    (folder / "checkpoints" / "step-000002" / "model.safetensors").write_bytes(b"")
    with pytest.raises(FileError, match="has no intact checkpoint; restore one"):
        run_all(resume(folder))


def test_full_disk_keeps_the_last_checkpoint(whole, config, tmp_path):
    folder = tmp_path / "run"
    records = train(config, folder)
    for record in records:
        if record.step == 6:
            break
    for _ in range(6_000):  # step 4 is written beside steps 5 and 6
        if open_run(folder).checkpoints():
            break
        time.sleep(0.01)
    with largest_file(20_000), pytest.raises(OSError, match=r"cannot write the checkpoint.*resume"):
        run_all(records)
    assert [checkpoint.step for checkpoint in open_run(folder).checkpoints()] == [4]
    assert not list(folder.rglob("*.partial"))
    run_all(resume(folder))
    assert difference(folder, whole) is None


def test_disk_space_is_checked_before_the_first_step(config, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=1_000_000))
    with pytest.raises(OSError, match=r"the disk has 1\.00 MB left; free some"):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


# --- numbers that are not finite ------------------------------------------------------------------


def broken_at(monkeypatch, steps):
    """Make the losses of some steps NaN."""
    accumulate = session.accumulate_gradients
    taken = iter(range(1, 10**6))

    def broken(*arguments):
        loss = accumulate(*arguments)
        return loss * float("nan") if next(taken) in steps else loss

    monkeypatch.setattr(session, "accumulate_gradients", broken)


def test_step_seconds_are_of_single_steps(config, tmp_path, monkeypatch):
    accumulate = session.accumulate_gradients

    def slow_at_three(*arguments):
        if next(taken) == 3:
            time.sleep(0.3)
        return accumulate(*arguments)

    taken = iter(range(1, 10**6))
    monkeypatch.setattr(session, "accumulate_gradients", slow_at_three)
    records = run_all(train(config, tmp_path / "run"))
    assert records[2].step_seconds > 0.3  # the mean of three would be less
    assert 0 < sum(record.step_seconds for record in records) < records[-1].seconds


def test_non_finite_steps_are_skipped_and_counted(config, tmp_path, monkeypatch):
    broken_at(monkeypatch, {3, 7})
    records = run_all(train(config, tmp_path / "run"))
    assert [record.step for record in records if record.was_skipped] == [3, 7]
    assert [record.step for record in records if record.loss is None] == [3, 7]
    assert final_state(tmp_path / "run")[1]["guard"]["skipped"] == 2
    assert "NaN" not in (tmp_path / "run" / "metrics.jsonl").read_text()


def test_too_many_skipped_steps_end_the_run(change, tmp_path, monkeypatch):
    broken_at(monkeypatch, range(6, 100))
    write = CheckpointWriter._write

    def slowly(*arguments):
        time.sleep(0.2)  # step 9 has failed before step 8 is on the disk
        write(*arguments)

    monkeypatch.setattr(CheckpointWriter, "_write", slowly)
    sentence = r"4 steps in a row, up to step 9.*of step 8 in .*run is intact.*smaller optimizer.lr"
    with pytest.raises(ValueError, match=sentence):
        run_all(train(change(max_skipped=4), tmp_path / "run"))
    assert [record["step"] for record in losses_of(tmp_path / "run")] == list(range(1, 10))
    steps = [checkpoint.step for checkpoint in open_run(tmp_path / "run").checkpoints()]
    assert steps == [4, 8]
    for checkpoint in open_run(tmp_path / "run").checkpoints():
        weights = safetensors.torch.load_file(checkpoint.folder / "model.safetensors")
        assert all(weight.isfinite().all() for weight in weights.values())


def test_divergence_is_reported_before_a_full_disk(change, tmp_path, monkeypatch):
    broken_at(monkeypatch, range(6, 100))

    def fail_late(*_arguments):
        time.sleep(0.2)
        raise OSError("full")

    monkeypatch.setattr(CheckpointWriter, "_write", fail_late)
    config = change(max_skipped=4, watch={"save_every": 8})
    with pytest.raises(session.DivergedError, match="no checkpoint yet"):
        run_all(train(config, tmp_path / "run"))


def test_non_finite_weights_are_never_saved(change, tmp_path):
    config = change(optimizer={"lr": 1e38, "min_lr": 1e38, "warmup_steps": 0}, max_skipped=100)
    with pytest.raises(
        ValueError, match=r"are not finite, so it is not saved; .* no checkpoint yet"
    ):
        run_all(train(config, tmp_path / "run"))
    assert not open_run(tmp_path / "run").checkpoints()
    *_, last = losses_of(tmp_path / "run")  # the step is there, and says nothing that is not so
    assert last.keys().isdisjoint({"evaluation", "saved", "sample"})


def test_diverging_steps_are_flagged(change, tmp_path, monkeypatch):
    accumulate = session.accumulate_gradients
    taken = iter(range(1, 10**6))

    def runaway(*arguments):
        loss = accumulate(*arguments)
        return loss + 100.0 if next(taken) > 6 else loss

    monkeypatch.setattr(session, "accumulate_gradients", runaway)
    records = run_all(train(change(), tmp_path / "run"))
    assert [record.is_diverging for record in records] == [False] * 6 + [True] * 6
    assert [bool(record.get("is_diverging")) for record in losses_of(tmp_path / "run")][6:]


# --- extension and rejected runs ------------------------------------------------------------------


def test_extension_has_a_complete_schedule(config, tmp_path):
    folder = tmp_path / "run"
    run_all(train(config, folder))
    with pytest.raises(ValueError, match=r"is finished, after 12 steps.*--steps"):
        resume(folder)
    shutil.copytree(folder, tmp_path / "other")
    records = run_all(extend(folder, 6))
    assert [record.step for record in records] == list(range(13, 19))
    assert max(record.lr for record in records) == config.optimizer.lr
    assert records[-1].lr == config.optimizer.min_lr
    assert open_run(folder).config.steps == 18

    stop_after(extend(tmp_path / "other", 6), 14)
    with pytest.raises(ValueError, match="is not finished; first `tilth resume"):
        extend(tmp_path / "other", 6)
    run_all(resume(tmp_path / "other"))
    assert difference(tmp_path / "other", folder) is None


def test_damaged_checkpoint_before_an_extension_is_trained_again(whole, tmp_path, caplog):
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    loop.prepare_extension(folder, 6).make_run()  # the config says so, and no step was taken
    weights = open_run(folder).checkpoints()[-1].folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    run_all(resume(folder))
    assert "was extended at step 12, and the checkpoint of that step is damaged" in caplog.text
    assert difference(folder, whole) is None
    assert open_run(folder).config == open_run(whole).config


def test_extension_without_checkpoints_is_rejected(whole, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    loop.prepare_extension(folder, 6).make_run()
    shutil.rmtree(folder / "checkpoints")
    (folder / "checkpoints").mkdir()
    with pytest.raises(FileError, match="has no intact checkpoint; restore one, or start"):
        run_all(resume(folder))
    assert dict(verify_run(open_run(folder)))["metrics.jsonl"].endswith(
        "step-000012; restore a copy"
    )


def test_readme_of_an_extended_run_has_its_length(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    loop.prepare_extension(tmp_path / "run", 6).make_run()
    assert "18 steps of" in (tmp_path / "run" / "README.md").read_text()


def test_failing_compiler_is_not_used(change, monkeypatch, tmp_path, caplog):
    """With a resolved config; a compiled run is then not extended."""

    def refuse(_machine):
        raise ValueError("the model cannot be compiled here.")

    monkeypatch.setattr(loop, "check_compiler", refuse)
    run_all(train(change(machine={"compile": True}), tmp_path / "run"))
    assert "cannot be compiled here. It trains uncompiled." in caplog.text
    run = open_run(tmp_path / "run")
    assert not run.config.machine.compile
    compiled_one = replace(run.config, machine=replace(run.config.machine, compile=True))
    run.save_config(compiled_one)
    with pytest.raises(ValueError, match="cannot be compiled here"):
        extend(run.folder, 5)
    assert open_run(run.folder).config == compiled_one


@pytest.mark.parametrize("is_consistent", [False, True])
def test_run_with_damaged_last_checkpoint_is_not_extended(whole, tmp_path, is_consistent):
    """Its config stays as it was; also if the checksums are those of moments of another shape."""
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    before = (folder / "config.toml").read_bytes()
    last = open_run(folder).checkpoints()[-1]
    if is_consistent:
        rewrite(last, {"optimizer.safetensors": first_row})
    else:
        os.truncate(last.folder / "model.safetensors", 1000)
    with pytest.raises(ValueError, match="is not finished; first `tilth resume"):
        extend(folder, 6)
    assert (folder / "config.toml").read_bytes() == before
    run_all(resume(folder))
    assert difference(folder, whole) is None


def test_exact_and_compiled_is_rejected(change, tmp_path):
    with pytest.raises(ValueError, match=r"parallel.exact .* machine.compile is true; leave one"):
        train(change(parallel={"exact": True}, machine={"compile": True}), tmp_path / "run")


def test_config_of_an_extension_does_not_start_a_run(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    run_all(extend(tmp_path / "run", 3))
    with pytest.raises(ValueError, match=r"begin_step is 12.*extended"):
        train(open_run(tmp_path / "run").config, tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_special_tokens_in_the_sample_prompt_are_text(change, tmp_path):
    # As text each of them is several tokens, and sampling takes it for text.
    with pytest.raises(ValueError, match=r"watch.sample_prompt has"):
        train(change(watch={"sample_prompt": "<|endoftext|>" * 8}), tmp_path / "run")


@pytest.mark.parametrize(
    "machine", [{"device": "cuda:99"}, {"dtype": "float16"}, {"threads": 1_000}]
)
def test_unavailable_machine_is_rejected(change, whole, tmp_path, machine):
    with pytest.raises(ValueError, match=r"(take|use) (cpu|float32|\d+ at most)"):
        train(change(machine=machine), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_changed_config_is_rejected(config, tmp_path):
    folder = tmp_path / "run"
    stop_after(train(config, folder), 2)
    text = (folder / "config.toml").read_text()
    (folder / "config.toml").write_text(text.replace("batch_size = 4", "batch_size = 5", 1))
    with pytest.raises(ValueError, match="batch_size = 4, and its config now says 5; restore it"):
        run_all(resume(folder))
    assert "batch_size = 4, and its" in dict(verify_run(open_run(folder)))["config.toml"]
    (folder / "config.toml").write_text(text.replace("sample_tokens = 8", "sample_tokens = 9"))
    assert dict(verify_run(open_run(folder)))["config.toml"] is None
    run_all(resume(folder))  # how it is watched may change


def test_other_data_is_rejected(config, data, tmp_path):
    folder = tmp_path / "run"
    stop_after(train(config, folder), 2)
    text = tmp_path / "other.txt"
    text.write_text("Something else. " * 500)
    other = tilth.tokenize(text, data.tokenizer(), tmp_path / "other", valid=0.5)
    with pytest.raises(FileError, match=r"its data has the fingerprint .* instead of"):
        resume(folder, data=other.folder)
    shutil.copytree(data.folder, tmp_path / "moved")
    run_all(resume(folder, data=tmp_path / "moved"))


def test_run_is_trained_by_one_process(config, tmp_path):
    folder = tmp_path / "run"
    records = train(config, folder)
    next(records)
    assert open_run(folder).is_running
    with pytest.raises(ValueError, match="Another process is training"):
        next(resume(folder))
    records.close()
    assert not open_run(folder).is_running


def test_existing_run_is_not_overwritten(whole, config, tmp_path):
    with pytest.raises(FileExistsError, match="is a run already; continue it with `tilth resume"):
        train(config, whole)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="is not empty"):
        train(config, tmp_path)


def test_other_vocabulary_size_is_rejected(change, tmp_path):
    with pytest.raises(ValueError, match=r"model.vocab_size is 301, .* has 300 tokens"):
        train(change(model={"vocab_size": 301}), tmp_path / "run")


def test_sample_prompt_longer_than_the_context_is_rejected(change, tmp_path):
    with pytest.raises(ValueError, match=r"watch.sample_prompt has .* the context length is 16"):
        train(change(watch={"sample_prompt": "zzz " * 20}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_error_of_the_caller_saves_a_checkpoint(whole, config, tmp_path):
    folder = tmp_path / "run"

    def look():
        for record in train(config, folder):
            if record.step == 7:
                raise KeyError("mine")

    with pytest.raises(KeyError):
        look()
    run_all(resume(folder))
    assert difference(folder, whole) is None


def test_settings_of_torch_are_restored(config, tmp_path):
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    run_all(train(config, tmp_path / "run"))
    assert (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()) == before


def test_metrics_are_standard_json(whole):
    for line in (whole / "metrics.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)


# --- untrusted runs -------------------------------------------------------------------------------


def test_checkpoint_with_mismatched_moments_is_skipped(config, tmp_path, caplog):
    """Its checksums agree, but a fused kernel would write beyond the moments."""
    folder = tmp_path / "run"
    stop_after(train(config, folder), 6)
    newest = open_run(folder).checkpoints()[-1]
    rewrite(newest, {"optimizer.safetensors": first_row})
    (problem,) = [problem for _, problem in verify_run(open_run(folder)) if problem]
    assert "does not fit the optimizer (exp_avg of parameter" in problem
    run_all(resume(folder))
    assert "does not fit the optimizer" in caplog.text
    assert "trying the previous checkpoint" in caplog.text


def test_checkpoints_are_not_deleted_through_a_link(config, tmp_path):
    """An untrusted run may link to the checkpoints of a run of the user."""
    folder = tmp_path / "run"
    stop_after(train(config, folder), 6)
    (folder / "checkpoints").rename(tmp_path / "mine")
    (folder / "checkpoints").symlink_to(tmp_path / "mine")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(FileError, match="checkpoints is a symbolic link"):
        resume(folder)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("generator", "state"),
    [("numpy", ["MT19937", {"$tensor": "state.random.numpy.1"}, 1, 10**30, 0.0]), ("python", [])],
)
def test_checkpoint_with_an_invalid_random_state_is_skipped(
    config, tmp_path, caplog, generator, state
):
    """The number overflows in NumPy; Python looks for the first element of an empty state."""
    folder = tmp_path / "run"
    stop_after(train(config, folder), 6)
    newest = open_run(folder).checkpoints()[-1]
    packed = newest.state().packed
    packed["random"][generator] = {"$tuple": state}
    rewrite(newest, packed=packed)
    run_all(resume(folder))
    assert "has an invalid state" in caplog.text
    assert "trying the previous checkpoint" in caplog.text


@pytest.mark.parametrize(
    "changes",
    [
        {"guard": {}},
        {"guard": {"max_skipped": 3, "more": 1}},
        {"guard": []},
        {"seconds": "long"},
        {"seconds": -1.0},
        {"tokens": None},
        {"valid_loss": {}},
        {"config": {}},
        {"config": {"data": 3}},
        {"config": []},
        {"versions": []},
        {"checksums": []},
        {"step": "6"},
        {"seconds": {}},
        {"packed": {"optimizer": {}, "random": [], "scaler": {}}},
    ],
)
def test_invalid_state_is_skipped(config, tmp_path, caplog, changes):
    folder = tmp_path / "run"
    stop_after(train(config, folder), 6)
    rewrite(open_run(folder).checkpoints()[-1], **changes)
    run_all(resume(folder))
    assert "trying the previous checkpoint" in caplog.text


# --- nothing before the first step ----------------------------------------------------------------


def test_discarded_iterator_leaves_nothing_behind(config, tmp_path):
    steps = train(config, tmp_path / "run")
    assert list(tmp_path.iterdir()) == []
    steps.close()
    del steps
    assert list(tmp_path.iterdir()) == []


def test_preflight_checks_run_at_the_call(config, tmp_path, change):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes").write_text("mine")
    with pytest.raises(FileExistsError, match="full is not empty"):
        train(config, tmp_path / "full")
    with pytest.raises(ValueError, match="the device meta cannot be used"):
        train(change(machine={"device": "meta"}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_folder_filled_before_the_first_step_is_rejected(config, tmp_path):
    steps = train(config, tmp_path / "run")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes").write_text("mine")
    with pytest.raises(FileExistsError, match="run is not empty"):
        next(steps)


def test_relative_folder_is_resolved_at_the_call(config, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    steps = train(config, "run")
    monkeypatch.chdir(tmp_path / "elsewhere")
    next(steps)
    steps.close()
    assert open_run(tmp_path / "run").checkpoints()[-1].step == 1
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_discarded_extension_changes_nothing(whole, tmp_path):
    folder = shutil.copytree(whole, tmp_path / "run")
    before = (folder / "config.toml").read_bytes()
    extend(folder, 5)
    assert (folder / "config.toml").read_bytes() == before
    with pytest.raises(ValueError, match="is finished, after 12 steps"):
        resume(folder)


def test_each_check_happens_once(config, tmp_path, monkeypatch):
    counts = {}

    def counted(module, name):
        real = getattr(module, name)

        def count(*arguments, **options):
            counts[name] = counts.get(name, 0) + 1
            return real(*arguments, **options)

        monkeypatch.setattr(module, name, count)

    for name in ("open_data", "plan", "check_new_run"):
        counted(loop, name)
    for name in ("check_data", "check_machine", "check_space", "check_sinks"):
        counted(preflight, name)
    prepared = loop.prepare(config, tmp_path / "run", measure=True)
    assert prepared.plan.config.steps == config.steps
    next(prepared.train())
    assert counts == dict.fromkeys(counts, 1)
    assert len(counts) == 7


def test_a_run_that_was_killed_before_its_first_checkpoint(whole, config, tmp_path, monkeypatch):
    """It does not continue from random weights instead of those that were given."""
    run_all(train(config, tmp_path / "alone", init=whole))
    loop.prepare(config, tmp_path / "killed", init=whole).make_run()
    with pytest.raises(FileError, match="has no intact checkpoint"):
        next(resume(tmp_path / "killed"))
    # torchrun repeats its command.
    monkeypatch.setattr(loop, "open_ranks", lambda: Ranks(is_restarted=True))
    run_all(train(config, tmp_path / "killed", init=whole))
    assert difference(tmp_path / "killed", tmp_path / "alone") is None


def test_a_run_directory_that_appears_late(whole, tmp_path, monkeypatch):
    """On a network file system, other machines see it after some seconds, or never."""
    timer = threading.Timer(0.5, lambda: shutil.copytree(whole, tmp_path / "run"))
    timer.start()
    assert loop._open_shared(tmp_path / "run").config.steps == 12
    timer.join()
    monkeypatch.setattr(loop, "SHOWN_SECONDS", 0.0)
    with pytest.raises(FileError, match="is not on this machine, and rank 0 has made it; share"):
        loop._open_shared(tmp_path / "other")
