"""How many digits of a certificate rounding leaves, where rewards are of very different sizes.

A double has 16 digits of the largest number in a sum. A reward of 1e8 beside one of 1e-8 in the same sum leaves none of
the small one, so a certificate of a value of 1e-8 may owe all of its digits to chance. How much was lost is known from
what entered the sums. With M_n the largest reward of member n in magnitude, of those that can count, over all time of
the criterion, and s the steps over which errors of one step add up,

    rounding  =  K eps s  sum_n g_n M_n              g_n the weight of a member, K a few operations a step

A welfare is proved by weights that are nearly a supergradient at the values found: members that are not among those
whose weight matters (the far better-off under a maximin) do not enter, whatever their size. At a tie any of those that
are equal may have the weight, so g_n is the weight of n if n alone were a little worse off, by what is unknown of it:
the gap, and a share TIE of its value. Sums of many members are not looked into: the largest M_n stands for all.

Members that have 0 in every plan that has a welfare (`planning.zeros`) enter no sum. Where there are such, and a share
q of others, W = q^(1/(1 - alpha)) W_others, and the weights are those of W_others times that.

    digits = -log10(rounding / |upper bound|),  rounded down, from 0 to 15

No policy has more than upper bound + 10^-digits |upper bound|, and the policy has at least welfare - the same.
"""

from contextlib import suppress

import numpy as np
from scipy import stats

from evenhand.errors import Contradiction, OutOfDomain
from evenhand.model.coupled import CoupledMDP
from evenhand.model.criterion import Criterion
from evenhand.model.objective import Objective
from evenhand.model.welfare import PowerMean, Welfare
from evenhand.solvers.resting import at_rest
from evenhand.solvers.service import counting
from evenhand.typing import Bools, Floats, Ints

MOST = 15
"""Digits of a double."""

OPERATIONS = 16.0
"""K."""

LONG = 1000.0
"""s where rewards count alike for ever: what an average is found by forgets errors more slowly than a discount does."""

SIGNIFICANT, CLOSE = 4.0, 1e-6
"""Standard errors, and the share of a bound to which linear programs are solved, beyond which a welfare above its bound
contradicts it."""

TIE = 1e-6
MOST_MEMBERS = 300
"""Members up to which the weight of each is asked for."""


def certain_digits(rounding: float, bound: float) -> int:
    """The significant digits of a welfare and its bound that rounding cannot have touched.

    Args:
        rounding: what it may have added or taken.
        bound: the welfare that no policy exceeds.
    """
    if rounding == 0:
        return MOST
    if bound == 0 or not np.isfinite(rounding):
        return 0
    return int(np.clip(np.floor(-np.log10(rounding / abs(bound))), 0, MOST))


def rounding_of(
    problem: CoupledMDP, objective: Objective, values: Floats, gap: float, most_steps: float = np.inf
) -> float:
    """What rounding may have added to a welfare or its bound, or taken.

    Args:
        problem: the problem.
        objective: what was maximised, over types or arms.
        values: (unit,) of the types or arms.
        gap: between the welfare and its bound, not relative.
        most_steps: steps over which errors add up at the most, if steps are without end.
    """
    types = problem.types
    meets = counting(types, problem.affordable, problem.criterion)
    largest = np.where(meets, np.abs(types.rewards), 0.0).max(axis=(1, 2)) * problem.criterion.total
    sizes = objective.members(largest if len(values) == len(largest) else largest[problem.type_of_arm])
    members, counts, share = objective.members(values), objective.sizes, 1.0
    if (still := _still(problem, objective, members)).any():
        assert isinstance(objective.welfare, PowerMean)
        share = float(counts[~still].sum() / counts.sum()) ** (1 / (1 - objective.welfare.aversion))
        members, counts, sizes = members[~still], counts[~still], sizes[~still]
    weighed = share * _weighed(objective.welfare, (members, counts), sizes, gap)
    steps = _steps(problem.criterion)
    if problem.criterion.num_steps is None:
        steps = min(steps, most_steps)
    return steps * OPERATIONS * float(np.finfo(float).eps) * weighed


def check_bound(
    problem: CoupledMDP,
    objective: Objective,
    values: Floats,
    found: tuple[float, float, int | None],
    bound: float,
) -> None:
    """Raise Contradiction if a welfare lies above its bound by more than chance and rounding explain.

    Args:
        problem: the problem.
        objective: what was maximised, over types or arms.
        values: (unit,) of the types or arms.
        found: their welfare, its standard error, and from how many episodes that is; None for exact values.
        bound: what no policy exceeds.
    """
    welfare, error, episodes = found
    # With few episodes their spread is uncertain itself: as rare as SIGNIFICANT errors are with many.
    chance = error and error * float(stats.t.isf(stats.norm.sf(SIGNIFICANT), max((episodes or np.inf) - 1, 1)))
    above = welfare - bound - chance - CLOSE * abs(bound)
    if above > 0 and above > rounding_of(problem, objective, values, 0.0):
        sure = f" ± {error:.2g}" if error else ""
        raise Contradiction(
            f"the welfare {welfare:.9g}{sure} lies above its proved bound {bound:.9g}, so one of them is wrong. This "
            "is an error of the library: please report it with the model."
        )


def _still(problem: CoupledMDP, objective: Objective, members: Floats) -> Bools:
    """(member,) who has 0 in every plan that has a welfare, where its slope is not defined there."""
    if not isinstance(objective.welfare, PowerMean) or not 0 < objective.welfare.aversion < 1:
        return np.zeros(len(members), dtype=np.bool_)
    still = members == 0  # no number that was computed is that by chance
    kinds = at_rest(problem)[0]
    if objective.groups is not None:  # gains and losses of a group may balance but for rounding
        still[problem.group_of_type[kinds]] = True
    return np.asarray(still)


def _steps(criterion: Criterion) -> float:
    """Over how many steps errors add up, s."""
    if criterion.num_steps is not None:
        return float(criterion.num_steps)
    return 1 / (1 - criterion.factor) if criterion.factor < 1 else LONG


def _weighed(welfare: Welfare, known: tuple[Floats, Ints], sizes: Floats, gap: float) -> float:
    """sum_n g_n M_n, with each member's weight as if it were the worst of those it is equal to.

    Args:
        welfare: how members are weighed.
        known: their (member,) values, and how many each stands for.
        sizes: (member,) M.
        gap: between the welfare and its bound.
    """
    members, counts = known
    if len(members) > MOST_MEMBERS or not len(members):
        return float(sizes.max(initial=0.0))
    lowered = members - np.diag(gap + TIE * np.abs(members))
    return sum(
        _weight(welfare, (each, members), counts, number) * float(sizes[number])
        for number, each in enumerate(lowered)
        if sizes[number]
    )


def _weight(welfare: Welfare, tries: tuple[Floats, ...], counts: Ints, number: int) -> float:
    """g_n at the first of some points at which the welfare has a slope; infinite if it has none at any."""
    for members in tries:
        with suppress(OutOfDomain):
            return float(welfare.supergradient(members, counts)[number])
    return np.inf
