"""Many prompts at once, in torch: each weight that is read serves all of them.

What enters: a model, and prompts of any lengths. What leaves: for each its continuation, each with
its own end. Chance is that of `generate` with sample index 0, 1, 2, ...

>>> import tilth
>>> config = tilth.ModelConfig(257, context_length=16, d_model=32, num_layers=2, num_heads=4)
>>> model = tilth.TransformerLM(config)
>>> tokenizer = tilth.Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<|endoftext|>"])
>>> len(generate_batch(model, tokenizer, ["a", "many words"], max_tokens=20))
2
"""

from __future__ import annotations

from collections.abc import Sequence

from tilth.generation.cache import CachedModel
from tilth.generation.context import END_TOKEN, Context, check_max_tokens, prompt_ids
from tilth.generation.sampling import Sampling, choose
from tilth.model.transformer import TransformerLM
from tilth.tokenizer import Tokenizer


def generate_batch(
    model: TransformerLM,
    tokenizer: Tokenizer,
    prompts: Sequence[str],
    *,
    max_tokens: int = 256,
    sampling: Sampling | None = None,
    allow_special: bool = False,
) -> list[str]:
    """Continue every prompt up to its end token or `max_tokens`; a full context slides."""
    if isinstance(prompts, str):
        raise ValueError("generate_batch takes a list of prompts; for one, call generate.")
    check_max_tokens(max_tokens)
    sampling = sampling or Sampling()
    length = model.config.context_length
    contexts = [
        Context(prompt_ids(tokenizer, prompt, length, allow_special=allow_special), length)
        for prompt in prompts
    ]
    starts = [len(context.ids) for context in contexts]
    end_id = tokenizer.special_tokens.get(END_TOKEN)
    written: list[list[int]] = [[] for _ in prompts]
    cached = CachedModel(model, len(prompts))
    unread = [list(context.ids) for context in contexts]  # empty, once a sequence is over
    while any(unread):
        for row, (ids, context) in enumerate(zip(unread, contexts, strict=True)):
            if len(ids) == len(context.ids):  # the prompt, or what a slide has left
                cached.truncate(row, 0)
        logits = cached.extend(unread, every=False)[:, 0, : tokenizer.vocab_size].float().cpu()
        for row, context in enumerate(contexts):
            if not unread[row]:
                continue
            token_id = choose(
                logits[row].numpy(),
                sampling,
                sample_index=row,
                position=starts[row] + len(written[row]),
                previous_ids=context.ids,
            )
            if token_id == end_id:
                unread[row] = []
                continue
            written[row].append(token_id)
            unread[row] = context.append(token_id) if len(written[row]) < max_tokens else []
    return [tokenizer.decode(ids) for ids in written]
