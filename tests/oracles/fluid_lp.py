"""The fluid relaxation by linear programs over all types, whatever the welfare and the size."""

from typing import NamedTuple

import numpy as np

from evenhand.model import ArmTables, CoupledMDP, Discounted, Welfare, as_welfare
from evenhand.solvers import FluidModel, model_of, solve_by_program
from evenhand.typing import Floats, Ints


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
    upper, weights = max(found.proof.bound, reached), model.weights_of_types(found.proof.weights)
    gap = (upper - reached) / max(abs(upper), 1e-6 * found.scale)
    return ProgramOptimum(reached, upper, gap, values, use, found.proof.prices, weights, found.occupancy)


def discounted_model(types: ArmTables, counts: Ints | None, budget: Floats, discount: float) -> FluidModel:
    """The relaxation's data of types of arms; one arm of each by default."""
    sizes = np.ones(len(types), dtype=np.int64) if counts is None else np.asarray(counts)
    amounts = np.asarray(budget, dtype=np.float64)
    return FluidModel(types.within(amounts), sizes, amounts, Discounted(discount), types.initial)
