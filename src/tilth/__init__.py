"""tilth grows a language model from plain text.

The way through the house, each room a package, each door a file:

    text -> corpus -> tokenizer -> data -> model -> training -> a run directory -> generation

>>> import tilth
>>> tokenizer = tilth.train_tokenizer(texts=["seed by seed"], vocab_size=260)
>>> tokenizer.decode(tokenizer.encode("a seed"))
'a seed'

Importing tilth is cheap: a name is loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilth.data import Batches, Data, get_batch, open_data, tokenize
    from tilth.model import (
        Embedding,
        Linear,
        ModelConfig,
        MultiHeadSelfAttention,
        RMSNorm,
        RotaryPositionalEmbedding,
        SwiGLU,
        TransformerBlock,
        TransformerLM,
        scaled_dot_product_attention,
        silu,
        softmax,
    )
    from tilth.optim import (
        SGD,
        AdamW,
        Muon,
        clip_gradients,
        cosine_schedule,
        cross_entropy,
        perplexity,
    )
    from tilth.runs import load_checkpoint, save_checkpoint
    from tilth.tokenizer import Tokenizer, split, train_bpe, train_tokenizer

__all__ = [
    "SGD",
    "AdamW",
    "Batches",
    "Data",
    "Embedding",
    "Linear",
    "ModelConfig",
    "MultiHeadSelfAttention",
    "Muon",
    "RMSNorm",
    "RotaryPositionalEmbedding",
    "SwiGLU",
    "Tokenizer",
    "TransformerBlock",
    "TransformerLM",
    "__version__",
    "clip_gradients",
    "cosine_schedule",
    "cross_entropy",
    "get_batch",
    "load_checkpoint",
    "open_data",
    "perplexity",
    "save_checkpoint",
    "scaled_dot_product_attention",
    "silu",
    "softmax",
    "split",
    "tokenize",
    "train_bpe",
    "train_tokenizer",
]

__version__ = "0.1.0"

# Where each public name lives, room by room along the way.
_ROOMS = {
    "tilth.tokenizer": ["Tokenizer", "split", "train_bpe", "train_tokenizer"],
    "tilth.data": ["Batches", "Data", "get_batch", "open_data", "tokenize"],
    "tilth.model": [
        "Embedding",
        "Linear",
        "ModelConfig",
        "MultiHeadSelfAttention",
        "RMSNorm",
        "RotaryPositionalEmbedding",
        "SwiGLU",
        "TransformerBlock",
        "TransformerLM",
        "scaled_dot_product_attention",
        "silu",
        "softmax",
    ],
    "tilth.optim": [
        "SGD",
        "AdamW",
        "Muon",
        "clip_gradients",
        "cosine_schedule",
        "cross_entropy",
        "perplexity",
    ],
    "tilth.runs": ["load_checkpoint", "save_checkpoint"],
}
_HOME = {name: room for room, names in _ROOMS.items() for name in names}


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'tilth' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
