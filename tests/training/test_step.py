"""One update, compared with plain torch."""

import math
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from tests.training.comparing import difference, final_state
from tilth.model import TransformerLM
from tilth.training import resume, train
from tilth.training.step import (
    accumulate_gradients,
    learning_rate,
    make_loss,
    make_optimizer,
    make_scaler,
    set_momentum,
    update,
)


def batch(config, rows, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shape = (rows, config.model.context_length + 1)
    ids = torch.randint(0, config.model.vocab_size, shape, generator=generator)
    return ids[:, :-1], ids[:, 1:]


def gradients(model, config, x, y, microbatch_size):
    model.zero_grad()
    loss = accumulate_gradients(
        make_loss(model, config.machine), x, y, microbatch_size, make_scaler(config.machine)
    )
    return loss, [parameter.grad.clone() for parameter in model.parameters()]


@pytest.mark.parametrize("microbatch_size", [1, 2, 3, 4, 7])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_microbatches_have_the_gradient_of_the_batch(config, microbatch_size, dtype, tolerance):
    torch.manual_seed(0)
    model = TransformerLM(config.model, dtype=dtype)
    x, y = batch(config, 7)  # 7 rows: parts of 2, 3 and 4 leave a smaller last one
    expected_loss = cross_entropy(model(x).flatten(0, 1), y.flatten())
    expected = torch.autograd.grad(expected_loss, list(model.parameters()))
    loss, found = gradients(model, config, x, y, microbatch_size)
    assert loss.item() == pytest.approx(expected_loss.item(), rel=1e-6)
    for ours, theirs in zip(found, expected, strict=True):
        difference = (ours - theirs).norm() / theirs.norm()
        assert difference < tolerance


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_updates_equal_plain_torch(change, name):
    config = change(optimizer={"name": name, "weight_decay": 0.1})
    torch.manual_seed(0)
    model = TransformerLM(config.model)
    theirs = deepcopy(model).use_fast_path(False)
    matrices = {n for n, p in theirs.named_parameters() if p.ndim == 2 and "embed" not in n}
    hidden = {n for n in matrices if name == "muon" and "lm_head" not in n}
    parameters = dict(theirs.named_parameters())
    adamw = torch.optim.AdamW(
        [
            {"params": [parameters[n] for n in sorted(matrices - hidden)], "weight_decay": 0.1},
            {"params": [p for n, p in parameters.items() if n not in matrices], "weight_decay": 0},
        ],
        betas=config.optimizer.betas,
        eps=config.optimizer.eps,
    )
    others = [adamw]
    if hidden:
        others.append(
            torch.optim.Muon(
                [parameters[n] for n in sorted(hidden)],
                weight_decay=0.1,
                momentum=config.optimizer.momentum,
                adjust_lr_fn="match_rms_adamw",
            )
        )
    optimizer, scaler = make_optimizer(model, config.optimizer), make_scaler(config.machine)
    for step in range(1, 6):
        x, y = batch(config, 4, seed=step)
        lr = learning_rate(step, config)
        loss = accumulate_gradients(make_loss(model, config.machine), x, y, 3, scaler)
        norm = update(optimizer, loss, lr, 0.5, scaler)

        expected = cross_entropy(theirs(x).flatten(0, 1), y.flatten())
        theirs.zero_grad()
        expected.backward()
        expected_norm = torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.5)
        for other in others:
            for group in other.param_groups:
                group["lr"] = lr
            other.step()
        assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
        assert norm.item() == pytest.approx(expected_norm.item(), rel=1e-4)
    # torch's Muon iterates in bfloat16, so its steps agree to some digits only.
    tolerance = 1e-5 if name == "adamw" else 0.02
    for ours, other in zip(model.parameters(), theirs.parameters(), strict=True):
        assert (ours - other).norm() / other.norm() < tolerance


@pytest.mark.parametrize("schedule", ["cosine", "warmup-stable-decay", "constant"])
def test_schedule_starts_above_0_and_ends_at_the_last_step(change, schedule):
    config = change(
        steps=100, optimizer={"schedule": schedule, "warmup_steps": 10, "decay_steps": 40}
    )
    rates = [learning_rate(step, config) for step in range(1, 101)]
    top, low = config.optimizer.lr, config.optimizer.min_lr
    assert rates[:10] == pytest.approx([top * step / 10 for step in range(1, 11)])
    assert rates[-1] == (top if schedule == "constant" else low)
    if schedule == "cosine":
        turns = [(step - 10) / 90 for step in range(10, 101)]
        expected = [low + (top - low) * (1 + math.cos(math.pi * turn)) / 2 for turn in turns]
        assert rates[9:] == pytest.approx(expected)
    if schedule == "warmup-stable-decay":
        assert rates[9:60] == [top] * 51
        assert rates[79] == pytest.approx((top + low) / 2)


def test_extension_repeats_the_schedule(change):
    first = change(steps=50, optimizer={"warmup_steps": 5})
    more = change(steps=90, optimizer={"warmup_steps": 5, "begin_step": 50})
    alone = change(steps=40, optimizer={"warmup_steps": 5})
    assert learning_rate(50, first) == first.optimizer.min_lr
    again = [learning_rate(step, more) for step in range(51, 91)]
    assert again == [learning_rate(step, alone) for step in range(1, 41)]


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_learning_rate_of_the_embedding(change, name):
    """A first update of AdamW has the size of the learning rate, whatever the gradient."""
    moved = []
    for factor in (1.0, 3.0):
        optimizer = {"name": name, "embedding_lr_factor": factor, "weight_decay": 0.0}
        config = change(optimizer=optimizer)
        torch.manual_seed(0)
        model = TransformerLM(config.model)
        before = {key: value.clone() for key, value in model.state_dict().items()}
        scaler, adam = make_scaler(config.machine), make_optimizer(model, config.optimizer)
        x, y = batch(config, 2)
        loss = accumulate_gradients(make_loss(model, config.machine), x, y, 2, scaler)
        update(adam, loss, 1e-2, 1.0, scaler)
        moved.append({key: value - before[key] for key, value in model.state_dict().items()})
    for key, change_of in moved[0].items():
        factor = 3.0 if key == "token_embeddings.weight" else 1.0
        torch.testing.assert_close(moved[1][key], factor * change_of, rtol=1e-4, atol=1e-6)
    used = torch.unique(x)
    size = moved[1]["token_embeddings.weight"][used].abs().median().item()
    assert size == pytest.approx(3e-2, rel=1e-2)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_non_finite_updates_are_skipped(config, bad, where):
    torch.manual_seed(0)
    model = TransformerLM(config.model)
    optimizer, scaler = make_optimizer(model, config.optimizer), make_scaler(config.machine)
    x, y = batch(config, 2)
    before = deepcopy(model.state_dict())
    loss = accumulate_gradients(make_loss(model, config.machine), x, y, 2, scaler)
    if where == "loss":
        loss = torch.tensor(bad)
    else:
        model.lm_head.weight.grad[3, 5] = bad
    norm = update(optimizer, loss, 1e-2, 1.0, scaler)
    assert where == "loss" or not math.isfinite(norm)
    assert all(torch.equal(before[name], now) for name, now in model.state_dict().items())
    assert not optimizer.state
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize(("momentum", "first"), [(0.95, 0.85), (0.9, 0.85), (0.8, 0.8)])
def test_momentum_rises_linearly(config, momentum, first):
    """The momentum buffer after updates with it, in NumPy."""
    optimizer_config = replace(
        config.optimizer, name="muon", momentum=momentum, momentum_warmup_steps=5
    )
    model = TransformerLM(config.model)
    optimizer, scaler = make_optimizer(model, optimizer_config), make_scaler(config.machine)
    weight = model.layers[0].ffn.w2.weight
    expected = np.zeros(weight.shape)
    for step in range(1, 10):
        loss = accumulate_gradients(
            make_loss(model, config.machine), *batch(config, 4, seed=step), 4, scaler
        )
        gradient = weight.grad.numpy().astype(np.float64)
        set_momentum(optimizer, step, optimizer_config)
        update(optimizer, loss, 1e-3, math.inf, scaler)
        now = np.interp(step, [1, 6], [first, momentum])
        expected = now * expected + (1 - now) * gradient
        found = optimizer.state[weight]["momentum_buffer"]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-7)


def test_a_run_that_stops_within_the_warm_up_of_the_momentum_resumes(change, tmp_path):
    optimizer = {"name": "muon", "momentum_warmup_steps": 8}
    config, constant = change(optimizer=optimizer), change(optimizer={"name": "muon"})
    for each, name in ((config, "whole"), (constant, "constant")):
        list(train(each, tmp_path / name))
    records = train(config, tmp_path / "run")
    next(record for record in records if record.step == 3)
    records.close()
    list(resume(tmp_path / "run"))
    assert difference(tmp_path / "run", tmp_path / "whole") is None
    (warmed, _), (plain, _) = (final_state(tmp_path / name) for name in ("whole", "constant"))
    assert any(not torch.equal(warmed[name], plain[name]) for name in warmed)
