"""The Optuna study of a search, in a journal file."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilth.config.training import Count, MachineConfig, TrainingConfig
from tilth.errors import import_extra
from tilth.files import FileError, checked, read_bytes
from tilth.lab.search.claims import locked
from tilth.lab.search.findings import SearchTrial
from tilth.lab.search.space import Choice, Values, Varied
from tilth.runs.metrics import MAX_LOG_BYTES
from tilth.schema import nested

JOURNAL, STUDY = "search.journal", "search"
FEWEST_FINISHED = 5  # trials, before one can be worse than half of them
FEWEST_FOR_IMPORTANCE = 20  # finished trials: with fewer it is mostly noise
HINT = "restore a copy, or give another --out"


@dataclass(frozen=True)
class SearchPlan:
    """The steps and machine of all trials, decided by the first process.

    `flops` and `seconds` are expected for all trials to their ends, in one process.
    """

    steps: Count
    machine: MachineConfig
    flops: float
    seconds: float


@dataclass(frozen=True)
class _Study:
    """The attributes of the study."""

    asked: dict[str, Any]
    plan: SearchPlan


class Journal:
    """The study of a search; several processes may share its file."""

    def __init__(self, path: Path, space: Sequence[Varied]) -> None:
        self.path, self.space = path, space
        self._optuna = import_extra("optuna", "A search")
        self._optuna.logging.set_verbosity(self._optuna.logging.WARNING)
        journal = self._optuna.storages.journal
        _truncate_torn_line(path)
        with self._reading():
            backend = journal.JournalFileBackend(str(path), _JournalLock(path))
            self._storage = journal.JournalStorage(backend)
            self._study = self._optuna.create_study(
                storage=self._storage, study_name=STUDY, direction="minimize", load_if_exists=True
            )
            self._study_id = self._storage.get_study_id_from_name(STUDY)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Optuna trusts its journal; a damaged one raises anything."""
        try:
            yield
        except OSError:
            raise
        except Exception as error:
            problem = f"is not the journal of a search ({type(error).__name__}: {error})"
            raise FileError(self.path, problem, HINT) from error

    def begun(self) -> tuple[TrainingConfig, Any, SearchPlan] | None:
        """Return the base config, the varied values and the plan, if the search has begun."""
        # Both are complete once the first trial exists.
        if not self.trials():
            return None
        study = checked(_Study, self._study.user_attrs, self.path)
        self._prune(study.plan.steps)
        asked = {"data": "", **study.asked}
        vary = asked.pop("vary", None)
        with self._reading():  # options that a search of an older version lacks take their defaults
            config = TrainingConfig.from_dict(nested(asked))
        return config, vary, study.plan

    def begin(self, asked: Values, plan: SearchPlan, first: Values) -> None:
        """Save the settings and the plan, and enqueue the first trial."""
        self._study.set_user_attr("asked", dict(asked))
        self._study.set_user_attr("plan", asdict(plan))
        self._prune(plan.steps)
        self._study.enqueue_trial(dict(first), user_attrs={"is_default": True})

    def _prune(self, steps: int) -> None:
        # By the median, from a quarter of the steps on: the best trial of the warm-up is not the
        # best after it. Successive halving would need more trials than the usual twenty.
        self._study.pruner = self._optuna.pruners.MedianPruner(
            n_startup_trials=FEWEST_FINISHED, n_warmup_steps=steps // 4
        )

    def trials(self) -> list[Any]:
        """Return all Optuna trials, by number."""
        with self._reading():
            found: list[Any] = self._study.get_trials(deepcopy=False)
        return found

    def searched(self, frozen: Any) -> SearchTrial:  # noqa: ANN401, Optuna's trial
        """Return a trial of the search, checked."""
        attributes = {**frozen.user_attrs, "number": frozen.number}
        found = checked(SearchTrial, attributes, self.path)
        if found.values and found.values.keys() != {varied.name for varied in self.space}:
            problem = f"has other values in trial {frozen.number} than are searched"
            raise FileError(self.path, problem, HINT)
        return found

    def all_searched(self) -> list[SearchTrial]:
        """Return all trials that have values; a trial that only repeated another has none."""
        return [trial for trial in map(self.searched, self.trials()) if trial.values]

    def trial(self, number: int, seed: int) -> Any:  # noqa: ANN401, Optuna's trial
        """Return a running trial, to continue with."""
        # A seed per trial: else two processes, or one that is called again, would draw the same
        # values for several trials.
        own = np.random.SeedSequence([seed, number]).generate_state(1)
        self._study.sampler = self._optuna.samplers.TPESampler(seed=int(own[0]))
        trial_id = self._storage.get_trial_id_from_study_id_trial_number(self._study_id, number)
        return self._optuna.Trial(self._study, trial_id)

    def suggest(self, trial: Any) -> dict[str, Any]:  # noqa: ANN401, Optuna's trial
        """Draw values for a trial by Optuna."""
        return {varied.name: varied.at(_suggest(trial, varied)) for varied in self.space}

    def ask(self) -> int:
        """Return the number of the enqueued trial, or of a new one."""
        return int(self._study.ask().number)

    def enqueue(self, parameters: Values) -> None:
        """Enqueue a trial with these parameters."""
        self._study.enqueue_trial(dict(parameters))

    def end(self, trial: Any, ended: SearchTrial) -> None:  # noqa: ANN401, Optuna's trial
        """Save the outcome of a trial."""
        trial.set_user_attr("outcome", asdict(ended.outcome))
        # A trial that diverged counts as pruned: Optuna ranks those behind all others, and so
        # leaves their part of the space. It ignores a failed trial.
        told = {"finished": "COMPLETE", "pruned": "PRUNED", "diverged": "PRUNED"}
        is_outside = ended.is_default and not trial.params
        state = "FAIL" if is_outside else told.get(ended.outcome.state, "FAIL")
        value = ended.outcome.bits_per_byte if state == "COMPLETE" else None
        self._study.tell(trial, value, self._optuna.trial.TrialState[state])

    def importances(self) -> dict[str, float]:
        """Return the share of each field in the result; {} with too few finished trials."""
        finished = [trial for trial in self.trials() if trial.state.name == "COMPLETE"]
        if len(finished) < FEWEST_FOR_IMPORTANCE:
            return {}
        return dict(self._optuna.importance.get_param_importances(self._study))


def _suggest(trial: Any, varied: Varied) -> Any:  # noqa: ANN401, Optuna's trial
    if isinstance(varied, Choice):
        return trial.suggest_categorical(varied.name, varied.words)
    if varied.is_whole:
        return trial.suggest_int(varied.name, varied.low, varied.high)
    return trial.suggest_float(varied.name, varied.low, varied.high, log=varied.is_logarithmic)


class _JournalLock:
    """A lock on the journal itself, with Optuna's interface.

    Optuna's own locks are separate files. After a kill they delay the next process by 30 s, and
    they wait forever if the file is a dangling link.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._held = path, ExitStack()

    def acquire(self) -> bool:
        """Wait for the lock."""
        self._held.enter_context(locked(self._path))
        return True

    def release(self) -> None:
        """Release the lock."""
        self._held.close()


def _truncate_torn_line(path: Path) -> None:
    """Remove a line that a killed process or a full disk left torn: Optuna would fail on it."""
    with locked(path):
        content = read_bytes(path, MAX_LOG_BYTES)
        if content and not content.endswith(b"\n"):
            with path.open("r+b") as file:
                file.truncate(content.rfind(b"\n") + 1)
