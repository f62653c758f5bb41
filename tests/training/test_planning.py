import logging
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tilth.accounting import account, training_flops
from tilth.config.training import MachineConfig, ResolvedMachine
from tilth.data import Batches
from tilth.training import planning, step
from tilth.training.planning import plan

UNDECIDED = MachineConfig(threads=1, device="cpu")


def open_ended(config, **values):
    return replace(config.opened(), machine=UNDECIDED, **values)


def test_plan_resolves_the_config_and_its_cost(config, data):
    planned = plan(open_ended(config, steps=50), data)
    assert planned.config == planned.config.resolve()
    assert planned.config.machine == ResolvedMachine(
        device="cpu", dtype="float32", compile=False, threads=1
    )
    assert planned.config.steps == 50
    assert planned.parameters == 2 * 300 * 16 + 2 * (4 * 16**2 + 3 * 16 * 64) + 5 * 16
    assert planned.flops == 50 * training_flops(config.model, batch_size=4)
    assert planned.seconds > 50 * planned.step_seconds
    assert planned.utilisation == pytest.approx(
        planned.flops / 50 / planned.step_seconds / planned.peak_flops
    )


def test_budget_becomes_steps(config, data, monkeypatch):
    monkeypatch.setattr(planning, "_time_steps", lambda *_, **__: [(0.2, 0.1)])
    monkeypatch.setattr(planning, "cpu_has_bfloat16", lambda: False)
    clock = iter([0.0, 0.3, 0.0, 0.3, 0.0])  # what planning takes is taken from the budget
    monkeypatch.setattr(planning, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    nothing = {"evaluate_every": 0, "save_every": 0, "sample_every": 0}
    watch = replace(config.watch, evaluation_tokens=64, **nothing)
    budget = open_ended(config, steps=None, budget_seconds=100.0, watch=watch)
    planned = plan(budget, data)
    # The last evaluation, 64 tokens of a forward pass, takes a third of a step of 64 tokens.
    assert planned.config.steps == 996
    assert planned.config.budget_seconds is None
    assert planned.seconds == pytest.approx(100.0, abs=2.0)
    busy = replace(watch, evaluate_every=1, evaluation_tokens=64 * 30)
    fewer = plan(replace(budget, watch=busy), data).config.steps
    assert 85 <= fewer <= 95  # each step drags an evaluation of ten times its length along
    assert plan(budget, data, counts_measuring=False).config.steps == 999  # a trial of a lab


@pytest.mark.parametrize("seconds", [2.0, 10.0, 60.0, 400.0])
def test_short_budgets_are_kept(config, data, monkeypatch, caplog, seconds):
    """Evaluations and samples take the same time in short and long runs."""
    monkeypatch.setattr(planning, "_time_steps", lambda *_, **__: [(0.02, 0.01)])
    monkeypatch.setattr(planning, "cpu_has_bfloat16", lambda: False)
    monkeypatch.setattr(planning, "measured_peak", lambda *_: 1e9)
    monkeypatch.setattr(planning, "time", SimpleNamespace(perf_counter=lambda: 0.0))
    undecided = {"evaluate_every": None, "save_every": None, "sample_every": None}
    watch = replace(config.opened().watch, evaluation_tokens=64 * 60, **undecided)  # 0.2 s each
    budget = open_ended(config, steps=None, budget_seconds=seconds, watch=watch)
    planned = plan(budget, data)
    assert seconds / 4 < planned.seconds <= seconds
    assert ("of the budget goes to evaluations" in caplog.text) == (seconds < 5)


def test_too_short_budget_is_one_step(config, data, monkeypatch, caplog):
    monkeypatch.setattr(planning, "_time_steps", lambda *_, **__: [(2.0, 1.0)])
    assert plan(open_ended(config, steps=None, budget_seconds=0.1), data).config.steps == 1
    assert "all of the budget goes to evaluations" in caplog.text


def test_missing_length_is_rejected(config, data):
    with pytest.raises(ValueError, match="neither steps nor budget_seconds; give one"):
        plan(open_ended(config, steps=None), data)


@pytest.mark.parametrize(
    ("compiled_step", "compiles"),
    [(0.1, True), (0.198, True), (0.1995, False), (0.4, False)],
)
def test_compiling_is_decided_by_measurement(config, data, monkeypatch, compiled_step, compiles):
    """A run of 2,000 s; the machine became slower; compiling takes 10 s."""

    def time_steps(_config, machines, _data):
        if machines[-1].compile:
            return [(1.0, 0.2), (10.0, compiled_step)]
        return [(1.0, 0.1)] * len(machines)

    monkeypatch.setattr(planning, "_time_steps", time_steps)
    monkeypatch.setattr(planning, "cpu_has_bfloat16", lambda: False)
    planned = plan(open_ended(config, steps=10_000), data)
    assert planned.config.machine.compile == compiles
    assert planned.step_seconds == (compiled_step if compiles else 0.2)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (100, [("float32", False)]),
        (1000, [("float32", False), ("float32", False), ("bfloat16", False)]),
    ],
    ids=["10s", "100s"],
)
def test_short_runs_do_not_compile(config, data, monkeypatch, steps, expected):
    tried = []

    def time_steps(_config, machines, _data):
        tried.extend((machine.dtype, machine.compile) for machine in machines)
        return [(1.0, {"float32": 0.1, "bfloat16": 0.05}[m.dtype]) for m in machines]

    monkeypatch.setattr(planning, "_time_steps", time_steps)
    monkeypatch.setattr(planning, "cpu_has_bfloat16", lambda: True)
    machine = plan(open_ended(config, steps=steps), data).config.machine
    assert tried == expected
    assert (machine.dtype, machine.compile) == expected[-1]


@pytest.mark.parametrize("exact", [False, True])
def test_exact_runs_do_not_depend_on_measurements(config, data, monkeypatch, exact):
    """A run of 1,000 s; several ranks take float32, uncompiled."""

    def time_steps(_config, machines, _data):
        seconds = {"float32": 0.1, "bfloat16": 0.05}
        return [(1.0, seconds[m.dtype] * (0.5 if m.compile else 1.0)) for m in machines]

    monkeypatch.setattr(planning, "_time_steps", time_steps)
    monkeypatch.setattr(planning, "cpu_has_bfloat16", lambda: True)
    parallel = replace(config.parallel, exact=exact)
    machine = plan(
        replace(open_ended(config, steps=10_000), parallel=parallel), data
    ).config.machine
    assert (machine.dtype, machine.compile) == (("float32", False) if exact else ("bfloat16", True))


FLOAT32, BFLOAT16 = ("float32", False), ("bfloat16", False)
FLOAT32_COMPILED, BFLOAT16_COMPILED = ("float32", True), ("bfloat16", True)


@pytest.mark.parametrize(
    ("seconds", "chosen", "calls"),
    [
        # Uncompiled, compiled, in float32; the same in bfloat16.
        ((0.1, 0.088, 0.06, 0.05), BFLOAT16_COMPILED, 1),
        ((0.1, 0.088, 0.11, 0.05), BFLOAT16_COMPILED, 1),  # faster only if compiled
        ((0.1, 0.088, 0.11, 0.08), BFLOAT16_COMPILED, 2),
        ((0.1, 0.088, 0.11, 0.086), FLOAT32_COMPILED, 2),  # within noise
        ((0.1, 0.2, 0.06, 0.12), BFLOAT16, 2),
        ((0.1, 0.2, 0.094, 0.2), BFLOAT16, 2),
        ((0.1, 0.2, 0.096, 0.2), FLOAT32, 2),  # within noise
        ((0.1, 0.088, 0.3, 0.3), FLOAT32_COMPILED, 2),
    ],
)
def test_precision_is_timed_as_it_would_run(config, data, monkeypatch, seconds, chosen, calls):
    """A run of 1,000 s; compiling takes 10 s."""
    tried = []
    keys = FLOAT32, FLOAT32_COMPILED, BFLOAT16, BFLOAT16_COMPILED
    steps = dict(zip(keys, seconds, strict=True))

    def time_steps(_config, machines, _data):
        tried.append([(machine.dtype, machine.compile) for machine in machines])
        return [(10.0 if m.compile else 0.1, steps[m.dtype, m.compile]) for m in machines]

    monkeypatch.setattr(planning, "_time_steps", time_steps)
    monkeypatch.setattr(planning, "cpu_has_bfloat16", lambda: True)
    planned = plan(open_ended(config, steps=10_000), data)
    machine = planned.config.machine
    assert (machine.dtype, machine.compile) == chosen
    assert planned.step_seconds == steps[chosen]
    some, every = [FLOAT32, BFLOAT16, BFLOAT16_COMPILED], [FLOAT32, BFLOAT16]
    every += [FLOAT32_COMPILED, BFLOAT16_COMPILED]
    assert tried == [[FLOAT32], some, every][: calls + 1]
    (line,) = (line for line in planned.summary().splitlines() if line.startswith("machine"))
    assert f"a step takes {seconds[0]:.3g} s in float32, {seconds[2]:.3g} s in bfloat16" in line
    assert f"{seconds[3]:.3g} s in bfloat16 compiled" in line


@pytest.mark.parametrize(
    ("asked", "has_instructions", "tried_dtypes", "chosen"),
    [
        ({}, False, {"float32"}, "float32"),
        ({"dtype": "float32"}, True, {"float32"}, "float32"),
        ({"dtype": "bfloat16"}, True, {"bfloat16"}, "bfloat16"),
        ({"compile": False}, True, {"float32", "bfloat16"}, "bfloat16"),
        ({"compile": True}, True, {"float32", "bfloat16"}, "bfloat16"),
    ],
)
def test_given_values_are_kept(
    config, data, monkeypatch, asked, has_instructions, tried_dtypes, chosen
):
    tried = set()

    def time_steps(_config, machines, _data):
        tried.update((machine.dtype, machine.compile) for machine in machines)
        return [(1.0, {"float32": 0.1, "bfloat16": 0.06}[m.dtype]) for m in machines]

    monkeypatch.setattr(planning, "_time_steps", time_steps)
    monkeypatch.setattr(planning, "cpu_has_bfloat16", lambda: has_instructions)
    monkeypatch.setattr(planning, "resolve_dtype", lambda dtype, _device: dtype or "float32")
    planned = plan(
        replace(config.opened(), machine=replace(UNDECIDED, **asked), steps=10_000), data
    )
    assert planned.config.machine.dtype == chosen
    assert planned.config.machine.compile == asked.get("compile", False)
    assert {dtype for dtype, _ in tried} == tried_dtypes
    if asked.get("compile") is False:
        assert not any(compiles for _, compiles in tried)


NO_COMPILER = RuntimeError("no C++ compiler found\nand so on, for pages")


@pytest.mark.parametrize(
    ("asked", "error", "reason"),
    [
        (None, NO_COMPILER, "no C++ compiler found"),
        (True, NO_COMPILER, "no C++ compiler found"),
        (None, OSError(), "OSError"),
    ],
)
def test_failing_compiler_is_reported_and_not_used(
    config, data, monkeypatch, caplog, asked, error, reason
):
    def time_steps(_config, machines, _data):
        if machines[-1].compile:
            raise error
        return [(1.0, 0.1)] * len(machines)

    monkeypatch.setattr(planning, "_time_steps", time_steps)
    undecided = replace(UNDECIDED, compile=asked)
    with caplog.at_level(logging.WARNING):
        planned = plan(replace(config.opened(), machine=undecided, steps=10_000), data)
    assert not planned.config.machine.compile
    assert f"cannot be compiled ({reason}); it trains uncompiled" in caplog.text


def test_expected_seconds_include_all_evaluations(config):
    def seconds(**watch):
        changed = replace(config, steps=100, watch=replace(config.watch, sample_every=0, **watch))
        return planning._expected_seconds(changed, 1.0, valid_tokens=6_400) - 100

    # A step of 64 tokens takes a second, so a forward pass over 6,400 takes 100 / 3.
    whole = {"evaluation_tokens": 0}
    assert seconds(evaluate_every=0, save_every=0, **whole) == pytest.approx(100 / 3)
    assert seconds(evaluate_every=0, save_every=10, **whole) == pytest.approx(11 * 100 / 3)
    assert seconds(evaluate_every=5, save_every=10, **whole) == pytest.approx(21 * 100 / 3)
    assert seconds(evaluate_every=50, save_every=0, evaluation_tokens=65_536) == pytest.approx(100)


def test_memory_includes_accumulated_gradients(config, data):
    cut = plan(replace(config, microbatch_size=2), data)
    memory = account(replace(config, microbatch_size=2)).memory
    assert memory.accumulates
    assert cut.memory_bytes - planning.PROCESS_BYTES == memory.peak_bytes


def test_timed_batches_have_the_order_of_the_run(config, data, monkeypatch):
    orders = []

    def batches(*arguments, **options):
        made = Batches(*arguments, **options)
        orders.append(made.order)
        return made

    monkeypatch.setattr(step, "Batches", batches)
    for order in ("random", "epoch"):
        plan(open_ended(config, steps=50, order=order), data)
    assert orders == ["random", "epoch"]


def test_summary(config, data):
    planned = replace(plan(config, data), flops=3 * 10**9, memory_bytes=2 * 10**9, seconds=90.0)
    lines = planned.summary().splitlines()
    assert [line.split()[0] for line in lines] == ["model", "length", "cost", "machine", "time"]
    assert "12 steps of 64 tokens" in lines[1]
    assert lines[2] == "cost     3e+09 FLOPs, 2.00 GB of memory"
    assert "cpu, 1 threads, float32, not compiled" in lines[3]
