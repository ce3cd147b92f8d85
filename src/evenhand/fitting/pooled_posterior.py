"""What is known of pooled rows: the hierarchy itself, and not one Dirichlet distribution a row.

With c, m and the counts n_t of one pair as in `pooling`:

    c   on its grid, by its weights         how much the types are alike
    m   ~ Dirichlet(K mu), given c          what they have in common
    p_t ~ Dirichlet(n_t + c m)              the row of each type

A draw draws all three: c and m once for a pair, so that rows that lean on the same thing move together. An interval is
of the blend of Beta distributions that an entry then has,

    p_tj ~ Beta(n_tj + c m_j, N_t - n_tj + c (1 - m_j)),     m_j ~ Beta(K mu_j, K (1 - mu_j)) given c

by quadrature (Gauss and Legendre) over the quantiles of c, and for each over those of m_j. Many entries of large models
are alike (never seen, in one row), and are computed once; where many are not, there are fewer nodes.

Where next states are many, one that was never seen may end below its own mean: m_j is mostly next to nothing and seldom
more. Its interval then ends where that of the Dirichlet row with the same mean and total variance does.

Rows of which a type has seen nothing are told by one Dirichlet distribution (`rows`), and so are those that are given.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from evenhand.checks import check_fraction
from evenhand.fitting.beta_mixture import blend_quantile
from evenhand.fitting.posterior import Dirichlet, stacked
from evenhand.typing import Bools, Floats, Indices, Ints, Rng

if TYPE_CHECKING:
    from evenhand.fitting.hierarchical_dirichlet import PooledPrior

NODES = 3, 6
"""The fewest and the most values of c, and of m_j for each, at which an entry's distribution is taken."""

MOST_NODES = 300_000
"""Of all entries together, if each has more than the fewest: one or two seconds."""

AT_ONCE = 4_000
"""Entries of which intervals are found together."""


@dataclass(frozen=True, eq=False)
class Pooled:
    """Rows that lean on what the types have in common, which is not known either."""

    rows: Dirichlet
    """The mean of every row; and all that is known of those that are not `leans`."""

    leans: Bools
    """(type, state, action) rows of which the hierarchy is asked."""

    counts: Floats
    """(type, state, action, next_state) moves of their own."""

    leaning: "PooledPrior"
    """What they lean on."""

    @property
    def mean(self) -> Floats:
        """(type, state, action, next_state) the transitions a model is made of."""
        return self.rows.mean

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Two arrays as `mean`: where each entry lies with this probability, equal tails left out."""
        tail = (1 - check_fraction(level, "level")) / 2
        lower, upper = replace(self.rows, like=None).interval(level)
        # A row's only possible entry is 1, whatever is leaned on.
        entries = np.argwhere(self.leans[..., None] & (lower < upper))
        alike = _alike(self, entries)
        found = [part.ends(tail, lower, upper) for part in alike.parts]
        begin, end = (np.concatenate(told)[alike.same] for told in zip(*found, strict=True))
        places = tuple(entries.T)
        lower[places] = begin
        upper[places] = np.where(self.counts[places] > 0, end, np.maximum(end, upper[places]))
        return np.minimum(self.rows.copied(lower), self.mean), np.maximum(self.rows.copied(upper), self.mean)

    def one(self, seed: int, number: int) -> Floats:
        """(type, state, action, next_state) one draw: what is leaned on, then the rows."""
        pull = self.leaning.draw(np.random.default_rng([seed, number, 1]))
        concentration = np.where(self.leans[..., None], self.counts + pull, self.rows.concentration)
        return replace(self.rows, concentration=concentration).one(seed, number)

    def draw(self, num_draws: int, rng: Rng = 0) -> Floats:
        """(draw, type, state, action, next_state) transitions; the first are the same however many are asked for."""
        return stacked(self, num_draws, rng)

    def settled(self, rows: Floats, known: Bools, like: Indices | None = None) -> "Pooled":
        """The same, with some rows as they are told: see `Posterior`."""
        return replace(self, rows=self.rows.settled(rows, known, like), leans=self.leans & ~known)

    def with_more(self, counts: Floats) -> "Pooled | Dirichlet":
        """The same after more moves, which change nothing of what is leaned on, and nothing of rows that are certain.

        Args:
            counts: (type, state, action, next_state) how many, not necessarily whole.
        """
        more = self.leaning.given(self.counts + counts)
        if self.rows.known is None:
            return more
        return more.settled(replace(self.rows, like=None).mean, self.rows.known, self.rows.like)


@dataclass(frozen=True, eq=False)
class _Part:
    """Some entries, each a blend of Beta distributions."""

    entries: Ints
    """(entry, 4) their places."""

    first: Floats
    """(entry, node) the first parameters."""

    second: Floats
    """(entry, node) the second parameters."""

    weights: Floats
    """(node,) of the blend."""

    def ends(self, tail: float, lower: Floats, upper: Floats) -> tuple[Floats, Floats]:
        """(entry,) where intervals begin and end.

        Args:
            tail: left out on either side.
            lower: (type, state, action, next_state) where those of rows with the same moments begin, which is near.
            upper: the same, where they end.
        """
        places = tuple(self.entries.T)
        return (
            blend_quantile(self.first, self.second, self.weights, tail, lower[places]),
            blend_quantile(self.first, self.second, self.weights, 1 - tail, upper[places]),
        )


@dataclass(frozen=True, eq=False)
class _Alike:
    """Entries with the same distribution, once each."""

    parts: tuple[_Part, ...]
    """As many at once as there is room for."""

    same: Ints
    """(entry,) which of these each of all entries is like."""


def _alike(pooled: Pooled, entries: Ints) -> _Alike:
    """Entries of one row are alike that were seen as often, and that m is as likely to have."""
    t, s, a, j = entries.T
    row = np.ravel_multi_index((t, s, a), pooled.leans.shape).astype(np.float64)
    keys = np.column_stack([row, pooled.counts[t, s, a, j], pooled.leaning.common[:, s, a, j].T])
    _, first, same = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    places, number = entries[first], max(len(first), 1)
    across = int(np.sqrt(np.clip(MOST_NODES / number, NODES[0] ** 2, NODES[1] ** 2)))
    parts = [_part(pooled, places[i : i + AT_ONCE], across) for i in range(0, number, AT_ONCE)]
    return _Alike(tuple(parts), same.ravel())


def _part(pooled: Pooled, entries: Ints, across: int) -> _Part:
    """Entries at the nodes of so many values of c, and as many of m_j for each."""
    from scipy.special import betaincinv

    t, s, a, j = entries.T
    share, weights = _gauss(across)
    leaning, entry = pooled.leaning, np.arange(len(s))[:, None]
    cumulated = np.cumsum(leaning.weight[:, s, a], axis=0)  # (point, entry)
    points = (share[:, None, None] * cumulated[-1] >= cumulated).sum(axis=1).T.clip(max=len(cumulated) - 1)
    c, certainty = (array[:, s, a].T[entry, points] for array in (leaning.strength, leaning.certainty))
    first = leaning.common[:, s, a, j].T[entry, points] * certainty
    m = betaincinv(first[..., None], np.maximum(certainty - first, 1e-300)[..., None], share)
    pull, rest = (np.reshape(c[..., None] * part, (len(s), across**2)) for part in (m, 1 - m))
    own, total = pooled.counts[t, s, a, j][:, None], pooled.counts[t, s, a].sum(axis=-1)[:, None]
    return _Part(entries, own + pull, total - own + rest, np.outer(weights, weights).ravel())


def _gauss(number: int) -> tuple[Floats, Floats]:
    """Places and weights of a quadrature between 0 and 1."""
    places, weights = np.polynomial.legendre.leggauss(number)
    return (places + 1) / 2, weights / 2
