"""The tables of the page Cost, and the arithmetic of each of their numbers.

>>> from tilth.accounting import account
>>> found = tables(account("gpt2-xl").to_dict())
>>> found[0]["title"], found[0]["rows"][0]["cells"][0]
('Parameters', {'path': 'parameters.embedding', 'text': '80,411,200', 'share': None})
>>> explanation = explain("parameters.embedding", account("gpt2-xl", traced=True))
>>> "".join(part["text"] for part in explanation["parts"])
'vocab_size × d_model'
>>> [line["text"] for line in explanation["lines"]]
['return self.number * math.prod(self.shape)']
"""

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from fnmatch import fnmatch
from functools import lru_cache
from pathlib import Path
from typing import Any

from tilth.accounting import compute_optimal, largest_batch, training_memory
from tilth.accounting.accounts import Account
from tilth.accounting.pictures import across_contexts
from tilth.accounting.report import COMPONENTS, share
from tilth.accounting.report import plain as rounded
from tilth.accounting.tracing import Formulas, Number, Part, operation_of, shown
from tilth.formatting import format_bytes, format_duration, scientific

Values = Mapping[str, Any]


def tables(values: Values) -> list[dict[str, Any]]:
    """Return the tables of `Account.to_dict()`: rows of cells, each with the path of its number."""
    made = [_parameters, _forward, _training, _memory, _activations, _time, _optimum]
    return [table for each in made if (table := each(values)) is not None]


def _table(
    title: str, what: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]
) -> dict[str, Any]:
    """Return a table; a row has a label, cells, and optionally the word "sum"."""
    made = [
        {
            "label": label,
            "cells": [cell for cell in cells if cell != "sum"],
            "is_sum": "sum" in cells,
        }
        for label, *cells in rows
    ]
    return {"title": title, "what": what, "columns": list(columns), "rows": made}


def _cell(values: Values, path: str, form: Callable[[Any], str] = shown) -> dict[str, Any]:
    return {"path": path, "text": form(_at(values, path)), "share": None}


def _share(part: float, whole: float) -> dict[str, Any]:
    return {"path": "", "text": share(part, whole), "share": part / whole}


def _text(text: str) -> dict[str, Any]:
    return {"path": "", "text": text, "share": None}


def _at(values: Values, path: str) -> Any:  # noqa: ANN401, a number or a table
    """Return the value at a dotted path; raise ValueError if there is none."""
    found: Any = values
    for name in path.split("."):
        try:
            found = found[int(name)] if isinstance(found, list) else found[name]
        except (KeyError, ValueError, IndexError, TypeError):
            raise ValueError(f"there is no number {path[:80]!r}.") from None
    return found


def _parameters(values: Values) -> dict[str, Any]:
    found = values["parameters"]
    names = {"embedding": "embedding", "attention": "attention", "feed_forward": "feed-forward"}
    names |= {"norms": "norms", "head": "head"}
    tied = values["model"]["tie_embeddings"]
    rows: list[tuple[Any, ...]] = [
        (
            f"{label}, tied to the embedding" if name == "head" and tied else label,
            _cell(values, f"parameters.{name}"),
            _share(found[name], found["total"]),
        )
        for name, label in names.items()
    ]
    rows.append(("all", _cell(values, "parameters.total"), _share(1, 1), "sum"))
    for name in ("without_embedding", "without_embedding_and_head"):
        part = _share(found[name], found["total"]) | {"share": None}
        rows.append((name.replace("_", " "), _cell(values, f"parameters.{name}"), part))
    rows.append(("bytes in float32", _cell(values, "parameters.bytes", _bytes), _text("")))
    what = "The numbers that training changes. Papers often omit the embedding, which is a lookup."
    return _table("Parameters", what, ["number", "share"], rows)


def _forward(values: Values) -> dict[str, Any]:
    flops = values["flops"]
    total = flops["forward"]
    rows: list[tuple[Any, ...]] = []
    for place, each in enumerate(flops["products"]):
        path = f"flops.products.{place}.flops"
        size = f"{each['m']:,} × {each['n']:,} × {each['p']:,}"
        times = f"{each['times']:,}"
        rows.append(
            (
                each["name"],
                _text(size),
                _text(times),
                _cell(values, path),
                _share(each["flops"], total),
            )
        )
    blank = _text("")
    rows.append(("all products", blank, blank, _cell(values, "flops.forward"), _share(1, 1), "sum"))
    for name, number in flops["by_component"].items():
        path = f"flops.by_component.{name}"
        rows.append(
            (name, blank, blank, _cell(values, path), _share(number, total) | {"share": None})
        )
    for name in flops["elementwise"]:
        path = f"flops.elementwise.{name}"
        rows.append((f"{name} (elementwise)", blank, blank, _cell(values, path), blank))
    part = _share(flops["elementwise_total"], total) | {"share": None}
    rows.append(
        ("all elementwise", blank, blank, _cell(values, "flops.elementwise_total"), part, "sum")
    )
    what = (
        "Floating-point operations over one sequence of "
        f"{values['model']['context_length']:,} tokens. The product of an (m, n) and an (n, p) "
        "matrix takes 2mnp of them."
    )
    return _table(
        "Forward pass",
        what,
        ["m × n × p", "times", "FLOPs", "share"],
        rows,
    )


def _training(values: Values) -> dict[str, Any]:
    flops, training = values["flops"], values["training"]

    def row(label: str, path: str, *marks: str) -> tuple[Any, ...]:
        return label, _cell(values, path), _text(scientific(_at(values, path))), *marks

    rows = [
        row("forward, one sequence", "flops.forward"),
        row("backward, one sequence", "flops.backward"),
        row(f"step of {_sequences(training['batch_size'])}", "flops.per_step", "sum"),
        row("per token", "flops.per_token"),
        *(row(f"{training['optimizer']}: {n}", f"flops.optimizer.{n}") for n in flops["optimizer"]),
        row(f"{training['optimizer']} update", "flops.optimizer_total", "sum"),
    ]
    if flops["per_run"] is not None:
        rows.append(row("tokens of the run", "training.tokens"))
        rows.append(row(f"run of {training['steps']:,} steps", "flops.per_run", "sum"))
    what = (
        "The backward pass has two products for each of the forward pass, one for each gradient. "
        "Recomputation adds a second forward pass."
    )
    return _table("Training", what, ["FLOPs", "rounded"], rows)


_MEMORY = {
    "parameters_bytes": "parameters",
    "gradients_bytes": "gradients",
    "optimizer_state_bytes": "optimizer state",
    "rotation_tables_bytes": "tables of RoPE",
    "activations_bytes": "saved activations",
    "loss_bytes": "working memory of the loss",
    "backward_bytes": "working memory of the backward pass",
    "optimizer_step_bytes": "working memory of the update",
}


def _memory(values: Values) -> dict[str, Any]:
    training, memory = values["training"], values["memory"]
    ours = memory["implementation"]
    path = "memory.implementation."
    rows: list[tuple[Any, ...]] = [
        (label, _cell(values, path + name), _text(format_bytes(ours[name])))
        for name, label in _MEMORY.items()
    ]
    peak = ours["peak_bytes"]
    rows += [
        ("peak of a step", _cell(values, path + "peak_bytes"), _text(format_bytes(peak)), "sum"),
        *_bytes_rows(
            values,
            {
                "memory.textbook.per_sequence_bytes": "textbook: activations of a sequence",
                "memory.textbook.once_bytes": "textbook: parameters, gradients, moments",
                "memory.textbook.bytes": "textbook: all",
                "memory.cache_bytes": "key/value cache of a sequence, when it generates",
            },
        ),
    ]
    if memory["limit_bytes"] is not None:
        limit = format_bytes(memory["limit_bytes"])
        for kind, label in (("implementation", ""), ("textbook", "textbook: ")):
            number = _cell(values, f"memory.{kind}.largest_batch")
            rows.append((f"{label}largest batch in {limit}", number, _text("sequences")))
    size = training["microbatch_size"]
    what = (
        f"Bytes of a training step with {_sequences(size)} at once. Not all "
        "parts exist at the same time: the peak is the maximum over the phases of a step. The "
        "textbook counts the result of each operation, all at once."
    )
    return _table("Memory", what, ["bytes", "rounded"], rows)


def _bytes_rows(values: Values, paths: Mapping[str, str]) -> Iterator[tuple[Any, ...]]:
    for path, label in paths.items():
        yield label, _cell(values, path), _text(format_bytes(_at(values, path)))


def _activations(values: Values) -> dict[str, Any]:
    path = "memory.implementation."
    whole = values["memory"]["implementation"]["per_sequence_bytes"]
    rows: list[tuple[Any, ...]] = []
    for place, each in enumerate(values["memory"]["implementation"]["activations"]):
        own = f"{path}activations.{place}."
        size = each["per_sequence_bytes"]
        rows.append(
            (
                f"{each['component']}: {each['name']}",
                _cell(values, own + "per_sequence_bytes"),
                _share(size, whole),
                _cell(values, own + "once_bytes"),
            )
        )
    once = _cell(values, path + "once_bytes")
    rows.append(("all", _cell(values, path + "per_sequence_bytes"), _share(1, 1), once, "sum"))
    what = "The tensors that autograd saves in the forward pass, for the backward pass."
    return _table("Saved activations", what, ["bytes per sequence", "share", "bytes once"], rows)


def _time(values: Values) -> dict[str, Any] | None:
    cost, hardware, training = values["cost"], values["hardware"], values["training"]
    if cost is None:
        return None
    steps = f"{training['steps']:,} steps" if training["steps"] else "1 step"
    dtype = training["dtype"]
    rows: list[tuple[Any, ...]] = [
        (
            f"peak in {dtype}, FLOP/s",
            _cell(values, f"hardware.flops_per_second.{dtype}", scientific),
        ),
        ("utilization (MFU)", _cell(values, "cost.mfu", lambda mfu: f"{mfu:.1%}")),
        (f"time of {steps}", _cell(values, "cost.seconds", format_duration), "sum"),
    ]
    if cost["energy_kwh"] is not None:
        rows.append(("energy, kWh", _cell(values, "cost.energy_kwh", rounded)))
    if cost["money"] is not None:
        rows.append(("price", _cell(values, "cost.money", lambda money: f"{money:,.2f}")))
    what = (
        f"On {hardware['what']}; source: {hardware['source']}. Energy is that of the maximum power."
    )
    return _table("Time, energy, price", what, ["value"], rows)


def _optimum(values: Values) -> dict[str, Any] | None:
    if values["optimum"] is None:
        return None
    names = {"flops": "FLOPs of the hours", "parameters": "parameters", "tokens": "tokens"}
    rows = [(label, _cell(values, f"optimum.{name}", scientific)) for name, label in names.items()]
    what = (
        "The model that these hours train best, by Hoffmann et al. (2022): 20 tokens per "
        "parameter. An estimate from large models of web text."
    )
    return _table("Compute-optimal model", what, ["value"], rows)


def _sequences(number: int) -> str:
    return f"{number:,} sequence{'' if number == 1 else 's'}"


def _bytes(number: float) -> str:
    return f"{number:,} ({format_bytes(number)})"


# --- the charts ----------------------------------------------------------------------------------


def charts(found: Account) -> list[dict[str, Any]]:
    """Return the charts: bars by label; several series are shares of a whole."""
    values = found.to_dict()
    ours = values["memory"]["implementation"]
    parameters = {name: values["parameters"][name] for name in COMPONENTS}
    memory = {label: ours[name] for name, label in _MEMORY.items() if ours[name]}
    by_length = across_contexts(found.config)
    shares = {
        name: [flops[name] / sum(flops.values()) for flops in by_length.values()]
        for name in values["flops"]["by_component"]
    }
    labels = [*by_length]
    return [
        _chart("Parameters by component", "parameters", parameters),
        _chart("FLOPs by component", "FLOPs", values["flops"]["by_component"]),
        _chart("Memory of a step by part", "bytes", memory),
        {
            "title": "FLOPs by context length",
            "unit": "share",
            "labels": labels,
            "series": [{"name": name, "values": each} for name, each in shares.items()],
        },
    ]


def _chart(title: str, unit: str, sizes: Mapping[str, int]) -> dict[str, Any]:
    series = [{"name": unit, "values": list(sizes.values())}]
    labels = [label.replace("_", "-") for label in sizes]
    return {"title": title, "unit": unit, "labels": labels, "series": series}


# --- the arithmetic of a number ------------------------------------------------------------------

# Numbers that a formula names, by the number that it gives: the first pattern that matches. Other
# numbers of equal size are not meant.
_OURS, _TEXTBOOK = "memory.implementation.", "memory.textbook."
_NAMED = {
    "parameters.*": ["parameters."],
    "flops.forward": ["flops.products."],
    "flops.by_component.*": ["flops.products."],
    "flops.elementwise_total": ["flops.elementwise."],
    "flops.optimizer_total": ["flops.optimizer."],
    "flops.*": ["flops.forward", "flops.per_step"],
    "memory.textbook.per_sequence_bytes": [f"{_TEXTBOOK}activations."],
    "memory.implementation.per_sequence_bytes": [f"{_OURS}activations."],
    "memory.implementation.once_bytes": [f"{_OURS}activations."],
    "memory.*.activations.*": [],
    "memory.textbook.*": [f"{_TEXTBOOK}{name}" for name in ("per_sequence_bytes", "once_bytes")],
    "memory.implementation.*": [
        *(f"{_OURS}{name}" for name in _MEMORY),
        *(f"{_OURS}{name}" for name in ("per_sequence_bytes", "once_bytes")),
    ],
    "cost.*": ["cost.seconds", "flops.per_run", "flops.per_step"],
}
_WIDTHS = ["d_head", "d_query", "parameters.total"]
"""Numbers that every formula names."""
_SEARCHED: dict[str, Callable[..., object]] = {
    "optimum.parameters": compute_optimal,
    "optimum.tokens": compute_optimal,
    "memory.implementation.largest_batch": largest_batch,
}
"""Numbers that are not the result of an operator."""


def explain(path: str, found: Account) -> dict[str, Any]:
    """Return the formula of a number of a traced account, and the lines that compute it."""
    config = found.config
    values = {"d_head": config.d_head, "d_query": config.d_query, **found.to_dict()}
    number = _at(values, path)
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise ValueError(f"{path[:80]!r} is not a number.")
    patterns = next((each for root, each in _NAMED.items() if fnmatch(path, root)), [])
    named = {
        each: value
        for each, value in _numbers(values)
        if each != path and any(map(each.startswith, [*_WIDTHS, *patterns]))
    }
    formulas = Formulas(named, {each: _label(each, values) for each in named})
    parts = formulas.parts(number)
    lines = [_line(line.file, line.number, line.function) for line in formulas.lines(number)]
    if path in _SEARCHED:
        parts = _searched(path, found)
        lines = [_definition(_SEARCHED[path])]
    operation = operation_of(number)
    is_given = operation is not None and not operation.symbol
    return {
        "path": path,
        "label": _label(path, values),
        "value": shown(number),
        "is_given": is_given,
        "parts": [
            asdict(part) | {"is_number": part.value.strip(" ()+−×/^") != ""} for part in parts
        ],
        "lines": lines,
    }


def _definition(function: Callable[..., object]) -> dict[str, Any]:
    _, first = inspect.getsourcelines(function)
    return _line(inspect.getsourcefile(function) or "", first, function.__name__)


def _searched(path: str, found: Account) -> list[Part]:
    if path == "memory.implementation.largest_batch":
        batch = found.largest_batch or 0
        kind = (found.optimizer, found.dtype)
        peaks = [
            training_memory(
                found.config, size, *kind, num_microbatches=found.num_microbatches
            ).peak_bytes
            for size in (max(1, batch), batch + 1)
        ]
        limit = shown(found.memory_limit_bytes or 0)
        return [
            Part(f"the peak of {batch:,}", shown(peaks[0] if batch else 0)),
            Part(" ≤ ", " ≤ "),
            Part("memory", limit),
            Part(" < ", " < "),
            Part(f"the peak of {batch + 1:,}", shown(peaks[1])),
        ]
    optimum = found.optimum
    assert optimum is not None
    if path == "optimum.tokens":
        parameters = Part("parameters", shown(optimum.parameters), "optimum.parameters")
        return [Part("20", "20"), Part(" × ", " × "), parameters]
    flops = Part("FLOPs of the hours", shown(optimum.flops), "optimum.flops")
    return [
        Part("√(", "√("),
        flops,
        Part(" / ", " / "),
        Part("(6 × 20)", "(6 × 20)"),
        Part(")", ")"),
    ]


def _numbers(values: object, path: str = "") -> Iterator[tuple[str, Number]]:
    """Yield all numbers of nested values with their paths."""
    if isinstance(values, Mapping | list):
        pairs = values.items() if isinstance(values, Mapping) else enumerate(values)
        for name, value in pairs:
            yield from _numbers(value, f"{path}.{name}" if path else str(name))
    elif isinstance(values, int | float) and not isinstance(values, bool):
        yield path, values


def _label(path: str, values: Values) -> str:
    """Return the name of a number in a formula."""
    if "." not in path:
        return path  # d_head
    group, *middle, name = path.split(".")
    if "products" in middle:
        return f"{name} of {_at(values, path.rpartition('.')[0])['name']}".replace("flops", "FLOPs")
    if "activations" in middle:
        saved = _at(values, path.rpartition(".")[0])
        return f"{saved['name']} ({saved['component']})"
    words = name.replace("_", " ")
    if group == "parameters":
        return {"total": "parameters", "bytes": "bytes of parameters"}.get(
            name, f"{words} parameters"
        )
    if group == "memory":
        kind = "textbook " if "textbook" in middle else ""
        words = words.replace("per sequence bytes", "activations of a sequence, bytes")
        return f"{kind}{words.replace('once bytes', 'bytes that do not grow with the batch')}"
    if group == "flops":
        return words if middle else f"FLOPs {words.replace('forward', 'of a forward pass')}"
    if path == "optimum.flops":
        return "FLOPs of the hours"
    return {"mfu": "MFU", "energy kwh": "kWh", "money": "price of the run"}.get(words, words)


def _line(file: str, number: int, function: str) -> dict[str, Any]:
    """Return a line of source, with the function around it."""
    lines, first, last = _function(file, number)
    return {
        "file": _module_path(file),
        "line": number,
        "function": re.sub(r"\.<\w+>", "", function),  # of comprehensions
        "text": lines[number - first].strip(),
        "first": first,
        "source": lines[: last - first + 1],
    }


def _module_path(file: str) -> str:
    """Return the path of a source file of the package, without the folder of its installation."""
    path, package = Path(file), Path(__file__).parents[1]
    return (
        path.relative_to(package.parent).as_posix() if path.is_relative_to(package) else path.name
    )


@lru_cache(maxsize=256)
def _function(file: str, number: int) -> tuple[list[str], int, int]:
    """Return the lines of the innermost function around a line, and its first and last line."""
    module = inspect.getmodule(None, file)
    source = inspect.getsource(module) if module else Path(file).read_text("utf-8")
    lines = source.splitlines()
    spans = [
        (node.lineno, node.end_lineno or node.lineno)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef) and node.lineno <= number <= (node.end_lineno or 0)
    ]
    first, last = max(spans, default=(number, number))
    return lines[first - 1 : last], first, last
