"""Exact values of a policy on the joint or the count space, under every criterion.

A policy given by a table has its own space. Any other policy whose distribution on counts is known
(`HasAllocationDistribution`) is tabulated first: at every count state its possible allocations are the pairs, and
their probabilities the policy. Then

    discounted, average   the occupancy measure of the table, by one linear solve (`solvers.occupancy`)
    finite:T              forwards from the initial distribution:  x_{t+1} = P_t^T x_t,   V = sum_{t<T} w_t x_t . r_t

where the tables of a policy by steps may differ from step to step; one that is shorter than the horizon begins again.
Choices on the counts of several types, as `solve` gives where these are many, are evaluated without a table: visits are
computed type by type (`solvers.counts`), and every fact about decisions is a sum over them.
A mixture draws its part once and for all, so its values are the shares of its parts' values under every criterion.
Arms that do not compete, each with action shares of its own state, are Markov chains by themselves
(`independent_values`), however many there are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
from scipy import sparse

from evenhand.checks import check_shape
from evenhand.display import size_in_words
from evenhand.errors import NotApplicableError, PolicyError
from evenhand.kernels.lattice import lattice_size
from evenhand.kernels.products import distinct_rows
from evenhand.model.composite import (
    components,
    is_mixture,
    is_time_varying,
    redraw_period,
    steps_of,
)
from evenhand.model.coupled import CoupledMDP
from evenhand.model.criterion import Criterion
from evenhand.model.policy import (
    Capabilities,
    HasAllocationDistribution,
    Space,
    Tabulated,
    capabilities,
    check_budget,
    described,
)
from evenhand.model.tabular import TabularMDP
from evenhand.solvers.counts import Moves, Operators, Visits, plan_types
from evenhand.solvers.counts.reduction import Counts, TypedChoices, num_count_states
from evenhand.solvers.joint import Joint, num_joint_states
from evenhand.solvers.occupancy import occupancy_measure, total_visits, visiting_work
from evenhand.typing import Floats, Ints


class _HasUnits(Protocol):
    @property
    def by_type(self) -> bool: ...


Rule = TypeVar("Rule", bound=_HasUnits)

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


def exact_values(problem: CoupledMDP, policy: object, most_states: int = MOST_STATES) -> ExactValues:
    """Evaluate a policy exactly, under the problem's criterion.

    Args:
        problem: the problem.
        policy: the policy.
        most_states: count states, over all distinct steps, up to which a policy that is not a table is tabulated.

    Raises:
        NotApplicableError: the policy's distribution is not known, or the count space is too large to tabulate it.
        TooLargeError: the tables would not fit.
    """
    if redraw_period(policy) is not None:
        raise NotApplicableError("a mixture that is redrawn at intervals can only be simulated")
    if is_mixture(policy):
        parts, shares = components(policy)
        return _mixed([exact_values(problem, part, most_states) for part in parts], shares, problem)
    # Choices on many counts need no table; for few states a table is quicker.
    steps = _typed_steps(policy, problem)
    if steps and num_count_states(problem) * len(steps) > most_states:
        return _typed_values(steps, problem)
    return _of_tables(rules_by_step(policy, problem, _Tabulator(problem, most_states)), problem.criterion)


# -- cost ------------------------------------------------------------------------------------------------------------


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
    """The operations that exact values take, estimated by sizes alone: tables that are still to be made, and visits.

    A policy whose distribution on counts is written down has p pairs of a count state and an allocation. Their next
    counts take min(p, L) rows of n entries, where L is the number of ways to spread arms over distinct rows of
    transitions, and n that of the count states. To multiply by an entry costs a tenth of writing it.
    """
    if is_mixture(policy):
        return sum(exact_work(part, problem) for part in components(policy)[0])
    steps = _typed_steps(policy, problem)
    if steps and num_count_states(problem) * len(steps) > MOST_STATES:
        plan = plan_types(problem)
        return visiting_work(problem.criterion, plan.num_states, plan.following)
    found = [_table_work(step, problem) for step in {id(step): step for step in steps_of(policy)}.values()]
    push = max(work.entries for work in found) / 10
    written = sum(work.written for work in found)
    return written + visiting_work(problem.criterion, max(work.states for work in found), push)


class _TableWork(NamedTuple):
    """Operations that write a policy as a table, and the size of its chain; of no table, nothing."""

    written: float = 0.0
    states: float = 0.0
    entries: float = 0.0


def _table_work(policy: object, problem: CoupledMDP) -> _TableWork:
    """Return the work of a policy that does not change from step to step."""
    can, states = capabilities(policy), float(num_count_states(problem))
    if (own := _own_table(can, problem)) is not None:
        mdp = own.reduction.mdp
        return _TableWork(0.0, mdp.num_states, mdp.num_transitions * mdp.kernel.shape[0] / mdp.num_pairs)
    if can.tabulates is not None and (joint := float(num_joint_states(problem))) <= MOST_STATES:
        ways = (problem.types.transitions > 0).sum(axis=-1).max(axis=(1, 2)).astype(np.float64)
        entries = joint * min(joint, float(np.prod(ways**problem.type_counts)))
        return _TableWork(entries, joint, entries)
    if can.law is None or states > MOST_STATES:  # it is refused
        return _TableWork()
    pairs = states * _choices(can, can.law, problem)
    tables, rows = problem.types, 1.0
    for kind, number in enumerate(problem.type_counts.tolist()):
        _, distinct = distinct_rows(tables.transitions[kind][tables.valid[kind]])
        rows *= float(lattice_size(number, len(distinct)))
    entries = min(pairs, rows) * states
    written = entries + ROW * pairs + described(policy).decision_cost * states
    return _TableWork(written, states, entries)


def _choices(can: Capabilities, law: HasAllocationDistribution, problem: CoupledMDP) -> float:
    """The allocations that a policy draws from at a count state: at most, or where arms are spread evenly."""
    if can.deterministic:
        return 1.0
    most = getattr(law, "most_choices", None)
    if isinstance(most, float):
        return most
    spread = np.zeros((problem.num_types, problem.types.valid.shape[1]), dtype=np.int64)
    for kind, (number, size) in enumerate(zip(problem.type_counts, problem.types.num_states, strict=True)):
        spread[kind, :size] = np.diff(np.linspace(0, number, size + 1).astype(np.int64))
    return float(len(law.allocation_distribution(spread)[1]))


# -- policies as tables ----------------------------------------------------------------------------------------------


class _Table(NamedTuple):
    """A policy as a table over the pairs of a space."""

    mdp: TabularMDP
    """Next states and rewards."""

    usage: Floats
    """(pair, resource)"""

    served: Floats
    """(pair, unit) the share of the arms that are served."""

    by_type: bool
    """True if the units are types."""

    probabilities: Floats
    """(pair,) they sum to 1 over the pairs of each state."""


def rules_by_step(policy: object, problem: CoupledMDP, write: Callable[[object, int], Rule]) -> list[Rule]:
    """Return the decision rule of each step, repeated in turn; a single one if all steps are alike.

    Args:
        policy: the policy.
        problem: the problem.
        write: from a step and the number of different steps to its rule.
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
    if len({rule.by_type for rule in written.values()}) > 1:
        raise NotApplicableError(
            "the steps of this policy are tables over different spaces, so it can only be simulated"
        )
    return [written[id(step)] for step in steps]


def _own_table(can: Capabilities, problem: CoupledMDP) -> Tabulated | None:
    """Return the table of a policy that is one on the same problem, whatever the criterion."""
    table = can.table
    same = table is not None and table.reduction.problem.with_criterion(problem.criterion) == problem
    return table if same else None


class _Tabulator:
    """Writes policies as tables; tables of one space share its pairs."""

    def __init__(self, problem: CoupledMDP, most_states: int) -> None:
        self.problem, self.counts, self.most_states = problem, Counts(problem), most_states
        # With the object itself, so that its id stays unique.
        self.spaces: dict[int, tuple[object, _Table]] = {}

    def __call__(self, policy: object, number: int) -> _Table:
        """Return the table of one of several steps."""
        problem, can = self.problem, capabilities(policy)
        if (table := _own_table(can, problem)) is not None:
            return self._pairs(table.reduction)._replace(probabilities=table.probabilities)
        if can.tabulates is not None and num_joint_states(problem) <= self.most_states:
            return self(can.tabulates.on(Joint(problem)), number)
        if can.law is None:
            raise NotApplicableError(
                "the distribution of this policy's allocations is not known, so it can only be simulated"
            )
        if (states := number * num_count_states(problem)) > self.most_states:
            steps = "" if number == 1 else f" over {number} steps"
            raise NotApplicableError(
                f"the count space has {size_in_words(states)} states{steps}; up to {self.most_states} are tabulated"
            )
        state, allocations, probabilities = write_law(can, can.law, self.counts)
        usage, served = self.counts.usage_of(allocations), self.counts.mean_served(allocations)
        check_budget(problem, usage, 0)
        return _Table(self.counts.tabulate(state, allocations), usage, served, True, probabilities)

    def _pairs(self, reduction: Space) -> _Table:
        """Return the pairs of a reduction, whatever criterion it was made for, without probabilities."""
        if id(reduction) not in self.spaces:
            assert isinstance(reduction, (Joint, Counts))
            # Built again if it was made under another criterion: the tabular problem carries one.
            same = reduction if reduction.problem == self.problem else type(reduction)(self.problem)
            served = same.mean_served(same.allocations) if isinstance(same, Counts) else same.served
            pairs = _Table(same.mdp, same.usage, served, isinstance(same, Counts), np.zeros(0))
            self.spaces[id(reduction)] = reduction, pairs
        return self.spaces[id(reduction)][1]


# -- values of tables ----------------------------------------------------------------------------------------------


def write_law(can: Capabilities, law: HasAllocationDistribution, space: Counts) -> tuple[Ints, Ints, Floats]:
    """Return the (pair,) count states, (pair, type, state, action) allocations and (pair,) probabilities of a policy.

    Args:
        can: the policy's capabilities.
        law: the policy.
        space: the counts.
    """
    if can.allocates is not None and can.deterministic:  # nothing is drawn: all states at once
        allocations = can.allocates.allocate(space.states, np.random.default_rng(0))
        return np.arange(len(allocations)), allocations, np.ones(len(allocations))
    laws = [law.allocation_distribution(counts) for counts in space.states]
    state = np.repeat(np.arange(len(laws)), [len(probabilities) for _, probabilities in laws])
    allocations = np.concatenate([allocations for allocations, _ in laws])
    return state, allocations, np.concatenate([probabilities for _, probabilities in laws])


def _of_tables(tables: Sequence[_Table], criterion: Criterion) -> ExactValues:
    if not criterion.is_stationary:
        return _forwards(tables, criterion.time_weights(criterion.num_layers), criterion.total)
    table = tables[0]
    visits = occupancy_measure(table.mdp, table.probabilities)
    # Visits sum to the total.
    served = visits @ table.served / criterion.total
    return ExactValues(visits @ table.mdp.rewards, table.by_type, visits @ table.usage, served)


def _forwards(tables: Sequence[_Table], weights: Floats, total: float) -> ExactValues:
    """Sum rewards, usage and service over the steps, by the distribution of states at each step."""
    first = tables[0]
    values, used, served = (np.zeros(facts.shape[1]) for facts in (first.mdp.rewards, first.usage, first.served))
    distribution = first.mdp.initial
    for step, weight in enumerate(weights):
        mdp, usage, serves, _, probabilities = tables[step % len(tables)]
        # Visits of pairs at this step: the distribution of the state, times the probability of the action.
        visits = np.repeat(distribution, np.diff(mdp.offsets)) * probabilities
        values += weight * (visits @ mdp.rewards)
        used += weight * (visits @ usage)
        served += weight * (visits @ serves)
        # Pairs with the same outcome are put together before they move.
        distribution = mdp.kernel.T @ np.bincount(mdp.outcomes, weights=visits, minlength=mdp.kernel.shape[0])
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
    visits = np.zeros(types.rewards.shape)
    for t, (S, A) in enumerate(zip(types.num_states.tolist(), types.num_actions.tolist(), strict=True)):
        alone = TabularMDP(
            offsets=np.arange(S + 1, dtype=np.int64) * A,
            rewards=types.rewards[t, :S, :A].reshape(-1, 1),
            outcomes=np.arange(S * A, dtype=np.int64),
            kernel=sparse.csr_array(types.transitions[t, :S, :A, :S].reshape(S * A, S)),
            initial=types.initial[t, :S],
            criterion=problem.criterion,
        )
        visits[t, :S, :A] = total_visits(occupancy_measure(alone, shares[t, :S, :A].reshape(-1))).reshape(S, A)
    serves = (types.usage > 0).any(axis=-1)
    return ExactValues(
        values=(visits * types.rewards).sum(axis=(1, 2)),
        by_type=True,
        used=np.einsum("t,tsa,tsak->k", problem.type_counts, visits, types.usage),
        served=(visits * serves).sum(axis=(1, 2)) / problem.criterion.total,
    )
