"""Value of a network, for selecting the best of a training run: exactly if possible, else on a held-out stream.

A network is evaluated by the mean value of the arms, over a few tasks from the smallest to the largest. On identical
arms the mean is every Gini (the paper's Theorem 3.4), and every other welfare here that leaves equal values unchanged.

    exact    by the criterion: one linear solve on the count space (or the product space for a joint network)
    played   returns by the criterion on keys that training never sees, the same ones each time, so that networks meet
             the same world

Networks of several seeds are compared by `held_out`: exactly, or on keys that neither training nor any of its
evaluations has seen, the same ones for all seeds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from evenhand.evaluation.exact import exact_values
from evenhand.evaluation.rollout import simulate
from evenhand.learning.worlds import Tasks, world_of
from evenhand.model.coupled import CoupledMDP
from evenhand.model.rules import AllocationRule
from evenhand.model.simulator import Simulator
from evenhand.policies.network import CountNetworkPolicy, JointNetworkPolicy, Network
from evenhand.solvers.counts.reduction import num_count_states
from evenhand.solvers.joint import Joint, num_joint_states
from evenhand.typing import Floats

JUDGED, HELD_OUT = 0x6A756467, 0x68656C64
"""Streams of the evaluations of one run, beside its seed, and of the comparison of several seeds."""


def resized(problem: CoupledMDP, num_arms: int, budget: Floats) -> CoupledMDP:
    """The same arms, in another number and with another budget."""
    counts = np.array([num_arms])
    return CoupledMDP(problem.types, budget, problem.discount, counts, criterion=problem.criterion)


@dataclass(frozen=True, eq=False)
class NetworkJudge:
    """Mean value of an arm under a network."""

    problem: CoupledMDP | Simulator
    """Identical arms, or a simulator of them."""

    rule: AllocationRule
    """Rule by which outputs become an allocation."""

    tasks: Tasks | None
    """Ranges of arms and budgets; None for a joint network, which has one task."""

    most_exact: int = 1500
    """Count states, or joint states, up to which a network is evaluated exactly; at most 100 if the allocation is
    drawn, because its whole distribution has to be unrolled."""

    copies: int = 256
    """Copies that are simulated otherwise."""

    @cached_property
    def _spaces(self) -> list[CoupledMDP] | Joint | None:
        """The problems, or the joint space, on which networks are evaluated exactly; None if they are simulated."""
        problem, tasks = self.problem, self.tasks
        if isinstance(problem, Simulator):
            return None
        if tasks is None:
            return Joint(problem) if num_joint_states(problem) <= self.most_exact else None
        sizes = [resized(problem, arms, budget) for arms, budget in tasks.spread()]
        most = self.most_exact if self.rule == "greedy" else min(self.most_exact, 100)
        return sizes if max(num_count_states(size) for size in sizes) <= most else None

    @property
    def exact(self) -> bool:
        """True if values are exact."""
        return self._spaces is not None

    def __call__(self, network: Network, stream: Sequence[int]) -> float:
        """The mean value of an arm: exact, or on the episodes of a stream that training never draws from."""
        problem, spaces, criterion = self.problem, self._spaces, self.problem.criterion
        if isinstance(spaces, list):
            each = [exact_values(size, CountNetworkPolicy(size, network, self.rule)).values[0] for size in spaces]
            return float(np.mean(each))
        rng, steps = np.random.default_rng(stream), criterion.judging_steps(1e-3)
        if self.tasks is None:
            assert isinstance(problem, CoupledMDP)
            policy = JointNetworkPolicy(problem, network)
            if spaces is not None:
                return float(exact_values(problem, policy.on(spaces)).values.mean())
            return float(simulate(problem, policy, self.copies, steps, rng).returns.mean())
        world, total = world_of(problem, self.copies, self.rule, self.tasks, rng), 0.0
        world.restart(np.ones(self.copies, dtype=np.bool_))
        for weight in criterion.time_weights(steps).tolist():
            total += weight * float(world.step(network(world.observe())).rewards.mean())
        return total

    def held_out(self, network: Network) -> tuple[float, float]:
        """Value of a network on held-out episodes, in eight parts, and its standard error; exact if possible."""
        if self.exact:
            return self(network, ()), 0.0
        found = np.array([self(network, (HELD_OUT, part)) for part in range(8)])
        return float(found.mean()), float(found.std(ddof=1) / np.sqrt(len(found)))
