"""One policy as a table, exactly weighed in many worlds at once.

What a policy does on counts, or on joint states, does not depend on how arms move: its pairs and their probabilities
are written once. In world d the chain of the policy is

    C_d(x, y) = sum_{pairs u of x} pi(u | x) prod_c L_d,c(u, y_c)

where c are the types, and L the law of their next counts (`kernels.lattice_laws`), or the arms, and L a row of theirs.
All worlds are treated together, some at a time:

    discounted   q = (I - gamma C^T)^-1 mu                   dense systems
    finite:T     q_t = (C_t^T)^t mu, summed with the criterion's weights
    average      q = lim ((I + C) / 2)^n mu                  by squaring, with rows scaled to 1: the chain that stays
                                                             with probability 1/2 has the same long run, and no periods

and V = sum_x q(x) sum_u pi(u | x) r(u).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from evenhand.errors import NotApplicable
from evenhand.evaluation.exact import write_law
from evenhand.kernels.lattice_laws import laws_of_movers
from evenhand.model.composite import steps_of
from evenhand.model.coupled import CoupledMDP
from evenhand.model.feasible import check_budget
from evenhand.model.policy import Capabilities, capabilities
from evenhand.reductions.counts import Counts, num_count_states
from evenhand.reductions.joint import Joint, num_joint_states
from evenhand.simulation.worlds import WHOLE, Part, batches_of
from evenhand.typing import Floats, Indices, Ints, Progress

MOST_STATES, MOST_AVERAGE = 600, 120
"""States, over all steps, up to which a policy is weighed so; fewer under `average`, where matrices are squared."""

MOST_ENTRIES = 3e6
"""Entries of the laws of one world."""

AT_ONCE = 1e8
"""Bytes of the worlds that are treated together."""

MOST_SQUARES, STILL = 60, 1e-14
"""Squarings at the most, and the change at which the long run is reached."""

Component = Callable[[Floats], Floats]
"""From (world, type, state, action, next_state) transitions to (world, pair, point) the law of one type, or arm."""


class Table(NamedTuple):
    """What a policy does, whatever the world."""

    by_type: bool
    """Whether it is on counts, and its units are types; else on joint states, and they are arms."""

    state: Ints
    """(pair,) in ascending order."""

    probabilities: Floats
    """(pair,) all above 0."""

    rewards: Floats
    """(pair, unit)"""

    initial: Floats
    """(state,)"""

    components: tuple[Component, ...]
    """What moves independently of the rest, the slowest index first."""

    def chains(self, transitions: Floats) -> Floats:
        """(world, state, next_state) the chain of the policy in each world."""
        rows = np.ones((len(transitions), len(self.state), 1))
        for component in self.components:
            law = component(transitions)
            # The product over components: an outer product for every pair, the last component fastest.
            rows = (rows[..., None] * law[:, :, None, :]).reshape(len(rows), len(self.state), -1)
        # Pairs are sorted by state; every state has at least one, as `reduceat` needs it.
        starts = np.searchsorted(self.state, np.arange(len(self.initial)))
        return np.asarray(np.add.reduceat(rows * self.probabilities[:, None], starts, axis=1))

    @property
    def earned(self) -> Floats:
        """(state, unit) what is earned at a state."""
        starts = np.searchsorted(self.state, np.arange(len(self.initial)))
        return np.asarray(np.add.reduceat(self.rewards * self.probabilities[:, None], starts, axis=0))


def values_of_tables(
    tables: Sequence[Table],
    problem: CoupledMDP,
    transitions: Floats,
    progress: Progress | None = None,
    part: Part = WHOLE,
) -> Floats:
    """(world, unit) the values of a policy in every world, or in those of a part.

    Args:
        tables: of each step, over and over again; one where all steps are alike.
        problem: what all worlds have in common.
        transitions: (world, type, state, action, next_state) how arms of each type move.
        progress: called now and then with what is being done and the share done.
        part: of the worlds, cut between those that are treated together.
    """
    # Per world: chains and systems (state, state), or rows (pair, state) before they are summed up.
    size = 8.0 * len(tables[0].initial) * max(4 * len(tables[0].initial), 3 * max(len(table.state) for table in tables))
    each = max(1, int(AT_ONCE / (size * len({id(table) for table in tables}))))
    starts = range(0, len(transitions), each)
    mine = batches_of(len(starts), part)
    found = [np.zeros((0, tables[0].rewards.shape[1]))]
    for place, batch in enumerate(mine):
        if progress is not None:
            progress("weighing exactly", place / len(mine))
        found.append(_some(tables, problem, transitions[starts[batch] : starts[batch] + each]))
    return np.concatenate(found)


def _some(tables: Sequence[Table], problem: CoupledMDP, transitions: Floats) -> Floats:
    criterion, first = problem.criterion, tables[0]
    if criterion.num_steps is not None:
        return _forwards(tables, criterion.time_weights(criterion.num_steps), transitions)
    chains = first.chains(transitions)
    # From the initial law to the long run, then what is earned there.
    if criterion.is_average:
        return np.asarray(np.einsum("s,dst,tu->du", first.initial, _long_run(chains), first.earned))
    systems = np.eye(chains.shape[1]) - criterion.factor * chains
    start = np.broadcast_to(first.initial[:, None], (len(chains), len(first.initial), 1))
    # Transposed: visits are pushed from the start, q = mu + gamma C^T q.
    visits = np.linalg.solve(systems.transpose(0, 2, 1), start)[..., 0]
    return np.asarray(visits @ first.earned)


def _forwards(tables: Sequence[Table], weights: Floats, transitions: Floats) -> Floats:
    # Steps that share a table share its chain.
    chains = {id(table): table.chains(transitions) for table in tables}
    earned = {id(table): table.earned for table in tables}
    law = np.repeat(tables[0].initial[None], len(transitions), axis=0)
    values = np.zeros((len(transitions), tables[0].rewards.shape[1]))
    for step, weight in enumerate(weights.tolist()):
        table = tables[step % len(tables)]
        values += weight * (law @ earned[id(table)])
        law = np.einsum("ds,dst->dt", law, chains[id(table)])
    return values


def _long_run(chains: Floats) -> Floats:
    """(world, state, next_state) where each chain is in the long run, from each state."""
    # Half of the time it stays, so that there are no periods.
    stays = 0.5 * (np.eye(chains.shape[1]) + chains)
    for _ in range(MOST_SQUARES):
        squared = stays @ stays
        # Rows lose a little with every squaring, and squaring doubles what was lost.
        squared /= squared.sum(axis=2, keepdims=True)
        change, stays = np.abs(squared - stays).max(), squared
        if change <= STILL:
            break
    return stays


def write_tables(policy: object, problem: CoupledMDP) -> list[Table]:
    """A policy as tables, one a step where steps differ.

    Args:
        policy: what acts.
        problem: where; its transitions are not looked at.

    Raises:
        NotApplicable: its law is not known, or it would be too large.
    """
    # More parts than the horizon has steps are never played.
    steps = steps_of(policy)
    number = problem.criterion.num_steps
    if number is None and len(steps) > 1:
        raise NotApplicable(f"a policy by steps can only be simulated under the criterion {problem.criterion.name}")
    # By identity: a policy by steps often repeats one object.
    known: dict[int, Table] = {}
    for step in steps[: number or 1]:
        if id(step) not in known:
            known[id(step)] = _write(step, problem, len({id(one) for one in steps}))
    tables = [known[id(step)] for step in steps[: number or 1]]
    if len({table.by_type for table in tables}) > 1:
        raise NotApplicable("the steps of this policy are tables over different spaces, so it can only be simulated")
    return tables


def _write(policy: object, problem: CoupledMDP, steps: int) -> Table:
    can = capabilities(policy)
    reduction = None if can.table is None else can.table.reduction
    most = MOST_AVERAGE if problem.criterion.is_average else MOST_STATES
    # A joint table stays one where the space is small; any other policy goes by its law on counts.
    if isinstance(reduction, Joint) and steps * num_joint_states(problem) <= most:
        return _on_arms(can, problem)
    if steps * num_count_states(problem) > most:
        raise NotApplicable("the space is too large to weigh a policy exactly in every draw")
    return _on_counts(can, problem)


def _on_arms(can: Capabilities, problem: CoupledMDP) -> Table:
    assert can.table is not None
    space = Joint(problem)
    state = np.repeat(np.arange(space.num_states), np.diff(can.table.reduction.mdp.offsets))
    # Pairs that are never chosen would only cost.
    kept = can.table.probabilities > 0
    state, actions = state[kept], space.actions[kept]
    kinds, states = problem.type_of_arm, space.states[state]
    sizes = problem.types.num_states[kinds]
    components = [_arm(int(kind), states[:, n], actions[:, n], int(sizes[n])) for n, kind in enumerate(kinds.tolist())]
    rewards = problem.types.rewards[kinds, states, actions]
    return _checked(Table(False, state, can.table.probabilities[kept], rewards, space.initial, tuple(components)))


def _arm(kind: int, states: Indices, actions: Indices, size: int) -> Component:
    return lambda transitions: transitions[:, kind, states, actions, :size]


def _on_counts(can: Capabilities, problem: CoupledMDP) -> Table:
    space = Counts(problem)
    if can.table is not None and isinstance(can.table.reduction, Counts):
        own = can.table.reduction
        kept = can.table.probabilities > 0
        state = np.repeat(np.arange(own.num_states), np.diff(own.mdp.offsets))[kept]
        allocations, probabilities = own.allocations[kept], can.table.probabilities[kept]
    elif can.law is not None:
        state, allocations, probabilities = write_law(can, can.law, space)
    else:
        raise NotApplicable("this policy has no known law on counts, so it can only be simulated")
    check_budget(problem, space.usage_of(allocations), 0)
    components = [_crowd(kind, allocations[:, kind], problem) for kind in range(problem.num_types)]
    rewards = space.mean_rewards(allocations)
    return _checked(Table(True, state, probabilities, rewards, space.initial, tuple(components)))


def _crowd(kind: int, allocations: Ints, problem: CoupledMDP) -> Component:
    """The law of the next counts of a type; allocations that are alike share it."""
    states, actions = np.nonzero(problem.types.real[kind])
    # Allocations that are alike move alike: their law is computed once.
    used, number = np.unique(allocations[:, states, actions], axis=0, return_inverse=True)
    size = int(problem.types.num_states[kind])

    def law(transitions: Floats) -> Floats:
        return laws_of_movers(used, transitions[:, kind, states, actions, :size])[:, number.reshape(-1)]

    return law


def _checked(table: Table) -> Table:
    if len(table.state) * float(len(table.initial)) > MOST_ENTRIES:
        raise NotApplicable("the policy has too many choices to weigh it exactly in every draw")
    return table
