"""`tilth serve`: serve models over HTTP, in OpenAI's shape."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from tilth.cli.options import Threads
from tilth.cli.signals import say

if TYPE_CHECKING:
    from tilth.studio.folder import Folder


@Parameter(name="*")
@dataclass(frozen=True)
class ServerOptions:
    """The options of a server.

    Args:
        host: Address to listen on. Beyond this machine, requests need the token.
        port: TCP port; 0 takes a free one.
        token: Token that requests need; beyond this machine, default: a random one.
        allow_host: Further host name under which the server is reached; once for each.
        slots: Texts that a model generates at once.
        quantize: Precision of the weights; default: float32.
    """

    host: str = "127.0.0.1"
    port: int = 8765
    token: str | None = None
    allow_host: list[str] = field(default_factory=list)
    slots: int = 16
    quantize: Literal["bfloat16", "int8", "int4"] | None = None
    threads: Threads = None

    def check(self) -> None:
        """Check the values, and that the extra is installed, before slow imports."""
        from tilth.errors import import_extra
        from tilth.schema import Range, check_int

        for package in ("starlette", "uvicorn"):
            import_extra(package, "A server")
        check_int("port", self.port, Range(at_least=0, at_most=65535))
        check_int("slots", self.slots, Range(at_least=1, at_most=256))
        if self.token is not None and len(self.token) < 8:
            raise ValueError("the token has less than 8 characters; choose a longer one.")

    def run(self, shown: "Folder | Sequence[Path]", **more: Any) -> None:  # noqa: ANN401
        """Serve models or a folder; `more` are other options of `tilth.studio.serve`."""
        from tilth.generation import load
        from tilth.studio import serve as serve_models

        serve_models(
            shown,
            partial(load, quantize=self.quantize, threads=self.threads),
            host=self.host,
            port=self.port,
            token=self.token,
            allow_hosts=tuple(self.allow_host),
            rows=self.slots,
            tell=say,
            **more,
        )


DEFAULT = ServerOptions()


def serve(
    models: Annotated[list[Path], Parameter(negative=())],
    /,
    *,
    server: ServerOptions = DEFAULT,
    queue: int = 256,
    max_tokens: int = 4096,
    max_seconds: float = 600.0,
) -> None:
    """Serve models over HTTP: /v1/completions and /v1/chat/completions, in OpenAI's shape.

    The id of a model is the name of its folder. Requests are decoded together, up to --slots at
    once. /health and /metrics (Prometheus) say how the server is doing.

    Args:
        models: Run directories, checkpoint folders or model folders.
        queue: Requests that may wait for a model.
        max_tokens: Maximum number of new tokens per text.
        max_seconds: Maximum time per text.

    Examples:
        tilth serve runs/first
        tilth serve runs/first runs/second --port 9000 --slots 64 --quantize int8
    """
    server.check()
    from tilth.schema import AT_LEAST_1, POSITIVE, Range, check_float, check_int
    from tilth.studio.completions import Limits

    check_int("queue", queue, Range(at_least=0, at_most=100_000))
    check_int("max_tokens", max_tokens, AT_LEAST_1)
    check_float("max_seconds", max_seconds, POSITIVE)
    server.run(models, queue=queue, limits=Limits(max_tokens, max_seconds))
