"""Expected and realised rewards: an exact decomposition of the difference, intervals, and a test for shortfalls.

An arm takes part from step b to step c (exclusive) and continues by a randomised policy pi(s, a) of its own: that of
the fair relaxation of the roster (`Continuation`). Its expected reward over k remaining steps, and the value of an
action, are

    H_0 = 0        Q_k(s, a) = r(s, a) + sum_s' p(s, a, s') H_{k-1}(s')        H_k(s) = sum_a pi(s, a) Q_k(s, a)

Let mu be the distribution of its state: a point if it was observed, else propagated from there by the actions done.
With k = c - t remaining steps at step t, and mu- the distribution before the observation at t,

    sum_t mu r(done)  =  mu H_k at b                                      expected from its first state
                      +  sum_t mu Q_k(planned) - mu H_k                   gained by its plans
                      +  sum_t mu Q_k(accepted) - mu Q_k(planned)         overrides
                      +  sum_t mu Q_k(done) - mu Q_k(accepted)            decisions not carried out
                      +  sum_t mu H_k - mu- H_k                           transitions better or worse than the model's

The first two lines are the promise. Recorded rewards add their differences from the model's. If the model is right, the
transition terms are martingale differences, however plans, budgets and overrides couple the arms, since actions do not
depend on the next transition. Their conditional variances mu- H^2 - (mu- H)^2 add up to the intervals.

A warning must hold for any number of arms and steps, also if bad luck makes the variance small and if arms leave
because of their state. The test therefore weights transitions by the values until the end of the whole window
(`Trajectories.until`), which no event can change. With D such terms of a group and a fixed l > 0,

    E_l = exp( - l sum_t D_t - sum_t log E[exp(-l D_t) | past] )

has mean at most 1, and so has a mean over several l. Hence P(E >= 1/p) <= p by Markov's inequality: 1/E is a p-value.
Recorded rewards enter by their differences x from the model's as exp(-l x - l^2 x^2 / 2), of mean at most 1 if they are
symmetric (de la Pena 1999). The p-values of several groups are corrected by Holm's method.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import logsumexp, ndtri

from evenhand.errors import EvenhandError, NotConvergedError
from evenhand.model import CoupledMDP
from evenhand.planning import relax
from evenhand.policies.fluid import OccupancyPriority, occupancy_priority
from evenhand.programme.named_model import of_roster
from evenhand.typing import Array, Bools, Floats, Ints

STRENGTHS = ((0.25, 0.15), (0.5, 0.25), (1.0, 0.4), (2.0, 0.2))
"""(factor, weight) per l: factors of the l that is optimal for the expected variance."""

UNKNOWN = -1
"""Index of an unknown state or action."""


@dataclass(frozen=True, eq=False)
class Continuation:
    """Randomised policy per kind of arm, and its values."""

    model: CoupledMDP
    """Settled model."""
    action_probabilities: Floats
    """(block, state, action)"""
    welfare: str
    """Welfare of the relaxation."""

    def values(self, horizon: int) -> Floats:
        """Return H, (remaining steps, block, state), for 0 to `horizon` remaining steps."""
        found = np.zeros((horizon + 1, *self.model.tables.rewards.shape[:2]))
        for k in range(1, horizon + 1):
            found[k] = self._mean(self.action_values(found[k - 1]))
        return found

    def action_values(self, ahead: Floats, discount: float = 1.0) -> Floats:
        """Return (block, state, action) values from (block, state) values of the next step."""
        tables = self.model.tables
        return np.asarray(tables.rewards + discount * np.einsum("bsaz,bz->bsa", tables.transitions, ahead))

    def _mean(self, by_action: Floats) -> Floats:
        return np.asarray((self.action_probabilities * by_action).sum(axis=-1))

    def spreads(self, values: Floats) -> Floats:
        """Return the variance of all future transition terms, (remaining steps, block, state), from H."""
        found = np.zeros_like(values)
        for k in range(1, len(values)):
            mean = self.action_values(values[k - 1]) - self.model.tables.rewards
            square = np.einsum("bsaz,bz->bsa", self.model.tables.transitions, values[k - 1] ** 2 + found[k - 1])
            found[k] = self._mean(np.maximum(square - mean**2, 0.0))
        return found

    def long_run(self) -> Floats:
        """Return (block, state, action) values by the programme's criterion, for the cost of overrides.

        Under the average criterion they are those of 200 steps.
        """
        criterion, tables = self.model.criterion, self.model.tables
        if criterion.is_stationary and criterion.factor < 1:
            onward = np.einsum("bsa,bsaz->bsz", self.action_probabilities, tables.transitions)
            reward = self._mean(tables.rewards)
            ahead = np.linalg.solve(np.eye(onward.shape[1]) - criterion.factor * onward, reward[..., None])[..., 0]
            return self.action_values(ahead, criterion.factor)
        steps = 200 if criterion.is_stationary else criterion.num_layers
        discount = 1.0 if criterion.is_stationary else self.model.discount
        ahead = np.zeros(tables.rewards.shape[:2])
        for _ in range(steps - 1):
            ahead = self._mean(self.action_values(ahead, discount))
        return self.action_values(ahead, discount)

    @property
    def needs(self) -> Bools:
        """(block, state) whether the relaxation ever serves an arm there: it is in need."""
        return np.asarray(self._mean(self.model.tables.served.astype(np.float64)) > 1e-6)


def continue_by(model: CoupledMDP, counts: Ints, welfare: str | None) -> Continuation:
    """Return the policies of the fair relaxation of a roster; of the utilitarian one if it cannot be solved.

    Args:
        model: settled model.
        counts: (block,) number of arms.
        welfare: welfare of the programme.

    Raises:
        NotConvergedError: neither relaxation was solved.
    """
    endless = model if model.criterion.is_stationary else model.with_criterion("average")
    nonempty = np.flatnonzero(counts)
    roster = of_roster(endless, np.repeat(nonempty, counts[nonempty]))
    for tried in (welfare, "utilitarian"):
        with contextlib.suppress(EvenhandError):
            relaxed = relax(roster, tried)
            prices = relaxed.floor_prices if roster.has_floors else None
            policy = occupancy_priority(roster, relaxed.occupancy, relaxed.weights, relaxed.prices, prices)
            assert isinstance(policy, OccupancyPriority)  # the horizon is infinite
            found = policy.laws[roster.type_of_block]
            whole = (np.arange(model.tables.rewards.shape[2]) == model.tables.idle[:, :, None]).astype(np.float64)
            whole[nonempty] = found / found.sum(axis=-1, keepdims=True).clip(1e-300)
            return Continuation(model, whole, tried or "")
    raise NotConvergedError("audit: the relaxation of the roster was not solved, so expectations are not available")


@dataclass(frozen=True, eq=False)
class Trajectories:
    """Observations and actions of arms by step, as indices of one model, `UNKNOWN` if missing."""

    block: Ints
    """(arm,) kind."""
    begin: Ints
    """(arm,) first step, counted from the first of all."""
    end: Ints
    """(arm,) step after the last."""
    state: Ints
    """(arm, step) observed state."""
    planned: Ints
    """(arm, step) planned action."""
    accepted: Ints
    """(arm, step) accepted action."""
    done: Ints
    """(arm, step) action done, or assumed."""
    reward: Floats
    """(arm, step) recorded reward; nan if missing."""
    start: Floats
    """(arm, state) distribution at `begin`, before the observation."""
    was_seen: Bools
    """(arm,) whether it was observed before `begin`."""
    until: Ints
    """(arm,) step after the whole window, which is fixed beforehand, unlike `end`."""

    def part(self, arms: Ints | slice) -> "Trajectories":
        """Return some of the arms."""
        return Trajectories(**{name: value[arms] for name, value in vars(self).items()})

    @property
    def horizon(self) -> int:
        """Number of steps."""
        return int(self.state.shape[1])


Account = dict[str, Array]
"""Decomposition of the rewards of arms: `SUMS`, (arm,) each, and

    evidence       (arm, strength) contribution to log E
    impossible     (arm,) transitions of probability 0
    probabilities  (arm, step, state) distribution of the state; 0 if the arm takes no part
"""

SUMS = ("steps", "realised", "expected", "plans", "overrides", "undone", "moves", "rewards", "variance",
        "reward_variance")  # fmt: skip
"""Sums over the steps of an arm: number of steps, realised rewards and the terms above, the conditional variance of
`moves`, and the squares of the terms of `rewards`. The promise is `expected` + `plans`."""


def decompose(continuation: Continuation, arms: Trajectories, strengths: Floats, max_cells: int = 4_000_000) -> Account:
    """Decompose the rewards of arms.

    Args:
        continuation: policy by which they continue.
        arms: observations and actions.
        strengths: (arm, strength) the l of the test of each arm's group.
        max_cells: entries of temporary matrices; arms are processed in batches.
    """
    values = continuation.values(int((arms.until - arms.begin).max(initial=0)))
    size = max(1, max_cells // values.shape[-1] ** 2)
    batches = [slice(start, start + size) for start in range(0, max(len(arms.block), 1), size)]
    parts = [_Filter(continuation, values, arms.part(batch), strengths[batch]).account() for batch in batches]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


class _Filter:
    """Forward pass over the steps: state distributions and the account so far."""

    def __init__(self, continuation: Continuation, values: Floats, arms: Trajectories, strengths: Floats) -> None:
        self.tables, self.values, self.arms, self.strengths = continuation.model.tables, values, arms, strengths
        longest = int((arms.end - arms.begin).max(initial=0))
        ahead = values[[0, *range(longest)]]  # the first, of 0 remaining steps, is never used
        self.action_values = np.stack([continuation.action_values(value) for value in ahead])
        n = len(arms.block)
        self.now, self.was_seen = arms.start.copy(), arms.was_seen.copy()
        self.sums: Account = {name: np.zeros(n) for name in SUMS}
        self.sums["evidence"] = np.zeros(strengths.shape)
        self.sums["probabilities"] = np.zeros((n, arms.horizon, values.shape[-1]))
        self.sums["impossible"] = np.zeros(n, dtype=np.int64)

    def account(self) -> Account:
        for step in range(self.arms.horizon):
            there = np.flatnonzero((self.arms.begin <= step) & (step < self.arms.end))
            if len(there):
                self._observe(there, step)
                self._act(there, step)
        return self.sums

    def _observe(self, there: Ints, step: int) -> None:
        arms = self.arms
        value = self.values[arms.end[there] - step, arms.block[there]]
        state = arms.state[there, step]
        seen, new = state != UNKNOWN, arms.begin[there] == step
        moved = seen & ~new & self.was_seen[there]
        self._add_moves(there[moved], state[moved], value[moved], step)
        before = (self.now[there] * value).sum(axis=1)
        self.now[there[seen]] = np.arange(value.shape[1]) == state[seen, None]
        # The promise to an arm that was never observed before begins here.
        late = seen & ~new & ~self.was_seen[there]
        begun = np.where(new, (self.now[there] * value).sum(axis=1), 0.0)
        begun[late] += value[late, state[late]] - before[late]
        self.sums["expected"][there] += begun
        self.was_seen[there[seen]] = True
        self.sums["probabilities"][there, step] = self.now[there]

    def _add_moves(self, moved: Ints, state: Ints, value: Floats, step: int) -> None:
        p, rows = self.now[moved], np.arange(len(moved))
        off = value - (p * value).sum(axis=1)[:, None]
        self.sums["moves"][moved] += off[rows, state]
        self.sums["variance"][moved] += (p * off**2).sum(axis=1)
        self.sums["impossible"][moved] += p[rows, state] <= 0
        whole = self.values[self.arms.until[moved] - step, self.arms.block[moved]]
        off = whole - (p * whole).sum(axis=1)[:, None]
        strengths = self.strengths[moved]
        terms = np.where(p[:, None, :] > 0, -strengths[:, :, None] * off[:, None, :], -np.inf)
        largest = terms.max(axis=-1)  # a plain logsumexp, in a fifth of the time of SciPy's
        normaliser = largest + np.log((p[:, None, :] * np.exp(terms - largest[:, :, None])).sum(axis=-1))
        self.sums["evidence"][moved] += -strengths * off[rows, state][:, None] - normaliser

    def _act(self, there: Ints, step: int) -> None:
        arms, block, p = self.arms, self.arms.block[there], self.now[there]
        left, rows = arms.end[there] - step, np.arange(len(there))
        by_action = (p[:, :, None] * self.action_values[left, block]).sum(axis=1)
        worth = [(p * self.values[left, block]).sum(axis=1)]
        worth += [by_action[rows, table[there, step]] for table in (arms.planned, arms.accepted, arms.done)]
        for name, before, after in zip(("plans", "overrides", "undone"), worth, worth[1:], strict=False):
            self.sums[name][there] += after - before
        done, recorded = arms.done[there, step], arms.reward[there, step]
        self.now[there] = np.einsum("ns,nsz->nz", p, self.tables.transitions[block, :, done])
        expected = (p * self.tables.rewards[block, :, done]).sum(axis=1)
        more = np.where(np.isfinite(recorded), recorded - expected, 0.0)
        self.sums["steps"][there] += 1
        self.sums["realised"][there] += expected + more
        self.sums["rewards"][there] += more
        self.sums["reward_variance"][there] += more**2
        # The reward of an unobserved state also depends on the state and is not symmetric: it does not enter the test.
        even = np.where(self.arms.state[there, step] != UNKNOWN, more, 0.0)[:, None]
        self.sums["evidence"][there] += -self.strengths[there] * even - (self.strengths[there] * even) ** 2 / 2


# The test


def choose_strengths(
    continuation: Continuation, arms: Trajectories, group: Ints, num_groups: int, level: float
) -> Floats:
    """Return (arm, strength) the l of each arm's group, fixed by the states in which its first arms begin.

    Later arms use the l of their group, since they may join because of how the others fared.

    Args:
        continuation: policy by which arms continue.
        arms: observations; only those at the begin of a group's first arms are used.
        group: (arm,) index of its group.
        num_groups: number of groups.
        level: level of the test.
    """
    spreads = continuation.spreads(continuation.values(int((arms.until - arms.begin).max(initial=0))))
    first = np.full(num_groups, arms.horizon)
    there = arms.begin < arms.end
    np.minimum.at(first, group[there], arms.begin[there])
    rows = np.flatnonzero(there & (arms.begin == first[group]))
    begin, start = arms.begin[rows], arms.start[rows]
    state = arms.state[rows, begin]
    start = np.where((state != UNKNOWN)[:, None], np.arange(start.shape[1]) == state[:, None], start)
    variance = (start * spreads[arms.until[rows] - begin, arms.block[rows]]).sum(axis=1)
    total = np.bincount(group[rows], weights=variance, minlength=num_groups)
    optimal = np.sqrt(2 * np.log(num_groups / level) / np.where(total > 0, total, np.inf))
    return np.asarray(optimal[group][:, None] * np.array([factor for factor, _ in STRENGTHS]))


def detectable_shortfall(variance: float, num_groups: int, level: float, power: float = 0.8) -> float:
    """Return the shortfall of a group's sum that the test finds with some probability, by the normal approximation.

    With V the variance, the test rejects if the mean over l of exp(l x - l^2 V / 2) reaches `num_groups` / `level` at
    the shortfall x, which is then normal with variance V.

    Args:
        variance: of the group's sum.
        num_groups: number of groups that Holm's method corrects for.
        level: level of the test.
        power: that probability.
    """
    if variance <= 0:
        return 0.0
    needed, factors = np.log(num_groups / level), np.array([factor for factor, _ in STRENGTHS])
    strengths, weights = np.sqrt(2 * needed) * factors, np.log([weight for _, weight in STRENGTHS])
    # In standard deviations: x at which the test just rejects.
    just = brentq(lambda x: logsumexp(strengths * x - strengths**2 / 2 + weights) - needed, 0.0, 10 * strengths.max())
    return float((just + ndtri(power)) * np.sqrt(variance))


def p_values(evidence: Sequence[Floats]) -> Floats:
    """Return (group,) p-values of a shortfall.

    Args:
        evidence: per group (strength,) log E.
    """
    weights = np.log([weight for _, weight in STRENGTHS])
    found = np.array([logsumexp(one + weights) for one in evidence]).reshape(len(evidence))
    return np.asarray(np.exp(-np.maximum(found, 0.0)))


def holm(values: Floats) -> Floats:
    """Correct p-values by Holm's method, which controls the family-wise error rate."""
    order = np.argsort(values, kind="stable")
    steps = np.minimum(values[order] * (len(values) - np.arange(len(values))), 1.0)
    corrected = np.empty(len(values))
    corrected[order] = np.maximum.accumulate(steps)
    return corrected
