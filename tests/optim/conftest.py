import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    """These problems are tiny: a second thread costs more than it does."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
