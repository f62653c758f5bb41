"""A model that ranks share by FSDP2 (`fully_shard`): each has some rows of every matrix.

A block is gathered from all ranks when it is computed, and freed afterwards; its gradients are
added up among the ranks, and each rank keeps those of its rows. Norm gains and biases are small:
every rank has all of them. With fewer shards than ranks, groups of ranks have copies of the model.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.distributed_c10d import _set_pg_timeout
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn import Parameter

from tilth.model import TransformerLM
from tilth.optim.muon import Muon
from tilth.optim.sharding import Shard
from tilth.training.distributed import (
    TIMEOUT,
    LossModule,
    Ranks,
    connecting,
    lost_ranks_explained,
)
from tilth.training.machine import DTYPES
from tilth.training.step import accumulate_gradients, make_loss

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from tilth.config.training import ResolvedMachine


class ShardedModel:
    """A model whose matrices are divided among ranks.

    Args:
        model: The model; its matrices become DTensors, in place.
        machine: Device and precision.
        ranks: All ranks.
        num_shards: Ranks that share one copy of the model; divides their number.

    Attributes:
        shards: The rows of this rank of each matrix, by name. An optimizer updates
            `shards[name].parameter`, which has the memory of the DTensor.

    """

    def __init__(
        self, model: TransformerLM, machine: ResolvedMachine, ranks: Ranks, num_shards: int
    ) -> None:
        self.model, self.ranks = model, ranks
        self._copies = ranks.size // num_shards
        kind = torch.device(machine.device).type
        with connecting():
            whole = init_device_mesh(
                kind, (self._copies, num_shards), mesh_dim_names=("copy", "shard")
            )
            mesh = whole if self._copies > 1 else whole["shard"]
            # They are made with a timeout of 30 minutes, and no public function changes it.
            for group in whole.get_all_groups():
                _set_pg_timeout(TIMEOUT, group)
            self._vectors = [p for p in model.parameters() if p.ndim < 2]
            narrow = None if machine.dtype == "float32" else DTYPES[machine.dtype]
            # As autocast: products in the narrow type, all else in float32. The embedding and the
            # output matrix belong to the root; the loss converts the latter itself.
            own = MixedPrecisionPolicy(narrow, torch.float32, cast_forward_inputs=False)
            root = MixedPrecisionPolicy(cast_forward_inputs=False)
            ignored = {*self._vectors}
            for layer in model.layers:
                fully_shard(layer, mesh=mesh, mp_policy=own, ignored_params=ignored)
            self.root = LossModule(model, make_loss(model, machine))
            fully_shard(self.root, mesh=mesh, mp_policy=root, ignored_params=ignored)
            assert isinstance(self.root, FSDPModule)  # its class has changed
            self._fsdp: FSDPModule = self.root
        self._dtensors = {n: p for n, p in model.named_parameters() if isinstance(p, DTensor)}
        self.shards = {
            name: Shard(Parameter(p.to_local().detach()), tuple(p.shape), mesh.get_group("shard"))
            for name, p in self._dtensors.items()
        }

    def own(self, name: str, parameter: Tensor) -> Tensor:
        """Return what an optimizer updates of a parameter of the model."""
        return self.shards[name].parameter if name in self.shards else parameter

    def prepare(self, optimizer: Optimizer) -> None:
        """Tell an optimizer of the parameters of this rank what is divided."""
        shards = {shard.parameter: shard for shard in self.shards.values()}
        if isinstance(optimizer, Muon):
            optimizer.shards = shards
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        shares = [1 / (self._copies if p in shards else self.ranks.size) for p in parameters]
        self._shares = torch.tensor(shares, dtype=torch.float64, device=parameters[0].device)

    def global_norm(self, norms: Tensor) -> Tensor:
        """Return the global norm, from the norms of this rank's parameters in their order."""
        own = (norms.double().square() * self._shares).sum()
        return self.ranks.total(own).sqrt().to(norms.dtype)

    def _synced(self, is_last: bool) -> nullcontext[None]:
        self._fsdp.set_requires_gradient_sync(is_last)
        return nullcontext()

    def gradients(self, x: Tensor, y: Tensor, batch_size: int, microbatch_size: int) -> Tensor:
        """Set the gradients of the global batch on what is updated; return the mean loss."""
        scaler = torch.amp.GradScaler(x.device.type, enabled=False)
        with lost_ranks_explained():
            # Ranks with more rows need the shard of a rank without rows left.
            total = accumulate_gradients(
                *(self.root, x, y, microbatch_size, scaler, self._synced),
                mean_over=batch_size / self.ranks.size,
                padded_rows=-(-batch_size // self.ranks.size),
            )
        for name, shard in self.shards.items():
            found = self._dtensors[name].grad
            # A rank without rows has no gradient.
            own = found.to_local() if isinstance(found, DTensor) else None
            shard.parameter.grad = torch.zeros_like(shard.parameter) if own is None else own
            self._dtensors[name].grad = None
        # The sums of the vectors, and of the loss.
        parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in self._vectors]
        means = self.ranks.total(torch.cat([total.reshape(1), *parts])) / self.ranks.size
        sizes = [1, *(p.numel() for p in self._vectors)]
        mean_loss, *gradients = means.split_with_sizes(sizes)
        for parameter, gradient in zip(self._vectors, gradients, strict=True):
            parameter.grad = gradient
        return mean_loss.squeeze()

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the loss without gradients; all ranks must call it equally often."""
        with lost_ranks_explained():
            found: Tensor = self.root(x, y)
            self._fsdp.reshard()  # else the next forward pass would take these weights again
        return found.detach()

    def whole(self) -> TransformerLM | None:
        """Return a copy of the whole model with its gradients on rank 0, None on other ranks."""
        weights: dict[str, Tensor] = {}
        gradients: dict[str, Tensor | None] = {}
        for name, parameter in self.model.named_parameters():
            own = self.own(name, parameter)
            weight, gradient = own.detach(), own.grad
            if name in self.shards:
                with lost_ranks_explained():
                    weight = self.shards[name].gathered(weight)
                    if gradient is not None:
                        gradient = self.shards[name].gathered(gradient)
            if self.ranks.is_first:
                weights[name], gradients[name] = weight, gradient
        if not self.ranks.is_first:
            return None
        model = TransformerLM(self.model.config, device="meta")
        model.load_state_dict(weights, assign=True)
        for name, parameter in model.named_parameters():
            parameter.grad = gradients[name]
        return model
