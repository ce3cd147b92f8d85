"""Instances of the literature, with the parameters under which results were published.

    three-states      Gast, Gaujal and Yan, "Exponential convergence rate for the asymptotic optimality of Whittle index
                      policy", 2020, appendix E.2: three examples whose fixed point may not attract. The second is the
                      "three states" of Hong, Xie, Chen and Wang (2024)
    eight-states      Hong, Xie, Chen and Wang, "Restless bandits with average reward: breaking the uniform global
                      attractor assumption", NeurIPS 2023: a conveyor that priority policies run backwards
    non-sa            the same, "Achieving exponential asymptotic optimality in average-reward restless bandits without
                      global attractor assumption", 2024: an optimal single-arm policy that does not unichain the arms
    non-indexable     the same authors: an arm without Whittle indices
    equitable         Killian, Jain, Jia, Amar, Huang and Tambe, "Equitable restless multi-armed bandits", 2023: groups
                      of mothers in a health programme, and a counterexample to maximising the sum
    three-machines    Akbarzadeh and Mahajan, "Restless bandits with controlled restarts", 2019
    bayesian-bandit   Zhang and Frazier, "Restless bandits with many arms: beating the central limit theorem", 2021:
                      Bernoulli arms with beta posteriors over a finite horizon

Published figures are compared in docs/literature.md.
"""

from typing import Literal, TypeAlias

import numpy as np

from evenhand.model.arm import Arm
from evenhand.model.coupled import MOST_ARMS, CoupledMDP
from evenhand.model.criterion import as_criterion
from evenhand.problems._arguments import Arguments
from evenhand.typing import Floats

Conveyor: TypeAlias = Literal["plain", "second"]
Equitable: TypeAlias = Literal["maternal", "counterexample"]

THREE_STATES = {
    1: (
        [
            [[0.5214073, 0.40392496, 0.07466774], [0.24639364, 0.23402385, 0.51958251]],
            [[0.0158415, 0.21455666, 0.76960184], [0.49681581, 0.49509821, 0.00808597]],
            [[0.53722329, 0.37651148, 0.08626522], [0.37826553, 0.15469252, 0.46704195]],
        ],
        [0.72232506, 0.18844869, 0.25752477],
    ),
    2: (
        [
            [[0.02232142, 0.10229283, 0.87538575], [0.14874601, 0.30435809, 0.54689589]],
            [[0.03426605, 0.17175704, 0.79397691], [0.56845754, 0.41117331, 0.02036915]],
            [[0.52324756, 0.45523298, 0.02151947], [0.25265570, 0.27310439, 0.4742399]],
        ],
        [0.37401552, 0.11740814, 0.07866135],
    ),
    3: (
        [
            [[0.47819592, 0.02090623, 0.50089785], [0.00279465, 0.37327924, 0.62392611]],
            [[0.08063373, 0.15456935, 0.76479692], [0.51582335, 0.46333908, 0.02083756]],
            [[0.66552514, 0.08481946, 0.2496554], [0.41875202, 0.17776712, 0.40348086]],
        ],
        [0.97658608, 0.53014109, 0.40394919],
    ),
}
"""(state, action, next_state) transitions as printed, whose rows sum to 1 but for the last digit, and (state,) rewards
of service."""


def _identical(transitions: Floats, rewards: Floats, num_arms: int, share: float, name: str) -> CoupledMDP:
    """Identical arms under the average; a share of them is served at every step."""
    given = Arguments()
    given.whole("num_arms", num_arms, most=MOST_ARMS)
    given.number("budget_share", share, most=1)
    given.raise_if_any(name)
    arm = Arm(transitions, rewards, [[0], [1]])
    return CoupledMDP(
        [arm],
        counts=[num_arms],
        budget=[round(share * num_arms, 9)],
        discount=1.0,
        criterion=as_criterion("average", 1.0),
    )


def three_states(num_arms: int = 100, example: Literal[1, 2, 3] = 2, budget_share: float = 0.4) -> CoupledMDP:
    """Identical arms with three states, whose priority policies may circle (Gast, Gaujal and Yan).

    Args:
        num_arms: number of arms.
        example: number of the example.
        budget_share: share of the arms that are served at every step.

    Example:
        >>> import evenhand as eh
        >>> eh.problems.three_states(num_arms=10)
        CoupledMDP(10 arms, identical, 1 resource, average)
    """
    given = Arguments()
    given.choice("example", example, tuple(THREE_STATES))
    given.raise_if_any("three-states")
    rows, served = THREE_STATES[example]
    transitions = np.array(rows)
    transitions /= transitions.sum(axis=2, keepdims=True)
    rewards = np.column_stack([np.zeros(3), served])
    return _identical(transitions, rewards, num_arms, budget_share, "three-states")


def eight_states(num_arms: int = 100, version: Conveyor = "second", budget_share: float = 0.5) -> CoupledMDP:
    """Identical arms on a conveyor of eight states, which priorities run backwards (Hong, Xie, Chen and Wang).

    Served in states 0 to 3 and idle in 4 to 7, an arm moves on with probability 0.1; otherwise it moves back.

    Args:
        num_arms: number of arms.
        version: `second` also rewards service in state 0 a little, which misleads the index of the linear program.
        budget_share: share of the arms that are served at every step.

    Example:
        >>> import evenhand as eh
        >>> eh.problems.eight_states(num_arms=10)
        CoupledMDP(10 arms, identical, 1 resource, average)
    """
    given = Arguments()
    given.choice("version", version, ("plain", "second"))
    given.raise_if_any("eight-states")
    transitions, rewards = np.zeros((8, 2, 8)), np.zeros((8, 2))
    for state in range(8):
        right = int(state < 4)
        back = 0.0 if state == 0 else 1.0 if state == 1 else 0.5 - 0.01 * state
        transitions[state, right, (state + 1) % 8], transitions[state, right, state] = 0.1, 0.9
        transitions[state, 1 - right, state] += 1 - back
        transitions[state, 1 - right, max(state - 1, 0)] += back
    rewards[7, 0] = 0.1
    rewards[0, 1] = 0.1 / 30 if version == "second" else 0.0
    return _identical(transitions, rewards, num_arms, budget_share, "eight-states")


def non_sa(num_arms: int = 100, budget_share: float = 0.6) -> CoupledMDP:
    """Identical arms that must follow a script of eight states, and start again after a wrong action (Hong et al.).

    Args:
        num_arms: number of arms.
        budget_share: share of the arms that are served at every step.

    Example:
        >>> import evenhand as eh
        >>> eh.problems.non_sa(num_arms=10)
        CoupledMDP(10 arms, identical, 1 resource, average)
    """
    script = np.array([1, 1, 1, 1, 1, 1, 0, 1])
    transitions, rewards = np.zeros((8, 2, 8)), np.zeros((8, 2))
    following = {6: {7: 0.5, 4: 0.5}, 7: {6: 1.0}}
    for state, right in enumerate(script):
        for target, chance in following.get(state, {state + 1: 1.0}).items():
            transitions[state, right, target] = chance
        transitions[state, 1 - right, 0] = 1.0
    rewards[np.arange(4, 8), script[4:]] = 1.0
    return _identical(transitions, rewards, num_arms, budget_share, "non-sa")


def non_indexable(num_arms: int = 100, budget_share: float = 0.5) -> CoupledMDP:
    """Identical arms without Whittle indices (Hong, Xie, Chen and Wang).

    Args:
        num_arms: number of arms.
        budget_share: share of the arms that are served at every step.

    Example:
        >>> import evenhand as eh
        >>> eh.problems.non_indexable(num_arms=10)
        CoupledMDP(10 arms, identical, 1 resource, average)
    """
    transitions = np.array(
        [
            [[0.1902, 0.4156, 0.3942], [0.7796, 0.0903, 0.1301]],
            [[0.5676, 0.4191, 0.0133], [0.1903, 0.1863, 0.6234]],
            [[0.0191, 0.1097, 0.8712], [0.2901, 0.3901, 0.3198]],
        ]
    )
    rewards = np.array([[0.458, 0.9631], [0.5308, 0.7963], [0.6873, 0.1057]])
    return _identical(transitions, rewards, num_arms, budget_share, "non-indexable")


def equitable(instance: Equitable = "maternal", budget: float = 20, scale: int = 1) -> CoupledMDP:
    """Groups over 20 steps, whose worst value is maximised (Killian et al., equitable restless bandits).

    Args:
        instance: `maternal`, 200 mothers in three groups, or `counterexample`, 100 arms in five groups.
        budget: arms that are served at every step.
        scale: factor of the numbers of arms and of the budget.

    Example:
        >>> import evenhand as eh
        >>> eh.problems.equitable("counterexample", budget=10)
        CoupledMDP(100 arms, 5 types, 1 resource, finite:20, over 5 groups)
    """
    given = Arguments()
    given.choice("instance", instance, ("maternal", "counterexample"))
    given.number("budget", budget)
    given.whole("scale", scale, most=10**6)
    given.raise_if_any("equitable")
    arms = _mothers() if instance == "maternal" else _good_or_bad()
    counts = [120, 40, 40] if instance == "maternal" else [25, 25, 5, 25, 20]
    return CoupledMDP(
        arms,
        counts=scale * np.array(counts),
        budget=[scale * budget],
        discount=1.0,
        criterion=as_criterion("finite:20", 1.0),
        groups=[arm.name for arm in arms],
        over="groups",
        welfare="maximin",
    )


def _mothers() -> list[Arm]:
    """Self-motivated, persuadable or lost: three groups that calls help unequally."""
    arms = []
    for number, (lost, won) in enumerate([(0.75, 0.75), (0.6, 0.4), (0.6, 0.25)]):
        transitions = np.zeros((3, 2, 3))
        transitions[0, :, 0] = transitions[0, :, 1] = 0.5
        transitions[1, 0, [2, 1]] = lost, 1 - lost
        transitions[1, 1, [0, 1]] = won, 1 - won
        transitions[2, :, 2], transitions[2, :, 1] = 0.6, 0.4
        rewards = np.repeat([[1.0], [0.5], [0.0]], 2, axis=1)
        arms.append(Arm(transitions, rewards, [[0], [1]], name=f"group {number}"))
    return arms


def _good_or_bad() -> list[Arm]:
    """Two states: the probability of the good one next, by state and action."""
    chances = [[0.05, 0.99, 0.35, 0.99], [0.05, 0.95, 0.10, 0.95], [0.05, 0.90, 0.05, 0.90], [0.4] * 4, [0.4] * 4]
    arms = []
    for number, chance in enumerate(chances):
        good = np.array(chance).reshape(2, 2)
        rewards = np.array([[0.0, 0.0], [1.0, 1.0]])
        transitions = np.stack([1 - good, good], axis=-1)
        arms.append(Arm(transitions, rewards, [[0], [1]], name=f"group {number}"))
    return arms


def three_machines() -> CoupledMDP:
    """Three machines that wear at different rates, of which one is replaced per step (Akbarzadeh and Mahajan).

    Example:
        >>> import evenhand as eh
        >>> eh.problems.three_machines()
        CoupledMDP(3 arms, 3 types, 1 resource, discount 0.95)
    """
    arms, states = [], np.arange(3)
    costs = np.column_stack([states**2, np.full(3, 0.5 * 2**2)])
    for stays in (0.5, 0.7, 0.9):
        transitions = np.zeros((3, 2, 3))
        transitions[states, 0, states] = stays
        transitions[states, 0, np.minimum(states + 1, 2)] += 1 - stays
        transitions[:, 1, 0] = 1.0
        arms.append(Arm(transitions, 1 - costs / costs.max(), [[0], [1]]))
    return CoupledMDP(arms, budget=[1], discount=0.95)


def bayesian_bandit(num_arms: int = 150, horizon: int = 15, budget_share: float = 1 / 3) -> CoupledMDP:
    """Bernoulli arms with unknown success rates: the state is the number of successes and failures (Zhang, Frazier).

    Args:
        num_arms: number of arms.
        horizon: number of steps.
        budget_share: share of the arms that are pulled at every step.

    Example:
        >>> import evenhand as eh
        >>> eh.problems.bayesian_bandit(num_arms=6, horizon=4)
        CoupledMDP(6 arms, identical, 1 resource, finite:4)
    """
    given = Arguments()
    given.whole("num_arms", num_arms, most=MOST_ARMS)
    given.whole("horizon", horizon, most=60)
    given.number("budget_share", budget_share, most=1)
    given.raise_if_any("bayesian-bandit")
    pulled = ((won, total - won) for total in range(horizon) for won in range(total + 1))
    places = {place: number for number, place in enumerate(pulled)}
    transitions, rewards = np.zeros((len(places), 2, len(places))), np.zeros((len(places), 2))
    for (won, lost), here in places.items():
        chance = (won + 1) / (won + lost + 2)
        transitions[here, 0, here] = 1.0
        # What is learned by the last pull is of no use.
        transitions[here, 1, places.get((won + 1, lost), here)] += chance
        transitions[here, 1, places.get((won, lost + 1), here)] += 1 - chance
        rewards[here, 1] = chance
    initial = np.zeros(len(places))
    initial[0] = 1.0
    arm = Arm(transitions, rewards, [[0], [1]], initial=initial)
    return CoupledMDP(
        [arm],
        counts=[num_arms],
        budget=[round(budget_share * num_arms, 9)],
        discount=1.0,
        criterion=as_criterion(f"finite:{horizon}", 1.0),
        welfare="utilitarian",
    )
