"""Tests of `check_device`: one error message for all exceptions of torch."""

import pytest

from tilth.model.device import check_device


@pytest.mark.parametrize(
    "name", ["meta", "privateuseone", "hpu", "xla", "opengl", "quantum", "", "cpu:-1", "\0"]
)
def test_unusable_devices_are_rejected(name):
    match = rf"the device {name} cannot be used \([^\n]{{5,300}}\); use cpu, or omit the device\."
    with pytest.raises(ValueError, match=match):
        check_device(name)
