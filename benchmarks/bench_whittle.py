"""Whittle indices: a batch of small arms and one large arm, against markovianbandit where it is installed."""

import contextlib
import importlib
import io
from collections.abc import Callable

import numpy as np

from benchmarks.timing import best_of
from evenhand.model.criterion import Average, Finite
from evenhand.solvers import whittle
from evenhand.typing import Floats

DISCOUNT = 0.95
SIZES = ((1000, 10), (100, 50), (10, 200), (1, 1000))
"""Numbers of arms and of states."""


def random_arms(num_arms: int, num_states: int) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(num_states)
    transitions = rng.dirichlet(np.ones(num_states), size=(num_arms, num_states, 2))
    return transitions, rng.random((num_arms, num_states, 2))


def other_package() -> Callable[[Floats, Floats], list[Floats]] | None:
    """The same by a loop over arms in markovianbandit, whose import changes NumPy's error state."""
    before = np.geterr()
    try:
        package = importlib.import_module("markovianbandit")
    except ImportError:
        return None
    finally:
        np.seterr(**before)

    def loop(transitions: Floats, rewards: Floats) -> list[Floats]:
        bandits = [package.RestlessBandit(p, r) for p, r in zip(transitions, rewards, strict=True)]
        with contextlib.redirect_stdout(io.StringIO()):
            return [bandit.whittle_indices(check_indexability=True, discount=DISCOUNT) for bandit in bandits]

    return loop


def main() -> None:
    loop = other_package()
    print(f"Whittle indices with proof of indexability, dense random arms, discount {DISCOUNT}, milliseconds")
    print(f"{'arms':>6} {'states':>7} {'evenhand':>10} {'markovianbandit':>16} {'ratio':>7} {'largest difference':>19}")
    for num_arms, num_states in SIZES:
        transitions, rewards = random_arms(num_arms, num_states)
        ours = whittle.whittle_indices(transitions, rewards, DISCOUNT)
        seconds = best_of(3, lambda p=transitions, r=rewards: whittle.whittle_indices(p, r, DISCOUNT))
        line = f"{num_arms:>6} {num_states:>7} {1000 * seconds:>10.1f}"
        if loop is not None:
            loop(transitions[:1], rewards[:1])
            theirs = loop(transitions, rewards)
            other = best_of(2, lambda p=transitions, r=rewards: loop(p, r))
            difference = np.nanmax(np.abs(ours.indices - np.array(theirs)))
            line += f" {1000 * other:>16.1f} {other / seconds:>7.1f} {difference:>19.1e}"
        print(line, flush=True)
    print(
        f"other criteria, milliseconds\n{'arms':>6} {'states':>7} {'discounted':>11} {'average':>9} {'finite:50':>10}"
    )
    for num_arms, num_states in SIZES[:3]:
        transitions, rewards = random_arms(num_arms, num_states)
        took = []
        for criterion in (DISCOUNT, Average(), Finite(50)) if num_states < 200 else (DISCOUNT, Average()):
            whittle.whittle_indices(transitions[:1], rewards[:1], criterion)
            took.append(best_of(3, lambda c=criterion, p=transitions, r=rewards: whittle.whittle_indices(p, r, c)))
        print(f"{num_arms:>6} {num_states:>7} " + " ".join(f"{1000 * x:>10.1f}" for x in took), flush=True)
    if loop is None:
        print("(pip install markovianbandit-pkg to compare)")


if __name__ == "__main__":
    main()
