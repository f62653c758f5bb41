"""A report is written as a page, Markdown and PNG files, or not at all."""

import io
import sys
from collections import Counter
from dataclasses import replace
from itertools import product

import pytest

from tests.report.reporting import config_of, falling, make_lab, make_run, make_toy, record
from tilth.report import pictures as report_pictures
from tilth.report.charts import chart_data, curves_caption, line_styles
from tilth.report.lab_file import Chart, Line, save_lab
from tilth.report.pictures import chart_png, curves_png
from tilth.report.writing import read_report, save_report

image = pytest.importorskip("matplotlib.image")
pytest.importorskip("plotly")


def pixels_of(png, colour):
    """The pixel coordinates (ys, xs) of a colour."""
    pixels = image.imread(io.BytesIO(png))[:, :, :3]
    target = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return (abs(pixels - target).max(axis=2) < 0.05).nonzero()


def names_in(folder):
    return {path.name for path in folder.iterdir() if path.is_file()}


def test_lab(tmp_path):
    make_lab(tmp_path / "lab")
    report = read_report([tmp_path / "lab"])
    written = save_report(report, tmp_path / "report.html")
    expected = ["report.html", "report.md", "report-axis.png", "report-curves.png"]
    assert [path.name for path in written] == expected
    assert names_in(tmp_path) == set(expected)
    for name in expected[2:]:
        assert f"]({name})" in (tmp_path / "report.md").read_text()
        assert image.imread(tmp_path / name).shape[2] == 4
    with pytest.raises(FileExistsError, match="already exists"):
        save_report(report, tmp_path / "report.html")
    assert len(save_report(report, tmp_path / "report.html", overwrite=True)) == 4


def test_several_sections(tmp_path):
    make_lab(tmp_path / "lab")
    make_run(tmp_path / "run", [record(1, 5.0, bits=2.0)])
    report = read_report([tmp_path / "lab", tmp_path / "run"])
    save_report(report, tmp_path / "both.html")
    assert names_in(tmp_path) == {
        *("both.html", "both.md", "both-1-axis.png", "both-1-curves.png", "both-2-curves.png")
    }


def test_nothing_is_written_if_a_file_exists(tmp_path):
    make_run(tmp_path / "run", [record(1, 5.0, bits=2.0)])
    (tmp_path / "report-curves.png").write_text("mine")
    with pytest.raises(FileExistsError, match=r"report-curves\.png already exists"):
        save_report(read_report([tmp_path / "run"]), tmp_path / "report.html")
    assert names_in(tmp_path) == {"report-curves.png"}


def test_stale_charts_are_deleted(tmp_path):
    """Those of the replaced report, and no others."""
    lab = make_toy(tmp_path / "lab")
    out = tmp_path / "my report.html"
    save_report(read_report([tmp_path / "lab"]), out)
    written = {"my report.html", "my report.md", "my report-chart-1.png", "my report-chart-2.png"}
    assert names_in(tmp_path) == written  # and none of curves, an axis, or an empty chart
    assert "](my%20report-chart-2.png)" in out.with_suffix(".md").read_text()
    others = {"my report-curves.png", "my report-chart-3.png", "my report-1-chart-2.png"}
    for name in others:
        (tmp_path / name).write_text("another's")
    save_lab(tmp_path / "lab", replace(lab, charts=lab.charts[:1]))
    save_report(read_report([tmp_path / "lab"]), out, overwrite=True)
    assert names_in(tmp_path) == written - {"my report-chart-2.png"} | others


@pytest.mark.parametrize("name", ["report.html", "report.md", "report-curves.png"])
def test_links_are_not_followed(tmp_path, name):
    """`tilth lab` writes its report into a lab, which may be untrusted."""
    make_run(tmp_path / "run", [record(1, 5.0, bits=2.0)])
    (tmp_path / "mine").write_text("mine")
    (tmp_path / name).symlink_to("mine")
    with pytest.raises(ValueError, match=f"{name} is a symbolic link"):
        save_report(read_report([tmp_path / "run"]), tmp_path / "report.html", overwrite=True)
    assert names_in(tmp_path) == {"mine", name}
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_huge_report_is_not_read(tmp_path):
    make_run(tmp_path / "run", [record(1, 5.0, bits=2.0)])
    with (tmp_path / "report.md").open("wb") as file:
        file.truncate(1 << 36)  # sparse
    with pytest.raises(ValueError, match="more than the limit"):
        save_report(read_report([tmp_path / "run"]), tmp_path / "report.html", overwrite=True)


def test_paths_may_be_strings(tmp_path):
    make_run(tmp_path / "run", [record(1, 5.0, bits=2.0)])
    save_report(read_report([str(tmp_path / "run")]), str(tmp_path / "report.html"))
    assert (tmp_path / "report.html").exists()


def test_unknown_suffix(tmp_path):
    make_run(tmp_path / "run", [])
    with pytest.raises(ValueError, match=r"end --out in \.html"):
        save_report(read_report([tmp_path / "run"]), tmp_path / "report.pdf")


def test_run_without_steps(tmp_path):
    make_run(tmp_path / "run", [])
    save_report(read_report([tmp_path / "run"]), tmp_path / "report.html")
    assert "No run has a validation loss yet." in (tmp_path / "report.md").read_text()
    assert names_in(tmp_path) == {"report.html", "report.md"}  # no curves


def test_a_log_with_negative_losses(tmp_path):
    make_run(tmp_path / "run", [record(1, -5.0, bits=2.0), record(2, -6.0)])
    save_report(read_report([tmp_path / "run"]), tmp_path / "report.html")


def test_curves_are_drawn(tmp_path):
    """The colours of both runs cover more than the legend, although a third run diverged."""
    make_run(tmp_path / "a", falling(40, 2.0), config_of(1e-3))
    make_run(tmp_path / "b", falling(40, 3.0), config_of(1e-2))
    bad = [*falling(40, 2.5)[:20], record(21, 1e9, is_diverging=True)]
    make_run(tmp_path / "c", bad, config_of(1.0, batch_size=8), is_finished=False)
    section = read_report([tmp_path / name for name in "abc"]).sections[0]
    for colour in list(section.colours.values())[:2]:
        ys, xs = pixels_of(curves_png(section), colour)
        assert xs.max() - xs.min() > 800
        assert ys.max() - ys.min() > 100


def test_more_groups_than_colours(tmp_path, monkeypatch):
    """Lines and legend use the same dashes as the page."""
    for seed, number in product(range(2), range(8)):
        config = config_of((1 + number % 2) / 1000, seed, batch_size=1 + number)  # no axis
        make_run(tmp_path / f"{number}-{seed}", falling(20, 2 + number / 10), config)
    section = read_report([tmp_path]).sections[0]
    monkeypatch.setattr(report_pictures, "_png", lambda figure: figure)
    figure = curves_png(section)
    dashes = {"solid": "-", "dash": "--", "dot": ":"}
    page = [(each["colour"], dashes[each["dash"]]) for each in chart_data(section)["groups"]]
    assert len(set(page)) == 8

    def styles(lines):
        return [(line.get_color(), line.get_linestyle()) for line in lines]

    assert styles(figure.legends[0].get_lines()) == page
    for panel in figure.axes:  # training and validation of two runs, and their mean
        assert Counter(styles(panel.get_lines())) == dict.fromkeys(page, 5)


def test_caption_of_cut_off_losses(tmp_path):
    make_run(tmp_path / "a", [record(1, 6.0), record(2, 2.0)])
    assert "cut off" not in curves_caption(read_report([tmp_path]).sections[0])
    make_run(tmp_path / "b", [record(1, 7e7), record(2, 9e9)], config_of(1.0))
    assert curves_caption(read_report([tmp_path]).sections[0]).endswith(
        " Losses above 6.4 are cut off."
    )


@pytest.mark.parametrize(
    ("x_scale", "y_scale", "expected"),
    [
        ("linear", "linear", (0.01, 0.01)),
        ("log", "linear", (1 / 3, 0.01)),
        ("linear", "log", (0.01, 1 / 3)),
    ],
)
def test_lines_are_drawn(tmp_path, x_scale, y_scale, expected):
    """The scales determine the position of a point."""
    make_toy(tmp_path)
    section = read_report([tmp_path]).sections[0]
    lines = (
        Line("a point", ((10, 10),)),
        Line("the top", ((1, 1000), (1000, 1000))),
        Line("the left", ((1, 1), (1, 1000))),
    )
    chart = Chart("t", "x", "y", lines, x_scale, y_scale)
    png = chart_png(section, chart)
    (point_y, point_x), (top_y, top_x), (left_y, left_x) = (
        [axis[ys < 340] for axis in (ys, xs)]  # above the legend, which has the same colours
        for ys, xs in (pixels_of(png, style["colour"]) for style in line_styles(section, chart))
    )
    left, right, top, bottom = left_x.mean(), top_x.max(), top_y.mean(), left_y.max()
    found = (point_x.mean() - left) / (right - left), (bottom - point_y.mean()) / (bottom - top)
    assert found == pytest.approx(expected, abs=0.02)


def test_missing_extra(monkeypatch, tmp_path):
    make_run(tmp_path / "run", [record(1, 5.0)])
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ValueError, match=r'pip install "tilth\[report\]"'):
        save_report(read_report([tmp_path / "run"]), tmp_path / "report.html")
    assert names_in(tmp_path) == set()
