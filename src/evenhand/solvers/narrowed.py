"""A tabular problem in which only some of its pairs may be chosen, and the way back.

Pairs that are not kept are absent, and so are those that may lead to a state where nothing is kept, again and again
until nothing changes. States that are never met then do not matter, and keep all of their pairs. What is kept may
change from step to step: the states of each step are then states of their own, x at step t number t n + x, and a policy
of the larger problem is read off layer by layer.

Under the average only what is done in the long run must be kept, and what is done before may decide where that is. Let
the places be the end components of what is kept. A plan ends in one of them whatever it does before, and has what the
best plan in there has. So nothing is lost by keeping to it from the beginning if from each first state, by any pairs at
all, one place only can be reached. Where there are more, which of them is the best is not told here.
"""

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from evenhand.checks import check_memory
from evenhand.errors import NotApplicable, OutOfDomain
from evenhand.model.tabular import TabularMDP
from evenhand.typing import Bools, Floats, Ints


class Narrowed(Protocol):
    """A problem with fewer pairs."""

    @property
    def mdp(self) -> TabularMDP:
        """The problem."""
        ...

    def widen(self, probabilities: Floats) -> Floats:
        """The same policy on all pairs.

        Args:
            probabilities: (pair,) or (step, pair), of the narrowed problem.
        """
        ...


class NothingKept(OutOfDomain):
    """What is to be kept cannot all be kept."""


def narrowed(mdp: TabularMDP, kept: Bools) -> Narrowed:
    """The problem in which only what is kept may be chosen.

    Args:
        mdp: the problem.
        kept: (step, pair) what may be chosen at each step; one step where it is always the same.

    Raises:
        NothingKept: nothing can be chosen in the end, whatever is done before.
        NotApplicable: under the average it may matter what is done before all is kept.
    """
    good = _kept_for_good(mdp, kept)
    dead = ~_some(mdp, good[0])
    if mdp.criterion.is_average:
        _check_places(mdp, good[0], dead)
    if mdp.initial[dead].any():
        raise NothingKept(
            "the welfare is for values of at least 0, and no plan keeps all who have 0 at best there: what they need "
            "for it is more than the budget allows. Use a Gini welfare, a larger budget, or shift the rewards."
        )
    pairs = np.asarray(good | ~_met(mdp, good)[:, mdp.state_of_pair])
    if len(pairs) == 1:
        return _Steady(_with_pairs(mdp, np.flatnonzero(pairs[0])), np.flatnonzero(pairs[0]), mdp.num_pairs)
    return _layered(mdp, pairs)


def _kept_for_good(mdp: TabularMDP, kept: Bools) -> Bools:
    """(step, pair) what may be chosen without ever being left with nothing."""
    kept = kept.copy()
    later = np.zeros(mdp.num_states, dtype=np.bool_)
    for step in reversed(range(len(kept))):
        while True:
            kept[step] &= ~_may_lead(mdp, later)
            dead = ~_some(mdp, kept[step])
            if len(kept) > 1 or (dead == later).all():
                break
            later = dead
        later = dead
    return kept


# -- places where all is kept in the long run -------------------------------------------------------------------------


def _check_places(mdp: TabularMDP, kept: Bools, dead: Bools) -> None:
    """Refuse where several places can be reached from a first state, or one, but not while all is kept."""
    places, first = _places(mdp, kept), mdp.initial > 0
    none = places < 0
    highest = _reached_most(mdp, places)
    lowest = -_reached_most(mdp, np.where(none, -mdp.num_states, -places))
    if (first & (highest > lowest)).any() or (first & dead & (highest >= 0)).any():
        raise NotApplicable(
            "some arms have 0 at best and need service for it. On average what they lose at first counts for nothing, "
            "and it may decide where they or others come to rest: what is best is not known then. Use a Gini welfare, "
            "another criterion, or first states from which all can be kept and nothing is decided for good."
        )


def _places(mdp: TabularMDP, kept: Bools) -> Ints:
    """(state,) the number of its end component of kept pairs; -1 where it is in none."""
    pair, after = mdp.transitions.nonzero()
    before, kept = mdp.state_of_pair[pair], kept.copy()
    while True:
        some = kept[pair]
        graph = sparse.csr_array((some[some], (before[some], after[some])), shape=(mdp.num_states,) * 2)
        _, part = connected_components(graph, connection="strong")
        # A pair that may leave its strong component cannot be taken for ever and still be met again.
        leaves = np.bincount(pair, weights=part[before] != part[after], minlength=mdp.num_pairs) > 0
        if not (kept & leaves).any():
            return np.asarray(np.where(_some(mdp, kept), part, -1))
        kept &= ~leaves


def _reached_most(mdp: TabularMDP, numbers: Ints) -> Ints:
    """(state,) the highest of the numbers of all states where it can lead, by any pairs."""
    pair, after = mdp.transitions.nonzero()
    before, most = mdp.state_of_pair[pair], numbers.copy()
    while True:
        more = most.copy()
        np.maximum.at(more, before, most[after])
        if (more == most).all():
            return most
        most = more


# -- what can be met --------------------------------------------------------------------------------------------------


def _may_lead(mdp: TabularMDP, states: Bools) -> Bools:
    """(pair,) whether one of the states may come next."""
    return np.asarray((mdp.kernel @ states.astype(np.float64))[mdp.outcomes] > 0)


def _some(mdp: TabularMDP, pairs: Bools) -> Bools:
    """(state,) whether it has one of the pairs."""
    return np.asarray(np.logical_or.reduceat(pairs, mdp.offsets[:-1]))


def _met(mdp: TabularMDP, kept: Bools) -> Bools:
    """(step, state) where one can come by kept pairs."""
    forth, seen = mdp.kernel.T, np.zeros((len(kept), mdp.num_states), dtype=np.bool_)

    def following(now: Bools, pairs: Bools) -> Bools:
        outcomes = np.bincount(mdp.outcomes, weights=now[mdp.state_of_pair] & pairs, minlength=mdp.kernel.shape[0])
        return np.asarray((forth @ (outcomes > 0).astype(np.float64)) > 0)

    seen[0] = mdp.initial > 0
    for step in range(1, len(kept)):
        seen[step] = following(seen[step - 1], kept[step - 1])
    while len(kept) == 1:
        more = seen[0] | following(seen[0], kept[0])
        if (more == seen[0]).all():
            break
        seen[0] = more
    return seen


def _with_pairs(mdp: TabularMDP, pairs: Ints) -> TabularMDP:
    state = mdp.state_of_pair[pairs]
    return replace(
        mdp,
        offsets=np.searchsorted(state, np.arange(mdp.num_states + 1)).astype(np.int64),
        rewards=mdp.rewards[pairs],
        outcomes=mdp.outcomes[pairs],
        served=None if mdp.served is None else mdp.served[pairs],
    )


@dataclass(frozen=True, eq=False)
class _Steady:
    """The same pairs at every step."""

    mdp: TabularMDP
    pairs: Ints
    num_pairs: int

    def widen(self, probabilities: Floats) -> Floats:
        """The same policy on all pairs."""
        wide = np.zeros((*probabilities.shape[:-1], self.num_pairs))
        wide[..., self.pairs] = probabilities
        return wide


def _layered(mdp: TabularMDP, kept: Bools) -> "_Layered":
    """The problem whose states are those of every step; after the last step nothing counts, and it stays there."""
    steps, (outcomes, states) = len(kept), mdp.kernel.shape
    check_memory(20.0 * steps * outcomes * states, "the states of all steps side by side", "Use fewer steps or arms.")
    rows = sparse.csr_array(mdp.kernel[np.arange(outcomes)])
    onwards = sparse.eye_array(steps, k=1, format="lil")
    onwards[steps - 1, steps - 1] = 1.0
    step, pair = np.nonzero(kept)
    number = step * states + mdp.state_of_pair[pair]
    layers = TabularMDP(
        offsets=np.searchsorted(number, np.arange(steps * states + 1)).astype(np.int64),
        rewards=mdp.rewards[pair],
        outcomes=step * outcomes + mdp.outcomes[pair],
        kernel=sparse.csr_array(sparse.kron(onwards, rows, format="csr")),
        initial=np.concatenate([mdp.initial, np.zeros((steps - 1) * states)]),
        criterion=mdp.criterion,
        served=None if mdp.served is None else mdp.served[pair],
    )
    return _Layered(layers, step, pair, mdp.num_pairs)


@dataclass(frozen=True, eq=False)
class _Layered:
    """Other pairs at every step."""

    mdp: TabularMDP
    step: Ints
    pair: Ints
    num_pairs: int

    def widen(self, probabilities: Floats) -> Floats:
        """The same policy on all pairs, step by step."""
        wide = np.zeros((len(probabilities), self.num_pairs))
        wide[self.step, self.pair] = probabilities[self.step, np.arange(len(self.step))]
        return wide
