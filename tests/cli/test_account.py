"""`tilth account`, called as a command."""

import json
import os
import subprocess
import sys
from dataclasses import fields

import pytest
import tomli_w

from tests.command_line import program_without, tilth
from tests.command_line import tilth as run_tilth
from tilth.config import RECIPES, ModelConfig, TrainingConfig
from tilth.config.overrides import changed


def account(*words):
    return run_tilth("account", *words)


def values_of(*words):
    done = account(*words, "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_the_report_has_every_count():
    words = ["--batch-size", "1024", "--steps", "400000", "--hardware", "a100", "--mfu", "0.5"]
    done = account("gpt2-xl", *words)
    assert done.returncode == 0, done.stderr
    for part in ("2,127,057,600", "4,513,336,524,800", "15,517,753,344", "6,584 days", "1,557,611"):
        assert part in done.stdout
    assert "\x1b" not in done.stdout  # no colors in a pipe
    assert done.stderr == ""


def test_every_option_changes_the_report():
    values = values_of(
        *("gpt2-small", "--context-length", "2048", "--num-kv-heads", "4", "--tie-embeddings"),
        *("--batch-size", "8", "--num-microbatches", "2", "--steps", "5", "--optimizer", "muon"),
        *("--dtype", "bfloat16", "--hardware", "h100", "--mfu", "0.25", "--hours", "10"),
        *("--price", "2.5", "--memory", "24GiB", "--recompute"),
    )
    model, training = values["model"], values["training"]
    assert (model["context_length"], model["num_kv_heads"]) == (2048, 4)
    assert model["tie_embeddings"]
    assert (training["batch_size"], training["microbatch_size"], training["steps"]) == (8, 4, 5)
    assert (training["optimizer"], training["dtype"]) == ("muon", "bfloat16")
    assert values["flops"]["per_step"] == 4 * 8 * values["flops"]["forward"]
    assert values["cost"]["mfu"] == 0.25
    assert values["cost"]["money"] == pytest.approx(2.5 * values["cost"]["seconds"] / 3600)
    assert values["optimum"]["flops"] == pytest.approx(36_000 * 989.4e12 * 0.25)
    assert values["memory"]["limit_bytes"] == 24 * 2**30


def test_a_run_and_a_config_file(tmp_path):
    model = ModelConfig(1000, context_length=64, d_model=64, num_layers=2, num_heads=4)
    config = TrainingConfig("data/stories", model, steps=400, batch_size=20)
    file = tmp_path / "config.toml"
    file.write_text(tomli_w.dumps(config.to_dict()))
    of_run, of_file = values_of(str(tmp_path)), values_of(str(file))
    of_option = values_of("--config", str(file))
    assert of_run["model"] == of_file["model"] == of_option["model"] == model.to_dict()
    assert of_run["training"]["steps"] == of_option["training"]["steps"] == 400
    assert values_of("--config", str(file), "--steps", "3")["training"]["steps"] == 3


def test_shares_as_tables_and_pictures(tmp_path):
    shown = account("gpt2-xl", "--shares").stdout
    for part in ("gpt2-small", "349,630,365,696", "149,522,795,724,800", "55.2%", "128k"):
        assert part in shown
    pytest.importorskip("matplotlib")
    pytest.importorskip("plotly")
    page, picture = tmp_path / "shares.html", tmp_path / "shares.png"
    done = account("gpt2-xl", "--plot", str(page), "--plot", str(picture))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(shown.rstrip())
    assert done.stdout.endswith(f"Wrote {page}\nWrote {picture}\n")
    assert page.exists()
    assert picture.exists()
    values = values_of("gpt2-xl", "--plot", str(picture), "--overwrite")
    assert values["wrote"] == [str(picture)]
    assert values["forward_flops"]["by_size"]["gpt2-small"]["head"] == 79_047_426_048


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["gpt2-xxl"], "did you mean gpt2-xl?"),
        (["gpt2-xl", "--batch-size", "-1"], "batch_size must be at least 1, not -1."),
        (["gpt2-xl", "--num-heads", "24"], "d_model 1600 is not a multiple of num_heads 24"),
        (["gpt2-xl", "--num-layers", "0"], "num_layers must be at least 1, not 0."),
        (["gpt2-xl", "--optimizer", "adam"], "adam"),
        (["gpt2-xl", "--memory", "much"], "'much' is not a size"),
        (["gpt2-xl", "--hardware", "a10"], "hardware 'a10' is unknown; did you mean a100?"),
        (["gpt2-xl", "--hardware", "t4", "--dtype", "bfloat16"], "t4 has no peak for bfloat16"),
        (["gpt2-xl", "--hours", "3"], "hours need hardware"),
        (["gpt2-xl", "--d-modl", "3"], "--d-modl"),
        (["--config", "missing.toml"], "missing.toml"),
        ([], "SHAPE requires an argument"),
    ],
)
def test_errors_are_one_sentence(words, part):
    done = account(*words)
    assert done.returncode == 2
    assert part in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


NUMBERS = ["batch-size", "num-microbatches", "steps", "mfu", "hours", "price", "memory"]
SHAPE = ["vocab-size", "context-length", "d-model", "num-layers", "num-heads", "d-ff", "rope-theta"]


@pytest.mark.parametrize("value", ["9" * 400, "9" * 5000, "-" + "9" * 400, "1e308", "1e-320"])
@pytest.mark.parametrize("name", [*NUMBERS, *SHAPE])
def test_numbers_of_any_size_give_an_error_or_a_finite_result(name, value):
    done = tilth("account", "tiny", "--hardware", "a100", f"--{name}={value}", "--json")
    assert done.returncode in (0, 2), done.stderr
    if done.returncode == 2:
        assert done.stderr.count("\n") == 1
        assert len(done.stderr) < 700 or "9" * 5000 in done.stderr
    else:
        assert "Infinity" not in done.stdout
        assert "NaN" not in done.stdout


def test_a_deeply_nested_file_is_an_error(tmp_path):
    deep = tmp_path / "deep.toml"
    deep.write_text("x = " + "[" * 100_000)
    for words in (["account", str(deep)], ["account", "--config", str(deep)]):
        done = tilth(*words)
        assert done.returncode == 2
        assert "deep.toml is not TOML" in done.stderr


def test_a_deep_config_of_another_verb_is_an_error(tmp_path):
    deep = tmp_path / "deep.toml"
    deep.write_text("a." * 3000 + "b = 1")  # valid TOML; cyclopts recursed through it
    done = tilth("runs", str(tmp_path), "--config", str(deep))
    assert done.returncode == 2
    assert "deep.toml is not TOML (the file is nested too deeply.)" in done.stderr


def test_a_pipe_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe.toml")
    done = tilth("account", str(tmp_path / "pipe.toml"))
    assert done.returncode == 2
    assert "pipe.toml" in done.stderr


@pytest.mark.parametrize(
    "changes",
    [
        {"d_model": 256},
        {"d_model": 480},
        {"num_heads": 8},
        {"ffn": "silu"},
        {"d_model": 256, "d_ff": 100, "num_kv_heads": 4},
        {"num_layers": 3, "vocab_size": 500},
    ],
)
def test_account_describes_the_model_that_train_builds(changes):
    words = [f"--{name.replace('_', '-')}={value}" for name, value in changes.items()]
    model = json.loads(tilth("account", "tinystories", *words, "--json").stdout)["model"]
    config = RECIPES["tinystories"](10_000, "data")
    trained = changed(config, {f"model.{name}": value for name, value in changes.items()})
    assert model == trained.model.to_dict()
    unusual = {"head_dim", "norm_eps", "qkv_bias", "rope_scaling"}  # left out at their defaults
    assert list(model) == [each.name for each in fields(ModelConfig) if each.name not in unusual]
    if changes == {"d_model": 256}:
        assert (model["num_heads"], model["num_kv_heads"], model["d_ff"]) == (8, 8, 704)


def test_without_torch():
    program = program_without({"torch"}, "account", "gpt2-xl", "--hardware", "a100")
    subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
