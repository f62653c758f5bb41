"""The login of a studio that other machines reach."""

import re
import subprocess
import sys

import pytest

from tests.studio.conftest import folder

pytestmark = pytest.mark.browser
__all__ = ["folder"]


@pytest.fixture(scope="module")
def server(folder):
    """The address of a studio with `--host`, and the token that it printed."""
    command = ["-m", "tilth", "studio", str(folder), "--host", "0.0.0.0", "--port", "0"]
    child = subprocess.Popen([sys.executable, *command], stderr=subprocess.PIPE, text=True)
    said = [child.stderr.readline() for _ in range(3)]
    port = re.search(r":(\d+)$", said[2].strip())[1]
    yield f"http://127.0.0.1:{port}", said[0].split()[1]
    child.terminate()
    child.wait(20)
    child.stderr.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_login(browser, server, theme):
    address, token = server
    context = browser.new_context(color_scheme=theme, viewport={"width": 360, "height": 700})
    page = context.new_page()
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"{address}/#tokens?model=plain&text=the+mouse")
    field = page.get_by_label("Token")
    assert page.url.startswith(f"{address}/login")
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    found = axe.run(page).response["violations"]
    assert not [each["id"] for each in found if each["impact"] in ("serious", "critical")]
    field.fill("wrong")
    field.press("Enter")
    page.locator("#problem", has_text="this is not the token").wait_for()
    field.fill(token)
    field.press("Enter")
    page.locator("textarea").wait_for()
    assert page.locator("textarea").input_value() == "the mouse"  # the view that was asked for
    assert token not in page.url
    assert page.evaluate("document.cookie") == ""
    (cookie,) = context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    again = context.new_page()
    again.goto(f"{address}/#cost")
    again.locator(".costs table").first.wait_for()
    assert errors == []
    context.close()
