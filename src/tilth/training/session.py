"""The state of a training run between two steps, and the next step.

A session starts from the newest intact checkpoint of a run, or from new weights. Batches and
learning rates are functions of the step number, so a checkpoint does not hold them.
"""

import logging
import math
import random
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import torch

from tilth.accounting.flops import training_flops_per_token
from tilth.data import Data
from tilth.files import FileError
from tilth.formats.model_files import ModelFiles
from tilth.generation import LanguageModel
from tilth.model import TransformerLM
from tilth.optim.sharding import Shard
from tilth.runs.checkpoints import Checkpoint, folder_name, is_in_history
from tilth.runs.metrics import Evaluation, StepRecord, finite_or_none
from tilth.runs.run import Run, check_same_config, versions
from tilth.runs.state import CheckpointWriter, load_state, random_state, set_random_state
from tilth.schema import read
from tilth.training.allocator import return_freed_memory
from tilth.training.distributed import (
    Gradients,
    Ranks,
    averaged_gradients,
    exact_gradients,
    lost_ranks_explained,
)
from tilth.training.evaluation import ONE_RANK, evaluate
from tilth.training.guards import DivergedError, Guard
from tilth.training.machine import measured_peak
from tilth.training.norms import measure_norms
from tilth.training.parallel import ONE_PROCESS, Division
from tilth.training.sharding import ShardedModel
from tilth.training.step import (
    accumulate_gradients,
    autocast_of,
    compiled,
    learning_rate,
    make_loss,
    make_optimizer,
    make_scaler,
    set_momentum,
    update,
)

SPEED_STEPS = 20  # that the throughput is averaged over

log = logging.getLogger(__name__)


class Session:
    """The model, its optimizer and all other state that the next step depends on."""

    def __init__(
        self,
        run: Run,
        data: Data,
        device: torch.device,
        initial: ModelFiles | None = None,
        ranks: Ranks = ONE_RANK,
        division: Division = ONE_PROCESS,
    ) -> None:
        config = self.config = run.config
        self.ranks, self.division = ranks, division
        self._initial = initial
        self.sharded: ShardedModel | None = None
        self.run, self.device = run, device
        self.valid, self.tokenizer = data.valid, run.tokenizer()
        self.problem = ""  # why the run must end
        self._begin()
        self.loss_of = make_loss(self.model, config.machine)
        if config.machine.compile and self.sharded is None:
            machine = config.machine
            self.loss_of = compiled(self.loss_of, machine.device, machine.compile_mode)
        rows = min(config.microbatch_size, ranks.rows_of(config))
        parts = (ranks, self.model, self.loss_of, config.batch_size, rows, self.scaler)
        self.gradients: Gradients = lambda x, y: accumulate_gradients(
            self.loss_of, x, y, rows, self.scaler
        )
        if self.sharded is not None:
            sharded = self.sharded
            self.gradients = lambda x, y: sharded.gradients(x, y, config.batch_size, rows)
        elif config.parallel.exact:
            self.gradients = exact_gradients(*parts)
        elif ranks.size > 1:
            self.gradients = averaged_gradients(*parts)
        self.peak_flops = measured_peak(device, config.machine.dtype)
        self.recent_seconds: deque[float] = deque(maxlen=SPEED_STEPS)
        self.began = time.monotonic() - self.seconds_before

    def _begin(self) -> None:
        """Load the newest intact checkpoint; if the run has no checkpoints, start from step 0."""
        checkpoints = self.run.checkpoints()
        for checkpoint in reversed(checkpoints):
            try:
                return self._restore(checkpoint)
            except FileError as error:
                log.warning("%s; trying the previous checkpoint.", error)
        needs_one = self.config.optimizer.begin_step or self.run.manifest.initial
        if checkpoints or (needs_one and self._initial is None):  # extended, or of given weights
            hint = "restore one, or start a new run"
            raise FileError(self.run.folder, "has no intact checkpoint", hint)
        self._make(self._initial)

    def _make(self, initial: ModelFiles | None = None) -> None:
        config = self.config
        random.seed(config.seed)
        np.random.seed(config.seed % 2**32)
        torch.manual_seed(config.seed)
        if self.division.kind == "fsdp":
            return_freed_memory()
        # Initialized on the CPU: every device starts from the same weights.
        self.model = TransformerLM(config.model).to(self.device)
        if initial is not None:
            weights = initial.weights
            tensors = {name: torch.tensor(weight) for name, weight in weights.items()}
            self.model.load_state_dict(tensors)
        make = partial(make_optimizer, self.model, config.optimizer, config.machine.dtype)
        if self.division.kind == "fsdp":
            parts = config.machine, self.ranks, self.division.num_shards
            self.sharded = ShardedModel(self.model, *parts)
            self.optimizer = make(self.sharded.own)
            self.sharded.prepare(self.optimizer)
        else:
            self.optimizer = make()
        self.scaler = make_scaler(config.machine)
        self.guard = Guard(config.max_skipped)
        self.step, self.seconds_before = 0, 0.0
        self.loaded: dict[str, str] = {}  # checksums of the files of the checkpoint

    def _restore(self, checkpoint: Checkpoint) -> None:
        state = checkpoint.state()
        check_same_config(self.run, checkpoint, state)
        if state.versions != versions():
            text = "%s was made by %s, and this is %s: the numbers may differ in their last digits."
            log.warning(text, checkpoint.name, state.versions, versions())
        checkpoint.check_tensors(state, self.config)  # before memory is allocated for a model
        self._make()
        tensors = load_state(checkpoint, state, self.model, self.optimizer, self._shards)
        with checkpoint.explained():
            self.guard = read(Guard, state.guard, "the guard", table="guard")
            self.scaler.load_state_dict(tensors["scaler"])
            set_random_state(tensors["random"])
        self.step, self.seconds_before = state.step, state.seconds
        self.loaded = state.checksums

    @property
    def _shards(self) -> Mapping[str, Shard]:
        """The matrices of which this rank has some rows only."""
        return {} if self.sharded is None else self.sharded.shards

    @property
    def sampling(self) -> dict[str, Any]:
        """The options of samples."""
        watch = self.config.watch
        options = {"temperature": watch.temperature, "top_p": watch.top_p}
        return {"prompt": watch.sample_prompt, "max_tokens": watch.sample_tokens, **options}

    def take_step(self, x: torch.Tensor, y: torch.Tensor) -> StepRecord:
        """Update the model with one batch; evaluate, sample and measure norms if they are due."""
        config, watch = self.config, self.config.watch
        self.step += 1
        then = time.perf_counter()
        lr = learning_rate(self.step, config)
        if config.optimizer.name == "muon" and config.optimizer.momentum_warmup_steps:
            set_momentum(self.optimizer, self.step, config.optimizer)
        mean_loss = self.gradients(x, y)
        norms = None
        if self._is_due(watch.norms_every) and (model := self._whole_model()) is not None:
            norms = measure_norms(model, x[:1], self.scaler.get_scale())
        parts = (self.optimizer, mean_loss, lr, config.optimizer.max_grad_norm, self.scaler)
        if self.sharded is None:
            norm = update(*parts)
        else:
            with lost_ranks_explained():
                norm = update(*parts, self.sharded.global_norm)
        loss, grad_norm = torch.stack((mean_loss, norm)).tolist()  # the one wait for a GPU
        was_applied = self.guard.see(loss, grad_norm)
        self.recent_seconds.append(time.perf_counter() - then)
        is_last = self.step == config.steps
        is_saved = is_last or self._is_due(watch.save_every)
        is_evaluated = is_saved or self._is_due(watch.evaluate_every)
        evaluation = self._evaluate() if is_evaluated else None
        if self.guard.is_over:
            self.problem = (
                f"neither loss nor gradient was finite for {self.guard.skipped_in_a_row} steps in "
                f"a row, up to step {self.step}, and none of them was applied"
            )
        if self.problem:
            is_saved, evaluation = False, None
        is_sampled = self._is_due(watch.sample_every) or (is_last and watch.sample_every > 0)
        speed = config.tokens_per_step * len(self.recent_seconds) / sum(self.recent_seconds)
        return StepRecord(
            step=self.step,
            tokens=self.step * config.tokens_per_step,
            evaluation=evaluation,
            norms=norms,
            sample=self._sample() if is_sampled and not self.problem else None,
            saved=folder_name(self.step) if is_saved else None,
            seconds=round(time.monotonic() - self.began, 3),
            loss=finite_or_none(loss),
            lr=lr,
            grad_norm=finite_or_none(grad_norm),
            tokens_per_second=round(speed, 1),
            utilisation=round(speed * training_flops_per_token(config.model) / self.peak_flops, 4),
            step_seconds=round(self.recent_seconds[-1], 6),
            was_skipped=not was_applied,
            is_diverging=self.guard.is_diverging,
        )

    def _is_due(self, every: int) -> bool:
        return every > 0 and self.step % every == 0

    def _whole_model(self) -> TransformerLM | None:
        """Return the model on rank 0, None on others or if it does not fit; all ranks call it."""
        if self.sharded is not None:
            return self.sharded.whole() if self.division.has_whole_checkpoints else None
        return self.model if self.ranks.is_first else None

    def _evaluate(self) -> Evaluation:
        found = evaluate(
            self.model,
            self.valid,
            self.tokenizer,
            max_tokens=self.config.watch.evaluation_tokens,
            batch_size=self.config.microbatch_size,
            autocast=autocast_of(self.config.machine),
            ranks=self.ranks,
            sharded=self.sharded,
        )
        self._look_for_problems(found.loss)
        return found

    def _look_for_problems(self, valid_loss: float = 0.0) -> None:
        """Set `problem` if weights are not finite: a finite gradient can lead to that."""
        weights = [p for group in self.optimizer.param_groups for p in group["params"]]
        is_finite = math.isfinite(valid_loss) and all(p.isfinite().all() for p in weights)
        if self.ranks.any(not is_finite):
            self.problem = (
                f"after step {self.step} the weights or the validation loss are not finite, so it "
                "is not saved"
            )

    def check(self, writer: CheckpointWriter) -> None:
        """Raise DivergedError if there is a problem; it names the last good checkpoint."""
        if not self.problem:
            return
        with suppress(OSError):  # the newest checkpoint may still be being written
            writer.wait()
        folder, good = self.run.folder, f"{self.run.folder} has no checkpoint yet"
        for checkpoint in self.run.checkpoints()[-1:]:
            good = f"the checkpoint of step {checkpoint.step} in {folder} is intact"
        raise DivergedError(
            f"{self.problem}; {good}: start a run with a smaller optimizer.lr, a longer warm-up, "
            "or float32."
        )

    def _sample(self) -> str | None:
        found = self._whole_model()
        if found is None:
            return None
        # All samples of a run share one random seed: they differ by the weights alone.
        end_token = self.run.end_token
        model = LanguageModel.from_model(found, self.tokenizer, end_token=end_token, cached=False)
        text = model.generate(seed=self.config.seed, **self.sampling)
        return self.config.watch.sample_prompt + "".join(text)

    @property
    def is_in_history(self) -> bool:
        """Whether the history keeps the weights after this step."""
        return is_in_history(self.step, self.config.watch.weights_per_doubling)

    def save(
        self, writer: CheckpointWriter, evaluation: Evaluation | None, *, weights_only: bool = False
    ) -> None:
        """Save a checkpoint, unless the weights or the validation loss are not finite."""
        self._look_for_problems()
        self.check(writer)
        content = {
            "tokens": self.step * self.config.tokens_per_step,
            "seconds": time.monotonic() - self.began,
            "valid_loss": None if evaluation is None else evaluation.loss,
            "guard": asdict(self.guard),
            "config": self.config.to_dict(),
            "data_fingerprint": self.run.manifest.data_fingerprint,
            "tokenizer_fingerprint": self.run.manifest.tokenizer_fingerprint,
            "versions": versions(),
        }
        tensors = {"random": random_state(), "scaler": self.scaler.state_dict()}
        with lost_ranks_explained():
            optimizer = None if weights_only else self.optimizer
            writer.save(self.step, self.model, optimizer, content, tensors, self._shards)
