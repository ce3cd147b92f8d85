"""Expected trajectories under the logged (behaviour) policy, step by step, beside the recorded ones.

No arm looks at another, so each is a Markov chain,

    P[s, s'] = sum_a share[s, a] p[s, a, s']

started where the arm was first seen and followed for as long as it was. Its distribution mu is propagated exactly. With
a figure f(s, a) of a step (was it served; its reward) and G the sum of them so far, the moments come along:

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

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import ndtri

from evenhand.checks import Faults, check_memory
from evenhand.errors import InvalidInputError, TableError
from evenhand.fitting.log import Log
from evenhand.fitting.transition_counts import decisions_of, recorded_shares
from evenhand.model import CoupledMDP, quoted
from evenhand.typing import Bools, Floats, Ints

EXACT_UP_TO = 2000
"""Arms at a step up to which the quantiles of how many are served are exact."""


@dataclass(frozen=True, eq=False)
class Forecast:
    """A figure as it was recorded, and as the model has it."""

    seen: Floats
    """(...,) recorded figures."""

    mean: Floats
    """(...,) expected figures."""

    lower: Floats
    """(...,) lower end of the prediction interval."""

    upper: Floats
    """(...,) its upper end."""

    @property
    def inside(self) -> Bools:
        """(...,) whether the recorded figures lie within the interval, up to rounding."""
        room = 1e-9 * (1 + np.abs(self.upper) + np.abs(self.lower))
        return np.asarray((self.seen >= self.lower - room) & (self.seen <= self.upper + room))


# -- the records, in the numbers of the model ------------------------------------------------------------------------


class Course:
    """Records of the arms, and the model in the order of their states and actions."""

    def __init__(self, problem: CoupledMDP, log: Log) -> None:
        """Match names.

        Args:
            problem: the model.
            log: the records.
        """
        self.problem, tables = problem, problem.tables
        self.blocks = _find_blocks(problem, log)
        pairs = [(block, np.ix_(states, actions)) for block, states, actions in self.blocks]
        self.transitions = np.stack([tables.transitions[b][np.ix_(s, a, s)] for b, s, a in self.blocks])
        """(type, state, action, next_state)"""
        self.rewards = np.stack([tables.rewards[block][pair] for block, pair in pairs])
        """(type, state, action)"""
        self.usage = np.stack([tables.usage[block][pair] for block, pair in pairs])
        """(type, state, action, resource)"""
        self.stops = self._stops(log)
        """(type, state) whether a record ends because the arm enters the state, which no action leaves."""
        self.log = log = _until_stop(log, self.stops)
        self.shares = recorded_shares(log)
        self.begins: Bools = np.append(True, log.arm[1:] != log.arm[:-1])
        """(row,) whether it is the first of its arm."""
        self.first: Ints = np.flatnonzero(self.begins)
        self.last: Ints = np.append(self.first[1:], len(log.arm)) - 1
        """(arm,) the numbers of its first and last rows."""
        self.arm_of_row: Ints = np.cumsum(self.begins) - 1
        self.type: Ints = log.type_of[log.arm[self.first]].astype(np.int64)
        """(arm,)"""
        # Whole steps since the whole step of the first row of the arm; times from dates may be off by rounding.
        first = log.time[self.first][self.arm_of_row]
        self.time: Ints = (np.floor(first + 1e-6) + np.rint(log.time - first)).astype(np.int64)
        """(row,)"""
        self.length = int(self.time.max()) + 1
        self.is_decision = decisions_of(log)
        self.is_stop: Bools = self.stops[log.type_of[log.arm], log.state]
        """(row,) whether the record ends there because of the state."""
        if not self.is_decision.any():
            raise InvalidInputError(
                "backtest: no arm has two rows with an action in the first; there is nothing to backtest"
            )

    def _stops(self, log: Log) -> Bools:
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

    @property
    def span(self) -> int:
        """Largest number of steps from the first row of an arm to its last."""
        return int((self.time[self.last] - self.time[self.first]).max())

    @cached_property
    def kinds(self) -> tuple[Ints, Ints]:
        """(arm,) the class of each arm, and (class,) one arm of it.

        Alike are arms of one type and first state, with rows at the same times; with gaps each is its own.
        """
        begin, end, rows = self.time[self.first], self.time[self.last], self.last - self.first
        # Without gaps: a row at every step, and a decision in all but the last.
        whole = (rows == end - begin) & (np.add.reduceat(self.is_decision, self.first) == rows)
        own = np.where(whole, -1, np.arange(len(begin)))
        keys = np.column_stack([self.type, self.log.state[self.first], begin, end, own, self.is_stop[self.last]])
        _, one, number = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        return number.reshape(-1), one


def _until_stop(log: Log, stops: Bools) -> Log:
    """The same records, each up to its first row in a state that ends it."""
    stopped = stops[log.type_of[log.arm], log.state].astype(np.int64)
    before = np.cumsum(stopped) - stopped
    first = np.flatnonzero(np.append(True, log.arm[1:] != log.arm[:-1]))
    seen = before == before[first][np.searchsorted(first, np.arange(len(before)), side="right") - 1]
    rows = {name: getattr(log, name) for name in ("arm", "time", "state", "action", "row", "reward", "used", "breaks")}
    seen_rows: dict[str, Any] = {name: None if column is None else column[seen] for name, column in rows.items()}
    return replace(log, **seen_rows)


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
            numbers.append(np.array([place.get(label, 0) for label in own], dtype=np.int64))
        found.append((block, numbers[0], numbers[1]))
    if faults:
        raise TableError(faults.found[:30], "the records and the model")
    return found


def _observation(course: Course) -> Floats:
    """(3, step, class) probabilities of a row after the first, of a decision, and of the end of a record.

    0 or 1 up to the last row of a class; estimated beyond the end of records that a state ended.
    """
    number_of, one = course.kinds
    found = np.zeros((3, course.length, len(one)))
    chosen = np.isin(course.arm_of_row, one)  # one arm represents each class
    for place, rows in enumerate((chosen & ~course.begins, chosen & course.is_decision)):
        found[place, course.time[rows], number_of[course.arm_of_row[rows]]] = 1.0
    stopped = np.flatnonzero(course.is_stop[course.last[one]])
    if len(stopped):
        end, step = course.time[course.last[one[stopped]]], np.arange(course.length)[:, None]
        beyond = np.stack([step > end, step >= end, step >= end])
        found[:, :, stopped] = np.where(beyond, _usual(course)[:, :, course.type[one[stopped]]], found[:, :, stopped])
    return found


def _usual(course: Course) -> Floats:
    """(3, step, type) shares of rows, of decisions, and of ends among the arms under observation."""
    kind = course.type[course.arm_of_row]
    begin, end, survives = course.time[course.first], course.time[course.last], ~course.is_stop[course.last]
    rows, decisions, ends, under = np.zeros((4, course.length + 1, len(course.log.types)))
    np.add.at(rows, (course.time[~course.is_stop], kind[~course.is_stop]), 1)
    np.add.at(decisions, (course.time[course.is_decision], kind[course.is_decision]), 1)
    np.add.at(ends, (end[survives], course.type[survives]), 1)
    np.add.at(under, (begin, course.type), 1)
    # If a record ends by its state, the arm is not under observation in its last row.
    np.add.at(under, (end + survives, course.type), -1)
    under = under.cumsum(axis=0)
    shares = [
        np.divide(part, whole, out=np.full(under.shape, default), where=whole > 0)
        # Records are taken to be whole at steps that no arm has reached.
        for part, whole, default in ((rows, under, 1.0), (decisions, under - ends, 1.0), (ends, under, 0.0))
    ]
    return np.stack(shares)[:, :-1]


# -- expected figures ------------------------------------------------------------------------------------------------


def follow(course: Course, level: float) -> dict[str, Any]:
    """Recorded and expected figures, step by step: fields of a `Backtest`.

    Args:
        course: the records.
        level: the probability of intervals.
    """
    log, (number_of, one) = course.log, course.kinds
    steps, T, A, S = course.length, len(log.types), len(log.actions), len(log.states)
    size = 8.0 * len(one) * S * (2 * steps + 4 * (A + 2))
    check_memory(size, f"the courses of {len(one)} kinds of arms", "Backtest fewer arms.")
    sizes, kind, observation = np.bincount(number_of, minlength=len(one)), course.type[one], _observation(course)
    present, acting = np.zeros((2, steps, len(one), S))
    so_far = np.zeros((steps, T, A + 2, 2))
    for t in range(T):
        own = np.flatnonzero(kind == t)
        walk = _walk(course, t, one[own], sizes[own], observation[:, :, own])
        present[:, own], acting[:, own], so_far[:, t] = walk
    states = np.stack([sizes @ present, sizes @ (present * (1 - present))], axis=-1)  # a state is entered or not
    shares = course.shares.shares
    chances = np.einsum("tcs,csa->tca", acting, shares[kind][:, :, 1:])
    # E f^0, which is the chance of a decision, E f and E f^2 of each class and step.
    worths = np.stack([(shares * course.rewards**power).sum(axis=-1) for power in range(3)])
    there, mean, second = np.einsum("tcs,pcs->ptc", acting, worths[:, kind])
    rate = _ratio(mean @ sizes, there @ sizes)[:, None]
    beyond = second - 2 * rate * mean + rate**2 * there - (mean - rate * there) ** 2
    reward = np.stack([rate[:, 0], np.maximum(beyond, 0.0) @ sizes], axis=-1)
    # The mean reward of a type: the ratio of sums R / N, with the variance of R - N R / N.
    total = so_far[-1]
    gained, number, both = np.moveaxis(total[:, -3:], 1, 0)
    rates = _ratio(gained[:, 0], number[:, 0])
    spread = gained[:, 1] - rates * (both[:, 1] - gained[:, 1] - number[:, 1]) + rates**2 * number[:, 1]
    mean_rewards = np.stack([rates, np.maximum(spread, 0.0)], axis=-1)

    seen = _Recorded(course)
    at, acts = np.flatnonzero(seen.decisions), slice(A - 1)  # steps without a decision are left out
    count, arms = seen.decisions[at].astype(np.float64), np.maximum(seen.by_type, 1)
    least, most = seen.extremes
    served = seen.served[:, :, 1:]
    return {
        "steps": at,
        "present": seen.decisions[at],
        "served": _heads(served.sum(axis=1)[at], chances[at], sizes, level),
        "so_far": _normal(served.sum(axis=1).cumsum(axis=0)[at], so_far.sum(axis=1)[at, acts], level, (0.0, np.inf)),
        "rewards": _normal(seen.earned[at] / count, _scaled(reward[at], count), level, (least.min(), most.max())),
        "occupied": _normal(seen.occupied[at], states[at], level, (0.0, np.inf)),
        "totals": _normal(served.sum(axis=0), total[:, acts], level, (0.0, np.inf)),
        "total_rewards": _normal(seen.gained / arms, _scaled(mean_rewards, arms), level, (least, most)),
        "used": seen.used[at],
    }


def _walk(course: Course, kind: int, one: Ints, sizes: Ints, observation: Floats) -> tuple[Floats, Floats, Floats]:
    """Distributions of states with a row and with a decision, and moments of the sums of figures, of a type.

    Args:
        course: the records.
        kind: the type.
        one: (class,) an arm of each of its classes.
        sizes: (class,) numbers of arms.
        observation: (3, step, class) as of `_observation`.

    Returns:
        Twice (step, class, state), and (step, figure, 2) means and variances: a figure for each action but the idle
        one, the reward, the number of decisions, and the sum of these two.
    """
    shares, moves, rewards = course.shares.shares[kind], course.transitions[kind], course.rewards[kind]
    steps, n, (S, A) = course.length, len(one), shares.shape
    taken = shares[..., None] * moves
    actions = np.broadcast_to(np.eye(A)[1:, None], (A - 1, S, A))
    figures = np.concatenate([actions, [rewards, np.ones((S, A)), rewards + 1]])
    on, idle = taken.sum(axis=1), moves[:, 0]
    once, twice = (np.einsum("fsa,saz->fsz", figures**power, taken) for power in (1, 2))
    begin, start, last = course.time[course.first[one]], course.log.state[course.first[one]], course.last[one]
    # A record that a state ended might have been longer.
    end = np.where(course.is_stop[last], steps, course.time[last])
    present, acting = np.zeros((2, steps, n, S))
    so_far = np.zeros((steps, len(figures), 2))
    mu, (m, q), closed = np.zeros((n, S)), np.zeros((2, len(figures), n, S)), np.zeros((2, len(figures), n))
    for step, (recorded, decided, censored) in enumerate(np.moveaxis(observation, 1, 0)):
        new = begin == step
        mu[new, start[new]] = 1.0
        present[step] = mu * recorded[:, None]
        # Records end: all that are seen in a state that ends them, a first row too, and others by censoring.
        left = 1 - np.where(course.stops[kind], np.where(new, 1.0, recorded)[:, None], censored[:, None])
        closed += np.stack([(m * (1 - left)).sum(axis=-1), (q * (1 - left)).sum(axis=-1)])
        mu, m, q = mu * left, m * left, q * left
        acting[step] = mu * decided[:, None]
        # Arms with a decision follow the shares, those without one idle, those at their ends stay as they are.
        going = (begin <= step) & (step < end)
        act, wait, stay = (weight[:, None] for weight in (going * decided, going * (1 - decided), 1.0 - going))
        q = (q * act) @ on + (q * wait) @ idle + q * stay + 2 * (m * act) @ once + (mu * act) @ twice
        m = (m * act) @ on + (m * wait) @ idle + m * stay + (mu * act) @ once
        mu = (mu * act) @ on + (mu * wait) @ idle + mu * stay
        sums, squares = closed[0] + m.sum(axis=-1), closed[1] + q.sum(axis=-1)
        so_far[step] = np.stack([sums @ sizes, np.maximum(squares - sums**2, 0.0) @ sizes], axis=-1)
    return present, acting, so_far


class _Recorded:
    """Recorded figures."""

    def __init__(self, course: Course) -> None:
        log, rows, later = course.log, course.is_decision, ~course.begins
        steps, T, A = course.length, len(log.types), len(log.actions)
        kind, time = course.type[course.arm_of_row[rows]], course.time[rows]
        state, action = log.state[rows], log.action[rows]
        self.served = np.zeros((steps, T, A))
        np.add.at(self.served, (time, kind, action), 1.0)
        self.occupied = np.zeros((steps, len(log.states)))
        np.add.at(self.occupied, (course.time[later], log.state[later]), 1.0)
        self.used = np.zeros((steps, course.problem.num_resources))
        np.add.at(self.used, time, course.usage[kind, state, action])
        # The recorded reward; without one, the model's.
        worth = course.rewards[kind, state, action]
        if log.reward is not None:
            worth = np.where(np.isfinite(log.reward[rows]), log.reward[rows], worth)
        self.decisions, self.by_type = np.bincount(time, minlength=steps), np.bincount(kind, minlength=T)
        self.earned, self.gained = np.bincount(time, worth, steps), np.bincount(kind, worth, T)
        # (type,) no mean lies beyond the least and the largest reward of a step, in the model or in the records.
        self.extremes = course.rewards.min(axis=(1, 2)), course.rewards.max(axis=(1, 2))
        np.minimum.at(self.extremes[0], kind, worth)
        np.maximum.at(self.extremes[1], kind, worth)


def _ratio(part: Floats, whole: Floats) -> Floats:
    return np.divide(part, whole, out=np.zeros(len(whole)), where=whole > 0)


def _scaled(moments: Floats, number: Floats | Ints) -> Floats:
    """(..., 2) means as they are, and variances of sums as those of means over a number."""
    return moments / np.stack([np.ones(len(number)), np.asarray(number, dtype=np.float64) ** 2], axis=-1)


def _normal(seen: Floats, moments: Floats, level: float, within: tuple[float | Floats, float | Floats]) -> Forecast:
    """A forecast from (..., 2) means and variances, within what is possible."""
    mean, reach = moments[..., 0], ndtri(0.5 + level / 2) * np.sqrt(moments[..., 1])
    return Forecast(seen, mean, np.maximum(mean - reach, within[0]), np.minimum(mean + reach, within[1]))


def _heads(seen: Floats, chances: Floats, sizes: Ints, level: float) -> Forecast:
    """A forecast of the number of heads of unequal coins, from their (step, class, action) chances."""
    ends = [[heads_interval(own, sizes, level) for own in coins.T] for coins in chances]
    lower, upper = np.moveaxis(np.array(ends).reshape(*seen.shape, 2), -1, 0)
    return Forecast(seen, np.einsum("c,tca->ta", sizes, chances), lower, upper)


def heads_interval(chances: Floats, sizes: Ints, level: float) -> tuple[float, float]:
    """An equal-tailed interval of the number of heads of unequal coins.

    Args:
        chances: (kind,) of heads.
        sizes: (kind,) how many coins there are of each kind.
        level: its probability, at least.
    """
    from scipy.stats import binom  # takes long to load

    chances, sizes = np.minimum(chances[chances > 0], 1.0), sizes[chances > 0]
    number = int(sizes.sum())
    tail = (1 - level) / 2
    if number > EXACT_UP_TO:
        # Many coins: normal, half a head wider on each side for counts are whole.
        spread = float(np.sqrt(sizes @ (chances * (1 - chances))))
        low, high = sizes @ chances + np.array([-1, 1]) * (ndtri(1 - tail) * spread + 0.5)
        return max(float(np.floor(low)), 0.0), min(float(np.ceil(high)), float(number))
    distribution = np.ones(1)
    for chance, size in zip(chances.tolist(), sizes.tolist(), strict=True):
        heads = np.array([1 - chance, chance]) if size == 1 else binom.pmf(np.arange(size + 1), size, chance)
        # The distribution of a sum is the convolution of the distributions.
        distribution = np.convolve(distribution, heads)
    below = np.cumsum(distribution)
    room = 1e-12  # a quantile does not hang on the last bit of a sum
    return float(np.searchsorted(below, tail + room, "left")), float(np.searchsorted(below, 1 - tail - room, "left"))
