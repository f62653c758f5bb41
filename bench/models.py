"""Peers as torch modules: Hugging Face's Llama with our weights, and nanoGPT's GPT-2.

Imports torch, so only the `setup` of a contender imports it.
"""

import math
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tilth.config.model import ModelConfig

HUGGING_FACE_NAMES = {
    "token_embeddings": "model.embed_tokens",
    "layers.": "model.layers.",
    "ln1": "input_layernorm",
    "ln2": "post_attention_layernorm",
    "ln_final": "model.norm",
    "attn.": "self_attn.",
    "output_proj": "o_proj",
    "ffn.w1": "mlp.gate_proj",
    "ffn.w2": "mlp.down_proj",
    "ffn.w3": "mlp.up_proj",
}


def renamed(name: str, names: dict[str, str]) -> str:
    """Return the name of a tensor with parts replaced."""
    for ours, theirs in names.items():
        name = name.replace(ours, theirs)
    return name


def make_llama(config: ModelConfig, weights: dict[str, Tensor], **options: Any) -> Any:  # noqa: ANN401
    """Return Hugging Face's Llama with our weights; `options` are fields of its config."""
    from transformers import LlamaConfig, LlamaForCausalLM

    llama = LlamaForCausalLM(  # type: ignore[no-untyped-call]
        LlamaConfig(  # type: ignore[call-arg]
            vocab_size=config.vocab_size,
            hidden_size=config.d_model,
            intermediate_size=config.d_ff,
            num_hidden_layers=config.num_layers,
            num_attention_heads=config.num_heads,
            max_position_embeddings=config.context_length,
            rms_norm_eps=1e-5,
            attn_implementation="sdpa",
            **options,
        )
    )
    # Llama rotates the pairs (k, k + d/2), tilth (2k, 2k + 1): the even rows of a head come first.
    order = torch.cat([torch.arange(0, config.d_head, 2), torch.arange(1, config.d_head, 2)])
    state = {}
    for name, weight in weights.items():
        if "q_proj" in name or "k_proj" in name:
            heads = weight.reshape(-1, config.d_head, config.d_model)
            weight = heads[:, order].flatten(0, 1)  # noqa: PLW2901
        state[renamed(name, HUGGING_FACE_NAMES)] = weight
    llama.load_state_dict(state)
    return llama


class Block(nn.Module):
    """A block of GPT-2 as nanoGPT writes it."""

    def __init__(self, d_model: int, num_heads: int, bias: bool) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.ln_1, self.ln_2 = (nn.LayerNorm(d_model, bias=bias) for _ in range(2))
        self.c_attn = nn.Linear(d_model, 3 * d_model, bias)
        self.attn_proj = nn.Linear(d_model, d_model, bias)
        self.c_fc = nn.Linear(d_model, 4 * d_model, bias)
        self.mlp_proj = nn.Linear(4 * d_model, d_model, bias)

    def forward(self, x: Tensor) -> Tensor:
        """Add attention and the feed-forward layer to the residual stream."""
        q, k, v = (
            part.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # (batch, heads, seq, d_head)
            for part in self.c_attn(self.ln_1(x)).chunk(3, dim=-1)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn_proj(mixed.transpose(1, 2).flatten(2))
        x = x + self.mlp_proj(functional.gelu(self.c_fc(self.ln_2(x))))
        return x


class NanoGPT(nn.Module):
    """GPT-2 as nanoGPT trains it: learned positions, LayerNorm, GELU."""

    def __init__(self, shape: ModelConfig, *, bias: bool = True) -> None:
        super().__init__()
        self.config = SimpleNamespace(context_length=shape.context_length)  # for `evaluate`
        self.wte = nn.Embedding(shape.vocab_size, shape.d_model)
        self.wpe = nn.Embedding(shape.context_length, shape.d_model)
        self.blocks = nn.ModuleList(
            Block(shape.d_model, shape.num_heads, bias) for _ in range(shape.num_layers)
        )
        self.ln_f = nn.LayerNorm(shape.d_model, bias=bias)
        self.lm_head = nn.Linear(shape.d_model, shape.vocab_size, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                into_stream = name.endswith("_proj.weight")  # two per block add to the stream
                depth = math.sqrt(2 * shape.num_layers) if into_stream else 1.0
                nn.init.normal_(parameter, std=0.02 / depth)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
        if shape.tie_embeddings:
            self.lm_head.weight = self.wte.weight

    @property
    def head_weight(self) -> Tensor:
        """The output matrix."""
        return self.lm_head.weight

    def hidden(self, token_ids: Tensor) -> Tensor:
        """Return the input of the output matrix."""
        x: Tensor = self.wte(token_ids) + self.wpe.weight[: token_ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        normed: Tensor = self.ln_f(x)
        return normed

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the loss over the full logits."""
        logits = self.lm_head(self.hidden(x)).flatten(0, 1)
        return functional.cross_entropy(logits, y.flatten())
