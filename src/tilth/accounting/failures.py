"""Checkpoints against failures: the best interval, and the share of time that is useful.

A failure of one rank ends the step of all: they start again from the last checkpoint. Failures are
independent of each other and of time (a Poisson process), also while a checkpoint is saved and
while the ranks start again. Goodput is useful time by all time.

>>> failures = Failures(mtbf_seconds=4 * 3600, save_seconds=60, restart_seconds=300)
>>> round(failures.young_seconds), round(failures.daly_seconds), round(failures.best_seconds)
(1315, 1275, 1275)
>>> round(failures.goodput(1275), 4), round(failures.goodput(60), 4)
(0.8927, 0.4877)
>>> simulation = failures.simulate(30 * 86400, 1275, runs=100, seed=0)
>>> round(simulation.goodput, 3), 170 < simulation.failures < 220
(0.893, True)
"""

import math
import random
from dataclasses import dataclass

from tilth.schema import POSITIVE, Range, check_float, check_int

MOST_FAILURES = 10_000_000  # of all simulated runs: seconds of work
NEARLY = (0.05, 0.95)


@dataclass(frozen=True)
class Simulation:
    """Simulated runs: means, and the goodput of the run at 5% and at 95%."""

    runs: int
    goodput: float
    low_goodput: float
    high_goodput: float
    failures: float
    seconds: float


@dataclass(frozen=True)
class Failures:
    """The times that determine goodput.

    `mtbf_seconds` is the mean time between failures of the whole job, `save_seconds` the time in
    which a checkpoint stops the training, `restart_seconds` the time from a failure to the next
    step: to notice, to start and to load.
    """

    mtbf_seconds: float
    save_seconds: float
    restart_seconds: float

    def __post_init__(self) -> None:
        check_float("mtbf", self.mtbf_seconds, POSITIVE)
        check_float("save_seconds", self.save_seconds, POSITIVE)
        check_float("restart", self.restart_seconds, Range(at_least=0.0))

    @property
    def young_seconds(self) -> float:
        """The best interval by Young (1974): sqrt(2 * save * mtbf)."""
        return math.sqrt(2 * self.save_seconds * self.mtbf_seconds)

    @property
    def daly_seconds(self) -> float:
        """The best interval by Daly (2006), also where saving takes long: higher orders."""
        if self.save_seconds >= 2 * self.mtbf_seconds:
            return self.mtbf_seconds
        ratio = self.save_seconds / (2 * self.mtbf_seconds)
        return self.young_seconds * (1 + math.sqrt(ratio) / 3 + ratio / 9) - self.save_seconds

    @property
    def best_seconds(self) -> float:
        """The interval with the most goodput, between Young's and Daly's approximations of it."""
        low, high = self.daly_seconds / 10, max(self.daly_seconds, self.young_seconds) * 10
        golden = (math.sqrt(5) - 1) / 2
        while high - low > 1e-9 * high:
            left, right = high - golden * (high - low), low + golden * (high - low)
            if self._log_cost(left) < self._log_cost(right):
                high = right
            else:
                low = left
        return (low + high) / 2

    def _log_cost(self, interval_seconds: float) -> float:
        """Return log(1 / goodput): the time itself overflows where failures are frequent."""
        part = (interval_seconds + self.save_seconds) / self.mtbf_seconds
        grown = math.log(math.expm1(part)) if part < 1 else part + math.log1p(-math.exp(-part))
        fixed = self.restart_seconds / self.mtbf_seconds
        return math.log(self.mtbf_seconds) + fixed + grown - math.log(interval_seconds)

    def goodput(self, interval_seconds: float) -> float:
        """Return the share of useful time, for a checkpoint after each interval of work.

        An interval of work T and its checkpoint S take M exp(R / M) (exp((T + S) / M) - 1) on
        average, with the mean time between failures M and the restart R (Daly 2006).
        """
        check_float("interval", interval_seconds, POSITIVE)
        return math.exp(-self._log_cost(interval_seconds))

    def simulate(
        self, work_seconds: float, interval_seconds: float, *, runs: int = 200, seed: int = 0
    ) -> Simulation:
        """Simulate runs of `work_seconds` of useful work, failure after failure."""
        check_float("work", work_seconds, POSITIVE)
        check_float("interval", interval_seconds, POSITIVE)
        check_int("runs", runs)
        goodput = self.goodput(interval_seconds)  # 0 if a float cannot hold it
        self._check_length(runs * work_seconds / goodput if goodput else math.inf)
        drawn = random.Random(seed)  # noqa: S311, a simulation
        found = [self._run(work_seconds, interval_seconds, drawn) for _ in range(runs)]
        goodputs = sorted(work_seconds / seconds for seconds, _ in found)
        low, high = (goodputs[round(share * (runs - 1))] for share in NEARLY)
        seconds = sum(seconds for seconds, _ in found) / runs
        failures = sum(failures for _, failures in found) / runs
        return Simulation(runs, work_seconds / seconds, low, high, failures, seconds)

    def _check_length(self, seconds: float) -> None:
        if not seconds / self.mtbf_seconds < MOST_FAILURES:
            problem = f"The run would meet more than {MOST_FAILURES:,} failures in the simulation"
            raise ValueError(f"{problem}; save more often, or give a longer mtbf.")

    def _run(
        self, work_seconds: float, interval_seconds: float, drawn: random.Random
    ) -> tuple[float, int]:
        """Return the time of a run and its failures. Its end is saved too."""
        whole, rest = divmod(work_seconds, interval_seconds)
        segment = interval_seconds + self.save_seconds
        left, last = int(whole), rest + self.save_seconds if rest > 0 else 0.0
        now, start, failures = 0.0, 0.0, 0
        while True:
            until_failure = drawn.expovariate(1 / self.mtbf_seconds)
            if start + left * segment + last <= until_failure:
                return now + start + left * segment + last, failures
            # Complete segments stay; the time since the last of them is lost.
            done = int(max(0.0, until_failure - start) // segment)
            left -= min(done, left)
            now, start, failures = now + until_failure, self.restart_seconds, failures + 1
