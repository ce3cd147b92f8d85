"""The paper's heuristics. It does not specify them fully; each docstring states the reading taken here.

All of them respect several actions and several resources, break ties at random unless told otherwise, and treat arms
of one type and state alike.
"""

from typing import Literal

import numpy as np

from evenhand.errors import InvalidInput
from evenhand.model.coupled import CoupledMDP
from evenhand.policies.priority import NOISE, ExchangeablePriority, PriorityPolicy, value_noise
from evenhand.typing import Bools, Floats

Ties = Literal["random", "first"]


def random_feasible(problem: CoupledMDP) -> ExchangeablePriority:
    """RDM: again and again a uniform choice among stopping and every (arm, action) that still fits.

    With a budget of one unit this is uniform over idling and serving one of the arms. It may idle although there is
    budget left; idle actions are never drawn, they are what the others do.
    """
    return ExchangeablePriority(problem, np.zeros(problem.types.valid.shape), stop=True)


def worst_first(problem: CoupledMDP, ties: Ties = "random") -> PriorityPolicy:
    """OFT, oldest first: serve the arm in the worst state, then the next, as long as the budget lasts.

    The worst state is the one with the lowest value if the arm is never served: for machines the oldest. Budget is
    always spent while any action fits, even on arms that are well. Of several actions an arm gets the one that is
    best if nothing is done afterwards, among those that fit.
    """
    types = problem.types
    idle_values = values_when_idle(problem)
    lookahead = types.rewards + problem.discount * np.einsum("tsaj,tj->tsa", types.transitions, idle_values)
    noise = value_noise(problem.discount)
    order = _dense_order(-idle_values[:, :, None] + np.zeros_like(lookahead), types.valid, noise)
    within = _dense_order(lookahead, types.valid, noise)
    return _priority(problem, order * (within.max() + 1) + within, ties=ties)


def myopic(problem: CoupledMDP, ties: Ties = "random") -> PriorityPolicy:
    """MYP: serve where the reward of this step gains most over idling, as long as it gains and the budget lasts.

    The gain is not divided by usage. Where no action gains anything now, nothing is spent: on Quadratic-RCCC, where
    replacing always costs more than operating, it never acts.
    """
    types = problem.types
    idle_rewards = np.take_along_axis(types.rewards, types.idle[:, :, None], axis=2)
    # 0.3 - 0.1 is more than 0.2 in doubles; such a gain is none.
    gains = types.rewards - idle_rewards
    least = NOISE * np.abs(types.rewards[types.valid]).max(initial=0.0)
    return _priority(problem, np.where(gains > least, gains, 0.0), threshold=0.0, ties=ties)


def never_act(problem: CoupledMDP) -> ExchangeablePriority:
    """Every arm idles, always: the first action that uses nothing."""
    return ExchangeablePriority(problem, np.zeros(problem.types.valid.shape), threshold=np.inf)


def values_when_idle(problem: CoupledMDP) -> Floats:
    """(type, state) the value of an arm that is never served."""
    types = problem.types
    kinds, states = np.indices(types.idle.shape)
    moves = types.transitions[kinds, states, types.idle]
    rewards = types.rewards[kinds, states, types.idle]
    systems = np.eye(moves.shape[1]) - problem.discount * moves
    return np.linalg.solve(systems, rewards[..., None])[..., 0]


def _dense_order(keys: Floats, valid: Bools, noise: float) -> Floats:
    """Whole numbers in the order of the keys, equal where keys are equal but for rounding."""
    ordered = np.unique(keys[valid])
    scale = max(1.0, float(np.abs(ordered).max()))
    number = np.concatenate([[0], np.cumsum(np.diff(ordered) > noise * scale)])
    return number[np.clip(np.searchsorted(ordered, keys), 0, len(ordered) - 1)].astype(np.float64)


def _priority(problem: CoupledMDP, scores: Floats, threshold: float = -np.inf, ties: Ties = "random") -> PriorityPolicy:
    kinds = {"random": ExchangeablePriority, "first": PriorityPolicy}
    if ties not in kinds:
        raise InvalidInput(f"ties: expected 'random' or 'first', got {ties!r}")
    return kinds[ties](problem, scores, threshold)
