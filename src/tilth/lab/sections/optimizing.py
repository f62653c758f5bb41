"""Section 6: SGD on a toy, and the memory, the operations and the days of AdamW."""

from dataclasses import replace

from tilth.accounting import account, optimizer_operations
from tilth.lab.questions.sgd import RATES, as_lab, descend
from tilth.lab.sections.accounting import BATCH, STEPS, XL, reconstructions
from tilth.lab.sections.section import Made, Setting
from tilth.report.lab_file import Lab, Table

LIMITS = {"80 GB": 80e9, "80 GiB": 80 * 2**30}
SGD_STEPS = 10
COMMAND = f"tilth account gpt2-xl --hardware a100 --mfu 0.5 --batch-size {BATCH} --steps {STEPS}"


def descended(setting: Setting) -> Made:
    """Minimise the toy by SGD at several rates."""
    seed = setting.options["seed"]
    losses = {rate: descend(rate, SGD_STEPS, seed) for rate in RATES}
    command = ("tilth", "lab", "sgd", "--seed", str(seed))
    said = [
        f"{rate:g}: {'falls' if line[-1] < line[0] else 'diverges'} to {line[-1]:.3g}"
        for rate, line in losses.items()
    ]
    lab = replace(as_lab(losses), command=command)
    return Made.of(lab, "sgd", {"sgd": "; ".join(said)}, steps=SGD_STEPS, seed=seed)


def accounted(setting: Setting) -> Made:
    """Account for AdamW on GPT-2 XL."""
    xl = account(XL, batch_size=BATCH, steps=STEPS, hardware="a100")
    memory, cost = xl.textbook_memory, xl.cost
    assert cost is not None
    largest = {name: account(XL, memory_bytes=limit) for name, limit in LIMITS.items()}
    operations = optimizer_operations(XL, "adamw")
    per_parameter = {name: count // xl.parameters.total for name, count in operations.items()}
    days = cost.seconds / 86_400
    batches = {name: found.largest_textbook_batch for name, found in largest.items()}
    said = " and ".join(f"{batch} in {name}" for name, batch in batches.items())
    answer = (
        f"AdamW needs {memory.per_sequence_bytes:,} bytes x batch + {memory.once_bytes:,} bytes "
        f"for GPT-2 XL: the largest batch is {said}. A step takes {sum(per_parameter.values())} "
        f"operations per parameter, and {STEPS:,} steps of {BATCH:,} sequences take {days:,.0f} "
        "days on an A100 at half of its float32 peak."
    )
    sizes = {
        "parameters": 4 * xl.parameters.total,
        "gradients": 4 * xl.parameters.total,
        "first and second moments": 8 * xl.parameters.total,
        "activations per sequence": memory.per_sequence_bytes,
    }
    tables = (
        Table("Bytes in float32", ("", "bytes"), tuple(sizes.items())),
        Table(
            "The largest batch",
            ("memory", "textbook formula", "this implementation"),
            tuple((n, a.largest_textbook_batch, a.largest_batch) for n, a in largest.items()),
        ),
        Table(
            "Operations of an update, per parameter",
            ("part", "operations"),
            tuple(per_parameter.items()),
        ),
        Table(
            "Days on an A100, by what is counted",
            ("counted", "days"),
            (
                ("all products, three times the forward pass", f"{days:,.0f} days"),
                *(
                    (f"{cause} ({author})", found)
                    for author, what, cause, found in reconstructions()
                    if what == "A100 time"
                ),
            ),
        ),
    )
    lab = Lab("adamw", "", answer, tuple(COMMAND.split()), tables=tables)
    here = {
        "largest_batch": said,
        "adamw_operations": str(sum(per_parameter.values())),
        "a100_days": f"{days:,.0f} days, {days / 365.25:.1f} years",
    }
    return Made.of(lab, "adamw", here)
