"""The Markdown is complete, and text from runs cannot break its structure."""

import re
from html import unescape

import pytest
from markdown_it import MarkdownIt

from tests.report.reporting import HOSTILE, config_of, make_lab, make_run, make_toy, record
from tilth.report.markdown import _quoted, markdown_of
from tilth.report.reading import read_report

RENDER = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render


def headings(text):
    outside = re.sub(r"(?ms)^(`{3,})\w*\n.*?^\1$", "", text)
    return re.findall(r"(?m)^#+ .*$", outside)


def plain(html, tag):
    """The texts of all elements with this tag."""
    inner = re.findall(rf"(?s)<{tag}>(.*?)</{tag}>", html)
    return [unescape(re.sub(r"</?p>", "", each)) for each in inner]


@pytest.fixture
def text(tmp_path):
    make_lab(tmp_path)
    pictures = [{"axis": "report-axis.png", "curves": "report-curves.png"}]
    return markdown_of(read_report([tmp_path]), pictures)


def test_markdown_is_complete(text):
    assert text.startswith("# Which learning rate is best?\n\n**0.01 is best.**\n\n- A note")
    assert "![Final bits per byte by learning rate](report-axis.png)" in text
    assert "![Learning curves](report-curves.png)" in text
    assert "```sh\ntilth lab lr --out lab/lr\n```" in text
    assert headings(text) == [
        *("# Which learning rate is best?", "## Final bits per byte by learning rate"),
        *("## Learning curves", "## Edge", "## Runs", "## Samples", "## Compute and memory"),
        "## Reproduce",
    ]


def test_lab_without_runs(tmp_path):
    make_toy(tmp_path)
    pictures = [{"chart-1": "a-chart-1.png", "chart-2": "a-chart-2.png"}]
    text = markdown_of(read_report([tmp_path]), pictures)
    shown = headings(text)
    assert shown[:2] == ["# How large may a step be?", "## The loss by step"]
    assert shown[2].startswith("## By rate ")
    assert shown[3:] == ["## Losses", "## Reproduce"]
    pages = RENDER(text)
    assert re.search(r'<img src="a-chart-1.png" alt="The loss by step" /></p>\n<p>Lower is', pages)
    assert f'<img src="a-chart-2.png" alt="{plain(pages, "h2")[1]}" />' in unescape(pages)
    assert "| lr | loss |\n|---:|---:|\n| 1 | 0.5123 |\n| 10 | 0.2500 |\n" in text


def test_headings_of_several_labs(tmp_path):
    make_toy(tmp_path / "a")
    make_lab(tmp_path / "b")
    text = markdown_of(read_report([tmp_path / "a", tmp_path / "b"]), [{}, {}])
    assert [each for each in headings(text) if not each.startswith("### ")] == [
        *("# tilth report", "## How large may a step be?", "## Which learning rate is best?")
    ]
    assert headings(text)[2:4] == ["### Losses", "### Reproduce"]


def test_rows_have_equal_cells(text):
    outside = re.sub(r"(?ms)^(`{3,})\w*\n.*?^\1$", "", text)
    for table in re.findall(r"(?m)(?:^\|.*\n?)+", outside):
        counts = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(counts) == 1, table


def test_samples_stay_in_their_quote(text):
    quotes = plain(RENDER(text), "blockquote")
    assert len(quotes) == 4  # one of each group, the first of two seeds
    assert set(quotes) == {f"\nOnce {HOSTILE}\n".replace("\x1b", "\\x1b")}
    assert "**0.01, seed 0** (step 40, " in text
    assert "**0.01, seed 1**" not in text
    outside = re.sub(r"(?ms)^(`{3,})\w*\n.*?^\1$", "", text)
    assert not re.search(r"(?<!\\)<", outside)


@pytest.mark.parametrize(
    "line",
    [
        *("- a list", "+ a list", "* a list", "1. a list", "12) a list", "---", "===", "-", "+"),
        *("# heading", "> quote", "```", "~~~", "| a | b |", "|---|---|", "[a]: b", "![a](b)"),
        *(
            "<b>",
            "&amp;",
            "\\",
            "a\\",
            "**bold**",
            "_it_",
            "`code`",
            "<!--",
            "1986. A year.",
            "$x$",
        ),
        *("...", ".", ")", "a - b", "\x1b[2J", "\u2028"),
    ],
)
def test_quotes_keep_their_lines(line):
    """An independent renderer reads two paragraphs of two lines, and nothing else."""
    shown = RENDER(_quoted(f"  {line}\n    {line}\n \n\n{line}\n{line}\n"))
    line = line.replace("\x1b", "\\x1b").replace("\u2028", "\\u2028")
    paragraph = f"<p>{line}<br />\n{line}</p>\n"
    assert unescape(shown) == f"<blockquote>\n{paragraph * 2}</blockquote>\n"


def test_differences_of_other_runs(tmp_path):
    make_run(tmp_path / "a", [record(1, 5.0)], config_of(1e-2))
    make_run(tmp_path / "b", [record(1, 5.0)], config_of(1e-3))
    text = markdown_of(read_report([tmp_path / "a", tmp_path / "b"]), [{}])
    assert "\n- b: optimizer.lr = 0.001, optimizer.min\\_lr = 1e-05\n" in text
    assert "lr = 0.01\n" in text
