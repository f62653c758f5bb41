"""The predicted memory of a rank against its resident size; slow."""

import pytest

from scripts.measure_ranks import CELLS, make_data, measure


@pytest.mark.slow
@pytest.mark.parametrize(
    "cell", CELLS, ids=lambda c: f"{c.division}-{c.ranks}-{c.optimizer}-{c.num_microbatches}"
)
def test_predicted_and_measured(tmp_path, cell):
    """Each row of the table in docs/distributed.md."""
    found = measure(cell, make_data(tmp_path))
    assert found.predicted_bytes == pytest.approx(found.measured_bytes, rel=0.1)
