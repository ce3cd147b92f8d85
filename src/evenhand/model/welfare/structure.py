"""Structure of a welfare: what solvers may use beyond its supergradients."""

from dataclasses import dataclass

import numpy as np

from evenhand.model.welfare.base import ROUNDING, Welfare
from evenhand.model.welfare.power_mean import PowerMean
from evenhand.model.welfare.rank_weighted import RankWeighted


@dataclass(frozen=True)
class Structure:
    """Known structure of a welfare; all empty for a general concave function."""

    is_mean: bool = False
    """The mean of the members."""

    lexicographic: bool = False
    """Ties are broken by the next worst member: an order of vectors, more than a number."""

    ranked: RankWeighted | None = None
    """The welfare if it weights members by rank; a lexicographic one has all weight on the worst."""

    aversion: float | None = None
    """The exponent of a power mean, u'(x) = x^-aversion."""


def structure(welfare: Welfare, num_members: int) -> Structure:
    """Return the structure of a welfare of a number of members."""
    if isinstance(welfare, PowerMean):
        return Structure(is_mean=welfare.aversion == 0, aversion=welfare.aversion)
    ranked = welfare if isinstance(welfare, RankWeighted) else None
    if is_lexicographic(welfare) or ranked is None:
        return Structure(lexicographic=is_lexicographic(welfare), ranked=ranked)
    # Weights do not rise, so that all are equal if the first and the last are.
    first, last = (ranked.rank_mass(np.array(rank), np.array(rank + 1), num_members) for rank in (0, num_members - 1))
    return Structure(is_mean=bool(abs(first - last) <= ROUNDING * abs(first)), ranked=ranked)


def is_lexicographic(welfare: Welfare) -> bool:
    """Return whether ties of the welfare are broken by the next worst member."""
    return getattr(welfare, "lexicographic", False) is True


def is_mean(welfare: Welfare, num_members: int) -> bool:
    """Return whether the welfare is the mean of so many members, by its structure."""
    return structure(welfare, num_members).is_mean
