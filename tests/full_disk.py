"""Simulate a full disk."""

import resource
from contextlib import contextmanager


@contextmanager
def largest_file(size_bytes):
    """Limit the size of files, as a full disk does."""
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
