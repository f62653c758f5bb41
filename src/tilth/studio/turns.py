"""Work for a client: it takes turns, and ends when the client goes away."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from starlette.requests import Request

from tilth.studio.errors import RequestError

T = TypeVar("T")


async def unless_gone(request: Request, work: Awaitable[T]) -> T:
    """Wait for some work; cancel it if the client goes away. The body has been read."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    working, watching = asyncio.ensure_future(work), asyncio.create_task(gone())
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise RequestError(499, "the client went away.")
        return working.result()
    finally:
        working.cancel()
        watching.cancel()


class Turns:
    """Runs one computation after the other in a thread, as each uses all cores.

    Args:
        most: Computations that may wait; more are refused with status 503.

    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._thread = ThreadPoolExecutor(1, "tilth turns")
        self._line: set[Future[Any]] = set()

    async def run(self, request: Request, compute: Callable[..., T], *values: object) -> T:
        """Return what a computation returns; if the client goes away before its turn, leave it."""
        if len(self._line) > self._most:  # one of them is not waiting
            raise RequestError(503, f"{self._most} requests are waiting; try again.", code="busy")
        future = self._thread.submit(compute, *values)
        self._line.add(future)
        future.add_done_callback(self._line.discard)
        return await unless_gone(request, asyncio.wrap_future(future))
