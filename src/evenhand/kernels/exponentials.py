"""Exponentials of generators for many durations at once, and their derivatives.

A generator Q has rates q[i, j] >= 0 off its diagonal and rows that sum to 0; P(t) = exp(Qt) is the law after a time t.
Of a function f of many P(t_e), with W_e = df/dP(t_e), the derivative by the entries of Q, taken as free, is

    df/dQ = sum over e of  the integral over u from 0 to t_e of  P(u)' W_e P(t_e - u)'

which is what statistics of paths are made of: with W_e[s, s'] = 1 / P(t_e)[s, s'] it is the expected time in i on its
diagonal, and the expected jumps from i to j over q[i, j] elsewhere, given both ends (Hobolth and Jensen 2011).

Two roads.

Eigenvalues. With Q = V diag(l) V^-1,

    P(t) = V exp(lt) V^-1        df/dQ = (V [sum over e of (V^-1 W_e' V) o F(t_e)] V^-1)'
    F(t)[k, m] = (exp(l_k t) - exp(l_m t)) / (l_k - l_m)

where the difference quotient becomes t exp((l_k + l_m) t / 2) (1 + x^2 / 24), x = (l_k - l_m) t, as the two meet.

Sums of what is positive. Where V is badly conditioned (a chain of like rates has only one eigenvector for all its
eigenvalues), with m the largest rate of leaving and B = (Q + mI) t / 2^k >= 0,

    P(t) = (exp(-mt / 2^k) sum over n of B^n / n!)^(2^k)

Nothing is ever subtracted, so rounding leaves small probabilities as exact as large ones; the end of the series must
too. A walk of n jumps is a path of l jumps that meets no state twice, with loops of n - l jumps at its l + 1 states. If
B has row sums of 1/2 at most, paths of weight p make walks of n jumps that weigh (n over l) (1/2)^(n - l) p at most, so
of p / l!, which the path adds by itself, the terms n > D are no more than the share

    sum over n > D of  (l! / n!) (n over l) (1/2)^(n - l)  =  sum over i > D - l of  (1/2)^i / i!

and l < S. With D = S - 1 + BEYOND every entry has all its digits. The derivative goes the same way back.
"""

from functools import cached_property

import numpy as np

from evenhand.typing import Array, Bools, Floats, Indices

CONDITION = 1e5
"""Eigenvectors worse than this are not used: digits lost."""

NEAR = 1e-3
"""Eigenvalues whose difference times the duration is below this take the series."""

BEYOND = 14
"""Terms of the power series beyond the longest path: (1/2)^15 / 15! is below the last digit, 1e-16."""

CHUNK = 1 << 23
"""Numbers in all partial sums of the second road at once."""


# -- laws, and the derivative of what is made of them -----------------------------------------------------------------


class Exponentials:
    """P(t) of several generators at several durations each."""

    def __init__(self, generators: Floats, which: Indices, times: Floats, *, positive: bool = False) -> None:
        """Decompose what can be decomposed.

        Args:
            generators: (generator, state, next_state) rows that sum to 0.
            which: (duration,) the generator of each; never falls.
            times: (duration,) how long, from 0.
            positive: take the second road for all.
        """
        self.generators, self.which, self.times = generators, which, times
        self.sound: Bools = np.zeros(len(generators), bool)
        if not positive:
            self._decompose()

    def _decompose(self) -> None:
        self.eigenvalues, self.vectors = np.linalg.eig(self.generators)
        try:
            self.inverses = np.linalg.inv(self.vectors)
        except np.linalg.LinAlgError:  # one of them is exactly singular
            self.inverses = np.full_like(self.vectors, np.inf)
            return
        # The condition number in Frobenius norm; where it is large, the eigenvectors have lost too many digits.
        with np.errstate(over="ignore"):  # an infinite one is large
            sizes = np.linalg.norm(self.vectors, axis=(1, 2)) * np.linalg.norm(self.inverses, axis=(1, 2))
        self.sound = sizes < CONDITION

    @cached_property
    def values(self) -> Floats:
        """(duration, state, next_state) the laws."""
        values = np.empty((len(self.times), *self.generators.shape[1:]))
        # Road by road: eigenvalues where they are sound, sums for the rest.
        by_vectors = self.sound[self.which]
        if by_vectors.any():
            which = self.which[by_vectors]
            growth = np.exp(self.eigenvalues[which] * self.times[by_vectors, None])
            values[by_vectors] = ((self.vectors[which] * growth[:, None, :]) @ self.inverses[which]).real
        for rows in self._chunks(~by_vectors):
            values[rows] = _squared(*self._scaled(rows))[-1]
        # Eigenvectors may leave a rounding error below 0.
        return np.maximum(values, 0.0)

    def adjoint(self, weights: Floats) -> Floats:
        """(generator, state, next_state) the derivative by the entries of Q, taken as free.

        Args:
            weights: (duration, state, next_state) the derivative by the laws.
        """
        slopes = np.zeros_like(self.generators)
        self._add_by_vectors(weights, slopes)
        for rows in self._chunks(~self.sound[self.which]):
            scaled, damping, squarings = self._scaled(rows)
            back = _pulled_back(scaled, damping, squarings, weights[rows])
            np.add.at(slopes, self.which[rows], back * (self.times[rows] / 2**squarings)[:, None, None])
        return slopes

    def _add_by_vectors(self, weights: Floats, slopes: Floats) -> None:
        rows = np.flatnonzero(self.sound[self.which])
        if not len(rows):
            return
        # Generator by generator: `which` never falls, so those of one stand together and are summed.
        which, times = self.which[rows], self.times[rows]
        seen = self.inverses[which] @ weights[rows].swapaxes(1, 2) @ self.vectors[which]
        starts = np.flatnonzero(np.diff(which, prepend=-1))
        inner = np.add.reduceat(seen * _quotients(self.eigenvalues[which], times), starts, axis=0)
        ones = which[starts]
        slopes[ones] += (self.vectors[ones] @ inner @ self.inverses[ones]).real.swapaxes(1, 2)

    def _chunks(self, chosen: Bools) -> list[Array]:
        rows = np.flatnonzero(chosen)
        num_states = self.generators.shape[1]
        size = max(1, CHUNK // (num_states**2 * (_degree(num_states) + 1)))
        return [rows[start : start + size] for start in range(0, len(rows), size)]

    def _scaled(self, rows: Array) -> tuple[Floats, Floats, int]:
        """B, its damping exp(-mt / 2^k), and k, the same for a chunk."""
        generators, times = self.generators[self.which[rows]], self.times[rows]
        leaving = -np.diagonal(generators, axis1=1, axis2=2).min(axis=1)
        # So many halvings of time that B has row sums of 1/2 at most.
        squarings = max(0, int(np.ceil(np.log2(max(2.0 * (leaving * times).max(), 1.0)))))
        times = times / 2**squarings
        scaled = (generators + leaving[:, None, None] * np.eye(generators.shape[1])) * times[:, None, None]
        return scaled, np.exp(-leaving * times), squarings


# -- the first road ---------------------------------------------------------------------------------------------------


def _quotients(eigenvalues: Array, times: Floats) -> Array:
    """(duration, k, m) the difference quotients F of the exponentials."""
    grown = np.exp(eigenvalues * times[:, None])
    apart = eigenvalues[:, :, None] - eigenvalues[:, None, :]
    # Symmetric in k and m, about the middle of the two: the error of the series is of fourth order in x.
    middle = np.exp((eigenvalues[:, :, None] + eigenvalues[:, None, :]) * (times / 2)[:, None, None])
    scaled = apart * times[:, None, None]
    near = np.abs(scaled) < NEAR
    series = times[:, None, None] * middle * (1 + scaled**2 / 24)
    return np.where(near, series, (grown[:, :, None] - grown[:, None, :]) / np.where(near, 1.0, apart))


# -- the second road --------------------------------------------------------------------------------------------------


def _degree(num_states: int) -> int:
    """D, the last term of the power series."""
    return num_states - 1 + BEYOND


def _series(scaled: Floats) -> list[Floats]:
    """Horner's partial sums of the power series, the whole one last."""
    unit = np.broadcast_to(np.eye(scaled.shape[1]), scaled.shape)
    sums = [unit]
    for term in range(_degree(scaled.shape[1]), 0, -1):
        sums.append(unit + scaled @ sums[-1] / term)
    return sums


def _squared(scaled: Floats, damping: Floats, squarings: int) -> list[Floats]:
    """The law of a small time, of twice that, and so on."""
    laws = [_series(scaled)[-1] * damping[:, None, None]]
    for _ in range(squarings):
        laws.append(laws[-1] @ laws[-1])
    return laws


def _pulled_back(scaled: Floats, damping: Floats, squarings: int, weights: Floats) -> Floats:
    """The derivative by B of what has the derivative `weights` by the law."""
    # Back through the squarings: the derivative of L L by L.
    for law in reversed(_squared(scaled, damping, squarings)[:-1]):
        weights = weights @ law.swapaxes(1, 2) + law.swapaxes(1, 2) @ weights
    weights = weights * damping[:, None, None]
    back = np.zeros_like(scaled)
    # Back through Horner's scheme: each product B S hands W S' to B, and B' W to S.
    sums = _series(scaled)
    for term in range(1, len(sums)):
        weights = weights / term
        back += weights @ sums[-1 - term].swapaxes(1, 2)
        weights = scaled.swapaxes(1, 2) @ weights
    return back
