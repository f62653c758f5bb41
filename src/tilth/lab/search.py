"""`search`: values of a config by Optuna, in a journal that several processes may share.

What enters: a config, and what to vary of it. What leaves: a lab folder with a run directory for
each trial, `search.journal` (Optuna's), `lab.json`, and, on the way, what happens.

    search = Search(config, ["optimizer.lr=1e-4..1e-1", "model.num_layers=2,4,6"], "lab/search")
    for event in search.run():
        if event.outcome is not None:
            print(event.setup.label, event.outcome.state, event.outcome.bits_per_byte)

Whoever runs the same search at the same time shares its trials, and whoever runs it later goes on:
a trial belongs to the process that holds the lock of its claim, and locks die with their process.
What looks at several trials at once (to take one, to end one, to write `lab.json`) happens behind
one gate, so that the last writer is right. The first trial has the config's own values.
"""

import fcntl
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, fields, replace
from importlib import import_module
from pathlib import Path
from statistics import fmean
from typing import IO, Any

import numpy as np

from tilth.accounting import training_flops
from tilth.data import open_data
from tilth.files import FileError, StrPath, try_lock
from tilth.lab.experiment import Setup, read_outcome
from tilth.lab.folder import RUNS, Lab, State, load_lab, save_lab
from tilth.lab.running import Event, drive
from tilth.lab.search_findings import Tried, best_of, lab_of
from tilth.lab.search_space import Choice, Values, Varied, check_space, draw_values, read_space
from tilth.recipes.changing import changed
from tilth.recipes.config import TrainingConfig, flattened
from tilth.runs.metrics import StepRecord
from tilth.runs.run import CONFIG, open_run
from tilth.training import plan as plan_run

JOURNAL, LOCK, CLAIMS, JOBS = "search.journal", "lock", "claims", "jobs"
STUDY = "search"
EVALUATIONS = 8  # of a trial: where it may be found worse than others, and stopped
WATCH = {"watch.evaluation_tokens": 32_768, "watch.norms_every": 0, "watch.keep_checkpoints": 1}
DRAWS = 200  # until a point that was not tried yet is found, or there seems to be none
FEWEST_FINISHED = 5  # trials, before one can be worse than half of them
FEWEST_FOR_IMPORTANCE = 20  # finished trials: with fewer it says little


@dataclass(frozen=True)
class SearchPlan:
    """What all trials have in common, decided by the first process."""

    steps: int
    machine: dict[str, Any]
    flops: float
    """Of all trials to their ends, expected."""
    seconds: float
    """Of all trials to their ends, in one process, expected."""


class Search:
    """A search, here or in other processes too."""

    def __init__(
        self,
        base: TrainingConfig,
        vary: Sequence[str],
        out: StrPath,
        *,
        fixed: Values | None = None,
        trials: int = 20,
        command: Sequence[str] = (),
    ) -> None:
        """Hold all values against the config, before anything is written.

        `fixed` are changes of the base that each trial has, besides its own. If the base has a
        budget of time instead of steps, it is that of all trials in one process.
        """
        if trials < 1:
            raise ValueError(f"trials is {trials}; take at least one.")
        self.base = replace(base, data=str(Path(base.data).resolve()))
        self.vary, self.space = tuple(vary), read_space(vary)
        self.folder = Path(out)
        self.fixed = {**(fixed or {}), **WATCH}
        self.trials, self.command = trials, tuple(command)
        self.own = self._changed({})
        self.possible = check_space(self.space, self._changed, self.own.seed)
        """The share of values, drawn at random, that fit together."""
        if not self.possible:
            raise ValueError("no values that are searched fit together; vary fewer fields.")
        self._is_exhausted = False

    def _changed(self, values: Values) -> TrainingConfig:
        return changed(self.base, {**self.fixed, **values})

    def plan(self) -> SearchPlan:
        """Measure how long a step takes, and decide how many there are."""
        own, costs = self.own, []
        for values in draw_values(self.space, 50, own.seed):
            try:
                config = self._changed(values)
            except (ValueError, TypeError):
                continue
            costs.append(_step_flops(config) / _step_flops(own))
        # Runs of the config's own cost: the first trial, and others of another size.
        worth = 1.0 + (self.trials - 1) * (fmean(costs) if costs else 1.0)
        if own.budget_seconds is not None:
            own = replace(own, budget_seconds=own.budget_seconds / worth)
        planned = plan_run(own, open_data(self.base.data))
        machine = planned.config.machine
        return SearchPlan(
            planned.config.steps,
            {each.name: getattr(machine, each.name) for each in fields(machine)},
            planned.flops * worth,
            planned.seconds * worth,
        )

    def config_of(self, tried: Tried, plan: SearchPlan) -> TrainingConfig:
        """What a trial is trained with."""
        decided = {f"machine.{name}": value for name, value in plan.machine.items()}
        decided |= {"steps": plan.steps, "budget_seconds": None}
        own = {} if tried.is_default else tried.values
        config = changed(self.base, {**decided, **self.fixed, **own})
        every = max(1, config.steps // EVALUATIONS)
        return changed(config, {"watch.evaluate_every": every, "watch.save_every": every})

    # --- the loop ---------------------------------------------------------------------------------

    def run(self) -> Iterator[Event]:
        """Train trial after trial; leave the loop to stop, and run again to go on."""
        self.check_folder()
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._gate():
            journal = _Journal(self.folder / JOURNAL)
            plan = self._decided(journal)
            self._save_lab(journal, plan)
        while True:
            with self._gate():
                claimed = self._claim(journal, plan)
                self._save_lab(journal, plan)
            if claimed is None:
                return
            with claimed.lock:  # closed, and so given up, however this ends
                yield from self._run_trial(journal, plan, claimed)

    def lab(self) -> Lab:
        """What is known so far."""
        return load_lab(self.folder)

    def check_folder(self) -> None:
        """Refuse a folder of something else."""
        if self.folder.exists() and not self.folder.is_dir():
            raise FileExistsError(f"{self.folder} is a file; name a folder for the search.")
        ours = {LOCK, JOBS}  # which may be there before the journal is
        there = {path.name for path in self.folder.glob("*")} - ours
        if there and JOURNAL not in there:
            raise FileExistsError(
                f"{self.folder} is not empty, and holds no search; name a new folder."
            )

    @contextmanager
    def _gate(self) -> Iterator[None]:
        """Let one process in at a time."""
        with (self.folder / LOCK).open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _decided(self, journal: "_Journal") -> SearchPlan:
        """Begin the search, or join it if it is the same."""
        asked = {**flattened(self.own.to_dict()), "vary": list(self.vary)}
        del asked["data"]  # it may have moved; the runs know its fingerprint
        if (found := journal.begun()) is not None:
            then, decided = found
            for name in sorted(then.keys() | asked.keys()):
                if then.get(name) != asked.get(name):
                    raise ValueError(
                        f"{self.folder} is a search with {name} = {then.get(name)}, and "
                        f"{asked.get(name)} is asked for; ask as before, or name another --out."
                    )
            return SearchPlan(**decided)
        plan = self.plan()
        journal.begin(asked, asdict(plan), self._default_parameters(plan))
        return plan

    def _default_values(self, plan: SearchPlan) -> dict[str, Any]:
        config = self.config_of(Tried(0, {}, is_default=True), plan).resolved()
        values = flattened(config.to_dict())
        return {varied.name: values.get(varied.name) for varied in self.space}

    def _default_parameters(self, plan: SearchPlan) -> dict[str, Any]:
        """The config's own values as Optuna's; none if not all lie where it searches."""
        values = self._default_values(plan)
        if not all(varied.has(values[varied.name]) for varied in self.space):
            return {}
        return {
            varied.name: varied.word(values[varied.name])
            if isinstance(varied, Choice)
            else values[varied.name]
            for varied in self.space
        }

    # --- behind the gate --------------------------------------------------------------------------

    def _claim(self, journal: "_Journal", plan: SearchPlan) -> "_Claimed | None":
        """Take a trial that nobody works on any more, or else a new one."""
        for frozen in journal.trials():
            if frozen.state.name == "RUNNING" and (claimed := self._take(journal, plan, frozen)):
                return claimed
        while True:
            begun = [t for t in journal.trials() if t.state.name != "WAITING"]
            begun = [t for t in begun if not _is_repeated(t)]
            if len(begun) >= self.trials:
                return None
            number = journal.ask()
            if claimed := self._take(journal, plan, journal.trials()[number]):
                return claimed
            if not self._enqueue_fresh(journal):
                self._is_exhausted = True
                return None

    def _take(self, journal: "_Journal", plan: SearchPlan, frozen: Any) -> "_Claimed | None":  # noqa: ANN401
        """The trial, if it is ours now and is to be trained."""
        claim = _lock_of(self.folder / CLAIMS / f"{frozen.number}")
        if claim is None:
            return None
        trial = journal.trial(frozen.number, self.own.seed)
        is_default = bool(frozen.user_attrs.get("is_default"))
        values = frozen.user_attrs.get("values")
        if values is None:  # new, or its process died as it was made
            values = self._suggested(trial, plan, is_default=is_default)
            if values in [other.values for other in self._tried(journal)]:
                journal.end(trial, {"state": "repeated"}, "FAIL")
                claim.close()
                return None
            trial.set_user_attr("values", values)
        tried = Tried(frozen.number, values, is_default=is_default)
        if outcome := frozen.user_attrs.get("outcome"):  # its process died as it told
            self._tell(journal, trial, replace(tried, **outcome))
            claim.close()
            return None
        run = self.folder / RUNS / tried.name
        if (run / CONFIG).exists() and open_run(run).is_running:  # `tilth resume`, by hand
            claim.close()
            return None
        return _Claimed(claim, trial, tried, -1 if frozen.last_step is None else frozen.last_step)

    def _suggested(self, trial: Any, plan: SearchPlan, *, is_default: bool) -> dict[str, Any]:  # noqa: ANN401
        if is_default and not self._default_parameters(plan):
            return self._default_values(plan)
        values = {varied.name: varied.at(_suggest(trial, varied)) for varied in self.space}
        return self._default_values(plan) if is_default else values

    def _enqueue_fresh(self, journal: "_Journal") -> bool:
        """Have a point tried that is new: where there are few, Optuna asks for one again."""
        known = [tried.values for tried in self._tried(journal)]
        chance = np.random.default_rng([self.own.seed, len(journal.trials())])
        for _ in range(DRAWS):
            drawn = {varied.name: varied.draw(chance) for varied in self.space}
            values = {varied.name: varied.at(drawn[varied.name]) for varied in self.space}  # type: ignore[arg-type]
            if values not in known:
                journal.enqueue(drawn)
                return True
        return False

    def _tell(self, journal: "_Journal", trial: Any, tried: Tried) -> None:  # noqa: ANN401
        """Write down how a trial ended."""
        names = ("state", "bits_per_byte", "steps", "reason")
        outcome = {name: getattr(tried, name) for name in names}
        # A trial that diverged counts as pruned: Optuna ranks those behind all others, and so
        # leaves their part of the space; of one that failed it knows nothing.
        told = {"finished": "COMPLETE", "pruned": "PRUNED", "diverged": "PRUNED"}
        is_outside = tried.is_default and not trial.params
        state = "FAIL" if is_outside else told.get(tried.state, "FAIL")
        journal.end(trial, outcome, state, tried.bits_per_byte)
        (self.folder / CLAIMS / f"{tried.number}").unlink(missing_ok=True)

    def _tried(self, journal: "_Journal") -> list[Tried]:
        """All trials that have values, those that only repeated another left out."""
        return [
            Tried(
                frozen.number,
                frozen.user_attrs["values"],
                is_default=bool(frozen.user_attrs.get("is_default")),
                **frozen.user_attrs.get("outcome", {}),
            )
            for frozen in journal.trials()
            if "values" in frozen.user_attrs
        ]

    def _save_lab(self, journal: "_Journal", plan: SearchPlan) -> None:
        trials = self._tried(journal)
        is_running = any(tried.state == "running" for tried in trials)
        is_over = not is_running and (self._is_exhausted or len(trials) >= self.trials)
        lab = lab_of(
            trials,
            self.space,
            base=self.config_of(Tried(0, {}, is_default=True), plan).to_dict(),
            command=self.command,
            notes=self._notes(trials, plan),
            importances=journal.importances() if is_over and len(self.space) > 1 else {},
            is_over=is_over,
        )
        save_lab(self.folder, lab)

    def _notes(self, trials: Sequence[Tried], plan: SearchPlan) -> list[str]:
        notes = [f"Searched: {'; '.join(map(str, self.space))}."]
        notes += [f"{t.name} failed: {t.reason.rstrip('.')}." for t in trials if t.reason]
        whole = [tried for tried in trials if tried.is_whole]
        costs = [_step_flops(self.config_of(tried, plan)) for tried in whole]
        if costs and max(costs) > 1.1 * min(costs):
            notes.append(
                "The trials have equally many steps, and their steps do not cost the same: up to "
                f"{max(costs) / min(costs):.2g} times as much as the cheapest."
            )
        if (best := best_of(trials)) is not None:
            notes.append(
                "Each trial had one seed, so small differences may be chance; to train the best "
                f"again: tilth train --config {self.folder}/{RUNS}/{best.name}/{CONFIG} --out "
                "runs/best"
            )
        return notes

    # --- one trial --------------------------------------------------------------------------------

    def _run_trial(
        self, journal: "_Journal", plan: SearchPlan, claimed: "_Claimed"
    ) -> Generator[Event, None, None]:
        tried, folder = claimed.tried, self.folder / RUNS / claimed.tried.name
        setup = Setup(tried.name, tried.label, tried.name, self.own)
        ended = sum(each.state != "running" for each in self._tried(journal))
        state: State = "failed"
        reason = ""
        try:
            setup = replace(setup, config=self.config_of(tried, plan))
            event = Event(setup, ended, self.trials)
            records = drive(setup.config, folder)
            with closing(records):
                state = yield from _follow(records, claimed, event)
        except FileError:
            raise  # the data, or a damaged run: nothing that other values would mend
        except ValueError as error:
            if tried.is_default:  # then all the others would fail as well
                raise
            reason = str(error)
        outcome = read_outcome(folder, state)
        with self._gate():
            ended_trial = replace(
                tried,
                state=outcome.state,
                bits_per_byte=outcome.bits_per_byte,
                steps=outcome.steps,
                reason=reason,
            )
            self._tell(journal, claimed.trial, ended_trial)
            self._save_lab(journal, plan)
            ended = sum(each.state != "running" for each in self._tried(journal))
        yield Event(setup, ended, self.trials, outcome=outcome)


@dataclass(frozen=True)
class _Claimed:
    """A trial that is ours."""

    lock: IO[bytes]
    trial: Any
    """Optuna's."""
    tried: Tried
    last_step: int
    """That Optuna was told the bits per byte of."""


def _follow(
    records: Generator[StepRecord, None, State], claimed: _Claimed, event: Event
) -> Generator[Event, None, State]:
    """Pass the steps on, until the trial ends or is worse than others were."""
    while True:
        try:
            record = next(records)
        except StopIteration as end:
            state: State = end.value
            return state
        is_pruned = False
        found, is_last = record.evaluation, record.step == event.setup.config.steps
        if found is not None and not is_last:
            if record.step > claimed.last_step:  # else an interrupted process has told it
                claimed.trial.report(found.bits_per_byte, record.step)
            # All others are compared with the first, so that one goes to its end.
            is_pruned = not claimed.tried.is_default and claimed.trial.should_prune()
        yield replace(event, record=record)
        if is_pruned:
            return "pruned"


def _lock_of(path: Path) -> IO[bytes] | None:
    """The file, locked until it is closed; None if another process has it."""
    path.parent.mkdir(exist_ok=True)
    file = path.open("ab")
    if try_lock(file):
        return file
    file.close()
    return None


def _suggest(trial: Any, varied: Varied) -> Any:  # noqa: ANN401, Optuna's trial
    if isinstance(varied, Choice):
        return trial.suggest_categorical(varied.name, varied.words)
    if varied.is_whole:
        return trial.suggest_int(varied.name, varied.low, varied.high)
    return trial.suggest_float(varied.name, varied.low, varied.high, log=varied.is_logarithmic)


def _is_repeated(frozen: Any) -> bool:  # noqa: ANN401, Optuna's trial
    return bool(frozen.user_attrs.get("outcome", {}).get("state") == "repeated")


def _step_flops(config: TrainingConfig) -> int:
    return training_flops(config.model, config.batch_size)


# --- Optuna ---------------------------------------------------------------------------------------


class _Journal:
    """Optuna's study in a journal file, as far as a search needs it."""

    def __init__(self, path: Path) -> None:
        try:
            # By name, as an extra: the type checker says the same whether it is installed or not.
            self._optuna: Any = import_module("optuna")
        except ModuleNotFoundError:
            raise ValueError('A search needs an extra: pip install "tilth[search]".') from None
        self._optuna.logging.set_verbosity(self._optuna.logging.WARNING)
        journal = self._optuna.storages.journal
        # Not its default, a symbolic link: that leads nowhere from a relative path, so the lock of
        # a killed process would be waited for without end. Both are made for NFS.
        lock = journal.JournalFileOpenLock(str(path))
        _mend(path, lock)
        self._storage = journal.JournalStorage(journal.JournalFileBackend(str(path), lock))
        self._study = self._optuna.create_study(
            storage=self._storage, study_name=STUDY, direction="minimize", load_if_exists=True
        )

    def begun(self) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """What was asked for and what was decided, if the search has begun."""
        attributes = self._study.user_attrs
        # All of it is there once the first trial is.
        if not self.trials():
            return None
        self._prune(attributes["plan"]["steps"])
        return attributes["asked"], attributes["plan"]

    def begin(self, asked: Values, plan: Values, first: Values) -> None:
        """Write down what is asked for, and have the first trial wait."""
        self._study.set_user_attr("asked", asked)
        self._study.set_user_attr("plan", plan)
        self._prune(plan["steps"])
        self._study.enqueue_trial(dict(first), user_attrs={"is_default": True})

    def _prune(self, steps: int) -> None:
        # By the median, from a quarter of the steps on: what is best in the warm-up is not best
        # after it. Halving in brackets would need more trials than the usual twenty.
        self._study.pruner = self._optuna.pruners.MedianPruner(
            n_startup_trials=FEWEST_FINISHED, n_warmup_steps=steps // 4
        )

    def trials(self) -> list[Any]:
        """All trials, by number."""
        found: list[Any] = self._study.get_trials(deepcopy=False)
        return found

    def trial(self, number: int, seed: int) -> Any:  # noqa: ANN401, Optuna's trial
        """A trial that runs, to go on with."""
        # Random numbers of its own: else two processes, or one that is called again, would draw the
        # same values for several trials.
        own = np.random.SeedSequence([seed, number]).generate_state(1)
        self._study.sampler = self._optuna.samplers.TPESampler(seed=int(own[0]))
        study_id = self._storage.get_study_id_from_name(STUDY)
        trial_id = self._storage.get_trial_id_from_study_id_trial_number(study_id, number)
        return self._optuna.Trial(self._study, trial_id)

    def ask(self) -> int:
        """The number of the trial that waits, or of a new one."""
        return int(self._study.ask().number)

    def enqueue(self, parameters: Values) -> None:
        """Have a trial with these values wait."""
        self._study.enqueue_trial(dict(parameters))

    def end(
        self,
        trial: Any,  # noqa: ANN401, Optuna's
        outcome: Values,
        state: str,
        value: float | None = None,
    ) -> None:
        """Write down how a trial ended."""
        trial.set_user_attr("outcome", dict(outcome))
        states = self._optuna.trial.TrialState
        self._study.tell(trial, value if state == "COMPLETE" else None, states[state])

    def importances(self) -> dict[str, float]:
        """How much each field decides whether a trial is among the best, if it can be told."""
        finished = [trial for trial in self.trials() if trial.state.name == "COMPLETE"]
        if len(finished) < FEWEST_FOR_IMPORTANCE:
            return {}
        found: dict[str, float] = self._optuna.importance.get_param_importances(self._study)
        return found


def _mend(path: Path, lock: Any) -> None:  # noqa: ANN401, Optuna's lock
    """Cut off a line that a killed process or a full disk left torn: Optuna would stumble on it."""
    if not path.exists():
        return
    lock.acquire()
    try:
        content = path.read_bytes()
        if content and not content.endswith(b"\n"):
            with path.open("r+b") as file:
                file.truncate(content.rfind(b"\n") + 1)
    finally:
        lock.release()
