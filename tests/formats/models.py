"""Small random models of every exportable variant, and llama.cpp as a reference."""

import json
import random
import urllib.request

import numpy as np

from tilth.config import ModelConfig
from tilth.config.model import RopeScaling
from tilth.config.parameters import parameter_shapes
from tilth.formats.model_files import ModelFiles
from tilth.tokenizer import Tokenizer

END = "<|endoftext|>"
SHAPE = {"vocab_size": 300, "context_length": 320, "d_model": 64, "num_layers": 2, "num_heads": 4}
SCALING = RopeScaling(factor=8.0, original_context_length=64)
VARIANTS = {
    "untied": {},
    "tied-grouped": {"tie_embeddings": True, "num_kv_heads": 2},
    "qwen3": {"qk_norm": True, "num_kv_heads": 2},
    "qwen3-tied-own-width": {"qk_norm": True, "tie_embeddings": True, "head_dim": 24},
    "qwen2": {"qkv_bias": True, "num_kv_heads": 1},
    "own-width": {"head_dim": 32, "norm_eps": 1e-6},
    "llama3": {"rope_scaling": SCALING, "rope_theta": 5e5, "num_kv_heads": 2},
}
REFUSED = {
    "post-norm": {"norm": "post"},
    "a model without norms": {"norm": "none"},
    "a model without position encoding": {"position": "none"},
    "a SiLU feed-forward": {"ffn": "silu"},
}


def config_of(variant):
    return ModelConfig(**{**SHAPE, **VARIANTS[variant]})


def tokenizer_of(vocab_size=300, pattern="gpt2"):
    """A tokenizer with all bytes, an end token and some merges of lower-case letters."""
    tokens = {i: bytes([i]) for i in range(256)} | {256: END.encode()}
    merges = []
    chance = random.Random(0)
    while len(tokens) < vocab_size:
        left, right = (chance.choice("etaoinshr ").encode() for _ in range(2))
        if right != b" " and left + right not in tokens.values():
            merges.append((left, right))
            tokens[len(tokens)] = left + right
    return Tokenizer(tokens, merges, {END: 256}, pattern=pattern)


def whole_characters(vocab_size=300):
    """A tokenizer whose tokens are whole characters: llama.cpp shows no part of a character."""
    tokens = {i: chr(0x4E00 + i).encode() for i in range(vocab_size - 2)}
    tokens[vocab_size - 2] = tokens[0] + tokens[1]
    return Tokenizer(tokens, [(tokens[0], tokens[1])], {END: vocab_size - 1})


def random_weights(config, seed=0):
    """Weights with random gains and biases too, so that every permutation matters."""
    rng = np.random.default_rng(seed)
    weights = {}
    for name, shape in parameter_shapes(config):
        if "norm" in name or ".ln" in name or name.startswith("ln"):
            weights[name] = rng.uniform(0.5, 1.5, shape).astype(np.float32)
        else:
            scale = 0.5 if name.endswith("bias") else shape[-1] ** -0.5
            weights[name] = (scale * rng.standard_normal(shape)).astype(np.float32)
    return weights


def model_of(config, tokenizer=None, seed=0):
    return ModelFiles(config, random_weights(config, seed), tokenizer or tokenizer_of(), END)


class LlamaCpp:
    """llama.cpp in this process, asked through its HTTP server on 127.0.0.1."""

    def __init__(self, path, context_length=512):
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.n_ctx, params.n_parallel, params.verbosity = context_length, 1, 0
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
        params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        # Flash attention rounds to float16.
        params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        params.warmup = False
        self._server = xllamacpp.Server(params)
        # A server that is deleted before its loop has begun waits for that loop forever; /tokenize
        # is answered without the loop, /completion is not.
        self.greedy([0], 1)

    def _ask(self, path, **content):
        url = self._server.listening_address + path
        request = urllib.request.Request(url, json.dumps(content).encode())
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def encode(self, text):
        return self._ask("/tokenize", content=text, add_special=False, parse_special=False)[
            "tokens"
        ]

    def greedy(self, ids, count):
        options = {"temperature": 0, "ignore_eos": True, "cache_prompt": False}
        return self._ask("/completion", prompt=ids, n_predict=count, return_tokens=True, **options)[
            "tokens"
        ]

    def log_probability(self, ids, next_id, count=400):
        """The log-probability of `next_id` after ids."""
        found = self._ask(
            "/completion", prompt=ids, n_predict=1, n_probs=count, ignore_eos=True, temperature=0
        )
        tops = found["completion_probabilities"][0]["top_logprobs"]
        return next(each["logprob"] for each in tops if each["id"] == next_id)
