"""The chat template beside a `tokenizer.json`, which Hugging Face `transformers` stores.

`chat_template.jinja` has priority; older folders have it in `tokenizer_config.json`, as a string or
as a list of named templates. tilth keeps the text and does not run it.
"""

import json
from pathlib import Path

from tilth.files import MAX_JSON_BYTES, FileError, check_target, read_bytes, write_text_atomically
from tilth.tokenizer.formats.reading import decode_text

FILE = "chat_template.jinja"
CONFIG = "tokenizer_config.json"
MAX_TEMPLATE_BYTES = 1 << 22


def load_chat_template(folder: Path) -> str | None:
    """Return the default chat template of a folder, or None."""
    path = folder / FILE
    if path.is_file():
        return decode_text(path, read_bytes(path, MAX_TEMPLATE_BYTES))
    path = folder / CONFIG
    if not path.is_file():
        return None
    try:
        config = json.loads(decode_text(path, read_bytes(path, MAX_JSON_BYTES)))
    except (RecursionError, ValueError) as error:
        if isinstance(error, FileError):
            raise
        hint = "restore a copy, or remove it: only its chat template is read"
        raise FileError(path, "is truncated or is not JSON", hint) from None
    found = config.get("chat_template") if isinstance(config, dict) else None
    if isinstance(found, list):  # several templates with names
        named = [each for each in found if isinstance(each, dict)]
        found = next(
            (each.get("template") for each in named if each.get("name") == "default"), None
        )
    if not isinstance(found, str) or len(found) > MAX_TEMPLATE_BYTES:
        return None
    # A lone surrogate is valid in JSON and could not be written again.
    return found.encode("utf-8", "replace").decode("utf-8")


def save_chat_template(chat_template: str | None, folder: Path, *, overwrite: bool = False) -> None:
    """Write `chat_template.jinja` into a folder if there is a chat template."""
    if chat_template is not None:
        write_text_atomically(folder / FILE, chat_template, overwrite=overwrite)


def check_chat_template(chat_template: str | None, folder: Path, *, overwrite: bool) -> None:
    """Check, before other files are written, that `save_chat_template` can write its file."""
    if chat_template is not None:
        check_target(folder / FILE, overwrite=overwrite)
