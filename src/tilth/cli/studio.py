"""`tilth studio`: pages about a folder of runs, in a browser."""

from functools import partial
from pathlib import Path
from typing import Literal

from tilth.cli.options import Threads
from tilth.cli.signals import say


def studio(
    folder: Path = Path(),
    /,
    *,
    host: str = "127.0.0.1",
    port: int = 8765,
    token: str | None = None,
    allow_host: list[str] = [],  # noqa: B006, cyclopts copies it
    slots: int = 16,
    quantize: Literal["bfloat16", "int8", "int4"] | None = None,
    threads: Threads = None,
) -> None:
    """Show a folder in a browser: its runs, and the tokens, texts, surprise and inside of models.

    The folder has runs, labs, data folders, tokenizers and models, at any depth; what appears in it
    later appears in the browser. The pages load nothing from the network, and answer on this
    machine only unless --host is given. The server also has the API of `tilth serve`.

    Args:
        folder: Folder of runs; one run, model or tokenizer folder also works.
        host: Address to listen on. Beyond this machine, a page asks for the token.
        port: TCP port; 0 takes a free one.
        token: Token that requests need; beyond this machine, default: a random one.
        allow_host: Further host name under which the server is reached; once for each.
        slots: Texts that a model generates at once.
        quantize: Precision of the weights of generation; default: float32.

    Examples:
        tilth studio
        tilth studio runs --port 9000
    """
    from tilth.cli.serve import check_server

    check_server(port, slots, token)
    from tilth.generation import load
    from tilth.studio import serve
    from tilth.studio.folder import Folder

    serve(
        Folder(folder),
        partial(load, quantize=quantize, threads=threads),
        host=host,
        port=port,
        token=token,
        allow_hosts=tuple(allow_host),
        rows=slots,
        tell=say,
    )
