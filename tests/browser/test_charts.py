"""Charts of the studio: drawn under the content security policy, zoomed, downloaded."""

import csv
import struct

import pytest

from tests.browser.test_studio import address, folder, open_view, wait_until

pytestmark = pytest.mark.browser
__all__ = ["address", "folder", "open_view"]

DRAW = """async () => {
  const { chart } = await import("/static/chart.js");
  const loss = chart({ title: "Loss" });
  document.getElementById("page").replaceChildren(loss.element);
  loss.onzoom((range) => { window.zoomed = range; });
  const lines = [{ name: "<b>first</b>", index: 0, x: [1, 10, 100], y: [3, null, 1] },
                 { name: "=cmd(), \\"a\\"", index: 11, x: [1, 100], y: [2, 4] }];
  await loss.draw(lines, { x: { title: "step", type: "log" }, y: { title: "loss", type: "log" } });
}"""


@pytest.fixture
def drawn(open_view):
    def drawn(theme="light", width=1280):
        page = open_view("tokens", theme, width)
        page.evaluate(DRAW)
        page.locator(".plot .xtick").first.wait_for()
        return page

    return drawn


@pytest.mark.parametrize("width", [360, 2560])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_and_width(drawn, theme, width):
    page = drawn(theme, width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    stroke = "getComputedStyle(document.querySelector('.plot .js-line')).stroke"
    lines = {"light": "rgb(31, 111, 180)", "dark": "rgb(109, 179, 242)"}
    assert page.evaluate(stroke) == lines[theme]
    page.emulate_media(color_scheme="dark" if theme == "light" else "light")
    wait_until(page, f"{stroke} !== '{lines[theme]}'")


def test_the_rules_of_plotly_are_there(drawn):
    """Without them, the layers of a chart do not lie on each other."""
    page = drawn()
    rule = "getComputedStyle(document.querySelector('.plot .main-svg')).overflow"
    assert page.evaluate(rule) == "hidden"


def test_zoom_in_units_of_the_data(drawn):
    page = drawn()
    box = page.locator(".plot .nsewdrag").bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] / 2, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"], middle, steps=5)
    page.mouse.up()
    wait_until(page, "window.zoomed")
    begin, end = page.evaluate("window.zoomed")
    assert 7 < begin < 13
    assert 80 < end < 130
    page.mouse.dblclick(box["x"] + 50, middle)
    wait_until(page, "window.zoomed === null")


def test_downloads(drawn, tmp_path):
    page = drawn()
    with page.expect_download() as waited:
        page.get_by_role("button", name="Download Loss as CSV").click()
    assert waited.value.suggested_filename == "loss.csv"
    waited.value.save_as(tmp_path / "loss.csv")
    rows = list(csv.reader((tmp_path / "loss.csv").read_text().splitlines()))
    assert rows[:4] == [
        ["line", "step", "loss"],
        ["<b>first</b>", "1", "3"],
        ["<b>first</b>", "10", ""],
        ["<b>first</b>", "100", "1"],
    ]
    assert rows[4] == ['\'=cmd(), "a"', "1", "2"]  # not a formula in a spreadsheet
    with page.expect_download() as waited:
        page.get_by_role("button", name="Download Loss as PNG").click()
    assert waited.value.suggested_filename == "loss.png"
    waited.value.save_as(tmp_path / "loss.png")
    content = (tmp_path / "loss.png").read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", content[16:24])
    assert width > 2000
    assert height > 700


def test_names_are_never_html(drawn):
    page = drawn()
    page.locator(".plot .nsewdrag").hover(position={"x": 3, "y": 60})
    page.wait_for_timeout(300)
    assert page.locator(".plot b").count() == 0
