"""`tilth studio`: pages about models, in a browser."""

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from tilth.cli.options import Threads
from tilth.cli.signals import say


def studio(
    models: Annotated[list[Path], Parameter(negative=())],
    /,
    *,
    port: int = 8765,
    slots: int = 16,
    quantize: Literal["bfloat16", "int8", "int4"] | None = None,
    threads: Threads = None,
) -> None:
    """Show models in a browser: their tokens, their texts, their surprise, and their inside.

    The pages answer on this machine only, and load nothing from the network. The server also has
    the API of `tilth serve`.

    Args:
        models: Run directories, checkpoint folders or model folders.
        port: TCP port; 0 takes a free one.
        slots: Texts that a model generates at once.
        quantize: Precision of the weights of generation; default: float32.

    Examples:
        tilth studio runs/first
        tilth studio runs/first runs/second --port 9000
    """
    from tilth.cli.serve import check_server

    check_server(port, slots)
    from tilth.generation import load
    from tilth.studio import serve

    serve(
        models,
        partial(load, quantize=quantize, threads=threads),
        port=port,
        rows=slots,
        has_pages=True,
        tell=say,
    )
