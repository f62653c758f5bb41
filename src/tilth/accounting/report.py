"""An account as text tables.

>>> print(plain(12345.6), plain(0.12345))
12,346 0.123
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from tilth.formatting import format_bytes, format_duration, printable, scientific

WIDTH = 100  # columns of text in a file or a pipe
Values = Mapping[str, Any]
COMPONENTS = ("embedding", "attention", "feed_forward", "norms", "head")


def render(values: Values) -> str:
    """Format the tables of `Account.to_dict()` as plain text."""
    with io.StringIO() as text:
        show(values, Console(file=text, width=WIDTH))
        return text.getvalue().rstrip()


def show(values: Values, console: Console) -> None:
    """Print the tables of `Account.to_dict()`."""
    for section in (_heading, _parameters, _products, _operations, _memory, _time, _optimum):
        for part in section(values):
            console.print(part, highlight=False, markup=False)


def shares_table(title: str, first_column: str, rows: Mapping[str, dict[str, int]]) -> Table:
    """Return a table of the FLOPs of forward passes and the shares of their components."""
    components = list(next(iter(rows.values())))
    headings = [component.replace(" ", "\n", 1) for component in components]
    cells = [
        (name, total := sum(flops.values()), *(share(flops[each], total) for each in components))
        for name, flops in rows.items()
    ]
    return _table(title, (first_column, "forward FLOPs", *headings), cells)


def ranks_tables(values: Values) -> Iterator[Table]:
    """Yield the tables of a training on several ranks (`ranks.RanksCost.to_dict`)."""
    number = f"{values['ranks']:,} rank{'s' * (values['ranks'] != 1)}"
    division = values["strategy"]
    if division == "fsdp":
        division += f", {values['shards']:,} shards of a copy"
    fits = {True: "fits", False: "does not fit", None: ""}[values["fits"]]
    rows = [
        ("sequences of a rank in a step", f"{values['rows']:,}"),
        ("microbatches", f"{values['num_microbatches']:,}"),
        ("memory of a rank", f"{format_bytes(values['memory_bytes'])} {fits}".rstrip()),
        ("sent by a rank in a step", format_bytes(values["traffic_bytes"])),
        ("computing", f"{values['compute_seconds']:.3g} s"),
        ("sending", f"{values['traffic_seconds']:.3g} s"),
        ("step", f"{values['step_seconds']:.3g} s"),
        ("tokens per second", f"{values['tokens_per_second']:,.0f}"),
    ]
    if values["run_seconds"] is not None:
        rows.append(("all steps, without failures", format_duration(values["run_seconds"])))
    size = format_bytes(values["checkpoint_bytes"])
    rows.append(("checkpoint", f"{size}, saved in {values['save_seconds']:.3g} s"))
    yield _table(f"Training on {number}: {division}", ("", ""), rows)
    if values["mtbf_seconds"] is None:
        return
    work = "all steps" if values["run_seconds"] is not None else "30 days of work"
    table = _table(
        f"Goodput with a failure every {format_duration(values['mtbf_seconds'])} on average",
        ("checkpoint every", "formula", "simulated", "5% to 95%", "failures", f"time of {work}"),
        [
            (
                format_duration(each["interval_seconds"]),
                f"{each['expected']:.1%}",
                f"{found['goodput']:.1%}",
                f"{found['low_goodput']:.1%} to {found['high_goodput']:.1%}",
                f"{found['failures']:,.1f}",
                format_duration(found["seconds"]),
            )
            for each in values["goodputs"]
            for found in [each["simulation"]]
        ],
    )
    best, young, daly = (
        format_duration(values[f"{name}_seconds"]) for name in ("best", "young", "daly")
    )
    table.caption = f"best: {best}; by Young (1974): {young}; by Daly (2006): {daly}"
    yield table


def plain(number: float) -> str:
    """Format a number with three digits or more, and without an exponent from 100 on."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def share(part: float, whole: float) -> str:
    """Format a share as a percentage."""
    return f"{part / whole:.1%}"


def _heading(values: Values) -> Iterator[str]:
    model = values["model"]
    shape = (
        f"{printable(values['name'])}: {model['num_layers']} layers of width {model['d_model']:,}, "
        f"{model['num_heads']} heads, d_ff {model['d_ff']:,} ({model['ffn']}), "
        f"vocabulary {model['vocab_size']:,}, context {model['context_length']:,}"
    )
    usual = {"norm": "pre", "position": "rope", "tie_embeddings": False, "qk_norm": False}
    usual["num_kv_heads"] = model["num_heads"]
    usual |= {"head_dim": None, "norm_eps": None, "qkv_bias": None, "rope_scaling": None}
    given = {name: model.get(name) for name in usual}  # the last four are absent by default
    if scaling := given["rope_scaling"]:
        given["rope_scaling"] = f"by {scaling['factor']:g}"
    unusual = [f"{name} {given[name]}" for name, value in usual.items() if given[name] != value]
    yield ", ".join([shape, *unusual])
    yield from values["notes"]


def _parameters(values: Values) -> Iterator[Table]:
    parameters = values["parameters"]
    total, size = parameters["total"], parameters["bytes"]
    shown = parameters | (
        {"head": "tied to the embedding"} if values["model"]["tie_embeddings"] else {}
    )
    unit, power = ("GiB", 30) if size >= 2**30 else ("MiB", 20)
    yield _table(
        "Parameters",
        ("", "number", "share"),
        [(n.replace("_", "-"), shown[n], share(parameters[n], total)) for n in COMPONENTS],
        [
            ("all, trainable", total, "100.0%"),
            ("without the embedding", parameters["without_embedding"]),
            ("without embedding and head", parameters["without_embedding_and_head"]),
            ("bytes in float32", size, format_bytes(size)),
            ("", "", f"{size / 2**power:,.2f} {unit}"),
        ],
    )


def _products(values: Values) -> Iterator[Table]:
    flops, tokens = values["flops"], values["model"]["context_length"]
    total, columns = flops["forward"], ("name", "m", "n", "p", "times", "flops")
    sums = {"all products": total, "elementwise: softmax, norms, ...": flops["elementwise_total"]}
    yield _table(
        f"Forward pass over {tokens:,} tokens: (m, n) times (n, p) takes 2mnp FLOPs",
        ("product", *columns[1:-1], "FLOPs", "share"),
        [(*map(each.get, columns), share(each["flops"], total)) for each in flops["products"]],
        *(
            [(name, *[""] * 4, number, share(number, total)) for name, number in part.items()]
            for part in (flops["by_component"], sums)
        ),
    )


def _operations(values: Values) -> Iterator[Table]:
    flops, training = values["flops"], values["training"]
    batch_size, optimizer = training["batch_size"], training["optimizer"]
    tokens = batch_size * values["model"]["context_length"]
    forward = batch_size * flops["forward"]
    backward = "backward with recomputation" if training["recompute"] else "backward"
    numbers = {
        "forward": forward,
        backward: flops["per_step"] - forward,
        "per step": flops["per_step"],
        "per token": flops["per_token"],
        f"{optimizer} update": flops["optimizer_total"],
        **{f"  {name}": number for name, number in flops["optimizer"].items()},
    }
    if flops["per_run"] is not None:
        numbers[f"{training['steps']:,} steps, {training['tokens']:,} tokens"] = flops["per_run"]
    table = _table(
        f"Training, batch of {batch_size:,} ({tokens:,} tokens)",
        ("", "FLOPs", "rounded"),
        [(name, number, scientific(number)) for name, number in numbers.items()],
    )
    per_parameter = flops["optimizer_total"] / values["parameters"]["total"]
    table.caption = f"{optimizer}: {per_parameter:,.4g} operations per parameter"
    yield table


def _memory(values: Values) -> Iterator[Table | str]:
    """Bytes by component: activations, then the tensors that outlast a step, then sums."""
    training, memory = values["training"], values["memory"]
    batch_size = training["microbatch_size"]
    both = textbook, ours = memory["textbook"], memory["implementation"]
    rows = []
    for component in dict.fromkeys(a["component"] for each in both for a in each["activations"]):
        saved = [[a for a in each["activations"] if a["component"] == component] for each in both]
        once = [sum(a["once_bytes"] for a in each) for each in saved]
        sizes = [
            fixed + batch_size * sum(a["per_sequence_bytes"] for a in each)
            for fixed, each in zip(once, saved, strict=True)
        ]
        rows.append((f"activations: {component}", *sizes, *filter(None, once[1:])))
    parameters, gradients = ours["parameters_bytes"], ours["gradients_bytes"]
    moments = textbook["once_bytes"] - parameters - gradients
    rows += [
        ("parameters", parameters, parameters),
        ("gradients", gradients, gradients),
        (f"{training['optimizer']} state", moments, ours["optimizer_state_bytes"]),
        ("total, or peak of a step", textbook["bytes"], ours["peak_bytes"]),
    ]
    *shown, peaks = [(name, *map(format_bytes, sizes)) for name, *sizes in rows]
    sums = [peaks]
    if memory["limit_bytes"] is not None:
        limit = f"largest batch in {format_bytes(memory['limit_bytes'])}"
        sums.append((limit, *(str(each["largest_batch"]) for each in both)))
    unit = "sequence" if batch_size == 1 else "sequences"
    yield _table(
        f"Training memory, microbatch of {batch_size:,} {unit}, products in {training['dtype']}",
        ("", "textbook", "this implementation", "independent of batch"),
        shown,
        sums,
    )
    yield (
        f"Textbook: {textbook['per_sequence_bytes']:,} bytes x batch + {textbook['once_bytes']:,}. "
        f"Activations of this implementation: {ours['per_sequence_bytes']:,} bytes x batch + "
        f"{ours['once_bytes']:,}. The peak counts tensors that exist at the same time, without "
        "torch itself."
    )
    yield (
        f"Generation: {format_bytes(memory['cache_bytes'])} of key/value cache per sequence of "
        f"{values['model']['context_length']:,} tokens."
    )


def _time(values: Values) -> Iterator[Table]:
    hardware, cost, training = values["hardware"], values["cost"], values["training"]
    if cost is None:
        return
    length = f"{training['steps']:,} steps" if training["steps"] else "1 step"
    peak = hardware["flops_per_second"][training["dtype"]]
    rows = [
        ("peak", f"{peak / 1e12:,.4g} TFLOP/s in {training['dtype']}"),
        ("source", hardware["source"]),
        ("utilization (MFU)", f"{cost['mfu']:.0%}"),
        ("time", format_duration(cost["seconds"])),
        ("hours", plain(cost["seconds"] / 3600)),
    ]
    if cost["energy_kwh"] is not None:
        rows.append(("energy", f"{plain(cost['energy_kwh'])} kWh at {hardware['watts']:.0f} W"))
    if cost["money"] is not None:
        rows.append(("price", f"{cost['money']:,.2f}"))
    yield _table(f"Time of {length} on {hardware['what']}", ("", ""), rows)


def _optimum(values: Values) -> Iterator[str]:
    if values["optimum"] is not None:
        flops, parameters, tokens = map(scientific, values["optimum"].values())
        yield (
            f"The hours are {flops} FLOPs. Compute-optimal, by an estimate of Hoffmann et al. "
            f"(2022): {parameters} parameters and {tokens} tokens, 20 per parameter."
        )


def _table(title: str, columns: Sequence[str], *sections: Sequence[Sequence[Any]]) -> Table:
    """Return a table of texts and integers, with a line between sections."""
    title = printable(title)  # it may name a file; rich passes escape sequences on
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    table.min_width = len(title)  # else rich wraps the title of a narrow table
    table.caption_justify = "left"
    table.show_header = any(columns)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=number > 0)
    for section in sections:
        table.add_section()
        for row in section:
            table.add_row(*(printable(c) if isinstance(c, str) else f"{c:,}" for c in row))
    return table
