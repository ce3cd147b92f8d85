"""What is known of transition rows after the records: a distribution over them.

Three forms. `Dirichlet` rows, where every step was seen and rows lean on nobody:

    p[t, s, a, :] ~ Dirichlet(c[t, s, a, :])                    independent over (t, s, a)
    p[t, s, a, j] ~ Beta(c_j, C - c_j),   C = sum_j c_j         each entry, from which intervals are read

with c = `concentration`, and c_j = 0 for a transition that cannot be. A row without any c is one that nothing is known
of: its mean, its intervals and its draws are not numbers (NaN) until it is settled. A draw is made of gamma variables,
p_j = g_j / sum g with g_j ~ Gamma(c_j), in logarithms, so that concentrations near 0 do no harm:

    log g_j = log Gamma(c_j + 1) + log(U) / c_j,   U uniform

`Pooled` rows (in `pooled`), where they lean on other types. And `Drawn`: a sample from the posterior, where steps were
missed or times are irregular and the rows are not independent. All give means, equal-tailed intervals, and draws. Draw
number i depends on the seed and on i alone.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from evenhand.checks import as_seed, check_fraction, check_memory, check_positive_int
from evenhand.errors import InvalidInput
from evenhand.typing import Bools, Floats, Indices, Rng

FEWER = "Ask for fewer draws, or take them one by one (`one`)."


class Posterior(Protocol):
    """A distribution over (type, state, action, next_state) transitions."""

    @property
    def mean(self) -> Floats:
        """(type, state, action, next_state) the transitions a model is made of."""
        ...

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Two arrays as `mean`: where each entry lies with this probability, equal tails left out.

        Args:
            level: between 0 and 1.
        """
        ...

    def one(self, seed: int, number: int) -> Floats:
        """(type, state, action, next_state) one draw.

        Args:
            seed: of all draws.
            number: which of them, from 0.
        """
        ...

    def draw(self, num_draws: int, rng: Rng = 0) -> Floats:
        """(draw, type, state, action, next_state) transitions; the first draws are the same however many are asked for.

        Args:
            num_draws: how many.
            rng: a seed, or a generator.
        """
        ...

    def settled(self, rows: Floats, known: Bools, like: Indices | None = None) -> "Posterior":
        """The same, with some rows as they are told.

        Args:
            rows: (type, state, action, next_state) probabilities, read where `known`.
            known: (type, state, action) rows that are certain.
            like: (type, state, action) the action whose row in the same state it is, in every draw; its own if absent.
        """
        ...


@dataclass(frozen=True, eq=False)
class Dirichlet:
    """Independent rows, but for those that are certain and those that are copies of another action's."""

    concentration: Floats
    """(type, state, action, next_state) counts and prior together; 0 where a transition cannot be."""

    known: Bools | None = None
    """(type, state, action) rows that are certain: proportional to their concentration. None are, when absent."""

    like: Indices | None = None
    """(type, state, action) the action whose row in the same state it is, in every draw; its own when absent."""

    @property
    def mean(self) -> Floats:
        """(type, state, action, next_state) the transitions a model is made of."""
        return self.copied(_shares(self.concentration))

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Two arrays as `mean`: where each entry lies with this probability, by its Beta distribution.

        The mean of an unseen entry among hundreds lies beyond both quantiles: an interval is extended to it.
        """
        from scipy.special import betaincinv  # only fitting needs it

        tail = (1 - check_fraction(level, "level")) / 2
        own = self.concentration
        rest = own.sum(axis=-1, keepdims=True) - own
        alone = (own == 0) | (_others(own) == 0)  # a row's only entry is 1, also where rounding leaves a rest
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
        with np.errstate(invalid="ignore"):  # rows that nothing is known of stay NaN
            drawn = np.exp(logs - logs.max(axis=-1, keepdims=True))
        drawn /= drawn.sum(axis=-1, keepdims=True)
        if self.known is not None:
            drawn = np.where(self.known[..., None], _shares(self.concentration), drawn)
        return self.copied(drawn)

    def draw(self, num_draws: int, rng: Rng = 0) -> Floats:
        """(draw, type, state, action, next_state) transitions; the first are the same however many are asked for."""
        return stacked(self, num_draws, rng)

    def settled(self, rows: Floats, known: Bools, like: Indices | None = None) -> "Dirichlet":
        """The same, with some rows as they are told: see `Posterior`."""
        already = np.zeros_like(known) if self.known is None else self.known
        concentration = np.where(known[..., None], rows, self.concentration)
        return Dirichlet(concentration, already | known, self.like if like is None else like)

    def copied(self, rows: Floats) -> Floats:
        """The same array as `mean`, with the rows of an action for those that are like it.

        Args:
            rows: (type, state, action, next_state) anything of each transition.
        """
        return rows if self.like is None else np.take_along_axis(rows, self.like[..., None].astype(np.intp), axis=2)


@dataclass(frozen=True, eq=False)
class Drawn:
    """A sample from the posterior."""

    mean: Floats
    """(type, state, action, next_state) the estimate a model is made of."""

    draws: Floats
    """(draw, type, state, action, next_state)."""

    def __post_init__(self) -> None:
        if self.draws.shape[1:] != self.mean.shape or not len(self.draws):
            raise InvalidInput(f"draws: expected some of shape {self.mean.shape}, got shape {self.draws.shape}")

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Two arrays as `mean`: where each entry lies with this probability, by quantiles of the draws.

        A mode may lie outside of both quantiles, as a maximum likelihood of 0 does: an interval is extended to it.
        """
        tail = (1 - check_fraction(level, "level")) / 2
        lower, upper = np.quantile(self.draws, [tail, 1 - tail], axis=0)
        return np.minimum(lower, self.mean), np.maximum(upper, self.mean)

    def one(self, seed: int, number: int) -> Floats:
        """(type, state, action, next_state) one draw: each of the sample once, in an order of chance, then again."""
        turn, place = divmod(number, len(self.draws))
        order = np.random.default_rng([seed, turn]).permutation(len(self.draws))
        return np.asarray(self.draws[order[place]])

    def draw(self, num_draws: int, rng: Rng = 0) -> Floats:
        """(draw, type, state, action, next_state) transitions; the first are the same however many are asked for."""
        return stacked(self, num_draws, rng)

    def settled(self, rows: Floats, known: Bools, like: Indices | None = None) -> "Drawn":
        """The same, with some rows as they are told: see `Posterior`."""

        def told(own: Floats) -> Floats:
            own = np.where(known[..., None], rows, own)
            return own if like is None else np.take_along_axis(own, like[..., None].astype(np.intp), axis=2)

        return Drawn(told(self.mean), np.stack([told(draw) for draw in self.draws]))


def stacked(posterior: Posterior, num_draws: int, rng: Rng) -> Floats:
    """(draw, type, state, action, next_state) draws from 0 on, where they fit in memory.

    Args:
        posterior: what is drawn from.
        num_draws: how many.
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
    """The same rows with sums of 1; NaN where a row has none."""
    with np.errstate(invalid="ignore"):
        return np.asarray(concentration / concentration.sum(axis=-1, keepdims=True))


def _others(concentration: Floats) -> Floats:
    """How many other entries of its row are above 0, for each entry."""
    some = concentration > 0
    return np.asarray(some.sum(axis=-1, keepdims=True) - some)


def _log_gammas(shape: Floats, rng: np.random.Generator) -> Floats:
    """Logarithms of gamma variables; -inf where the shape is 0."""
    some = shape > 0
    larger = rng.standard_gamma(np.where(some, shape, 1.0) + 1)
    uniform = 1 - rng.random(shape.shape)  # never 0
    with np.errstate(over="ignore"):  # a shape of 1e-310 is as good as 0
        logs = np.log(larger) + np.log(uniform) / np.where(some, shape, 1.0)
    return np.where(some, logs, -np.inf)
