"""Speed of generation at 22.7M parameters, compared with Hugging Face and llama.cpp.

One sequence, 256 new tokens after a prompt of one, two threads, the same random weights for all.
Imports, loading and a first pass are not timed. Greedy, and sampled at temperature 0.8 with top-p
0.95.
Targets: float32 at least 4 times as fast as Hugging Face's `generate` and as fast as llama.cpp;
int8 as fast as its Q8_0.
"""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bench.declaration import Benchmark, Contender, Target
from bench.workloads import make_once, write_once

SHAPE: dict[str, Any] = {"vocab_size": 10_000, "context_length": 256, "d_model": 512}
SHAPE |= {"num_layers": 4, "num_heads": 16, "d_ff": 1344}
NEW_TOKENS, FIRST_ID, SEED = 256, 11, 0
SAMPLED = {"temperature": 0.8, "top_p": 0.95}
Generate = Callable[[], list[int]]


# --- the model in each format ---------------------------------------------------------------------


def prepare(folder: Path) -> dict[str, Path]:
    """Draw the weights once, and write them in the format of each contender."""
    for name, write in (
        ("model.safetensors", write_safetensors),
        ("F32.gguf", partial(write_gguf, quantized=False)),
        ("Q8_0.gguf", partial(write_gguf, quantized=True)),
    ):
        make_once(folder / name, write)
    return {
        name: write_once(folder / f"{name}.json", partial(json.dumps, options))
        for name, options in (("greedy", {"temperature": 0.0}), ("sampled", SAMPLED))
    }


def draw_weights() -> dict[str, Any]:
    """Return the weights of an untrained model."""
    import torch

    from tilth.config import ModelConfig
    from tilth.model import TransformerLM

    torch.manual_seed(SEED)
    return dict(TransformerLM(ModelConfig(**SHAPE)).state_dict())


def write_safetensors(path: Path) -> None:
    """Write the file for tilth and Hugging Face."""
    from safetensors.torch import save_file

    save_file(draw_weights(), path)


GGUF_NAMES = {
    "token_embeddings": "token_embd",
    "layers.": "blk.",
    "ln1": "attn_norm",
    "ln2": "ffn_norm",
    "ln_final": "output_norm",
    "lm_head": "output",
    "attn.q_proj": "attn_q",
    "attn.k_proj": "attn_k",
    "attn.v_proj": "attn_v",
    "attn.output_proj": "attn_output",
    "ffn.w1": "ffn_gate",
    "ffn.w2": "ffn_down",
    "ffn.w3": "ffn_up",
}


def write_gguf(path: Path, *, quantized: bool) -> None:
    """Write the file for llama.cpp, which rotates the pairs (2k, 2k + 1) as tilth does."""
    import gguf

    from bench.models import renamed

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(SHAPE["context_length"])
    writer.add_embedding_length(SHAPE["d_model"])
    writer.add_block_count(SHAPE["num_layers"])
    writer.add_feed_forward_length(SHAPE["d_ff"])
    writer.add_head_count(SHAPE["num_heads"])
    writer.add_head_count_kv(SHAPE["num_heads"])
    writer.add_rope_dimension_count(SHAPE["d_model"] // SHAPE["num_heads"])
    writer.add_rope_freq_base(10_000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(SHAPE["vocab_size"])
    # The server needs a vocabulary, although prompts are ids.
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([f"t{i}" for i in range(SHAPE["vocab_size"])])
    writer.add_token_types([gguf.TokenType.NORMAL] * SHAPE["vocab_size"])
    writer.add_token_merges(["t 1"])
    for name, weight in draw_weights().items():
        name = renamed(name, GGUF_NAMES)  # noqa: PLW2901
        numbers = weight.numpy()
        if quantized and numbers.ndim == 2:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(name, gguf.quants.quantize(numbers, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, numbers)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# --- contenders -----------------------------------------------------------------------------------


def tilth(quantize: Any, file: Path, sample: float) -> Generate:  # noqa: ANN401
    """Set up tilth through its Python API."""
    from tilth.config.model import ModelConfig
    from tilth.generation import LanguageModel
    from tilth.runs.tensors import load_weights
    from tilth.tokenizer import Tokenizer

    # No end token: all sequences have full length.
    tokens = {i: bytes([i]) if i < 256 else b"t%d" % i for i in range(SHAPE["vocab_size"])}
    weights = load_weights(file.parent / "model.safetensors")
    model = LanguageModel.from_weights(
        ModelConfig(**SHAPE), weights, Tokenizer(tokens, []), quantize=quantize, threads=2
    )
    options = json.loads(file.read_text())

    def ids() -> list[int]:
        stream = model.generate(chr(FIRST_ID), max_tokens=NEW_TOKENS, **options)
        for _ in stream:
            pass
        return stream.token_ids

    return ids


def make_llama(folder: Path) -> Any:  # noqa: ANN401
    """Return Hugging Face's Llama with our weights, for generation."""
    from safetensors.torch import load_file

    from bench import models
    from tilth.config import ModelConfig

    weights = load_file(folder / "model.safetensors")
    tokens = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}
    return models.make_llama(ModelConfig(**SHAPE), weights, **tokens).eval()


def hugging_face(file: Path, sample: float) -> Generate:
    """Set up `generate` of transformers, with its key/value cache."""
    import torch

    llama = make_llama(file.parent)
    options = json.loads(file.read_text())
    is_greedy = options["temperature"] == 0
    ids = torch.tensor([[FIRST_ID]])

    def generate() -> list[int]:
        torch.manual_seed(SEED)
        found: list[int] = llama.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=NEW_TOKENS,
            do_sample=not is_greedy,
            **({} if is_greedy else {**options, "top_k": 0}),
        )[0, 1:].tolist()
        return found

    return generate


def llama_cpp(kind: str, file: Path, sample: float) -> Generate:
    """Set up llama.cpp, called in this process."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(file.parent / f"{kind}.gguf")
    params.n_ctx = 2 * SHAPE["context_length"]  # the server reserves some of it
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 2
    params.verbosity = 0
    server = xllamacpp.Server(params)
    request = {
        "prompt": [FIRST_ID],
        "n_predict": NEW_TOKENS,
        "ignore_eos": True,
        "cache_prompt": False,
        "top_k": 0,
        "min_p": 0.0,
        "top_p": 1.0,
        "seed": SEED,
        **json.loads(file.read_text()),
    }

    def generate() -> list[int]:
        text = server.handle_completions(request)["choices"][0]["text"]
        return [int(number) for number in text.split("t")[1:]]

    return generate


def _first_ids(ids: list[int]) -> list[int]:
    return ids[:32]


def _about_how_many(ids: list[int]) -> int:
    return round(len(ids), -1)


def with_answer(setup: Callable[[Path, float], Generate]) -> Callable[[Path, float], Any]:
    """Add the answer to a setup: the first ids if greedy, the number of ids if sampled.

    The number is rounded to tens: llama.cpp's server has returned 255 of 256.
    """

    def both(file: Path, sample: float) -> tuple[Generate, Callable[[list[int]], Any]]:
        is_greedy = json.loads(file.read_text())["temperature"] == 0
        # Not all ids: rounding decides between two tokens of nearly equal probability.
        return setup(file, sample), _first_ids if is_greedy else _about_how_many

    return both


def run(task: tuple[Generate, Callable[[list[int]], Any]]) -> Any:  # noqa: ANN401
    """Generate, and return the answer."""
    generate, answer = task
    return answer(generate())


def contender(name: str, setup: Any, package: str, against: str = "") -> Contender:  # noqa: ANN401
    """Declare a contender with one untimed pass."""
    other = "different rounding" if name == "llama.cpp Q8_0" else ""
    return Contender(
        name, with_answer(setup), run, lambda answer: answer, package, against, 1.0, 1, other
    )


BENCHMARK = Benchmark(
    prepare=prepare,
    threads=2,
    work=lambda file: float(NEW_TOKENS),
    unit="tokens",
    contenders=[
        contender("tilth", partial(tilth, None), "tilth"),
        contender("tilth int8", partial(tilth, "int8"), "tilth"),
        contender("Hugging Face", hugging_face, "transformers", "tilth"),
        contender("llama.cpp F32", partial(llama_cpp, "F32"), "xllamacpp", "tilth"),
        contender("llama.cpp Q8_0", partial(llama_cpp, "Q8_0"), "xllamacpp", "tilth int8"),
    ],
    targets=[
        Target("Hugging Face", at_least=4.0),
        Target("llama.cpp F32", at_least=1.0),
        Target("llama.cpp Q8_0", at_least=1.0),
    ],
)
