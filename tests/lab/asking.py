"""Answering a question by a formula instead of by training: what a question does with outcomes."""

from tilth.lab.experiment import Outcome
from tilth.model import ModelConfig
from tilth.recipes import MachineConfig, OptimizerConfig, TrainingConfig

BASE = TrainingConfig(
    "data/stories",
    ModelConfig(1000, context_length=64, d_model=96, num_layers=4, num_heads=3),
    steps=400,
    batch_size=16,
    optimizer=OptimizerConfig("muon", lr=1e-2),
    machine=MachineConfig("cpu", "float32", compile=False, threads=1),
)


def finished(bits, *, step_seconds=0.01, steps=400):
    return Outcome("finished", 2.0 * bits, bits, step_seconds, steps)


def diverged(steps=20):
    return Outcome("diverged", 8.0, 9.0, 0.01, steps)


def ask(question, answer_to, outcomes=None):
    """Give outcomes until no trial is missing; return them, in the order of asking."""
    outcomes = {} if outcomes is None else outcomes
    while pending := [s for s in question.setups(outcomes) if s.name not in outcomes]:
        names = [setup.name for setup in question.setups(outcomes)]
        assert len(set(names)) == len(names)
        for setup in pending:
            outcomes[setup.name] = answer_to(setup)
    return outcomes
