"""Frontiers of value against cost of each type of arm, occupancy measures and certified weighted optima.

An arm's occupancy measures q count visits by the criterion's weights (`model.criterion`), together `total`:

    discounted   sum_a q(s, a) = mu(s) + gamma sum_{s', a} p(s | s', a) q(s', a)
    average      sum_a q(s, a) = sum_{s', a} p(s | s', a) q(s', a),    sum q = 1
    finite       q_t, one a step, from q_0 = mu on

Its value is V = q.r, its use U = q.d, and it is served q.[d > 0] of the time: at least floor total, if it has a floor.
At prices lambda the least cost lambda.U of a value is a convex polygon, and a point on an edge is a mixture of the
measures at its ends. How polygons are traced:

    discounted, without floors   by pivots (`kernels.fluid_sweeps`); vertices are deterministic policies
    else                         by halving: the best response to the slope of an edge lies on the edge, or is a
                                 new vertex that cuts it in two (Eisner and Severance 1976); two responses per vertex,
                                 each one solution of single arms (`single_arm`)

A floor. If the best response q of an arm is not served enough, service gets a price: at the right price phi some
response is served too little and an equally good one enough, and their mixture is the best within the floor. The
price is found as a vertex is, on the polygon of value against time served.

Groups. A group's value is the mean of its arms', so its frontier has the edges of its arms' frontiers, by their slopes
(`merge`).

The weighted optimum over all measures within the floor is bounded from above, for any price phi >= 0, by

    max_q (g V - lambda.U)  <=  max_q (g V - lambda.U + phi q.[d > 0]) - phi floor total,

and the right-hand side by Bellman's inequality (`single_arm`), so a bound depends neither on the accuracy of the
frontiers, nor on rounding in the solution of linear systems.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from evenhand import kernels
from evenhand.model.arm import ArmTables
from evenhand.model.criterion import Criterion
from evenhand.parallel import in_order
from evenhand.solvers.single_arm import SingleArms, as_measure, discounted_visits, gains_at, pick
from evenhand.typing import Array, Bools, Floats, Indices, Ints

CHUNK = 1 << 14
"""Types whose tables are worked on at once."""

FIRST_CAPACITY = 8
"""Vertices of a frontier for which there is room at first."""

SAME = 1e-12
"""Values whose difference is no more than this share of the largest are one."""

NEAR = 1e-10
"""A vertex this near to an edge, as a share of the largest cost, is on it."""

MOST_HALVINGS = 60
"""Rounds of the search for the price of a floor; the remaining error goes into the bound."""


# -- frontiers --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Frontiers:
    """The frontiers of all types at some prices, one after the other."""

    starts: Ints
    """(type + 1,) where the vertices of each type begin."""

    values: Floats
    """(vertex,) values, rising within a type."""

    uses: Floats
    """(vertex, resource) use over all time, by the criterion's weights."""

    slopes: Floats
    """(vertex,) cost of one more unit of value beyond the vertex, rising within a type; infinite at the last."""

    policies: Indices | None = None
    """(vertex, state) the action in each state, where frontiers were traced by pivots."""

    measures: Floats | None = None
    """(vertex, ...) occupancy measures, where they were traced by halving."""

    @property
    def first(self) -> Ints:
        """(type,) the vertices that cost least: nothing, unless a floor has its cost."""
        return self.starts[:-1]

    @property
    def last(self) -> Ints:
        """(type,) the vertices of most value."""
        return self.starts[1:] - 1

    @cached_property
    def owner(self) -> Indices:
        """(vertex,) the type of each vertex."""
        return np.repeat(np.arange(len(self.first), dtype=np.int32), np.diff(self.starts))

    def at_price(self, price: float) -> "Frontiers":
        """The same frontiers when all prices are multiplied by one number."""
        # Slopes are costs, so they scale with the price; 0 times infinity must stay infinite.
        return replace(self, slopes=self.slopes * price if price > 0 else np.where(np.isinf(self.slopes), np.inf, 0.0))

    def by_type(self, values: Floats) -> Floats:
        """(type,) the values of all types that go with values on the frontiers: here the same."""
        return values

    def _count(self, marks: Bools) -> Ints:
        """(type,) how many vertices of each type are marked."""
        # Every type has at least one vertex, so no segment of the sums is empty.
        return np.add.reduceat(marks, self.first, dtype=np.int64)

    def locate(self, values: Floats) -> tuple[Ints, Floats]:
        """(type,) the vertex at or before each value, and the share of the next vertex in the mixture of that value."""
        passed = self._count(self.values <= values[self.owner])
        # Values below the first vertex, by rounding, count as the first.
        vertex = self.first + np.maximum(passed - 1, 0)
        following = np.minimum(vertex + 1, self.last)
        length = self.values[following] - self.values[vertex]
        share = np.where(length > 0, (values - self.values[vertex]) / np.where(length > 0, length, 1.0), 0.0)
        return vertex, np.clip(share, 0.0, 1.0)

    def use(self, values: Floats) -> Floats:
        """(type, resource) the use that goes with values on the frontiers."""
        vertex, share = self.locate(values)
        following = np.minimum(vertex + 1, self.last)
        return np.asarray(self.uses[vertex] + share[:, None] * (self.uses[following] - self.uses[vertex]))

    def marginal(self, values: Floats) -> tuple[Floats, Floats]:
        """(type,) the cost of the last unit of value, and that of one more."""
        level = values[self.owner]
        # At a vertex they differ: the last unit came along the edge before it, the next goes along the one behind.
        before, up_to = self._count(self.values < level), self._count(self.values <= level)
        below = np.where(before > 0, self.slopes[self.first + np.maximum(before - 1, 0)], 0.0)
        above = np.where(up_to > 0, self.slopes[self.first + np.maximum(up_to - 1, 0)], 0.0)
        return below, above

    def best_vertices(self, weights: Floats) -> Ints:
        """(type,) the vertex that maximises weight times value, less cost; the one of most value among equals."""
        return np.asarray(self.first + self._count(self.slopes <= weights[self.owner]))


@dataclass(frozen=True, eq=False)
class MergedFrontiers(Frontiers):
    """The frontiers of groups: the edges of their types' frontiers, by slope."""

    parts: Frontiers = None  # type: ignore[assignment]  # always given
    """The frontiers of the types."""

    edges: Ints = None  # type: ignore[assignment]  # always given
    """(edge,) the vertex of `parts` at which each edge begins, group by group."""

    def by_type(self, values: Floats) -> Floats:
        """(type,) the values of all types that go with the values of their groups."""
        vertex, share = self.locate(values)
        # Edges of a group are taken by their slopes: all that were passed, and a share of the one that is open.
        passed = (vertex - self.first)[self._group_of_edge]
        taken = np.clip(passed + share[self._group_of_edge] - self._place_of_edge, 0.0, 1.0)
        length = self.parts.values[self.edges + 1] - self.parts.values[self.edges]
        more = np.bincount(self.parts.owner[self.edges], weights=taken * length, minlength=len(self.parts.first))
        reached = self.parts.values[self.parts.first] + more
        return np.asarray(np.minimum(reached, self.parts.values[self.parts.last]))

    @cached_property
    def _group_of_edge(self) -> Ints:
        return np.repeat(np.arange(len(self.first)), np.diff(self.starts) - 1)

    @cached_property
    def _place_of_edge(self) -> Ints:
        begins = self.first - np.arange(len(self.first))  # a group has one edge less than vertices
        return np.arange(len(self.edges)) - begins[self._group_of_edge]


def merge(parts: Frontiers, groups: Indices, counts: Ints) -> MergedFrontiers:
    """The frontiers of the mean values of groups; uses are those of all arms of a group together.

    Args:
        parts: the frontiers of the types.
        groups: (type,) the group of each type.
        counts: (type,) number of arms of each type.
    """
    # Phase 1: all edges of all types, by group and slope; the last vertex of a type begins none.
    size = np.bincount(groups, weights=counts)
    begins = np.flatnonzero(~np.isinf(parts.slopes))
    kind = parts.owner[begins]
    order = np.lexsort((parts.slopes[begins], groups[kind]))
    begins, kind = begins[order], kind[order]
    of = groups[kind]
    # An arm's rise counts in the mean by its share; the edge is taken by all arms of the type at once.
    share = counts[kind] / size[of]
    lengths = np.bincount(of, minlength=len(size)) + 1
    starts = np.concatenate([[0], np.cumsum(lengths)])
    rises, extra = (
        share * (parts.values[begins + 1] - parts.values[begins]),
        parts.uses[begins + 1] - parts.uses[begins],
    )
    # Phase 2: where each group begins, at the values that cost nothing ...
    free_value = np.bincount(groups, weights=counts / size[groups] * parts.values[parts.first]).astype(np.float64)
    free_use = np.zeros((len(size), parts.uses.shape[1]))
    np.add.at(free_use, groups, counts[:, None] * parts.uses[parts.first])
    # Phase 3: ... and the vertices from there on, edge after edge. `inner` marks all vertices but the first of a group.
    slopes = np.full(starts[-1], np.inf)
    inner = np.ones(starts[-1], dtype=np.bool_)
    inner[starts[:-1]] = False
    # One more unit of the mean takes size / count units of each arm of the type, count arms at a slope each.
    slopes[np.flatnonzero(inner) - 1] = parts.slopes[begins] * size[of]
    values = _sums_from(free_value[:, None], rises[:, None], starts, inner)[:, 0]
    uses = _sums_from(free_use, counts[kind][:, None] * extra, starts, inner)
    return MergedFrontiers(starts, values, uses, slopes, parts=parts, edges=begins)


def _sums_from(first: Floats, steps: Floats, starts: Ints, inner: Bools) -> Floats:
    """(vertex, ...) the first entry of each group, and from it on the running sums of its steps."""
    sums = np.empty((starts[-1], first.shape[1]))
    sums[starts[:-1]] = first
    sums[inner] = steps
    for group in range(len(first)):  # one by one, so that the sums of one group do not round those of the next
        part = sums[starts[group] : starts[group + 1]]
        np.cumsum(part, axis=0, out=part)
    return sums


@dataclass(frozen=True, eq=False)
class FluidModel:
    """Types of arms, how many there are of each, and what they share over all time."""

    types: ArmTables
    """The arms."""

    counts: Ints
    """(type,) number of arms of each type."""

    budget: Floats
    """(resource,) what is available, and can be used, at every step."""

    criterion: Criterion
    """Criterion of rewards over time."""

    initial: Floats
    """(type, state) distributions of the first state."""

    groups: Indices | None = None
    """(type,) the group of each type; None where welfare is over arms."""

    floors: Floats | None = None
    """(type,) the least share of time in which each arm is served; None where there are none."""

    spends_all: Bools | None = None
    """(resource,) whether exactly the budget is used, so that prices may be negative; None if none is."""

    @cached_property
    def allowance(self) -> Floats:
        """(resource,) the budget of all steps."""
        return self.budget * self.criterion.total

    @cached_property
    def sizes(self) -> Ints:
        """(member,) how many members of welfare each member of the frontiers stands for."""
        return self.counts if self.groups is None else np.ones(int(self.groups.max()) + 1, dtype=np.int64)

    @property
    def num_members(self) -> int:
        """Number of arms, or groups, of the welfare."""
        return int(self.sizes.sum())

    @cached_property
    def arms(self) -> SingleArms:
        """The arms on their own."""
        return SingleArms(self.types, self.types.valid, self.initial, self.criterion)

    @property
    def by_pivots(self) -> bool:
        """True if frontiers are traced by pivots."""
        return self.criterion.contracts and self.floors is None

    def __len__(self) -> int:
        return len(self.counts)

    def chunks(self) -> Iterator[slice]:
        """Parts of the types that are worked on at once."""
        # A type with steps has a table per step.
        size = max(1, CHUNK // self.criterion.num_layers)
        return (slice(start, start + size) for start in range(0, len(self), size))

    def members(self, values: Floats) -> Floats:
        """(member,) values of the members of welfare.

        Args:
            values: (type,) values.
        """
        if self.groups is None:
            return values
        sums = np.bincount(self.groups, weights=values * self.counts)
        return np.asarray(sums / np.bincount(self.groups, weights=self.counts))

    def weights_of_types(self, weights: Floats) -> Floats:
        """(type,) weights of the value of one arm.

        Args:
            weights: (member,) weights of the value of one member.
        """
        if self.groups is None:
            return weights
        # A group's value is a mean: of a unit of it, one arm counts for 1 / size.
        return np.asarray((weights / np.bincount(self.groups, weights=self.counts))[self.groups])

    def trace(self, prices: Floats) -> Frontiers:
        """The frontiers of the members at some prices.

        Args:
            prices: (resource,) price of a unit of each resource.
        """
        parts = self._trace_by_pivots(prices) if self.by_pivots else _trace_by_halving(self, prices)
        return parts if self.groups is None else merge(parts, self.groups, self.counts)

    # -- tracing by pivots --------------------------------------------------------------------------------------------

    def _trace_by_pivots(self, prices: Floats) -> Frontiers:
        parts = list(in_order(lambda part: self._trace_part(part, prices), self.chunks()))
        lengths, *tables = (np.concatenate(column) for column in zip(*parts, strict=True))
        return Frontiers(np.concatenate([[0], np.cumsum(lengths)]), *tables)

    def _trace_part(self, part: slice, prices: Floats) -> tuple[Array, ...]:
        types, time, capacity = self.types, (self.criterion.factor, self.criterion.total), FIRST_CAPACITY
        tables = (types.transitions[part], types.rewards[part], types.usage[part], self.initial[part])
        # Few frontiers are long. Where one does not fit, its part is traced again with room for all.
        while True:
            given = (*tables, self.types.valid[part])
            found = kernels.trace_frontiers(given, types.num_states[part], prices, *time, capacity)
            if found.lengths.max() <= capacity:
                real = np.arange(capacity) < found.lengths[:, None]
                return found.lengths, *(table[real] for table in found[1:])
            capacity = int(found.lengths.max()) + FIRST_CAPACITY

    # -- measures, and their sums -------------------------------------------------------------------------------------

    def occupancy_at(self, frontiers: Frontiers, values: Floats) -> Floats:
        """(type, state, action), or (type, step, state, action): the measures of members' values on frontiers."""
        parts = frontiers.parts if isinstance(frontiers, MergedFrontiers) else frontiers
        vertex, share = parts.locate(frontiers.by_type(values))
        following = np.minimum(vertex + 1, parts.last)
        if parts.measures is not None:
            spread = share.reshape(-1, *[1] * (parts.measures.ndim - 1))
            return np.asarray((1 - spread) * parts.measures[vertex] + spread * parts.measures[following])
        ends = [(vertex, 1.0 - share), (following, share)]
        return np.concatenate(list(in_order(lambda part: self._mixed_visits(parts, ends, part), self.chunks())))

    def _mixed_visits(self, frontiers: Frontiers, ends: Sequence[tuple[Ints, Floats]], part: slice) -> Floats:
        """(row, state, action) shares of the measures of vertices, of some types."""
        assert frontiers.policies is not None
        measure = np.zeros_like(self.types.rewards[part])
        for vertex, share in ends:
            if (share[part] > 0).any():
                policy = frontiers.policies[vertex[part]].astype(np.int64)
                chain = pick(self.types.transitions[part], policy)
                visits = discounted_visits(chain, self.initial[part], self.criterion.factor) * share[part, None]
                measure += as_measure(visits, policy, measure.shape[2])
        return measure

    def totals(self, measure: Floats, rows: Ints | slice = slice(None)) -> tuple[Floats, Floats]:
        """(row,) values and (row, resource) uses of occupancy measures of some types."""
        if measure.ndim == 4:
            measure = measure.sum(axis=1)
        values = np.einsum("tsa,tsa->t", measure, self.types.rewards[rows])
        return values, np.einsum("tsa,tsak->tk", measure, self.types.usage[rows])

    def served(self, measure: Floats, rows: Ints | slice = slice(None)) -> Floats:
        """(row,) the time in which an arm is served, of the criterion's total."""
        if measure.ndim == 4:
            measure = measure.sum(axis=1)
        return np.asarray(np.einsum("tsa,tsa->t", measure, self.types.served[rows]))

    @cached_property
    def most_served(self) -> Floats:
        """(type, ...) measures of the policies that are served most."""
        # Service is the only reward.
        service_price = gains_at(
            self.types, np.zeros(len(self)), np.zeros(len(self.budget)), self.criterion, np.ones(len(self))
        )
        return self.arms.best(np.arange(len(self)), service_price).measure

    # -- best responses within floors, and bounds ---------------------------------------------------------------------

    def respond(self, rows: Ints, gains: Floats) -> tuple[Floats, Floats]:
        """The best measures of some types within their floors, and (row,) the prices of the floors.

        Args:
            rows: (row,) types, perhaps some of them more than once.
            gains: (row, state, action), or (row, step, state, action), gains of the actions.
        """
        measure, service_price = self.arms.best(rows, gains).measure, np.zeros(len(rows))
        if self.floors is None:
            return measure, service_price
        need = self.floors[rows] * self.criterion.total
        # A floor missed by rounding only needs no price.
        short = np.flatnonzero(self.served(measure, rows) < need * (1 - SAME))
        if len(short):
            found = _floor_prices(self, rows[short], gains[short], measure[short], need[short])
            measure[short], service_price[short] = found
        return measure, service_price

    def bound(self, weights: Floats, prices: Floats, policies: Indices | None = None) -> tuple[float, Floats]:
        """An upper bound on sum_n (g_n V_n - lambda.U_n) + lambda.allowance within the floors, and their prices.

        Args:
            weights: (type,) weight g of one arm of the type.
            prices: (resource,) prices lambda, not negative; or (step, resource).
            policies: (type, state) where policy iteration starts.
        """
        best, service_price = self.bounds(weights, prices, policies)
        if prices.ndim == 1:
            rent = float(prices @ self.allowance)
        else:
            # With prices by step, sum_t weight_t lambda_t.b is the value of the allowance.
            rent = float(self.criterion.time_weights(len(prices)) @ (prices @ self.budget))
        return float(self.counts @ best) + rent, service_price

    def bounds(self, weights: Floats, prices: Floats, policies: Indices | None = None) -> tuple[Floats, Floats]:
        """(type,) an upper bound on g V - lambda.U of one arm, and the price of its floor.

        Args:
            weights: (type,) weight g of one arm of the type.
            prices: (resource,) prices lambda, not negative; or (step, resource).
            policies: (type, state) where policy iteration starts.
        """
        found = list(in_order(lambda part: self._bound_part(part, weights, prices, policies), self.chunks()))
        best, service_price = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return best, service_price

    def _bound_part(
        self, part: slice, weights: Floats, prices: Floats, policies: Indices | None
    ) -> tuple[Floats, Floats]:
        rows = np.arange(len(self))[part]
        types = self.types if len(rows) == len(self) else self.types.select(rows)
        gains = gains_at(types, weights[part], prices, self.criterion)
        service_price, need = np.zeros(len(rows)), np.zeros(len(rows))
        if self.floors is not None:
            # Any price proves a bound, and the right one the best (see the head of this file).
            _, service_price = self.respond(rows, gains)
            need = service_price * self.floors[part] * self.criterion.total
            gains = gains_at(types, weights[part], prices, self.criterion, service_price)
        start = None if policies is None else policies[part]
        return self.arms.best(rows, gains, start).bound - need, service_price


# -- prices of floors -------------------------------------------------------------------------------------------------


def _floor_prices(model: FluidModel, rows: Ints, gains: Floats, low: Floats, need: Floats) -> tuple[Floats, Floats]:
    """Return mixtures that reach the floors `need`, and the prices, of types that are served too little in `low`."""
    # Between the best without a price and the one that is served most: on the polygon of value against service time,
    # the slope of the edge between them is the next price.
    high, service_price = model.most_served[rows], np.zeros(len(rows))
    served = model.types.served[rows] if gains.ndim == 3 else model.types.served[rows][:, None]
    inner = tuple(range(1, gains.ndim))
    scale = np.abs(gains).max(axis=inner) * model.criterion.total
    low, high, open_rows = low.copy(), high.copy(), np.arange(len(rows))
    for _ in range(MOST_HALVINGS):
        at, own = open_rows, rows[open_rows]
        value = [(part[at] * gains[at]).sum(axis=inner) for part in (low, high)]
        have = [model.served(part[at], own) for part in (low, high)]
        # At this price both ends are equally good. A better response cuts the edge in two; if there is none but for
        # rounding, the edge is one of the polygon.
        price = np.maximum((value[0] - value[1]) / np.maximum(have[1] - have[0], 1e-300), 0.0)
        service_price[at] = price
        priced = gains[at] + price.reshape(-1, *[1] * len(inner)) * served[at]
        new = model.arms.best(own, priced).measure
        gain = ((new - low[at]) * priced).sum(axis=inner)
        better = gain > SAME * (scale[at] + price * need[at])
        enough = model.served(new, own) >= need[at]
        high[at[better & enough]] = new[better & enough]
        low[at[better & ~enough]] = new[better & ~enough]
        open_rows = at[better]
        if not len(open_rows):
            break
    # Ends that are equally good at the price are mixed until the floor is just reached.
    have_low, have_high = model.served(low, rows), model.served(high, rows)
    share = np.clip((need - have_low) / np.maximum(have_high - have_low, 1e-300), 0.0, 1.0)
    spread = share.reshape(-1, *[1] * len(inner))
    return (1 - spread) * low + spread * high, service_price


# -- tracing by halving -----------------------------------------------------------------------------------------------


class _Points:
    """Points of all frontiers, as they are found."""

    def __init__(self, model: FluidModel, prices: Floats) -> None:
        self.model, self.prices = model, prices
        self.owner = np.zeros(0, dtype=np.int64)
        self.values, self.costs = np.zeros(0), np.zeros(0)
        self.uses = np.zeros((0, len(prices)))
        self.measures: list[Floats] = []

    def add(self, rows: Ints, weights: Floats, price: float) -> Ints:
        """The numbers of the points at which weight times value, less price times cost, is largest."""
        model = self.model
        types = model.types.select(rows)
        gains = gains_at(types, weights, price * self.prices, model.criterion)
        measure, _ = model.respond(rows, gains)
        values, uses = model.totals(measure, rows)
        first = len(self.owner)
        self.owner = np.append(self.owner, rows)
        self.values, self.uses = np.append(self.values, values), np.concatenate([self.uses, uses])
        self.costs = np.append(self.costs, uses @ self.prices)
        self.measures.append(measure)
        return np.arange(first, len(self.owner))


def _trace_by_halving(model: FluidModel, prices: Floats) -> Frontiers:
    """The frontiers of all types; every round has one response per open edge."""
    points, rows = _Points(model, prices), np.arange(len(model))
    # The two ends: the cheapest, and the most valuable.
    left = points.add(rows, np.zeros(len(model)), 1.0)
    right = points.add(rows, np.ones(len(model)), 0.0)
    # The sizes that rounding is measured by: the most value, and the most cost, that an arm can have.
    total = model.criterion.total
    largest = np.abs(model.types.rewards * model.types.valid).max(axis=(1, 2)) * total
    dearest = (model.types.usage * model.types.valid[..., None] @ prices).max(axis=(1, 2)) * total
    while True:
        owner = points.owner[left]
        rise, cost = points.values[right] - points.values[left], points.costs[right] - points.costs[left]
        # An edge that rises by next to nothing, or costs next to nothing, has nothing to halve.
        lasting = (rise > SAME * largest[owner]) & (cost > SAME * dearest[owner])
        left, right, owner = left[lasting], right[lasting], owner[lasting]
        if not len(left):
            break
        slope = cost[lasting] / rise[lasting]
        new = points.add(owner, slope, 1.0)
        # Distance of the response above the edge, in units of cost.
        above = slope * (points.values[new] - points.values[left]) - (points.costs[new] - points.costs[left])
        found = above > NEAR * dearest[owner] + SAME * slope * largest[owner]
        left, right, new = left[found], right[found], new[found]
        left, right = np.concatenate([left, new]), np.concatenate([new, right])
    return _hull(points, largest)


def _hull(points: _Points, largest: Floats) -> Frontiers:
    """The points that no other of the same type dominates, in order."""
    # By cost, of equal costs the most valuable first: a dominated point comes after the one that dominates it.
    order = np.lexsort((-points.values, points.costs, points.owner))
    owner, values, costs = points.owner[order], points.values[order], points.costs[order]
    keep = np.ones(len(order), dtype=np.bool_)
    most = values[0]
    for i in range(1, len(order)):  # a point that costs more must have more
        if owner[i] != owner[i - 1] or values[i] > most + SAME * largest[owner[i]]:
            most = values[i]
        else:
            keep[i] = False
    on_hull = order[keep]
    owner, values, costs = owner[keep], values[keep], costs[keep]
    starts = np.searchsorted(owner, np.arange(len(largest) + 1))
    slopes = np.full(len(on_hull), np.inf)
    inner = owner[1:] == owner[:-1]
    slopes[:-1][inner] = (np.diff(costs) / np.where(inner, np.diff(values), 1.0))[inner]
    for begin, end in zip(starts[:-1], starts[1:] - 1, strict=True):  # rounding must not bend an edge back
        np.maximum.accumulate(slopes[begin:end], out=slopes[begin:end])
    measures = np.concatenate(points.measures)[on_hull]
    return Frontiers(starts, values, points.uses[on_hull], slopes, measures=measures)
