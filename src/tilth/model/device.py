"""Check that torch can compute on a device.

>>> check_device("cpu")
>>> check_device("tpu")  # doctest: +ELLIPSIS
Traceback (most recent call last):
ValueError: the device tpu cannot be used (...); use cpu, or omit the device.
"""

import re

import torch


def check_device(device: str) -> None:
    """Raise ValueError unless torch can compute on the device, such as "cpu" or "cuda:1"."""
    try:
        torch.zeros(1, device=device).item()  # `item` fails on the meta device
    # AssertionError: torch was built without the backend. ImportError: privateuseone.
    except (RuntimeError, AssertionError, ValueError, AttributeError, ImportError) as error:
        reason = re.split(r"\n|\. ", str(error))[0]  # the first sentence
        raise ValueError(
            f"the device {device} cannot be used ({reason}); use cpu, or omit the device."
        ) from error
