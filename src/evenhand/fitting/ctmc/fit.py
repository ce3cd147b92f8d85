"""Generators for records at irregular times: one per type and action, converted to transitions of a step.

    transitions[τ, s, a, :] = exp(Q[τ, a] d)[s, :]                      d the length of a step

The likelihood is in `likelihood`, the posterior mode and draws in `inference`. This module sets the prior.

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
"""

from dataclasses import dataclass

import numpy as np
from scipy.stats import chi2

from evenhand.checks import as_generator, check_positive_int, is_number, plain
from evenhand.display import heard
from evenhand.errors import InvalidInputError, TooLargeError
from evenhand.fitting.ctmc.inference import Laplace, Prior, RateModel, posterior_mode, times_per_jump
from evenhand.fitting.ctmc.likelihood import TINY, Panel, read_panel, with_diagonal
from evenhand.fitting.estimate import HALF_A_VISIT
from evenhand.fitting.log import Log
from evenhand.fitting.posterior import Drawn
from evenhand.fitting.transition_counts import Moves
from evenhand.kernels.exponentials import Exponentials
from evenhand.model.places import quoted
from evenhand.typing import Array, Bools, Floats, Progress, Rng

MOST_RATES = 4000
"""Rates of one type: their curvature is a square matrix."""

STRENGTHS = tuple(2.0**power for power in range(-1, 10, 2))
"""Candidate strengths of pooling, in steps of time."""

FEW = 5
"""Pairs of a kind that a note names."""


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

    log_likelihood: float
    """Of the records under these rates."""

    strength: float
    """Strength of the prior, in steps of time."""

    expected_jumps: Floats
    """(type, action, state, next_state) on the unobserved paths."""

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
    num_draws: int = 400,
    progress: Progress | bool | None = None,
) -> Generators:
    """Estimate generators from records at irregular times.

    Rows of unobserved pairs are NaN: unobserved in every type, or in this one without a prior.

    Args:
        moves: transition counts; `gaps.time` in the unit of `step`. Moves in `counts` took one step.
        step: length of a step of the model.
        exact: states whose every entry is a row at its very time, such as death; all states in an event history.
        possible: (state, action, next_state) or (type, state, action, next_state) possible jumps; all by default.
        prior: its strength, in steps of time; 0 for maximum likelihood, chosen by empirical Bayes by default.
        rng: a seed, or a generator.
        num_draws: number of posterior draws.
        progress: True for a bar, or a function of the current task and its completed share.

    Raises:
        InvalidInputError: the step or the prior is invalid, or no path of possible jumps makes a recorded move.
        TooLargeError: there are too many rates.
        NotConvergedError: the rates did not converge.
    """
    generator = as_generator(rng)
    _check(step, prior)
    check_positive_int(num_draws, "num_draws")
    free = _free(moves, possible)
    panel = read_panel(moves, step, exact)
    if not panel.has_path(free).all():
        raise InvalidInputError(
            "no path of possible jumps makes some recorded moves: check the structural zeros, and the states that are "
            "entered at the time of their row"
        )
    tell = heard(progress) or (lambda doing, share: None)
    model, start, strength = _with_prior(panel, free, step, prior, tell)
    mode = posterior_mode(model, start)
    tell("posterior of rates", 0.5)
    # Maximum likelihood has no distribution to draw from: the weakest prior stands in.
    laplace = Laplace.around(*((model, mode) if strength else _weak_prior(model, mode)))
    return _result(model, model.unpack(mode), strength, laplace.draw(num_draws, generator), moves.unseen)


# Priors


def _with_prior(
    panel: Panel, free: Bools, step: float, prior: float | None, tell: Progress
) -> tuple[RateModel, Floats, float]:
    """The model with its prior, initial rates, and the strength of the prior."""
    if prior == 0 or panel.num_types == 1:
        strength = 1.0 if prior is None else prior
        model = RateModel(panel, _uniform_prior(free, strength, step), free, step)
        return model, _crude_rates(model), strength
    rates, times = _other_types(panel, free, step)
    # Strengths rise: the first whose evidence is at most 2 below the best is the weakest.
    candidates = {}
    for turn, strength in enumerate(STRENGTHS if prior is None else (prior,)):
        # The harmonic sum of the head: never more time than the others themselves had.
        exposure = 1 / (1 / (strength * step) + 1 / times)
        model = RateModel(panel, Prior(np.where(free, exposure * rates, 0.0), exposure), free, step)
        if prior is not None:
            return model, model.pack(rates), prior
        evidence = Laplace.around(model, posterior_mode(model, model.pack(rates))).evidence()
        candidates[strength] = evidence, model
        tell("strength of pooling", 0.5 * (turn + 1) / len(STRENGTHS))
    top = max(evidence for evidence, _ in candidates.values())
    strength = next(strength for strength, (evidence, _) in candidates.items() if evidence >= top - 2.0)
    model = candidates[strength][1]
    return model, model.pack(rates), strength


def _other_types(panel: Panel, free: Bools, step: float) -> tuple[Floats, Floats]:
    """(type, action, state, next_state) rates of all other types together, and the time they were observed for."""
    shared: Bools = np.asarray(free.any(axis=0, keepdims=True))
    together = RateModel(panel.pooled(), _uniform_prior(shared, 1.0, step), shared, step)
    mode = posterior_mode(together, _crude_rates(together))
    each = panel.expect(np.broadcast_to(together.unpack(mode), free.shape))
    # The sum over types less the type's own. The prior of the pooled fit keeps rates above 0.
    jumps = each.jumps.sum(axis=0) - each.jumps + together.prior.shapes
    times = times_per_jump(each).sum(axis=0) - times_per_jump(each) + together.prior.times
    whole = together.pack(each.jumps.sum(axis=0)[None] + together.prior.shapes)
    # f of the head: the shape of the posterior over its shape for observed paths.
    share = together.unpack(np.minimum(Laplace.around(together, mode).shapes / whole, 1.0))
    # Differences of sums may fall below 0 by rounding.
    return np.maximum(jumps, 0.0) / times, np.maximum(share, 1e-3) * times


def _uniform_prior(free: Bools, strength: float, step: float) -> Prior:
    """As many jumps as steps of time, spread evenly over the possible next states."""
    exits = free.sum(axis=-1, keepdims=True)
    shapes = np.where(free, strength / np.maximum(exits, 1), 0.0)
    return Prior(shapes, np.full(free.shape, strength * step))


def _weak_prior(model: RateModel, rates: Floats) -> tuple[RateModel, Floats]:
    """The weakest prior over the jumps that maximum likelihood needs, and the mode under it."""
    _, jumps, _ = model.expect(rates)
    # The optimiser leaves a little of a rate that tends to 0.
    needed = model.free & (model.unpack(jumps) > 1e-3)
    weak = RateModel(model.panel, _uniform_prior(needed, 1.0, model.step), needed, model.step)
    return weak, posterior_mode(weak, weak.pack(model.unpack(rates)))


def _crude_rates(model: RateModel) -> Floats:
    """(type, parameter) initial rates: moves between two rows over the time between them."""
    panel, shape = model.panel, model.free.shape
    # A tenth of a jump in a step of time, so that no rate starts at 0.
    jumps, times = np.full(shape, 0.1), np.full(shape[:-1], model.step)
    whole = panel.times[panel.first] + panel.times[panel.second]
    # A move counts for the action and for the idle time after it in proportion to their times.
    for stretch in (panel.first, panel.second):
        place, time = (panel.type, panel.which[stretch] % panel.num_actions, panel.state), panel.times[stretch]
        np.add.at(jumps, (*place, panel.next_state), panel.number * time / whole)
        np.add.at(times, place, panel.number * time)
    return model.pack(jumps / times[..., None])


# Results


def generator_notes(found: Generators, log: Log) -> tuple[str, ...]:
    """Notes on fitted generators.

    Args:
        found: the generators.
        log: the records, with the names.
    """
    notes = ["jumps have rates, which are fitted; transitions are what they make of a step"]
    if len(log.types) > 1:
        notes.append(f"rates of a type are shrunk towards the other types with the weight of {found.strength:g} steps")
    if found.at_once:
        listed = "; ".join(log.pair_name(kind, state, action) for kind, action, state in found.at_once[:FEW])
        more = f"; and {len(found.at_once) - FEW} more" if len(found.at_once) > FEW else ""
        notes.append(f"left faster than the times between rows can resolve: {listed}{more}")
    for misfit in found.misfits[:FEW]:
        worst = int(np.argmax(np.abs(misfit.seen - misfit.expected)))
        notes.append(
            f"no rates explain the moves from {log.pair_name(misfit.type, misfit.state, misfit.action)} in a time of "
            f"{misfit.time:g}: {misfit.seen[worst]:,.0f} to {quoted(log.states[worst])}, and "
            f"{misfit.expected[worst]:,.1f} expected"
        )
    return tuple(notes)


def _result(model: RateModel, rates: Floats, strength: float, drawn: Floats, unseen: Bools) -> Generators:
    expected, step = model.panel.expect(rates), model.step
    if expected.least_likely <= TINY:
        # Its likelihood has underflowed, and the rates are those of the other moves alone.
        longest = (model.panel.times[model.panel.first] + model.panel.times[model.panel.second]).max()
        raise InvalidInputError(
            f"some move is less likely than {TINY:g} under rates that explain the others; check the longest times "
            f"between two rows, up to {plain(longest)}"
        )
    # The idle action has rates even if every row is a visit: arms idle between them.
    passed = unseen & (expected.times.swapaxes(1, 2) >= HALF_A_VISIT * step)
    unknown = unseen & ~passed
    # Under a prior a pair is known as soon as any type was observed there.
    unknown = unknown if strength == 0 else np.broadcast_to(unknown.all(axis=0), unknown.shape)
    fast = np.argwhere((rates.sum(axis=-1) * step > 15.0) & (expected.times > 0))
    draws = np.stack([step_transitions(one, step) for one in drawn])
    return Generators(
        mean=np.where(unknown[..., None], np.nan, step_transitions(rates, step)),
        draws=np.where(unknown[..., None], np.nan, draws),
        rates=rates,
        log_likelihood=float(expected.values.sum()),
        strength=strength,
        expected_jumps=expected.jumps,
        at_once=tuple((kind, action, state) for kind, action, state in fast.tolist()),
        misfits=find_misfits(model.panel, rates),
        passed=passed,
    )


def step_transitions(rates: Floats, step: float) -> Floats:
    """(type, state, action, next_state) transitions of a step.

    Args:
        rates: (type, action, state, next_state) of jumps.
        step: its length.
    """
    flat = with_diagonal(rates.reshape(-1, *rates.shape[-2:]))
    which = np.arange(len(flat), dtype=np.int32)
    # Without subtractions: small transitions are exact, and impossible ones stay 0.
    values = Exponentials(flat, which, np.full(len(flat), step), positive=True).values
    values /= values.sum(axis=-1, keepdims=True)
    transitions: Floats = np.ascontiguousarray(values.reshape(rates.shape).swapaxes(-3, -2))
    return transitions


def find_misfits(panel: Panel, rates: Floats) -> tuple[Misfit, ...]:
    """Pairs observed often over one duration whose next states differ from the fitted distribution.

    Args:
        panel: the records.
        rates: (type, action, state, next_state) of jumps.
    """
    plain = ~panel.entered
    keys = np.stack([panel.first, panel.second, panel.state])[:, plain]
    if not keys.size:
        return ()
    # Moves from one state over the same two durations are one table of next states.
    distinct, group = np.unique(keys, axis=1, return_inverse=True)
    seen = np.zeros((distinct.shape[1], panel.num_states))
    np.add.at(seen, (group.ravel(), panel.next_state[plain]), panel.number[plain])
    often = seen.sum(axis=1) >= 40
    distinct, seen = distinct[:, often], seen[often]
    values = panel.between(rates.reshape(-1, *rates.shape[-2:])).values
    # The action, then idle time; given that no exact state was entered, which is another move.
    expected = np.einsum("gk,gkm->gm", values[distinct[0], distinct[2]], values[distinct[1]])
    expected *= (seen.sum(axis=1) / expected.sum(axis=1))[:, None]
    chances = _pearson(seen, expected)
    # Bonferroni's correction for the number of tables.
    order = [place for place in np.argsort(chances, kind="stable") if chances[place] < 1e-4 / max(len(chances), 1)]
    return tuple(_misfit(panel, distinct[:, place], seen[place], expected[place], chances[place]) for place in order)


def _misfit(panel: Panel, key: Array, seen: Floats, expected: Floats, chance: float) -> Misfit:
    kind, action = divmod(int(panel.which[key[0]]), panel.num_actions)
    time = float(panel.times[key[0]] + panel.times[key[1]])
    return Misfit(kind, int(key[2]), action, time, seen, expected, float(chance))


def _pearson(seen: Floats, expected: Floats) -> Floats:
    """p-values of Pearson's statistic; states with hardly any expected moves are one class."""
    rare = expected < 1.0
    rare_seen, rare_expected = (np.where(rare, table, 0.0).sum(axis=1) for table in (seen, expected))
    terms = np.where(rare, 0.0, (seen - expected) ** 2 / np.where(rare, 1.0, expected)).sum(axis=1)
    terms += (rare_seen - rare_expected) ** 2 / np.maximum(rare_expected, 1.0)
    classes = (~rare).sum(axis=1) + rare.any(axis=1)
    chances: Floats = chi2.sf(terms, np.maximum(classes - 1, 1))
    return chances


def _check(step: float, prior: float | None) -> None:
    if not is_number(step) or not 0 < step < np.inf:
        raise InvalidInputError(f"step: expected a length above 0, got {step!r}")
    if prior is not None and (not is_number(prior) or not 0 <= prior < np.inf):
        raise InvalidInputError(f"prior: expected its strength in steps, from 0, got {prior!r}")


def _free(moves: Moves, possible: Bools | None) -> Bools:
    """(type, action, state, next_state) the rates to estimate."""
    num_types, num_states, num_actions, _ = moves.counts.shape
    shape = (num_types, num_states, num_actions, num_states)
    table = np.ones(shape, bool) if possible is None else np.broadcast_to(np.asarray(possible, bool), shape)
    free: Bools = table.swapaxes(1, 2) & ~np.eye(num_states, dtype=bool)
    if free[0].sum() > MOST_RATES:
        raise TooLargeError(
            f"{num_states} states and {num_actions} actions have {int(free[0].sum()):,} rates, and {MOST_RATES:,} can "
            "be estimated: use fewer states, or state which jumps are impossible"
        )
    return free
