"""How good a network is, for choosing the best of a training run: exactly where possible, else on a held-out stream.

A network is judged by the mean value of the arms, over a few tasks from the smallest to the largest. On identical
arms the mean is every Gini (the paper's Theorem 3.4), and every other welfare here that leaves equal values unchanged.

    exact    one linear solve on the count space (or the product space for a joint network)
    played   discounted returns on keys that training never sees, the same ones each time, so that networks meet the
             same world
"""

from collections.abc import Callable

import numpy as np

from evenhand.evaluation.exact import exact_values
from evenhand.learning.worlds import ArmWorld, CountWorld, Tasks
from evenhand.model.coupled import CoupledMDP
from evenhand.model.criterion import Discounted
from evenhand.model.rules import AllocationRule
from evenhand.model.simulator import Simulator
from evenhand.policies.network import CountNetworkPolicy, JointNetworkPolicy, Network
from evenhand.reductions.counts import num_count_states
from evenhand.reductions.joint import Joint, num_joint_states
from evenhand.simulation.rollout import simulate
from evenhand.typing import Floats

Judge = Callable[[Network], float]
"""The mean value of an arm under a network."""

MOST_EXACT = 1_500
"""Count states up to which a network is judged exactly."""

MOST_SAMPLED = 100
"""The same where the allocation is drawn, and its whole law has to be unrolled."""

MOST_JOINT = 1_500
"""Joint states up to which a joint network is judged exactly."""

COPIES = 256
"""Copies that are played where a network is not judged exactly."""

LEFT_OUT = 1e-3
"""The share of all weight that lies beyond the steps that are played."""


def resized(problem: CoupledMDP, num_arms: int, budget: Floats) -> CoupledMDP:
    """The same arms, in another number and with another budget."""
    return CoupledMDP(arms=problem.types, budget=budget, discount=problem.discount, counts=np.array([num_arms]))


def make_judge(problem: CoupledMDP | Simulator, rule: AllocationRule, tasks: Tasks, seed: int) -> tuple[Judge, bool]:
    """The judge of networks on counts, and whether it is exact."""
    if isinstance(problem, CoupledMDP):
        sizes = [resized(problem, arms, budget) for arms, budget in tasks.spread()]
        most = MOST_EXACT if rule == "greedy" else MOST_SAMPLED
        if max(num_count_states(size) for size in sizes) <= most:
            return lambda network: _exact_mean(network, sizes, rule), True
    return lambda network: _played_mean(network, problem, rule, tasks, seed), False


def _exact_mean(network: Network, sizes: list[CoupledMDP], rule: AllocationRule) -> float:
    policies = [CountNetworkPolicy(size, network, rule) for size in sizes]
    return float(np.mean([exact_values(policy, policy.problem).values[0] for policy in policies]))  # type: ignore[arg-type]


def _played_mean(
    network: Network, problem: CoupledMDP | Simulator, rule: AllocationRule, tasks: Tasks, seed: int
) -> float:
    rng = np.random.default_rng([seed, 0x6A756467])  # a stream of its own: training never draws from it
    world: ArmWorld | CountWorld = (
        ArmWorld(problem, COPIES, rule, tasks, rng)
        if isinstance(problem, Simulator)
        else CountWorld(problem, COPIES, rule, tasks, rng)
    )
    world.restart(np.ones(COPIES, dtype=np.bool_))
    total, criterion = 0.0, Discounted(problem.discount)
    for weight in criterion.time_weights(criterion.judging_steps(LEFT_OUT)).tolist():
        total += weight * float(world.step(network(world.observe())).rewards.mean())
    return total


def make_joint_judge(problem: CoupledMDP, seed: int) -> tuple[Judge, bool]:
    """The judge of joint networks, and whether it is exact."""
    if num_joint_states(problem) > MOST_JOINT:
        horizon = Discounted(problem.discount).judging_steps(LEFT_OUT)

        def played(network: Network) -> float:
            policy = JointNetworkPolicy(problem, network)
            return float(simulate(problem, policy, COPIES, horizon, np.random.default_rng([seed, 7])).returns.mean())

        return played, False
    space = Joint(problem)
    return lambda network: float(
        exact_values(JointNetworkPolicy(problem, network).on(space), problem).values.mean()
    ), True
