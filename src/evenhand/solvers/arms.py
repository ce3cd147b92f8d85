"""Every type of arm on its own, at given weights and prices.

    V_t(s) = max_a Q_t(s, a),      Q_t(s, a) = g_t r_t(s, a) - lambda.d_t(s, a) + gamma sum_s' p_t(s' | s, a) V_t(s')

solved for all types at once by policy iteration: one batch of S x S systems a round, few rounds. O(T S^3) a round.
"""

import numpy as np

from evenhand.errors import NotConverged
from evenhand.model.arm import ArmTables
from evenhand.typing import Floats, Indices

MOST_ROUNDS = 200
"""Rounds of policy iteration after which something is wrong."""


def action_values(types: ArmTables, weights: Floats, prices: Floats, discount: float) -> Floats:
    """(type, state, action) what each action is worth if the arm goes on in its own best way.

    Actions that do not exist are worth -inf, all actions of states that do not exist 0.

    Args:
        types: the arms.
        weights: (type,) what a unit of an arm's reward is worth.
        prices: (resource,) what a unit of use costs.
        discount: from 0 to below 1.
    """
    rewards = weights[:, None, None] * types.rewards - types.usage @ prices
    missing = np.where(types.valid.any(axis=2, keepdims=True), -np.inf, 0.0)
    choice = types.idle
    for _ in range(MOST_ROUNDS):
        values = _values_of(types, rewards, choice, discount)
        worth = rewards + discount * np.einsum("tsaj,tj->tsa", types.transitions, values)
        worth = np.where(types.valid, worth, missing)
        current = np.take_along_axis(worth, choice[:, :, None], axis=2)[:, :, 0]
        best = worth.max(axis=2)
        better = best > current + 1e-12 * np.abs(best).max(axis=1, keepdims=True)
        if not better.any():
            return np.asarray(worth)
        choice = np.where(better, worth.argmax(axis=2), choice).astype(np.int32)
    raise NotConverged(f"policy iteration of single arms did not end within {MOST_ROUNDS} rounds")


def _values_of(types: ArmTables, rewards: Floats, choice: Indices, discount: float) -> Floats:
    """(type, state) values of one policy a type; 0 in padded states."""
    moves = np.take_along_axis(types.transitions, choice[:, :, None, None], axis=2)[:, :, 0]
    own = np.take_along_axis(rewards, choice[:, :, None], axis=2)
    return np.asarray(np.linalg.solve(np.eye(moves.shape[1]) - discount * moves, own)[..., 0], dtype=np.float64)
