"""Rates under gamma priors: the most likely ones, and draws from what is known of them.

With rates q[τ, a, i, j] ~ Gamma(shape α, rate β), independent, and the log-likelihood L of a `Panel`:

The mode, in log q, is where jumps + α = q (times + β). Steps of EM, q <- (jumps + α) / (times + β), never lose
likelihood and never leave the positive rates, but slow down; so a few of them begin, and L-BFGS ends.

Coordinates for draws. Had the paths been seen, the posterior would be gammas; as it is, it is wider. Let z be the
normal score of q under a gamma of shape a and rate b around the mode, as wide as the posterior is there:

    q = G_a^-1(Φ(z)) / b            G_a the gamma distribution function, Φ the normal one
    a = 1 / (H^-1)[ij, ij], within α and α + jumps;  b = a / q at the mode;  H the curvature in log rates
    log density of z = L(q) + sum of [(α - a) log q - (β - b) q] - |z|^2 / 2 + a constant

It is exactly normal where the paths were seen, and where nothing was seen (then it is the prior). Log rates would be
far from normal for jumps that were seen once or never, and most are. Its top and curvature are a normal
approximation; Hamiltonian Monte Carlo, begun with draws from that and measured by the curvature, makes them draws
from the posterior itself, chains side by side.

Evidence. By the same normal approximation

    log p(records) ~ sum of [α log β - log Γ(α) + log Γ(a) - a log b] + log density at its top - log det(curvature) / 2
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.optimize import minimize
from scipy.special import gammainc, gammainccinv, gammaincinv, gammaln, log_ndtr, ndtr, ndtri

from evenhand.errors import NotConverged
from evenhand.fitting.panels import Expected, Panel
from evenhand.typing import Array, Bools, Floats

Told = Callable[[float], None]
"""Called with the share of the work that is done."""

FASTEST = 50.0
"""Jumps in the shortest time between two rows: any faster rate looks the same."""

SLOWEST = 1e-12
"""Jumps a step: as good as none."""

FIRST_STEPS = 12
"""Steps of EM before the optimiser."""

MOST_STEPS = 1000
"""Of the optimiser."""

ROUNDS = 4
"""Times that both take turns, where the optimiser stops too early."""

CLOSE, LOOSE = 1e-4, 1e-2
"""Jumps, over the root of all moves, by which the mode is missed when it is done, and when that is not good enough."""

UNNEEDED = 1e-6
"""Expected jumps, with those of the prior, below which a rate is left at 0: without a prior, what was never seen."""

FLATTEST = 0.02
"""The least shape of a gamma: so wide that it spans all rates that matter."""

LEAST_CURVATURE = 0.1
"""Flatter directions are treated as this flat: the records do not tell the rates apart along them."""

FARTHEST = 8.0
"""Normal scores beyond this are never needed."""

WARM_UP = 15
"""Trajectories of each chain that are thrown away, while the step is found."""

TRAJECTORY = 1.6
"""How far a trajectory goes: a quarter of the way round a normal distribution."""


LARGEST_STRIDE = 0.6
"""Of a trajectory: with larger ones a leap may go to and fro between the same two places."""


@dataclass(frozen=True, eq=False)
class Prior:
    """Independent gammas."""

    shapes: Floats
    """(type, action, state, next_state) jumps that are added; 0 with no prior."""

    times: Floats
    """(type, action, state, next_state) the time in which they came."""


@dataclass(frozen=True, eq=False)
class Problem:
    """Records, a prior, and which rates are free."""

    panel: Panel
    prior: Prior

    free: Bools
    """(type, action, state, next_state) rates that are estimated; all others are 0."""

    step: float
    """How long a step is."""

    @property
    def num_types(self) -> int:
        """As the panel has."""
        return self.panel.num_types

    @cached_property
    def shapes(self) -> Floats:
        """(type, parameter) of the prior."""
        return self.packed(self.prior.shapes)

    @cached_property
    def exposures(self) -> Floats:
        """(type, parameter) the time of the prior."""
        return self.packed(self.prior.times)

    @cached_property
    def places(self) -> Array:
        """(parameter,) where some type has a free rate, in a table of all actions and pairs of states."""
        return np.flatnonzero(self.free.any(axis=0))

    @cached_property
    def active(self) -> Bools:
        """(type, parameter) whether it is free in this type."""
        active: Bools = self.free.reshape(self.num_types, -1)[:, self.places]
        return active

    def packed(self, table: Array) -> Floats:
        """(type, parameter) of a table (type, action, state, next_state)."""
        return np.asarray(table, float).reshape(self.num_types, -1)[:, self.places]

    def unpacked(self, rates: Floats) -> Floats:
        """(type, action, state, next_state) of rates (type, parameter)."""
        flat = np.zeros((self.num_types, self.free[0].size))
        flat[:, self.places] = np.where(self.active, rates, 0.0)
        return flat.reshape(self.free.shape)

    def expect(self, rates: Floats) -> tuple[Floats, Floats, Floats]:
        """(type,) log-likelihoods, and (type, parameter) expected jumps and times.

        Args:
            rates: (type, parameter).
        """
        expected = self.panel.expect(self.unpacked(rates))
        return expected.values, self.packed(expected.jumps), self.packed(spread_times(expected))

    def narrowed(self, moving: Bools) -> tuple["Problem", Bools]:
        """The same with fewer free rates, and (parameter,) which are left.

        Args:
            moving: (type, parameter) those that stay free; others are 0 from now on.
        """
        flat = np.zeros((self.num_types, self.free[0].size), bool)
        flat[:, self.places] = moving
        kept = replace(self, free=flat.reshape(self.free.shape))
        return kept, np.isin(self.places, kept.places)

    def repeated(self, copies: int) -> "Problem":
        """Several copies of all types, to be drawn from side by side."""
        return Problem(
            self.panel.repeated(copies),
            Prior(np.tile(self.prior.shapes, (copies, 1, 1, 1)), np.tile(self.prior.times, (copies, 1, 1, 1))),
            np.tile(self.free, (copies, 1, 1, 1)),
            self.step,
        )


def spread_times(expected: Expected) -> Floats:
    """(type, action, state, next_state) the time in a state, at each jump out of it."""
    return np.broadcast_to(expected.times[..., None], expected.jumps.shape)


# The mode


def most_likely(problem: Problem, begin: Floats) -> Floats:
    """(type, parameter) the rates of the highest posterior, by log rates.

    Args:
        problem: records and prior.
        begin: (type, parameter) rates to begin with.

    Raises:
        NotConverged: the optimiser stopped before the equations of the mode held.
    """
    # Rates beyond what the times between rows can tell are held at the bounds: there the likelihood is flat.
    low, high = SLOWEST / problem.step, FASTEST / _shortest(problem.panel)
    rates, message = np.clip(begin, low, high), ""
    if not rates.size:  # nobody can jump
        return rates
    # EM first, for it cannot leave the positive rates; then L-BFGS, which ends faster.
    for _ in range(ROUNDS):
        for _ in range(FIRST_STEPS):
            rates = np.clip(_em_step(problem, rates), low, high)
        rates, steep, message = _climb(problem, rates, low, high)
        if steep <= CLOSE:
            return rates
    # Near enough for a fit, if not for the tolerance: only a mode that is clearly missed is an error.
    if steep > LOOSE:
        raise NotConverged(f"the rates did not settle: {message}; a stronger --prior, or fewer states, may help")
    return rates


def _climb(problem: Problem, rates: Floats, low: float, high: float) -> tuple[Floats, float, str]:
    """L-BFGS from some rates: better ones, by how much the mode is missed, and what the optimiser says."""
    shape = rates.shape

    def falls(logs: Floats) -> tuple[float, Floats]:
        value, slope = _posterior(problem, np.exp(logs).reshape(shape))
        return -value, -slope.ravel()

    bounds = [(np.log(low), np.log(high))] * rates.size
    # As exact as it gets: whether that is good enough is judged by the equations of the mode, below.
    options = {"maxiter": MOST_STEPS, "maxfun": 2 * MOST_STEPS, "ftol": 1e-15, "gtol": 1e-7, "maxcor": 30}
    found = minimize(falls, np.log(rates).ravel(), jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    # `jac` is of what is minimised; at a bound a slope that leads outwards is no fault.
    steep = np.abs(found.jac) * ~_at_bound(found.x, found.jac, np.log(low), np.log(high))
    missed = float(steep.max(initial=0.0) / np.sqrt(problem.panel.number.sum() + 1))
    return np.asarray(np.exp(found.x).reshape(shape)), missed, str(found.message)


def _shortest(panel: Panel) -> float:
    some = panel.times[panel.times > 0]
    return float(some.min()) if len(some) else 1.0


def _em_step(problem: Problem, rates: Floats) -> Floats:
    _, jumps, times = problem.expect(rates)
    total = times + problem.exposures
    # Where neither time nor prior is known, the rate stays as it was.
    return np.where(total > 0, (jumps + problem.shapes) / np.where(total > 0, total, 1.0), rates)


def _posterior(problem: Problem, rates: Floats) -> tuple[float, Floats]:
    """The log posterior in log rates, of all types together, and its slope."""
    values, jumps, times = problem.expect(rates)
    shapes, exposures, active = problem.shapes, problem.exposures, problem.active
    prior = np.where(active, shapes * np.log(rates) - exposures * rates, 0.0).sum()
    # jumps + α - q (times + β), the derivative by log q.
    slope = np.where(active, jumps + shapes - rates * (times + exposures), 0.0)
    return float(values.sum() + prior), slope


def _at_bound(logs: Floats, slope: Floats, low: float, high: float) -> Bools:
    """Whether a bound, and not the slope, holds it."""
    # The slope is of what falls: positive means that lower would be better.
    held: Bools = ((logs <= low + 1e-9) & (slope > 0)) | ((logs >= high - 1e-9) & (slope < 0))
    return held


# Normal scores


@dataclass(frozen=True, eq=False)
class Scores:
    """Normal scores of the rates around a mode."""

    problem: Problem

    rates: Floats
    """(type, parameter) the mode, by log rates."""

    shapes: Floats
    """(type, parameter) of the gammas."""

    exposures: Floats
    """(type, parameter) the rates of the gammas."""

    @classmethod
    def around(cls, problem: Problem, rates: Floats, told: Told) -> "Scores":
        """Scores that are about standard normal.

        Args:
            problem: records and prior.
            rates: (type, parameter) their mode.
            told: what is called with the share of the work that is done.
        """
        _, jumps, _ = problem.expect(rates)
        # A rate that nothing needs stays at 0, and is no coordinate.
        moving = problem.active & (jumps + problem.shapes > UNNEEDED)
        kept, some = problem.narrowed(moving)
        rates, jumps = rates[:, some], jumps[:, some]
        curvature = _curvature(lambda logs: _posterior(kept, np.exp(logs))[1], np.log(rates), told)
        # The marginal spread of each log rate: the diagonal of the inverse, not the inverse of the diagonal.
        spread = np.diagonal(np.linalg.inv(_bounded(curvature, FLATTEST)), axis1=1, axis2=2)
        least = np.maximum(kept.shapes, FLATTEST)
        # Never less sure than the prior, nor surer than if the paths had been seen.
        shapes = np.where(kept.active, np.clip(1 / spread, least, np.maximum(kept.shapes + jumps, least)), 1.0)
        # b = a / q, so that the gamma is about the mode.
        return cls(kept, rates, shapes, shapes / np.where(kept.active, rates, 1.0))

    def repeated(self, copies: int) -> "Scores":
        """For chains side by side."""
        tiled = (np.tile(table, (copies, 1)) for table in (self.rates, self.shapes, self.exposures))
        return Scores(self.problem.repeated(copies), *tiled)

    @property
    def begin(self) -> Floats:
        """(type, parameter) the scores of the mode by log rates."""
        # Scores of the mode; those of very flat gammas are cut.
        return np.asarray(np.clip(ndtri(gammainc(self.shapes, self.exposures * self.rates)), -5.0, 5.0))

    def rates_at(self, scores: Floats) -> tuple[Floats, Floats]:
        """(type, parameter) rates, and how fast their logarithms rise with the scores."""
        logs, rise = log_gamma_quantiles(scores, self.shapes)
        return np.exp(logs) / self.exposures, rise

    def density(self, scores: Floats) -> tuple[Floats, Floats]:
        """(type,) the log density up to a constant, and (type, parameter) its slope."""
        rates, rise = self.rates_at(scores)
        values, jumps, times = self.problem.expect(rates)
        active, prior, exposure = self.problem.active, self.problem.shapes, self.problem.exposures
        logs = np.log(np.maximum(rates, 1e-300))
        rest = np.where(active, (prior - self.shapes) * logs - (exposure - self.exposures) * rates, 0.0).sum(axis=1)
        # The slope by log q, which `rise` turns into one by the score.
        pull = jumps + prior - self.shapes - rates * (times + exposure - self.exposures)
        return values + rest - (scores**2).sum(axis=1) / 2, np.where(active, pull * rise, 0.0) - scores

    def top(self) -> Floats:
        """(type, parameter) the scores of highest density."""
        shape, size = self.rates.shape, self.rates.size
        if not size:
            return np.zeros(shape)

        def falls(flat: Floats) -> tuple[float, Floats]:
            values, slope = self.density(flat.reshape(shape))
            return -float(values.sum()), -slope.ravel()

        found = minimize(falls, self.begin.ravel(), jac=True, method="L-BFGS-B", bounds=[(-FARTHEST, FARTHEST)] * size)
        top: Floats = found.x.reshape(shape)
        return top

    def curvature(self, top: Floats, told: Told) -> Floats:
        """(type, parameter, parameter) minus the second derivative of the log density, bounded below."""
        return _bounded(_curvature(lambda scores: self.density(scores)[1], top, told), LEAST_CURVATURE)

    def evidence(self, top: Floats, curvature: Floats) -> float:
        """The log probability of the records, all types together, by the normal approximation."""
        prior, exposure = self.problem.shapes, self.problem.exposures
        # The constants of the head: those of the prior, and those of the gammas that scores are measured by.
        whole = prior * np.log(exposure) - gammaln(prior) + gammaln(self.shapes) - self.shapes * np.log(self.exposures)
        whole = np.where(self.problem.active, whole, 0.0).sum()
        return float(whole + self.density(top)[0].sum() - np.linalg.slogdet(curvature)[1].sum() / 2)


def _curvature(slope: Callable[[Floats], Floats], top: Floats, told: Told) -> Floats:
    """(type, parameter, parameter) minus the derivative of a slope (type, parameter), by differences."""
    # Wide beside the rounding of a slope, narrow beside the coordinates, which are of size 1.
    size, width = top.shape[1], 1e-3
    curvature = np.empty((len(top), size, size))
    for place in range(size):
        shift = np.zeros_like(top)
        shift[:, place] = width
        curvature[:, place] = (slope(top - shift) - slope(top + shift)) / (2 * width)
        told((place + 1) / size)
    # Differences of a slope need not be symmetric to the last bit.
    return (curvature + curvature.swapaxes(1, 2)) / 2


def _bounded(curvature: Floats, least: float) -> Floats:
    """The same, in no direction below the least."""
    values, vectors = np.linalg.eigh(curvature)
    # Eigenvalues below the least are lifted to it; directions stay.
    return np.asarray((vectors * np.maximum(values, least)[:, None, :]) @ vectors.swapaxes(1, 2))


def log_gamma_quantiles(scores: Floats, shapes: Floats) -> tuple[Floats, Floats]:
    """The logarithms of gamma variables (of rate 1) with these normal scores, and how fast they rise.

    Args:
        scores: normal scores.
        shapes: of the gammas; far below 1 the variables themselves would underflow, and their logarithms do not.
    """
    # From whichever tail is small, so that no digits are lost near 1.
    plain, below = np.empty_like(scores), scores < 0
    plain[below] = gammaincinv(shapes[below], ndtr(scores[below]))
    plain[~below] = gammainccinv(shapes[~below], ndtr(-scores[~below]))
    with np.errstate(divide="ignore"):
        plain = np.log(plain)
    tail = (log_ndtr(scores) + gammaln(shapes + 1)) / shapes  # G_a(x) = x^a / Γ(a + 1) for small x
    logs = np.where(plain > np.log(1e-9), plain, np.minimum(tail, np.log(1e-9)))
    # The log density of log q; how fast log q rises is the normal density over it.
    mass = shapes * logs - np.exp(logs) - gammaln(shapes)
    return logs, np.exp(-(scores**2) / 2 - np.log(2 * np.pi) / 2 - mass)


# Draws


def draw_rates(
    scores: Scores,
    top: Floats,
    curvature: Floats,
    num_draws: int,
    generator: np.random.Generator,
    told: Told,
) -> Floats:
    """(draw, type, action, state, next_state) rates from the posterior.

    Args:
        scores: the coordinates.
        top: (type, parameter) where their density is highest.
        curvature: (type, parameter, parameter) there.
        num_draws: how many.
        generator: where chance comes from.
        told: what is called with the share of the work that is done.
    """
    # As many chains side by side as make good use of one evaluation, but not so many that warming up is most of it.
    copies = int(np.clip(2_000_000 // max(scores.problem.panel.work, 1), 4, 20))
    rounds = -(-num_draws // copies)
    chains = Chains(scores.repeated(copies), np.tile(top, (copies, 1)), _roots(curvature), copies, generator)
    kept = []
    for turn in range(WARM_UP + rounds):
        chains.move(warming=turn < WARM_UP)
        if turn >= WARM_UP:
            kept.append(chains.rates())
        told((turn + 1) / (WARM_UP + rounds))
    # (round, copy and type, ...) in the order of rounds: each draw is one copy of all types.
    shape = scores.problem.free.shape
    return np.concatenate(kept).reshape(-1, *shape)[:num_draws]


def _roots(curvature: Floats) -> Floats:
    """(type, parameter, parameter) C with C C' = H^-1: steps that are alike in every direction."""
    values, vectors = np.linalg.eigh(curvature)
    return np.asarray((vectors / np.sqrt(values)[:, None, :]) @ vectors.swapaxes(1, 2))


class Chains:
    """Hamiltonian Monte Carlo for several copies of all types, measured by the curvature at the top."""

    def __init__(self, scores: Scores, top: Floats, roots: Floats, copies: int, generator: np.random.Generator) -> None:
        """Begin with draws from the normal approximation.

        Args:
            scores: the coordinates, of all copies.
            top: (copy and type, parameter).
            roots: (type, parameter, parameter).
            copies: chains a type.
            generator: where chance comes from.
        """
        self.scores, self.top, self.roots, self.copies, self.generator = scores, top, roots, copies, generator
        # In places: coordinates in which the normal approximation is round.
        self.places = self._within(generator.standard_normal(top.shape))
        self.values, self.slopes = self._density(self.places)
        # The usual rate at which strides fall with the number of coordinates.
        self.strides = np.full(len(roots), min(LARGEST_STRIDE, 1.4 * max(top.shape[1], 1) ** -0.25))

    def rates(self) -> Floats:
        """(copy and type, action, state, next_state) where the chains are."""
        return self.scores.problem.unpacked(self.scores.rates_at(self._scores(self.places))[0])

    def move(self, *, warming: bool) -> None:
        """One trajectory of every chain.

        Args:
            warming: whether the stride is still being found.
        """
        momenta = self.generator.standard_normal(self.places.shape)
        stride = np.tile(self.strides, self.copies)[:, None]
        # Of a random length, so that no trajectory closes on itself.
        length = TRAJECTORY * self.generator.uniform(0.7, 1.3)
        places, values, slopes, after = self._leap(momenta, stride, max(1, round(length / self.strides.min())))
        # The log ratio of Metropolis: what density is gained, less what momentum is.
        energy = values - self.values - ((after**2).sum(axis=1) - (momenta**2).sum(axis=1)) / 2
        # A trajectory that left the domain has no energy, and is not taken.
        chance = np.exp(np.minimum(np.where(np.isfinite(energy), energy, -np.inf), 0.0))
        taken = self.generator.random(len(chance)) < chance
        self.places = np.where(taken[:, None], places, self.places)
        self.slopes = np.where(taken[:, None], slopes, self.slopes)
        self.values = np.where(taken, values, self.values)
        if warming:
            accepted = chance.reshape(self.copies, -1).mean(axis=0)
            # Between these shares of acceptance the stride is right.
            changed = self.strides * np.where(accepted < 0.65, 0.75, np.where(accepted > 0.9, 1.15, 1.0))
            self.strides = np.minimum(changed, LARGEST_STRIDE)

    def _leap(self, momenta: Floats, stride: Floats, leaps: int) -> tuple[Floats, Floats, Floats, Floats]:
        places, slopes, values = self.places, self.slopes, self.values
        for _ in range(leaps):
            # Leapfrog: half a kick, a step, half a kick.
            momenta = momenta + stride / 2 * slopes
            places = places + stride * momenta
            values, slopes = self._density(places)
            momenta = momenta + stride / 2 * slopes
        return places, values, slopes, momenta

    def _within(self, places: Floats) -> Floats:
        """The same, nearer the top where the normal approximation is so flat that they lie beyond all scores."""
        while (far := (np.abs(self._scores(places)) > FARTHEST).any(axis=1, keepdims=True)).any():
            places = np.where(far, places / 2, places)
        return places

    def _scores(self, places: Floats) -> Floats:
        shaped = places.reshape(self.copies, *self.roots.shape[:2])
        return np.asarray(self.top + np.einsum("tij,ctj->cti", self.roots, shaped).reshape(self.top.shape))

    def _density(self, places: Floats) -> tuple[Floats, Floats]:
        scores = self._scores(places)
        outside = (np.abs(scores) > FARTHEST).any(axis=1)
        values, slopes = self.scores.density(np.clip(scores, -FARTHEST, FARTHEST))
        shaped = slopes.reshape(self.copies, *self.roots.shape[:2])
        # By the chain rule: slopes by places are slopes by scores, turned by C, which is symmetric.
        turned = np.einsum("tij,ctj->cti", self.roots, shaped).reshape(slopes.shape)
        return np.where(outside, -np.inf, values), turned
