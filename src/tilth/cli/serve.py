"""`tilth serve`: serve models over HTTP, in OpenAI's shape."""

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from tilth.cli.options import Threads
from tilth.cli.signals import say


def serve(
    models: Annotated[list[Path], Parameter(negative=())],
    /,
    *,
    host: str = "127.0.0.1",
    port: int = 8765,
    token: str | None = None,
    allow_host: list[str] = [],  # noqa: B006, cyclopts copies it
    slots: int = 16,
    queue: int = 256,
    max_tokens: int = 4096,
    max_seconds: float = 600.0,
    quantize: Literal["bfloat16", "int8", "int4"] | None = None,
    threads: Threads = None,
) -> None:
    """Serve models over HTTP: /v1/completions and /v1/chat/completions, in OpenAI's shape.

    The id of a model is the name of its folder. Requests are decoded together, up to --slots at
    once. /health and /metrics (Prometheus) say how the server is doing.

    Args:
        models: Run directories, checkpoint folders or model folders.
        host: Address to listen on. Beyond this machine, requests need the token.
        port: TCP port; 0 takes a free one.
        token: Bearer token that requests need; beyond this machine, default: a random one.
        allow_host: Further host name under which the server is reached; once for each.
        slots: Texts that a model generates at once.
        queue: Requests that may wait for a model.
        max_tokens: Maximum number of new tokens per text.
        max_seconds: Maximum time per text.
        quantize: Precision of the weights; default: float32.

    Examples:
        tilth serve runs/first
        tilth serve runs/first runs/second --port 9000 --slots 64 --quantize int8
    """
    check_server(port, slots, token)
    from tilth.generation import load
    from tilth.schema import AT_LEAST_1, POSITIVE, Range, check_float, check_int
    from tilth.studio import serve as serve_models
    from tilth.studio.completions import Limits

    check_int("queue", queue, Range(at_least=0, at_most=100_000))
    check_int("max_tokens", max_tokens, AT_LEAST_1)
    check_float("max_seconds", max_seconds, POSITIVE)
    serve_models(
        models,
        partial(load, quantize=quantize, threads=threads),
        host=host,
        port=port,
        token=token,
        allow_hosts=tuple(allow_host),
        rows=slots,
        queue=queue,
        limits=Limits(max_tokens, max_seconds),
        tell=say,
    )


def check_server(port: int, slots: int, token: str | None) -> None:
    """Check the options that `serve` and `studio` share, and that their extra is installed."""
    from tilth.errors import import_extra
    from tilth.schema import Range, check_int

    for package in ("starlette", "uvicorn"):
        import_extra(package, "A server")
    check_int("port", port, Range(at_least=0, at_most=65535))
    check_int("slots", slots, Range(at_least=1, at_most=256))
    if token is not None and len(token) < 8:
        raise ValueError("the token has less than 8 characters; choose a longer one.")
