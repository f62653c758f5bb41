"""`search`: values of a config by Optuna, in a journal that several processes may share.

    search = Search(config, ["optimizer.lr=1e-4..1e-1", "model.num_layers=2,4,6"], "lab/search")
    for event in search.run():
        if event.result is not None:
            print(event.trial.label, event.result.state, event.result.bits_per_byte)

The folder gets a run directory per trial, `search.journal` (Optuna's) and `lab.json`. Processes
that run the same search at the same time share its trials, and a later one continues it. The first
trial has the config's own values.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import IO, Any

import numpy as np

from tilth.accounting import training_flops
from tilth.config.overrides import changed
from tilth.config.training import TrainingConfig
from tilth.data import open_data
from tilth.files import FileError, StrPath
from tilth.formatting import format_duration, scientific
from tilth.lab.planning import WATCH
from tilth.lab.runner import Event, drive
from tilth.lab.search.claims import Claims
from tilth.lab.search.findings import SearchTrial, best_trial, lab_of
from tilth.lab.search.journal import JOURNAL, Journal, SearchPlan
from tilth.lab.search.space import Choice, Values, check_space, draw_values, read_space
from tilth.lab.trials import PlannedTrial, read_result
from tilth.report.lab_file import LOCK, RUNS, Lab, State, load_lab, save_lab
from tilth.runs.metrics import StepRecord
from tilth.runs.run import CONFIG, open_run
from tilth.schema import flat
from tilth.training import plan as plan_run

JOBS = "jobs"
EVALUATIONS = 8  # of a trial: where it may be found worse than others, and stopped
DRAWS = 200  # until a point that was not tried yet is found, or there seems to be none


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
        """Check all values against the config, before anything is written.

        `fixed` are changes of the base for each trial, besides its own. If the base has a budget of
        time instead of steps, it is that of all trials in one process.
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
        self._claims = Claims(self.folder)

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
        config = planned.config
        return SearchPlan(
            config.steps, config.machine, planned.flops * worth, planned.seconds * worth
        )

    def describe(self, plan: SearchPlan) -> str:
        """The cost of a search, in some lines."""
        machine = plan.machine
        compiling = "compiled" if machine.compile else "not compiled"
        tokens = plan.steps * self.own.tokens_per_step
        lines = [f"varies   {varied}" for varied in self.space]
        lines += [
            f"trials   {self.trials}, each of {plan.steps:,} steps "
            f"({tokens:,} tokens in the first)",
            f"cost     {scientific(plan.flops)} FLOPs in all, if none is stopped early",
            f"machine  {machine.device}, {machine.threads} threads, {machine.dtype}, {compiling}",
            f"time     {format_duration(plan.seconds)} expected, in one process",
        ]
        if self.possible < 1.0:
            lines.append(
                f"note     {1.0 - self.possible:.0%} of values drawn at random do not fit "
                "together: such trials fail at once"
            )
        return "\n".join(lines)

    def config_of(self, trial: SearchTrial, plan: SearchPlan) -> TrainingConfig:
        """The config of a trial."""
        decided = {f"machine.{name}": value for name, value in vars(plan.machine).items()}
        decided |= {"steps": plan.steps, "budget_seconds": None}
        own = {} if trial.is_default else trial.values
        config = changed(self.base, {**decided, **self.fixed, **own})
        every = max(1, config.known_steps // EVALUATIONS)
        return changed(config, {"watch.evaluate_every": every, "watch.save_every": every})

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

    # --- the loop ---------------------------------------------------------------------------------

    def run(self) -> Iterator[Event]:
        """Train trial after trial; leave the loop to stop, and run again to go on."""
        self.check_folder()
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._claims.gate():
            journal = Journal(self.folder / JOURNAL, self.space)
            plan = self._decided(journal)
            self._save_lab(journal, plan)
        while True:
            with self._claims.gate():
                claimed = self._claim(journal, plan)
                self._save_lab(journal, plan)
            if claimed is None:
                return
            with claimed.lock:  # closed, and so given up, however this ends
                yield from self._run_trial(journal, plan, claimed)

    def answer(self) -> Lab:
        """Run it to its end, and load the lab."""
        for _event in self.run():
            pass
        return self.lab()

    def _decided(self, journal: Journal) -> SearchPlan:
        """Begin the search, or join it if it is the same."""
        asked = {**flat(self.own.to_dict()), "vary": list(self.vary)}
        del asked["data"]  # it may have moved; the runs know its fingerprint
        if (found := journal.begun()) is not None:
            then, decided = found
            for name in sorted(then.keys() | asked.keys()):
                if then.get(name) != asked.get(name):
                    raise ValueError(
                        f"{self.folder} is a search with {name} = {then.get(name)}, and "
                        f"{asked.get(name)} is asked for; ask as before, or name another --out."
                    )
            return decided
        plan = self.plan()
        journal.begin(asked, plan, self._default_parameters(plan))
        return plan

    def _default_values(self, plan: SearchPlan) -> dict[str, Any]:
        config = self.config_of(SearchTrial(0, {}, is_default=True), plan).filled()
        values = flat(config.to_dict())
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

    def _claim(self, journal: Journal, plan: SearchPlan) -> "_Claimed | None":
        """Take a trial whose process is gone, or else a new one."""
        for frozen in journal.trials():
            if frozen.state.name == "RUNNING" and (claimed := self._take(journal, plan, frozen)):
                return claimed
        while True:
            begun = [t for t in journal.trials() if t.state.name != "WAITING"]
            outcomes = [journal.attributes(frozen).outcome for frozen in begun]
            repeated = sum(each is not None and each.state == "repeated" for each in outcomes)
            if len(begun) - repeated >= self.trials:
                return None
            number = journal.ask()
            if claimed := self._take(journal, plan, journal.trials()[number]):
                return claimed
            if not self._enqueue_fresh(journal):
                self._is_exhausted = True
                return None

    def _take(self, journal: Journal, plan: SearchPlan, frozen: Any) -> "_Claimed | None":  # noqa: ANN401
        """The trial, if it is ours now and is to be trained."""
        lock = self._claims.take(frozen.number)
        if lock is None:
            return None
        optuna_trial = journal.trial(frozen.number, self.own.seed)
        known = journal.attributes(frozen)
        values = known.values
        if not values:  # new, or its process died as it was made
            is_outside = known.is_default and not self._default_parameters(plan)
            values = {} if is_outside else journal.suggest(optuna_trial)
            values = self._default_values(plan) if known.is_default else values
            if values in [other.values for other in journal.searched()]:
                journal.end(optuna_trial, {"state": "repeated"}, "FAIL")
                lock.close()
                return None
            optuna_trial.set_user_attr("values", values)
        trial = SearchTrial(frozen.number, values, is_default=known.is_default)
        if known.outcome is not None:  # its process died as it told
            ended = next(each for each in journal.searched() if each.number == trial.number)
            self._end(journal, optuna_trial, ended)
            lock.close()
            return None
        run = self.folder / RUNS / trial.name
        if (run / CONFIG).exists() and open_run(run).is_running:  # `tilth resume`, by hand
            lock.close()
            return None
        last_step = -1 if frozen.last_step is None else frozen.last_step
        return _Claimed(lock, optuna_trial, trial, last_step)

    def _enqueue_fresh(self, journal: Journal) -> bool:
        """Have a point tried that is new: where there are few, Optuna asks for one again."""
        known = [trial.values for trial in journal.searched()]
        chance = np.random.default_rng([self.own.seed, len(journal.trials())])
        for _ in range(DRAWS):
            drawn = {varied.name: varied.draw(chance) for varied in self.space}
            values = {varied.name: varied.at(drawn[varied.name]) for varied in self.space}  # type: ignore[arg-type]
            if values not in known:
                journal.enqueue(drawn)
                return True
        return False

    def _end(self, journal: Journal, optuna_trial: Any, trial: SearchTrial) -> None:  # noqa: ANN401
        journal.end_searched(optuna_trial, trial)
        self._claims.remove(trial.number)

    def _save_lab(self, journal: Journal, plan: SearchPlan) -> None:
        trials = journal.searched()
        is_running = any(trial.result.state == "running" for trial in trials)
        is_over = not is_running and (self._is_exhausted or len(trials) >= self.trials)
        lab = lab_of(
            trials,
            self.space,
            base=self.config_of(SearchTrial(0, {}, is_default=True), plan).to_dict(),
            command=self.command,
            notes=self._notes(trials, plan),
            importances=journal.importances() if is_over and len(self.space) > 1 else {},
            is_over=is_over,
        )
        save_lab(self.folder, lab)

    def _notes(self, trials: Sequence[SearchTrial], plan: SearchPlan) -> list[str]:
        notes = [f"Searched: {'; '.join(map(str, self.space))}."]
        notes += [f"{t.name} failed: {t.reason.rstrip('.')}." for t in trials if t.reason]
        finished = [trial for trial in trials if trial.bits is not None]
        costs = [_step_flops(self.config_of(trial, plan)) for trial in finished]
        if costs and max(costs) > 1.1 * min(costs):
            notes.append(
                "The trials have equally many steps, and their steps do not cost the same: up to "
                f"{max(costs) / min(costs):.2g} times as much as the cheapest."
            )
        if (best := best_trial(trials)) is not None:
            notes.append(
                "Each trial had one seed, so small differences may be chance; to train the best "
                f"again: tilth train --config {self.folder}/{RUNS}/{best.name}/{CONFIG} --out "
                "runs/best"
            )
        return notes

    # --- one trial --------------------------------------------------------------------------------

    def _run_trial(
        self, journal: Journal, plan: SearchPlan, claimed: "_Claimed"
    ) -> Generator[Event, None, None]:
        trial, folder = claimed.trial, self.folder / RUNS / claimed.trial.name
        planned = PlannedTrial(trial.name, trial.label, trial.name, config=self.own)
        state: State = "failed"
        reason = ""
        try:
            planned = replace(planned, config=self.config_of(trial, plan))
            event = Event(planned, _num_ended(journal), self.trials)
            with closing(drive(planned.config, folder)) as records:
                state = yield from _follow(records, claimed, event)
        except FileError:
            raise  # the data, or a damaged run: other values would not help
        except ValueError as error:
            if trial.is_default:  # then all the others would fail as well
                raise
            reason = str(error)
        result = read_result(folder, state)
        with self._claims.gate():
            self._end(journal, claimed.optuna_trial, replace(trial, result=result, reason=reason))
            self._save_lab(journal, plan)
            ended = _num_ended(journal)
        yield Event(planned, ended, self.trials, result=result)


@dataclass(frozen=True)
class _Claimed:
    """A trial that this process works on."""

    lock: IO[bytes]
    optuna_trial: Any
    trial: SearchTrial
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
        found, is_last = record.evaluation, record.step == event.trial.config.steps
        if found is not None and not is_last:
            if record.step > claimed.last_step:  # else an interrupted process has told it
                claimed.optuna_trial.report(found.bits_per_byte, record.step)
            # All others are compared with the first, so that one goes to its end.
            is_pruned = not claimed.trial.is_default and claimed.optuna_trial.should_prune()
        yield replace(event, record=record)
        if is_pruned:
            return "pruned"


def _num_ended(journal: Journal) -> int:
    return sum(trial.result.state != "running" for trial in journal.searched())


def _step_flops(config: TrainingConfig) -> int:
    return training_flops(config.model, config.batch_size)
