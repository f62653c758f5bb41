"""Mutations of files: bytes, JSON and TOML values, safetensors headers, whole file types.

Checksums in manifests carry no key, so an attacker can recompute them: `make_consistent` does.
"""

import contextlib
import hashlib
import json
import os
import struct
import tomllib

import tomli_w

from tilth.tokenizer import Tokenizer

HOSTILE_VALUES = [
    None,
    True,
    False,
    0,
    1,
    -1,
    2**31,
    2**53 + 1,
    2**60,
    2**63,
    2**64,
    -(2**63),
    10**400,
    0.5,
    -0.5,
    1e308,
    -1e308,
    5e-324,
    "",
    "a",
    "..",
    "../../../etc/passwd",
    "/dev/zero",
    "/",
    "\x00",
    "\x1b[2J\x07",
    "\ud800",
    "\u202e",
    "a" * 10_000,
    [],
    {},
    [[]],
    [None],
    {"": None},
    {"a": {"b": {"c": 1}}},
    [0] * 1000,
    ["a", 1, None],
]


def nested(depth):
    value = 0
    for _ in range(depth):
        value = [value]
    return value


def mutated_value(random, value, key=None):
    """A value that a stranger may have put in the place of another."""
    kind = random.randrange(8)
    if kind == 0 and isinstance(value, int) and not isinstance(value, bool):
        return value + random.choice([-1, 1, 2**31, -(2**31), 2**62])
    if kind == 1 and isinstance(value, int | float) and not isinstance(value, bool):
        return random.choice([-value, value * 10**6, float(value), str(value)])
    if kind == 2 and isinstance(value, str):
        return random.choice([value + "\x00", value * 1000, value[:-1], "../" + value, value + "/"])
    if kind == 3 and isinstance(value, list):
        return random.choice([value * 2, value[::-1], value[:-1], [*value, None]])
    if kind == 4:
        return nested(random.choice([3, 100, 900]))
    return random.choice(HOSTILE_VALUES)


def places(value):
    """Return the paths of the values within a value, up to 10,000."""
    found, waiting = [], [((), value)]
    while waiting and len(found) < 10_000:
        path, each = waiting.pop()
        found.append(path)
        if isinstance(each, dict):
            waiting += [((*path, key), item) for key, item in each.items()]
        elif isinstance(each, list):
            waiting += [((*path, index), item) for index, item in enumerate(each[:20])]
    return found


def mutate_values(random, content):
    """Change, remove, rename or add values of a JSON-like tree, in place; return the tree."""
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        path = random.choice(places(content))
        if not path:
            if random.random() < 0.02:
                return random.choice(HOSTILE_VALUES)
            continue
        parent = content
        for key in path[:-1]:
            parent = parent[key]
        key = path[-1]
        action = random.randrange(10)
        if action == 0:
            del parent[key]
        elif action == 1 and isinstance(parent, dict):
            parent[f"{key}x"] = parent.pop(key)
        elif action == 2 and isinstance(parent, dict):
            parent["added"] = random.choice(HOSTILE_VALUES)
        else:
            parent[key] = mutated_value(random, parent[key], key)
    return content


def mutate_bytes(random, data):
    """Flip, cut, repeat, insert or replace bytes."""
    data = bytearray(data)
    for _ in range(random.choice([1, 1, 2, 5])):
        place = random.randrange(len(data) + 1)
        action = random.randrange(6)
        if action == 0 and data:
            data[min(place, len(data) - 1)] ^= 1 << random.randrange(8)
        elif action == 1:
            del data[place:]
        elif action == 2:
            del data[place : place + random.randrange(1, 64)]
        elif action == 3:
            data[place:place] = random.randbytes(random.randrange(1, 64))
        elif action == 4:
            data[place:place] = data[place : place + random.randrange(1, 256)]
        else:
            data[place : place + 8] = struct.pack("<Q", random.choice([0, 1, 2**31, 2**63 - 1]))
    return bytes(data)


def dumps(content):
    return json.dumps(content, ensure_ascii=True).encode("utf-8")


def mutate_json(random, data):
    return dumps(mutate_values(random, json.loads(data)))


def mutate_lines(random, data):
    lines = data.splitlines()
    index = random.randrange(len(lines))
    lines[index] = mutate_json(random, lines[index])
    return b"\n".join(lines) + b"\n"


def mutate_toml(random, data):
    content = mutate_values(random, tomllib.loads(data.decode()))
    try:
        return tomli_w.dumps(content).encode("utf-8", "surrogatepass")
    except (TypeError, AttributeError, ValueError, RecursionError):  # TOML has no null
        return mutate_bytes(random, data)


def mutate_safetensors(random, data):
    (length,) = struct.unpack("<Q", data[:8])
    header = mutate_values(random, json.loads(data[8 : 8 + length]))
    text = dumps(header)
    return struct.pack("<Q", len(text)) + text + data[8 + length :]


MUTATIONS = {
    ".json": mutate_json,
    ".jsonl": mutate_lines,
    ".toml": mutate_toml,
    ".safetensors": mutate_safetensors,
}


def mutate_file(random, path):
    """Replace a file by a mutated one; now and then by another type of file."""
    data = path.read_bytes()
    choice = random.random()
    if choice < 0.02:
        path.unlink()
        action = random.randrange(4)
        if action == 0:
            os.mkfifo(path)
        elif action == 1:
            path.symlink_to(path.name)  # a loop
        elif action == 2:
            path.mkdir()
        else:
            path.symlink_to("/dev/zero")
        return
    mutate = MUTATIONS.get(path.suffix, mutate_bytes)
    if choice < 0.25 or not data:
        mutate = mutate_bytes
    try:
        path.write_bytes(mutate(random, data))
    except (RecursionError, ValueError, IndexError, OverflowError):  # not in this way
        path.write_bytes(mutate_bytes(random, data))


# --- checksums, as an attacker recomputes them ------------------------------------------------


def _checksum_of(content):
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _load(path):
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _sha256(path):
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "0" * 64
    except OSError:
        return "0" * 64


def make_consistent(folder):
    """Recompute every checksum below a folder, where there still is a place for it.

    Other files keep their bytes, and those of a checkpoint come before the manifests above them.
    """
    for path in sorted(folder.rglob("*.counts")):
        if path.is_file():
            data = path.read_bytes()[:-32]
            path.write_bytes(data + hashlib.sha256(data).digest())
    for path in sorted(folder.rglob("*.json"), key=lambda path: (-len(path.parts), path)):
        if not path.is_file() or (content := _load(path)) is None:
            continue
        try:
            _recompute(path, content)
        except (TypeError, ValueError, OSError, RecursionError):
            continue


def _recompute(path, content):
    if content.keys().isdisjoint({"checksums", "files", "checksum"}):
        return
    if isinstance(content.get("checksums"), dict):
        for name in content["checksums"]:
            content["checksums"][name] = _sha256(path.parent / name)
    files = content.get("files")
    if isinstance(files, dict):  # of data: one block each
        for name, entry in files.items():
            if isinstance(entry, dict) and entry.get("sha256"):
                entry["sha256"] = [_sha256(path.parent / name)]
                with contextlib.suppress(OSError):
                    entry["size_bytes"] = (path.parent / name).stat().st_size
    if isinstance(content.get("tokenizer_fingerprint"), str):
        with contextlib.suppress(Exception):  # not a tokenizer any more
            tokenizer = Tokenizer.load(path.parent / "tokenizer.json")
            content["tokenizer_fingerprint"] = tokenizer.fingerprint
    if isinstance(files, list):  # of a model
        for entry in files:
            if isinstance(entry, dict) and isinstance(entry.get("name"), str):
                entry["sha256"] = _sha256(path.parent / entry["name"])
    if "checksum" in content:
        head = {k: content.pop(k) for k in ("format", "version") if k in content}
        content.pop("checksum")
        content["checksum"] = _checksum_of(content)
        content = {**head, **content}
    # As `save_manifest` writes it: `verify` compares the bytes of a manifest of data too.
    text = json.dumps(content, indent=2, ensure_ascii=False)
    path.write_bytes(text.encode("utf-8", "backslashreplace"))
