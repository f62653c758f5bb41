"""Parameter groups: which parameters have weight decay, and which are updated by Muon. No torch.

The order of the groups is the order of the parameters in an optimizer's state dict. So the names
and shapes of the parameters determine the shapes of the state.

>>> group_names({"token_embeddings.weight": 2, "ln.weight": 1, "w.weight": 2}, "adamw")
[Group(kind='adamw', decays=True, names=['w.weight'], is_embedding=False), \
Group(kind='adamw', decays=False, names=['token_embeddings.weight', 'ln.weight'], \
is_embedding=False)]
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Group:
    """The names of parameters with one update rule and one weight decay."""

    kind: Literal["muon", "adamw"]
    decays: bool
    names: list[str] = field(default_factory=list)
    is_embedding: bool = False  # a token embedding with its own learning rate


def group_names(
    ndims: Mapping[str, int], optimizer: str, *, own_embedding: bool = False
) -> list[Group]:
    """Group parameters, given by name and number of dimensions; omit empty groups.

    Matrices have weight decay. Norm gains do not, as the next norm would undo it; nor does the
    token embedding, as most steps do not update most of its rows. Muon updates the matrices of
    hidden layers only. With `own_embedding`, the token embedding is a group of its own; if it is
    the first parameter without decay, as in a `TransformerLM`, the order of all stays the same.
    """
    hidden = Group("muon", decays=True)
    decayed = Group("adamw", decays=True)
    embedding = Group("adamw", decays=False, is_embedding=True)
    undecayed = Group("adamw", decays=False)
    for name, ndim in ndims.items():
        parts = name.split(".")  # a wrapper may prefix the name
        if own_embedding and "token_embeddings" in parts:
            embedding.names.append(name)
        elif ndim < 2 or "token_embeddings" in parts:
            undecayed.names.append(name)
        elif optimizer == "muon" and ndim == 2 and "lm_head" not in parts:
            hidden.names.append(name)
        else:
            decayed.names.append(name)
    return [group for group in (hidden, decayed, embedding, undecayed) if group.names]
