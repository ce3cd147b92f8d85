"""The exact optimum of many identical arms, by dynamic programming on the lattice of counts.

    V(x) = max_u [ (1/N) sum_{s,a} u(s, a) r(s, a) + gamma E[V(x') | u] ],   sum_a u(s, a) = x(s),  sum d_k u <= b_k

No pair table is built. Three ideas make a step cheap:

1. In each state one idle action is the *base*. An arm left at its base moves by the base row of its state; an arm
   that gets another cell (s, a) *lands* in the slot of the state whose base row is the same, or else in an extra slot
   for its row. After the decision i[s] arms are in base slots and a[e] in extra ones, t = |a| at most what the budget
   allows, and only (i, a) matters: W(i, a) = E[V(x') | i, a].
2. W is applied factor by factor. The extra arms first: (M V)(y, a) = sum_z law(a)(z) V(y + z), z on the small lattice
   of t arms; then the base rows on the lattice of N - t arms, as sweeps over its lines where the matrix of base rows
   is a product of splits (`lattice_sweeps.factorise`), else as a table of laws. Where the extra rows are mixtures of
   base rows (a replacement that may fail), the base rows act first, once, and the mixture chooses among slots.
3. The maximum climbs the budget cell by cell (`lattice_sweeps.climb_budget`), O(states * cells * units), where one
   resource binds in whole units and no landing is served again; else it goes through the list of allocations of the
   cells off base, which does not depend on x.

A start comes from the same problem with a quarter of the arms and of the budget, since the value depends mostly on
proportions. Each round improves the policy once, then applies its operator until the change is a tenth as wide. With
d = T V - V,

    T V + gamma/(1-gamma) min d  <=  V*  <=  T V + gamma/(1-gamma) max d      (MacQueen; Puterman, 6.6).

Cut binomial tails and rounding move E[V] by at most epsilon max|V|, epsilon added up from the laws' construction; the
bounds are widened by epsilon max|V| / (1 - gamma), and by the rounding of the initial law.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import NamedTuple, Protocol

import numpy as np
from scipy.optimize import nnls
from scipy.special import gammaln

from evenhand.checks import check_fraction, check_memory, check_positive_int, check_shape
from evenhand.errors import InvalidInput, NotConverged, TooLarge
from evenhand.kernels import lattice_sweeps
from evenhand.kernels.lattice import (
    lattice_below,
    lattice_index,
    lattice_points,
    lattice_size,
    lattice_tables,
    multinomial_law,
)
from evenhand.kernels.lattice_sweeps import (
    Listed,
    Split,
    binomial_bands,
    factorise,
    interpolate,
    lattice_lines,
    lattice_steps,
    number_points,
)
from evenhand.typing import Floats, Indices, Ints

COMPILE_FROM = 3e7
"""Elementary operations from which compiled code pays, its compilation included when it is not cached."""

MOST_ALLOCATIONS = 3_000_000
"""Listed allocations beyond which a problem is refused."""

MOST_OPERATIONS = 1e14
"""Elementary operations beyond which a problem is refused."""

COARSE_FROM = 3000
"""Count states from which the value function of fewer arms is computed first, as a start."""

SAME_ROW = 4e-16
"""Rows this near in every entry are the same row; counted as an error of the law."""

UNIT = 2.0**-53
"""Relative error of one rounding."""

_SHRINK = 0.1
_MOST_SWEEPS = 60
_ROUNDS_GUESS, _SWEEPS_GUESS = 8, 80
_LARGEST_RATIO = 16
_COARSER, _COARSE_TOLERANCE = 4, 1e-3
_MIXTURE_ERROR = 1e-15
_INSTEAD = "Use fewer arms, a smaller budget, or a bound from the fluid relaxation."


@dataclass(frozen=True, eq=False)
class CountOptimum:
    """The best policy on counts and a certificate of its value."""

    lower_bound: float
    """The optimal mean value of an arm from the initial law is at least this; so is that of `choices` ..."""

    upper_bound: float
    """... and at most this."""

    cells: Ints
    """(cell, 2) state and action of the cells off base that can matter."""

    base: Ints
    """(state,) the idle action of the other arms."""

    choices: Indices
    """(count state, cell) how many arms get each cell."""

    value_function: Floats
    """(count state,) the last iterate."""

    num_arms: int
    """How many arms there are."""

    num_actions: int
    """How many actions an arm has."""

    rounds: int
    """How often the policy was improved."""

    @cached_property
    def counts(self) -> Ints:
        """(count state, state) arms in each state."""
        return lattice_points(self.num_arms, len(self.base))

    def allocation(self, index: Ints | int) -> Ints:
        """(..., state, action) the allocation chosen in count states, by their numbers (...)."""
        number = np.asarray(index)
        states = np.arange(len(self.base))
        allocation = np.zeros((*number.shape, len(states), self.num_actions), dtype=np.int64)
        amounts = self.choices[number].astype(np.int64)
        for cell, (state, action) in enumerate(self.cells):
            allocation[..., state, action] = amounts[..., cell]
        allocation[..., states, self.base] += self.counts[number] - allocation.sum(axis=-1)
        return allocation


def solve_counts(
    transitions: Floats,
    rewards: Floats,
    usage: Floats,
    limit: Floats,
    num_arms: int,
    initial: Floats,
    discount: float,
    tolerance: float = 1e-7,
    progress: Callable[[int, float], None] | None = None,
    most_rounds: int = 1000,
) -> CountOptimum:
    """The best mean value of identical arms that share a budget.

    Args:
        transitions: (state, action, next_state) probabilities.
        rewards: (state, action) rewards of an arm.
        usage: (state, action, resource) usage; in every state some action uses nothing.
        limit: (resource,) the budget, with its room for rounding.
        num_arms: how many arms there are.
        initial: (state,) law of an arm's first state.
        discount: in [0, 1).
        tolerance: how far apart the bounds may be at the end, relative to the value.
        progress: called after each round with its number and the relative gap.
        most_rounds: when to give up (NotConverged).
    """
    plan = _plan(transitions, rewards, usage, limit, num_arms, discount)
    check_shape(initial, {"state": plan.arms.num_states}, "initial")
    _check_work(plan)
    start = np.zeros(plan.num_points)
    if plan.num_points >= COARSE_FROM and num_arms >= 10 * _COARSER:
        fewer = num_arms // _COARSER
        coarse = solve_counts(
            transitions, rewards, usage, limit * (fewer / num_arms), fewer, initial, discount, _COARSE_TOLERANCE
        )
        start = interpolate(coarse.value_function, fewer, lattice_points(num_arms, plan.arms.num_states))
    return _iterate(plan, start, initial, tolerance, progress, most_rounds)


def count_work(
    transitions: Floats, rewards: Floats, usage: Floats, limit: Floats, num_arms: int, discount: float = 0.95
) -> tuple[int, float, float]:
    """What `solve_counts` would take: count states, bytes, elementary operations. Raises TooLarge beyond all reason.

    Args:
        transitions: (state, action, next_state) probabilities.
        rewards: (state, action) rewards of an arm.
        usage: (state, action, resource) usage.
        limit: (resource,) the budget.
        num_arms: how many arms there are.
        discount: in [0, 1).
    """
    plan = _plan(transitions, rewards, usage, limit, num_arms, discount)
    return plan.num_points, plan.size_in_bytes, plan.operations


class _Arms(NamedTuple):
    """The arms in terms of slots: which cells matter, and where their arms land."""

    num_arms: int
    discount: float
    base: Ints
    base_rewards: Floats
    base_rows: Floats
    extra_rows: Floats
    cells: Ints
    gains: Floats
    needs: Floats
    landings: Ints
    limit: Floats
    num_actions: int

    @property
    def num_states(self) -> int:
        return len(self.base)


def _read(transitions: Floats, rewards: Floats, usage: Floats, limit: Floats, num_arms: int, discount: float) -> _Arms:
    check_shape(rewards, {"state": None, "action": None}, "rewards")
    S, A = rewards.shape
    check_shape(transitions, {"state": S, "action": A, "next_state": S}, "transitions")
    check_shape(limit, {"resource": None}, "limit")
    check_shape(usage, {"state": S, "action": A, "resource": len(limit)}, "usage")
    check_positive_int(num_arms, "num_arms")
    check_fraction(discount, "discount", below_one=True)
    free = (usage == 0).all(axis=2)
    if not free.any(axis=1).all():
        raise InvalidInput("usage: in every state some action must use nothing of any resource")
    base = _best_free(transitions, rewards, free)
    states = np.arange(S)
    base_rows = transitions[states, base]
    cells = _useful_cells(transitions, rewards, usage, limit, base)
    landings, extra_rows = _land(transitions, cells, base_rows)
    s, a = cells.T
    gains = (rewards[s, a] - rewards[s, base[s]]) / num_arms
    return _Arms(
        num_arms=num_arms,
        discount=float(discount),
        base=base,
        base_rewards=rewards[states, base] / num_arms,
        base_rows=base_rows,
        extra_rows=extra_rows,
        cells=cells,
        gains=gains,
        needs=usage[s, a],
        landings=landings,
        limit=np.asarray(limit, dtype=np.float64),
        num_actions=A,
    )


def _same(left: Floats, right: Floats) -> bool:
    return bool(np.abs(left - right).max() <= SAME_ROW)


def _best_free(transitions: Floats, rewards: Floats, free: Floats) -> Ints:
    """(state,) the first idle action, or one with the same row and a better reward."""
    base = free.argmax(axis=1)
    for s, first in enumerate(base):
        alike = [a for a in np.flatnonzero(free[s]) if _same(transitions[s, a], transitions[s, first])]
        base[s] = max(alike, key=lambda a: rewards[s, a])
    return np.asarray(base, dtype=np.int64)


def _useful_cells(transitions: Floats, rewards: Floats, usage: Floats, limit: Floats, base: Ints) -> Ints:
    """(cell, 2) cells off base that are affordable and not dominated by a cell of the same state and row."""
    S, A = rewards.shape
    kept = []
    for s in range(S):
        for a in range(A):
            rivals = (b for b in range(A) if b != a and _same(transitions[s, a], transitions[s, b]))
            dominated = any(
                (usage[s, b] <= usage[s, a]).all()
                and rewards[s, b] >= rewards[s, a]
                and (b < a or rewards[s, b] > rewards[s, a] or (usage[s, b] < usage[s, a]).any())
                for b in rivals
            )
            if a != base[s] and not dominated and (usage[s, a] <= limit).all():
                kept.append((s, a))
    return np.asarray(np.array(kept, dtype=np.int64).reshape(-1, 2))


def _land(transitions: Floats, cells: Ints, base_rows: Floats) -> tuple[Ints, Floats]:
    """(cell,) the slot of each cell, and the (extra, next_state) rows of slots beyond the states."""
    rows = list(base_rows)
    landings = []
    for s, a in cells:
        alike = (slot for slot, row in enumerate(rows) if _same(row, transitions[s, a]))
        slot = next(alike, len(rows))
        if slot == len(rows):
            rows.append(transitions[s, a])
        landings.append(slot)
    extra = np.array(rows[len(base_rows) :]).reshape(-1, base_rows.shape[1])
    return np.array(landings, dtype=np.int64), extra


def _mixtures(extra_rows: Floats, base_rows: Floats) -> Floats | None:
    """(extra, slot) weights that make every extra row a mixture of base rows, or None."""
    weights = np.zeros((len(extra_rows), len(base_rows)))
    for e, row in enumerate(extra_rows):
        # the row of ones asks for weights that sum to 1
        solution, _ = nnls(np.vstack([base_rows.T, np.ones(len(base_rows))]), np.append(row, 1.0))
        solution[solution < 1e-15] = 0.0
        if not solution.any() or np.abs(solution @ base_rows - row).max() > _MIXTURE_ERROR:
            return None
        weights[e] = solution / solution.sum()
    return weights


class _Choice(NamedTuple):
    """What is done in each count state."""

    amounts: Indices
    """(count state, cell) arms that get each cell."""

    gains: Floats
    """(count state,) what this earns at once, beyond the base actions."""

    targets: Ints
    """(count state,) the outcome it leads to."""


class _Chooser(Protocol):
    """How the maximum over allocations is taken."""

    def improve(self, worth: Floats) -> tuple[Floats, _Choice]:
        """(count state,) the best gain plus worth of the (outcome,) outcome, and how it is reached."""


class _Climb(NamedTuple):
    """Cells in an order in which no landing is served again, and units of the one resource that binds."""

    order: Ints
    units: Ints
    num_units: int


def _climbing(arms: _Arms) -> _Climb | None:
    """How to climb the budget, or None where only the list of allocations will do."""
    order = _serving_order(arms)
    binding = arms.num_arms * arms.needs.max(axis=0, initial=0.0) > arms.limit
    if order is None or len(arms.cells) == 0 or len(arms.extra_rows) or binding.sum() > 1:
        return None
    units, room = np.ones(len(arms.cells)), float(arms.num_arms)
    if binding.any():
        need = arms.needs[:, binding][:, 0]
        if need.min() <= 0:
            return None
        units = need / need.min()
        room = min(arms.limit[binding][0] / need.min(), arms.num_arms * units.max())
    whole = np.rint(units)
    num_units = int(np.floor(room))
    fits = (np.abs(units - whole) <= 1e-12 * whole).all() and whole.max() <= _LARGEST_RATIO
    if not fits or (num_units + 1.0) ** len(arms.cells) >= 2.0**62:
        return None
    return _Climb(order, whole.astype(np.int64), num_units)


def _serving_order(arms: _Arms) -> Ints | None:
    """(cell,) cells such that none lands in the source of itself or of a later one; None if they go round."""
    sources, left, order = arms.cells[:, 0], list(range(len(arms.cells))), list[int]()
    while left:
        last = next((k for k in left if arms.landings[k] not in sources[left]), None)
        if last is None:
            return None
        order.append(last)
        left.remove(last)
    return np.array(order, dtype=np.int64)


def _list_allocations(arms: _Arms, num_points: int) -> Ints:
    """(allocation, cell) all amounts within the budget: cell by cell, dropping what breaks it."""
    chosen = np.zeros((1, 0), dtype=np.int32)
    used = np.zeros((1, len(arms.limit)))
    for need in arms.needs:
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.where(need > 0, np.floor((arms.limit - used) / need), np.inf).min(axis=1, initial=np.inf)
        number = np.minimum(arms.num_arms - chosen.sum(axis=1), room).astype(np.int64) + 1
        if number.sum() > MOST_ALLOCATIONS:
            raise TooLarge(
                f"each of {num_points} count states would choose among more than {float(number.sum()):.3g} "
                f"allocations. {_INSTEAD}"
            )
        parent = np.repeat(np.arange(len(chosen)), number)
        amount = np.arange(len(parent)) - np.repeat(np.cumsum(number) - number, number)
        chosen = np.column_stack([chosen[parent], amount.astype(np.int32)])
        used = used[parent] + amount[:, None] * need
    return chosen.astype(np.int64)


@dataclass(frozen=True, eq=False)
class _Plan:
    """What will be done, and what it takes, before anything large exists."""

    arms: _Arms
    climb: _Climb | None
    allocations: Ints
    """(allocation, cell) the list, empty when climbing."""

    extras: list[Ints]
    """By number of extra arms: (config, extra) how they may be spread over the extra rows."""

    mixtures: Floats | None
    splits: tuple[list[Split], Ints] | None

    @property
    def num_points(self) -> int:
        return lattice_size(self.arms.num_arms, self.arms.num_states)

    def size_of(self, extra: int) -> int:
        """Points of the lattice of base slots when so many arms are in extra ones."""
        return lattice_size(self.arms.num_arms - extra, self.arms.num_states)

    @property
    def num_outcomes(self) -> int:
        return sum(len(configs) * self.size_of(t) for t, configs in enumerate(self.extras))

    @property
    def base_levels(self) -> range:
        """Numbers of extra arms for which the base rows act on a lattice of their own."""
        return range(1 if self.mixtures is not None else len(self.extras))

    @property
    def size_in_bytes(self) -> float:
        mixing = sum(12.0 * self.size_of(t) * self._width(t) for t in range(1, len(self.extras)))
        if self.splits is None:
            base = sum(8.0 * self.size_of(t) ** 2 for t in self.base_levels) + 8.0 * self.num_points**2 / 2
        else:
            base = sum(4.0 * self.size_of(t) for t in self.base_levels) * len(self.splits[0])
        depth = 0 if self.climb is None else int(self.climb.units.max()) + 1
        per_point = 16.0 * (6 + self.arms.num_states) + len(self.arms.cells) * (12.0 + 16.0 * depth)
        return mixing + base + 24.0 * self.num_outcomes + per_point * self.num_points

    def _width(self, t: int) -> int:
        """Points of the small lattice that t extra arms can reach, at most."""
        rows = self.mixtures if self.mixtures is not None else self.arms.extra_rows
        return lattice_size(t, int((rows > 0).any(axis=0).sum()))

    @property
    def operations(self) -> float:
        mixing = sum(float(self.size_of(t)) * self._width(t) * len(self.extras[t]) for t in range(1, len(self.extras)))
        if self.climb is not None:
            choosing = 2.0 * self.num_points * len(self.arms.cells) * self.climb.num_units
        else:
            choosing = 2.0 * self.num_points * len(self.allocations) * self.arms.num_states
        whole = self._base_operations([len(configs) for configs in self.extras])
        # with laws, a policy is followed by one product a state, not a product for each outcome
        single = whole if self.splits is not None else float(self.num_points) ** 2
        growing = 0.0 if self.splits is not None else float(self.num_points) ** 2 * (self.arms.num_arms + 1) / 2
        rounds = _ROUNDS_GUESS * (whole + choosing + mixing) + _SWEEPS_GUESS * (single + mixing)
        return growing + rounds

    def _base_operations(self, batches: list[int]) -> float:
        """Multiplications of the base rows, for so many functions on each level."""
        window = 1.0
        if self.splits is not None:
            spread = 17.0 * max((p * (1 - p) for _, _, p in self.splits[0]), default=0.0) ** 0.5
            typical = self.arms.num_arms / self.arms.num_states
            window = max(1.0, min(spread * typical**0.5, typical)) * len(self.splits[0])
        per = (
            window * self.size_of(t) if self.splits is not None else self.size_of(t) ** 2.0 for t in self.base_levels
        )
        return sum(number * work for number, work in zip(batches, per, strict=False))

    def build(self) -> "_Dynamics":
        kernels = _compiled() if self.operations >= COMPILE_FROM else lattice_sweeps
        return _Dynamics(self, kernels)


def _compiled() -> ModuleType:
    from evenhand.kernels import compiled_sweeps

    return compiled_sweeps


def _plan(transitions: Floats, rewards: Floats, usage: Floats, limit: Floats, num_arms: int, discount: float) -> _Plan:
    arms = _read(transitions, rewards, usage, limit, num_arms, discount)
    num_points = lattice_size(num_arms, arms.num_states)
    if num_points >= 2**31:
        raise TooLarge(f"there are {float(num_points):.3g} count states. {_INSTEAD}")
    climb = _climbing(arms)
    allocations = np.zeros((0, len(arms.cells)), dtype=np.int64)
    if climb is None:
        allocations = _list_allocations(arms, num_points)
    extras = _extra_configs(arms, allocations)
    mixtures = _mixtures(arms.extra_rows, arms.base_rows) if len(extras) > 1 else None
    return _Plan(arms, climb, allocations, extras, mixtures, factorise(arms.base_rows))


def _check_work(plan: _Plan) -> None:
    what = f"the dynamic program on {plan.num_points} count states"
    check_memory(plan.size_in_bytes, what, _INSTEAD)
    if plan.operations > MOST_OPERATIONS:
        raise TooLarge(f"{what} would need about {plan.operations:.1g} operations. {_INSTEAD}")


def _extra_configs(arms: _Arms, allocations: Ints) -> list[Ints]:
    """By number of arms in extra slots: the (config, extra) ways in which listed allocations spread them."""
    number = len(arms.extra_rows)
    if number == 0:
        return [np.zeros((1, 0), dtype=np.int64)]
    spread = np.unique(_spread(arms, allocations), axis=0)
    totals = spread.sum(axis=1)
    return [spread[totals == t] for t in range(int(totals.max()) + 1)]


def _spread(arms: _Arms, allocations: Ints) -> Ints:
    """(allocation, extra) arms that land in each extra slot."""
    to_extra = arms.landings[:, None] == arms.num_states + np.arange(len(arms.extra_rows))
    return np.asarray(allocations @ to_extra.astype(np.int64))


class _Level(NamedTuple):
    """Outcomes with one number of arms in extra slots."""

    arms: int
    """Arms left in base slots."""

    size: int
    """Points of their lattice."""

    offset: int
    """Where the outcomes of this level begin; config by config, and point by point within."""

    law: Floats
    """(config, arrival) law of where the extra arms arrive."""

    reached: Indices
    """(arrival, point) the point of the whole lattice after that arrival."""


class _Dynamics:
    """The operators of the problem on counts."""

    def __init__(self, plan: _Plan, kernels: ModuleType) -> None:
        self.plan, self.kernels = plan, kernels
        arms = plan.arms
        self.points = lattice_points(arms.num_arms, arms.num_states).astype(np.int32)
        self.base_rewards = self.points @ arms.base_rewards
        self.levels = self._levels()
        self.move: _Sweeps | _Laws
        if plan.splits is not None:
            self.move = _Sweeps(arms, plan.splits, plan.base_levels, kernels)
        else:
            self.move = _Laws(arms, plan.base_levels, kernels)
        self.chooser: _Chooser = (
            _Climber(self, plan.climb) if plan.climb is not None else _Lister(self, plan.allocations)
        )

    def _levels(self) -> list[_Level]:
        rows = self.plan.mixtures if self.plan.mixtures is not None else self.plan.arms.extra_rows
        laws = _laws_of_configs(self.plan.extras, rows)
        levels, offset = [], 0
        for t, law in enumerate(laws):
            left = self.plan.arms.num_arms - t
            points = lattice_points(left, self.plan.arms.num_states)
            arrivals = lattice_points(t, self.plan.arms.num_states)
            possible = law.any(axis=0)
            columns = [lattice_index(points + z).astype(np.int32) for z in arrivals[possible]]
            levels.append(_Level(left, len(points), offset, law[:, possible], np.array(columns)))
            offset += len(law) * len(points)
        return levels

    @cached_property
    def error(self) -> float:
        """Relative to max|V| + max|r|: how far a computed T V may be from the true one."""
        arms, most = self.plan.arms, len(self.levels) - 1
        mixing = max(level.law.shape[1] for level in self.levels) + most * (arms.num_states + 2)
        steps = 4 + (self.plan.climb.num_units if self.plan.climb is not None else len(arms.cells))
        rows = arms.num_arms * arms.num_states * SAME_ROW if len(arms.cells) else 0.0
        rows += most * arms.num_states * _MIXTURE_ERROR if self.plan.mixtures is not None else 0.0
        return float(self.move.error + (mixing + steps) * UNIT + rows)

    def _mix(self, function: Floats, level: _Level) -> Floats:
        """(config, point) expectation over where the extra arms arrive."""
        if level.arms == self.plan.arms.num_arms:
            return function[None]
        return np.asarray(level.law @ function[level.reached])

    def expect(self, value: Floats, levels: Sequence[_Level] | None = None) -> Floats:
        """(outcome,) the expected value after every outcome, or after those of some levels only."""
        levels = self.levels if levels is None else levels
        if self.plan.mixtures is not None:
            moved = self.move.all(value[None], self.plan.arms.num_arms)[0]
            parts = [self._mix(moved, level) for level in levels]
        else:
            parts = [self.move.all(self._mix(value, level), level.arms) for level in levels]
        return np.concatenate([part.reshape(-1) for part in parts])

    def follow(self, targets: Ints) -> Callable[[Floats], Floats]:
        """The expected value after one outcome a count state, as a function of the value function."""
        levels, level_of, config, point = self._used(targets)
        here = [np.flatnonzero(level_of == t) for t in range(len(levels))]
        if self.plan.mixtures is not None:
            arrivals = [
                (at, level.law[config[at]].T, level.reached[:, point[at]])
                for at, level in zip(here, levels, strict=True)
            ]
            return lambda value: self._by_mixtures(value, arrivals)
        if isinstance(self.move, _Laws):
            laws = self.move
            rows = [(at, level, point[at], config[at]) for at, level in zip(here, levels, strict=True)]
            return lambda value: self._by_laws(laws, value, rows)
        offset = np.array([level.offset for level in levels])
        size = np.array([level.size for level in levels])
        places = offset[level_of] + config * size[level_of] + point
        return lambda value: self.expect(value, levels)[places]

    def _used(self, targets: Ints) -> tuple[list[_Level], Ints, Ints, Ints]:
        """Levels cut down to the configs that some target has; each target's level, config and point in them."""
        level_of = np.searchsorted([level.offset for level in self.levels], targets, side="right") - 1
        levels, offset = list[_Level](), 0
        config, point, new_level = (np.zeros(len(targets), dtype=np.int64) for _ in range(3))
        for t, level in enumerate(self.levels):
            here = np.flatnonzero(level_of == t)
            if len(here):
                old, point[here] = np.divmod(targets[here] - level.offset, level.size)
                used, config[here] = np.unique(old, return_inverse=True)
                new_level[here] = len(levels)
                levels.append(level._replace(offset=offset, law=level.law[used]))
                offset += len(used) * level.size
        return levels, new_level, config, point

    def _by_mixtures(self, value: Floats, parts: Sequence[tuple[Ints, Floats, Indices]]) -> Floats:
        """(count state,) from (states, (arrival, state) chances, (arrival, state) points) of each level."""
        moved = self.move.all(value[None], self.plan.arms.num_arms)[0]
        expected = np.empty(len(value))
        for at, chances, reached in parts:
            expected[at] = (chances * moved[reached]).sum(axis=0)
        return expected

    def _by_laws(self, laws: "_Laws", value: Floats, parts: Sequence[tuple[Ints, _Level, Ints, Ints]]) -> Floats:
        """(count state,) from (states, level, points, configs) of each level."""
        expected = np.empty(len(value))
        for at, level, point, config in parts:
            expected[at] = laws.some(self._mix(value, level), level.arms, point, config)
        return expected


def _laws_of_configs(extras: list[Ints], rows: Floats) -> list[Floats]:
    """By number of arms: the (config, point) laws of where arms of these configs arrive, one arm added at a time."""
    laws = [np.ones((1, 1))]
    for t in range(1, len(extras)):
        smaller = {tuple(config): i for i, config in enumerate(extras[t - 1])}
        last = (extras[t] > 0).argmax(axis=1)
        without = extras[t].copy()
        without[np.arange(len(last)), last] -= 1
        parent = np.array([smaller[tuple(config)] for config in without], dtype=np.int32)
        below = lattice_below(t, rows.shape[1])
        laws.append(lattice_sweeps.grow_law(laws[-1], rows, last.astype(np.int32), parent, below))
    return laws


class _Sweeps:
    """The base rows as splits."""

    def __init__(self, arms: _Arms, splits: tuple[list[Split], Ints], levels: range, kernels: ModuleType) -> None:
        self.kernels = kernels
        steps, self.ends = splits
        bands = [binomial_bands(arms.num_arms, p) for _, _, p in steps]
        self.sweeps = {}
        self.relabelled = {}
        for left in (arms.num_arms - t for t in levels):
            lines = {(i, j): lattice_lines(left, arms.num_states, i, j) for i, j, _ in steps}
            self.sweeps[left] = [(lines[i, j], band) for (i, j, _), band in zip(steps, bands, strict=True)]
            if (self.ends != np.arange(arms.num_states)).any():
                points = lattice_points(left, arms.num_states)
                self.relabelled[left] = lattice_index(points[:, np.argsort(self.ends)])
        self.error = sum(
            2 * lattice_sweeps.TAIL + (3 * arms.num_arms + int(np.diff(band.starts).max())) * UNIT for band in bands
        ) + arms.num_arms * lattice_sweeps.product_error(arms.base_rows, steps, self.ends)

    def all(self, functions: Floats, left: int) -> Floats:
        """(batch, point) expectations of (batch, point) functions of the next counts of so many arms."""
        if self.relabelled:
            functions = functions[:, self.relabelled[left]]
        functions = np.ascontiguousarray(functions)
        for lines, band in reversed(self.sweeps[left]):
            functions = self.kernels.sweep_lines(functions, lines, band)
        return functions


class _Laws:
    """The base rows as tables of laws."""

    def __init__(self, arms: _Arms, levels: range, kernels: ModuleType) -> None:
        self.kernels = kernels
        self.laws: dict[int, Floats] = {}
        law = np.ones((1, 1))
        for n in range(arms.num_arms + 1):
            if n:
                points = lattice_points(n, arms.num_states)
                below = lattice_below(n, arms.num_states)
                leaving = (points > 0).argmax(axis=1).astype(np.int32)
                parent = below[np.arange(len(points)), leaving]
                law = kernels.grow_law(law, arms.base_rows, leaving, parent, below)
            if arms.num_arms - n in levels:
                self.laws[n] = law
        self.error = (arms.num_arms * (arms.num_states + 1) + len(law)) * UNIT

    def all(self, functions: Floats, left: int) -> Floats:
        """(batch, point) expectations of (batch, point) functions of the next counts of so many arms."""
        return np.asarray(functions @ self.laws[left].T)

    def some(self, functions: Floats, left: int, point: Ints, config: Ints) -> Floats:
        """(pair,) expectations at chosen points of chosen functions."""
        return np.asarray(self.kernels.dot_rows(self.laws[left], functions, point, config))


class _Climber:
    """The maximum by climbing the budget."""

    def __init__(self, dynamics: _Dynamics, climb: _Climb) -> None:
        arms = dynamics.plan.arms
        self.dynamics, self.climb = dynamics, climb
        self.gains = arms.gains[climb.order]
        self.ends = arms.cells[climb.order, 0], arms.landings[climb.order]
        self.steps = lattice_steps(dynamics.points, *self.ends)
        self.digits = climb.num_units + 1
        kind = np.int32 if float(self.digits) ** len(climb.order) < 2**31 else np.int64
        self.strides = (self.digits ** np.arange(len(climb.order), dtype=np.int64)).astype(kind)
        self.tables = lattice_tables(arms.num_arms, arms.num_states)

    def improve(self, worth: Floats) -> tuple[Floats, _Choice]:
        kernels, units = self.dynamics.kernels, self.climb.units[self.climb.order]
        best, code = kernels.climb_budget(worth, self.gains, units, self.steps, self.strides, self.climb.num_units)
        amounts, gains, targets = kernels.decode_climb(
            self.dynamics.points, code, self.gains, *self.ends, self.digits, self.tables
        )
        return best, _Choice(amounts[:, np.argsort(self.climb.order)], gains, targets)


class _Lister:
    """The maximum by going through the list of allocations."""

    def __init__(self, dynamics: _Dynamics, allocations: Ints) -> None:
        self.dynamics, self.allocations = dynamics, allocations
        arms = dynamics.plan.arms
        S = arms.num_states
        takes = allocations @ (arms.cells[:, :1] == np.arange(S)).astype(np.int64)
        lands = allocations @ (arms.landings[:, None] == np.arange(S)).astype(np.int64)
        spread = _spread(arms, allocations)
        extra = spread.sum(axis=1)
        number = {tuple(row): i for configs in dynamics.plan.extras for i, row in enumerate(configs)}
        config = np.array([number[tuple(row)] for row in spread], dtype=np.int64)
        size = np.array([level.size for level in dynamics.levels])
        offset = np.array([level.offset for level in dynamics.levels])
        self.listed = Listed(
            takes=takes.astype(np.int32),
            shifts=(lands - takes).astype(np.int32),
            arms=(arms.num_arms - extra).astype(np.int32),
            offsets=offset[extra] + config * size[extra],
            gains=allocations @ arms.gains,
        )
        self.tables = lattice_tables(arms.num_arms, S)

    def improve(self, worth: Floats) -> tuple[Floats, _Choice]:
        points, listed = self.dynamics.points, self.listed
        best, number = self.dynamics.kernels.best_listed(points, listed, self.tables, worth)
        reached = number_points(points + listed.shifts[number], listed.arms[number], self.tables)
        choice = _Choice(self.allocations[number], listed.gains[number], listed.offsets[number] + reached)
        return best, choice


class _Bounds(NamedTuple):
    """What one application of T tells about the optimum from the initial law."""

    low: float
    high: float
    slack: float
    """What of the gap is due to rounding and cut tails, on either side."""

    scale: float
    """What the gap is compared with: the value, unless it is next to nothing."""

    @property
    def gap(self) -> float:
        return (self.high - self.low) / self.scale if self.scale > 0 else 0.0


def _bound(dynamics: _Dynamics, first_law: Floats, value: Floats, improved: Floats) -> _Bounds:
    """Bounds by T V - V, widened by what rounding may have done.

    Args:
        dynamics: the operators.
        first_law: (count state,) law of the first counts.
        value: (count state,) V.
        improved: (count state,) T V.
    """
    arms = dynamics.plan.arms
    left = 1 - arms.discount
    rewards = float(np.abs(dynamics.base_rewards).max() + arms.num_arms * np.abs(arms.gains).max(initial=0.0))
    law_error = 16 * UNIT * (float(gammaln(arms.num_arms + 2)) + 4)
    slack = dynamics.error * (float(np.abs(value).max()) + rewards) / left
    slack += law_error * float(np.abs(improved).max())
    change = improved - value
    mean = float((first_law * improved).sum())  # summed in pairs: less rounding than a product
    low = mean + arms.discount / left * float(change.min()) - slack
    high = mean + arms.discount / left * float(change.max()) + slack
    return _Bounds(low, high, slack, max(abs(low), abs(high), 1e-6 * rewards / left))


def _iterate(
    plan: _Plan,
    value: Floats,
    initial: Floats,
    tolerance: float,
    progress: Callable[[int, float], None] | None,
    most_rounds: int,
) -> CountOptimum:
    """Modified policy iteration from a first guess of the value function."""
    arms, dynamics = plan.arms, plan.build()
    first_law = multinomial_law(dynamics.points, initial)
    for number in range(1, most_rounds + 1):
        best, choice = dynamics.chooser.improve(arms.discount * dynamics.expect(value))
        improved = dynamics.base_rewards + best
        bounds = _bound(dynamics, first_law, value, improved)
        change = improved - value
        value = improved + arms.discount / (1 - arms.discount) * _middle(change)
        if progress is not None:
            progress(number, bounds.gap)
        if bounds.high - bounds.low <= max(tolerance * bounds.scale, 4 * bounds.slack):  # rounding may be wider
            return CountOptimum(
                lower_bound=bounds.low,
                upper_bound=bounds.high,
                cells=arms.cells,
                base=arms.base,
                choices=choice.amounts.astype(np.int32),
                value_function=value,
                num_arms=arms.num_arms,
                num_actions=arms.num_actions,
                rounds=number,
            )
        follow = dynamics.follow(choice.targets)
        rewards = dynamics.base_rewards + choice.gains
        value = _evaluate(follow, rewards, arms.discount, value, float(np.ptp(change)))
    raise NotConverged(f"the relative gap is still {bounds.gap:.3g} after {most_rounds} rounds")


def _middle(change: Floats) -> float:
    return float(change.min() + change.max()) / 2


def _evaluate(
    follow: Callable[[Floats], Floats], rewards: Floats, discount: float, value: Floats, width: float
) -> Floats:
    """Apply the operator of one policy until its change is a tenth as wide as before."""
    for _ in range(_MOST_SWEEPS):
        following = rewards + discount * follow(value)
        change = following - value
        value = following + discount / (1 - discount) * _middle(change)
        if np.ptp(change) <= _SHRINK * width:
            break
    return value
