"""Time to load a vocabulary of 200,000 tokens and encode one line in a new process.

o200k; people start many short processes. "import excluded" times loading and encoding; "import
included" also times the import of the package. The interpreter is running already. tilth reads
ranks and a `tokenizer.json`; tiktoken reads its cached file of ranks, Hugging Face the
`tokenizer.json`.
Targets: at least 3 times as fast as tiktoken, at least 5 times as fast as Hugging Face.
"""

# Type checking does not need the peers.
# mypy: disable-error-code="import-not-found, import-untyped"

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.declaration import Benchmark, Contender, Target, Workload
from bench.encoding import same_ids, tiktoken_encoding
from bench.vocabularies import PUBLISHED, save_vocabulary
from bench.workloads import SPECIAL_TOKEN, write_once

LINE = "The gardener's 1,234 seedlings stood in three rows, naïve and green. 🌱\n"
Task = Callable[[], Any]


def prepare(folder: Path) -> dict[str, Workload]:
    """Save the vocabulary; the name of the file says whether the import is timed."""
    names = ("import excluded", "import included")
    if problem := save_vocabulary(folder / "o200k", "o200k"):
        return dict.fromkeys(names, problem)
    return {name: write_once(folder / "o200k" / f"{name}.txt", lambda: LINE) for name in names}


def contender(name: str, load: Callable[[Path], Any], package: str, against: str = "") -> Contender:
    """Declare a contender that loads the vocabulary in a folder and returns an encode function."""

    def setup(file: Path, sample: float) -> Task:
        if file.stem == "import excluded":
            import_module("tilth.tokenizer" if package == "tilth" else package)
        return lambda: load(file.parent)(file.read_text())

    return Contender(name, setup, lambda task: task(), same_ids, package, against)


def tilth_ranks(folder: Path) -> Any:  # noqa: ANN401, a function
    """Load ranks with tilth."""
    from tilth.tokenizer import Tokenizer

    special_tokens = {SPECIAL_TOKEN: PUBLISHED["o200k"][0]}
    return Tokenizer.load(folder / "ranks.tiktoken", special_tokens=special_tokens).encode


def tilth_json(folder: Path) -> Any:  # noqa: ANN401
    """Load a tokenizer.json with tilth."""
    from tilth.tokenizer import Tokenizer

    return Tokenizer.load(folder / "tokenizer.json").encode


def tiktoken(folder: Path) -> Any:  # noqa: ANN401
    """Load ranks with tiktoken."""
    return tiktoken_encoding(folder).encode


def hugging_face(folder: Path) -> Any:  # noqa: ANN401
    """Load a tokenizer.json with Hugging Face tokenizers."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return lambda text: tokenizer.encode(text).ids


BENCHMARK = Benchmark(
    prepare=prepare,
    contenders=[
        contender("tilth, ranks", tilth_ranks, "tilth"),
        contender("tiktoken", tiktoken, "tiktoken", "tilth, ranks"),
        contender("tilth, tokenizer.json", tilth_json, "tilth"),
        contender("Hugging Face", hugging_face, "tokenizers", "tilth, tokenizer.json"),
    ],
    work=lambda _: 1.0,
    unit="loads",
    targets=[Target("tiktoken", at_least=3.0), Target("Hugging Face", at_least=5.0)],
)
