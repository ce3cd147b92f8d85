"""The fluid relaxation by linear programs over all types, whatever the welfare and the size: the other road."""

import time

from evenhand.model import CoupledMDP, Welfare, as_welfare
from evenhand.solvers import FluidSolution, model_of
from evenhand.solvers.fluid.relaxation import _of_program


def fluid_lp(problem: CoupledMDP, welfare: str | Welfare, tolerance: float = 1e-4) -> FluidSolution:
    """As `solve_fluid`, never by prices."""
    model = model_of(problem)
    return _of_program(model, as_welfare(welfare, model.num_members), tolerance, None, time.perf_counter())
