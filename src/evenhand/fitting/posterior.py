"""Posterior distributions of transition rows.

Three forms. `Dirichlet` rows, if every step was observed and rows are not pooled:

    p[t, s, a, :] ~ Dirichlet(c[t, s, a, :])                    independent over (t, s, a)
    p[t, s, a, j] ~ Beta(c_j, C - c_j),   C = sum_j c_j         each entry, for intervals

with c = `concentration`, and c_j = 0 for an impossible transition. A row of zeros is unknown: its mean, intervals and
draws are NaN until it is stated. Draws are normalised gamma variables, p_j = g_j / sum g with g_j ~ Gamma(c_j), in
logarithms, so that concentrations near 0 do not underflow:

    log g_j = log Gamma(c_j + 1) + log(U) / c_j,   U uniform

`Pooled` rows, shrunk towards other types: the hierarchy itself, not one Dirichlet distribution per row. With c, m and
the counts n_t of one pair as in `hierarchical_dirichlet`:

    c   on its grid, by its weights         strength of pooling
    m   ~ Dirichlet(K mu), given c          common row
    p_t ~ Dirichlet(n_t + c m)              the row of each type

A draw draws all three: c and m once per pair, so that rows of several types are correlated. An interval is that of the
mixture of Beta distributions that an entry has,

    p_tj ~ Beta(n_tj + c m_j, N_t - n_tj + c (1 - m_j)),     m_j ~ Beta(K mu_j, K (1 - mu_j)) given c

by Gauss-Legendre quadrature over the quantiles of c, and for each over those of m_j. Equal entries of a row (never
observed) are computed once; there are fewer nodes if many entries differ. With many next states, the interval of one
that was never observed may end below its own mean, because m_j is skewed. It then ends where that of the Dirichlet row
with the same mean and total variance does.

And `Drawn`: a sample, if steps are missing or times irregular, so that rows are not independent. All have means,
equal-tailed intervals, and draws. Draw number i depends on the seed and on i alone.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from evenhand.checks import as_seed, check_fraction, check_memory, check_positive_int
from evenhand.errors import InvalidInputError
from evenhand.typing import Bools, Floats, Indices, Ints, Rng

if TYPE_CHECKING:
    from evenhand.fitting.hierarchical_dirichlet import PooledPrior


Posterior: TypeAlias = "Dirichlet | Pooled | Drawn"
"""A distribution over (type, state, action, next_state) transitions.

    mean                          transitions of the model; NaN in unknown rows
    interval(level)               lower and upper ends of equal-tailed credible intervals, shaped as `mean`
    one(seed, number)             draw of that number, from 0
    draw(num_draws, rng)          (draw, ...) the first draws
    settled(rows, known, like)    the same with stated rows: (type, state, action) mask of certain rows, and the action
                                  whose row in the same state is copied in every draw; its own by default
"""


class _Drawable:
    """Draws of a posterior, one by one."""

    def draw(self: Any, num_draws: int, rng: Rng = 0) -> Floats:
        """(draw, type, state, action, next_state) transitions; the first draws do not depend on their number."""
        number, seed = check_positive_int(num_draws, "num_draws"), as_seed(rng)
        shape = self.mean.shape
        instead = "Request fewer draws, or one at a time (`one`)."
        check_memory(8.0 * number * float(np.prod(shape)), f"{number} draws of {shape} transitions", instead)
        drawn = np.empty((number, *shape))
        for i in range(number):
            drawn[i] = self.one(seed, i)
        return drawn


@dataclass(frozen=True, eq=False)
class Dirichlet(_Drawable):
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
        return self.copied(shares(self.concentration))

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Equal-tailed credible intervals of each entry, by its Beta distribution.

        An interval is extended to the mean, which lies outside for an unobserved entry among hundreds.
        """
        from scipy.special import betaincinv  # only fitting needs it

        tail = (1 - check_fraction(level, "level")) / 2
        own = self.concentration
        rest = own.sum(axis=-1, keepdims=True) - own
        some = own > 0
        # A row's only entry is 1, also if rounding leaves a rest.
        alone = ~some | (some.sum(axis=-1, keepdims=True) == 1)
        mean = shares(own)
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
            drawn = np.where(self.known[..., None], shares(self.concentration), drawn)
        return self.copied(drawn)

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
        return _copied(rows, self.like)


@dataclass(frozen=True, eq=False)
class Drawn(_Drawable):
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

    def settled(self, rows: Floats, known: Bools, like: Indices | None = None) -> "Drawn":
        """The same with stated rows: see `Posterior`."""
        mean, *draws = (_copied(np.where(known[..., None], rows, own), like) for own in (self.mean, *self.draws))
        return Drawn(mean, np.stack(draws))


def _copied(rows: Floats, like: Indices | None) -> Floats:
    return rows if like is None else np.take_along_axis(rows, like[..., None].astype(np.intp), axis=2)


def shares(concentration: Floats) -> Floats:
    """Rows normalised to 1; NaN for rows of zeros."""
    with np.errstate(invalid="ignore"):
        return np.asarray(concentration / concentration.sum(axis=-1, keepdims=True))


def _log_gammas(shape: Floats, rng: np.random.Generator) -> Floats:
    """Logarithms of gamma variables; -inf for a shape of 0."""
    some = shape > 0
    larger = rng.standard_gamma(np.where(some, shape, 1.0) + 1)
    uniform = 1 - rng.random(shape.shape)  # never 0
    with np.errstate(over="ignore"):  # a shape of 1e-310 is as good as 0
        logs = np.log(larger) + np.log(uniform) / np.where(some, shape, 1.0)
    return np.where(some, logs, -np.inf)


NODES = 3, 6
"""Least and most nodes of c, and of m_j for each."""

MOST_NODES = 300_000
"""Nodes of all entries together, unless each has the least: one or two seconds."""


@dataclass(frozen=True, eq=False)
class Pooled(_Drawable):
    """Rows shrunk towards an uncertain common row."""

    rows: Dirichlet
    """Mean of every row; and the whole posterior of rows outside `leans`."""

    leans: Bools
    """(type, state, action) rows with the posterior of the hierarchy."""

    counts: Floats
    """(type, state, action, next_state) counts of the type."""

    prior: "PooledPrior"
    """Distribution of strength and common row."""

    @property
    def mean(self) -> Floats:
        """(type, state, action, next_state) transitions of the model."""
        return self.rows.mean

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Equal-tailed credible intervals of each entry: lower and upper ends, shaped as `mean`."""
        tail = (1 - check_fraction(level, "level")) / 2
        lower, upper = replace(self.rows, like=None).interval(level)
        # A row's only possible entry is 1.
        entries = np.argwhere(self.leans[..., None] & (lower < upper))
        t, s, a, j = entries.T
        # Entries of one row with the same count and the same m have one distribution.
        row = np.ravel_multi_index((t, s, a), self.leans.shape).astype(np.float64)
        keys = np.column_stack([row, self.counts[t, s, a, j], self.prior.common[:, s, a, j].T])
        _, first, same = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        places = tuple(entries[first].T)
        own, rest, weights = self._mixtures(*places)
        ends = [
            mixture_quantile(own, rest, weights, share, bound[places])[same.ravel()]
            for share, bound in ((tail, lower), (1 - tail, upper))
        ]
        lower[t, s, a, j] = ends[0]
        upper[t, s, a, j] = np.where(self.counts[t, s, a, j] > 0, ends[1], np.maximum(ends[1], upper[t, s, a, j]))
        return np.minimum(self.rows.copied(lower), self.mean), np.maximum(self.rows.copied(upper), self.mean)

    def _mixtures(self, t: Ints, s: Ints, a: Ints, j: Ints) -> tuple[Floats, Floats, Floats]:
        """(entry, node) parameters of the Beta distributions of entries, and the (node,) weights."""
        from scipy.special import betaincinv

        across = int(np.sqrt(np.clip(MOST_NODES / max(len(s), 1), NODES[0] ** 2, NODES[1] ** 2)))
        nodes, gauss = np.polynomial.legendre.leggauss(across)
        share, prior, entry = (nodes + 1) / 2, self.prior, np.arange(len(s))[:, None]
        cumulated = np.cumsum(prior.weight[:, s, a], axis=0)  # (point, entry)
        points = (share[:, None, None] * cumulated[-1] >= cumulated).sum(axis=1).T.clip(max=len(cumulated) - 1)
        c, certainty = (array[:, s, a].T[entry, points] for array in (prior.strength, prior.certainty))
        first = prior.common[:, s, a, j].T[entry, points] * certainty
        m = betaincinv(first[..., None], np.maximum(certainty - first, 1e-300)[..., None], share)
        pull, rest = (np.reshape(c[..., None] * part, (len(s), across**2)) for part in (m, 1 - m))
        own, total = self.counts[t, s, a, j][:, None], self.counts[t, s, a].sum(axis=-1)[:, None]
        return own + pull, total - own + rest, np.outer(gauss, gauss).ravel() / 4

    def one(self, seed: int, number: int) -> Floats:
        """(type, state, action, next_state) one draw: the common row, then the rows."""
        pull = self.prior.draw(np.random.default_rng([seed, number, 1]))
        concentration = np.where(self.leans[..., None], self.counts + pull, self.rows.concentration)
        return replace(self.rows, concentration=concentration).one(seed, number)

    def settled(self, rows: Floats, known: Bools, like: Indices | None = None) -> "Pooled":
        """The same with stated rows: see `Posterior`."""
        return replace(self, rows=self.rows.settled(rows, known, like), leans=self.leans & ~known)

    def with_more(self, counts: Floats) -> "Pooled | Dirichlet":
        """The same after more moves, with the prior and the known rows unchanged.

        Args:
            counts: (type, state, action, next_state) counts, not necessarily integers.
        """
        more = self.prior.given(self.counts + counts)
        if self.rows.known is None:
            return more
        return more.settled(replace(self.rows, like=None).mean, self.rows.known, self.rows.like)


def mixture_quantile(a: Floats, b: Floats, weights: Floats, share: float, begin: Floats) -> Floats:
    """(entry,) quantile of each mixture of Beta distributions, F(x) = sum_i w_i I_x(a_i, b_i).

    Found in y = log(x / (1 - x)) by Newton steps of the logarithm of the smaller tail, which is nearly linear there,
    and by bisection if a step would leave the bracket. So a bound of 1e-200 is as exact as one of 0.3.

    Args:
        a: (entry, node) first parameters.
        b: (entry, node) second parameters.
        weights: (node,) with a sum of 1.
        share: probability, between 0 and 1.
        begin: (entry,) initial values.
    """
    from scipy.special import betainc, betaln, expit, logit

    a, b = np.maximum(a, 1e-300), np.maximum(b, 1e-300)
    scale, far = betaln(a, b), 690.0  # |y| from which on a probability is 0 or 1
    low, high = np.full(len(a), -far), np.full(len(a), far)
    y = np.clip(logit(begin), -far / 2, far / 2)
    sign, target = (1.0, share) if share < 0.5 else (-1.0, 1 - share)
    left = np.arange(len(a))
    for _ in range(200):  # bisection alone needs 60
        now, own, rest = y[left], a[left], b[left]
        # Both tails from the smaller of x and 1 - x, which keeps its digits.
        small, right = expit(-np.abs(now))[:, None], now > 0
        tail = betainc(np.where(right[:, None], rest, own), np.where(right[:, None], own, rest), small) @ weights
        below = np.where(right, 1 - tail, tail)
        slope = np.exp(-own * np.logaddexp(0, -now)[:, None] - rest * np.logaddexp(0, now)[:, None] - scale[left])
        low[left], high[left] = np.where(below < share, now, low[left]), np.where(below < share, high[left], now)
        side = below if sign > 0 else 1 - below
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            newton = now + sign * (np.log(target) - np.log(side)) * side / (slope @ weights)
        inside = (newton > low[left]) & (newton < high[left])
        y[left] = np.where(inside, newton, (low[left] + high[left]) / 2)
        # Newton's next step would be of the square of this one.
        left = left[np.abs(y[left] - now) > 1e-5 * (1 + np.abs(now))]
        if not len(left):
            break
    return np.asarray(np.where(y < 1 - far, 0.0, expit(y)))
