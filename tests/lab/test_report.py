"""A report is written as a page with Markdown and pictures beside it, or not at all."""

import io
import sys

import pytest

from tests.lab.reporting import config_of, falling, make_lab, make_run, record
from tilth.lab.report import read_report, save_report
from tilth.lab.report_pictures import curves_png

image = pytest.importorskip("matplotlib.image")
pytest.importorskip("plotly")


def names_in(folder):
    return {path.name for path in folder.iterdir() if path.is_file()}


def test_a_lab(tmp_path):
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


def test_nothing_is_written_if_one_is_there(tmp_path):
    make_run(tmp_path / "run", [record(1, 5.0, bits=2.0)])
    (tmp_path / "report-curves.png").write_text("mine")
    with pytest.raises(FileExistsError, match=r"report-curves\.png already exists"):
        save_report(read_report([tmp_path / "run"]), tmp_path / "report.html")
    assert names_in(tmp_path) == {"report-curves.png"}


def test_another_ending(tmp_path):
    make_run(tmp_path / "run", [])
    with pytest.raises(ValueError, match=r"end --out in \.html"):
        save_report(read_report([tmp_path / "run"]), tmp_path / "report.pdf")


def test_a_run_that_has_not_begun(tmp_path):
    make_run(tmp_path / "run", [])
    save_report(read_report([tmp_path / "run"]), tmp_path / "report.html")
    assert "No run has a validation loss yet." in (tmp_path / "report.md").read_text()


def test_curves_are_in_the_picture(tmp_path):
    """The colours of both runs cover more than their legend, though a third has diverged."""
    make_run(tmp_path / "a", falling(40, 2.0), config_of(1e-3))
    make_run(tmp_path / "b", falling(40, 3.0), config_of(1e-2))
    bad = [*falling(40, 2.5)[:20], record(21, 1e9, is_diverging=True)]
    make_run(tmp_path / "c", bad, config_of(1.0, batch_size=8), is_finished=False)
    section = read_report([tmp_path / name for name in "abc"]).sections[0]
    pixels = image.imread(io.BytesIO(curves_png(section)))[:, :, :3]
    for colour in list(section.colours.values())[:2]:
        target = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        ys, xs = (abs(pixels - target).max(axis=2) < 0.05).nonzero()
        assert xs.max() - xs.min() > 800
        assert ys.max() - ys.min() > 100


def test_without_the_extra(monkeypatch, tmp_path):
    make_run(tmp_path / "run", [record(1, 5.0)])
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ValueError, match=r'pip install "tilth\[report\]"'):
        save_report(read_report([tmp_path / "run"]), tmp_path / "report.html")
    assert names_in(tmp_path) == set()
