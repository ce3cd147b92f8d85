"""The optimum on counts of identical arms."""

from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from evenhand.errors import NotApplicableError, NotConvergedError
from evenhand.kernels.lattice import interpolate, multinomial_probabilities
from evenhand.solvers.counts.algorithm import INSTEAD
from evenhand.solvers.counts.bounds import Certifier, law_error
from evenhand.solvers.counts.cost_estimate import CountPlan, check_program, plan_arm
from evenhand.solvers.counts.improvement import Choice
from evenhand.solvers.counts.policy_iteration import (
    MOST_ROUNDS,
    SHRINK,
    Patience,
    Progress,
    apply_policy,
    induce_backward,
    iterate,
)
from evenhand.solvers.counts.post_decision import surely_one_long_run
from evenhand.typing import Array, Floats, Ints

COARSE_FROM = 3000
"""Count states from which on the value function of fewer arms is computed first, as a start."""


@dataclass(frozen=True, eq=False)
class CountOptimum:
    """The best policy on counts and a certificate of its value."""

    lower_bound: float
    """The optimal mean value of an arm from the initial law is at least this; so is that of `choices` ..."""

    upper_bound: float
    """... and at most this."""

    cells: Ints
    """(cell, 2) state and action of the cells off base that can matter."""

    base: Ints
    """(state,) the idle action of the other arms."""

    choices: Array
    """(count state, cell) how many arms get each cell; (step, count state, cell) if the horizon is finite."""

    value_function: Floats
    """(count state,) the last iterate: the first step's, if the horizon is finite; under average, up to a constant."""

    rounds: int
    """Number of policy improvements."""


def solve_counts(
    plan: CountPlan,
    initial: Floats,
    tolerance: float = 1e-7,
    progress: Progress | None = None,
    most_rounds: int = MOST_ROUNDS,
) -> CountOptimum:
    """The best mean value of identical arms that share a budget.

    Args:
        plan: the problem, planned (`plan_counts`).
        initial: (state,) law of an arm's first state.
        tolerance: how far apart the bounds may be at the end, relative to the value. A finite horizon ends as close as
            rounding allows.
        progress: called after each round with its number and the relative gap; of a finite horizon, after each step,
            with the share of steps to go.
        most_rounds: when to give up (NotConvergedError).

    Raises:
        TooLargeError: it would not fit.
        NotApplicableError: under the criterion average, if the best mean depends on where the arms start.
    """
    criterion = plan.criterion
    check_program(f"{plan.num_points} count states", criterion, plan.size_in_bytes, plan.operations, INSTEAD)
    outcomes = plan.outcomes
    first, first_error = multinomial_probabilities(outcomes.points, initial), law_error(plan.slots.num_arms)
    certifier = Certifier(criterion, plan.pay.most, outcomes.error, first, first_error)
    base_rewards = outcomes.points @ plan.pay.base
    value = first_guess(plan, initial) if criterion.is_stationary else np.zeros(plan.num_points)

    def improve(value: Floats) -> tuple[Floats, Choice]:
        best, choice = plan.chooser.improve(criterion.factor * outcomes.expect(value))
        return base_rewards + best, choice

    def evaluate(value: Floats, width: float, choice: Choice) -> Floats:
        follow = outcomes.follow(choice.targets)
        return apply_policy(certifier, follow, base_rewards + choice.gains, value, SHRINK * width)

    def keep(step: int, choice: Choice) -> None:
        choices[step] = choice.amounts
        if progress is not None:
            progress(criterion.num_layers - step, step / criterion.num_layers)

    if criterion.is_stationary:
        patience = Patience(criterion, surely_one_long_run(plan.arm), most_rounds=most_rounds)
        choice, bounds, value, rounds = iterate(certifier, improve, evaluate, value, tolerance, patience, progress)
        choices: Array = choice.amounts.astype(plan.choices_type)
    else:
        rounds = criterion.num_layers
        choices = np.empty((rounds, plan.num_points, len(plan.slots.cells)), dtype=plan.choices_type)
        bounds, value = induce_backward(certifier, improve, keep, value)
    return CountOptimum(
        lower_bound=bounds.low,
        upper_bound=bounds.high,
        cells=plan.slots.cells,
        base=plan.slots.base,
        choices=choices,
        value_function=value,
        rounds=rounds,
    )


def first_guess(plan: CountPlan, initial: Floats) -> Floats:
    """(count state,) value function of a quarter of the arms at the same proportions; 0 if there are few count states.

    Args:
        plan: the problem.
        initial: (state,) distribution of an arm's first state.
    """
    fewer = plan.slots.num_arms // 4
    if plan.num_points >= COARSE_FROM and fewer >= 10:
        limit = plan.arm.limit * (fewer / plan.slots.num_arms)
        with suppress(NotApplicableError, NotConvergedError):  # the budget of fewer arms may be too small
            coarse = solve_counts(
                plan_arm(plan.arm._replace(num_arms=fewer, limit=limit), plan.criterion), initial, 1e-3
            )
            return interpolate(coarse.value_function, fewer, plan.outcomes.points)
    return np.zeros(plan.num_points)
