"""TrainingConfig: defaults, round trips, validation."""

import json
import tomllib
from dataclasses import FrozenInstanceError, fields, replace
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

from tilth.config.limits import MAX_THREADS
from tilth.config.model import ModelConfig
from tilth.config.training import (
    Dtype,
    MachineConfig,
    OptimizerConfig,
    OptimizerName,
    Order,
    ResolvedConfig,
    Schedule,
    Sink,
    TrainingConfig,
    WatchConfig,
    differences,
)

MODEL = ModelConfig(300, context_length=16, d_model=16, num_layers=1, num_heads=2)
MACHINE = {"device": "cpu", "dtype": "float32", "compile": False, "threads": 1}
TABLES = {"optimizer": OptimizerConfig, "machine": MachineConfig, "watch": WatchConfig}

# What the type of each field means to a test.
NUMBERS, COUNTS, TEXTS = (
    [
        (table, each.name)
        for table, config in {"": TrainingConfig, **TABLES}.items()
        for each in fields(config)
        if get_type_hints(config)[each.name] in kinds
    ]
    for kinds in ([float, float | None], [int, int | None], [str, str | None])
)


def make(**values):
    return TrainingConfig("data", MODEL, **{"steps": 100, **values})


def with_value(table, name, value):
    """A config dict with one changed value."""
    values = make().to_dict()
    (values[table] if table else values)[name] = value
    return TrainingConfig.from_dict(values)


def refusal(table, name, value):
    """Return the error of a bad value; it must name the value."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011, checked below
        with_value(table, name, value)
    sentence = str(caught.value)
    assert sentence.startswith(f"{table}.{name}".lstrip("."))
    assert sentence.endswith(".")
    assert "\n" not in sentence
    return sentence


def test_later_fields_are_written_only_if_they_are_given():
    """Files of runs without them keep their bytes."""
    later = {"embedding_lr_factor": 3.0, "momentum_warmup_steps": 300}
    assert not later.keys() & make().to_dict()["optimizer"].keys()
    config = make(optimizer=OptimizerConfig(**later))
    assert later.items() <= config.to_dict()["optimizer"].items()
    assert TrainingConfig.from_dict(config.to_dict()) == config


def test_the_history_is_written_only_if_it_is_kept():
    assert "weights_per_doubling" not in make().to_dict()["watch"]
    config = make(watch=WatchConfig(weights_per_doubling=2))
    assert config.to_dict()["watch"]["weights_per_doubling"] == 2
    assert TrainingConfig.from_dict(config.to_dict()) == config
    with pytest.raises(ValueError, match="weights_per_doubling must be at most 64, not 65"):
        WatchConfig(weights_per_doubling=65)


def test_the_fields_are_known_to_these_tests():
    assert ("optimizer", "lr") in NUMBERS
    assert ("", "budget_seconds") in NUMBERS
    assert ("watch", "save_every") in COUNTS
    assert TEXTS == [
        ("", "data"),
        ("", "recipe"),
        ("machine", "device"),
        ("watch", "sample_prompt"),
    ]
    assert len(NUMBERS) == 10
    assert len(COUNTS) == 18


# --- round trips ----------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
counts = st.integers(1, 2**40)
sizes = st.floats(1e-12, 1e12)
shares = st.floats(0.0, 1.0, exclude_max=True)


@st.composite
def configs(draw):
    lr = draw(sizes)
    steps = draw(st.none() | counts)
    begin = 0 if steps is None else draw(st.integers(0, steps - 1))
    length = (steps or 100) - begin
    warmup = draw(st.none() | st.integers(0, length))
    batch_size = draw(counts)

    def maybe(strategy):
        return draw(st.none() | strategy)

    return TrainingConfig(
        draw(texts),
        draw(st.sampled_from([MODEL, replace(MODEL, norm="post", tie_embeddings=True)])),
        recipe=draw(texts),
        steps=steps,
        budget_seconds=maybe(sizes),
        batch_size=batch_size,
        microbatch_size=maybe(st.integers(1, batch_size)),
        order=draw(st.sampled_from(get_args(Order))),
        seed=draw(st.integers(0, 2**63 - 1)),
        max_skipped=draw(counts),
        optimizer=OptimizerConfig(
            draw(st.sampled_from(get_args(OptimizerName))),
            lr=lr,
            min_lr=maybe(st.floats(0.0, lr)),
            schedule=draw(st.sampled_from(get_args(Schedule))),
            warmup_steps=warmup,
            decay_steps=maybe(st.integers(0, length - (warmup or 0))),
            begin_step=begin,
            betas=(draw(shares), draw(shares)),
            eps=draw(sizes),
            weight_decay=draw(st.floats(0.0, 1e12)),
            momentum=draw(shares),
            max_grad_norm=draw(sizes),
        ),
        machine=MachineConfig(
            maybe(texts),
            maybe(st.sampled_from(get_args(Dtype))),
            maybe(st.booleans()),
            maybe(st.integers(1, MAX_THREADS)),
        ),
        watch=WatchConfig(
            evaluate_every=maybe(st.integers(0, 2**40)),
            save_every=maybe(st.integers(0, 2**40)),
            sample_prompt=draw(texts),
            temperature=draw(st.floats(0.0, 1e12)),
            top_p=draw(st.floats(0.0, 1.0)),
            sinks=tuple(draw(st.lists(st.sampled_from(get_args(Sink)), max_size=3))),
        ),
    )


@settings(max_examples=50)
@given(configs())
def test_round_trip_through_toml_and_json(config):
    values = config.to_dict()
    assert TrainingConfig.from_dict(values) == config
    for again in (tomllib.loads(tomli_w.dumps(values)), json.loads(json.dumps(values))):
        assert again == values
        assert TrainingConfig.from_dict(again) == config
        assert repr(TrainingConfig.from_dict(again)) == repr(config)  # including types: 1.0, not 1
        assert not differences(config, TrainingConfig.from_dict(again))


@settings(max_examples=50)
@given(configs())
def test_a_resolved_config_is_complete_and_keeps_given_values(config):
    if config.steps is None:
        with pytest.raises(ValueError, match="number of steps is unknown; give steps or a time"):
            config.resolve(**MACHINE)
        return
    resolved = config.resolve(**MACHINE)
    assert type(resolved) is ResolvedConfig
    assert resolved.resolve(device="other", threads=7) == resolved
    assert ResolvedConfig.from_dict(resolved.to_dict()) == resolved
    assert type(resolved.opened()) is TrainingConfig
    assert not differences(resolved.opened(), resolved)
    for table in ("", *TABLES):
        then, now = (getattr(each, table) if table else each for each in (config, resolved))
        for each in fields(now):
            value = getattr(now, each.name)
            if each.name == "budget_seconds":
                assert value is None
            elif each.name not in TABLES:
                assert value is not None
                if getattr(then, each.name) is not None:
                    assert value == getattr(then, each.name)


def test_defaults_follow_from_the_number_of_steps():
    resolved = make(steps=4000, batch_size=6, optimizer=OptimizerConfig(lr=0.02)).filled()
    assert resolved.microbatch_size == 6
    optimizer, watch = resolved.optimizer, resolved.watch
    assert optimizer.min_lr == pytest.approx(2e-4, rel=1e-15)
    assert (optimizer.warmup_steps, optimizer.decay_steps) == (200, 2000)
    assert (watch.evaluate_every, watch.save_every) == (400, 800)
    assert (watch.norms_every, watch.sample_every) == (100, 800)
    assert resolved.tokens_per_step == 6 * 16
    assert resolved.tokens == 4000 * 6 * 16
    for name, value in MACHINE.items():
        assert getattr(resolved.machine, name) is None
        assert getattr(resolved.resolve(**MACHINE).machine, name) == value
    shortest = make(steps=1).resolve(**MACHINE)
    assert (shortest.optimizer.warmup_steps, shortest.optimizer.decay_steps) == (0, 0)
    assert shortest.watch.save_every == shortest.watch.norms_every == 1
    with pytest.raises(
        ValueError, match="'thread' is not a key of the table machine; did you mean"
    ):
        make().resolve(thread=1)
    with pytest.raises(
        ValueError, match="the key device is missing from the table machine; add it"
    ):
        make().resolve()


def test_the_schedule_of_an_extended_run():
    optimizer = OptimizerConfig(begin_step=3000)
    extended = make(steps=4000, optimizer=optimizer).filled()
    assert (extended.optimizer.warmup_steps, extended.optimizer.decay_steps) == (50, 500)


@given(st.integers(1, 60), st.data())
def test_default_schedule_parts_fit_given_ones(steps, data):
    """The default of one part of the schedule fits any value of the other."""
    given_part = data.draw(st.sampled_from(["warmup_steps", "decay_steps"]))
    length = data.draw(st.integers(0, steps))
    optimizer = OptimizerConfig(schedule="warmup-stable-decay", **{given_part: length})
    resolved = make(steps=steps, optimizer=optimizer).filled().optimizer
    assert getattr(resolved, given_part) == length
    assert resolved.warmup_steps + resolved.decay_steps <= steps


def test_numbers_of_other_types_become_python_numbers():
    config = make(
        steps=np.int64(50),
        seed=np.uint8(3),
        budget_seconds=30,
        optimizer=OptimizerConfig(lr=np.float32(0.5), betas=[0, np.float64(0.5)], warmup_steps=2),
        watch=WatchConfig(save_every=np.int32(5), temperature=1),
    )
    assert tomllib.loads(tomli_w.dumps(config.to_dict())) == config.to_dict()
    assert [type(value) for value in (config.steps, config.seed, config.watch.save_every)] == [
        int,
        int,
        int,
    ]
    assert repr(config.optimizer.betas) == "(0.0, 0.5)"
    assert repr(config.optimizer.lr) == "0.5"
    assert repr(config.budget_seconds) == "30.0"


def test_a_path_becomes_text():
    assert TrainingConfig(Path("data") / "stories", MODEL).data == "data/stories"


def test_a_config_is_frozen():
    with pytest.raises(FrozenInstanceError):
        make().steps = 3


# --- rejected values ------------------------------------------------------------------------------


@pytest.mark.parametrize(("table", "name"), NUMBERS)
def test_values_that_are_not_numbers(table, name):
    for value in ("0.1", True, [0.1], {}):
        assert f"must be a number, not {value!r}" in refusal(table, name, value)
    for value in (float("nan"), float("inf"), -float("inf"), 10**400):
        assert "must be finite" in refusal(table, name, value)
    assert "; it must be a" in refusal(table, name, -1e-9)


@pytest.mark.parametrize(("table", "name"), COUNTS)
def test_values_that_are_not_counts(table, name):
    for value in ("8", True, 8.0, [8], float("nan")):
        assert f"must be a whole number, not {value!r}" in refusal(table, name, value)
    assert "must be at least" in refusal(table, name, -1)


@pytest.mark.parametrize(("table", "name"), TEXTS)
def test_values_that_are_not_text(table, name):
    for value in (8, True, ["cpu"], {}):
        assert f"must be text, not {value!r}" in refusal(table, name, value)
    assert r"'a\udcff' is not Unicode" in refusal(table, name, "a\udcff")


@pytest.mark.parametrize(
    ("table", "name"), [("", name) for name in ("batch_size", "seed", "max_skipped", "recipe")]
    + [("optimizer", name) for name in ("lr", "eps", "momentum", "begin_step", "weight_decay")]
    + [("watch", name) for name in ("keep_checkpoints", "evaluation_tokens", "top_p")],
)  # fmt: skip
def test_only_optional_fields_may_be_none(table, name):
    refusal(table, name, None)


@pytest.mark.parametrize(
    ("table", "name", "value", "sentence"),
    [
        ("optimizer", "name", "adam", "'adam' is unknown; choose one of adamw, muon."),
        ("optimizer", "name", ["adamw"], "is unknown; choose one of"),
        ("optimizer", "schedule", "linear", "choose one of cosine, warmup-stable-decay, constant."),
        ("optimizer", "lr", 0, "optimizer.lr is 0; it must be above 0."),
        ("optimizer", "eps", 0.0, "must be above 0."),
        ("optimizer", "max_grad_norm", 0.0, "must be above 0."),
        ("optimizer", "weight_decay", -0.5, "is -0.5; it must be at least 0."),
        ("optimizer", "momentum", 1.0, "is 1; it must be below 1."),
        ("optimizer", "min_lr", 0.5, "0.5 is above optimizer.lr 0.001; the learning rate decays"),
        ("optimizer", "betas", 0.9, "must be a list, not 0.9."),
        ("optimizer", "betas", "ab", "must be a list, not 'ab'."),
        ("optimizer", "betas", [0.9], "must have 2 items, not 1."),
        ("optimizer", "betas", [0.9, 0.9, 0.9], "must have 2 items, not 3."),
        ("optimizer", "betas", [0.9, 1.0], "betas[1] is 1; it must be below 1."),
        ("optimizer", "betas", [-0.1, 0.9], "betas[0] is -0.1; it must be at least 0."),
        ("optimizer", "betas", [0.9, "0.9"], "must be a number, not '0.9'."),
        ("optimizer", "betas", [True, 0.9], "must be a number, not True."),
        ("optimizer", "betas", [0.9, float("nan")], "must be finite."),
        ("optimizer", "begin_step", 100, "100 is not before the last of 100 steps."),
        ("machine", "dtype", "float64", "choose one of float32, bfloat16, float16."),
        ("machine", "compile", "yes", "must be true or false, not 'yes'."),
        ("machine", "compile", 1, "must be true or false, not 1."),
        ("machine", "threads", 0, "must be at least 1, not 0."),
        ("watch", "sinks", "wandb", "must be a list, not 'wandb'."),
        ("watch", "sinks", 3, "must be a list, not 3."),
        ("watch", "sinks", ["wandb", "mlflow"], "choose one of tensorboard, trackio, wandb."),
        ("watch", "top_p", 1.1, "is 1.1; it must be at most 1."),
        ("watch", "keep_checkpoints", 0, "must be at least 1, not 0."),
        ("watch", "sample_tokens", 0, "must be at least 1, not 0."),
        ("", "order", "shuffled", "'shuffled' is unknown; choose one of epoch, random."),
        ("", "steps", 0, "must be at least 1, not 0."),
        ("", "batch_size", 0, "must be at least 1, not 0."),
        ("", "microbatch_size", 33, "33 is above batch_size 32; it is a part of a batch."),
        ("", "max_skipped", 0, "must be at least 1, not 0."),
        ("", "seed", 2**63, f"must be at most {2**63 - 1}, not {2**63}."),
        ("", "budget_seconds", 0.0, "must be above 0."),
        ("", "model", "small", "must be a table, not 'small'."),
        ("", "optimizer", [], "must be a table, not []."),
        ("", "watch", 3, "must be a table, not 3."),
    ],
)
def test_impossible_values(table, name, value, sentence):
    assert sentence in refusal(table, name, value)


@pytest.mark.parametrize(
    ("table", "key", "hint"),
    [
        ("", "step", "'step' is not a key of a training config; did you mean steps?"),
        ("", "lr", "'lr' is not a key of a training config; there are data, model, recipe,"),
        ("model", "d_modle", "'d_modle' is not a key of the table model; did you mean d_model?"),
        ("optimizer", "beta", "'beta' is not a key of the table optimizer; did you mean betas?"),
        ("machine", "thread", "'thread' is not a key of the table machine; did you mean threads?"),
        ("watch", "save_evry", "of the table watch; did you mean save_every?"),
        ("watch", "?", "there are evaluate_every, evaluation_tokens"),
    ],
)
def test_an_unknown_key_is_an_error_with_a_suggestion(table, key, hint):
    values = make().to_dict()
    (values[table] if table else values)[key] = 1
    with pytest.raises(ValueError, match="is not a key of") as caught:
        TrainingConfig.from_dict(values)
    assert hint in str(caught.value)


@pytest.mark.parametrize("name", ["data", "model"])
def test_required_keys(name):
    values = make().to_dict()
    del values[name]
    with pytest.raises(
        ValueError, match=f"the key {name} is missing from a training config; add it"
    ):
        TrainingConfig.from_dict(values)


def test_other_keys_are_optional():
    assert TrainingConfig.from_dict({"data": "data", "model": MODEL.to_dict()}) == TrainingConfig(
        "data", MODEL
    )


def test_a_schedule_that_does_not_fit():
    with pytest.raises(ValueError, match="101 steps of warm-up do not fit into 100 steps"):
        make(optimizer=OptimizerConfig(warmup_steps=101))
    long = {"warmup_steps": 60, "decay_steps": 41}
    make(optimizer=OptimizerConfig(**long))  # cosine ignores decay steps
    schedule = "warmup-stable-decay"
    with pytest.raises(ValueError, match="60 steps of warm-up and 41 of decay do not fit into 100"):
        make(optimizer=OptimizerConfig(schedule=schedule, **long))
    with pytest.raises(ValueError, match="do not fit into 100 steps; shorten them, or take more"):
        make(steps=300, optimizer=OptimizerConfig(schedule=schedule, begin_step=200, **long))
    make(steps=301, optimizer=OptimizerConfig(schedule=schedule, begin_step=200, **long))


def test_the_differences_of_two_configs():
    old = make(optimizer=OptimizerConfig(lr=0.1), machine=MachineConfig(threads=2))
    new = make(
        steps=101,
        optimizer=OptimizerConfig(lr=0.1, betas=(0.5, 0.5)),
        watch=WatchConfig(sinks=("wandb",)),
    )
    assert differences(old, old) == {}
    assert differences(old, new) == {
        "machine.threads": (2, None),
        "optimizer.betas": ([0.9, 0.95], [0.5, 0.5]),
        "steps": (100, 101),
        "watch.sinks": ([], ["wandb"]),
    }
    other = replace(old, model=replace(MODEL, norm="none"))
    assert differences(old, other) == {"model.norm": ("pre", "none")}
