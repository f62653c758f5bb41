"""A fixture for the conftest files of packages whose tests use torch."""

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    """One thread of torch: for tiny tensors, and on a busy machine, a second one is slower."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
