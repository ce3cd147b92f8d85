"""Policy iteration for one weighted sum over types, and the visits of its policy.

    discounted, average   modified policy iteration
    finite:T              backward induction: one full improvement a step

How often a policy is in each state, from the law of the first counts mu and by the criterion's weights of time, is what
its values are sums over, all objectives at once (`solvers.occupancy` has the same for tables):

    discounted   q = mu + gamma P^T q, by BiCGSTAB, and from wherever it stops by the plain iteration, which contracts
    average      the Cesaro limit of (P^T)^t mu: by elimination if states are few, else by GMRES (`solvers.occupancy`)
    finite:T     q_0 = mu, q_t = gamma P_t^T q_(t-1)

The oracle of column generation. For weights g of the members of welfare and prices phi of the floors, a pair of type t
gains

    g_t r_t(x_t, u_t) + phi_t served_t(x_t, u_t) / total,

where g_t is the weight of the type in its member, and the sum over types is maximised over all policies. The policy
that is found is deterministic. Its values are sums over its visits, so all objectives are evaluated at once, from the
law of the first counts, as closely as rounding allows. A mixture of such policies is drawn at the start.
"""

from collections.abc import Callable, Iterator

import numpy as np

from evenhand.model.objective import Objective
from evenhand.solvers.closed_classes import Elimination
from evenhand.solvers.column_generation.master import Priced
from evenhand.solvers.counts.policy_iteration import (
    Certifier,
    apply_policy,
    induce_backward,
    iterate,
    law_error,
)
from evenhand.solvers.counts.post_decision import UNIT, check_one_class
from evenhand.solvers.counts.type_operators import Operators
from evenhand.solvers.counts.type_plan import TypedPlan
from evenhand.solvers.dynamic_programming import Optimum
from evenhand.solvers.occupancy import CLASSES_UP_TO, discounted_visits, settle
from evenhand.typing import Array, Floats

Tell = Callable[[str], None]
"""Called now and then with a description of the current work."""

CLOSER = 0.01
"""Width of the change after policy evaluation, as a share of the width before it: full improvements are expensive."""

STRANGE = 1e4
"""A guess that is so many times as large as what can be gained at once is of no use."""


# -- the best policy of a weighted sum --------------------------------------------------------------------------------


def solve_types(
    operators: Operators,
    gains: list[Floats],
    tolerance: float = 1e-9,
    start: Floats | None = None,
    tell: Tell | None = None,
) -> Optimum:
    """Maximise what the pairs of all types gain over time.

    Args:
        operators: of the problem.
        gains: of each type (pair,) what its pairs earn at once.
        tolerance: how far apart the bounds may be at the end, relative to the value; a finite horizon ends as close as
            rounding allows.
        start: (state,) a first guess of the value function; of no use to a finite horizon.
        tell: called with a description of the current work.

    Returns:
        The optimum; its choices are the (type, state) pair of each type, or (step, type, state).

    Raises:
        NotApplicableError: under the criterion average, if the best mean depends on where the arms start.
    """
    tell = tell or (lambda what: None)
    criterion = operators.plan.criterion
    largest = sum(float(np.abs(own).max()) for own in gains)
    error = sum(law_error(moves.tables.num_arms) for moves in operators.types)
    certifier = Certifier(criterion, largest, operators.error, operators.first_law, error)
    plan, value = operators.plan, np.zeros(operators.plan.num_states)

    def improve(value: Floats) -> tuple[Floats, Array]:
        # A few roundings of what is compared: they must not separate equal decisions.
        tie = 8 * UNIT * (largest + float(np.abs(value).max()))
        return operators.improve(gains, criterion.factor * value, tie)

    def evaluate(value: Floats, width: float, picks: Array) -> Floats:
        rewards = np.asarray(sum(own[chosen] for own, chosen in zip(gains, picks, strict=True)))
        value = apply_policy(certifier, operators.fix(picks).follow, rewards, value, CLOSER * width)
        return np.asarray(value - value.mean())  # a constant does nothing to the bounds but cost digits

    def keep(step: int, chosen: Array) -> None:
        tell(f"step {step + 1} of {criterion.num_layers}")
        picks[step] = chosen

    if criterion.is_stationary:
        # A guess from larger gains, whose rounding would drown these, is of no use.
        if start is not None and float(np.abs(start).max()) <= STRANGE * largest:
            value = start - start.mean()
        report = lambda number, gap: tell(f"improvement {number}, bounds {gap:.0e} apart")  # noqa: E731
        picks, bounds, value, _ = iterate(certifier, improve, evaluate, value, tolerance, report)
    else:
        picks = np.empty((criterion.num_layers, len(plan.types), plan.num_states), dtype=plan.pick_type)
        bounds, value = induce_backward(certifier, improve, keep, value)
    return Optimum(picks, bounds.low, bounds.high, value, bounds.slack)


# -- visits ----------------------------------------------------------------------------------------------------------


class Visits:
    """Visits of policies to count states; each search starts from the last result."""

    def __init__(self, operators: Operators) -> None:
        self.operators, self.criterion = operators, operators.plan.criterion
        self._last = operators.first_law * self.criterion.total

    def sums(self, picks: Array, facts: list[Floats]) -> list[Floats]:
        """For each type (fact,) the sum of facts about its pairs, weighted by the occupancy of a policy.

        Args:
            picks: (type, state) the pair of each type; (step, type, state) where there is a number of steps.
            facts: of each type (pair, fact).
        """
        totals = [np.zeros(own.shape[1]) for own in facts]
        for visits, chosen in self._of(picks):
            for total, own, pair in zip(totals, facts, chosen, strict=True):
                total += np.bincount(pair, weights=visits, minlength=len(own)) @ own
        return totals

    def _of(self, picks: Array) -> Iterator[tuple[Floats, Array]]:
        """(state,) visits by the criterion's weights, with the (type, state) pairs taken there: once, or by steps."""
        if self.criterion.is_stationary:
            push, factor, first = self.operators.fix(picks).push, self.criterion.factor, self.operators.first_law
            if self.criterion.contracts:
                self._last = discounted_visits(lambda q: factor * push(q), first, self.criterion.total, self._last)
            elif len(first) <= CLASSES_UP_TO:
                # Pushing a unit from each state writes the chain out, a row each.
                self._last = Elimination(np.stack([push(row) for row in np.eye(len(first))])).shares(first)
            else:
                self._last = settle(push, first)
            yield self._last, picks
            return
        law = self.operators.first_law
        for chosen in picks:
            yield law, chosen
            law = self.criterion.factor * self.operators.fix(chosen).push(law)


# -- the oracle of column generation ----------------------------------------------------------------------------------


class TypedPricing:
    """Solves weighted sums type by type, each from where the last one ended, and keeps the policies."""

    def __init__(self, plan: TypedPlan, objective: Objective, tell: Tell | None = None) -> None:
        """Keep what is to be solved.

        Args:
            plan: the problem, planned.
            objective: says who the members are and which floors there are; one value a type.
            tell: called with a description of the current work.

        Raises:
            TooLargeError: it would not fit, or take for ever.
            NotApplicableError: an average whose long run depends on where the arms start.
        """
        plan.check()
        for moves in plan.types:
            check_one_class(moves.tables, plan.criterion)
        self.objective, self.tell = objective, tell
        self.operators = Operators(plan)
        self._floored, self._num_members = np.flatnonzero(objective.floors > 0), len(objective.sizes)
        self.floors = objective.floors[self._floored]
        self.picks: list[Array] = []
        self.type_values: list[Floats] = []
        self._visits = Visits(self.operators)
        self._last: Floats | None = None

    def __call__(self, weights: Floats, tolerance: float) -> Priced:
        """A policy that is best to the tolerance, and a bound on the weighted sum of every policy."""
        best = solve_types(self.operators, self._gains(weights), tolerance, self._last, self.tell)
        self._last = best.value_function
        if self.tell is not None:
            self.tell("evaluating")
        facts = [np.column_stack([moves.rewards, moves.served]) for moves in self.operators.types]
        values, served = np.stack(self._visits.sums(best.choices, facts), axis=1)
        self.picks.append(best.choices)
        self.type_values.append(values)
        shares = served[self._floored] / self.objective.criterion.total
        vector = np.concatenate([self.objective.members(values), shares])
        return Priced(vector[:, None], best.upper_bound, best.rounding)

    def _gains(self, weights: Floats) -> list[Floats]:
        """Of each type (pair,) what its pairs gain by the weights."""
        of_types = self.objective.spread(weights[: self._num_members])
        prices = np.zeros(len(of_types))
        prices[self._floored] = weights[self._num_members :] / self.objective.criterion.total
        types = zip(self.operators.types, of_types, prices, strict=True)
        return [weight * moves.rewards + price * moves.served for moves, weight, price in types]

    @property
    def units(self) -> Floats:
        """(objective,) how large each objective can be at most, in magnitude."""
        types = self.operators.types
        rewards = np.array([np.abs(moves.rewards).max() for moves in types]) * self.objective.criterion.total
        served = np.array([moves.served.max() for moves in types])
        return np.concatenate([self.objective.members(rewards), served[self._floored]])
