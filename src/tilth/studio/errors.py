"""Errors that a client may read."""

from collections.abc import Iterator
from contextlib import contextmanager

from tilth.files import FileError


class RequestError(Exception):
    """An error with an HTTP status and one sentence; it names no path of the server."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.code = status, message, code


@contextmanager
def invalid() -> Iterator[None]:
    """Turn a ValueError about values of the client into a RequestError."""
    try:
        yield
    except FileError:
        raise  # it names a path
    except ValueError as error:
        raise RequestError(400, str(error)) from error
