"""Likelihood-ratio tests of rates, and shares of states over time, for records at irregular times.

Groups of rows, known at the row, have proportional rates under the alternative and equal ones under the null:

    log q[g, i, j] = log q[i, j] + b[g, i, j]        null: b = 0

for the jumps of which at least FEW are expected in both groups under the null; G = 2 (L1 - L0) is about chi-square with
one degree of freedom per b. The groups:

    time           rows of the earlier and of the later half
    types          types against the first one
    before         the row before was in the same state, in one earlier in the order of states, or in a later one
    stay           the state has lasted, as far as rows show, longer than the median; in an event history the time since
                   its row is cut at the median of the times between rows

A Markov chain forgets how it came to its state, so that the last two have no effect. b is the same for all types (but
in their own test) and actions.

Shares of states at a grid of times (`prevalence` of msm): the last recorded state of each arm under observation; and
the distribution x of the same arms at these rows, pushed from row to row from their first rows on,

    x' = sum over a of (x * b[:, a]) exp(Q[a] min(t, d)) exp(Q[0] (t - d)^+)        b the recorded shares of actions

Rows at the entry into an exact state are left out of x, because their times depend on the state, and x is pushed on to
the time itself for these states. An arm whose last row enters an absorbing state stays there, with the weight
C(t) / C(t_last) that its records would have gone on until t: C is the Kaplan-Meier estimate of the time from the first
row of an arm to the last, if that is censored. Errors are standard deviations over posterior draws.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtrc

from evenhand.display import counted
from evenhand.errors import NotConvergedError
from evenhand.fitting.covariates import Design
from evenhand.fitting.ctmc.fit import COARSE
from evenhand.fitting.ctmc.inference import RateModel, posterior_mode
from evenhand.fitting.ctmc.likelihood import read_panel, rounded, with_diagonal
from evenhand.fitting.ctmc.rates import Rates
from evenhand.fitting.diagnostics.format import chance
from evenhand.fitting.diagnostics.homogeneity import LEVEL, MOST_TYPES, HomogeneityTest, holm
from evenhand.fitting.diagnostics.state_shares import MOST_CELLS, Shares
from evenhand.fitting.diagnostics.steps import late
from evenhand.fitting.log import Log
from evenhand.fitting.transition_counts import Moves, group_gaps, recorded_shares
from evenhand.kernels.exponentials import Exponentials
from evenhand.typing import Array, Floats

FEW = 5.0
"""Expected jumps in a group below which a jump has no effect of its own."""

PRECISION = 1e-8
"""Relative precision of maximum log-likelihoods."""


@dataclass(frozen=True)
class RateTest:
    """A likelihood-ratio test of rates."""

    question: str
    """What rates may depend on."""

    test: HomogeneityTest
    """Statistic, degrees of freedom and p-value."""

    @property
    def each(self) -> tuple[()]:
        """Tests of single types, which are of whole steps only."""
        return ()

    @property
    def words(self) -> str:
        """A sentence."""
        test = self.test
        if not test.degrees:
            return f"rates cannot be compared by {self.question}: there are too few jumps"
        differ = "differ" if test.adjusted < LEVEL else "are not seen to differ"
        figures = f"G = {test.statistic:.1f}, {counted(test.degrees, 'degree')} of freedom, {chance(test.adjusted)}"
        return f"rates {differ} by {self.question} ({figures})"


def likelihood_ratio(
    log: Log, rates: Rates, group: Array, carry_action: bool, base: Array | None = None, cuts: Sequence[float] = ()
) -> HomogeneityTest:
    """Test whether rates depend on groups of rows.

    Args:
        log: the records.
        rates: of the fit: possible jumps and exact states.
        group: (row,) codes from 0; rows below 0 are left out.
        carry_action: whether an action goes on through the time between rows.
        base: (row,) types with rates of their own; the types of the records by default.
        cuts: times since a row that divide the time between rows; then they are the groups.
    """
    first = np.flatnonzero(~log.is_last & (group >= 0))
    own = log.type_at if base is None else base
    pairs, cell = np.unique(np.stack([own[first], group[first]]), axis=1, return_inverse=True)
    shape = (pairs.shape[1], *log.shape[1:], len(log.states))
    kind = np.ravel_multi_index((cell.ravel(), log.state[first], log.action[first], log.state[first + 1]), shape)
    gaps = group_gaps(kind, np.diff(log.time)[first], shape, *([np.zeros(len(first))] if cuts else []))
    moves = Moves(np.zeros(shape, dtype=np.int64), gaps, carry_action)
    panel = read_panel(moves, log.step, rates.exact, *COARSE, cuts=cuts)
    types, kinds = np.unique(pairs[0], return_inverse=True)
    # Cells are pairs by periods; one of groups and periods is trivial.
    level = np.repeat(pairs[1], len(cuts) + 1) + np.tile(np.arange(len(cuts) + 1), shape[0])
    levels = np.unique(level)
    values = (level[:, None] == levels[1:]).astype(float)
    design = Design(np.repeat(kinds.ravel(), len(cuts) + 1), values)
    # Jumps without a rate in any type are impossible; those of unknown pairs are not.
    jumps = (rates.rates[2] != 0).any(axis=0) & ~np.eye(len(log.states), dtype=bool)
    free = np.broadcast_to(jumps, (len(types), *jumps.shape))
    null, number = RateModel(panel, free, log.step, 0.0, Design(design.type, values[:, :0])), len(first)
    try:
        point = posterior_mode(null, precision=PRECISION)
        expected = panel.expect(null.unpack(point)).jumps.sum(axis=1)
        by_level = np.stack([expected[level == one].sum(axis=0) for one in levels])
        affected = (by_level[1:] >= FEW) & (by_level[0] >= FEW)
        model = RateModel(panel, free, log.step, 0.0, design, affected)
        found = posterior_mode(model, model.pack(null.rates(point), 1.0), PRECISION)
    except NotConvergedError:
        return HomogeneityTest(0.0, 0, 1.0, 1.0, 0.0, number, 0, False)
    degrees = int(affected.sum())
    statistic = max(0.0, 2 * (model.expect(found)[0] - null.expect(point)[0])) if degrees else 0.0
    p_value = float(chdtrc(degrees, statistic)) if degrees else 1.0
    return HomogeneityTest(statistic, degrees, p_value, p_value, (statistic - degrees) / (2 * number), number, 0, False)


def rates_in_time(log: Log, rates: Rates, carry_action: bool) -> RateTest | str:
    """Compare the rates of early and late rows; or say why not."""
    half = late(log.time[~log.is_last])
    if half is None:
        return "all rows are of one time"
    group = np.full(len(log.arm), -1)
    group[~log.is_last] = half
    return RateTest("time, early and late", likelihood_ratio(log, rates, group, carry_action))


def rates_between_types(log: Log, rates: Rates, carry_action: bool) -> RateTest | str:
    """Compare the rates of the types; or say why not."""
    if len(log.types) > MOST_TYPES:
        return f"there are more than {MOST_TYPES} types"
    same = np.zeros(len(log.arm), dtype=np.int64)
    return RateTest("type", likelihood_ratio(log, rates, log.type_at, carry_action, same))


def rates_with_memory(log: Log, rates: Rates, carry_action: bool) -> tuple[RateTest, ...]:
    """Test whether rates depend on the state before, and on the time in the state; adjusted for each other."""
    starts = np.append(True, log.is_last[:-1])
    change = np.sign(np.diff(log.state, prepend=log.state[:1])) % 3
    tests = {"the state before": likelihood_ratio(log, rates, np.where(starts, -1, change), carry_action)}
    if len(rates.exact) == len(log.states):
        middle = float(np.median(np.diff(log.time)[~log.is_last[:-1]]))
        stay = likelihood_ratio(log, rates, np.zeros_like(log.state), carry_action, cuts=(middle,))
    else:
        # Arms have been in their state for this time at least.
        entry = np.maximum.accumulate(np.where(starts | (change > 0), np.arange(len(starts)), 0))
        lasted = log.time - log.time[entry]
        middle = float(np.median(lasted[lasted > 0])) if (lasted > 0).any() else 0.0
        stay = likelihood_ratio(log, rates, (lasted > middle).astype(np.int64), carry_action)
    tests["the time in the state"] = stay
    return tuple(RateTest(name, test) for name, test in zip(tests, holm(list(tests.values())), strict=True))


def prevalence(log: Log, rates: Rates, carry_action: bool, num_times: int = 20) -> Shares | str:
    """Compare recorded shares of states with those of the model at a grid of times; or say why not."""
    is_exact = np.isin(np.arange(len(log.states)), rates.exact)
    if log.cuts:
        return "rates change with time"
    if is_exact.all() and len(log.actions) > 1:
        return "rows and actions come with changes of the state"
    if log.num_arms * len(log.states) ** 2 > MOST_CELLS:
        return "there are too many arms to push them through"
    first = np.flatnonzero(np.append(True, log.is_last[:-1]))
    last, span = np.flatnonzero(log.is_last), float(log.time.max())
    grid = span * np.arange(1, num_times + 1) / num_times
    changed = np.append(False, log.state[1:] != log.state[:-1])
    changed[first] = False
    absorbed = (rates.draws[0, :, 0].sum(axis=-1) == 0)[log.type_at[last], log.state[last]] & changed[last]
    # (hit,) arms under observation at times of the grid, their last rows, and their last rows of chosen times.
    until = np.where(absorbed, span, log.time[last])
    arm, place = np.nonzero((log.time[first][:, None] <= grid) & (grid <= until[:, None]))
    visits = np.flatnonzero(~(changed & is_exact[log.state]))

    def last_of(rows: Array) -> Array:
        keys = log.arm[rows] * (2 * span + 1) + log.time[rows]
        return rows[np.searchsorted(keys, arm * (2 * span + 1) + grid[place], side="right") - 1]

    row, visit = last_of(np.arange(len(log.arm))), last_of(visits)
    weight, beyond = np.ones(len(arm)), absorbed[arm] & (grid[place] > log.time[last][arm])
    length = log.time[last] - log.time[first]
    order = np.argsort(length, kind="stable")
    at_risk = len(order) - np.searchsorted(length[order], length[order])
    stays = np.append(1.0, np.cumprod(1 - ~absorbed[order] / at_risk))
    follow_up = np.stack([grid[place] - log.time[first][arm], length[arm]])[:, beyond]
    later, before = stays[np.searchsorted(length[order], follow_up, side="right")]
    weight[beyond] = later / np.where(before > 0, before, 1.0)
    # Rows of chosen times one after the other, and the times between them and to the grid.
    starts = np.append(True, log.arm[visits][1:] != log.arm[visits][:-1])
    pause = np.where(starts, 0.0, np.diff(log.time[visits], prepend=0.0))
    times = rounded(np.append(pause, grid[place] - log.time[visit]), log.step, *COARSE)
    lengths, code = np.unique(times, return_inverse=True)
    to_row, to_grid = np.split(code.ravel(), [len(pause)])
    number = np.arange(len(visits)) - np.maximum.accumulate(np.where(starts, np.arange(len(visits)), 0))
    turns = np.split(np.argsort(number, kind="stable"), np.cumsum(np.bincount(number))[:-1])
    policy, kind, hit = recorded_shares(log).shares, log.type_at[visits], np.searchsorted(visits, visit)
    predicted = []
    for one in rates.draws:
        paths = _mixed_paths(one, policy, lengths, log.step, carry_action)
        states = np.eye(len(log.states))[log.state[visits]]
        for now in turns[1:]:
            states[now] = np.einsum("ks,kst->kt", states[now - 1], paths[kind[now - 1], to_row[now]])
        onwards = states[hit][:, :, None] * paths[kind[hit], to_grid]
        entered = np.where(is_exact, onwards, 0.0).sum(axis=2)
        ends = np.where(is_exact | beyond[:, None], onwards.sum(axis=1), states[hit] - entered)
        predicted.append(np.stack([np.bincount(place, weight * end, num_times) for end in ends.T], axis=1))
    arms = np.bincount(place, weight, num_times)
    seen = np.zeros((num_times, len(log.states)))
    np.add.at(seen, (place, log.state[row]), weight)
    shown, total = arms > 0.5, np.maximum(arms, 0.5)[:, None]
    own, error = predicted[0] / total, np.std(predicted[1:], axis=0) / total
    distance = float(np.abs(seen - predicted[0]).sum() / 2 / arms.sum())
    steps = grid[shown] / log.step
    return Shares(steps, arms[shown], (seen / total)[shown], own[shown], log.states, distance, error[shown])


def _mixed_paths(rates: Floats, policy: Floats, times: Floats, step: float, carry_action: bool) -> Floats:
    """(type, time, state, next_state) distributions after these times, under the recorded shares of actions."""
    shape = rates.shape
    flat = with_diagonal(rates.reshape(-1, *shape[2:]))
    which = np.repeat(np.arange(len(flat), dtype=np.int32), len(times))
    acting = times if carry_action else np.minimum(times, step)
    first, rest = (
        Exponentials(flat, which, np.tile(part, len(flat))).values.reshape(*shape[:2], len(times), *shape[2:])
        for part in (acting, times - acting)
    )
    return np.asarray(np.einsum("tsa,tamsk->tmsk", policy, first) @ rest[:, 0])
