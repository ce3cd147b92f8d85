"""Policy iteration for one weighted sum over types, and the visits of its policy.

    discounted, average   modified policy iteration. A full improvement costs as much as many sweeps of one policy, one
                          among pairs that were seen before as much as a few. So the problem is solved among these until
                          the change d is a thousandth as wide, or as narrow as is required; then a full improvement
                          proves how good that is, or finds pairs that were not seen yet.
    finite:T              backward induction: one full improvement a step

How often a policy is in each state, from the law of the first counts mu and by the criterion's weights of time, is what
its values are sums over, all objectives at once (`solvers.occupancy` has the same for tables):

    discounted   q = mu + gamma P^T q, by BiCGSTAB, and from wherever it stops by the plain iteration, which contracts
    average      the Cesaro limit of (P^T)^t mu: by elimination if states are few, else by GMRES (`solvers.occupancy`)
    finite:T     q_0 = mu, q_t = gamma P_t^T q_(t-1)
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.sparse.linalg import LinearOperator, bicgstab

from evenhand.errors import NotConvergedError
from evenhand.solvers.counts.bounds import Bounds, Certifier, law_error
from evenhand.solvers.counts.evaluation import Patience, advance, apply_policy, extremes
from evenhand.solvers.counts.transition import UNIT
from evenhand.solvers.counts.type_operators import Fixed, Operators
from evenhand.solvers.occupancy import CLASSES_UP_TO, long_run_shares, settle
from evenhand.typing import Array, Floats

Tell = Callable[[str], None]
"""Called now and then with a description of the current work."""

CLOSER, NARROWER = 1e-3, 0.1
"""Target widths of the change, as shares of the earlier width, between full improvements, and between narrow ones."""

SURER = 0.3
"""Gap after narrow improvements as a share of the required one, so that the full improvement proves enough."""

MOST_ROUNDS, MOST_NARROW = 1000, 40
"""Full improvements, and narrow ones between two of them."""

STRANGE = 1e4
"""A guess that is so many times as large as what can be gained at once is of no use."""

PATIENCE = 6
"""Full improvements after which an average must have come closer; each follows many narrow ones."""

RESIDUAL = 1e-12
"""The largest residual left in visits, as a share of all of them."""


@dataclass(frozen=True)
class TypedOptimum:
    """The best policy for one weighted sum."""

    picks: Array
    """(type, state) the pair of each type in each state; (step, type, state) where there is a number of steps."""

    lower_bound: float
    """The value of the optimum from the first law is at least this ..."""

    upper_bound: float
    """... and at most this."""

    value_function: Floats
    """(state,) the last iterate, from which another solve may start."""

    rounding: float
    """Largest rounding error of each bound."""


# -- the best policy of a weighted sum --------------------------------------------------------------------------------


def solve_types(
    operators: Operators,
    gains: list[Floats],
    tolerance: float = 1e-9,
    start: Floats | None = None,
    tell: Tell | None = None,
) -> TypedOptimum:
    """Maximise what the pairs of all types gain over time.

    Args:
        operators: of the problem.
        gains: of each type (pair,) what its pairs earn at once.
        tolerance: how far apart the bounds may be at the end, relative to the value; a finite horizon ends as close as
            rounding allows.
        start: (state,) a first guess of the value function; of no use to a finite horizon.
        tell: called with a description of the current work.

    Raises:
        NotApplicableError: under the criterion average, if the best mean depends on where the arms start.
    """
    tell = tell or (lambda what: None)
    criterion = operators.plan.criterion
    largest = sum(float(np.abs(own).max()) for own in gains)
    error = sum(law_error(moves.tables.num_arms) for moves in operators.types)
    certifier = Certifier(criterion, largest, operators.error, operators.first_law, error)
    if criterion.num_steps is not None:
        return _induce_backward(operators, certifier, gains, criterion.num_steps, tell)
    value = np.zeros(operators.plan.num_states) if start is None else start
    if float(np.abs(value).max()) > STRANGE * largest:  # a guess from larger gains, whose rounding would drown these
        value = np.zeros_like(value)
    return _iterate(operators, certifier, gains, value, tolerance, tell)


def _iterate(
    operators: Operators, certifier: Certifier, gains: list[Floats], value: Floats, tolerance: float, tell: Tell
) -> TypedOptimum:
    iteration = _Iteration(operators, certifier, gains, tell)
    patience = Patience(certifier.criterion, operators.plan.is_one_long_run, PATIENCE)
    # What was good by other weights is good by these, mostly: begin among the pairs that were seen.
    if operators.has_seen:
        value = iteration.settle(value, tolerance, 0.0)
    for number in range(1, MOST_ROUNDS + 1):
        tell(f"improvement {number}")
        value, width, bounds, picks = iteration.improve(value)
        if bounds.close(tolerance):
            return TypedOptimum(picks, bounds.low, bounds.high, value, bounds.slack)
        patience.note(width, bounds)
        tell(f"improvement {number}, bounds {bounds.gap:.0e} apart")
        value = iteration.settle(value, tolerance, CLOSER * width)
    raise NotConvergedError(f"the relative gap is still {bounds.gap:.3g} after {MOST_ROUNDS} rounds")


@dataclass
class _Iteration:
    """Iteration of a value function towards the optimum of one weighted sum."""

    operators: Operators
    certifier: Certifier
    gains: list[Floats]
    tell: Tell

    def improve(self, value: Floats) -> tuple[Floats, float, Bounds, Array]:
        """The next value function, the width of the change, what it proves, and the policy that is greedy."""
        value = value - value.mean()  # a constant does nothing to the bounds but cost digits
        improved, picks = self.operators.improve(self.gains, self._factor * value, self._tie(value))
        least, most = extremes(improved - value)
        bounds = self.certifier.bound(value, improved, least, most)
        return advance(self.certifier.criterion, value, improved, least, most), most - least, bounds, picks

    def settle(self, value: Floats, tolerance: float, enough: float) -> Floats:
        """Policy iteration among the pairs that were seen.

        Args:
            value: (state,) the value function.
            tolerance: how far apart the bounds may be at the end, as far as these pairs are concerned.
            enough: or how narrow the change.
        """
        before = np.inf
        for number in range(MOST_NARROW):
            value = value - value.mean()
            improved, picks = self.operators.improve_among_seen(self.gains, self._factor * value, self._tie(value))
            least, most = extremes(improved - value)
            bounds, width = self.certifier.bound(value, improved, least, most), most - least
            value = advance(self.certifier.criterion, value, improved, least, most)
            # A change that hardly shrinks any more is left to the full improvement.
            stalls = number > 5 and width > 0.9 * before
            if width <= enough or bounds.close(SURER * tolerance) or stalls:
                break
            before = width
            # No narrower than the bounds need: they are as wide as the change times all that is still to come.
            needed = SURER * tolerance * bounds.scale * width / max(bounds.high - bounds.low, 1e-300)
            rewards, follow = policy_gains(self.gains, picks), self.operators.fix(picks).follow
            value = apply_policy(self.certifier, follow, rewards, value, max(NARROWER * width, enough, 0.5 * needed))
        return value

    @property
    def _factor(self) -> float:
        return self.certifier.criterion.factor

    def _tie(self, value: Floats) -> float:
        return _tie(self.certifier, value)


def policy_gains(gains: list[Floats], picks: Array) -> Floats:
    """(state,) what a policy gains at once.

    Args:
        gains: of each type (pair,).
        picks: (type, state) the pair of each type.
    """
    return np.asarray(sum(own[chosen] for own, chosen in zip(gains, picks, strict=True)))


def _tie(certifier: Certifier, value: Floats) -> float:
    # A few roundings of what is compared: they must not separate equal decisions.
    return 8 * UNIT * (certifier.largest + float(np.abs(value).max()))


def _induce_backward(
    operators: Operators, certifier: Certifier, gains: list[Floats], num_steps: int, tell: Tell
) -> TypedOptimum:
    """The best decisions of the last step, of the one before it, and so on."""
    factor, plan = certifier.criterion.factor, operators.plan
    picks: Array = np.empty((num_steps, len(plan.types), plan.num_states), dtype=plan.pick_type)
    value, slack = np.zeros(plan.num_states), 0.0
    for step in reversed(range(num_steps)):
        tell(f"step {step + 1} of {num_steps}")
        # e_t = e(V_{t+1}) + gamma e_{t+1} (`bounds`).
        slack = certifier.step_error(value) + factor * slack
        value, picks[step] = operators.improve(gains, factor * value, _tie(certifier, value))
    bounds = certifier.settle(value, slack)
    return TypedOptimum(picks, bounds.low, bounds.high, value, bounds.slack)


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
        if self.criterion.num_steps is None:
            fixed = self.operators.fix(picks)
            self._last = _long_run(self.operators, fixed) if self.criterion.is_average else self._discounted(fixed)
            yield self._last, picks
            return
        law = self.operators.first_law
        for chosen in picks:
            yield law, chosen
            law = self.criterion.factor * self.operators.fix(chosen).push(law)

    def _discounted(self, fixed: Fixed) -> Floats:
        factor, first, size = self.criterion.factor, self.operators.first_law, len(self._last)
        operator = LinearOperator((size, size), matvec=lambda q: q - factor * fixed.push(q), dtype=np.float64)
        visits, _ = bicgstab(operator, first, x0=self._last, rtol=1e-13, atol=0.0, maxiter=300)
        # BiCGSTAB can break down; the plain iteration below contracts from anywhere.
        if not np.isfinite(visits).all():
            visits = first * self.criterion.total
        while (
            np.abs((following := first + factor * fixed.push(visits)) - visits).sum() > RESIDUAL * self.criterion.total
        ):
            visits = following
        return np.asarray(following)


def _long_run(operators: Operators, fixed: Fixed) -> Floats:
    if operators.plan.num_states <= CLASSES_UP_TO:
        # Pushing a unit from each state writes the chain out, a row each.
        matrix = np.stack([fixed.push(row) for row in np.eye(operators.plan.num_states)])
        return long_run_shares(matrix, operators.first_law)
    return settle(fixed.push, operators.first_law)
