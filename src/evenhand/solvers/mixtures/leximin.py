"""Raising the least value: floors, domains, and leximin stage by stage.

    max t   with   (V theta)_n >= base_n + t  for free rows n,   (V theta)_n >= due_n  for the others

over the vectors known, and by column generation over all policies: with multipliers y of the rows, sum over the free
ones 1, no policy can raise the level above max_pi y.V - y.due. Leximin raises the least value, fixes those that hold it
down (y > 0), and raises the least of the others, until all are fixed.

A first mixture that keeps the floors is found by raising the least s - f; where that ends below 0, they are refused.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import sparse

from evenhand.errors import Infeasible, NotConverged, OutOfDomain
from evenhand.model.welfare import Welfare
from evenhand.solvers._highs import LinearProgram
from evenhand.solvers.mixtures.search import FLOOR_SLACK, Mixture, Search, on_simplex
from evenhand.solvers.refinement import solve_precisely
from evenhand.typing import Bools, Floats, Ints

MOST_AT_ONCE, MOST_JOINING = 200, 50
"""Rows of the largest program that is solved as it is, and how many join a smaller one at a time."""


class Rows(NamedTuple):
    """What is raised, and what must not fall: of some objectives."""

    rows: Ints
    """(row,) the objectives."""

    fixed: Floats
    """(row,) what the objective must have; -inf where it is free and to be raised."""

    base: Floats
    """(row,) from where a free objective is measured."""

    def only(self, some: Ints) -> "Rows":
        """Some of them."""
        return Rows(self.rows[some], self.fixed[some], self.base[some])


class Raised(NamedTuple):
    """How far the least of the free objectives was raised."""

    level: float
    """To the tolerance."""

    shares: Floats
    """(policy,) under which it is reached."""

    multipliers: Floats
    """(row,) of the rows; those of the free ones sum to 1."""

    bound: float
    """No policy has a higher level."""


def all_rows(search: Search, members: Floats | None = None) -> Rows:
    """The members, free or at what they must have, and the floors."""
    number = len(search.counts)
    fixed = np.full(number, -np.inf) if members is None else members
    return Rows(
        np.arange(number + len(search.floors)),
        np.concatenate([fixed, search.floors]),
        np.zeros(number + len(search.floors)),
    )


# -- floors and domains -----------------------------------------------------------------------------------------------


def meet_floors(search: Search) -> Floats:
    """Shares under which every floor is kept; Infeasible if there are none."""
    number = len(search.floors)
    first = np.zeros(len(search.vectors))
    # The first policy, of the mean, may keep them already.
    first[0] = 1.0
    if number == 0 or (search.vectors[0][-number:] >= search.floors).all():
        return first
    rows = np.arange(len(search.counts), len(search.vectors[0]))
    level, shares, _, bound = raise_least(search, Rows(rows, np.full(number, -np.inf), search.floors), enough=0.0)
    if level >= -FLOOR_SLACK:
        return shares
    if bound >= -FLOOR_SLACK:  # what rounding may do to it
        raise NotConverged("it could not be told whether the floors can be kept")
    # Not feasible: what all could have together is said in the refusal.
    most, _, _, _ = raise_least(search, Rows(rows, np.full(number, -np.inf), np.zeros(number)))
    raise Infeasible(
        "the floors ask for more than the budget allows: the largest floor that all arms with a floor can have "
        f"together is {np.floor(max(most, 0.0) * 1e6 + 0.01) / 1e6:.6g}"
    )


def positive_shares(search: Search, feasible: Floats) -> Floats:
    """Shares under which every value is positive, the domain of power means; OutOfDomain if there are none."""
    if (search.members(search.matrix[:, : len(feasible)] @ feasible) > 0).all():
        return feasible
    level, shares, _, bound = raise_least(search, all_rows(search))
    if level <= 0:
        raise OutOfDomain(
            "alpha-fairness needs positive values, but no policy gives every arm one: "
            f"the worst-off arm has at most {bound:.6g}. Use a Gini welfare, or shift the rewards."
        )
    return shares


# -- leximin ----------------------------------------------------------------------------------------------------------


def leximin(search: Search, welfare: Welfare) -> Mixture:
    """Stage by stage over all policies."""
    raised, first = raise_in_turn(lambda levels: raise_least(search, all_rows(search, levels)), len(search.counts))
    shares = np.pad(raised.shares, (0, len(search.vectors) - len(raised.shares)))
    values = search.matrix @ shares
    value = float(welfare(search.members(values), search.counts))
    return Mixture(shares, values, value, first.bound, search.rounds)


def raise_in_turn(raise_: Callable[[Floats], Raised], num_members: int) -> tuple[Raised, Raised]:
    """Raise the least value, fix whoever holds it down, and raise the least of the others, until all are fixed.

    Args:
        raise_: raises the least of the members whose (member,) level is -inf, while the others keep theirs.
        num_members: how many members there are.

    Returns:
        What the last stage gave, and the first.
    """
    levels = np.full(num_members, -np.inf)
    first: Raised | None = None
    while True:
        raised = raise_(levels)
        first = first or raised
        levels[who_holds(levels, raised.multipliers[:num_members])] = raised.level
        if np.isfinite(levels).all():
            return raised, first


def who_holds(levels: Floats, multipliers: Floats) -> Bools:
    """(member,) the free members that hold the level down."""
    free = np.isinf(levels)
    # A multiplier that small is rounding; but somebody must be fixed, or the stages would not end.
    held = free & (multipliers > 1e-6)
    return held if held.any() else np.asarray(free & (multipliers >= multipliers[free].max()))


# -- raising the least ------------------------------------------------------------------------------------------------


def raise_least(search: Search, rows: Rows, enough: float = np.inf) -> Raised:
    """The largest level above their base that all free objectives reach while the others keep theirs.

    Args:
        search: the vectors so far, to which more are added.
        rows: the objectives.
        enough: a level at which to stop early.

    """
    free = np.isinf(rows.fixed)
    due = np.where(free, rows.base, rows.fixed)
    weights = np.zeros(len(search.vectors[0]))
    bound, rounding, stalled = np.inf, 0.0, False
    while True:
        level, shares, multipliers = level_master(search.matrix[rows.rows], rows, search.units[rows.rows])
        if level >= enough:
            return Raised(level, shares, multipliers, bound)
        # The oracle is asked at weights that sum to 1, so that its tolerance means the same at every stage.
        scale = float(multipliers.sum())
        weights[rows.rows] = multipliers / scale
        found, most = search.add(weights, 0.1 * search.tolerance)
        # No policy has more than `most`, so none raises the level beyond this (see the file's head).
        bound = min(bound, most * scale - float(multipliers @ due))
        rounding = max(rounding, scale * search.rounding)
        gap = search.gap(level, bound, rounding, rows.rows[free])
        search.tell(gap)
        # A vector that lifts no level shows that there are no more digits to have, if the next does not either.
        lifts = float(weights @ found) * scale - float(multipliers @ due) > level + 1e-14 * abs(level)
        over = search.is_over or (stalled and not lifts)
        if gap <= search.tolerance or over or bound < enough - FLOOR_SLACK < np.inf:  # reached, or proved out of reach
            shares = np.pad(shares, (0, len(search.vectors) - len(shares)))
            return Raised(level, shares, multipliers, bound)
        stalled = not lifts


def level_master(matrix: Floats, rows: Rows, units: Floats) -> tuple[float, Floats, Floats]:
    """The largest t with (V theta)_n >= base_n + t where free and >= its due elsewhere; also the rows' multipliers.

    Few rows hold the level down. Where there are many, a program of some is solved, those that it breaks most join, and
    so on until none is broken.

    Args:
        matrix: (row, policy) the objectives of the policies so far.
        rows: what is raised and what must not fall.
        units: (row,) how large each objective can be.
    """
    # As large as it was seen to be, within reason: what an objective could be may be far from what it ever is.
    seen = np.maximum(np.abs(matrix).max(axis=1), np.abs(rows.base))
    units = np.clip(seen, 1e-6 * units, units)
    free = np.isinf(rows.fixed)
    due = np.where(free, rows.base, rows.fixed)
    inside = _first_rows(matrix, due, free, units)
    while True:
        some = np.flatnonzero(inside)
        level, shares, found = _with_slack(matrix[some], rows.only(some), units[some])
        # Rows that were left out, by how far they are broken, each in its unit.
        broken = (due + np.where(free, level, 0.0) - matrix @ shares) / units
        broken[inside] = -np.inf
        worst = np.argsort(-broken)[:MOST_JOINING]
        if broken[worst[0]] <= FLOOR_SLACK:
            multipliers = np.zeros(len(matrix))
            multipliers[some] = found
            return level, shares, multipliers
        inside[worst[broken[worst] > FLOOR_SLACK]] = True


def _first_rows(matrix: Floats, due: Floats, free: Bools, units: Floats) -> Bools:
    """(row,) those that the first program has: all of a few; of many the lowest by each policy and by their mean."""
    if len(matrix) <= MOST_AT_ONCE:
        return np.ones(len(matrix), dtype=np.bool_)
    over = np.column_stack([matrix, matrix.mean(axis=1)]) - due[:, None]
    inside = np.zeros(len(matrix), dtype=np.bool_)
    for kind in (free, ~free):
        which = np.flatnonzero(kind)
        # Free rows share one level, and are compared as they are; the others each by its own unit.
        scale = 1.0 if kind is free else units[which, None]
        inside[which[(over[which] / scale).argmin(axis=0)] if len(which) else which] = True
    return inside


def _with_slack(matrix: Floats, rows: Rows, units: Floats) -> tuple[float, Floats, Floats]:
    """The level program; what was reached only to rounding can contradict itself, and is given a little more slack."""
    slack = FLOOR_SLACK
    while True:
        try:
            return _level_program(matrix, rows, units, slack)
        except Infeasible:
            slack *= 10
            if slack > 1e-5:
                raise


def _level_program(matrix: Floats, rows: Rows, units: Floats, slack: float) -> tuple[float, Floats, Floats]:
    """Each row in a unit of its own, so that neither shares of time nor small values drown in large ones."""
    free = np.isinf(rows.fixed)
    number, num_vectors = matrix.shape
    # The level has the smallest unit of those it raises, or a small value would drown in it.
    unit = float(units[free].min())
    program = np.zeros((number + 1, num_vectors + 1))
    program[:number, :num_vectors] = matrix / units[:, None]
    program[:number, num_vectors] = np.where(free, -unit / units, 0.0)
    program[number, :num_vectors] = 1.0
    due = np.where(free, rows.base / units, np.where(free, 0.0, rows.fixed) / units - slack)
    solution = solve_precisely(
        LinearProgram(
            gains=np.append(np.zeros(num_vectors), 1.0),
            matrix=sparse.csc_array(program),
            row_lower=np.append(due, 1.0),
            row_upper=np.append(np.full(number, np.inf), 1.0),
            lower=np.append(np.zeros(num_vectors), -np.inf),
            upper=np.full(num_vectors + 1, np.inf),
        )
    )
    # Back from units; a dual of a >= row is not positive.
    multipliers = np.maximum(-solution.duals[:number], 0.0) * unit / units
    shares = on_simplex(solution.primal[:-1])
    return float(solution.primal[-1]) * unit, shares, multipliers / multipliers[free].sum()
