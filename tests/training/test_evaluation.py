import math

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from tilth.model import TransformerLM
from tilth.training.evaluation import evaluate


@pytest.fixture
def model(config):
    torch.manual_seed(0)
    return TransformerLM(config.model)


def expected_nats(model, ids, context):
    """Return the loss summed over windows that do not overlap."""
    total = 0.0
    with torch.no_grad():
        for start in range(0, len(ids) - 1, context):
            window = torch.tensor(ids[start : start + context + 1].astype(np.int64))
            logits = model(window[None, :-1])[0]
            total += cross_entropy(logits, window[1:], reduction="sum").item()
    return total


@pytest.mark.parametrize("num_tokens", [2, 16, 17, 18, 33, 500])
@pytest.mark.parametrize("batch_size", [1, 5])
def test_every_token_is_predicted_once(model, config, data, num_tokens, batch_size):
    ids = data.valid[:num_tokens]
    found = evaluate(model, ids, data.tokenizer(), batch_size=batch_size)
    nats = expected_nats(model, ids, config.model.context_length)
    assert found.tokens == num_tokens - 1
    assert found.loss == pytest.approx(nats / (num_tokens - 1), rel=1e-5)
    assert found.perplexity == pytest.approx(math.exp(found.loss))


def test_bits_per_byte_divide_by_bytes_of_text(model, config, data):
    found = evaluate(model, data.valid, data.tokenizer())
    first = len(data.tokenizer().decode([int(data.valid[0])]).encode())
    text_bytes = data.text_bytes("valid") - first  # the first token is never predicted
    nats = expected_nats(model, data.valid, config.model.context_length)
    assert found.bits_per_byte == pytest.approx(nats / math.log(2) / text_bytes, rel=1e-6)


def test_max_tokens_evaluates_the_beginning(model, data):
    tokenizer = data.tokenizer()
    assert evaluate(model, data.valid, tokenizer, max_tokens=100) == evaluate(
        model, data.valid[:101], tokenizer
    )
    everything = evaluate(model, data.valid, tokenizer)
    assert evaluate(model, data.valid, tokenizer, max_tokens=10**9) == everything


def test_evaluation_changes_nothing(model, data):
    model.train()
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    evaluate(model, data.valid[:50], data.tokenizer())
    assert torch.equal(before[0], torch.get_rng_state())
    assert (before[1] == np.random.get_state()[1]).all()
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_one_token_is_rejected(model, data):
    with pytest.raises(ValueError, match="at least two tokens"):
        evaluate(model, data.valid[:1], data.tokenizer())


def test_truncated_validation_set_is_an_error(model, data, tmp_path):
    """Reading it would end the process by SIGBUS."""
    path = tmp_path / "valid.npy"
    np.save(path, np.tile(np.asarray(data.valid), 20))
    tokens = np.load(path, mmap_mode="r")
    tokenizer = data.tokenizer()
    evaluate(model, tokens, tokenizer, max_tokens=100)
    with path.open("r+b") as file:
        file.truncate(200)
    model.train()
    with pytest.raises(OSError, match="now it has 200; restore it"):
        evaluate(model, tokens, tokenizer)
    assert model.training


def test_progress_counts_to_the_last_token(model, data):
    told = []
    evaluate(
        model, data.valid[:100], data.tokenizer(), batch_size=2, progress=lambda *x: told.append(x)
    )
    assert [done for _, done, _ in told] == [32, 64, 96, 99]
    assert {(phase, total) for phase, _, total in told} == {("evaluate", 99)}
