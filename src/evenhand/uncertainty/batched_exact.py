"""Exact values of one policy in many scenarios.

The decision rule of a policy, on counts or on joint states, does not depend on the transitions: its pairs and their
probabilities are written down once. In scenario d the policy's Markov chain is

    C_d(x, y) = sum_{pairs u of x} pi(u | x) prod_c L_d,c(u, y_c)

where c runs over the types, with L the distribution of their next counts (`kernels.lattice_laws`), or over the arms,
with L a row of transitions. The scenarios are solved together, in batches:

    discounted   q = (I - gamma C^T)^-1 mu                   dense systems
    finite:T     q_t = (C_t^T)^t mu, summed with the criterion's weights
    average      q = lim ((I + C) / 2)^n mu                  by repeated squaring, with rows normalised: the lazy chain
                                                             has the same limit and is aperiodic

and V = sum_x q(x) sum_u pi(u | x) r(u).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from evenhand.errors import NotApplicableError
from evenhand.evaluation.exact import write_law
from evenhand.kernels.lattice_laws import laws_of_movers
from evenhand.model.composite import steps_of
from evenhand.model.coupled import CoupledMDP
from evenhand.model.feasible import check_budget
from evenhand.model.policy import Capabilities, capabilities
from evenhand.reductions.counts import Counts, num_count_states
from evenhand.reductions.joint import Joint, num_joint_states
from evenhand.typing import Floats, Indices, Ints

MAX_ENTRIES = 3e6
"""Entries of the chain before pairs are summed, per scenario, beyond which a policy is simulated."""

BATCH_BYTES = 1e8
"""Memory of the scenarios that are solved together."""

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
    batch = max(1, int(BATCH_BYTES / size))
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
    if criterion.num_steps is not None:
        values = np.zeros((len(transitions), reward.shape[1]))
        for step, weight in enumerate(criterion.time_weights(criterion.num_steps).tolist()):
            rule = id(rules[step % len(rules)])
            values += weight * (visited @ rewards[rule])
            visited = np.einsum("ds,dst->dt", visited, chains[rule])
        return values
    if criterion.is_average:
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
    steps, number = steps_of(policy), problem.criterion.num_steps
    if number is None and len(steps) > 1:
        raise NotApplicableError(
            f"a policy by steps can only be simulated under the criterion {problem.criterion.name}"
        )
    distinct = {id(step): step for step in steps[: number or 1]}
    rules = {key: _rule(step, problem, max_states // len({id(one) for one in steps})) for key, step in distinct.items()}
    if len({rule.by_type for rule in rules.values()}) > 1:
        raise NotApplicableError(
            "the steps of this policy are tables over different spaces, so it can only be simulated"
        )
    return [rules[id(step)] for step in steps[: number or 1]]


def _rule(policy: object, problem: CoupledMDP, max_states: int) -> DecisionRule:
    can = capabilities(policy)
    is_joint = can.table is not None and isinstance(can.table.reduction, Joint)
    if is_joint and num_joint_states(problem) <= max_states:
        rule = _joint_rule(can, problem)
    elif num_count_states(problem) <= max_states:
        rule = _count_rule(can, problem)
    else:
        raise NotApplicableError("the state space is too large to evaluate a policy exactly in every scenario")
    if len(rule.state) * float(len(rule.initial)) > MAX_ENTRIES:
        raise NotApplicableError("the policy has too many pairs to evaluate it exactly in every scenario")
    return rule


def _joint_rule(can: Capabilities, problem: CoupledMDP) -> DecisionRule:
    assert can.table is not None
    space = Joint(problem)
    state = np.repeat(np.arange(space.num_states), np.diff(can.table.reduction.mdp.offsets))
    taken = can.table.probabilities > 0
    state, actions = state[taken], space.actions[taken]
    kinds, states = problem.type_of_arm, space.states[state]
    sizes = problem.types.num_states[kinds].tolist()
    components = [_arm_rows(kind, states[:, n], actions[:, n], sizes[n]) for n, kind in enumerate(kinds.tolist())]
    rewards = problem.types.rewards[kinds, states, actions]
    return DecisionRule(False, state, can.table.probabilities[taken], rewards, space.initial, tuple(components))


def _arm_rows(kind: int, states: Indices, actions: Indices, size: int) -> Component:
    return lambda transitions: transitions[:, kind, states, actions, :size]


def _count_rule(can: Capabilities, problem: CoupledMDP) -> DecisionRule:
    space = Counts(problem)
    if can.table is not None and isinstance(can.table.reduction, Counts):
        own = can.table.reduction
        taken = can.table.probabilities > 0
        state = np.repeat(np.arange(own.num_states), np.diff(own.mdp.offsets))[taken]
        allocations, probabilities = own.allocations[taken], can.table.probabilities[taken]
    elif can.law is not None:
        state, allocations, probabilities = write_law(can, can.law, space)
    else:
        raise NotApplicableError("this policy has no known distribution of allocations, so it can only be simulated")
    check_budget(problem, space.usage_of(allocations), 0)
    components = [_next_counts(kind, allocations[:, kind], problem) for kind in range(problem.num_types)]
    rewards = space.mean_rewards(allocations)
    return DecisionRule(True, state, probabilities, rewards, space.initial, tuple(components))


def _next_counts(kind: int, allocations: Ints, problem: CoupledMDP) -> Component:
    """Return the distribution of the next counts of a type; equal allocations share it."""
    states, actions = np.nonzero(problem.types.real[kind])
    distinct, number = np.unique(allocations[:, states, actions], axis=0, return_inverse=True)
    size, number = int(problem.types.num_states[kind]), number.reshape(-1)
    return lambda transitions: laws_of_movers(distinct, transitions[:, kind, states, actions, :size])[:, number]
