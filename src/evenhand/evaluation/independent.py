"""Exact values of arms that do not look at each other: each takes its actions by shares of its own state.

Nothing couples them, so each type is a Markov chain by itself, of the matrix sum_a share[s, a] p[s, a, :], and its
occupancy measure gives all (`solvers.occupancy`), under every criterion and however many arms there are. Such arms keep
no budget; the result has their mean usage.
"""

import numpy as np
from scipy import sparse

from evenhand.checks import check_shape
from evenhand.evaluation.exact import ExactValues
from evenhand.model.coupled import CoupledMDP
from evenhand.model.tabular import TabularMDP
from evenhand.solvers.occupancy import occupancy, total_visits
from evenhand.typing import Floats


def independent_values(problem: CoupledMDP, shares: Floats) -> ExactValues:
    """Return the values of arms that follow shares of actions, under the problem's criterion.

    Args:
        problem: the arms, and where they start.
        shares: (type, state, action) how often each action is taken, padded as `problem.types`.
    """
    types = problem.types
    num_types, num_states, num_actions = types.rewards.shape
    check_shape(shares, {"type": num_types, "state": num_states, "action": num_actions}, "shares")
    visits = np.stack([_visits(problem, t, shares[t]) for t in range(num_types)])
    serves = (types.usage > 0).any(axis=-1)
    return ExactValues(
        values=(visits * types.rewards).sum(axis=(1, 2)),
        by_type=True,
        used=np.einsum("t,tsa,tsak->k", problem.type_counts, visits, types.usage),
        served=(visits * serves).sum(axis=(1, 2)) / problem.criterion.total,
    )


def _visits(problem: CoupledMDP, kind: int, shares: Floats) -> Floats:
    """(state, action) visits of an arm, by the criterion's weights of time; 0 where there is padding."""
    types = problem.types
    s, a = int(types.num_states[kind]), int(types.num_actions[kind])
    alone = TabularMDP(
        offsets=np.arange(s + 1, dtype=np.int64) * a,
        rewards=types.rewards[kind, :s, :a].reshape(-1, 1),
        outcomes=np.arange(s * a, dtype=np.int64),
        kernel=sparse.csr_array(types.transitions[kind, :s, :a, :s].reshape(s * a, s)),
        initial=types.initial[kind, :s],
        criterion=problem.criterion,
    )
    found = np.zeros(types.rewards.shape[1:])
    found[:s, :a] = total_visits(occupancy(alone, shares[:s, :a].reshape(-1))).reshape(s, a)
    return found
