"""A disk that takes no more, for a while."""

import resource
from contextlib import contextmanager


@contextmanager
def largest_file(size_bytes):
    """As on a full disk: nothing can grow beyond a size."""
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
