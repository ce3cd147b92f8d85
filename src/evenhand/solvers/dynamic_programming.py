"""The weighted-sum optimum of a tabular MDP, by modified policy iteration with bounds.

    (T v)(x) = max_u [ w.r(x, u) + gamma sum_x' P(x' | x, u) v(x') ]

Each round improves the policy once and then applies its operator a few times. With d = T v - v, the optimal value
function lies between  T v + gamma/(1-gamma) min d  and  T v + gamma/(1-gamma) max d  (MacQueen; Puterman, 6.6), so the
round ends with a lower and an upper bound on the optimum from the initial law. The kernel is applied once a sweep, to
outcomes, not to pairs. O(rounds * (kernel entries + pairs)).
"""

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from evenhand.errors import NotConverged
from evenhand.model.tabular import TabularMDP
from evenhand.typing import Floats, Ints


@dataclass(frozen=True)
class Optimum:
    """The best policy for one weighted sum of the objectives."""

    choices: Ints
    """(state,) the chosen pair of each state."""

    lower_bound: float
    """The value of the optimum from the initial law is at least this ..."""

    upper_bound: float
    """... and at most this."""

    value_function: Floats
    """(state,) the last iterate, from which another solve may start."""


def solve_weighted(
    mdp: TabularMDP,
    weights: Floats,
    tolerance: float = 1e-10,
    start: Floats | None = None,
    most_rounds: int = 10_000,
) -> Optimum:
    """Maximise a weighted sum of the objectives.

    Args:
        mdp: the problem.
        weights: (objective,) weights.
        tolerance: how far apart the bounds may be at the end, relative to the upper one.
        start: (state,) a first guess of the value function.
        most_rounds: when to give up (NotConverged).
    """
    rewards = mdp.rewards @ weights
    value = np.zeros(mdp.num_states) if start is None else start
    factor = mdp.discount / (1 - mdp.discount)
    largest = float(np.abs(rewards).max(initial=0.0)) / (1 - mdp.discount)
    slack = 8 * np.finfo(float).eps * largest / (1 - mdp.discount)  # what rounding of T v may do to the bounds
    rounding = max(1e-13 * largest, 4 * slack)
    for _ in range(most_rounds):
        pair_values = rewards + mdp.discount * (mdp.kernel @ value)[mdp.outcomes]
        improved = np.maximum.reduceat(pair_values, mdp.offsets[:-1])
        change = improved - value
        low = float(mdp.initial @ improved + factor * change.min()) - slack
        high = float(mdp.initial @ improved + factor * change.max()) + slack
        if high - low <= max(tolerance * abs(high), rounding):
            return Optimum(_first_best(mdp, pair_values, improved), low, high, improved + factor * change.mean())
        value = _sweep(mdp, rewards, _first_best(mdp, pair_values, improved), improved)
    raise NotConverged(f"the bounds are still {high - low:.3g} apart after {most_rounds} rounds")


def _first_best(mdp: TabularMDP, pair_values: Floats, best: Floats) -> Ints:
    """(state,) the first pair that attains the maximum."""
    pairs = np.arange(mdp.num_pairs)
    hits = np.where(pair_values == np.repeat(best, np.diff(mdp.offsets)), pairs, mdp.num_pairs)
    return np.asarray(np.minimum.reduceat(hits, mdp.offsets[:-1]))


def _sweep(mdp: TabularMDP, rewards: Floats, choices: Ints, value: Floats, sweeps: int = 20) -> Floats:
    """Apply the operator of one policy a few times."""
    own, outcomes = rewards[choices], mdp.outcomes[choices]
    rows = mdp.kernel[outcomes] if sparse.issparse(mdp.kernel) else None
    for _ in range(sweeps):
        expected = rows @ value if rows is not None else (mdp.kernel @ value)[outcomes]
        value = own + mdp.discount * expected
    return value
