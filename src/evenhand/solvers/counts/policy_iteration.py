"""Modified policy iteration and backward induction on counts, of one type or of several.

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
meet. Then the width of d stops shrinking, and the criterion is refused, in words; unless the arms cannot but meet in
one long run, where it is their slowness, and NotConvergedError.
"""

from collections.abc import Callable
from typing import TypeVar

import numpy as np
from scipy.sparse.linalg import LinearOperator, gmres

from evenhand.errors import NotApplicableError, NotConvergedError
from evenhand.model.criterion import Criterion
from evenhand.solvers.counts.bounds import Bounds, Certifier
from evenhand.solvers.counts.cost_estimate import LEAP
from evenhand.solvers.counts.expectation import Follow
from evenhand.solvers.counts.post_decision import INSTEAD_OF_AVERAGE
from evenhand.typing import Floats

Progress = Callable[[int, float], None]
"""Called with the number of a round and the relative gap; of a finite horizon, with the share of steps to go."""

Decision = TypeVar("Decision")
Improve = Callable[[Floats], tuple[Floats, Decision]]
"""T V of a value function V, and the decisions that are greedy in V."""

MOST_ROUNDS = 1000
"""Largest number of policy improvements."""

SHRINK = 0.1
"""Width of the change after policy evaluation, as a share of the width before it."""

_MOST_SWEEPS = 60
"""Largest number of sweeps per evaluation of a policy."""

_DAMPING = 0.8
"""Step size of value iteration under the average criterion; less than 1 so that periodic chains converge."""

_PATIENCE, _HARDLY = 40, 0.9
"""Rounds without progress after which an average is given up, and the largest ratio of widths that counts
as progress."""

_WIDEST = 1e4
"""Largest span of a value function, as a multiple of the largest reward, for which closed classes are separated."""


# -- both algorithms --------------------------------------------------------------------------------------------------


def iterate(
    certifier: Certifier,
    improve: Improve[Decision],
    evaluate: Callable[[Floats, float, Decision], Floats],
    value: Floats,
    tolerance: float,
    patience: "Patience",
    progress: Progress | None = None,
) -> tuple[Decision, Bounds, Floats, int]:
    """Modified policy iteration from a first guess of the value function.

    Args:
        certifier: bounds what a change proves.
        improve: the maximum over all decisions.
        evaluate: from a value function, the width of its change and the greedy decisions to a better value function.
        value: (count state,) the first guess.
        tolerance: relative gap of the bounds to stop at.
        patience: ends an iteration whose bounds do not close.
        progress: called after each round with its number and the relative gap.

    Returns:
        The decisions, the bounds, the last value function, and the number of improvements.
    """
    for number in range(1, patience.most_rounds + 1):
        improved, decision = improve(value)
        least, most = extremes(improved - value)
        bounds = certifier.bound(value, improved, least, most)
        value = advance(certifier.criterion, value, improved, least, most)
        if progress is not None:
            progress(number, bounds.gap)
        if bounds.close(tolerance):
            return decision, bounds, value, number
        patience.note(most - least, bounds)
        # One policy's own operator is much cheaper than the maximum over all.
        value = evaluate(value, most - least, decision)
    raise NotConvergedError(f"the relative gap is still {bounds.gap:.3g} after {patience.most_rounds} rounds")


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
        # e_t = e(V_{t+1}) + gamma e_{t+1}: this step's own rounding, and what the later ones left (`bounds`).
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
    operator = LinearOperator((len(value), len(value)), matvec=residual, dtype=np.float64)
    uneven = change - sum(extremes(change)) / 2  # what is the same everywhere does not widen it
    correction, _ = gmres(operator, uneven, rtol=SHRINK**2, atol=0.0, restart=LEAP, maxiter=1)
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


class Patience:
    """Gives up on an average whose bounds do not close."""

    def __init__(
        self, criterion: Criterion, is_one: bool, rounds: int = _PATIENCE, most_rounds: int = MOST_ROUNDS
    ) -> None:
        """Begin to watch.

        Args:
            criterion: what rewards over time are worth.
            is_one: whether the arms surely have one long run (`post_decision.surely_one_long_run`).
            rounds: after which a change that has hardly become narrower is given up.
            most_rounds: largest number of policy improvements.
        """
        self.criterion, self.is_one, self.rounds, self.most_rounds = criterion, is_one, rounds, most_rounds
        self.narrowest, self.waited = np.inf, 0

    def note(self, width: float, bounds: Bounds) -> None:
        """Look at the width of another change."""
        self.waited += 1
        if width <= _HARDLY * self.narrowest:
            self.narrowest, self.waited = width, 0
        if bounds.high - bounds.low <= 4 * bounds.slack:
            raise NotConvergedError(f"the relative gap is still {bounds.gap:.3g}, and rounding leaves no more digits")
        if self.waited < self.rounds:
            return
        if self.is_one or self.criterion.contracts:
            raise NotConvergedError(
                f"the relative gap stopped closing at {bounds.gap:.3g}: the arms forget very slowly"
            )
        raise NotApplicableError(
            f"the criterion average asks for one long run, and here the bounds on the mean reward stopped closing at "
            f"{bounds.low:.6g} and {bounds.high:.6g}: it depends on where the arms start, or they take very long to "
            f"forget where they were. {INSTEAD_OF_AVERAGE}"
        )
