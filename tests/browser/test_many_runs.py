"""500 runs of 100,000 steps: first paint, pan and zoom of 20 curves, and the cost of watching."""

import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from tests.browser.test_studio import folder, open_view, wait_until

pytestmark = [pytest.mark.browser, pytest.mark.slow]
__all__ = ["folder", "open_view"]

RUNS, STEPS, DISTINCT = 500, 100_000, 20
RECORD = (
    '{"step": %d, "tokens": %d, "seconds": %.3f, "loss": %.15g, "lr": 0.0003, "grad_norm": %.15g,'
    ' "tokens_per_second": 52345.6, "utilisation": 0.3127, "step_seconds": 0.012345%s}\n'
)
EVALUATION = ', "evaluation": {"loss": %.15g, "perplexity": 3.0, "bits_per_byte": 1.1, "tokens": 9}'


def write_log(path, seed):
    chance = np.random.default_rng(seed)
    losses = 1 + 0.05 * seed + 7 / np.sqrt(1 + np.arange(STEPS) / 300)
    losses += chance.normal(0, 0.1, STEPS)
    losses[STEPS // 2] = 20.0
    norms = chance.random(STEPS)
    with path.open("w") as file:
        for i, (loss, norm) in enumerate(
            zip(losses.tolist(), norms.tolist(), strict=True), start=1
        ):
            more = EVALUATION % loss if i % 1000 == 0 else ""
            file.write(RECORD % (i, 512 * i, i / 80, loss, norm, more))


@pytest.fixture(scope="module")
def many(folder, tmp_path_factory):
    """500 runs, as a run directory each; logs are hard links to 20 files of 22 MB."""
    many = tmp_path_factory.mktemp("many")
    for seed in range(DISTINCT):
        write_log(many / f"{seed}.log", seed)
    for number in range(RUNS):
        run = many / f"sweep-{number % 5}" / f"run-{number:03}"
        run.mkdir(parents=True)
        for name in ("manifest.json", "tokenizer.json", "config.toml"):
            shutil.copy(folder / "plain" / name, run)
        config = (run / "config.toml").read_text().replace("steps = 5", f"steps = {STEPS}")
        (run / "config.toml").write_text(config.replace("seed = 0", f"seed = {number}"))
        (run / "metrics.jsonl").hardlink_to(many / f"{number % DISTINCT}.log")
    yield many
    shutil.rmtree(many)


@pytest.fixture(scope="module")
def server(many):
    command = [sys.executable, "-m", "tilth", "studio", str(many), "--port", "0"]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    child.stderr.readline()
    child.address = re.search(r"http://\S+", child.stderr.readline())[0]
    yield child
    child.terminate()
    child.wait(20)
    child.stderr.close()


@pytest.fixture(scope="module")
def address(server):
    return server.address


def cpu_seconds(process):
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


FRAMES = """(async (milliseconds) => {
  const times = [];
  const begin = performance.now();
  await new Promise((resolve) => {
    const tick = (now) => {
      times.push(now);
      now - begin < milliseconds ? requestAnimationFrame(tick) : resolve();
    };
    requestAnimationFrame(tick);
  });
  window.frames_per_second = (times.length - 1) / (times.at(-1) - times[0]) * 1000;
})"""


def frames_while(page, move):
    """Frames per second while the mouse moves."""
    page.evaluate(f"void {FRAMES}(4000)")
    deadline = time.monotonic() + 3.8
    step = 0
    while time.monotonic() < deadline:
        move(step)
        step += 1
    wait_until(page, "window.frames_per_second !== undefined")
    found = page.evaluate("window.frames_per_second")
    page.evaluate("void delete window.frames_per_second")
    return found


def test_500_runs_stay_usable(open_view, server, many):
    """First paint within a second, cold; 20 curves move with 30 frames a second."""
    page = open_view("runs", wait_for="table.runs tbody tr")
    rows = page.evaluate("performance.now()")
    painted = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    wait_until(page, "document.querySelector('[role=status]').textContent.includes('500 of 500')")
    complete = page.evaluate("performance.now()")
    runs = "&".join(f"run=sweep-{i % 5}%2Frun-{i:03}" for i in range(20))
    page.goto("about:blank")
    began = time.monotonic()
    page.goto(f"{server.address}/#runs?{runs}&smooth=200")
    drawn = (
        "document.querySelector('.plot')?.data?.filter((d) => d.name && d.x.length > 300).length"
    )
    wait_until(page, f"{drawn} > 0")
    first_curve = time.monotonic() - began
    wait_until(page, f"{drawn} === 20")
    all_curves = time.monotonic() - began
    page.wait_for_timeout(1500)
    page.evaluate("document.querySelector('.plot').scrollIntoView({ block: 'center' })")
    box = page.locator(".plot .nsewdrag").first.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.get_by_role("combobox", name="Dragging").select_option("pan")
    page.wait_for_timeout(500)
    page.mouse.move(x, y)
    page.mouse.down()
    pan = frames_while(page, lambda step: page.mouse.move(x + 3 * (step % 60), y))
    page.mouse.up()
    wait_until(page, "location.hash.includes('from=')")
    page.get_by_role("combobox", name="Dragging").select_option("zoom")
    page.wait_for_timeout(1500)
    page.mouse.move(x - 100, y)
    page.mouse.down()
    zoom = frames_while(page, lambda step: page.mouse.move(x + 2 * (step % 60), y))
    page.mouse.up()
    page.wait_for_timeout(1500)
    points = page.evaluate("document.querySelector('.plot').data.map((d) => d.x.length)")
    status = Path(f"/proc/{server.pid}/status").read_text()
    memory = int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024
    print(f"\nfirst paint {painted:.0f} ms, first rows {rows:.0f} ms, all rows {complete:.0f} ms")
    print(f"first curve {first_curve:.1f} s, 20 curves {all_curves:.1f} s after the page")
    print(
        f"pan {pan:.0f}, zoom {zoom:.0f} frames a second, {sum(points):,} points; {memory:.0f} MB"
    )
    assert painted < 1000
    assert min(pan, zoom) >= 30
    assert memory < 1000


def test_watching_a_training_costs_little(open_view, server, many):
    """Under 3% of a core while a page shows a run that writes ten steps a second."""
    name = "sweep-0/run-000"
    log = many / name / "metrics.jsonl"
    content = log.read_bytes()
    log.unlink()  # one of its own, not the hard link
    log.write_bytes(content)
    is_over = threading.Event()

    def train():
        step = STEPS
        while not is_over.wait(0.1):
            step += 1
            with log.open("a") as file:
                file.write(RECORD % (step, 512 * step, step / 80, 2.0, 1.0, ""))

    page = open_view(f"runs?run={name.replace('/', '%2F')}&smooth=200", wait_for=".plot .xtick")
    trainer = threading.Thread(target=train)
    trainer.start()
    try:
        last = "document.querySelector('.plot').data.at(-2).x.at(-1)"
        wait_until(page, f"{last} > {STEPS}")
        page.wait_for_timeout(3000)
        before, began = cpu_seconds(server), time.monotonic()
        page.wait_for_timeout(30_000)
        used = (cpu_seconds(server) - before) / (time.monotonic() - began)
        shown = page.evaluate(last)
    finally:
        is_over.set()
        trainer.join()
    print(f"watching costs {100 * used:.2f}% of a core; {shown - STEPS:.0f} new steps are shown")
    assert shown > STEPS + 200
    assert used < 0.03
