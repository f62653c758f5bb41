"""The predicted memory of a rank against its resident size; slow."""

import pytest

from scripts.measure_ranks import Cell, make_data, measure


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("division", ["ddp", "exact", "fsdp"])
def test_predicted_and_measured(tmp_path, ranks, division):
    if (ranks, division) == (1, "fsdp"):
        pytest.skip("one process divides nothing")
    found = measure(Cell(ranks, division), make_data(tmp_path))
    assert found.predicted_bytes == pytest.approx(found.measured_bytes, rel=0.1)
