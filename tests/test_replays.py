"""Hostile folders through the command line, with recomputed checksums: the check of the content
answers, not one before it. Each defect once ended a verb of the first edition in a crash, in a
traceback, or in a silent loss of text."""

import json
import resource

import pytest

from tests.command_line import assert_one_sentence, tilth
from tests.hostile.mutations import make_consistent
from tests.tampering import first_row, rewrite
from tilth.files import checksum_of
from tilth.runs import open_run


def change(path, *keys, value, checksum=True):
    """Set the value at nested keys of a JSON file (... removes it), and make the folder agree."""
    content = json.loads(path.read_bytes())
    place = content
    for key in keys[:-1]:
        place = place[key]
    if value is ...:
        del place[keys[-1]]
    else:
        place[keys[-1]] = value
    path.write_text(json.dumps(content))
    if checksum:
        make_consistent(path.parent)


def assert_refused(done, reason):
    """Assert that a verb ended with a sentence, and gave the reason there or in notes before it."""
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1].startswith("tilth: ")
    assert reason in done.stderr


# --- moments of another shape, beyond which a fused kernel would write ----------------------------


@pytest.mark.parametrize("verb", ["verify", "resume"])
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_moments_of_another_shape(first, verb, optimizer):
    run = first / "runs" / optimizer
    for checkpoint in open_run(run).checkpoints():  # none is left to fall back to
        rewrite(checkpoint, {"optimizer.safetensors": first_row})
        checkpoint.check()
    words = ("--data", first / "data", "--steps", 2) if verb == "resume" else ()
    assert_refused(tilth(verb, run, *words), "does not fit the optimizer (exp_avg of")


# --- a journal of tokenizing that skips text ------------------------------------------------------


@pytest.fixture
def interrupted(first, monkeypatch):
    """A folder in which `tilth tokenize` was interrupted after half of the stories."""
    from tilth.data import tokenizing

    text = first / "stories.txt"
    text.write_text("<|endoftext|>".join(f"Story {n} of a cat and a hat." for n in range(40_000)))
    advance = tokenizing.PartialArrays.advance

    def stop(arrays, state):
        advance(arrays, state)
        if state.read_bytes:
            raise KeyboardInterrupt

    words = ("tokenize", text, "--tokenizer", first / "tokenizer.json", "--threads", 1, "--out")
    with monkeypatch.context() as patch:
        patch.setattr(tokenizing.PartialArrays, "advance", stop)
        assert tilth(*words, first / "new").returncode == 130
    journal = first / "new" / ".partial" / "journal.json"
    assert 0 < json.loads(journal.read_text())["state"]["position"][1] < text.stat().st_size
    return journal, words


@pytest.mark.parametrize(
    ("keys", "value", "checksum", "reason"),
    [
        (("position", 1), 1_150_000, False, "its journal is damaged or has no checksum"),
        (("position",), [7, 0], True, "its journal does not agree with the corpus"),
        (("sources", 0, 0), 39_000, True, "its journal does not agree with the corpus"),
        (("read_bytes",), 10**12, True, "its journal does not agree with the corpus"),
        (("splits", "train", "tokens"), 10**9, True, "its arrays are shorter than"),
    ],
)
def test_journal_that_skips_text(first, interrupted, keys, value, checksum, reason):
    journal, words = interrupted
    change(journal, "state", *keys, value=value, checksum=checksum)
    done = tilth(*words, first / "new")
    assert done.returncode == 0, done.stderr
    assert f"is discarded because {reason}" in done.stderr
    assert tilth(*words, first / "whole").returncode == 0
    for name in ("train.npy", "valid.npy", "manifest.json"):
        assert (first / "new" / name).read_bytes() == (first / "whole" / name).read_bytes()


# --- memory that runs out within torch ------------------------------------------------------------


def test_out_of_memory_within_torch(first):
    """The limit leaves room for torch and the model, not for a batch: torch raises RuntimeError."""

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))

    words = ("--model.d-model", 256, "--model.num-layers", 1, "--batch-size", 512)
    words += ("--model.context-length", 1024, "--steps", 1, "--machine.threads", 1)
    words += ("--machine.no-compile", "--machine.dtype", "float32")
    run = ("train", "tiny", "--data", first / "data", "--out", first / "run", *words)
    done = tilth(*run, preexec_fn=limit)
    assert "tilth: out of memory (cannot allocate" in done.stderr
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


# --- manifests, states and lab files --------------------------------------------------------------

DATA = {
    "a missing table": (("splits",), ..., "splits is missing"),
    "a list for a table": (("files",), [], "files must be a table"),
    "a path outside": (("files",), {"../x": {}}, "files"),
    "text for a number": (("vocab_size",), "270", "vocab_size must be a whole number"),
    "a vocabulary without end": (("vocab_size",), 2**60, "vocab_size must be at most"),
    "an unknown dtype": (("dtype",), "object", "dtype 'object' is unknown"),
    "sizes that disagree": (("splits", "train", "tokens"), 2**40, "does not agree with its split"),
    "checksums of no block": (("files", "train.npy", "sha256"), [], "has 0 checksums"),
    "null for a table": (("splits", "train"), None, "splits.train must be a table"),
}


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("verb", ["verify", "train"])
def test_manifest_of_data(first, verb, name):
    keys, value, reason = DATA[name]
    change(first / "data" / "manifest.json", *keys, value=value)
    run = ("train", "tiny", "--data", first / "data", "--out", first / "run")
    done = tilth(*run) if verb == "train" else tilth("verify", first / "data")
    assert_one_sentence(done, "manifest.json is damaged (", reason)


STATES = {
    "a missing table": (("checksums",), ..., "checksums is missing"),
    "a list for a table": (("checksums",), [], "checksums must be a table"),
    "text for a step": (("step",), "4", "step must be a whole number"),
    "a step of 400 digits": (("step",), 10**400, "an integer of 401 digits"),
    "null for packed values": (("packed",), None, "its state is not a table"),
    "a config of another type": (("config",), [], "config must be a table"),
    "endless layers": (("config", "model", "num_layers"), 10**9, "num_layers must be at most"),
}


@pytest.mark.parametrize("name", STATES)
def test_state_of_a_checkpoint(first, name):
    keys, value, reason = STATES[name]
    run = first / "runs" / "adamw"
    for checkpoint in open_run(run).checkpoints():
        change(checkpoint.folder / "state.json", *keys, value=value)
    assert_refused(tilth("verify", run), reason)
    if keys[0] in ("packed", "config") and value != []:  # generating does not need them
        assert_refused(tilth("resume", run, "--data", first / "data", "--steps", 2), reason)
    else:
        assert_refused(tilth("generate", run, "--max-tokens", 1), reason)


RUNS = {
    "a missing fingerprint": (("data_fingerprint",), ..., "data_fingerprint is missing"),
    "a list of versions": (("versions",), [], "versions must be a table"),
    "a checksum that is no text": (("checksums", "tokenizer.json"), 7, "must be text"),
}


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("verb", ["generate", "report", "resume"])
def test_manifest_of_a_run(first, verb, name):
    keys, value, reason = RUNS[name]
    run = first / "runs" / "adamw"
    change(run / "manifest.json", *keys, value=value, checksum=False)  # it has none of its own
    words = {"report": ("--out", first / "r.html"), "resume": ("--data", first / "data")}
    assert_one_sentence(tilth(verb, run, *words.get(verb, ())), "manifest.json is damaged", reason)


def test_metrics_of_a_run(first):
    run = first / "runs" / "adamw"
    lines = (run / "metrics.jsonl").read_text().splitlines()
    lines[0] = json.dumps(json.loads(lines[0]) | {"tokens": 10**400})
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    done = tilth("report", run, "--out", first / "report.html")
    assert_one_sentence(done, "metrics.jsonl", "tokens must be at most", "401 digits")


def test_checksum_of_a_replay_is_the_right_one(first):
    """Else an earlier check would answer."""
    change(first / "data" / "manifest.json", "end_token", value="<|endoftext|>")
    content = json.loads((first / "data" / "manifest.json").read_bytes())
    found = {key: content[key] for key in content if key not in ("format", "version", "checksum")}
    assert content["checksum"] == checksum_of(found)
    assert tilth("verify", first / "data").returncode == 0
