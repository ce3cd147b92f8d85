"""Modified policy iteration and backward induction on counts, of one type or of several; bounds of a sweep.

    discounted, average   modified policy iteration: each round improves the policy once, then applies its operator
                          until the change d is a tenth as wide
    finite:T              backward induction, V_t = T V_{t+1} from V_T = 0: one sweep a step, and nothing to iterate

Between sweeps V moves on by what is surely still to come. Discounted, that is gamma/(1-gamma) times the middle of d.
Under average nothing sums up: V <- V + tau (d - middle of d), which is value iteration on (1 - tau) I + tau P, a chain
with the same gain, without periods (Puterman, 8.5.4), and V does not drift.

Arms that forget slowly, or a discount next to 1, make sweeps shrink d slowly. Where many of them did not do, V *leaps*:
a few steps of GMRES on (I - gamma P) c = d give a correction c, accepted if it makes d narrower. Under average I - P is
singular, so the mean of c over count states is added to every row, which leaves d constant where it succeeds. Bounds
hold for any V, so nothing hangs on how V was found. A policy with several closed classes makes the system singular: its
corrections are huge and only rounding makes d look narrow, so what rounding may do counts against a leap.

Under average a policy may have several closed classes, whose means differ. Its d tends to the mean g of each class,
P g = g, and V + k g solves its equations for any k. A sweep increases k by one, however little the means differ; if d
is g, V moves along it at once, so that the next improvement leads into the class of the best mean (Puterman, 9.2).

If the best mean depends on where the arms start, d tends to a function that is not constant, and the bounds do not
meet. Then the width of d stops shrinking, and the criterion is refused; so it is if arms forget extremely slowly.

Bounds. With d = T V - V for any V, the criterion brackets the optimum (`Criterion.bracket`): MacQueen's bounds if
discounted, min d and max d under average. The lower one holds for the policy that is greedy in V; with the operator
of one policy in place of T, both hold for that policy.

Rounding. The computed T V - V is within e = error (max|V| + max|r|) of the true one, error added up where the
distributions are made (`Outcomes.error`), and the mean over the computed first distribution within
e_0 = error_0 max|T V|. So

    discounted   low and high are off by at most  e + gamma/(1-gamma) e + e_0 = e / (1-gamma) + e_0
    average      by at most  e: they are entries of d, and no mean is taken
    finite       e_t = e(V_{t+1}) + gamma e_{t+1},  e_T = 0; the value of the first step is off by at most  e_0' + e_0,
                 e_0' what e_t has come to at step 0

Bounds that rounding keeps apart by more than LONG times what it does to rewards are not close, whatever the values:
arms that take very long to forget, or a discount next to 1, have values that large.

In all of them e stands once for each step that counts: times `Criterion.total` where V is the same at every step. Under
average V is centred, so that max|V| does not grow with the number of sweeps.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np
from scipy import sparse
from scipy.special import gammaln

from evenhand.errors import EvenhandError, NotApplicableError, NotConvergedError
from evenhand.model.criterion import Criterion
from evenhand.solvers.counts.count_operators import Follow
from evenhand.solvers.counts.post_decision import INSTEAD_OF_AVERAGE, UNIT
from evenhand.typing import Floats

_NEXT_TO_NOTHING = 1e-6
"""Least scale of a relative gap, as a share of the largest possible value."""

LONG = 1000.0
"""Steps whose rounding may add up before bounds that it keeps apart are not close any more."""


class Bounds(NamedTuple):
    """Bounds on a value from the initial distribution."""

    low: float
    high: float
    slack: float
    """Part of the gap that is due to rounding and cut tails, on either side."""

    scale: float
    """Denominator of the relative gap: the value, unless it is nearly 0."""

    excused: float
    """Part of the slack that is not due to large values."""

    @property
    def gap(self) -> float:
        """Relative."""
        return (self.high - self.low) / self.scale if self.scale > 0 else 0.0

    def close(self, tolerance: float) -> bool:
        """Return True if the relative gap is within a tolerance, or due to rounding."""
        return self.high - self.low <= max(tolerance * self.scale, 4 * self.excused)


class Certifier:
    """Turns value functions into bounds."""

    def __init__(
        self, criterion: Criterion, largest_reward: float, error: float, first_law: Floats, law_error: float
    ) -> None:
        """Keep what bounds need.

        Args:
            criterion: what rewards over time are worth.
            largest_reward: the largest mean reward of a step, up to its sign.
            error: how far a computed T V - V may be off, relative to max|V| + max|r|.
            first_law: (count state,) the law of the first counts.
            law_error: how far a mean over it may be off, relative to the largest entry.
        """
        self.criterion, self.largest = criterion, largest_reward
        self.error, self.first_law, self.law_error = error, first_law, law_error

    def step_error(self, value: Floats) -> float:
        """Bound on the error of one computed T V."""
        return self.error * (float(np.abs(value).max()) + self.largest)

    def bound(self, value: Floats, improved: Floats, least: float, most: float) -> Bounds:
        """Bounds for an endless criterion.

        Args:
            value: (count state,) V.
            improved: (count state,) T V.
            least: the smallest entry of T V - V.
            most: the largest.
        """
        slack = self.step_error(value) * self.criterion.total
        # An average is between entries of the change: no mean is taken.
        mean, mean_error = self._mean(improved) if self.criterion.contracts else (0.0, 0.0)
        return self._widened(*self.criterion.bracket(mean, least, most), slack + mean_error)

    def settle(self, value: Floats, slack: float) -> Bounds:
        """Bounds from a value function that is exact up to rounding.

        Args:
            value: (count state,) the value function.
            slack: how far its entries may be off.
        """
        mean, mean_error = self._mean(value)
        return self._widened(mean, mean, slack + mean_error)

    def _mean(self, value: Floats) -> tuple[float, float]:
        """The mean over the first law, and its rounding; summed in pairs, with less rounding than a product."""
        return float((self.first_law * value).sum()), self.law_error * float(np.abs(value).max())

    def _widened(self, low: float, high: float, slack: float) -> Bounds:
        low, high = low - slack, high + slack
        scale = max(abs(low), abs(high), _NEXT_TO_NOTHING * self.largest * self.criterion.total)
        excused = slack
        if self.criterion.is_stationary:
            excused = min(slack, LONG * self.error * self.largest * self.criterion.total)
        return Bounds(low, high, slack, scale, excused)


def law_error(num_arms: int) -> float:
    """Bound on the error of a mean over a multinomial distribution of so many arms, relative to the largest entry."""
    return 16 * UNIT * (float(gammaln(num_arms + 2)) + 4)


Progress = Callable[[int, float], None]
"""Called with the number of a round and the relative gap; of a finite horizon, with the share of steps to go."""

Decision = TypeVar("Decision")
Improve = Callable[[Floats], tuple[Floats, Decision]]
"""T V of a value function V, and the decisions that are greedy in V."""

MOST_ROUNDS = 1000
"""Largest number of policy improvements."""

SHRINK = 0.1
"""Width of the change after policy evaluation, as a share of the width before it."""

LEAP = 30
"""Steps of GMRES in a leap of the value function; each stores a vector."""

_MOST_SWEEPS = 60
"""Largest number of sweeps per evaluation of a policy."""

_DAMPING = 0.8
"""Step size of value iteration under the average criterion; less than 1 so that periodic chains converge."""

_PATIENCE, _HARDLY = 40, 0.9
"""Rounds without progress after which an iteration ends, and the largest ratio of widths that counts as progress."""

_WIDEST = 1e4
"""Largest span of a value function, as a multiple of the largest reward, for which closed classes are separated."""


# -- both algorithms --------------------------------------------------------------------------------------------------


def iterate(
    certifier: Certifier,
    improve: Improve[Decision],
    evaluate: Callable[[Floats, float, Decision], Floats],
    value: Floats,
    tolerance: float,
    progress: Progress | None = None,
    most_rounds: int = MOST_ROUNDS,
) -> tuple[Decision, Bounds, Floats, int]:
    """Modified policy iteration from a first guess of the value function.

    Args:
        certifier: bounds what a change proves.
        improve: the maximum over all decisions.
        evaluate: from a value function, the width of its change and the greedy decisions to a better value function.
        value: (count state,) the first guess.
        tolerance: relative gap of the bounds to stop at.
        progress: called after each round with its number and the relative gap.
        most_rounds: largest number of policy improvements.

    Returns:
        The decisions, the bounds, the last value function, and the number of improvements.

    Raises:
        NotConvergedError: the bounds do not close.
        NotApplicableError: under the criterion average, the bounds stop closing.
    """
    narrowest, waited = np.inf, 0
    for number in range(1, most_rounds + 1):
        improved, decision = improve(value)
        least, most = extremes(improved - value)
        bounds = certifier.bound(value, improved, least, most)
        value = advance(certifier.criterion, value, improved, least, most)
        if progress is not None:
            progress(number, bounds.gap)
        if bounds.close(tolerance):
            return decision, bounds, value, number
        if bounds.high - bounds.low <= 4 * bounds.slack:
            raise NotConvergedError(f"the relative gap is still {bounds.gap:.3g}, and rounding leaves no more digits")
        waited += 1
        if most - least <= _HARDLY * narrowest:
            narrowest, waited = most - least, 0
        if waited >= _PATIENCE:
            raise _stopped(certifier.criterion, bounds)
        # One policy's own operator is much cheaper than the maximum over all.
        value = evaluate(value, most - least, decision)
    raise NotConvergedError(f"the relative gap is still {bounds.gap:.3g} after {most_rounds} rounds")


def _stopped(criterion: Criterion, bounds: Bounds) -> EvenhandError:
    """Return the error of bounds that stopped closing."""
    if criterion.contracts:
        return NotConvergedError(f"the relative gap stopped closing at {bounds.gap:.3g}: the arms forget very slowly")
    return NotApplicableError(
        f"the criterion average needs one recurrent class, and here the bounds on the mean reward stopped closing at "
        f"{bounds.low:.6g} and {bounds.high:.6g}: it depends on where the arms start, or they take very long to "
        f"forget where they were. {INSTEAD_OF_AVERAGE}"
    )


def induce_backward(
    certifier: Certifier, improve: Improve[Decision], keep: Callable[[int, Decision], None], value: Floats
) -> tuple[Bounds, Floats]:
    """Find the best decisions of the last step, of the one before it, and so on.

    Args:
        certifier: bounds the rounding.
        improve: the maximum over all decisions.
        keep: called with the number of each step and its decisions, the last first.
        value: (count state,) 0, the value after the last step.
    """
    slack = 0.0
    for step in reversed(range(certifier.criterion.num_layers)):
        # e_t = e(V_{t+1}) + gamma e_{t+1}: this step's own rounding, and what the later ones left.
        slack = certifier.step_error(value) + certifier.criterion.factor * slack
        value, decision = improve(value)
        keep(step, decision)
    return certifier.settle(value, slack), value


# -- one policy -------------------------------------------------------------------------------------------------------


def extremes(change: Floats) -> tuple[float, float]:
    """The smallest and the largest entry."""
    return float(change.min()), float(change.max())


def advance(criterion: Criterion, value: Floats, improved: Floats, least: float, most: float) -> Floats:
    """(count state,) the next value function: on by what is surely still to come, or damped (see the file's head)."""
    middle = (least + most) / 2
    if not criterion.contracts:
        return np.asarray(value + _DAMPING * (improved - value - middle))
    still_to_come, _ = criterion.bracket(0.0, middle, middle)
    return improved + still_to_come


def apply_policy(certifier: Certifier, follow: Follow, rewards: Floats, value: Floats, width: float) -> Floats:
    """Apply the operator of one policy until its change is so wide, or for a while and then with a leap."""
    criterion = certifier.criterion
    for _ in range(_MOST_SWEEPS):
        following = rewards + criterion.factor * follow(value)
        least, most = extremes(following - value)
        value = advance(criterion, value, following, least, most)
        if most - least <= width:
            break
    else:
        value = _leap(certifier, follow, rewards, value)
    return value if criterion.contracts else value - (value.min() + value.max()) / 2


def _leap(certifier: Certifier, follow: Follow, rewards: Floats, value: Floats) -> Floats:
    """Correct a value function by a few steps of GMRES, unless that does no good."""
    contracts, factor = certifier.criterion.contracts, certifier.criterion.factor

    def residual(correction: Floats) -> Floats:
        mean = 0.0 if contracts else correction.mean()
        return np.asarray(correction - factor * follow(correction) + mean)

    change = rewards + factor * follow(value) - value
    operator = sparse.linalg.LinearOperator((len(value), len(value)), matvec=residual, dtype=np.float64)
    uneven = change - sum(extremes(change)) / 2  # what is the same everywhere does not widen it
    correction, _ = sparse.linalg.gmres(operator, uneven, rtol=SHRINK**2, atol=0.0, restart=LEAP, maxiter=1)
    leapt = value + correction
    after = rewards + factor * follow(leapt) - leapt
    width, surely = np.ptp(change), np.ptp(after) + 4 * certifier.step_error(leapt)
    if surely < _HARDLY * width:
        return np.asarray(leapt)
    return value if contracts else _separate_classes(certifier, follow, rewards, value, uneven)


def _separate_classes(certifier: Certifier, follow: Follow, rewards: Floats, value: Floats, uneven: Floats) -> Floats:
    """Move a value function along the gains of a policy with several closed classes.

    Args:
        certifier: bounds the rounding.
        follow: the expected value after the policy's decisions.
        rewards: (count state,) its mean rewards.
        value: (count state,) V.
        uneven: (count state,) T V - V, centred.
    """
    span, width = float(np.ptp(value)), float(np.ptp(uneven))
    if width == 0 or span > _WIDEST * certifier.largest:
        return value
    moved = value + (span + certifier.largest) / width * uneven
    after = rewards + follow(moved) - moved
    return moved if np.ptp(after) + 4 * certifier.step_error(moved) <= (1 + _HARDLY) * width else value
