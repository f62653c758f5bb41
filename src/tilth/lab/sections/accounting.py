"""Section 5, second part: accounting, and how each hand count differed from it."""

from dataclasses import replace
from itertools import pairwise

from tilth.accounting import account, count_parameters, flops_by_component, forward_flops
from tilth.config.model import ModelConfig
from tilth.config.shapes import GPT2_SHAPES, gpt2_parameters
from tilth.formatting import format_bytes
from tilth.lab.sections.section import Made, Setting, declared
from tilth.report.lab_file import Lab, Table

XL = GPT2_SHAPES["gpt2-xl"]
LONG = 16_384
STEPS, BATCH = 400_000, 1024
HALF_A100 = 19.5e12 / 2
DAY = 86_400
Row = tuple[str, str, str, str]


def product_flops(config: ModelConfig, *names: str) -> int:
    """Return the FLOPs of some products of a forward pass, by name."""
    products = account(config).products
    return sum(product.flops for product in products if product.name in names)


def days_of(flops_per_sequence: float) -> float:
    """Return the days of the handout's run: forward and backward, half of an A100's peak."""
    return STEPS * BATCH * flops_per_sequence / HALF_A100 / DAY


def reconstructions() -> list[Row]:
    """Return how each hand count arises: author, quantity, cause, and the recomputed number."""
    config, long = XL, replace(XL, context_length=LONG)
    parameters = count_parameters(config)
    total, flops, flops_long = parameters.total, forward_flops(config), forward_flops(long)
    s, d, layers_ = config.context_length, config.d_model, config.num_layers
    scores = product_flops(config, "scores", "weighted sum")
    head, head_long = product_flops(config, "lm_head"), product_flops(long, "lm_head")
    output = product_flops(config, "output_proj")
    square_head = 2 * s * d * d
    no_scores = flops - scores
    tokens = STEPS * BATCH * s
    six_n_d = 6 * tokens / HALF_A100 / DAY
    recomputed = {
        "parameters in float32": f"{4 * total:,}",
        "parameters without norms": f"{total - parameters.norms:,}",
        "parameters with mask and table": f"{total + s * s + s * d:,}",
        "bits": f"{32 * total / 1e9:.0f} billion bits",
        "without scores": f"{no_scores:.4e}",
        "12 s d^2 per layer": f"{no_scores + layers_ * 4 * s * d * d:.4e}",
        "without head": f"{flops - head:.4e}",
        "without output projection": f"{flops - output - head + square_head:.4e}",
        "long, from the count without scores": f"{no_scores * LONG // s:.4e}",
        "long, without head": f"{flops_long - head_long:.4e}",
        "long, without output projection": (
            f"{flops_long - product_flops(long, 'output_proj'):.4e}"
        ),
        "days without scores": f"{days_of(3 * no_scores):,.0f} days",
        "days by 6 N D": f"{total * six_n_d:,.0f} days, {total * six_n_d / 365.25:.1f} years",
        "days by OpenAI's parameters": f"{gpt2_parameters(config) * six_n_d:,.0f} days",
    }
    return [
        (row["author"], row["quantity"], row["cause"], recomputed[row["recomputed"]])
        for row in declared()["parts"]["accounting"]["reconstructions"]
    ]


def _shares(configs: dict[str, ModelConfig]) -> Table:
    by_name = {name: flops_by_component(config) for name, config in configs.items()}
    components = list(next(iter(by_name.values())))
    rows = tuple(
        (
            name,
            f"{count_parameters(configs[name]).total:,}",
            f"{sum(flops.values()):.4e}",
            *(f"{flops[each] / sum(flops.values()):.1%}" for each in components),
        )
        for name, flops in by_name.items()
    )
    columns = ("shape", "parameters", "forward FLOPs", *components)
    return Table("Shares of the forward FLOPs", columns, rows)


def made(setting: Setting) -> Made:
    """Account for GPT-2 XL, and for each hand count."""
    xl, long = account(XL), account(replace(XL, context_length=LONG))
    size = xl.memory.parameters_bytes
    parts = [(name, number) for name, number in vars(xl.parameters).items()]
    products = Table.by(
        "Products of a forward pass of GPT-2 XL: (m, n) times (n, p) takes 2mnp",
        xl.products,
        {
            "product": lambda each: each.name,
            "m": lambda each: each.m,
            "n": lambda each: each.n,
            "p": lambda each: each.p,
            "times": lambda each: each.times,
            "FLOPs": lambda each: f"{each.flops:.4e}",
        },
    )
    shapes = {**GPT2_SHAPES, f"gpt2-xl at {LONG:,} tokens": long.config}
    scores = [
        flops_by_component(config)["attention scores and values"] / forward_flops(config)
        for config in (xl.config, long.config)
    ]
    heads = [flops_by_component(c)["head"] / forward_flops(c) for c in GPT2_SHAPES.values()]
    trend = "shrinks" if all(a > b for a, b in pairwise(heads)) else "does not always shrink"
    answer = (
        f"GPT-2 XL in this architecture has {xl.parameters.total:,} parameters, {size / 1e9:.2f} "
        f"GB ({size / 2**30:.2f} GiB) in float32, and needs {xl.forward_flops:.4e} FLOPs for a "
        f"forward pass over {XL.context_length:,} tokens, {long.forward_flops:.4e} over {LONG:,}. "
        f"Attention scores grow from {scores[0]:.0%} to {scores[1]:.0%} of them; the share of the "
        f"head {trend} with the model."
    )
    tables = (
        Table("Parameters of GPT-2 XL", ("component", "parameters"), tuple(parts)),
        products,
        _shares(shapes),
        Table(
            "How each hand count arises: our count with the same omission",
            ("write-up", "quantity", "cause", "recomputed"),
            tuple(reconstructions()),
        ),
    )
    command = ("tilth", "account", "gpt2-xl", "--shares")
    lab = Lab("accounting", "", answer, command, tables=tables)
    here = {
        "parameters": f"{xl.parameters.total:,}",
        "parameter_bytes": f"{format_bytes(size)}, {size / 2**30:.2f} GiB",
        "forward_flops": f"{xl.forward_flops:.4e}",
        "forward_flops_long": f"{long.forward_flops:.4e}",
    }
    return Made.of(lab, "accounting", here)
