"""Time, energy and price, and the measurement of this machine."""

import platform
from pathlib import Path

import pytest

from tests.accounting.configs import XL
from tilth.accounting import (
    HARDWARE,
    Hardware,
    cost_of,
    cost_of_steps,
    hardware,
    measure_machine,
    training_flops,
)
from tilth.accounting.hardware import SHARE_OF_PEAK, find_hardware, processor_name
from tilth.config import ModelConfig
from tilth.config.threads import most_threads, usable_cores

A100 = HARDWARE["a100"]
SMALL = ModelConfig(1000, context_length=64, d_model=64, num_layers=2, num_heads=4)


def test_cs336_run():
    """400,000 steps of 1,024 sequences on one A100, at half of its float32 peak."""
    cost = cost_of(400_000 * training_flops(XL, 1024), A100, mfu=0.5, price_per_hour=2.0)
    assert round(cost.seconds / 86_400) == 6584
    assert cost.energy_kwh == pytest.approx(0.4 * cost.seconds / 3600)
    assert cost.money == pytest.approx(2.0 * cost.seconds / 3600)
    faster = cost_of(400_000 * training_flops(XL, 1024), A100, "bfloat16", mfu=0.5)
    assert cost.seconds / faster.seconds == pytest.approx(312 / 19.5)
    assert faster.money is None


def test_hardware_table():
    for name, device in HARDWARE.items():
        assert device.name == name
        assert device.source
        assert device.memory_bytes >= 16e9
        # Shorter dtypes are at least as fast, and all peaks are plausible.
        peaks = list(device.flops_per_second.values())
        assert peaks == sorted(peaks)
        assert 1e12 < peaks[0] < peaks[-1] < 1e16


@pytest.mark.parametrize(
    ("work", "sentence"),
    [
        (lambda: find_hardware("a10o"), "hardware 'a10o' is unknown; did you mean a100"),
        (lambda: HARDWARE["t4"].peak("bfloat16"), "t4 has no peak for bfloat16; it has float32, f"),
        (lambda: cost_of(1e9, A100, mfu=1.5), "mfu is 1.5; it must be at most 1"),
        (lambda: cost_of(1e9, A100, mfu=0), "mfu is 0; it must be at least 1e-09"),
        (lambda: cost_of(1e9, A100, price_per_hour=-1.0), "price is -1; it must be above 0"),
        (lambda: cost_of(1e9, A100, mfu=float("nan")), "mfu is nan; it must be finite"),
        (lambda: cost_of(1e9, A100, mfu=True), "mfu must be a number, not True"),
    ],
)
def test_invalid_arguments(work, sentence):
    with pytest.raises(ValueError, match=sentence):
        work()


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(hardware, "PRODUCT_SIZE", 10)
    monkeypatch.setattr(hardware, "COPY_BYTES", 100)


@pytest.mark.usefixtures("quick")
def test_measurement_with_a_fake_clock():
    """The clock advances a second per call: every product and every copy takes a second."""
    seconds = iter(range(1000))
    machine = measure_machine(lambda: next(seconds))
    assert machine.flops_per_second == {"float32": 2000}
    assert machine.bytes_per_second == 200
    assert machine.memory_bytes > 1e8
    assert machine.watts is None


@pytest.mark.usefixtures("quick")
def test_measurement_takes_the_best_trial():
    looks = iter([0, 9, 10, 12, 20, 25, *range(100, 1000)])  # 9, 2 and 5 seconds, then 1 each
    assert measure_machine(lambda: next(looks)).flops_per_second == {"float32": 2000}


@pytest.mark.usefixtures("quick")
def test_measurement_limits_the_threads(monkeypatch):
    """OMP_NUM_THREADS=10000000 made ten million parts; 0 and text mean the default."""
    monkeypatch.setenv("OMP_NUM_THREADS", "10000000")
    assert measure_machine().what == f"this machine, {most_threads()} threads"
    for default in ("0", "many"):
        monkeypatch.setenv("OMP_NUM_THREADS", default)
        assert measure_machine().what == f"this machine, {usable_cores()} threads"


def test_measurement_of_this_machine():
    """Plausible for any machine, however loaded."""
    machine = find_hardware("this")
    assert 1e8 < machine.peak("float32") < 1e15
    assert 1e7 < machine.bytes_per_second < 1e14


def test_processor_name(monkeypatch):
    text = "processor\t: 0\nmodel name\t: AMD EPYC 9B45\n"
    monkeypatch.setattr(Path, "read_text", lambda _path, *_: text)
    assert processor_name() == "AMD EPYC 9B45"
    monkeypatch.setattr(Path, "read_text", lambda _path, *_: "Hardware\t: BCM2835\n")
    assert processor_name() == (platform.processor() or platform.machine())


def test_cost_on_a_measured_machine():
    endless = Hardware("x", "x", {"float32": 1e9}, 1e9, None, "test", bytes_per_second=1e30)
    cost = cost_of_steps(SMALL, 8, 10, endless)
    assert cost.seconds == pytest.approx(10 * training_flops(SMALL, 8) / (SHARE_OF_PEAK * 1e9))
    assert cost.mfu == pytest.approx(SHARE_OF_PEAK)
    assert cost.energy_kwh is None
    real = Hardware("x", "x", {"float32": 1e9}, 1e9, None, "test", bytes_per_second=1e9)
    slower = cost_of_steps(SMALL, 8, 10, real)
    assert slower.seconds > cost.seconds
    assert slower.mfu * slower.seconds == pytest.approx(cost.mfu * cost.seconds)
    # Muon's products take time too.
    assert cost_of_steps(SMALL, 8, 10, endless, "muon").seconds > 1.05 * cost.seconds


def test_free_memory_is_that_of_the_container(tmp_path, monkeypatch):
    """The limit counts, without what is used; caches of files can be freed."""
    limit, info = tmp_path / "memory.max", tmp_path / "meminfo"
    info.write_text("MemTotal:  64000000 kB\nMemAvailable: 5000000 kB\nHugePages_Total: 0\n")
    monkeypatch.setattr(hardware, "CONTAINER_LIMIT", limit)
    monkeypatch.setattr(hardware, "MEMORY_INFO", info)
    assert hardware.free_memory_bytes() == 5_000_000 * 1024  # of the machine
    (tmp_path / "memory.current").write_text("900000000\n")
    (tmp_path / "memory.stat").write_text(
        "anon 500000000\ninactive_file 300000000\nactive_file 100000000\n"
    )
    for text, free in (("max", 5_000_000 * 1024), ("2000000000", 1_500_000_000), ("1", 0)):
        limit.write_text(f"{text}\n")
        assert hardware.free_memory_bytes() == free
    info.unlink()
    limit.write_text("2000000000\n")
    assert hardware.free_memory_bytes() == 1_500_000_000
    limit.unlink()
    assert hardware.free_memory_bytes() == hardware.host_memory_bytes()
