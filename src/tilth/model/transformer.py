"""The Transformer language model: token ids to the logits of the next token.

Parameter names are final: they are the names in every checkpoint.

>>> import torch
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
from torch.nn import Identity, Module, ModuleList

from tilth.config.model import ModelConfig
from tilth.config.parameters import drop_tied_head
from tilth.model import layers
from tilth.model.attention import MultiHeadSelfAttention, RotaryPositionalEmbedding
from tilth.model.layers import Device, Dtype, Embedding, Linear, RMSNorm, SwiGLU

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from jaxtyping import Float, Int

    from tilth.model.cache import LayerCache


class TransformerBlock(Module):
    """A Transformer block: attention, then a feed-forward layer, each with a residual connection.

    With `norm="pre"`:

        x <- x + attn(ln1(x))
        x <- x + ffn(ln2(x))

    With `norm="post"`:

        x <- ln1(x + attn(x))
        x <- ln2(x + ffn(x))

    Args:
        config: Shape of the model.
        device: Device of the weights.
        dtype: Data type of the weights.
        rope: Rotary position embedding, shared by the blocks of a model. Default: a new one.

    Shape:
        - x: (*, seq, d_model).
        - token_positions: see `RotaryPositionalEmbedding`.
        - Output: (*, seq, d_model).

    """

    def __init__(
        self,
        config: ModelConfig,
        device: Device = None,
        dtype: Dtype = None,
        *,
        rope: RotaryPositionalEmbedding | None = None,
    ) -> None:
        super().__init__()
        self.norm, d_model, eps = config.norm, config.d_model, config.norm_eps
        norm = Identity if config.norm == "none" else RMSNorm  # Identity ignores its arguments
        self.ln1 = norm(d_model, eps=eps, device=device, dtype=dtype)
        rope = rope or make_rope(config, device, dtype)
        self.attn = MultiHeadSelfAttention(
            d_model,
            config.num_heads,
            rope,
            config.num_kv_heads,
            device,
            dtype,
            qk_norm=config.qk_norm,
            d_head=config.d_head,
            qkv_bias=config.qkv_bias,
            norm_eps=eps,
        )
        self.ln2 = norm(d_model, eps=eps, device=device, dtype=dtype)
        feed_forward = SwiGLU if config.ffn == "swiglu" else layers.SiLUFeedForward
        self.ffn = feed_forward(d_model, config.d_ff, device, dtype)

    def forward(
        self,
        x: Float[Tensor, "*batch seq d_model"],
        token_positions: Int[Tensor, "*#batch seq"] | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "*batch seq d_model"]:
        """Apply the block; `cache` holds the keys and values of earlier tokens."""
        if self.norm == "post":  # as in the original Transformer (Vaswani et al. 2017)
            x = self.ln1(x + self.attn(x, token_positions, cache))
            x = self.ln2(x + self.ffn(x))
        else:
            # The residual stream is never normalized: gradients reach every layer undiminished,
            # and training needs less warm-up (Xiong et al. 2020).
            x = x + self.attn(self.ln1(x), token_positions, cache)
            x = x + self.ffn(self.ln2(x))
        return x


class TransformerLM(Module):
    """A decoder-only Transformer: token embedding, blocks, final norm and output matrix.

    Pre-norm models have a final norm; post-norm models and models without norms have none. With
    tied embeddings the token embedding is the output matrix, and there is no `lm_head`.

    Args:
        config: Shape of the model.
        device: Device of the weights.
        dtype: Data type of the weights.

    Shape:
        - token_ids: (*, seq), int64 or int32, seq <= context_length.
        - token_positions: see `RotaryPositionalEmbedding`.
        - Output: (*, seq, vocab_size). The logits at t depend on the ids up to t only.

    """

    def __init__(self, config: ModelConfig, device: Device = None, dtype: Dtype = None) -> None:
        super().__init__()
        self.config = config
        self.token_embeddings = Embedding(config.vocab_size, config.d_model, device, dtype)
        rope = make_rope(config, device, dtype)
        self.layers = ModuleList(
            TransformerBlock(config, device, dtype, rope=rope) for _ in range(config.num_layers)
        )
        norm = RMSNorm if config.norm == "pre" else Identity
        self.ln_final = norm(config.d_model, eps=config.norm_eps, device=device, dtype=dtype)
        if config.tie_embeddings:
            # As an output matrix, rows of variance 1 would turn hidden states of unit variance into
            # logits of variance d_model, and a first loss of hundreds. A variance of 1 / d_model
            # gives logits of variance 1 and a first loss of about log(vocab_size) + 1/2. As an
            # embedding, small rows do no harm before a norm.
            layers.init_truncated(self.token_embeddings.weight, variance=1 / config.d_model)
            self.lm_head = None
            self.register_load_state_dict_pre_hook(_drop_tied_head)  # type: ignore[no-untyped-call]
        else:
            self.lm_head = Linear(config.d_model, config.vocab_size, device, dtype)

    @property
    def head_weight(self) -> Float[Tensor, "vocab_size d_model"]:
        """The output matrix, from hidden states to logits."""
        return self.token_embeddings.weight if self.lm_head is None else self.lm_head.weight

    def forward(
        self,
        token_ids: Int[Tensor, "*batch seq"],
        token_positions: Int[Tensor, "*#batch seq"] | None = None,
    ) -> Float[Tensor, "*batch seq vocab_size"]:
        """Return the logits of the next token after each token."""
        return self.hidden(token_ids, token_positions) @ self.head_weight.T

    def hidden(
        self,
        token_ids: Int[Tensor, "*batch seq"],
        token_positions: Int[Tensor, "*#batch seq"] | None = None,
        cache: Sequence[LayerCache] | None = None,
    ) -> Float[Tensor, "*batch seq d_model"]:
        """Return the final hidden states, before `head_weight`; see `chunked_cross_entropy`.

        `cache` has one `LayerCache` for each layer; see `KeyValueCache`.
        """
        if token_ids.shape[-1] > self.config.context_length:
            raise ValueError(
                f"the sequence has {token_ids.shape[-1]} tokens, and the context length is "
                f"{self.config.context_length}; shorten it, or train a model with a longer context."
            )
        x: Tensor = self.token_embeddings(token_ids)
        for index, layer in enumerate(self.layers):
            x = layer(x, token_positions, None if cache is None else cache[index])
        hidden: Tensor = self.ln_final(x)
        return hidden

    def use_fast_path(self, fast: bool) -> Self:
        """Select the fused products and kernels (the default), or the definitions."""
        for module in self.modules():
            if isinstance(module, SwiGLU | MultiHeadSelfAttention):
                module.fast = fast
        return self


def _drop_tied_head(
    _module: Module, state_dict: dict[str, Tensor], prefix: str, *_arguments: object
) -> None:
    drop_tied_head(state_dict, prefix)


def build_model(
    config: ModelConfig, weights: Mapping[str, np.ndarray], device: str = "cpu"
) -> TransformerLM:
    """Return a model of weights, given by their names in a checkpoint."""
    model = TransformerLM(config, device="meta")
    tensors = {name: torch.tensor(weight, device=device) for name, weight in weights.items()}
    try:
        model.load_state_dict(tensors, assign=True)
    except RuntimeError as error:
        raise ValueError(" ".join(str(error).split())) from error
    return model


def make_rope(
    config: ModelConfig, device: Device, dtype: Dtype
) -> RotaryPositionalEmbedding | None:
    """Return the rotary position embedding of a model, or None."""
    if config.position != "rope":
        return None
    return RotaryPositionalEmbedding(
        config.rope_theta,
        config.d_head,
        config.context_length,
        device,
        dtype,
        scaling=config.rope_scaling,
    )
