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

Covariates and periods make rates proportional: log q[i, j](x) = log q[i, j] + sum over effects of b[e, i, j] x[e], with
the same b for all types and actions, and b ~ N(0, SPREAD^2) if there is a prior (`covariates`).

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

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from scipy.optimize import minimize
from scipy.special import gammainccinv, gammaincinv, gammaln, log_ndtr, ndtr, ndtri
from scipy.stats import chi2

from evenhand.checks import as_generator, plain
from evenhand.errors import InvalidInputError, NotConvergedError, TooLargeError
from evenhand.fitting.covariates import Strata
from evenhand.fitting.ctmc.likelihood import MOST_DURATIONS, TINY, Panel, read_panel, with_diagonal
from evenhand.fitting.ctmc.rates import Rates
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

SPREAD = 5.0
"""Prior standard deviation of a log hazard ratio, per standard deviation of a number or for a level."""

LEAST_SHAPE = 0.02
"""Least shape of a gamma marginal, and least curvature in log rates: it spans all rates that matter."""


Prior: TypeAlias = float | tuple[Floats, Floats]
"""(type, action, state, next_state) shapes and rates of the gamma priors; or a number w of steps, for w jumps in w
steps of time, spread evenly over the free jumps."""


# Posterior of rates


@dataclass(frozen=True, eq=False)
class Design:
    """Cells of a panel: the type of each, and its covariates."""

    type: Array
    """(cell,) type."""

    values: Floats
    """(cell, effect) covariates, scaled; an effect is a covariate, a level of one, or a period."""

    def rows(self, effects: Floats) -> Floats:
        """(cell, 1, state, next_state) hazard ratios of the cells.

        Args:
            effects: (effect, state, next_state) log hazard ratios.
        """
        return np.asarray(np.exp(np.tensordot(self.values, effects, 1))[:, None])


class RateModel:
    """Likelihood, prior and parameters: rates, and hazard ratios of covariates.

    A point is an array (block, parameter) of positive parameters. Blocks are independent: one per type with its rates,
    or if there are covariates a single one, with the rates of all types, then the hazard ratios exp(b) per effect.
    """

    def __init__(self, panel: Panel, free: Bools, step: float, prior: Prior, design: Design | None = None) -> None:
        """Index the free rates.

        Args:
            panel: the records.
            free: (type, action, state, next_state) rates to estimate; all others are 0.
            step: length of a step.
            prior: shapes and rates, or their weight in steps.
            design: types and covariates of the cells; each cell is a type by default.
        """
        flat = not isinstance(prior, tuple) and prior == 0
        if not isinstance(prior, tuple):
            exits = np.maximum(free.sum(axis=-1, keepdims=True), 1)
            prior = np.where(free, prior / exits, 0.0), np.full(free.shape, prior * step)
        self.panel, self.prior, self.free, self.step = panel, prior, free, step
        self.design = design or Design(np.arange(len(free)), np.zeros((len(free), 0)))
        self._positions = np.flatnonzero(free.any(axis=0))
        self._jumps = np.flatnonzero(free.any(axis=(0, 1)))
        number = self.design.values.shape[1] * len(self._jumps)
        self.is_effect: Bools = np.arange(len(free) * len(self._positions) + number) >= len(free) * len(self._positions)
        if not number:
            self.is_effect = np.zeros(len(self._positions), dtype=bool)
        self.active: Bools = self.pack(free, 1.0) > 0
        self.shapes, self.exposures = (self.pack(table) for table in prior)
        self.precision = np.where(self.is_effect, 0.0 if flat else SPREAD**-2, 0.0)

    def pack(self, table: Array, effects: Floats | float = 0.0) -> Floats:
        """(block, parameter) entries of a table (type, action, state, next_state), and of effects.

        Args:
            table: values of rates.
            effects: (effect, state, next_state) values of effects, or one for all.
        """
        rates = np.asarray(table, float).reshape(len(self.free), -1)[:, self._positions]
        if not self.is_effect.any():
            return rates
        shape = self.design.values.shape[1], self.free.shape[-1] ** 2
        own = np.broadcast_to(effects, (shape[0], *self.free.shape[2:])).reshape(shape)[:, self._jumps]
        return np.concatenate([rates.ravel(), own.ravel()])[None]

    def rates(self, point: Floats) -> Floats:
        """(..., type, action, state, next_state) rates.

        Args:
            point: (..., block, parameter).
        """
        point = np.where(self.active, point, 0.0)[..., ~self.is_effect]
        rates = np.zeros((*point.shape[:-2], len(self.free), self.free[0].size))
        rates[..., self._positions] = point.reshape(*rates.shape[:-1], -1)
        return rates.reshape(*rates.shape[:-1], *self.free.shape[1:])

    def effects(self, point: Floats) -> Floats:
        """(effect, state, next_state) log hazard ratios.

        Args:
            point: (block, parameter).
        """
        effects = np.zeros((self.design.values.shape[1], self.free.shape[-1] ** 2))
        if self.is_effect.any():
            effects[:, self._jumps] = np.log(point[0, self.is_effect]).reshape(len(effects), -1)
        return effects.reshape(-1, *self.free.shape[2:])

    def unpack(self, point: Floats) -> Floats:
        """(cell, action, state, next_state) rates of the cells.

        Args:
            point: (block, parameter).
        """
        return self.rates(point)[self.design.type] * self.design.rows(self.effects(point))

    def expect(self, point: Floats) -> tuple[float, Floats, Floats]:
        """Log-likelihood, and (block, parameter) jumps and times: its gradient in logarithms is jumps - point times.

        Of a rate, these are the expected jumps and times, weighted by hazard ratios.

        Args:
            point: (block, parameter).
        """
        ratios = self.design.rows(self.effects(point))
        rates = self.rates(point)[self.design.type] * ratios
        expected = self.panel.expect(rates)
        by_type = [np.zeros(self.free.shape) for _ in range(2)]
        for total, part in zip(by_type, (expected.jumps, expected.times * ratios), strict=True):
            np.add.at(total, self.design.type, part)
        slopes = expected.jumps - rates * expected.times
        by_effect = np.tensordot(self.design.values.T, slopes.sum(axis=1), 1)
        return float(expected.values.sum()), self.pack(by_type[0], by_effect), self.pack(by_type[1])

    @property
    def bounds(self) -> tuple[Floats, Floats]:
        """(parameter,) least and largest values: of rates 1e-12 per step, and 50 jumps between the two closest rows.

        Beyond these the likelihood is flat.
        """
        times = self.panel.times[self.panel.times > 0]
        low, high = 1e-12 / self.step, 50.0 / (times.min() if len(times) else 1.0)
        return np.where(self.is_effect, np.exp(-15.0), low), np.where(self.is_effect, np.exp(15.0), high)

    def log_posterior(self, point: Floats) -> tuple[float, Floats]:
        """Log posterior density of the log parameters up to a constant, and its (block, parameter) gradient."""
        value, jumps, times = self.expect(point)
        logs = np.log(point)
        prior = self.shapes * logs - self.exposures * point - self.precision * logs**2 / 2
        slopes = jumps + self.shapes - point * (times + self.exposures) - self.precision * logs
        return value + float(prior[self.active].sum()), np.where(self.active, slopes, 0.0)


def posterior_mode(model: RateModel, start: Floats | None = None) -> Floats:
    """(block, parameter) point of highest posterior density in the logarithms.

    Args:
        model: likelihood and prior.
        start: (block, parameter) initial point; moves over the times between rows by default.

    Raises:
        NotConvergedError: the optimiser stopped before the equations of the mode held.
    """
    low, high = model.bounds
    point = np.clip(model.pack(_crude_rates(model), 1.0) if start is None else start, low, high)
    if not point.size:
        return point

    def objective(logs: Floats) -> tuple[float, Floats]:
        value, gradient = model.log_posterior(np.exp(logs).reshape(point.shape))
        return -value, -gradient.ravel()

    least, most = (np.broadcast_to(np.log(bound), point.shape).ravel() for bound in (low, high))
    options = {"maxiter": 1000, "maxfun": 2000, "ftol": 1e-15, "gtol": 1e-7, "maxcor": 30}
    for _ in range(4):
        for _ in range(12):  # EM
            _, jumps, exposure = model.expect(point)
            total = exposure + model.exposures
            fixed = model.is_effect | (total <= 0)
            point = np.clip(np.where(fixed, point, (jumps + model.shapes) / np.where(fixed, 1.0, total)), low, high)
        bounds = list(zip(least, most, strict=True))
        found = minimize(objective, np.log(point).ravel(), jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        point = np.asarray(np.exp(found.x).reshape(point.shape))
        # At a bound, a gradient that points outwards does not count as a residual.
        at_bound = (found.x <= least + 1e-9) & (found.jac > 0) | (found.x >= most - 1e-9) & (found.jac < 0)
        residual = np.abs(np.where(at_bound, 0.0, found.jac)).max() / np.sqrt(model.panel.number.sum() + 1)
        if residual <= TOLERANCE:
            return point
    if residual > 100 * TOLERANCE:
        raise NotConvergedError(f"the rates did not converge: {found.message}; a stronger prior may help")
    return point


class Laplace:
    """Gaussian copula around a posterior mode: gamma marginals of rates, normal ones of log hazard ratios."""

    def __init__(self, model: RateModel, mode: Floats) -> None:
        """Approximate the posterior.

        Args:
            model: likelihood and prior.
            mode: (block, parameter) from `posterior_mode`.
        """
        self.model, self.mode = model, mode
        self.value, jumps, _ = model.expect(mode)
        # (block, parameter) rates above 0, and effects.
        self.uncertain = model.active & (model.is_effect | (jumps + model.shapes > NEGLIGIBLE))
        values, vectors = np.linalg.eigh(_hessian(model, mode, self.uncertain))
        # The records do not identify the rates along flatter directions.
        self.curvature = (vectors * np.maximum(values, LEAST_SHAPE)[:, None, :]) @ vectors.swapaxes(1, 2)
        self.covariance = np.linalg.inv(self.curvature)
        self.variance = np.diagonal(self.covariance, axis1=1, axis2=2)
        least = np.maximum(model.shapes, LEAST_SHAPE)
        # Never less certain than the prior, nor more certain than if the paths had been observed.
        shapes = np.clip(1 / self.variance, least, np.maximum(model.shapes + jumps, least))
        self.shapes = np.where(self.uncertain & ~model.is_effect, shapes, 1.0)

    def evidence(self) -> float:
        """Log marginal likelihood of the records up to a constant, summed over types."""
        model = self.model
        a, b, q = model.shapes, model.exposures, np.maximum(self.mode, 1e-300)
        value = self.value - np.linalg.slogdet(self.curvature)[1].sum() / 2
        stirling = self.shapes * np.log(self.shapes) - self.shapes - np.log(self.shapes) / 2
        with np.errstate(divide="ignore", invalid="ignore"):  # effects have no shape
            terms = a * np.log(b * q) - gammaln(np.maximum(a, 1e-300)) - b * q + gammaln(self.shapes) - stirling
        terms = np.where(model.is_effect, -model.precision * np.log(q) ** 2 / 2, terms)
        return float(value + np.where(self.uncertain, terms, 0.0).sum())

    def quantiles(self, scores: Floats) -> Floats:
        """(..., block, parameter) points with these normal scores.

        Args:
            scores: (..., block, parameter).
        """
        logs = log_gamma_quantiles(scores, np.broadcast_to(self.shapes, scores.shape)) - np.log(self.shapes)
        logs = np.where(self.model.is_effect, scores * np.sqrt(self.variance), logs)
        return np.where(self.uncertain, np.exp(logs) * self.mode, np.where(self.model.is_effect, 1.0, 0.0))

    def draw(self, num_draws: int, generator: np.random.Generator) -> Floats:
        """(draw, block, parameter) points.

        Args:
            num_draws: number of draws.
            generator: source of randomness.
        """
        root = np.linalg.cholesky(self.covariance) / np.sqrt(self.variance)[..., None]
        return self.quantiles(np.einsum("tij,dtj->dti", root, generator.standard_normal((num_draws, *self.mode.shape))))


def refined_mode(model: RateModel, coarse: Laplace) -> Floats:
    """(block, parameter) point of highest posterior density, by Newton steps with the Hessian of a coarse panel.

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
    return posterior_mode(model, np.exp(logs))


def _hessian(model: RateModel, mode: Floats, uncertain: Bools) -> Floats:
    """(block, parameter, parameter) negative Hessian in the logarithms, by differences of the gradient."""
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
    strata: Strata | None = None,
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
        strata: types and covariates, if the types of `moves` are values of covariates.
        cuts: times at which rates change.
        num_draws: number of posterior draws.
        progress: function of the current task and its completed share.

    Raises:
        InvalidInputError: the prior is invalid, or no path of possible jumps makes a recorded move.
        TooLargeError: there are too many rates.
        NotConvergedError: the rates did not converge.
    """
    prior = checked_prior(prior)
    strata = strata or Strata.plain(("",) * len(moves.counts))
    design, periods = _design(strata, len(cuts) + 1), len(cuts) + 1
    table = np.broadcast_to(True if possible is None else possible, moves.counts.shape)[: len(strata.types)]
    free: Bools = table.swapaxes(1, 2) & ~np.eye(table.shape[-1], dtype=bool)
    number = int(free[0].sum()) + design.values.shape[1] * int(free.any(axis=(0, 1)).sum())
    if number > MOST_RATES:
        hint = "Use fewer states, or state which jumps are impossible"
        raise TooLargeError(f"{number:,} rates of a type are more than {MOST_RATES:,}. {hint}")
    panel, coarse = (read_panel(moves, step, exact, *digits, cuts=cuts) for digits in ((MOST_DURATIONS, 3), COARSE))
    if not panel.has_path(free[design.type]).all():
        message = "no path of possible jumps makes some moves: check the structural zeros and the exact states"
        raise InvalidInputError(message, code="impossible-move")
    report: Progress = progress or (lambda doing, share: None)
    strength, start = 1.0 if prior is None else prior, None
    own: Prior = strength
    if prior != 0 and len(free) > 1:
        own, start, strength = _pooled_prior(coarse, free, step, prior, design, report)

    def posterior(free: Bools, own: Prior, start: tuple[Floats, Floats | float] | None) -> Laplace:
        rough = RateModel(coarse, free, step, own, design)
        laplace = Laplace(rough, posterior_mode(rough, None if start is None else rough.pack(*start)))
        if len(coarse.times) < len(panel.times):
            laplace.mode = refined_mode(RateModel(panel, free, step, own, design), laplace)
        return laplace

    laplace = posterior(free, own, None if start is None else (start, 1.0))
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
        needed = np.zeros(free.shape)
        np.add.at(needed, design.type, expected.jumps)
        laplace = posterior(free & (needed > 1e-3), 1.0, (base, np.exp(effects)))
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
    scale = np.append(strata.scale, np.ones(periods - 1))
    draws = np.stack([step_transitions(latest(laplace.model.unpack(one)), step) for one in points])
    return Generators(
        mean=np.where(unknown[..., None], np.nan, step_transitions(rates, step)),
        draws=np.where(unknown[..., None], np.nan, draws),
        rates=rates,
        table=_rate_table(base, effects, laplace, points, known.swapaxes(1, 2), scale),
        log_likelihood=float(expected.values.sum()),
        strength=strength,
        at_once=tuple((kind, action, state) for kind, action, state in fast.tolist()),
        misfits=_find_misfits(panel, cells, periods),
        passed=passed,
    )


def _design(strata: Strata, periods: int) -> Design:
    """Cells: strata by periods, with an indicator of each period but the first."""
    later = np.tile(np.eye(periods)[:, 1:], (len(strata.type), 1))
    return Design(np.repeat(strata.type, periods), np.column_stack([np.repeat(strata.values, periods, axis=0), later]))


def _rate_table(base: Floats, effects: Floats, laplace: Laplace, points: Floats, known: Bools, scale: Floats) -> Rates:
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
    ratios = np.exp(logs / scale[:, None, None])
    return Rates(interval(base, model.rates(lower), model.rates(upper)), sojourn, next_state, ratios)


# Priors


def _pooled_prior(
    panel: Panel, free: Bools, step: float, strength: float | None, design: Design, report: Progress
) -> tuple[Prior, Floats, float]:
    """The prior of rates shrunk towards the other types, initial rates, and the strength of the prior."""
    rates, times = _other_types(panel, free, step, design)

    def pooled(strength: float) -> Prior:
        # The harmonic sum of the head: never more time than the others themselves had.
        exposure = 1 / (1 / (strength * step) + 1 / times)
        return np.where(free, exposure * rates, 0.0), exposure

    if strength is None:
        evidence = []
        for turn, tried in enumerate(STRENGTHS):
            model = RateModel(panel, free, step, pooled(tried), design)
            evidence.append(Laplace(model, posterior_mode(model, model.pack(rates, 1.0))).evidence())
            report("strength of pooling", 0.5 * (turn + 1) / len(STRENGTHS))
        # Strengths rise: the first whose evidence is at most 2 below the best is the weakest.
        strength = STRENGTHS[int(np.argmax(np.array(evidence) >= max(evidence) - 2.0))]
    return pooled(strength), rates, strength


def _other_types(panel: Panel, free: Bools, step: float, design: Design) -> tuple[Floats, Floats]:
    """(type, action, state, next_state) rates of all other types together, and the time they were observed for."""
    shared: Bools = np.asarray(free.any(axis=0, keepdims=True))
    together = RateModel(panel, shared, step, 1.0, Design(np.zeros_like(design.type), design.values))
    mode = posterior_mode(together)
    apart = RateModel(panel, np.broadcast_to(shared, free.shape), step, 1.0, design)
    point = apart.pack(np.broadcast_to(together.rates(mode), free.shape), np.exp(together.effects(mode)))
    each_jumps, each_times = (apart.rates(part) for part in apart.expect(point)[1:])
    # The sum over types less the type's own. The prior of the pooled fit keeps rates above 0.
    prior_jumps, prior_times = together.prior
    jumps = each_jumps.sum(axis=0) - each_jumps + prior_jumps
    times = each_times.sum(axis=0) - each_times + prior_times
    whole = together.pack(each_jumps.sum(axis=0)[None] + prior_jumps, 1.0)
    # f of the head: the shape of the posterior over its shape for observed paths.
    share = together.rates(np.minimum(Laplace(together, mode).shapes / whole, 1.0))
    # Differences of sums may fall below 0 by rounding.
    return np.maximum(jumps, 0.0) / times, np.maximum(share, 1e-3) * times


def _crude_rates(model: RateModel) -> Floats:
    """(type, action, state, next_state) initial rates: moves between two rows over the time between them."""
    panel, shape = model.panel, model.free.shape
    # A tenth of a jump in a step of time, so that no rate starts at 0.
    jumps, times = np.full(shape, 0.1), np.full(shape[:-1], model.step)
    whole = panel.times[panel.segments].sum(axis=1)
    # A move counts for each segment in proportion to its time.
    for segment in panel.segments.T:
        cell, action = np.divmod(panel.which[segment], panel.num_actions)
        place, time = (model.design.type[cell], action, panel.state), panel.times[segment]
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
    if found.table.rates.shape[1] > 1:
        notes.append(f"rates of a type are shrunk towards the other types with the weight of {found.strength:g} steps")
    if len(found.table.hazard_ratios[0]):
        notes.append(
            "rates are those at the means of numbers, the first levels and the first period; log hazard ratios have a "
            f"normal prior of standard deviation {SPREAD:g}, unless the prior is 0"
        )
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


def named_rates(found: Generators, log: Log, strata: Strata | None = None) -> Rates:
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
    chances = chi2.sf(statistic, np.maximum(classes - 1, 1))
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
