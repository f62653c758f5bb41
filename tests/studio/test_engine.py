"""Continuous batching: texts equal those of `generate`, rows join and leave, jobs are cancelled."""

import threading
import time

import numpy as np
import pytest

from tilth.config import ModelConfig
from tilth.generation import LanguageModel
from tilth.generation.decoding import PART_TOKENS, GenerationOptions
from tilth.studio.engine import BusyError, Engine, Part


def submit(engine, prompt, **options):
    parts = []
    ids = engine.model.prompt_ids(prompt)
    job = engine.submit(ids, GenerationOptions(**options), parts.append)
    return job, parts


def test_texts_equal_those_of_generate(model):
    """More requests than rows, of different lengths, options and prompts."""
    asked = [
        ("", {"max_tokens": 3, "seed": 1}),
        ("the mouse", {"max_tokens": 40, "seed": 2, "temperature": 0.7}),
        ("the", {"max_tokens": 90, "temperature": 0.0}),  # beyond the context
        ("the mouse", {"max_tokens": 17, "seed": 5, "top_k": 5, "sample_index": 3}),
        ("é", {"max_tokens": 60, "seed": 6, "stop": ("e", "zz")}),
    ]
    with Engine(model, rows=2) as engine:
        begun = [submit(engine, prompt, **options) for prompt, options in asked]
        reasons = [job.wait(60) for job, _ in begun]
    for (prompt, options), (job, parts), reason in zip(asked, begun, reasons, strict=True):
        stream = model.generate(prompt, **options)
        assert "".join(part.text for part in parts) == "".join(stream)
        assert reason == stream.stop_reason == parts[-1].stop_reason
        assert [part.stop_reason for part in parts[:-1]] == [None] * (len(parts) - 1)
        assert job.num_tokens == len(stream.token_ids)
    assert {"limit", "end token", "stop string"} >= set(reasons) > set()


def test_end_token_is_scored(model):
    end = model.end_id
    for seed in range(200):
        stream = model.generate("", seed=seed, max_tokens=50)
        list(stream)
        if stream.stop_reason == "end token":
            break
    with Engine(model, rows=1) as engine:
        job, parts = submit(engine, "", seed=seed, max_tokens=50, alternatives=2)
        assert job.wait(60) == "end token"
    assert parts[-1].token.id == end
    ids = [part.token.id for part in parts[:-1]]
    scored = model.score(model.tokenizer.decode([*ids, end]), allow_special=True)
    if [token.id for token in scored] == [*ids, end]:  # unless other tokens have the same text
        expected = [token.log_probability for token in scored]
        found = [part.token.log_probability for part in parts]
        np.testing.assert_allclose(found, expected, atol=1e-4)


def test_bias_forces_and_forbids_tokens(model):
    with Engine(model, rows=2) as engine:
        parts = []
        options = GenerationOptions(max_tokens=5, temperature=0.0)
        job = engine.submit([97], options, parts.append, bias={ord("x"): 100.0})
        assert job.wait(60) == "limit"
    assert "".join(part.text for part in parts) == "xxxxx"


def test_full_queue_and_closed_engine(model):
    engine = Engine(model, rows=1, queue=1)
    try:
        running, _ = submit(engine, "", max_tokens=10**6, temperature=0.0)
        while engine.load != (1, 0):
            time.sleep(0.01)
        waiting, parts = submit(engine, "a", max_tokens=2)
        with pytest.raises(BusyError, match="1 requests are waiting"):
            submit(engine, "a", max_tokens=2)
        running.cancel()
        assert running.wait(60) == "limit"
        assert waiting.wait(60) is not None
        assert parts[-1].stop_reason is not None
    finally:
        engine.close()
    with pytest.raises(BusyError, match="stopping"):
        submit(engine, "a", max_tokens=2)


def test_cancelled_requests_leave_the_queue(model):
    """Their places are free at once, although no row is."""
    with Engine(model, rows=1, queue=2) as engine:
        running, _ = submit(engine, "", max_tokens=10**6, temperature=0.0)
        while engine.load != (1, 0):
            time.sleep(0.01)
        first, parts = submit(engine, "a", max_tokens=2)
        second, _ = submit(engine, "b", max_tokens=2)
        first.cancel()
        assert engine.load == (1, 1)
        assert first.wait(0) == "limit"
        assert parts == [Part("", None, "limit")]
        third, _ = submit(engine, "c", max_tokens=2)
        running.cancel()
        assert None not in {second.wait(60), third.wait(60)}
        assert (first.num_tokens, len(parts)) == (0, 1)


def test_a_retired_engine_ends_its_texts_and_takes_late_ones(model):
    engine = Engine(model, rows=1)
    first, _ = submit(engine, "", max_tokens=50, temperature=0.0)
    second, parts = submit(engine, "the", max_tokens=5, seed=1)
    engine.retire()
    assert None not in {first.wait(60), second.wait(60)}
    engine._thread.join(60)
    late, said = submit(engine, "the", max_tokens=5, seed=1)  # of a request that had it already
    assert late.wait(60) is not None
    assert "".join(part.text for part in said) == "".join(part.text for part in parts) != ""
    engine._thread.join(60)
    assert not engine._thread.is_alive()
    engine.close()


def test_closing_ends_all_requests(model):
    engine = Engine(model, rows=1)
    jobs = [submit(engine, "", max_tokens=10**6, temperature=0.0)[0] for _ in range(3)]
    engine.close()
    assert [job.wait(0) for job in jobs] == ["limit"] * 3


def test_time_limit(model):
    with Engine(model, rows=1) as engine:
        options = GenerationOptions(max_tokens=10**6, temperature=0.0)
        job = engine.submit(
            [97], options, lambda part: None, bias={model.end_id: -100.0}, seconds=0.3
        )
        assert job.wait(60) == "limit"
        assert 0 < job.num_tokens < 10**6


def test_a_request_is_cancelled_while_its_prompt_is_read(model):
    """After the second part of a prompt of ten parts; its row serves the next request."""
    read = []

    class Recorded:
        def extend(self, ids, every=False):
            read.append(list(map(len, ids)))
            if len(read) == 2:
                job.cancel()
            return np.zeros((2, 1, 300), np.float32)

        def truncate(self, row, length):
            pass

    config = ModelConfig(300, context_length=10**4, d_model=8, num_layers=1, num_heads=1)
    long = LanguageModel(config, model.tokenizer, lambda rows: Recorded(), has_batches=True)
    with Engine(long, rows=2) as engine:
        options = GenerationOptions(max_tokens=1)
        with engine._changed:  # the engine begins when `job` is known
            job = engine.submit([97] * (10 * PART_TOKENS), options, lambda part: None)
        assert job.wait(60) == "limit"
        assert job.num_tokens == 0
        assert read == [[PART_TOKENS, 0]] * 2
        assert engine.submit([97], options, lambda part: None).wait(60) == "limit"
    assert read[2:] == [[1, 0]]


def test_failure_ends_the_requests_and_not_the_engine(model):
    """A step fails once; the next request gets its text."""
    with Engine(model, rows=2) as engine:
        extend, failed = engine._decoder.extend, threading.Event()

        def fail_once(ids, every=False):
            if not failed.is_set():
                failed.set()
                raise ValueError("planted")
            return extend(ids, every)

        engine._decoder.extend = fail_once
        job, parts = submit(engine, "a", max_tokens=3)
        job.wait(60)
        assert parts == [Part("", None, None, "planted")]
        job, parts = submit(engine, "the", max_tokens=3, seed=1)
        assert job.wait(60)
        expected = "".join(model.generate("the", max_tokens=3, seed=1))
        assert "".join(part.text for part in parts) == expected
