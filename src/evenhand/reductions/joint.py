"""The product space: every arm's state side by side.

    states  s = (s_1, ..., s_N),   pairs (s, a) with sum_n d_k(s_n, a_n) <= b_k,   P(s' | s, a) = prod_n p_n(s'_n | s_n, a_n)

The law of a pair depends on it only through the transition row that each arm moves by, and rows that are equal are
kept once, so the kernel has a row for each combination of distinct rows that occurs. It is assembled as a sparse
Kronecker product, arm by arm. Pairs that break the budget do not exist. prod_n S_n states.
"""

from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
from scipy import sparse

from evenhand.checks import available_memory, check_memory, human_bytes
from evenhand.errors import TooLarge
from evenhand.model.coupled import CoupledMDP
from evenhand.model.tabular import TabularMDP
from evenhand.reductions.sampling import PairSampler
from evenhand.typing import Floats, Indices, Ints

MOST_PAIRS = 20_000_000
"""Feasible pairs beyond which the table is refused."""


@dataclass(frozen=True, eq=False)
class Joint:
    """The problem on the product space, one objective an arm."""

    problem: CoupledMDP

    @classmethod
    def accepts(cls, problem: CoupledMDP) -> str | None:
        """None if the product space fits, else its size in words."""
        sizes = _sizes_in_words(problem)
        if problem.num_arms > 64 or _num_states(problem) * 8.0 * 16 > available_memory():
            return f"the joint space has {sizes}"
        return None

    @cached_property
    def num_states_of_arm(self) -> Ints:
        """(arm,) states of each arm."""
        return self.problem.types.num_states[self.problem.type_of_arm].astype(np.int64)

    @cached_property
    def strides(self) -> Ints:
        """(arm,) what one more in an arm's state adds to the number of the joint state."""
        sizes = self.num_states_of_arm
        return np.concatenate([np.cumprod(sizes[:0:-1])[::-1], [1]]).astype(np.int64)

    @cached_property
    def states(self) -> Indices:
        """(state, arm) the joint states."""
        check_memory(4.0 * _num_states(self.problem) * self.problem.num_arms, "the joint states", _INSTEAD)
        number = np.arange(prod(int(s) for s in self.num_states_of_arm))[:, None]
        return ((number // self.strides) % self.num_states_of_arm).astype(np.int32)

    @cached_property
    def _pairs(self) -> tuple[Ints, Indices]:
        """The state of each pair, and its (pair, arm) actions: arm by arm, dropping what breaks the budget."""
        if reason := self.accepts(self.problem):
            raise TooLarge(f"{reason}. {_INSTEAD}")
        types, limit = self.problem.types, self.problem.budget_limit
        state = np.zeros(1, dtype=np.int64)
        actions = np.zeros((1, 0), dtype=np.int16)
        used = np.zeros((1, self.problem.num_resources))
        for arm, kind in enumerate(self.problem.type_of_arm):
            cell_state, cell_action = np.nonzero(types.valid[kind])
            self._check_growth(len(state) * len(cell_state), arm)
            total = (used[:, None] + types.usage[kind][cell_state, cell_action]).reshape(-1, used.shape[1])
            keep = np.flatnonzero((total <= limit).all(axis=1))
            parent, cell = np.divmod(keep, len(cell_state))
            state = state[parent] + cell_state[cell] * self.strides[arm]
            actions = np.column_stack([actions[parent], cell_action[cell].astype(np.int16)])
            used = total[keep]
        order = np.argsort(state, kind="stable")
        return state[order], actions[order].astype(np.int32)

    def _check_growth(self, number: int, arm: int) -> None:
        width = 8.0 * (2 + 2 * self.problem.num_resources) + 2.0 * arm
        if number > 4 * MOST_PAIRS or number * width > 0.8 * available_memory():
            raise TooLarge(
                f"the joint space has {_sizes_in_words(self.problem)}, and its feasible pairs alone would need more than "
                f"{human_bytes(number * width)}. {_INSTEAD}"
            )

    @property
    def actions(self) -> Indices:
        """(pair, arm) the actions of each pair."""
        return self._pairs[1]

    @cached_property
    def usage(self) -> Floats:
        """(pair, resource) what each pair uses."""
        state, actions = self._pairs
        return np.asarray(self.problem.types.usage[self.problem.type_of_arm, self.states[state], actions].sum(axis=1))

    @cached_property
    def mdp(self) -> TabularMDP:
        """The tabular problem on joint states, with each arm's own reward as an objective."""
        state, actions = self._pairs
        types, kinds = self.problem.types, self.problem.type_of_arm
        arms_states = self.states[state]
        rows, distinct = zip(*(_distinct_rows(types.transitions[kind]) for kind in kinds), strict=True)
        used = np.column_stack([rows[n][arms_states[:, n], actions[:, n]] for n in range(len(kinds))])
        combinations, outcomes = np.unique(used, axis=0, return_inverse=True)
        parts = [distinct[n][:, : self.num_states_of_arm[n]] for n in range(len(kinds))]
        num_states = prod(int(s) for s in self.num_states_of_arm)
        return TabularMDP(
            offsets=np.searchsorted(state, np.arange(num_states + 1)).astype(np.int64),
            rewards=types.rewards[kinds, arms_states, actions],
            outcomes=outcomes.reshape(-1).astype(np.int64),
            kernel=_kronecker_rows(parts, combinations, self.strides, num_states),
            initial=self._initial(),
            discount=self.problem.discount,
        )

    def _initial(self) -> Floats:
        law: Floats = np.ones(1)
        for arm, kind in enumerate(self.problem.type_of_arm):
            law = np.outer(law, self.problem.types.initial[kind, : self.num_states_of_arm[arm]]).reshape(-1)
        return law

    def lift(self, probabilities: Floats) -> "JointTable":
        """A policy that looks up the joint state."""
        return JointTable(self, probabilities)

    def values_of_arms(self, objectives: Floats) -> Floats:
        """The objectives are the arms."""
        return objectives


class JointTable:
    """A policy given by a table over the pairs of the product space."""

    def __init__(self, reduction: Joint, probabilities: Floats) -> None:
        self.reduction = reduction
        self.probabilities = probabilities
        self._sampler = PairSampler(reduction.mdp.offsets, probabilities)

    def act(self, states: Indices, rng: np.random.Generator) -> Indices:
        """Draw a joint action for each (episode, arm) joint state."""
        return self.reduction.actions[self._sampler.draw(states @ self.reduction.strides, rng)]


_INSTEAD = "Use fewer arms, or counts if many arms are identical."


def _num_states(problem: CoupledMDP) -> float:
    sizes = problem.types.num_states.astype(np.float64)
    with np.errstate(over="ignore"):
        return float(np.exp(np.minimum((np.log(sizes) * problem.type_counts).sum(), 700.0)))


def _sizes_in_words(problem: CoupledMDP) -> str:
    pieces: dict[int, int] = {}
    for size, count in zip(problem.types.num_states, problem.type_counts, strict=True):
        pieces[int(size)] = pieces.get(int(size), 0) + int(count)
    product = " x ".join(f"{size}^{count}" for size, count in sorted(pieces.items()))
    return f"{product} = {_num_states(problem):.3g} states"


def _distinct_rows(transitions: Floats) -> tuple[Ints, Floats]:
    """(state, action) the number of the row each cell moves by, and the (row, next_state) distinct rows."""
    S, A, _ = transitions.shape
    rows, inverse = np.unique(transitions.reshape(S * A, -1), axis=0, return_inverse=True)
    return inverse.reshape(S, A), rows


def _kronecker_rows(parts: list[Floats], combinations: Ints, strides: Ints, num_states: int) -> sparse.csr_array:
    """(combination, state) for each combination the Kronecker product of one row of every part."""
    widths = [int((part > 0).sum(axis=1).max()) for part in parts]
    check_memory(24.0 * len(combinations) * prod(widths), "the kernel of the joint space", _INSTEAD)
    data = np.ones((len(combinations), 1))
    columns = np.zeros((len(combinations), 1), dtype=np.int64)
    for n, part in enumerate(parts):
        support = np.argsort(part <= 0, axis=1, kind="stable")[:, : widths[n]]
        chosen = support[combinations[:, n]]
        weights = np.take_along_axis(part[combinations[:, n]], chosen, axis=1)
        data = (data[:, :, None] * weights[:, None, :]).reshape(len(combinations), -1)
        columns = (columns[:, :, None] + chosen[:, None, :] * strides[n]).reshape(len(combinations), -1)
    keep = data > 0
    indptr = np.concatenate([[0], np.cumsum(keep.sum(axis=1))])
    return sparse.csr_array((data[keep], columns[keep], indptr), shape=(len(combinations), num_states))
