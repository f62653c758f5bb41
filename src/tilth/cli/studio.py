"""`tilth studio`: pages about a folder of runs, in a browser."""

from pathlib import Path

from tilth.cli.serve import DEFAULT, ServerOptions


def studio(folder: Path = Path(), /, *, server: ServerOptions = DEFAULT) -> None:
    """Show a folder in a browser: its runs, and the tokens, texts, surprise and inside of models.

    The folder has runs, labs, data folders, tokenizers and models, at any depth; what appears in it
    later appears in the browser. The pages load nothing from the network, and answer on this
    machine only unless --host is given. The server also has the API of `tilth serve`.

    Args:
        folder: Folder of runs; one run, model or tokenizer folder also works.

    Examples:
        tilth studio
        tilth studio runs --port 9000
    """
    server.check()
    from tilth.studio.folder import Folder

    server.run(Folder(folder))
