"""Preflight checks; nothing is written."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from tilth.config import ModelConfig
from tilth.files import FileError
from tilth.model import TransformerLM
from tilth.runs.run import create_run
from tilth.training import preflight
from tilth.training.preflight import (
    check_data,
    check_machine,
    check_new_run,
    check_space,
    open_same_data,
)


def test_matching_config_passes(config, data, tmp_path):
    check_new_run(config, data, data.tokenizer(), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_mismatched_data_is_rejected(config, change, data):
    tokenizer = data.tokenizer()
    with pytest.raises(ValueError, match=r"model.vocab_size is 299, and .* has 300"):
        check_data(change(model={"vocab_size": 299}), data, tokenizer)
    short = replace(data, train=np.asarray(data.train[:16]))
    with pytest.raises(ValueError, match="16 tokens in its train split, and 17 are needed"):
        check_data(config, short, tokenizer)
    empty = replace(data, valid=np.asarray(data.valid[:1]))
    with pytest.raises(ValueError, match="1 tokens in its valid split, and 2 are needed"):
        check_data(config, empty, tokenizer)
    long = change(watch={"sample_prompt": "a story " * 20})
    with pytest.raises(ValueError, match=r"watch.sample_prompt has .* give a shorter one"):
        check_data(long, data, tokenizer)
    check_data(replace(long, watch=replace(long.watch, sample_every=0)), data, tokenizer)


@pytest.mark.parametrize(
    "machine", [{"device": "meta"}, {"dtype": "float16"}, {"threads": 100_000}]
)
def test_unavailable_machine_is_rejected(change, machine):
    with pytest.raises(ValueError, match=r"meta|float16|threads"):
        check_machine(change(machine=machine))


def test_disk_space_for_all_checkpoints(config, tmp_path, monkeypatch):
    model = TransformerLM(config.model)
    checkpoint_bytes = 3 * 4 * sum(parameter.numel() for parameter in model.parameters())
    needed = (config.watch.keep_checkpoints + 2) * checkpoint_bytes + (16 << 20)
    for free, fits in ((needed, True), (needed - 1, False)):
        usage = SimpleNamespace(free=free)
        monkeypatch.setattr(preflight.shutil, "disk_usage", lambda _, usage=usage: usage)
        if fits:
            check_space(tmp_path / "run", config)
        else:
            with pytest.raises(OSError, match=r"MB, and the disk has .* MB left; free some"):
                check_space(tmp_path / "run", config)


def test_disk_space_for_the_history(config, change, tmp_path, monkeypatch):
    """Weights of the steps 0, 1, 2, 4 and 8."""
    weight_bytes = 4 * sum(
        parameter.numel() for parameter in TransformerLM(config.model).parameters()
    )
    needed = (3 * (config.watch.keep_checkpoints + 2) + 5) * weight_bytes + (16 << 20)
    watched = change(watch={"weights_per_doubling": 1})
    for free, fits in ((needed, True), (needed - 1, False)):
        usage = SimpleNamespace(free=free)
        monkeypatch.setattr(preflight.shutil, "disk_usage", lambda _, usage=usage: usage)
        if fits:
            check_space(tmp_path / "run", watched)
        else:
            with pytest.raises(OSError, match=r"or lower .* or watch.weights_per_doubling"):
                check_space(tmp_path / "run", watched)


def test_disk_space_is_computed_without_a_model(config, tmp_path):
    large = ModelConfig(300, 16, d_model=16_384, num_layers=1_000, num_heads=2)
    with pytest.raises(OSError, match="TB, and the disk has"):
        check_space(tmp_path / "run", replace(config, model=large))


def test_other_fingerprints_are_rejected(config, data, tmp_path):
    run = create_run(tmp_path / "run", config, data.tokenizer(), data.fingerprint)
    assert open_same_data(run, None).fingerprint == data.fingerprint
    assert open_same_data(run, data.folder).fingerprint == data.fingerprint
    other = create_run(tmp_path / "other", config, data.tokenizer(), "0" * 64)
    with pytest.raises(FileError, match=r"its data has the fingerprint .* instead of 000000000000"):
        open_same_data(other, None)
