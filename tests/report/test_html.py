"""The page is self-contained, complete, and escapes everything that runs contain."""

import json
import sys
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from tests.report.reporting import HOSTILE, make_lab, make_run, make_toy, record
from tilth.report.charts import chart_data
from tilth.report.html import _json, page_of
from tilth.report.lab_file import Fold, Quote, Table, save_lab
from tilth.report.markdown import markdown_of
from tilth.report.reading import read_report

pytest.importorskip("plotly")
VOID = {"meta", "link", "input"}


class Page(HTMLParser):
    """Tags, attributes and texts of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self.scripts, self._open = [], [], [], []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        (self.scripts if self._open[-1:] == ["script"] else self.texts).append(data)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    make_lab(folder / "lab")
    name = "<img src=x onerror=alert(1)>"
    samples = [(1, "\ud800 & <b>bold</b>")]
    make_run(folder / name, [record(1, 5.0, bits=2.0)], samples=samples)
    return read_report([folder / "lab", folder / name], "<title> & more")


@pytest.fixture(scope="module")
def page(report):
    return Page(page_of(report))


def test_page_is_self_contained(page):
    names = [name for name, _ in page.tags]
    assert names.count("script") == 3
    links = {v for _, attrs in page.tags for k, v in attrs.items() if k in ("src", "href")}
    assert links == {"data:,"}
    (policy,) = [a["content"] for _, a in page.tags if a.get("http-equiv")]
    assert policy.startswith("default-src 'none'; ")
    assert "http" not in policy
    assert sum(map(len, page.scripts)) > 1_000_000  # plotly's


def test_runs_are_escaped(page):
    names = {name for name, _ in page.tags}
    assert not names & {"img", "b", "iframe", "a"}
    assert not any(key.startswith("on") for _, attrs in page.tags for key in attrs)
    text = "".join(page.texts)
    assert f"Once {HOSTILE}".replace("\x1b", "\\x1b") in text
    assert "\\ud800 & <b>bold</b>" in text
    assert "<img src=x onerror=alert(1)>" in text
    assert "<title> & more" in text


def test_page_is_complete(page, report):
    text = "".join(page.texts)
    for section in report.sections:
        assert section.answer in text
        assert section.asks in text
        assert all(note in text for note in section.notes)
        assert all(command in text for command in section.commands)
    for part in ("Edge", "Samples", "Compute and memory", "temperature 0.8", "weight_decay = 0.1"):
        assert part in text


def test_chart_data(page, report):
    numbers = [script for script in page.scripts if script.startswith("[{")]
    found = json.loads(numbers[0])
    assert found == json.loads(json.dumps([chart_data(section) for section in report.sections]))
    charts = [attrs for tag, attrs in page.tags if tag == "figure"]
    assert [(each["class"], each["data-section"]) for each in charts] == [
        *(("axis", "0"), ("curves", "0"), ("curves", "1"))
    ]


def test_json_cannot_end_its_script():
    assert "<" not in _json(["</script>"])
    assert json.loads(_json(["</script>"])) == ["</script>"]


def test_lab_without_runs(tmp_path):
    """No empty chart, table or heading."""
    lab = make_toy(tmp_path)
    page = Page(page_of(read_report([tmp_path])))
    figures = [attrs for tag, attrs in page.tags if tag == "figure"]
    assert figures == [
        {"class": "lines", "data-section": "0", "data-chart": number} for number in "01"
    ]
    labels = [attrs["aria-label"] for _, attrs in page.tags if "aria-label" in attrs]
    assert labels == ["The loss by step", f"By rate {HOSTILE}".replace("\x1b", "\\x1b")]
    text = "\n".join(page.texts)
    assert "10 is best." in text
    assert "tilth lab sgd" in text
    assert f"Lower is better. {HOSTILE}".replace("\x1b", "\\x1b") in text
    assert [name for name, _ in page.tags].count("table") == 1
    for part in (
        "Nothing yet",
        "Learning curves",
        "Runs",
        "Compute and memory",
        "validation",
        "Samples",
    ):
        assert part not in text
    save_lab(tmp_path, replace(lab, charts=(), command=()))
    page = Page(page_of(read_report([tmp_path])))
    assert not {"figure", "noscript"} & {name for name, _ in page.tags}
    assert "Reproduce" not in page.texts


def test_several_labs(tmp_path):
    make_toy(tmp_path / "a")
    make_lab(tmp_path / "b")
    page = Page(page_of(read_report([tmp_path / "a", tmp_path / "b"])))
    assert [name for name, _ in page.tags if name in ("h1", "h2")] == ["h1", "h2", "h2"]
    figures = [attrs for tag, attrs in page.tags if tag == "figure"]
    assert [(each["class"], each["data-section"]) for each in figures] == [
        *(("lines", "0"), ("lines", "0"), ("axis", "1"), ("curves", "1"))
    ]


def test_missing_extra(monkeypatch, report):
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(ValueError, match=r'pip install "tilth\[report\]"'):
        page_of(report)


def test_quotes_and_folds(tmp_path):
    """Both are escaped; a fold has its sentences, its code and its table."""
    quote = Quote(f"One {HOSTILE}", "seed 0", f"Once {HOSTILE}")
    table = Table("Figures", ("figure", "here"), ((HOSTILE, 1.5),))
    fold = Fold("How it was computed", ("By hand.", HOSTILE), f"tilth {HOSTILE}", table)
    save_lab(tmp_path, replace(make_toy(tmp_path), quotes=(quote,), folds=(fold,)))
    report = read_report([tmp_path])
    page = Page(page_of(report))
    shown = HOSTILE.replace("\x1b", "\\x1b")
    for part in ("How it was computed", "By hand.", f"tilth {shown}", f"Once {shown}", "Figures"):
        assert part in page.texts
    assert [name for name, _ in page.tags].count("details") == 1
    assert [name for name, _ in page.tags].count("table") == 2
    text = markdown_of(report, [{}])
    assert "<details><summary>How it was computed</summary>\n\nBy hand." in text
    assert "\n</details>\n" in text
    assert "<script" not in text.replace("\\<script", "").partition("```")[0]
