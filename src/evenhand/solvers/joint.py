"""The product space: every arm's state side by side.

    states s = (s_1, ..., s_N),   pairs (s, a) with sum_n d_k(s_n, a_n) <= b_k,
    P(s' | s, a) = prod_n p_n(s'_n | s_n, a_n)

The transition law is never written out: it is applied arm by arm (`kernels.products`). Where a program needs its rows,
they are assembled as sparse Kronecker products. Pairs that break the budget do not exist. prod_n S_n states.
"""

from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from evenhand.checks import check_memory, fits_in_memory
from evenhand.display import size_in_words
from evenhand.errors import TooLargeError
from evenhand.kernels.products import ActionKernel, ProductKernel, distinct_rows
from evenhand.model.composite import TimeVaryingPolicy
from evenhand.model.coupled import CoupledMDP
from evenhand.model.explanations import DecisionStep
from evenhand.model.stateful_policy import on_batches
from evenhand.model.tabular import TabularMDP
from evenhand.solvers.pair_table import MOST_PAIRS, PairTable
from evenhand.typing import Floats, Indices, Ints


@dataclass(frozen=True, eq=False)
class Joint:
    """The problem on the product space, one objective an arm."""

    problem: CoupledMDP

    @classmethod
    def accepts(cls, problem: CoupledMDP) -> str | None:
        """None if the product space fits, else its size in words."""
        sizes = _sizes_in_words(problem)
        if problem.num_arms > 64 or not fits_in_memory(num_joint_states(problem) * 8.0 * 16, 1.0):
            return f"the joint space has {sizes}"
        return None

    # -- states -------------------------------------------------------------------------------------------------------

    @cached_property
    def num_states_of_arm(self) -> Ints:
        """(arm,) states of each arm."""
        return self.problem.types.num_states[self.problem.type_of_arm].astype(np.int64)

    @cached_property
    def strides(self) -> Ints:
        """(arm,) what one more in an arm's state adds to the number of the joint state."""
        sizes = self.num_states_of_arm
        # The last arm's state counts single numbers, as in lexicographic order.
        return np.concatenate([np.cumprod(sizes[:0:-1])[::-1], [1]]).astype(np.int64)

    @cached_property
    def states(self) -> Indices:
        """(state, arm) the joint states."""
        check_memory(4.0 * num_joint_states(self.problem) * self.problem.num_arms, "the joint states", _INSTEAD)
        number = np.arange(self.num_states)[:, None]
        return ((number // self.strides) % self.num_states_of_arm).astype(np.int32)

    # -- pairs --------------------------------------------------------------------------------------------------------

    @cached_property
    def _pairs(self) -> tuple[Ints, Indices]:
        """The state of each pair, and its (pair, arm) actions: arm by arm, dropping what breaks the budget."""
        if reason := self.accepts(self.problem):
            raise TooLargeError(f"{reason}. {_INSTEAD}")
        types, limit = self.problem.types, self.problem.budget_limit
        state = np.zeros(1, dtype=np.int64)
        actions = np.zeros((1, 0), dtype=np.int16)
        used = np.zeros((1, self.problem.num_resources))
        for arm, kind in enumerate(self.problem.type_of_arm):
            cell_state, cell_action = np.nonzero(types.valid[kind])
            self._check_pairs(len(state), arm, len(cell_state))
            # (beginning, cell) what is used with one more arm; beginnings that break the budget end here.
            total = (used[:, None] + types.usage[kind][cell_state, cell_action]).reshape(-1, used.shape[1])
            keep = np.flatnonzero((total <= limit).all(axis=1))
            parent, cell = np.divmod(keep, len(cell_state))
            state = state[parent] + cell_state[cell] * self.strides[arm]
            actions = np.column_stack([actions[parent], cell_action[cell].astype(np.int16)])
            used = total[keep]
        spent = np.flatnonzero((used >= self.problem.least_use).all(axis=1))
        state, actions = state[spent], actions[spent]
        self._check_pairs(len(state), self.problem.num_arms, 1)
        # By state, and stable, so that the pairs of a state stay in the order of their actions.
        order = np.argsort(state, kind="stable")
        return state[order], actions[order].astype(np.int32)

    def _check_pairs(self, number: int, arm: int, num_cells: int) -> None:
        """Refuse beginnings of so many arms of which too many pairs will come, if all later arms idle in any state."""
        width = 8.0 * (2 + 2 * self.problem.num_resources) + 2.0 * arm
        least = float(number) * prod(int(size) for size in self.num_states_of_arm[arm:])
        if least > MOST_PAIRS or not fits_in_memory(number * num_cells * width):
            raise TooLargeError(
                f"the joint space has {_sizes_in_words(self.problem)}, and its feasible pairs are over "
                f"{MOST_PAIRS:.2g}, or do not fit in memory. {_INSTEAD}"
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

    # -- the tabular problem ------------------------------------------------------------------------------------------

    @cached_property
    def mdp(self) -> TabularMDP:
        """The tabular problem on joint states, with each arm's own reward as an objective."""
        state, actions = self._pairs
        problem = self.problem
        check_memory(8.0 * len(state) * (problem.num_arms + 2), "the rewards of the joint space", _INSTEAD)
        outcomes, kernel = self._outcomes(state, actions)
        return TabularMDP(
            offsets=np.searchsorted(state, np.arange(self.num_states + 1)).astype(np.int64),
            rewards=problem.types.rewards[problem.type_of_arm, self.states[state], actions],
            outcomes=outcomes,
            kernel=kernel,
            initial=self.initial,
            criterion=problem.criterion,
            served=self.served if problem.has_floors else None,
        )

    @cached_property
    def served(self) -> Floats:
        """(pair, arm) 1 where the arm is served."""
        state, actions = self._pairs
        return self.problem.types.served[self.problem.type_of_arm, self.states[state], actions].astype(np.float64)

    @property
    def num_states(self) -> int:
        """Number of joint states."""
        return prod(int(s) for s in self.num_states_of_arm)

    def _outcomes(self, state: Ints, actions: Indices) -> tuple[Ints, ProductKernel | ActionKernel]:
        """The outcome of each pair, and the operator that has fewer outcomes."""
        types, kinds = self.problem.types, self.problem.type_of_arm
        sizes = self.num_states_of_arm
        distinct = [distinct_rows(types.transitions[kind][types.valid[kind]]) for kind in kinds]
        # One number for each joint action, in lexicographic order.
        code = np.zeros(len(actions), dtype=np.int64)
        for n, kind in enumerate(kinds):
            code = code * types.num_actions[kind] + actions[:, n]
        codes, number = np.unique(code, return_inverse=True)
        # The product of distinct rows, or a block of states for each joint action: whichever has fewer outcomes.
        if prod(len(rows) for _, rows in distinct) <= len(codes) * self.num_states:
            parts = [rows[:, :size] for (_, rows), size in zip(distinct, sizes, strict=True)]
            outcomes = np.zeros(len(state), dtype=np.int64)
            for n, kind in enumerate(kinds):
                # The number of an arm's row as a digit, the first arm's first.
                numbers = np.zeros(types.valid[kind].shape, dtype=np.int64)
                numbers[types.valid[kind]] = distinct[n][0]
                outcomes = outcomes * len(parts[n]) + numbers[self.states[state, n], actions[:, n]]
            return outcomes, ProductKernel(parts)
        matrices = [types.transitions[k][:s, :, :s].transpose(1, 0, 2) for k, s in zip(kinds, sizes, strict=True)]
        first = np.zeros((len(codes), len(kinds)), dtype=np.int64)
        # Any pair with the code will do: all have the same joint action.
        first[number] = actions
        return number.reshape(-1) * self.num_states + state, ActionKernel(matrices, first)

    @cached_property
    def initial(self) -> Floats:
        """(state,) the law of the first joint state."""
        law: Floats = np.ones(1)
        for arm, kind in enumerate(self.problem.type_of_arm):
            law = np.outer(law, self.problem.types.initial[kind, : self.num_states_of_arm[arm]]).reshape(-1)
        return law

    # -- the way back -------------------------------------------------------------------------------------------------

    def lift(self, probabilities: Floats) -> "JointTable | TimeVaryingPolicy":
        """A policy that looks up the joint state; with (step, pair) probabilities, one for each step."""
        return JointTable.lift(self, probabilities)


class JointTable(PairTable):
    """A policy given by a table over the pairs of the product space."""

    kind, space = "joint-table", Joint
    reduction: Joint

    @on_batches
    def act(self, states: Indices, rng: np.random.Generator) -> Indices:
        """Draw a joint action for each (episode, arm) joint state."""
        return self.reduction.actions[self._sampler.draw(states @ self.reduction.strides, rng)]

    def explain(self, decision: DecisionStep) -> list[str]:
        """(arm,) the same reason for all: the table has no order."""
        return ["the plan's choice where all arms are just as they are"] * len(decision.states)


_INSTEAD = "Use fewer arms, or counts if many arms are identical, or the method fluid."


def num_joint_states(problem: CoupledMDP) -> float:
    """Number of joint states of a problem, up to 1e304."""
    sizes = problem.types.num_states.astype(np.float64)
    with np.errstate(over="ignore"):
        return float(np.exp(np.minimum((np.log(sizes) * problem.type_counts).sum(), 700.0)))


def _sizes_in_words(problem: CoupledMDP) -> str:
    pieces: dict[int, int] = {}
    for size, count in zip(problem.types.num_states, problem.type_counts, strict=True):
        pieces[int(size)] = pieces.get(int(size), 0) + int(count)
    product = " x ".join(f"{size}^{count}" for size, count in sorted(pieces.items()))
    return f"{product} ({size_in_words(num_joint_states(problem))}) states"
