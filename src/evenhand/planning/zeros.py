"""Arms that have 0 at best, under alpha-fairness with alpha < 1.

Some arms have the value 0 whatever is done: those without rewards, and those whose rewards are where they never get, by
actions that no budget allows, after the last step, or, on average, where they cannot stay. With alpha < 1 the welfare
of values some of which are 0 is defined, though its slope there is not, and methods that climb along slopes cannot
begin. With beta = 1 - alpha and Z of N members at 0,

    W(v)^beta = 1/N sum_n v_n^beta          the members at 0 add nothing, and cannot be helped

so such arms are paid a constant at every step while the problem is solved: each has the value k then, whatever is done,

    W_k(v)^beta = W(v)^beta + Z/N k^beta

which is the same order of policies and has slopes everywhere. The policy is that of the problem itself, and what is
known of W_k, the bound above all, is turned into what it says of W: W = (W_k^beta - Z/N k^beta)^(1/beta). Nothing is
approximated.

Others have 0 at best, and less by some of what may be done. No plan by which they have less has a welfare, so they are
kept at their best (`solvers.resting`), and of a group whose best mean is 0 every arm is: what would cost them something
is left out of the problem, and then they have 0 whatever is done. The bound holds as it is, for it is one on all plans
that have a welfare. There are two ways to leave it out:

    without service   an arm that stays at its best though it is given nothing takes nothing from the others. Its losing
                      actions are made too dear for the budget, for any method; the policy is the same without that
    with service      or with other actions at every step, or with floors: what is left of the pairs is listed, by the
                      methods joint and counts (`solvers.narrowed`)

Where those who are kept leave nothing for others, in anything that can still be met, these have 0 too, and are paid in
the same way. By itself the budget keeps no arm from more: one that could have more had it all of the budget can have
it, for all others can idle. Arms of one group may keep each other from it, and a group that has 0 for that is not found
here: it is refused as one that cannot have more.

What is refused, in words: an arm or group whose best value is below 0; arms that cannot all be kept at 0 at once; and
plans by which nobody has less than 0 only if gains and losses are balanced to the last digit, as for two arms each of
which has 1 if it is served and -1 if not, and a budget for one of them: next to such a plan none has a welfare. Under
the average, too, what needs service while losses at first may decide where somebody ends (`solvers.narrowed`).
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from evenhand.errors import NotApplicable, OutOfDomain
from evenhand.evaluation.evaluate import evaluate
from evenhand.model.composite import BySteps, Mixture
from evenhand.model.coupled import CoupledMDP
from evenhand.model.naming import type_names
from evenhand.model.objective import Objective, num_members
from evenhand.model.policy import Policy, Starting, begin, is_exchangeable
from evenhand.model.welfare import AlphaFair
from evenhand.planning.exact import NothingLeft
from evenhand.planning.saved import rebuilt
from evenhand.planning.solution import Solution
from evenhand.planning.task import Task
from evenhand.policies.priority import ExchangeablePriority
from evenhand.reductions.counts import CountChoices, Counts, CountTable, TypedChoices
from evenhand.reductions.joint import Joint, JointTable
from evenhand.solvers.narrowed import NothingKept
from evenhand.solvers.resting import DUST, at_rest, keeping
from evenhand.solvers.service import best_values, counting, empty_blocks
from evenhand.typing import Bools, Floats, Indices

PAID = 0.731
"""Of the largest reward that others can have: about what they get, and unlike what anybody gets. Were it much more,
little would be left of their digits in the welfare of all."""

_ROUNDING = 1e-15

LOOKED_AT = 100
"""Episodes in which a policy that is no table is seen to keep to what may be done."""


def solve_with_zeros(task: Task, solve: Callable[[Task], Solution]) -> Solution:
    """Solve a task; who has 0 at best is no hindrance where the welfare is defined.

    Args:
        task: what is to be solved.
        solve: solves it, if all values can be positive.
    """
    welfare, problem = task.welfare, task.problem
    if not isinstance(welfare, AlphaFair) or not 0 < welfare.alpha < 1:
        return solve(task)
    zeros = _find_zeros(problem)
    if not (zeros.empty | zeros.resting).any():
        return _or_say_who(task, solve)
    if zeros.resting.any() and (told := _who_has_no_more(problem)):
        raise OutOfDomain(f"{welfare.name} is for values of at least 0, and {told}")
    way = _way_to_rest(problem, zeros, welfare.name)
    while True:
        try:
            return _solve_others(task, solve, zeros, way)
        except NothingLeft as left:
            zeros = replace(zeros, left=zeros.left | left.types)


def _solve_others(task: Task, solve: Callable[[Task], Solution], zeros: "_Zeros", way: "_Way") -> Solution:
    """The best for those who can have more than 0."""
    problem, candidates, kept = task.problem, task.candidates, None if way.by_price else way.cells
    paid = PAID * _most_of_others(problem, zeros)
    lifted = _paid_for(problem, zeros, paid, way.cells if way.by_price else None)
    if zeros.resting.any():
        candidates = {name: _Watched(name, policy, problem, way) for name, policy in candidates.items()}
    found = _or_say_who(replace(task, problem=lifted, kept=kept, candidates=candidates), solve)
    assert isinstance(task.welfare, AlphaFair)
    scale = _Scale(1 - task.welfare.alpha, _share(problem, zeros), paid * problem.criterion.total)
    return _brought_back(found, task, scale, zeros, way)


def _most_of_others(problem: CoupledMDP, zeros: "_Zeros") -> float:
    """The largest reward that counts for those who can have more than 0; 1 if there is none."""
    types = problem.types
    counts = counting(types, problem.affordable, problem.criterion) & ~zeros.still[:, None, None]
    return float(types.rewards.max(where=counts, initial=0.0)) or 1.0


@dataclass(frozen=True, eq=False)
class _Zeros:
    """Types of members that have 0 at best."""

    empty: Bools
    """(type,) whatever is done."""

    resting: Bools
    """(type,) and less by some of what may be done."""

    values: Floats
    """(type,) what an arm has then: 0, but in groups of arms that have more and less."""

    left: Bools
    """(type,) those for whom nothing is left where the others are kept at their best."""

    @property
    def still(self) -> Bools:
        """(type,) all of them."""
        return self.empty | self.resting | self.left


def _find_zeros(problem: CoupledMDP) -> _Zeros:
    empty = np.zeros(problem.num_types, dtype=bool)
    empty[problem.type_of_block[empty_blocks(problem)]] = True
    resting, best = at_rest(problem)
    return _Zeros(empty, resting, np.where(resting & (problem.over == "groups"), best, 0.0), np.zeros_like(empty))


@dataclass(frozen=True, eq=False)
class _Way:
    """How arms are kept at their best."""

    cells: Bools
    """(step, type, state, action) what may be chosen; one step where it is always the same."""

    by_price: bool
    """Whether all else is made too dear, else struck out of lists."""


def _way_to_rest(problem: CoupledMDP, zeros: _Zeros, welfare: str) -> _Way:
    """The first way that keeps them all at their best."""
    types, can, rows = problem.types, problem.affordable, np.flatnonzero(zeros.resting)
    if not len(rows):
        return _Way(can[None], by_price=True)
    if not problem.has_floors:
        with contextlib.suppress(NotApplicable):
            kept = keeping(types, can, problem.criterion, rows, free=True)
            free = (kept.always & ~types.served).any(axis=-1) | ~types.valid.any(axis=-1)
            if free.all():  # what is kept at every step is enough, though at some steps there may be more
                return _Way(kept.always[None], by_price=True)
    try:
        return _Way(keeping(types, can, problem.criterion, rows).pairs, by_price=False)
    except NotApplicable as refusal:
        name = type_names(problem)[rows[0]]
        told = f"{name} and perhaps others have 0 at best, and less by some of what may be done: {refusal}"
        raise OutOfDomain(f"{welfare} is for values of at least 0, and {told}") from None


def _paid_for(problem: CoupledMDP, zeros: _Zeros, paid: float, cells: Bools | None) -> CoupledMDP:
    """The problem in which those who have 0 at best are paid, and do only what is in the cells."""
    tables, kind = problem.tables, problem.type_of_block
    rewards = np.where(zeros.still[kind, None, None] & tables.valid, paid, tables.rewards)
    usage = tables.usage.copy()
    if cells is not None and zeros.resting.any():
        lost = zeros.resting[kind, None, None] & tables.valid & ~cells[0][kind]
        usage[lost, 0] = 2 * problem.budget[0] + 1
    lifted = replace(problem, arms=replace(tables, rewards=rewards, usage=usage))
    lifted.__dict__["type_of_block"] = kind  # arms that differ in what is left out are still told apart
    return lifted


def _or_say_who(task: Task, solve: Callable[[Task], Solution]) -> Solution:
    """Solve it; a refusal says who cannot have more than 0, where that is the reason."""
    try:
        return solve(task)
    except (NothingLeft, NothingKept):
        raise
    except OutOfDomain as refusal:
        told = _who_has_no_more(task.problem)
        if not told and task.kept is not None:
            told = f"while those who have 0 at best are kept there, not all others can have more than 0: {refusal}"
        if not told:
            raise
        raise OutOfDomain(f"{task.welfare.name} is for values of at least 0, and {told}") from refusal


def _who_has_no_more(problem: CoupledMDP) -> str:
    """The worst-off arm or group that cannot have 0, and what it can have; empty if there is none."""
    types, weights, names = problem.types, problem.type_counts.astype(float), type_names(problem)
    best = best_values(types, problem.affordable, problem.criterion)
    if problem.over == "groups":
        arms = np.bincount(problem.group_of_type, weights)
        best, names = np.bincount(problem.group_of_type, weights * best) / arms, list(problem.group_names)
    size = float(np.abs(types.rewards).max()) * problem.criterion.total
    least = int(np.argmin(np.where(np.isnan(best), np.inf, best)))
    if not best[least] < -DUST * size:
        return ""
    return f"{names[least]} has at most {best[least]:.6g} whatever is done. Use a Gini welfare, or shift the rewards."


def _share(problem: CoupledMDP, zeros: _Zeros) -> float:
    """Z / N."""
    still = zeros.still
    if problem.over == "groups":
        return len(np.unique(problem.group_of_type[still])) / num_members(problem)
    return float(problem.type_counts[still].sum() / problem.num_arms)


@dataclass(frozen=True)
class _Scale:
    """Between the welfare of what is solved and the welfare that was asked for."""

    beta: float
    share: float
    value: float

    def back(self, welfare: float, upwards: float = 0.0) -> float:
        """The welfare that was asked for; rounded upwards by a relative error where it is a bound."""
        rest = (1 + upwards) * welfare**self.beta - self.share * self.value**self.beta
        return float(max(rest, 0.0) ** (1 / self.beta))


class _Watched:
    """A policy of the user's, which must keep to what may be done: of what it does else the welfare is not defined."""

    def __init__(self, name: str, policy: Policy | Starting, problem: CoupledMDP, way: _Way) -> None:
        self.name, self.policy, self.problem, self.way = name, policy, problem, way
        self.exchangeable = is_exchangeable(policy)

    def start(self, num_episodes: int, rng: np.random.Generator) -> "_WatchedActor":
        """An actor that is watched."""
        return _WatchedActor(self, begin(self.policy, num_episodes, rng))


class _WatchedActor:
    """Plays one batch of episodes."""

    def __init__(self, watched: _Watched, actor: Policy) -> None:
        self.watched, self.actor = watched, actor

    def act(self, states: Indices, rng: np.random.Generator) -> Indices:
        """What the policy does, if it may be done."""
        actions, problem = self.actor.act(states, rng), self.watched.problem
        kept = self.watched.way.cells[0][problem.type_of_arm, states, actions]
        if not kept.all():
            arm = int(np.argwhere(~kept)[0][1])
            name = type_names(problem)[problem.type_of_arm[arm]]
            raise OutOfDomain(
                f"candidate {self.watched.name!r}: {name} can have 0 at best, and it does what may cost it something, "
                "so that the welfare of a plan with it is not defined. Leave it out, or use a Gini welfare."
            )
        return actions


def _of_problem(policy: Policy | Starting, task: Task, way: _Way) -> Policy | Starting:
    """A policy of the problem itself; those of the user's own are that already."""
    if isinstance(policy, _Watched):
        return policy.policy
    if any(policy is candidate for candidate in task.candidates.values()):
        return policy
    if isinstance(policy, Mixture):
        return Mixture([_of_problem(part, task, way) for part in policy.parts], policy.shares, policy.rotate)
    if not way.by_price:  # it has the same pairs
        return rebuilt(policy, task.problem)
    if isinstance(policy, BySteps):
        return BySteps([part for step in policy.parts if isinstance(part := _of_problem(step, task, way), Policy)])
    if isinstance(policy, JointTable):
        return _with_all_pairs(policy, Joint(task.problem), way)
    if isinstance(policy, CountTable):
        return _with_all_pairs(policy, Counts(task.problem), way)
    if type(policy) is ExchangeablePriority:  # what was too dear must not be served now
        scores = np.where(way.cells[0], policy.scores, -np.inf)
        return ExchangeablePriority(task.problem, scores, policy.threshold, policy.stop)
    return rebuilt(policy, task.problem)


def _with_all_pairs(policy: JointTable | CountTable, space: Joint | Counts, way: _Way) -> Policy:
    """The same table where what was too dear is among the pairs, in the same order."""
    kept = space.stays_in(way.cells[0] | ~space.problem.affordable)
    probabilities = np.zeros(len(kept))
    probabilities[kept] = policy.probabilities
    lifted = space.lift(probabilities)
    assert isinstance(lifted, Policy)
    return lifted


def _check_rest(policy: Policy | Starting, task: Task, zeros: _Zeros, way: _Way) -> None:
    """Refuse a policy that does what may not be done: not every kind can leave it.

    It is played where doing so costs 1 and nothing else is worth anything.
    """
    parts = policy.parts if isinstance(policy, (Mixture, BySteps)) else (policy,)
    if all(isinstance(part, (JointTable, CountTable, CountChoices, TypedChoices, BySteps)) for part in parts):
        return
    problem = task.problem
    lost = zeros.resting[:, None, None] & problem.types.valid & ~way.cells[0]
    marked = replace(problem, arms=replace(problem.tables, rewards=-1.0 * lost[problem.type_of_block]), welfare=None)
    marked.__dict__["type_of_block"] = problem.type_of_block
    steps = problem.criterion.judging_steps()
    seen = evaluate(policy, marked, "maximin", LOOKED_AT, steps, task.rng, method="monte-carlo")
    assert seen.returns is not None
    if seen.returns.min() < 0:
        raise NotApplicable(
            "the policy that was found lets arms that have 0 at best have less, for it idles by an action that costs "
            "them something. Use --method joint or counts, or write the idle action that costs nothing first."
        )


def _brought_back(found: Solution, task: Task, scale: _Scale, zeros: _Zeros, way: _Way) -> Solution:
    """The solution of the problem itself."""
    problem, still = task.problem, zeros.still
    objective = (Objective.of_types if found.by_type else Objective.of_arms)(problem, found.objective.welfare)
    kinds = np.arange(problem.num_types) if found.by_type else problem.type_of_arm
    values = np.where(still[kinds], zeros.values[kinds], found.unit_values)
    members = objective.members(values)
    if problem.over == "groups":  # gains and losses are balanced, but for rounding
        members = np.where(np.isin(np.arange(len(members)), problem.group_of_type[still]), 0.0, members)
    welfare = float(task.welfare(members, objective.sizes))
    bound = 0.0 if still.all() else scale.back(found.upper_bound, _ROUNDING)
    slope = (found.welfare / welfare) ** (scale.beta - 1) if welfare > 0 else 0.0
    policy = _of_problem(found.policy, task, way)
    if zeros.resting.any():
        _check_rest(policy, task, zeros, way)
    return replace(
        found,
        objective=objective,
        welfare=welfare,
        upper_bound=max(bound, welfare if not found.welfare_stderr else 0.0),
        unit_values=values,
        policy=policy,
        problem=problem,
        reason=f"{found.reason}; {_in_words(problem, zeros)}",
        welfare_stderr=slope * found.welfare_stderr,
        optimism=None if found.optimism is None else slope * found.optimism,
        kept_welfare=None if found.kept_welfare is None else scale.back(found.kept_welfare),
        samples=None,
        history=tuple((number, scale.back(welfare)) for number, welfare in found.history),
    )


def _in_words(problem: CoupledMDP, zeros: _Zeros) -> str:
    """Who has 0 at best."""
    numbers = (int(problem.type_counts[kinds].sum()) for kinds in (zeros.empty, zeros.resting, zeros.left))
    empty, resting, left = numbers
    told = [f"{empty} of the arms can have no value"] if empty else []
    if resting:
        whose = (
            "at their best, where their groups have 0" if problem.over == "groups" else "at 0, the most they can have"
        )
        told.append(f"{resting} of the arms are kept {whose}")
    if left:
        told.append(f"{left} of the arms are left with nothing by that")
    return "; ".join(told)
