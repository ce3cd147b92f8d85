"""Posterior of rates: mode and Laplace approximation.

With rates q[τ, a, i, j] ~ Gamma(shape α, rate β), independent, and the log-likelihood L of a `Panel`:

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

from typing import TypeAlias

import numpy as np
import scipy
from scipy.special import gammainccinv, gammaincinv, gammaln, log_ndtr, ndtr

from evenhand.errors import NotConvergedError
from evenhand.fitting.covariates import Design
from evenhand.fitting.ctmc.likelihood import Panel
from evenhand.typing import Array, Bools, Floats

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


class RateModel:
    """Likelihood, prior and parameters: rates, and hazard ratios of covariates.

    A point is an array (block, parameter) of positive parameters. Blocks are independent: one per type with its rates,
    or if there are covariates a single one, with the rates of all types, then the hazard ratios exp(b) per effect.
    """

    def __init__(
        self,
        panel: Panel,
        free: Bools,
        step: float,
        prior: Prior,
        design: Design | None = None,
        affected: Bools | None = None,
    ) -> None:
        """Index the free rates.

        Args:
            panel: the records.
            free: (type, action, state, next_state) rates to estimate; all others are 0.
            step: length of a step.
            prior: shapes and rates, or their weight in steps.
            design: types and covariates of the cells; each cell is a type by default.
            affected: (effect, state, next_state) jumps with effects; all free ones by default.
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
        # Without effects, a block per type.
        rates = len(self._positions) * (len(free) if number else 1)
        self.is_effect: Bools = np.arange(rates + number) >= rates
        self.active: Bools = self.pack(free, 1.0 if affected is None else affected.astype(float)) > 0
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
            own = np.log(np.where(self.active, point, 1.0)[0, self.is_effect])
            effects[:, self._jumps] = own.reshape(len(effects), -1)
        return effects.reshape(-1, *self.free.shape[2:])

    def unpack(self, point: Floats) -> Floats:
        """(cell, action, state, next_state) rates of the cells.

        Args:
            point: (block, parameter).
        """
        return self.rates(point)[self.design.type] * self.design.ratios(self.effects(point))

    def expect(self, point: Floats) -> tuple[float, Floats, Floats]:
        """Log-likelihood, and (block, parameter) jumps and times: its gradient in logarithms is jumps - point times.

        Of a rate, these are the expected jumps and times, weighted by hazard ratios.

        Args:
            point: (block, parameter).
        """
        ratios = self.design.ratios(self.effects(point))
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


def posterior_mode(model: RateModel, start: Floats | None = None, precision: float = 1e-15) -> Floats:
    """(block, parameter) point of highest posterior density in the logarithms.

    Args:
        model: likelihood and prior.
        start: (block, parameter) initial point; moves over the times between rows by default.
        precision: relative change of the log posterior in an iteration at which to stop.

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
    options = {"maxiter": 1000, "maxfun": 2000, "ftol": precision, "gtol": 1e-7, "maxcor": 30}
    for _ in range(4):
        for _ in range(12):  # EM
            _, jumps, exposure = model.expect(point)
            total = exposure + model.exposures
            fixed = model.is_effect | (total <= 0)
            point = np.clip(np.where(fixed, point, (jumps + model.shapes) / np.where(fixed, 1.0, total)), low, high)
        bounds = list(zip(least, most, strict=True))
        found = scipy.optimize.minimize(
            objective, np.log(point).ravel(), jac=True, method="L-BFGS-B", bounds=bounds, options=options
        )
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
