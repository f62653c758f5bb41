"""Options that several verbs share, and the conversion of arguments to values."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

from cyclopts import Group, Parameter, Token, convert

from tilth.formatting import parse_duration

if TYPE_CHECKING:
    from tilth.executors import Executor
    from tilth.tokenizer import Tokenizer

CLUSTER = Parameter(group=Group("Cluster", sort_key=50))
_FRACTION = re.compile(r"[-+]?\d*\.\d*[1-9]\d*")  # 4.7, but not 4.0, which is 4


def convert_exactly(type_hint: Any, tokens: Sequence[Token]) -> Any:  # noqa: ANN401, any option's
    """Convert as cyclopts does, but refuse a fraction for an integer: `--steps 4.7` is not 5."""
    kinds = set(_kinds(type_hint))
    if int in kinds and not kinds & {float, str}:
        for token in tokens:
            if _FRACTION.fullmatch(token.value):
                raise ValueError(f"{token.value} is not a whole number.")
    return convert(type_hint, tokens)


def _kinds(type_hint: Any) -> Iterator[Any]:  # noqa: ANN401, a type
    """Yield a type and the types that it is composed of."""
    yield type_hint
    for part in get_args(type_hint):
        yield from _kinds(part)


def utf8(type_hint: Any, tokens: Sequence[Token]) -> str | list[str]:  # noqa: ANN401, a type
    """Convert text options: decode them as UTF-8 in every locale.

    Python decodes arguments by the locale, and other bytes to surrogates. Config files are UTF-8.
    """
    texts = []
    for token in tokens:
        try:
            is_argument = token.source == "cli"
            texts.append(os.fsencode(token.value).decode("utf-8") if is_argument else token.value)
        except UnicodeError:
            sentence = f"{token.keyword} {token.value!r} is not UTF-8; write it in UTF-8."
            raise ValueError(sentence) from None
    return texts if get_origin(type_hint) is list else texts[-1]


UTF8 = Parameter(converter=utf8)

CorpusPaths = Annotated[
    list[Path], Parameter(help="Text, JSON lines or Parquet files (also .gz, .zst), or folders.")
]
DataFolder = Annotated[Path, Parameter(help="Data folder that `tilth tokenize` wrote.")]
ModelPath = Annotated[
    Path, Parameter(help="Run directory, checkpoint folder or model folder (exported, imported).")
]
TokenizerPath = Annotated[
    Path, Parameter(help="tokenizer.json, tekken.json, tiktoken ranks, or a folder with one.")
]
RunFolder = Annotated[Path, Parameter(help="Run directory.")]
Threads = Annotated[int | None, Parameter(help="Number of threads; default: all cores.")]
Overwrite = Annotated[bool, Parameter(help="Replace existing output.")]
Json = Annotated[bool, Parameter(help="Print one line of JSON.")]


@Parameter(name="*")
@dataclass(frozen=True)
class CorpusOptions:
    """How documents are read; None is the default of the function called.

    Args:
        separator: Separator of the documents in text files; default: <|endoftext|>.
        field: Field of JSON lines or Parquet files that holds the text; default: text.
        on_error: Response to a document that is not valid text; default: stop (corpus info: skip).
    """

    separator: Annotated[str | None, UTF8] = None
    field: Annotated[str | None, UTF8] = None
    on_error: Literal["stop", "skip"] | None = None


@Parameter(name="*")
@dataclass(frozen=True)
class Where:
    """Where tasks run; they and this command share all folders.

    Args:
        cluster: Run tasks in processes of this host (local), on Ray, or as jobs of Slurm.
        address: Address of a running Ray cluster, such as auto; default: Ray on this host.
        time: Time limit of a Slurm job; default: 4h.
        partition: Slurm partition; default: that of the cluster.
        cpus: CPU cores per task (ray) or job (slurm).
        gpus: GPUs per task (ray) or job (slurm).
    """

    cluster: Annotated[Literal["local", "ray", "slurm"] | None, CLUSTER] = None
    address: Annotated[str | None, CLUSTER] = None
    time: Annotated[str | None, CLUSTER] = None
    partition: Annotated[str | None, CLUSTER] = None
    cpus: Annotated[int | None, CLUSTER] = None
    gpus: Annotated[int | None, CLUSTER] = None

    def executor(self, workers: int | None = None) -> "Executor | None":
        """Return the executor, None without --cluster."""
        given = {name: value for name, value in vars(self).items() if value is not None}
        if self.cluster is None:
            if given:
                raise ValueError(f"--{min(given)} is an option of a cluster; add --cluster.")
            return None
        from tilth.executors import Executor, Resources

        seconds = parse_duration(self.time or "4h")
        resources = Resources(seconds, self.partition, self.gpus, self.cpus)
        return Executor(self.cluster, workers, self.address, resources)


@Parameter(name="*")
@dataclass(frozen=True)
class ClusterOptions(Where):
    """Where the tasks of a corpus run.

    Args:
        workers: Processes (local), jobs (slurm; default: 4), or CPUs of a Ray on this host.
        tasks: Number of tasks; the result does not depend on it.
    """

    workers: Annotated[int | None, CLUSTER] = None
    tasks: Annotated[int | None, CLUSTER] = None


@Parameter(name="*")
@dataclass(frozen=True)
class Reading:
    """Settings that a tokenizer file may lack.

    Args:
        pattern: Split pattern of tiktoken ranks or GPT-2 files: gpt2, cl100k, o200k, llama3, qwen2,
            deepseek-v3, tekken, starcoder, or a regex.
        special: Special token of tiktoken ranks or GPT-2 files, such as '<|endoftext|>'; once for
            each.
    """

    pattern: Annotated[str | None, UTF8] = None
    special: Annotated[list[str], UTF8] = field(default_factory=list)

    def open(self, path: Path) -> "Tokenizer":
        """Load a tokenizer of any format."""
        from tilth.tokenizer import Tokenizer

        return Tokenizer.load(path, pattern=self.pattern, special_tokens=self.special or None)


AS_WRITTEN = Reading()


def executor_of(options: ClusterOptions | None) -> "Executor | None":
    """Return the executor of the options of a verb, None without --cluster."""
    return None if options is None else options.executor(options.workers)
