"""The page Cost in a browser: sliders, numbers that open, charts, links, both themes."""

import pytest

from tests.browser.test_studio import address, open_view
from tests.studio.conftest import folder
from tilth.accounting import account

pytestmark = pytest.mark.browser
__all__ = ["address", "folder", "open_view"]


@pytest.fixture
def open_cost(open_view):
    def open_cost(fields="subject=gpt2-xl", *options, **more):
        return open_view(f"cost?{fields}", *options, wait_for=".costs table", **more)

    return open_cost


def number(page, path):
    return page.locator(f'button[data-path="{path}"]').first


@pytest.mark.parametrize("width", [360, 1280, 2560])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_fits_and_opens(open_cost, theme, width):
    page = open_cost("subject=gpt2-xl", theme, width)
    number(page, "flops.forward").click()
    page.locator(".explanation").wait_for()
    page.locator(".chart .main-svg").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    forward = account("gpt2-xl").forward_flops
    assert number(page, "flops.forward").inner_text() == f"{forward:,}"
    assert page.locator(".formula").last.inner_text().split()[-1] == f"{forward:,}"


def test_sliders_fields_and_links(open_cost):
    page = open_cost()
    page.locator("#cost-num_layers-slider").fill("23")  # the place of 24
    expected = account("gpt2-xl", num_layers=24).parameters.total
    page.locator('button[data-path="parameters.total"]', has_text=f"{expected:,}").wait_for()
    assert page.locator("#cost-num_layers").input_value() == "24"
    page.locator("#cost-batch_size").fill("12")
    page.locator("#cost-hardware").select_option("a100")
    page.locator("#cost-recompute").check()
    changed = account("gpt2-xl", num_layers=24, batch_size=12, hardware="a100", recompute=True)
    step = f"{changed.flops_per_step:,}"
    page.locator('button[data-path="flops.per_step"]', has_text=step).wait_for()
    number(page, "cost.seconds").click()
    page.locator(".explanation").wait_for()
    again = open_cost(page.url.partition("?")[2])  # the link restores the view
    assert number(again, "flops.per_step").inner_text() == step
    again.locator(".explanation").wait_for()
    assert number(again, "cost.seconds").get_attribute("aria-expanded") == "true"
    again.get_by_role("button", name="Reset").click()
    whole = f"{account('gpt2-xl').flops_per_step:,}"
    again.locator('button[data-path="flops.per_step"]', has_text=whole).wait_for()


def test_a_number_leads_to_the_numbers_in_it(open_cost):
    page = open_cost()
    number(page, "memory.implementation.peak_bytes").press("Enter")
    page.locator(".term", has_text="optimizer state").click()
    page.locator(".explanation").nth(1).wait_for()
    again = open_cost(page.url.partition("?")[2])  # the link has the followed terms
    again.locator(".explanation").nth(1).wait_for()
    paths = [
        [card.get_attribute("data-path") for card in each.locator(".explanation").all()]
        for each in (page, again)
    ]
    assert paths[0] == paths[1]
    assert len(paths[0]) == 2
    page.locator(".explanation").nth(1).locator("summary").first.click()
    here = page.locator(".explanation").nth(1).locator(".source.here").first
    assert "optimizer_state_elements" in here.inner_text() or "WIDE" in here.inner_text()
    number(page, "memory.implementation.peak_bytes").press("Enter")
    assert page.locator(".explanation").count() == 0


def test_an_impossible_shape_is_a_sentence(open_cost):
    page = open_cost(expected="400 (Bad Request)")
    page.locator("#cost-num_heads").fill("7")
    page.locator("#problem", has_text="is not a multiple of num_heads 7").wait_for()
    assert page.locator(".costs table").count() > 3  # the last account stays
    page.locator("#cost-num_heads").fill("10")
    page.locator("#problem").wait_for(state="hidden")


def test_charts_are_downloaded(open_cost):
    page = open_cost()
    page.locator(".chart .main-svg").first.wait_for()
    with page.expect_download() as caught:
        page.get_by_label("Download Parameters by component as CSV").click()
    rows = caught.value.path().read_text().splitlines()
    parameters = account("gpt2-xl").parameters
    assert rows[:3] == [
        ",parameters",
        f"embedding,{parameters.embedding}",
        f"attention,{parameters.attention}",
    ]
    with page.expect_download() as caught:
        page.get_by_label("Download FLOPs by context length as PNG").click()
    assert caught.value.path().read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_accessibility(open_cost, theme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = open_cost("subject=gpt2-xl&hardware=a100&hours=3", theme)
    number(page, "flops.forward").click()
    page.locator(".explanation summary").first.click()
    page.locator(".chart .main-svg").first.wait_for()
    found = axe.run(page).response["violations"]
    serious = [each for each in found if each["impact"] in ("serious", "critical")]
    assert not serious, [(each["id"], each["nodes"][0]["html"]) for each in serious]
