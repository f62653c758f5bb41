"""An account as tables for a reader.

What enters: the plain values of an `Account`. What leaves: the text of its tables, or the same in
colour on a terminal.

"""

import io
from collections.abc import Iterable, Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from tilth.formatting import format_bytes, format_duration, scientific

WIDTH = 100  # of text that goes to a file
COMPONENTS = {
    "embedding": "embedding",
    "attention": "attention",
    "feed_forward": "feed-forward",
    "norms": "norms",
    "head": "head",
}


def render(values: Mapping[str, Any]) -> str:
    """The tables as plain text."""
    with io.StringIO() as text:
        show(values, Console(file=text, width=WIDTH))
        return text.getvalue().rstrip()


def show(values: Mapping[str, Any], console: Console) -> None:
    """Print the tables."""
    _print(console, *_heading(values))
    console.print(_parameters(values))
    console.print(_products(values))
    console.print(_operations(values))
    console.print(_memory(values))
    _print(console, *_memory_notes(values))
    if values["cost"] is not None:
        console.print(_time(values))
    if values["optimum"] is not None:
        _print(console, *_optimum(values["optimum"]))


def shares_table(title: str, first_column: str, rows: Mapping[str, dict[str, int]]) -> Table:
    """A table of the FLOPs of forward passes and the shares of their components."""
    components = list(next(iter(rows.values())))
    headings = [component.replace(" ", "\n", 1) for component in components]
    table = _table(title, first_column, "forward FLOPs", *headings)
    for name, flops in rows.items():
        total = sum(flops.values())
        table.add_row(name, f"{total:,}", *(share(flops[each], total) for each in components))
    return table


def plain(number: float) -> str:
    """At least three digits, and never a power of ten where one can read the number.

    >>> plain(12345.6), plain(0.12345)
    ('12,346', '0.123')
    """
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def share(part: float, whole: float) -> str:
    """A percentage."""
    return f"{part / whole:.1%}"


def _heading(values: Mapping[str, Any]) -> Iterable[str]:
    model = values["model"]
    shape = (
        f"{values['name']}: {model['num_layers']} layers of width {model['d_model']:,}, "
        f"{model['num_heads']} heads, d_ff {model['d_ff']:,} ({model['ffn']}), "
        f"vocabulary {model['vocab_size']:,}, context {model['context_length']:,}"
    )
    usual = {"norm": "pre", "position": "rope", "tie_embeddings": False, "qk_norm": False}
    usual["num_kv_heads"] = model["num_heads"]
    unusual = [f"{name} {model[name]}" for name, value in usual.items() if model[name] != value]
    yield ", ".join([shape, *unusual])
    yield from values["notes"]


def _parameters(values: Mapping[str, Any]) -> Table:
    parameters = values["parameters"]
    total = parameters["total"]
    table = _table("Parameters", "", "number", "share")
    for name, title in COMPONENTS.items():
        tied = name == "head" and values["model"]["tie_embeddings"]
        shown = "is the embedding" if tied else f"{parameters[name]:,}"
        table.add_row(title, shown, share(parameters[name], total))
    table.add_section()
    unit, power = ("GiB", 30) if parameters["bytes"] >= 2**30 else ("MiB", 20)
    table.add_row("all, trainable", f"{total:,}", "100.0%")
    table.add_row("without the embedding", f"{parameters['without_embedding']:,}")
    table.add_row("without embedding and head", f"{parameters['without_embedding_and_head']:,}")
    table.add_row("bytes in float32", f"{parameters['bytes']:,}", format_bytes(parameters["bytes"]))
    table.add_row("", "", f"{parameters['bytes'] / 2**power:,.2f} {unit}")
    return table


def _products(values: Mapping[str, Any]) -> Table:
    flops = values["flops"]
    total = flops["forward"]
    tokens = values["model"]["context_length"]
    title = f"Forward pass over {tokens:,} tokens: (m, n) times (n, p) takes 2mnp FLOPs"
    table = _table(title, "product", "m", "n", "p", "times", "FLOPs", "share")
    for product in flops["products"]:
        numbers = (f"{product[name]:,}" for name in ("m", "n", "p", "times", "flops"))
        table.add_row(product["name"], *numbers, share(product["flops"], total))
    table.add_section()
    for component, number in flops["by_component"].items():
        table.add_row(component, *[""] * 4, f"{number:,}", share(number, total))
    table.add_section()
    table.add_row("all products", *[""] * 4, f"{total:,}", "100.0%")
    extra = flops["elementwise_total"]
    table.add_row("besides: softmax, norms, ...", *[""] * 4, f"{extra:,}", share(extra, total))
    return table


def _operations(values: Mapping[str, Any]) -> Table:
    flops, training = values["flops"], values["training"]
    batch_size, optimizer = training["batch_size"], training["optimizer"]
    tokens = batch_size * values["model"]["context_length"]
    backward = "backward, with the forward pass again" if training["recompute"] else "backward"
    table = _table(
        f"Training, a batch of {batch_size:,} ({tokens:,} tokens)", "FLOPs", "number", "as"
    )
    forward = batch_size * flops["forward"]
    rows = [
        ("forward", forward),
        (backward, flops["per_step"] - forward),
        ("a step", flops["per_step"]),
        ("a token", flops["per_token"]),
        (f"{optimizer}'s update", flops["optimizer_total"]),
        *((f"  {name}", number) for name, number in flops["optimizer"].items()),
    ]
    if flops["per_run"] is not None:
        steps, run_tokens = training["steps"], training["tokens"]
        rows.append((f"{steps:,} steps, {run_tokens:,} tokens", flops["per_run"]))
    for name, number in rows:
        table.add_row(name, f"{number:,}", scientific(number))
    per_parameter = flops["optimizer_total"] / values["parameters"]["total"]
    table.caption = f"{optimizer}: {per_parameter:,.4g} operations for each parameter"
    return table


def _memory(values: Mapping[str, Any]) -> Table:
    """Both lists of activations by component, then what is always there, then the sums."""
    training, memory = values["training"], values["memory"]
    textbook, ours = memory["textbook"], memory["implementation"]
    batch_size = training["microbatch_size"]
    what = "sequence" if batch_size == 1 else "sequences"
    table = _table(
        f"Memory of training, {batch_size:,} {what} at a time, products in {training['dtype']}",
        *("", "textbook", "this implementation", "of it for any batch"),
    )
    components = dict.fromkeys(
        kept["component"] for kept in [*textbook["activations"], *ours["activations"]]
    )
    for component in components:
        by_book, once_by_book = _sums(textbook["activations"], component)
        by_us, once_by_us = _sums(ours["activations"], component)
        table.add_row(
            f"activations: {component}",
            format_bytes(by_book * batch_size + once_by_book),
            format_bytes(by_us * batch_size + once_by_us),
            format_bytes(once_by_us) if once_by_us else "",
        )
    always = (("parameters", "parameters_bytes"), ("gradients", "gradients_bytes"))
    for name, key in always:
        table.add_row(name, format_bytes(ours[key]), format_bytes(ours[key]))
    moments = textbook["once_bytes"] - ours["parameters_bytes"] - ours["gradients_bytes"]
    table.add_row(
        f"{training['optimizer']}'s state",
        format_bytes(moments),
        format_bytes(ours["optimizer_state_bytes"]),
    )
    table.add_section()
    table.add_row(
        "all at once, or the worst moment",
        format_bytes(textbook["bytes"]),
        format_bytes(ours["peak_bytes"]),
    )
    if memory["limit_bytes"] is not None:
        limit = format_bytes(memory["limit_bytes"])
        largest = (str(each["largest_batch"]) for each in (textbook, ours))
        table.add_row(f"the most sequences in {limit}", *largest)
    return table


def _memory_notes(values: Mapping[str, Any]) -> Iterable[str]:
    memory = values["memory"]
    textbook, ours = memory["textbook"], memory["implementation"]
    yield (
        f"Textbook: {textbook['per_sequence_bytes']:,} bytes x batch + {textbook['once_bytes']:,}. "
        f"Kept by this implementation: {ours['per_sequence_bytes']:,} bytes x batch + "
        f"{ours['once_bytes']:,}; its worst moment leaves out what is not there at once, and torch "
        "itself."
    )
    yield (
        f"Generating: {format_bytes(memory['cache_bytes'])} of keys and values for one sequence of "
        f"{values['model']['context_length']:,} tokens."
    )


def _time(values: Mapping[str, Any]) -> Table:
    hardware, cost, training = values["hardware"], values["cost"], values["training"]
    steps = training["steps"]
    length = "1 step" if steps is None else f"{steps:,} steps"
    peak = hardware["flops_per_second"][training["dtype"]]
    table = _table(f"Time of {length} on {hardware['what']}", "", "")
    table.add_row("peak", f"{peak / 1e12:,.4g} TFLOP/s in {training['dtype']}")
    table.add_row("which is from", hardware["source"])
    table.add_row("reached (MFU)", f"{cost['mfu']:.0%}")
    table.add_row("time", format_duration(cost["seconds"]))
    table.add_row("hours", plain(cost["seconds"] / 3600))
    if cost["energy_kwh"] is not None:
        table.add_row("energy", f"{plain(cost['energy_kwh'])} kWh at {hardware['watts']:.0f} W")
    if cost["money"] is not None:
        table.add_row("money", f"{cost['money']:,.2f}")
    return table


def _optimum(optimum: Mapping[str, float]) -> Iterable[str]:
    yield (
        f"These hours are {scientific(optimum['flops'])} FLOPs. By Hoffmann et al. (2022), "
        f"an estimate, they are best spent on {scientific(optimum['parameters'])} parameters and "
        f"{scientific(optimum['tokens'])} tokens, 20 for each."
    )


def _sums(activations: Iterable[Mapping[str, Any]], component: str) -> tuple[int, int]:
    alike = [kept for kept in activations if kept["component"] == component]
    return sum(k["per_sequence_bytes"] for k in alike), sum(k["once_bytes"] for k in alike)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    table.min_width = len(title)  # else a narrow table breaks it
    table.caption_justify = "left"
    table.show_header = any(columns)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=number > 0)
    return table


def _print(console: Console, *paragraphs: str) -> None:
    for paragraph in paragraphs:
        console.print(paragraph, highlight=False, soft_wrap=False, markup=False)
