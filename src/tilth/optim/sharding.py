"""Matrices whose rows are divided among processes, as `torch.chunk` divides them.

Each process of a group has consecutive rows: all have ceil(rows / processes), except the last ones,
which may have fewer or none. This is how FSDP2 divides parameters.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Parameter


@dataclass(frozen=True, eq=False)
class Shard:
    """The rows of one matrix that this process has."""

    parameter: Parameter
    """These rows, which an optimizer updates."""
    shape: tuple[int, ...]
    """The shape of the whole matrix."""
    group: dist.ProcessGroup
    """The processes that have the other rows."""

    @property
    def _chunk(self) -> int:
        return -(-self.shape[0] // self.group.size())

    def of(self, whole: Tensor) -> Tensor:
        """Return the rows of this process of (..., rows, columns); a view."""
        first = self.group.rank() * self._chunk
        return whole[..., first : first + self._chunk, :]

    def gathered(self, own: Tensor) -> Tensor:
        """Return (..., rows, columns) from the rows of all processes; all of them must call it."""
        # Collectives take equal sizes: the last rows are padded.
        padded = own.new_zeros((*own.shape[:-2], self._chunk, own.shape[-1]))
        padded[..., : own.shape[-2], :] = own
        parts = own.new_empty(self.group.size() * padded.numel())
        dist.all_gather_single(parts, padded.view(-1), self.group)
        rows = parts.view(self.group.size(), *padded.shape).unbind()
        return torch.cat(rows, -2)[..., : self.shape[0], :]
