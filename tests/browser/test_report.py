"""Report pages in a browser: charts, controls, themes and narrow windows."""

import pytest

from tests.report.reporting import HOSTILE, config_of, falling, make_lab, make_run, make_toy
from tilth.report.writing import read_report, save_report

pytestmark = pytest.mark.browser
CURVES = "document.querySelector('.curves .chart')"
THEMES = {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 27)"}


@pytest.fixture(scope="module")
def lab_page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lab")
    make_lab(folder / "lab", steps=400)
    return save_report(read_report([folder / "lab"]), folder / "report.html")[0]


@pytest.fixture(scope="module")
def toy_page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("toy")
    make_toy(folder / "lab")
    return save_report(read_report([folder / "lab"]), folder / "report.html")[0]


def until(page, expression):
    """Wait for an expression; Playwright's own waiting needs eval, which the page forbids."""
    for _ in range(100):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"still not: {expression}")


def ready(page):
    """Wait until all charts are drawn."""
    until(page, "[...document.querySelectorAll('.chart')].every(c => c.querySelector('.trace'))")
    return page


def lines(page, kind):
    """The (name, number of points) of each curve of a kind."""
    return page.evaluate(
        f"{CURVES}.data.filter(t => t.meta === '{kind}').map(t => [t.name, t.y.length])"
    )


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("theme", THEMES)
def test_themes_and_widths(lab_page, open_page, theme, width):
    page = ready(open_page(lab_page, theme, width))
    assert page.title() == "Which learning rate is best?"
    assert page.locator(".chart .main-svg").count() >= 2
    colour = THEMES[theme]
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == colour
    fills = page.evaluate(
        "[...document.querySelectorAll('.main-svg')].map(s => s.style.background)"
    )
    assert colour in fills
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for chart in page.locator(".chart").all():
        box = chart.bounding_box()
        assert box["height"] > 200
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
    assert page.get_by_text("document.title = 'taken'").count() > 0  # shown, not run


def test_theme_change(lab_page, open_page):
    page = ready(open_page(lab_page, "light"))
    page.emulate_media(color_scheme="dark")
    until(page, f"{CURVES}.layout.paper_bgcolor === '#14171b'")


def test_curves(lab_page, open_page):
    page = ready(open_page(lab_page))
    labels = ["0.0001, seed 0", "0.001, seed 0", "0.01, seed 0", "0.01, seed 1", "0.1, seed 0"]
    assert lines(page, "train") == [[label, 400] for label in labels[:4]] + [[labels[4], 205]]
    assert [name for name, _ in lines(page, "validation")] == labels
    assert lines(page, "validation, mean") == [["lr 0.01 (2 seeds)", 10]]
    legend = page.locator(".curves .legendtext").all_text_contents()
    assert legend == ["lr 0.0001", "lr 0.001", "lr 0.01 (2 seeds)", "lr 0.1"]


def test_controls(lab_page, open_page):
    page = ready(open_page(lab_page))
    form = page.locator(".curves form")

    def layout(path):
        return page.evaluate(f"{CURVES}.layout.{path}")

    assert layout("xaxis.title.text") == "step"
    assert layout("yaxis.range")[1] < 10  # without the divergence
    form.get_by_label("time").check()
    assert layout("xaxis.title.text") == "training time (minutes)"
    assert page.evaluate(f"Math.max(...{CURVES}.data.flatMap(t => t.x))") == pytest.approx(200 / 60)
    form.get_by_label("tokens").check()
    assert page.evaluate(f"Math.max(...{CURVES}.data.flatMap(t => t.x))") == 400 * 256
    form.get_by_label("x", exact=True).check()
    form.get_by_label("y", exact=True).check()
    assert (layout("xaxis.type"), layout("yaxis.type")) == ("log", "log")
    form.get_by_label("50 steps").check()
    assert len(lines(page, "train, mean of 50 steps")) == 5
    form.get_by_label("train", exact=True).uncheck()
    assert lines(page, "train, mean of 50 steps") == []
    form.get_by_label("bits per byte").check()
    assert layout("yaxis.title.text") == "bits per byte"
    assert (
        page.evaluate(f"{CURVES}.data.filter(t => t.name === '0.001, seed 0')[0].y.at(-1)") == 2.5
    )
    assert form.get_by_label("validation").is_disabled()


def test_hover_and_zoom(lab_page, open_page):
    page = ready(open_page(lab_page))
    page.locator(".curves .chart").scroll_into_view_if_needed()
    box = page.locator(".curves .chart .nsewdrag").bounding_box()
    width, height = box["width"], box["height"]
    axis = f"{CURVES}._fullLayout"
    # The end of the first validation curve, in pixels of the plot.
    x = page.evaluate(f"{axis}.xaxis.d2p(400)")
    y = page.evaluate(
        f"{axis}.yaxis.d2p({CURVES}.data.find(t => t.meta === 'validation').y.at(-1))"
    )
    page.mouse.move(box["x"] + x - 3, box["y"] + y + 3)
    page.mouse.move(box["x"] + x, box["y"] + y)
    page.wait_for_selector(".curves .hovertext")
    assert "step 400: 4.15" in page.locator(".curves .hovertext").text_content()
    page.mouse.move(box["x"] + 0.2 * width, box["y"] + 0.2 * height)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * width, box["y"] + 0.7 * height, steps=5)
    page.mouse.up()
    until(page, f"{axis}.xaxis.range[1] < 300")
    zoomed = page.evaluate(f"{axis}.xaxis.range")
    page.get_by_label("10 steps", exact=True).check()
    assert page.evaluate(f"{axis}.xaxis.range") == zoomed  # smoothing keeps the zoom


def test_axis_chart(lab_page, open_page):
    page = ready(open_page(lab_page))
    axis = "document.querySelector('.axis .chart')"
    assert page.evaluate(f"{axis}.layout.xaxis.type") == "log"
    assert page.evaluate(f"{axis}.layout.xaxis.title.text") == "learning rate"
    assert page.evaluate(f"{axis}.data[1].x") == [1e-4, 1e-3, 1e-2, 1e-2]
    assert page.evaluate(f"{axis}.data[2].x") == [1e-1]
    assert page.evaluate(f"{axis}.data[2].marker.symbol") == "x"


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("theme", THEMES)
def test_lab_charts(toy_page, open_page, theme, width):
    page = ready(open_page(toy_page, theme, width))
    assert page.locator(".chart").count() == 2
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    first, second = (f"document.querySelectorAll('.lines .chart')[{n}]" for n in (0, 1))
    colours = {"light": "#ffffff", "dark": "#14171b"}
    assert page.evaluate(f"{first}.layout.paper_bgcolor") == colours[theme]
    assert page.evaluate(f"[{first}.layout.xaxis.type, {first}.layout.yaxis.type]") == [
        *("linear", "log")
    ]
    assert page.evaluate(f"[{second}.layout.xaxis.type, {second}.layout.yaxis.type]") == [
        *("log", "linear")
    ]
    assert page.evaluate(f"{second}.data.map(t => [t.x, t.y])") == [
        [[1, 10, 100], [0.5, 0.25, 0.125]]
    ]
    legend = page.locator(".lines .legendtext").all_text_contents()
    assert legend == ["lr 1", "lr 10", "lr 100", "lr 1000"]  # none for a single line
    titles = page.locator(".lines .ytitle, .lines .xtitle").all_text_contents()
    assert sorted(titles) == ["$loss$ & more", "learning rate <i>", "loss", "step"]
    assert page.get_by_text(HOSTILE.replace("\x1b", "\\x1b")).count() == 2  # shown, not run
    page.emulate_media(color_scheme="dark" if theme == "light" else "light")
    other = colours["dark" if theme == "light" else "light"]
    until(page, f"{first}.layout.paper_bgcolor === '{other}'")


def test_hover_over_a_line(toy_page, open_page):
    page = ready(open_page(toy_page))
    chart = page.locator(".lines .chart").nth(1)
    chart.scroll_into_view_if_needed()
    box = chart.locator(".nsewdrag").bounding_box()
    layout = "document.querySelectorAll('.lines .chart')[1]._fullLayout"
    x = page.evaluate(f"{layout}.xaxis.d2p(10)")
    y = page.evaluate(f"{layout}.yaxis.d2p(0.25)")
    page.mouse.move(box["x"] + x - 3, box["y"] + y + 3)
    page.mouse.move(box["x"] + x, box["y"] + y)
    page.wait_for_selector(".lines .hovertext")
    said = page.locator(".lines .hovertext").text_content()
    assert said == "after ten stepslearning rate <i>: 10$loss$ & more: 0.25"


def test_twenty_long_runs(tmp_path, open_page):
    for number in range(20):
        config = config_of(1e-3 * (1 + number // 2), number % 2, steps=10_000)
        make_run(tmp_path / f"runs/{number:02}", falling(10_000, 2 + number / 20, number), config)
    page = save_report(read_report([tmp_path / "runs"]), tmp_path / "report.html")[0]
    assert page.stat().st_size < 12e6
    opened = ready(open_page(page))
    points = [number for _, number in lines(opened, "train, mean of 200 steps")]
    assert len(points) == 20
    assert max(points) <= 1000
    # Redrawing is fast, so controls respond at once.
    milliseconds = opened.evaluate(
        "() => { const then = performance.now(); drawAll(); return performance.now() - then; }"
    )
    assert milliseconds < 5000
