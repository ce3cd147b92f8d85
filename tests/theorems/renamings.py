"""From any joint policy of a symmetric problem to the exchangeable one with the averaged occupancy measure.

The paper's Lemma 3.3 averages the occupancy measures of all N! renamings of a policy. Renaming moves a pair (s, a)
only among the pairs with the same counts (x, u), so the averaged measure is spread evenly over them, and

    q_phi(x, u) = sum of q(s, a) over the pairs with counts (x, u),      pi(u | x) = q_phi(x, u) / q_phi(x)

is the policy on counts that has it. Its arms all have the mean of the values that the arms had before. Arms of several
types are averaged within each type. O(pairs log pairs).
"""

import numpy as np

from evenhand.checks import check_shape
from evenhand.solvers import Counts, CountTable, Joint, count_states
from evenhand.typing import Floats, Ints


def average_over_renamings(joint: Joint, measure: Floats) -> CountTable:
    """The exchangeable policy with the averaged occupancy measure.

    Args:
        joint: the product space.
        measure: (joint pair,) the occupancy measure of any policy on it.
    """
    check_shape(measure, {"pair": joint.mdp.num_pairs}, "measure")
    counts = Counts(joint.problem)
    summed = np.bincount(count_pairs(joint, counts), weights=measure, minlength=counts.mdp.num_pairs)
    offsets = counts.mdp.offsets
    visits = np.repeat(np.add.reduceat(summed, offsets[:-1]), np.diff(offsets))
    otherwise = np.zeros(len(summed))
    otherwise[offsets[:-1]] = 1.0
    return CountTable(counts, np.where(visits > 0, summed / np.where(visits > 0, visits, 1.0), otherwise))


def count_pairs(joint: Joint, counts: Counts) -> Ints:
    """(joint pair,) the pair of the count space that each joint pair belongs to."""
    states, actions = joint.states[joint.mdp.state_of_pair], joint.actions
    kinds, (_, S, A) = joint.problem.type_of_arm, joint.problem.types.valid.shape
    cells = np.sort(kinds * (S * A) + states * A + actions, axis=1)
    ours = _sorted_cells(counts.allocations)
    order = np.lexsort(ours.T[::-1])
    place = _rows_in(cells, ours[order])
    assert np.array_equal(counts.index(count_states(joint.problem, states)), counts.mdp.state_of_pair[order[place]])
    return np.asarray(order[place])


def _sorted_cells(allocations: Ints) -> Ints:
    """(pair, arm) for each allocation the cells of its arms, in ascending order."""
    flat = allocations.reshape(len(allocations), -1)
    return np.repeat(np.tile(np.arange(flat.shape[1]), len(flat)), flat.reshape(-1)).reshape(len(flat), -1)


def _rows_in(rows: Ints, table: Ints) -> Ints:
    """Where each row stands in a table whose rows are in lexicographic order and include it."""
    both = np.concatenate([table, rows])
    _, number = np.unique(both, axis=0, return_inverse=True)
    return np.asarray(number.reshape(-1)[len(table) :])
