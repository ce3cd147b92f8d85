"""The weighted-sum optimum of a tabular MDP, with bounds, under every criterion.

    (T v)(x) = max_u [ w.r(x, u) + factor sum_x' P(x' | x, u) v(x') ]

discounted   Modified policy iteration: each round improves the policy once and then applies its operator a few times;
             now and then, where states are few, it evaluates it exactly, for near discount 1 chains with periods
             would take thousands of rounds.
average      The same, with relative values and damped steps v + tau (T v - v): they are those of the chain that stays
             where it is with probability 1 - tau, which has the same gains and no periods (Puterman, 8.5.4).
finite:T     Backward induction: v_t = T v_(t+1), v_T = 0, one sweep a step, exact but for rounding.

With d = T v - v every round ends with a lower and an upper bound on the optimum (`criterion.bracket`). Under `average`
the smallest and largest d are taken over the states that can be reached from the initial law, which no policy leaves.
There the bounds always hold, but they meet only if the best mean does not depend on where the arms start.

The kernel is applied once a sweep, to outcomes, not to pairs. O(rounds * (kernel entries + pairs)).
Choices: of pairs that are equally good but for rounding the first is taken, so that they do not hang on a last bit.
"""

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import spsolve

from evenhand.errors import NotApplicable, NotConverged
from evenhand.model.tabular import TabularMDP
from evenhand.typing import Floats, Ints

SWEEPS = 20
"""How often a policy's own operator is applied before it is improved again."""

DAMPING = 0.8
"""tau: how far an average iterate goes towards its improvement."""

PATIENCE, STALLED = 400, 0.999
"""Rounds after which an average must have come closer, by this factor at the least."""

EPSILON = float(np.finfo(float).eps)

CLOSEST = 2.5e-14
"""A share of the largest value that counts as rounding in any case."""

TINY = float(np.finfo(float).tiny)
"""Below this numbers lose their digits: what is less apart is the same, whatever the tolerance."""

EVALUATE_EVERY, EVALUATE_UP_TO = 12, 2000
"""Rounds after which a policy is evaluated by a linear system once, and states up to which it is."""

EVALUATE_ENTRIES = 1_000_000
"""Pairs times states up to which a kernel that is no matrix is written out as one for this."""


@dataclass(frozen=True)
class Optimum:
    """The best policy for one weighted sum of the objectives."""

    choices: Ints
    """(state,) the chosen pair of each state; (step, state) where there is a number of steps."""

    lower_bound: float
    """The value of the optimum from the initial law is at least this ..."""

    upper_bound: float
    """... and at most this."""

    value_function: Floats
    """(state,) the last iterate, from which another solve may start; (step, state) where there is a number of steps."""

    rounding: float
    """What rounding may do to each bound: they come no closer than a few times this, whatever the tolerance."""


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
        start: (state,) a first guess of the value function; of no use where there is a number of steps.
        most_rounds: when to give up (NotConverged).
    """
    rewards = mdp.rewards @ weights
    if mdp.criterion.num_steps is not None:
        return _backwards(mdp, rewards, mdp.criterion.num_steps)
    value = np.zeros(mdp.num_states) if start is None else start
    return (_average if mdp.criterion.is_average else _discounted)(mdp, rewards, tolerance, value, most_rounds)


# -- discounted -------------------------------------------------------------------------------------------------------


def _discounted(mdp: TabularMDP, rewards: Floats, tolerance: float, value: Floats, most_rounds: int) -> Optimum:
    total = mdp.criterion.total
    largest = float(np.abs(rewards).max(initial=0.0)) * total
    slack = 12 * EPSILON * largest * total  # what rounding of T v and of ties may do to the bounds
    rounding = max(CLOSEST * largest, slack, TINY)
    value = np.clip(value, -largest, largest)  # a guess from larger weights would lose more digits than the slack has
    for number in range(most_rounds):
        # The bounds hold for any value function, and a constant in it does nothing to them but cost digits: rounding
        # of large values, kept alive by a period of the chain, would be multiplied by the total twice.
        value = value - value.mean()
        pair_values, improved = _improve(mdp, rewards, value)
        change = improved - value
        # MacQueen's bounds for any v, widened by what rounding may do.
        bounds = mdp.criterion.bracket(float(mdp.initial @ improved), float(change.min()), float(change.max()))
        low, high = bounds[0] - slack, bounds[1] + slack
        choices = _first_best(mdp, pair_values, improved, EPSILON * largest)
        if high - low <= max(tolerance * abs(high), 4 * rounding):
            # The middle of the bracket: where another solve had better start.
            centre = improved + mdp.criterion.factor * total * change.mean()
            return Optimum(choices, low, high, centre, rounding)
        # Sweeps of a chain with periods do not settle near discount 1; an exact evaluation now and then does.
        slow = number % EVALUATE_EVERY == EVALUATE_EVERY - 1 and mdp.num_states <= EVALUATE_UP_TO
        value = _evaluate(mdp, rewards, choices, improved) if slow else _sweep(mdp, rewards, choices, improved)
    raise NotConverged(f"the bounds are still {high - low:.3g} apart after {most_rounds} rounds")


def _evaluate(mdp: TabularMDP, rewards: Floats, choices: Ints, value: Floats) -> Floats:
    """The value function of one policy, by one linear system; by sweeps where its matrix is not at hand."""
    is_matrix = sparse.issparse(mdp.kernel)
    if not is_matrix and mdp.num_pairs * mdp.num_states > EVALUATE_ENTRIES:
        return _sweep(mdp, rewards, choices, value)
    rows = mdp.kernel[mdp.outcomes[choices]] if is_matrix else mdp.transitions[choices]
    system = sparse.eye_array(mdp.num_states, format="csc") - mdp.criterion.factor * rows
    solved = spsolve(sparse.csc_array(system), rewards[choices])
    return np.asarray(solved) if np.isfinite(solved).all() else _sweep(mdp, rewards, choices, value)


# -- average ----------------------------------------------------------------------------------------------------------


def _average(mdp: TabularMDP, rewards: Floats, tolerance: float, value: Floats, most_rounds: int) -> Optimum:
    inside = mdp.reachable
    largest = float(np.abs(rewards).max(initial=0.0))
    before = np.inf
    for number in range(most_rounds):
        value = value - value[inside].mean()  # relative values: they would drift otherwise
        pair_values, improved = _improve(mdp, rewards, value)
        # No policy leaves the reachable states, so bounds over these alone are bounds.
        change = (improved - value)[inside]
        # Relative values may be much larger than rewards, and then rounding is too.
        scale = largest + float(np.abs(value).max())
        slack = 12 * EPSILON * scale
        bounds = mdp.criterion.bracket(0.0, float(change.min()), float(change.max()))
        low, high = bounds[0] - slack, bounds[1] + slack
        choices = _first_best(mdp, pair_values, improved, EPSILON * scale)
        rounding = max(CLOSEST * largest, slack, TINY)
        if high - low <= max(tolerance * abs(high), 4 * rounding):
            return Optimum(choices, low, high, value, rounding)
        # Bounds that hardly come closer in so many rounds tend to different limits.
        if number % PATIENCE == PATIENCE - 1:
            if high - low > STALLED * before:
                raise NotApplicable(start_matters(high - low))
            before = high - low
        # The damped chain has the same gains and no periods.
        value = _sweep(mdp, rewards, choices, value + DAMPING * (improved - value), DAMPING)
    raise NotConverged(f"the bounds are still {high - low:.3g} apart after {most_rounds} rounds")


def start_matters(spread: float) -> str:
    """Words for a problem whose best long-run mean is not the same from everywhere."""
    return (
        f"the best long-run mean depends on where the arms start (it differs by {spread:.3g} between their states), "
        "and the criterion average is for problems where it does not. Use finite:T, or discounted with a discount "
        "near 1."
    )


# -- a number of steps ------------------------------------------------------------------------------------------------


def _backwards(mdp: TabularMDP, rewards: Floats, num_steps: int) -> Optimum:
    values = np.zeros((num_steps + 1, mdp.num_states))
    choices = np.zeros((num_steps, mdp.num_states), dtype=np.int64)
    largest = float(np.abs(rewards).max(initial=0.0)) * mdp.criterion.total
    for step in reversed(range(num_steps)):
        pair_values, values[step] = _improve(mdp, rewards, values[step + 1])
        choices[step] = _first_best(mdp, pair_values, values[step], EPSILON * largest)
    now = float(mdp.initial @ values[0])
    # The errors of all steps add up.
    slack = 16 * EPSILON * largest * num_steps
    return Optimum(choices, now - slack, now + slack, values[:-1], slack)


# -- one application of an operator -----------------------------------------------------------------------------------


def _improve(mdp: TabularMDP, rewards: Floats, value: Floats) -> tuple[Floats, Floats]:
    """(pair,) what each pair is worth, and (state,) the best of each state."""
    pair_values = rewards + mdp.criterion.factor * (mdp.kernel @ value)[mdp.outcomes]
    return pair_values, np.maximum.reduceat(pair_values, mdp.offsets[:-1])


def _first_best(mdp: TabularMDP, pair_values: Floats, best: Floats, unit: float) -> Ints:
    """(state,) the first pair that attains the maximum, but for a few roundings of size `unit`."""
    pairs = np.arange(mdp.num_pairs)
    enough = pair_values >= np.repeat(best - 4 * unit, np.diff(mdp.offsets))
    return np.asarray(np.minimum.reduceat(np.where(enough, pairs, mdp.num_pairs), mdp.offsets[:-1]))


def _sweep(mdp: TabularMDP, rewards: Floats, choices: Ints, value: Floats, damping: float = 1.0) -> Floats:
    """Apply the operator of one policy a few times, each time as far as the damping goes."""
    own, outcomes = rewards[choices], mdp.outcomes[choices]
    rows = mdp.kernel[outcomes] if sparse.issparse(mdp.kernel) else None
    for _ in range(SWEEPS):
        expected = rows @ value if rows is not None else (mdp.kernel @ value)[outcomes]
        following = own + mdp.criterion.factor * expected
        value = following if damping == 1 else value + damping * (following - value)
    return value
