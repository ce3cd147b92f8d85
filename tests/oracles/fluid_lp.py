"""The fluid relaxation by linear programs over all types, whatever the welfare and the size."""

from typing import NamedTuple

from evenhand.model import CoupledMDP, Welfare, as_welfare
from evenhand.solvers import model_of, solve_by_program
from evenhand.typing import Floats


class ProgramOptimum(NamedTuple):
    """Welfare and values of the solution, and its bound."""

    welfare: float
    upper_bound: float
    gap: float
    values: Floats
    use: Floats
    prices: Floats
    weights: Floats
    occupancy: Floats


def fluid_lp(problem: CoupledMDP, welfare: str | Welfare, tolerance: float = 1e-4) -> ProgramOptimum:
    """As `solve_fluid`, never by prices."""
    model = model_of(problem)
    objective = as_welfare(welfare, model.num_members)
    found = solve_by_program(model, objective, tolerance)
    values, use = model.totals(found.occupancy)
    reached = float(objective(model.members(values), model.sizes))
    upper, weights = max(found.bound.value, reached), model.weights_of_types(found.weights)
    gap = (upper - reached) / max(abs(upper), 1e-6 * found.scale)
    return ProgramOptimum(reached, upper, gap, values, use, found.prices, weights, found.occupancy)
