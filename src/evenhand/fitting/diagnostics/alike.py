"""Whether arms move alike at all times, and whether the types differ."""

from dataclasses import dataclass

import numpy as np

from evenhand.fitting.diagnostics.phrases import chance, decimals_for, first_largest, percent, signed
from evenhand.fitting.diagnostics.steps import Steps, late, tally
from evenhand.fitting.diagnostics.tables import HomogeneityTest, compared, contributions, holm, homogeneity
from evenhand.typing import Ints

LEVEL = 0.05
"""The p-value, adjusted for the tests made together, below which a difference is said to be one."""

MOST_TYPES = 60
"""Types up to which each is tested against the others."""


@dataclass(frozen=True)
class Apart:
    """The row in which two groups differ most, by what it adds to the test."""

    type: str
    """Whose row; empty where types are what is compared."""

    state: str
    """Where the arm was."""

    action: str
    """What it got."""

    to: str
    """The next state whose share differs most."""

    shares: tuple[float, float]
    """Of this next state in both groups: early and late, or the type and the others."""

    visits: tuple[int, int]
    """Of the row in both groups."""


@dataclass(frozen=True)
class InTime:
    """Early records against late ones."""

    test: HomogeneityTest
    """Of the transition rows."""

    cut: float
    """The first time that counts as late, in steps since the earliest record."""

    apart: Apart | None
    """Where they differ most; None where nothing was compared."""

    @property
    def words(self) -> str:
        """A sentence."""
        test, place = self.test, self.apart
        if place is None:
            return "early and late records have no row in common that could differ"
        if test.adjusted >= LEVEL:
            return f"arms move alike early and late, as far as can be seen ({_odds(test)})"
        where = f"{place.action} in {place.state}" + (f" ({place.type})" if place.type else "")
        shares = f"{percent(place.shares[0])} went to {place.to} early, {percent(place.shares[1])} late"
        return f"arms move otherwise late than early ({_odds(test)}), most in {where}: {shares}"


@dataclass(frozen=True)
class OneType:
    """A type against all others together."""

    type: str
    """Its name."""

    test: HomogeneityTest
    """Of the transition rows; adjusted for the other types."""

    apart: Apart | None
    """Where it differs most; None where nothing was compared."""


@dataclass(frozen=True)
class BetweenTypes:
    """The types against each other."""

    test: HomogeneityTest
    """Of all of them at once."""

    each: tuple[OneType, ...]
    """(type,) each against the others; empty where there are very many types."""

    @property
    def words(self) -> str:
        """A sentence."""
        if not self.test.degrees:
            return "the types have no row in common that could differ"
        if self.test.adjusted >= LEVEL:
            return f"the types are not seen to differ ({_odds(self.test)}): one type may do"
        same = [one.type for one in self.each if one.test.adjusted >= LEVEL]
        but = f"; not seen to differ from the others: {_few(same)}" if same else ""
        return f"the types differ ({_odds(self.test)}){but}"


def in_time(steps: Steps, names: tuple[tuple[str, ...], ...], rng: np.random.Generator) -> InTime | str:
    """Compare early records with late ones; or say why not.

    Args:
        steps: what is compared.
        names: of types, states and actions.
        rng: for tables that are drawn.
    """
    is_late = late(steps.time)
    if is_late is None:
        return "all steps begin at one time" if len(steps) else "no step was recorded"
    shape = tuple(map(len, names))
    columns = (is_late, steps.type, steps.state, steps.action, steps.next_state)
    counts = tally(columns, (2, *shape, shape[1])).reshape(2, -1, shape[1])
    return InTime(homogeneity(counts, rng), float(steps.time[is_late].min()), _most_apart(counts, names))


def between_types(counts: Ints, names: tuple[tuple[str, ...], ...], rng: np.random.Generator) -> BetweenTypes:
    """Compare the types.

    Args:
        counts: (type, state, action, next_state) moves of one step.
        names: of types, states and actions.
        rng: for tables that are drawn.
    """
    flat = counts.reshape(counts.shape[0], -1, counts.shape[-1])
    pairs, total = (("",), *names[1:]), flat.sum(axis=0)
    whole = homogeneity(flat, rng)
    if len(flat) > MOST_TYPES or len(flat) == 2:  # of two, each against the other is the same test
        return BetweenTypes(whole, ())
    against = [np.stack([own, total - own]) for own in flat]
    tests = holm([homogeneity(two, rng) for two in against])
    each = [
        OneType(name, test, _most_apart(two, pairs)) for name, test, two in zip(names[0], tests, against, strict=True)
    ]
    return BetweenTypes(whole, tuple(each))


def _most_apart(counts: Ints, names: tuple[tuple[str, ...], ...]) -> Apart | None:
    """Of (group, row, next state) counts of two groups."""
    if not compared(counts).size:
        return None
    row = first_largest(contributions(counts))
    type_, state, action = np.unravel_index(row, tuple(map(len, names)))
    visits = counts[:, row].sum(axis=1)
    shares = counts[:, row] / visits[:, None]
    to = first_largest(np.abs(shares[1] - shares[0]))
    whose = names[0][type_] if len(names[0]) > 1 else ""
    return Apart(
        whose,
        names[1][state],
        names[2][action],
        names[1][to],
        (float(shares[0, to]), float(shares[1, to])),
        (int(visits[0]), int(visits[1])),
    )


def _odds(test: HomogeneityTest) -> str:
    """`p = 0.03, 0.002 nats a step`; a p-value that is only a guide is said to be one."""
    rough = ", roughly: counts are small" if test.is_rough else ""
    decimals = max(3, decimals_for(abs(test.gain)))
    return f"{chance(test.adjusted)}{rough}, {signed(test.gain, decimals)} nats a step"


def _few(names: list[str], most: int = 6) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
