import pytest
import torch

from tilth.recipes.config import MachineConfig
from tilth.training import machine as machine_module
from tilth.training.machine import machine_settings, measured_peak, resolve_device, resolve_dtype


def test_a_device_that_is_not_there():
    with pytest.raises(ValueError, match=r"the device tpu cannot be used \(.*\); take cpu"):
        resolve_device("tpu")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="the device cuda cannot be used"):
            resolve_device("cuda")
        assert resolve_device(None) in {"cpu", "mps"}
    assert resolve_device("cpu") == "cpu"


def test_precision_follows_the_device(monkeypatch):
    assert resolve_dtype(None, "cpu") == "float32"
    assert resolve_dtype("float32", "cpu") == "float32"
    with pytest.raises(ValueError, match="float16 does not train on a CPU; take float32"):
        resolve_dtype("float16", "cpu")
    with pytest.raises(ValueError, match="not tried on mps"):
        resolve_dtype("bfloat16", "mps")
    monkeypatch.setattr(machine_module, "_cpu_has_bfloat16", lambda: False)
    with pytest.raises(ValueError, match=r"no instructions for bfloat16.*29 times.*take float32"):
        resolve_dtype("bfloat16", "cpu")
    monkeypatch.setattr(machine_module, "_cpu_has_bfloat16", lambda: True)
    assert resolve_dtype("bfloat16", "cpu") == "bfloat16"


def test_settings_hold_inside_and_are_put_back():
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    with machine_settings(MachineConfig("cpu", "float32", compile=False, threads=2)) as device:
        assert device == torch.device("cpu")
        assert torch.get_num_threads() == 2
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.utils.deterministic.fill_uninitialized_memory
    assert (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()) == before
    assert torch.utils.deterministic.fill_uninitialized_memory


def test_the_peak_is_a_speed():
    # From the slowest laptop on a bad day to a large server.
    assert 1e8 < measured_peak(torch.device("cpu"), "float32") < 1e15


def test_a_mode_that_only_warns_is_put_back():
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with machine_settings(MachineConfig("cpu", "float32", compile=False, threads=1)):
            assert not torch.is_deterministic_algorithms_warn_only_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)
