"""Errors that a client may read."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from tilth.files import FileError

log = logging.getLogger(__name__)


class RequestError(Exception):
    """An error with an HTTP status and one sentence; it names no path of the server."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.code = status, message, code


def unreadable(problem: str, error: Exception, code: str | None = None) -> RequestError:
    """Log an error, whose message may name a path; return the one of the client."""
    log.warning("%s", error)
    return RequestError(500, f"{problem}; the server's log says why.", code)


@contextmanager
def invalid() -> Iterator[None]:
    """Turn a ValueError about values of the client into a RequestError."""
    try:
        yield
    except FileError:
        raise  # it names a path
    except ValueError as error:
        raise RequestError(400, str(error)) from error
