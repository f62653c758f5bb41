"""The page Runs in a browser: driven as a person would, and while a training writes."""

import csv
import json
import re
import shutil
import subprocess
import sys

import pytest

from tests.browser.test_studio import folder, open_view, wait_until
from tests.studio.conftest import LAB
from tests.studio.test_run_logs import evaluation, line
from tilth.report.lab_file import save_lab
from tilth.runs.run import open_run

pytestmark = pytest.mark.browser
__all__ = ["folder", "open_view"]


def write_log(run, steps, loss):
    with (run / "metrics.jsonl").open("w") as file:
        for step in range(1, steps + 1):
            values = {"evaluation": evaluation(step)} if step % 50 == 0 else {}
            if step % 20 == 0:
                values["norms"] = {"activations": {f"layers.{i}": 1.0 + i for i in range(3)}}
            file.write(line(step, loss=loss + 3 / step, **values))
    text = {"prompt": "the", "text": "the <b>fox</b><script>alert(1)</script>"}
    (run / "samples.jsonl").write_text(json.dumps({"step": steps, **text}) + "\n")


@pytest.fixture(scope="module")
def studied(folder, tmp_path_factory):
    """A folder with three runs, one damaged."""
    studied = tmp_path_factory.mktemp("studied")
    for place, name in enumerate(("first", "<img src=x>", "damaged")):
        shutil.copytree(folder / "plain", studied / name)
        config = studied / name / "config.toml"
        config.write_text(config.read_text().replace("seed = 0", f"seed = {place}"))
        write_log(studied / name, 200 + 100 * place, 1.0 + place)
    (studied / "damaged/metrics.jsonl").write_text("{}\n")
    return studied


@pytest.fixture(scope="module")
def address(studied):
    """The address of a studio of the folder, in a process of its own."""
    command = [sys.executable, "-m", "tilth", "studio", str(studied), "--port", "0"]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    child.stderr.readline()
    yield re.search(r"http://\S+", child.stderr.readline())[0]
    child.terminate()
    child.wait(20)
    child.stderr.close()


@pytest.fixture
def open_runs(open_view):
    def open_runs(view="runs", *arguments, **options):
        page = open_view(view, *arguments, wait_for="table.runs tbody tr", **options)
        page.locator(".plot .xtick").first.wait_for()
        return page

    return open_runs


def lines_of(page):
    return page.evaluate("document.querySelector('.plot').data.map((d) => [d.name, d.x, d.y])")


def rows_of(page):
    return page.locator("table.runs tbody th").all_inner_texts()


@pytest.mark.parametrize("width", [360, 1280, 2560])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_fits_and_is_accessible(open_runs, theme, width):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = open_runs("runs", theme, width)
    page.locator("article.card").first.wait_for()
    page.locator(".plot .xtick").nth(3).wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    found = axe.run(page).response["violations"]
    serious = [each for each in found if each["impact"] in ("serious", "critical")]
    assert not serious, [(each["id"], each["nodes"][0]["html"]) for each in serious]


def test_numbers_equal_those_of_python(open_runs, studied):
    page = open_runs("runs?run=first&smooth=1")
    records = open_run(studied / "first").metrics()
    name, x, y = lines_of(page)[0]
    assert name == "first"
    assert x == [record.step for record in records]
    assert y == pytest.approx([record.loss for record in records], abs=0)
    row = page.locator("table.runs tbody tr", has=page.locator("th", has_text="first"))
    cells = row.locator("td").all_inner_texts()
    assert cells[1] == "finished"
    assert cells[2].endswith("200 of 5")
    assert cells[3] == f"{records[-1].loss:.4f}"
    assert cells[4] == f"{records[-1].evaluation.loss:.4f}"


def test_choose_sort_and_filter(open_runs):
    page = open_runs()
    assert sorted(rows_of(page)) == ["<img src=x>", "damaged", "first"]
    assert page.locator("table.runs img").count() == 0
    page.get_by_role("button", name="Loss", exact=True).click()
    assert rows_of(page) == ["first", "<img src=x>", "damaged"]
    page.get_by_role("button", name="Loss", exact=True).click()
    assert rows_of(page) == ["<img src=x>", "first", "damaged"]
    page.get_by_label("Filter by name").fill("FIR")
    assert rows_of(page) == ["first"]
    page.get_by_label("Filter by name").fill("")
    page.get_by_label("State").select_option("damaged")
    assert rows_of(page) == ["damaged"]
    assert "has a damaged line" in page.locator("table.runs tbody").inner_text()
    page.get_by_label("State").select_option("")
    page.get_by_label("Compare first").uncheck()
    wait_until(page, "document.querySelector('.plot').data.every((d) => d.name !== 'first')")
    page.reload()
    page.locator(".plot .xtick").first.wait_for()
    assert not page.get_by_label("Compare first").is_checked()
    assert rows_of(page) == ["<img src=x>", "first", "damaged"]


def test_differences_samples_norms_and_commands(open_runs, studied):
    page = open_runs("runs?run=first&run=%3Cimg+src%3Dx%3E")
    page.get_by_role("heading", name="Differences of the configs").wait_for()
    row = page.locator("tr", has=page.locator("code", has_text="seed"))
    assert row.locator("td").all_inner_texts() == ["0", "1"]
    card = page.locator("article.card").first
    text = open_run(studied / "first").samples()[-1].text
    assert text == "the <b>fox</b><script>alert(1)</script>"
    assert card.locator("blockquote").inner_text() == text
    assert page.locator("article.card script, article.card b").count() == 0
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_label("Copy the command of first").click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("tilth train --config ")
    assert "first/config.toml" in copied
    page.locator(".plot").nth(1).locator(".js-line").nth(2).wait_for(state="attached")
    names = page.evaluate("document.querySelectorAll('.plot')[1].data.map((d) => d.name)")
    assert names == ["layer 0", "layer 1", "layer 2"]


def test_axes_smoothing_zoom_and_csv(open_runs, studied, tmp_path):
    page = open_runs("runs?run=first")
    for name, option in (("Over", "tokens"), ("Value", "grad_norm"), ("Smoothing", "10")):
        page.get_by_role("combobox", name=name, exact=True).select_option(option)
    page.get_by_label("log x").check()
    wait_until(page, "document.querySelector('.plot').data[0]?.fill === 'toself'")
    wait_until(page, "document.querySelector('.plot').layout.xaxis.type === 'log'")
    assert page.evaluate("document.querySelector('.plot').data[1].x.at(-1)") == 512 * 200
    page.get_by_label("log x").uncheck()
    page.get_by_label("Zoom in").click()
    wait_until(page, "location.hash.includes('from=')")
    begin, end = page.evaluate("document.querySelector('.plot').layout.xaxis.range")
    assert 10_000 < begin < end < 90_000
    address = page.url
    page.get_by_label("Show the whole range").click()
    wait_until(page, "!location.hash.includes('from=')")
    with page.expect_download() as waited:
        page.get_by_label("Download Curves as CSV").click()
    waited.value.save_as(tmp_path / "curves.csv")
    rows = list(csv.reader((tmp_path / "curves.csv").read_text().splitlines()))
    assert rows[0] == ["run", "curve", "tokens", "grad_norm"]
    assert {row[1] for row in rows[1:]} == {"mean of 10 steps", "minimum", "maximum"}
    assert {float(row[3]) for row in rows[1:]} == {1.5}
    page.goto("about:blank")
    page.goto(address)
    page.locator(".plot .xtick").first.wait_for()
    shown = page.evaluate("document.querySelector('.plot').layout.xaxis.range")
    assert shown == pytest.approx([begin, end], rel=0.01)


def test_a_zoom_of_both_axes_and_the_drag_mode_are_in_the_link(open_runs):
    page = open_runs("runs?run=first&value=lr")
    page.locator(".plot .xtick").first.wait_for()
    box = page.locator(".plot .nsewdrag").first.bounding_box()
    page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.3 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 0.8 * box["height"], steps=5)
    page.mouse.up()
    wait_until(page, "location.hash.includes('top=') && location.hash.includes('from=')")
    page.get_by_role("combobox", name="Dragging").select_option("pan")
    axes = "['xaxis', 'yaxis'].map((name) => document.querySelector('.plot').layout[name].range)"
    ranges = page.evaluate(axes)
    again = open_runs(page.url.partition("#")[2])
    again.locator(".plot .xtick").first.wait_for()
    for found, expected in zip(again.evaluate(axes), ranges, strict=True):
        assert found == pytest.approx(expected, rel=1e-6)
    assert again.evaluate("document.querySelector('.plot').layout.dragmode") == "pan"
    again.get_by_label("Show the whole range").click()
    wait_until(again, "!location.hash.includes('top=') && !location.hash.includes('from=')")
    wait_until(again, "document.querySelector('.plot').layout.yaxis.autorange")


def test_a_training_is_drawn_as_it_comes(open_runs, studied):
    """Without a reload: new steps, a torn line, a sample."""
    page = open_runs("runs?run=first&smooth=1")
    log = studied / "first/metrics.jsonl"
    last = "document.querySelector('.plot').data[0].x.at(-1)"
    before = log.read_text()
    samples = (studied / "first/samples.jsonl").read_text()
    try:
        with log.open("a") as file:
            file.write(line(201, loss=50.0) + line(202)[:30])
        wait_until(page, f"{last} === 201")
        with log.open("a") as file:
            file.write(line(202)[30:])
        wait_until(page, f"{last} === 202")
        assert 50.0 in lines_of(page)[0][2]
        with (studied / "first/samples.jsonl").open("a") as file:
            file.write(json.dumps({"step": 202, "text": "a new text"}) + "\n")
        page.locator("article.card blockquote", has_text="a new text").wait_for()
        page.locator("table.runs td", has_text="202 of 5").wait_for()
    finally:
        log.write_text(before)
        (studied / "first/samples.jsonl").write_text(samples)


def test_a_lab_shows_its_answer(open_runs, studied):
    for name in ("0", "1"):
        shutil.copytree(studied / "first", studied / "lr/runs" / name)
    save_lab(studied / "lr", LAB)
    try:
        page = open_runs()
        page.locator("table.runs tbody tr").nth(4).wait_for()
        page.get_by_label("Lab", exact=True).select_option("lr")
        place = page.locator(".lab")
        place.get_by_role("heading", name=LAB.asks).wait_for()
        assert place.locator(".answer").inner_text() == "1e-3 <b>is best</b>."
        assert place.locator("blockquote").inner_text() == "the <i>mouse</i>"
        assert place.locator("td").all_inner_texts()[:4] == ["1e-3", "2.5", "1e-2", "–"]
        assert rows_of(page) == ["lr/runs/0", "lr/runs/1"]
        wait_until(page, "document.querySelector('.lab .plot').data?.[0].y.join() === '2.5,3'")
        page.get_by_role("button", name="Choose all").click()
        wait_until(page, "document.querySelectorAll('.lines li').length === 2")
        again = open_runs(page.url.partition("#")[2])
        again.locator(".lab").get_by_role("heading", name=LAB.asks).wait_for()
        assert rows_of(again) == ["lr/runs/0", "lr/runs/1"]
        again.get_by_role("button", name="Choose none").click()
        wait_until(again, "document.querySelectorAll('.lines li').length === 0")
    finally:
        shutil.rmtree(studied / "lr")


def test_an_empty_folder_says_what_to_do(open_view, tmp_path, browser):
    command = [sys.executable, "-m", "tilth", "studio", str(tmp_path), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as child:
        child.stderr.readline()
        page = browser.new_page()
        page.goto(re.search(r"http://\S+", child.stderr.readline())[0])
        for name in ("Runs", "Tokens", "Inside"):
            page.get_by_role("link", name=name).click()
            page.get_by_role("heading", name=name).wait_for()
            page.locator(".steps code", has_text="tilth demo").wait_for()
        page.close()
        child.terminate()
