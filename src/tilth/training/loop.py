"""The training loop: a config and token files to a run directory, one step record at a time.

What enters: a `TrainingConfig` and a folder. What leaves: an iterator of `StepRecord`; whoever
drives it decides when to look and when to stop. To stop is to leave the loop: the state is saved,
and `resume` goes on to the very bits that an uninterrupted run would have reached.

    for record in tilth.train(config, "runs/first"):
        print(record.step, record.loss)

What a step does depends on the config, the data, the weights and the number of the step: batches
and learning rates are functions of that number, so nothing else has to be kept to find them again.
"""

import atexit
import logging
import math
import os
import random
import shutil
import time
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np
import torch

from tilth.accounting import training_flops
from tilth.data import Batches, Data, open_data
from tilth.files import FileError, StrPath
from tilth.generation import sample
from tilth.model import TransformerLM
from tilth.recipes.config import MachineConfig, TrainingConfig
from tilth.runs.checkpoint_folders import Checkpoint, folder_name, remove_leftovers
from tilth.runs.metrics import METRICS, SAMPLES, Evaluation, Log, StepRecord, cut_back
from tilth.runs.run import (
    Run,
    check_new_folder,
    check_same_config,
    create_run,
    open_run,
    versions,
)
from tilth.runs.saving import CheckpointWriter, load_state, random_state, set_random_state
from tilth.training.evaluation import evaluate
from tilth.training.guards import DivergedError, Guard
from tilth.training.machine import (
    machine_settings,
    measured_peak,
    resolve_device,
    resolve_dtype,
)
from tilth.training.norms import measure_norms
from tilth.training.planning import check_compiler, plan
from tilth.training.sinks import check_sinks, open_sinks
from tilth.training.step import (
    accumulate_gradients,
    autocast_of,
    compiled,
    learning_rate,
    make_loss,
    make_optimizer,
    make_scaler,
    update,
)

SPEED_STEPS = 20  # that the reported speed is a mean of

log = logging.getLogger(__name__)


def train(config: TrainingConfig, out: StrPath) -> Iterator[StepRecord]:
    """Begin a run in a new folder; what the config leaves open is measured and written down."""
    folder = Path(out)
    check_new_folder(folder)
    if config.optimizer.begin_step:
        raise ValueError(
            f"optimizer.begin_step is {config.optimizer.begin_step}: this is the config of a run "
            "that was extended; train the part before it first, then extend that run."
        )
    data = open_data(config.data)
    check_before(config, data, folder)
    machine = config.machine
    if None in (config.steps, machine.device, machine.dtype, machine.compile, machine.threads):
        config = plan(config, data).config
    elif machine.compile:
        try:
            check_compiler(machine)
        except ValueError as error:
            log.warning("%s It trains uncompiled.", error)
            config = replace(config, machine=replace(machine, compile=False))
    config = replace(config.resolved(), data=str(data.folder.resolve()))
    run = create_run(folder, config, data.tokenizer(), data.fingerprint)
    return _session(run, data)


def resume(folder: StrPath, *, data: StrPath | None = None) -> Iterator[StepRecord]:
    """Go on where a run was stopped; `data` says where its token files are, if they moved."""
    run = _before_extension(open_run(folder))
    if run.is_finished and _is_whole(run.checkpoints()[-1]):
        raise ValueError(
            f"{folder} is finished, after {run.config.steps:,} steps; to train it further, say "
            "by how many steps (--steps)."
        )
    _check_machine(run.config.machine)
    return _session(run, _open_same_data(run, data))


def extend(folder: StrPath, steps: int, *, data: StrPath | None = None) -> Iterator[StepRecord]:
    """Train a finished run for `steps` more.

    The learning rate ended at its lowest; the new steps get the whole schedule again, warm-up
    included, over their own length.
    """
    run = open_run(folder)
    # Before the config changes: an older checkpoint than the last would not fit the new one.
    if not run.is_finished or not _is_whole(run.checkpoints()[-1]):
        raise ValueError(f"{folder} is not finished; first `tilth resume {folder}`.")
    if steps < 1:
        raise ValueError(f"steps is {steps}; give at least one step more.")
    _check_machine(run.config.machine)
    opened = _open_same_data(run, data)
    old = run.config
    unset: Any = None  # to be derived again, from the new length
    optimizer = replace(old.optimizer, begin_step=old.steps, warmup_steps=unset, decay_steps=unset)
    config = replace(old, steps=old.steps + steps, optimizer=optimizer).resolved()
    if config.machine.compile:
        check_compiler(config.machine)
    with run.locked():
        run = run.save_config(config)
    return _session(run, opened)


def _before_extension(run: Run) -> Run:
    """A run as it was before it was extended, if what it was extended from is damaged."""
    begin_step = run.config.optimizer.begin_step
    if not begin_step:
        return run
    whole = next((each for each in reversed(run.checkpoints()) if _is_whole(each)), None)
    if whole is None or whole.step >= begin_step:
        return run
    log.warning(
        "%s was extended at step %d, and the checkpoint of that step is damaged: it goes on from "
        "step %d as it did before; then extend it again.",
        run.folder,
        begin_step,
        whole.step,
    )
    then = TrainingConfig.from_dict(whole.state()["config"])
    with run.locked():
        return run.save_config(replace(then, data=run.config.data))


def _is_whole(checkpoint: Checkpoint) -> bool:
    try:
        checkpoint.check()
    except FileError:
        return False
    return True


# --- before the first step ------------------------------------------------------------------------


def check_before(config: TrainingConfig, data: Data, folder: Path) -> None:
    """Refuse what could not end well; call it before long work."""
    check_fits(config, data)
    check_sinks(config.watch.sinks)
    _check_machine(config.machine)
    _check_space(folder, config)


def check_fits(config: TrainingConfig, data: Data) -> None:
    """Refuse data that the config cannot train on."""
    if config.model.vocab_size != data.vocab_size:
        raise ValueError(
            f"model.vocab_size is {config.model.vocab_size:,}, and the tokenizer of {data.folder} "
            f"has {data.vocab_size:,} tokens; leave it out to take the latter."
        )
    prompt = data.tokenizer().encode_ordinary(config.watch.sample_prompt)  # as `sample` does
    if config.watch.sample_every != 0 and len(prompt) > config.model.context_length:
        raise ValueError(
            f"watch.sample_prompt has {len(prompt)} tokens, and the context length is "
            f"{config.model.context_length}; give a shorter one, or set watch.sample_every to 0."
        )
    for name, tokens in (("train", data.train), ("valid", data.valid)):
        needed = config.model.context_length + 1 if name == "train" else 2
        if len(tokens) < needed:
            raise ValueError(
                f"{data.folder} has {len(tokens):,} tokens in its {name} split, and {needed:,} are "
                "needed; tokenize more text."
            )


def _check_machine(machine: MachineConfig) -> None:
    """Refuse a device or a precision that is not here: a run may come from another machine."""
    resolve_dtype(machine.dtype, resolve_device(machine.device))
    most = 16 * (os.cpu_count() or 1)  # with thousands, OpenMP ends the process without a word
    if machine.threads is not None and machine.threads > most:
        raise ValueError(
            f"machine.threads is {machine.threads:,}, and this machine has {os.cpu_count()} cores; "
            f"take {most} at most, or leave it out."
        )


def _check_space(folder: Path, config: TrainingConfig) -> None:
    """Refuse a disk that the checkpoints will not fit on: weights and two moments of each."""
    model = TransformerLM(config.model, device="meta")
    checkpoint_bytes = 12 * sum(parameter.numel() for parameter in model.parameters())
    # Those that are kept, the best, and the one that is being written.
    needed = (config.watch.keep_checkpoints + 2) * checkpoint_bytes + (16 << 20)
    folder = folder.resolve()  # a symlink may lead to another disk
    parent = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free = shutil.disk_usage(parent).free
    if free < needed:
        raise OSError(
            f"the checkpoints of {folder} need {needed / 1e6:,.0f} MB, and the disk has "
            f"{free / 1e6:,.0f} MB left; free some, or keep fewer (watch.keep_checkpoints)."
        )


def _open_same_data(run: Run, folder: StrPath | None) -> Data:
    data = open_data(run.config.data if folder is None else folder)
    for what, now, then in (
        ("tokenizer", data.tokenizer_fingerprint, run.manifest["tokenizer_fingerprint"]),
        ("data", data.fingerprint, run.manifest["data_fingerprint"]),
    ):
        if now != then:
            raise FileError(
                data.folder,
                f"is not what {run.folder} was trained on: its {what} has the fingerprint "
                f"{now[:12]} instead of {then[:12]}",
                "name the folder that was (--data), or begin a new run",
            )
    return data


# --- the loop -------------------------------------------------------------------------------------

_sessions: WeakSet[Generator[StepRecord]] = WeakSet()


@atexit.register
def _close_sessions() -> None:
    """Save what a program left in the midst of, as long as the modules that it needs are there."""
    for session in list(_sessions):
        try:
            session.close()
        except Exception as error:  # the others are to be saved all the same
            log.error("%s", error)


def _session(run: Run, data: Data) -> Iterator[StepRecord]:
    """Train from the newest checkpoint, or from nothing, to the last step."""
    session = _steps(run, data)
    _sessions.add(session)
    return session


def _steps(run: Run, data: Data) -> Generator[StepRecord]:
    run = replace(run, folder=run.folder.absolute())  # wherever the process goes meanwhile
    config, process = run.config, os.getpid()
    with ExitStack() as stack:
        stack.enter_context(run.locked())
        remove_leftovers(run.folder)
        device = stack.enter_context(machine_settings(config.machine))
        training = _Training(run, data, device)
        for name in (METRICS, SAMPLES):
            cut_back(run.folder / name, training.step)
        metrics = stack.enter_context(Log(run.folder / METRICS))
        samples = stack.enter_context(Log(run.folder / SAMPLES))
        sinks = stack.enter_context(open_sinks(run, first_step=training.step + 1))
        writer = stack.enter_context(CheckpointWriter(run.folder, config.watch.keep_checkpoints))
        context = config.model.context_length
        batches = Batches(
            data.train, config.batch_size, context, config.seed, config.order, device=device
        )

        def save(record: StepRecord) -> None:
            metrics.sync()  # first: a checkpoint is never ahead of the logs
            samples.sync()
            training.save(writer, record.evaluation)

        for x, y in batches.read(training.step, config.steps):
            record = training.take_step(x, y)
            metrics.append(record.to_dict())
            training.check(writer)
            if record.sample is not None:
                samples.append({"step": record.step, **training.sampling, "text": record.sample})
            if record.saved:
                save(record)
            writer.check()
            sinks.write(record)
            try:
                yield record
            except GeneratorExit:  # whoever drives us has had enough
                if os.getpid() == process:  # a forked child only forgets
                    if not record.saved:
                        save(record)
                    writer.wait()
                raise


class _Training:
    """Where a training stands between two steps, and how it takes the next."""

    def __init__(self, run: Run, data: Data, device: torch.device) -> None:
        config = self.config = run.config
        self.run, self.device = run, device
        self.valid, self.tokenizer = data.valid, run.tokenizer()
        random.seed(config.seed)
        np.random.seed(config.seed % 2**32)
        torch.manual_seed(config.seed)
        # Drawn on the CPU, so that every device begins with the same weights.
        self.model = TransformerLM(config.model).to(device)
        self.optimizer = make_optimizer(self.model, config.optimizer)
        self.scaler = make_scaler(config)
        self.guard = Guard(config.max_skipped)
        self.problem = ""
        """Why there can be no further step, once that is so."""
        self.step, seconds = 0, 0.0
        if (found := self._newest_whole()) is not None:
            content, packed = found
            self.step, seconds = content["step"], content["seconds"]
            self.guard = Guard.from_dict(content["guard"])
            self.scaler.load_state_dict(packed["scaler"])
            set_random_state(packed["random"])
        self.loss_of = make_loss(self.model, config)
        if config.machine.compile:
            self.loss_of = compiled(self.loss_of, config.machine.device)
        self.peak_flops = measured_peak(device, config.machine.dtype)
        self.recent_seconds: deque[float] = deque(maxlen=SPEED_STEPS)
        self.began = time.monotonic() - seconds

    def _newest_whole(self) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Load the newest checkpoint that is not damaged; None if there has been none yet."""
        checkpoints = self.run.checkpoints()
        for checkpoint in reversed(checkpoints):
            try:
                self._check_same_run(checkpoint)
                return load_state(checkpoint, self.model, self.optimizer)
            except FileError as error:
                log.warning("%s; trying the checkpoint before it.", error)
        if checkpoints or self.config.optimizer.begin_step:  # an extension has no beginning
            hint = "restore one, or begin a new run"
            raise FileError(self.run.folder, "has no checkpoint that is whole", hint)
        return None

    def _check_same_run(self, checkpoint: Checkpoint) -> None:
        """Refuse a state that this config would not have led to; note what made it."""
        check_same_config(self.run, checkpoint)
        state = checkpoint.state()
        if state["versions"] != versions():
            log.warning(
                "%s was made by %s, and this is %s: the numbers may differ in their last digits.",
                checkpoint.name,
                state["versions"],
                versions(),
            )

    @property
    def sampling(self) -> dict[str, Any]:
        """How samples are drawn, for their record."""
        watch = self.config.watch
        options = {"temperature": watch.temperature, "top_p": watch.top_p}
        return {"prompt": watch.sample_prompt, "max_tokens": watch.sample_tokens, **options}

    def take_step(self, x: torch.Tensor, y: torch.Tensor) -> StepRecord:
        """Learn from one batch, then look at what there is to see after this step."""
        config, watch = self.config, self.config.watch
        self.step += 1
        then = time.perf_counter()
        lr = learning_rate(self.step, config)
        loss = accumulate_gradients(self.loss_of, x, y, config.microbatch_size, self.scaler).item()
        norms = None
        if self._is_due(watch.norms_every):
            norms = measure_norms(self.model, x[:1], self.scaler.get_scale())
        grad_norm = update(self.optimizer, loss, lr, config.optimizer.max_grad_norm, self.scaler)
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
        flops_per_token = training_flops(config.model) / config.model.context_length
        return StepRecord(
            step=self.step,
            tokens=self.step * config.tokens_per_step,
            evaluation=evaluation,
            norms=norms,
            sample=self._sample() if is_sampled and not self.problem else None,
            saved=folder_name(self.step) if is_saved else None,
            seconds=round(time.monotonic() - self.began, 3),
            loss=loss if math.isfinite(loss) else None,
            lr=lr,
            grad_norm=grad_norm if math.isfinite(grad_norm) else None,
            tokens_per_second=round(speed, 1),
            utilisation=round(speed * flops_per_token / self.peak_flops, 4),
            step_seconds=round(self.recent_seconds[-1], 6),
            was_skipped=not was_applied,
            is_diverging=self.guard.is_diverging,
        )

    def _is_due(self, every: int) -> bool:
        return every > 0 and self.step % every == 0

    def _evaluate(self) -> Evaluation:
        found = evaluate(
            self.model,
            self.valid,
            self.tokenizer,
            max_tokens=self.config.watch.evaluation_tokens,
            batch_size=self.config.microbatch_size,
            autocast=autocast_of(self.config),
        )
        self._look_for_problems(found.loss)
        return found

    def _look_for_problems(self, valid_loss: float) -> None:
        """A finite gradient can still lead to infinite weights, whose loss nobody has seen yet."""
        weights = self.model.parameters()
        if not math.isfinite(valid_loss) or not all(p.isfinite().all() for p in weights):
            self.problem = (
                f"after step {self.step} the weights or the validation loss are not finite, so it "
                "is not saved"
            )

    def check(self, writer: CheckpointWriter) -> None:
        """Raise the problem, if there is one, and name the checkpoint that is good."""
        if not self.problem:
            return
        with suppress(OSError):  # the newest may still be on its way to the disk
            writer.wait()
        steps = [each.step for each in self.run.checkpoints()]
        folder = self.run.folder
        good = f"{folder} has no checkpoint yet"
        if steps:
            good = f"the checkpoint of step {steps[-1]} in {folder} is good"
        raise DivergedError(
            f"{self.problem}; {good}: begin a run with a smaller optimizer.lr, a longer warm-up, "
            "or float32."
        )

    def _sample(self) -> str:
        # Every sample of a run has the same random numbers: what differs is what it has learned.
        options = self.sampling
        text = sample(self.model, self.tokenizer, seed=self.config.seed, **options)
        return f"{options['prompt']}{text}"

    def save(self, writer: CheckpointWriter, evaluation: Evaluation | None) -> None:
        """Hand everything that the next step depends on to the writer."""
        self._look_for_problems(0.0 if evaluation is None else evaluation.loss)
        self.check(writer)
        content = {
            "tokens": self.step * self.config.tokens_per_step,
            "seconds": time.monotonic() - self.began,
            "valid_loss": None if evaluation is None else evaluation.loss,
            "guard": self.guard.to_dict(),
            "config": self.config.to_dict(),
            "data_fingerprint": self.run.manifest["data_fingerprint"],
            "tokenizer_fingerprint": self.run.manifest["tokenizer_fingerprint"],
            "versions": versions(),
        }
        tensors = {"random": random_state(), "scaler": self.scaler.state_dict()}
        writer.save(self.step, self.model, self.optimizer, content, tensors)
