"""Frontiers and levels of the fluid relaxation in NumPy (`kernels.fluid_sweeps`), all types at the same time."""

from collections.abc import Callable

import numpy as np

from evenhand.kernels import Traced, fluid_sweeps
from evenhand.typing import Bools, Floats, Ints

Mass = Callable[[Ints], Floats]
"""The sum of the m smallest rank weights, for many m."""


# -- frontiers --------------------------------------------------------------------------------------------------------


def trace_frontiers(
    transitions: Floats,
    rewards: Floats,
    usage: Floats,
    initial: Floats,
    allowed: Bools,
    prices: Floats,
    discount: float,
    total: float,
    capacity: int,
) -> Traced:
    """The frontiers of many types, in NumPy, all types pivoting at the same time.

    Args:
        transitions: (type, state, action, next_state) probabilities.
        rewards: (type, state, action) rewards.
        usage: (type, state, action, resource) usage.
        initial: (type, state) distributions of the first state.
        allowed: (type, state, action) actions that may be taken; in every real state one that costs nothing.
        prices: (resource,) price of a unit of each resource.
        discount: what a reward one step later is worth.
        total: what a reward of 1 at every step is worth.
        capacity: vertices for which there is room.
    """
    num_types, num_states, num_actions = rewards.shape
    # (type, state, action, stage) reward first, then the use of each resource: all are summed over time alike.
    stages = np.concatenate([rewards[..., None], usage], axis=-1)
    largest = np.abs(rewards * allowed).max(axis=(1, 2)) * total
    free = allowed & ((usage * prices).sum(axis=-1) == 0)
    # Phase 1: the best policy that costs nothing, by policy iteration from the first free actions.
    policy = free.argmax(axis=-1)
    rows = np.arange(num_types)
    found = Traced(
        np.ones(num_types, dtype=np.int64),
        np.zeros((num_types, capacity)),
        np.zeros((num_types, capacity, usage.shape[-1])),
        np.full((num_types, capacity), np.inf),
        np.zeros((num_types, capacity, num_states), dtype=np.int16),
    )
    while True:  # the best policy that costs nothing
        totals = _evaluate(transitions, stages, policy, discount)
        gain = np.where(free, _advantages(transitions, stages, totals, discount)[..., 0], -np.inf)
        better = gain.max(axis=-1) > fluid_sweeps.ADVANTAGE * largest[:, None]
        if not better.any():
            break
        policy = np.where(better, gain.argmax(axis=-1), policy)
    _store(found, rows, np.zeros(num_types, dtype=np.int64), _ends(initial, totals), policy)
    # Now the weight g rises from 0, and each type takes the pair that pays first, all types in step; one that has no
    # pair left has reached its best value.
    weight = np.zeros(num_types)
    while True:
        advantages = _advantages(transitions, stages, totals, discount)
        gain, cost = advantages[..., 0], advantages[..., 1:] @ prices
        # Rounding must not pass for a gain: its ratio could be anything.
        useful = allowed & (gain > fluid_sweeps.ADVANTAGE * largest[:, None, None])
        ratios = np.where(useful, cost / np.where(useful, gain, 1.0), np.inf).reshape(num_types, -1)
        # Of equal ratios the first: in whatever order they are taken, they lie on one edge.
        pair = ratios.argmin(axis=-1)
        moving = np.flatnonzero(np.isfinite(ratios[rows, pair]))
        if not len(moving):
            return found
        # Ratios can fall back by rounding; slopes of a convex polygon cannot.
        weight[moving] = np.maximum(weight[moving], ratios[moving, pair[moving]])
        # Pairs are numbered state by state, action by action.
        policy[moving, pair[moving] // num_actions] = pair[moving] % num_actions
        totals = _evaluate(transitions, stages, policy, discount)
        _extend(found, moving, weight[moving], _ends(initial, totals)[moving], policy[moving], largest[moving])


def _evaluate(transitions: Floats, stages: Floats, policy: Ints, discount: float) -> Floats:
    """(type, state, stage) discounted sums of every stage quantity under a policy (type, state)."""
    chosen = np.take_along_axis(transitions, policy[:, :, None, None], axis=2)[:, :, 0]
    now = np.take_along_axis(stages, policy[:, :, None, None], axis=2)[:, :, 0]
    return np.asarray(np.linalg.solve(np.eye(policy.shape[1]) - discount * chosen, now), dtype=np.float64)


def _advantages(transitions: Floats, stages: Floats, totals: Floats, discount: float) -> Floats:
    """(type, state, action, stage) what one deviation adds to each sum."""
    ahead = np.einsum("tsaj,tjx->tsax", transitions, totals)
    return np.asarray(stages + discount * ahead - totals[:, :, None])


def _ends(initial: Floats, totals: Floats) -> Floats:
    return np.asarray(np.einsum("ts,tsx->tx", initial, totals))


def _store(found: Traced, rows: Ints, places: Ints, ends: Floats, policy: Ints) -> None:
    fits = places < found.values.shape[1]
    rows, places = rows[fits], places[fits]
    found.values[rows, places] = ends[fits, 0]
    found.uses[rows, places] = ends[fits, 1:]
    found.policies[rows, places] = policy[fits]


def _extend(found: Traced, rows: Ints, weight: Floats, ends: Floats, policy: Ints, largest: Floats) -> None:
    """Add a vertex to each of the rows, unless it is the last one again; in line with the last edge it replaces it."""
    # Without room left, lengths still count, so that the caller knows how much to give.
    last = np.minimum(found.lengths[rows], found.values.shape[1]) - 1
    rises = ends[:, 0] - found.values[rows, last] > fluid_sweeps.SAME * largest
    # Before the first edge any slope is a new one.
    before = np.where(last > 0, found.slopes[rows, np.maximum(last - 1, 0)], -1.0)
    opens = rises & (weight > before + fluid_sweeps.SAME * np.abs(before))
    found.slopes[rows[opens], last[opens]] = weight[opens]
    found.lengths[rows[opens]] += 1
    _store(found, rows[rises], found.lengths[rows[rises]] - 1, ends[rises], policy[rises])


# -- levels -----------------------------------------------------------------------------------------------------------


def settle_levels(starts: Ints, values: Floats, slopes: Floats, counts: Ints, mass: Mass) -> Floats:
    """(type,) the values that maximise W(v) - sum_n c_n(v_n), the largest such, in NumPy, all blocks at the same time.

    Args:
        starts: (type + 1,) where the vertices of each type begin.
        values: (vertex,) values.
        slopes: (vertex,) marginal cost beyond each vertex; infinite at the last of a type.
        counts: (type,) arms of each type.
        mass: the sum of the m smallest rank weights.
    """
    num_types = len(counts)
    settled = np.empty(num_types)
    active = np.arange(num_types)
    block = np.zeros(num_types, dtype=np.int64)  # of each active type; blocks are numbered from 0
    low, high, top = np.array([-np.inf]), np.array([np.inf]), np.zeros(1, dtype=np.int64)
    while len(active):
        # Phase 1: cut every block at a middle vertex, and see who wants to be above that level.
        pivot, empty = _middle_vertices(starts, values, active, block, low, high)
        below, above = _marginal_costs(starts, values, slopes, active, pivot[block])
        # Who wants to be above the pivot's level, counted just below it, and who still does just above it.
        kept = _best_prefixes(below, counts[active], block, top, mass, np.ones(len(active), dtype=np.bool_))
        over = _best_prefixes(above, counts[active], block, top, mass, kept)
        # Who would be above p from below, but not beyond it, settles at p; with no vertex inside, all settle at an end.
        tied = (kept & ~over) | empty[block]
        settled[active[tied]] = np.where(kept, pivot[block], low[block])[tied]
        arms = np.bincount(block, weights=np.where(kept, counts[active], 0), minlength=len(top)).astype(np.int64)
        # Each block falls into an upper (2b) and a lower (2b + 1) one. The lower keeps more arms on top of it.
        label = 2 * block + ~kept
        names, label = np.unique(label[~tied], return_inverse=True)
        parent, lower = np.divmod(names, 2)
        low = np.where(lower == 1, low[parent], pivot[parent])
        high = np.where(lower == 1, pivot[parent], high[parent])
        top = top[parent] + np.where(lower == 1, arms[parent], 0)
        active, block = active[~tied], label
    return np.clip(settled, values[starts[:-1]], values[starts[1:] - 1])  # against rounding


def _vertices_of(starts: Ints, active: Ints) -> tuple[Ints, Ints]:
    """The vertices of some types, and for each vertex the place of its type among them."""
    lengths = starts[active + 1] - starts[active]
    owner = np.repeat(np.arange(len(active)), lengths)
    first = np.cumsum(lengths) - lengths
    # Runs of consecutive numbers, each from where its type's vertices begin.
    return np.arange(len(owner)) - first[owner] + starts[active][owner], owner


def _middle_vertices(
    starts: Ints, values: Floats, active: Ints, block: Ints, low: Floats, high: Floats
) -> tuple[Floats, Bools]:
    """(block,) the median of the block's vertices strictly inside its interval; the upper end where there is none."""
    vertices, owner = _vertices_of(starts, active)
    of_block, level = block[owner], values[vertices]
    inside = (level > low[of_block]) & (level < high[of_block])
    of_block, level = of_block[inside], level[inside]
    ordered = level[np.lexsort((level, of_block))]
    sizes = np.bincount(of_block, minlength=len(low))
    first = np.cumsum(sizes) - sizes
    pivot = high.copy()
    pivot[sizes > 0] = ordered[(first + sizes // 2)[sizes > 0]]
    return pivot, sizes == 0


def _marginal_costs(
    starts: Ints, values: Floats, slopes: Floats, active: Ints, levels: Floats
) -> tuple[Floats, Floats]:
    """(active type,) marginal costs just below and just above a level: nothing before the first vertex."""
    vertices, owner = _vertices_of(starts, active)
    # The slope behind the last vertex that is before the level, and behind the last that is not beyond it.
    level, first = levels[owner], starts[active]
    before = np.bincount(owner, weights=values[vertices] < level, minlength=len(active)).astype(np.int64)
    up_to = np.bincount(owner, weights=values[vertices] <= level, minlength=len(active)).astype(np.int64)
    below = np.where(before > 0, slopes[np.maximum(first + before - 1, 0)], 0.0)
    above = np.where(up_to > 0, slopes[np.maximum(first + up_to - 1, 0)], 0.0)
    return below, above


def _best_prefixes(costs: Floats, counts: Ints, block: Ints, top: Ints, mass: Mass, among: Bools) -> Bools:
    """(active type,) whether it is in the best set of its block, the largest such, within `among`."""
    # Block by block, candidates first, the cheapest first: then the best set is a prefix, and one cumulative sum does.
    order = np.lexsort((costs, ~among, block))
    finite = among[order] & np.isfinite(costs[order])
    spent = np.where(finite, costs[order], 0.0) * counts[order]
    size = np.where(among[order], counts[order], 0)
    first = np.flatnonzero(np.diff(block[order], prepend=-1))
    of_block = block[order]
    arms, total = np.cumsum(size), np.cumsum(spent)
    # Sums within the block: subtract the sum before its first entry.
    arms -= (arms[first] - size[first])[of_block]
    total -= (total[first] - spent[first])[of_block]
    # What a prefix gains: the weights of its ranks, less what it costs; the empty one gains nothing.
    gain = np.where(finite, mass(top[of_block] + arms) - mass(top)[of_block] - total, -np.inf)
    best = np.maximum(np.maximum.reduceat(gain, first), 0.0)
    places = np.arange(len(order))
    # Of equally good prefixes the longest: the largest solution is the one that is nested in the level.
    last = np.maximum.reduceat(np.where(gain >= best[of_block], places, -1), first)
    inside = np.empty(len(order), dtype=np.bool_)
    inside[order] = places <= last[of_block]
    return inside
