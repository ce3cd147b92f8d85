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
from evenhand.typing import Floats

DENSE_UP_TO = 1500
"""States up to which the system is solved directly."""


def policy_matrix(mdp: TabularMDP, probabilities: Floats) -> sparse.csr_array:
    """(state, state) how the state moves under a policy."""
    choose = sparse.csr_array((probabilities, mdp.outcomes, mdp.offsets), shape=(mdp.num_states, mdp.kernel.shape[0]))
    return sparse.csr_array(choose @ mdp.kernel)


def occupancy(mdp: TabularMDP, probabilities: Floats) -> Floats:
    """(pair,) the discounted number of visits to each pair.

    Args:
        mdp: the problem.
        probabilities: (pair,) the policy; sums to 1 over the pairs of each state.
    """
    check_policy_table(mdp, probabilities)
    matrix = policy_matrix(mdp, probabilities).T
    visits = _solve(matrix, mdp.initial, mdp.discount)
    return np.asarray(np.repeat(visits, np.diff(mdp.offsets)) * probabilities)


def check_policy_table(mdp: TabularMDP, probabilities: Floats) -> None:
    """Raise InvalidInput unless these are the probabilities of a policy."""
    check_shape(probabilities, {"pair": mdp.num_pairs}, "probabilities")
    sums = np.add.reduceat(probabilities, mdp.offsets[:-1])
    if probabilities.min() < 0 or np.abs(sums - 1).max() > 1e-8:
        raise InvalidInput("probabilities: expected none negative, and a sum of 1 over the pairs of each state")


def _solve(matrix: sparse.csr_array, initial: Floats, discount: float) -> Floats:
    """The solution q of q = initial + discount * matrix q, with a residual at the level of rounding."""
    size = len(initial)
    if size <= DENSE_UP_TO:
        return np.linalg.solve(np.eye(size) - discount * matrix.toarray(), initial)
    operator = linalg.LinearOperator((size, size), matvec=lambda q: q - discount * (matrix @ q))
    q, _ = linalg.bicgstab(operator, initial, x0=initial / (1 - discount), rtol=1e-14, atol=0.0, maxiter=500)
    if not np.isfinite(q).all():
        q = initial / (1 - discount)
    # BiCGSTAB may stall above the tolerance; the plain iteration contracts from wherever it stopped.
    while (error := np.abs(initial + discount * (matrix @ q) - q).sum()) > 1e-12 * max(1.0, np.abs(q).sum()):
        for _ in range(10):
            q = initial + discount * (matrix @ q)
        if not np.isfinite(error):
            q = initial / (1 - discount)
    return np.asarray(q)


def policy_of(mdp: TabularMDP, measure: Floats) -> Floats:
    """(pair,) the policy of an occupancy measure; where a state is never visited, its first pair.

    Args:
        mdp: the problem.
        measure: (pair,) discounted visits.
    """
    clean = np.maximum(measure, 0.0)
    visits = np.repeat(np.add.reduceat(clean, mdp.offsets[:-1]), np.diff(mdp.offsets))
    first = np.zeros(mdp.num_pairs)
    first[mdp.offsets[:-1]] = 1.0
    return np.where(visits > 0, clean / np.where(visits > 0, visits, 1.0), first)


def values(mdp: TabularMDP, measure: Floats) -> Floats:
    """(objective,) expected discounted rewards of an occupancy measure."""
    return np.asarray(measure @ mdp.rewards)
