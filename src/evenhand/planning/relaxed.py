"""The fair fluid relaxation of a problem, and the policies it gives."""

import contextlib
from functools import lru_cache

from evenhand.errors import NotApplicable, TooLarge
from evenhand.model.coupled import CoupledMDP
from evenhand.model.policy import Policy, Starting
from evenhand.model.welfare import Welfare
from evenhand.policies.fluid import OccupancyPriority, Resolving, fair_index
from evenhand.solvers.fluid import FluidSolution, solve_fluid

FLUID_TOLERANCE = 1e-5
"""Relative gap at which the fluid relaxation stops, unless a wider one is asked for."""

MOST_FOLLOWED = 200_000
"""Arms up to which policies that look at every arm are tried."""


def relax(problem: CoupledMDP, welfare: Welfare, tolerance: float = FLUID_TOLERANCE) -> FluidSolution:
    """The fair fluid relaxation of a problem; the last few are remembered, since several policies are made of one."""
    return _relax(problem, welfare, tolerance)  # type: ignore[arg-type]


@lru_cache(maxsize=4)
def _relax(problem: CoupledMDP, welfare: Welfare, tolerance: float) -> FluidSolution:
    return solve_fluid(
        problem.types, problem.type_counts, problem.budget, problem.discount, welfare, tolerance=tolerance
    )


def fluid_policies(problem: CoupledMDP, relaxed: FluidSolution) -> dict[str, Policy | Starting]:
    """The policies that a solution of the relaxation gives, by name."""
    weights, prices = relaxed.weights, relaxed.prices
    found: dict[str, Policy | Starting] = {}
    if problem.num_arms <= MOST_FOLLOWED:  # it looks at every arm; the others also play by counts
        found["occupancy-priority"] = OccupancyPriority(problem, relaxed.occupancy, weights, prices)
    found["fair-index"] = fair_index(problem, weights, prices)
    if problem.num_types <= MOST_FOLLOWED:
        with contextlib.suppress(NotApplicable, TooLarge):
            found["re-solving"] = Resolving(problem, weights, prices)
    return found
