"""Prices per step along revealed paths: subgradient search on the deterministic dual of each path.

A path reveals one uniform number per arm and step, so that each action has one outcome. With y_t the change of the
prices in step t, and A <= 0 the advantages at the prices before the change, the arms separate:

    J_t(s) = max_a A_t(s, a) - y_t.d(s, a) + gamma J_{t+1}(s'),     J_T = 0,
    D(y)   = sum_n J^n_0(s_n) + sum_t gamma^t y_t.b,                D(0) = 0 up to rounding.

D is convex, and (b - use in step t) weighted by gamma^t is a subgradient. Steps are those of Polyak towards a level
below the best D so far, along a deflected direction; the level moves away while it is reached, and closer when D has
not improved for a while. Any y gives a valid bound, so the least D of the search is returned: only the speed depends on
the rule. O(paths rounds arms steps states actions).

Reference: P. M. Camerini, L. Fratta and F. Maffioli, "On improving relaxation methods by modified gradient techniques",
Mathematical Programming Study 3, 1975.
"""

from typing import NamedTuple

import numpy as np

from evenhand.kernels.compilation import in_parts, njit
from evenhand.typing import Floats, Ints


class PathArms(NamedTuple):
    """Types of arms at the prices from which a search begins."""

    advantages: Floats
    """(type, step, state, action) at most 0 but for rounding; minus infinity where an action does not exist."""

    usage: Floats
    """(type, state, action, resource) use."""

    moves: Floats
    """(type, state, action, next_state) cumulative probabilities, above 1 from the last possible next state on."""

    starts: Floats
    """(type, state) the same of the first state."""

    kinds: Ints
    """(arm,) type of each arm."""


def least_duals(
    arms: PathArms, lower: Floats, budget: Floats, factor: float, scale: float, uniforms: Floats, rounds: int
) -> Floats:
    """(path,) the least dual value that the search finds, relative to that of the prices from which it begins.

    Args:
        arms: the arms.
        lower: (step, resource) least changes of the prices.
        budget: (resource,) budget per step.
        factor: weight of the next step.
        scale: first distance of the level from the best value.
        uniforms: (path, arm, step + 1) numbers in [0, 1): of the first state, then of each step.
        rounds: dual values per path.
    """
    found = np.empty(len(uniforms))
    work = float(rounds) * uniforms.size * arms.usage[0].size
    in_parts(_search, work, *arms, lower, budget, (factor, scale), uniforms, rounds, found)
    return found


@njit
def _search(
    part: int,
    parts: int,
    advantages: Floats,
    usage: Floats,
    moves: Floats,
    starts: Floats,
    kinds: Ints,
    lower: Floats,
    budget: Floats,
    numbers: tuple[float, float],
    uniforms: Floats,
    rounds: int,
    found: Floats,
) -> None:
    """Search the prices of every parts-th path."""
    factor, scale = numbers
    num_arms, num_steps = uniforms.shape[1], uniforms.shape[2] - 1
    num_states, num_actions, num_resources = usage.shape[1:]
    following = np.zeros((num_arms, num_steps, num_states, num_actions), dtype=np.int64)
    first = np.zeros(num_arms, dtype=np.int64)
    ahead = np.zeros((num_steps + 1, num_states))
    choice = np.zeros((num_steps, num_states), dtype=np.int64)
    weights = factor ** np.arange(num_steps)
    for path in range(part, len(uniforms), parts):
        _reveal(moves, starts, kinds, uniforms[path], following, first)
        change, direction = np.zeros_like(lower), np.zeros_like(lower)
        best, level, fails = np.inf, scale, 0
        for _ in range(rounds):
            # Phase 1: the dual value, and what is left of the budget.
            left = np.zeros_like(lower) + budget
            value = (weights.reshape(-1, 1) * change * left).sum()
            for n in range(num_arms):
                k = kinds[n]
                _respond(advantages[k], usage[k], following[n], change, factor, ahead, choice)
                value += ahead[0, first[n]]
                state = first[n]
                for t in range(num_steps):
                    action = choice[t, state]
                    for i in range(num_resources):
                        left[t, i] -= usage[k, state, action, i]
                    state = following[n, t, state, action]
            # Phase 2: the level.
            if value < best:
                if value < best - level / 2 and best < np.inf:
                    level *= 2
                best, fails = value, 0
            else:
                fails += 1
                if fails == 10:
                    level, fails = level / 2, 0
            # Phase 3: a step.
            if not _step(left, lower, weights, value - best + level, change, direction):
                break
        found[path] = best


@njit
def _step(left: Floats, lower: Floats, weights: Floats, fall: float, change: Floats, direction: Floats) -> bool:
    """Move the prices along the deflected direction; return False at an optimum."""
    norm = length = 0.0
    for t in range(len(lower)):
        for i in range(lower.shape[1]):
            # Prices at their least value do not fall.
            slope = left[t, i]
            if slope > 0 and change[t, i] <= lower[t, i]:
                slope = 0.0
            towards = slope + 0.7 * direction[t, i]
            if towards > 0 and change[t, i] <= lower[t, i]:
                towards = 0.0
            direction[t, i] = towards
            norm += weights[t] * slope * slope
            length += weights[t] * towards * towards
    if norm == 0:
        return False
    step = fall / max(norm, length)
    for t in range(len(lower)):
        for i in range(lower.shape[1]):
            change[t, i] = max(lower[t, i], change[t, i] - step * direction[t, i])
    return True


@njit
def _reveal(moves: Floats, starts: Floats, kinds: Ints, uniforms: Floats, following: Ints, first: Ints) -> None:
    """Set the first state of each arm, and the next state of each action: the same number for all actions."""
    num_arms, num_steps, num_states, num_actions = following.shape
    for n in range(num_arms):
        k = kinds[n]
        first[n] = np.searchsorted(starts[k], uniforms[n, 0], side="right")
        for t in range(num_steps):
            for s in range(num_states):
                for a in range(num_actions):
                    following[n, t, s, a] = np.searchsorted(moves[k, s, a], uniforms[n, t + 1], side="right")


@njit
def _respond(
    advantages: Floats, usage: Floats, following: Ints, change: Floats, factor: float, ahead: Floats, choice: Ints
) -> None:
    """Backward induction of one arm on its path: J, and the best actions."""
    num_steps, num_states, num_actions = following.shape
    for back in range(num_steps):
        t = num_steps - 1 - back
        for s in range(num_states):
            best, chosen = -np.inf, 0
            for a in range(num_actions):
                value = advantages[t, s, a]
                if value == -np.inf:
                    continue
                value += factor * ahead[t + 1, following[t, s, a]]
                for i in range(usage.shape[2]):
                    value -= change[t, i] * usage[s, a, i]
                if value > best:
                    best, chosen = value, a
            # Padded states have no action, and are never entered.
            ahead[t, s] = best if best > -np.inf else 0.0
            choice[t, s] = chosen
