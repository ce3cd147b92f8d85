"""Cost estimate: memory and operations of the dynamic program, before allocation.

A plan has the algorithm of a problem and its criterion, hence the bytes and operations of solving it. Distributions,
lines and tables are built once, on first use.
"""

from dataclasses import dataclass
from functools import cached_property
from math import comb

import numpy as np

from evenhand.checks import check_memory
from evenhand.errors import TooLargeError
from evenhand.kernels.lattice import lattice_size
from evenhand.model.coupled import CoupledMDP
from evenhand.model.criterion import Criterion
from evenhand.solvers.counts.algorithm import CountAlgorithm, choose_algorithm, list_allocations
from evenhand.solvers.counts.expectation import Outcomes
from evenhand.solvers.counts.improvement import Climber, Lister, Tables
from evenhand.solvers.counts.post_decision import (
    Pay,
    Slots,
    TypeTables,
    check_one_class,
    read_pay,
    read_slots,
    read_tables,
)

MOST_OPERATIONS = 1e14
"""Elementary operations beyond which a problem is refused."""

SMALL = 1e5
"""Entries of explicit tables up to which they are used: nothing is compiled for them."""

LEAP = 30
"""Steps of GMRES in a leap of the value function (`policy_iteration`); each stores a vector."""

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
    """The tables of an arm and the budget."""

    criterion: Criterion
    """Value of rewards over time."""

    algorithm: CountAlgorithm
    """The algorithm."""

    pay: Pay
    """Rewards in terms of slots."""

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
        mixing = sum(
            float(algorithm.size_of(t)) * self._width(t) * len(algorithm.extras[t])
            for t in range(1, len(algorithm.extras))
        )
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
        single = every if algorithm.splits is not None else points**2
        return growing + _ROUNDS_GUESS * improving + _SWEEPS_GUESS * (single + mixing)

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
        return Tables(self.slots, list_allocations(self.slots, self.num_points), self.pay.gains)

    @cached_property
    def chooser(self) -> Climber | Lister | Tables:
        """The maximum over allocations."""
        if isinstance(self.outcomes, Tables):
            return self.outcomes
        climb, gains = self.algorithm.climb, self.pay.gains
        return Lister(self.outcomes, gains) if climb is None else Climber(self.outcomes, gains, climb)


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
    slots = read_slots(arm)
    check_one_class(arm, criterion)
    return CountPlan(arm, criterion, choose_algorithm(slots), read_pay(arm.rewards, slots), small)
