"""The Transformer: token ids in, a score for every possible next token out.

What enters: a `ModelConfig`, then ids of shape (..., seq). What leaves: logits (..., seq,
vocab_size), where those at t depend on the ids up to t alone. Parameter names are final: they are
the names in every checkpoint.

>>> config = ModelConfig(vocab_size=100, context_length=16, d_model=32, num_layers=2, num_heads=4)
>>> model = TransformerLM(config)
>>> model(torch.tensor([[5, 17, 99]])).shape
torch.Size([1, 3, 100])
>>> list(model.state_dict())[:4]  # doctest: +NORMALIZE_WHITESPACE
['token_embeddings.weight', 'layers.0.ln1.weight', 'layers.0.attn.q_proj.weight',
 'layers.0.attn.k_proj.weight']
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor
from torch.nn import Module, ModuleList

from tilth.config.model import ModelConfig
from tilth.config.parameters import drop_tied_head
from tilth.model.attention import MultiHeadSelfAttention, RotaryPositionalEmbedding
from tilth.model.layers import (
    Device,
    Embedding,
    Linear,
    RMSNorm,
    SiLUFeedForward,
    SwiGLU,
    init_truncated,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float, Int

    from tilth.model.cache import LayerCache


class TransformerBlock(Module):
    """Attention, then a feed-forward; each adds to the stream that it read from."""

    def __init__(
        self,
        config: ModelConfig,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        rope: RotaryPositionalEmbedding | None = None,
    ) -> None:
        """Make a block; blocks of one model share their `rope`, one alone makes its own."""
        super().__init__()
        self.norm = config.norm
        rope = rope or make_rope(config, device, dtype)
        if config.norm != "none":
            self.ln1 = RMSNorm(config.d_model, device=device, dtype=dtype)
        self.attn = MultiHeadSelfAttention(
            config.d_model,
            config.num_heads,
            rope,
            config.num_kv_heads,
            qk_norm=config.qk_norm,
            device=device,
            dtype=dtype,
        )
        if config.norm != "none":
            self.ln2 = RMSNorm(config.d_model, device=device, dtype=dtype)
        feed_forward = SwiGLU if config.ffn == "swiglu" else SiLUFeedForward
        self.ffn = feed_forward(config.d_model, config.d_ff, device, dtype)

    def forward(
        self,
        x: Float[Tensor, "*batch seq d_model"],
        token_positions: Int[Tensor, "*#batch seq"] | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "*batch seq d_model"]:
        """Take the stream one block further; `cache` holds the keys and values of tokens before."""
        if self.norm == "pre":
            # The stream itself is never normalised: gradients reach every layer undiminished, and
            # training needs less warm-up (Xiong et al. 2020).
            x = x + self.attn(self.ln1(x), token_positions, cache)
            x = x + self.ffn(self.ln2(x))
        elif self.norm == "post":  # as in the original Transformer (Vaswani et al. 2017)
            x = self.ln1(x + self.attn(x, token_positions, cache))
            x = self.ln2(x + self.ffn(x))
        else:
            x = x + self.attn(x, token_positions, cache)
            x = x + self.ffn(x)
        return x


class TransformerLM(Module):
    """A language model: embeddings, blocks, a final norm, and the output matrix.

    Post-norm has no final norm, as its last block ends in one; without norms the final one is gone
    too. Where the output matrix is tied, there is no `lm_head`.
    """

    def __init__(
        self, config: ModelConfig, device: Device = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        self.config = config
        self.token_embeddings = Embedding(config.vocab_size, config.d_model, device, dtype)
        rope = make_rope(config, device, dtype)
        self.layers = ModuleList(
            TransformerBlock(config, device, dtype, rope=rope) for _ in range(config.num_layers)
        )
        self.ln_final = (
            RMSNorm(config.d_model, device=device, dtype=dtype) if config.norm == "pre" else None
        )
        if config.tie_embeddings:
            # As an output matrix, rows of variance 1 would turn hidden states of unit variance into
            # logits of variance d_model, and a first loss of hundreds. 1 / d_model makes those 1,
            # and the first loss about log(vocab_size) + 1/2. As an embedding the small rows do no
            # harm before a norm.
            init_truncated(self.token_embeddings.weight, variance=1 / config.d_model)
            self.lm_head = None
            self.register_load_state_dict_pre_hook(_drop_tied_head)  # type: ignore[no-untyped-call]
        else:
            self.lm_head = Linear(config.d_model, config.vocab_size, device, dtype)

    @property
    def head_weight(self) -> Float[Tensor, "vocab_size d_model"]:
        """The matrix that turns hidden states into logits."""
        return self.token_embeddings.weight if self.lm_head is None else self.lm_head.weight

    def forward(
        self,
        token_ids: Int[Tensor, "*batch seq"],
        token_positions: Int[Tensor, "*#batch seq"] | None = None,
    ) -> Float[Tensor, "*batch seq vocab_size"]:
        """Score every token of the vocabulary as the next one, after each token."""
        return self.hidden(token_ids, token_positions) @ self.head_weight.T

    def hidden(
        self,
        token_ids: Int[Tensor, "*batch seq"],
        token_positions: Int[Tensor, "*#batch seq"] | None = None,
        cache: Sequence[LayerCache] | None = None,
    ) -> Float[Tensor, "*batch seq d_model"]:
        """Return what `head_weight` is applied to: the loss takes it in chunks, to save memory.

        `cache` has one `LayerCache` a layer: see `KeyValueCache`.
        """
        if token_ids.shape[-1] > self.config.context_length:
            raise ValueError(
                f"the sequence has {token_ids.shape[-1]} tokens, and the context length is "
                f"{self.config.context_length}; cut it, or train a model with a longer one."
            )
        x: Tensor = self.token_embeddings(token_ids)
        for index, layer in enumerate(self.layers):
            x = layer(x, token_positions, None if cache is None else cache[index])
        return x if self.ln_final is None else self.ln_final(x)

    def use_fast_path(self, fast: bool) -> Self:
        """Choose fused products and kernels (so it begins), or the definitions they must equal."""
        for module in self.modules():
            if isinstance(module, SwiGLU | MultiHeadSelfAttention):
                module.fast = fast
        return self


def _drop_tied_head(
    _module: Module, state_dict: dict[str, Tensor], prefix: str, *_arguments: object
) -> None:
    drop_tied_head(state_dict, prefix)


def make_rope(
    config: ModelConfig, device: Device, dtype: torch.dtype | None
) -> RotaryPositionalEmbedding | None:
    """Make the rotation that all blocks of a model share; None without one."""
    if config.position != "rope":
        return None
    return RotaryPositionalEmbedding(
        config.rope_theta, config.d_head, config.context_length, device, dtype
    )
