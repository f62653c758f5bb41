"""The code points of letters, numbers and white space, as (first, last) ranges.

`make unicode` (`core/bpe/make_unicode_tables.py`) writes `unicode_classes.json`.
"""

import json
from importlib.resources import files

_TABLES = json.loads(files(__package__).joinpath("unicode_classes.json").read_text("utf-8"))

UNICODE_VERSION: str = _TABLES["version"]
LETTERS, NUMBERS, SPACES = (
    tuple((first, last) for first, last in _TABLES[name])
    for name in ("letters", "numbers", "spaces")
)
