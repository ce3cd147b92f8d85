"""Long runs: simulated averages that have forgotten their start.

How long arms take to forget it is computed, not guessed. From the visits of a run, pi(a | s) is the share of action a
in state s of a type (idling where no arm was), P its chain and r its rewards. Powers of the lazy chain L = (I + P) / 2,
which has the closed classes and the long-run shares of P and no periods, are squared until they stand still,

    L^2n = L^n  nearly,     g = L^n r,     h = (sum_{t<n} L^t r - n g) / 2      so that  h = r - g + P h

with g the long-run mean from each state, whatever the classes, and h the relative values. An arm that follows pi has
forgotten its start after n/2 steps: a run of 2 n steps, of which the first quarter does not count, has it behind it.

A run that is too short is played again, longer, until by the chain of its own visits it is long enough, and the
two halves of what counts differ by no more than chance explains: arms compete for the budget, so that all of them
together may be slower than each by itself. Arms that mostly stay where they are are played from change to change
(`simulate_events`), whose cost does not grow with how slow they are. A run of more steps per episode, or
of more work, than allowed, is refused before it is played: a run that is too short would be biased.

On a run that is played again, A(s, a) = r(s, a) + sum_j p(j | s, a) h(j) - h(s) is played beside r. Sums of A and r
differ by h of the last and the first state, so their long-run means are equal; under pi the mean of A is g at every
step, so that the chance and the bias of slow moves are gone from it but for what competition adds. For each type that
of the two is reported which varies less over episodes.

Arms may also be slow only jointly: a crew that falls behind stays behind. So the last run is compared with one from
another start, the recurrent states of least relative value, and their means must agree but for chance (`thorough`);
otherwise the run is lengthened. This is the comparison of dispersed starts of Gelman and Rubin (1992). `Mixing`
reports it, and what else is known of the batches.

Arms that move by an exact period have no variance, but a run need not be a whole number of periods. Of a unit without
variance the truncation error, at most the span of h over the steps that count, joins the standard error.

A horizon that the user gives is not changed. If it is too short, A is reported, and by how much A and r differ joins
the standard error: the larger the correction, the less it can be trusted.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr, stdtrit

from evenhand.errors import NotConvergedError
from evenhand.evaluation.count_simulation import simulate_counts
from evenhand.evaluation.rollout import Rollout, compiled_tables, leaving, simulate, simulate_events
from evenhand.model.coupled import CoupledMDP
from evenhand.model.criterion import USUAL_AVERAGE_HORIZON, WARM_UP
from evenhand.model.policy import Policy, StatefulPolicy
from evenhand.model.simulator import Problem
from evenhand.typing import Floats, Indices, Progress, Rng

FORGOTTEN, NEARLY = 1e-4, 1e-2
"""Largest remaining influence of the start on the probability of a state in a run of plain rewards, and in one of A,
from which nearly all of it is gone."""

AGREE, DRIFTS = 2.0, 4.0
"""Standard errors by which runs from different starts may differ (a false alarm costs a longer run only), and by which
the halves of a run must differ to be more than chance."""

GROWTH = 32
"""Largest ratio of the lengths of successive runs: unvisited states may suggest a slowness that does not exist."""

PERIOD = 10.0
"""Steps of rewards by which halves may differ without drift: neither need be a whole number of periods."""

RESIDUAL = 1e-13
"""Change of a chain that stands still, but for rounding."""


@dataclass(frozen=True)
class Mixing:
    """Mixing of a simulated average, from independent batches: the episodes without their first quarter.

    The integrated autocorrelation time of the rewards of an arm is the variance of its batch means times their length,
    divided by the variance of its reward at a step: 1 + 2 (sum of the autocorrelations), but for long batches.
    """

    num_batches: int
    """Number of batches."""

    batch_length: int
    """Steps per batch."""

    forgetting_steps: float | None
    """Steps after which an arm by itself has forgotten its start, by the chain of its visits; None if not known."""

    autocorrelation_time: Floats | None
    """(type,) steps of an arm; NaN where rewards or batch means do not vary, None for simulators and counts."""

    halves: float | None
    """Largest difference between the halves of the batches, in standard errors; None of fewer than eight batches."""

    starts: float | None
    """Largest difference from a run that started in the worst states, in standard errors; None without such a run."""

    @property
    def effective_sample_size(self) -> Floats | None:
        """(type,) number of independent steps of an arm that would be as informative."""
        times = self.autocorrelation_time
        return None if times is None else self.num_batches * self.batch_length / times

    @classmethod
    def worst(cls, parts: "Sequence[Mixing]") -> "Mixing":
        """The worst figures of the parts of a mixture, with the batches of all of them."""

        def most(name: str) -> float | None:
            found = [getattr(part, name) for part in parts]
            return None if None in found else float(max(found))

        times = [part.autocorrelation_time for part in parts if part.autocorrelation_time is not None]
        return cls(
            num_batches=sum(part.num_batches for part in parts),
            batch_length=min(part.batch_length for part in parts),
            forgetting_steps=most("forgetting_steps"),
            autocorrelation_time=np.fmax.reduce(times) if len(times) == len(parts) else None,
            halves=most("halves"),
            starts=most("starts"),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        found: dict[str, Any] = {name: getattr(self, name) for name in self.__dataclass_fields__}
        for name in ("autocorrelation_time", "effective_sample_size"):
            by_type: Floats | None = getattr(self, name)
            found[name] = None if by_type is None else [None if np.isnan(one) else one for one in by_type.tolist()]
        return found


class LongRun(NamedTuple):
    """Result of a policy in the long run."""

    rollout: Rollout
    """The run that counts; its returns are those of rewards."""

    estimates: Floats
    """(episode, arm), or type for counts: what is reported."""

    bias: Floats
    """(arm,) or (type,): what a horizon that is too short may have left of the start; 0 if it is long enough."""

    mixing: Mixing | None = None
    """How well the run mixes; None unless it is an average."""


class LongRunLimits(NamedTuple):
    """Limits on the length of a run, and requirements on its result."""

    longest: float = 1e6
    """Steps, or changes, of an episode at the most."""

    most_work: float = 3e8
    """Steps of arms of a lengthened run at the most: about ten seconds."""

    thorough: bool = False
    """True if a run from another start must agree."""

    usual: int = USUAL_AVERAGE_HORIZON
    """Steps with which to begin."""

    followed_arm_steps: float = 3e9
    """Arm-steps beyond which an exchangeable policy is simulated by counts instead of arm by arm."""


def play_long_run(
    problem: Problem,
    policy: Policy | StatefulPolicy,
    episodes: Callable[[float], int],
    rng: Rng,
    by_counts: bool = False,
    horizon: int | None = None,
    progress: Progress | None = None,
    limits: LongRunLimits = LongRunLimits(),  # noqa: B008  # a constant
) -> LongRun:
    """Play a policy for as long as its long run takes.

    Args:
        problem: the problem, under `average`.
        policy: the policy.
        episodes: number of episodes, by the steps that have to be simulated of each.
        rng: seed or generator.
        by_counts: whether crowds are simulated, rather than arms.
        horizon: steps per episode; as many as are needed by default.
        progress: called at intervals with the current task and the completed share.
        limits: limits on its length.

    Raises:
        NotConvergedError: more steps would be needed than can be simulated; reports the number.
    """
    steps, rate, known, share = horizon or limits.usual, 1.0, None, 1
    width = problem.types.valid.size if by_counts else problem.num_arms
    # A step costs at least as much as 3000 of arms if the policy is called at every step.
    least = 3000.0 if by_counts or compiled_tables(policy, problem) is None else 1.0

    def play(problem: Problem) -> Rollout:
        """One run: by counts, from change to change, or step by step."""
        rewards, given = None, (number, steps, rng, progress)
        if known is not None:
            rewards = np.stack([known, problem.types.rewards])
        if rate == 1:
            return (simulate_counts if by_counts else simulate)(problem, policy, *given, rewards=rewards)
        assert isinstance(problem, CoupledMDP) and isinstance(policy, Policy)
        run = simulate_events(problem, policy, *given, rewards)
        if not by_counts:
            return run
        assert run.drift is not None
        returns, served, drift = (mean_by_type(problem, figures) for figures in (run.returns, run.served, run.drift))
        return replace(run, returns=returns, served=served, drift=drift)

    starts = halves = None
    while True:
        number = episodes(max(share * rate * steps, 1.0))
        rollout = play(problem)
        found = _settle(problem, rollout.visits)
        plain = known is None
        needed = 0.0 if found is None else found.plain_steps if plain else found.steps
        own, drifts = _drift(rollout)
        # A given horizon is played for rewards and then for A: the start is in the rewards.
        halves = own if horizon is None or halves is None or own is None else max(halves, own)
        needed = max(needed, 2.0 * steps if drifts else 0.0)
        if limits.thorough and number > 1 and horizon is None and needed <= steps and found is not None:
            other = _elsewhere(problem, found)
            if other is not None:
                starts, differ = _disagreement(problem, rollout, play(other))
                needed = 2.0 * steps if differ else needed
        given = horizon is not None and (known is not None or found is None)
        if needed <= steps or given:
            run = _reported(problem, rollout, known, found, needed <= steps)
            forgetting = None if found is None else found.plain_steps / WARM_UP
            return run._replace(mixing=_mixing(problem, run.rollout, forgetting, halves, starts))
        if plain and found is not None and needed <= found.plain_steps:
            needed = max(found.steps, steps)
        known = None if found is None else found.gains
        if horizon is None:
            # A run that is not likely to be the last one is played on fewer episodes.
            share = GROWTH if needed > GROWTH * steps else 1
            steps = math.ceil(min(needed, GROWTH * steps))
            rate = _changes(problem, policy, rollout, by_counts)
            work = max(episodes(max(share * rate * steps, 1.0)) * width, least) * rate * steps
            if rate * steps > limits.longest or work > limits.most_work:
                raise _too_long(needed)


def plain_steps(problem: CoupledMDP, policy: Policy | StatefulPolicy, rng: Rng) -> int:
    """Steps of a run of plain rewards that is long enough, by a few episodes.

    Args:
        problem: the problem, under `average`.
        policy: the policy.
        rng: seed or generator.

    Raises:
        NotConvergedError: more steps would be needed than can be played.
    """
    run = play_long_run(problem, policy, lambda _: 20, rng).rollout
    found = _settle(problem, run.visits)
    steps = max(run.horizon if found is None else found.plain_steps, USUAL_AVERAGE_HORIZON)
    if steps > LongRunLimits().longest:
        raise _too_long(steps)
    return int(steps)


def _too_long(steps: float) -> NotConvergedError:
    return NotConvergedError(
        f"the long run of this policy takes {steps:.2g} steps per episode or more, which cannot be played. Use an "
        "exact method, or the criterion discounted or finite:T."
    )


def _changes(problem: Problem, policy: Policy | StatefulPolicy, rollout: Rollout, by_counts: bool) -> float:
    """The work per step if changes are played one by one, as a share of that of a step; 1 if it does not pay."""
    if rollout.visits is None or isinstance(policy, StatefulPolicy) or compiled_tables(policy, problem) is None:
        return 1.0
    assert isinstance(problem, CoupledMDP)
    rate = float((rollout.visits.sum(axis=2) * leaving(problem)).sum()) / len(rollout.used)
    # A change costs as much as about three steps; each arm is followed, where a step of counts costs its cells.
    wider = max(problem.num_arms / problem.types.valid.size, 1.0) if by_counts else 1.0
    return min(max(3 * rate * wider, 1e-9), 1.0)


class _Settled(NamedTuple):
    plain_steps: float
    """Of a run of rewards that is long enough; 0 for less than the usual."""

    steps: float
    """Of a run of A."""

    gains: Floats
    """(type, state, action) A."""

    spans: Floats
    """(type,) largest less smallest relative value of the recurrent states."""

    worst: Indices | None
    """(type,) the recurrent state of least relative value; None if the long run depends on the start."""


def _settle(problem: Problem, visits: Floats | None) -> _Settled | None:
    """Run lengths after which arms of every type have forgotten their start, and A; None if unknown."""
    if visits is None or not isinstance(problem, CoupledMDP):
        return None
    types = problem.types
    num_types, num_states, _ = types.valid.shape
    # Powers of larger chains take too long: there only halves are compared.
    if num_types * float(num_states) ** 2 > 2e7 or float(num_states) ** 3 > 3e8:
        return None
    chances = shares_of(problem, visits)
    rewards = (chances * np.where(types.valid, types.rewards, 0.0)).sum(axis=2)[..., None]
    chain = np.einsum("tsa,tsaj->tsj", chances, types.transitions)
    # States that a type does not have are never left, nor reached.
    chain += np.eye(num_states) * (1 - chain.sum(axis=2, keepdims=True))
    power, sums, number = (np.eye(num_states) + chain) / 2, rewards, 1.0
    lengths = dict.fromkeys((FORGOTTEN, NEARLY), 1.0)
    while number < 2.0**60:
        doubled = power @ power
        doubled /= doubled.sum(axis=2, keepdims=True)
        reached = np.einsum("ts,tsj->tj", types.initial, power) > 0
        change = float(np.abs(doubled - power).max(axis=2)[reached].max())
        # The last change counts, not the first: a slow chain hardly changes at its beginning either.
        lengths = {share: 2 * number if change > share else length for share, length in lengths.items()}
        if change <= RESIDUAL:
            break
        power, sums, number = doubled, sums + power @ sums, 2 * number
    ahead = (sums - number * (doubled @ rewards))[..., 0] / 2
    moved = np.einsum("tsaj,tj->tsa", types.transitions, ahead)
    gains = np.where(types.valid, types.rewards + moved - ahead[:, :, None], 0.0)
    # n of a usual run is 512; it need not have 2 n steps to the last one.
    runs = [length / 512 * USUAL_AVERAGE_HORIZON for length in lengths.values()]
    shares = np.einsum("ts,tsj->tj", types.initial, doubled)
    recurrent, reached = shares > RESIDUAL, (shares > 0) | (types.initial > 0)
    worst = np.where(recurrent, ahead, np.inf)
    spans = np.where(recurrent, ahead, -np.inf).max(axis=1) - worst.min(axis=1)
    depends = np.abs(np.where(reached[..., None], doubled - shares[:, None], 0.0)).max() > FORGOTTEN
    return _Settled(runs[0], runs[1], gains, spans, None if depends else worst.argmin(axis=1).astype(np.int32))


def _elsewhere(problem: Problem, found: _Settled) -> CoupledMDP | None:
    """The problem with all arms in their worst recurrent states; None if the start matters or distinguishes types."""
    if found.worst is None or not isinstance(problem, CoupledMDP):
        return None
    states = found.worst[problem.type_of_block]
    initial = np.eye(problem.tables.initial.shape[1])[states]
    other = replace(problem, arms=replace(problem.tables, initial=initial))
    return other if other.num_types == problem.num_types else None


def _disagreement(problem: Problem, first: Rollout, second: Rollout) -> tuple[float, bool]:
    """Largest difference of two runs in the mean of a type, in standard errors; True if chance does not explain it."""
    figures = []
    for run in (first, second):
        returns = run.returns[0] if run.returns.ndim == 3 else run.returns
        by_type = returns if returns.shape[1] != problem.num_arms else mean_by_type(problem, returns)
        figures.append((by_type.mean(axis=0), by_type.var(axis=0, ddof=1) / len(by_type), len(by_type)))
    (one, spread, number), (other, more, fewer) = figures
    limit = -float(stdtrit(min(number, fewer) - 1, ndtr(-AGREE) / len(one)))
    left_over = PERIOD / first.horizon * max(np.abs(first.returns).max(), np.abs(second.returns).max())
    return _in_errors(np.abs(one - other), np.sqrt(spread + more), limit, left_over)


def _in_errors(differences: Floats, errors: Floats, limit: float, left_over: float) -> tuple[float, bool]:
    """The largest difference in standard errors, of those that vary; True if one is beyond the limit and left over."""
    largest = np.divide(differences, errors, out=np.zeros_like(differences), where=errors > 0).max()
    return float(largest), bool((differences > limit * errors + left_over).any())


def shares_of(problem: CoupledMDP, visits: Floats) -> Floats:
    """(type, state, action) the share of each action among the visits of a state; idling where there was none.

    Args:
        problem: the problem.
        visits: (type, state, action) visits.
    """
    sums = visits.sum(axis=2, keepdims=True)
    idle = np.arange(visits.shape[2]) == problem.types.idle[:, :, None]
    return np.where(sums > 0, visits / np.where(sums > 0, sums, 1.0), idle & problem.types.valid)


def _drift(rollout: Rollout) -> tuple[float | None, bool]:
    """Largest difference of the halves of a run, in standard errors; True if chance and a period do not explain it."""
    if rollout.drift is None or len(rollout.drift) < 8:  # too few to know their spread
        return None, False
    # (episode, unit) the units, and all of them together.
    drift = np.column_stack([rollout.drift, rollout.drift.mean(axis=1)])
    number, columns = drift.shape
    error = drift.std(axis=0, ddof=1) / np.sqrt(number)
    # As rare as DRIFTS errors of one normal figure are, whatever the number of episodes and of units.
    limit = -float(stdtrit(number - 1, ndtr(-DRIFTS) / columns))
    left_over = PERIOD / rollout.horizon * np.abs(rollout.returns).max()
    return _in_errors(np.abs(drift.mean(axis=0)), error, limit, left_over)


def _mixing(
    problem: Problem, rollout: Rollout, forgetting: float | None, halves: float | None, starts: float | None
) -> Mixing:
    """Return the diagnostics of a run of rewards."""
    length, times = rollout.horizon - rollout.horizon // WARM_UP, None
    if rollout.visits is not None and isinstance(problem, CoupledMDP) and rollout.returns.shape[1] == problem.num_arms:
        shares = rollout.visits / rollout.visits.sum(axis=(1, 2), keepdims=True)
        rewards = np.where(problem.types.valid, problem.types.rewards, 0.0)
        means = (shares * rewards).sum(axis=(1, 2))
        at_a_step = (shares * np.square(rewards - means[:, None, None])).sum(axis=(1, 2))
        of_batches = mean_by_type(problem, rollout.returns.var(axis=0, ddof=1)) if len(rollout.returns) > 1 else np.nan
        # A variance of rounding alone is none.
        varies = np.minimum(at_a_step, of_batches) > 1e-20 * np.square(rewards).max(axis=(1, 2))
        times = np.where(varies, length * of_batches / np.where(varies, at_a_step, 1.0), np.nan)
    return Mixing(len(rollout.used), length, forgetting, times, halves, starts)


def _reported(
    problem: Problem, rollout: Rollout, known: Floats | None, found: _Settled | None, enough: bool
) -> LongRun:
    """Return the estimates of a run, and the bias that its start, truncation and rounding may have left.

    Args:
        problem: the problem.
        rollout: the run.
        known: (type, state, action) A, if it was played beside the rewards.
        found: relative values of single arms, if known.
        enough: whether the run is long enough for A, or for rewards without A.
    """
    horizon, drift = rollout.horizon, 0.0 if rollout.drift is None else np.abs(rollout.drift.mean(axis=0))
    played, plain = rollout.returns if known is not None else (rollout.returns, rollout.returns)
    rollout, bias = replace(rollout, returns=plain), np.zeros(plain.shape[1])
    kinds = problem.type_of_arm if plain.shape[1] == problem.num_arms else np.arange(problem.num_types)
    rounding = horizon * float(np.finfo(np.float64).eps) * float(np.abs(played).max(initial=0.0))
    if not enough:
        bias = np.maximum(np.abs((played - plain).mean(axis=0)), drift)
    elif found is None or found.plain_steps <= horizon:  # rewards have forgotten the start, too
        # By types, as a whole: arms of one type are alike, and so are their estimates.
        spreads = [np.bincount(kinds, each.var(axis=0)) for each in (played, plain)]
        # Without variance but for rounding A is exact, and rewards may be cut off within a period.
        least = np.bincount(kinds) * rounding**2
        played = np.where((spreads[0] <= np.maximum(spreads[1], least))[kinds], played, plain)
    if len(played) < 2 or not isinstance(problem, CoupledMDP):
        return LongRun(rollout, played, bias)
    # The truncation error, and rounding, of units without variance over episodes.
    still = played.std(axis=0) <= rounding
    rewards = np.where(problem.types.valid, problem.types.rewards, np.nan)
    ranges = (np.nanmax(rewards, axis=(1, 2)) - np.nanmin(rewards, axis=(1, 2)))[kinds]
    drifts = rollout.drift is not None and np.abs(rollout.drift).max(axis=0) > rounding
    # The span of h is by single arms; a drift shows a period that they have only jointly.
    spans = ranges if found is None else np.maximum(found.spans[kinds], np.where(drifts, ranges, 0.0))
    truncated = spans / (horizon - horizon // WARM_UP) if known is None else 0.0  # A has no truncation error
    return LongRun(rollout, played, np.maximum(bias, np.where(still, np.maximum(truncated, rounding), 0.0)))


def mean_by_type(problem: Problem, figures: Floats) -> Floats:
    """(..., type) means over the arms of each type.

    Args:
        problem: the problem.
        figures: (..., arm) a figure of each arm.
    """
    # Arms sorted by type, so that each type is one stretch.
    order = np.argsort(problem.type_of_arm, kind="stable")
    starts = np.cumsum(problem.type_counts) - problem.type_counts
    return np.asarray(np.add.reduceat(figures[..., order], starts, axis=-1) / problem.type_counts)
