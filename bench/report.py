"""Print the report of `harness.measure` as a table, and save it as JSON."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from tilth.files import write_text_atomically

Report = dict[str, Any]
NAMES = {"wall_seconds": "time", "cpu_seconds": "CPU time", "peak_bytes": "peak memory"}


def seconds(value: float) -> str:
    """Format a time in s, ms or µs."""
    if value >= 1:
        return f"{value:.2f} s"
    return f"{value * 1e3:.1f} ms" if value >= 1e-3 else f"{value * 1e6:.1f} µs"


def notes(contender: Report) -> str:
    """Return the notes of a row: its own, sample, warm-up, memory, waits, answer not compared."""
    found = [contender["note"]] if contender["note"] else []
    if contender["sample"] != 1.0:
        found.append(f"on {contender['sample']:.3g} of the workload, ratios scaled")
    if contender["warmup"]:
        found.append(f"after {contender['warmup']} untimed runs in the same process")
    if (growth := contender["medians"].get("growth_bytes")) is not None:
        found.append(f"{growth / 1e6:,.0f} MB beyond the argument and the result")
    if waits := contender.get("waits"):
        p50, p99 = (seconds(waits[f"{name}_seconds"]) for name in ("p50", "p99"))
        found.append(f"{waits['number']} waits, p50 {p50}, p99 {p99}")
    if contender["incomparable"]:
        found.append(f"answer not compared: {contender['incomparable']}")
    return "; ".join(found)


def row(contender: Report) -> list[str]:
    """Return the cells of a contender: its numbers, or its failure."""
    package = f"{contender['package']} {contender['version']}".strip()
    if contender["failure"]:
        return [contender["name"], package, *[""] * 7, contender["failure"]]
    medians, (low, high) = contender["medians"], contender["spread_seconds"]
    times = contender["ratios"]["wall_seconds"]
    return [
        contender["name"],
        package,
        str(len(contender["runs"])),
        seconds(medians["wall_seconds"]),
        f"{seconds(low)} .. {seconds(high)}",
        f"{contender['work_per_second']:,.1f}",
        "" if times is None else f"{times:.2f} x {contender['against']}",
        seconds(medians["cpu_seconds"]),
        f"{medians['peak_bytes'] / 1e6:,.0f} MB",
        notes(contender),
    ]


def target_line(target: Report) -> str:
    """Return a line: the target met, or missed by how much."""
    if "at_most" in target:
        beyond = " beyond its argument and result" if target["measure"] == "growth_bytes" else ""
        line = f"target: {target['contender']} takes at most {target['at_most'] / 1e6:,.0f} MB"
        line += f"{beyond}: "
        if target["met"] is None:
            return line + "not judged: not measured"
        found = f"({target['bytes'] / 1e6:,.0f} MB)"
        return line + (f"met {found}" if target["met"] else f"MISSED {found}")
    wanted = f"{target['at_least']:g} times the {NAMES[target['measure']]} of {target['ours']}"
    several = len(target["peers"]) > 1
    peer = f"the best of {', '.join(target['peers'])}" if several else target["peers"][0]
    line = f"target: {peer} takes at least {wanted}"
    other = target.get("otherwise")
    if other is not None:
        line += f", or {other['peer']} {other['at_least']:g} times"
    line += ": "
    if target["met"] is None:
        return line + "not judged: no ratio"
    ratios = [target["ratio"], *([] if other is None else [other["ratio"]])]
    numbers = "; ".join("no ratio" if each is None else f"{each:.2f}" for each in ratios)
    found = f"({numbers}, {target['best']})" if several else f"({numbers})"
    if target["met"]:
        return line + f"met {found}"
    if target["ratio"] is None:
        return line + f"MISSED {found}"
    return line + f"MISSED by {1 - target['ratio'] / target['at_least']:.1%} {found}"


def plain_table(header: list[str], rows: list[list[str]]) -> str:
    """Align the columns; nothing is truncated."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
        for cells in [header, ["-" * width for width in widths], *rows]
    )


def print_table(header: list[str], rows: list[list[str]]) -> None:
    """Print with rich on a terminal that is wide enough, else as plain text."""
    plain = plain_table(header, rows)
    borders = 3 * len(header) + 1
    # On a narrow terminal, plain lines wrap; rich would truncate every cell.
    width = max(map(len, plain.splitlines())) + borders
    if not sys.stdout.isatty() or width > shutil.get_terminal_size().columns:
        print(plain)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*header)
    for cells in rows:
        table.add_row(*(Text(cell) for cell in cells))
    Console().print(table)


def print_report(report: Report) -> None:
    """Print the question, the machine, and a table and targets for each workload."""
    machine, unit = report["machine"], report["unit"]
    print(f"{report['benchmark']}: {' '.join(report['question'].split())}")
    print(f"machine: {machine['cpu']}, {machine['cores']} cores, Python {machine['python']}")
    timed = "the whole process" if report["fresh_process"] else "run, without setup"
    threads = f"threads: {report['threads'] or 'default of each'}"
    print(f"timed: {timed}; {threads}; ratio: its median time divided by ours")
    header = ["contender", "package", "runs", "median", "min .. max", f"{unit}/s", "ratio"]
    for workload in report["workloads"]:
        if "skipped" in workload:
            print(f"\nworkload: {workload['name']}: skipped: {workload['skipped']}")
            continue
        print(f"\nworkload: {workload['name']} ({workload['work']:,.4g} {unit})")
        rows = [row(contender) for contender in workload["contenders"]]
        print_table([*header, "CPU", "peak", "notes"], rows)
        for target in workload["targets"]:
            print(target_line(target))


def has_failures(report: Report) -> bool:
    """Return whether any contender failed."""
    return any(each["failure"] for work in report["workloads"] for each in work["contenders"])


def save_report(report: Report, file: Path) -> None:
    """Write the report as JSON, atomically."""
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(report, indent=1, ensure_ascii=False) + "\n"
    write_text_atomically(file, text, overwrite=True)
