"""Run the application on a port, with uvicorn."""

import asyncio
import ipaddress
import logging
import secrets
import socket
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from tilth.errors import import_extra
from tilth.generation.language_model import LanguageModel
from tilth.studio.app import make_app
from tilth.studio.completions import Limits
from tilth.studio.folder import Folder
from tilth.studio.models import Models, by_name
from tilth.studio.security import LOOPBACK

HEADER_SECONDS = 15.0
WRITE_SECONDS = 30.0
"""A client that reads nothing for so long, while a response waits for it, loses the connection."""
MAX_CONNECTIONS = 1024


def serve(
    shown: Folder | Sequence[Path],
    load: Callable[[Path], LanguageModel],
    *,
    host: str = "127.0.0.1",
    port: int = 8765,
    token: str | None = None,
    allow_hosts: tuple[str, ...] = (),
    rows: int = 16,
    queue: int = 256,
    limits: Limits | None = None,
    tell: Callable[[str], None] = print,
) -> None:
    """Serve models, or the studio of a folder, until Ctrl-C or SIGTERM.

    Args:
        shown: The folder of the studio; or run directories, checkpoint folders or model folders,
            for the API alone.
        load: Loads a model from a path.
        host: Address to listen on. Beyond the loopback interface, a token is required.
        port: TCP port; 0 takes a free one.
        token: Required bearer token; beyond the loopback interface, default: a random one.
        allow_hosts: Further host names that requests may name.
        rows: Sequences that each model decodes at once.
        queue: Requests that may wait for each model.
        limits: Limits of a request.
        tell: Receives the lines that say where the server listens.

    """
    uvicorn = import_extra("uvicorn", "A server")
    folder = shown if isinstance(shown, Folder) else None
    find = shown.models if isinstance(shown, Folder) else partial(dict, by_name(shown))
    models = Models(find, load, rows=rows, queue=queue)
    if token is None and not _is_loopback(host):
        token = secrets.token_urlsafe(24)
        tell(f"token    {token}")
    names = {*LOOPBACK, host, *allow_hosts}
    listener = _listen(host, port)
    port = listener.getsockname()[1]
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    app = make_app(
        models,
        hosts=names,
        token=token,
        limits=limits,
        folder=folder,
        is_stopping=lambda: server.should_exit,
    )
    config = uvicorn.Config(
        app,
        http=_protocol(),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=5,
    )
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # not a line per malformed request
    tell(f"folder   {folder.root}" if folder else f"models   {', '.join(models.ids)}")
    tell(f"address  {address}{'' if folder else '/v1'}")
    server = uvicorn.Server(config)
    with listener:
        server.run(sockets=[listener])


def _listen(host: str, port: int) -> socket.socket:
    """Listen, so that the printed address answers at once."""
    listener = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()
    except (OSError, UnicodeError) as error:  # UnicodeError: a host name that DNS cannot have
        if listener is not None:
            listener.close()
        reason = getattr(error, "strerror", None) or error
        raise OSError(
            f"cannot listen on {host}, port {port} ({reason}); choose another --host or --port."
        ) from error
    return listener


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _protocol() -> type[asyncio.Protocol]:
    """Return uvicorn's HTTP protocol, with limits of time for clients that send or read nothing.

    uvicorn waits for ever for the rest of a request that has begun, and for a client to read its
    response; a thousand clients that send one byte a minute, or read none, would take all
    connections.
    """
    protocol = import_extra("uvicorn.protocols.http.h11_impl", "A server").H11Protocol

    class Impatient(protocol):  # type: ignore[misc, valid-type]
        _timer: asyncio.TimerHandle | None = None
        _write_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self._watch()

        def data_received(self, data: bytes) -> None:
            self._watch()
            super().data_received(data)
            if self._is_served():
                self._unwatch()

        def connection_lost(self, error: Exception | None) -> None:
            self._unwatch()
            self.resume_writing()
            super().connection_lost(error)

        def pause_writing(self) -> None:
            super().pause_writing()
            loop = asyncio.get_running_loop()
            self._write_timer = loop.call_later(WRITE_SECONDS, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            if self._write_timer is not None:
                self._write_timer.cancel()
                self._write_timer = None

        def _is_served(self) -> bool:
            return self.cycle is not None and not self.cycle.response_complete

        def _watch(self) -> None:
            if self._timer is None and not self._is_served():
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(HEADER_SECONDS, self._drop)

        def _unwatch(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _drop(self) -> None:
            self._timer = None
            if not self._is_served():
                self.transport.close()

    return Impatient
