"""The predicted memory of a rank, by training and by accounting, and its resident size."""

from dataclasses import replace
from pathlib import Path

import pytest

from scripts.measure_ranks import CELLS, config_of, make_data, measure
from tilth.accounting import HARDWARE, account
from tilth.accounting.ranks import account_ranks
from tilth.training.distributed import Ranks
from tilth.training.parallel import divide

PAGE = (Path(__file__).parents[2] / "docs" / "distributed.md").read_text()
by_name = pytest.mark.parametrize(
    "cell", CELLS, ids=lambda c: f"{c.division}-{c.ranks}-{c.optimizer}-{c.num_microbatches}"
)


class EqualRanks(Ranks):
    """Ranks of which each has the same values."""

    def gathered(self, value):
        return [value] * self.size


@by_name
def test_training_and_accounting_predict_the_same(cell):
    """It is the prediction in docs/distributed.md."""
    given = config_of(cell, Path("data"))
    config = given.resolve(device="cpu", dtype="float32", compile=False, threads=1)
    predicted = divide(config, EqualRanks(0, cell.ranks)).memory_bytes
    row = [cell.division, cell.ranks, cell.optimizer, cell.num_microbatches]
    assert f"| {' | '.join(map(str, row))} | {predicted / 1e6:,.0f} MB |" in PAGE
    if cell.division != "exact":
        this = replace(HARDWARE["a100"], name="this", memory_bytes=1e12)
        model = account(config, hardware=this)
        assert account_ranks(model, cell.ranks, strategy=cell.division).memory_bytes == predicted


@pytest.mark.slow
@by_name
def test_predicted_and_measured(tmp_path, cell):
    """Each row of the table in docs/distributed.md."""
    found = measure(cell, make_data(tmp_path))
    assert found.predicted_bytes == pytest.approx(found.measured_bytes, rel=0.1)
