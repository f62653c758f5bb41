"""Code points by class as (first, last) ranges: the tables of `unicode_classes.json`.

`core/bpe/make_unicode_tables.py` (`make unicode`) writes that file.
"""

import json
from importlib.resources import files

_TABLES = json.loads(files(__package__).joinpath("unicode_classes.json").read_text("utf-8"))

UNICODE_VERSION: str = _TABLES["version"]
LETTERS, NUMBERS, SPACES = (
    tuple((first, last) for first, last in _TABLES[name])
    for name in ("letters", "numbers", "spaces")
)
