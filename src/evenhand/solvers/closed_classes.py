"""Closed classes of states: sets that a chain never leaves, and where it ends up. What averages turn on.

A chain with one closed class has one long-run mean; with several, the mean depends on where the chain starts. Whether
some policy of an arm has several is hard to decide in general (Tsitsiklis, "NP-hardness of checking the unichain
condition in average cost MDPs", 2007), but two criteria are quick:

    one policy      its closed classes are the strong components of its graph that have no way out       O(S^2)
    all policies    none has several if one state is reached with certainty under every policy: it attracts all states
                    that lead to it, or to states attracted before, by every action                     O(S^2) per round

The mean g and the bias h of a chain with rewards r, for any number of classes. Let W have in the row of a state of a
closed class C the uniform distribution w_C over C, in other rows 0. Then A = I - P + W is regular, and A y = r gives
w_C.y = the mean of C, since the stationary distribution of C annihilates I - P. So, by solves with A alone,

    g = A^-1 W A^-1 r,      z = A^-1 (r - g),      h = z - A^-1 W A^-1 z        O(S^3 log S) a chain with finding C.

For chains with rates of very different size, A has no digits to spare. `Elimination` censors the chain on ever fewer
states instead (Grassmann, Taksar and Heyman, 1985). The chance to leave a state is the sum of the chances to go
elsewhere, so nothing is ever subtracted, and shares and means keep their relative accuracy whatever the rates
(O'Cinneide, 1993). Classes are determined by exact zeros: however small a probability is, it counts as a way.
"""

import numpy as np
from scipy import sparse

from evenhand.model.tabular import TabularMDP
from evenhand.typing import Bools, Floats, Ints

MOST_TRIED = 8
"""States of an arm that are tried as the one that is always reached."""

BLOCK = 16
"""States that are eliminated before the others are brought up to date, by one product of matrices."""


def closed_classes(moves: Floats) -> list[Ints]:
    """The closed classes of a chain, each as its states in order.

    Args:
        moves: (state, next_state) probabilities.
    """
    classes, closed = label_classes(sparse.csr_array(moves))
    return sorted((np.flatnonzero(classes == number) for number in closed), key=lambda states: int(states[0]))


def never_splits(transitions: Floats, num_states: Ints) -> Bools:
    """(arm,) whether it is plain that no policy of the arm has several closed classes.

    Args:
        transitions: (arm, state, action, next_state) probabilities.
        num_states: (arm,) how many states are real.
    """
    # Quick test for all arms at once: one state that every action of every state may lead to next.
    positive = transitions > 0
    padding = np.arange(transitions.shape[1]) >= num_states[:, None]
    direct = (positive | padding[:, :, None, None]).all(axis=(1, 2)) & ~padding
    plain = np.asarray(direct.any(axis=1))
    for arm in np.flatnonzero(~plain):
        n = num_states[arm]
        plain[arm] = _attracts_all(positive[arm, :n, :, :n])
    return plain


def _attracts_all(positive: Bools) -> bool:
    """Return whether one of the likeliest states is reached under every policy, from everywhere."""
    n = len(positive)
    # The states that most pairs lead to are the likeliest to be reached with certainty.
    likely = np.argsort(-positive.sum(axis=(0, 1)), kind="stable")[:MOST_TRIED]
    attracted = np.zeros((len(likely), n))
    attracted[np.arange(len(likely)), likely] = 1.0
    leads = np.moveaxis(positive, 1, 0).astype(np.float64)
    for _ in range(n):
        # A state is attracted if it may get there next by every action, so no policy can avoid it for ever.
        grown = np.maximum(attracted, np.min([attracted @ to.T > 0 for to in leads], axis=0))
        if grown.all(axis=1).any():
            return True
        if (grown == attracted).all():
            return False
        attracted = grown
    return False


def means_and_biases(moves: Floats, rewards: Floats) -> tuple[Floats, Floats]:
    """(chain, state) the long-run mean from each state, and the bias.

    Args:
        moves: (chain, state, next_state) probabilities; rows of 0 are states for themselves.
        rewards: (chain, state) rewards.
    """
    both = closure(moves > 0)
    recurrent = np.asarray((~both | np.swapaxes(both, 1, 2)).all(axis=2))
    # For states of a closed class the uniform distribution over it, else 0.
    homes = np.where(recurrent[:, :, None], both / both.sum(axis=2, keepdims=True), 0.0)
    systems = np.eye(moves.shape[1]) - moves + homes

    def limit(values: Floats) -> Floats:
        """The expectation in the long run."""
        return solve(np.einsum("csj,cj->cs", homes, solve(values)))

    def solve(right: Floats) -> Floats:
        return np.asarray(np.linalg.solve(systems, right[..., None])[..., 0])

    means = limit(rewards)
    relative = solve(rewards - means)
    return means, relative - limit(relative)


def closure(edges: Bools) -> Bools:
    """(row, state, state) which state is reached from which, each from itself too."""
    size = edges.shape[-1]
    reach = (edges | np.eye(size, dtype=np.bool_)).astype(np.float32)
    # Paths of length 1, 2, 4, ...: so many squarings reach across all states.
    for _ in range(max(1, int(size - 1).bit_length())):
        reach = (reach @ reach > 0).astype(np.float32)
    return np.asarray(reach > 0)


def label_classes(chain: sparse.csr_array) -> tuple[Ints, Ints]:
    """(state,) the communicating class of each state, and the classes that are never left."""
    number, classes = sparse.csgraph.connected_components(chain, directed=True, connection="strong")
    edges = chain.tocoo()
    # A class with an edge to another is left for good at some time.
    leaving = np.unique(classes[edges.row[classes[edges.row] != classes[edges.col]]])
    return classes.astype(np.int64), np.setdiff1d(np.arange(number), leaving)


def one_long_run(mdp: TabularMDP) -> bool:
    """Return whether the best long-run mean cannot depend on the start, for any rewards.

    So it is if one class of states is closed under all actions together, every state of it can be reached from every
    other by some policy, and all other states lead to it whatever is done (weakly communicating; Puterman, 8.3).
    """
    inside = mdp.reachable
    home = inside & (np.arange(mdp.num_states) == np.argmax(inside))
    while True:
        ahead = mdp.reached_from(home)
        lost = ahead & ~_leading_to(mdp, home, np.logical_or)
        if not lost.any():
            break
        # From here there is no way back, so a closed class lies further ahead.
        home = np.arange(mdp.num_states) == np.argmax(lost)
    # What leads to the class by every pair meets it for sure, whatever is done.
    return bool(_leading_to(mdp, ahead, np.logical_and)[inside].all())


def _leading_to(mdp: TabularMDP, there: Bools, pairs: np.ufunc) -> Bools:
    """(state,) from where states may be reached: by some of the pairs (logical_or), or by each (logical_and)."""
    while True:
        nearer = (mdp.kernel @ there.astype(np.float64))[mdp.outcomes] > 0
        following = there | pairs.reduceat(nearer, mdp.offsets[:-1])
        if (following == there).all():
            return np.asarray(there)
        there = following


class Elimination:
    """One chain, its states eliminated one by one without a subtraction; one state of each closed class remains."""

    def __init__(self, chain: Floats, discount: float = 1.0) -> None:
        """Eliminate.

        Args:
            chain: (state, next_state) probabilities.
            discount: the chance that the chain goes on; below 1 it has no closed classes, and all states go.
        """
        n = len(chain)
        self.classes: Ints = np.zeros(n, dtype=np.int64)
        self.closed: Ints = np.zeros(0, dtype=np.int64)
        if discount == 1:
            self.classes, self.closed = label_classes(sparse.csr_array(chain))
        # The states that remain first, then the rest of their classes, then transient states: these go first.
        remain = np.array([np.flatnonzero(self.classes == number)[0] for number in self.closed], dtype=np.int64)
        self.settled = np.isin(self.classes, self.closed)
        last = np.where(self.settled, 1, 2)
        last[remain] = 0
        self.order = np.argsort(last, kind="stable")
        self.remaining = len(remain)
        self.work = discount * chain[np.ix_(self.order, self.order)]
        self.exits = np.ones(n)
        self._eliminate(np.full(n, 1 - discount))

    def _eliminate(self, ends: Floats) -> None:
        """Leave the ways into each state, per visit to it, above the diagonal, and its ways out below."""
        work = self.work
        for high in range(len(work), self.remaining, -BLOCK):
            low = max(high - BLOCK, self.remaining)
            for k in range(high - 1, low - 1, -1):
                row, column = work[k, :k], work[:k, k : k + 1]
                self.exits[k] = np.add.reduce(row) + ends[k]
                column /= self.exits[k]
                ends[:k] += column[:, 0] * ends[k]
                work[low:k, :k] += column[low:] * row
                if low:
                    work[:low, low:k] += column[:low] * row[low:]
            work[:low, :low] += work[:low, low:high] @ work[low:high, :low]

    def shares(self, initial: Floats) -> Floats:
        """(state,) the Cesaro limit of the distribution of the chain, whatever its classes and periods.

        Args:
            initial: (state,) initial distribution.
        """
        arriving, work, visits = initial[self.order], self.work, np.zeros(len(initial))
        # What begins in a transient state arrives where its ways out lead.
        for k in range(len(arriving) - 1, int(self.settled.sum()) - 1, -1):
            arriving[:k] += arriving[k] / self.exits[k] * work[k, :k]
            arriving[k] = 0.0
        visits[: self.remaining] = 1.0
        for k in range(self.remaining, len(visits)):
            visits[k] = visits[:k] @ work[:k, k]
        back = np.argsort(self.order)
        weights, shares = arriving[back], visits[back]
        for number in self.closed:
            inside = self.classes == number
            shares[inside] *= weights[inside].sum() / shares[inside].sum()
        return shares

    def visits(self, initial: Floats) -> Floats:
        """(state,) expected visits to each state, if there is a discount.

        Args:
            initial: (state,) initial distribution.
        """
        begun, work = initial[self.order], self.work
        for k in range(len(begun) - 1, -1, -1):
            begun[k] /= self.exits[k]
            begun[:k] += begun[k] * work[k, :k]
        for k in range(len(begun)):
            begun[k] += begun[:k] @ work[:k, k]
        return begun[np.argsort(self.order)]

    def means(self, rewards: Floats) -> Floats:
        """(state,) the long-run mean from each state.

        Args:
            rewards: (state,) rewards.
        """
        states = self.order[: self.remaining]
        # One state of each class, each with all of its class's shares.
        begins = np.zeros(len(rewards))
        begins[states] = 1.0
        weighted, known = self.shares(begins) * rewards, np.zeros(len(rewards))
        for place, state in enumerate(states):
            known[place] = weighted[self.classes == self.classes[state]].sum()
        return self._forth(np.zeros(len(rewards)), known)

    def biases(self, surplus: Floats) -> Floats:
        """(state,) what is gained in all from each state, up to a constant in every closed class.

        Args:
            surplus: (state,) rewards; without a discount, less the mean of the class.
        """
        gained = surplus[self.order]
        for k in range(len(gained) - 1, self.remaining - 1, -1):
            gained[:k] += self.work[:k, k] * gained[k]
        return self._forth(gained, np.zeros(len(surplus)))

    def _forth(self, gained: Floats, values: Floats) -> Floats:
        """(state,) values from those of the states that remain, and the gains before one of them is reached."""
        for k in range(self.remaining, len(values)):
            values[k] = (gained[k] + self.work[k, :k] @ values[:k]) / self.exits[k]
        return values[np.argsort(self.order)]
