"""`account` combines the numbers of all modules; every docstring example runs."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from tests.accounting.configs import XL
from tilth.accounting import HARDWARE, account, training_memory
from tilth.accounting.hardware import SHARE_OF_PEAK
from tilth.config import MachineConfig, ModelConfig, TrainingConfig

XL_FLOPS = 4_513_336_524_800  # of a forward pass


def test_name_and_config_are_equivalent():
    by_name, by_config = account("gpt2-xl", batch_size=3), account(XL, batch_size=3)
    assert replace(by_name, name="", notes=()) == replace(by_config, name="", notes=())
    assert by_name.config == XL


def test_cost_of_a_run():
    result = account(
        "gpt2-xl", batch_size=1024, steps=400_000, hardware="a100", mfu=0.5, price_per_hour=1.0
    )
    assert result.flops_per_step == 3 * 1024 * 4_513_336_524_800
    assert result.flops_per_token == 3 * 4_513_336_524_800 // 1024
    assert result.run_flops == 400_000 * result.flops_per_step
    assert result.run_tokens == 400_000 * 1024 * 1024
    assert round(result.cost.seconds / 86_400) == 6584
    assert result.largest_textbook_batch == 2
    assert result.memory == training_memory(XL, 1024)
    again = account("gpt2-xl", batch_size=1024, steps=400_000, hardware="a100", recompute=True)
    assert again.cost.seconds == pytest.approx(result.cost.seconds * 4 / 3)


def test_settings_of_a_training_config():
    model = ModelConfig(1000, context_length=64, d_model=64, num_layers=2, num_heads=4)
    config = TrainingConfig(
        "data", model, steps=7, batch_size=8, machine=MachineConfig(dtype="bfloat16")
    )
    result = account(config)
    assert (result.steps, result.batch_size, result.dtype) == (7, 8, "bfloat16")
    assert result.memory == training_memory(model, 8, "adamw", "bfloat16")
    assert account(config, steps=9).steps == 9
    cut = account(config, num_microbatches=4, optimizer="sgd", dtype="float32")
    assert cut.memory == training_memory(model, 2, "sgd", num_microbatches=4)
    assert account(replace(config, microbatch_size=3)).memory.accumulates


def test_microbatches_are_split_as_in_training():
    model = ModelConfig(1000, context_length=64, d_model=64, num_layers=2, num_heads=4)
    uneven = TrainingConfig("data", model, batch_size=8, microbatch_size=7)  # 7 rows, then 1
    assert account(uneven).memory == training_memory(model, 7, num_microbatches=2)
    assert account(uneven, batch_size=10).microbatch_size == 5


def test_derived_widths():
    assert account("gpt2-xl", context_length=2048).config == replace(XL, context_length=2048)
    wide = account("gpt2-xl", d_model=3200).config
    assert (wide.num_heads, wide.d_ff) == (50, ModelConfig(10, 8, 3200, 1, 50).d_ff)
    assert account("gpt2-xl", d_model=3200, d_ff=6400).config.d_ff == 6400
    wider = account("tinystories", d_model=1024).config
    assert wider.d_ff == ModelConfig(10, 8, 1024, 1, 16).d_ff
    assert account("tinystories", num_heads=8).config.num_kv_heads == 8


def test_compute_optimal_size_of_hours():
    result = account("gpt2-xl", hardware="a100", mfu=0.4, hours=10, dtype="bfloat16")
    assert result.optimum.flops == pytest.approx(36_000 * 312e12 * 0.4)
    assert "estimate" in str(result)
    assert "Hoffmann" in str(result)


def test_measured_bandwidth_enters_the_estimate():
    device = replace(HARDWARE["a100"], flops_per_second={"float32": 1e12}, bytes_per_second=1e10)
    estimated, assumed = account(XL, hardware=device), account(XL, hardware=device, mfu=0.5)
    assert assumed.cost.mfu == 0.5
    assert 0.05 < estimated.cost.mfu < 0.85
    again = account(XL, hardware=device, recompute=True)
    more_seconds = again.cost.seconds - estimated.cost.seconds
    assert more_seconds == pytest.approx(XL_FLOPS / (SHARE_OF_PEAK * 1e12))
    with pytest.raises(ValueError, match="no peak for bfloat16"):
        account(XL, hardware=device, dtype="bfloat16")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"batch_size": -1}, "batch_size must be at least 1, not -1"),
        ({"num_layers": 0}, "num_layers must be at least 1, not 0"),
        ({"num_heads": 24}, "d_model 1600 is not a multiple of num_heads 24"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"num_microbatches": 2}, "num_microbatches is 2, above batch_size 1"),
        ({"num_microbatches": 0}, "num_microbatches must be at least 1"),
        ({"d_modl": 3}, "'d_modl' is not a key of a model config; did you mean d_model"),
        ({"optimizer": "adam"}, "optimizer 'adam' is unknown; choose one of adamw, "),
        ({"dtype": "float8"}, "dtype 'float8' is unknown; choose one of float32, "),
        ({"hours": 3}, "hours need hardware; name it"),
        ({"mfu": 0.5}, "mfu needs hardware; name it"),
        ({"price_per_hour": 3}, "price needs hardware; name it"),
        ({"hours": 0, "hardware": "a100"}, "hours is 0; it must be above 0"),
        ({"memory_bytes": -5}, "memory is -5; it must be above 0"),
        ({"hardware": "b100"}, "hardware 'b100' is unknown"),
    ],
)
def test_invalid_arguments(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        account("gpt2-xl", **changes)


def test_json():
    result = account("gpt2-xl", batch_size=2, steps=10, hardware="a100", hours=1, price_per_hour=3)
    values = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert values["parameters"]["total"] == 2_127_057_600
    assert values["flops"]["by_component"]["head"] == 164_682_137_600
    assert sum(product["flops"] for product in values["flops"]["products"]) == 4_513_336_524_800
    assert values["memory"]["textbook"]["per_sequence_bytes"] == 15_517_753_344
    assert values["memory"]["implementation"]["peak_bytes"] == result.memory.peak_bytes
    assert values["cost"]["money"] == result.cost.money
    assert account("tiny").to_dict()["cost"] is None


def test_does_not_import_torch():
    program = (
        "import sys, tilth.accounting as a\n"
        "print(a.account('tinystories', hardware='a100'))\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_notes_of_a_changed_shape():
    assert "1,557,611,200" in str(account("gpt2-xl").notes)
    assert account("gpt2-xl", context_length=2048).notes == account("gpt2-xl").notes
    changed = account("gpt2-xl", d_model=800, tie_embeddings=True).notes
    assert changed == ("Not gpt2-xl itself: changed are d_model, d_ff, tie_embeddings.",)


def test_path_objects(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text("[model]\n" + "\n".join(f"{k} = {v}" for k, v in SHAPE.items()))
    assert account(path).config == account(str(path)).config == ModelConfig(**SHAPE)


SHAPE = {"vocab_size": 100, "context_length": 8, "d_model": 8, "num_layers": 1, "num_heads": 2}
