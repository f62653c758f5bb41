"""Make the pictures of the README from real runs: the training panel and a report, light and dark.

    python scripts/make_pictures.py [--work FOLDER]

It generates stories, trains the recipe `tiny` with two learning rates (about a minute on two idle
cores) and writes four files to docs/pictures. The panel is the output of `tilth train` on a
pseudo-terminal, as SVG; the report is a screenshot by Chromium (Debian's chromium, or the browser
named by TILTH_CHROMIUM). With `--work`, finished runs in that folder are used again.
"""

import argparse
import io
import os
import pty
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from rich.console import Console
from rich.text import Text

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "pictures"
DATA = (
    "corpus stories --size 5MB --out stories.txt",
    "tokenizer train stories.txt --vocab-size 2000 --special '<|endoftext|>' --out tokenizer.json",
    "tokenize stories.txt --tokenizer tokenizer.json --out data",
)
WATCH = "--watch.evaluate-every 30 --watch.save-every 150 --watch.sample-every 150"
TRAIN = f"train tiny --data data --out runs/lr-0.02 {WATCH} --watch.sample-tokens 40"
TRAIN_SLOWLY = f"{TRAIN.replace('lr-0.02', 'lr-0.002')} --optimizer.lr 0.002"
REPORT = "report runs/lr-0.02 runs/lr-0.002 --out report.html --overwrite"
SHOWN_PERCENT = 58
"""The panel is drawn as it was at this percentage of the run."""
COLUMNS = 80
REPORT_SIZE = (1120, 955)
COLOURS = {"light": ("#ffffff", "#1b1f24"), "dark": ("#14171b", "#e6e9ed")}
"""Background and foreground, those of the report; the panel has no other colours."""

SVG = """<svg xmlns="http://www.w3.org/2000/svg"
     viewBox="-14 -10 {terminal_width} {terminal_height}">
<style>
  text {{ font: {char_height}px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }}
  text {{ fill: FOREGROUND; }}
</style>
<rect x="-14" y="-10" width="100%" height="100%" rx="8" fill="BACKGROUND"/>
{matrix}
</svg>
"""
"""The template of rich without its web fonts, its window and its colours."""


class Screen:
    """The part of a terminal that rich's live display needs: lines, cursor up, erase line."""

    def __init__(self) -> None:
        self.lines, self.row = [""], 0

    def write(self, text: str) -> None:
        """Apply output; colours stay in the lines as escape sequences."""
        for part in re.split(r"(\x1b\[[?\d;]*[A-Za-z]|\r|\n)", text):
            if part == "\n":
                self.row += 1
                self.lines += [""] * (self.row + 1 - len(self.lines))
            elif match := re.fullmatch(r"\x1b\[(\d*)A", part):
                self.row -= int(match[1] or 1)
            elif part == "\x1b[2K":
                self.lines[self.row] = ""
            elif part != "\r" and not re.fullmatch(r"\x1b\[[?\d;]*[A-LN-Za-ln-z]", part):
                self.lines[self.row] += part


def tilth(line: str, folder: Path) -> None:
    """Run a command line of tilth in a folder."""
    command = [sys.executable, "-m", "tilth", *shlex.split(line)]
    subprocess.run(command, cwd=folder, check=True)


def screen_of(line: str, folder: Path) -> list[str]:
    """Run `tilth LINE` on a pseudo-terminal; return its screen at SHOWN_PERCENT of the run."""
    settings = {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": "50"}
    command = [sys.executable, "-m", "tilth", *shlex.split(line)]
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        command, cwd=folder, env=os.environ | settings, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    screen, shown, pending = Screen(), [""], b""
    while True:
        try:
            chunk = os.read(ours, 65536)
        except OSError:  # Linux: the child has closed the terminal
            break
        if not chunk:
            break
        # A frame ends with the last corner of the panel; later bytes may be half a character.
        head, corner, pending = (pending + chunk).rpartition("╯".encode())
        screen.write((head + corner).decode())
        percent = re.findall(r"(\d+)%", "\n".join(screen.lines[-7:]))
        if percent and int(percent[0]) <= SHOWN_PERCENT:
            shown = list(screen.lines)
    if child.wait() != 0:
        sys.exit("training failed:\n" + "\n".join(screen.lines) + pending.decode())
    return shown


def save_panel(screen: str, scheme: str, file: Path) -> None:
    """Write the screen of a terminal as SVG."""
    # Two columns and one line more than the panel, for a margin.
    console = Console(record=True, width=COLUMNS + 2, file=io.StringIO())
    console.print(Text.from_ansi(screen + "\n"), soft_wrap=True)
    svg = console.export_svg(code_format=SVG, unique_id="panel")
    background, foreground = COLOURS[scheme]
    svg = svg.replace("BACKGROUND", background).replace("FOREGROUND", foreground)
    file.write_text(re.sub(r' (class|clip-path)="[^"]*"', "", svg))


def save_screenshot(page: Path, scheme: str, file: Path) -> None:
    """Take a screenshot of a page with a colour scheme; 256 colours are enough for a report."""
    width, height = REPORT_SIZE
    chromium = os.environ.get("TILTH_CHROMIUM", "chromium")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    options += [f"--window-size={width},{height}", "--virtual-time-budget=5000"]
    options += [f"--blink-settings=preferredColorScheme={int(scheme == 'light')}"]
    command = [chromium, *options, f"--screenshot={file}", page.resolve().as_uri()]
    subprocess.run(command, check=True, capture_output=True)
    with Image.open(file) as image:
        image.convert("RGB").quantize(256).save(file, optimize=True)


def make_pictures(folder: Path) -> None:
    """Train in the folder, and write the pictures."""
    if not (folder / "data").exists():
        for line in DATA:
            tilth(line, folder)
    if not (folder / "screen.txt").exists():
        (folder / "screen.txt").write_text("\n".join(screen_of(TRAIN, folder)))
    if not (folder / "runs" / "lr-0.002").exists():
        tilth(TRAIN_SLOWLY, folder)
    tilth(REPORT, folder)
    for scheme in COLOURS:
        save_panel((folder / "screen.txt").read_text(), scheme, PICTURES / f"panel-{scheme}.svg")
        save_screenshot(folder / "report.html", scheme, PICTURES / f"report-{scheme}.png")


def main() -> None:
    """Make the pictures, in a temporary folder or in `--work`."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--work", type=Path, help="folder for the runs; default: temporary")
    options = parser.parse_args()
    if options.work is not None:
        options.work.mkdir(parents=True, exist_ok=True)
        make_pictures(options.work)
    else:
        with tempfile.TemporaryDirectory() as folder:
            make_pictures(Path(folder))
    print(f"Wrote {PICTURES}")


if __name__ == "__main__":
    main()
