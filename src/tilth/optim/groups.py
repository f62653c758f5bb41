"""Parameter groups: which parameters decay, and which are updated by Muon. No torch here.

The order of the groups is the order of the parameters in an optimizer's state dict, so a reader can
tell the shapes that the state must have from the names and shapes of the parameters alone.

>>> group_names({"token_embeddings.weight": 2, "ln.weight": 1, "w.weight": 2}, "adamw")
[Group(kind='adamw', decays=True, names=['w.weight']), \
Group(kind='adamw', decays=False, names=['token_embeddings.weight', 'ln.weight'])]
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Group:
    """The names of the parameters that share an update rule and a weight decay."""

    kind: Literal["muon", "adamw"]
    decays: bool
    names: list[str]


def group_names(ndims: Mapping[str, int], optimizer: str) -> list[Group]:
    """Group parameters, given by name and number of dimensions; empty groups are left out.

    Matrices decay. Norm gains are scales that the next norm would undo, and most steps do not touch
    most rows of the token embedding, so neither decays. Muon updates the matrices of the hidden
    layers only.
    """
    hidden, decayed, kept = (
        Group("muon", True, []),
        Group("adamw", True, []),
        Group("adamw", False, []),
    )
    for name, ndim in ndims.items():
        parts = name.split(".")  # a wrapper may prefix the name
        if ndim < 2 or "token_embeddings" in parts:
            kept.names.append(name)
        elif optimizer == "muon" and ndim == 2 and "lm_head" not in parts:
            hidden.names.append(name)
        else:
            decayed.names.append(name)
    return [group for group in (hidden, decayed, kept) if group.names]
