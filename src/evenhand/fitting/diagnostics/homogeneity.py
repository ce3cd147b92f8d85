"""Test whether groups have the same distribution in every context: the likelihood-ratio test of homogeneity.

Counts n[g, c, k]: in group g and context c the outcome k. Under the null the distribution of k depends on c alone, and

    G = 2 Σ_{g,c,k} n[g,c,k] log( n[g,c,k] n[·,c,·] / (n[g,c,·] n[·,c,k]) )

is about χ² with Σ_c (groups seen in c − 1) (outcomes seen in c − 1) degrees of freedom. For transitions of Markov
chains this holds as for independent rows: Anderson and Goodman, *Statistical inference about Markov chains* (1957),
sections 3 and 4. Small counts shift the mean of G, by about

    Σ_c (n_c Σ_g 1/n_gc − 1) (n_c Σ_k 1/n_ck − 1) / (6 n_c)                        (Williams, Biometrika 1976)

Where that is not small beside √(2 degrees), the spread of χ², G is compared with tables drawn with the same margins:
outcomes of a context are dealt anew to its groups (multivariate hypergeometric), as the null says. Large tables
are drawn a few times only, and G is then compared with a multiple of χ² with the mean and variance of these draws, as
it is if no drawn table comes near the one at hand.

    gain = (G − mean of G under the null) / (2 Σ n)

is about what a step would be predicted better, in nats, if each group had its own distribution. Its mean under the null
is 0, and it does not grow with the number of records as G does: it says how much, where p says how surely.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import chdtrc, xlogy

from evenhand.fitting.diagnostics.format import chance, decimals_for, first_largest, percent, signed
from evenhand.fitting.diagnostics.steps import Steps, late, tally
from evenhand.typing import Floats, Ints

LEVEL = 0.05
"""The p-value, adjusted for the tests made together, below which a difference is said to be one."""

MOST_TYPES = 60
"""Types up to which each is tested against the others."""

SMALL = 0.1
"""Largest shift of the mean of G, relative to its spread, for which the χ² distribution is used."""

DRAWS = 999
"""Tables that are drawn if the χ² distribution is inaccurate."""

FEWEST_DRAWS = 19
"""Draws below which mean and variance of G are not known."""


@dataclass(frozen=True)
class HomogeneityTest:
    """A test of homogeneity."""

    statistic: float
    """The likelihood ratio G."""

    degrees: int
    """Degrees of freedom; 0 if there was nothing to compare."""

    p_value: float
    """Probability of a G as large under homogeneity."""

    adjusted: float
    """The same, allowing for the tests made beside it (Holm)."""

    gain: float
    """Nats per step by which separate distributions would predict better; about 0 under homogeneity."""

    number: int
    """Number of compared records."""

    draws: int
    """Tables drawn for the p-value and the mean of G; 0 if they are those of the χ² distribution."""

    is_rough: bool
    """True if counts are too small for the χ² distribution and tables too large to draw: p is only a guide."""


def homogeneity(counts: Ints, rng: np.random.Generator, most_work: float = 1.5e7) -> HomogeneityTest:
    """Test whether the distribution of outcomes depends on the context alone.

    Args:
        counts: (group, context, outcome) numbers.
        rng: for tables that are drawn.
        most_work: numbers that are drawn at most; 1.5e7 take seconds.
    """
    counts = compared(counts)
    groups, outcomes = (counts.sum(axis=2) > 0).sum(axis=0), (counts.sum(axis=0) > 0).sum(axis=1)
    degrees, number = int(((groups - 1) * (outcomes - 1)).sum()), int(counts.sum())
    if not degrees:
        return HomogeneityTest(0.0, 0, 1.0, 1.0, 0.0, number, 0, False)
    statistic = max(0.0, float(2 * contributions(counts).sum()))
    is_sparse = bool(shift(counts) > SMALL * np.sqrt(2 * degrees))
    # A few draws suffice far beyond chance: small counts lift the mean of G by less than half.
    wanted = FEWEST_DRAWS if statistic > 3 * degrees + 50 else DRAWS
    draws = min(wanted, int(most_work / counts.size)) * is_sparse
    usual, variance, as_far = float(degrees), 2.0 * degrees, 0
    if draws >= FEWEST_DRAWS:
        drawn, is_sparse = drawn_ratios(counts, draws, rng), False
        usual, variance = float(drawn.mean()), float(drawn.var(ddof=1))
        as_far = int((drawn >= statistic - 1e-9 * max(1.0, statistic)).sum())
    else:
        draws = 0
    # A multiple of χ² with this mean and variance, unless enough drawn tables are as far out.
    p_value = float(chdtrc(2 * usual**2 / variance, 2 * usual * statistic / variance)) if variance > 0 else 1.0
    if draws == DRAWS:
        p_value = (1 + as_far) / (1 + draws) if as_far else min(p_value, 1 / (1 + draws))
    gain = (statistic - usual) / (2 * number)
    return HomogeneityTest(statistic, degrees, p_value, p_value, gain, number, draws, is_sparse)


def compared(counts: Ints) -> Ints:
    """Only the contexts that tell groups apart: seen in two groups or more, with two outcomes or more."""
    informative = ((counts.sum(axis=2) > 0).sum(axis=0) > 1) & ((counts.sum(axis=0) > 0).sum(axis=1) > 1)
    return counts[:, informative]


def contributions(counts: Ints) -> Floats:
    """(context,) what each adds to G / 2."""
    by_group, by_outcome, total = counts.sum(axis=2), counts.sum(axis=0), counts.sum(axis=(0, 2))
    parts = xlogy(counts, counts).sum(axis=(0, 2)) - xlogy(by_group, by_group).sum(axis=0)
    return np.asarray(parts - xlogy(by_outcome, by_outcome).sum(axis=1) + xlogy(total, total))


def shift(counts: Ints) -> float:
    """Return how far small counts lift the mean of G above the degrees of freedom, about."""
    by_group, by_outcome = counts.sum(axis=2), counts.sum(axis=0)
    totals = by_outcome.sum(axis=1)
    with np.errstate(divide="ignore"):
        groups, outcomes = (
            np.where(margin > 0, 1 / margin, 0.0).sum(axis=axis) for margin, axis in ((by_group, 0), (by_outcome, 1))
        )
    return float(((totals * groups - 1) * (totals * outcomes - 1) / (6 * totals)).sum())


def drawn_ratios(counts: Ints, draws: int, rng: np.random.Generator) -> Floats:
    """(draw,) G of tables with the same margins, in which the outcomes of each context are dealt anew."""
    by_group, by_outcome = counts.sum(axis=2), counts.sum(axis=0)
    # With fixed margins G is 2 Σ n log n and a constant.
    constant = xlogy(counts, counts).sum() - contributions(counts).sum()
    sums = np.zeros(draws)
    left = np.broadcast_to(by_outcome, (draws, *by_outcome.shape)).copy()
    for group in by_group[:-1]:
        dealt = deal(left, group, rng)
        left -= dealt
        sums += xlogy(dealt, dealt).sum(axis=(1, 2))
    sums += xlogy(left, left).sum(axis=(1, 2))
    return np.asarray(np.maximum(0.0, 2 * (sums - constant)))


def deal(left: Ints, size: Ints, rng: np.random.Generator) -> Ints:
    """Take so many of what is left in each context, each as likely as any other.

    Args:
        left: (draw, context, outcome) what there is.
        size: (context,) how many are taken.
        rng: chooses.
    """
    wanted = np.broadcast_to(size, left.shape[:2]).copy()
    others = left.sum(axis=2)
    dealt = np.zeros_like(left)
    for outcome in range(left.shape[2]):
        others = others - left[:, :, outcome]
        dealt[:, :, outcome] = rng.hypergeometric(left[:, :, outcome], others, wanted)
        wanted -= dealt[:, :, outcome]
    return dealt


def holm(tests: Sequence[HomogeneityTest]) -> list[HomogeneityTest]:
    """The same tests, each adjusted for all of them: if none has an effect, one below 0.05 comes up in 5 % of cases.

    Args:
        tests: made side by side; those with nothing to compare do not count.
    """
    order = sorted((index for index, test in enumerate(tests) if test.degrees), key=lambda i: tests[i].p_value)
    adjusted, least = list(tests), 0.0
    for place, index in enumerate(order):
        least = max(least, min(1.0, (len(order) - place) * tests[index].p_value))
        adjusted[index] = replace(tests[index], adjusted=least)
    return adjusted


# Early and late records, and types


@dataclass(frozen=True)
class Apart:
    """The row in which two groups differ most, by what it adds to the test."""

    type: str
    """Type of the row; empty if types are compared."""

    state: str
    """State of the arm."""

    action: str
    """Action."""

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
    """Row in which they differ most; None if nothing was compared."""

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
    """Row in which it differs most; None if nothing was compared."""


@dataclass(frozen=True)
class BetweenTypes:
    """The types against each other."""

    test: HomogeneityTest
    """Of all of them at once."""

    each: tuple[OneType, ...]
    """(type,) each against the others; empty if there are very many types."""

    @property
    def words(self) -> str:
        """A sentence."""
        if not self.test.degrees:
            return "the types have no row in common that could differ"
        if self.test.adjusted >= LEVEL:
            return f"the types are not seen to differ ({_odds(self.test)}): one type may do"
        same = [one.type for one in self.each if one.test.adjusted >= LEVEL]
        more = f" and {len(same) - 6} more" if len(same) > 6 else ""
        but = f"; not seen to differ from the others: {', '.join(same[:6])}{more}" if same else ""
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
    each = zip(names[0], tests, against, strict=True)
    return BetweenTypes(whole, tuple(OneType(name, test, _most_apart(two, pairs)) for name, test, two in each))


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
    place = whose, names[1][state], names[2][action], names[1][to]
    return Apart(*place, (float(shares[0, to]), float(shares[1, to])), (int(visits[0]), int(visits[1])))


def _odds(test: HomogeneityTest) -> str:
    """`p = 0.03, 0.002 nats a step`; a p-value that is only a guide is said to be one."""
    rough = ", roughly: counts are small" if test.is_rough else ""
    decimals = max(3, decimals_for(abs(test.gain)))
    return f"{chance(test.adjusted)}{rough}, {signed(test.gain, decimals)} nats per step"
