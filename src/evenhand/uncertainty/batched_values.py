"""Values of one policy in many scenarios together: exact, or simulated.

Exact. The decision rule of a policy, on counts or on joint states, does not depend on the transitions: its pairs and
their probabilities are written down once. In scenario d the policy's Markov chain is

    C_d(x, y) = sum_{pairs u of x} pi(u | x) prod_c L_d,c(u, y_c)

where c runs over the types, with L the distribution of their next counts (`kernels.lattice`), or over the
arms, with L a row of transitions. The scenarios are solved together, in batches:

    discounted   q = (I - gamma C^T)^-1 mu                   dense systems
    finite:T     q_t = (C_t^T)^t mu, summed with the criterion's weights
    average      q = lim ((I + C) / 2)^n mu                  by repeated squaring, with rows normalised: the lazy chain
                                                             has the same limit and is aperiodic

and V = sum_x q(x) sum_u pi(u | x) r(u).

Simulated. Each scenario has the same number of episodes, and a batch of scenarios is simulated together: the policy
acts once per step for all episodes, and the arms of an episode move by the transitions of its scenario. Random numbers
belong to (step, episode, arm), with episodes counted through all scenarios. So two policies with the same seed meet the
same numbers in every scenario, and the errors of different scenarios are independent.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from evenhand.checks import as_generator, check_memory, check_positive_int, check_shape
from evenhand.errors import NotApplicableError
from evenhand.evaluation.exact import rules_by_step, write_law
from evenhand.evaluation.rollout import BATCH, Play, Sums, in_batches, play_batch, step_weights
from evenhand.kernels.lattice import movers_distributions
from evenhand.kernels.randomness import draw_keys
from evenhand.kernels.stepping import World, first_states
from evenhand.model.arm import running_sums
from evenhand.model.coupled import CoupledMDP
from evenhand.model.policy import Policy, StatefulPolicy, capabilities, check_acts, check_budget
from evenhand.solvers.counts.reduction import Counts, num_count_states
from evenhand.solvers.joint import Joint, num_joint_states
from evenhand.typing import Array, Floats, Ints, Rng

Component = Callable[[Floats], Floats]
"""(scenario, type, state, action, next_state) transitions -> (scenario, pair, point) next states of one type or arm."""


class DecisionRule(NamedTuple):
    """Pairs that a policy takes, independent of the transitions.

    `by_type`: whether states are counts and units are types; else states are joint and units are arms. `state`:
    (pair,) ascending. `probabilities`: (pair,) positive. `rewards`: (pair, unit). `initial`: (state,) distribution.
    `components`: independent factors of the transition, the slowest index first.
    """

    by_type: bool
    state: Ints
    probabilities: Floats
    rewards: Floats
    initial: Floats
    components: tuple[Component, ...]

    def sum_pairs(self, figures: Floats, axis: int) -> Floats:
        """Return the expectation over the pairs of each state."""
        starts = np.searchsorted(self.state, np.arange(len(self.initial)))
        weights = self.probabilities.reshape(-1, *[1] * (figures.ndim - axis - 1))
        return np.asarray(np.add.reduceat(figures * weights, starts, axis=axis))

    def chains(self, transitions: Floats) -> Floats:
        """Return the (scenario, state, next_state) chains of the policy."""
        rows = np.ones((len(transitions), len(self.state), 1))
        for component in self.components:
            # Outer product per pair, the last component fastest.
            rows = rows[..., None] * component(transitions)[:, :, None, :]
            rows = rows.reshape(len(rows), len(self.state), -1)
        return self.sum_pairs(rows, axis=1)


def exact_scenario_values(rules: Sequence[DecisionRule], problem: CoupledMDP, transitions: Floats) -> Floats:
    """Return the (scenario, unit) values of a policy.

    Args:
        rules: decision rule per step, repeated in turn; one for a stationary policy.
        problem: the problem, apart from its transitions.
        transitions: (scenario, type, state, action, next_state) probabilities.
    """
    states, pairs = len(rules[0].initial), max(len(rule.state) for rule in rules)
    size = 8.0 * states * max(4 * states, 3 * pairs) * len({id(rule) for rule in rules})
    batch = max(1, int(1e8 / size))  # bytes of the scenarios that are solved together
    starts = range(0, len(transitions), batch)
    return np.concatenate([_batch_values(rules, problem, transitions[start : start + batch]) for start in starts])


def _batch_values(rules: Sequence[DecisionRule], problem: CoupledMDP, transitions: Floats) -> Floats:
    criterion, first = problem.criterion, rules[0]
    rewards = {id(rule): rule.sum_pairs(rule.rewards, axis=0) for rule in rules}
    chains = {id(rule): rule.chains(transitions) for rule in rules}
    visited, chain, reward = (
        np.repeat(first.initial[None], len(transitions), axis=0),
        chains[id(first)],
        rewards[id(first)],
    )
    if not criterion.is_stationary:
        values = np.zeros((len(transitions), reward.shape[1]))
        for step, weight in enumerate(criterion.time_weights(criterion.num_layers).tolist()):
            rule = id(rules[step % len(rules)])
            values += weight * (visited @ rewards[rule])
            visited = np.einsum("ds,dst->dt", visited, chains[rule])
        return values
    if criterion.factor == 1:
        return np.asarray(np.einsum("ds,dst,tu->du", visited, _limits(chain), reward))
    systems = np.eye(chain.shape[1]) - criterion.factor * chain.transpose(0, 2, 1)
    return np.asarray(np.linalg.solve(systems, visited[..., None])[..., 0] @ reward)


def _limits(chains: Floats) -> Floats:
    """Return the (scenario, state, next_state) limits of the lazy chains."""
    lazy = 0.5 * (np.eye(chains.shape[1]) + chains)
    for _ in range(60):
        squared = lazy @ lazy
        # Row sums lose digits with every squaring, which the next one doubles.
        squared /= squared.sum(axis=2, keepdims=True)
        change, lazy = np.abs(squared - lazy).max(), squared
        if change <= 1e-14:
            break
    return lazy


def decision_rules(policy: object, problem: CoupledMDP, max_states: int) -> list[DecisionRule]:
    """Return the decision rules of a policy, one per step if steps differ.

    Args:
        policy: the policy.
        problem: the problem; its transitions are not used.
        max_states: number of states, over all steps, up to which rules are written.

    Raises:
        NotApplicableError: the distribution of actions is not known, or the space is too large.
    """
    return rules_by_step(policy, problem, lambda step, number: _rule(step, problem, max_states // number))


def _rule(policy: object, problem: CoupledMDP, max_states: int) -> DecisionRule:
    can = capabilities(policy)
    table = can.table
    is_joint = table is not None and isinstance(table.reduction, Joint) and num_joint_states(problem) <= max_states
    if not is_joint and num_count_states(problem) > max_states:
        raise NotApplicableError("the state space is too large to evaluate a policy exactly in every scenario")
    space: Joint | Counts = Joint(problem) if is_joint else Counts(problem)
    if table is not None and isinstance(table.reduction, type(space)):
        taken = table.probabilities > 0
        state = np.repeat(np.arange(space.num_states), np.diff(table.reduction.mdp.offsets))[taken]
        own: Any = table.reduction
        chosen, probabilities = (own.actions if is_joint else own.allocations)[taken], table.probabilities[taken]
    elif can.law is not None:
        state, chosen, probabilities = write_law(can, can.law, Counts(problem))
    else:
        raise NotApplicableError("this policy has no known distribution of allocations, so it can only be simulated")
    if len(state) * float(space.num_states) > 3e6:  # entries of the chain before pairs are summed
        raise NotApplicableError("the policy has too many pairs to evaluate it exactly in every scenario")
    if isinstance(space, Counts):
        check_budget(problem, space.usage_of(chosen), 0)
        components = [_next_counts(kind, chosen[:, kind], problem) for kind in range(problem.num_types)]
        rewards = space.mean_rewards(chosen)
    else:
        cells = problem.type_of_arm, space.states[state], chosen
        components = [_next_states(problem, n, cells[1][:, n], chosen[:, n]) for n in range(problem.num_arms)]
        rewards = problem.types.rewards[cells]
    return DecisionRule(not is_joint, state, probabilities, rewards, space.initial, tuple(components))


def _next_states(problem: CoupledMDP, arm: int, states: Array, actions: Array) -> Component:
    """Return the distribution of the next state of an arm."""
    kind = int(problem.type_of_arm[arm])
    size = int(problem.types.num_states[kind])
    return lambda transitions: transitions[:, kind, states, actions, :size]


def _next_counts(kind: int, allocations: Ints, problem: CoupledMDP) -> Component:
    """Return the distribution of the next counts of a type; equal allocations share it."""
    states, actions = np.nonzero(problem.types.real[kind])
    distinct, number = np.unique(allocations[:, states, actions], axis=0, return_inverse=True)
    size, number = int(problem.types.num_states[kind]), number.reshape(-1)
    return lambda transitions: movers_distributions(distinct, transitions[:, kind, states, actions, :size])[:, number]


# -- simulation ------------------------------------------------------------------------------------------------------


def simulate_scenarios(
    problem: CoupledMDP,
    policy: Policy | StatefulPolicy,
    transitions: Floats,
    rewards: Floats | None = None,
    num_episodes: int = 10,
    horizon: int | None = None,
    rng: Rng = 0,
    batch_size: int = BATCH,
) -> Floats:
    """Simulate a policy in every scenario, arm by arm.

    Args:
        problem: the problem, apart from its transitions.
        policy: the policy; its actions are checked at every step.
        transitions: (scenario, block, state, action, next_state) probabilities.
        rewards: (scenario, block, state, action) rewards; the problem's by default.
        num_episodes: episodes per scenario.
        horizon: steps per episode; the criterion's by default.
        rng: seed or generator.
        batch_size: arms, over episodes and scenarios, that are simulated together.

    Returns:
        (scenario, episode, arm) weighted sums of rewards up to the horizon.

    Raises:
        PolicyError: an action does not exist, the budget is exceeded, or the shape is wrong.
        TooLargeError: it does not fit in memory.
    """
    check_acts(policy)
    check_positive_int(num_episodes, "num_episodes")
    tables, number = problem.tables, len(transitions)
    shape = tables.transitions.shape
    check_shape(transitions, {"scenario": None, **dict(zip("bsaj", shape, strict=True))}, "transitions")
    if rewards is None:
        rewards = np.broadcast_to(tables.rewards, (number, *shape[:3]))
    check_shape(rewards, {"scenario": number, **dict(zip("bsa", shape[:3], strict=True))}, "rewards")
    weights = step_weights(problem, horizon)
    width = num_episodes * problem.num_arms
    batch = max(1, min(number, batch_size // width))
    size = 8.0 * number * width + batch * (40.0 * width + 16.0 * transitions[0].size)
    what = f"{number} scenarios with {num_episodes} episodes of {problem.num_arms} arms"
    check_memory(size, what, "Use fewer draws.")
    environment_rng, policy_rng = as_generator(rng).spawn(2)
    keys = draw_keys(environment_rng, len(weights) + 1)
    returns = np.zeros((number, num_episodes, problem.num_arms))
    type_of_arm = np.repeat(np.arange(len(tables), dtype=np.int32), problem.counts)
    for rows, stream, _ in in_batches(number, width, policy_rng, batch_size=batch_size):
        number_here = rows.stop - rows.start
        # The tables of the scenarios, one after another, and the first table of each episode.
        world = World(
            type_of_arm=type_of_arm,
            cumulative=running_sums(transitions[rows]).reshape(-1, *shape[1:]),
            rewards=np.ascontiguousarray(rewards[rows]).reshape(1, -1, *shape[1:3]),
            usage=tables.usage,
            valid=tables.real,
            serves=tables.served,
            starts=np.repeat(np.arange(number_here, dtype=np.int32) * len(tables), num_episodes),
        )
        own = returns[rows].reshape(1, -1, problem.num_arms)  # a view, written to
        play = Play(weights, keys, rows.start * num_episodes, stream)
        episodes = own.shape[1]
        states = first_states(type_of_arm, tables.cumulative_initial, keys[0], play.first, episodes)
        used, other = np.zeros((episodes, problem.num_resources)), np.zeros((2, *own.shape[1:]))
        play_batch(problem, policy, world, states, play, Sums(own, other[0], used, other[1]))
    return returns
