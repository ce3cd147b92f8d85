"""What each type of arm can buy: frontiers of value against cost, occupancy measures and certified weighted optima.

An arm's occupancy measures q satisfy q >= 0 and sum_a q(s, a) = mu(s) + gamma sum_{s', a} p(s | s', a) q(s', a). Its
value is V = q.r and its discounted use U = q.d. At prices lambda the least cost lambda.U of a value is a convex
polygon whose vertices are deterministic policies (`kernels.fluid_sweeps` says how it is traced), and a point on an
edge is a mixture of the two policies at its ends.

The weighted optimum max_q g V - lambda.U is bounded from above by any vector h: with the advantages
A = g r - lambda.d + gamma P h - h,

    max_q g V - lambda.U  <=  mu.h + max(0, max_{s,a} A(s, a)) / (1 - gamma),

so a bound does not depend on whether frontiers were traced well, nor on rounding in the solution of linear systems.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from evenhand.kernels import fluid_sweeps
from evenhand.model.arm import ArmTables
from evenhand.typing import Array, Bools, Floats, Indices, Ints

COMPILE_FROM = 20_000
"""Types from which the loops are compiled: compiling takes as long as NumPy takes for many more."""

CHUNK = 1 << 14
"""Types whose tables are worked on at once."""

FIRST_CAPACITY = 8
"""Vertices of a frontier for which there is room at first."""

MOST_SWEEPS = 100
"""Rounds of policy iteration in a bound; what is missing after them goes into the bound."""


@dataclass(frozen=True, eq=False)
class Frontiers:
    """The frontiers of all types at some prices, one after the other."""

    starts: Ints
    """(type + 1,) where the vertices of each type begin."""

    values: Floats
    """(vertex,) values, rising within a type."""

    uses: Floats
    """(vertex, resource) discounted use."""

    slopes: Floats
    """(vertex,) cost of one more unit of value beyond the vertex, rising within a type; infinite at the last."""

    policies: Indices
    """(vertex, state) the action in each state."""

    @property
    def first(self) -> Ints:
        """(type,) the vertices that cost nothing."""
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
        return replace(self, slopes=self.slopes * price if price > 0 else np.where(np.isinf(self.slopes), np.inf, 0.0))

    def _count(self, marks: Bools) -> Ints:
        """(type,) how many vertices of each type are marked."""
        return np.add.reduceat(marks, self.first, dtype=np.int64)

    def locate(self, values: Floats) -> tuple[Ints, Floats]:
        """(type,) the vertex at or before each value, and the share of the next vertex in the mixture of that value."""
        passed = self._count(self.values <= values[self.owner])
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
        before, up_to = self._count(self.values < level), self._count(self.values <= level)
        below = np.where(before > 0, self.slopes[self.first + np.maximum(before - 1, 0)], 0.0)
        above = np.where(up_to > 0, self.slopes[self.first + np.maximum(up_to - 1, 0)], 0.0)
        return below, above

    def best_vertices(self, weights: Floats) -> Ints:
        """(type,) the vertex that maximises weight times value, less cost; the one of most value among equals."""
        return np.asarray(self.first + self._count(self.slopes <= weights[self.owner]))


@dataclass(frozen=True, eq=False)
class FluidModel:
    """Types of arms, how many there are of each, and what they share over all time."""

    types: ArmTables
    """The arms."""

    counts: Ints
    """(type,) how many arms of each type."""

    allowance: Floats
    """(resource,) the budget of all steps, discounted: b / (1 - gamma)."""

    discount: float
    """What a reward one step later is worth."""

    initial: Floats
    """(type, state) distributions of the first state."""

    @cached_property
    def allowed(self) -> Bools:
        """(type, state, action) actions that are real, and use nothing of what there is nothing of."""
        banned = (self.types.usage[..., self.allowance == 0] > 0).any(axis=-1)
        return np.asarray(self.types.valid & ~banned)

    @property
    def num_arms(self) -> int:
        """How many arms there are."""
        return int(self.counts.sum())

    def __len__(self) -> int:
        return len(self.counts)

    def chunks(self) -> Iterator[slice]:
        """Parts of the types that are worked on at once."""
        return (slice(start, start + CHUNK) for start in range(0, len(self), CHUNK))

    def trace(self, prices: Floats) -> Frontiers:
        """The frontiers at some prices.

        Args:
            prices: (resource,) price of a unit of each resource.
        """
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            parts = list(pool.map(lambda part: self._trace_part(part, prices), self.chunks()))
        lengths = np.concatenate([part[0] for part in parts])
        starts = np.concatenate([[0], np.cumsum(lengths)])
        return Frontiers(starts, *(np.concatenate([part[1][i] for part in parts]) for i in range(4)))

    def _trace_part(self, part: slice, prices: Floats) -> tuple[Ints, tuple[Array, ...]]:
        capacity = FIRST_CAPACITY
        while True:
            traced = self._trace_padded(part, prices, capacity)
            lengths = traced[0]
            if lengths.max() <= capacity:
                real = np.arange(capacity) < lengths[:, None]
                return lengths, tuple(table[real] for table in traced[1:])
            capacity = int(lengths.max()) + FIRST_CAPACITY

    def _trace_padded(self, part: slice, prices: Floats, capacity: int) -> fluid_sweeps.Traced:
        types = self.types
        tables = (types.transitions[part], types.rewards[part], types.usage[part], self.initial[part])
        allowed = self.allowed[part]
        # With several resources frontiers are traced again and again.
        if len(self) * (1 if len(prices) == 1 else 8) < COMPILE_FROM:
            return fluid_sweeps.trace_frontiers(*tables, allowed, prices, self.discount, capacity)
        from evenhand.kernels import compiled_fluid  # compiling takes longer than small problems

        given = (*tables, allowed, types.num_states[part], prices, self.discount, capacity)
        return fluid_sweeps.Traced(*compiled_fluid.trace_frontiers(*given))  # type: ignore[no-untyped-call]

    def occupancy_at(self, frontiers: Frontiers, values: Floats) -> Floats:
        """(type, state, action) the occupancy measures of values on frontiers."""
        vertex, share = frontiers.locate(values)
        measure = np.zeros(self.types.rewards.shape)
        self._add_visits(measure, frontiers.policies[vertex], 1.0 - share)
        mixed = np.flatnonzero(share > 0)
        if len(mixed):
            following = np.minimum(vertex + 1, frontiers.last)
            self._add_visits(measure, frontiers.policies[following], share)
        return measure

    def _add_visits(self, measure: Floats, policies: Indices, shares: Floats) -> None:
        """Add the discounted visits of deterministic policies (type, state), times a share of each."""
        num_states = measure.shape[1]
        for part in self.chunks():
            policy = policies[part].astype(np.int64)[:, :, None]
            chosen = np.take_along_axis(self.types.transitions[part], policy[..., None], axis=2)[:, :, 0]
            system = np.eye(num_states) - self.discount * np.swapaxes(chosen, 1, 2)
            visits = np.linalg.solve(system, self.initial[part][..., None])[..., 0]
            now = np.take_along_axis(measure[part], policy, axis=2)[..., 0]
            now += np.maximum(visits, 0.0) * shares[part, None]
            np.put_along_axis(measure[part], policy, now[..., None], axis=2)

    def totals(self, measure: Floats) -> tuple[Floats, Floats]:
        """(type,) values and (type, resource) uses of occupancy measures (type, state, action)."""
        values = np.einsum("tsa,tsa->t", measure, self.types.rewards)
        return values, np.einsum("tsa,tsak->tk", measure, self.types.usage)

    def bound(self, weights: Floats, prices: Floats, policies: Indices) -> float:
        """An upper bound on sum_n (g_n V_n - lambda.U_n) + lambda.allowance over all occupancy measures.

        Args:
            weights: (type,) weight g of one arm of the type.
            prices: (resource,) prices lambda, not negative.
            policies: (type, state) where policy iteration starts.
        """
        parts = [self._bound_part(part, weights[part], prices, policies[part]) for part in self.chunks()]
        return float(self.counts @ np.concatenate(parts) + prices @ self.allowance)

    def _bound_part(self, part: slice, weights: Floats, prices: Floats, policies: Indices) -> Floats:
        transitions, allowed = self.types.transitions[part], self.allowed[part]
        gains = weights[:, None, None] * self.types.rewards[part] - self.types.usage[part] @ prices
        policy = policies.astype(np.int64)
        rounding = 1e-14 * np.abs(gains).max(axis=(1, 2), initial=0.0) / (1 - self.discount)
        for _ in range(MOST_SWEEPS):
            chosen = np.take_along_axis(transitions, policy[..., None, None], axis=2)[:, :, 0]
            now = np.take_along_axis(gains, policy[..., None], axis=2)
            ahead = np.linalg.solve(np.eye(policy.shape[1]) - self.discount * chosen, now)[..., 0]
            advantages = gains + self.discount * np.einsum("tsaj,tj->tsa", transitions, ahead) - ahead[..., None]
            advantages = np.where(allowed, advantages, -np.inf)
            best = advantages.max(axis=-1)
            better = best > rounding[:, None]
            if not better.any():
                break
            policy = np.where(better, advantages.argmax(axis=-1), policy)
        excess = np.maximum(best.max(axis=-1), 0.0) / (1 - self.discount)
        return np.asarray((self.initial[part] * ahead).sum(axis=-1) + excess)
