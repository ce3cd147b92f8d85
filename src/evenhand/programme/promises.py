"""What was promised, what came, and whether the difference can be chance.

An arm that takes part from step b to step c (c not included) goes on, as far as anybody can tell, by a law pi(s, a) of
its own: what the fair relaxation of the roster would do with it (`Continuation`). What it then earns in the k steps to
go, and what an action is worth in it, are

    H_0 = 0        Q_k(s, a) = r(s, a) + sum_s' p(s, a, s') H_{k-1}(s')        H_k(s) = sum_a pi(s, a) Q_k(s, a)

Let mu be the law of its state: a point where it was seen, else pushed forward from there, exactly, by what was done.
With k = c - t steps to go at step t, and mu- the law before it is seen at t, all that it earned splits without rest:

    sum_t mu r(done)  =  mu H_k at b                                      what was to be expected from where it was
                      +  sum_t mu Q_k(planned) - mu H_k                   what its plans made of it
                      +  sum_t mu Q_k(accepted) - mu Q_k(planned)         overrides
                      +  sum_t mu Q_k(done) - mu Q_k(accepted)            decisions that were not carried out
                      +  sum_t mu H_k - mu- H_k                           moves, better or worse than the model has them

The first two lines are the promise. Recorded rewards add what they differ from the model's. If the model is right the
moves are differences of a martingale, however plans, budgets and overrides couple the arms: whoever acts does not know
the next move. Their variances given what went before, mu- H^2 - (mu- H)^2, add up, and so intervals are made.

A warning needs more than a wide interval, for bad luck may also make the variance small; and who gets well may leave
for that reason, so that looking back from the day it left would count its luck too little. The test therefore weighs
moves by what was to come until the end of the whole span (`Courses.until`), which nothing that happens can change; who
leaves only stops to move. With D such moves of a group and any number l > 0 that is fixed beforehand,

    E_l = exp( - l sum_t D_t - sum_t log E[exp(-l D_t) | what went before] )

has mean 1 at most, and so has a mean of several such E. So P(E >= 1/p) <= p, by Markov's inequality, exactly and for
any number of arms and steps: 1/E is a p-value. Recorded rewards enter by their differences x from the model's, as
exp(-l x - l^2 x^2 / 2): of mean 1 at most if they scatter evenly to both sides (de la Pena 1999). The p-values of
several groups are corrected by Holm, which asks for no independence.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from evenhand.errors import Infeasible, InvalidInput, NotApplicable, NotConverged, OutOfDomain, TooLarge
from evenhand.model.coupled import CoupledMDP
from evenhand.planning.relaxed import relax
from evenhand.policies.fluid import OccupancyPriority
from evenhand.typing import Bools, Floats, Ints

STRENGTHS = ((0.25, 0.15), (0.5, 0.25), (1.0, 0.4), (2.0, 0.2))
"""The numbers l of a test, as multiples of the one that would be best for chance alone, and their weights."""

MOST_CELLS = 4_000_000
"""Entries of matrices that are looked at in one go: arms are followed in parts."""

UNKNOWN = -1
"""The number of a state or an action that is not known."""

LOOK_AHEAD = 200
"""Steps for which an override counts where the criterion is the average."""


# How arms go on


@dataclass(frozen=True, eq=False)
class Continuation:
    """What each kind of arm does when nobody says otherwise, and what it is worth."""

    model: CoupledMDP
    """A settled model."""

    laws: Floats
    """(block, state, action) how often each action is taken."""

    welfare: str
    """The welfare of the relaxation that they are from."""

    def values(self, num_steps: int) -> Floats:
        """(step to go, block, state) H, from no step to go to `num_steps`."""
        tables = self.model.tables
        found = np.zeros((num_steps + 1, *tables.rewards.shape[:2]))
        for k in range(1, num_steps + 1):
            found[k] = (self.laws * self.action_values(found[k - 1])).sum(axis=-1)
        return found

    def action_values(self, ahead: Floats, discount: float = 1.0) -> Floats:
        """(block, state, action) what actions are worth, from (block, state) values of the step after."""
        tables = self.model.tables
        return np.asarray(tables.rewards + discount * np.einsum("bsaz,bz->bsa", tables.transitions, ahead))

    def spreads(self, values: Floats) -> Floats:
        """(step to go, block, state) the variance of all moves to come, from H."""
        found = np.zeros_like(values)
        for k in range(1, len(values)):
            mean = self.action_values(values[k - 1]) - self.model.tables.rewards
            square = np.einsum("bsaz,bz->bsa", self.model.tables.transitions, values[k - 1] ** 2 + found[k - 1])
            found[k] = (self.laws * np.maximum(square - mean**2, 0.0)).sum(axis=-1)
        return found

    def long_run(self) -> Floats:
        """(block, state, action) what actions are worth by the programme's criterion, as overrides are weighed."""
        criterion, tables = self.model.criterion, self.model.tables
        if criterion.num_steps is None and criterion.factor < 1:
            onward = np.einsum("bsa,bsaz->bsz", self.laws, tables.transitions)
            earned = (self.laws * tables.rewards).sum(axis=-1)
            ahead = np.linalg.solve(np.eye(onward.shape[1]) - criterion.factor * onward, earned[..., None])[..., 0]
            return self.action_values(ahead, criterion.factor)
        steps = LOOK_AHEAD if criterion.num_steps is None else criterion.num_steps
        discount = 1.0 if criterion.num_steps is None else self.model.discount
        ahead = np.zeros(tables.rewards.shape[:2])
        for _ in range(steps - 1):
            ahead = (self.laws * self.action_values(ahead, discount)).sum(axis=-1)
        return self.action_values(ahead, discount)

    @property
    def needs(self) -> Bools:
        """(block, state) whether an arm is served there, now and then: it is in need of it."""
        return np.asarray((self.laws * self.model.tables.served).sum(axis=-1) > 1e-6)


def continue_by(model: CoupledMDP, counts: Ints, welfare: str | None) -> Continuation:
    """How arms go on by the fair relaxation of a roster; by that of the mean where a welfare has none.

    Args:
        model: a settled one.
        counts: (block,) how many arms there are of each.
        welfare: of the programme.
    """
    endless = model if model.criterion.num_steps is None else model.under("average")
    kept = np.flatnonzero(counts)
    roster = CoupledMDP(
        arms=endless.tables.select(kept),
        budget=endless.budget,
        discount=endless.discount,
        counts=counts[kept],
        groups=[endless.groups[block] for block in kept.tolist()],
        floors=endless.floors[kept],
        criterion=endless.criterion,
        over=endless.over,
    )
    for tried in (welfare, "utilitarian"):
        try:
            laws = _laws(roster, tried)
        except (InvalidInput, NotApplicable, NotConverged, OutOfDomain, TooLarge, Infeasible):
            continue
        idle = np.arange(model.tables.rewards.shape[2]) == model.tables.idle[:, :, None]
        whole = idle.astype(np.float64)  # blocks without arms
        whole[kept] = laws
        return Continuation(model, whole, tried or "")
    raise NotConverged("audit: the relaxation of the roster was not solved, so nothing can be said of promises")


def _laws(roster: CoupledMDP, welfare: str | None) -> Floats:
    """(block, state, action) what the relaxation does with arms of each block."""
    relaxed = relax(roster, welfare)
    pay = relaxed.floor_prices if roster.has_floors else None
    policy = OccupancyPriority(roster, relaxed.occupancy, relaxed.weights, relaxed.prices, pay)
    laws = policy.laws[roster.type_of_block]
    return np.asarray(laws / laws.sum(axis=-1, keepdims=True).clip(1e-300))


# Following the arms


@dataclass(frozen=True, eq=False)
class Courses:
    """What is known of arms, step by step, in the numbers of one model. Unknown states and actions are UNKNOWN."""

    block: Ints
    """(arm,) its kind."""

    begin: Ints
    """(arm,) the first step at which it is followed, counted from the first of all."""

    end: Ints
    """(arm,) the first at which it is not."""

    state: Ints
    """(arm, step) where it was seen."""

    planned: Ints
    """(arm, step) what its plan said."""

    accepted: Ints
    """(arm, step) what was accepted."""

    done: Ints
    """(arm, step) what was done, as far as that was said."""

    reward: Floats
    """(arm, step) what was recorded; nan where nothing was."""

    start: Floats
    """(arm, state) the law of its state at `begin`, before it is seen there."""

    was_seen: Bools
    """(arm,) whether it was ever seen before `begin`."""

    until: Ints
    """(arm,) the step after the last of the whole span: known beforehand, unlike when an arm leaves or a model ends."""

    def part(self, arms: Ints | slice) -> "Courses":
        """Some of the arms."""
        return Courses(**{name: value[arms] for name, value in vars(self).items()})

    @property
    def num_steps(self) -> int:
        """How many there are."""
        return int(self.state.shape[1])


ACCOUNTS = (
    "steps", "realised", "expected", "plans", "overrides", "undone", "moves", "rewards", "variance", "reward_variance"
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Account:
    """All that arms earned, split up. Sums over steps, (arm,) each."""

    steps: Floats
    """Steps at which it took part."""

    realised: Floats
    """What was recorded, or the model's reward of what was seen and done."""

    expected: Floats
    """What was to be expected from where it was."""

    plans: Floats
    """What its plans made of it, beyond that."""

    overrides: Floats
    """What was lost or won by deciding otherwise."""

    undone: Floats
    """What was lost or won by not doing what was decided."""

    moves: Floats
    """How much better its moves were than the model has them."""

    rewards: Floats
    """How much larger recorded rewards were than the model's."""

    variance: Floats
    """The variance of the moves."""

    reward_variance: Floats
    """The sum of the squares of what recorded rewards differ by."""

    evidence: Floats
    """(arm, strength) logarithms of what it adds to E."""

    laws: Floats
    """(arm, step, state) where it was at each step; 0 where it takes no part."""

    impossible: Ints
    """(arm,) moves that the model holds impossible."""

    @property
    def promised(self) -> Floats:
        """(arm,) what the plans promised."""
        return self.expected + self.plans


def keep_account(going_on: Continuation, courses: Courses, strengths: Floats) -> Account:
    """Follow arms and split up what they earned.

    Args:
        going_on: how they go on.
        courses: what is known of them.
        strengths: (arm, strength) the numbers l of the test of each one's group.
    """
    values = going_on.values(int((courses.until - courses.begin).max(initial=0)))
    S = values.shape[-1]
    size = max(1, MOST_CELLS // (S * S))
    starts = range(0, max(len(courses.block), 1), size)
    parts = [
        _Walk(going_on, values, courses.part(slice(start, start + size)), strengths[start : start + size]).account()
        for start in starts
    ]
    whole = {name: np.concatenate([getattr(part, name) for part in parts]) for name in vars(parts[0])}
    return Account(**whole)


class _Walk:
    """Arms on their way: the law of each, and its account so far."""

    def __init__(self, going_on: Continuation, values: Floats, courses: Courses, strengths: Floats) -> None:
        self.tables, self.values, self.courses, self.strengths = going_on.model.tables, values, courses, strengths
        self.ahead = np.stack(_ahead(going_on, values[: (courses.end - courses.begin).max(initial=0) + 1]))
        n = len(courses.block)
        self.sums = {name: np.zeros(n) for name in ACCOUNTS}
        self.evidence = np.zeros(strengths.shape)
        self.law = courses.start.copy()
        self.was_seen = courses.was_seen.copy()
        self.laws = np.zeros((n, courses.num_steps, values.shape[-1]))
        self.impossible = np.zeros(n, dtype=np.int64)

    def account(self) -> Account:
        for step in range(self.courses.num_steps):
            there = np.flatnonzero((self.courses.begin <= step) & (step < self.courses.end))
            if len(there):
                self._see(there, step)
                self._act(there, step)
        return Account(**self.sums, evidence=self.evidence, laws=self.laws, impossible=self.impossible)

    def _see(self, arms: Ints, step: int) -> None:
        """Whoever is seen is where it is: what that says of its moves, and where promises begin."""
        courses = self.courses
        worth = self.values[courses.end[arms] - step, courses.block[arms]]
        state = courses.state[arms, step]
        seen = state != UNKNOWN
        new = courses.begin[arms] == step
        moved = seen & ~new & self.was_seen[arms]
        self._note_moves(arms[moved], state[moved], worth[moved])
        self._weigh_moves(arms[moved], state[moved], step)
        before = (self.law[arms] * worth).sum(axis=1)
        self.law[arms[seen]] = np.arange(worth.shape[1]) == state[seen, None]
        # An arm that nobody had seen moved from nowhere: its promise begins here.
        late = seen & ~new & ~self.was_seen[arms]
        begun = np.where(new, (self.law[arms] * worth).sum(axis=1), 0.0)
        begun[late] += worth[late, state[late]] - before[late]
        self.sums["expected"][arms] += begun
        self.was_seen[arms[seen]] = True
        self.laws[arms, step] = self.law[arms]

    def _note_moves(self, arms: Ints, state: Ints, worth: Floats) -> None:
        law = self.law[arms]
        mean = (law * worth).sum(axis=1)
        off = worth - mean[:, None]
        move = off[np.arange(len(arms)), state]
        self.sums["moves"][arms] += move
        self.sums["variance"][arms] += (law * off**2).sum(axis=1)
        self.impossible[arms] += law[np.arange(len(arms)), state] <= 0

    def _weigh_moves(self, arms: Ints, state: Ints, step: int) -> None:
        """What moves say for the test."""
        law = self.law[arms]
        worth = self.values[self.courses.until[arms] - step, self.courses.block[arms]]
        off = worth - (law * worth).sum(axis=1)[:, None]
        self.evidence[arms] += _evidence(law, off, off[np.arange(len(arms)), state], self.strengths[arms])

    def _act(self, arms: Ints, step: int) -> None:
        courses, block = self.courses, self.courses.block[arms]
        law = self.law[arms]
        worth = (law[:, :, None] * self.ahead[courses.end[arms] - step, block]).sum(axis=1)
        rows = np.arange(len(arms))
        planned, accepted, done = (table[arms, step] for table in (courses.planned, courses.accepted, courses.done))
        on = (law * self.values[courses.end[arms] - step, block]).sum(axis=1)
        by = [worth[rows, action] for action in (planned, accepted, done)]
        for name, amount in zip(("plans", "overrides", "undone"), (by[0] - on, by[1] - by[0], by[2] - by[1]),
                                strict=True):  # fmt: skip
            self.sums[name][arms] += amount
        self._earn(arms, step, (law * self.tables.rewards[block, :, done]).sum(axis=1))
        self.law[arms] = np.einsum("ns,nsz->nz", law, self.tables.transitions[block, :, done])

    def _earn(self, arms: Ints, step: int, usual: Floats) -> None:
        told = self.courses.reward[arms, step]
        given = np.isfinite(told)
        more = np.where(given, told - usual, 0.0)
        self.sums["steps"][arms] += 1
        self.sums["realised"][arms] += usual + more
        self.sums["rewards"][arms] += more
        self.sums["reward_variance"][arms] += more**2
        # Where the state is not known a reward also tells of it, and does not scatter evenly: it waits to be seen.
        even = np.where(self.courses.state[arms, step] != UNKNOWN, more, 0.0)[:, None]
        self.evidence[arms] += -self.strengths[arms] * even - (self.strengths[arms] * even) ** 2 / 2


def _ahead(going_on: Continuation, values: Floats) -> list[Floats]:
    """(step to go, block, state, action) Q; that of no step to go is never asked for."""
    return [going_on.action_values(values[max(k - 1, 0)]) for k in range(len(values))]


def _evidence(law: Floats, off: Floats, move: Floats, strengths: Floats) -> Floats:
    """(arm, strength) -l D - log E exp(-l D)."""
    exponents = -strengths[:, :, None] * off[:, None, :]
    top = np.where(law[:, None, :] > 0, exponents, -np.inf).max(axis=-1, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0.0)
    weighed = np.where(law[:, None, :] > 0, law[:, None, :] * np.exp(np.minimum(exponents - top[..., None], 0.0)), 0.0)
    return np.asarray(-strengths * move[:, None] - top - np.log(weighed.sum(axis=-1)))


# The test


def choose_strengths(going_on: Continuation, courses: Courses, group: Ints, num_groups: int, level: float) -> Floats:
    """(arm, strength) the numbers l of each one's group: fixed by where its first arms are when they begin.

    Who joins later goes by the number of the group, for it may join because of how the others fared.

    Args:
        going_on: how they go on.
        courses: what is known of them; of it only where the first begin is looked at.
        group: (arm,) its group.
        num_groups: how many there are.
        level: of the test.
    """
    spreads = going_on.spreads(going_on.values(int((courses.until - courses.begin).max(initial=0))))
    rows = _first_of_groups(courses, group, num_groups)
    begin, law = courses.begin[rows], courses.start[rows]
    state = courses.state[rows, begin]
    law = np.where((state != UNKNOWN)[:, None], np.arange(law.shape[1]) == state[:, None], law)
    chance = (law * spreads[courses.until[rows] - begin, courses.block[rows]]).sum(axis=1)
    total = np.bincount(group[rows], weights=chance, minlength=num_groups)
    usual = np.sqrt(2 * np.log(num_groups / level) / np.where(total > 0, total, np.inf))
    return np.asarray(usual[group][:, None] * np.array([factor for factor, _ in STRENGTHS]))


def _first_of_groups(courses: Courses, group: Ints, num_groups: int) -> Ints:
    """The arms of each group with which it begins."""
    first = np.full(num_groups, courses.num_steps)
    there = courses.begin < courses.end
    np.minimum.at(first, group[there], courses.begin[there])
    return np.flatnonzero(there & (courses.begin == first[group]))


def p_values(evidence: Sequence[Floats]) -> Floats:
    """(group,) how likely groups fall behind as far as they did, by chance; never too small.

    Args:
        evidence: for each group (strength,) logarithms of E.
    """
    weights = np.log([weight for _, weight in STRENGTHS])
    found = np.array([np.logaddexp.reduce(one + weights) for one in evidence]).reshape(len(evidence))
    return np.asarray(np.exp(-np.maximum(found, 0.0)))


class Tested(NamedTuple):
    """A p-value, and the same with regard to how many there are."""

    p_value: float
    corrected: float


def holm(values: Floats) -> list[Tested]:
    """The p-values of several tests, corrected such that any of them is wrong with at most the level asked for."""
    order = np.argsort(values, kind="stable")
    steps = np.minimum(values[order] * (len(values) - np.arange(len(values))), 1.0)
    corrected = np.empty(len(values))
    corrected[order] = np.maximum.accumulate(steps)
    return [Tested(float(one), float(other)) for one, other in zip(values, corrected, strict=True)]
