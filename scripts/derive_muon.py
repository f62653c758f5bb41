"""Derive the coefficients of Muon's iteration: best odd polynomials of degree 5, one after another.

    python scripts/derive_muon.py [--lowest 0.002] [--iterations 4]

Each p(s) = a s + b s^3 + c s^5 minimizes the largest |1 - p(s)| over the interval [l, u] of the
singular values (Remez exchange). p maps it to [1 - e, 1 + e], the interval of the next one. This
greedy choice is the best composition (Amsel et al. 2025, arXiv 2505.16932). The first interval is
[lowest, 1]. Prints the coefficients of s / SAFETY and, in exact arithmetic, the interval after each
iteration, beside that of five iterations of the fixed coefficients (Jordan et al. 2024).
"""

import argparse

import numpy as np

Coefficients = tuple[float, float, float]
SAFETY = 1.01  # all but the last polynomial take s / SAFETY: rounding must not leave the interval


def best_polynomial(low: float, high: float) -> tuple[Coefficients, float]:
    """Return a, b, c and the largest error on [low, high]."""
    points = np.array([low, low + (high - low) / 3, low + 2 * (high - low) / 3, high])
    signs = np.array([1.0, -1.0, 1.0, -1.0])
    for _ in range(200):
        # 1 - p(s) is +e, -e, +e, -e at the four points of alternation.
        system = np.stack([points, points**3, points**5, signs], 1)
        a, b, c, error = np.linalg.solve(system, np.ones(4))
        # The extrema inside: p'(s) = a + 3 b s^2 + 5 c s^4 = 0.
        root = np.sqrt(max(9 * b * b - 20 * a * c, 0.0))
        inner = np.sqrt(np.sort([(-3 * b + root) / (10 * c), (-3 * b - root) / (10 * c)]))
        moved = np.array([low, *inner.clip(low, high), high])
        if np.allclose(moved, points, rtol=0, atol=1e-14):
            break
        points = moved
    return (float(a), float(b), float(c)), float(abs(error))


def derive(lowest: float, iterations: int) -> list[Coefficients]:
    """Return the coefficients of each iteration for singular values in [lowest, 1]."""
    low, high, found = lowest, 1.0, []
    for _ in range(iterations):
        coefficients, error = best_polynomial(low, high)
        found.append(coefficients)
        low, high = 1 - error, 1 + error
    return found


def image(
    coefficients: list[Coefficients], lowest: float, number: int = 200_001
) -> tuple[float, float]:
    """Return the smallest and largest image of [lowest, 1]."""
    values = np.geomspace(lowest, 1.0, number)
    for a, b, c in coefficients:
        values = a * values + b * values**3 + c * values**5
    return float(values.min()), float(values.max())


def main() -> None:
    """Print the coefficients and the intervals."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lowest", type=float, default=0.002)
    parser.add_argument("--iterations", type=int, default=4)
    options = parser.parse_args()
    fixed = [(3.4445, -4.7750, 2.0315)] * 5
    print("fixed, 5 iterations: [{:.4f}, {:.4f}]".format(*image(fixed, options.lowest)))
    found = derive(options.lowest, options.iterations)
    for number, (a, b, c) in enumerate(found, 1):
        low, high = image(found[:number], options.lowest)
        scale = 1.0 if number == len(found) else SAFETY
        values = ", ".join(f"{v / scale**p:.4f}" for v, p in ((a, 1), (b, 3), (c, 5)))
        print(f"({values}),  # [{low:.4f}, {high:.4f}]")


if __name__ == "__main__":
    main()
