"""The studio in a browser, driven as a person would: every page, both themes, three widths."""

import re
import subprocess
import sys

import pytest

from tests.studio.conftest import folder

pytestmark = pytest.mark.browser
__all__ = ["folder"]


@pytest.fixture(scope="module")
def address(folder):
    """The address of a studio with two runs, in a process of its own."""
    command = ["-m", "tilth", "studio", folder, "--port", "0"]
    child = subprocess.Popen(
        [sys.executable, *map(str, command), "--threads", "1"], stderr=subprocess.PIPE, text=True
    )
    said = [child.stderr.readline(), child.stderr.readline()]
    yield re.search(r"http://\S+", said[1])[0]
    child.terminate()
    child.wait(20)
    child.stderr.close()


@pytest.fixture
def open_view(browser, address):
    """Open a view, as `open_view("read?text=a", theme="dark", width=390)`.

    No message on the console but the expected ones, and no request to another server.
    """
    contexts, complaints = [], []

    def open_view(
        view, theme="light", width=1280, expected=None, wait_for="form button[type=submit]"
    ):
        viewport = {"width": width, "height": 900}
        context = browser.new_context(color_scheme=theme, viewport=viewport)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: check_message(message.text, expected))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: check_request(request.url))
        page.goto(f"{address}/#{view}")
        page.locator(wait_for).first.wait_for()
        return page

    def check_message(text, expected):
        if expected is None or expected not in text:
            complaints.append(text)

    def check_request(url):
        if not url.removeprefix("blob:").startswith(address):
            complaints.append(f"request to {url}")

    yield open_view
    for context in contexts:
        context.close()
    assert complaints == []


def wait_until(page, expression):
    """Wait in Python: in the page, the policy forbids to evaluate a text."""
    for _ in range(300):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(100)
    raise TimeoutError(expression)


def submit(page):
    page.locator("form button[type=submit]").first.click()


@pytest.mark.parametrize("width", [360, 1280, 2560])
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", ["tokens", "write", "read", "inside"])
def test_pages_fit_and_answer(open_view, name, theme, width):
    page = open_view(name, theme, width)
    if name == "write":
        page.locator("input").last.fill("12")
    submit(page)
    page.locator("p.text .token[role=button], table").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == {"light": "rgb(252, 252, 250)", "dark": "rgb(19, 22, 19)"}[theme]


def test_a_link_restores_a_view_and_submits_nothing(open_view):
    page = open_view("read?model=chatty&text=the+mouse")
    assert page.locator("textarea").input_value() == "the mouse"
    assert page.locator("#model").input_value() == "chatty"
    page.wait_for_timeout(300)
    assert page.locator("p.text").count() == 0
    submit(page)
    page.locator("p.text [role=button]").first.wait_for()
    assert "model=chatty" in page.url


def test_text_is_never_html(open_view):
    page = open_view("tokens")
    page.locator("textarea").fill("<img src=x onerror=alert(1)><script>alert(2)</script>")
    submit(page)
    page.locator("p.text .token[role=button]").first.wait_for()
    assert page.locator("p.text img, p.text script").count() == 0
    assert "<script>" in page.locator("p.text").inner_text()


def test_tokens_show_their_merges(open_view):
    page = open_view("tokens?text=the+mouse")
    submit(page)
    page.locator("p.text [role=button]").first.click()
    page.locator(".trees .node").first.wait_for()
    assert page.locator(".trees .node code").all_inner_texts() == ["the", "th", "t", "h", "e"]


def test_write_branch_and_stop(open_view):
    page = open_view("write?seed=3&max_tokens=20&prompt=the")
    submit(page)
    page.locator("[role=status]", has_text="stopped").wait_for()
    first = page.locator("p.story").inner_text()
    page.locator("p.story [role=button]").nth(2).click()
    page.locator("td button").first.click()
    page.locator(".branches li").nth(1).wait_for()
    page.locator("[role=status]", has_text="stopped").wait_for()
    assert page.locator("p.story").inner_text() != first
    page.locator(".branches button").first.click()
    assert page.locator("p.story").inner_text() == first
    submit(page)  # the same seed repeats
    page.locator("[role=status]", has_text="stopped").wait_for()
    assert page.locator("p.story").inner_text() == first
    page.locator("input").last.fill("2000")
    page.locator("input").first.fill("5")  # a temperature at which the end token is rare
    submit(page)
    page.locator("p.story [role=button]").first.wait_for()
    page.locator("form button.plain").click(force=True)
    page.locator("[role=status]", has_text="stopped").wait_for()


def test_inside_switches_parts_off(open_view):
    page = open_view("inside?text=the+mouse")
    submit(page)
    page.locator("canvas").wait_for()
    pixels = "document.querySelector('canvas').getContext('2d').getImageData(0, 0, 1, 1).data[3]"
    assert page.evaluate(pixels) == 255  # the first token can look at itself only
    assert page.locator(".totals dd").last.inner_text() == "+0.000"
    page.locator(".switch").first.click()
    page.locator(".switch[aria-pressed=false]").wait_for()
    assert page.locator(".totals dd").last.inner_text() != "+0.000"


def test_an_error_is_a_sentence(open_view):
    page = open_view("inside", expected="400 (Bad Request)")
    page.locator("textarea").fill("x " * 200)
    submit(page)
    page.locator("#problem", has_text="shorten it").wait_for()


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(
    "view",
    ["tokens", "write?max_tokens=12", "read", "read?other=chatty", "inside", "time?max_tokens=3"],
)
def test_accessibility(open_view, view, theme, width):
    """No serious finding of axe-core."""
    page = open_view(view, theme, width)
    page.locator(".notions summary").click()
    submit(page)
    page.locator("p.text .token[role=button], table").first.wait_for()
    page.wait_for_timeout(300)
    check_accessibility(page)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_docs_are_accessible(open_view, theme):
    check_accessibility(open_view("docs?page=generation.md", theme, 360, wait_for="article h1"))


def check_accessibility(page):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    found = axe.run(page).response["violations"]
    serious = [each for each in found if each["impact"] in ("serious", "critical")]
    assert not serious, [(each["id"], each["nodes"][0]["html"]) for each in serious]
