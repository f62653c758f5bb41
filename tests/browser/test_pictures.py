"""Downloads of what plotly does not draw: each PNG is the picture that the browser shows."""

import csv
import io

import numpy as np
import pytest
from PIL import Image

from tests.browser.test_studio import address, open_view, submit, wait_until
from tests.studio.conftest import folder
from tilth.generation import load
from tilth.tokenizer import Tokenizer

pytestmark = pytest.mark.browser
__all__ = ["address", "folder", "open_view"]

MARGIN, HEAD = 20, 34  # of a picture
WRITTEN = "write?model=plain&prompt=the&max_tokens=3&temperature=0.8&top_p=0.95&min_p=0&seed=0"
VIEWS = [
    ("tokens?model=plain&text=the+mouse+%C3%A9&token=0", "Tokens", "p.text"),
    ("tokens?model=plain&text=the+mouse&token=0", "Merges of the", ".trees"),
    ("tokens?model=plain&text=the+mouse&other=chatty", "Two tokenizers", ".sides"),
    ("read?model=plain&text=the+mouse&token=2", "Surprise in bits", "section > div:has(.legend)"),
    ("read?model=plain&text=the&other=chatty", "Difference in bits", "div:has(> .legend)"),
    ("inside?model=plain&text=the+mouse", "Logit lens", "table.grid >> nth=0"),
    ("inside?model=plain&text=the+mouse", "Attention", ".attention"),
    ("inside?model=plain&text=the+mouse", "Norms of the residual stream", "table.grid >> nth=1"),
    (f"{WRITTEN}&token=1", "Alternatives", "section table"),
    (f"{WRITTEN}&token=1", "Written text", "div:has(> .story)"),
    (f"{WRITTEN}&branch=0.2.104&branch=1.3.105", "Branches", "ol.branches"),
]  # fmt: skip


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("view", "title", "element"), VIEWS, ids=[title for _, title, _ in VIEWS])
def test_a_picture_is_what_the_page_shows(browser, address, view, title, element, theme):
    context = browser.new_context(
        color_scheme=theme, device_scale_factor=2, viewport={"width": 1280, "height": 2000}
    )
    page = context.new_page()
    page.goto(f"{address}/#{view}")
    submit(page)
    save = page.get_by_role("button", name=f"Download {title} as PNG")
    save.wait_for()
    page.mouse.move(0, 0)
    page.wait_for_timeout(300)
    buttons = "document.querySelectorAll('main button:not(.pictured)')"
    hide = f"for (const each of {buttons}) each.style.opacity = 0"
    page.evaluate(f"() => {{ {hide} }}")  # pictures have no buttons
    shown = Image.open(io.BytesIO(page.locator(element).screenshot(animations="disabled")))
    with page.expect_download() as download:
        save.click()
    saved = Image.open(download.value.path())
    context.close()
    place = 2 * MARGIN, 2 * (MARGIN + HEAD)
    part = saved.crop((*place, place[0] + shown.width, place[1] + shown.height))
    # The page lies between the pixels of a picture, so means over 16 x 16 pixels are compared.
    seen, drawn = (np.asarray(each.convert("RGB").reduce(16), float) for each in (shown, part))
    assert seen.std() > 3.0  # not an empty picture
    assert abs(seen - drawn).mean() < 2.5


def rows_of(page, title):
    with page.expect_download() as download:
        page.get_by_role("button", name=f"Download {title} as CSV").click()
    return [*csv.reader(download.value.path().read_text("utf-8").splitlines())]


def test_the_data_of_the_pictures(open_view, folder):
    tokenizer = Tokenizer.load(folder / "plain")
    page = open_view("tokens?model=plain&text=the+theme&token=1")
    submit(page)
    page.locator(".trees .node").first.wait_for()
    assert [int(row[2]) for row in rows_of(page, "Tokens")[1:]] == tokenizer.encode("the theme")
    merges = rows_of(page, "Merges of ␣theme")
    assert merges[0] == ["depth", "token", "id", "rank"]
    assert merges[2] == ["0", "the", "257", "1"]
    assert merges[3] == ["1", "th", "256", "0"]
    page = open_view("inside?model=plain&text=the+mouse")
    submit(page)
    page.locator("canvas").wait_for()
    trace = load(folder / "plain", threads=1).trace("the mouse")
    norms = rows_of(page, "Norms of the residual stream")[1:]
    for row, own in zip(norms, trace.residual_norms, strict=True):
        assert [float(value) for value in row[1:]] == pytest.approx(own.tolist(), abs=1e-3)


def test_the_data_of_a_written_text_and_its_branches(open_view, folder):
    model = load(folder / "plain", threads=1)
    page = open_view(f"{WRITTEN}&branch=0.2.104")
    submit(page)
    page.locator(".branches li").nth(1).wait_for()
    page.locator("p.story [role=button]").nth(2).wait_for()
    text, branches = (rows_of(page, title) for title in ("Written text", "Branches"))
    options = {"max_tokens": 3, "temperature": 0.8, "top_p": 0.95, "seed": 0}
    first = list(model.generate("the", **options).tokens)
    assert text[0] == ["token", "id", "probability"]
    assert [int(row[1]) for row in text[1:3]] == [first[0].id, 104]
    assert float(text[1][2]) == pytest.approx(np.exp(first[0].log_probability), rel=1e-4)
    assert branches[0] == ["branch", "leaves branch", "at token", "tokens", "text"]
    assert [row[:4] for row in branches[1:]] == [["0", "", "", "3"], ["1", "0", "2", "3"]]


def test_a_link_restores_the_chosen_token(open_view):
    page = open_view("read?model=plain&text=the+mouse")
    submit(page)
    page.locator("p.text [role=button]").nth(2).click()
    said = page.locator(".card h2").inner_text()
    assert "token=2" in page.url
    again = open_view(page.url.partition("#")[2])
    submit(again)
    again.locator(".card h2").wait_for()
    assert again.locator(".card h2").inner_text() == said
    assert again.locator("p.text [role=button].chosen").count() == 1
    again.locator("textarea").fill("the")
    submit(again)
    wait_until(again, "document.querySelectorAll('p.text [role=button]').length === 1")
    assert again.locator(".card").count() == 0  # once


def test_arrow_keys_move_between_tokens(open_view):
    page = open_view("tokens?model=plain&text=the+mouse")
    submit(page)
    page.locator("p.text [role=button]").first.focus()
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.locator(".trees .node").first.wait_for()
    assert "token=2" in page.url
    page.keyboard.press("Shift+Tab")  # the text is one stop
    assert not page.evaluate("document.activeElement.matches('p.text [role=button]')")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.classList.contains('chosen')")
