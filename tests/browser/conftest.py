"""A real browser: playwright with Debian's Chromium (`apt-get install chromium`).

Pages must not make requests or log errors; the fixture `open_page` checks this after each test.
"""

import os
import shutil

import pytest

CHROMIUM = os.environ.get("TILTH_CHROMIUM") or shutil.which("chromium")


@pytest.fixture(scope="session")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("there is no chromium; install it, or set TILTH_CHROMIUM to its path")
    with sync_api.sync_playwright() as playwright:
        # Containers seldom have the rights that a sandbox needs.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser):
    """Open a file, as `open_page(path, theme="light", width=1280)`."""
    contexts, complaints = [], []

    def open_page(path, theme="light", width=1280):
        context = browser.new_context(
            color_scheme=theme, viewport={"width": width, "height": 900}, offline=True
        )
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: requests_of(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(path.resolve().as_uri())
        return page

    def requests_of(url):
        if not url.startswith(("file:", "data:", "blob:")):
            complaints.append(f"request to {url}")

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
