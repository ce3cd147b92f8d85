"""Exact values of choices on the counts of several types, where they are too many for a table.

The policy's visits are computed type by type (`solvers.counts`), and every fact about its decisions is a sum over
them: rewards, what is used, who is served.
"""

from collections.abc import Sequence

import numpy as np

from evenhand.errors import NotApplicableError, PolicyError
from evenhand.model.composite import steps_of
from evenhand.model.coupled import CoupledMDP
from evenhand.model.feasible import check_budget
from evenhand.reductions.counts import TypedChoices
from evenhand.solvers.counts import Moves, Operators, Visits, plan_types
from evenhand.typing import Array, Floats, Ints


def typed_steps(policy: object, problem: CoupledMDP) -> list[TypedChoices]:
    """The choices of each step of a policy that has nothing else, made for this problem; else none."""
    parts = steps_of(policy)
    found = [part for part in parts if isinstance(part, TypedChoices)]
    same = all(part.problem.with_criterion(problem.criterion) == problem for part in found)
    return found if same and len(found) == len(parts) else []


def typed_values(steps: list[TypedChoices], problem: CoupledMDP) -> tuple[Floats, Floats, Floats]:
    """(type,) values, (resource,) use and (type,) shares of time served, under the problem's criterion.

    Args:
        steps: what is done at each step, over and over again.
        problem: what they were made for.
    """
    plan, criterion = plan_types(problem), problem.criterion
    if criterion.is_stationary and len(steps) > 1:
        raise NotApplicableError(f"a policy by steps can only be simulated under the criterion {criterion.name}")
    plan.check()
    picks = {id(step): _picks(step, plan.types) for step in steps}
    for number_of_step, step in enumerate(steps):
        spent = sum(moves.spent[own] for moves, own in zip(plan.types, picks[id(step)], strict=True))
        check_budget(problem, np.asarray(spent), number_of_step)
    chosen = picks[id(steps[0])]
    if not criterion.is_stationary:
        chosen = np.stack([picks[id(steps[t % len(steps)])] for t in range(criterion.num_layers)])
    facts = [np.column_stack([moves.rewards, moves.served, moves.spent]) for moves in plan.types]
    sums = np.stack(Visits(Operators(plan)).sums(chosen, facts))
    return sums[:, 0], sums[:, 2:].sum(axis=0), sums[:, 1] / criterion.total


def _picks(policy: TypedChoices, types: Sequence[Moves]) -> Array:
    """(type, state) the number of each choice among the pairs of its type."""
    return np.stack([_number(policy, t, moves)[policy.picks[:, t]] for t, moves in enumerate(types)])


def _number(policy: TypedChoices, kind: int, moves: Moves) -> Ints:
    """(row,) the pair of a type that each allocation is; some pair where no state picks it."""
    S, A = moves.tables.valid.shape
    known = {own.tobytes(): number for number, own in enumerate(moves.allocations.astype(np.int64))}
    numbers = np.zeros(len(policy.allocations), dtype=np.int64)
    for row in np.unique(policy.picks[:, kind]):
        number = known.get(np.ascontiguousarray(policy.allocations[row, :S, :A], dtype=np.int64).tobytes())
        if number is None:
            raise PolicyError("the policy has an allocation that is beyond the budget, or of arms that are not there")
        numbers[row] = number
    return numbers
