"""Generators for records at irregular times: one per type and action, converted to transitions of a step.

    transitions[τ, s, a, :] = exp(Q[τ, a] d)[s, :]                      d the length of a step

The likelihood is in `likelihood`, the posterior mode and its Laplace approximation in `inference`. The prior:

One type: w jumps in w steps of time in each state under each action, spread evenly over the m possible jumps, w = 1 by
default. This is the counterpart of one pseudo-count per row:

    q[a, i, j] ~ Gamma(w / m, w d)

Several types are pooled: of each rate, the other types contribute their jumps J over their time R, expected under the
rates that fit all types together. Each type is shrunk as if it had been observed at that rate for w steps, or for less
if the others were hardly observed themselves:

    q[τ, a, i, j] ~ Gamma(v J / R, v)        1 / v = 1 / (w d) + 1 / (f R)

where f is the share of the information that remains when paths are not observed. No record is used twice, and a type is
never known better than all types together. The strength w is given, or chosen among powers of 4 by empirical Bayes: the
weakest whose evidence is not clearly below the best. With w = 0 the prior vanishes: rates are maximum likelihood
estimates, and rates of jumps that no record needs are 0. Draws then use the weakest prior, w = 1, over the jumps of the
maximum: a likelihood alone does not define a distribution.

Reported: states left faster than the times between rows can resolve; and records that no generator explains (a one-step
matrix need not have a generator as its logarithm), by Pearson's statistic of next states for pairs that were observed
often over one duration.

Covariates and periods make rates proportional: log q[i, j](x) = log q[i, j] + sum over effects of b[e, i, j] x[e], with
the same b for all types and actions, and b ~ N(0, SPREAD^2) if there is a prior (`covariates`).
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import chdtrc, ndtri

from evenhand.checks import as_generator, plain
from evenhand.errors import InvalidInputError, TooLargeError
from evenhand.fitting.covariates import Design
from evenhand.fitting.ctmc.inference import SPREAD, Laplace, Prior, RateModel, posterior_mode, refined_mode
from evenhand.fitting.ctmc.likelihood import MOST_DURATIONS, TINY, Panel, read_panel, with_diagonal
from evenhand.fitting.ctmc.rates import Rates
from evenhand.fitting.estimate import HALF_A_VISIT
from evenhand.fitting.hierarchical_dirichlet import checked_prior
from evenhand.fitting.log import Log
from evenhand.fitting.posterior import Drawn
from evenhand.fitting.transition_counts import Moves
from evenhand.kernels.exponentials import Exponentials
from evenhand.model.labels import quoted
from evenhand.typing import Bools, Floats, Progress, Rng

MOST_RATES = 4000
"""Rates of one type: their curvature is a square matrix."""

STRENGTHS = tuple(2.0**power for power in range(-1, 10, 2))
"""Candidate strengths of pooling, in steps of time."""

COARSE = 256, 2
"""Durations from which on a coarse panel is used, and digits of its durations."""


# Fit


@dataclass(frozen=True, eq=False)
class Misfit:
    """Moves that no rates explain."""

    type: int
    """Type of the arms."""

    state: int
    """State before the move."""

    action: int
    """Action in that state."""

    time: float
    """Duration of the moves."""

    seen: Floats
    """(next_state,) observed moves."""

    expected: Floats
    """(next_state,) expected moves."""

    chance: float
    """p-value of the difference."""


@dataclass(frozen=True, eq=False)
class Generators(Drawn):
    """Transitions of a step, with the rates behind them."""

    rates: Floats
    """(type, action, state, next_state) jumps per unit of time; 0 on the diagonal."""

    table: Rates
    """Rates, mean sojourn times and hazard ratios, with intervals."""

    log_likelihood: float
    """Of the records under these rates."""

    strength: float
    """Strength of the prior, in steps of time."""

    at_once: tuple[tuple[int, int, int], ...]
    """(type, action, state) pairs left faster than the records can resolve."""

    misfits: tuple[Misfit, ...]
    """Moves that no rates explain, smallest p-value first."""

    passed: Bools
    """(type, state, action) pairs without a row that arms passed between rows long enough to be estimated."""


def fit_generators(
    moves: Moves,
    step: float,
    exact: tuple[int, ...] = (),
    possible: Bools | None = None,
    prior: float | None = None,
    rng: Rng = 0,
    *,
    strata: Design | None = None,
    cuts: Sequence[float] = (),
    num_draws: int = 400,
    progress: Progress | None = None,
) -> Generators:
    """Estimate generators from records at irregular times.

    Rows of unobserved pairs are NaN: unobserved in every type, or in this one without a prior. Transitions are those of
    the last period.

    Args:
        moves: transition counts; `gaps.time` in the unit of `step`. Moves in `counts` took one step.
        step: length of a step.
        exact: states whose every entry is a row at its very time.
        possible: (state, action, next_state) possible jumps; all by default.
        prior: steps of time with one jump each in every state, or strength of pooling towards the other types;
            estimated by default, and 0 for maximum likelihood.
        rng: a seed, or a generator.
        strata: types and covariates of the types of `moves`, if these are values of covariates.
        cuts: times at which rates change.
        num_draws: number of posterior draws.
        progress: function of the current task and its completed share.

    Raises:
        InvalidInputError: the prior is invalid, or no path of possible jumps makes a recorded move.
        TooLargeError: there are too many rates.
        NotConvergedError: the rates did not converge.
    """
    prior = checked_prior(prior)
    strata = strata or Design(np.arange(len(moves.counts)), np.zeros((len(moves.counts), 0)))
    design, periods = strata.by_period([""] * len(cuts)), len(cuts) + 1
    jumps = np.broadcast_to(True if possible is None else possible, moves.counts.shape)[: strata.type.max() + 1]
    free: Bools = jumps.swapaxes(1, 2) & ~np.eye(jumps.shape[-1], dtype=bool)
    number = int(free[0].sum()) + design.values.shape[1] * int(free.any(axis=(0, 1)).sum())
    if number > MOST_RATES:
        hint = "Use fewer states, or state which jumps are impossible"
        raise TooLargeError(f"{number:,} rates of a type are more than {MOST_RATES:,}. {hint}")
    panels = [read_panel(moves, step, exact, *digits, cuts=cuts) for digits in ((MOST_DURATIONS, 3), COARSE)]
    panel = panels[0]
    if not panel.has_path(free[design.type]).all():
        message = "no path of possible jumps makes some moves: check the structural zeros and the exact states"
        raise InvalidInputError(message, code="impossible-move")
    report: Progress = progress or (lambda doing, share: None)
    strength, start = 1.0 if prior is None else prior, None
    own: Prior = strength
    if prior != 0 and len(free) > 1:
        own, start, strength = _pooled_prior(panels, free, step, prior, design, report)

    laplace = _approximate(panels, RateModel(panel, free, step, own, design), None if start is None else (start, 1.0))
    report("posterior of rates", 0.5)
    base, effects = laplace.model.rates(laplace.mode), laplace.model.effects(laplace.mode)
    cells = laplace.model.unpack(laplace.mode)
    expected = panel.expect(cells)
    if expected.least_likely <= TINY:
        # Its likelihood has underflowed, and the rates are those of the other moves alone.
        longest = plain(panel.times[panel.segments].sum(axis=1).max())
        raise InvalidInputError(f"some move is less likely than {TINY:g}; check the longest times, up to {longest}")
    if not strength:
        # Maximum likelihood has no distribution to draw from: the weakest prior stands in, over the jumps that are
        # needed. The optimiser leaves a little of a rate that tends to 0.
        needed = np.stack([expected.jumps[design.type == kind].sum(axis=0) for kind in range(len(free))]) > 1e-3
        laplace = _approximate(panels, RateModel(panel, free & needed, step, 1.0, design), (base, np.exp(effects)))
    points = laplace.draw(num_draws, as_generator(rng))

    def latest(part: Floats) -> Floats:
        return part.reshape(-1, periods, *part.shape[1:])[:, -1]

    rates = latest(cells)
    times = expected.times[..., 0].reshape(-1, periods, *expected.times.shape[1:3]).sum(axis=1)
    # The idle action has rates even if every row is a visit: arms idle between them.
    passed = moves.unseen & (times.swapaxes(1, 2) >= HALF_A_VISIT * step)
    known = np.zeros((len(free), *passed.shape[1:]), dtype=bool)
    np.logical_or.at(known, strata.type, ~moves.unseen | passed)
    if strength:  # under a prior a pair is known as soon as any type was observed there
        known = np.broadcast_to(known.any(axis=0), known.shape)
    unknown = ~known[strata.type]
    fast = np.argwhere((rates.sum(axis=-1) * step > 15.0) & (times > 0))
    drawn = np.stack([latest(laplace.model.unpack(one)) for one in points])
    draws = np.stack([step_transitions(one, step) for one in drawn])
    table = _rate_table(base, effects, laplace, points, known.swapaxes(1, 2))
    return Generators(
        mean=np.where(unknown[..., None], np.nan, step_transitions(rates, step)),
        draws=np.where(unknown[..., None], np.nan, draws),
        rates=rates,
        table=replace(table, draws=np.concatenate([rates[None], drawn[:30]]), exact=exact),
        log_likelihood=float(expected.values.sum()),
        strength=strength,
        at_once=tuple((kind, action, state) for kind, action, state in fast.tolist()),
        misfits=_find_misfits(panel, cells, periods),
        passed=passed,
    )


def _approximate(panels: list[Panel], model: RateModel, start: tuple[Floats, Floats | float] | None = None) -> Laplace:
    """Approximate the posterior of a model: its mode on the full panel, and the curvature on the coarse one."""
    panel, coarse = panels
    rough = copy(model)
    rough.panel = coarse
    laplace = Laplace(rough, posterior_mode(rough, None if start is None else rough.pack(*start)))
    if len(coarse.times) < len(panel.times):
        laplace.mode = refined_mode(model, laplace)
    return laplace


def _rate_table(base: Floats, effects: Floats, laplace: Laplace, points: Floats, known: Bools) -> Rates:
    """Estimates with intervals of 95 %: marginal quantiles of rates and effects, those of the draws for functions."""
    model, z = laplace.model, ndtri(0.975)
    lower, upper = (laplace.quantiles(np.full_like(laplace.mode, score)) for score in (-z, z))

    def interval(estimate: Floats, lower: Floats, upper: Floats) -> Floats:
        found = np.stack([estimate, np.minimum(lower, estimate), np.maximum(upper, estimate)])
        return np.where(known.reshape(*known.shape, *[1] * (estimate.ndim - 3)), found, np.nan)

    def shares(rates: Floats) -> Floats:
        leaves = rates.sum(axis=-1, keepdims=True)
        return np.asarray(rates / np.where(leaves > 0, leaves, 1.0))

    drawn = model.rates(points)
    next_state = interval(shares(base), *np.quantile(shares(drawn), [0.025, 0.975], axis=0))
    with np.errstate(divide="ignore"):  # absorbing states
        slowest, fastest = np.quantile(drawn.sum(axis=-1), [0.025, 0.975], axis=0)
        sojourn = interval(1 / base.sum(axis=-1), 1 / fastest, 1 / slowest)
    # Intervals of log hazard ratios are symmetric about the estimate.
    width = (model.effects(upper) - model.effects(lower)) / 2
    logs = np.where(width > 0, np.stack([effects, effects - width, effects + width]), np.nan)
    ratios = np.exp(logs / np.reshape(model.design.scale, (-1, 1, 1)))
    return Rates(interval(base, model.rates(lower), model.rates(upper)), sojourn, next_state, ratios, drawn)


# Priors


def _pooled_prior(
    panels: list[Panel], free: Bools, step: float, strength: float | None, design: Design, report: Progress
) -> tuple[Prior, Floats, float]:
    """The prior of rates shrunk towards the other types, initial rates, and the strength of the prior."""
    rates, times = _other_types(panels, free, step, design)

    def pooled(strength: float) -> Prior:
        # The harmonic sum of the head: never more time than the others themselves had.
        exposure = 1 / (1 / (strength * step) + 1 / times)
        return np.where(free, exposure * rates, 0.0), exposure

    if strength is None:
        evidence = []
        for turn, tried in enumerate(STRENGTHS):
            model = RateModel(panels[1], free, step, pooled(tried), design)
            evidence.append(Laplace(model, posterior_mode(model, model.pack(rates, 1.0))).evidence())
            report("strength of pooling", 0.5 * (turn + 1) / len(STRENGTHS))
        # Strengths rise: the first whose evidence is at most 2 below the best is the weakest.
        strength = STRENGTHS[int(np.argmax(np.array(evidence) >= max(evidence) - 2.0))]
    return pooled(strength), rates, strength


def _other_types(panels: list[Panel], free: Bools, step: float, design: Design) -> tuple[Floats, Floats]:
    """(type, action, state, next_state) rates of all other types together, and the time they were observed for."""
    shared: Bools = np.asarray(free.any(axis=0, keepdims=True))
    together = RateModel(panels[0], shared, step, 1.0, replace(design, type=np.zeros_like(design.type)))
    laplace = _approximate(panels, together)
    mode = laplace.mode
    apart = RateModel(panels[0], np.broadcast_to(shared, free.shape), step, 1.0, design)
    point = apart.pack(np.broadcast_to(together.rates(mode), free.shape), np.exp(together.effects(mode)))
    each_jumps, each_times = (apart.rates(part) for part in apart.expect(point)[1:])
    # The sum over types less the type's own. The prior of the pooled fit keeps rates above 0.
    prior_jumps, prior_times = together.prior
    jumps = each_jumps.sum(axis=0) - each_jumps + prior_jumps
    times = each_times.sum(axis=0) - each_times + prior_times
    whole = together.pack(each_jumps.sum(axis=0)[None] + prior_jumps, 1.0)
    # f of the head: the shape of the posterior over its shape for observed paths.
    share = together.rates(np.minimum(laplace.shapes / whole, 1.0))
    # Differences of sums may fall below 0 by rounding.
    return np.maximum(jumps, 0.0) / times, np.maximum(share, 1e-3) * times


# Results


def generator_notes(found: Generators, log: Log, most: int = 5) -> tuple[str, ...]:
    """Notes on fitted generators.

    Args:
        found: the generators.
        log: the records, with the names.
        most: number of pairs of a kind that a note names.
    """
    notes = ["jumps have rates, which are fitted; transitions are what they make of a step"]
    if found.table.rates.shape[1] > 1:
        notes.append(f"rates of a type are shrunk towards the other types with the weight of {found.strength:g} steps")
    if len(found.table.hazard_ratios[0]):
        notes.append(
            "rates are those at the means of numbers, the first levels and the first period; log hazard ratios have a "
            f"normal prior of standard deviation {SPREAD:g}, unless the prior is 0"
        )
    if found.at_once:
        listed = "; ".join(log.pair_name(kind, state, action) for kind, action, state in found.at_once[:most])
        more = f"; and {len(found.at_once) - most} more" if len(found.at_once) > most else ""
        notes.append(f"left faster than the times between rows can resolve: {listed}{more}")
    for misfit in found.misfits[:most]:
        worst = int(np.argmax(np.abs(misfit.seen - misfit.expected)))
        pair = log.pair_name(misfit.type, misfit.state, misfit.action)
        seen = f"{misfit.seen[worst]:,.0f} to {quoted(log.states[worst])}, and {misfit.expected[worst]:,.1f} expected"
        notes.append(f"no rates explain the moves from {pair} in a time of {misfit.time:g}: {seen}")
    return tuple(notes)


def named_rates(found: Generators, log: Log, strata: Design | None = None) -> Rates:
    """Rates with the names of the records.

    Args:
        found: the generators.
        log: the records.
        strata: types and covariates, if there are covariates.
    """
    types, effects = (log.types, ()) if strata is None else (strata.types, strata.effects)
    named = replace(found.table, types=types, states=log.states, actions=log.actions, unit=log.unit)
    return replace(named, effects=(*effects, *log.periods))


def step_transitions(rates: Floats, step: float) -> Floats:
    """(type, state, action, next_state) transitions of a step.

    Args:
        rates: (type, action, state, next_state) of jumps.
        step: its length.
    """
    flat = with_diagonal(rates.reshape(-1, *rates.shape[-2:]))
    which = np.arange(len(flat), dtype=np.int32)
    values = Exponentials(flat, which, np.full(len(flat), step)).values
    values /= values.sum(axis=-1, keepdims=True)
    transitions: Floats = np.ascontiguousarray(values.reshape(rates.shape).swapaxes(-3, -2))
    return transitions


def _find_misfits(panel: Panel, rates: Floats, periods: int = 1) -> tuple[Misfit, ...]:
    """Pairs observed often over one duration whose next states differ from the fitted distribution."""
    # Moves of at most two segments suffice.
    plain = ~panel.entered & (panel.times[panel.segments[:, 1:-1]] == 0).all(axis=1)
    keys = np.stack([panel.segments[:, 0], panel.segments[:, -1], panel.state])[:, plain]
    # Moves from one state over the same two durations are one table of next states.
    distinct, group = np.unique(keys, axis=1, return_inverse=True)
    seen = np.zeros((distinct.shape[1], panel.num_states))
    np.add.at(seen, (group.ravel(), panel.next_state[plain]), panel.number[plain])
    often = seen.sum(axis=1) >= 40
    (first, second, state), seen = distinct[:, often], seen[often]
    values = panel.between(rates).values
    # The action, then idle time; given that no exact state was entered, which is another move.
    expected = np.einsum("gk,gkm->gm", values[first, state], values[second])
    expected *= (seen.sum(axis=1) / expected.sum(axis=1))[:, None]
    # Pearson's statistic, in which states with hardly any expected moves are one class.
    rare = expected < 1.0
    off, rest, size = seen - expected, (rare * (seen - expected)).sum(axis=1), (rare * expected).sum(axis=1)
    statistic = (~rare * off**2 / np.maximum(expected, 1.0)).sum(axis=1) + rest**2 / np.maximum(size, 1.0)
    classes = (~rare).sum(axis=1) + rare.any(axis=1)
    chances = chdtrc(np.maximum(classes - 1, 1), statistic)
    kind, action = np.divmod(panel.which[first], panel.num_actions)
    times = panel.times[first] + panel.times[second]
    return tuple(
        Misfit(
            int(kind[i]) // periods,
            int(state[i]),
            int(action[i]),
            float(times[i]),
            seen[i],
            expected[i],
            float(chances[i]),
        )
        for i in np.argsort(chances, kind="stable")
        if chances[i] < 1e-4 / len(chances)  # Bonferroni's correction for the number of tables
    )
