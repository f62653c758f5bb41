"""Speed of generation and scoring, compared with Hugging Face and llama.cpp.

Llama shapes with the same random weights for all, two threads. Imports, loading and a first pass
are not timed. Sampled: temperature 0.8, top-p 0.95. `buffer` reads a buffer of the size of the
matrices once per token with two threads: the bound of one sequence, where the caches of the
processor do not hold the weights. Batches of llama.cpp are one request to its server with as many
slots. Texts of int8 and of the peers are not compared, as rounding decides between two tokens of
nearly equal probability; greedy float32 begins with the same ids.
Targets, for 22.7M parameters: one sequence 1.5 times as fast as llama.cpp in float32 and 3 times
in int8, or 0.8 of the rate of the buffer; 8 and 64 sequences 1.5 times as fast as llama.cpp, 8
sequences 10 times as fast as Hugging Face; scoring twice as fast as Hugging Face's forward pass; a
prompt of 2,000 tokens 1.2 times as fast as llama.cpp; bfloat16 1.6 times as fast as float32, int4
1.3 times as fast as int8. For 100M and 1B parameters 1.2 times as fast as llama.cpp.
"""

import ctypes
import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from bench.declaration import Benchmark, Contender, Target
from bench.generating_models import (
    SHAPES,
    draw_weights,
    language_model,
    weight_bytes,
    write_gguf,
)
from bench.workloads import make_once, write_once

SAMPLED = {"temperature": 0.8, "top_p": 0.95}
GREEDY = {"temperature": 0.0}
COMPARED_IDS = 16
HUGGING_FACE_ROWS = 8  # sequences of one forward pass when scoring
Task = Callable[[], Any]


@dataclass(frozen=True)
class Work:
    """A workload: new tokens of some sequences after a prompt, or texts to score."""

    shape: str = "22.7M"
    context_length: int = 256
    rows: int = 1
    prompt_tokens: int = 1
    new_tokens: int = 256
    sampling: dict[str, float] = field(default_factory=lambda: GREEDY)
    scored: bool = False

    @property
    def tokens(self) -> int:
        """Tokens that the rate counts: new ones, or those of a long prompt or a scored text."""
        is_reading = self.prompt_tokens > self.new_tokens
        return self.rows * (self.prompt_tokens if is_reading else self.new_tokens)

    @property
    def prompt(self) -> list[int]:
        """The ids of the prompt."""
        count = SHAPES[self.shape].vocab_size - 11
        return [11 + 7919 * i % count for i in range(self.prompt_tokens)]

    def texts(self, count: int) -> list[list[int]]:
        """Return the ids of texts to score: all differ, so that no cache serves two of them.

        The ids are letters, as there are no merges.
        """
        letters = Random(0)
        return [letters.choices(range(32, 122), k=self.prompt_tokens) for _ in range(count)]


ONE, EIGHT, MANY = "1 sequence, {}", "8 sequences", "64 sequences"
GREEDILY, SAMPLING = ONE.format("greedy"), ONE.format("sampled")
SCORING, PROMPT, LONG_PROMPT = "scoring", "prompt of 2,000 tokens", "prompt of 32,000 tokens"
SMALL, LARGE = "100M parameters", "1B parameters"
WORKLOADS = {
    GREEDILY: Work(),
    SAMPLING: Work(sampling=SAMPLED),
    EIGHT: Work(rows=8, new_tokens=128, sampling=SAMPLED),
    MANY: Work(rows=64, new_tokens=64, sampling=SAMPLED),
    SCORING: Work(rows=400, prompt_tokens=250, new_tokens=0, scored=True),
    PROMPT: Work(context_length=4096, prompt_tokens=2000, new_tokens=1),
    LONG_PROMPT: Work(context_length=32_768, prompt_tokens=32_000, new_tokens=1),
    SMALL: Work("100M", new_tokens=64),
    LARGE: Work("1B", new_tokens=24),
}
GGUF_FILES = (
    *(("22.7M", "F32"), ("22.7M", "Q8_0"), ("100M", "F32"), ("100M", "Q8_0")),
    *(("1B", "Q8_0"), ("1B", "Q4_0")),
)


def prepare(folder: Path) -> dict[str, Path]:
    """Write the models for llama.cpp (2.4 GB), and build the reader of a buffer."""
    for shape, kind in GGUF_FILES:
        write = partial(write_gguf, name=shape, kind=kind, context_length=32_768)
        make_once(folder / f"{shape}-{kind}.gguf", write)
    make_once(folder / "reading.so", build_reader)
    return {
        name: write_once(folder / f"{number}.json", partial(json.dumps, asdict(work)))
        for number, (name, work) in enumerate(WORKLOADS.items())
    }


def build_reader(path: Path) -> None:
    """Compile reading.c; the core needs a compiler too."""
    source = Path(__file__).resolve().with_name("reading.c")
    options = ("-O3", "-march=native", "-shared", "-fPIC", "-pthread")
    subprocess.run(["cc", *options, source, "-o", path], check=True)


def read_work(file: Path) -> Work:
    """Read a workload."""
    return Work(**json.loads(file.read_text()))


# --- contenders -----------------------------------------------------------------------------------


def tilth(precision: str, file: Path, sample: float) -> Task:
    """Set up tilth through its Python API."""
    work = read_work(file)
    model = language_model(work.shape, work.context_length, precision)
    options: dict[str, Any] = {"max_tokens": work.new_tokens, **work.sampling}
    if work.scored:
        texts = [*map(model.tokenizer.decode, work.texts(max(1, round(work.rows * sample))))]
        return lambda: sum(map(len, model.score_batch(texts)))

    def generate() -> list[int]:
        if work.rows > 1:
            texts = model.generate_samples([work.prompt], work.rows, **options)
            return [len(each.token_ids) for each in texts]
        stream = model.generate(work.prompt, **options)
        for _ in stream:
            pass
        ids: list[int] = stream.token_ids
        return ids

    return generate


def hugging_face(file: Path, sample: float) -> Task:
    """Set up transformers: `generate` with its key/value cache, or a forward pass."""
    import torch

    from bench import models

    work = read_work(file)
    weights = {name: torch.from_numpy(each) for name, each in draw_weights(work.shape).items()}
    tokens = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}
    config = SHAPES[work.shape].config(work.context_length)
    llama = models.make_llama(config, weights, **tokens).eval()

    def score() -> int:
        count = 0
        batches = max(1, round(work.rows * sample / HUGGING_FACE_ROWS))
        texts = work.texts(batches * HUGGING_FACE_ROWS)
        for first in range(0, len(texts), HUGGING_FACE_ROWS):
            ids = torch.tensor(texts[first : first + HUGGING_FACE_ROWS])
            with torch.no_grad():
                logits = llama(ids).logits[:, :-1]
                loss = torch.nn.functional.cross_entropy(
                    logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none"
                )
            count += loss.numel()
        return count

    def generate() -> list[int]:
        torch.manual_seed(0)
        ids = torch.tensor([work.prompt] * work.rows)
        is_greedy = work.sampling == GREEDY
        found = llama.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=work.new_tokens,
            do_sample=not is_greedy,
            **({} if is_greedy else {**work.sampling, "top_k": 0}),
        )[:, ids.shape[1] :]
        return [len(row) for row in found] if work.rows > 1 else found[0].tolist()

    return score if work.scored else generate


def llama_cpp(kind: str, file: Path, sample: float) -> Task:
    """Set up llama.cpp's server, called in this process, with a slot for each sequence."""
    import xllamacpp

    work = read_work(file)
    params = xllamacpp.CommonParams()
    params.model.path = str(file.parent / f"{work.shape}-{kind}.gguf")
    params.n_ctx = 2 * work.context_length * work.rows  # the server reserves some of it
    params.n_parallel = work.rows
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 2
    params.verbosity = 0
    server = xllamacpp.Server(params)
    request = {
        "prompt": work.prompt if work.rows == 1 else [work.prompt] * work.rows,
        "n_predict": work.new_tokens,
        "ignore_eos": True,
        "cache_prompt": False,
        "top_k": 0,
        "min_p": 0.0,
        "top_p": 1.0,
        "seed": 0,
        **work.sampling,
    }

    def generate() -> list[int]:
        found = server.handle_completions(request)
        choices = found if isinstance(found, list) else [found]
        texts = [choice["text"] for each in choices for choice in each["choices"]]
        ids = [[int(number) for number in text.split("t")[1:]] for text in texts]
        return ids[0] if work.rows == 1 else [len(each) for each in ids]

    return generate


def buffer(precision: str, file: Path, sample: float) -> Task:
    """Set up the reader of a buffer, once for each new token."""
    import numpy as np

    work = read_work(file)
    threads = 2
    count = weight_bytes(work.shape, precision) // 8 // (4 * threads) * 4 * threads
    numbers = np.arange(count, dtype=np.uint64)  # written, so its pages are in memory
    reader = ctypes.CDLL(str(file.parent / "reading.so")).read_buffer
    reader.restype = ctypes.c_uint64
    reader.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_size_t]

    def read() -> list[int]:
        reader(numbers.ctypes.data, count, work.new_tokens, threads)
        return [0] * work.new_tokens

    return read


def run(task: tuple[Task, Work]) -> Any:  # noqa: ANN401
    """Generate or score, and return the answer."""
    perform, work = task
    found = perform()
    if isinstance(found, int):
        return round(found, -len(str(found)) + 2)
    if work.rows > 1:  # llama.cpp's server has returned 255 tokens of 256
        return round(sum(found), -2)
    return found[:COMPARED_IDS] if work.sampling == GREEDY else round(len(found), -1)


def contender(
    name: str,
    setup: Callable[[Path, float], Task],
    package: str,
    against: str = "",
    *,
    on: Sequence[str] = (),
    differs: str = "",
    sample: float = 1.0,
    warmup: int = 1,
) -> Contender:
    """Declare a contender."""

    def both(file: Path, sample: float) -> tuple[Task, Work]:
        return setup(file, sample), read_work(file)

    return Contender(
        name, both, run, lambda answer: answer, package, against, sample, warmup, differs,
        workloads=tuple(on),
    )  # fmt: skip


SINGLE, BATCHES = (GREEDILY, SAMPLING), (EIGHT, MANY)
MODELS = (SMALL, LARGE)
ROUNDED = "different rounding"
FLOAT, INT8, BFLOAT, INT4 = "tilth float32", "tilth int8", "tilth bfloat16", "tilth int4"
F32, Q8_0, Q4_0, FACE = "llama.cpp F32", "llama.cpp Q8_0", "llama.cpp Q4_0", "Hugging Face"
FORWARD, LONG = "Hugging Face forward", "tilth float32, once"
BUFFER, BUFFER_INT8 = "buffer of float32", "buffer of int8"
GENERATION = (*SINGLE, *BATCHES, PROMPT)


def ours(precision: str, name: str, *on: str, against: str = "", **options: Any) -> Contender:  # noqa: ANN401
    """Declare tilth in a precision."""
    setup = partial(tilth, precision)
    return contender(
        name, setup, "tilth", against, on=on, differs=ROUNDED * bool(against), **options
    )


def llama(kind: str, name: str, against: str, *on: str) -> Contender:
    """Declare llama.cpp with a format of its weights."""
    differs = "" if kind == "F32" else ROUNDED
    return contender(name, partial(llama_cpp, kind), "xllamacpp", against, on=on, differs=differs)


def reading(precision: str, name: str, against: str) -> Contender:
    """Declare the reader of a buffer."""
    setup = partial(buffer, precision)
    return contender(name, setup, "", against, on=(GREEDILY, SAMPLING), differs="reads only")


BENCHMARK = Benchmark(
    prepare=prepare,
    threads=2,
    work=lambda file: float(read_work(file).tokens),
    unit="tokens",
    contenders=[
        ours("bfloat16", BFLOAT, GREEDILY),
        ours("int4", INT4, GREEDILY, LARGE),
        ours("float32", FLOAT, *GENERATION, SCORING, SMALL, against=BFLOAT),
        ours("int8", INT8, *GENERATION, SCORING, *MODELS, against=INT4),
        ours("float32", LONG, LONG_PROMPT, warmup=0),
        contender(FACE, hugging_face, "transformers", FLOAT, on=(*SINGLE, *BATCHES)),
        contender(
            FORWARD, hugging_face, "transformers", FLOAT, on=(SCORING,), sample=0.2, differs="loss"
        ),
        llama("F32", F32, FLOAT, *GENERATION, SMALL),
        llama("Q8_0", Q8_0, INT8, *GENERATION, *MODELS),
        llama("Q4_0", Q4_0, INT4, LARGE),
        reading("float32", BUFFER, FLOAT),
        reading("int8", BUFFER_INT8, INT8),
    ],
    targets=[
        *(Target(F32, 1.5, workload=name, otherwise=(BUFFER, 0.8)) for name in SINGLE),
        *(Target(Q8_0, 3.0, workload=name, otherwise=(BUFFER_INT8, 0.8)) for name in SINGLE),
        Target(FACE, 10.0, workload=EIGHT),
        *(Target(name, 1.5, workload=each) for each in BATCHES for name in (F32, Q8_0)),
        Target(FORWARD, 2.0),
        *(Target(name, 1.2, workload=PROMPT) for name in (F32, Q8_0)),
        *(Target(name, 1.2, workload=SMALL) for name in (F32, Q8_0)),
        *(Target(name, 1.2, workload=LARGE) for name in (Q8_0, Q4_0)),
        Target(FLOAT, 1.6, workload=GREEDILY),
        *(Target(INT8, 1.3, workload=name) for name in (GREEDILY, LARGE)),
    ],
)
