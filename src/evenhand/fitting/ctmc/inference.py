"""Posterior mode of jump rates under gamma priors, and its Laplace approximation.

With rates q[τ, a, i, j] ~ Gamma(shape α, rate β), independent, and the log-likelihood L of a `Panel`:

The mode, in log q, solves jumps + α = q (times + β). EM steps, q <- (jumps + α) / (times + β), never decrease the
likelihood and stay positive, but converge slowly; a few of them start, and L-BFGS finishes.

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
from functools import cached_property

import numpy as np
from scipy.optimize import minimize
from scipy.special import gammainccinv, gammaincinv, gammaln, log_ndtr, ndtr

from evenhand.errors import NotConvergedError
from evenhand.fitting.ctmc.likelihood import Expected, Panel
from evenhand.typing import Array, Bools, Floats

TOLERANCE = 1e-4
"""Residual of the mode's equations, over the root of the number of moves; a hundred times this is an error."""

NEGLIGIBLE = 1e-6
"""Expected jumps, prior included, below which a rate is fixed at 0."""

LEAST_SHAPE = 0.02
"""Least shape of a gamma marginal, and least curvature in log rates: it spans all rates that matter."""


@dataclass(frozen=True, eq=False)
class Prior:
    """Independent gamma distributions."""

    shapes: Floats
    """(type, action, state, next_state) pseudo-jumps; 0 without a prior."""

    times: Floats
    """(type, action, state, next_state) exposure of the pseudo-jumps."""


@dataclass(frozen=True, eq=False)
class RateModel:
    """Likelihood, prior and free rates; `parameter` indexes the rates that are free in some type."""

    panel: Panel
    prior: Prior

    free: Bools
    """(type, action, state, next_state) rates to estimate; all others are 0."""

    step: float
    """Length of a step."""

    @cached_property
    def shapes(self) -> Floats:
        """(type, parameter) of the prior."""
        return self.pack(self.prior.shapes)

    @cached_property
    def exposures(self) -> Floats:
        """(type, parameter) times of the prior."""
        return self.pack(self.prior.times)

    @cached_property
    def _positions(self) -> Array:
        return np.flatnonzero(self.free.any(axis=0))

    @cached_property
    def active(self) -> Bools:
        """(type, parameter) whether it is free in this type."""
        active: Bools = self.free.reshape(len(self.free), -1)[:, self._positions]
        return active

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
        return expected.values, self.pack(expected.jumps), self.pack(times_per_jump(expected))

    def log_posterior(self, rates: Floats) -> tuple[float, Floats]:
        """Log posterior density of the log rates up to a constant, and its (type, parameter) gradient."""
        values, jumps, times = self.expect(rates)
        prior = np.where(self.active, self.shapes * np.log(rates) - self.exposures * rates, 0.0).sum()
        gradient = np.where(self.active, jumps + self.shapes - rates * (times + self.exposures), 0.0)
        return float(values.sum() + prior), gradient


def times_per_jump(expected: Expected) -> Floats:
    """(type, action, state, next_state) the time in a state, repeated for each jump out of it."""
    return np.broadcast_to(expected.times[..., None], expected.jumps.shape)


def posterior_mode(model: RateModel, start: Floats) -> Floats:
    """(type, parameter) rates of highest posterior density in log rates.

    Args:
        model: likelihood and prior.
        start: (type, parameter) initial rates.

    Raises:
        NotConvergedError: the optimiser stopped before the equations of the mode held.
    """
    # 50 jumps between the two closest rows, or 1e-12 per step: beyond these the likelihood is flat.
    times = model.panel.times[model.panel.times > 0]
    low, high = 1e-12 / model.step, 50.0 / (times.min() if len(times) else 1.0)
    rates, message, residual = np.clip(start, low, high), "", np.inf
    if not rates.size:
        return rates
    for _ in range(4):
        for _ in range(12):
            rates = np.clip(_em_step(model, rates), low, high)
        rates, residual, message = _climb(model, rates, low, high)
        if residual <= TOLERANCE:
            return rates
    if residual > 100 * TOLERANCE:
        raise NotConvergedError(f"the rates did not converge: {message}; a stronger prior, or fewer states, may help")
    return rates


def _em_step(model: RateModel, rates: Floats) -> Floats:
    _, jumps, times = model.expect(rates)
    total = times + model.exposures
    return np.where(total > 0, (jumps + model.shapes) / np.where(total > 0, total, 1.0), rates)


def _climb(model: RateModel, rates: Floats, low: float, high: float) -> tuple[Floats, float, str]:
    """L-BFGS: improved rates, the residual of the mode's equations, and the optimiser's message."""
    bounds = np.log(low), np.log(high)

    def objective(logs: Floats) -> tuple[float, Floats]:
        value, gradient = model.log_posterior(np.exp(logs).reshape(rates.shape))
        return -value, -gradient.ravel()

    options = {"maxiter": 1000, "maxfun": 2000, "ftol": 1e-15, "gtol": 1e-7, "maxcor": 30}
    found = minimize(
        objective, np.log(rates).ravel(), jac=True, method="L-BFGS-B", bounds=[bounds] * rates.size, options=options
    )
    # At a bound, a gradient that points outwards does not count as a residual.
    held = (found.x <= bounds[0] + 1e-9) & (found.jac > 0) | (found.x >= bounds[1] - 1e-9) & (found.jac < 0)
    residual = np.abs(np.where(held, 0.0, found.jac)).max() / np.sqrt(model.panel.number.sum() + 1)
    return np.asarray(np.exp(found.x).reshape(rates.shape)), float(residual), str(found.message)


@dataclass(frozen=True, eq=False)
class Laplace:
    """Gaussian copula with gamma marginals around a posterior mode."""

    model: RateModel

    mode: Floats
    """(type, parameter) rates."""

    uncertain: Bools
    """(type, parameter) rates above 0."""

    curvature: Floats
    """(type, parameter, parameter) negative Hessian in log rates; the identity for rates of 0."""

    shapes: Floats
    """(type, parameter) of the gamma marginals."""

    @classmethod
    def around(cls, model: RateModel, mode: Floats) -> "Laplace":
        """Approximate the posterior.

        Args:
            model: likelihood and prior.
            mode: (type, parameter) from `posterior_mode`.
        """
        _, jumps, _ = model.expect(mode)
        uncertain = model.active & (jumps + model.shapes > NEGLIGIBLE)
        curvature = _positive(_hessian(model, mode, uncertain))
        variance = np.diagonal(np.linalg.inv(curvature), axis1=1, axis2=2)
        least = np.maximum(model.shapes, LEAST_SHAPE)
        # Never less certain than the prior, nor more certain than if the paths had been observed.
        shapes = np.clip(1 / variance, least, np.maximum(model.shapes + jumps, least))
        return cls(model, mode, uncertain, curvature, np.where(uncertain, shapes, 1.0))

    def evidence(self) -> float:
        """Log marginal likelihood of the records, summed over types."""
        a, b, q = self.model.shapes, self.model.exposures, np.maximum(self.mode, 1e-300)
        value = self.model.expect(self.mode)[0].sum() - np.linalg.slogdet(self.curvature)[1].sum() / 2
        stirling = self.shapes * np.log(self.shapes) - self.shapes - np.log(self.shapes) / 2
        terms = a * np.log(b * q) - gammaln(np.maximum(a, 1e-300)) - b * q + gammaln(self.shapes) - stirling
        return float(value + np.where(self.uncertain, terms, 0.0).sum())

    def draw(self, num_draws: int, generator: np.random.Generator) -> Floats:
        """(draw, type, action, state, next_state) rates.

        Args:
            num_draws: number of draws.
            generator: source of randomness.
        """
        covariance = np.linalg.inv(self.curvature)
        scale = 1 / np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
        root = np.linalg.cholesky(covariance) * scale[..., None]
        scores = np.einsum("tij,dtj->dti", root, generator.standard_normal((num_draws, *self.mode.shape)))
        logs = log_gamma_quantiles(scores, np.broadcast_to(self.shapes, scores.shape))
        return self.model.unpack(np.where(self.uncertain, np.exp(logs) / self.shapes * self.mode, 0.0))


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


def _positive(hessian: Floats) -> Floats:
    """Raise eigenvalues to the least curvature: the records do not identify the rates along flatter directions."""
    values, vectors = np.linalg.eigh(hessian)
    return np.asarray((vectors * np.maximum(values, LEAST_SHAPE)[:, None, :]) @ vectors.swapaxes(1, 2))


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
