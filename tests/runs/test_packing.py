"""Unpacking of invalid values, and checks of optimizer states."""

import pytest

from tilth.files import FileError
from tilth.runs.packing import check_optimizer_state, unpack
from tilth.runs.tensors import TensorInfo


@pytest.mark.parametrize(
    "value",
    [
        {"$tensor": "missing"},
        {"$tensor": []},
        {"$tuple": 3},
        {"$float": "x"},
        {"$float": None},
        {"$pairs": 3},
        {"$pairs": [[1]]},
        {"$pairs": [[[], 1]]},
        {"$pairs": {"a": 1}},
    ],
)
def test_invalid_packed_values_raise_value_error(value):
    with pytest.raises(ValueError):  # noqa: PT011, one kind, many reasons
        unpack([{"a": value}], {})


def state(**changes):
    info = TensorInfo("F32", (4, 3))
    own = {"step": TensorInfo("F32", ()), "exp_avg": info, "exp_avg_sq": info, **changes}
    return {"state": {0: own}, "param_groups": [{"params": [0]}, {"params": [1]}]}


SHAPES = [(4, 3), (5,)]


def test_matching_optimizer_state_passes():
    check_optimizer_state("c", state(), SHAPES, "hint")
    check_optimizer_state("c", state(step=3.0), SHAPES, "hint")
    check_optimizer_state("c", state(exp_avg=None, own="anything"), SHAPES, "hint")
    check_optimizer_state("c", {"state": {}, "param_groups": [{"params": []}]}, [], "hint")


@pytest.mark.parametrize(
    "found",
    [
        state(exp_avg=TensorInfo("F32", (1, 3))),
        state(exp_avg_sq=TensorInfo("F32", (4,))),
        state(exp_avg_sq=TensorInfo("F32", (3, 4))),
        state(exp_avg=TensorInfo("I64", (4, 3))),
        state(exp_avg=1.0),
        state(momentum_buffer=TensorInfo("F32", (0, 3))),
        state(step=TensorInfo("F32", (0,))),
        state(step=TensorInfo("F32", (2,))),
        state(step=True),
        state(step="1"),
        {**state(), "state": {7: {}}},
        {**state(), "state": {0: []}},
        {**state(), "state": []},
        {**state(), "param_groups": [{"params": [0]}]},
        {**state(), "param_groups": [{"params": [0, 0]}]},
        {**state(), "param_groups": [{"params": [0, [1]]}]},
        {**state(), "param_groups": [{"params": 3}, 4]},
        {**state(), "param_groups": {}},
        {**state(), "param_groups": [{"params": [0, 1], "lr": "fast"}]},
        {**state(), "param_groups": [{"params": [0, 1], "eps": True}]},
        {**state(), "param_groups": [{"params": [0, 1], "betas": 0.9}]},
        {**state(), "param_groups": [{"params": [0, 1], "betas": (0.9, None)}]},
        None,
        [],
    ],
)
def test_mismatched_optimizer_state_is_rejected(found):
    with pytest.raises(FileError, match=r"^c does not fit the optimizer \(.*\); hint$"):
        check_optimizer_state("c", found, SHAPES, "hint")
