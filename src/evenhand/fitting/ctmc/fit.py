"""Generators for records at irregular times: one per type and action, converted to transitions of a step.

    transitions[τ, s, a, :] = exp(Q[τ, a] d)[s, :]                      d the length of a step

The likelihood is in `likelihood`. First the prior, then the posterior mode and its Laplace approximation.

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

Posterior. With rates q[τ, a, i, j] ~ Gamma(shape α, rate β), independent, and the log-likelihood L of a `Panel`:

The mode, in log q, solves jumps + α = q (times + β). EM steps, q <- (jumps + α) / (times + β), never decrease the
likelihood and stay positive, but converge slowly; a few of them start, and L-BFGS finishes. If the records have many
durations, this mode and the Hessian H below are those of a coarse panel, whose durations have two digits; Newton steps
on the full panel, log q <- log q + H^-1 gradient(log q), finish: each reduces the error about a hundredfold.

Laplace approximation. With H the negative Hessian of the log posterior in log rates at the mode q*, the log rates have
covariance C = H^-1. A normal distribution of log rates is poor for jumps observed once or never, so each rate gets a
gamma marginal of the same spread about the mode, and the correlations of C join them (a Gaussian copula):

    a = 1 / C[ij, ij], clipped to α ... α + jumps;  b = a / q*
    q = G_a^-1(Φ(z)) / b,  z ~ N(0, correlation of C)            G_a the gamma distribution function, Φ the normal one

This is exact if all paths are observed (independent gammas) and if nothing is (the prior). Evidence, with Laplace's
value of each gamma integral, a^a e^-a sqrt(2π / a), replaced by Γ(a):

    log p(records) ~ L(q*) + sum of [α log(β q*) - log Γ(α) - β q*] + (m log 2π - log det H) / 2
                     + sum of [log Γ(a) - a log a + a - log(2π / a) / 2]
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from scipy.optimize import minimize
from scipy.special import gammainccinv, gammaincinv, gammaln, log_ndtr, ndtr
from scipy.stats import chi2

from evenhand.checks import as_generator, plain
from evenhand.errors import InvalidInputError, NotConvergedError, TooLargeError
from evenhand.fitting.ctmc.likelihood import TINY, Panel, read_panel, with_diagonal
from evenhand.fitting.estimate import HALF_A_VISIT
from evenhand.fitting.hierarchical_dirichlet import checked_prior
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

COARSE = 256, 2
"""Durations from which on a coarse panel is used, and digits of its durations."""

TOLERANCE = 1e-4
"""Residual of the mode's equations, over the root of the number of moves; a hundred times this is an error."""

NEGLIGIBLE = 1e-6
"""Expected jumps, prior included, below which a rate is fixed at 0."""

LEAST_SHAPE = 0.02
"""Least shape of a gamma marginal, and least curvature in log rates: it spans all rates that matter."""


Prior: TypeAlias = float | tuple[Floats, Floats]
"""(type, action, state, next_state) shapes and rates of the gamma priors; or a number w of steps, for w jumps in w
steps of time, spread evenly over the free jumps."""


# Posterior of rates


class RateModel:
    """Likelihood, prior and free rates; `parameter` indexes the rates that are free in some type."""

    def __init__(self, panel: Panel, free: Bools, step: float, prior: Prior) -> None:
        """Index the free rates.

        Args:
            panel: the records.
            free: (type, action, state, next_state) rates to estimate; all others are 0.
            step: length of a step.
            prior: shapes and rates, or their weight in steps.
        """
        if not isinstance(prior, tuple):
            exits = np.maximum(free.sum(axis=-1, keepdims=True), 1)
            prior = np.where(free, prior / exits, 0.0), np.full(free.shape, prior * step)
        self.panel, self.prior, self.free, self.step = panel, prior, free, step
        self._positions = np.flatnonzero(free.any(axis=0))
        self.active: Bools = free.reshape(len(free), -1)[:, self._positions]
        self.shapes, self.exposures = (self.pack(table) for table in prior)

    def pack(self, table: Array) -> Floats:
        """(type, parameter) entries of a table (type, action, state, next_state)."""
        return np.asarray(table, float).reshape(len(self.free), -1)[:, self._positions]

    def unpack(self, rates: Floats) -> Floats:
        """(..., type, action, state, next_state) table of rates (..., type, parameter)."""
        flat = np.zeros((*rates.shape[:-1], self.free[0].size))
        flat[..., self._positions] = np.where(self.active, rates, 0.0)
        return flat.reshape(*rates.shape[:-2], *self.free.shape)

    def expect(self, rates: Floats) -> tuple[Floats, Floats, Floats]:
        """(type,) log-likelihoods, and (type, parameter) expected jumps and times.

        Args:
            rates: (type, parameter).
        """
        expected = self.panel.expect(self.unpack(rates))
        return expected.values, self.pack(expected.jumps), self.pack(expected.times)

    @property
    def bounds(self) -> tuple[float, float]:
        """Least and largest rates: 1e-12 per step, and 50 jumps between the two closest rows.

        Beyond these the likelihood is flat.
        """
        times = self.panel.times[self.panel.times > 0]
        return 1e-12 / self.step, 50.0 / (times.min() if len(times) else 1.0)

    def log_posterior(self, rates: Floats) -> tuple[float, Floats]:
        """Log posterior density of the log rates up to a constant, and its (type, parameter) gradient."""
        values, jumps, times = self.expect(rates)
        prior = np.where(self.active, self.shapes * np.log(rates) - self.exposures * rates, 0.0).sum()
        gradient = np.where(self.active, jumps + self.shapes - rates * (times + self.exposures), 0.0)
        return float(values.sum() + prior), gradient


def posterior_mode(model: RateModel, start: Floats | None = None) -> Floats:
    """(type, parameter) rates of highest posterior density in log rates.

    Args:
        model: likelihood and prior.
        start: (type, action, state, next_state) initial rates; moves over the times between rows by default.

    Raises:
        NotConvergedError: the optimiser stopped before the equations of the mode held.
    """
    low, high = model.bounds
    rates = np.clip(model.pack(_crude_rates(model) if start is None else start), low, high)
    if not rates.size:
        return rates

    def objective(logs: Floats) -> tuple[float, Floats]:
        value, gradient = model.log_posterior(np.exp(logs).reshape(rates.shape))
        return -value, -gradient.ravel()

    bounds = np.log(low), np.log(high)
    options = {"maxiter": 1000, "maxfun": 2000, "ftol": 1e-15, "gtol": 1e-7, "maxcor": 30}
    for _ in range(4):
        for _ in range(12):  # EM
            _, jumps, exposure = model.expect(rates)
            total = exposure + model.exposures
            step = np.where(total > 0, (jumps + model.shapes) / np.where(total > 0, total, 1.0), rates)
            rates = np.clip(step, low, high)
        found = minimize(
            objective, np.log(rates).ravel(), jac=True, method="L-BFGS-B", bounds=[bounds] * rates.size, options=options
        )
        rates = np.asarray(np.exp(found.x).reshape(rates.shape))
        # At a bound, a gradient that points outwards does not count as a residual.
        at_bound = (found.x <= bounds[0] + 1e-9) & (found.jac > 0) | (found.x >= bounds[1] - 1e-9) & (found.jac < 0)
        residual = np.abs(np.where(at_bound, 0.0, found.jac)).max() / np.sqrt(model.panel.number.sum() + 1)
        if residual <= TOLERANCE:
            return rates
    if residual > 100 * TOLERANCE:
        raise NotConvergedError(f"the rates did not converge: {found.message}; a stronger prior may help")
    return rates


class Laplace:
    """Gaussian copula with gamma marginals around a posterior mode."""

    def __init__(self, model: RateModel, mode: Floats) -> None:
        """Approximate the posterior.

        Args:
            model: likelihood and prior.
            mode: (type, parameter) from `posterior_mode`.
        """
        self.model, self.mode = model, mode
        self.values, jumps, _ = model.expect(mode)
        # (type, parameter) rates above 0.
        self.uncertain = model.active & (jumps + model.shapes > NEGLIGIBLE)
        values, vectors = np.linalg.eigh(_hessian(model, mode, self.uncertain))
        # The records do not identify the rates along flatter directions.
        self.curvature = (vectors * np.maximum(values, LEAST_SHAPE)[:, None, :]) @ vectors.swapaxes(1, 2)
        self.covariance = np.linalg.inv(self.curvature)
        self.variance = np.diagonal(self.covariance, axis1=1, axis2=2)
        least = np.maximum(model.shapes, LEAST_SHAPE)
        # Never less certain than the prior, nor more certain than if the paths had been observed.
        shapes = np.clip(1 / self.variance, least, np.maximum(model.shapes + jumps, least))
        self.shapes = np.where(self.uncertain, shapes, 1.0)

    def evidence(self) -> float:
        """Log marginal likelihood of the records, summed over types."""
        a, b, q = self.model.shapes, self.model.exposures, np.maximum(self.mode, 1e-300)
        value = self.values.sum() - np.linalg.slogdet(self.curvature)[1].sum() / 2
        stirling = self.shapes * np.log(self.shapes) - self.shapes - np.log(self.shapes) / 2
        terms = a * np.log(b * q) - gammaln(np.maximum(a, 1e-300)) - b * q + gammaln(self.shapes) - stirling
        return float(value + np.where(self.uncertain, terms, 0.0).sum())

    def draw(self, num_draws: int, generator: np.random.Generator) -> Floats:
        """(draw, type, action, state, next_state) rates.

        Args:
            num_draws: number of draws.
            generator: source of randomness.
        """
        root = np.linalg.cholesky(self.covariance) / np.sqrt(self.variance)[..., None]
        scores = np.einsum("tij,dtj->dti", root, generator.standard_normal((num_draws, *self.mode.shape)))
        logs = log_gamma_quantiles(scores, np.broadcast_to(self.shapes, scores.shape))
        return self.model.unpack(np.where(self.uncertain, np.exp(logs) / self.shapes * self.mode, 0.0))


def refined_mode(model: RateModel, coarse: Laplace) -> Floats:
    """(type, parameter) rates of highest posterior density, by Newton steps with the Hessian of a coarse panel.

    Args:
        model: likelihood and prior of the full panel.
        coarse: posterior on the coarse panel.
    """
    logs, (low, high) = np.log(coarse.mode), np.log(model.bounds)
    for _ in range(8):
        slopes = np.where(coarse.uncertain, model.log_posterior(np.exp(logs))[1], 0.0)
        if np.abs(slopes).max(initial=0.0) <= TOLERANCE * np.sqrt(model.panel.number.sum() + 1) / 100:
            return np.exp(logs)
        logs = np.clip(logs + np.clip(np.einsum("tij,tj->ti", coarse.covariance, slopes), -1, 1), low, high)
    return posterior_mode(model, model.unpack(np.exp(logs)))


def _hessian(model: RateModel, mode: Floats, uncertain: Bools) -> Floats:
    """(type, parameter, parameter) negative Hessian in log rates, by differences of the gradient."""
    width, size = 1e-3, mode.shape[1]
    hessian = np.tile(np.eye(size), (len(mode), 1, 1))
    for place in np.flatnonzero(uncertain.any(axis=0)):
        shift = np.where(np.arange(size) == place, width, 0.0)
        lower, upper = (model.log_posterior(mode * np.exp(sign * shift))[1] for sign in (-1, 1))
        hessian[:, place] = (lower - upper) / (2 * width)
    both = uncertain[:, :, None] & uncertain[:, None, :]
    return np.where(both, (hessian + hessian.swapaxes(1, 2)) / 2, np.eye(size))


def log_gamma_quantiles(scores: Floats, shapes: Floats) -> Floats:
    """Logarithms of gamma variables of rate 1 with these normal scores.

    Args:
        scores: normal scores.
        shapes: of the gammas; far below 1 the variables underflow, and their logarithms do not.
    """
    # From the smaller tail, so that no digits are lost near 1.
    below = scores < 0
    values = np.where(below, gammaincinv(shapes, ndtr(scores)), gammainccinv(shapes, ndtr(-scores)))
    tail = (log_ndtr(scores) + gammaln(shapes + 1)) / shapes  # G_a(x) = x^a / Γ(a + 1) for small x
    return np.asarray(np.where(values > 1e-9, np.log(np.maximum(values, 1e-9)), np.minimum(tail, np.log(1e-9))))


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
    num_draws: int = 400,
    progress: Progress | None = None,
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
        progress: function of the current task and its completed share.

    Raises:
        InvalidInputError: the prior is invalid, or no path of possible jumps makes a recorded move.
        TooLargeError: there are too many rates.
        NotConvergedError: the rates did not converge.
    """
    prior = checked_prior(prior)
    table = np.broadcast_to(True if possible is None else possible, moves.counts.shape)
    free: Bools = table.swapaxes(1, 2) & ~np.eye(table.shape[-1], dtype=bool)
    if (number := int(free[0].sum())) > MOST_RATES:
        hint = "Use fewer states, or state which jumps are impossible"
        raise TooLargeError(f"{number:,} rates of a type are more than {MOST_RATES:,}. {hint}")
    panel, coarse = read_panel(moves, step, exact), read_panel(moves, step, exact, *COARSE)
    if not panel.has_path(free).all():
        message = "no path of possible jumps makes some moves: check the structural zeros and the exact states"
        raise InvalidInputError(message, code="impossible-move")
    report: Progress = progress or (lambda doing, share: None)
    own: Prior = 1.0 if prior is None else prior
    strength, start = own, None
    if prior != 0 and panel.num_types > 1:
        own, start, strength = _pooled_prior(coarse, free, step, prior, report)

    def posterior(free: Bools, own: Prior, start: Floats | None) -> tuple[Laplace, Floats]:
        rough = RateModel(coarse, free, step, own)
        laplace = Laplace(rough, posterior_mode(rough, start))
        if len(coarse.times) < len(panel.times):
            laplace.mode = refined_mode(RateModel(panel, free, step, own), laplace)
        return laplace, laplace.model.unpack(laplace.mode)

    laplace, rates = posterior(free, own, start)
    report("posterior of rates", 0.5)
    expected = panel.expect(rates)
    if not strength:
        # Maximum likelihood has no distribution to draw from: the weakest prior stands in, over the jumps that are
        # needed. The optimiser leaves a little of a rate that tends to 0.
        laplace, _ = posterior(free & (expected.jumps > 1e-3), 1.0, rates)
    if expected.least_likely <= TINY:
        # Its likelihood has underflowed, and the rates are those of the other moves alone.
        longest = plain((panel.times[panel.first] + panel.times[panel.second]).max())
        raise InvalidInputError(f"some move is less likely than {TINY:g}; check the longest times, up to {longest}")
    # The idle action has rates even if every row is a visit: arms idle between them.
    passed = moves.unseen & (expected.times[..., 0].swapaxes(1, 2) >= HALF_A_VISIT * step)
    unknown = moves.unseen & ~passed
    if strength:  # under a prior a pair is known as soon as any type was observed there
        unknown = np.broadcast_to(unknown.all(axis=0), unknown.shape)
    fast = np.argwhere((rates.sum(axis=-1) * step > 15.0) & (expected.times[..., 0] > 0))
    draws = np.stack([step_transitions(one, step) for one in laplace.draw(num_draws, as_generator(rng))])
    return Generators(
        mean=np.where(unknown[..., None], np.nan, step_transitions(rates, step)),
        draws=np.where(unknown[..., None], np.nan, draws),
        rates=rates,
        log_likelihood=float(expected.values.sum()),
        strength=strength,
        at_once=tuple((kind, action, state) for kind, action, state in fast.tolist()),
        misfits=_find_misfits(panel, rates),
        passed=passed,
    )


# Priors


def _pooled_prior(
    panel: Panel, free: Bools, step: float, strength: float | None, report: Progress
) -> tuple[Prior, Floats, float]:
    """The prior of rates shrunk towards the other types, initial rates, and the strength of the prior."""
    rates, times = _other_types(panel, free, step)

    def pooled(strength: float) -> Prior:
        # The harmonic sum of the head: never more time than the others themselves had.
        exposure = 1 / (1 / (strength * step) + 1 / times)
        return np.where(free, exposure * rates, 0.0), exposure

    if strength is None:
        evidence = []
        for turn, tried in enumerate(STRENGTHS):
            model = RateModel(panel, free, step, pooled(tried))
            evidence.append(Laplace(model, posterior_mode(model, rates)).evidence())
            report("strength of pooling", 0.5 * (turn + 1) / len(STRENGTHS))
        # Strengths rise: the first whose evidence is at most 2 below the best is the weakest.
        strength = STRENGTHS[int(np.argmax(np.array(evidence) >= max(evidence) - 2.0))]
    return pooled(strength), rates, strength


def _other_types(panel: Panel, free: Bools, step: float) -> tuple[Floats, Floats]:
    """(type, action, state, next_state) rates of all other types together, and the time they were observed for."""
    shared: Bools = np.asarray(free.any(axis=0, keepdims=True))
    together = RateModel(panel.pooled(), shared, step, 1.0)
    mode = posterior_mode(together)
    each = panel.expect(np.broadcast_to(together.unpack(mode), free.shape))
    # The sum over types less the type's own. The prior of the pooled fit keeps rates above 0.
    prior_jumps, prior_times = together.prior
    jumps = each.jumps.sum(axis=0) - each.jumps + prior_jumps
    times = each.times.sum(axis=0) - each.times + prior_times
    whole = together.pack(each.jumps.sum(axis=0)[None] + prior_jumps)
    # f of the head: the shape of the posterior over its shape for observed paths.
    share = together.unpack(np.minimum(Laplace(together, mode).shapes / whole, 1.0))
    # Differences of sums may fall below 0 by rounding.
    return np.maximum(jumps, 0.0) / times, np.maximum(share, 1e-3) * times


def _crude_rates(model: RateModel) -> Floats:
    """(type, action, state, next_state) initial rates: moves between two rows over the time between them."""
    panel, shape = model.panel, model.free.shape
    # A tenth of a jump in a step of time, so that no rate starts at 0.
    jumps, times = np.full(shape, 0.1), np.full(shape[:-1], model.step)
    whole = panel.times[panel.first] + panel.times[panel.second]
    # A move counts for the action and for the idle time after it in proportion to their times.
    for stretch in (panel.first, panel.second):
        place, time = (panel.type, panel.which[stretch] % panel.num_actions, panel.state), panel.times[stretch]
        np.add.at(jumps, (*place, panel.next_state), panel.number * time / whole)
        np.add.at(times, place, panel.number * time)
    return np.asarray(jumps / times[..., None])


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
        pair = log.pair_name(misfit.type, misfit.state, misfit.action)
        seen = f"{misfit.seen[worst]:,.0f} to {quoted(log.states[worst])}, and {misfit.expected[worst]:,.1f} expected"
        notes.append(f"no rates explain the moves from {pair} in a time of {misfit.time:g}: {seen}")
    return tuple(notes)


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


def _find_misfits(panel: Panel, rates: Floats) -> tuple[Misfit, ...]:
    """Pairs observed often over one duration whose next states differ from the fitted distribution."""
    plain = ~panel.entered
    keys = np.stack([panel.first, panel.second, panel.state])[:, plain]
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
    chances = chi2.sf(statistic, np.maximum(classes - 1, 1))
    kind, action = np.divmod(panel.which[first], panel.num_actions)
    times = panel.times[first] + panel.times[second]
    return tuple(
        Misfit(int(kind[i]), int(state[i]), int(action[i]), float(times[i]), seen[i], expected[i], float(chances[i]))
        for i in np.argsort(chances, kind="stable")
        if chances[i] < 1e-4 / len(chances)  # Bonferroni's correction for the number of tables
    )
