"""A pytest plugin that replaces the installed native modules by those of another build.

`make sanitize` builds both `_core` modules under ASan and UBSan and names their folder in
TILTH_MODULES. The plugin imports them before any test does.
"""

import importlib
import importlib.util
import os
import sys
from pathlib import Path

for part, package in (("bpe", "tilth.tokenizer"), ("decoder", "tilth.generation")):
    [path] = Path(os.environ["TILTH_MODULES"], part).glob("_core.*.so")
    name = f"{package}._core"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    importlib.import_module(package)._core = module
