"""Chart data: logged numbers, y ranges without divergences, axes and ticks."""

import json
from dataclasses import replace

import pytest

from tests.report.reporting import config_of, falling, make_lab, make_run, make_toy, record
from tilth.report.charts import (
    axis_line,
    axis_points,
    chart_data,
    group_styles,
    line_styles,
    scale_of,
    shown_losses,
    ticks_of,
    unit_of_time,
    windows_of,
)
from tilth.report.curves import NO_CURVES
from tilth.report.lab_file import Chart, Line
from tilth.report.reading import COLOURS, read_report


@pytest.fixture
def section(tmp_path):
    def section(**runs):
        for name, (records, config) in runs.items():
            make_run(tmp_path / name, records, config)
        return read_report([tmp_path / name for name in runs]).sections[0]

    return section


@pytest.fixture
def lab(tmp_path):
    make_lab(tmp_path / "lab")
    return read_report([tmp_path / "lab"]).sections[0]


def test_run(section):
    records = [record(1, 6.0), record(2, None, was_skipped=True), record(3, 4.0, bits=2.0)]
    data = chart_data(section(a=(records, config_of())))
    (run,) = data["runs"]
    assert run["train_loss"]["1"] == {
        "steps": [1, 2, 3],
        "tokens": [256, 512, 768],
        "seconds": [0.5, 1, 1.5],
        "values": [6, None, 4],
    }
    assert run["valid_bits"]["values"] == [2]
    assert data["axis"] is None
    assert data["shown_losses"] is None
    json.dumps(data, allow_nan=False)


def test_seeds_form_a_group(section):
    data = chart_data(
        section(
            a=(falling(40, 2.0), config_of(1e-3, seed=0)),
            b=(falling(40, 2.5), config_of(1e-3, seed=1)),
            c=(falling(40, 3.0), config_of(1e-2)),
        )
    )
    assert [group["name"] for group in data["groups"]] == ["lr 0.001 (2 seeds)", "c"]
    assert [group["colour"] for group in data["groups"]] == list(COLOURS[:2])
    assert [run["group"] for run in data["runs"]] == [0, 0, 1]
    (spread,) = data["spreads"]["valid_bits"]
    assert spread["group"] == 0
    assert (spread["low"][-1], spread["high"][-1]) == (2.0, 2.5)
    assert spread["mean"]["values"][-1] == 2.25


def test_long_runs_are_downsampled(section):
    config = config_of(steps=10_000)
    found = section(a=(falling(10_000, 2.0), config))
    data = chart_data(found)
    (run,) = data["runs"]
    assert list(run["train_loss"]) == ["1", "10", "50", "200", "1000"]
    assert windows_of(found)[1] == 200
    assert all(len(curve["steps"]) <= 1000 for curve in run["train_loss"].values())
    assert len(json.dumps(data)) < 150_000


def test_smoothing_of_a_short_run(section):
    assert windows_of(section(a=([], config_of(steps=40)))) == ([1], 1)


def test_smoothing_of_a_longer_run(section):
    assert windows_of(section(a=([], config_of(steps=600)))) == ([1, 10, 50], 10)


def test_divergence_is_outside_the_range(section):
    good = [record(1, 6.0), record(2, 2.0)]
    bad = [record(1, 6.5), record(2, 1e6)]
    found = section(a=(good, config_of(1e-3)), b=(bad, config_of(1.0)))
    low, high = shown_losses(found)
    assert 1.5 < low < 2.0
    assert 6.5 < high < 8.0
    values = chart_data(found)["runs"][1]["train_loss"]["1"]["values"]
    assert values == [6.5, 1e6]  # still in the data


def test_divergence_from_the_first_step_is_outside_the_range(section):
    """Even if most runs diverge and one of them finishes."""
    runs = {
        "small": [record(1, 6.0), record(2, 2.0)],
        "large": [record(1, 9.0), record(2, 3.0)],  # a larger vocabulary
        "bad": [record(1, 7e7), record(2, 1e9, is_diverging=True)],
        "worse": [record(1, 2e6), record(2, None, was_skipped=True)],
        "finished": [record(1, 2e6), record(2, 1e5, bits=400)],
    }
    found = section(**{name: (records, config_of()) for name, records in runs.items()})
    low, high = shown_losses(found)
    assert 1.5 < low < 2.0
    assert 9.0 < high < 10.0


@pytest.mark.parametrize(
    ("seconds", "unit"),
    [(100, ("seconds", 1)), (1000, ("minutes", 60)), (10_000, ("hours", 3600))],
)
def test_time_units(section, seconds, unit):
    found = section(a=([record(2 * seconds, 3.0)], config_of(steps=2 * seconds)))
    assert unit_of_time(found) == unit


def test_running_runs_have_no_final_loss(lab):
    entries = [replace(entry, state="running") for entry in lab.entries]
    assert axis_points(replace(lab, entries=tuple(entries))) == []


def test_lab_axis(lab):
    points = axis_points(lab)
    assert [point.x for point in points] == [1e-4, 1e-3, 1e-2, 1e-2, 1e-1]
    assert [point.is_diverged for point in points] == [*[False] * 4, True]
    assert [point.bits for point in points[:-1]] == [3.0, 2.5, 2.0, 2.1]
    assert points[-1].bits > 3.0
    places, means = axis_line(points)
    assert places == [1e-4, 1e-3, 1e-2]
    assert means == pytest.approx([3.0, 2.5, 2.05])
    data = chart_data(lab)["axis"]
    assert data["label"] == "learning rate"
    assert data["scale"] == "log"
    assert data["ticks"]["ticktext"] == ["0.0001", "0.001", "0.01", "0.1"]
    assert len(set(lab.colours.values())) == 5


def test_groups_with_equal_x_are_not_averaged(lab):
    """As batch sizes at equal tokens and at equal time do."""
    again = [replace(entry, group=f"{entry.group}, again") for entry in lab.entries]
    both = replace(lab, entries=(*lab.entries, *again))
    assert axis_points(both) == []
    assert chart_data(both)["axis"] is None
    # They have the same colour, so different dashes.
    first, second = group_styles(both)["lr 0.01"], group_styles(both)["lr 0.01, again"]
    assert (first["dash"], second) == ("solid", {"colour": first["colour"], "dash": "dash"})
    groups = chart_data(both)["groups"]
    assert len({(group["colour"], group["dash"]) for group in groups}) == len(groups) == 10
    # A trial that has not ended does not count.
    planned = [replace(entry, state="planned", run=None, curves=NO_CURVES) for entry in again]
    assert axis_points(replace(lab, entries=(*lab.entries, *planned))) == axis_points(lab)


def test_lab_charts(tmp_path):
    lab = make_toy(tmp_path)
    data = chart_data(read_report([tmp_path]).sections[0])
    assert (data["runs"], data["axis"], data["groups"]) == ([], None, [])
    first, second = data["charts"]
    assert (first["x_scale"], first["y_scale"]) == ("linear", "log")
    assert (second["x_scale"], second["y_scale"]) == ("log", "linear")
    assert [line["name"] for line in first["lines"]] == ["lr 1", "lr 10", "lr 100", "lr 1000"]
    for line, drawn in zip(lab.charts[0].lines, first["lines"], strict=True):
        assert list(zip(drawn["x"], drawn["y"], strict=True)) == [
            pytest.approx(point, rel=1e-5) for point in line.points
        ]
    assert [first[name] for name in ("x_ticks", "y_ticks")] == [None, None]
    assert second["y_ticks"] is None
    assert second["x_ticks"] == {"tickvals": [1, 10, 100], "ticktext": ["1", "10", "100"]}
    assert second["x_label"] == "learning rate &lt;i>"
    assert second["y_label"] == "$loss$ &amp; more"
    assert len(json.dumps(data, allow_nan=False)) < 5000


def test_numbers_of_any_size(lab):
    points = ((0, 1.23456789e-300), (-2.5, 1e100), (123456789, 1e20))
    line = chart_data(replace(lab, charts=(Chart("a", "x", "y", (Line("a", points),)),)))
    (drawn,) = line["charts"][0]["lines"]
    assert (drawn["x"], drawn["y"]) == ([0, -2.5, 123456789], [1.23457e-300, 1e100, 1e20])
    assert len(json.dumps(drawn["y"])) < 50  # not the hundred digits of a whole number


def test_line_colours(lab):
    def styles(*names):
        lines = tuple(Line(name, ((1, 1),)) for name in names)
        styles = line_styles(lab, Chart("a", "x", "y", lines))
        return [(style["colour"], style["dash"]) for style in styles]

    assert styles("lr 0.01", "lr 0.001") == [
        *((lab.colours["lr 0.01"], "solid"), (lab.colours["lr 0.001"], "solid"))
    ]
    assert styles("lr 0.01", "another") == [(COLOURS[0], "solid"), (COLOURS[1], "solid")]
    assert len(set(styles(*map(str, range(18))))) == 18


@pytest.mark.parametrize(
    ("values", "expected"),
    [([1, 10], False), ([1, 11], True), ([-1, 100], False), ([0, 100], False), ([], False)],
)
def test_axis_scale(values, expected):
    assert (scale_of(values) == "log") == expected


@pytest.mark.parametrize(
    ("places", "ticks"),
    [
        ([4, 1, 2, 4], [1, 2, 4]),
        ([2**n for n in range(11)], [2**n for n in range(11)]),
        ([2**n for n in range(12)], []),  # too many: default ticks
        ([1e-4, 1e-2, 1.1e-2, 1.0], []),  # too close
        ([1e-3, 1e-2, 1.1e-2, 0.3], [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2]),
        ([3.0], []),
        ([], []),
    ],
)
def test_ticks_of_chosen_values(places, ticks):
    assert ticks_of(places, are_chosen=True) == pytest.approx(ticks, rel=1e-12)


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([24_304, 968], [1000, 2000, 5000, 10_000, 20_000]),
        ([1.5, 6.4], [2, 3, 4, 6]),
        ([2, 10], [2, 3, 4, 6, 8, 10]),
        ([1.5, 1.9], []),
        ([1e-300, 1e300], []),
    ],
)
def test_ticks_of_measured_values(values, ticks):
    assert ticks_of(values, are_chosen=False) == pytest.approx(ticks, rel=1e-12)


def test_names_are_escaped(tmp_path):
    make_run(tmp_path / "<b>&amp;", [record(1, 5.0)])
    section = read_report([tmp_path / "<b>&amp;"]).sections[0]
    assert chart_data(section)["runs"][0]["name"] == "&lt;b>&amp;amp;"
