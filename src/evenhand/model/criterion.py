"""The criterion: what an arm's rewards over time are worth. The only place that knows a formula of the discount.

    discounted   V = E sum_t gamma^t r_t
    average      V = lim_T 1/T E sum_{t<T} r_t
    finite:T     V = E sum_{t<T} gamma^t r_t                (gamma = 1 is allowed here and above)

Each weighs time. Its *total* is what a reward of 1 at every step is worth: 1/(1-gamma), 1, and sum_{t<T} gamma^t. An
occupancy measure q counts visits by these weights and so sums to the total; a budget b at every step allows b total
of use; a floor f on the share of time served asks for f total of visits. What solvers need beyond that:

    Bellman's equation   (T v)(x) = max_u r(x, u) + factor sum_x' P(x' | x, u) v(x'),    factor = gamma or 1
    bounds               with d = T v - v, every policy's value from the initial law mu is at most

                             mu.T v + gamma/(1-gamma) max d                     discounted (MacQueen; Puterman, 6.6)
                             max d                                              average    (Odoni; Puterman, 8.5)
                             mu.T v + (total - 1) max(d, 0)                     finite, on the problem unrolled in time

                         and that of the policy that is greedy in v is at least the same with min in place of max

An *opening* tells the first T steps of discounted time apart: steps 0 to T - 1 weigh gamma^t, and all that comes after
them is one more step, which lasts and weighs gamma^T / (1-gamma). It is worth the same; but a budget may then hold in
each of the first steps, and not only over all time (`solvers.fluid`).

Under `finite:T` the best action depends on the step, so models are *unrolled*: (step, state) becomes the state, and
nothing comes after the last step.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from evenhand.checks import check_fraction, check_positive_int, plain
from evenhand.errors import InvalidInput, UnknownName
from evenhand.typing import Floats

MOST_STEPS = 1_000_000
"""The longest finite horizon."""

USUAL_HORIZON = 300
"""Steps that are simulated of an endless discounted problem."""

USUAL_AVERAGE_HORIZON = 1000
"""Steps that are simulated of an average."""

JUDGED, MOST_JUDGED = 1e-5, 20_000
"""The share of all weight that judging a policy may leave out, and the most steps it takes."""

WARM_UP = 4
"""The first 1/WARM_UP of the steps of a simulated average do not count: the arms are still on their way."""


# -- what every criterion says ---------------------------------------------------------------------------------------


class Criterion(ABC):
    """What a stream of rewards is worth."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Its text form."""

    @property
    @abstractmethod
    def factor(self) -> float:
        """What the value of the next state counts for in Bellman's equation."""

    @property
    @abstractmethod
    def total(self) -> float:
        """What a reward of 1 at every step is worth."""

    @property
    def num_steps(self) -> int | None:
        """Steps that are told apart, after which all ends unless the last one `lasts`; None if all steps are alike."""
        return None

    @property
    def lasts(self) -> bool:
        """Whether the last of the steps lasts for ever, discounted as before."""
        return False

    @property
    def is_average(self) -> bool:
        """Whether only the long run counts."""
        return False

    # The rest of the protocol: bounds from one sweep, then what a simulation asks for.
    @abstractmethod
    def bracket(self, now: float, least: float, most: float) -> tuple[float, float]:
        """Bounds on the best value, from one application of Bellman's operator to any value function v.

        Args:
            now: mu.T v, the improved value from the initial law.
            least: the smallest change (T v - v)(x) over all states.
            most: the largest.

        Returns:
            What the greedy policy has at least, and what every policy has at most.
        """

    @abstractmethod
    def simulated_steps(self, horizon: int | None) -> int:
        """How many steps are to be simulated.

        Args:
            horizon: what the user asks for; None for the usual.
        """

    @abstractmethod
    def judging_steps(self, share: float = JUDGED) -> int:
        """How many steps show nearly all of a policy's worth: what is left weighs less than a share of the total."""

    @abstractmethod
    def time_weights(self, horizon: int) -> Floats:
        """(step,) what the reward of each simulated step counts for.

        Args:
            horizon: how many steps are simulated.
        """

    @abstractmethod
    def beyond(self, horizon: int) -> float | None:
        """The weight of the time that a simulation of `horizon` steps leaves out; None if that cannot be told."""


# -- endless time, discounted ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Discounted(Criterion):
    """A reward one step later is worth `discount` of one today."""

    discount: float
    """In [0, 1)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "discount", check_fraction(self.discount, "discount", below_one=True))

    @property
    def name(self) -> str:
        """`discounted`."""
        return "discounted"

    @property
    def factor(self) -> float:
        """The discount."""
        return self.discount

    @property
    def rate(self) -> float:
        """1 - gamma: the chance that a step is the last, of a horizon of the same worth."""
        return 1 - self.discount

    @property
    def total(self) -> float:
        """1 / (1 - gamma)."""
        return 1 / self.rate

    def bracket(self, now: float, least: float, most: float) -> tuple[float, float]:
        """MacQueen's bounds."""
        # gamma/(1-gamma): what a change of 1 at every later step is worth.
        ahead = self.discount / self.rate
        return now + ahead * least, now + ahead * most

    def simulated_steps(self, horizon: int | None) -> int:
        """What the user asks for."""
        return USUAL_HORIZON if horizon is None else check_positive_int(horizon, "horizon")

    def time_weights(self, horizon: int) -> Floats:
        """gamma^t."""
        # gamma^0 is 1 even for a discount of 0: today always counts.
        return _powers(self.discount, horizon)

    def beyond(self, horizon: int) -> float:
        """gamma^horizon / (1 - gamma)."""
        return float(self.discount**horizon / self.rate)

    def judging_steps(self, share: float = JUDGED) -> int:
        """Until gamma^t is below the share, within reason."""
        # With a discount of 0 only the first step counts.
        if self.discount == 0:
            return 1
        # gamma^t <= share, solved for t; both logarithms are negative.
        return int(np.clip(np.ceil(np.log(share) / np.log(self.discount)), 1, MOST_JUDGED))


# Only the telling apart of steps differs: `total`, `factor` and `bracket` are those of discounted time.
@dataclass(frozen=True)
class Opening(Discounted):
    """Discounted time whose first steps are told apart; what comes after them is one more step, which lasts."""

    steps: int
    """How many are told apart."""

    @property
    def num_steps(self) -> int:
        """Those, and the one that lasts."""
        return self.steps + 1

    @property
    def lasts(self) -> bool:
        """The last one does."""
        return True

    def time_weights(self, horizon: int) -> Floats:
        """gamma^t, and for the step that lasts all that is left."""
        first = _powers(self.discount, min(horizon, self.steps))
        # Exactly what `beyond` would leave out, so that all weights sum to the total.
        return first if horizon <= self.steps else np.append(first, self.beyond(self.steps))


# -- endless time, the mean of a step --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Average(Criterion):
    """The mean reward of a step in the long run."""

    @property
    def name(self) -> str:
        """`average`."""
        return "average"

    @property
    def factor(self) -> float:
        """1: later counts as much as now."""
        return 1.0

    @property
    def total(self) -> float:
        """1: a mean."""
        return 1.0

    @property
    def is_average(self) -> bool:
        """It is."""
        return True

    def bracket(self, now: float, least: float, most: float) -> tuple[float, float]:
        """The span of the change."""
        return least, most

    def simulated_steps(self, horizon: int | None) -> int:
        """What the user asks for, at least as many as leave one after the warm-up."""
        return USUAL_AVERAGE_HORIZON if horizon is None else check_positive_int(horizon, "horizon")

    def judging_steps(self, share: float = JUDGED) -> int:
        """The usual."""
        return USUAL_AVERAGE_HORIZON

    def time_weights(self, horizon: int) -> Floats:
        """Nothing during the warm-up, then equal shares."""
        warm = horizon // WARM_UP
        # The weights sum to 1, the total, whatever the horizon.
        return np.where(np.arange(horizon) < warm, 0.0, 1 / (horizon - warm))

    def beyond(self, horizon: int) -> None:
        """How far the arms still are from their long run cannot be told from a simulation."""
        return


# -- a horizon -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Finite(Criterion):
    """The rewards of the first steps, and nothing after them."""

    steps: int
    """How many steps there are."""

    discount: float = 1.0
    """In [0, 1]."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", check_positive_int(self.steps, "steps", MOST_STEPS))
        object.__setattr__(self, "discount", check_fraction(self.discount, "discount"))

    @property
    def name(self) -> str:
        """`finite:50`."""
        return f"finite:{self.steps}"

    @property
    def factor(self) -> float:
        """The discount."""
        return self.discount

    @property
    def total(self) -> float:
        """The sum of gamma^t over the steps."""
        # `fsum`: the total multiplies bounds, and of a million powers a plain sum would lose digits.
        return math.fsum(_powers(self.discount, self.steps))

    @property
    def num_steps(self) -> int:
        """How many there are."""
        return self.steps

    def bracket(self, now: float, least: float, most: float) -> tuple[float, float]:
        """An error at every step after the first, on the unrolled problem."""
        # The steps after the first weigh total - 1 together, and each adds a change of at most `most`, at least
        # `least`.
        ahead = self.total - 1
        return now + ahead * min(least, 0.0), now + ahead * max(most, 0.0)

    def simulated_steps(self, horizon: int | None) -> int:
        """All of them; another horizon is refused."""
        if horizon is not None and horizon != self.steps:
            raise InvalidInput(f"horizon: the criterion {self.name} has {self.steps} steps, not {horizon!r}")
        return self.steps

    def judging_steps(self, share: float = JUDGED) -> int:
        """All of them."""
        return self.steps

    def time_weights(self, horizon: int) -> Floats:
        """gamma^t."""
        return _powers(self.discount, horizon)

    def beyond(self, horizon: int) -> float:
        """What the steps after the horizon weigh."""
        # Rounding of two sums may leave a little below 0.
        return max(0.0, self.total - math.fsum(_powers(self.discount, min(horizon, self.steps))))


def _powers(base: float, number: int) -> Floats:
    return np.asarray(base ** np.arange(number, dtype=np.float64))


# -- reading one -----------------------------------------------------------------------------------------------------


def parse_criterion(text: str, discount: float) -> Criterion:
    """Read a criterion from its text form.

    Args:
        text: `discounted`, `average` or `finite:T`.
        discount: of the problem; below 1 if the criterion is `discounted`.
    """
    kind, colon, rest = text.strip().lower().partition(":")
    if kind not in ("discounted", "average", "finite"):
        raise UnknownName("criterion", kind, ["discounted", "average", "finite"])
    if kind == "finite":
        return Finite(_read_steps(rest, text), discount)
    if colon:
        raise InvalidInput(f"criterion '{text}': {kind} takes no number")
    if kind == "average":
        return Average()
    if discount >= 1:
        raise InvalidInput(
            f"criterion 'discounted' needs a discount below 1, got {plain(discount)}; "
            "a discount of 1 goes with the criteria average and finite:T"
        )
    return Discounted(discount)


def _read_steps(text: str, whole: str) -> int:
    try:
        return check_positive_int(int(text), "steps", MOST_STEPS)
    except ValueError:
        raise InvalidInput(
            f"criterion '{whole}': expected a number of steps from 1 to {MOST_STEPS}, as in finite:50"
        ) from None


def as_criterion(criterion: str | Criterion, discount: float) -> Criterion:
    """The criterion that was meant, by text or as an object.

    Args:
        criterion: a text form or a criterion.
        discount: of the problem, for the text forms.
    """
    if isinstance(criterion, str):
        return parse_criterion(criterion, discount)
    if not isinstance(criterion, Criterion):
        raise InvalidInput(f"criterion: expected text such as 'average' or 'finite:50', got {criterion!r}")
    return criterion
