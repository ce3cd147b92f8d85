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

A record that ends in an absorbing state ("dead") has a random length, and to condition on it would be to condition on
survival. Such an arm is followed beyond its end, dies with the probability of the model, and is recorded no more once
it is seen dead. It might also have been censored later: after its last row its record ends at step t with probability

    h(t) = (survivors whose record ends at t) / (arms under observation at t)

by type, the hazard of the Kaplan-Meier estimator of the time of censoring (Kaplan and Meier, JASA 1958); and it is
recorded at t, or gets a decision, as often as those under observation. The denominators of mean rewards are then
random, too: the mean is the ratio R / N of expected sums, and its variance that of sum (f - R / N) (delta method).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from evenhand.checks import Faults, check_memory
from evenhand.errors import InvalidInputError, TableError
from evenhand.fitting.behaviour_policy import decisions_of, recorded_shares
from evenhand.fitting.log import Log
from evenhand.model.coupled import CoupledMDP
from evenhand.model.places import quoted
from evenhand.typing import Bools, Floats, Indices, Ints

EXACT_UP_TO = 2000
"""Arms at a step up to which the quantiles of how many are served are exact."""


@dataclass(frozen=True, eq=False)
class Forecast:
    """A figure as it was recorded, and as the model has it."""

    seen: Floats
    """(...,) recorded figures."""

    mean: Floats
    """(...,) what was to be expected."""

    lower: Floats
    """(...,) lower end of the prediction interval."""

    upper: Floats
    """(...,) to here."""

    @property
    def inside(self) -> Bools:
        """(...,) whether the recorded figures lie within the interval, up to rounding."""
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
    """Records of the arms, with equal arms grouped."""

    def __init__(self, problem: CoupledMDP, log: Log) -> None:
        """Match names.

        Args:
            problem: the model.
            log: the records.
        """
        self.problem = problem
        self.blocks = _find_blocks(problem, log)
        self.stops = self._stops(log)
        self.log = log = _until_stop(log, self.stops)
        self.shares = recorded_shares(log)
        self.models = [self._model(kind) for kind in range(len(log.types))]
        # Arms may begin between the steps of others: each is counted from the whole step of its first row.
        first = log.time[self.first][np.cumsum(self.begins) - 1]
        # Whole steps since then; times are read from dates, and may be off by rounding.
        self.time: Ints = (np.floor(first + 1e-6) + np.rint(log.time - first)).astype(np.int64)
        self.is_decision = decisions_of(log)
        if not self.is_decision.any():
            raise InvalidInputError(
                "backtest: no arm has two rows with an action in the first; there is nothing to backtest"
            )

    def _model(self, kind: int) -> _Model:
        tables, (block, states, actions) = self.problem.tables, self.blocks[kind]
        # Tables are padded and in the model's order; here they are in the records' order, and no larger than these.
        pairs = np.ix_(states, actions)
        transitions = tables.transitions[block][np.ix_(states, actions, states)]
        return _Model(self.shares.shares[kind], transitions, tables.rewards[block][pairs], tables.usage[block][pairs])

    def _stops(self, log: Log) -> Bools:
        """(type, state) whether a record ends because the arm enters the state, which no action leaves."""
        stops = np.zeros((len(log.types), len(log.states)), dtype=np.bool_)
        tables = self.problem.tables
        for kind, (block, states, _) in enumerate(self.blocks):
            moves = tables.transitions[block][states, : tables.num_actions[block]]
            stays = moves[np.arange(len(states)), :, states]
            stops[kind] = moves.sum(axis=(1, 2)) <= stays.sum(axis=1)
        last = log.is_last
        # A state that arms are recorded in until the end, step by step, is an ordinary one.
        early = np.bincount(log.state[last], log.ends > 0, len(log.states)) > 0
        goes_on = np.bincount(log.state[~last], minlength=len(log.states)) > 0
        return np.asarray(stops & (early | ~goes_on))

    @cached_property
    def is_stop(self) -> Bools:
        """(row,) whether the record ends there because of the state."""
        return np.asarray(self.stops[self.log.type_of[self.log.arm], self.log.state])

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
        stopped = self.is_stop[self.last]
        keys = np.stack([self.log.type_of[arm], self.log.state[self.first], begin, end, own, stopped], axis=1)
        _, one, number = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        return number.reshape(-1), one


def _until_stop(log: Log, stops: Bools) -> Log:
    """The same records, each up to its first row in a state that ends it."""
    stopped = stops[log.type_of[log.arm], log.state].astype(np.int64)
    before = np.cumsum(stopped) - stopped
    first = np.flatnonzero(np.append(True, log.arm[1:] != log.arm[:-1]))
    seen = before == before[first][np.searchsorted(first, np.arange(len(before)), side="right") - 1]
    if seen.all():
        return log
    return replace(
        log,
        arm=log.arm[seen],
        time=log.time[seen],
        state=log.state[seen],
        action=log.action[seen],
        row=log.row[seen],
        reward=None if log.reward is None else log.reward[seen],
        used=None if log.used is None else log.used[seen],
    )


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
    """One for each action but the idle one, then the reward, the number of decisions, and the sum of these two."""

    @classmethod
    def of(cls, model: _Model) -> "_Chain":
        """The chain of a type."""
        steps = model.shares[..., None] * model.transitions
        # The idle action is the first of the records, and is not reported.
        actions = [steps[:, a] for a in range(1, steps.shape[1])]
        # f and f^2 of the head, summed over actions.
        reward, both = (
            _Figure(*(np.einsum("sa,saz->sz", figure**power, steps) for power in (1, 2)))
            for figure in (model.rewards, model.rewards + 1)
        )
        on = steps.sum(axis=1)
        # An action is taken or not, and so is a decision: f = f^2.
        figures = (*(_Figure(one, one) for one in actions), reward, _Figure(on, on), both)
        return cls(on, model.transitions[:, 0], figures)


def follow(course: Course, level: float) -> dict[str, Any]:
    """All that is seen and expected, step by step: fields of a `Backtest`.

    Args:
        course: the records.
        level: the probability of intervals.
    """
    log, (number_of, one) = course.log, course.kinds
    num_steps, A, S = int(course.time.max()) + 1, len(log.actions), len(log.states)
    sizes = np.bincount(number_of, minlength=len(one))
    F = A + 2  # a figure for each action but the idle one, and three for the mean reward
    # The law, and for each figure m and q: (class, state) each.
    check_memory(8.0 * len(one) * S * (1 + 2 * F), f"the courses of {len(one)} kinds of arms", "Backtest fewer arms.")
    crowd = _Crowd(course, one, sizes, F, num_steps)
    seen = _by_step(course, number_of, one, num_steps)
    walk = _Walk(num_steps, len(log.types), F, S)
    # Enter, look, end, decide, move, sum up: what is noted at a step is before its move, sums are after it.
    for step in range(num_steps):
        crowd.enter(step)
        walk.note_states(step, crowd, seen.recorded[step])
        crowd.close(step, seen.recorded[step], seen.censored[step])
        walk.note_decisions(step, crowd, seen.decided[step])
        crowd.move(step, seen.decided[step])
        walk.sum_up(step, crowd)
    return _fields(course, walk, level)


class _BySteps(NamedTuple):
    """(step, class) probabilities of what the records have of arms of each class: 0 or 1 up to their last rows."""

    recorded: Floats
    """Of a row after the first."""

    decided: Floats
    """Of a decision."""

    censored: Floats
    """Of the end of a record, given that it reached the step."""


def _by_step(course: Course, number_of: Ints, one: Ints, num_steps: int) -> _BySteps:
    """Read what is known of each class, and estimate it beyond the end of records that a state ended."""
    # One arm represents each class.
    chosen = np.zeros(len(course.first), dtype=np.bool_)
    chosen[one] = True
    arm_of_row = np.cumsum(course.begins) - 1
    rows = np.flatnonzero(chosen[arm_of_row])
    recorded, decided, censored = np.zeros((3, num_steps, len(one)))
    later = rows[~course.begins[rows]]
    recorded[course.time[later], number_of[arm_of_row[later]]] = 1.0
    made = rows[course.is_decision[rows]]
    decided[course.time[made], number_of[arm_of_row[made]]] = 1.0
    stopped = np.flatnonzero(course.is_stop[course.last[one]])
    if len(stopped):
        usual = _usual(course, num_steps)
        kind = course.log.type_of[course.log.arm[course.first[one[stopped]]]]
        end, step = course.time[course.last[one[stopped]]], np.arange(num_steps)[:, None]
        for known, rates, beyond in zip(
            (recorded, decided, censored), usual, (step > end, step >= end, step >= end), strict=True
        ):
            known[:, stopped] = np.where(beyond, rates[:, kind], known[:, stopped])
    return _BySteps(recorded, decided, censored)


def _usual(course: Course, num_steps: int) -> tuple[Floats, Floats, Floats]:
    """(step, type) shares of rows, of decisions, and of ends among the arms under observation."""
    kind = course.log.type_of[course.log.arm]
    begin, end, survives = course.time[course.first], course.time[course.last], ~course.is_stop[course.last]
    shape = (num_steps + 1, len(course.log.types))
    rows, decisions, ends, under = np.zeros((4, *shape))
    np.add.at(rows, (course.time[~course.is_stop], kind[~course.is_stop]), 1)
    np.add.at(decisions, (course.time[course.is_decision], kind[course.is_decision]), 1)
    np.add.at(ends, (end[survives], kind[course.last[survives]]), 1)
    np.add.at(under, (begin, kind[course.first]), 1)
    # Where a record ends by its state, the arm is not under observation in its last row.
    np.add.at(under, (end + survives, kind[course.last]), -1)
    under = under.cumsum(axis=0)
    shares = (
        np.divide(part, whole, out=np.full(shape, default), where=whole > 0)
        # Where no arm is left to tell, records are taken to be whole.
        for part, whole, default in ((rows, under, 1.0), (decisions, under - ends, 1.0), (ends, under, 0.0))
    )
    found, made, ended = (share[:-1] for share in shares)
    return found, made, ended


class _Crowd:
    """Distributions of the states of all kinds of arms whose records go on, and moments of their figures so far."""

    def __init__(self, course: Course, one: Ints, sizes: Ints, num_figures: int, num_steps: int) -> None:
        first = course.first[one]
        self.sizes = sizes
        self.type: Ints = course.log.type_of[course.log.arm[first]].astype(np.int64)
        self.begin = course.time[first]
        # A record that a state ended might have been longer.
        self.end = np.where(course.is_stop[course.last[one]], num_steps, course.time[course.last[one]])
        self.start: Indices = course.log.state[first]
        self.stops = course.stops[self.type]
        self.chains = [_Chain.of(model) for model in course.models]
        self.models = course.models
        shape = (len(one), len(course.log.states))
        self.law = np.zeros(shape)
        self.moments = np.zeros((2, num_figures, *shape))
        """(power, figure, class, state) m and q of the head."""
        self.closed = np.zeros((2, num_figures, len(one)))
        """(power, figure, class) the same over records that have ended."""

    def enter(self, step: int) -> None:
        """Arms whose first row is at this step begin where they were."""
        new = np.flatnonzero(self.begin == step)
        self.law[new, self.start[new]] = 1.0

    def close(self, step: int, recorded: Floats, censored: Floats) -> None:
        """Records end: all that are seen in a state that ends them, and others with the chance of censoring."""
        # First rows are not among those recorded, and may end a record as any other.
        seen = np.where(self.begin == step, 1.0, recorded)
        share = np.where(self.stops, seen[:, None], censored[:, None])
        self.closed += (self.moments * share).sum(axis=-1)
        self.moments *= 1 - share
        self.law *= 1 - share

    def move(self, step: int, decided: Floats) -> None:
        """Every arm that is not at its end makes a step, and its figures add up."""
        going = (self.begin <= step) & (step < self.end)
        for kind, chain in enumerate(self.chains):
            own = np.flatnonzero(going & (self.type == kind))
            # Arms with a decision at this step follow the shares, those without one idle. Figures stay as they are
            # then, but go along with the state.
            share, law, moments = decided[own, None], self.law[own], self.moments[:, :, own]
            self.law[own], self.moments[:, :, own] = self._acted(law * share, moments * share, chain)
            if (share < 1).any():
                self.law[own] += (law * (1 - share)) @ chain.missed
                self.moments[:, :, own] += (moments * (1 - share)) @ chain.missed

    @staticmethod
    def _acted(law: Floats, moments: Floats, chain: _Chain) -> tuple[Floats, Floats]:
        new = moments @ chain.on
        for number, figure in enumerate(chain.figures):
            new[0, number] += law @ figure.once
            new[1, number] += 2 * moments[0, number] @ figure.once + law @ figure.squared
        return law @ chain.on, new


class _Walk:
    """Expected figures per step, with variances."""

    def __init__(self, num_steps: int, num_types: int, num_figures: int, num_states: int) -> None:
        self.coins: list[tuple[Floats, Ints]] = []
        self.reward = np.zeros((num_steps, 2))
        """(step,) the mean reward of a decision, and the variance of the sum of what is beyond it."""
        self.states = np.zeros((num_steps, num_states, 2))
        self.so_far = np.zeros((num_steps, num_types, num_figures, 2))

    def note_states(self, step: int, crowd: _Crowd, recorded: Floats) -> None:
        """The chances of those who have a row at the step."""
        law = crowd.law * recorded[:, None]
        # A state is entered or not: the variance of a coin.
        self.states[step, :, 0], self.states[step, :, 1] = crowd.sizes @ law, crowd.sizes @ (law * (1 - law))

    def note_decisions(self, step: int, crowd: _Crowd, decided: Floats) -> None:
        """The chances of those who get a decision at the step."""
        law = crowd.law * decided[:, None]
        chances, moments = [], np.zeros((3, len(law)))
        for kind, model in enumerate(crowd.models):
            own = np.flatnonzero((decided > 0) & (crowd.type == kind))
            # (class, action) chances of each action, and how many arms have them.
            chances.append(np.column_stack([law[own] @ model.shares[:, 1:], crowd.sizes[own]]))
            # E f^0, which is the chance of a decision, E f and E f^2.
            moments[:, own] = [law[own] @ (model.shares * model.rewards**power).sum(axis=1) for power in range(3)]
        together = np.concatenate(chances)
        self.coins.append((together[:, :-1], together[:, -1].astype(np.int64)))
        there, mean, second = moments
        number = crowd.sizes @ there
        rate = crowd.sizes @ mean / number if number > 0 else 0.0
        # Var (f - rate) = E (f - rate)^2 - (E (f - rate))^2, arm by arm; rounding may leave a little below 0.
        beyond = second - 2 * rate * mean + rate**2 * there - (mean - rate * there) ** 2
        self.reward[step] = rate, crowd.sizes @ np.maximum(beyond, 0.0)

    def sum_up(self, step: int, crowd: _Crowd) -> None:
        """The moments of all figures so far, by type."""
        once, twice = crowd.closed + crowd.moments.sum(axis=-1)
        # Over all states an arm may be in by now: E G^2 - (E G)^2.
        spread = np.maximum(twice - once**2, 0.0)
        for kind in range(self.so_far.shape[1]):
            own = crowd.type == kind
            self.so_far[step, kind, :, 0] = once[:, own] @ crowd.sizes[own]
            self.so_far[step, kind, :, 1] = spread[:, own] @ crowd.sizes[own]

    def mean_rewards(self) -> Floats:
        """(type, 2) the mean reward of a decision, and the variance of the sum of what is beyond it."""
        reward, number, both = np.moveaxis(self.so_far[-1, :, -3:], 1, 0)
        rate = np.divide(reward[:, 0], number[:, 0], out=np.zeros(len(number)), where=number[:, 0] > 0)
        covariance = (both[:, 1] - reward[:, 1] - number[:, 1]) / 2
        spread = reward[:, 1] - 2 * rate * covariance + rate**2 * number[:, 1]
        return np.stack([rate, np.maximum(spread, 0.0)], axis=-1)


# Forecast


def _fields(course: Course, walk: _Walk, level: float) -> dict[str, Any]:
    """The fields of a Backtest that are about the records."""
    log, rows = course.log, course.is_decision
    num_steps, A, S, T = len(walk.coins), len(log.actions), len(log.states), len(log.types)
    acting = slice(A - 1)  # the figures of actions
    kind, action, time = log.type_of[log.arm[rows]], log.action[rows], course.time[rows]
    served = np.zeros((num_steps, T, A))
    # What was seen: counted by step, type and action.
    np.add.at(served, (time, kind, action), 1.0)
    worth = np.stack([model.rewards for model in course.models])[kind, log.state[rows], action]
    # The recorded reward; without one, the model's.
    if log.reward is not None:
        worth = np.where(np.isfinite(log.reward[rows]), log.reward[rows], worth)
    worst, best = _extremes(course, kind, worth)
    present = np.bincount(time, minlength=num_steps)
    # Steps without a decision are left out.
    observed = np.flatnonzero(present)
    earned = np.bincount(time, weights=worth, minlength=num_steps)
    numbers = np.maximum(np.bincount(kind, minlength=T), 1)
    later = ~course.begins
    occupied = np.zeros((num_steps, S))
    np.add.at(occupied, (course.time[later], log.state[later]), 1.0)
    total = walk.so_far[-1]
    by_type = np.bincount(kind, weights=worth, minlength=T) / numbers
    # Variances of sums are divided by the square of the number, means are divided already.
    scale = np.stack([np.ones(T), numbers.astype(np.float64) ** 2], axis=-1)
    whole = np.stack([np.ones(len(observed)), present[observed].astype(np.float64) ** 2], axis=-1)
    return {
        "steps": observed,
        "present": present[observed],
        "served": _coins(served.sum(axis=1)[observed, 1:], [walk.coins[step] for step in observed], level),
        "so_far": _normal(
            served.sum(axis=1)[:, 1:].cumsum(axis=0), walk.so_far.sum(axis=1)[:, acting], level, observed, least=0.0
        ),
        "rewards": _normal(
            earned[observed] / present[observed],
            walk.reward[observed] / whole,
            level,
            least=worst.min(),
            most=best.max(),
        ),
        "occupied": _normal(occupied[observed], walk.states[observed], level, least=0.0),
        "totals": _normal(served.sum(axis=0)[:, 1:], total[:, acting], level, least=0.0),
        "total_rewards": _normal(by_type, walk.mean_rewards() / scale, level, least=worst, most=best),
        "used": _used(course, num_steps)[observed],
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
