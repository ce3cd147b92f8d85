"""Policies and their occupancy measures on a tabular MDP (Puterman, Theorem 6.9.1).

For pair probabilities pi, the discounted number of visits to each state solves

    q = mu + gamma P_pi^T q,      q(x, u) = q(x) pi(u | x),      V_0 = sum_{x,u} q(x, u) r(x, u),

one linear system for all objectives at once. It is solved by LU when there are few states, else by BiCGSTAB, and the
residual is checked either way: an error e in the equation moves no value by more than |e|_1 max|r| / (1 - gamma).
"""

import numpy as np
from scipy import sparse
from scipy.sparse import linalg

from evenhand.checks import check_shape
from evenhand.errors import InvalidInput
from evenhand.model.tabular import TabularMDP
from evenhand.typing import Floats, Ints

DENSE_UP_TO = 250
"""States up to which the system is solved directly."""

RESIDUAL = 1e-12
"""The largest residual left, as a share of all visits."""


def occupancy(mdp: TabularMDP, probabilities: Floats) -> Floats:
    """(pair,) the discounted number of visits to each pair.

    Args:
        mdp: the problem.
        probabilities: (pair,) the policy; sums to 1 over the pairs of each state.
    """
    check_policy_table(mdp, probabilities)
    choose = sparse.csr_array((probabilities, mdp.outcomes, mdp.offsets), shape=(mdp.num_states, mdp.kernel.shape[0]))
    visits = _solve_dense(mdp, choose) if mdp.num_states <= DENSE_UP_TO else _solve_by_steps(mdp, choose)
    return np.asarray(np.repeat(visits, np.diff(mdp.offsets)) * probabilities)


def check_policy_table(mdp: TabularMDP, probabilities: Floats) -> None:
    """Raise InvalidInput unless these are the probabilities of a policy."""
    check_shape(probabilities, {"pair": mdp.num_pairs}, "probabilities")
    sums = np.add.reduceat(probabilities, mdp.offsets[:-1])
    if not (probabilities.min() >= 0 and np.abs(sums - 1).max() <= 1e-8):
        raise InvalidInput("probabilities: expected none negative, and a sum of 1 over the pairs of each state")


def _solve_dense(mdp: TabularMDP, choose: sparse.csr_array) -> Floats:
    used = np.unique(choose.indices)
    matrix = (choose[:, used] @ mdp.kernel[used]).toarray()
    return np.linalg.solve(np.eye(mdp.num_states) - mdp.discount * matrix.T, mdp.initial)


def _solve_by_steps(mdp: TabularMDP, choose: sparse.csr_array) -> Floats:
    """BiCGSTAB, and from wherever it stops the plain iteration, which contracts."""
    back, forth = sparse.csr_array(choose.T), mdp.kernel.T

    def step(q: Floats) -> Floats:
        return np.asarray(mdp.discount * (forth @ (back @ q)))

    operator = linalg.LinearOperator((mdp.num_states, mdp.num_states), matvec=lambda q: q - step(q), dtype=np.float64)
    total = 1 / (1 - mdp.discount)
    q, _ = linalg.bicgstab(operator, mdp.initial, x0=mdp.initial * total, rtol=1e-13, atol=0.0, maxiter=300)
    if not np.isfinite(q).all():
        q = mdp.initial * total
    while np.abs((following := mdp.initial + step(q)) - q).sum() > RESIDUAL * total:
        q = following
    return np.asarray(following)


def policy_of(mdp: TabularMDP, measure: Floats, fallback: Ints | None = None) -> Floats:
    """(pair,) the policy of an occupancy measure.

    Args:
        mdp: the problem.
        measure: (pair,) discounted visits.
        fallback: (state,) the pair to take where a state is never visited; its first pair when absent.
    """
    fallback = mdp.offsets[:-1] if fallback is None else fallback
    if not np.array_equal(mdp.state_of_pair[fallback], np.arange(mdp.num_states)):
        raise InvalidInput("fallback: expected one pair of each state, in the order of the states")
    clean = np.maximum(measure, 0.0)
    visits = np.repeat(np.add.reduceat(clean, mdp.offsets[:-1]), np.diff(mdp.offsets))
    otherwise = np.zeros(mdp.num_pairs)
    otherwise[fallback] = 1.0
    return np.where(visits > 0, clean / np.where(visits > 0, visits, 1.0), otherwise)


def values(mdp: TabularMDP, measure: Floats) -> Floats:
    """(objective,) expected discounted rewards of an occupancy measure."""
    return np.asarray(measure @ mdp.rewards)
