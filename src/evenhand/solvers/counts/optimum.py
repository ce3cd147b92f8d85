"""The optimum on counts of identical arms, with its cost estimate: memory and operations, before allocation.

A plan has the algorithm of a problem and its criterion, hence the bytes and operations of solving it. Distributions,
lines and tables are built once, on first use.
"""

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from math import comb

import numpy as np

from evenhand.checks import check_memory
from evenhand.errors import NotApplicableError, NotConvergedError, TooLargeError
from evenhand.kernels.lattice import interpolate, lattice_size, multinomial_probabilities
from evenhand.model.coupled import CoupledMDP
from evenhand.model.criterion import Criterion
from evenhand.solvers.counts.count_operators import Choice, Climber, Lister, Outcomes, Tables
from evenhand.solvers.counts.policy_iteration import (
    LEAP,
    MOST_ROUNDS,
    SHRINK,
    Certifier,
    Progress,
    apply_policy,
    induce_backward,
    iterate,
    law_error,
)
from evenhand.solvers.counts.post_decision import (
    INSTEAD,
    CountAlgorithm,
    Slots,
    TypeTables,
    check_one_class,
    choose_algorithm,
    list_allocations,
    read_slots,
    read_tables,
)
from evenhand.typing import Array, Floats, Ints

MOST_OPERATIONS = 1e14
"""Elementary operations beyond which a problem is refused."""

SMALL = 1e5
"""Entries of explicit tables up to which they are used: nothing is compiled for them."""

COARSE_FROM = 3000
"""Count states from which on the value function of fewer arms is computed first, as a start."""

_ROUNDS_GUESS, _SWEEPS_GUESS = 8, 80
"""Typical numbers of policy improvements and of sweeps, for estimates of work."""


def check_program(states: str, criterion: Criterion, size_in_bytes: float, operations: float, instead: str) -> str:
    """Refuse a dynamic program that does not fit in memory or takes too long; else return its description.

    Args:
        states: on what it is.
        criterion: with a finite horizon, the choices of every step are stored.
        size_in_bytes: its memory.
        operations: its operations.
        instead: what to use if it is too large.
    """
    what = f"the dynamic program on {states}"
    if not criterion.is_stationary:
        what += f" with the choices of {criterion.num_layers} steps"
    check_memory(size_in_bytes, what, instead)
    if operations > MOST_OPERATIONS:
        raise TooLargeError(f"{what} would need about {operations:.1g} operations. {instead}")
    return what


@dataclass(frozen=True, eq=False)
class CountPlan:
    """The dynamic program of identical arms, not yet begun."""

    arm: TypeTables
    """The tables of an arm, the number of arms and the budget."""

    criterion: Criterion
    """Value of rewards over time."""

    algorithm: CountAlgorithm
    """The algorithm."""

    small: float
    """Entries of explicit tables up to which they are used."""

    @property
    def slots(self) -> Slots:
        """The arms in terms of slots."""
        return self.algorithm.slots

    @property
    def num_points(self) -> int:
        """Number of count states."""
        return self.algorithm.num_points

    @property
    def choices_type(self) -> type:
        """Integers that hold the amounts of a choice; narrow where every step has a table of its own."""
        narrow = not self.criterion.is_stationary and self.slots.num_arms < 2**15
        return np.int16 if narrow else np.int32

    # -- what it takes ------------------------------------------------------------------------------------------------

    @property
    def size_in_bytes(self) -> float:
        """About how much memory solving takes."""
        algorithm, num_cells = self.algorithm, len(self.slots.cells)
        choices = float(np.dtype(self.choices_type).itemsize) * self.num_points * num_cells
        # For each arrival of extra arms at each point, a number of 4 bytes and a value of 8.
        mixing = sum(12.0 * algorithm.size_of(t) * self._width(t) for t in range(1, len(algorithm.extras)))
        if algorithm.splits is None:
            base = sum(8.0 * algorithm.size_of(t) ** 2 for t in algorithm.base_levels) + 8.0 * self.num_points**2 / 2
        else:
            base = sum(4.0 * algorithm.size_of(t) for t in algorithm.base_levels) * len(algorithm.splits[0])
        depth = 0 if algorithm.climb is None else int(algorithm.climb.units.max()) + 1
        # GMRES keeps a vector a step.
        per_point = 8.0 * (LEAP + 4) + 16.0 * (6 + self.slots.num_states) + num_cells * (12.0 + 16.0 * depth)
        work = mixing + base + 24.0 * algorithm.num_outcomes + per_point * self.num_points
        return work + self.criterion.num_layers * choices

    @property
    def operations(self) -> float:
        """About how many elementary operations solving takes."""
        algorithm, points = self.algorithm, float(self.num_points)
        last = len(algorithm.extras) - 1
        # A product of matrices takes about an eighth of its multiplications.
        mixed = [algorithm.size_of(t) * self._width(t) * len(algorithm.extras[t]) / 8.0 for t in range(1, last + 1)]
        mixing = sum(mixed)
        row, growing = points, points**2 * (self.slots.num_arms + 1) / 2
        if algorithm.splits is not None:
            # A binomial window that leaves out 1e-16 is about 17 deviations wide.
            spread = 17.0 * max((p * (1 - p) for _, _, p in algorithm.splits[0]), default=0.0) ** 0.5
            typical = self.slots.num_arms / self.slots.num_states
            row, growing = max(1.0, min(spread * typical**0.5, typical)) * len(algorithm.splits[0]), 0.0
        # Base rows move the arms of every outcome; mixtures, and laws if a policy is followed, of every count state.
        every = row * (points if algorithm.mixtures is not None else algorithm.num_outcomes)
        choices = len(algorithm.allocations) * self.slots.num_states
        if algorithm.climb is not None:
            choices = len(self.slots.cells) * algorithm.climb.num_units
        improving = every + mixing + 2.0 * points * choices
        if not self.criterion.is_stationary:
            return growing + self.criterion.num_layers * improving
        single, rounds = every if algorithm.splits is not None else points**2, float(_ROUNDS_GUESS)
        if last > 0:
            # Most allocations are eliminated after the first round, and a policy mostly serves as many as it can.
            rounds, mixing = rounds / 4, mixed[-1]
            if algorithm.splits is not None and algorithm.mixtures is None:
                single *= len(algorithm.extras[last]) * algorithm.size_of(last) / algorithm.num_outcomes
        return growing + rounds * improving + _SWEEPS_GUESS * (single + mixing)

    def _width(self, t: int) -> int:
        """Points of the small lattice that t extra arms can reach, at most."""
        rows = self.algorithm.mixtures if self.algorithm.mixtures is not None else self.slots.extra_rows
        return lattice_size(t, int((rows > 0).any(axis=0).sum()))

    # -- what is built of it ------------------------------------------------------------------------------------------

    @cached_property
    def outcomes(self) -> Outcomes | Tables:
        """Outcomes of decisions, and expectations over the next counts; explicit tables if they are small."""
        climb, number = self.algorithm.climb, len(self.algorithm.allocations)
        if climb is not None:
            number = comb(climb.num_units + len(climb.order), climb.num_units)
        if self.num_points * max(self.algorithm.num_outcomes, number) > self.small:
            return Outcomes(self.algorithm)
        return Tables(self.slots, list_allocations(self.slots, self.num_points))

    @cached_property
    def chooser(self) -> Climber | Lister | Tables:
        """The maximum over allocations."""
        if isinstance(self.outcomes, Tables):
            return self.outcomes
        climb = self.algorithm.climb
        return Lister(self.outcomes) if climb is None else Climber(self.outcomes, climb)


def plan_counts(problem: CoupledMDP, small: float = SMALL) -> CountPlan:
    """Plan the dynamic program on counts of identical arms that share a budget.

    Args:
        problem: with identical arms, under its criterion.
        small: entries of explicit tables up to which they are used in place of compiled sweeps.

    Raises:
        TooLargeError: there are too many count states or allocations.
        NotApplicableError: under the criterion average, if by the graph of an arm the long run depends on its start.
    """
    return plan_arm(read_tables(problem)[0], problem.criterion, small)


def plan_arm(arm: TypeTables, criterion: Criterion, small: float = SMALL) -> CountPlan:
    """Plan the dynamic program of the tables of an arm; see `plan_counts`."""
    check_one_class(arm, criterion)
    return CountPlan(arm, criterion, choose_algorithm(read_slots(arm)), small)


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
    certifier = Certifier(criterion, plan.slots.largest_reward, outcomes.error, first, first_error)
    base_rewards = outcomes.points @ plan.slots.base_rewards
    value = first_guess(plan, initial) if criterion.is_stationary else np.zeros(plan.num_points)

    def improve(value: Floats) -> tuple[Floats, Choice]:
        """Return the Bellman operator at a value function, and the greedy choice."""
        best, choice = plan.chooser.improve(value, criterion.factor)
        return base_rewards + best, choice

    def evaluate(value: Floats, width: float, choice: Choice) -> Floats:
        """Apply the operator of a policy until its change is narrow."""
        follow = outcomes.follow(choice.targets)
        return apply_policy(certifier, follow, base_rewards + choice.gains, value, SHRINK * width)

    def keep(step: int, choice: Choice) -> None:
        """Store the choices of a step."""
        choices[step] = choice.amounts
        if progress is not None:
            progress(criterion.num_layers - step, step / criterion.num_layers)

    if criterion.is_stationary:
        found = iterate(certifier, improve, evaluate, value, tolerance, progress, most_rounds)
        choice, bounds, value, rounds = found
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
        arm = plan.arm._replace(num_arms=fewer, limit=plan.arm.limit * (fewer / plan.slots.num_arms))
        with suppress(NotApplicableError, NotConvergedError):  # the budget of fewer arms may be too small
            coarse = solve_counts(plan_arm(arm, plan.criterion), initial, 1e-3)
            return interpolate(coarse.value_function, fewer, plan.outcomes.points)
    return np.zeros(plan.num_points)
