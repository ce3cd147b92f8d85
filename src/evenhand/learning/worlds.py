"""Simulation for learners: many copies of a problem with identical arms, stepped together.

    CountWorld   the arms' matrices are known to the world (not to the learner): copies are counts, and one compiled
                 call steps all of them, at a cost that does not depend on the number of arms
    ArmWorld     every arm is followed: a user's own simulator, or the matrices if each arm's reward is needed
    JointWorld   every arm is followed, and is served by itself rather than by the counts of its state

The first two draw a *task* for every copy at the start of every episode: the number of arms and the budget, from given
ranges. Everything random comes from `Keys`.
"""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from evenhand import kernels
from evenhand.checks import check_memory
from evenhand.errors import InvalidInputError
from evenhand.evaluation.count_simulation import first_counts
from evenhand.kernels.randomness import bits_at, draw_keys
from evenhand.model.coupled import MOST_ARMS, CoupledMDP
from evenhand.model.rules import AllocationRule
from evenhand.model.simulator import Simulator
from evenhand.policies import network
from evenhand.typing import Array, Bools, Floats, Indices, Ints, Singles

Seed: TypeAlias = np.random.Generator | int | None


@dataclass(frozen=True)
class Tasks:
    """Ranges from which the number of arms and the budget are drawn anew for each episode."""

    num_arms: tuple[int, int]
    """The fewest and the most arms."""

    budget: tuple[tuple[float, float], ...]
    """The least and the most of each resource; drawn as a whole number where both are."""

    def __post_init__(self) -> None:
        low, high = self.num_arms
        if not 1 <= low <= high <= MOST_ARMS:
            raise InvalidInputError(f"num_arms: expected a range of 1 to {MOST_ARMS} arms, got {low} to {high}")
        for resource, (least, most) in enumerate(self.budget):
            if not 0 <= least <= most < np.inf:
                raise InvalidInputError(f"budget[{resource}]: expected a range from 0 up, got {least} to {most}")

    @classmethod
    def of(cls, problem: CoupledMDP | Simulator) -> "Tasks":
        """The problem itself, always."""
        return cls((problem.num_arms, problem.num_arms), tuple((float(b), float(b)) for b in problem.budget))

    def draw(self, number: int, rng: np.random.Generator) -> tuple[Ints, Floats]:
        """(copy,) numbers of arms and (copy, resource) budgets."""
        arms = rng.integers(self.num_arms[0], self.num_arms[1] + 1, size=number)
        budget = np.empty((number, len(self.budget)))
        for resource, (least, most) in enumerate(self.budget):
            # Whole where both ends are: budgets of machines and people are.
            if float(least).is_integer() and float(most).is_integer():
                budget[:, resource] = rng.integers(int(least), int(most) + 1, size=number)
            else:
                budget[:, resource] = rng.uniform(least, most, size=number)
        return arms, budget

    def spread(self, most: int = 8) -> list[tuple[int, Floats]]:
        """A few (num_arms, budget) from end to end, arms and budgets rising together, to judge a policy by."""
        # Arms and budgets are treated alike, one range a row.
        ranges = np.array([self.num_arms, *self.budget], dtype=np.float64)
        whole = np.array([float(low).is_integer() and float(high).is_integer() for low, high in ranges])
        lengths = np.where(whole, ranges[:, 1] - ranges[:, 0] + 1, np.where(ranges[:, 1] > ranges[:, 0], most, 1))
        # As many points as the longest range has, up to the most.
        places = np.linspace(0, 1, int(min(lengths.max(), most)))
        points = ranges[:, 0] + places[:, None] * (ranges[:, 1] - ranges[:, 0])
        points = np.where(whole, np.round(points), points)
        return [(int(point[0]), point[1:]) for point in points]


# -- copies ----------------------------------------------------------------------------------------------------------


class Step(NamedTuple):
    """One step of all copies."""

    rewards: Floats
    """(copy,) mean reward of the arms."""

    facts: dict[str, Array]
    """(copy, ...) `allocation`, arms of each state that got each action; for joint states `actions` and
    `arm_rewards`."""

    moments: tuple[float, float]
    """Mean of the single arms' rewards, and of their squares."""

    arm_rewards: Floats = np.zeros(0)
    """(arm of all copies,) each arm's reward, if arms are followed."""


def _moments(rewards: Floats) -> tuple[float, float]:
    return float(rewards.mean()), float((rewards**2).mean())


class Keys:
    """Keys of all that is random, one after another."""

    def __init__(self, rng: Seed) -> None:
        self.key, self.time = draw_keys(np.random.default_rng(rng), 1)[0], 0

    def next(self) -> np.uint64:
        """The next key."""
        self.time += 1
        return np.uint64(bits_at(self.key, np.array(self.time, dtype=np.uint64)))

    def generator(self) -> np.random.Generator:
        """A generator of the next key."""
        return np.random.default_rng(int(self.next()))


class _Copies:
    """Base of both simulations: tasks, keys, observations."""

    def __init__(
        self, problem: CoupledMDP | Simulator, num_copies: int, rule: AllocationRule, tasks: Tasks | None, rng: Seed
    ) -> None:
        usage, tasks = network.usage_of(problem), tasks or Tasks.of(problem)
        self.usage = np.ascontiguousarray(usage)
        self.discount, self.num_copies, self.rule, self.tasks = problem.discount, num_copies, rule, tasks
        if len(tasks.budget) != usage.shape[2]:
            raise InvalidInputError(f"budget: {len(tasks.budget)} ranges for {usage.shape[2]} resources")
        self.num_arms = np.full(num_copies, tasks.num_arms[0], dtype=np.int64)
        self.budget = np.zeros((num_copies, usage.shape[2]))
        self.counts = np.zeros((num_copies, len(usage)), dtype=np.int64)
        self.seed(rng)

    def seed(self, rng: Seed) -> None:
        """Set the seed of all randomness."""
        self.keys = Keys(rng)

    def draw_tasks(self, which: Bools) -> np.random.Generator:
        """Draw tasks for the copies that start anew; returns the generator of this restart."""
        rng = self.keys.generator()
        self.num_arms[which], self.budget[which] = self.tasks.draw(int(which.sum()), rng)
        return rng

    def observe(self) -> Singles:
        """(copy, state + resource) count proportions and budget shares."""
        return network.observe(self.counts, self.num_arms, self.budget, self.usage)

    @property
    def limit(self) -> Floats:
        """(copy, resource) budgets with room for rounding."""
        return np.asarray(self.budget * (1 + 1e-9))


class CountWorld(_Copies):
    """Copies stored as counts, stepped by one compiled call."""

    def __init__(
        self,
        problem: CoupledMDP,
        num_copies: int,
        rule: AllocationRule = "greedy",
        tasks: Tasks | None = None,
        rng: Seed = None,
    ) -> None:
        super().__init__(problem, num_copies, rule, tasks, rng)
        types = problem.types
        self.transitions, self.rewards = np.ascontiguousarray(types.transitions[0]), types.rewards[0].copy()
        self.initial = types.initial

    def restart(self, which: Bools) -> None:
        """Draw tasks and first counts."""
        self.draw_tasks(which)
        self.counts[which] = first_counts(self.initial, self.num_arms[which][:, None], self.keys.next())[:, 0]

    def step(self, outputs: Singles) -> Step:
        """Allocate, pay and move, all copies at once."""
        tables = self.transitions, self.rewards, self.usage
        if self.rule == "greedy":
            scores = network.read_scores(outputs, self.usage)
            allocation, earned, counts = kernels.step_greedily(
                *tables, scores, self.counts, self.limit, self.keys.next()
            )
        else:
            priorities, spend = network.read_priorities(outputs, self.limit, self.usage)
            allocation, earned, counts = kernels.step_sampled(*tables, priorities, spend, self.counts, self.keys.next())
        self.counts = counts
        # Arms are alike: shares of cells weigh the rewards of single arms.
        shares = allocation.sum(axis=0) / allocation.sum()
        moments = float((shares * self.rewards).sum()), float((shares * self.rewards**2).sum())
        return Step(earned, {"allocation": allocation}, moments)


class ArmWorld(_Copies):
    """Copies whose arms are followed one by one, by a simulator."""

    def __init__(
        self,
        simulator: Simulator,
        num_copies: int,
        rule: AllocationRule = "greedy",
        tasks: Tasks | None = None,
        rng: Seed = None,
    ) -> None:
        super().__init__(simulator, num_copies, rule, tasks, rng)
        most = self.tasks.num_arms[1]
        check_memory(40.0 * num_copies * most, f"{num_copies} copies of every arm", "Use fewer copies.")
        self.simulator = simulator
        self.states = np.zeros(0, dtype=np.int32)
        self.copy_of_arm = np.zeros(0, dtype=np.int64)

    def restart(self, which: Bools) -> None:
        """Draw tasks and first states; the arms of other copies stay as they are."""
        # Arms of copies that go on do not change.
        ongoing = ~which[self.copy_of_arm]
        rng = self.draw_tasks(which)
        fresh = np.repeat(np.flatnonzero(which), self.num_arms[which])
        copies = np.concatenate([self.copy_of_arm[ongoing], fresh])
        states = np.concatenate([self.states[ongoing], self.simulator.begin(len(fresh), rng)])
        # Arms of one copy stand together; stable, so that those of others keep their order.
        order = np.argsort(copies, kind="stable")
        self.copy_of_arm, self.states = copies[order], states[order]
        self._count()

    def _count(self) -> None:
        places = self.copy_of_arm * len(self.usage) + self.states
        self.counts = np.bincount(places, minlength=self.counts.size).reshape(self.counts.shape)

    def step(self, outputs: Singles) -> Step:
        """Allocate by counts, draw who gets what, and let the simulator move every arm."""
        allocation = network.allocated(self.rule, outputs, self.counts, self.limit, self.usage, self.keys.next())
        # Who within a state gets an action, and what happens to it, is of one generator.
        rng = self.keys.generator()
        actions = assign_arms(self.copy_of_arm, self.states, allocation, rng)
        self.states, arm_rewards = self.simulator.step(self.states, actions, rng)
        self._count()
        sums = np.bincount(self.copy_of_arm, weights=arm_rewards, minlength=self.num_copies)
        return Step(sums / self.num_arms, {"allocation": allocation}, _moments(arm_rewards), arm_rewards)


class JointWorld:
    """Copies in joint states, for networks that choose the arms to serve (the paper's Vanilla-DRL)."""

    def __init__(self, problem: CoupledMDP, num_copies: int, rng: Seed) -> None:
        self.simulator, self.idle, self.discount = sampled(problem), problem.types.idle[0], problem.discount
        self.states = np.zeros((num_copies, problem.num_arms), dtype=np.int32)
        self.seed(rng)

    def seed(self, rng: Seed) -> None:
        """Set the seed of all randomness."""
        self.keys = Keys(rng)

    def restart(self, which: Bools) -> None:
        """Draw first states."""
        chosen = self.states[which]
        self.states[which] = self.simulator.begin(chosen.size, self.keys.generator()).reshape(chosen.shape)

    def observe(self) -> Singles:
        """(copy, arm) scaled states."""
        return network.observe_arms(self.states, len(self.idle))

    def step(self, outputs: Array) -> Step:
        """Serve the (copy, unit of the budget) chosen arms, and move every arm."""
        actions = network.serve_chosen(self.states, np.asarray(outputs, dtype=np.int64), self.idle)
        following, rewards = self.simulator.step(self.states.reshape(-1), actions.reshape(-1), self.keys.generator())
        self.states, each = following.reshape(self.states.shape), rewards.reshape(self.states.shape)
        return Step(np.asarray(each.mean(axis=1)), {"actions": actions, "arm_rewards": each}, _moments(each))


def world_of(
    problem: CoupledMDP | Simulator, num_copies: int, rule: AllocationRule, tasks: Tasks | None, rng: Seed
) -> CountWorld | ArmWorld:
    """Return copies of a problem: counts if its matrices are known, else all arms of a simulator."""
    if isinstance(problem, Simulator):
        return ArmWorld(problem, num_copies, rule, tasks, rng)
    return CountWorld(problem, num_copies, rule, tasks, rng)


def assign_arms(copy_of_arm: Ints, states: Indices, allocation: Ints, rng: np.random.Generator) -> Indices:
    """(arm,) actions: within each copy and state, who gets which is drawn uniformly."""
    # By copy and state, and within these at random; then actions are dealt out in the order of the cells.
    order = np.lexsort((rng.random(len(states)), states, copy_of_arm))
    cells = np.tile(np.arange(allocation.shape[2]), allocation.shape[0] * allocation.shape[1])
    actions = np.empty(len(states), dtype=np.int32)
    actions[order] = np.repeat(cells, allocation.reshape(-1))
    return actions


def sampled(problem: CoupledMDP) -> Simulator:
    """A simulator made of a problem's matrices, which follows every arm."""
    network.usage_of(problem)  # refuses arms that are not identical
    types = problem.types
    cumulative, initial = types.cumulative[0], types.cumulative_initial[0]

    def sample(states: Indices, actions: Indices, rng: np.random.Generator) -> tuple[Array, Array]:
        points = rng.random(len(states))
        # Inversion, as in the kernels; the last running sum is 1.
        following = (points[:, None] >= cumulative[states, actions][:, :-1]).sum(axis=1)
        return following.astype(np.int32), types.rewards[0, states, actions]

    def first(number: int, rng: np.random.Generator) -> Array:
        return np.asarray((rng.random(number)[:, None] >= initial[:-1]).sum(axis=1), dtype=np.int32)

    return Simulator(
        sample, first, types.usage[0], len(types.usage[0]), problem.num_arms, problem.budget, problem.discount
    )
