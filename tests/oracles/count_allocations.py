"""Allocations of an optimum on counts, in all count states."""

from evenhand.model import CoupledMDP
from evenhand.solvers import CountChoices, CountOptimum, Counts
from evenhand.typing import Ints


def allocations_of(problem: CoupledMDP, optimum: CountOptimum, step: int | None = None) -> Ints:
    """(count state, state, action) numbers of arms; of one step, if the horizon is finite."""
    amounts = optimum.choices if step is None else optimum.choices[step]
    return CountChoices(problem, optimum.cells, optimum.base, amounts).look_up(Counts(problem).states)[:, 0]
