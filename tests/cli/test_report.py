"""`tilth report`: prints the answer and the written files, without torch."""

import subprocess
import sys

import pytest

from tests.report.reporting import make_lab, make_run, record
from tilth.cli.report import report
from tilth.files import FileError

pytest.importorskip("plotly")
pytest.importorskip("matplotlib")


def test_output(tmp_path, capsys):
    make_run(tmp_path / "first", [record(1, 5.0, bits=2.0)])
    out = tmp_path / "page.html"
    report([tmp_path / "first"], out=out, title="Mine")
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "first reaches 2.0000 bits per byte on validation."
    assert said[-1] == f"Wrote {out}, {tmp_path}/page.md, {tmp_path}/page-curves.png"
    assert "<h1>Mine</h1>" in out.read_text()
    with pytest.raises(FileExistsError, match="already exists"):
        report([tmp_path / "first"], out=out)
    report([tmp_path / "first"], out=out, overwrite=True)


def test_mistakes(tmp_path):
    with pytest.raises(FileError, match="is neither a run nor a lab"):
        report([tmp_path], out=tmp_path / "report.html")
    with pytest.raises(FileNotFoundError, match="create it"):
        report([tmp_path], out=tmp_path / "missing" / "report.html")


def test_without_torch(tmp_path):
    make_lab(tmp_path / "lab")
    program = (
        "import sys; from pathlib import Path; from tilth.cli.report import report; "
        "report([Path('lab')]); assert 'torch' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "0.01 is best."
