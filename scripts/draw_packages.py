"""Draw the packages of tilth and their imports as an SVG: docs/pictures/packages.svg.

    python scripts/draw_packages.py

The picture shows the imports in the source files. `tests/test_architecture.py` checks that the
stored file is current. Arrows that follow from others are left out: cli imports data, but also lab,
which imports data.
"""

import ast
import itertools
import re
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "tilth"
PICTURE = ROOT / "docs" / "pictures" / "packages.svg"

ENTRY_POINTS = {"tilth", "tilth.__main__"}
"""Modules that may import every package."""

Graph = dict[str, set[str]]

BOX_WIDTH, BOX_HEIGHT, COLUMN_WIDTH, ROW_HEIGHT, MARGIN = 88, 30, 116, 56, 20

STYLE = """
  svg { background: #ffffff; }
  text { font: 13px ui-monospace, monospace; fill: #1b1f24; text-anchor: middle; }
  .note { font: 12px system-ui, sans-serif; fill: #59626e; text-anchor: start; }
  rect { fill: #f5f6f8; stroke: #8a94a0; }
  .torch { fill: #d9eaf8; stroke: #1f6fb2; }
  path { fill: none; stroke: #8a94a0; stroke-width: 1.2; }
  #head { fill: #8a94a0; stroke: none; }
  @media (prefers-color-scheme: dark) {
    svg { background: #14171b; }
    text { fill: #e6e9ed; }
    .note { fill: #9aa4b0; }
    rect { fill: #1d2127; stroke: #6b7683; }
    .torch { fill: #173450; stroke: #6bb5f0; }
  }
""".strip()


def read_imports(file: Path, module: str) -> Iterator[tuple[int, str]]:
    """Yield (line, imported name) of every import in a file, in-function imports included."""
    package = module if file.stem == "__init__" else module.rpartition(".")[0]
    for node in _nodes(file.read_text()):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: -node.level + 1 or None] if node.level else []
            base = ".".join([*parents, *([node.module] if node.module else [])])
            for alias in node.names:
                # `from tilth import files` and `from tilth.cli import app` may name modules.
                yield node.lineno, f"{base}.{alias.name}"
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            # import_module("tilth.model"), and the "tilth.cli.demo:demo" of lazy verbs
            and (match := re.fullmatch(r"(tilth(?:\.\w+)+)(?::\w+)?", node.value))
        ):
            yield node.lineno, match[1]


@cache  # the tests read almost the same package a dozen times
def _nodes(text: str) -> list[ast.AST]:
    """Return the imports and constants of a source file."""
    kinds = (ast.Import, ast.ImportFrom, ast.Constant)
    return [node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]


def module_files(package: Path) -> dict[str, list[Path]]:
    """Return the files of each module by its dotted name: the source and, if present, its stub."""
    modules = {}
    for file in sorted(package.rglob("*.py")):
        parts = ["tilth", *file.relative_to(package).with_suffix("").parts]
        stub = file.with_suffix(".pyi")
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        modules[name] = [file, stub] if stub.exists() else [file]
    return modules


def package_graph(package: Path) -> tuple[Graph, set[str]]:
    """Return the packages that each package imports, and the packages that import torch."""
    modules = module_files(package)
    names = {module.split(".")[1] for module in modules if module not in ENTRY_POINTS}
    graph: Graph = {name: set() for name in sorted(names)}
    with_torch = set()
    for module, files in modules.items():
        if module in ENTRY_POINTS:
            continue
        name = module.split(".")[1]
        for _, imported in (each for file in files for each in read_imports(file, module)):
            root, _, rest = imported.partition(".")
            other = rest.split(".")[0]
            if root == "torch":
                with_torch.add(name)
            elif root == "tilth" and other in names and other != name:
                graph[name].add(other)
    return graph, with_torch


def transitive_reduction(graph: Graph) -> Graph:
    """Return the graph without the edges that a longer path implies."""
    reachable: Graph = {}
    for name in TopologicalSorter(graph).static_order():
        reachable[name] = graph[name].union(*(reachable[other] for other in graph[name]))
    return {
        name: {other for other in others if not any(other in reachable[third] for third in others)}
        for name, others in graph.items()
    }


def layout(graph: Graph) -> tuple[dict[str, tuple[int, int]], dict[tuple[str, str], list[str]]]:
    """Place each package in (column, row), after everything that it imports.

    Also return the path of each edge: an edge over several columns passes through invisible nodes,
    which reserve a row for it. Rows are ordered by the mean row of the neighbours, four times in
    each direction, which removes nearly all crossings.
    """
    column: dict[str, int] = {}
    for name in TopologicalSorter(graph).static_order():
        column[name] = 1 + max((column[other] for other in graph[name]), default=-1)
    paths: dict[tuple[str, str], list[str]] = {}
    links: dict[str, set[str]] = {name: set() for name in graph}
    for name in sorted(graph):
        for other in sorted(graph[name]):
            path = [other]
            for number in range(column[other] + 1, column[name]):
                path.append(f"{other}-{name}-{number}")
                column[path[-1]], links[path[-1]] = number, set()
            path.append(name)
            for left, right in itertools.pairwise(path):
                links[left].add(right)
                links[right].add(left)
            paths[name, other] = path
    columns = [sorted(n for n in column if column[n] == i) for i in range(max(column.values()) + 1)]
    row = {name: rows.index(name) for rows in columns for name in rows}
    for sweep in range(8):
        for rows in columns if sweep % 2 == 0 else reversed(columns):
            step = -1 if sweep % 2 == 0 else 1
            means = {}
            for name in rows:
                near = [row[each] for each in links[name] if column[each] == column[name] + step]
                means[name] = sum(near) / len(near) if near else row[name]
            for place, name in enumerate(sorted(rows, key=lambda each: (means[each], each))):
                row[name] = place
    return {name: (column[name], row[name]) for name in column}, paths


def draw(package: Path) -> str:
    """Return the picture as the text of an SVG file."""
    graph, with_torch = package_graph(package)
    places, paths = layout(transitive_reduction(graph))
    tallest = max(row for _, row in places.values()) + 1
    per_column = {c: sum(column == c for column, _ in places.values()) for c, _ in places.values()}

    def center(name: str) -> tuple[float, float]:
        column, row = places[name]
        offset = (tallest - per_column[column]) / 2
        x = MARGIN + BOX_WIDTH / 2 + column * COLUMN_WIDTH
        return x, MARGIN + BOX_HEIGHT / 2 + (row + offset) * ROW_HEIGHT

    width = 2 * MARGIN + BOX_WIDTH + max(per_column) * COLUMN_WIDTH
    height = 3 * MARGIN + BOX_HEIGHT + (tallest - 1) * ROW_HEIGHT
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        f"<title>The packages of tilth and their imports</title>\n<style>\n  {STYLE}\n</style>",
        '<marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path id="head" d="M0,0 L8,4 L0,8 z"/></marker>',
    ]
    for path in paths.values():
        # From the importer, on the right, to the imported package, on the left.
        points = [center(name) for name in reversed(path)]
        x, y = points[0]
        curve = f"M{x - BOX_WIDTH / 2:g},{y:g}"
        x -= BOX_WIDTH / 2
        for number, (next_x, next_y) in enumerate(points[1:], start=1):
            right = next_x + BOX_WIDTH / 2
            middle = (x + right) / 2
            curve += f" C{middle:g},{y:g} {middle:g},{next_y:g} {right:g},{next_y:g}"
            x, y = right, next_y
            if number < len(points) - 1:
                x = next_x - BOX_WIDTH / 2
                curve += f" L{x:g},{y:g}"
        lines.append(f'<path d="{curve}" marker-end="url(#arrow)"/>')
    for name in sorted(graph):
        x, y = center(name)
        kind = ' class="torch"' if name in with_torch else ""
        lines.append(
            f'<rect{kind} x="{x - BOX_WIDTH / 2:g}" y="{y - BOX_HEIGHT / 2:g}" '
            f'width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="5"/>'
            f'<text x="{x:g}" y="{y + 4.5:g}">{name}</text>'
        )
    note = "An arrow points to an imported package. Blue: some module imports torch."
    lines.append(f'<text class="note" x="{MARGIN}" y="{height - MARGIN / 2:g}">{note}</text>')
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(draw(PACKAGE))
    print(f"Wrote {PICTURE.relative_to(ROOT)}")
