"""Sinks: logged values, resumed runs, failures."""

import importlib.util
import json
import logging
import os
import socket
import subprocess
import sys
import threading
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

import pytest

from tilth.config.model import ModelConfig
from tilth.config.training import TrainingConfig, WatchConfig
from tilth.runs.metrics import Evaluation, StepRecord
from tilth.runs.run import create_run, open_run
from tilth.tokenizer import train_tokenizer
from tilth.training.sinks import check_sinks, open_sinks, scalars

TOKENIZER = train_tokenizer(texts=["the cat and the hat"], vocab_size=260)
MODEL = ModelConfig(260, context_length=8, d_model=16, num_layers=1, num_heads=2)


def make_run(folder, *sinks):
    watch = WatchConfig(sinks=sinks)
    config = TrainingConfig("data", MODEL, steps=20, watch=watch).resolve(
        device="cpu", dtype="float32", compile=False, threads=1
    )
    return create_run(folder, config, TOKENIZER, "0" * 64)


def record(step, loss=4.0, **more):
    return StepRecord(step, step * 256, step * 0.5, loss, 1e-3, 0.5, 512.0, 0.7, **more)


FULL = record(
    3,
    evaluation=Evaluation(5.25, 190.57, 2.5, 1024),
    norms={"weights": {"lm_head.weight": 0.1}, "gradients": {"lm_head.weight": 0.2}},
    sample="Once",
)
FULL_SCALARS = {
    "train/loss": 4.0,
    "train/learning_rate": 1e-3,
    "train/gradient_norm": 0.5,
    "train/tokens": 768,
    "train/seconds": 1.5,
    "train/was_skipped": 0.0,
    "train/is_diverging": 0.0,
    "speed/tokens_per_second": 512.0,
    "speed/utilisation": 0.7,
    "valid/loss": 5.25,
    "valid/perplexity": 190.57,
    "valid/bits_per_byte": 2.5,
    "weights/lm_head.weight": 0.1,
    "gradients/lm_head.weight": 0.2,
}


def test_scalars():
    assert scalars(FULL) == FULL_SCALARS
    skipped = scalars(record(1, loss=None, was_skipped=True))
    assert "train/loss" not in skipped
    assert skipped["train/was_skipped"] == 1.0


# --- with fake libraries --------------------------------------------------------------------------


class Recorder:
    """A fake library of a sink that records its calls."""

    def __init__(self):
        self.calls = []
        self.failing = set()

    def note(self, name, /, *args, **options):
        if name in self.failing:
            raise RuntimeError(f"no {name} today")
        print(f"talk about {name}")  # as trackio does
        self.calls.append((name, args, options))
        return SimpleNamespace(
            log=lambda *args, **options: self.note("log", *args, **options),
            finish=lambda: self.note("finish"),
            add_scalar=lambda *args: self.note("scalar", *args),
            add_text=lambda *args: self.note("text", *args),
            close=lambda: self.note("close"),
        )

    def named(self, name):
        return [
            (*args, options) if options else args for n, args, options in self.calls if n == name
        ]


@pytest.fixture
def library(monkeypatch):
    """Replace all three libraries by recorders."""
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "")  # restored afterwards
    monkeypatch.delenv("WANDB_ERROR_REPORTING")
    recorders = {}
    for name in ("trackio", "wandb", "tensorboard", "torch.utils.tensorboard"):
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        recorder = recorders[name] = Recorder()
        for entry in ("init", "SummaryWriter"):
            setattr(module, entry, lambda *a, _r=recorder, **o: _r.note("open", *a, **o))
        module.finish = lambda _r=recorder: _r.note("finish")
        module.Settings = lambda **options: options
        monkeypatch.setitem(sys.modules, name, module)
    recorders["tensorboard"] = recorders.pop("torch.utils.tensorboard")
    return recorders


def test_no_sinks(tmp_path):
    with open_sinks(make_run(tmp_path / "run"), first_step=1) as sinks:
        sinks.write(FULL)


def test_tensorboard(tmp_path, library):
    with open_sinks(make_run(tmp_path / "run", "tensorboard"), first_step=3) as sinks:
        sinks.write(FULL)
        sinks.write(record(4))
    tensorboard = library["tensorboard"]
    (opened,) = tensorboard.named("open")
    assert opened == (str(tmp_path / "run" / "tensorboard"), {"purge_step": 3, "flush_secs": 10})
    scalar = tensorboard.named("scalar")
    assert {name: value for name, value, step in scalar if step == 3} == FULL_SCALARS
    assert [step for name, _, step in scalar if name == "train/loss"] == [3, 4]
    assert tensorboard.named("text") == [("sample", "Once", 3)]
    assert tensorboard.calls[-1][0] == "close"


@pytest.mark.parametrize("name", ["trackio", "wandb"])
def test_values_are_logged(tmp_path, library, name):
    with open_sinks(make_run(tmp_path / "run", name), first_step=3) as sinks:
        sinks.write(FULL)
        sinks.write(record(4))
    logged = library[name].named("log")
    assert logged[0] == ({**FULL_SCALARS, "sample": "Once"}, {"step": 3})
    assert logged[1] == (scalars(record(4)), {"step": 4})
    assert library[name].calls[-1][0] == "finish"
    assert library[name].named("open")[0][0]["config"]["model"]["d_model"] == 16


def test_trackio_prints_to_stderr(tmp_path, library, capsys):
    with open_sinks(make_run(tmp_path / "run", "trackio"), first_step=1):
        pass
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == "talk about open\ntalk about finish\n"


@pytest.mark.parametrize("name", ["trackio", "wandb"])
def test_resumed_run_keeps_its_id_and_a_copy_does_not(tmp_path, library, name):
    run = make_run(tmp_path / "run", name)
    again = open_run(tmp_path / "run")
    other = make_run(tmp_path / "other", name)
    key = {"trackio": "name", "wandb": "id"}[name]
    for each in (run, again, other):
        with open_sinks(each, first_step=1):
            pass
    first, second, third = (options[key] for (options,) in library[name].named("open"))
    assert first == second
    assert first != third
    if name == "trackio":
        assert first.startswith("run-")
        assert {options["resume"] for (options,) in library[name].named("open")} == {"allow"}


@pytest.mark.parametrize(
    ("setting", "mode", "resume"),
    [(None, "offline", None), ("offline", "offline", None), ("online", "online", "allow")],
)
def test_wandb_is_offline_by_default(tmp_path, library, monkeypatch, setting, mode, resume):
    if setting is not None:
        monkeypatch.setenv("WANDB_MODE", setting)
    with open_sinks(make_run(tmp_path / "run", "wandb"), first_step=1):
        pass
    ((options,),) = library["wandb"].named("open")
    assert (options["mode"], options["resume"]) == (mode, resume)
    assert (options["name"], options["dir"]) == ("run", str(tmp_path / "run"))
    assert os.environ.get("WANDB_ERROR_REPORTING") == ("false" if mode == "offline" else None)


@pytest.mark.parametrize("name", ["tensorboard", "trackio", "wandb"])
def test_missing_library_is_reported(tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    sentence = rf"the sink {name} needs .* `pip install 'tilth\[{name}\]'`"
    with pytest.raises(ValueError, match=sentence):
        check_sinks([name])
    with (
        pytest.raises(ValueError, match=f"the sink {name} cannot be opened"),
        open_sinks(make_run(tmp_path / "run", name), first_step=1),
    ):
        pytest.fail("it opened")


def test_failing_sink_is_reported_once_and_dropped(tmp_path, library, caplog):
    run = make_run(tmp_path / "run", "wandb", "trackio", "tensorboard")
    with caplog.at_level(logging.WARNING), open_sinks(run, first_step=1) as sinks:
        sinks.write(record(1))
        library["wandb"].failing = {"log", "finish"}
        for step in (2, 3, 4):
            sinks.write(record(step))
        library["wandb"].failing = set()
        sinks.write(record(5))
    assert caplog.messages == ["the sink wandb failed (no log today) and gets no more metrics."]
    assert len(library["wandb"].named("log")) == 1
    assert len(library["trackio"].named("log")) == 5
    assert library["tensorboard"].calls[-1][0] == "close"


def test_failing_close_is_reported(tmp_path, library, caplog):
    run = make_run(tmp_path / "run", "wandb", "trackio")
    library["wandb"].failing = {"finish"}
    with caplog.at_level(logging.WARNING), open_sinks(run, first_step=1) as sinks:
        sinks.write(record(1))
    assert caplog.messages == ["the sink wandb failed (no finish today) and gets no more metrics."]
    assert library["trackio"].calls[-1][0] == "finish"


def test_failing_open_closes_the_other_sinks(tmp_path, library):
    run = make_run(tmp_path / "run", "trackio", "wandb")
    library["wandb"].failing = {"open"}
    sentence = r"the sink wandb cannot be opened \(no open today\); .* watch\.sinks\."
    with pytest.raises(ValueError, match=sentence), open_sinks(run, first_step=1):
        pytest.fail("it opened")
    assert library["trackio"].calls[-1][0] == "finish"


def test_error_of_the_run_propagates(tmp_path, library):
    run = make_run(tmp_path / "run", "trackio")
    sinks = open_sinks(run, first_step=1)
    sinks.__enter__().write(record(1))
    assert not sinks.__exit__(KeyError, KeyError(), None), "it is not swallowed"
    assert library["trackio"].calls[-1][0] == "finish"


# --- with installed libraries ---------------------------------------------------------------------

needs = {
    name: pytest.mark.skipif(importlib.util.find_spec(name) is None, reason=f"{name} is an extra")
    for name in ("tensorboard", "trackio", "wandb")
}


@needs["tensorboard"]
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_replaces_repeated_steps(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = make_run(tmp_path / "run", "tensorboard")
    with open_sinks(run, first_step=1) as sinks:
        for step in range(1, 11):
            sinks.write(record(step, loss=float(step)))
    with open_sinks(run, first_step=6) as sinks:
        for step in range(6, 9):
            sinks.write(record(step, loss=100.0 + step))
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    found = {event.step: event.value for event in events.Scalars("train/loss")}
    assert found == {1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 106, 7: 107, 8: 108}


PROGRAM = """
import socket, sys
sys.path[:] = {path!r}

def refuse(*arguments, **options):
    raise AssertionError(f"a connection to the network: {{arguments}}")

connect = socket.socket.connect
def connect_locally(self, address):
    assert self.family == socket.AF_UNIX, address
    return connect(self, address)
socket.socket.connect = socket.socket.connect_ex = connect_locally
socket.getaddrinfo = refuse

from tilth.runs.metrics import StepRecord
from tilth.runs.run import open_run
from tilth.training.sinks import open_sinks

for steps in ((1, 2, 3), (3, 4)):  # a session, and another
    with open_sinks(open_run({folder!r}), first_step=steps[0]) as sinks:
        for step in steps:
            sinks.write(StepRecord(step, 256, 0.5, 4.0 + step, 1e-3, 0.5, 512.0, 0.7, sample="x"))
{after}
"""


def run_alone(folder, tmp_path, after="", **environment):
    """Write to the sinks in a process that fails on network connections, also of subprocesses."""
    proxy = socket.create_server(("127.0.0.1", 0))
    connections = []
    threading.Thread(target=lambda: connections.append(proxy.accept()), daemon=True).start()
    address = f"http://127.0.0.1:{proxy.getsockname()[1]}"
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), address)
    unset = {"WANDB_MODE", "WANDB_API_KEY", "TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"}
    inherited = {name: value for name, value in os.environ.items() if name not in unset}
    program = PROGRAM.format(path=sys.path, folder=str(folder), after=after)
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**inherited, **proxies, "HOME": str(tmp_path), **environment},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    proxy.close()
    assert done.returncode == 0, done.stderr
    assert "failed" not in done.stderr
    assert not connections, "somebody asked the proxy"
    return done.stdout


@needs["wandb"]
def test_offline_wandb_opens_no_connection(tmp_path):
    make_run(tmp_path / "run", "wandb")
    assert run_alone(tmp_path / "run", tmp_path) == ""
    first, *others = sorted((tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb"))
    assert b"train/loss" in first.read_bytes()
    assert {path.name for path in others} <= {first.name}, "one id, whatever the session"


@needs["trackio"]
def test_trackio_appends_to_one_run(tmp_path):
    make_run(tmp_path / "run", "trackio")
    after = (
        "import json\n"
        "from trackio.sqlite_storage import SQLiteStorage as storage\n"
        "(name,) = storage.get_runs('tilth')\n"
        "print(json.dumps(storage.get_logs('tilth', name)))"
    )
    folder = str(tmp_path / "trackio")
    shown = run_alone(tmp_path / "run", tmp_path, after, TRACKIO_DIR=folder)
    logs = json.loads(shown)
    assert {entry["step"]: entry["train/loss"] for entry in logs} == {1: 5, 2: 6, 3: 7, 4: 8}
