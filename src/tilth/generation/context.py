"""What the model sees: the prompt as token ids, and what is left of them once they are too many.

What enters: a prompt, and each token that follows. What leaves: the ids that stand in the context.

>>> Context(range(5), context_length=6).append(99)
[99]
>>> full = Context(range(6), context_length=6)
>>> full.append(99)  # the older half is forgotten, and what is left is read again from its start
[4, 5, 99]
>>> full.ids
[4, 5, 99]
"""

import operator
from collections.abc import Iterable

from tilth.tokenizer import Tokenizer

END_TOKEN = "<|endoftext|>"  # noqa: S105, no password


class PromptError(ValueError):
    """A prompt that cannot be continued; another one may."""


def check_max_tokens(max_tokens: int) -> None:
    """Refuse to write nothing."""
    if operator.index(max_tokens) < 1:
        raise ValueError(f"max_tokens is {max_tokens}; write 1 token or more.")


def prompt_ids(
    tokenizer: Tokenizer, prompt: str, context_length: int, *, allow_special: bool = False
) -> list[int]:
    """The ids of a prompt; an empty one is the end token, behind which a document begins.

    A prompt is data: special tokens in it are text like any other, unless they are allowed.
    """
    try:
        ids = tokenizer.encode(prompt) if allow_special else tokenizer.encode_ordinary(prompt)
    except ValueError as error:  # a tokenizer that does not have every byte
        raise PromptError(str(error)) from error
    if not ids and END_TOKEN in tokenizer.special_tokens:
        ids = [tokenizer.special_tokens[END_TOKEN]]
    if not ids:
        raise PromptError(
            f"the prompt is empty, and the tokenizer has no {END_TOKEN}; give a word."
        )
    if len(ids) > context_length:
        raise PromptError(
            f"the prompt has {len(ids)} tokens, and the context length is {context_length}; "
            "shorten it."
        )
    return ids


class Context:
    """The ids that the next token depends on: at most `context_length`, the latest of all."""

    def __init__(self, ids: Iterable[int], context_length: int) -> None:
        self.ids = list(ids)
        self.context_length = context_length
        assert 0 < len(self.ids) <= context_length

    @property
    def is_full(self) -> bool:
        """Whether one more token makes it slide."""
        return len(self.ids) == self.context_length

    def append(self, token_id: int) -> list[int]:
        """Add a token; return the ids that the model must read now.

        A full context slides: it keeps its newer half. Rotations then begin at zero again, so the
        kept ids are read anew. That costs one pass over half a context for every half a context
        that is written, and what the model sees is always what it would see without a cache.
        """
        if not self.is_full:
            self.ids.append(token_id)
            return [token_id]
        self.ids = [*self.ids, token_id][-max(1, self.context_length // 2) :]
        return self.ids.copy()
