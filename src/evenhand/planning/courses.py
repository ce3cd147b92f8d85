"""The courses of arms under the shares of actions in their records: what is to be expected, step by step.

No arm looks at another, so each is a Markov chain,

    P[s, s'] = sum_a share[s, a] p[s, a, s']

started where the arm was first seen and followed for as long as it was. Its law is pushed forward exactly. With a
figure f(s, a) of a step (was it served; what was it worth) and G the sum of them so far, the moments come along:

    mu'(s') = sum_{s,a} share p mu(s)
    m'(s')  = sum_{s,a} share p (m(s) + f mu(s))                                    m(s) = E[G; s]
    q'(s')  = sum_{s,a} share p (q(s) + 2 f m(s) + f^2 mu(s))                       q(s) = E[G^2; s]

Arms are independent, so means and variances add up, and the number of arms that are served at a step is a sum of
unequal coins (Poisson binomial), whose quantiles are exact up to EXACT_UP_TO arms. Other intervals are normal ones.
Steps that were not recorded are idle, as they are for the fit unless it carried actions on: a log does not say so.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from evenhand.checks import Faults, check_memory
from evenhand.errors import InvalidInput, TableError
from evenhand.fitting.log import Log
from evenhand.fitting.shares import decisions_of, recorded_shares
from evenhand.model.coupled import CoupledMDP
from evenhand.model.places import quoted
from evenhand.typing import Bools, Floats, Indices, Ints

EXACT_UP_TO = 2000
"""Arms at a step up to which the quantiles of how many are served are exact."""


@dataclass(frozen=True, eq=False)
class Forecast:
    """A figure as it was recorded, and as the model has it."""

    seen: Floats
    """(...,) what came."""

    mean: Floats
    """(...,) what was to be expected."""

    lower: Floats
    """(...,) where it lies with the probability asked for: from here"""

    upper: Floats
    """(...,) to here."""

    @property
    def inside(self) -> Bools:
        """(...,) whether what came lies within the interval, but for rounding."""
        room = 1e-9 * (1 + np.abs(self.upper) + np.abs(self.lower))
        return np.asarray((self.seen >= self.lower - room) & (self.seen <= self.upper + room))


# The records, in the numbers of the model


class _Model(NamedTuple):
    """The chain of one type of the records, in the order of the records' states and actions."""

    shares: Floats
    """(state, action)"""

    transitions: Floats
    """(state, action, next_state)"""

    rewards: Floats
    """(state, action)"""

    usage: Floats
    """(state, action, resource)"""


class Course:
    """What was recorded, ready to be followed: like arms together."""

    def __init__(self, problem: CoupledMDP, log: Log) -> None:
        """Match names.

        Args:
            problem: the model.
            log: the records.
        """
        self.problem, self.log = problem, log
        self.shares = recorded_shares(log)
        self.blocks = _find_blocks(problem, log)
        self.models = [self._model(kind) for kind in range(len(log.types))]
        # Arms may begin between the steps of others: each is counted from the whole step of its first row.
        first = log.time[self.first][np.cumsum(self.begins) - 1]
        # Whole steps since then; times are read from dates, and may be off by rounding.
        self.time: Ints = (np.floor(first + 1e-6) + np.rint(log.time - first)).astype(np.int64)
        self.is_decision = decisions_of(log)
        if not self.is_decision.any():
            raise InvalidInput("replay: no arm has two rows with an action in the first; there is nothing to replay")

    def _model(self, kind: int) -> _Model:
        tables, (block, states, actions) = self.problem.tables, self.blocks[kind]
        # Tables are padded and in the model's order; here they are in the records' order, and no larger than these.
        pairs = np.ix_(states, actions)
        transitions = tables.transitions[block][np.ix_(states, actions, states)]
        return _Model(self.shares.shares[kind], transitions, tables.rewards[block][pairs], tables.usage[block][pairs])

    @cached_property
    def begins(self) -> Bools:
        """(row,) whether it is the first of its arm."""
        return np.append(True, self.log.arm[1:] != self.log.arm[:-1])

    @cached_property
    def first(self) -> Ints:
        """(arm,) the number of its first row."""
        return np.flatnonzero(self.begins)

    @cached_property
    def last(self) -> Ints:
        """(arm,) the number of its last row."""
        return np.append(self.first[1:], len(self.log.arm)) - 1

    @property
    def span(self) -> int:
        """Steps from the first row of an arm to its last, at the most."""
        return int((self.time[self.last] - self.time[self.first]).max())

    @cached_property
    def kinds(self) -> tuple[Ints, Ints]:
        """(arm,) the class of each arm, and (class,) one arm of it.

        Alike are arms of one type and first state, with rows at the same times; with gaps each is its own.
        """
        begin, end = self.time[self.first], self.time[self.last]
        rows = self.last - self.first
        decided = np.add.reduceat(self.is_decision, self.first)
        # Without gaps: a row at every step, and a decision in all but the last.
        whole = (rows == end - begin) & (decided == rows)
        # -1 for whole records, which may be alike; a number of its own for every other.
        own = np.where(whole, -1, np.arange(len(begin)))
        arm = self.log.arm[self.first]
        keys = np.stack([self.log.type_of[arm], self.log.state[self.first], begin, end, own], axis=1)
        _, one, number = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        return number.reshape(-1), one


def _find_blocks(problem: CoupledMDP, log: Log) -> list[tuple[int, Ints, Ints]]:
    """(type,) the block of each type of the records, and its numbers of their states and actions."""
    labels = problem.tables.labels or (("", (), ()),) * len(problem.tables)
    # Reversed, so that the first block of a name is meant.
    places = {name: block for block, (name, _, _) in reversed(list(enumerate(labels)))}
    faults, found = Faults(), []
    for name in log.types:
        # One type on both sides needs no names.
        block = places.get(name, 0 if len(log.types) == len(labels) == 1 else None)
        if block is None:
            faults.add("", f"the model has no arms {quoted(name)}; it has {', '.join(map(quoted, places))}")
            continue
        numbers = []
        for kind, own, known in (("state", log.states, labels[block][1]), ("action", log.actions, labels[block][2])):
            place = {label: i for i, label in enumerate(known)}
            for missing in (label for label in own if label not in place):
                faults.add(
                    f"arms {quoted(name)}", f"the model has no {kind} {quoted(missing)}, and the records have it"
                )
            # A stand-in for what is missing, which has been noted.
            numbers.append(np.array([place.get(label, 0) for label in own], dtype=np.int64))
        found.append((block, numbers[0], numbers[1]))
    if faults:
        raise TableError(faults.found[:30], "the records and the model")
    return found


# Following the arms


class _Figure(NamedTuple):
    """A figure of steps as matrices of a chain: what it does to the moments."""

    once: Floats
    """(state, next_state) sum_a share p f."""

    squared: Floats
    """(state, next_state) sum_a share p f^2."""


class _Chain(NamedTuple):
    """One type under its shares."""

    on: Floats
    """(state, next_state) a step under the shares."""

    missed: Floats
    """(state, next_state) a step that was not recorded: idle."""

    figures: tuple[_Figure, ...]
    """One for each action but the idle one, then the reward."""

    @classmethod
    def of(cls, model: _Model) -> "_Chain":
        """The chain of a type."""
        steps = model.shares[..., None] * model.transitions
        # The idle action is the first of the records, and is not told.
        actions = [steps[:, a] for a in range(1, steps.shape[1])]
        # f and f^2 of the head, summed over actions.
        worth = [np.einsum("sa,saz->sz", model.rewards**power, steps) for power in (1, 2)]
        # An action is taken or not: f = f^2.
        figures = (*(_Figure(one, one) for one in actions), _Figure(worth[0], worth[1]))
        return cls(steps.sum(axis=1), model.transitions[:, 0], figures)


def follow(course: Course, level: float) -> dict[str, Any]:
    """All that is seen and expected, step by step: fields of a `Replay`.

    Args:
        course: the records.
        level: the probability of intervals.
    """
    log, (number_of, one) = course.log, course.kinds
    num_steps, A, S = int(course.time.max()) + 1, len(log.actions), len(log.states)
    sizes = np.bincount(number_of, minlength=len(one))
    F = A  # a figure for each action but the idle one, and the reward
    # The law, and for each figure m and q: (class, state) each.
    check_memory(8.0 * len(one) * S * (1 + 2 * F), f"the courses of {len(one)} kinds of arms", "Replay fewer arms.")
    crowd = _Crowd(course, one, sizes, F)
    recorded, decided = _by_step(course, number_of, one, num_steps)
    walk = _Walk(num_steps, len(log.types), A, S)
    # Enter, look, move, sum up: what is noted at a step is before its decision, sums are after it.
    for step in range(num_steps):
        crowd.enter(step)
        walk.note(step, crowd, recorded[step], decided[step])
        crowd.move(step, decided[step])
        walk.sum_up(step, crowd)
    return _told(course, walk, level)


def _by_step(course: Course, number_of: Ints, one: Ints, num_steps: int) -> tuple[Bools, Bools]:
    """(step, class) whether arms of a class have a row at a step after their first, and whether a decision."""
    # One arm of each class stands for it; only its rows are looked at.
    chosen = np.zeros(len(course.first), dtype=np.bool_)
    chosen[one] = True
    arm_of_row = np.cumsum(course.begins) - 1
    rows = np.flatnonzero(chosen[arm_of_row])
    recorded, decided = np.zeros((2, num_steps, len(one)), dtype=np.bool_)
    later = rows[~course.begins[rows]]
    recorded[course.time[later], number_of[arm_of_row[later]]] = True
    made = rows[course.is_decision[rows]]
    decided[course.time[made], number_of[arm_of_row[made]]] = True
    return recorded, decided


class _Crowd:
    """The laws of all kinds of arms, and the moments of their figures so far."""

    def __init__(self, course: Course, one: Ints, sizes: Ints, num_figures: int) -> None:
        first = course.first[one]
        self.sizes = sizes
        self.type: Ints = course.log.type_of[course.log.arm[first]].astype(np.int64)
        self.begin, self.end = course.time[first], course.time[course.last[one]]
        self.start: Indices = course.log.state[first]
        self.chains = [_Chain.of(model) for model in course.models]
        self.models = course.models
        shape = (len(one), len(course.log.states))
        self.law = np.zeros(shape)
        self.once = np.zeros((num_figures, *shape))
        self.twice = np.zeros((num_figures, *shape))

    def enter(self, step: int) -> None:
        """Arms whose first row is at this step begin where they were."""
        new = np.flatnonzero(self.begin == step)
        self.law[new, self.start[new]] = 1.0

    def move(self, step: int, decided: Bools) -> None:
        """Every arm that is not at its end makes a step, and its figures add up."""
        going = (self.begin <= step) & (step < self.end)
        for kind, chain in enumerate(self.chains):
            # Arms with a decision at this step follow the shares, those without one idle. Figures stay as they are
            # then, but go along with the state.
            acting = np.flatnonzero(going & decided & (self.type == kind))
            if len(acting):
                self._act(acting, chain)
            missing = np.flatnonzero(going & ~decided & (self.type == kind))
            if len(missing):
                for moments in (self.law, *self.once, *self.twice):
                    moments[missing] = moments[missing] @ chain.missed

    def _act(self, arms: Ints, chain: _Chain) -> None:
        law = self.law[arms]
        for number, figure in enumerate(chain.figures):
            once, twice = self.once[number, arms], self.twice[number, arms]
            # q before m, and both before the law: each needs the old values of the ones after it.
            self.twice[number, arms] = twice @ chain.on + 2 * once @ figure.once + law @ figure.squared
            self.once[number, arms] = once @ chain.on + law @ figure.once
        self.law[arms] = law @ chain.on


class _Walk:
    """What is expected at each step, with variances."""

    def __init__(self, num_steps: int, num_types: int, num_actions: int, num_states: int) -> None:
        self.coins: list[tuple[Floats, Ints]] = []
        self.reward = np.zeros((num_steps, 2))
        self.states = np.zeros((num_steps, num_states, 2))
        self.so_far = np.zeros((num_steps, num_types, num_actions, 2))

    def note(self, step: int, crowd: _Crowd, recorded: Bools, decided: Bools) -> None:
        """The chances of those who have a row at the step."""
        chances, mean, second = [], np.zeros(len(crowd.law)), np.zeros(len(crowd.law))
        for kind, model in enumerate(crowd.models):
            own = np.flatnonzero(decided & (crowd.type == kind))
            # (class, action) chances of each action, and how many arms have them.
            chances.append(np.column_stack([crowd.law[own] @ model.shares[:, 1:], crowd.sizes[own]]))
            mean[own] = crowd.law[own] @ (model.shares * model.rewards).sum(axis=1)
            second[own] = crowd.law[own] @ (model.shares * model.rewards**2).sum(axis=1)
        together = np.concatenate(chances)
        self.coins.append((together[:, :-1], together[:, -1].astype(np.int64)))
        # Var = E f^2 - (E f)^2, arm by arm; rounding may leave a little below 0.
        self.reward[step] = crowd.sizes @ mean, crowd.sizes @ np.maximum(second - mean**2, 0.0)
        law, sizes = crowd.law[recorded], crowd.sizes[recorded]
        # A state is entered or not: the variance of a coin.
        self.states[step, :, 0], self.states[step, :, 1] = sizes @ law, sizes @ (law * (1 - law))

    def sum_up(self, step: int, crowd: _Crowd) -> None:
        """The moments of all figures so far, by type."""
        once, twice = crowd.once.sum(axis=2), crowd.twice.sum(axis=2)
        # Over all states an arm may be in by now: E G^2 - (E G)^2.
        spread = np.maximum(twice - once**2, 0.0)
        for kind in range(self.so_far.shape[1]):
            own = crowd.type == kind
            self.so_far[step, kind, :, 0] = once[:, own] @ crowd.sizes[own]
            self.so_far[step, kind, :, 1] = spread[:, own] @ crowd.sizes[own]


# What is told


def _told(course: Course, walk: _Walk, level: float) -> dict[str, Any]:
    """The fields of a Replay that are about the records."""
    log, rows = course.log, course.is_decision
    num_steps, A, S, T = len(walk.coins), len(log.actions), len(log.states), len(log.types)
    kind, action, time = log.type_of[log.arm[rows]], log.action[rows], course.time[rows]
    served = np.zeros((num_steps, T, A))
    # What was seen: counted by step, type and action.
    np.add.at(served, (time, kind, action), 1.0)
    worth = np.stack([model.rewards for model in course.models])[kind, log.state[rows], action]
    # A reward that was recorded is what came; without one, the model's.
    if log.reward is not None:
        worth = np.where(np.isfinite(log.reward[rows]), log.reward[rows], worth)
    worst, best = _extremes(course, kind, worth)
    present = np.bincount(time, minlength=num_steps)
    # Steps without a decision are left out.
    kept = np.flatnonzero(present)
    earned = np.bincount(time, weights=worth, minlength=num_steps)
    numbers = np.maximum(np.bincount(kind, minlength=T), 1)
    later = ~course.begins
    occupied = np.zeros((num_steps, S))
    np.add.at(occupied, (course.time[later], log.state[later]), 1.0)
    total = walk.so_far[-1]
    by_type = np.bincount(kind, weights=worth, minlength=T) / numbers
    # Means divide by the number, variances by its square.
    scale = np.stack([numbers, numbers.astype(np.float64) ** 2], axis=-1)
    whole = np.stack([present[kept], present[kept].astype(np.float64) ** 2], axis=-1)
    return {
        "steps": kept,
        "present": present[kept],
        "served": _coins(served.sum(axis=1)[kept, 1:], [walk.coins[step] for step in kept], level),
        "so_far": _normal(
            served.sum(axis=1)[:, 1:].cumsum(axis=0), walk.so_far.sum(axis=1)[:, :-1], level, kept, least=0.0
        ),
        "rewards": _normal(
            earned[kept] / present[kept], walk.reward[kept] / whole, level, least=worst.min(), most=best.max()
        ),
        "occupied": _normal(occupied[kept], walk.states[kept], level, least=0.0),
        "totals": _normal(served.sum(axis=0)[:, 1:], total[:, :-1], level, least=0.0),
        "total_rewards": _normal(by_type, total[:, -1] / scale, level, least=worst, most=best),
        "used": _used(course, num_steps)[kept],
    }


def _used(course: Course, num_steps: int) -> Floats:
    """(step, resource) what the actions of the records use, by the model."""
    log, rows = course.log, np.flatnonzero(course.is_decision)
    used = np.zeros((num_steps, course.problem.num_resources))
    for kind, model in enumerate(course.models):
        own = rows[log.type_of[log.arm[rows]] == kind]
        np.add.at(used, course.time[own], model.usage[log.state[own], log.action[own]])
    return used


def _extremes(course: Course, kind: Indices, worth: Floats) -> tuple[Floats, Floats]:
    """(type,) the least and the greatest reward of a step, in the model or in the records: no mean lies beyond them."""
    worst = np.array([model.rewards.min() for model in course.models])
    best = np.array([model.rewards.max() for model in course.models])
    np.minimum.at(worst, kind, worth)
    np.maximum.at(best, kind, worth)
    return worst, best


def _normal(
    seen: Floats,
    moments: Floats,
    level: float,
    rows: Any = slice(None),
    least: float | Floats = -np.inf,
    most: float | Floats = np.inf,
) -> Forecast:
    """A forecast from (..., 2) means and variances, within what can be."""
    mean, spread = moments[rows, ..., 0], np.sqrt(moments[rows, ..., 1])
    reach = stats.norm.ppf(0.5 + level / 2) * spread
    # An interval is cut at what can be: no count is negative, no mean beyond the extremes.
    return Forecast(seen[rows], mean, np.maximum(mean - reach, least), np.minimum(mean + reach, most))


def _coins(seen: Floats, coins: Sequence[tuple[Floats, Ints]], level: float) -> Forecast:
    """A forecast of how many of unequal coins show heads, (step, action)."""
    mean = np.array([sizes @ chances for chances, sizes in coins]).reshape(seen.shape)
    ends = np.zeros((2, *seen.shape))
    for step, (chances, sizes) in enumerate(coins):
        for place in range(seen.shape[1]):
            ends[:, step, place] = heads_interval(chances[:, place], sizes, level)
    return Forecast(seen, mean, ends[0], ends[1])


def heads_interval(chances: Floats, sizes: Ints, level: float) -> tuple[float, float]:
    """An equal-tailed interval of the number of heads of unequal coins.

    Args:
        chances: (kind,) of heads.
        sizes: (kind,) how many coins there are of each kind.
        level: its probability, at least.
    """
    number = int(sizes.sum())
    tail = (1 - level) / 2
    if number > EXACT_UP_TO:
        # Many coins: normal, half a head wider on each side for counts are whole.
        spread = float(np.sqrt(sizes @ (chances * (1 - chances))))
        low, high = sizes @ chances + np.array([-1, 1]) * (stats.norm.ppf(1 - tail) * spread + 0.5)
        return max(float(np.floor(low)), 0.0), min(float(np.ceil(high)), float(number))
    law = np.ones(1)
    for chance, size in zip(chances.tolist(), sizes.tolist(), strict=True):
        heads = np.array([1 - chance, chance]) if size == 1 else stats.binom.pmf(np.arange(size + 1), size, chance)
        # The law of a sum is the convolution of the laws.
        law = np.convolve(law, heads)
    below = np.cumsum(law)
    room = 1e-12  # a quantile does not hang on the last bit of a sum
    return float(np.searchsorted(below, tail + room, "left")), float(np.searchsorted(below, 1 - tail - room, "left"))
