"""Posterior of pooled rows: the hierarchy itself, not one Dirichlet distribution per row.

With c, m and the counts n_t of one pair as in `hierarchical_dirichlet`:

    c   on its grid, by its weights         strength of pooling
    m   ~ Dirichlet(K mu), given c          common row
    p_t ~ Dirichlet(n_t + c m)              the row of each type

A draw draws all three: c and m once per pair, so that rows of several types are correlated. An interval is that of the
mixture of Beta distributions that an entry has,

    p_tj ~ Beta(n_tj + c m_j, N_t - n_tj + c (1 - m_j)),     m_j ~ Beta(K mu_j, K (1 - mu_j)) given c

by Gauss-Legendre quadrature over the quantiles of c, and for each over those of m_j. Equal entries of a row (never
observed) are computed once; there are fewer nodes if many entries differ.

With many next states, the interval of one that was never observed may end below its own mean, because m_j is skewed. It
then ends where that of the Dirichlet row with the same mean and total variance does.

Rows without records of the type, and known rows, have one Dirichlet distribution (`rows`).
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from evenhand.checks import check_fraction
from evenhand.fitting.beta_mixture import mixture_quantile
from evenhand.fitting.posterior import Dirichlet, stacked
from evenhand.typing import Bools, Floats, Indices, Ints, Rng

if TYPE_CHECKING:
    from evenhand.fitting.hierarchical_dirichlet import PooledPrior

NODES = 3, 6
"""Least and most nodes of c, and of m_j for each."""

MOST_NODES = 300_000
"""Nodes of all entries together, unless each has the least: one or two seconds."""

AT_ONCE = 4_000
"""Entries per batch."""


@dataclass(frozen=True, eq=False)
class Pooled:
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
        alike = _alike(self, entries)
        found = [part.ends(tail, lower, upper) for part in alike.parts]
        begin, end = (np.concatenate(ends)[alike.same] for ends in zip(*found, strict=True))
        places = tuple(entries.T)
        lower[places] = begin
        upper[places] = np.where(self.counts[places] > 0, end, np.maximum(end, upper[places]))
        return np.minimum(self.rows.copied(lower), self.mean), np.maximum(self.rows.copied(upper), self.mean)

    def one(self, seed: int, number: int) -> Floats:
        """(type, state, action, next_state) one draw: the common row, then the rows."""
        pull = self.prior.draw(np.random.default_rng([seed, number, 1]))
        concentration = np.where(self.leans[..., None], self.counts + pull, self.rows.concentration)
        return replace(self.rows, concentration=concentration).one(seed, number)

    def draw(self, num_draws: int, rng: Rng = 0) -> Floats:
        """(draw, type, state, action, next_state) transitions; the first draws do not depend on their number."""
        return stacked(self, num_draws, rng)

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


@dataclass(frozen=True, eq=False)
class _Part:
    """Entries with their mixtures of Beta distributions."""

    entries: Ints
    """(entry, 4) their indices."""

    first: Floats
    """(entry, node) the first parameters."""

    second: Floats
    """(entry, node) the second parameters."""

    weights: Floats
    """(node,) of the mixture."""

    def ends(self, tail: float, lower: Floats, upper: Floats) -> tuple[Floats, Floats]:
        """(entry,) lower and upper ends of intervals.

        Args:
            tail: probability of each tail.
            lower: (type, state, action, next_state) lower ends of Dirichlet rows with the same moments, to start from.
            upper: their upper ends.
        """
        places = tuple(self.entries.T)
        return (
            mixture_quantile(self.first, self.second, self.weights, tail, lower[places]),
            mixture_quantile(self.first, self.second, self.weights, 1 - tail, upper[places]),
        )


@dataclass(frozen=True, eq=False)
class _Alike:
    """Entries with the same distribution, once each."""

    parts: tuple[_Part, ...]
    """Batches."""

    same: Ints
    """(entry,) index of its distinct entry."""


def _alike(pooled: Pooled, entries: Ints) -> _Alike:
    """Group entries of one row with the same count and the same m."""
    t, s, a, j = entries.T
    row = np.ravel_multi_index((t, s, a), pooled.leans.shape).astype(np.float64)
    keys = np.column_stack([row, pooled.counts[t, s, a, j], pooled.prior.common[:, s, a, j].T])
    _, first, same = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    places, number = entries[first], max(len(first), 1)
    across = int(np.sqrt(np.clip(MOST_NODES / number, NODES[0] ** 2, NODES[1] ** 2)))
    parts = [_part(pooled, places[i : i + AT_ONCE], across) for i in range(0, number, AT_ONCE)]
    return _Alike(tuple(parts), same.ravel())


def _part(pooled: Pooled, entries: Ints, across: int) -> _Part:
    """Mixtures at `across` nodes of c, and as many of m_j for each."""
    from scipy.special import betaincinv

    t, s, a, j = entries.T
    share, weights = _gauss(across)
    pooled_prior, entry = pooled.prior, np.arange(len(s))[:, None]
    cumulated = np.cumsum(pooled_prior.weight[:, s, a], axis=0)  # (point, entry)
    points = (share[:, None, None] * cumulated[-1] >= cumulated).sum(axis=1).T.clip(max=len(cumulated) - 1)
    c, certainty = (array[:, s, a].T[entry, points] for array in (pooled_prior.strength, pooled_prior.certainty))
    first = pooled_prior.common[:, s, a, j].T[entry, points] * certainty
    m = betaincinv(first[..., None], np.maximum(certainty - first, 1e-300)[..., None], share)
    pull, rest = (np.reshape(c[..., None] * part, (len(s), across**2)) for part in (m, 1 - m))
    own, total = pooled.counts[t, s, a, j][:, None], pooled.counts[t, s, a].sum(axis=-1)[:, None]
    return _Part(entries, own + pull, total - own + rest, np.outer(weights, weights).ravel())


def _gauss(number: int) -> tuple[Floats, Floats]:
    """Nodes and weights of a quadrature on [0, 1]."""
    places, weights = np.polynomial.legendre.leggauss(number)
    return (places + 1) / 2, weights / 2
