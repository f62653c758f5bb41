"""Scaling laws: the loss as a function of model size and training tokens, fitted to runs.

    L(N, D) = E + A / N^alpha + B / D^beta

(Hoffmann et al. 2022). E is the loss of an ideal model of the text; the other terms are what a
model of finite size and a run of finite length lose. Compute is C = 6 N D.

>>> law = Law(E=1.2, A=50.0, alpha=0.35, B=400.0, beta=0.4)
>>> sizes, lengths = (1e6, 2e6, 4e6, 8e6), (1e6, 4e6, 16e6)
>>> found = fit([(n, d, law.loss(n, d)) for n in sizes for d in lengths])
>>> [round(float(value), 2) for value in (found.law.E, found.law.alpha, found.law.beta)]
[1.2, 0.35, 0.4]
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilth.accounting.budget import FLOPS_PER_PARAMETER_AND_TOKEN

PARAMETERS = 5
HUBER = 0.01  # residuals of the log loss beyond this count linearly: a diverged run pulls less
STARTS = 32
ITERATIONS = 200
EXPONENTS = (0.02, 3.0)  # the range of alpha and beta

Array = NDArray[np.float64]
Point = tuple[float, float, float]
"""Parameters, tokens and loss of a run."""


@dataclass(frozen=True)
class Law:
    """The five parameters of L(N, D)."""

    E: float
    A: float
    alpha: float
    B: float
    beta: float

    def loss(self, parameters: float, tokens: float) -> float:
        """Return L(N, D)."""
        return float(self.E + self.A / parameters**self.alpha + self.B / tokens**self.beta)

    def optimum(self, flops: float) -> tuple[float, float]:
        """Return the parameters and tokens of lowest loss with 6 N D = `flops`."""
        product = flops / FLOPS_PER_PARAMETER_AND_TOKEN
        both = self.alpha + self.beta
        ratio = (self.alpha * self.A / (self.beta * self.B)) ** (1 / both)
        parameters = ratio * product ** (self.beta / both)
        return float(parameters), float(product / parameters)


@dataclass(frozen=True)
class Fit:
    """A law, and the laws that resampled residuals lead to."""

    law: Law
    replicates: tuple[Law, ...]
    residuals: tuple[float, ...]
    """Of the log loss, scaled for the degrees of freedom."""

    def interval(self, name: str, level: float = 0.9) -> tuple[float, float]:
        """Return an interval of a parameter of the law."""
        return _quantiles([getattr(each, name) for each in self.replicates], level)

    def predict(
        self, parameters: float, tokens: float, level: float = 0.9
    ) -> tuple[float, float, float]:
        """Return the loss of one more run, and the ends of its interval."""
        # A run differs from its law as much as those of the fit do.
        noise = np.exp(np.resize(self.residuals, len(self.replicates)))
        losses = [each.loss(parameters, tokens) for each in self.replicates]
        return (self.law.loss(parameters, tokens), *_quantiles(losses * noise, level))


def fit(points: Sequence[Point], *, replicates: int = 300) -> Fit:
    """Fit a law by the Huber loss of the log loss, with a bootstrap of the residuals.

    Raises ValueError for fewer than six runs, or fewer than two sizes or lengths.
    """
    sizes, lengths = (len({point[axis] for point in points}) for axis in (0, 1))
    if len(points) <= PARAMETERS or min(sizes, lengths) < 2:
        raise ValueError(
            f"a law of {PARAMETERS} parameters needs {PARAMETERS + 1} runs or more, of two sizes "
            f"and two lengths; there are {len(points)} runs, {sizes} sizes and {lengths} lengths."
        )
    data = np.asarray(points, dtype=np.float64)
    if not np.isfinite(data).all() or (data <= 0.0).any():
        raise ValueError("parameters, tokens and losses must be finite and positive.")
    logs = np.log(data)
    # Centred: A and alpha, B and beta are nearly collinear far from the data.
    centre = logs[:, :2].mean(0)
    x, y = (logs[:, :2] - centre).T
    generator = np.random.default_rng(0)
    starts = _starts(logs[:, 2], generator)
    tried, costs = _minimize(starts, x, y, np.tile(logs[:, 2], (len(starts), 1)))
    best = tried[costs.argmin()]
    fitted = _log_losses(best[None], x, y)[0][0]
    residuals = (logs[:, 2] - fitted) * np.sqrt(len(points) / (len(points) - PARAMETERS))
    residuals -= residuals.mean()
    drawn = fitted + generator.choice(residuals, (replicates, len(points)))
    again, _ = _minimize(np.tile(best, (replicates, 1)), x, y, drawn)
    laws = [_law(each, centre) for each in again]
    return Fit(_law(best, centre), tuple(laws), tuple(generator.permutation(residuals).tolist()))


def _quantiles(values: object, level: float) -> tuple[float, float]:
    low, high = np.quantile(np.asarray(values), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _law(theta: Array, centre: Array) -> Law:
    log_e, log_a, log_b = theta[:3]
    alpha, beta = np.exp(theta[3:])
    a, b = np.exp([log_a + alpha * centre[0], log_b + beta * centre[1]])
    return Law(*(float(each) for each in (np.exp(log_e), a, alpha, b, beta)))


def _starts(log_losses: Array, generator: np.random.Generator) -> Array:
    """Return (starts, 5): shares of the lowest loss, and exponents, drawn at random."""
    lowest = np.exp(log_losses.min())
    shares = np.log(generator.dirichlet([1.0, 1.0, 1.0], STARTS) * lowest + 1e-9)
    exponents = np.log(generator.uniform(0.1, 1.0, (STARTS, 2)))
    return np.concatenate([shares, exponents], 1)


def _log_losses(theta: Array, x: Array, y: Array) -> tuple[Array, Array]:
    """Return log L of each fit and point, and its derivatives in theta.

    theta, (fits, 5), has log E, log A, log B, log alpha and log beta: all positive.
    """
    alpha, beta = np.exp(theta[:, 3:, None]).transpose(1, 0, 2)
    terms = np.stack(
        np.broadcast_arrays(theta[:, :1], theta[:, 1:2] - alpha * x, theta[:, 2:3] - beta * y), -1
    )
    largest = terms.max(-1, keepdims=True)
    weights = np.exp(terms - largest)
    total = weights.sum(-1, keepdims=True)
    shares = weights / total
    slopes = np.stack([-shares[..., 1] * alpha * x, -shares[..., 2] * beta * y], -1)
    return (largest + np.log(total))[..., 0], np.concatenate([shares, slopes], -1)


def _costs(residuals: Array) -> Array:
    size = np.abs(residuals)
    costs: Array = np.where(size <= HUBER, size**2 / 2, HUBER * (size - HUBER / 2)).sum(-1)
    return costs


def _minimize(theta: Array, x: Array, y: Array, log_losses: Array) -> tuple[Array, Array]:
    """Minimize the Huber loss of each row by Levenberg-Marquardt with reweighted residuals."""
    low, high = np.log(EXPONENTS)
    damping = np.full(len(theta), 1e-2)
    found, slopes = _log_losses(theta, x, y)
    residuals = found - log_losses
    costs = _costs(residuals)
    for _ in range(ITERATIONS):
        weighted = (
            slopes * np.minimum(1.0, HUBER / np.maximum(np.abs(residuals), 1e-300))[..., None]
        )
        curvature = np.einsum("fni,fnj->fij", weighted, slopes)
        gradient = np.einsum("fni,fn->fi", weighted, residuals)
        scale = np.einsum("fii->fi", curvature) + 1e-12
        damped = curvature + np.einsum("f,fi,ij->fij", damping, scale, np.eye(PARAMETERS))
        moved = theta - np.linalg.solve(damped, gradient[..., None])[..., 0].clip(-2.0, 2.0)
        moved[:, :3] = moved[:, :3].clip(log_losses.min() - 12.0, log_losses.max() + 3.0)
        moved[:, 3:] = moved[:, 3:].clip(low, high)
        found, new_slopes = _log_losses(moved, x, y)
        new_residuals = found - log_losses
        new_costs = _costs(new_residuals)
        better = new_costs < costs
        damping = np.where(better, damping / 3, damping * 4).clip(1e-12, 1e8)
        gain = (costs - new_costs)[better]
        theta[better], slopes[better] = moved[better], new_slopes[better]
        residuals[better], costs[better] = new_residuals[better], new_costs[better]
        if not better.any() and (damping >= 1e8).all():
            break
        if better.all() and gain.max(initial=0.0) < 1e-15:
            break
    return theta, costs
