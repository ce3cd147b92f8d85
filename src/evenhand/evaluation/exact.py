"""Exact values of a policy on the joint or the count space, under every criterion.

A policy given by a table knows its own space. Any other policy whose law on counts is known (`Lawful`) is tabulated
first: at every count state its possible allocations are the pairs, and their probabilities the policy. Then

    discounted, average   the occupancy measure of the table, by one linear solve (`solvers.occupancy`)
    finite:T              forwards from the initial law:  x_{t+1} = P_t^T x_t,   V = sum_{t<T} w_t x_t . r_t

where the tables of a policy by steps may differ from step to step; one that is shorter than the horizon begins again.
Choices on the counts of several types, as `solve` gives where these are many, are evaluated without a table: visits are
computed type by type (`solvers.counts`), and every fact about decisions is a sum over them.
A mixture draws its part once and for all, so its values are the shares of its parts' values under every criterion.
Arms that do not compete, each with action shares of its own state, are Markov chains by themselves
(`independent_values`), however many there are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
from scipy import sparse

from evenhand.checks import check_shape
from evenhand.display import size_in_words
from evenhand.errors import NotApplicableError, PolicyError
from evenhand.kernels.lattice import lattice_size
from evenhand.kernels.products import distinct_rows
from evenhand.model.composite import (
    CompositePolicy,
    components,
    is_mixture,
    is_time_varying,
    redraw_period,
    steps_of,
)
from evenhand.model.coupled import CoupledMDP
from evenhand.model.criterion import Criterion
from evenhand.model.policy import Capabilities, Lawful, Space, capabilities, check_budget
from evenhand.model.tabular import TabularMDP
from evenhand.solvers.counts import Moves, Operators, Visits, plan_types
from evenhand.solvers.counts.reduction import Counts, TypedChoices, num_count_states
from evenhand.solvers.joint import Joint, num_joint_states
from evenhand.solvers.occupancy import occupancy_measure, total_visits
from evenhand.typing import Floats, Ints

Rule = TypeVar("Rule")

MOST_STATES = 6000
"""Count states up to which a policy that is not a table is tabulated; over all its steps, if they differ."""


ROW = 150.0
"""Entries of a table of transitions that cost as much as one allocation of a policy's distribution."""

QUICK, WORTH = 1e7, 2.0
"""Operations that exact values may always take, some seconds; and as a multiple of the arm-steps that are simulated
in their place, which cost about as much each."""


@dataclass(frozen=True)
class ExactValues:
    """Values without error, but for rounding; its units are the types, or the arms."""

    values: Floats
    """(unit,) expected value of one arm of each unit."""

    by_type: bool
    """True if the units are the types, or the arms themselves."""

    used: Floats
    """(resource,) expected usage, summed with the criterion's weights."""

    served: Floats
    """(unit,) expected share of time in which an arm of the unit is served."""


def exact_values(problem: CoupledMDP, policy: object) -> ExactValues:
    """Evaluate a policy exactly, under the problem's criterion.

    Raises:
        NotApplicableError: the policy's law is not known, or the count space is too large to tabulate it.
        TooLargeError: the tables would not fit.
    """
    if redraw_period(policy) is not None:
        raise NotApplicableError("a mixture that is drawn anew now and then is only simulated")
    if is_mixture(policy):
        parts, shares = components(policy)
        return _mixed([exact_values(problem, part) for part in parts], shares, problem)
    # Choices on many counts have a way that needs no table; for few states a table is quicker.
    steps = _typed_steps(policy, problem)
    if steps and num_count_states(problem) * len(steps) > MOST_STATES:
        return _typed_values(steps, problem)
    return _of_tables(rules_by_step(policy, problem, _Tabulator(problem))[1], problem.criterion)


# -- what they cost --------------------------------------------------------------------------------------------------


def is_quick(problem: CoupledMDP, policy: object, arm_steps: float, quick: float = QUICK) -> bool:
    """Return whether exact values cost no more than simulation, roughly, or little.

    Args:
        problem: the problem.
        policy: the policy.
        arm_steps: steps of arms that would be simulated.
        quick: operations that are little.
    """
    return exact_work(policy, problem) <= max(quick, WORTH * arm_steps)


def exact_work(policy: object, problem: CoupledMDP) -> float:
    """The operations that exact values take, estimated by sizes alone: entries of tables that are still to be made.

    A policy whose distribution on counts is written down has p pairs of a count state and an allocation. Their next
    counts take min(p, L) rows of n entries, where L is the number of ways to spread arms over distinct rows of
    transitions, and n that of the count states.
    """
    if isinstance(policy, CompositePolicy):
        parts = {id(part): part for part in policy.parts}
        return sum(exact_work(part, problem) for part in parts.values())
    can, states = capabilities(policy), num_count_states(problem)
    # A table has been made already; what has none is refused, or of few joint states.
    if can.law is None or can.tabulates is not None or states > MOST_STATES:
        return 0.0
    if can.table is not None and can.table.reduction.problem.with_criterion(problem.criterion) == problem:
        return 0.0
    pairs = states * _choices(can, can.law, problem)
    tables, rows = problem.types, 1.0
    for kind, number in enumerate(problem.type_counts.tolist()):
        _, distinct = distinct_rows(tables.transitions[kind][tables.valid[kind]])
        rows *= float(lattice_size(number, len(distinct)))
    return min(pairs, rows) * states + ROW * pairs


def _choices(can: Capabilities, law: Lawful, problem: CoupledMDP) -> float:
    """The allocations that a policy draws from at a count state: at most, or where arms are spread evenly."""
    if can.deterministic:
        return 1.0
    most = getattr(law, "most_choices", None)
    if isinstance(most, float):
        return most
    spread = np.zeros((problem.num_types, problem.types.valid.shape[1]), dtype=np.int64)
    for kind, (number, size) in enumerate(zip(problem.type_counts, problem.types.num_states, strict=True)):
        spread[kind, :size] = np.diff(np.linspace(0, number, size + 1).astype(np.int64))
    return float(len(law.allocation_law(spread)[1]))


# -- policies as tables ----------------------------------------------------------------------------------------------


class _Pairs(NamedTuple):
    """The pairs of a space, and what each of them does."""

    mdp: TabularMDP
    """Next states and rewards."""

    usage: Floats
    """(pair, resource)"""

    served: Floats
    """(pair, unit) the share of the arms that are served."""

    by_type: bool
    """True if the units are types."""


_Table = tuple[_Pairs, Floats]
"""Pairs, and the (pair,) probabilities of a policy, which sum to 1 over the pairs of each state."""


def rules_by_step(
    policy: object, problem: CoupledMDP, write: Callable[[object, int], tuple[bool, Rule]]
) -> tuple[bool, list[Rule]]:
    """Return the decision rule of each step, over and over again; a single one where all steps are alike.

    Args:
        policy: the policy.
        problem: the problem.
        write: from a step and the number of different steps to whether its units are types, and its rule.

    Returns:
        Whether the units are the types, and the rules.
    """
    steps = steps_of(policy)
    if is_time_varying(policy):
        if problem.criterion.is_stationary:
            raise NotApplicableError(
                f"a policy by steps can only be simulated under the criterion {problem.criterion.name}"
            )
        steps = steps[: problem.criterion.num_layers]
    # Steps that are one object are written once.
    distinct = {id(step): step for step in steps}
    written = {key: write(step, len(distinct)) for key, step in distinct.items()}
    if len({by_type for by_type, _ in written.values()}) > 1:
        raise NotApplicableError(
            "the steps of this policy are tables over different spaces, so it can only be simulated"
        )
    return written[id(steps[0])][0], [written[id(step)][1] for step in steps]


class _Tabulator:
    """Writes policies as tables; what several share is made once."""

    def __init__(self, problem: CoupledMDP) -> None:
        self.problem, self.counts = problem, Counts(problem)
        # With the object itself, so that its id stays unique.
        self.spaces: dict[int, tuple[object, _Pairs]] = {}

    def __call__(self, policy: object, number: int) -> tuple[bool, _Table]:
        """Whether the units are types, and the table of one of several steps."""
        table = self._write(policy, number)
        return table[0].by_type, table

    def _write(self, policy: object, number: int) -> _Table:
        problem = self.problem
        can = capabilities(policy)
        # A table on the same problem: what it does is the same under any criterion.
        if can.table is not None and can.table.reduction.problem.with_criterion(problem.criterion) == problem:
            return self._pairs(can.table.reduction), can.table.probabilities
        if can.tabulates is not None and num_joint_states(problem) <= MOST_STATES:
            return self._write(can.tabulates.on(Joint(problem)), number)
        if can.law is not None:
            return self._by_law(can, can.law, number)
        raise NotApplicableError("this policy has no known law on counts, so it can only be simulated")

    def _pairs(self, reduction: Space) -> _Pairs:
        """The pairs of a reduction, whatever criterion it was made for."""
        known = self.spaces.get(id(reduction))
        if known is None:
            assert isinstance(reduction, (Joint, Counts))
            # Made anew where it was made under another criterion: the tabular problem carries one.
            same = reduction if reduction.problem == self.problem else type(reduction)(self.problem)
            by_type = isinstance(same, Counts)
            served = same.mean_served(same.allocations) if isinstance(same, Counts) else same.served
            known = self.spaces[id(reduction)] = reduction, _Pairs(same.mdp, same.usage, served, by_type)
        return known[1]

    def _by_law(self, can: Capabilities, law: Lawful, number: int) -> _Table:
        if (states := number * num_count_states(self.problem)) > MOST_STATES:
            steps = "" if number == 1 else f" over {number} steps"
            raise NotApplicableError(
                f"the count space has {size_in_words(states)} states{steps}; up to {MOST_STATES} are tabulated"
            )
        state, allocations, probabilities = write_law(can, law, self.counts)
        usage = self.counts.usage_of(allocations)
        check_budget(self.problem, usage, 0)
        served = self.counts.mean_served(allocations)
        return _Pairs(self.counts.tabulate(state, allocations), usage, served, True), probabilities


# -- their values ----------------------------------------------------------------------------------------------------


def write_law(can: Capabilities, law: Lawful, space: Counts) -> tuple[Ints, Ints, Floats]:
    """The (pair,) count states, (pair, type, state, action) allocations and (pair,) probabilities of a policy.

    Args:
        can: what the policy can do.
        law: the policy.
        space: the counts.
    """
    if can.allocates is not None and can.deterministic:  # nothing is drawn: all states at once
        allocations = can.allocates.allocate(space.states, np.random.default_rng(0))
        return np.arange(len(allocations)), allocations, np.ones(len(allocations))
    laws = [law.allocation_law(counts) for counts in space.states]
    state = np.repeat(np.arange(len(laws)), [len(probabilities) for _, probabilities in laws])
    allocations = np.concatenate([allocations for allocations, _ in laws])
    return state, allocations, np.concatenate([probabilities for _, probabilities in laws])


def _of_tables(tables: Sequence[_Table], criterion: Criterion) -> ExactValues:
    if not criterion.is_stationary:
        return _forwards(tables, criterion.time_weights(criterion.num_layers), criterion.total)
    pairs, probabilities = tables[0]
    visits = occupancy_measure(pairs.mdp, probabilities)
    # Visits sum to the total.
    served = visits @ pairs.served / criterion.total
    return ExactValues(visits @ pairs.mdp.rewards, pairs.by_type, visits @ pairs.usage, served)


def _forwards(tables: Sequence[_Table], weights: Floats, total: float) -> ExactValues:
    """Sums over steps of what the law of each step earns, uses and serves."""
    first = tables[0][0]
    values, used, served = (np.zeros(facts.shape[1]) for facts in (first.mdp.rewards, first.usage, first.served))
    law = first.mdp.initial
    for step, weight in enumerate(weights):
        (mdp, usage, serves, _), probabilities = tables[step % len(tables)]
        # Visits of pairs at this step: the law of the state, times the chance of the action.
        visits = np.repeat(law, np.diff(mdp.offsets)) * probabilities
        values += weight * (visits @ mdp.rewards)
        used += weight * (visits @ usage)
        served += weight * (visits @ serves)
        # Pairs with the same outcome are put together before they move.
        law = mdp.kernel.T @ np.bincount(mdp.outcomes, weights=visits, minlength=mdp.kernel.shape[0])
    return ExactValues(values, first.by_type, used, served / total)


def _mixed(parts: Sequence[ExactValues], shares: Floats, problem: CoupledMDP) -> ExactValues:
    """Values by type where all have them, else by arm."""
    by_type = all(part.by_type for part in parts)
    # Arms of a type have its value; arms that differ cannot be pooled.
    kinds = problem.type_of_arm
    columns = [kinds if part.by_type and not by_type else slice(None) for part in parts]
    values, served = (
        np.tensordot(shares, [getattr(part, name)[own] for part, own in zip(parts, columns, strict=True)], axes=1)
        for name in ("values", "served")
    )
    return ExactValues(values, by_type, np.tensordot(shares, [part.used for part in parts], axes=1), served)


# -- choices on the counts of several types --------------------------------------------------------------------------


def _typed_steps(policy: object, problem: CoupledMDP) -> list[TypedChoices]:
    """The choices of each step of a policy that has nothing else, made for this problem; else none."""
    parts = steps_of(policy)
    found = [part for part in parts if isinstance(part, TypedChoices)]
    same = all(part.problem.with_criterion(problem.criterion) == problem for part in found)
    return found if same and len(found) == len(parts) else []


def _typed_values(steps: list[TypedChoices], problem: CoupledMDP) -> ExactValues:
    """Values of the choices of each step, over and over again."""
    plan, criterion = plan_types(problem), problem.criterion
    if criterion.is_stationary and len(steps) > 1:
        raise NotApplicableError(f"a policy by steps can only be simulated under the criterion {criterion.name}")
    plan.check()
    picks = {
        id(step): np.stack([_numbers(step, t, moves)[step.picks[:, t]] for t, moves in enumerate(plan.types)])
        for step in steps
    }  # (type, state) the number of each choice among the pairs of its type
    for number_of_step, step in enumerate(steps):
        spent = sum(moves.spent[own] for moves, own in zip(plan.types, picks[id(step)], strict=True))
        check_budget(problem, np.asarray(spent), number_of_step)
    chosen = picks[id(steps[0])]
    if not criterion.is_stationary:
        chosen = np.stack([picks[id(steps[t % len(steps)])] for t in range(criterion.num_layers)])
    facts = [np.column_stack([moves.rewards, moves.served, moves.spent]) for moves in plan.types]
    sums = np.stack(Visits(Operators(plan)).sums(chosen, facts))
    return ExactValues(sums[:, 0], True, sums[:, 2:].sum(axis=0), sums[:, 1] / criterion.total)


def _numbers(policy: TypedChoices, kind: int, moves: Moves) -> Ints:
    """(row,) the pair of a type that each allocation is; some pair where no state picks it."""
    S, A = moves.tables.valid.shape
    known = {own.tobytes(): number for number, own in enumerate(moves.allocations.astype(np.int64))}
    numbers = np.zeros(len(policy.allocations), dtype=np.int64)
    for row in np.unique(policy.picks[:, kind]):
        number = known.get(np.ascontiguousarray(policy.allocations[row, :S, :A], dtype=np.int64).tobytes())
        if number is None:
            raise PolicyError("the policy has an allocation that is beyond the budget, or of arms that are not there")
        numbers[row] = number
    return numbers


# -- arms that do not compete ----------------------------------------------------------------------------------------


def independent_values(problem: CoupledMDP, shares: Floats) -> ExactValues:
    """Return the values of arms that follow shares of actions, under the problem's criterion.

    Args:
        problem: the arms, and where they start.
        shares: (type, state, action) how often each action is taken, padded as `problem.types`.
    """
    types = problem.types
    num_types, num_states, num_actions = types.rewards.shape
    check_shape(shares, {"type": num_types, "state": num_states, "action": num_actions}, "shares")
    visits = np.stack([_visits(problem, t, shares[t]) for t in range(num_types)])
    serves = (types.usage > 0).any(axis=-1)
    return ExactValues(
        values=(visits * types.rewards).sum(axis=(1, 2)),
        by_type=True,
        used=np.einsum("t,tsa,tsak->k", problem.type_counts, visits, types.usage),
        served=(visits * serves).sum(axis=(1, 2)) / problem.criterion.total,
    )


def _visits(problem: CoupledMDP, kind: int, shares: Floats) -> Floats:
    """(state, action) visits of an arm, by the criterion's weights of time; 0 where there is padding."""
    types = problem.types
    s, a = int(types.num_states[kind]), int(types.num_actions[kind])
    alone = TabularMDP(
        offsets=np.arange(s + 1, dtype=np.int64) * a,
        rewards=types.rewards[kind, :s, :a].reshape(-1, 1),
        outcomes=np.arange(s * a, dtype=np.int64),
        kernel=sparse.csr_array(types.transitions[kind, :s, :a, :s].reshape(s * a, s)),
        initial=types.initial[kind, :s],
        criterion=problem.criterion,
    )
    found = np.zeros(types.rewards.shape[1:])
    found[:s, :a] = total_visits(occupancy_measure(alone, shares[:s, :a].reshape(-1))).reshape(s, a)
    return found
