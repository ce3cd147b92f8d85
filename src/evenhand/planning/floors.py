"""Policies whose mixtures serve every arm at least as often as its floor says, in expectation.

The relaxation is within its floors in expectation, but the policies that are made of it are not the relaxation: each
has some share of time served, s_i (type,), found by playing it. Columns are added until some theta in the simplex has

    sum_i theta_i s_i >= floors,

with a margin of MARGIN standard errors on the episodes that are played. First occupancy-priority of relaxations whose
floors are raised, step by step, for arms that were served too little: its draws follow the floors smoothly, while an
index would jump. Should no mixture of these be within the floors, fair-index policies join, paid for service by the
multipliers of

    maximise  sum_i theta_i g.v_i - penalty sum_n lack_n    subject to    sum_i theta_i s_i + lack >= floors

with g the relaxation's weights, as in column generation. Drawing a policy at the start by theta has the mixed values
and shares, under every criterion.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy import sparse

from evenhand.errors import InfeasibleError, NotConvergedError
from evenhand.evaluation.long_run import mean_by_type
from evenhand.model import CoupledMDP, Welfare
from evenhand.planning.policy_scoring import PolicyScorer, ScoredPolicy
from evenhand.planning.relaxation import FLUID_TOLERANCE, MOST_FOLLOWED, build_policy
from evenhand.policies.fluid import choice_of, fair_index
from evenhand.solvers.fluid import FluidSolution, model_of, solve_model
from evenhand.solvers.highs import LinearProgram, solve_program
from evenhand.typing import Floats

MARGIN = 2.0
"""Standard errors by which a played share must exceed its floor."""

STEPS, MOST_COLUMNS = 8, 40
"""Policies whose floors are raised step by step, and policies after which the search for a mixture ends."""


def floor_columns(
    problem: CoupledMDP, relaxed: FluidSolution, welfare: Welfare, scorer: PolicyScorer, columns: Sequence[ScoredPolicy]
) -> list[ScoredPolicy]:
    """Columns with which some mixture of all is within the floors.

    Args:
        problem: the problem.
        relaxed: the solution of its relaxation.
        welfare: what is maximised.
        scorer: plays policies.
        columns: those that there are already.

    Raises:
        InfeasibleError: an arm with a floor can never be served: each way to serve it alone exceeds the budget.
        NotConvergedError: no mixture was found that meets all floors with a margin for the error.
    """
    _check_servable(problem)
    added = _raise_floors(problem, relaxed, welfare, scorer)
    weights = problem.type_counts * relaxed.weights
    # Of the size of what values can differ by; it is raised for as long as something is lacking.
    size = np.abs(problem.types.rewards).max() * problem.criterion.total
    penalty = 10.0 * float(weights.max() * size) or 1.0
    # Column generation: the master says what service should be paid, and a policy that is paid so joins.
    while len(added) < MOST_COLUMNS:
        try:
            pay, lacking = _service_pay(problem, scorer.by_type, weights, penalty, [*columns, *added])
        except NotConvergedError:  # the penalty has grown beyond what a program can weigh against values
            break
        if not lacking:
            return added
        penalty *= 4.0
        policy = fair_index(problem, relaxed.weights, relaxed.prices, pay)
        added.append(
            scorer(f"fair-index, paid for service {len(added)}", policy, choice_of(problem, relaxed.occupancy))
        )
    raise NotConvergedError(
        f"no mixture of {len(columns) + len(added)} policies meets the floors with a margin for the error of "
        "simulation, though the relaxation does. Lower the floors a little, or raise the budget."
    )


def _check_servable(problem: CoupledMDP) -> None:
    """Raise InfeasibleError if the budget of a step never allows service of an arm with a floor, not even alone.

    The relaxation cannot tell: its budget holds in expectation, so half of a service that takes twice the budget fits.
    """
    # Some action must serve the arm and fit the budget of a step by itself.
    never = (problem.type_floors > 0) & ~(problem.types.served & problem.types.valid).any(axis=(1, 2))
    if never.any():
        raise InfeasibleError(
            "the floors need more than the budget allows: every way to serve some arm with a floor takes more than "
            "the whole budget of a step, so the largest floor that all arms with a floor can have together is 0"
        )


def _raise_floors(
    problem: CoupledMDP, relaxed: FluidSolution, welfare: Welfare, scorer: PolicyScorer
) -> list[ScoredPolicy]:
    """Policies of relaxations whose floors are raised by what the last one lacked."""
    # Beyond so many arms occupancy-priority, which looks at every arm, would take too long.
    model, name = model_of(problem), "occupancy-priority" if problem.num_arms <= MOST_FOLLOWED else "fair-index"
    floors, played = problem.type_floors, list[ScoredPolicy]()
    for step in range(STEPS):
        policy, choice = build_policy(problem, relaxed, name), choice_of(problem, relaxed.occupancy)
        played.append(
            scorer(f"{name}, floors raised {step} times" if step else f"{name}, within floors", policy, choice)
        )
        served, error = _by_types(problem, scorer.by_type, played[-1])
        # Positive where the share, less its margin, is below the floor.
        short = problem.type_floors + MARGIN * error - served
        if (short <= 0)[problem.type_floors > 0].all():
            break
        # Raised from where they are, not from the problem's: what fell short last time falls short again.
        floors = np.where(problem.type_floors > 0, np.minimum(floors + np.maximum(short, 0.0), 1.0), 0.0)
        try:
            relaxed = solve_model(replace(model, floors=floors), welfare, FLUID_TOLERANCE)
        except (InfeasibleError, NotConvergedError):  # so high they cannot be; what was found so far is mixed
            break
    return played


def _by_types(problem: CoupledMDP, by_type: bool, column: ScoredPolicy) -> tuple[Floats, Floats]:
    """(type,) shares of time served, and their errors: the least and the largest of a type's arms, if they differ."""
    if by_type:
        return column.shares_served, column.served_error
    # Within a type the least-served arm counts: a floor is a promise to each arm.
    order = np.argsort(problem.type_of_arm, kind="stable")
    # Where each type begins among the sorted arms, as `reduceat` wants it.
    starts = np.cumsum(problem.type_counts) - problem.type_counts
    least = np.minimum.reduceat(column.shares_served[order], starts)
    return least, np.maximum.reduceat(column.served_error[order], starts)


def _service_pay(
    problem: CoupledMDP, by_type: bool, weights: Floats, penalty: float, columns: Sequence[ScoredPolicy]
) -> tuple[Floats, bool]:
    """Solve the program over shares of policies; return the (type,) pay for service, and whether a floor is missed.

    Args:
        problem: the problem.
        by_type: whether the units of the columns are types.
        weights: (type,) weights of the values.
        penalty: penalty per unit of a share of time that is lacking.
        columns: the policies.
    """
    # Variables: the share of each policy, then the lack of each floor. Rows: the floors, then that shares sum to 1.
    floored = np.flatnonzero(problem.type_floors)
    number, rows = len(columns), len(floored)
    shares = [_by_types(problem, by_type, column) for column in columns]
    served = np.column_stack([(share - MARGIN * error)[floored] for share, error in shares])
    values = [one.values if by_type else mean_by_type(problem, one.values) for one in columns]
    ones = np.append(np.ones(number), np.zeros(rows))
    optimum = solve_program(
        LinearProgram(
            gains=np.append(np.array(values) @ weights, np.full(rows, -penalty)),
            matrix=sparse.csc_array(np.vstack([np.hstack([served, np.eye(rows)]), ones])),
            row_lower=np.append(problem.type_floors[floored], 1.0),
            row_upper=np.append(np.full(rows, np.inf), 1.0),
            lower=np.zeros(number + rows),
            upper=np.full(number + rows, np.inf),
        )
    )
    pay = np.zeros(problem.num_types)
    # A higher floor costs welfare, so its dual is not positive; the pay is that cost.
    pay[floored] = np.maximum(-optimum.duals[:rows], 0.0)
    # From a type's share of time to one weighted step of one arm, which is what arms are paid for.
    return pay / (problem.type_counts * problem.criterion.total), bool((optimum.primal[number:] > 1e-9).any())
