"""The count space: how many arms of each type are in each state (the paper's Appendix C, for types too).

    states x[t, s] with sum_s x[t, s] = N_t,    actions u[t, s, a] with sum_a u[t, s, a] = x[t, s] and
    sum_{t,s,a} d_k(t, s, a) u[t, s, a] <= b_k,    reward of type t: (1 / N_t) sum_{s,a} u[t, s, a] r_t(s, a)

The next counts of a type are a sum of multinomials, one for each distinct transition row, so they depend on u only
through m[t, row], the number of arms that move by each row. Their law is grown by one arm at a time
(`kernels.lattice`). The law of the first counts is multinomial (by log-gamma, no overflow).
A policy on counts is lifted by drawing uniformly who within a state gets an action: it is exchangeable.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
from scipy import sparse
from scipy.special import gammaln

from evenhand.checks import check_memory, fits_in_memory
from evenhand.display import size_in_words
from evenhand.errors import NotApplicableError, PolicyError, TooLargeError
from evenhand.kernels.lattice import (
    count_movers,
    lattice_index,
    lattice_points,
    lattice_size,
    list_amounts,
    movers_distribution,
    multinomial_probabilities,
)
from evenhand.kernels.products import kronecker_rows
from evenhand.kernels.randomness import draw_keys
from evenhand.model.composite import TimeVaryingPolicy
from evenhand.model.coupled import CoupledMDP
from evenhand.model.explanations import DecisionStep, explain_by_table
from evenhand.model.policy import BasePolicy, check_arrays
from evenhand.model.simulator import Problem
from evenhand.model.stateful_policy import on_batches
from evenhand.model.tabular import TabularMDP
from evenhand.solvers.pair_table import MOST_PAIRS, PairTable
from evenhand.typing import Array, Floats, Indices, Ints

_INSTEAD = "Use fewer arms, or the method fluid, which needs no table."


# -- the tabular problem on counts ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Counts:
    """The problem on counts, one objective a type (the mean value of its arms)."""

    problem: CoupledMDP

    @classmethod
    def accepts(cls, problem: CoupledMDP) -> str | None:
        """None if the count space fits, else its size in words."""
        number = num_count_states(problem)
        if not fits_in_memory(number * 64.0, 1.0):
            return f"the count space has {size_in_words(number)} states"
        return None

    @cached_property
    def sizes(self) -> list[int]:
        """(type,) lattice points of each type."""
        return _lattice_sizes(self.problem)

    @cached_property
    def strides(self) -> Ints:
        """(type,) what one more in a type's lattice point adds to the number of the state."""
        return np.array([prod(self.sizes[t + 1 :]) for t in range(len(self.sizes))], dtype=np.int64)

    @property
    def num_states(self) -> int:
        """Number of count states."""
        return prod(self.sizes)

    @cached_property
    def states(self) -> Ints:
        """(count state, type, state) all counts, padded where types have fewer states."""
        if reason := self.accepts(self.problem):
            raise TooLargeError(f"{reason}. {_INSTEAD}")
        types = self.problem.types
        counts = np.zeros((self.num_states, len(types), types.rewards.shape[1]), dtype=np.int64)
        number = np.arange(self.num_states)
        for t, (arms, states) in enumerate(zip(self.problem.type_counts, types.num_states, strict=True)):
            points = lattice_points(int(arms), int(states))
            counts[:, t, :states] = points[(number // self.strides[t]) % self.sizes[t]]
        return counts

    def index(self, counts: Ints) -> Ints:
        """(...,) the number of each (..., type, state) count state."""
        index = np.zeros(counts.shape[:-2], dtype=np.int64)
        for t, states in enumerate(self.problem.types.num_states):
            index += lattice_index(counts[..., t, :states]) * self.strides[t]
        return index

    @cached_property
    def _pairs(self) -> tuple[Ints, Ints]:
        """The state of each pair, and its (pair, type, state, action) allocation within the budget."""
        if reason := self.accepts(self.problem):
            raise TooLargeError(f"{reason}. {_INSTEAD}")
        types, limit = self.problem.types, self.problem.budget_limit
        cells = np.argwhere(types.valid)

        def check(number: float) -> None:
            if number > MOST_PAIRS or not fits_in_memory(number * 20.0 * len(cells)):
                raise TooLargeError(
                    f"the count space has {self.num_states} states and over {number:.3g} feasible allocations. "
                    f"{_INSTEAD}"
                )

        chosen, _ = list_amounts(types.usage[types.valid], cells[:, 0], self.problem.type_counts, limit, check)
        allocations = np.zeros((len(chosen), *types.valid.shape), dtype=np.int64)
        allocations[:, cells[:, 0], cells[:, 1], cells[:, 2]] = chosen
        if self.problem.spends_all.any():
            allocations = allocations[(self.usage_of(allocations) >= self.problem.least_use).all(axis=1)]
        state = self.index(allocations.sum(axis=-1))
        order = np.argsort(state, kind="stable")
        return state[order], allocations[order]

    @property
    def allocations(self) -> Ints:
        """(pair, type, state, action) the allocation of each pair."""
        return self._pairs[1]

    @cached_property
    def mdp(self) -> TabularMDP:
        """The tabular problem on counts."""
        state, allocations = self._pairs
        return self.tabulate(state, allocations)

    def tabulate(self, state: Ints, allocations: Ints) -> TabularMDP:
        """The tabular problem that has just these allocations.

        Args:
            state: (pair,) the number of the count state, in ascending order.
            allocations: (pair, type, state, action) what is done there.
        """
        outcomes, kernel = self._outcomes(allocations)
        return TabularMDP(
            offsets=np.searchsorted(state, np.arange(self.num_states + 1)).astype(np.int64),
            rewards=self.mean_rewards(allocations),
            outcomes=outcomes,
            kernel=kernel,
            initial=self.initial,
            criterion=self.problem.criterion,
            served=self.mean_served(allocations) if self.problem.has_floors else None,
        )

    def mean_rewards(self, allocations: Ints) -> Floats:
        """(pair, type) the mean reward of each type's arms."""
        sums = np.einsum("ptsa,tsa->pt", allocations, self.problem.types.rewards)
        return np.asarray(sums / self.problem.type_counts)

    def mean_served(self, allocations: Ints) -> Floats:
        """(pair, type) the share of each type's arms that are served."""
        sums = np.einsum("ptsa,tsa->pt", allocations, self.problem.types.served)
        return np.asarray(sums / self.problem.type_counts)

    @cached_property
    def usage(self) -> Floats:
        """(pair, resource) what each pair uses."""
        return self.usage_of(self.allocations)

    def usage_of(self, allocations: Ints) -> Floats:
        """(pair, resource) what allocations use."""
        return np.asarray(np.einsum("ptsa,tsak->pk", allocations, self.problem.types.usage))

    @cached_property
    def initial(self) -> Floats:
        """(count state,) the law of the first counts."""
        law: Floats = np.ones(1)
        for t, (arms, states) in enumerate(zip(self.problem.type_counts, self.problem.types.num_states, strict=True)):
            points = lattice_points(int(arms), int(states))
            law = np.outer(law, multinomial_probabilities(points, self.problem.types.initial[t, :states])).reshape(-1)
        return law

    # -- outcomes and their laws --------------------------------------------------------------------------------------

    def _outcomes(self, allocations: Ints) -> tuple[Ints, sparse.csr_array]:
        """The outcome of each allocation, and the (outcome, count state) laws of the next counts."""
        numbers, laws = [], []
        for t, states in enumerate(self.problem.types.num_states):
            valid = self.problem.types.valid[t]
            movers, distinct = count_movers(allocations[:, t, valid], self.problem.types.transitions[t][valid])
            # Allocations that move equally many arms by each row have one law: it is computed once.
            used, number = np.unique(movers, axis=0, return_inverse=True)
            check_memory(20.0 * len(used) * self.sizes[t], "the kernel of the count space", _INSTEAD)
            laws.append(sparse.csr_array(movers_distribution(used, distinct[:, :states])))
            numbers.append(number.reshape(-1))
        if len(laws) == 1:
            return numbers[0].astype(np.int64), laws[0]
        # Types move independently: a law of all is the product of theirs, one for each combination that occurs.
        combinations, outcomes = np.unique(np.column_stack(numbers), axis=0, return_inverse=True)
        entries = prod(np.diff(law.indptr)[own] for law, own in zip(laws, combinations.T, strict=True))
        check_memory(16.0 * float(entries.sum()), "the kernel of the count space", _INSTEAD)
        kernel = kronecker_rows([law[own] for law, own in zip(laws, combinations.T, strict=True)])
        return outcomes.reshape(-1).astype(np.int64), kernel

    def lift(self, probabilities: Floats) -> "CountTable | TimeVaryingPolicy":
        """An exchangeable policy that looks up the counts; with (step, pair) probabilities, one for each step."""
        return CountTable.lift(self, probabilities)


# -- policies by a table of probabilities -----------------------------------------------------------------------------


class ExchangeablePolicy(BasePolicy):
    """A policy that finds an allocation by counts, and draws who within a state gets an action."""

    decides = "by a table"
    problem: CoupledMDP

    @on_batches
    def act(self, states: Indices, rng: np.random.Generator) -> Indices:
        """Find an allocation for each episode, and draw who within a state gets an action."""
        allocation = self.allocate(count_states(self.problem, states), rng)
        return assign(self.problem.type_of_arm, states, allocation, rng)

    def allocate(self, counts: Ints, rng: np.random.Generator) -> Ints:
        """(episode, type, state, action) an allocation for each episode."""
        return self.look_up(counts)

    def look_up(self, counts: Ints) -> Ints:
        """(episode, type, state, action) the one allocation for each episode, if it is not drawn."""
        raise NotImplementedError

    def allocation_distribution(self, counts: Ints) -> tuple[Ints, Floats]:
        """The allocations of positive probability, and their probabilities."""
        return self.look_up(counts[None]), np.ones(1)

    def explain(self, decision: DecisionStep) -> list[str]:
        """(arm,) the reason for each action, by counts."""
        return explain_by_table(decision)


class CountTable(ExchangeablePolicy, PairTable):
    """An exchangeable policy given by a table over the pairs of the count space."""

    kind, space = "count-table", Counts
    reduction: Counts

    def allocate(self, counts: Ints, rng: np.random.Generator) -> Ints:
        """Draw an allocation for each episode."""
        return self.reduction.allocations[self._sampler.draw(self.reduction.index(counts), rng)]

    def allocation_distribution(self, counts: Ints) -> tuple[Ints, Floats]:
        """The allocations of positive probability."""
        state = int(self.reduction.index(counts))
        offsets = self.reduction.mdp.offsets
        pairs = np.arange(offsets[state], offsets[state + 1])
        pairs = pairs[self.probabilities[pairs] > 0]
        return self.reduction.allocations[pairs], self.probabilities[pairs]


# -- sizes, counts and assignments ------------------------------------------------------------------------------------


def num_count_states(problem: CoupledMDP) -> float:
    """Number of count states of a problem: exact up to 2^53, infinite beyond what a double holds."""
    # By logarithms first: the exact product may have very many digits.
    arms, states = problem.type_counts, problem.types.num_states
    if (gammaln(arms + states) - gammaln(states) - gammaln(arms + 1.0)).sum() > 700:
        return float("inf")
    return float(prod(_lattice_sizes(problem)))


def _lattice_sizes(problem: CoupledMDP) -> list[int]:
    numbers = zip(problem.type_counts, problem.types.num_states, strict=True)
    return [lattice_size(int(arms), int(states)) for arms, states in numbers]


def count_states(problem: Problem, states: Indices) -> Ints:
    """(episode, type, state) how many arms are in each state.

    Args:
        problem: the problem.
        states: (episode, arm) states.
    """
    S = problem.types.valid.shape[1]
    width = problem.num_types * S
    # One bin for each episode, type and state, so that a single count does.
    cell = problem.type_of_arm * S + states + np.arange(len(states))[:, None] * width
    counts = np.bincount(cell.reshape(-1), minlength=len(states) * width)
    return counts.reshape(len(states), problem.num_types, S)


def assign(type_of_arm: Indices, states: Indices, allocation: Ints, rng: np.random.Generator) -> Indices:
    """(episode, arm) who gets which action, drawn uniformly within each type and state."""
    from evenhand.kernels.greedy_service import assign_uniformly

    numbers = np.ascontiguousarray(allocation, dtype=np.int64)
    return np.asarray(assign_uniformly(type_of_arm, states, numbers, draw_keys(rng, 1)[0]), dtype=np.int32)


# -- policies by a table of choices -----------------------------------------------------------------------------------


class CountChoices(ExchangeablePolicy):
    """An exchangeable policy that has one allocation for each count state of a symmetric problem.

    It keeps only the numbers of arms off the base action, so that a million count states are a small table.
    """

    kind = "count-choices"
    deterministic = True

    def __init__(self, problem: CoupledMDP, cells: Ints, base: Ints, amounts: Indices) -> None:
        """Keep the table.

        Args:
            problem: a symmetric problem.
            cells: (cell, 2) state and action of the cells that are ever used off base.
            base: (state,) the action of the other arms.
            amounts: (count state, cell) how many arms get each cell.
        """
        if not problem.is_symmetric:
            raise NotApplicableError("a table of count choices is for identical arms")
        self.problem = problem
        self.cells, self.base, self.amounts = cells, base, amounts

    def look_up(self, counts: Ints) -> Ints:
        """(episode, type, state, action) the allocation for each episode."""
        amounts = self.amounts[lattice_index(counts[:, 0])]
        allocation = np.zeros((*counts.shape, self.problem.types.valid.shape[2]), dtype=np.int64)
        for number, (state, action) in enumerate(self.cells):
            allocation[:, 0, state, action] += amounts[:, number]
        states = np.arange(counts.shape[2])
        # Arms without a cell get the base action.
        allocation[:, 0, states, self.base] += counts[:, 0] - allocation[:, 0].sum(axis=-1)
        return allocation

    def to_arrays(self) -> dict[str, Array]:
        """Return the table."""
        return {"cells": self.cells, "base": self.base, "amounts": self.amounts}

    @classmethod
    def from_arrays(cls, problem: CoupledMDP, arrays: dict[str, Array]) -> "CountChoices":
        """Return the policy of this table; the budget is checked when it is played."""
        check_arrays(arrays, cells="iu2", base="iu1", amounts="iu2")
        cells, base, amounts = arrays["cells"], arrays["base"], arrays["amounts"]
        if not problem.is_symmetric:
            raise PolicyError("it is for identical arms")
        S, A = problem.types.valid.shape[1:]
        fits = (
            cells.shape == (amounts.shape[1], 2)
            and base.shape == (S,)
            and amounts.shape[0] == Counts(problem).num_states
            and ((cells >= 0) & (cells < (S, A))).all()
            and ((base >= 0) & (base < A)).all()
            and ((amounts >= 0) & (amounts <= problem.num_arms)).all()
        )
        if not fits:
            raise PolicyError("its tables do not fit the problem")
        # Unsigned 64-bit numbers do not mix with signed ones.
        amounts = amounts if np.can_cast(amounts.dtype, np.int64) else amounts.astype(np.int64)
        points = lattice_points(problem.num_arms, int(problem.types.num_states[0]))
        for state in np.unique(cells[:, 0]):
            if (amounts[:, cells[:, 0] == state].sum(axis=1, dtype=np.int64) > points[:, state]).any():
                raise PolicyError("it serves more arms in a state than there are")
        return cls(problem, cells, base, amounts)


def count_policy(problem: CoupledMDP, cells: Ints, base: Ints, choices: Array) -> CountChoices | TimeVaryingPolicy:
    """The policy of choices on counts: one table, or one for each step, all within the array that was given.

    Args:
        problem: a symmetric problem.
        cells: (cell, 2) state and action of the cells that are ever used off base.
        base: (state,) the action of the other arms.
        choices: (count state, cell) how many arms get each cell, or (step, count state, cell).
    """
    if choices.ndim == 2:
        return CountChoices(problem, cells, base, choices)
    return TimeVaryingPolicy([CountChoices(problem, cells, base, amounts) for amounts in choices])


class TypedChoices(ExchangeablePolicy):
    """An exchangeable policy that has one allocation for each count state of arms of several types.

    Allocations of one type at a time are stored once, however many states they are chosen in, so that a million count
    states are a small table.
    """

    kind = "typed-choices"
    deterministic = True

    def __init__(self, problem: CoupledMDP, allocations: Ints, picks: Array) -> None:
        """Keep the table.

        Args:
            problem: the problem.
            allocations: (row, state, action) allocations of the arms of one type.
            picks: (count state, type) the row of each type.
        """
        self.problem, self.space = problem, Counts(problem)
        self.allocations, self.picks = allocations, picks

    def look_up(self, counts: Ints) -> Ints:
        """(episode, type, state, action) the allocation for each episode."""
        return self.allocations[self.picks[self.space.index(counts)]]

    def to_arrays(self) -> dict[str, Array]:
        """Return the table, with the narrowest integers: there are many allocations."""
        narrow = self.allocations.astype(np.min_scalar_type(int(self.allocations.max())))
        return {"allocations": narrow, "picks": self.picks}

    @classmethod
    def from_arrays(cls, problem: CoupledMDP, arrays: dict[str, Array]) -> "TypedChoices":
        """Return the policy of this table; the budget is checked when it is played."""
        check_arrays(arrays, allocations="iu3", picks="iu2")
        allocations, picks, space = arrays["allocations"], arrays["picks"], Counts(problem)
        fits = (
            allocations.shape[1:] == problem.types.valid.shape[1:]
            and picks.shape == (space.num_states, problem.num_types)
            and ((allocations >= 0) & (allocations <= problem.num_arms)).all()
            and ((picks >= 0) & (picks < len(allocations))).all()
        )
        if not fits:
            raise PolicyError("its tables do not fit the problem")
        wide = allocations.astype(np.int64)
        for t, (arms, states) in enumerate(zip(problem.type_counts, problem.types.num_states, strict=True)):
            used, number = np.unique(picks[:, t], return_inverse=True)
            # Arms in each state, and all arms within real pairs: those in padding would be lost.
            counts, whole = wide[used].sum(axis=2), wide[used][:, problem.types.real[t]].sum(axis=1)
            point = (np.arange(space.num_states) // space.strides[t]) % space.sizes[t]
            if (whole != arms).any() or (counts.sum(axis=1) != arms).any():
                raise PolicyError("it allocates more or fewer arms than a type has")
            if (lattice_index(counts[:, :states])[number.reshape(-1)] != point).any():
                raise PolicyError("it allocates arms that are not in that state")
        return cls(problem, wide, picks)


def typed_policy(problem: CoupledMDP, allocations: Sequence[Ints], picks: Array) -> TypedChoices | TimeVaryingPolicy:
    """The policy of choices on the counts of several types: one table, or one for each step.

    Args:
        problem: the problem.
        allocations: of each type (pair, state, action) what its arms can do.
        picks: (type, count state) the pair of each type, or (step, type, count state).
    """
    rows: list[Ints] = []
    numbers: list[Ints] = []
    for own, chosen in zip(allocations, np.moveaxis(picks, -2, 0), strict=True):
        # Only pairs that some state takes are stored, each once.
        used, number = np.unique(chosen, return_inverse=True)
        padded = np.zeros((len(used), *problem.types.valid.shape[1:]), dtype=np.int64)
        padded[:, : own.shape[1], : own.shape[2]] = own[used]
        # Rows of all types stand in one table, one type after the other.
        numbers.append(number.reshape(chosen.shape) + sum(len(row) for row in rows))
        rows.append(padded)
    table = np.concatenate(rows)
    # The narrowest integers that number them all: there is one for each state and type.
    choices = np.stack(numbers, axis=-1).astype(np.min_scalar_type(len(table) - 1))
    if picks.ndim == 2:
        return TypedChoices(problem, table, choices)
    return TimeVaryingPolicy([TypedChoices(problem, table, own) for own in choices])
