"""The page Tokens in a browser: two tokenizers side by side, and the film of merges."""

import pytest

from tests.browser.test_studio import address, open_view
from tests.studio.conftest import folder
from tilth.tokenizer import Tokenizer, train_tokenizer

pytestmark = pytest.mark.browser
__all__ = ["address", "folder", "open_view"]
TEXT = "the mouse and the theme"


@pytest.fixture(scope="module", autouse=True)
def trained(folder):
    tokenizer = train_tokenizer(
        texts=["the mouse and the theme of the thesis " * 5], vocab_size=275
    )
    tokenizer.save(folder / "trained.json")
    return tokenizer


def test_side_by_side(open_view, folder, trained):
    page = open_view(f"tokens?model=plain&text={TEXT.replace(' ', '+')}&other=trained.json")
    page.get_by_role("button", name="Split into tokens").click()
    page.locator(".compared").wait_for()
    plain = Tokenizer.load(folder / "plain")
    counts = page.locator(".compared tbody tr").first.locator("td").all_inner_texts()
    assert counts == [str(len(plain.encode(TEXT))), str(len(trained.encode(TEXT)))]
    sides = page.locator(".sides section")
    assert [side.locator(".text").inner_text() for side in sides.all()] == [TEXT, TEXT]
    assert sides.nth(0).locator(".differs").count() > 0
    assert "other=trained.json" in page.url
    page.locator("#other").select_option("plain")
    page.get_by_role("button", name="Split into tokens").click()
    page.locator(".sides h2", has_text="plain").nth(1).wait_for()
    assert page.locator(".differs").count() == 0


@pytest.mark.parametrize("width", [360, 1280])
def test_film(open_view, trained, width):
    page = open_view("tokens?model=trained.json&sentence=the+theme", width=width)
    page.get_by_role("button", name="Show the merges").click()
    slider = page.get_by_label("Merges learned")
    slider.wait_for()
    status = page.locator(".film [role=status]")
    assert "9 single bytes" in status.inner_text()
    slider.press("ArrowRight")
    assert "Merge 1 of" in status.inner_text()
    assert page.locator(".film .new").count() >= 1
    slider.press("End")
    tokens = page.locator(".film .token").all_inner_texts()
    assert tokens == [trained.decode([i]).replace(" ", "␣") for i in trained.encode("the theme")]
    slider.press(" ")  # plays again from the beginning
    page.get_by_role("button", name="Pause").wait_for()
    page.locator(".film [role=status]", has_text="Merge 1 of").wait_for()
    slider.press(" ")
    page.get_by_role("button", name="Play").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert "sentence=the+theme" in page.url
    assert "frame=" in page.url


def test_reduced_motion(open_view):
    page = open_view("tokens?model=trained.json&sentence=the+theme")
    page.emulate_media(reduced_motion="reduce")
    page.get_by_role("button", name="Show the merges").click()
    page.get_by_label("Merges learned").press("ArrowRight")
    name = "getComputedStyle(document.querySelector('.token.new')).animationName"
    assert page.evaluate(name) == "none"
    page.emulate_media(reduced_motion="no-preference")
    assert page.evaluate(name) == "merged"
