"""Every type of arm on its own, under any criterion.

An action's *gain* is its immediate value g r - lambda.d at weights g and prices lambda, perhaps with a reward for
service. The best policy of a single arm satisfies

    discounted   V(s)       = max_a gain(s, a) + gamma sum_s' p(s' | s, a) V(s')                policy iteration
    average      rho + h(s) = max_a gain(s, a) + sum_s' p(s' | s, a) h(s')                      policy iteration
    finite       V_t(s)     = max_a gain_t(s, a) + gamma sum_s' p(s' | s, a) V_{t+1}(s')        backwards in time
    opening      the same, from the V of the step that lasts on, which is a discounted one

for all types at once: one batch of S x S systems a round, few rounds, O(T S^3) a round; or O(T S^2 A) a step.

Average. A policy may have several closed classes of states. Choose a representative c of each, and strike its column
out of P: P'. The rewards until some c is hit, R = gain + P' R, and the steps, tau = 1 + P' tau, are finite; the mean
reward of a class is R(c) / tau(c): one system for all classes. Of several classes the best remains, and states
that do not reach it are sent towards it, which weakly communicating arms allow; then h = R - rho tau. The next policy
takes every action of positive advantage gain + P h - h - rho. If no class is better than before, only transient states
have changed, and h has risen: no policy recurs (Haviv and Puterman, "An improved algorithm for solving communicating
average reward Markov decision processes", 1991).

Bounds. For any V and h, every occupancy measure q has

    discounted   q.gain <= mu.V + max(0, max A) total,    A = gain + gamma P V - V
    average      q.gain <= rho + max A,                   A = gain + P h - h - rho
    finite       q.gain <= mu.V_0                         since V_t is at least what Bellman's equation asks for
    opening      q.gain <= mu.V_0, with max(0, max A) total added to the V of the step that lasts

so a bound does not depend on whether policy iteration ended, nor on rounding in the solution of linear systems.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from evenhand.errors import NotApplicableError
from evenhand.model.arm import ArmTables
from evenhand.model.criterion import Criterion
from evenhand.solvers.closed_classes import closure
from evenhand.typing import Array, Bools, Floats, Indices, Ints

MOST_SWEEPS = 100
"""Rounds of policy iteration; what is missing after them goes into the bound."""

ROUNDING = 1e-13
"""Advantages up to this share of the largest relative value are rounding."""

NOISE = (1e-9, 1e-8, 1e-7, 1e-6)
"""Largest frequencies of a pair that are errors of a linear program. Under the average such a pair may join two closed
classes of states, or separate them; each of these is tried, and the nearest result is used."""

ENTRIES = 1 << 22
"""Entries of the tables that are worked on at once."""


@dataclass(frozen=True, eq=False)
class Responses:
    """The best policy of each arm at some gains."""

    measure: Floats
    """(row, state, action), or (row, step, state, action): the policy's occupancy measure."""

    ahead: Floats
    """(row, state), or (row, step, state): values; relative values h for the average."""

    bound: Floats
    """(row,) no policy of the arm has more."""


# -- many arms at a time ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SingleArms:
    """Arms that are solved one by one, many at a time."""

    types: ArmTables
    """The arms."""

    allowed: Bools
    """(type, state, action) what may be chosen."""

    initial: Floats
    """(type, state) distributions of the first state."""

    criterion: Criterion
    """Criterion of rewards over time."""

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The axes of one arm's gains: (state, action), or (step, state, action)."""
        own = self.types.rewards.shape[1:]
        return own if self.criterion.is_stationary else (self.criterion.num_layers, *own)

    def chunks(self, number: int) -> list[slice]:
        """Return batches of rows."""
        step = max(1, ENTRIES // int(self.types.transitions[0].size + np.prod(self.shape)))
        return [slice(begin, begin + step) for begin in range(0, max(number, 1), step)]

    def best(self, rows: Ints, gains: Floats, start: Indices | None = None) -> Responses:
        """The best policy of some arms.

        Args:
            rows: (row,) types, perhaps some of them more than once.
            gains: (row, state, action), or (row, step, state, action), gains of the actions.
            start: (row, state) policies from which policy iteration starts; idling by default.
        """
        parts = [
            self._best_part(rows[part], gains[part], None if start is None else start[part])
            for part in self.chunks(len(rows))
        ]
        if len(parts) == 1:
            return parts[0]
        fields = ("measure", "ahead", "bound")
        return Responses(*(np.concatenate([getattr(part, field) for part in parts]) for field in fields))

    def _best_part(self, rows: Ints, gains: Floats, start: Indices | None) -> Responses:
        if not self.criterion.is_stationary:
            return self._best_in_time(rows, gains)
        moves, allowed, initial = self.types.transitions[rows], self.allowed[rows], self.initial[rows]
        policy = (self.types.idle[rows] if start is None else start).astype(np.int64)
        if self.criterion.is_average:
            return _best_average(moves, allowed, gains, policy)
        policy, ahead, slack = _iterate(moves, allowed, gains, policy, self.criterion)
        visits = discounted_visits(pick(moves, policy), initial, self.criterion.factor)
        bound = np.asarray((initial * ahead).sum(axis=-1) + slack)
        return Responses(as_measure(visits, policy, gains.shape[2]), ahead, bound)

    def _best_in_time(self, rows: Ints, gains: Floats) -> Responses:
        """Backwards from the end, or from the step that lasts."""
        moves, allowed = self.types.transitions[rows], self.allowed[rows]
        factor, real = self.criterion.factor, allowed.any(axis=-1)
        values = np.zeros((len(gains), gains.shape[1] + 1, gains.shape[2]))
        policy = np.zeros(gains.shape[:3], dtype=np.int64)
        steps = gains.shape[1]
        # The step that lasts has a V of its own, which its slack makes an upper bound: so all steps before it have one.
        if self.criterion.lasts:
            idle, steps = self.types.idle[rows].astype(np.int64), steps - 1
            policy[:, steps], ahead, slack = _iterate(moves, allowed, gains[:, steps], idle, self.criterion)
            values[:, steps] = np.where(real, ahead + slack[:, None], 0.0)
        for step in reversed(range(steps)):
            values_now = gains[:, step] + factor * np.einsum("tsaj,tj->tsa", moves, values[:, step + 1])
            values_now = np.where(allowed, values_now, -np.inf)
            policy[:, step] = values_now.argmax(axis=-1)
            # Padded states have no action: minus infinity there would spread.
            values[:, step] = np.where(real, values_now.max(axis=-1), 0.0)
        choices = np.arange(gains.shape[3]) == policy[..., None]
        measure = self._visits_in_time(rows, choices.astype(np.float64))
        return Responses(measure, values[:, :-1], np.asarray((self.initial[rows] * values[:, 0]).sum(axis=-1)))

    def _visits_in_time(self, rows: Ints, choices: Floats) -> Floats:
        """(row, step, state, action) weighted visits of a policy by steps."""
        moves, now, visits = self.types.transitions[rows], self.initial[rows], np.empty(choices.shape)
        for step in range(choices.shape[1]):
            # All that comes after is one step: the shares of time in it are the discounted visits from where it begins.
            if self.criterion.lasts and step == choices.shape[1] - 1:
                chain = np.einsum("tsa,tsaj->tsj", choices[:, step], moves)
                now = discounted_visits(chain, now, self.criterion.factor) / self.criterion.total
            visits[:, step] = now[..., None] * choices[:, step]
            now = np.einsum("tsa,tsaj->tj", visits[:, step], moves)
        return np.asarray(visits * self.criterion.layer_weights[:, None, None])

    def follow(self, rows: Ints, raw: Floats) -> Floats:
        """The occupancy measures of the choices that raw ones show, without their errors of rounding.

        Args:
            rows: (row,) types.
            raw: (row, state, action), or (row, step, state, action): approximate frequencies of the pairs, those
                of an arm, or of each step, together about 1.
        """
        return np.concatenate([self._follow_part(rows[part], raw[part]) for part in self.chunks(len(rows))])

    def _follow_part(self, rows: Ints, raw: Floats) -> Floats:
        if not self.criterion.is_average:
            return self._follow_choices(rows, raw, NOISE[0])
        # Which pairs are errors is unknown beforehand; the measure nearest to the raw one decides.
        found = np.stack([self._follow_choices(rows, raw, noise) for noise in NOISE])
        nearest = np.abs(found - raw).sum(axis=(2, 3)).argmin(axis=0)
        return np.asarray(found[nearest, np.arange(len(rows))])

    def _follow_choices(self, rows: Ints, raw: Floats, noise: float) -> Floats:
        choices = self.choices(rows, raw, noise)
        if not self.criterion.is_stationary:
            return self._visits_in_time(rows, choices)
        chain = np.einsum("tsa,tsaj->tsj", choices, self.types.transitions[rows])
        if self.criterion.is_average:
            visits = _stationary(chain, raw.sum(axis=-1), np.asarray(self.allowed[rows].any(axis=-1)))
        else:
            visits = discounted_visits(chain, self.initial[rows], self.criterion.factor)
        return np.asarray(np.maximum(visits, 0.0)[..., None] * choices)

    def choices(self, rows: Ints, raw: Floats, noise: float = NOISE[0]) -> Floats:
        """The choices that raw measures show; idling where they hardly ever are."""
        raw = np.where(raw > noise, raw, 0.0)
        visits = raw.sum(axis=-1, keepdims=True)
        idle = np.arange(raw.shape[-1]) == self.types.idle[rows][..., None]
        idle = idle & self.allowed[rows]
        seen = visits > 0
        otherwise = idle if self.criterion.is_stationary else idle[:, None]
        return np.where(seen, raw / np.where(seen, visits, 1.0), otherwise)


def pick(table: Array, policy: Array) -> Array:
    """(row, state, ...) the entries of the chosen actions."""
    return np.take_along_axis(table, policy.reshape(*policy.shape, *[1] * (table.ndim - 2)), axis=2)[:, :, 0]


def as_measure(visits: Floats, policy: Array, num_actions: int) -> Floats:
    """(..., state, action) visits of states as visits of the chosen pairs."""
    return np.where(np.arange(num_actions) == policy[..., None], np.maximum(visits, 0.0)[..., None], 0.0)


# -- discounted -------------------------------------------------------------------------------------------------------


def discounted_visits(chain: Floats, initial: Floats, factor: float) -> Floats:
    """(row, state) discounted visits of the states of Markov chains."""
    system = np.eye(chain.shape[1]) - factor * np.swapaxes(chain, 1, 2)
    visits = np.linalg.solve(system, initial[..., None])[..., 0]
    return np.maximum(np.asarray(visits, dtype=np.float64), 0.0)


def _iterate(
    moves: Floats, allowed: Bools, gains: Floats, policy: Ints, criterion: Criterion
) -> tuple[Ints, Floats, Floats]:
    """Policy iteration: (row, state) policies and their values, and (row,) what any others have more at the most."""
    factor, total = criterion.factor, criterion.total
    # Advantages of the size of the last digits of a value would make policies go round. Forbidden actions do not count:
    # their use, and so their loss, may be huge.
    rounding = 1e-14 * np.abs(gains).max(axis=(1, 2), initial=0.0, where=allowed) * total
    eye = np.eye(policy.shape[1])
    for _ in range(MOST_SWEEPS):
        # V = (I - gamma P)^-1 gain of the present policy.
        system = eye - factor * pick(moves, policy)
        ahead = np.asarray(np.linalg.solve(system, pick(gains, policy)[..., None])[..., 0], dtype=np.float64)
        advantages = gains + factor * np.einsum("tsaj,tj->tsa", moves, ahead) - ahead[..., None]
        advantages = np.where(allowed, advantages, -np.inf)
        best = advantages.max(axis=-1)
        better = best > rounding[:, None]
        if not better.any():
            break
        policy = np.where(better, advantages.argmax(axis=-1), policy)
    # What any policy gains on V in a step, at every step.
    return policy, ahead, np.maximum(best.max(axis=-1), 0.0) * total


# -- average ----------------------------------------------------------------------------------------------------------


def _best_average(moves: Floats, allowed: Bools, gains: Floats, policy: Ints) -> Responses:
    real, support = np.asarray(allowed.any(axis=-1)), (moves > 0) & allowed[..., None]
    for _ in range(MOST_SWEEPS):
        policy, chosen, totals = _evaluate_best_class(moves, support, real, gains, policy)
        rows = np.arange(len(policy))
        # R(c) / tau(c), the mean of the best class, and h = R - rho tau.
        mean = totals[rows, chosen, 0] / totals[rows, chosen, 1]
        ahead = np.where(real, totals[..., 0] - mean[:, None] * totals[..., 1], 0.0)
        advantages = gains + np.einsum("tsaj,tj->tsa", moves, ahead) - ahead[..., None] - mean[:, None, None]
        advantages = np.where(allowed, advantages, -np.inf)
        best = advantages.max(axis=-1)
        # tau, and R with it, may be large where the arm seldom returns to c, and their rounding with them.
        longest = np.where(real, totals[..., 1], 1.0).max(axis=1)
        better = best > (ROUNDING * longest * np.abs(gains).max(axis=(1, 2), initial=0.0, where=allowed))[:, None]
        if not better.any():
            break
        policy = np.where(better, advantages.argmax(axis=-1), policy)
    else:
        # The last improvement was not evaluated yet. The bound below is by the h before it, as good as any h.
        policy, chosen, totals = _evaluate_best_class(moves, support, real, gains, policy)
    # Visits between two meetings of c, over the steps between them, are shares of time.
    only = np.arange(policy.shape[1]) == chosen[:, None]
    visits = _between_returns(pick(moves, policy), only, only / totals[rows, chosen, 1][:, None])
    bound = mean + np.maximum(best.max(axis=-1), 0.0)
    return Responses(as_measure(visits, policy, gains.shape[2]), ahead, np.asarray(bound))


def _evaluate_best_class(
    moves: Floats, support: Bools, real: Bools, gains: Floats, policy: Ints
) -> tuple[Ints, Ints, Floats]:
    """Policies with one closed class each, its representative, and (row, state, 2) gains and steps until it is hit."""
    chain = pick(moves, policy)
    reach = closure(chain > 0)
    marks = _representatives(reach, real)
    now = np.stack([pick(gains, policy), np.ones(policy.shape)], axis=-1)
    totals = _until(chain, marks, now)
    means = np.where(marks, totals[..., 0] / totals[..., 1], -np.inf)
    # Of several best classes the first remains.
    chosen = means.argmax(axis=-1)
    # With several classes R and tau do not determine which is reached: all states are sent to the best one.
    several = np.flatnonzero(marks.sum(axis=-1) > 1)
    if len(several):
        goal = chosen[several]
        reached = np.take_along_axis(reach[several], goal[:, None, None], axis=2)[..., 0]
        policy = policy.copy()
        policy[several] = _send_towards(support[several], reached, policy[several])
        only = np.arange(policy.shape[1]) == goal[:, None]
        now = np.stack([pick(gains[several], policy[several]), np.ones(only.shape)], axis=-1)
        totals[several] = _until(pick(moves[several], policy[several]), only, now)
    return policy, chosen, totals


def _representatives(reach: Bools, real: Bools) -> Bools:
    """(row, state) the first state of each closed class."""
    # In one class are those that reach each other; it is closed if it reaches no other state.
    both = reach & np.swapaxes(reach, 1, 2)
    closed = real & ~(reach & ~both).any(axis=-1)
    return np.asarray(closed & (both.argmax(axis=-1) == np.arange(reach.shape[1])))


def _until(chain: Floats, marks: Bools, now: Floats) -> Floats:
    """(row, state, quantity) sums until a marked state is reached, after at least one step."""
    system = np.eye(chain.shape[1]) - np.where(marks[:, None, :], 0.0, chain)
    return np.asarray(np.linalg.solve(system, now))


def _between_returns(chain: Floats, marks: Bools, starts: Floats) -> Floats:
    """(row, state) visits between two meetings of marked states, from starts at marked states."""
    system = np.eye(chain.shape[1]) - np.where(marks[:, None, :], 0.0, chain)
    return np.asarray(np.linalg.solve(np.swapaxes(system, 1, 2), starts[..., None])[..., 0])


def _send_towards(support: Bools, inside: Bools, policy: Ints) -> Ints:
    """The same policies, but states outside choose an action that leads inside, perhaps over several steps."""
    policy = policy.copy()
    for _ in range(policy.shape[1]):
        # From inside out, one step further each round.
        leads = (support & inside[:, None, None, :]).any(axis=-1) & ~inside[..., None]
        joining = leads.any(axis=-1)
        if not joining.any():
            break
        policy = np.where(joining, leads.argmax(axis=-1), policy)
        inside = inside | joining
    return policy


# -- the long run of a given choice, and whether an arm has one -------------------------------------------------------


def _stationary(chain: Floats, mass: Floats, real: Bools) -> Floats:
    """(row, state) the stationary distribution that gives each closed class of a chain its share of the mass."""
    reach = closure(chain > 0)
    marks = _representatives(reach, real)
    owned = np.einsum("tsj,tj->ts", reach, np.maximum(mass, 0.0))  # a closed class reaches only itself
    share = np.where(marks, owned, 0.0)
    share /= share.sum(axis=-1, keepdims=True)
    steps = _until(chain, marks, np.ones((*mass.shape, 1)))[..., 0]
    # The mass of a class starts at its representative, spread over the mean time between two meetings.
    return _between_returns(chain, marks, share / steps)


def check_communicating(types: ArmTables, allowed: Bools, criterion: Criterion) -> None:
    """Raise NotApplicableError under the average, unless no long-run mean of an arm depends on where it starts.

    Args:
        types: the arms.
        allowed: (type, state, action) what may be chosen.
        criterion: criterion of rewards over time.
    """
    if not criterion.is_average:
        return
    bad = np.flatnonzero(~are_communicating(types, allowed))
    if len(bad):
        name = types.labels[bad[0]][0] if types.labels else ""
        called = f" ({name})" if name else ""
        raise NotApplicableError(
            f"criterion average: the long-run mean of arm type {bad[0]}{called} depends on the state it starts in: "
            "some of its states cannot be reached from others. Use the criterion finite:T, or a discount near 1."
        )


def are_communicating(types: ArmTables, allowed: Bools) -> Bools:
    """(type,) whether the arm's long-run means do not depend on where it starts.

    An arm is weakly communicating if from every state the same closed class can be reached, and no policy can stay
    outside of it for ever.

    Args:
        types: the arms.
        allowed: (type, state, action) what may be chosen.
    """
    real, support = np.asarray(allowed.any(axis=-1)), (types.transitions > 0) & allowed[..., None]
    reach = closure(np.asarray(support.any(axis=2)))
    classes = _representatives(reach, real).sum(axis=-1)
    both = reach & np.swapaxes(reach, 1, 2)
    # The largest set of transient states that can be held: strike out states that cannot stay, until none is struck.
    outside = real & (reach & ~both).any(axis=-1)
    for _ in range(real.shape[1]):  # states in which one can stay outside for one step more
        stays = allowed & ~(support & ~outside[:, None, None, :]).any(axis=-1)
        outside = outside & stays.any(axis=-1)
    return np.asarray((classes <= 1) & ~outside.any(axis=-1))


# -- action values ----------------------------------------------------------------------------------------------------


def action_values(
    types: ArmTables, weights: Floats, prices: Floats, criterion: Criterion, floor_prices: Floats | None = None
) -> Floats:
    """(type, state, action) value of each action if the arm continues with its own best policy.

    With a finite horizon (type, step, state, action); for the average, relative to the mean: rho + h = max_a of them.
    Actions that do not exist have -inf, all actions of states that do not exist 0.

    Args:
        types: the arms.
        weights: (type,) weights of the arms' rewards.
        prices: (resource,) prices of use, or (step, resource).
        criterion: criterion of rewards over time.
        floor_prices: (type,) reward of service itself; 0 by default.
    """
    gains = gains_at(types, weights, prices, criterion, floor_prices)
    ahead = SingleArms(types, types.valid, types.initial, criterion).best(np.arange(len(types)), gains).ahead
    # Actions that do not exist must not be chosen; states that do not exist must not spread infinities.
    missing = np.where(types.valid.any(axis=2, keepdims=True), -np.inf, 0.0)
    if criterion.is_stationary:
        expected = np.einsum("tsaj,tj->tsa", types.transitions, ahead)
        return np.where(types.valid, gains + criterion.factor * expected, missing)
    expected = np.einsum("tsaj,tuj->tusa", types.transitions, criterion.following(ahead))
    return np.where(types.valid[:, None], gains + criterion.factor * expected, missing[:, None])


def gains_at(
    types: ArmTables, weights: Floats, prices: Floats, criterion: Criterion, floor_prices: Floats | None = None
) -> Floats:
    """(type, state, action), or (type, step, state, action): gains of the actions at the prices.

    Args:
        types: the arms.
        weights: (type,) weights of the arms' rewards.
        prices: (resource,) prices of use, or (step, resource).
        criterion: criterion of rewards over time.
        floor_prices: (type,) reward of service itself; 0 by default.
    """
    gains = weights[:, None, None] * types.rewards
    if floor_prices is not None:
        gains = gains + floor_prices[:, None, None] * types.served
    if criterion.is_stationary:
        return np.asarray(gains - types.usage @ prices)
    # The same price at every step, unless each has its own.
    by_step = np.broadcast_to(prices, (criterion.num_layers, types.usage.shape[-1]))
    return np.asarray(gains[:, None] - np.einsum("tsak,uk->tusa", types.usage, by_step))
