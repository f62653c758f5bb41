"""The cost of training on several ranks."""

import json

import pytest

from tests.command_line import tilth
from tilth.accounting import account
from tilth.accounting.parallel import gradient_traffic, sharded_memory, sharded_traffic
from tilth.accounting.ranks import account_ranks, checkpoint_bytes

LLAMA = {"hardware": "h100", "dtype": "bfloat16", "mfu": 0.4, "steps": 1000}


@pytest.fixture(scope="module")
def small():
    return account("gpt2-small", batch_size=512, **LLAMA)


@pytest.fixture(scope="module")
def large():
    return account("llama-2-7b", batch_size=1024, **LLAMA)


def test_one_rank_is_the_account(small):
    one = account_ranks(account("gpt2-small", batch_size=8, **LLAMA), 1)
    assert (one.strategy, one.shards, one.traffic_bytes) == ("ddp", 1, 0)
    model = account("gpt2-small", batch_size=8, **LLAMA)
    assert one.memory_bytes == model.memory.peak_bytes
    assert one.run_seconds == pytest.approx(model.cost.seconds)
    assert one.checkpoint_bytes == 3 * 4 * model.parameters.total + 4 * 111  # steps of tensors


def test_a_model_that_fits_is_not_sharded(small, large):
    few, many = (account_ranks(small, ranks) for ranks in (8, 64))
    assert (few.strategy, many.strategy) == ("ddp", "ddp")
    assert few.traffic_bytes == gradient_traffic(small.config, 8)
    assert few.compute_seconds == pytest.approx(8 * many.compute_seconds)
    sharded = account_ranks(large, 512)
    assert (sharded.strategy, sharded.fits) == ("fsdp", True)
    memory = sharded_memory(large.config, sharded.shards, 2, dtype="bfloat16")
    assert sharded.memory_bytes == memory.peak_bytes < 80e9
    assert sharded_memory(large.config, sharded.shards // 2, 2, dtype="bfloat16").peak_bytes > 80e9
    traffic = sharded_traffic(large.config, 512, sharded.shards, dtype="bfloat16")
    assert sharded.traffic_bytes == traffic
    assert not account_ranks(large, 512, strategy="ddp").fits


def test_accumulation_of_ddp_doubles_the_gradients():
    """DDP's buckets are beside the sum of the microbatches before."""
    whole, halves = (
        account_ranks(account("gpt2-small", batch_size=rows, num_microbatches=parts, **LLAMA), 2)
        for rows, parts in ((8, 2), (16, 4))
    )
    assert (whole.num_microbatches, halves.num_microbatches) == (1, 2)
    gradients = 4 * account("gpt2-small").parameters.total
    assert halves.memory_bytes == whole.memory_bytes + gradients


def test_some_ranks_have_a_row_more(small):
    """All wait for those."""
    three = account_ranks(small, 3)
    assert three.rows == 171
    assert three.compute_seconds == pytest.approx(
        account_ranks(small, 4).compute_seconds * 171 / 128
    )


def test_microbatches_shrink_until_they_fit():
    model = account("llama-2-7b", batch_size=64 * 16, **LLAMA)
    cost = account_ranks(model, 64)
    assert (cost.rows, cost.num_microbatches, cost.fits) == (16, 16, True)


def test_recomputation_holds_the_largest_models():
    model = account("llama-2-70b", batch_size=512, recompute=True, **LLAMA)
    whole = account("llama-2-70b", batch_size=512, **LLAMA)
    assert account_ranks(model, 512).fits
    assert not account_ranks(whole, 512).fits


def test_sending_hides_behind_the_backward_pass(small):
    fast, slow = (account_ranks(small, 64, network_bytes_per_second=speed) for speed in (1e15, 1e8))
    assert fast.step_seconds == fast.compute_seconds
    hidden = slow.compute_seconds * 2 / 3
    assert slow.step_seconds == pytest.approx(slow.compute_seconds + slow.traffic_seconds - hidden)


def test_checkpoints(small, large):
    assert checkpoint_bytes(large.config, "sgd") < checkpoint_bytes(large.config, "adamw")
    one_writer = account_ranks(small, 64)
    assert one_writer.save_seconds == pytest.approx(one_writer.checkpoint_bytes / 2e9)
    many = account_ranks(large, 512)
    assert many.save_seconds == pytest.approx(many.checkpoint_bytes / 100e9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ranks": 513}, "batch_size 512 cannot be divided among 513 ranks"),
        ({"ranks": 0}, "ranks must be at least 1"),
        ({"ranks": 8, "shards": 3}, "3 shards do not divide 8 ranks"),
        ({"ranks": 8, "shards": 2, "strategy": "ddp"}, "with ddp each rank has all"),
        ({"ranks": 8, "strategy": "pipeline"}, "strategy"),
        ({"ranks": 8, "interval_seconds": 60.0}, "needs an mtbf"),
        ({"ranks": 8, "mtbf_seconds": 0.0}, "mtbf is 0; it must be above 0"),
        ({"ranks": 8, "network_bytes_per_second": 0.0}, "network is 0; it must be above 0"),
    ],
)
def test_wrong_options(small, options, message):
    with pytest.raises(ValueError, match=message):
        account_ranks(small, **options)
    with pytest.raises(ValueError, match="ranks need hardware"):
        account_ranks(account("gpt2-small"), 8)


def test_the_command():
    words = ("account", "gpt2-small", "--batch-size", 512, "--hardware", "h100")
    ranks = ("--ranks", 64, "--mtbf", "4h", "--checkpoint-every", "1h")
    shown = tilth(*words, *ranks)
    assert shown.returncode == 0, shown.stderr
    for text in ("Training on 64 ranks: ddp", "Goodput with a failure every 4.0 hours", "Daly"):
        assert text in shown.stdout
    found = json.loads(tilth(*words, *ranks, "--json").stdout)["parallel"]
    assert found["ranks"] == 64
    assert 3600.0 in [each["interval_seconds"] for each in found["goodputs"]]
    wrong = tilth(*words, "--mtbf", "4h")
    assert wrong.returncode == 2
    assert "--mtbf is an option of several ranks; add --ranks" in wrong.stderr
