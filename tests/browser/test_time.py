"""The page Time, and two models compared on the page Read, in a browser; links and the docs."""

import csv
import math

import pytest

from tests.browser.conftest import CHROMIUM
from tests.browser.test_studio import address, open_view, submit, wait_until
from tests.studio.conftest import folder
from tilth.generation import load

pytestmark = pytest.mark.browser
__all__ = ["address", "folder", "open_view"]

STEPS = [0, 1, 2, 4, 5]
FIELDS = "model=plain&text=the+mouse&prompt=the&max_tokens=8&seed=3"


def bits_per_byte(folder, step, text="the mouse"):
    scored = load(folder / "plain", step=step, threads=1).score(text, alternatives=5)
    return math.fsum(-token.log_probability for token in scored) / math.log(2) / len(text)


def read(page):
    submit(page)
    page.locator("[role=status]", has_text="5 checkpoints.").wait_for()


def first_total(page):
    return page.locator(".moment .totals dd").first.inner_text()


@pytest.mark.parametrize("width", [360, 1280, 2560])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_fits_and_shows_the_numbers_of_python(open_view, folder, theme, width):
    page = open_view(f"time?{FIELDS}", theme, width)
    read(page)
    page.locator(".chart .js-line").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    slider = page.get_by_role("slider", name="Checkpoint")
    slider.focus()
    page.keyboard.press("Home")
    for place, step in enumerate(STEPS):
        if place:
            page.keyboard.press("ArrowRight")
        page.locator(".moment h2", has_text=f"Step {step} of 5").wait_for()
        assert slider.get_attribute("aria-valuetext") == f"step {step}"
        assert first_total(page) == f"{bits_per_byte(folder, step):.4f}"
        model = load(folder / "plain", step=step, threads=1)
        options = {"temperature": 0.8, "top_p": 0.95, "max_tokens": 8, "seed": 3}
        written = "".join(model.generate("the", **options))
        assert page.locator(".moment .story").text_content() == "the" + written


def test_a_link_restores_the_moment_and_computes_nothing(open_view, folder):
    page = open_view(f"time?{FIELDS}&at=2&axis=linear")
    page.locator(".moment h2", has_text="Step 2").wait_for()
    page.wait_for_timeout(300)
    assert page.locator(".moment .totals").count() == 0
    assert not page.get_by_label("log steps").is_checked()
    read(page)
    assert first_total(page) == f"{bits_per_byte(folder, 2):.4f}"
    page.get_by_role("slider").focus()
    page.keyboard.press("ArrowLeft")
    assert "at=1" in page.url
    again = open_view(page.url.partition("#")[2])
    again.locator(".moment h2", has_text="Step 1").wait_for()
    assert again.get_by_label("Seed").input_value() == "3"


def test_the_chosen_token_stays_over_the_steps_and_in_the_link(open_view):
    page = open_view(f"time?{FIELDS}&at=2")
    read(page)
    page.locator(".moment p.text [role=button]").nth(2).click()
    said = page.locator(".card h2").inner_text()
    assert "token=2" in page.url
    page.get_by_role("slider").focus()
    page.keyboard.press("ArrowLeft")
    assert page.locator(".card h2").inner_text() != said  # the same token has other bits
    page.keyboard.press("ArrowRight")
    again = open_view(page.url.partition("#")[2])
    read(again)
    assert again.locator(".card h2").inner_text() == said
    again.locator("textarea").first.fill("the")
    read(again)
    assert again.locator(".card").count() == 0
    assert "token=" not in again.url


def test_the_curve_downloads_and_leads_to_its_points(open_view, folder):
    page = open_view(f"time?{FIELDS}")
    read(page)
    page.locator(".chart .js-line").first.wait_for()
    save = "Download Bits per byte over the training as"
    with page.expect_download() as download:
        page.get_by_role("button", name=f"{save} CSV").click()
    rows = [*csv.reader(download.value.path().read_text("utf-8").splitlines())]
    assert rows[0] == ["line", "step", "bits per byte"]
    found = {int(step): float(value) for line, step, value in rows[1:] if line == "this text"}
    assert found == {step: pytest.approx(bits_per_byte(folder, step), rel=1e-12) for step in STEPS}
    with page.expect_download() as download:
        page.get_by_role("button", name=f"{save} PNG").click()
    assert download.value.path().read_bytes().startswith(b"\x89PNG")
    box = page.locator(".plot .points path").nth(1).bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_timeout(300)
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    wait_until(page, "!document.querySelector('.moment h2').textContent.startsWith('Step 5')")


def test_it_works_without_webgl(browser, address):
    options = ["--no-sandbox", "--disable-3d-apis"]
    plain = browser.browser_type.launch(executable_path=CHROMIUM, args=options)
    page = plain.new_page()
    page.goto(f"{address}/#time?{FIELDS}")
    assert page.evaluate("document.createElement('canvas').getContext('webgl')") is None
    read(page)
    page.locator(".chart .js-line").first.wait_for()
    plain.close()


def test_play_and_stop(open_view):
    page = open_view(f"time?{FIELDS}&at=4")
    read(page)
    page.get_by_role("slider").focus()
    page.keyboard.press("Space")
    page.locator(".moment h2", has_text="Step 5").wait_for()
    page.get_by_role("button", name="Play").wait_for()
    page.locator(".moment p.text [role=button]").first.click()
    page.locator(".card .bars li").first.wait_for()


def test_two_checkpoints_token_by_token(open_view, folder):
    page = open_view("read?model=plain&text=the+mouse&other=plain&step=1&other_step=4")
    submit(page)
    page.locator("p.text [role=button]").first.wait_for()
    cells = page.locator(".compared tbody tr").first.locator("td").all_inner_texts()
    values = [bits_per_byte(folder, step) for step in (1, 4)]
    assert cells[:2] == [f"{value:.4f}" for value in values]
    assert float(cells[2].replace("−", "-")) == pytest.approx(values[1] - values[0], abs=1e-4)
    scored = [
        load(folder / "plain", step=step).score("the mouse", alternatives=5) for step in (1, 4)
    ]
    titles = [each.get_attribute("title") for each in page.locator("p.text [role=button]").all()]
    bits = [[-token.log_probability / math.log(2) for token in each] for each in scored]
    assert titles == [f"{a:.2f} and {b:.2f} bits" for a, b in zip(*bits, strict=True)]
    page.locator("p.text [role=button]").first.click()
    assert page.locator(".card").count() == 2
    with page.expect_download() as download:
        page.get_by_role("button", name="Download Difference in bits as CSV").click()
    rows = [*csv.reader(download.value.path().read_text("utf-8").splitlines())][1:]
    assert [float(row[1]) for row in rows] == pytest.approx(bits[0], rel=1e-12)
    again = open_view(page.url.partition("#")[2])
    wait_until(again, "document.querySelectorAll('form select').length === 3")
    wait_until(again, "document.querySelector('form select').options.length === 6")
    values = again.locator("form select").evaluate_all("all => all.map((each) => each.value)")
    assert values == ["1", "plain", "4"]
    assert again.locator("p.text").count() == 0


def test_a_link_restores_branches(open_view):
    page = open_view(
        "write?model=plain&seed=3&max_tokens=12&prompt=the&temperature=0.8&top_p=0.95&min_p=0"
    )
    submit(page)
    page.locator("[role=status]", has_text="stopped").wait_for()
    page.locator("p.story [role=button]").nth(2).click()
    page.locator("td button").first.click()
    page.locator(".branches li").nth(1).wait_for()
    page.locator("[role=status]", has_text="stopped").wait_for()
    page.locator("p.story [role=button]").nth(6).click()
    page.locator("td button").nth(1).click()
    page.locator(".branches li li li").wait_for()  # a branch of a branch
    page.locator("[role=status]", has_text="stopped").wait_for()
    page.locator(".branches button").nth(1).click()
    page.locator("p.story [role=button]").nth(4).click()
    page.locator("p.story [role=button].chosen").wait_for()
    told = page.locator("p.story").inner_text()
    names = page.locator(".branches button").all_inner_texts()
    assert "branch=0.3." in page.url
    assert "branch=1.7." in page.url
    assert page.url.endswith("chosen=1&token=4")
    again = open_view(page.url.partition("#")[2])
    assert again.locator("p.story [role=button]").count() == 0
    submit(again)
    again.locator("p.story [role=button].chosen").wait_for()
    assert again.locator("p.story").inner_text() == told
    assert again.locator(".branches button").all_inner_texts() == names
    assert again.locator("section table").inner_text() == page.locator("section table").inner_text()
    assert again.url == page.url


def test_attention_downloads_and_its_head_is_in_the_link(open_view, folder):
    page = open_view("inside?model=plain&text=the+mouse&layer=1&head=2")
    submit(page)
    page.locator("canvas").wait_for()
    assert "layer=1" in page.url
    assert "head=2" in page.url
    page.locator("canvas").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    weight = load(folder / "plain", threads=1).trace("the mouse").attention[1][2][2][1]
    said = page.locator(".scroll:has(canvas) + [role=status]").inner_text()
    assert float(said.split(": ")[1].rstrip("%")) == pytest.approx(100 * weight, abs=0.3)
    with page.expect_download() as download:
        page.get_by_role("button", name="Download Attention as CSV").click()
    rows = [*csv.reader(download.value.path().read_text("utf-8").splitlines())][1:]
    expected = load(folder / "plain", threads=1).trace("the mouse").attention[1][2]
    for row, own in zip(rows, expected, strict=True):
        assert [float(value) for value in row[2:]] == pytest.approx(own.tolist(), abs=0.5 / 255)
    with page.expect_download() as download:
        page.get_by_role("button", name="Download Attention as PNG").click()
    assert download.value.path().read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["runs", "tokens", "write", "read", "inside", "time", "cost"])
def test_notions_lead_to_the_docs(open_view, name):
    page = open_view(name, wait_for=".notions summary")
    page.locator(".notions summary").click()
    targets = [each.get_attribute("href") for each in page.locator(".notions a").all()]
    assert targets
    for target in targets:
        docs = open_view(target.removeprefix("#"), wait_for="article h1")
        assert docs.locator("article p").count() > 3
        assert docs.locator("article", has_text="has no page").count() == 0
