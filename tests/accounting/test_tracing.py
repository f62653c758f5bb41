"""Traced numbers equal untraced ones, and their formulas give them."""

import json
import math
import operator
import random
from pathlib import Path

import pytest

from tests.accounting.configs import VARIANTS, XL
from tilth.accounting import account
from tilth.accounting.tracing import Formulas, expression, named, operation_of

OPTIONS = {"batch_size": 12, "num_microbatches": 5, "steps": 100}
ON_A100 = {**OPTIONS, "hardware": "a100", "mfu": 0.4, "hours": 3, "price_per_hour": 2.5}
SOME = [XL, *VARIANTS[13::40], *(pytest.param(each, marks=pytest.mark.slow) for each in VARIANTS)]


def numbers(value, path=()):
    """All numbers of a nested value, by path."""
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for name, each in pairs:
            yield from numbers(each, (*path, str(name)))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield ".".join(path), value


def evaluated(formula):
    """The value of a formula with its values, by Python."""
    text = formula.replace(",", "").replace("×", "*").replace("−", "-").replace("^", "**")
    return eval(text, {"__builtins__": {}})


@pytest.mark.parametrize("optimizer", ["adamw", "muon", "sgd"])
@pytest.mark.parametrize("config", SOME)
def test_traced_accounts_equal_untraced_ones(config, optimizer):
    options = {**ON_A100, "optimizer": optimizer, "recompute": optimizer == "sgd"}
    plain, traced = account(config, **options), account(config, traced=True, **options)
    assert json.dumps(plain.to_dict()) == json.dumps(traced.to_dict())
    assert str(plain) == str(traced)


@pytest.mark.parametrize("config", SOME)
def test_formulas_give_their_numbers(config):
    found = dict(numbers(account(config, traced=True, optimizer="muon", **ON_A100).to_dict()))
    whole = {path: each for path, each in found.items() if path.startswith("parameters.")}
    formulas = Formulas(whole, {path: path for path in whole})
    traced = 0
    for path, number in found.items():
        if operation_of(number) is None:
            continue
        traced += 1
        assert evaluated(expression(number, values=True)) == pytest.approx(number, rel=1e-8), path
        parts = formulas.parts(number)
        assert evaluated("".join(part.value for part in parts)) == pytest.approx(number, rel=1e-8)
        for part in parts:
            assert not part.path or float(part.value.replace(",", "")) == found[part.path]
    assert traced > 100
    # The rest is zero, one, or the result of a search or of a square root.
    rest = {
        path for path, each in found.items() if operation_of(each) is None and each not in (0, 1)
    }
    searched = {"memory.implementation.largest_batch"}
    assert rest <= {*searched, "optimum.parameters", "optimum.tokens"} | {
        path for path in rest if path.endswith((".times", "largest_batch"))
    }


def test_a_line_is_the_one_that_computes():
    forward = account(XL, traced=True).forward_flops
    (line,) = Formulas({}, {}).lines(forward)[:1]
    text = Path(line.file).read_text("utf-8").splitlines()[line.number - 1]
    assert text.strip() == "return sum(product.flops for product in self.products)"
    assert line.function == "Account.forward_flops"


def test_random_arithmetic():
    """Formulas of random expressions evaluate to the same number as Python."""
    chance = random.Random(0)
    operators = [operator.add, operator.sub, operator.mul, operator.floordiv, operator.truediv]
    for _ in range(500):
        pairs = [(value := chance.randint(0, 9), named(value, f"x{i}")) for i in range(4)]
        pairs += [(value := chance.randint(0, 3), value)]
        while len(pairs) > 1:
            (a, traced_a), (b, traced_b) = (pairs.pop(chance.randrange(len(pairs))) for _ in "ab")
            apply = chance.choice(operators)
            if b == 0 and apply in (operator.floordiv, operator.truediv):
                apply = operator.add
            pairs.append((apply(a, b), apply(traced_a, traced_b)))
        ((expected, number),) = pairs
        assert number == expected
        assert isinstance(number, type(expected))
        formula = expression(number, values=True)
        assert math.isclose(evaluated(formula), expected, rel_tol=1e-8, abs_tol=1e-8), formula
