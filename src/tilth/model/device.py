"""Which devices torch can compute on here.

>>> check_device("cpu")
>>> check_device("tpu")  # doctest: +ELLIPSIS
Traceback (most recent call last):
ValueError: the device tpu cannot be used (...); take cpu, or leave it out.
"""

import re

import torch


def check_device(device: str) -> None:
    """Raise ValueError unless torch can compute on a device of this name."""
    try:
        torch.zeros(1, device=device).item()  # the meta device makes tensors, but holds no numbers
    # Torch says it in many ways: AssertionError where it was built without a backend, ImportError
    # for privateuseone.
    except (RuntimeError, AssertionError, ValueError, AttributeError, ImportError) as error:
        reason = re.split(r"\n|\. ", str(error))[0]  # the first sentence of many
        raise ValueError(
            f"the device {device} cannot be used ({reason}); take cpu, or leave it out."
        ) from error
