"""Planning a question: its base config, the steps that a time budget allows, and its cost.

plan = plan_question(LearningRate, "lr", "data/stories", {"budget": "20m", "out": "lab/lr"})
print(plan)                 # the trials and their cost; nothing is trained
for event in plan.run():
    ...
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypedDict

from tilth.accounting import count_parameters
from tilth.config.overrides import changed
from tilth.config.threads import checked_threads, usable_cores
from tilth.config.training import TrainingConfig, differences
from tilth.data import open_data
from tilth.executors import Executor
from tilth.files import StrPath
from tilth.formatting import format_duration, parse_duration, scientific, suggestion
from tilth.lab.question import Question, Tell, refuse_changes, relative_cost, run_flops
from tilth.lab.runner import Event, run_question
from tilth.recipes import recipe_named
from tilth.report.lab_file import LAB, Lab, check_folder, load_lab
from tilth.schema import check_int
from tilth.training import plan as plan_run

WATCH = {  # half of a usual evaluation, as trials are short
    "watch.evaluation_tokens": 32_768,
    "watch.norms_every": 0,
    "watch.keep_checkpoints": 1,
}
SOME_STEPS = 10_000  # until the budget has become steps
BUDGET = "20m"

Make = Callable[[TrainingConfig], Question]


def quiet(_line: str) -> None:
    """Ignore a progress line."""


class Options(TypedDict, total=False):
    """The options of every question.

    out: The lab's folder; default lab/NAME.
    recipe: The recipe of the base, which the trials change; default small.
    size: The number of layers of the base.
    budget: The time for all trials together (20m, 1h30m); default 20m.
    steps: Steps of the base, instead of the budget.
    batch_size: Sequences per step of the base.
    seed: The first random seed.
    seeds: The number of seeds per trial.
    close_seeds: The number of seeds of values within 1% of the best, in `learning-rate` and
        `batch-size`; default 1.
    workers: Parallel trials, each on its share of the cores; default 1.
    executor: Where the trials run, instead of workers of this host.
    changes: Values of the base config, by dotted name.
    max_bytes: Most bytes of text per split that `vocabulary` retokenizes; default 50 MB.
    variants: Names of the variants of `ablations`, besides its base; default all.
    predict: Recipes whose loss `scaling` predicts, as NAME or NAME:TOKENS.
    command: The words of the command that runs it again, for `lab.json`.
    tell: Called with a progress line when a stage begins.
    """

    out: StrPath
    recipe: str
    size: int
    budget: str
    steps: int
    batch_size: int
    seed: int
    seeds: int
    close_seeds: int
    workers: int
    executor: Executor | None
    changes: Mapping[str, Any]
    max_bytes: int
    variants: Sequence[str]
    predict: Sequence[str]
    command: Sequence[str]
    tell: Tell


@dataclass(frozen=True)
class Plan:
    """A question that is ready to run.

    `seconds` is the expected time of a run of the base; None for a lab that has begun.
    """

    question: Question
    out: Path
    workers: int
    seconds: float | None
    command: Sequence[str]
    tell: Tell
    executor: Executor | None = None

    def run(self) -> Iterator[Event]:
        """Train all missing trials, then save the findings; leave the loop to stop."""
        return run_question(
            self.question,
            self.out,
            command=self.command,
            workers=self.workers,
            executor=self.executor,
            tell=self.tell,
        )

    def answer(self) -> Lab:
        """Run it to its end, and load the lab."""
        for _event in self.run():
            pass
        return load_lab(self.out)

    def __str__(self) -> str:
        """Return a table of the trials: FLOPs by the accounting, times by one measurement."""
        base, trials, seconds = self.question.base, self.question.trials({}), self.seconds
        width = max(len(trial.label) for trial in trials)
        row = f"{{:{width}}} {{:>8}} {{:>12}} {{:>12}} {{:>12}} {{:>10}}".format
        lines = [row("trial", "steps", "tokens", "parameters", "FLOPs", "time")]
        for trial in trials:
            config = trial.config
            share = relative_cost(config, base)
            time = "–" if seconds is None else format_duration(seconds * share)
            parameters = f"{count_parameters(config.model).total:,}"
            flops = scientific(run_flops(config))
            steps, tokens = f"{config.steps:,}", f"{config.tokens:,}"
            lines.append(row(trial.label, steps, tokens, parameters, flops, time))
        cost = self.question.cost()
        known = sum(relative_cost(trial.config, base) for trial in trials)
        end = f"{len(trials)} trials"
        if cost > 1.01 * known:
            end += " and more that depend on their results"
        if seconds is not None:
            end += f", about {format_duration(seconds * cost / self.workers)} in all"
        return "\n".join([self.question.asks, "", *lines, "", f"{end}; nothing was trained."])


def plan_question(
    make: Make,
    name: str,
    data: StrPath,
    options: Options,
    *,
    by_clock: bool = False,
    base_changes: Mapping[str, Any] | None = None,
) -> Plan:
    """Decide how long the trials are; a lab that has begun keeps its steps and machine.

    `base_changes` are a question's own changes of the base.
    """
    check_options(options, Options.__annotations__)
    out, executor = Path(options.get("out", Path("lab") / name)), options.get("executor")
    workers = options.get("workers", 1) if executor is None else executor.num_workers
    tell = options.get("tell", quiet)
    check_folder(out, name)
    if executor is None:
        checked_threads(check_int("workers", workers), "workers")
    if by_clock and workers > 1:
        tell("this question compares times, so its trials run on this host, one at a time")
        workers, executor = 1, None
    base = base_config(data, options, workers, base_changes or {})
    if not make(base).trials({}):
        raise ValueError(f"{name} has no trials for this base; give another batch or model size.")
    seconds = None
    if (out / LAB).exists():
        base = _same_base(out, base, options)
    else:
        base, seconds = _with_length(make, base, options, workers)
    command = tuple(options.get("command", ()))
    return Plan(make(base), out, workers, seconds, command, tell, executor)


def check_options(given: Iterable[str], known: Iterable[str]) -> None:
    """Raise TypeError for an option that does not exist."""
    known = list(known)
    for name in given:
        if name not in known:
            raise TypeError(f"there is no option {name}; {suggestion(name, known)}")


def base_config(
    data: StrPath,
    options: Options,
    workers: int = 1,
    base_changes: Mapping[str, Any] = MappingProxyType({}),
) -> TrainingConfig:
    """Return the base; an option overrides the question's file, the file the recipe."""
    recipe = recipe_named(options.get("recipe", "small"))
    config = recipe(data, size=options.get("size"), steps=options.get("steps", SOME_STEPS))
    values: dict[str, Any] = dict(WATCH)
    executor = options.get("executor")
    if executor is not None and executor.resources.cpus is not None:
        values["machine.threads"] = executor.resources.cpus
    elif workers > 1:
        values["machine.threads"] = max(1, usable_cores() // workers)
    own = {"batch_size": options.get("batch_size"), "seed": options.get("seed")}
    given = {name: value for name, value in own.items() if value is not None}
    return changed(config, {**values, **base_changes, **given, **options.get("changes", {})})


def _same_base(out: Path, base: TrainingConfig, options: Options) -> TrainingConfig:
    """Return the base of a lab that has begun, if it is the same."""
    old = TrainingConfig.from_dict(load_lab(out).base)
    steps = base.steps if "steps" in options else old.steps
    changes = {
        name: values
        for name, values in differences(old, replace(base, steps=steps)).items()
        # The machine is that of the first call, unless this one sets it.
        if not name.startswith("machine.") or name in options.get("changes", {})
    }
    refuse_changes(f"{out} was begun with", changes)
    return replace(old, data=base.data)


def _with_length(
    make: Make, base: TrainingConfig, options: Options, workers: int
) -> tuple[TrainingConfig, float]:
    """Return the base with its steps and machine, and its expected time in seconds."""
    wanted = base
    if "steps" not in options:
        cost = make(replace(base, steps=SOME_STEPS)).cost()
        # Evaluations, samples and starts take time too.
        seconds = 0.9 * parse_duration(options.get("budget", BUDGET)) * workers / cost
        wanted = replace(base, steps=None, budget_seconds=seconds)
    planned = plan_run(wanted, open_data(base.data), counts_measuring=False)
    found = planned.config
    return replace(base, steps=found.steps, machine=found.machine), planned.seconds
