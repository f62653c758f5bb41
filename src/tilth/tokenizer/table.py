"""The tokens and merges of a native table, as a mapping and a sequence that are built when read.

A vocabulary of 200,000 tokens loads in a tenth of a second; building its Python objects would
take three times as long, and encoding does not need them.

>>> table = VocabularyTable([(0, b"h"), (1, b"i"), (2, b"hi")], [(b"h", b"i")])
>>> TableTokens(table)[2], list(TableMerges(table))
(b'hi', [(b'h', b'i')])
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import overload

from tilth.tokenizer._core import VocabularyTable

Pair = tuple[bytes, bytes]


class TableTokens(Mapping[int, bytes]):
    """The bytes of each id; `special` are tokens that are not in the table."""

    def __init__(self, table: VocabularyTable, special: Mapping[int, bytes] | None = None) -> None:
        self.table = table
        self.special = dict(special or {})

    @cached_property
    def _tokens(self) -> dict[int, bytes]:
        return self.table.tokens() | self.special

    def __getitem__(self, token_id: int) -> bytes:
        return self._tokens[token_id]

    def __iter__(self) -> Iterator[int]:
        return iter(self._tokens)

    def __len__(self) -> int:
        return len(self.table) + len(self.special)


class TableMerges(Sequence[Pair]):
    """The merges in order of priority; equal to a tuple of the same pairs."""

    def __init__(self, table: VocabularyTable) -> None:
        self.table = table

    @cached_property
    def _pairs(self) -> tuple[Pair, ...]:
        return self.table.merges()

    @overload
    def __getitem__(self, place: int) -> Pair: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Pair, ...]: ...
    def __getitem__(self, place: int | slice) -> Pair | tuple[Pair, ...]:
        return self._pairs[place]

    def __len__(self) -> int:
        return self.table.num_merges

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TableMerges):
            other = other._pairs
        return self._pairs == other

    def __hash__(self) -> int:
        return hash(self._pairs)

    def __repr__(self) -> str:
        return repr(self._pairs)
