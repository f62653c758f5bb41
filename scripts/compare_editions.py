"""Compare the results of this tree with those of the first edition of tilth, bit by bit.

    python scripts/compare_editions.py [SCENARIO ...]

Both editions run the scenarios of `edition_scenarios.py` through the command line. Their weights,
optimizer states, losses, texts and the numbers of findings must be equal. A difference gives exit
code 1, unless it is listed in `ALLOWED` with its reason, and in CHANGELOG.md. Results depend on the
processor, so both editions run on the same machine. `--cache` stores the results of the old
edition.
"""

import argparse
import fnmatch
import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from edition_files import WORKSPACE, Difference, differences
from edition_scenarios import PROBES, SCENARIOS, Scenario

ROOT = Path(__file__).resolve().parent.parent
FIRST_EDITION = "d627945"

Result = dict[str, Any]
"""The result of a scenario: exit codes, seconds, torch version; for the old edition its key."""

INT8 = "sums of 16 int8 products are exact now, so logits in int8 round differently"
ALLOWED: dict[tuple[str, str], str] = {
    ("*-int8", "stdout-0.json:*log_probability"): INT8,
    ("generate-tied", "stdout-0.json:*log_probability"): INT8,
    ("score", "stdout-1.json*"): INT8,
    ("sampled-torch", "stdout-0.json:*log_probability"): (
        "torch generates all samples in one batch, whose products round differently"
    ),
    ("lab-*", "*lab.json:command"): "the values of PINNED are part of the command",
    ("bfloat16-muon", "*"): "Muon's iteration runs in bfloat16 if the autocast type is bfloat16",
}
"""(Pattern of a scenario, pattern of FILE or FILE:KEY) -> the reason for a difference."""

PINNED = {
    "--optimizer.schedule": "cosine",
    "--optimizer.embedding-lr-factor": "1",
    "--optimizer.momentum-warmup-steps": "0",
    "--optimizer.betas": "0.9 0.95",
}
"""Options that give the recipes of the new edition the values that those of the old one have."""


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scenarios", nargs="*", help="names or patterns; default: all")
    parser.add_argument("--old", default=FIRST_EDITION, help="commit to compare with")
    parser.add_argument("--old-python", type=Path, help="Python of an environment with that commit")
    parser.add_argument("--new-python", type=Path, default=Path(sys.executable))
    parser.add_argument("--cache", type=Path, help="folder for the results of the old edition")
    parser.add_argument("--keep", type=Path, help="folder for the files of the new edition")
    parser.add_argument("--timings", action="store_true", help="print the time of each scenario")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # removes the temporary folders
    asked = _selected(options.scenarios or ["*"])
    with _folder(options.cache) as cache, _folder(options.keep) as keep:
        old = _old_results(asked, cache, options)
        new_workspace = Path(tempfile.mkdtemp(prefix="new-", dir=keep))
        new = _run_edition(options.new_python, [_pinned(name) for name in asked], new_workspace)
        failures = 0
        for name in asked:
            failures += _report(name, old[name], new[name], cache, new_workspace)
            if options.timings:
                print(f"  {old[name]['seconds']} s, then {new[name]['seconds']} s")
    if {result["torch"] for result in old.values()} != {r["torch"] for r in new.values()}:
        print("note: the two editions used different versions of torch")
    print(f"{len(asked)} scenarios, {failures} with differences not listed in ALLOWED")
    sys.exit(1 if failures else 0)


def _pinned(name: str) -> Scenario:
    """Return a scenario for the new edition, in which recipes have their old values."""
    commands = []
    for command in SCENARIOS[name].commands:
        takes_recipe = command[:1] == ("train",) and command[1:2] != ("--config",)
        if takes_recipe or (command[:1] == ("lab",) and "--recipe" in command):
            given = [(name, value) for name, value in PINNED.items() if name not in command]
            words = (word for name, value in given for word in (name, *value.split()))
            command = (*command, *words)  # noqa: PLW2901
        commands.append(command)
    return replace(SCENARIOS[name], commands=tuple(commands))


def _selected(patterns: list[str]) -> list[str]:
    """Return the matching scenarios and those that they need, in the order of the table."""
    wanted: set[str] = set()

    def take(name: str) -> None:
        wanted.add(name)
        for need in SCENARIOS[name].needs:
            take(need)

    for pattern in patterns:
        names = fnmatch.filter(SCENARIOS, pattern)
        if not names:
            sys.exit(f"There is no scenario {pattern}; choose from {', '.join(SCENARIOS)}.")
        for name in names:
            take(name)
    return [name for name in SCENARIOS if name in wanted]


def _report(name: str, old: Result, new: Result, cache: Path, workspace: Path) -> int:
    """Print one line for a scenario; return 1 if a difference is not in ALLOWED."""
    folder = cache / old["key"]
    found: list[Difference] = []
    if any(old["codes"][1:]) or (old["codes"][0] and not _is_expected(name, old["codes"][0])):
        found.append(("exit codes", f"are {old['codes']} in the old edition: fix the scenario"))
    if old["codes"] != new["codes"]:
        said = sorted((workspace / name).glob("stderr-*"))[-1].read_text("utf-8", "replace")
        last = said.strip().splitlines()[-1:] or [""]
        found.append(("exit codes", f"are {new['codes']}, not {old['codes']}: {last[0]}"))
    found += differences(folder / name, workspace / name)
    if (other := SCENARIOS[name].same_run_as) is not None:
        unlike = differences(workspace / other / "run", workspace / name / "run")
        found += [(where, f"{what} in {other}") for where, what in unlike]
    unnamed = [each for each in found if _reason(name, each) is None]
    reasons = sorted({str(_reason(name, each)) for each in found if each not in unnamed})
    if unnamed:
        shown = "; ".join(f"{where} {what}" for where, what in unnamed[:4])
        more = f"; and {len(unnamed) - 4} more" if len(unnamed) > 4 else ""
        print(f"{name}: differs: {shown}{more}", flush=True)
    else:
        named = f" except: {', '.join(reasons)}" if reasons else ""
        refused = " (both refuse it)" if old["codes"][0] == 2 else ""
        print(f"{name}: equal{named}{refused}", flush=True)
    return bool(unnamed)


def _is_expected(name: str, code: int) -> bool:
    scenario = SCENARIOS[name]
    return code == -9 if scenario.kill_at_step is not None else scenario.may_fail and code == 2


def _reason(scenario: str, difference: Difference) -> str | None:
    for (name, place), reason in ALLOWED.items():
        if fnmatch.fnmatch(scenario, name) and fnmatch.fnmatchcase(difference[0], place):
            return reason
    return None


# --- running editions ----------------------------------------------------------------------------


def _old_results(names: list[str], cache: Path, options: argparse.Namespace) -> dict[str, Result]:
    """Return the results of the old edition, from the cache or computed now."""
    keys = _keys(options.old)
    missing = [name for name in names if not (cache / keys[name] / "result.json").exists()]
    if missing:
        missing = _selected(missing)  # includes the scenarios that they need
        with _old_python(options) as python:
            workspace = Path(tempfile.mkdtemp(prefix="old-", dir=cache))
            results = _run_edition(python, [SCENARIOS[name] for name in missing], workspace)
        for name in missing:
            making = Path(tempfile.mkdtemp(prefix="making-", dir=cache))
            shutil.copytree(workspace / name, making / name)
            (making / WORKSPACE).write_text(str(workspace))
            (making / "result.json").write_text(json.dumps({**results[name], "key": keys[name]}))
            try:
                making.rename(cache / keys[name])
            except OSError:  # another process was faster
                shutil.rmtree(making)
        shutil.rmtree(workspace)
    return {n: json.loads((cache / keys[n] / "result.json").read_text()) for n in names}


def _keys(commit: str) -> dict[str, str]:
    """Return a cache key for each scenario, which covers all inputs of its results."""
    runner = hashlib.sha256(Path(__file__).with_name("edition_runner.py").read_bytes())
    try:
        torch = version("torch")
    except PackageNotFoundError:
        torch = ""
    machine = f"{commit} {_processor()} {torch}"
    keys: dict[str, str] = {}
    for name, scenario in SCENARIOS.items():
        needs = [keys[need] for need in scenario.needs]
        calls_python = any(command[0] in PROBES for command in scenario.commands)
        content = [machine, scenario.commands, needs, runner.hexdigest() if calls_python else ""]
        keys[name] = f"{name}-{hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]}"
    return keys


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return "".join(sorted({each for each in lines if each.startswith(("model name", "flags"))}))


def _run_edition(python: Path, scenarios: Iterable[Scenario], workspace: Path) -> dict[str, Result]:
    (workspace / WORKSPACE).write_text(str(workspace))
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONUTF8": "1", "OMP_NUM_THREADS": "1"}
    # Spinning threads take ten times as long on a busy machine.
    environment["OMP_WAIT_POLICY"] = "passive"
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [python.absolute(), Path(__file__).with_name("edition_runner.py")],
        input=json.dumps([asdict(scenario) for scenario in scenarios]),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=workspace,
        env=environment,
    )
    return {result["name"]: result for result in map(json.loads, done.stdout.splitlines())}


@contextmanager
def _old_python(options: argparse.Namespace) -> Iterator[Path]:
    """Yield the Python of the old edition: the given one, or a new environment of that commit."""
    if options.old_python is not None:
        yield options.old_python
        return
    with tempfile.TemporaryDirectory(prefix="tilth-edition-") as folder:
        tree = Path(folder, "tree")
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--detach", str(tree), options.old], check=True)
        try:
            subprocess.run(["make", "-C", str(tree), "env"], check=True)
            yield tree / ".venv/bin/python"
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


@contextmanager
def _folder(given: Path | None) -> Iterator[Path]:
    """Yield the given folder, created if necessary, or a temporary one."""
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        yield given.resolve()
    else:
        with tempfile.TemporaryDirectory(prefix="tilth-editions-") as folder:
            yield Path(folder).resolve()


if __name__ == "__main__":
    main()
