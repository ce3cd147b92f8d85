"""Value of a network, for selecting the best of a training run: exactly if possible, else on a held-out stream.

A network is evaluated by the mean value of the arms, over a few tasks from the smallest to the largest. On identical
arms the mean is every Gini (the paper's Theorem 3.4), and every other welfare here that leaves equal values unchanged.

    exact    one linear solve on the count space (or the product space for a joint network)
    played   discounted returns on keys that training never sees, the same ones each time, so that networks meet the
             same world

Networks of several seeds are compared by `held_out`: exactly, or on keys that neither training nor any of its looks
has seen, the same ones for all seeds.
"""

from collections.abc import Callable, Sequence
from typing import Any

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
"""Count states up to which a network is evaluated exactly."""

MOST_SAMPLED = 100
"""The same where the allocation is drawn, and its whole law has to be unrolled."""

MOST_JOINT = 1_500
"""Joint states up to which a joint network is evaluated exactly."""

HELD_OUT, HELD_OUT_LOOKS = 0x68656C64, 8
"""The stream of the last look at networks of several seeds, and into how many looks it is cut, to tell its error."""

COPIES = 256
"""Copies that are simulated if a network is not evaluated exactly."""

JUDGED = 0x6A756467
"""The stream of the looks of one run, beside its seed."""

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
    return lambda network: _played_mean(network, problem, rule, tasks, (seed, JUDGED)), False


def _exact_mean(network: Network, sizes: list[CoupledMDP], rule: AllocationRule) -> float:
    policies = [CountNetworkPolicy(size, network, rule) for size in sizes]
    return float(np.mean([exact_values(policy.problem, policy).values[0] for policy in policies]))  # type: ignore[arg-type]


def _played_mean(
    network: Network, problem: CoupledMDP | Simulator, rule: AllocationRule, tasks: Tasks, stream: Sequence[int]
) -> float:
    rng = np.random.default_rng(stream)  # a stream of its own: training never draws from it
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


def make_joint_judge(problem: CoupledMDP, *stream: int) -> tuple[Judge, bool]:
    """The judge of joint networks, and whether it is exact."""
    if num_joint_states(problem) > MOST_JOINT:
        horizon = Discounted(problem.discount).judging_steps(LEFT_OUT)

        def played(network: Network) -> float:
            policy = JointNetworkPolicy(problem, network)
            return float(simulate(problem, policy, COPIES, horizon, np.random.default_rng([*stream, 7])).returns.mean())

        return played, False
    space = Joint(problem)
    return lambda network: float(
        exact_values(problem, JointNetworkPolicy(problem, network).on(space)).values.mean()
    ), True


def held_out(
    policy: CountNetworkPolicy | JointNetworkPolicy, problem: CoupledMDP | Simulator, settings: dict[str, Any]
) -> tuple[float, float]:
    """Value of a network on held-out episodes, and its standard error; exact if possible.

    Args:
        policy: the network.
        problem: what it was trained on.
        settings: of its run, as they are recorded.
    """
    network = policy.network
    assert isinstance(network, Network)
    if isinstance(policy, JointNetworkPolicy):
        judges = [make_joint_judge(policy.problem, HELD_OUT, look) for look in range(HELD_OUT_LOOKS)]
        exactly = judges[0][0] if judges[0][1] else None
        looks = [judge for judge, _ in judges]
    else:
        tasks = Tasks(tuple(settings["num_arms"]), tuple((least, most) for least, most in settings["budget"]))
        judge, exact = make_judge(problem, policy.rule, tasks, HELD_OUT)
        exactly = judge if exact else None
        looks = [_look(problem, policy.rule, tasks, look) for look in range(HELD_OUT_LOOKS)]
    if exactly is not None:
        return exactly(network), 0.0
    found = np.array([look(network) for look in looks])
    return float(found.mean()), float(found.std(ddof=1) / np.sqrt(len(found)))


def _look(problem: CoupledMDP | Simulator, rule: AllocationRule, tasks: Tasks, number: int) -> Judge:
    return lambda network: _played_mean(network, problem, rule, tasks, (HELD_OUT, number))
