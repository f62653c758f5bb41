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
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import IO, Any

from tilth.config.overrides import changed
from tilth.config.training import TrainingConfig, differences
from tilth.data import open_data
from tilth.executors import Executor, run_tasks
from tilth.files import FileError, StrPath
from tilth.formatting import format_duration, scientific
from tilth.lab.cluster import JOBS
from tilth.lab.planning import WATCH
from tilth.lab.question import refuse_changes, step_flops
from tilth.lab.runner import Event, drive
from tilth.lab.search.claims import locked, remove_claim, take_claim
from tilth.lab.search.findings import Outcome, SearchTrial, best_trial, lab_of
from tilth.lab.search.journal import JOURNAL, Journal, SearchPlan
from tilth.lab.search.space import Values, check_space, draw_points, fits, read_space
from tilth.lab.trials import PlannedTrial, read_result
from tilth.report.lab_file import LOCK, RUNS, Lab, State, check_folder, load_lab, save_lab
from tilth.runs.run import CONFIG, open_run
from tilth.schema import check_int, flat
from tilth.training import plan as plan_run

EVALUATIONS = 8  # of a trial: where it may be found worse than others, and stopped
DRAWS = 200  # attempts to find a new point; then the space counts as exhausted

DEFAULT = SearchTrial(0, is_default=True)
Claim = tuple[IO[bytes], Any, SearchTrial]
"""A trial that this process works on: its lock, Optuna's trial, and the trial."""


class Search:
    """A search, which other processes may share."""

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

        `fixed` are changes of the base for each trial, besides its own. A time budget of the base
        is for all trials together, in one process.
        """
        check_int("trials", trials)
        self.base = replace(base, data=str(Path(base.data).resolve()))
        self.vary, self.space = tuple(vary), read_space(vary)
        self.folder = Path(out)
        self.fixed = {**WATCH, **(fixed or {})}
        self.trials, self.command = trials, tuple(command)
        self.own = self._changed({})
        # The share of random values that fit together.
        self.possible = check_space(self.space, self._changed, self.own.seed)
        if not self.possible:
            raise ValueError("no combination of the searched values is valid; vary fewer fields.")
        self._is_exhausted = False

    def _changed(self, values: Values) -> TrainingConfig:
        return changed(self.base, {**self.fixed, **values})

    def plan(self) -> SearchPlan:
        """Measure the time of a step, and decide the number of steps."""
        own = self.own
        drawn = [v for _, v in draw_points(self.space, 50, own.seed) if fits(v, self._changed)]
        costs = [step_flops(self._changed(values)) / step_flops(own) for values in drawn]
        # In runs of the config's own cost: the first trial, and others of another size.
        worth = 1.0 + (self.trials - 1) * (fmean(costs) if costs else 1.0)
        if own.budget_seconds is not None:
            own = replace(own, budget_seconds=own.budget_seconds / worth)
        run = plan_run(own, open_data(self.base.data))
        return SearchPlan(
            run.config.steps, run.config.machine, run.flops * worth, run.seconds * worth
        )

    def describe(self, plan: SearchPlan) -> str:
        """Return the cost of a search, in some lines."""
        machine = plan.machine
        compiling = "compiled" if machine.compile else "not compiled"
        tokens = plan.steps * self.own.tokens_per_step
        lines = [
            *(f"varies   {varied}" for varied in self.space),
            f"trials   {self.trials}, each of {plan.steps:,} steps "
            f"({tokens:,} tokens in the first)",
            f"cost     {scientific(plan.flops)} FLOPs in all, if none is stopped early",
            f"machine  {machine.device}, {machine.threads} threads, {machine.dtype}, {compiling}",
            f"time     {format_duration(plan.seconds)} expected, in one process",
        ]
        if self.possible < 1.0:
            lines.append(
                f"note     {1.0 - self.possible:.0%} of random combinations are not valid: these "
                "trials fail at once"
            )
        return "\n".join(lines)

    def config_of(self, trial: SearchTrial, plan: SearchPlan) -> TrainingConfig:
        """Return the config of a trial."""
        decided = {f"machine.{name}": value for name, value in vars(plan.machine).items()}
        decided |= {"steps": plan.steps, "budget_seconds": None}
        own = {} if trial.is_default else trial.values
        config = changed(self.base, {**decided, **self.fixed, **own})
        every = max(1, config.known_steps // EVALUATIONS)
        return changed(config, {"watch.evaluate_every": every, "watch.save_every": every})

    def lab(self) -> Lab:
        """Load the results so far."""
        return load_lab(self.folder)

    def check_folder(self) -> None:
        """Refuse a folder with other files; jobs and the journal may exist before `lab.json`."""
        check_folder(self.folder, "search", (JOBS, JOURNAL))

    # --- the loop ---------------------------------------------------------------------------------

    def run(self) -> Iterator[Event]:
        """Train trial after trial; leave the loop to stop, and run again to continue."""
        self.check_folder()
        self.folder.mkdir(parents=True, exist_ok=True)
        with locked(self.folder / LOCK):
            journal = Journal(self.folder / JOURNAL, self.space)
            plan = self._begin_or_join(journal)
            self._save_lab(journal, plan)
        while True:
            with locked(self.folder / LOCK):
                claim = self._claim(journal, plan)
                self._save_lab(journal, plan)
            if claim is None:
                return
            with claim[0]:  # closing it releases the claim
                yield from self._run_trial(journal, plan, claim)

    def run_on(self, executor: Executor) -> None:
        """Run it in as many processes as the executor has workers; they share the trials."""
        self.check_folder()
        self.folder = self.folder.resolve()  # a worker may have another working directory
        work = [self] * executor.num_workers
        for _ in run_tasks(join_search, work, executor, self.folder / JOBS):
            pass

    def answer(self) -> Lab:
        """Run it to its end, and load the lab."""
        for _event in self.run():
            pass
        return self.lab()

    def _begin_or_join(self, journal: Journal) -> SearchPlan:
        """Begin the search, or join it if it is the same."""
        asked = {**flat(self.own.to_dict()), "vary": list(self.vary)}
        del asked["data"]  # it may have moved; the runs know its fingerprint
        if (found := journal.begun()) is not None:
            old, vary, plan = found
            changes = differences(old, self.own)
            if vary != asked["vary"]:
                changes["vary"] = vary, asked["vary"]
            refuse_changes(f"{self.folder} is a search with", changes)
            return plan
        plan = self.plan()
        journal.begin(asked, plan, self._default_parameters(plan))
        return plan

    def _default_values(self, plan: SearchPlan) -> dict[str, Any]:
        values = flat(self.config_of(DEFAULT, plan).filled().to_dict())
        return {varied.name: values.get(varied.name) for varied in self.space}

    def _default_parameters(self, plan: SearchPlan) -> dict[str, Any]:
        """Return the config's own values as Optuna parameters; {} if some lie outside the space."""
        values = self._default_values(plan)
        found = {varied.name: varied.parameter(values[varied.name]) for varied in self.space}
        return {} if None in found.values() else found

    # --- under the lock of the search -------------------------------------------------------------

    def _claim(self, journal: Journal, plan: SearchPlan) -> Claim | None:
        """Take a trial whose process is gone, or else a new one."""
        for frozen in journal.trials():
            if frozen.state.name == "RUNNING" and (claim := self._take(journal, plan, frozen)):
                return claim
        while True:
            begun = [t for t in journal.trials() if t.state.name != "WAITING"]
            states = [journal.searched(frozen).outcome.state for frozen in begun]
            if len(begun) - states.count("repeated") >= self.trials:
                return None
            number = journal.ask()
            if claim := self._take(journal, plan, journal.trials()[number]):
                return claim
            if not self._enqueue_fresh(journal):
                self._is_exhausted = True
                return None

    def _take(self, journal: Journal, plan: SearchPlan, frozen: Any) -> Claim | None:  # noqa: ANN401
        """Claim a trial, if no other process has it and it is to be trained."""
        lock = take_claim(self.folder, frozen.number)
        if lock is None:
            return None
        with ExitStack() as held:
            held.enter_context(lock)
            optuna_trial = journal.trial(frozen.number, self.own.seed)
            trial = journal.searched(frozen)
            if not trial.values:  # new, or its process was killed before it drew them
                is_outside = trial.is_default and not self._default_parameters(plan)
                values = {} if is_outside else journal.suggest(optuna_trial)
                values = self._default_values(plan) if trial.is_default else values
                if values in [other.values for other in journal.all_searched()]:
                    journal.end(optuna_trial, replace(trial, outcome=Outcome("repeated")))
                    return None
                optuna_trial.set_user_attr("values", values)
                trial = replace(trial, values=values)
            if trial.state != "running":  # its process was killed before it told Optuna
                self._end(journal, optuna_trial, trial)
                return None
            run = self.folder / RUNS / trial.name
            if (run / CONFIG).exists() and open_run(run).is_running:  # `tilth resume`, by hand
                return None
            held.pop_all()
        return lock, optuna_trial, trial

    def _enqueue_fresh(self, journal: Journal) -> bool:
        """Enqueue a point that is new: in a small space, Optuna repeats itself."""
        known = [trial.values for trial in journal.all_searched()]
        seed = [self.own.seed, len(journal.trials())]
        for parameters, values in draw_points(self.space, DRAWS, seed):
            if values not in known:
                journal.enqueue(parameters)
                return True
        return False

    def _end(self, journal: Journal, optuna_trial: Any, trial: SearchTrial) -> None:  # noqa: ANN401
        journal.end(optuna_trial, trial)
        remove_claim(self.folder, trial.number)

    def _save_lab(self, journal: Journal, plan: SearchPlan) -> None:
        trials = journal.all_searched()
        is_running = any(trial.state == "running" for trial in trials)
        is_over = not is_running and (self._is_exhausted or len(trials) >= self.trials)
        importances = journal.importances() if is_over and len(self.space) > 1 else {}
        lab = lab_of(trials, self.space, importances, is_over)
        base, notes = self.config_of(DEFAULT, plan).to_dict(), tuple(self._notes(trials, plan))
        save_lab(self.folder, replace(lab, base=base, command=self.command, notes=notes))

    def _notes(self, trials: Sequence[SearchTrial], plan: SearchPlan) -> list[str]:
        notes = [f"Search space: {'; '.join(map(str, self.space))}."]
        notes += [
            f"{t.name} failed: {t.outcome.reason.rstrip('.')}." for t in trials if t.outcome.reason
        ]
        finished = [trial for trial in trials if trial.bits is not None]
        costs = [step_flops(self.config_of(trial, plan)) for trial in finished]
        if costs and max(costs) > 1.1 * min(costs):
            notes.append(
                "All trials have the same number of steps, but the FLOPs per step differ by up to "
                f"{max(costs) / min(costs):.2g} times."
            )
        if (best := best_trial(trials)) is not None:
            notes.append(
                "Each trial has one seed, so small differences may be noise. To train the best "
                f"again: tilth train --config {self.folder}/{RUNS}/{best.name}/{CONFIG} --out "
                "runs/best"
            )
        return notes

    # --- one trial --------------------------------------------------------------------------------

    def _run_trial(
        self, journal: Journal, plan: SearchPlan, claim: Claim
    ) -> Generator[Event, None, None]:
        _, optuna_trial, trial = claim
        folder, reason = self.folder / RUNS / trial.name, ""
        state: State = "failed"
        planned = PlannedTrial(trial.name, trial.label, trial.name, config=self.own)
        last_reported = journal.trials()[trial.number].last_step or -1
        try:
            planned = replace(planned, config=self.config_of(trial, plan))
            event = Event(planned, _num_ended(journal), self.trials)
            with closing(drive(planned.config, folder)) as progress:
                for happened in progress:
                    if isinstance(happened, str):
                        state = happened
                        break
                    is_worse = False
                    found, is_last = happened.evaluation, happened.step == planned.config.steps
                    if found is not None and not is_last:
                        if happened.step > last_reported:  # else an interrupted process reported it
                            optuna_trial.report(found.bits_per_byte, happened.step)
                        # The first trial is the reference of all others, so it is never stopped.
                        is_worse = not trial.is_default and optuna_trial.should_prune()
                    yield replace(event, record=happened)
                    if is_worse:
                        state = "pruned"
                        break
        except FileError:
            raise  # the data, or a damaged run: other values would not help
        except ValueError as error:
            if trial.is_default:  # then all the others would fail as well
                raise
            reason = str(error)
        result = read_result(folder, state)
        outcome = Outcome(state, result.bits_per_byte, result.steps, reason)
        with locked(self.folder / LOCK):
            self._end(journal, optuna_trial, replace(trial, outcome=outcome))
            self._save_lab(journal, plan)
            ended = _num_ended(journal)
        yield Event(planned, ended, self.trials, result=result)


def _num_ended(journal: Journal) -> int:
    return sum(trial.state != "running" for trial in journal.all_searched())


def join_search(search: Search) -> None:
    """Run trials of a search until there are none left, and print the state of each."""
    for event in search.run():
        if event.result is not None:
            trial, state = event.trial, event.result.state
            print(f"{trial.name} {state}: {trial.label}", flush=True)  # noqa: T201, a job's log
