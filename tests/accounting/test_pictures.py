"""Charts show the counted shares, as a page and as an image."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.accounting.configs import XL
from tilth.accounting import flops_by_component
from tilth.accounting.pictures import COLOURS, across_contexts, across_sizes, save_pictures
from tilth.config import GPT2_SHAPES

PANELS = {
    "by size": across_sizes("gpt2-xl", XL),
    "gpt2-xl, by context length": across_contexts(XL),
}


def test_shares():
    sizes = across_sizes("mine", replace(XL, d_ff=64))
    assert list(sizes) == [*GPT2_SHAPES, "mine"]
    assert sizes["gpt2-xl"] == flops_by_component(XL)
    contexts = across_contexts(XL)
    assert list(contexts) == ["1k", "2k", "4k", "8k", "16k", "32k", "64k", "128k"]
    assert contexts["128k"] == flops_by_component(replace(XL, context_length=131_072))
    assert all(list(row) == list(COLOURS) for row in [*sizes.values(), *contexts.values()])


def test_page_works_offline(tmp_path):
    pytest.importorskip("plotly")
    path = tmp_path / "shares.html"
    save_pictures([path], PANELS)
    page = path.read_text()
    assert not re.search(r"<(script|link)[^>]*(src|href)=", page)
    assert "gpt2-xl, by context length" in page
    assert "3,019,898,880,000" in page
    assert len(page) > 1_000_000  # the script is in it
    with pytest.raises(OSError, match=r"shares\.html"):
        save_pictures([path], PANELS)
    save_pictures([path], PANELS, overwrite=True)


def test_png(tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "shares.png"
    save_pictures([path], PANELS)
    assert path.read_bytes().startswith(b"\x89PNG\r\n")


def test_unknown_suffix(tmp_path):
    paths = [tmp_path / "shares.png", tmp_path / "shares.pdf"]
    with pytest.raises(ValueError, match=r"end it in .html or .png"):
        save_pictures(paths, PANELS)
    assert not paths[0].exists()  # checked before the first is written


@pytest.mark.parametrize("ending", ["html", "png"])
def test_missing_extra(monkeypatch, ending):
    for name in ("plotly.graph_objects", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ValueError, match=r'pip install "tilth\[report\]"'):
        save_pictures([Path(f"never.{ending}")], PANELS)
