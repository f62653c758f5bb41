"""A pytest plugin: the native modules of another build, in place of those installed.

`make sanitize` builds both `_core` modules under ASan and UBSan and names their folder in
TILTH_MODULES. They must be in place before a test imports them.
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
