"""Exponentials of generators for many durations at once, and their derivatives, by uniformisation.

A generator Q has rates q[i, j] >= 0 off its diagonal; P(t) = exp(Qt) is the distribution after a time t. With m the
largest rate of leaving a state and U = I + Q / m >= 0,

    P(t) = sum over n of  exp(-mt) (mt)^n / n!  U^n            if mt <= LONGEST, else  P(t) = P(t / 2^k)^(2^k)

The powers of U are shared by all durations of a generator. Nothing is subtracted, so small probabilities are as exact
as large ones, provided that the series ends late enough. A walk of n jumps is a path of l jumps that visits no state
twice, with n - l further jumps. Paths of weight p make walks of n jumps that weigh (n over l) p at most, so of
p (mt)^l / l!, which the path adds by itself, the terms n > D are no more than the share

    sum over n > D of  (l! / n!) (n over l) (mt)^(n - l)  =  sum over i > D - l of  (mt)^i / i!

and l is less than the number of states S. With D = S - 1 + BEYOND every entry has all its digits.

Of a function f of many P(t_e), with W_e = df/dP(t_e), the derivative by the entries of Q, taken as free, is

    df/dQ = sum over e of  the integral over u from 0 to t_e of  P(u)' W_e P(t_e - u)'

which yields the expected statistics of paths: with W_e[s, s'] = 1 / P(t_e)[s, s'] it is the expected time in i on its
diagonal, and the expected jumps from i to j over q[i, j] elsewhere, given both ends (Hobolth and Jensen 2011). It is
computed in reverse mode through the squarings and the series, with m constant.
"""

from functools import cached_property
from itertools import pairwise

import numpy as np

from evenhand.typing import Floats, Indices

LONGEST, BEYOND = 4.0, 32
"""Expected jumps up to which the series is summed, and its terms beyond the longest path: 4^33 / 33! is below 1e-16."""


class Exponentials:
    """P(t) of several generators at several durations each."""

    def __init__(self, generators: Floats, which: Indices, times: Floats) -> None:
        """Compute the powers of U and the weights of the series.

        Args:
            generators: (generator, state, next_state) with rows that sum to 0, or to less.
            which: (duration,) the generator of each; never falls.
            times: (duration,) lengths, from 0.
        """
        num_states, unit = generators.shape[1], np.eye(generators.shape[1])
        rates = -np.diagonal(generators, axis1=1, axis2=2).min(axis=1, initial=0.0)
        self.rates: Floats = np.where(rates > 0, rates, 1.0)
        jumps = self.rates[which] * times
        self.halvings = np.ceil(np.log2(np.maximum(jumps / LONGEST, 1.0))).astype(np.int64)
        degree = num_states - 1 + BEYOND
        powers = np.empty((degree + 1, *generators.shape))
        powers[0], step = unit, unit + generators / self.rates[:, None, None]
        for n in range(degree):
            powers[n + 1] = powers[n] @ step
        self.powers: Floats = powers
        jumps = jumps / 2.0**self.halvings
        terms = np.column_stack([np.exp(-jumps), jumps[:, None] / np.arange(1, degree + 1)])
        self.weights: Floats = np.cumprod(terms, axis=1)
        starts = np.searchsorted(which, np.arange(len(generators) + 1))
        self._own = [slice(start, end) for start, end in pairwise(starts)]

    @cached_property
    def _stages(self) -> list[Floats]:
        """(duration, state, next_state) distributions before each squaring, and the final ones."""
        laws = np.empty((len(self.weights), *self.powers.shape[2:]))
        for generator, own in enumerate(self._own):
            laws[own] = np.tensordot(self.weights[own], self.powers[:, generator], 1)
        stages = [laws]
        for turn in range(self.halvings.max(initial=0)):
            laws, longer = laws.copy(), self.halvings > turn
            laws[longer] = laws[longer] @ laws[longer]
            stages.append(laws)
        return stages

    @property
    def values(self) -> Floats:
        """(duration, state, next_state) distributions P(t)."""
        return self._stages[-1]

    def adjoint(self, weights: Floats) -> Floats:
        """(generator, state, next_state) derivative by the entries of Q, taken as free.

        Args:
            weights: (duration, state, next_state) derivative by P(t).
        """
        weights = weights.copy()
        for turn in range(len(self._stages) - 2, -1, -1):
            longer = self.halvings > turn
            law = self._stages[turn][longer].swapaxes(1, 2)
            weights[longer] = weights[longer] @ law + law @ weights[longer]
        by_power = np.zeros_like(self.powers)
        for generator, own in enumerate(self._own):
            by_power[:, generator] = np.tensordot(self.weights[own].T, weights[own], 1)
        # U^n = U U^(n-1): its derivative is passed on to U, and to the power before it.
        slopes, step = np.zeros_like(self.powers[0]), self.powers[1].swapaxes(1, 2)
        for n in range(len(by_power) - 1, 0, -1):
            slopes += by_power[n] @ self.powers[n - 1].swapaxes(1, 2)
            by_power[n - 1] += step @ by_power[n]
        return np.asarray(slopes / self.rates[:, None, None])
