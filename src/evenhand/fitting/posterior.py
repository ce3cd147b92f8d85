"""Posterior distributions of transition rows.

Three forms. `Dirichlet` rows, if every step was observed and rows are not pooled:

    p[t, s, a, :] ~ Dirichlet(c[t, s, a, :])                    independent over (t, s, a)
    p[t, s, a, j] ~ Beta(c_j, C - c_j),   C = sum_j c_j         each entry, for intervals

with c = `concentration`, and c_j = 0 for an impossible transition. A row of zeros is unknown: its mean, intervals and
draws are NaN until it is stated. Draws are normalised gamma variables, p_j = g_j / sum g with g_j ~ Gamma(c_j), in
logarithms, so that concentrations near 0 do not underflow:

    log g_j = log Gamma(c_j + 1) + log(U) / c_j,   U uniform

`Pooled` rows (in `pooled_posterior`), shrunk towards other types. And `Drawn`: a sample, if steps are missing or times
irregular, so that rows are not independent. All have means, equal-tailed intervals, and draws. Draw number i depends on
the seed and on i alone.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from evenhand.checks import as_seed, check_fraction, check_memory, check_positive_int
from evenhand.errors import InvalidInputError
from evenhand.typing import Bools, Floats, Indices, Rng

FEWER = "Request fewer draws, or one at a time (`one`)."


class Posterior(Protocol):
    """A distribution over (type, state, action, next_state) transitions."""

    @property
    def mean(self) -> Floats:
        """(type, state, action, next_state) transitions of the model."""
        ...

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Equal-tailed credible intervals of each entry: lower and upper ends, shaped as `mean`.

        Args:
            level: between 0 and 1.
        """
        ...

    def one(self, seed: int, number: int) -> Floats:
        """(type, state, action, next_state) one draw.

        Args:
            seed: of all draws.
            number: of the draw, from 0.
        """
        ...

    def draw(self, num_draws: int, rng: Rng = 0) -> Floats:
        """(draw, type, state, action, next_state) transitions; the first draws do not depend on their number.

        Args:
            num_draws: number of draws.
            rng: a seed, or a generator.
        """
        ...

    def settled(self, rows: Floats, known: Bools, like: Indices | None = None) -> "Posterior":
        """The same with stated rows.

        Args:
            rows: (type, state, action, next_state) probabilities, read where `known`.
            known: (type, state, action) certain rows.
            like: (type, state, action) action whose row in the same state it copies in every draw; its own by default.
        """
        ...


@dataclass(frozen=True, eq=False)
class Dirichlet:
    """Independent rows, except certain ones and copies of another action's."""

    concentration: Floats
    """(type, state, action, next_state) counts plus prior; 0 for impossible transitions."""

    known: Bools | None = None
    """(type, state, action) certain rows, proportional to their concentration; none by default."""

    like: Indices | None = None
    """(type, state, action) action whose row in the same state it copies in every draw; its own by default."""

    @property
    def mean(self) -> Floats:
        """(type, state, action, next_state) transitions of the model."""
        return self.copied(_shares(self.concentration))

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Equal-tailed credible intervals of each entry, by its Beta distribution.

        An interval is extended to the mean, which lies outside for an unobserved entry among hundreds.
        """
        from scipy.special import betaincinv  # only fitting needs it

        tail = (1 - check_fraction(level, "level")) / 2
        own = self.concentration
        rest = own.sum(axis=-1, keepdims=True) - own
        alone = (own == 0) | (_others(own) == 0)  # a row's only entry is 1, also if rounding leaves a rest
        mean = _shares(own)
        if self.known is not None:
            alone = alone | self.known[..., None]
        safe_own, safe_rest = np.where(alone, 1.0, own), np.where(alone, 1.0, rest)
        lower, upper = (np.where(alone, mean, betaincinv(safe_own, safe_rest, share)) for share in (tail, 1 - tail))
        return self.copied(np.minimum(lower, mean)), self.copied(np.maximum(upper, mean))

    def one(self, seed: int, number: int) -> Floats:
        """(type, state, action, next_state) one draw."""
        rng = np.random.default_rng([seed, number])
        logs = _log_gammas(self.concentration, rng)
        with np.errstate(invalid="ignore"):  # unknown rows stay NaN
            drawn = np.exp(logs - logs.max(axis=-1, keepdims=True))
        drawn /= drawn.sum(axis=-1, keepdims=True)
        if self.known is not None:
            drawn = np.where(self.known[..., None], _shares(self.concentration), drawn)
        return self.copied(drawn)

    def draw(self, num_draws: int, rng: Rng = 0) -> Floats:
        """(draw, type, state, action, next_state) transitions; the first draws do not depend on their number."""
        return stacked(self, num_draws, rng)

    def settled(self, rows: Floats, known: Bools, like: Indices | None = None) -> "Dirichlet":
        """The same with stated rows: see `Posterior`."""
        already = np.zeros_like(known) if self.known is None else self.known
        concentration = np.where(known[..., None], rows, self.concentration)
        return Dirichlet(concentration, already | known, self.like if like is None else like)

    def copied(self, rows: Floats) -> Floats:
        """Apply `like` to an array shaped as `mean`.

        Args:
            rows: (type, state, action, next_state) values per transition.
        """
        return rows if self.like is None else np.take_along_axis(rows, self.like[..., None].astype(np.intp), axis=2)


@dataclass(frozen=True, eq=False)
class Drawn:
    """A sample from the posterior."""

    mean: Floats
    """(type, state, action, next_state) transitions of the model."""

    draws: Floats
    """(draw, type, state, action, next_state)."""

    def __post_init__(self) -> None:
        if self.draws.shape[1:] != self.mean.shape or not len(self.draws):
            raise InvalidInputError(f"draws: expected some of shape {self.mean.shape}, got shape {self.draws.shape}")

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Equal-tailed credible intervals of each entry, by quantiles of the draws.

        An interval is extended to the estimate, which may lie outside, as a maximum likelihood of 0 does.
        """
        tail = (1 - check_fraction(level, "level")) / 2
        lower, upper = np.quantile(self.draws, [tail, 1 - tail], axis=0)
        return np.minimum(lower, self.mean), np.maximum(upper, self.mean)

    def one(self, seed: int, number: int) -> Floats:
        """(type, state, action, next_state) one draw: a random permutation of the sample, then another."""
        turn, place = divmod(number, len(self.draws))
        order = np.random.default_rng([seed, turn]).permutation(len(self.draws))
        return np.asarray(self.draws[order[place]])

    def draw(self, num_draws: int, rng: Rng = 0) -> Floats:
        """(draw, type, state, action, next_state) transitions; the first draws do not depend on their number."""
        return stacked(self, num_draws, rng)

    def settled(self, rows: Floats, known: Bools, like: Indices | None = None) -> "Drawn":
        """The same with stated rows: see `Posterior`."""

        def stated(own: Floats) -> Floats:
            own = np.where(known[..., None], rows, own)
            return own if like is None else np.take_along_axis(own, like[..., None].astype(np.intp), axis=2)

        return Drawn(stated(self.mean), np.stack([stated(draw) for draw in self.draws]))


def stacked(posterior: Posterior, num_draws: int, rng: Rng) -> Floats:
    """(draw, type, state, action, next_state) first draws, if they fit in memory.

    Args:
        posterior: distribution to draw from.
        num_draws: number of draws.
        rng: a seed, or a generator.
    """
    number, seed = check_positive_int(num_draws, "num_draws"), as_seed(rng)
    shape = posterior.mean.shape
    check_memory(8.0 * number * float(np.prod(shape)), f"{number} draws of {shape} transitions", FEWER)
    drawn = np.empty((number, *shape))
    for i in range(number):
        drawn[i] = posterior.one(seed, i)
    return drawn


def _shares(concentration: Floats) -> Floats:
    """Rows normalised to 1; NaN for rows of zeros."""
    with np.errstate(invalid="ignore"):
        return np.asarray(concentration / concentration.sum(axis=-1, keepdims=True))


def _others(concentration: Floats) -> Floats:
    """Number of other positive entries in the row, for each entry."""
    some = concentration > 0
    return np.asarray(some.sum(axis=-1, keepdims=True) - some)


def _log_gammas(shape: Floats, rng: np.random.Generator) -> Floats:
    """Logarithms of gamma variables; -inf for a shape of 0."""
    some = shape > 0
    larger = rng.standard_gamma(np.where(some, shape, 1.0) + 1)
    uniform = 1 - rng.random(shape.shape)  # never 0
    with np.errstate(over="ignore"):  # a shape of 1e-310 is as good as 0
        logs = np.log(larger) + np.log(uniform) / np.where(some, shape, 1.0)
    return np.where(some, logs, -np.inf)
