"""Speed of batched generation in torch, compared with Hugging Face.

22.7M parameters, 64 new tokens after a prompt of one for 1, 8 and 64 sequences, sampled at
temperature 0.8 with top-p 0.95, two threads, the same random weights. (`generating` measures one
sequence with the native decoder.) No target: the question is the throughput of a batch.
"""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bench.declaration import Benchmark, Contender
from bench.generating import FIRST_ID, SAMPLED, SEED, SHAPE, make_llama, write_safetensors
from bench.workloads import make_once, write_once

NEW_TOKENS = 64
Generate = Callable[[], int]


def prepare(folder: Path) -> dict[str, Path]:
    """Draw the weights once; a workload is a number of sequences."""
    make_once(folder / "model.safetensors", write_safetensors)
    return {
        f"{size} sequences": write_once(folder / f"{size}.json", partial(json.dumps, size))
        for size in (1, 8, 64)
    }


def tilth(file: Path, sample: float) -> Generate:
    """Set up `generate_batch`."""
    import torch
    from safetensors.torch import load_file

    from tilth.config import ModelConfig
    from tilth.generation import LanguageModel
    from tilth.model import TransformerLM
    from tilth.tokenizer import Tokenizer

    model = TransformerLM(ModelConfig(**SHAPE))
    model.load_state_dict(load_file(file.parent / "model.safetensors"))
    torch.set_grad_enabled(False)
    # No end token: all sequences have full length. Each token is one letter.
    letters = {i: chr(0x4E00 + i).encode() for i in range(256, SHAPE["vocab_size"])}
    tokenizer = Tokenizer(letters | {i: bytes([i]) for i in range(256)}, [])
    prompts = [chr(FIRST_ID)] * json.loads(file.read_text())

    def generate() -> int:
        language_model = LanguageModel.from_model(model, tokenizer)
        options: dict[str, Any] = {"max_tokens": NEW_TOKENS, "seed": SEED, **SAMPLED}
        texts = language_model.generate_batch(prompts, **options)
        return len(texts) * NEW_TOKENS

    return generate


def hugging_face(file: Path, sample: float) -> Generate:
    """Set up `generate` of transformers."""
    import torch

    llama = make_llama(file.parent)
    ids = torch.full((json.loads(file.read_text()), 1), FIRST_ID)

    def generate() -> int:
        torch.manual_seed(SEED)
        found = llama.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=NEW_TOKENS,
            do_sample=True,
            top_k=0,
            **SAMPLED,
        )
        return int(found[:, 1:].numel())

    return generate


def run(generate: Generate) -> int:
    """Generate, and return the number of tokens."""
    return generate()


BENCHMARK = Benchmark(
    prepare=prepare,
    threads=2,
    work=lambda file: float(json.loads(file.read_text()) * NEW_TOKENS),
    unit="tokens",
    contenders=[
        Contender("tilth generate_batch", tilth, run, int, "tilth", warmup=1),
        Contender(
            "Hugging Face", hugging_face, run, int, "transformers", "tilth generate_batch", warmup=1
        ),
    ],
)
