"""The fair fluid relaxation: the budget holds in expectation, and every policy is below its optimum.

relaxation       which algorithm is used: `solve_fluid`, `solve_opening`, `solve_weighted`; the result `FluidSolution`
programs         linear programs: few types, a budget at every step, any welfare
dual_search      search for prices: many types
price_response   values that maximise welfare less cost at given prices
frontiers        value against cost of each type at given prices: `FluidModel`, `Frontiers`
"""

from evenhand.solvers.fluid.frontiers import FluidModel, Frontiers
from evenhand.solvers.fluid.relaxation import (
    FluidSolution,
    model_of,
    read_model,
    solve_fluid,
    solve_model,
    solve_opening,
    solve_weighted,
)

__all__ = [
    "FluidModel",
    "FluidSolution",
    "Frontiers",
    "model_of",
    "read_model",
    "solve_fluid",
    "solve_model",
    "solve_opening",
    "solve_weighted",
]
