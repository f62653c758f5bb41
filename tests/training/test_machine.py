import time

import pytest
import torch

from tilth.config.training import ResolvedMachine
from tilth.training import machine as machine_module
from tilth.training.machine import machine_settings, measured_peak, resolve_device, resolve_dtype


def test_unavailable_device_is_rejected():
    with pytest.raises(ValueError, match=r"the device tpu cannot be used \(.*\); use cpu"):
        resolve_device("tpu")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="the device cuda cannot be used"):
            resolve_device("cuda")
        assert resolve_device(None) in {"cpu", "mps"}
    assert resolve_device("cpu") == "cpu"


def test_dtype_depends_on_the_device(monkeypatch):
    assert resolve_dtype(None, "cpu") == "float32"
    assert resolve_dtype("float32", "cpu") == "float32"
    with pytest.raises(ValueError, match="float16 is not supported on a CPU; use float32"):
        resolve_dtype("float16", "cpu")
    with pytest.raises(ValueError, match="not tested on mps"):
        resolve_dtype("bfloat16", "mps")
    monkeypatch.setattr(machine_module, "cpu_has_bfloat16", lambda: False)
    with pytest.raises(ValueError, match=r"no instructions for bfloat16.*29 times.*use float32"):
        resolve_dtype("bfloat16", "cpu")
    monkeypatch.setattr(machine_module, "cpu_has_bfloat16", lambda: True)
    assert resolve_dtype("bfloat16", "cpu") == "bfloat16"


def test_settings_are_restored():
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    with machine_settings(
        ResolvedMachine(device="cpu", dtype="float32", compile=False, threads=2)
    ) as device:
        assert device == torch.device("cpu")
        assert torch.get_num_threads() == 2
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.utils.deterministic.fill_uninitialized_memory
    assert (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()) == before
    assert torch.utils.deterministic.fill_uninitialized_memory


def test_peak_is_the_speed_of_the_fastest_product(monkeypatch):
    """By a clock that only products advance."""
    now, products = 0.0, []
    took = [1 / 16, 1 / 32, 1 / 16, 1 / 4]

    class Matrix:
        def __matmul__(self, other):
            nonlocal now
            now += took[len(products)]
            products.append(other)

    def ones(*shape, dtype, device):
        assert (shape, dtype, device) == ((2, 1024, 1024), torch.float32, torch.device("cpu"))
        return Matrix(), Matrix()

    monkeypatch.setattr(machine_module.time, "perf_counter", lambda: now)
    monkeypatch.setattr(torch, "ones", ones)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 12_345)  # not measured yet
    expected = 2 * 1024**3 * 32
    assert measured_peak(torch.device("cpu"), "float32") == expected
    assert len(products) == 4  # until 0.3 s are over
    assert measured_peak(torch.device("cpu"), "float32") == expected
    assert len(products) == 4  # once a process
    took.append(1.0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 54_321)
    assert measured_peak(torch.device("cpu"), "float32") == 2 * 1024**3


def test_peak_is_close_to_a_timed_product():
    machine_module._measure_peak.cache_clear()
    peak = measured_peak(torch.device("cpu"), "float32")
    left = torch.ones(1024, 1024)
    times = []
    for _ in range(10):
        then = time.perf_counter()
        left @ left
        times.append(time.perf_counter() - then)
    assert peak == pytest.approx(2 * 1024**3 / min(times), rel=0.9)  # within tenfold


@pytest.mark.parametrize("name", ["meta", "privateuseone", "mtia", "xla", "hpu", "", "cpu:x"])
def test_devices_without_storage_are_rejected(name):
    with pytest.raises(
        ValueError, match=r"^the device .*; use cpu, or omit the device\.$"
    ) as raised:
        resolve_device(name)
    assert len(str(raised.value)) < 400


def test_warn_only_mode_is_restored():
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with machine_settings(
            ResolvedMachine(device="cpu", dtype="float32", compile=False, threads=1)
        ):
            assert not torch.is_deterministic_algorithms_warn_only_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


def test_many_threads_are_rejected(monkeypatch):
    """OpenMP would end the process, also where a lab measures a step only to plan."""
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    machine = ResolvedMachine(device="cpu", dtype="float32", compile=False, threads=1_000)
    with pytest.raises(ValueError, match=r"machine\.threads is 1,000, .* take \d+ at most"):
        machine_settings(machine).__enter__()
