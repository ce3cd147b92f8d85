"""The paper's heuristics. It does not specify them fully; each docstring states the reading taken here.

They follow the problem's criterion. RDM, MYP and IDLE do not look ahead and are the same under all. OFT looks at what
states are worth if the arm is never served, idle(s); of several actions it takes the best if nothing is done after:

    discounted   idle = r + gamma P idle                               then r(s, a) + gamma P_a idle
    finite:T     idle_t = r + gamma P idle_{t+1}, idle_T = 0           then r(s, a) + gamma P_a idle_{t+1}, step by step
    average      the mean g = P g, then the bias h                     then P_a g, then r(s, a) + P_a (h - g)

An average so ranks as a discount near 1 does: value = g / (1 - gamma) + h + o(1) (Puterman, 8.2).

How bad a state is, is a matter of its own type. What a pump of one make earns says nothing of another make's, so states
are ranked by how far each type has come down from its best state to its worst,

    wear(s)  =  (max idle - idle(s)) / (max idle - min idle)           1 in the worst state of every type, 0 in its best

and 0 throughout where all states of a type are worth the same; what an action has ahead is measured on the same scale.
Arms of one type are in the order of idle(s).

All of them respect several actions and several resources, break ties at random by default, and treat arms
of one type and state alike.
"""

from typing import Literal

import numpy as np

from evenhand.checks import check_memory
from evenhand.errors import InvalidInputError, NotApplicableError
from evenhand.model import CoupledMDP, TimeVaryingPolicy
from evenhand.model.simulator import Problem, needs_tables
from evenhand.policies.priority import NOISE, ExchangeablePriority, PriorityPolicy, value_noise
from evenhand.solvers.closed_classes import means_and_biases
from evenhand.typing import Bools, Floats

Ties = Literal["random", "first"]


def random_feasible(problem: Problem) -> ExchangeablePriority:
    """RDM: again and again a uniform choice among stopping and every (arm, action) that still fits.

    With a budget of one unit this is uniform over idling and serving one of the arms. It may idle although there is
    budget left; idle actions are never drawn, they are what the others do.

    Args:
        problem: the problem, or a simulator.

    Example:
        >>> import evenhand as eh
        >>> problem = eh.problems.machine_replacement(num_arms=3)
        >>> policy = eh.policies.random_feasible(problem)
        >>> policy.act([0, 1, 2], 0)
        array([0, 1, 0], dtype=int32)
    """
    # If all must be spent, stopping does not compete.
    return ExchangeablePriority(problem, np.zeros(problem.types.valid.shape), stop=not problem.spends_all.any())


def worst_first(problem: Problem, ties: Ties = "random") -> PriorityPolicy | TimeVaryingPolicy:
    """OFT, oldest first: serve the arm in the worst state for its type, then the next, as long as the budget lasts.

    A type's worst state is the one with the lowest value if the arm is never served: for machines the oldest. Others
    come by how far they are on the way there from the best: a broken arm of any type comes before a sound one of any
    other. Budget is always spent while any action fits, even on arms that are well. Of several actions an arm gets the
    one that is best if nothing is done afterwards, among those that fit. For a finite horizon each step has an order
    of its own.

    Args:
        problem: the problem.
        ties: who is served first among equals: drawn at `random`, or the `first` arm.

    Example:
        >>> import evenhand as eh
        >>> problem = eh.problems.machine_replacement(num_arms=3)
        >>> policy = eh.policies.worst_first(problem)
        >>> policy.act([0, 1, 2], 0)
        array([0, 0, 1], dtype=int32)
    """
    problem = needs_tables(problem, "oldest-first")
    values = values_when_idle(problem)
    if problem.criterion.is_stationary and problem.criterion.factor == 1:
        # Means first, then biases: the limit of a discount near 1.
        return _by_keys(problem, _in_the_long_run(problem, means_when_idle(problem), values), ties)
    if problem.criterion.is_stationary:
        return _by_keys(problem, _worst_and_best(problem, values, _ahead(problem, values)), ties)
    # What comes after the last step is worth nothing.
    later = [*values[1:], np.zeros_like(values[0])]
    every = (_worst_and_best(problem, now, _ahead(problem, then)) for now, then in zip(values, later, strict=True))
    return TimeVaryingPolicy([_by_keys(problem, keys, ties) for keys in every])


def _worst_and_best(problem: CoupledMDP, values: Floats, ahead: Floats) -> list[Floats]:
    """(type, state, action) wear, and what the action has ahead on the same scale: that of the states of each type."""
    valid, noise = problem.types.valid, value_noise(problem.criterion)
    there = np.asarray(valid.any(axis=2))
    values, ahead = _without_noise(values, there, noise), _without_noise(ahead, valid, noise)
    # (type, 1, 1) the best and, with the spread, the worst state of each type.
    best = np.where(there, values, -np.inf).max(axis=1)[:, None, None]
    spread = best - np.where(there, values, np.inf).min(axis=1)[:, None, None]
    # If all states have the same value there is no wear.
    unit = np.where(spread > 0, spread, 1.0)
    # Two keys: how worn the arm is, then how good the action is for it.
    return [np.where(valid, found, 0.0) / unit for found in (best - values[:, :, None], ahead - best)]


def _in_the_long_run(problem: CoupledMDP, means: Floats, biases: Floats) -> list[Floats]:
    """(type, state, action) keys: where the means of a type differ they come first, else there are only the biases."""
    means_ahead = _expected(problem, means)
    long = _worst_and_best(problem, means, means_ahead)
    short = _worst_and_best(problem, biases, _ahead(problem, biases) - means_ahead)  # biases are beside the mean
    # (type, 1, 1) a type whose mean depends on the state is ranked by it, and by biases among equals.
    differ = long[0].any(axis=(1, 2), keepdims=True)
    keys = zip(long, short, strict=True)
    return [key for far, near in keys for key in (np.where(differ, far, near), np.where(differ, near, 0.0))]


def _without_noise(values: Floats, there: Bools, noise: float) -> Floats:
    """The values, made equal where they differ by rounding alone; 0 if there are none."""
    # Values of one number are one value but for rounding: the least of them stands for all.
    number = _dense_order(values, there, noise).astype(np.int64)
    least = np.full(number.max() + 1, np.inf)
    np.minimum.at(least, number[there], values[there])
    return np.where(there, least[number], 0.0)


def _expected(problem: CoupledMDP, values: Floats) -> Floats:
    """(type, state, action) what the next state is worth."""
    return np.asarray(np.einsum("tsaj,tj->tsa", problem.types.transitions, values))


def _ahead(problem: CoupledMDP, values: Floats) -> Floats:
    """(type, state, action) the reward now and what the next state is worth."""
    return np.asarray(problem.types.rewards + problem.criterion.factor * _expected(problem, values))


def _by_keys(problem: CoupledMDP, keys: list[Floats], ties: Ties) -> PriorityPolicy:
    """The highest first, by the first of the keys that differs."""
    valid = problem.types.valid
    scores = np.zeros(valid.shape)
    for key in keys:
        # Lexicographic: the scores so far are moved up by more than this key can add.
        order = _dense_order(key, valid, value_noise(problem.criterion))
        scores = scores * (order.max() + 1) + order
    return _priority(problem, scores, ties=ties)


def myopic(problem: Problem, ties: Ties = "random") -> PriorityPolicy:
    """MYP: serve where the reward of this step gains most over idling, as long as it gains and the budget lasts.

    The gain is not divided by usage. Where no action gains anything now, nothing is spent: on Quadratic-RCCC, where
    replacing always costs more than operating, it never acts.

    Args:
        problem: the problem.
        ties: who is served first among equals: drawn at `random`, or the `first` arm.

    Example:
        >>> import evenhand as eh
        >>> problem = eh.problems.machine_replacement(num_arms=3)
        >>> policy = eh.policies.myopic(problem)
        >>> policy.act([0, 1, 2], 0)
        array([0, 0, 1], dtype=int32)
    """
    types = needs_tables(problem, "myopic").types
    idle_rewards = np.take_along_axis(types.rewards, types.idle[:, :, None], axis=2)
    # 0.3 - 0.1 is more than 0.2 in doubles; such a gain is none.
    gains = types.rewards - idle_rewards
    # Rewards may be given with rounding of their own: the difference of equal ones does not count.
    least = NOISE * np.abs(types.rewards[types.valid]).max(initial=0.0)
    return _priority(problem, np.where(gains > least, gains, 0.0), threshold=0.0, ties=ties)


def never_act(problem: Problem) -> ExchangeablePriority:
    """Every arm idles, always: the first action that uses nothing.

    Args:
        problem: the problem, or a simulator.

    Example:
        >>> import evenhand as eh
        >>> problem = eh.problems.machine_replacement(num_arms=3)
        >>> policy = eh.policies.never_act(problem)
        >>> policy.act([0, 1, 2], 0)
        array([0, 0, 0], dtype=int32)
    """
    if problem.spends_all.any():
        raise NotApplicableError("never-act spends nothing, and the problem requires that all of a budget is spent")
    return ExchangeablePriority(problem, np.zeros(problem.types.valid.shape), threshold=np.inf)


def values_when_idle(problem: CoupledMDP) -> Floats:
    """(type, state) the value of an arm that is never served.

    For an average it is the bias, for a finite horizon (step, type, state) the value from that step on.
    """
    moves, rewards = _when_idle(problem)
    factor, is_stationary = problem.criterion.factor, problem.criterion.is_stationary
    if is_stationary and factor == 1:
        return means_and_biases(moves, rewards)[1]
    if is_stationary:
        # v = r + gamma P v for all types at once.
        systems = np.eye(moves.shape[1]) - factor * moves
        return np.asarray(np.linalg.solve(systems, rewards[..., None])[..., 0], dtype=np.float64)
    num_steps = problem.criterion.num_layers
    check_memory(8.0 * num_steps * problem.types.valid.size, f"a priority for each of {num_steps} steps", "Use fewer.")
    values = np.zeros((num_steps + 1, *rewards.shape))
    for step in range(num_steps - 1, -1, -1):
        values[step] = rewards + factor * np.einsum("tsj,tj->ts", moves, values[step + 1])
    return values[:-1]


def means_when_idle(problem: CoupledMDP) -> Floats:
    """(type, state) the long-run mean of an arm that starts there and is never served."""
    return means_and_biases(*_when_idle(problem))[0]


def _when_idle(problem: CoupledMDP) -> tuple[Floats, Floats]:
    """(type, state, next_state) moves and (type, state) rewards of arms that are never served."""
    types = problem.types
    kinds, states = np.indices(types.idle.shape)
    return types.transitions[kinds, states, types.idle], types.rewards[kinds, states, types.idle]


def _dense_order(keys: Floats, valid: Bools, noise: float) -> Floats:
    """Whole numbers in the order of the keys, equal where keys are equal but for rounding."""
    # A chain of neighbours each within rounding of the next is one number.
    ordered = np.unique(keys[valid])
    scale = max(1.0, float(np.abs(ordered).max()))
    number = np.concatenate([[0], np.cumsum(np.diff(ordered) > noise * scale)])
    return number[np.clip(np.searchsorted(ordered, keys), 0, len(ordered) - 1)].astype(np.float64)


def _priority(problem: Problem, scores: Floats, threshold: float = -np.inf, ties: Ties = "random") -> PriorityPolicy:
    kinds = {"random": ExchangeablePriority, "first": PriorityPolicy}
    if ties not in kinds:
        raise InvalidInputError(f"ties: expected 'random' or 'first', got {ties!r}")
    return kinds[ties](problem, scores, threshold)
