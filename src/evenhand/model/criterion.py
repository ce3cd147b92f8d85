"""The criterion: the value of an arm's rewards over time.

    discounted   V = E sum_t gamma^t r_t
    average      V = lim_T 1/T E sum_{t<T} r_t
    finite:T     V = E sum_{t<T} gamma^t r_t                (gamma = 1 is allowed here and above)

Each weights time. Its *total* is the value of a reward of 1 at every step: 1/(1-gamma), 1, and sum_{t<T} gamma^t. An
occupancy measure q counts visits by these weights and so sums to the total; a budget b at every step allows b total
of use; a floor f on the share of time served requires f total of visits. What solvers need beyond that:

    Bellman's equation   (T v)(x) = max_u r(x, u) + factor sum_x' P(x' | x, u) v(x'),    factor = gamma or 1
    bounds               with d = T v - v, every policy's value from the initial distribution mu is at most

                             mu.T v + gamma/(1-gamma) max d                     discounted (MacQueen; Puterman, 6.6)
                             max d                                              average    (Odoni; Puterman, 8.5)
                             mu.T v + (total - 1) max(d, 0)                     finite, on the problem unrolled in time

                         and that of the policy that is greedy in v is at least the same with min in place of max
    flow                 of the shares of time x_t = q_t / weight_t in each distinct step, a *layer* (`Criterion.flow`)

An *opening* separates the first T steps of discounted time: steps 0 to T - 1 weigh gamma^t, and all later ones are one
more step, which lasts and weighs gamma^T / (1-gamma). The value is the same; but a budget may then hold in each of the
first steps, and not only over all time (`solvers.fluid`).

Under `finite:T` the best action depends on the step, so models are *unrolled*: (step, state) becomes the state, and
the last step has no successor.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from evenhand.checks import Faults, check_fraction, check_positive_int, number_fault, plain
from evenhand.errors import InvalidInputError, UnknownNameError
from evenhand.typing import Floats

if TYPE_CHECKING:
    from scipy import sparse

MOST_STEPS = 1_000_000
"""Longest finite horizon."""

USUAL_HORIZON = 300
"""Default number of simulated steps of an infinite discounted horizon."""

USUAL_AVERAGE_HORIZON = 1000
"""Default number of simulated steps of an average."""

JUDGED, MOST_JUDGED = 1e-5, 20_000
"""Share of the total that scoring a policy may leave out, and its maximum number of steps."""

WARM_UP = 4
"""The first 1/WARM_UP of the steps of a simulated average are discarded as transient."""


# -- the protocol ----------------------------------------------------------------------------------------------------


class Criterion(ABC):
    """Value of a stream of rewards."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Text form."""

    @property
    @abstractmethod
    def description(self) -> str:
        """Definition of a value, in one sentence without its period."""

    @property
    @abstractmethod
    def factor(self) -> float:
        """Factor of the value of the next state in Bellman's equation."""

    @property
    @abstractmethod
    def total(self) -> float:
        """Value of a reward of 1 at every step."""

    lasts = False
    """True if the last step lasts for ever, discounted as before."""

    is_average = False
    """True if the value is that of the long run."""

    @property
    def num_steps(self) -> int | None:
        """Number of distinct steps, after which all ends unless the last one `lasts`; None if steps do not differ."""
        return None

    @property
    def is_stationary(self) -> bool:
        """True if steps do not differ, so that some optimal policy is stationary."""
        return self.num_steps is None

    @property
    def num_layers(self) -> int:
        """Number of tables that a policy or value function needs: one per distinct step."""
        return self.num_steps or 1

    @property
    def layer_weights(self) -> Floats:
        """(layer,) weight of a visit in each distinct step; together the total."""
        return np.array([self.total]) if self.is_stationary else self.time_weights(self.num_layers)

    @property
    def flow(self) -> "tuple[sparse.csr_array, Floats]":
        """Flow of the shares of time x: what arrives in a layer from others, and from the initial distribution.

        sum_a x_t(s, a) = sum_u arrivals[t, u] sum_{s', a} p(s | s', a) x_u(s', a) + start[t] mu(s)

        Returns:
            (layer, layer) arrivals, and (layer,) start: all 0 if x is the long run, which sums to 1.
        """
        from scipy import sparse  # only linear programs need it

        if self.is_stationary:
            return sparse.csr_array([[self.factor]]), np.array([1 - self.factor])
        return sparse.csr_array(sparse.eye_array(self.num_layers, k=-1)), np.arange(self.num_layers) == 0

    @property
    def contracts(self) -> bool:
        """True if Bellman's operator is one stationary contraction: its factor is below 1."""
        return self.is_stationary and self.factor < 1

    def following(self, ahead: Floats) -> Floats:
        """(arm, step, state) values of the next step: after the last one nothing, or the same again if it lasts.

        Args:
            ahead: (arm, step, state) values of each step.
        """
        last = ahead[:, -1:] if self.lasts else np.zeros_like(ahead[:, -1:])
        return np.concatenate([ahead[:, 1:], last], axis=1)

    @abstractmethod
    def bracket(self, now: float, least: float, most: float) -> tuple[float, float]:
        """Bounds on the optimal value, from one application of Bellman's operator to any value function v.

        Args:
            now: mu.T v, the improved value from the initial distribution.
            least: smallest change (T v - v)(x) over all states.
            most: largest change.

        Returns:
            A lower bound on the value of the greedy policy, and an upper bound on that of every policy.
        """

    def simulated_steps(self, horizon: int | None) -> int:
        """Number of steps to simulate.

        Args:
            horizon: requested number; None for the default.
        """
        return USUAL_HORIZON if horizon is None else check_positive_int(horizon, "horizon")

    def fixed_steps(self, steps: int) -> int | None:
        """Return a number of steps, or None if it is determined during the simulation."""
        return steps

    @abstractmethod
    def judging_steps(self, share: float = JUDGED) -> int:
        """Number of steps after which the remaining time weighs less than a share of the total."""

    def time_weights(self, horizon: int) -> Floats:
        """(step,) weight of the reward of each simulated step, by default a power of the factor.

        Args:
            horizon: number of simulated steps.
        """
        return np.asarray(self.factor ** np.arange(horizon, dtype=np.float64))

    @abstractmethod
    def beyond(self, horizon: int) -> float | None:
        """Weight of the time that a simulation of `horizon` steps leaves out; None if unknown."""


# -- discounted ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Discounted(Criterion):
    """Discounted sum of rewards over an infinite horizon."""

    name = "discounted"

    discount: float
    """In [0, 1)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "discount", check_fraction(self.discount, "discount", below_one=True))

    @property
    def description(self) -> str:
        """Discounted sum."""
        return (
            f"the expected sum of all rewards, where a reward one step later counts {plain(self.discount)} of one now"
        )

    @property
    def factor(self) -> float:
        """The discount."""
        return self.discount

    @property
    def rate(self) -> float:
        """1 - gamma: probability that a step is the last, of a geometric horizon of the same value."""
        return 1 - self.discount

    @property
    def total(self) -> float:
        """1 / (1 - gamma)."""
        return 1 / self.rate

    def bracket(self, now: float, least: float, most: float) -> tuple[float, float]:
        """MacQueen's bounds."""
        # gamma/(1-gamma): value of a change of 1 at every later step.
        ahead = self.discount / self.rate
        return now + ahead * least, now + ahead * most

    def beyond(self, horizon: int) -> float:
        """gamma^horizon / (1 - gamma)."""
        return float(self.discount**horizon / self.rate)

    def judging_steps(self, share: float = JUDGED) -> int:
        """Until gamma^t is below the share, or the maximum is reached."""
        if self.discount == 0:
            return 1
        # gamma^t <= share, solved for t; both logarithms are negative.
        return int(np.clip(np.ceil(np.log(share) / np.log(self.discount)), 1, MOST_JUDGED))


@dataclass(frozen=True)
class Opening(Discounted):
    """Discounted time whose first steps are distinct; all later ones are one more step, which lasts."""

    lasts = True

    steps: int
    """Number of distinct first steps."""

    @property
    def num_steps(self) -> int:
        """The first steps, and the one that lasts."""
        return self.steps + 1

    @property
    def flow(self) -> "tuple[sparse.csr_array, Floats]":
        """Flow from step to step, and in the step that lasts."""
        arrivals, start = super().flow
        arrivals = arrivals.tolil()
        # q_T = p.gamma (q_{T-1} + q_T), with q_t = gamma^t x_t but q_T = gamma^T / (1-gamma) x_T.
        arrivals[-1, -2:] = self.rate, self.factor
        return arrivals.tocsr(), start

    def time_weights(self, horizon: int) -> Floats:
        """gamma^t, and the remaining weight for the step that lasts."""
        first = super().time_weights(min(horizon, self.steps))
        # The weights sum to the total.
        return first if horizon <= self.steps else np.append(first, self.beyond(self.steps))


# -- long-run average ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Average(Criterion):
    """Mean reward per step in the long run."""

    name = "average"
    description = "the expected reward per step in the long run, whatever the initial state"
    factor = total = 1.0
    is_average = True

    def bracket(self, now: float, least: float, most: float) -> tuple[float, float]:
        """Odoni's bounds: the span of the change."""
        return least, most

    def simulated_steps(self, horizon: int | None) -> int:
        """The requested number."""
        return super().simulated_steps(USUAL_AVERAGE_HORIZON if horizon is None else horizon)

    def fixed_steps(self, steps: int) -> None:
        """None: the simulation runs until the initial state is forgotten."""
        return

    def judging_steps(self, share: float = JUDGED) -> int:
        """The default number."""
        return USUAL_AVERAGE_HORIZON

    def time_weights(self, horizon: int) -> Floats:
        """0 during the warm-up, then equal weights."""
        warm = horizon // WARM_UP
        # The weights sum to 1, the total, whatever the horizon.
        return np.where(np.arange(horizon) < warm, 0.0, 1 / (horizon - warm))

    def beyond(self, horizon: int) -> None:
        """None: the distance from the long run is unknown."""
        return


# -- finite horizon --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Finite(Criterion):
    """Sum of rewards over a finite horizon."""

    steps: int
    """Length of the horizon."""

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
    def description(self) -> str:
        """Sum over the horizon."""
        less = "" if self.discount == 1 else f", each step counting {plain(self.discount)} of the one before"
        return f"the expected sum of the rewards of {self.steps} steps{less}"

    @property
    def factor(self) -> float:
        """The discount."""
        return self.discount

    @property
    def total(self) -> float:
        """The sum of gamma^t over the steps."""
        # `fsum`: the total multiplies bounds, and of a million powers a plain sum would lose digits.
        return math.fsum(self.time_weights(self.steps))

    @property
    def num_steps(self) -> int:
        """Length of the horizon."""
        return self.steps

    def bracket(self, now: float, least: float, most: float) -> tuple[float, float]:
        """Bounds from an error at every step after the first, on the unrolled problem."""
        # The steps after the first weigh total - 1 together, and each adds a change of at most `most`, at least
        # `least`.
        ahead = self.total - 1
        return now + ahead * min(least, 0.0), now + ahead * max(most, 0.0)

    def simulated_steps(self, horizon: int | None) -> int:
        """The whole horizon; any other number is refused."""
        if horizon is not None and horizon != self.steps:
            raise InvalidInputError(f"horizon: the criterion {self.name} has {self.steps} steps, not {horizon!r}")
        return self.steps

    def judging_steps(self, share: float = JUDGED) -> int:
        """The whole horizon."""
        return self.steps

    def beyond(self, horizon: int) -> float:
        """Weight of the steps after the simulated ones."""
        # Rounding of two sums may leave a little below 0.
        return max(0.0, self.total - math.fsum(self.time_weights(min(horizon, self.steps))))


# -- text forms ------------------------------------------------------------------------------------------------------


def parse_criterion(text: str, discount: float) -> Criterion:
    """Read a criterion from its text form.

    Args:
        text: `discounted`, `average` or `finite:T`.
        discount: discount of the problem; below 1 if the criterion is `discounted`.
    """
    kind, colon, rest = text.strip().lower().partition(":")
    if kind not in ("discounted", "average", "finite"):
        raise UnknownNameError("criterion", kind, ["discounted", "average", "finite"])
    if kind == "finite":
        is_short = len(rest) < 100 and rest.isascii()  # Python refuses numbers of thousands of digits
        if not (is_short and rest.strip().isdecimal()) or not 1 <= int(rest) <= MOST_STEPS:
            expected = f"a number of steps from 1 to {MOST_STEPS}, as in finite:50"
            raise InvalidInputError(f"criterion '{text}': expected {expected}")
        return Finite(int(rest), discount)
    if colon:
        raise InvalidInputError(f"criterion '{text}': {kind} takes no number")
    if kind == "average":
        return Average()
    if discount >= 1:
        raise InvalidInputError(
            f"criterion 'discounted' needs a discount below 1, got {plain(discount)}; "
            "a discount of 1 goes with the criteria average and finite:T"
        )
    return Discounted(discount)


def as_criterion(criterion: str | Criterion, discount: float) -> Criterion:
    """Return a criterion given as text or as an object.

    Args:
        criterion: a text form or a criterion.
        discount: discount of the problem, for the text forms.
    """
    if isinstance(criterion, str):
        return parse_criterion(criterion, discount)
    if not isinstance(criterion, Criterion):
        raise InvalidInputError(f"criterion: expected text such as 'average' or 'finite:50', got {criterion!r}")
    return criterion


def read_criterion(discount: object, criterion: object, faults: Faults) -> tuple[float, Criterion | None]:
    """Read a discount and a criterion that are consistent."""
    # Only the discounted criterion needs a discount below 1.
    below_one = criterion == "discounted" or (isinstance(criterion, Criterion) and criterion.name == "discounted")
    if discount is None:
        discount = getattr(criterion, "discount", None if below_one else 1.0)
    message = "" if discount is None else number_fault(discount, most=1.0, below=1.0 if below_one else math.inf)
    if discount is None:
        message = "missing; give one below 1, or a criterion that needs none: average or finite:T"
        faults.add("discount", message)
    elif message:
        hint = "; a discount of 1 goes with the criteria average and finite:T" if below_one and discount == 1 else ""
        faults.add("discount", message + hint)
    number = 0.0 if message else float(discount)  # type: ignore[arg-type]  # a number, by the check above
    try:
        read = as_criterion(criterion, number)  # type: ignore[arg-type]  # refused below
    except InvalidInputError as error:
        faults.add("criterion", str(error).removeprefix("criterion: "))
        return number, None
    if (own := getattr(read, "discount", number)) != number and not message:
        faults.add("criterion", f"its discount is {plain(own)}, and the problem's is {plain(number)}")
    return number, read
