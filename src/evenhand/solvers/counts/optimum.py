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
from evenhand.kernels.lattice import interpolate, multinomial_probabilities
from evenhand.model.coupled import CoupledMDP
from evenhand.model.criterion import Criterion
from evenhand.solvers.counts.count_operators import (
    MOST_VALUES,
    Choice,
    Climber,
    Lister,
    Outcomes,
    Tables,
    find_dominance,
)
from evenhand.solvers.counts.dominance import Dominance, Rule
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
    spread_extras,
)
from evenhand.typing import Array, Floats, Ints

MOST_OPERATIONS = 1e14
"""Elementary operations beyond which a problem is refused."""

SMALL = 1e5
"""Entries of explicit tables up to which they are used: nothing is compiled for them."""

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
        if algorithm.splits is None:
            base = 8.0 * self.law_entries
        else:
            base = sum(4.0 * algorithm.size_of(t) for t in algorithm.base_levels) * len(algorithm.splits[0])
        # Values of outcomes, before and after base rows move; what the rules of dominance compare.
        mixing = 8.0 * len(algorithm.allocations) * (num_cells + 2) ** 2
        mixing += 24.0 * self.num_values
        mixing += 8.0 * self.slots.num_states**2 * self.num_points
        depth = 0 if algorithm.climb is None else int(algorithm.climb.units.max()) + 1
        # GMRES keeps a vector a step.
        per_point = 8.0 * (LEAP + 4) + 16.0 * (6 + self.slots.num_states) + num_cells * (12.0 + 16.0 * depth)
        work = mixing + base + per_point * self.num_points
        return work + self.criterion.num_layers * choices

    @property
    def law_entries(self) -> float:
        """Entries of the distributions of arms in base slots, or on faces of expectations over them, without splits."""
        algorithm, rules = self.algorithm, self.rules(0.0)
        if self.dominance is None or not rules:
            return sum(float(algorithm.size_of(t)) ** 2 for t in algorithm.base_levels)
        faces, nowhere, _ = self.dominance.find(dict.fromkeys(rules, np.inf), 0.0)
        extra = spread_extras(self.slots, algorithm.allocations).sum(axis=1)
        _, first = np.unique(np.column_stack([extra, faces])[~nowhere], axis=0, return_index=True)
        kept = np.flatnonzero(~nowhere)[first]
        outcomes, arrivals = algorithm.values_after(kept, faces[kept])
        laws = np.where(faces[kept] == 0, outcomes.astype(np.float64) ** 2, 1.0 * outcomes * arrivals)
        # The largest is grown from one as large.
        return float(laws.sum() + laws.max())

    @property
    def num_values(self) -> float:
        """Number of values of outcomes that are stored at once."""
        algorithm, every = self.algorithm, np.arange(len(self.algorithm.allocations))
        if self.dominance is None:
            return float(algorithm.num_outcomes)
        return min(float(np.sum(algorithm.values_after(every, np.zeros_like(every)))), MOST_VALUES)

    @cached_property
    def dominance(self) -> Dominance | None:
        """The rules of dominance, if there are any."""
        return find_dominance(self.algorithm)

    @cached_property
    def coarse(self) -> tuple["CountPlan", Floats] | None:
        """A quarter of the arms at the same proportions, and its value function; None if it is of no use."""
        fewer, limit, least = self.slots.num_arms // 4, self.arm.limit, self.arm.least
        if not self.criterion.is_stationary or self.num_points < 3000 or fewer < 10:  # quick without
            return None
        share, exact = fewer / self.slots.num_arms, least > 0
        units = np.where(self.arm.usage > 0, self.arm.usage, np.inf).min(axis=(0, 1))[exact]
        # A budget that must be spent is rounded to whole units.
        limit = limit * share
        limit[exact] = np.floor(limit[exact] / units) * units * (1 + 1e-9)
        arm = self.arm._replace(num_arms=fewer, limit=limit, least=np.where(exact, limit * (1 - 1e-8), 0.0))
        with suppress(NotApplicableError, NotConvergedError, TooLargeError):  # their budget may be too small
            plan = plan_arm(arm, self.criterion)
            return plan, solve_counts(plan, self.arm.initial, 1e-3).value_function
        return None

    def rules(self, share: float) -> frozenset[Rule]:
        """Rules of dominance for a quarter of the arms; none where few allocations make them needless.

        Args:
            share: of the counts at which serving one more arm may be worse than not.
        """
        if self.dominance is None or self._operations() < 1e11 or self.coarse is None:
            return frozenset()
        plan, value = self.coarse
        if plan.dominance is None or not np.array_equal(plan.slots.cells, self.slots.cells):
            return frozenset()
        surely, mostly = (plan.dominance.margins(value, self.criterion.factor, part) for part in (0.0, share))
        return frozenset(rule for rule in surely if (mostly if rule[1] < 0 else surely)[rule] > 0)

    @cached_property
    def trusted(self) -> frozenset[Rule]:
        """Rules of dominance by which a first guess is found."""
        return self.rules(0.5)

    @cached_property
    def operations(self) -> float:
        """About how many elementary operations solving takes."""
        if self.dominance is None or not self.trusted:
            return self._operations()
        # The last round compares what is not surely dominated, the others what probably is not.
        operations = float(self.num_points) ** 2
        for rules, rounds, sweeps in ((self.rules(0.0), 1, 1), (self.trusted, _ROUNDS_GUESS, _SWEEPS_GUESS)):
            faces, nowhere, _ = self.dominance.find(dict.fromkeys(rules, np.inf), 0.0)
            rest = np.flatnonzero(~nowhere)
            outcomes, arrivals = self.algorithm.values_after(rest, faces[rest])
            # On faces the laws of arrivals are matrices, and products of matrices are fast.
            work = float(outcomes @ np.where(faces[rest] > 0, arrivals / 4, self.slots.num_arms))
            operations += sweeps * work + rounds * float(self.num_points) * len(rest)
        return operations

    def _operations(self) -> float:
        """Operations without dominance."""
        algorithm, points = self.algorithm, float(self.num_points)
        # An arm more in an extra slot: a sum over states for every outcome.
        last, mixing = len(algorithm.extras) - 1, 0.0
        if len(algorithm.extras) > 1:
            mixing = float(self.slots.num_states) * algorithm.num_outcomes
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
        rounds, single = float(_ROUNDS_GUESS), every if algorithm.splits is not None else points**2
        if last > 0:
            # Most outcomes are dominated or eliminated after the first round, and a policy follows few.
            return growing + every + rounds * points * choices + (rounds + _SWEEPS_GUESS) * (mixing + row * points)
        return growing + rounds * improving + _SWEEPS_GUESS * single

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
    value = np.zeros(plan.num_points)
    if plan.coarse is not None:
        value = interpolate(plan.coarse[1], plan.coarse[0].slots.num_arms, outcomes.points)

    def improve(value: Floats) -> tuple[Floats, Choice]:
        """Return the Bellman operator at a value function, and the greedy choice."""
        best, choice = plan.chooser.improve(value, criterion.factor)
        return base_rewards + best, choice

    def improve_by_trusted(value: Floats) -> tuple[Floats, Choice]:
        """Return a lower bound of the operator, over what the trusted rules do not dominate, and the choice."""
        assert isinstance(chooser, Lister)
        best, choice = chooser.improve(value, criterion.factor, plan.trusted)
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

    chooser = plan.chooser
    if plan.trusted:  # a better first guess: what it proves is not used
        with suppress(NotApplicableError, NotConvergedError):
            value = iterate(certifier, improve_by_trusted, evaluate, value, tolerance, None, most_rounds)[2]
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
