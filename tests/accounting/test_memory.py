"""Bytes from a config equal those that torch allocates."""

from dataclasses import replace

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from tests.accounting.configs import VARIANTS, XL, name_of
from tilth.accounting import (
    cache_bytes,
    count_parameters,
    largest_batch,
    largest_textbook_batch,
    optimizer_state_bytes,
    textbook_memory,
    training_memory,
)
from tilth.accounting.memory import CHUNK_TOKENS, STACK_ELEMENTS
from tilth.config import ModelConfig
from tilth.model import TransformerLM, chunked_cross_entropy
from tilth.model import loss as loss_module
from tilth.optim import SGD, AdamW, Muon, clip_gradients, decay_groups, muon, muon_groups
from tilth.training import machine

OPTIMIZERS = {
    "adamw": lambda model: AdamW(decay_groups(model, weight_decay=0.1)),
    "muon": lambda model: Muon(muon_groups(model, weight_decay=0.1)),
    "sgd": lambda model: SGD(model.parameters()),
}


def bytes_of(tensors):
    return sum(tensor.nbytes for tensor in tensors)


def state_of(optimizer):
    states = optimizer.state.values()
    return [value for state in states for value in state.values() if torch.is_tensor(value)]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("config", VARIANTS[::5], ids=name_of)
def test_lasting_tensors(config, optimizer):
    model = TransformerLM(config)
    made = OPTIMIZERS[optimizer](model)
    model.hidden(torch.zeros(1, 3, dtype=torch.int64)).sum().backward()
    for parameter in model.parameters():  # the head has none, as there was no loss
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    made.step()
    memory = training_memory(config, 1, optimizer)
    assert memory.parameters_bytes == bytes_of(model.parameters())
    assert memory.gradients_bytes == bytes_of(p.grad for p in model.parameters())
    assert memory.optimizer_state_bytes == bytes_of(state_of(made))
    assert memory.optimizer_state_bytes == optimizer_state_bytes(config, optimizer)
    assert memory.rotation_tables_bytes == bytes_of(model.buffers())


def peak_of_a_step(config, microbatch_size, optimizer, num_microbatches, dtype="float32"):
    """The bytes that exist between steps, and the peak of a step."""
    autocast = torch.autocast("cpu", getattr(torch, dtype), enabled=dtype != "float32")
    torch.manual_seed(0)
    model = TransformerLM(config)
    made = OPTIMIZERS[optimizer](model)

    def step():
        made.zero_grad(set_to_none=True)
        for _ in range(num_microbatches):
            shape = (2, microbatch_size, config.context_length)
            x, y = torch.randint(config.vocab_size, shape).unbind()
            with autocast:
                loss = chunked_cross_entropy(model.hidden(x), model.head_weight, y)
            loss.backward()
        clip_gradients(model.parameters(), 1.0)
        made.step()

    step()
    made.zero_grad(set_to_none=True)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    held, peak = 0, 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    lasting = bytes_of([*model.parameters(), *model.buffers(), *state_of(made)])
    return lasting, lasting + peak


SMALL = ModelConfig(300, context_length=256, d_model=128, num_layers=3, num_heads=4)


@pytest.mark.parametrize(
    ("changes", "microbatch_size", "optimizer", "num_microbatches"),
    [
        ({}, 8, "adamw", 1),  # worst in the last feed-forward
        ({"d_ff": 64, "num_kv_heads": 1, "vocab_size": 50}, 8, "adamw", 1),  # in the last norm
        ({"vocab_size": 5000}, 4, "adamw", 1),  # in the loss
        ({"vocab_size": 5000}, 1, "sgd", 3),  # there too, with gradients of earlier microbatches
        ({"norm": "none", "position": "none", "ffn": "silu"}, 8, "adamw", 1),
        ({"norm": "post", "qk_norm": True}, 4, "adamw", 2),
        ({"context_length": 2, "d_ff": 128}, 1, "muon", 1),  # in the update: square matrices
        ({"context_length": 2, "d_ff": 512}, 1, "muon", 1),  # and oblong ones
        ({"context_length": 2, "vocab_size": 5000}, 1, "adamw", 1),  # with all gradients there
    ],
    ids=str,
)
def test_peak(changes, microbatch_size, optimizer, num_microbatches):
    config = replace(SMALL, **changes)
    memory = training_memory(config, microbatch_size, optimizer, num_microbatches=num_microbatches)
    lasting, peak = peak_of_a_step(config, microbatch_size, optimizer, num_microbatches)
    assert memory.always_bytes == lasting
    assert memory.peak_bytes == pytest.approx(peak, rel=0.01)


@pytest.mark.skipif(
    not machine.cpu_has_bfloat16(),
    reason="other CPUs copy to float32, and `train` refuses bfloat16 there",
)
@pytest.mark.parametrize(
    "changes",
    [{}, {"vocab_size": 5000}, {"norm": "none", "position": "none", "ffn": "silu"}],
    ids=str,
)
def test_peak_in_bfloat16(changes):
    config = replace(SMALL, **changes)
    _, peak = peak_of_a_step(config, 4, "adamw", 1, "bfloat16")
    memory = training_memory(config, 4, "adamw", "bfloat16")
    assert memory.peak_bytes == pytest.approx(peak, rel=0.03)


def test_constants_of_torch_modules():
    assert CHUNK_TOKENS == loss_module.CHUNK_TOKENS
    assert STACK_ELEMENTS == muon.STACK_ELEMENTS


def test_gpt2_xl_textbook():
    assert 4 * count_parameters(XL).total == 8_508_230_400
    assert textbook_memory(XL) == (15_517_753_344, 34_032_921_600)
    assert textbook_memory(XL, "sgd").once_bytes == 8 * 2_127_057_600
    assert textbook_memory(XL).bytes(2) == 2 * 15_517_753_344 + 34_032_921_600
    assert largest_textbook_batch(XL, 80e9) == 2
    assert largest_textbook_batch(XL, 34e9) == 0


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("memory_bytes", [1e8, 3e9, 80e9])
def test_largest_batch(memory_bytes, dtype, optimizer):
    config = ModelConfig(10_000, context_length=256, d_model=512, num_layers=4, num_heads=16)
    size = largest_batch(config, memory_bytes, optimizer, dtype)
    assert training_memory(config, size + 1, optimizer, dtype).peak_bytes > memory_bytes
    if size:
        assert training_memory(config, size, optimizer, dtype).peak_bytes <= memory_bytes
    assert (size == 0) == (memory_bytes == 1e8)


def test_cache():
    assert cache_bytes(XL) == 2 * 48 * 1024 * 1600 * 4
    assert cache_bytes(replace(XL, num_kv_heads=5), 3, "bfloat16") == 3 * 2 * 48 * 1024 * 320 * 2


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((-1,), "microbatch_size must be at least 1, not -1."),
        ((2, "adamv"), "optimizer 'adamv' is unknown; choose one of adamw, muon, sgd"),
        ((2, "adamw", "int8"), "dtype 'int8' is unknown; choose one of float32, "),
    ],
)
def test_invalid_arguments(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        training_memory(XL, *arguments)
