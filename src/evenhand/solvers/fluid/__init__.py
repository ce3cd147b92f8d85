"""The fair fluid relaxation: the budget holds in expectation, and every policy is below its optimum.

fair_relaxation  choice of the algorithm: `solve_fluid`, `solve_opening`, `solve_weighted`, `solve_blocks`; results
programs         linear programs: few types, a budget at every step, any welfare
occupancy_program     their flow, budget and floors, before a welfare joins them
dual_search      search for prices: many types
price_cuts       responses to prices, and the master program over them
blocks           blocks of arms; a problem in memory is one
price_response   values that maximise welfare less cost at given prices
frontiers        value against cost of each type at given prices: `FluidModel`, `Frontiers`
"""

from evenhand.solvers.fluid.fair_relaxation import (
    FluidSolution,
    homogeneous_weights,
    model_of,
    solve_blocks,
    solve_fluid,
    solve_model,
    solve_opening,
    solve_weighted,
)
