"""The server that the attack suite attacks: `python -m tests.studio.attacked FOLDER`.

Its limits of time and tokens are short, so that an attack ends within a test.
"""

import sys
from functools import partial
from pathlib import Path

from tilth.generation import load
from tilth.studio import completions, serve, serving
from tilth.studio.completions import Limits
from tilth.studio.folder import Folder

PATIENCE = 2.0

if __name__ == "__main__":
    serving.HEADER_SECONDS = serving.WRITE_SECONDS = completions.BODY_SECONDS = PATIENCE
    serve(
        Folder(Path(sys.argv[1])),
        partial(load, threads=1),
        port=0,
        rows=8,
        queue=300,
        limits=Limits(max_tokens=2000, seconds=20.0),
        tell=lambda line: print(line, flush=True),
    )
