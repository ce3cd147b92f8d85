"""Policies of the literature that let arms follow *ideal actions*, those of the relaxation, as far as the budget goes.

With q the relaxation's occupancy measure, an ideal action is drawn from pi(a | s) = q(s, a) / mu(s), mu(s) = sum_a
q(s, a). If every arm followed its own, the relaxation's value would be reached; but together they may exceed the
budget. The policies differ in whose ideal actions come first; arms for which they do not fit idle. What is left of the
budget goes to arms that come last: to any if it must be spent, else to idle ones in states that pi serves sometimes.

    id              arms in the order of their ids. Gap O(1 / sqrt(N)) per arm, if pi has one recurrent class and is
                    aperiodic (Hong, Xie, Chen and Wang, "Unichain and aperiodicity are sufficient for asymptotic
                    optimality of average-reward restless bandits", 2024); for different arms, several actions and
                    resources Zhang, Hong and Wang, "Projection-based Lyapunov method for fully heterogeneous
                    weakly-coupled MDPs", 2025, with ids that spread the use of every resource: a random order does.
    set-expansion   first a *focus set* D of arms, whose counts z are near its share of mu: the largest with

                        sum_s max(z(s) - |D| mu(s), 0) <= slack = budget - |D| (use of an arm under pi),

                    and if the budget must be spent also at most N - budget - |D| (1 - use), so that ideal actions
                    within it fit now and in expectation at the next step. It grows while it satisfies this, and shrinks
                    otherwise. Gap O(1 / sqrt(N)), same paper. For a given |D| the least left side is max(A, B), A and
                    B the sums of what bounds l <= z <= u force above and below |D| mu: |D| is found by bisection.
    two-set         first a set D with (z - |D| mu)' U (z - |D| mu) <= (eta |D|)^2, within which service is by the
                    classes of the relaxation (always, sometimes, never) for the share of the budget exactly; it moves
                    by z - |D| mu -> (z - |D| mu) Phi, and U = sum_k Phi^k Phi'^k shrinks along it. The others follow
                    `id`. Gap exp(-cN) if moreover exactly one state is served sometimes, and Phi is stable; without
                    these D is empty (the same authors, "Achieving exponential asymptotic optimality in average-reward
                    restless bandits without global attractor assumption", 2024). Here eta is the distance to the
                    half-spaces where the sometimes-served state cannot balance the budget.
    ftva            follow the virtual advice: every arm has a virtual copy that is in the state that it would have had
                    under pi. Ideal actions are those of the copies; arms that are in the state of theirs come first.
                    Gap O(1 / sqrt(N)), if an arm and its copy meet in bounded time (the same authors, "Restless bandits
                    with average reward: breaking the uniform global attractor assumption", 2023).

All theorems are for the average. Under other criteria `id` and `ftva` follow pi of the relaxation, by step with a
finite horizon. Fixed ids treat equal arms unequally: they are drawn at random, and again every `redraw_every` steps.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import ClassVar, TypeVar

import numpy as np
import scipy

from evenhand.checks import as_generator, as_numbers, check_positive_int
from evenhand.errors import NotApplicableError, PolicyError
from evenhand.model.arm_matching import matched_types, table_rows
from evenhand.model.coupled import CoupledMDP
from evenhand.model.explanations import DecisionStep, ServiceOrder
from evenhand.model.labels import Labels
from evenhand.model.policy import check_arrays
from evenhand.model.stateful_policy import MOST, Actor, Memory, Remembered, RememberingPolicy, read_memory
from evenhand.policies.fluid import choice_of, read_relaxation, service_scores
from evenhand.typing import Array, ArrayLike, Bools, Floats, Indices, Ints, Rng

Own = TypeVar("Own", bound="IdealActions")


class IdealActions(RememberingPolicy):
    """Arms take ideal actions in an order as long as these fit; the base of the policies of this module."""

    kind: ClassVar[str]
    depends_on_step = True

    def __init__(self, problem: CoupledMDP, laws: Floats, visits: Floats, redraw_every: int | None = 50) -> None:
        """Check the tables; `from_occupancy` makes them from a relaxation.

        Args:
            problem: the problem.
            laws: (type, state, action) probabilities of ideal actions; or (type, step, state, action).
            visits: (type, state) shares of time in each state under these.
            redraw_every: steps between two draws of the ids; None for the numbers of the arms, as published.
        """
        if redraw_every is not None:
            check_positive_int(redraw_every, "redraw_every")
        self.problem, self.laws, self.visits, self.redraw_every = problem, laws, visits, redraw_every
        self.num_steps = 1 if laws.ndim == 3 else laws.shape[1]

    @classmethod
    def from_occupancy(
        cls: type[Own],
        problem: CoupledMDP,
        occupancy: ArrayLike,
        weights: ArrayLike,
        prices: ArrayLike,
        floor_prices: ArrayLike | None = None,
    ) -> Own:
        """Return the policy of a relaxation.

        In states that it never visits, any action is ideal under the average, as published, so that arms leave them;
        under other criteria the best at its prices.

        Args:
            problem: the problem.
            occupancy: (type, state, action) the relaxation's visits; with a finite horizon (type, step, state, action).
            weights: (type,) what a unit of an arm's value is worth.
            prices: (resource,) what a unit of a resource is worth; or (step, resource).
            floor_prices: (type,) value of being served in itself; none by default.

        Raises:
            NotApplicableError: the policy is not defined for this problem.

        Example:
            >>> import evenhand as eh
            >>> problem = eh.problems.machine_replacement(num_arms=3)
            >>> visits = np.array([[[6.0, 0.0], [7.0, 0.0], [0.0, 7.0]]])  # worn out, they are replaced
            >>> policy = eh.policies.IdPolicy.from_occupancy(problem, visits, np.ones(1) / 3, np.array([1.0]))
            >>> policy.act([0, 1, 2], 0)
            array([0, 0, 1], dtype=int32)
        """
        occupancy = as_numbers(occupancy, "occupancy")
        by_step = [occupancy] if problem.criterion.is_stationary else list(np.moveaxis(occupancy, 1, 0))
        service = service_scores(problem, *read_relaxation(weights, prices, floor_prices))
        laws = [choice_of(problem, own, preferred) for own, (_, preferred) in zip(by_step, service, strict=True)]
        visits = np.maximum(by_step, 0.0).sum(axis=(0, -1))
        shares = visits / visits.sum(axis=1, keepdims=True)
        if problem.criterion.is_average:
            valid = problem.types.valid
            either = valid / np.maximum(valid.sum(axis=2, keepdims=True), 1)
            laws[0] = np.where(shares[:, :, None] > 1e-7, laws[0], either)
        return cls(problem, laws[0] if problem.criterion.is_stationary else np.stack(laws, axis=1), shares)

    def with_redraw(self: Own, every: int | None) -> Own:
        """Return the same policy with another number of steps between two draws of the ids.

        Args:
            every: number of steps; None for the numbers of the arms as ids, as published.
        """
        return type(self)(self.problem, self.laws, self.visits, every)

    @property
    def exchangeable(self) -> bool:
        """True if ids are drawn: arms of one type then have equal values."""
        return self.redraw_every is not None

    def to_arrays(self) -> dict[str, Array]:
        """Return the tables, and how often ids are drawn; 0 for never."""
        tables = {"probabilities": self.laws, "visits": self.visits}
        return {**tables, "redraw_every": np.array(self.redraw_every or 0)}

    @classmethod
    def from_arrays(cls: type[Own], problem: CoupledMDP, arrays: dict[str, Array]) -> Own:
        """Return the policy of these tables."""
        check_arrays(arrays, probabilities="f34", visits="f2", redraw_every="iu0")
        laws, visits, every = arrays["probabilities"], arrays["visits"], int(arrays["redraw_every"])
        types = problem.types
        shape = (*laws.shape[:1], *laws.shape[-2:])
        if shape != types.valid.shape or visits.shape != shape[:2] or laws.shape[1] == 0 or every < 0:
            raise PolicyError("its tables do not fit the problem")
        by_step = np.moveaxis(laws, 0, -3)
        sums = np.where(types.valid, by_step, 0.0).sum(axis=-1)[..., types.valid.any(axis=2)]
        sums = np.concatenate([sums.reshape(-1), np.where(types.valid.any(axis=2), visits, 0.0).sum(axis=1)])
        if not ((laws >= 0).all() and (visits >= 0).all() and (np.abs(sums - 1) <= 1e-8).all()):
            raise PolicyError("its probabilities do not sum to 1")
        return cls(problem, laws, visits, every or None)

    def resized(self: Own, problem: CoupledMDP, types: Sequence[int] | None = None) -> Own:
        """Return the policy for other numbers of arms; see `BasePolicy.resized`."""
        cells, rows = table_rows(self.problem, problem, types), matched_types(self.problem, problem, types)
        by_step = [
            law[cells] for law in np.moveaxis(self.laws.reshape(len(self.laws), -1, *self.laws.shape[-2:]), 1, 0)
        ]
        laws = by_step[0] if self.laws.ndim == 3 else np.stack(by_step, axis=1)
        visits = self.visits[rows][:, : problem.types.valid.shape[1]]
        return type(self)(problem, laws, visits, self.redraw_every)

    def does_same(self, other: object) -> bool:
        """Return whether another policy surely makes the same decisions."""
        if not isinstance(other, type(self)) or (self.kind, self.redraw_every) != (other.kind, other.redraw_every):
            return False
        pairs = (self.laws, other.laws), (self.visits, other.visits)
        return all(own.shape == its.shape and np.allclose(own, its, atol=1e-9) for own, its in pairs)

    def explain(self, decision: DecisionStep) -> list[str]:
        """(arm,) the ideal action of each arm, and what came of it."""
        actor, labels, reasons = decision.actor, Labels(decision.problem), []
        assert isinstance(actor, IdealActor)
        columns = decision.types, actor.drawn[0], decision.actions, decision.served
        for kind, drawn, action, served in zip(*(column.tolist() for column in columns), strict=True):
            meant = f"the plan drew {labels.doing(kind, drawn)}"
            if action == drawn:
                reasons.append(f"{meant} for it, and the budget reaches it" if served else f"{meant} for it")
            else:
                reasons.append(f"{meant}, but {'the budget must be spent' if served else 'others came before it'}")
        return reasons

    def service_order(self, step: int = 0) -> ServiceOrder:
        """Return an order without ranks."""
        return ServiceOrder((), "actions drawn from the relaxation, as far as the budget goes", ranked=True)

    def start(self, num_episodes: int, rng: Rng = None) -> "IdealActor":
        """Return an actor at the first step of `num_episodes` episodes."""
        stream, shape = as_generator(rng), (num_episodes, self.problem.num_arms)
        return IdealActor(self, self.draw_order(shape, stream), self.first_marks(shape, stream))

    def resume(self, memory: Mapping[str, ArrayLike]) -> "IdealActor":
        """Return an actor that continues where another one was; its memory is `step`, `order` and `marks`.

        Args:
            memory: how many steps were played, (episode, arm) the arms by ids, and (episode, arm) marks of the arms:
                states of virtual copies, -1 for that of the arm itself; or 1 for arms in the set.
        """
        arms, sizes = self.problem.num_arms, self.problem.types.num_states[self.problem.type_of_arm]
        axes = ("episode", "arm")
        like = {"step": Remembered((), MOST), "order": Remembered(axes, arms)}
        like["marks"] = Remembered(axes, max(int(sizes.max()), 2), -1)
        read = read_memory(memory, like, {"arm": arms})
        if (np.sort(read["order"], axis=1) != np.arange(arms)).any():
            raise PolicyError("memory: 'order' has some arm twice")
        if (read["marks"] >= np.maximum(sizes, 2)).any():
            raise PolicyError("memory: 'marks' has states that arms do not have")
        return IdealActor(self, read["order"], read["marks"], int(read["step"]))

    def draw_order(self, shape: tuple[int, int], rng: np.random.Generator) -> Ints:
        """(episode, arm) the arms by ids."""
        if self.redraw_every is None:
            return np.tile(np.arange(shape[1]), (shape[0], 1))
        return np.argsort(rng.random(shape), axis=1)

    def first_marks(self, shape: tuple[int, int], rng: np.random.Generator) -> Ints:
        """(episode, arm) marks at the first step."""
        return np.zeros(shape, dtype=np.int64)

    @abstractmethod
    def ideal(self, actor: "IdealActor", states: Indices, rng: np.random.Generator) -> tuple[Indices, Bools]:
        """(episode, arm) ideal actions, and whether an arm comes after the others; may change the marks."""

    def after(self, actor: "IdealActor", states: Indices, actions: Indices, rng: np.random.Generator) -> None:
        """Change the marks by what was done."""

    def draw(self, states: Indices | Ints, step: int, rng: np.random.Generator) -> Indices:
        """(episode, arm) actions drawn from the relaxation."""
        sums = self._cumulative[:, step % self.num_steps]
        uniforms, drawn = rng.random(states.shape), np.zeros(states.shape, dtype=np.int32)
        for action in range(sums.shape[2] - 1):
            drawn += uniforms >= sums[self.problem.type_of_arm, states, action]
        return drawn

    @cached_property
    def _cumulative(self) -> Floats:
        """(type, step, state, action) running sums of the probabilities."""
        sums = np.cumsum(self.laws.reshape(len(self.laws), -1, *self.laws.shape[-2:]), axis=-1)
        # The last sum may be just below 1; a draw beyond it would name an action that does not exist.
        return np.where(sums >= 1 - 1e-12, 1.0, sums)

    @cached_property
    def spare(self) -> Indices:
        """(step, type, state, resource) actions by which what is left of a resource is spent; -1 for none.

        Of a resource that must be spent the least amount and nothing else; of others what is drawn here most often.
        """
        types, must = self.problem.types, self.problem.spends_all
        uses = types.usage > 0
        alone = np.where(uses & types.valid[..., None] & (uses.sum(axis=-1) == 1)[..., None], types.usage, np.inf)
        drawn = np.moveaxis(self.laws.reshape(len(self.laws), -1, *self.laws.shape[-2:]), 1, 0)[..., None] * uses
        usual = np.where(drawn.max(axis=3) > 1e-9, drawn.argmax(axis=3), -1)
        return np.where(must, alone.argmin(axis=2), usual).astype(np.int32)


class IdealActor(Actor):
    """The ids and marks of the arms in a batch of episodes."""

    def __init__(self, policy: IdealActions, order: Ints, marks: Ints, step: int = 0) -> None:
        super().__init__(len(order))
        self.policy, self.order, self.marks, self.step = policy, order, marks, step
        self.drawn = np.zeros(order.shape, dtype=np.int32)

    def memory(self) -> Memory:
        """How many steps were played, (episode, arm) the `order` of the arms, and their `marks`."""
        return {"step": np.array(self.step), "order": self.order.copy(), "marks": self.marks.copy()}

    def choose(self, states: Indices, rng: np.random.Generator) -> Indices:
        """Let arms take their ideal actions in the order of their ids."""
        from evenhand.kernels.greedy_service import serve_in_order

        policy = self.policy
        if policy.redraw_every and self.step and self.step % policy.redraw_every == 0:
            self.order = policy.draw_order(states.shape, rng)
        self.drawn, late = policy.ideal(self, states, rng)
        problem, spare = policy.problem, policy.spare[self.step % policy.num_steps]
        cells = problem.type_of_arm, states
        # The copy of an arm may be in a state that has more actions.
        drawn = np.where(problem.types.valid[(*cells, self.drawn)], self.drawn, problem.types.idle[cells])
        arms = *cells, self.order, late, drawn
        limits = problem.budget_limit, problem.least_use
        actions = serve_in_order(*arms, problem.types.usage, problem.types.idle, spare, *limits)
        policy.after(self, states, actions, rng)
        self.step += 1
        return np.asarray(actions, dtype=np.int32)


class IdPolicy(IdealActions):
    """Arms take ideal actions in the order of their ids."""

    kind = "id"
    decides = "by ideal actions, in the order of ids"

    def ideal(self, actor: IdealActor, states: Indices, rng: np.random.Generator) -> tuple[Indices, Bools]:
        """(episode, arm) ideal actions; no arm is late."""
        return self.draw(states, actor.step, rng), np.zeros(states.shape, dtype=np.bool_)


class VirtualAdvice(IdealActions):
    """Arms take the ideal actions of virtual copies; those in the state of their copy first."""

    kind = "ftva"
    decides = "by the ideal actions of virtual copies"

    def __init__(self, problem: CoupledMDP, laws: Floats, visits: Floats, redraw_every: int | None = 1) -> None:
        """Prepare the tables; see `IdealActions`. Arms are in random order at every step by default, as published."""
        super().__init__(problem, laws, visits, redraw_every)

    def first_marks(self, shape: tuple[int, int], rng: np.random.Generator) -> Ints:
        """(episode, arm) marks of copies that begin in the states of the arms."""
        return np.full(shape, -1)

    def ideal(self, actor: IdealActor, states: Indices, rng: np.random.Generator) -> tuple[Indices, Bools]:
        """(episode, arm) ideal actions of the copies; arms in other states are late."""
        actor.marks = np.where(actor.marks < 0, states, actor.marks)
        return self.draw(actor.marks, actor.step, rng), actor.marks != states

    def after(self, actor: IdealActor, states: Indices, actions: Indices, rng: np.random.Generator) -> None:
        """Move the copies: with their arms if these did the same in the same state, otherwise on their own."""
        apart = (actor.marks != states) | (actions != actor.drawn)
        arms = np.broadcast_to(self.problem.type_of_arm, states.shape)[apart]
        moves = self.problem.types.transitions[arms, actor.marks[apart], actor.drawn[apart]]
        actor.marks = np.where(apart, 0, -1)
        sums = np.cumsum(moves, axis=1)
        actor.marks[apart] = (rng.random((len(sums), 1)) * sums[:, -1:] >= sums).sum(axis=1)


# -- a set of arms first ---------------------------------------------------------------------------------------------


class SetExpansion(IdealActions):
    """Arms of a focus set take ideal actions first."""

    kind = "set-expansion"
    decides = "by ideal actions, those of a focus set first"

    def __init__(self, problem: CoupledMDP, laws: Floats, visits: Floats, redraw_every: int | None = 50) -> None:
        """Prepare the tables; see `IdealActions`. Raises NotApplicableError if arms differ or have several actions."""
        super().__init__(problem, laws, visits, redraw_every)
        types = problem.types
        served = types.valid & types.served
        uses = types.usage[served][:, 0] if problem.num_resources == 1 else np.zeros(1)
        same = uses.size and uses.min() == uses.max() > 0 and (served.sum(axis=2) == types.valid.any(axis=2)).all()
        if not (problem.criterion.is_average and problem.num_types == 1 and same and types.valid.shape[2] == 2):
            raise NotApplicableError(
                f"{self.kind} is for identical arms under the average, with one resource of which service uses the "
                "same amount in every state; use id, which is for any arms"
            )
        self.mean = visits[0]
        self.often = laws[0, np.arange(len(self.mean)), served[0].argmax(axis=1)]
        self.budget = problem.budget[0] / uses[0]

    def ideal(self, actor: IdealActor, states: Indices, rng: np.random.Generator) -> tuple[Indices, Bools]:
        """(episode, arm) ideal actions; arms outside of the set are late."""
        members = self.update(actor, states)
        return self.draw(states, actor.step, rng), ~members

    def update(self, actor: IdealActor, states: Indices) -> Bools:
        """(episode, arm) whether an arm is in the set, after it has shrunk or grown; marked."""
        present, own = self._count(states, np.ones(states.shape)), self._count(states, actor.marks > 0)
        fits = self.is_within(own)[:, None]
        numbers = self._largest(np.where(fits, own, 0), np.where(fits, present, own))
        # Arms of the set come first in their state, then the others by ids.
        place = np.empty_like(actor.order)
        np.put_along_axis(place, actor.order, np.arange(states.shape[1])[None], axis=1)
        order = np.argsort((2 * states + (actor.marks <= 0)) * states.shape[1] + place, axis=1)
        ranked = np.take_along_axis(states, order, axis=1)
        before = np.cumsum(present, axis=1) - present
        rank = np.arange(states.shape[1]) - np.take_along_axis(before, ranked, axis=1)
        inside = rank < np.take_along_axis(numbers, ranked, axis=1)
        actor.marks = np.zeros(states.shape, dtype=np.int64)
        np.put_along_axis(actor.marks, order, inside.astype(np.int64), axis=1)
        return np.asarray(actor.marks > 0)

    def _count(self, states: Indices, weights: Array) -> Ints:
        """(episode, state) number of arms."""
        number = len(self.mean)
        cells = (states + number * np.arange(len(states))[:, None]).reshape(-1)
        found = np.bincount(cells, weights=weights.reshape(-1), minlength=number * len(states))
        return found.astype(np.int64).reshape(len(states), number)

    def _largest(self, least: Ints, most: Ints) -> Ints:
        """(episode, state) counts of the largest set between two; the smaller one satisfies the condition."""
        low, high = least.sum(axis=1), most.sum(axis=1)
        rows, middle = np.flatnonzero(low < high), high.copy()
        while len(rows):
            fits = self.is_within(self.nearest(middle[rows], least[rows], most[rows]))
            low[rows], high[rows] = (
                np.where(fits, middle[rows], low[rows]),
                np.where(fits, high[rows], middle[rows] - 1),
            )
            middle = (low + high + 1) // 2
            rows = np.flatnonzero(low < high)
        return np.floor(self.nearest(low, least, most) + 1e-9).astype(np.int64)

    def nearest(self, size: Ints, least: Ints, most: Ints) -> Floats:
        """(episode, state) counts between two, of so many arms, whose distance to the mean is the least."""
        aim = size[:, None] * self.mean
        counts = np.clip(aim, least, most)
        for over, end in ((counts.sum(axis=1) - size, least), (size - counts.sum(axis=1), most)):
            room = np.abs(counts - end)
            share = np.maximum(over, 0.0) / np.maximum(room.sum(axis=1), 1e-300)
            counts = counts + np.minimum(share, 1.0)[:, None] * (end - counts)
        return np.asarray(counts)

    def is_within(self, counts: Array) -> Bools:
        """(episode,) whether ideal actions within a set of these counts fit."""
        size = counts.sum(axis=1)
        use = float(self.mean @ self.often)
        slack = self.budget - use * size
        if self.problem.spend:
            slack = np.minimum(slack, self.problem.num_arms - self.budget - (1 - use) * size)
        return np.asarray(np.maximum(counts - size[:, None] * self.mean, 0.0).sum(axis=1) <= slack + 1e-9)


class TwoSet(SetExpansion):
    """Arms of a set near the relaxation's distribution are served by its classes, the others by ids."""

    kind = "two-set"
    decides = "by the relaxation's classes within a set, by ideal actions outside"

    def __init__(self, problem: CoupledMDP, laws: Floats, visits: Floats, redraw_every: int | None = 50) -> None:
        """Prepare the metric; see `SetExpansion`."""
        super().__init__(problem, laws, visits, redraw_every)
        seen = self.mean > 1e-9
        often = np.where(np.abs(self.often - np.round(self.often)) < 1e-7, np.round(self.often), self.often)
        sometimes = np.flatnonzero(seen & (often > 0) & (often < 1))
        self.classes = np.select([often == 1, often > 0], [0, 1], 2)
        self.metric, self.radius = np.eye(len(self.mean)), 0.0
        if len(sometimes) == 1:
            self._measure(int(sometimes[0]), int(np.count_nonzero(~seen)))

    def _measure(self, sometimes: int, unseen: int) -> None:
        """Set the metric and the radius of the set, if service by classes is stable."""
        types, share = self.problem.types, self.budget / self.problem.num_arms
        moves = np.einsum("sa,saj->sj", self.laws[0], types.transitions[0])
        idle, busy = types.idle[0, sometimes], 1 - types.idle[0, sometimes]
        change = types.transitions[0, sometimes, busy] - types.transitions[0, sometimes, idle]
        local = moves - self.mean - np.outer(self.often - share, change)
        if np.abs(np.linalg.eigvals(local)).max() >= 1 - 1e-9:
            return
        self.metric = np.asarray(scipy.linalg.solve_discrete_lyapunov(local, np.eye(len(local))))
        others = np.arange(len(self.mean)) != sometimes
        distances = [np.inf]
        # How far the mean may move until the other states alone need the whole budget, or leave the whole rest.
        for chance, most in ((self.often, share), (1 - self.often, 1 - share)):
            rows = np.stack([np.where(others, chance, 0.0), np.ones(len(chance))])
            inner = rows @ np.linalg.solve(self.metric, rows.T)
            if np.linalg.matrix_rank(inner) == 2:
                distances.append((most - rows[0] @ self.mean) * np.sqrt(np.linalg.inv(inner)[0, 0]))
        self.radius = max(min(distances) - (unseen + 1) / self.problem.num_arms, 0.0)

    def ideal(self, actor: IdealActor, states: Indices, rng: np.random.Generator) -> tuple[Indices, Bools]:
        """(episode, arm) actions by classes within the set, ideal actions outside; arms outside are late."""
        drawn = self.draw(states, actor.step, rng)
        if self.radius == 0:
            return drawn, np.zeros(states.shape, dtype=np.bool_)
        members = self.update(actor, states)
        key = np.where(members, self.classes[states] + rng.random(states.shape), np.inf)
        rank = np.argsort(np.argsort(key, axis=1), axis=1)
        share = np.floor(members.sum(axis=1) * (self.budget / states.shape[1]) + 1e-9)
        busy = rank < share[:, None]
        if not self.problem.spend:
            busy &= self.classes[states] < 2
        idle = self.problem.types.idle[0, states]
        return np.where(members, np.where(busy, 1 - idle, idle), drawn).astype(np.int32), ~members

    def nearest(self, size: Ints, least: Ints, most: Ints) -> Floats:
        """(episode, state) counts between two, of so many arms, whose distance to the mean is the least."""
        from evenhand.kernels.greedy_service import nearest_counts

        counts = super().nearest(size, least, most)
        return np.asarray(nearest_counts(counts, size[:, None] * self.mean, least, most, self.metric))

    def is_within(self, counts: Array) -> Bools:
        """(episode,) whether a set of these counts is near the mean."""
        size = counts.sum(axis=1)
        away = counts - size[:, None] * self.mean
        return np.asarray(np.einsum("es,st,et->e", away, self.metric, away) <= (self.radius * size) ** 2 + 1e-12)
