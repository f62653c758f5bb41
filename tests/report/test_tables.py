"""Tables, captions and cell formats of a report."""

import tomllib
from dataclasses import replace

import pytest

from tests.report.reporting import HOSTILE, MODEL, config_of, falling, make_lab, make_run, record
from tilth.config.training import TrainingConfig, differences
from tilth.model import TransformerLM
from tilth.report.lab_file import Table
from tilth.report.reading import read_report
from tilth.report.tables import (
    accounting_table,
    cell_text,
    config_text,
    format_columns,
    is_numeric,
    runs_table,
    sample_settings,
    versions_table,
)


def row_of(table, number):
    return dict(zip(table.columns, table.rows[number], strict=True))


@pytest.fixture
def two(tmp_path):
    """Two runs that differ in their learning rate."""
    records = [record(1, 5.0, bits=2.0), *(record(step, 3.0) for step in range(2, 40))]
    records.append(record(40, 2.0, bits=2.25))
    samples = [(20, "Once it"), (40, "Once it was")]
    make_run(tmp_path / "a", records, config_of(1e-3), samples=samples)
    wide = config_of(1e-2, model=replace(MODEL, d_model=32))
    make_run(tmp_path / "b", falling(40, 3.0), wide)
    return read_report([tmp_path / "a", tmp_path / "b"]).sections[0]


def test_runs(two):
    table = runs_table(two)
    assert row_of(table, 0) == {
        **{"run": "a", "state": "finished", "steps": "40 of 40", "tokens": "10,240"},
        **{"time": "20 s", "tokens/s": "512", "train loss": "2.5000", "bits/byte": "2.2500"},
        **{"valid loss": "3.1192", "best valid loss": "2.7726", "model.d_model": "16"},
        "optimizer.lr": "0.001",
    }
    assert row_of(table, 1)["optimizer.lr"] == "0.01"
    assert "seed" not in table.columns


def test_accounting_of_distinct_models(two, tmp_path):
    table = accounting_table(two)
    for number, run in enumerate(two.runs):
        weights = TransformerLM(run.config.model, device="meta").parameters()
        assert row_of(table, number)["parameters"] == f"{sum(w.numel() for w in weights):,}"
    make_run(tmp_path / "c", [], config_of(1e-1))
    same = read_report([tmp_path / "a", tmp_path / "c"]).sections[0]
    assert [row[0] for row in accounting_table(same).rows] == ["all"]
    three = read_report([tmp_path / name for name in "abc"]).sections[0]
    assert [row[0] for row in accounting_table(three).rows] == ["a; c", "b"]


def test_sample_settings(two):
    sampled, other = two.entries
    assert other.samples == ()
    assert [(each.step, each.text) for each in sampled.samples] == [
        *((20, "Once it"), (40, "Once it was"))
    ]
    for part in ("step 40", "parameters", "temperature 0.8", "top_p 0.95", "2.250 bits/byte"):
        assert part in sample_settings(sampled)


def test_config_reproduces_the_run(two):
    run = two.runs[0]
    assert two.commands[0].startswith("tilth train --config ")
    assert two.commands[0].split()[3].endswith("/a/config.toml")
    again = TrainingConfig.from_dict(tomllib.loads(config_text(run)))
    assert differences(again, run.config) == {}
    (row,) = versions_table(two).rows
    assert row[0] == "all"
    assert run.manifest.versions["torch"] in row


def test_config_has_only_the_name_of_the_data(tmp_path):
    make_run(tmp_path / "a", [], replace(config_of(), data="/home/someone/data/stories"))
    text = config_text(read_report([tmp_path / "a"]).sections[0].runs[0])
    assert 'data = "stories"' in text


def test_lab(tmp_path):
    make_lab(tmp_path)
    section = read_report([tmp_path]).sections[0]
    assert section.asks == "Which learning rate is best?"
    assert section.answer == "0.01 is best."
    assert section.notes[0] == "A note with <b>tags</b>."
    assert section.commands == ("tilth lab lr --out lab/lr",)
    row = row_of(runs_table(section), 5)
    assert (row["run"], row["state"], row["bits/byte"]) == ("1, seed 0", "planned", None)


def test_cells_are_escaped():
    assert cell_text(HOSTILE) == HOSTILE.replace("\x1b", "\\x1b")
    assert cell_text("a\nb\x00\u202e\ud800") == "a\nb\\x00\\u202e\\ud800"
    assert [cell_text(v) for v in (None, True, 12345, 0.00012345)] == [
        *("–", "yes", "12,345", "0.0001234")
    ]


@pytest.mark.parametrize(
    ("cells", "shown"),
    [
        ((2.5, 1.95312, 2.0), ("2.5000", "1.9531", "2.0000")),  # losses
        ((0.0001, 0.003, 0.1), ("0.0001", "0.003", "0.1")),  # learning rates
        ((64.0, 128.0, 12345.0), ("64", "128", "12,345")),
        ((12.3456, 3.0), ("12.35", "3.00")),
        ((123456.7, 99.5), ("123,457", "100")),
        ((20000.3, 0.5), ("20,000", "0.5")),
        ((-0.01234, 0.0045), ("-0.01234", "0.00450")),
        ((2.5123, 1e20), ("2.512", "1e+20")),  # diverged
        ((2.5123, 0.0), ("2.5123", "0.0000")),
        ((0.0,), ("0",)),
        ((1.5123, None, 7, "none"), ("1.5123", "–", "7", "none")),
        ((12345, 8), ("12,345", "8")),
        ((), ()),
    ],
)
def test_decimals_of_a_column(cells, shown):
    table = Table("t", ("name", "values"), tuple(("a", cell) for cell in cells))
    assert format_columns(table) == [["a"] * len(cells), list(shown)]


def test_numeric_columns():
    assert is_numeric(["1,234", "-0.5", "2e-05", "12.5%", "3 of 10", "1.2 GB", "–"])
    assert not is_numeric(["1", "none"])
