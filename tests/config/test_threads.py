"""The limit of threads."""

import os

import pytest

from tilth.config.threads import checked_threads, usable_cores


def test_threads_default_to_the_cores(monkeypatch):
    assert checked_threads(None) == usable_cores() >= 1
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert [checked_threads(number) for number in (1, 32)] == [1, 32]
    for wrong, sentence in (
        (0, "threads is 0; give 1 or more."),
        (33, "threads is 33, and this machine has 2 cores; take 32 at most, or leave it out."),
        (2**64, "threads is 18,446,744,073,709,551,616, and this machine"),
    ):
        with pytest.raises(ValueError, match=sentence):
            checked_threads(wrong)
    monkeypatch.setattr(os, "cpu_count", lambda: 500)
    with pytest.raises(ValueError, match=r"machine\.threads is 1,025, and .* take 1024 at most"):
        checked_threads(1025, "machine.threads")
