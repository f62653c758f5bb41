"""The command line: `python -m bench [--only NAME] [--runs N] [--json FILE] [--list]`.

The table goes to stdout, progress to stderr, every run to `bench/results/NAME.json`. Exit code 1: a
contender failed or its answer differs; 2: wrong arguments; 130: Ctrl-C. A missed target is not an
error.
"""

import argparse
import contextlib
import re
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from bench.declaration import load_benchmark
from bench.harness import PROJECT, measure
from bench.report import has_failures, print_report, save_report
from tilth.formatting import suggestion


def find_benchmarks(folder: Path) -> dict[str, Path]:
    """Return the files that declare a benchmark, by name, without importing them."""
    files = sorted(folder.glob("*.py"))
    return {
        file.stem: file for file in files if re.search(r"(?m)^BENCHMARK\b", file.read_text("utf-8"))
    }


def positive(text: str) -> int:
    """Parse a number of runs."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of runs; give 1 or more")
    return int(text)


@contextlib.contextmanager
def progress(name: str) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows progress: a status line on a terminal, else one line each."""
    if not sys.stderr.isatty():
        yield lambda line: print(f"{name}: {line}", file=sys.stderr, flush=True)
        return
    from rich.console import Console
    from rich.markup import escape

    with Console(stderr=True).status(name) as status:
        yield lambda line: status.update(escape(f"{name}: {line}"))


def stop(number: int, frame: FrameType | None) -> None:
    """Turn a signal into an exception, so that child processes are ended."""
    raise SystemExit(128 + number)


def main() -> int:
    """Run the selected benchmarks, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Benchmarks of tilth and its peers."
    )
    parser.add_argument("--only", metavar="NAME", help="one benchmark; default: all")
    parser.add_argument(
        "--runs",
        type=positive,
        metavar="N",
        help="rounds; default: 5, or 3 if a run takes more than a minute",
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="results; default: bench/results/NAME.json"
    )
    parser.add_argument("--list", action="store_true", help="list the benchmarks")
    parser.add_argument(
        "--folder", type=Path, default=PROJECT / "bench", help="folder of the benchmark files"
    )
    options = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # ignored under nohup
            signal.signal(number, stop)

    files = find_benchmarks(options.folder)
    if options.only is not None and options.only not in files:
        hint = suggestion(options.only, files)
        print(f"There is no benchmark {options.only}; {hint}", file=sys.stderr)
        return 2
    chosen = [options.only] if options.only is not None else list(files)
    if options.json is not None and len(chosen) != 1:
        print("--json needs one benchmark; choose it with --only NAME.", file=sys.stderr)
        return 2

    failed = False
    for name in chosen:
        try:
            benchmark = load_benchmark(files[name])
            if options.list:
                print(f"{name}: {benchmark.question.splitlines()[0]}")
                continue
            with progress(name) as tell:
                report = measure(benchmark, options.runs, tell)
        except Exception:  # the other benchmarks still run
            traceback.print_exc()
            print(f"{name} did not run: its file or its prepare() failed.", file=sys.stderr)
            failed = True
            continue
        result = options.json or options.folder / "results" / f"{name}.json"
        save_report(report, result)
        print_report(report)
        inside = result.resolve().is_relative_to(Path.cwd())
        print(f"\nwrote {result.resolve().relative_to(Path.cwd()) if inside else result}")
        failed = failed or has_failures(report)
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(130)
