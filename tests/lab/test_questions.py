"""The trials and findings of the questions, with results computed by a formula."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.lab.asking import BASE, ask, diverged, finished
from tilth.accounting import count_parameters
from tilth.accounting.memory import training_memory
from tilth.config.overrides import changed
from tilth.lab.question import relative_cost
from tilth.lab.questions.ablations import Ablations
from tilth.lab.questions.batch_size import FEWEST_STEPS, BatchSize
from tilth.lab.questions.custom import Custom, read_custom
from tilth.lab.questions.learning_rate import LearningRate
from tilth.lab.questions.shape import Context, Depth, Vocabulary
from tilth.lab.trials import TrialResult

# --- lr -------------------------------------------------------------------------------------------


def valley(best, edge):
    """Bits per byte with a minimum at `best`; rates from `edge` on diverge."""

    def answer(trial):
        lr = trial.config.optimizer.lr
        return diverged() if lr >= edge else finished(1.0 + 0.1 * math.log10(lr / best) ** 2)

    return answer


def test_lr_finds_the_best_rate_and_the_edge():
    question = LearningRate(BASE)
    results = ask(question, valley(best=0.02, edge=0.1))
    rates = sorted(trial.x for trial in question.trials(results))
    assert rates[0] < 1e-4  # far too small
    assert 0.02 in rates  # refined around 0.01 or 0.04
    found = question.conclude(results)
    assert found.answer.startswith("The best learning rate is 0.02, with 1.0000 bits per byte")
    assert "Training diverges at 0.16 and above; the best learning rate is 1/8 of" in found.answer
    assert "0.08" in [f"{rate:g}" for rate in rates]  # the half before the edge was tried
    assert any("every larger learning rate was better" in note for note in found.notes)
    rows = {row[0]: row for row in found.tables[0].rows}
    assert rows["0.16"][1] == "diverged"
    assert rows["0.16"][3] == 20


def test_lr_increases_until_a_rate_diverges():
    question = LearningRate(BASE)
    results = ask(question, valley(best=1.0, edge=5.0))
    found = question.conclude(results)
    assert "Training diverges at 5.12 and above" in found.answer
    assert any("edge of stability" in n for n in found.notes) == (5.12 <= 4 * 1.28)


def test_lr_ends_if_no_rate_diverges():
    question = LearningRate(BASE)
    found = question.conclude(ask(question, valley(best=0.01, edge=math.inf)))
    assert "No learning rate up to 164 diverged" in found.answer
    assert not any("edge" in note for note in found.notes)


def test_lr_reports_no_edge_if_larger_rates_train():
    question = LearningRate(BASE)
    found = question.conclude(
        ask(question, lambda s: diverged() if s.x == 0.04 else finished(1.0 + abs(s.x - 0.16)))
    )
    assert "Some learning rates diverged, but larger ones did not." in found.answer
    assert not any("edge" in note for note in found.notes)


def test_lr_reports_that_all_rates_diverge():
    question = LearningRate(BASE)
    found = question.conclude(ask(question, lambda trial: diverged()))
    assert found.answer.startswith("No learning rate finished training")


def test_lr_reports_the_edge_of_stability():
    question = LearningRate(BASE)
    found = question.conclude(ask(question, valley(best=0.04, edge=0.05)))
    assert any("edge of stability" in note for note in found.notes)


def test_lr_over_seeds_reports_equal_neighbours():
    question = LearningRate(BASE, seeds=2)

    def noisy(trial):
        base = valley(0.01, 1.0)(trial)
        if base.state != "finished":
            return base
        return finished(base.bits_per_byte + 0.05 * trial.config.seed)

    found = question.conclude(ask(question, noisy))
    (note,) = [note for note in found.notes if "spread over seeds" in note]
    assert "0.005" in note
    assert "0.02" in note


def test_close_rates_get_more_seeds():
    question = LearningRate(BASE, close_seeds=3)

    def close(trial):  # 0.02 is better than 0.01 with one seed, worse with three
        bits = {0.01: 1.004, 0.02: 1.000}.get(trial.x, 1.5)
        return finished(bits + (0.05 * trial.config.seed if trial.x == 0.02 else 0.0))

    results = ask(question, close)
    more = [name for name in results if "seed" in name]
    assert more == ["lr-0.01-seed-1", "lr-0.01-seed-2", "lr-0.02-seed-1", "lr-0.02-seed-2"]
    found = question.conclude(results)
    assert found.answer.startswith("The best learning rate is 0.01, with 1.0040 bits")
    assert "Rates within 1% of the best have 3 seeds." in found.notes
    seeds = {row[0]: row[3] for row in found.tables[0].rows}
    assert (seeds["0.01"], seeds["0.02"], seeds["0.04"]) == (3, 3, 1)
    alone = LearningRate(BASE, close_seeds=3)
    results = ask(alone, lambda trial: finished(1.0 if trial.x == 0.01 else 1.5))
    assert not any("seed" in name for name in results)
    (note,) = [note for note in alone.conclude(results).notes if "seed" in note]
    assert note == "Each learning rate has one seed; none is within 1% of the best."


# --- batch-size -----------------------------------------------------------------------------------


def by_size(trial):
    """Larger batches are faster per token, and best at 16."""
    size = trial.config.batch_size
    step_seconds = 0.001 * (4 + size)
    bits = 1.0 + 0.1 * abs(math.log2(size / 16)) - 0.01 * math.log2(trial.config.steps)
    return finished(bits, step_seconds=step_seconds)


def test_batch_size_tries_one_to_128_at_equal_tokens():
    question = BatchSize(changed(BASE, {"steps": 4000}), memory_bytes=10**12)
    trials = question.trials({})
    assert [trial.x for trial in trials] == [2**power for power in range(10)]
    tokens = {trial.config.tokens for trial in trials}
    assert tokens == {4000 * 16 * 64}
    rates = {trial.x: trial.config.optimizer.lr for trial in trials}
    assert rates[64] == pytest.approx(2 * rates[16])  # the square root
    assert rates[16] == BASE.optimizer.lr


def test_batch_size_gives_equal_time_by_the_speed_of_the_first_runs():
    question = BatchSize(changed(BASE, {"steps": 4000}), memory_bytes=10**12)
    results = ask(question, by_size)
    timed = [trial for trial in question.trials(results) if trial.name.startswith("time-")]
    assert [trial.x for trial in timed] == [2**power for power in range(10)]
    seconds = [trial.config.steps * 0.001 * (4 + trial.x) for trial in timed]
    assert seconds == pytest.approx([4000 * 0.02] * 10, rel=0.01)
    found = question.conclude(results)
    assert "At equal tokens, batch size 16 is best" in found.answer
    assert "At equal time, batch size 16 is best" in found.answer
    assert any("larger batches were better up to 16; 512 is" in note for note in found.notes)
    assert [line.name for line in found.charts[0].lines] == ["equal tokens", "equal time"]
    assert len(found.tables[0].rows) == 20
    assert question.cost() == pytest.approx(20)


def test_close_batch_sizes_get_more_seeds():
    question = BatchSize(changed(BASE, {"steps": 4000}), close_seeds=2, memory_bytes=10**12)

    def close(trial):
        found = by_size(trial)
        return replace(found, bits_per_byte=0.885) if trial.x == 8 else found  # 0.88 at 16

    results = ask(question, close)
    more = [name for name in results if name.endswith("-seed-1")]
    assert more == [f"{kind}-{size}-seed-1" for kind in ("tokens", "time") for size in (8, 16)]
    sizes = question.conclude(results).tables[0]
    assert sizes.columns[2] == "seeds"
    assert {row[0]: row[2] for row in sizes.rows}["16, equal time"] == 2


def test_batch_size_reports_unequal_tokens_and_times():
    question = BatchSize(changed(BASE, {"steps": 201}), memory_bytes=10**12)

    def answer(trial, slower=1.0):
        seconds = trial.config.steps * 0.001 * (4 + trial.x) * (slower if trial.x == 64 else 1.0)
        return replace(by_size(trial), seconds=seconds)

    notes = question.conclude(ask(question, answer)).notes
    # 201 steps of 16 sequences would be 50.25 of 64.
    worst = max(abs(round(201 * 16 / size) * size / (201 * 16) - 1) for size in (64, 128, 256))
    assert f"Runs have whole steps, so their tokens differ by up to {worst:.1%}." in notes
    (note,) = [note for note in notes if "without evaluations, 1 took 4.0" in note]
    assert ", 64 took 4.0" in note
    assert "difference" not in note
    slow = question.conclude(ask(question, lambda trial: answer(trial, slower=1.3))).notes
    (note,) = [note for note in slow if "without evaluations, 1 took 4.0" in note]
    assert ", 64 took 5.22 s" in note
    assert note.endswith(
        "256 took 3.9 s: a difference of 34%, which favours the sizes that took longer."
    )
    whole = BatchSize(changed(BASE, {"steps": 4000}), memory_bytes=10**12)
    assert not any("tokens differ" in note for note in whole.conclude(ask(whole, by_size)).notes)


def test_ablations_of_chosen_variants():
    question = Ablations(BASE, 1, ["no-norm", "silu", "swiglu"])
    assert [each.name for each in question.variants] == ["base", "no-norm", "silu"]
    with pytest.raises(ValueError, match="there is no variant 'nonorm'; did you mean no-norm"):
        Ablations(BASE, 1, ["nonorm"])


def test_batch_size_leaves_out_sizes_that_do_not_fit():
    fits = training_memory(BASE.model, 64, "muon").peak_bytes
    question = BatchSize(changed(BASE, {"steps": 4000}), memory_bytes=fits)
    assert [trial.x for trial in question.trials({})] == [1, 2, 4, 8, 16, 32, 64]
    short = BatchSize(changed(BASE, {"steps": 4 * FEWEST_STEPS}), memory_bytes=10**12)
    assert max(trial.x for trial in short.trials({})) == 64
    found = short.conclude(ask(short, by_size))
    assert any(
        note.startswith("Left out: 128, 256, 512 (fewer than 8 steps") for note in found.notes
    )


def test_batch_size_continues_after_an_out_of_memory_error():
    question = BatchSize(changed(BASE, {"steps": 4000}), memory_bytes=10**12)

    def answer(trial):
        return TrialResult("failed") if trial.config.batch_size == 512 else by_size(trial)

    results = ask(question, answer)
    assert "time-512" not in results
    assert ["512, equal tokens", "failed"] in [
        list(r[:2]) for r in question.conclude(results).tables[0].rows
    ]


def test_batch_size_always_includes_the_base():
    question = BatchSize(changed(BASE, {"steps": 3}), memory_bytes=10**12)
    assert 16 in {trial.x for trial in question.trials({})}
    results = ask(question, lambda trial: TrialResult("failed"))
    assert question.conclude(results).answer == "No batch size finished training."


def test_batch_size_reports_no_trend_of_a_zigzag():
    question = BatchSize(changed(BASE, {"steps": 4000}), memory_bytes=10**12)
    bits = {2**power: 2.0 for power in range(9)} | {4: 2.1, 16: 1.9, 64: 1.95}

    def answer(trial):
        return diverged() if trial.x == 512 else finished(bits[trial.x])

    notes = question.conclude(ask(question, answer)).notes
    assert "At equal tokens, 16 is best; 256 is 0.1000 bits per byte worse." in notes


def test_questions_that_compare_times_run_one_trial_at_a_time():
    assert BatchSize(BASE).by_clock
    assert Context(BASE).by_clock
    assert not LearningRate(BASE).by_clock


# --- ablations ------------------------------------------------------------------------------------


def parts(trial):
    """Each part is worth something; without a norm, only small rates train."""
    config = trial.config
    bits = 1.0 + 0.01 * config.seed
    if config.model.norm == "none":
        if config.optimizer.lr > 0.005:
            return diverged()
        bits += 0.2 + 0.1 * abs(math.log10(config.optimizer.lr / 0.0025))
    bits += 0.05 * (config.model.norm == "post") + 0.3 * (config.model.position == "none")
    bits += 0.001 * config.model.qk_norm - 0.1 * config.model.tie_embeddings
    if config.optimizer.name == "adamw":
        bits += 0.08 + 0.1 * abs(math.log10(config.optimizer.lr / 0.003))
    return finished(bits)


def test_ablations_compare_each_part_over_seeds():
    question = Ablations(BASE, seeds=3)
    results = ask(question, parts)
    found = question.conclude(results)
    rows = {row[0]: row for row in found.tables[0].rows}
    assert rows["base"][1:3] == ("1.0100", "0.0200")
    assert rows["without RMSNorm, same rate"][1] == "diverged"
    assert rows["without RMSNorm, its best rate"][1] == "1.2100"
    assert rows["without RMSNorm, its best rate"][4] == "0.0025"
    assert rows["with qk-norm"][3].endswith("within the spread over seeds")
    assert rows["adamw, its best rate"][4] == "0.00333"
    assert rows["tied embeddings"][3] == "-0.1000 (-9.9%)"
    worse = found.answer.partition("Worse: ")[2].partition(". ")[0]
    assert worse.startswith("no position encoding (+0.300); without RMSNorm, its best rate")
    assert "Better: tied embeddings (-0.100)." in found.answer
    assert "Within the spread over seeds: SiLU for SwiGLU; with qk-norm." in found.answer
    assert found.answer.endswith(" Diverged: without RMSNorm, same rate.")


def test_ablations_try_rates_once_and_repeat_only_the_best():
    question = Ablations(BASE, seeds=3)
    results = ask(question, parts)
    tuned = [name for name in results if name.startswith("no-norm-tuned")]
    # Its first rate is that of the plain variant, which is not trained twice.
    assert sorted(tuned) == [
        *("no-norm-tuned-lr-0.000156", "no-norm-tuned-lr-0.000625", "no-norm-tuned-lr-0.0025"),
        *("no-norm-tuned-lr-0.0025-seed-1", "no-norm-tuned-lr-0.0025-seed-2"),
    ]
    rates = {s.name: s.config.optimizer.lr for s in question.trials(results)}
    assert rates["no-norm-tuned-lr-0.0025-seed-1"] == rates["no-norm-tuned-lr-0.0025"]
    assert len(results) == pytest.approx(question.cost(), abs=3)


def test_ablations_reuse_the_plain_variant_at_its_best_rate():
    question = Ablations(BASE, seeds=2)

    def robust(trial):
        if trial.config.model.norm == "none":
            return finished(1.5 - trial.config.optimizer.lr)
        return finished(1.0)

    results = ask(question, robust)
    assert not any(name.startswith("no-norm-tuned") and "seed" in name for name in results)
    rows = {row[0]: row for row in question.conclude(results).tables[0].rows}
    same, best = (rows[f"without RMSNorm, {rate} rate"] for rate in ("same", "its best"))
    assert same[1:] == best[1:]


def test_ablations_keep_the_number_of_parameters():
    models = {s.name: s.config.model for s in Ablations(BASE, seeds=1).trials({})}
    base, silu = (count_parameters(models[name]).total for name in ("base", "silu"))
    assert silu == base
    assert models["silu"].ffn == "silu"


@pytest.mark.parametrize("ffn", ["swiglu", "silu"])
@pytest.mark.parametrize("d_ff", [176, 177, 250])
def test_ablations_compare_feed_forwards_at_equal_parameters(ffn, d_ff):
    config = changed(BASE, {"model.ffn": ffn, "model.d_ff": d_ff})
    other = {"swiglu": "silu", "silu": "swiglu"}[ffn]
    models = {s.name: s.config.model for s in Ablations(config, seeds=1).trials({})}
    assert models[other].ffn == other
    base, others = (count_parameters(models[name]).feed_forward for name in ("base", other))
    # To the nearest whole width: half of one, in each of two or three matrices.
    assert abs(others - base) <= 3 / 2 * BASE.model.d_model * BASE.model.num_layers


def test_ablations_report_a_high_first_loss():
    question = Ablations(BASE, seeds=2)

    def answer(trial):
        without = trial.config.model.norm == "none"
        first = 2_078_924.4 + trial.config.seed if without else 7.6 + 0.1 * trial.config.seed
        return replace(parts(trial), first_loss=first)

    (note,) = question.conclude(ask(question, answer)).notes[1:]
    assert note == (
        "without RMSNorm: the loss before the first update is 2,078,924 to 2,078,925, that of the "
        "base 7.7; deep sums without a norm are too large at initialization, at any learning rate."
    )

    def infinite(trial):
        is_bad = trial.config.model.norm == "post"
        return replace(parts(trial), first_loss=math.inf if is_bad else 7.6)

    (note,) = question.conclude(ask(question, infinite)).notes[1:]
    assert note.startswith("post-norm: the loss before the first update is inf,")
    assert "deep sums" not in note

    def usual(trial):
        return replace(parts(trial), first_loss=7.6 * (1.9 if trial.config.model.qk_norm else 1.0))

    assert len(question.conclude(ask(question, usual)).notes) == 1


def test_ablations_toggle_each_switch():
    base = changed(
        BASE, {"model.tie_embeddings": True, "model.qk_norm": True, "optimizer.name": "adamw"}
    )
    names = {trial.name for trial in Ablations(base, seeds=1).trials({})}
    assert {"untied", "no-qk-norm", "muon-lr-0.01", "muon-lr-0.1"} <= names


def test_ablations_report_that_the_base_diverged():
    question = Ablations(BASE, seeds=1)
    found = question.conclude(ask(question, lambda trial: diverged()))
    assert found.answer.startswith("The base itself diverged")
    assert len(found.tables[0].rows) == 9


# --- shape ----------------------------------------------------------------------------------------


def test_depth_costs_the_same_flops_at_every_depth():
    base = changed(BASE, {"model.d_model": 256, "model.num_heads": 8, "steps": 5000})
    question = Depth(base)
    trials = question.trials({})
    assert [trial.x for trial in trials] == [1, 2, 3, 4, 6, 8, 12, 16]
    widths = [trial.config.model.d_model for trial in trials]
    assert widths == sorted(widths, reverse=True)
    assert {trial.config.model.d_head for trial in trials} == {32}
    for trial in trials:
        assert relative_cost(trial.config, base) == pytest.approx(1.0, rel=1e-3)


def test_depth_reports_the_best_and_nearly_best_shapes():
    question = Depth(BASE)
    results = ask(question, lambda s: finished(1.0 + 0.004 * abs(s.x - 2)))
    found = question.conclude(results)
    best = next(s.label for s in question.trials(results) if s.x == 2)
    assert found.answer.startswith(f"The best shape is {best} (layers x width), with 1.0000")
    near = found.answer.partition("Within 1% of it: ")[2].rstrip(".").split(", ")
    assert near
    assert best not in near
    far = ask(question, lambda s: finished(1.0 + 0.05 * abs(s.x - 2)))
    answer = question.conclude(far).answer
    assert "No other shape is within 1%; the next is " in answer
    assert answer.endswith(" (+5.0%).")
    steps = sorted(trial.config.steps for trial in question.trials(results))
    said = f"The runs have {steps[0]:,} to {steps[-1]:,} steps, at equal FLOPs per run."
    assert found.notes == (said,)
    assert steps[0] < steps[-1]


def test_context_keeps_the_tokens_per_step():
    question = Context(BASE)
    trials = question.trials({})
    assert [trial.x for trial in trials] == [16, 32, 64, 128, 256]
    assert {trial.config.tokens_per_step for trial in trials} == {BASE.tokens_per_step}
    results = ask(question, lambda s: finished(1.0 + 1 / s.x, step_seconds=0.01 * s.x))
    found = question.conclude(results)
    assert "takes 16.00 times as long" in found.answer
    assert f"perplexity changes from {math.exp(2 + 2 / 16):.2f}" in found.answer
    assert "The best context length is 256" in found.answer
    assert found.charts[0].lines[0].points[0] == (16, pytest.approx(160.0))


def test_vocabulary_costs_the_same_flops_and_has_separate_data(tmp_path):
    question = Vocabulary(BASE, 1, tmp_path, 1000)
    trials = question.trials({})
    assert [trial.x for trial in trials] == [500, 1000, 2000, 4000]
    assert [trial.config.model.vocab_size for trial in trials] == [500, 1000, 2000, 4000]
    assert len({trial.config.data for trial in trials}) == 4
    for trial in trials:
        assert relative_cost(trial.config, BASE) == pytest.approx(1.0, rel=0.01)
    found = question.conclude(ask(question, lambda s: finished(2.0 - s.x / 4000)))
    assert found.answer.startswith(
        "The best vocabulary size is 4,000, with 1.0000 bits per byte (500"
    )


@pytest.mark.parametrize("make", [Depth, Context, lambda base: Vocabulary(base, 1, Path(), 1)])
def test_shapes_report_that_no_trial_finished(make):
    question = make(BASE)
    found = question.conclude(ask(question, lambda trial: diverged()))
    assert found.answer.startswith("No ")


# --- a user's own ---------------------------------------------------------------------------------


def own(tmp_path, text):
    (tmp_path / "mine.toml").write_text(text)
    return read_custom(tmp_path / "mine.toml")


def test_custom_takes_every_combination_of_a_grid_and_the_list(tmp_path):
    asked = own(
        tmp_path,
        """
        asks = "Wide or fast?"
        seeds = 2
        [base]
        "optimizer.weight_decay" = 0.0
        [grid]
        model.d_model = [32, 64]
        optimizer.lr = [0.01, 0.03]
        [[trials]]
        label = "no warm-up"
        optimizer.warmup_steps = 0
        """,
    )
    assert (asked.name, asked.recipe, asked.base) == (
        "mine",
        "small",
        {"optimizer.weight_decay": 0.0},
    )
    question = Custom(asked, changed(BASE, asked.base))
    trials = question.trials({})
    assert len(trials) == 10
    found = {(s.config.model.d_model, s.config.optimizer.lr) for s in trials[:8]}
    assert found == {(32, 0.01), (32, 0.03), (64, 0.01), (64, 0.03)}
    assert trials[-1].config.optimizer.warmup_steps == 0
    assert question.asks == "Wide or fast?"
    assert question.axis == ""
    results = ask(question, lambda s: finished(s.config.optimizer.lr + s.config.model.d_model))
    answer = question.conclude(results).answer
    assert answer.startswith("The best trial is d_model 32, lr 0.01, with 32.0100 bits per byte")


def test_custom_with_one_numeric_field_has_an_axis(tmp_path):
    question = Custom(own(tmp_path, "[grid]\noptimizer.lr = [0.01, 0.1]"), BASE)
    assert question.axis == "optimizer.lr"
    assert [trial.x for trial in question.trials({})] == [0.01, 0.1]
    results = ask(question, lambda s: diverged() if s.x == 0.1 else finished(1.0))
    assert question.conclude(results).answer.endswith("Not finished: lr 0.1.")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "neither a grid nor trials"),
        ("grid = 3", "grid must be a table, not 3"),
        ("[grid]\nlr = 3", "grid.lr must be a list, not 3"),
        ("[grid]\nlr = []", "grid.lr must have at least 1 items"),
        ("[[trials]]\nsteps = 3", "a trial has no label"),
        ("asks = 3", "asks must be text, not 3"),
        ("seed = 3", "'seed' is not a key of a question"),
        ("name = 'a'", "'name' is not a key of a question"),
        ("seeds = 0\n[grid]\nlr = [1]", "seeds must be at least 1"),
        ("seeds = 1000000000\n[grid]\nlr = [1]", "seeds must be at most 1000"),
        ("[grid]\n" + "".join(f"x{n} = [1, 2, 3]\n" for n in range(40)), "trials; give at most"),
        ("[grid]\nseed = [1, 2]", "varies the seed"),
        ("= 3", "is not TOML"),
    ],
)
def test_custom_refuses_invalid_files(tmp_path, text, said):
    with pytest.raises((ValueError, OSError), match=said):
        own(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[grid]\noptimizer.lt = [1, 2]", "did you mean optimizer.lr"),
        ("[grid]\noptimizer.lr = [-1.0]", "optimizer.lr is -1"),
        ("[grid]\nmodel.d_model = ['64']", "d_model"),
        ("[[trials]]\nlabel = 'a'\n[[trials]]\nlabel = 'a'", "two trials have the label"),
        # Labels have six digits; one of the two trials was lost.
        ("[grid]\noptimizer.lr = [0.12345671, 0.12345672]", "two trials have the label"),
    ],
)
def test_custom_refuses_invalid_values_before_training(tmp_path, text, said):
    with pytest.raises(ValueError, match=said):
        Custom(own(tmp_path, text), BASE)


# --- extreme results ------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [300.0, 1e4])
def test_a_perplexity_beyond_any_chart_or_float_is_reported(loss):
    """A model without a norm may begin at a loss of thousands, and end at one of hundreds."""
    question = Context(BASE)
    results = ask(question, lambda trial: TrialResult("finished", loss, 2.0, 0.01, 400))
    results["context-64"] = finished(1.0)
    found = question.conclude(results)
    assert [x for x, _ in found.charts[1].lines[0].points] == [64]
    assert len(found.charts[0].lines[0].points) == len(results)
    assert [row[0] for row in found.tables[0].rows] == [str(x) for x in (16, 32, 64, 128, 256)]


def test_a_model_that_predicts_every_byte_is_compared():
    """The loss of a text of one repeated character is exactly 0."""
    question = Ablations(BASE)
    found = question.conclude(ask(question, lambda trial: finished(0.0)))
    assert "The base reaches 0.0000 bits per byte" in found.answer


def test_the_memory_of_a_gpu_that_does_not_exist_is_not_asked_for():
    """Planning then refuses the device, in one sentence."""
    if not torch.cuda.is_available():
        BatchSize(changed(BASE, {"machine.device": "cuda"}))
