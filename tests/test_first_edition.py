"""Every verb opens the folders that the first edition (commit d627945) wrote.

`editions/first.sh` made them. They contain paths that no longer exist, as moved folders do.
"""

import contextlib
import html
import io
import itertools
import json
import shutil
from pathlib import Path

import pytest

from tilth.cli.app import app

SMALL = (
    *("--batch-size", 2, "--model.d-model", 4, "--model.num-layers", 1, "--model.num-heads", 2),
    *("--model.context-length", 16, "--model.ffn", "silu", "--model.d-ff", 8),
    *("--model.tie-embeddings", "--machine.threads", 1, "--machine.no-compile"),
)
WATCH = ("--watch.evaluation-tokens", 100, "--watch.sample-tokens", 8)
OPTIMIZERS = ("adamw", "muon")


def tilth(*words):
    """Run a command line in this process; return its stdout."""
    stdout = io.StringIO()
    with contextlib.redirect_stdout(stdout):
        app([*map(str, words)])
    return stdout.getvalue()


def records(run, name="metrics.jsonl"):
    return [json.loads(line) for line in (run / name).read_text("utf-8").splitlines()]


def weights(checkpoint):
    import safetensors.numpy

    return safetensors.numpy.load_file(checkpoint / "model.safetensors")


@pytest.mark.parametrize("name", ["data", "runs/adamw", "runs/muon", "lab/runs/lr-0.01"])
def test_verify(first, name):
    assert tilth("verify", first / name).splitlines()[-1] == f"{first / name} is whole"


def test_data_is_read(first):
    import tilth as package

    data = package.open_data(first / "data")
    assert (data.vocab_size, data.end_token_id) == (270, 0)
    assert data.num_documents("train") + data.num_documents("valid") == 15
    # Encoding the text with the stored tokenizer gives the stored ids.
    stories = (first / "stories.txt").read_text("utf-8").split("<|endoftext|>")
    encoded = {tuple(data.tokenizer().encode(story)) for story in stories}
    starts = data.documents("train")
    for begin, end in itertools.pairwise(starts):
        assert tuple(data.train[begin : end - 1].tolist()) in encoded


def test_tokenizing_again_gives_the_same_bytes(first):
    words = ("--tokenizer", first / "tokenizer.json", "--out", first / "again", "--valid", 0.4)
    tilth("tokenize", first / "stories.txt", *words)
    for path in (first / "data").glob("*.npy"):
        assert (first / "again" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("name", ["tokenizer.json", "gpt2", "tokenizer.tiktoken"])
def test_tokenizers_of_all_formats_are_equal(first, name):
    words = () if name == "tokenizer.json" else ("--special", "<|endoftext|>")
    pattern = ("--pattern", "gpt2") if name.endswith(".tiktoken") else ()
    text = "Once upon a time, naïve."
    found = tilth("tokenizer", "inspect", first / name, "--text", text, "--json", *words, *pattern)
    found = json.loads(found)
    assert (found["tokens"], found["merges"], found["pattern"]) == (270, 13, "gpt2")
    assert "".join(token["token"] for token in found["text"]).startswith("Once␣upon␣a␣time,")


def test_runs_lists_them(first):
    found = json.loads(tilth("runs", first / "runs", "--json"))
    text = json.dumps(found)
    assert "adamw" in text
    assert "muon" in text
    stored = records(first / "runs" / "adamw")[-1]["evaluation"]
    assert str(stored["bits_per_byte"]) in text


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("options", [(), ("--quantize", "int8"), ("--device", "cpu:0")])
def test_generate(first, name, options):
    words = ("--prompt", "Once", "--max-tokens", 6, "--json", *options)
    found = json.loads(tilth("generate", first / "runs" / name, *words))
    assert len(found["samples"][0]["tokens"]) == 6


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_evaluate_gives_the_stored_loss(first, name):
    run = first / "runs" / name
    words = ("--data", first / "data", "--max-tokens", 100, "--json")
    for record in records(run):
        if "saved" in record and (run / "checkpoints" / record["saved"]).exists():
            found = json.loads(tilth("evaluate", run, "--step", record["step"], *words))
            assert found["loss"] == pytest.approx(record["evaluation"]["loss"], rel=1e-5)
            assert found["tokens"] == record["evaluation"]["tokens"]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_resume_reaches_the_stored_weights(first, name):
    """Without its last checkpoint, a run resumes from the previous one to the same weights."""
    run, stored = first / "runs" / name, first / "stored"
    shutil.copytree(run, stored)
    shutil.rmtree(run / "checkpoints" / "step-000006")
    tilth("resume", run, "--data", first / "data")
    # Bits are equal only on the machine that wrote them.
    expected = weights(stored / "checkpoints" / "step-000006")
    found = weights(run / "checkpoints" / "step-000006")
    assert found.keys() == expected.keys()
    for key, weight in expected.items():
        assert found[key] == pytest.approx(weight, rel=1e-4, abs=1e-5)
    for old, new in zip(records(stored), records(run), strict=True):
        for key in ("step", "tokens", "loss", "lr", "grad_norm"):
            assert new[key] == pytest.approx(old[key], rel=1e-4)
    assert records(run, "samples.jsonl")[-1]["prompt"] == "Once upon a time"
    tilth("verify", run)


def test_finished_run_is_extended(first):
    run = first / "runs" / "adamw"
    tilth("resume", run, "--data", first / "data", "--steps", 2)
    assert [record["step"] for record in records(run)] == list(range(1, 9))


def test_report(first, tmp_path):
    names = ("runs/adamw", "runs/muon", "lab", "search")
    tilth("report", *(first / name for name in names), "--out", tmp_path / "page.html")
    page = html.unescape((tmp_path / "page.html").read_text("utf-8"))
    for name in names:
        part = json.loads((first / name / "lab.json").read_text()) if "/" not in name else {}
        assert part.get("answer", Path(name).name) in page


# The values that the recipes of the first edition had.
OLD_RECIPES = (
    *("--optimizer.schedule", "cosine", "--optimizer.embedding-lr-factor", 1),
    *("--optimizer.momentum-warmup-steps", 0, "--optimizer.betas", 0.9, 0.95),
)


def test_lab_is_answered_without_training(first):
    lab = first / "lab"
    before = {path: path.read_bytes() for path in (lab / "runs").rglob("metrics.jsonl")}
    words = ("--data", first / "data", "--out", lab, "--steps", 3, *SMALL, *WATCH, *OLD_RECIPES)
    said = tilth("lab", first / "question.toml", *words)
    assert said.startswith("The best trial is lr 0.01, with 7.5958 bits per byte on validation")
    assert (lab / "report.html").exists()
    assert before == {path: path.read_bytes() for path in (lab / "runs").rglob("metrics.jsonl")}


def test_search_is_answered_and_continued(first):
    lab = first / "search"
    words = ("--data", first / "data", "--out", lab, "--recipe", "tiny", "--steps", 3)
    words = (*words, *OLD_RECIPES)
    vary = ("--vary", "optimizer.lr=0.001..0.1")
    said = tilth("lab", "search", *words, *vary, "--trials", 2, *SMALL)
    assert said.startswith("The best of 2 trials is lr 0.0884, with 7.0252 bits per byte")
    tilth("lab", "search", *words, *vary, "--trials", 3, *SMALL)
    found = json.loads((lab / "lab.json").read_text())
    assert [trial["state"] for trial in found["trials"]] == ["finished"] * 3


def test_account_of_a_run(first):
    found = json.loads(tilth("account", first / "runs" / "muon", "--json"))
    assert (found["model"]["d_model"], found["training"]["steps"]) == (4, 6)
    assert found["training"]["optimizer"] == "muon"
