"""Hierarchical Dirichlet prior: shrinks a type's sparse row towards the same row of the other types.

For one pair (state, action), n_t are the counts of type t over the J next states that are possible, N_t their sum:

    m   ~ Dirichlet(1/J, ..., 1/J)          common row; one observation, spread evenly
    p_t ~ Dirichlet(c m)                    row of type t; c is the strength of pooling
    n_t ~ Multinomial(N_t, p_t)             observed moves

Given c and m the row is Dirichlet(n_t + c m): the others count as c observations. The strength c is unknown as well.
Its prior is uniform on the share c / (c + k) that others have in a row of k observations, k = ALIKE (a uniform
shrinkage prior: Daniels 1999), on a grid of log c. It has neither edge: as c falls to 0 types are on their own, and as
it rises without bound they are one.

Given c, m is found by variational Bayes (the scheme of hierarchical Dirichlet processes: Teh, Kurihara and Welling
2008): q(m) = Dirichlet(b), with b repeated until it stands still

    g_j = exp(psi(b_j) - psi(K)),   K = sum_j b_j
    b_j = 1/J + sum_t c g_j (psi(n_tj + c g_j) - psi(c g_j))

whose sums are expected numbers of tables in a Chinese restaurant: one for each type as c falls to 0, all n_tj as it
rises. The bound on the marginal likelihood of the counts that goes with it weighs the grid:

    log p(n | c) >= sum_t [lnG(c) - lnG(c + N_t)] + sum_tj [lnG(n_tj + c g_j) - lnG(c g_j)] - sum_j (b_j - 1/J) ln g_j
                    + sum_j lnG(b_j) - lnG(K) - J lnG(1/J)

The mean of p_t follows in closed form, over m and over c; its intervals and draws are in `posterior`:

    mu = (n_t + c b/K) / (N_t + c)

So is its total variance, w = c / (N_t + c):

    v  = [1 - |mu|^2 - w^2 v_m] / (N_t + c + 1) + w^2 v_m,    v_m = (1 - |b/K|^2) / (K + 1)

which a Dirichlet row can match; no pooled row is more certain than the common row.

A row without records of the type is that of the other types: the mean of their tables, in which the observation that is
spread evenly counts as one among all observations. (In E[m] it counts as one among the tables, of which two types have
about two if c is small: a third of such a row would be uniform, without a single such move.) Its
total is that of the Dirichlet above times (1 - |mu|^2) / (1 - |its mean|^2), where that is more than 1: what was taken
from the even part is known to be small, and the rest is as uncertain as before.

With one type m is uniform, 1/J, and c is 1 (Perks 1947). `prior` fixes c for every pair; 0 gives the
counts themselves, whose mean is maximum likelihood, and under which unobserved transitions are impossible. A pair
that is unobserved in every type has no row: it is NaN until it is stated.
"""

from dataclasses import dataclass

import numpy as np

from evenhand.checks import is_number, plain
from evenhand.errors import InvalidInputError
from evenhand.fitting.posterior import Dirichlet, Pooled
from evenhand.typing import Bools, Floats

ALIKE = 3.0
"""Prior median of c: own observations that weigh as much as the other types."""

GRID = np.arange(-3.0, 7.01, 0.5)
"""Logarithms of c / ALIKE."""

REPEATS = 20
"""Iterations of b at each point of the grid, from the point before."""

STRONGEST = 1e9
"""Largest valid strength."""


@dataclass(frozen=True, eq=False)
class PooledPrior:
    """Distribution of (c, m) of each pair, on a grid of c."""

    strength: Floats
    """(point, state, action) c."""

    weight: Floats
    """(point, state, action) its probability."""

    common: Floats
    """(point, state, action, next_state) the mean of m."""

    certainty: Floats
    """(point, state, action) K, the number of observations behind m; infinite if m is given."""

    even: Floats | None = None
    """(state, action, next_state) the prior observation of m, spread evenly; None if m is given."""

    def given(self, counts: Floats) -> Dirichlet | Pooled:
        """Posterior of the rows given counts: `Dirichlet` if m is given.

        Args:
            counts: (type, state, action, next_state) moves, not necessarily integers.
        """
        rows = self.matched(counts)
        if self.even is None:
            return rows
        own = counts.sum(axis=-1)
        return Pooled(rows, self._seen(counts) & (own > 0), np.array(counts, dtype=np.float64), self)

    def matched(self, counts: Floats) -> Dirichlet:
        """Dirichlet rows with the mean and the total variance of the posterior given counts.

        Args:
            counts: (type, state, action, next_state) moves, not necessarily integers.
        """
        if not self.strength.any():
            return Dirichlet(np.array(counts, dtype=np.float64))
        own = counts.sum(axis=-1)
        mean, square = np.zeros_like(counts), np.zeros_like(own)
        # Moments are averaged over the grid: means, and means of squares.
        for c, weight, common, certainty in zip(self.strength, self.weight, self.common, self.certainty, strict=True):
            # Without counts and strength a row is undefined; the 1 avoids a division by 0.
            total = np.where(own + c > 0, own + c, 1.0)
            mu = (counts + c[..., None] * common) / total[..., None]
            squares = (mu**2).sum(axis=-1)
            doubt = (c / total) ** 2 * (1 - (common**2).sum(axis=-1)) / (certainty + 1)  # w^2 v_m of the head
            mean += weight[..., None] * mu
            square += weight * ((1 - squares - doubt) / (own + c + 1) + doubt + squares)
        # The total of a Dirichlet of these moments; the count plus 1 for a deterministic row.
        room, spread = 1 - (mean**2).sum(axis=-1), square - (mean**2).sum(axis=-1)
        some = spread > 1e-14
        total = np.divide(room, spread, out=np.ones_like(spread), where=some) - 1
        total = np.where(some, np.maximum(total, 1e-9), own + 1)  # nonnegative by Jensen, up to rounding
        if (own == 0).any():
            mean = np.where((own == 0)[..., None], self.others(counts), mean)
            total *= np.maximum(room / np.maximum(1 - (mean**2).sum(axis=-1), 1e-14), 1.0)
        return Dirichlet(np.where(self._seen(counts)[..., None], mean * total[..., None], 0.0))

    def others(self, counts: Floats) -> Floats:
        """(state, action, next_state) m of the observed types, with one observation spread evenly.

        Args:
            counts: (type, state, action, next_state) moves, not necessarily integers.
        """
        if self.even is None:
            return np.asarray((self.weight[..., None] * self.common).sum(axis=0))
        seen = counts.sum(axis=(0, -1))[..., None]
        # b less the even observation: expected tables, by next state.
        tables = self.common * self.certainty[..., None] - self.even
        sums = tables.sum(axis=-1, keepdims=True)
        shares = np.where(sums > 0, tables / np.where(sums > 0, sums, 1.0), self.even)
        mean = (self.weight[..., None] * np.maximum(shares, 0.0)).sum(axis=0)
        return np.asarray((seen * mean + self.even) / (seen + 1))

    def draw(self, rng: np.random.Generator) -> Floats:
        """(state, action, next_state) pseudo-counts c m of one draw of c and m.

        Args:
            rng: source of randomness.
        """
        total = np.cumsum(self.weight, axis=0)
        # Inversion on the running weights, pair by pair; the last point where rounding leaves the draw beyond.
        points = (rng.random(total.shape[1:]) * total[-1] >= total).sum(axis=0).clip(max=len(total) - 1)[None]
        c, certainty = (np.take_along_axis(part, points, axis=0)[0] for part in (self.strength, self.certainty))
        common = np.take_along_axis(self.common, points[..., None], axis=0)[0]
        # If m is given there is nothing to draw.
        sure = np.isinf(certainty)
        drawn = Dirichlet(common[None] * np.where(sure, 1.0, certainty)[None, ..., None], known=sure[None])
        return np.asarray(c[..., None] * np.nan_to_num(drawn.one(int(rng.integers(2**63)), 0)[0]))

    def _seen(self, counts: Floats) -> Bools:
        """(type, state, action) rows with counts of their own, or pooled with others'."""
        seen = counts.sum(axis=-1) > 0
        return np.asarray(seen | (seen.any(axis=0) & (self.strength > 0).any(axis=0)))


def estimate_prior(counts: Floats, possible: Bools | None = None, prior: float | None = None) -> PooledPrior:
    """Estimate the prior from the counts of all types.

    Args:
        counts: (type, state, action, next_state) moves, not necessarily integers.
        possible: (state, action, next_state) possible transitions; all by default.
        prior: the strength c; integrated out by default.
    """
    where = np.ones(counts.shape[1:], dtype=bool) if possible is None else possible
    even = where / np.maximum(where.sum(axis=-1, keepdims=True), 1)
    if (strength := checked_prior(prior)) == 0 or len(counts) == 1:
        # One type: a given uniform row; c is 1 by default.
        pairs = (1, *even.shape[:-1])
        given = np.full(pairs, 1.0 if strength is None else strength)
        return PooledPrior(given, np.ones(pairs), even[None], np.full(pairs, np.inf))
    b = even + counts.sum(axis=0)
    # From the strongest down: each point begins with the b of the one before, which is near.
    strengths = ALIKE * np.exp(GRID[::-1]) if strength is None else np.array([strength])
    repeats, points, scores = REPEATS if strength is None else 10 * REPEATS, [], []
    for c in strengths.tolist():
        b, score = variational_row(counts, even, c, b, repeats)
        points.append(b)
        scores.append(score + np.log(c) - 2 * np.log(c + ALIKE))  # uniform in c / (c + ALIKE), by log c
    pooled, weight = np.stack(points), np.exp(np.stack(scores) - np.max(scores, axis=0))
    certainty = pooled.sum(axis=-1)
    common = pooled / np.where(certainty > 0, certainty, 1.0)[..., None]
    strengths = np.broadcast_to(strengths[:, None, None], certainty.shape)
    return PooledPrior(strengths, weight / weight.sum(axis=0), common, certainty, even)


def checked_prior(prior: object) -> float | None:
    """Validate a strength; None to integrate it out.

    Args:
        prior: the argument.
    """
    if prior is None:
        return None
    if not is_number(prior) or not 0 <= float(prior) <= STRONGEST:  # type: ignore[arg-type]
        given = plain(prior) if is_number(prior) else repr(prior)
        raise InvalidInputError(f"prior: expected a number of observations from 0 to {plain(STRONGEST)}, got {given}")
    return float(prior)  # type: ignore[arg-type]


def variational_row(counts: Floats, even: Floats, c: float, b: Floats, repeats: int) -> tuple[Floats, Floats]:
    """(state, action, next_state) b, and the (state, action) bound on the marginal likelihood.

    A fixed number of repeats, so that the order of the types changes nothing but last bits.

    Args:
        counts: (type, state, action, next_state) moves.
        even: (state, action, next_state) the prior observation of m.
        c: strength.
        b: (state, action, next_state) initial b.
        repeats: number of iterations.
    """
    from scipy.special import digamma, gammaln

    # Sums run over counts above 0.
    places = np.nonzero(counts)
    values, flat = counts[places].astype(np.float64), np.ravel_multi_index(places[1:], even.shape)

    def summed(terms: Floats) -> Floats:
        return np.asarray(np.bincount(flat, terms, even.size).reshape(even.shape), dtype=np.float64)

    for _ in range(repeats):
        # ln g_j; -inf for impossible transitions.
        logs = np.where(even > 0, digamma(np.where(b > 0, b, 1.0)), -np.inf)
        logs -= digamma(np.maximum(b.sum(axis=-1, keepdims=True), 1e-9))
        a = (c * np.exp(logs)).ravel()[flat]
        tables = summed(a * (digamma(values + a) - digamma(a)))
        b = even + tables
    score = summed(gammaln(values + a) - gammaln(a)).sum(axis=-1)
    score += (gammaln(c) - gammaln(c + counts.sum(axis=-1))).sum(axis=0)
    score -= np.where(tables > 0, tables * np.where(tables > 0, logs, 0.0), 0.0).sum(axis=-1)
    score += gammaln(np.where(b > 0, b, 1.0)).sum(axis=-1) - gammaln(np.maximum(b.sum(axis=-1), 1e-9))
    return b, np.asarray(score)
