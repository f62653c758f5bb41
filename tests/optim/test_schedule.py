"""Tests of the schedules against values by hand and PyTorch, and of their properties."""

import math
import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilth.optim import constant_schedule, cosine_schedule, warmup_stable_decay_schedule


def test_cosine_by_hand():
    """max 1, min 0.1, warm-up to 7, cosine to 21: cos(k pi / 14) at k = 0 ... 14."""
    root = math.sqrt(0.5)
    by_hand = {
        0: 0.0,
        1: 1 / 7,
        6: 6 / 7,
        7: 1.0,
        14: 0.55,  # cos(pi / 2) = 0
        21: 0.1,
        22: 0.1,
        10_000: 0.1,
    }
    for step, lr in by_hand.items():
        assert cosine_schedule(step, 1.0, 0.1, 7, 21) == pytest.approx(lr, abs=1e-15)
    # At one and three quarters, where the angle is exact.
    assert cosine_schedule(2, 1.0, 0.0, 0, 8) == pytest.approx((1 + root) / 2)
    assert cosine_schedule(6, 1.0, 0.0, 0, 8) == pytest.approx((1 - root) / 2)
    # Symmetric about the middle.
    for k in range(15):
        pair = cosine_schedule(7 + k, 1.0, 0.1, 7, 21) + cosine_schedule(21 - k, 1.0, 0.1, 7, 21)
        assert pair == pytest.approx(1.1)


def test_cosine_equals_pytorch():
    import torch
    from torch.optim.lr_scheduler import CosineAnnealingLR

    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=3.0)
    theirs = CosineAnnealingLR(optimizer, T_max=50, eta_min=0.3)
    for step in range(51):
        ours = cosine_schedule(step, 3.0, 0.3, 0, 50)
        assert ours == pytest.approx(theirs.get_last_lr()[0], rel=1e-9)
        optimizer.step()
        theirs.step()


def test_no_warmup_and_no_cosine():
    assert cosine_schedule(0, 1.0, 0.1, 0, 10) == 1.0
    assert [cosine_schedule(step, 1.0, 0.1, 4, 4) for step in range(6)] == [
        *(0.0, 0.25, 0.5, 0.75),
        *(0.1, 0.1),
    ]
    assert cosine_schedule(0, 1.0, 0.1, 0, 0) == 0.1


def test_warmup_stable_decay_by_hand():
    lrs = [warmup_stable_decay_schedule(step, 1.0, 0.2, 2, 4, 8) for step in range(10)]
    assert lrs == pytest.approx([0.0, 0.5, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2, 0.2])
    assert warmup_stable_decay_schedule(3, 1.0, 0.2, 0, 3, 3) == 0.2
    assert warmup_stable_decay_schedule(2, 1.0, 0.2, 0, 3, 3) == 1.0


def test_constant_by_hand():
    assert [constant_schedule(step, 2.0) for step in (0, 1, 99)] == [2.0, 2.0, 2.0]
    assert [constant_schedule(step, 2.0, 4) for step in range(6)] == [0.0, 0.5, 1.0, 1.5, 2.0, 2.0]


@settings(max_examples=50)
@given(
    st.lists(st.integers(0, 200), min_size=3, max_size=3).map(sorted),
    st.lists(st.floats(0.0, 10.0), min_size=2, max_size=2).map(sorted),
)
def test_schedules_rise_then_fall_within_bounds(phases, lrs):
    first, second, third = phases
    low, high = lrs
    for curve, peak in (
        ([cosine_schedule(s, high, low, first, third) for s in range(third + 3)], first),
        (
            [
                warmup_stable_decay_schedule(s, high, low, first, second, third)
                for s in range(third + 3)
            ],
            second,
        ),
    ):
        rising, falling = curve[:peak], curve[peak:]
        slack = 1e-12
        assert all(b >= a - slack for a, b in pairwise(rising))
        assert all(b <= a + slack for a, b in pairwise(falling))
        assert all(0.0 <= lr <= high + slack for lr in curve)
        assert all(lr >= low - slack for lr in falling)
        assert curve[third:] == [low] * 3


@pytest.mark.parametrize(
    ("call", "part"),
    [
        (lambda: cosine_schedule(-1, 1.0, 0.1, 7, 21), "step is -1"),
        (lambda: cosine_schedule(0, 0.1, 1.0, 7, 21), "min_lr is 1.0"),
        (lambda: cosine_schedule(0, 1.0, -0.1, 7, 21), "min_lr is -0.1"),
        (lambda: cosine_schedule(0, math.nan, 0.1, 7, 21), "max_lr nan"),
        (lambda: cosine_schedule(0, math.inf, 0.1, 7, 21), "max_lr inf"),
        (lambda: cosine_schedule(0, 1.0, 0.1, 22, 21), "cosine_steps is 21"),
        (lambda: cosine_schedule(0, 1.0, 0.1, -7, 21), "warmup_steps is -7"),
        (lambda: cosine_schedule(0, 1.0, 0.1, 7, 21.5), "cosine_steps is 21.5"),
        (lambda: cosine_schedule(True, 1.0, 0.1, 7, 21), "step is True"),
        (lambda: warmup_stable_decay_schedule(0, 1.0, 0.1, 5, 4, 9), "stable_steps is 4"),
        (lambda: warmup_stable_decay_schedule(0, 1.0, 0.1, 5, 9, 8), "decay_steps is 8"),
        (lambda: constant_schedule(0, -1.0), "max_lr -1.0"),
        (lambda: constant_schedule(0, 1.0, -1), "warmup_steps is -1"),
    ],
)
def test_invalid_arguments_are_rejected(call, part):
    with pytest.raises(ValueError, match="; ") as error:
        call()
    assert part in str(error.value)


def test_schedules_do_not_import_torch():
    program = (
        "import sys; from tilth.optim import cosine_schedule; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
