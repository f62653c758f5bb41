"""The Markdown says what the report says, and nothing in it escapes its place."""

import re

import pytest

from tests.lab.reporting import HOSTILE, config_of, make_lab, make_run, record
from tilth.lab.report_content import read_report
from tilth.lab.report_markdown import markdown_of


@pytest.fixture
def text(tmp_path):
    make_lab(tmp_path)
    pictures = [{"axis": "report-axis.png", "curves": "report-curves.png"}]
    return markdown_of(read_report([tmp_path]), pictures)


def test_it_says_all(text):
    assert text.startswith("# Which learning rate is best?\n\n**0.01 is best.**\n\n- A note")
    assert "![Final validation loss](report-axis.png)" in text
    assert "![Learning curves](report-curves.png)" in text
    assert "```sh\ntilth lab lr --out lab/lr\n```" in text
    for heading in ("Edge", "Runs", "Samples", "What it costs", "To repeat it", "Versions"):
        assert f"\n### {heading}\n" in text


def test_every_row_has_the_cells_of_its_table(text):
    outside = re.sub(r"(?ms)^(`{3,})\w*\n.*?^\1$", "", text)
    for table in re.findall(r"(?m)(?:^\|.*\n?)+", outside):
        counts = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(counts) == 1, table


def test_a_sample_stays_in_its_block(text):
    fence = re.search(r"^(`{4,})text\nOnce .*```.*\n\1$", text, re.MULTILINE)
    assert fence is not None
    assert HOSTILE.replace("\x1b", "\\x1b") in fence[0]
    outside = re.sub(r"(?ms)^(`{3,})\w*\n.*?^\1$", "", text)
    assert not re.search(r"(?<!\\)<", outside)


def test_differences_to_repeat_the_others(tmp_path):
    make_run(tmp_path / "a", [record(1, 5.0)], config_of(1e-2))
    make_run(tmp_path / "b", [record(1, 5.0)], config_of(1e-3))
    text = markdown_of(read_report([tmp_path / "a", tmp_path / "b"]), [{}])
    assert "\n- b: optimizer.lr = 0.001, optimizer.min\\_lr = 1e-05\n" in text
    assert "lr = 0.01\n" in text
