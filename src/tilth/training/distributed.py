"""Training in several processes of `torchrun`: their group, and the gradients of a global batch.

Each rank takes its rows of the global batch. By default it has the whole model, and torch's
DistributedDataParallel averages the gradients while they are computed; `sharding.py` divides the
model instead, and `parallel.py` chooses. With `parallel.exact`, the gradients of fixed microbatches
are added in the order of the batch, from rank to rank: any number of ranks, also one, has the same
bits.

    torchrun --nproc-per-node 2 -m tilth train tiny --data data/stories --out runs/first --steps 100
"""

from __future__ import annotations

import atexit
import functools
import json
import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous
from torch.nn import Module
from torch.nn.parallel import DistributedDataParallel

from tilth.config.training import TrainingConfig
from tilth.data.batches import rows_of_rank
from tilth.schema import flat
from tilth.training.step import accumulate_gradients

if TYPE_CHECKING:
    from tilth.training.step import LossOf

# A rank waits this long for the others, which may write a sample or open a corpus meanwhile.
TIMEOUT = timedelta(minutes=10)
CONNECT_TIMEOUT = timedelta(minutes=2)
START = "start"  # key of the name of the newest start
POLL_SECONDS = 0.05
NO_JOB = "none"  # torchrun's default of --rdzv-id
LOST = (
    "another process of this training ended or cannot be reached; its own message says why. "
    "Resume the run, or let torchrun restart it (--max-restarts): it continues from the last "
    "checkpoint."
)


class LostRankError(OSError):
    """Another rank does not answer."""


@dataclass(frozen=True)
class Ranks:
    """The processes of a training, and which of them runs here; by default, there is one."""

    rank: int = 0
    size: int = 1
    is_restarted: bool = False
    """Whether torchrun has started one of the processes again, after a failure."""
    job: str = ""
    """The id of the training in torchrun (`--rdzv-id`), if it has one."""
    group: dist.ProcessGroup | None = None
    """The group that exchanges values; default that of all processes."""

    @property
    def is_first(self) -> bool:
        """Whether this rank writes the files and the messages of the run."""
        return self.rank == 0

    def with_own_group(self) -> Ranks:
        """Return the same ranks with another group, for a thread that exchanges values too."""
        if self.size == 1:
            return self
        with connecting():
            return replace(self, group=dist.new_group(timeout=TIMEOUT, backend="gloo"))

    def wait(self) -> None:
        """Wait for all ranks."""
        self.total(torch.zeros(1))

    def any(self, value: bool) -> bool:
        """Return whether the value is true on one of the ranks."""
        if self.size == 1:
            return value
        return bool(self.total(torch.tensor([float(value)])).item())

    def total(self, tensor: Tensor) -> Tensor:
        """Return the sum of a tensor over all ranks; the same bits on every rank."""
        if self.size > 1:
            with lost_ranks_explained():
                dist.all_reduce(tensor, group=self.group)
        return tensor

    def gathered(self, value: Any) -> list[Any]:  # noqa: ANN401, of JSON
        """Return the values of all ranks, which JSON can express."""
        if self.size == 1:
            return [value]
        data = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        sizes = torch.zeros(self.size, dtype=torch.int64)
        sizes[self.rank] = len(data)
        self.total(sizes)
        table = torch.zeros(self.size, int(sizes.max()), dtype=torch.uint8)
        table[self.rank, : len(data)] = data
        self.total(table)
        rows = zip(table, sizes.tolist(), strict=True)
        return [json.loads(row[:size].numpy().tobytes()) for row, size in rows]

    def rows_of(self, config: TrainingConfig) -> int:
        """Return the most rows of a batch that a rank takes; raise ValueError if one has none."""
        return len(rows_of_rank(config.batch_size, self.size - 1, self.size, config.rows_together))

    def check_same(self, config: TrainingConfig, others: Mapping[str, str]) -> None:
        """Raise ValueError unless all ranks have the same config and the same `others`.

        Their data folders may have different paths.
        """
        if self.size == 1:
            return
        values = {**flat(config.to_dict()), **others}
        values.pop("data", None)
        first, *rest = self.gathered({name: repr(value) for name, value in values.items()})
        for rank, own in enumerate(rest, 1):
            for name in sorted(first.keys() | own.keys()):
                if own.get(name) != first.get(name):
                    raise ValueError(
                        f"rank {rank} has {name} {own.get(name)}, and rank 0 has "
                        f"{first.get(name)}; start all ranks with the same data, weights, "
                        "config and packages."
                    )

    def check_same_start(self, step: int, checksums: Mapping[str, str]) -> None:
        """Raise ValueError unless all ranks start from the same checkpoint, of these files."""
        starts = self.gathered([step, dict(checksums)])
        if any(start != starts[0] for start in starts):
            steps = [start[0] for start in starts]
            raise ValueError(
                f"the ranks found different checkpoints (of steps {steps}); share the folder of "
                "the run between all machines."
            )


@functools.cache
def open_ranks() -> Ranks:
    """Join the other processes if torchrun started this one; the group lives as long as it."""
    if not dist.is_torchelastic_launched():
        return Ranks()
    # Of this host's torchrun: another one of the same training may have another count.
    is_restarted = int(os.environ["TORCHELASTIC_RESTART_COUNT"]) > 0
    job = os.environ["TORCHELASTIC_RUN_ID"]
    ranks = Ranks(is_restarted=is_restarted, job="" if job == NO_JOB else job)
    if int(os.environ["WORLD_SIZE"]) == 1:
        return ranks
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    with connecting():
        store, rank, size = next(rendezvous("env://", timeout=TIMEOUT))
        store = PrefixStore(name_of_start(store, rank, size), store)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT)
        atexit.register(dist.destroy_process_group)
        ranks = replace(ranks, rank=rank, size=size)
        ranks = replace(ranks, is_restarted=ranks.any(is_restarted))
    if not ranks.is_first:  # one rank narrates
        logging.getLogger("tilth").setLevel(logging.ERROR)
    return ranks


def name_of_start(store: Store, rank: int, size: int) -> str:
    """Return a name that only the ranks of this start have; all of them must call it.

    The store may outlive the ranks: without names of their own, new ranks read the addresses of
    killed ones, and wait for them without end. torchrun tells its ranks no number that is the same
    on all hosts: TORCHELASTIC_RESTART_COUNT counts the failures that one host's torchrun has seen,
    not the hosts that came or left. So rank 0 draws a name. A rank that reads it calls, as it may
    be that of an earlier start: only a rank 0 that is alive answers.
    """
    own = uuid.uuid4().hex
    if rank == 0:
        store.set(START, own)
        for other in range(1, size):
            call = store.get(f"{own}/call-{other}").decode()
            store.set(f"{own}/answer-{other}", call)
        return own
    while True:
        name = store.get(START).decode()
        answer = f"{name}/answer-{rank}"
        store.set(f"{name}/call-{rank}", own)
        while store.get(START).decode() == name:
            if store.check([answer]) and store.get(answer).decode() == own:
                return name
            time.sleep(POLL_SECONDS)


@contextmanager
def connecting() -> Iterator[None]:
    """Explain errors of the block, which makes a group, and limit its time."""

    def end() -> None:  # the C++ code that waits cannot be interrupted
        logging.getLogger("tilth").error(LOST)
        os._exit(os.EX_TEMPFAIL)

    timer = threading.Timer(CONNECT_TIMEOUT.total_seconds(), end)
    timer.daemon = True
    timer.start()
    try:
        with lost_ranks_explained():
            yield
    finally:
        timer.cancel()


@contextmanager
def lost_ranks_explained() -> Iterator[None]:
    """Turn an error of torch.distributed into one sentence."""
    try:
        yield
    except RuntimeError as error:
        words = ("gloo", "Connection", "connection", "NCCL", "timed out", "Timed out", "timeout")
        if isinstance(error, dist.DistError) or any(word in str(error) for word in words):
            raise LostRankError(LOST) from error
        raise


# --- gradients ------------------------------------------------------------------------------------

Gradients = Callable[[Tensor, Tensor], Tensor]
"""Set the gradients of the global batch from this rank's rows; return the mean loss."""


class LossModule(Module):
    """A model and its loss as one module, for DistributedDataParallel and `fully_shard`."""

    def __init__(self, model: Module, loss_of: LossOf) -> None:
        super().__init__()
        self.model, self.loss_of = model, loss_of

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the mean loss of a microbatch."""
        return self.loss_of(x, y)


def averaged_gradients(
    ranks: Ranks,
    model: Module,
    loss_of: LossOf,
    batch_size: int,
    microbatch_size: int,
    scaler: torch.amp.GradScaler,
) -> Gradients:
    """Return the gradients by DDP: averaged once for each batch, while they are computed."""
    with lost_ranks_explained():
        parallel = DistributedDataParallel(
            LossModule(model, loss_of), forward_sync_buffers=False, gradient_as_bucket_view=True
        )

    def synced(is_last: bool) -> AbstractContextManager[object]:
        return nullcontext() if is_last else parallel.no_sync()

    def gradients(x: Tensor, y: Tensor) -> Tensor:
        with lost_ranks_explained():
            total = accumulate_gradients(
                parallel, x, y, microbatch_size, scaler, synced, batch_size / ranks.size
            )
        return ranks.total(total) / ranks.size

    return gradients


def exact_gradients(
    ranks: Ranks,
    model: Module,
    loss_of: LossOf,
    batch_size: int,
    microbatch_size: int,
    scaler: torch.amp.GradScaler,
) -> Gradients:
    """Return the gradients as sums of those of all microbatches, in the order of the batch.

    A rank holds the gradients of all its microbatches, until it has the sum of the ranks before it.
    """
    parameters = list(model.parameters())
    sizes = [parameter.numel() for parameter in parameters]
    # Gradients and the loss. They are kept: in each step, memory of this size would leave gaps.
    buffers: list[Tensor] = []

    def buffer(number: int) -> Tensor:
        if number == len(buffers):
            buffers.append(torch.empty(sum(sizes) + 1, device=parameters[0].device))
        return buffers[number]

    def set_gradients(out: Tensor) -> None:
        for parameter, gradient in zip(parameters, out[:-1].split_with_sizes(sizes), strict=True):
            parameter.grad = gradient.view_as(parameter)

    def gradients(x: Tensor, y: Tensor) -> Tensor:
        weight = microbatch_size / batch_size

        def of_microbatch(first: int, out: Tensor) -> Tensor:
            rows = slice(first, first + microbatch_size)
            set_gradients(out.zero_())
            loss = loss_of(x[rows], y[rows]) * weight
            scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
            out[-1] = loss.detach()
            return out

        starts = range(0, len(x), microbatch_size)
        total = buffer(0)
        if ranks.is_first:
            of_microbatch(starts[0], total)
            parts: Iterable[Tensor] = (of_microbatch(each, buffer(1)) for each in starts[1:])
        else:  # the gradients first: all ranks compute them at the same time
            parts = [of_microbatch(each, buffer(n)) for n, each in enumerate(starts, 1)]
            with lost_ranks_explained():
                dist.recv(total, ranks.rank - 1)
        for part in parts:
            total += part
        if ranks.size > 1:
            with lost_ranks_explained():
                if ranks.rank < ranks.size - 1:
                    dist.send(total, ranks.rank + 1)
                dist.broadcast(total, ranks.size - 1)
        set_gradients(total)
        return total[-1].clone()

    return gradients
