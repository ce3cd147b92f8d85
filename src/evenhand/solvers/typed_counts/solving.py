"""The fourth room: iterating to the optimum of one weighted sum, and how often its policy is where.

    discounted, average   policy iteration: improvements cost much and sweeps of a policy little, so each policy is
                          evaluated until the change d is a thousandth as wide, or as narrow as is asked for
    finite:T              backward induction: one improvement a step

How often a policy is in each state, from the law of the first counts mu and by the criterion's weights of time, is what
its values are sums over, all objectives at once (`solvers.occupancy` has the same for tables):

    discounted   q = mu + gamma P^T q, by BiCGSTAB, and from wherever it stops by the plain iteration, which contracts
    average      the limit of q <- q + tau (P^T q - q) from mu: that of a chain with the same long run and no periods
    finite:T     q_0 = mu, q_t = gamma P_t^T q_(t-1)
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.sparse.linalg import LinearOperator, bicgstab

from evenhand.errors import NotConverged
from evenhand.kernels.type_sweeps import Leaves
from evenhand.solvers.count_dynamics.bounds import Certifier, law_error
from evenhand.solvers.count_dynamics.moving import UNIT
from evenhand.solvers.count_dynamics.sweeping import Patience, advance, apply_policy, extremes
from evenhand.solvers.typed_counts.operators import Fixed, Operators
from evenhand.typing import Array, Floats

Tell = Callable[[str], None]
"""Told now and then what is being done."""

CLOSER = 1e-3
"""How much narrower the change must be before a policy is improved again."""

MOST_ROUNDS = 1000
MOST_EVALUATIONS = 20
"""Rounds of sweeps before a policy is improved again, however wide its change still is."""

RESIDUAL = 1e-12
"""The largest residual left in visits, as a share of all of them."""

MOST_PUSHES = 100_000
"""Steps after which a chain that does not come to rest is given up."""

DAMPING = 0.8
"""tau: how far the law of an average goes in a step."""


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
    """What rounding may do to each bound."""


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
        tell: told what is being done.

    Raises:
        NotApplicable: under the criterion average, if the best mean depends on where the arms start.
    """
    tell = tell or (lambda what: None)
    criterion = operators.plan.criterion
    largest = sum(float(np.abs(own).max()) for own in gains)
    error = sum(law_error(moves.tables.num_arms) for moves in operators.types)
    certifier = Certifier(criterion, largest, operators.error, operators.first_law, error)
    if criterion.num_steps is not None:
        return _induce_backward(operators, certifier, gains, criterion.num_steps, tell)
    value = np.zeros(operators.plan.num_states) if start is None else start
    return _iterate(operators, certifier, gains, value, tolerance, tell)


def _iterate(
    operators: Operators, certifier: Certifier, gains: list[Floats], value: Floats, tolerance: float, tell: Tell
) -> TypedOptimum:
    criterion, patience = certifier.criterion, Patience(certifier.criterion)
    for number in range(1, MOST_ROUNDS + 1):
        tell(f"improvement {number}")
        value = value - value.mean()  # a constant does nothing to the bounds but cost digits
        improved, picks = operators.improve(gains, criterion.factor * value, _tie(certifier, value))
        least, most = extremes(improved - value)
        bounds = certifier.bound(value, improved, least, most)
        value = advance(criterion, value, improved, least, most)
        if bounds.close(tolerance):
            return TypedOptimum(picks, bounds.low, bounds.high, value, bounds.slack)
        patience.note(most - least, bounds)
        tell(f"improvement {number}, gap {bounds.gap:.0e}, sweeping")
        # No narrower than the bounds need: they are as wide as the change times all that is still to come.
        enough = 0.2 * (most - least) * tolerance * bounds.scale / max(bounds.high - bounds.low, 1e-300)
        rewards = policy_gains(gains, picks)
        value = _evaluate(certifier, operators.fix(picks), rewards, value, max(CLOSER * (most - least), enough))
    raise NotConverged(f"the relative gap is still {bounds.gap:.3g} after {MOST_ROUNDS} rounds")


def policy_gains(gains: list[Floats], picks: Array) -> Floats:
    """(state,) what a policy gains at once.

    Args:
        gains: of each type (pair,).
        picks: (type, state) the pair of each type.
    """
    return np.asarray(sum(own[chosen] for own, chosen in zip(gains, picks, strict=True)))


def _tie(certifier: Certifier, value: Floats) -> float:
    return 8 * UNIT * (certifier.largest + float(np.abs(value).max()))


def _evaluate(certifier: Certifier, fixed: Fixed, rewards: Floats, value: Floats, width: float) -> Floats:
    """Sweep one policy until its change is so narrow, or for a while."""
    factor = certifier.criterion.factor
    before = np.inf
    for _ in range(MOST_EVALUATIONS):
        value = apply_policy(certifier, fixed.follow, rewards, value, width)
        least, most = extremes(rewards + factor * fixed.follow(value) - value)
        if most - least <= max(width, 4 * certifier.step_error(value)) or most - least > 0.5 * before:
            break
        before = most - least
    return value


def _induce_backward(
    operators: Operators, certifier: Certifier, gains: list[Floats], num_steps: int, tell: Tell
) -> TypedOptimum:
    """The best decisions of the last step, of the one before it, and so on."""
    factor, plan = certifier.criterion.factor, operators.plan
    picks: Array = np.empty((num_steps, len(plan.types), plan.num_states), dtype=plan.pick_type)
    value, slack = np.zeros(plan.num_states), 0.0
    for step in reversed(range(num_steps)):
        tell(f"step {step + 1} of {num_steps}")
        slack = certifier.step_error(value) + factor * slack
        value, picks[step] = operators.improve(gains, factor * value, _tie(certifier, value))
    bounds = certifier.settle(value, slack)
    return TypedOptimum(picks, bounds.low, bounds.high, value, bounds.slack)


# -- visits ----------------------------------------------------------------------------------------------------------


def sum_visits(operators: Operators, picks: Array, facts: list[Floats]) -> list[Floats]:
    """For each type, what a policy has of some facts about its pairs, weighed by how often it is where.

    Args:
        operators: of the problem.
        picks: (type, state) the pair of each type; (step, type, state) where there is a number of steps.
        facts: of each type (pair, fact).

    Returns:
        Of each type (fact,) the sums.
    """
    totals = [np.zeros(own.shape[1]) for own in facts]
    for visits, chosen in _visits(operators, picks):
        for total, own, pair in zip(totals, facts, chosen, strict=True):
            total += np.bincount(pair, weights=visits, minlength=len(own)) @ own
    return totals


def _visits(operators: Operators, picks: Array) -> Iterator[tuple[Floats, Array]]:
    """(state,) visits by the criterion's weights, with the (type, state) pairs taken there: once, or step by step."""
    criterion = operators.plan.criterion
    if criterion.num_steps is None:
        fixed = operators.fix(picks)
        yield (_long_run if criterion.is_average else _discounted)(operators, fixed), picks
        return
    law = operators.first_law
    for chosen in picks:
        yield law, chosen
        law = criterion.factor * operators.fix(chosen).push(law)


def _discounted(operators: Operators, fixed: Fixed) -> Floats:
    factor, total, first = operators.plan.criterion.factor, operators.plan.criterion.total, operators.first_law
    size = len(first)
    operator = LinearOperator((size, size), matvec=lambda q: q - factor * fixed.push(q), dtype=np.float64)
    visits, _ = bicgstab(operator, first, x0=first * total, rtol=1e-13, atol=0.0, maxiter=300)
    if not np.isfinite(visits).all():
        visits = first * total
    while np.abs((following := first + factor * fixed.push(visits)) - visits).sum() > RESIDUAL * total:
        visits = following
    return following


def _long_run(operators: Operators, fixed: Fixed) -> Floats:
    law, before = operators.first_law, np.inf
    for _ in range(MOST_PUSHES):
        change = DAMPING * (fixed.push(law) - law)
        law = law + change
        moved = float(np.abs(change).sum())
        rate = min(moved / before, 1 - 1e-9) if before > 0 else 0.0
        if moved <= RESIDUAL * max(1 - rate, 1e-3):  # what is still to come is a geometric series, if it goes on so
            return np.asarray(law / law.sum())
        before = moved
    raise NotConverged(f"the long-run shares still move by {moved:.2g} a step after {MOST_PUSHES} steps")
