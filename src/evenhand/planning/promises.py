"""Promised waits: feasibility, the best policy that keeps them, and their price in welfare (`policies.deadlines`).

    impossible   in the long run the promises need more than the budget, in expectation: refused, with the shortest wait
                 that the budget allows. At prices p the least use of an arm that keeps its promise is that of a single
                 arm on extended states; if the sum over arms exceeds p.budget for some p >= 0, no policy keeps them
    sure         the deadline rule keeps them whatever happens: at most m (K + 1) arms have a promise
    otherwise    they hold as long as no more than m (K + 1) arms are in promised states at once; how often one is
                 broken is found by simulation

Small problems are solved on extended states, among policies that surely keep the promise: of the joint or count states
in which all arms that are due can be served, those are removed, again and again, from which every action may lead out.
What is left is an ordinary problem, which column generation solves with its certificate. All others get the best of two
plans under the deadline rule: the plan without promises, and the index policy of the relaxation on extended states.
That relaxation bounds every policy that keeps the promises; if these are not sure to hold, the bound without promises
is reported, which holds for every policy.
"""

import contextlib
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from scipy import sparse

from evenhand.display import counted
from evenhand.errors import InfeasibleError, NotApplicableError, TooLargeError
from evenhand.evaluation.evaluate import evaluate
from evenhand.evaluation.rollout import simulate
from evenhand.evaluation.standard_errors import standard_errors
from evenhand.model import CoupledMDP, Policy, StatefulPolicy, TabularMDP
from evenhand.model.criterion import Average
from evenhand.model.labels import promises_in_words
from evenhand.planning.methods import by_mixture
from evenhand.planning.relaxation import FLUID_TOLERANCE, build_policy, relax
from evenhand.planning.solution import PromiseReport, Solution
from evenhand.planning.task import FAILURES, Stopwatch, Task
from evenhand.policies.deadlines import (
    DeadlinePolicy,
    Deadlines,
    count_broken,
    extend,
    is_late,
    keep_promises,
    with_service_due,
    without_promises,
)
from evenhand.solvers.counts.reduction import Counts, num_count_states
from evenhand.solvers.joint import Joint, num_joint_states
from evenhand.solvers.service import best_values
from evenhand.typing import Bools, Floats, Ints

# -- feasibility -------------------------------------------------------------------------------------------------------


def check_promises(problem: CoupledMDP, longest: int = 200) -> Deadlines:
    """Return what is known of the promised waits of a problem, if they are possible.

    Args:
        problem: a problem with promises (`CoupledMDP.with_max_wait`).
        longest: waits up to which a possible one is searched for.

    Raises:
        InfeasibleError: no policy keeps them, with the code `promise-infeasible` and the shortest possible wait.
    """
    deadlines = Deadlines(problem)
    if deadlines.capacity and (deadlines.is_sure or not _least_use(problem) > 1):
        return deadlines
    least = int(problem.max_waits[problem.max_waits >= 0].min())

    def possible(wait: int) -> bool:
        longer = replace(problem, max_waits=np.where(problem.max_waits >= 0, np.maximum(problem.max_waits, wait), -1))
        return Deadlines(longer).is_sure or not _least_use(longer) > 1

    # From one that is too short to one that is possible, then by halves between them.
    high = max(1, 2 * least)
    while high < longest and not possible(high):
        least, high = high, 2 * high
    while high - least > 1 and high <= 2 * longest:
        middle = (least + high) // 2
        least, high = (least, middle) if possible(middle) else (middle, high)
    shortest = f"is {counted(high, 'step')}" if possible(high) else f"is longer than {longest} steps, if there is one"
    raise InfeasibleError(
        "the promised waits need more than the budget in the long run: the shortest wait that the budget allows "
        f"{shortest}. Promise longer waits, or raise the budget.",
        code="promise-infeasible",
    )


def promise_notes(problem: CoupledMDP) -> list[tuple[str, str]]:
    """Return kind and text of what is odd about the promises: they are impossible, or not sure to hold."""
    try:
        found = check_promises(problem)
    except InfeasibleError as error:
        return [("promises", str(error))]
    if found.is_sure:
        return []
    most = f"{found.most_at_once} of the {found.num_promised} arms with a promise"
    return [("promises-unsure", f"promised waits surely hold only while at most {most} are in such states at once")]


def _least_use(problem: CoupledMDP, most_cells: float = 3e7) -> float:
    """Share of the budget without which no policy keeps the promises, by the best of several prices; 0 if not known."""
    limits, shape = problem.max_waits, problem.tables.rewards.shape
    states = shape[1] + np.maximum(limits, 0).sum(axis=1).max()
    if float(shape[0]) * states**2 * shape[2] > most_cells:
        return 0.0
    types = with_service_due(problem, extend(problem)).types
    criterion = Average() if problem.criterion.is_stationary else problem.criterion
    some, parts = np.flatnonzero(problem.budget > 0), {1: 1, 2: 20, 3: 6}.get(int((problem.budget > 0).sum()), 1)
    most = 0.0
    # Prices under which the whole budget costs 1.
    for grid in (
        product(range(parts + 1), repeat=len(some)) if len(some) <= 3 else np.eye(len(some), dtype=int).tolist()
    ):
        if sum(grid) == parts:
            prices = np.zeros(problem.num_resources)
            prices[some] = np.array(grid) / parts / problem.budget[some]
            costs = -best_values(replace(types, rewards=-(types.usage @ prices)), types.valid, criterion)
            most = max(most, float(np.nansum(costs * problem.type_counts)) / criterion.total)
    return most / (1 + 1e-9)


# -- exactly, on extended states ---------------------------------------------------------------------------------------


class PromisedSpace:
    """A space of the extended problem without the pairs that break a promise, now or by necessity later."""

    def __init__(self, problem: CoupledMDP, space: Joint | Counts) -> None:
        """List the pairs.

        Args:
            problem: with promises.
            space: of the extended problem.

        Raises:
            InfeasibleError: from some initial state no policy surely keeps the promises.
        """
        self.problem, self.space, full = problem, space, space.mdp
        owner = full.state_of_pair
        keeps, alive = ~_late_pairs(problem, space), np.ones(full.num_states, dtype=bool)
        while True:
            leaves = (full.kernel @ (~alive).astype(np.float64)) > 0
            allowed = keeps & ~leaves[full.outcomes]
            still = np.bincount(owner[allowed], minlength=full.num_states) > 0
            if (still == alive).all():
                break
            alive = still
        if (full.initial[~alive] > 0).any():
            raise InfeasibleError("no policy surely keeps the promised waits from all initial states")
        if full.num_transitions > 3e7:
            raise TooLargeError("the extended problem has too many transitions for a table")
        self.pairs = np.flatnonzero(allowed)
        kept = replace(full, offsets=_offsets(owner[allowed], full.num_states), **_of_pairs(full, self.pairs))
        self.states = np.flatnonzero(kept.reachable)
        self.pairs = self.pairs[kept.reachable[owner[self.pairs]]]
        rest = _of_pairs(full, self.pairs)
        rows, outcomes = np.unique(rest.pop("outcomes"), return_inverse=True)
        number = np.cumsum(kept.reachable) - 1
        self.mdp: TabularMDP = replace(
            full,
            **rest,
            offsets=_offsets(number[owner[self.pairs]], len(self.states)),
            outcomes=outcomes.reshape(-1).astype(np.int64),
            kernel=sparse.csr_array(sparse.csr_array(full.kernel[rows])[:, self.states]),
            initial=full.initial[self.states],
        )

    def lift(self, table: Floats) -> DeadlinePolicy:
        """A policy that counts waiting times and looks up the extended state."""
        full = self.space.mdp
        whole = np.zeros((*table.shape[:-1], full.num_pairs))
        whole[..., self.pairs] = table
        # States that are never reached need some action.
        others = np.setdiff1d(np.arange(full.num_states), self.states)
        whole[..., full.offsets[others]] = 1.0
        return DeadlinePolicy(self.problem, self.space.lift(whole), mode=2)


def _late_pairs(problem: CoupledMDP, space: Joint | Counts) -> Bools:
    """(pair,) whether an arm that is due is not served."""
    late = is_late(problem, space.problem)
    if isinstance(space, Counts):
        return np.asarray(np.einsum("ptsa,tsa->p", space.allocations, late) > 0)
    kinds, owner = space.problem.type_of_arm, space.mdp.state_of_pair
    return np.asarray(late[kinds, space.states[owner], space.actions].any(axis=1))


def _offsets(owner: Ints, number: int) -> Ints:
    return np.searchsorted(owner, np.arange(number + 1)).astype(np.int64)


def _of_pairs(mdp: TabularMDP, pairs: Ints) -> dict[str, Any]:
    served = None if mdp.served is None else mdp.served[pairs]
    return {"rewards": mdp.rewards[pairs], "outcomes": mdp.outcomes[pairs], "served": served}


def _solve_extended(task: Task, base: Solution) -> Solution:
    """Return the best policy among those that surely keep the promises, by a table on extended states."""
    problem, effort, watch = task.problem, task.effort, Stopwatch()
    extended = extend(problem)
    counts, joint = num_count_states(extended), num_joint_states(extended)
    by_counts = counts <= joint if task.method.name == "auto" else task.method.name == "counts"
    size, most = (counts, effort.count_states) if by_counts else (joint, effort.joint_states)
    most = min(most, 3_000) if problem.criterion.is_average else most
    if size * max(1.0, problem.criterion.num_layers / 50) > most:
        what = "count" if by_counts else "product"
        raise TooLargeError(f"the {what} space of states and waiting times has {size:.3g} states, above {most}")
    space = PromisedSpace(problem, Counts(extended) if by_counts else Joint(extended))
    reason = f"the {'count' if by_counts else 'product'} space of states and waiting times has {size:.0f} states"
    method, objective = ("counts", task.by_types) if by_counts else ("joint", task.by_arms)
    found = by_mixture(replace(task, reason=reason), method, space, objective, watch)
    return replace(found, promise=report_promise(problem, found, base, "extended states", task))


# -- by the deadline rule ----------------------------------------------------------------------------------------------


def solve_promised(task: Task, solve_plain: Callable[[Task], Solution]) -> Solution:
    """Solve a problem with promised waits.

    Args:
        task: the task.
        solve_plain: solves the problem without them.

    Raises:
        InfeasibleError: the promises are impossible.
    """
    problem, name = task.problem, task.method.name
    if name.endswith("-lp"):
        raise NotApplicableError(f"{name} does not know promised waits. Use the methods counts, joint or fluid.")
    deadlines = check_promises(problem)
    plain = without_promises(problem)
    given = {key: _plan_inside(policy) for key, policy in task.method.candidates.items()}
    base = solve_plain(replace(task, problem=plain, method=replace(task.method, candidates=given)))
    if name in ("auto", "counts", "joint") and not given:
        try:
            return _solve_extended(task, base)
        except FAILURES:
            if name != "auto":
                raise
    policies: dict[str, Policy | StatefulPolicy] = {"the plan without promises": keep_promises(problem, base.policy)}
    bound = base.upper_bound
    with contextlib.suppress(*FAILURES):
        strict = with_service_due(problem, extend(problem))
        relaxed = relax(strict, task.welfare, max(task.method.tolerance, FLUID_TOLERANCE))
        bound = min(bound, relaxed.upper_bound) if deadlines.is_sure else bound
        index = keep_promises(problem, build_policy(strict, relaxed, "fair-index"), mode=1)
        policies["the index policy on states and waiting times"] = index
    watch, streams = Stopwatch(), np.random.default_rng(task.rng).spawn(2)
    size = problem.num_arms * problem.criterion.judging_steps()

    def play(policy: Policy | StatefulPolicy, arm_steps: float, stream: np.random.Generator) -> Any:
        task.tell("promised waits: playing", 0.9)
        seed = int(stream.integers(2**31))
        return evaluate(problem, policy, task.welfare, int(np.clip(arm_steps / size, 20, 2000)), rng=seed)

    seeds = streams[0].integers(2**31, size=1)
    scores = {
        key: play(policy, task.effort.arm_steps, np.random.default_rng(seeds)).welfare
        for key, policy in policies.items()
    }
    best = max(scores, key=lambda key: scores[key])
    found = play(policies[best], task.effort.report_steps, streams[1])
    watch.lap("play")
    solution = replace(
        base,
        reason=f"{base.reason}; promised waits by the deadline rule on {best}",
        objective=found.objective,
        welfare=found.welfare,
        welfare_stderr=found.welfare_stderr,
        upper_bound=bound,
        unit_values=found.unit_values,
        unit_stderr=found.unit_stderr if found.unit_stderr.any() else None,
        by_type=found.by_type,
        policy=policies[best],
        problem=problem,
        seconds={key: base.seconds.get(key, 0.0) + watch.seconds.get(key, 0.0) for key in base.seconds | watch.seconds},
        parts=base.parts if best == next(iter(policies)) else (),
        selection_bias=None,
        samples=None,
        realised_gini=found.realised_gini_coefficient,
        realised_gini_stderr=found.realised_gini_stderr,
    )
    return replace(solution, promise=report_promise(problem, solution, base, "deadline rule", task))


def _plan_inside(policy: Policy | StatefulPolicy) -> Policy | StatefulPolicy:
    """The plan under the deadline rule, if it is one for states alone."""
    return policy.parts[0] if isinstance(policy, DeadlinePolicy) and policy.mode == 0 else policy


def report_promise(problem: CoupledMDP, found: Solution, base: Solution, how: str, task: Task) -> PromiseReport:
    """Return what the promises of a solution cost, and how often they are broken.

    Args:
        problem: with promises.
        found: its solution.
        base: the solution without promises.
        how: `extended states` or `deadline rule`.
        task: the task.
    """
    deadlines = Deadlines(problem)
    broken, error = (0.0, 0.0) if how == "extended states" else share_broken(problem, found.policy, task.rng)
    cost_error = float(np.hypot(found.welfare_stderr, base.welfare_stderr))
    sure = how == "extended states" or deadlines.is_sure
    return PromiseReport(
        promises_in_words(problem), how, sure, deadlines.num_promised, deadlines.most_at_once, broken, error,
        base.welfare, base.welfare - found.welfare, cost_error
    )  # fmt: skip


def share_broken(
    problem: CoupledMDP, policy: Policy | StatefulPolicy, rng: Any, most: float = 4e6
) -> tuple[float, float]:
    """Return the share of due services that are missed, by simulation, and its standard error.

    Args:
        problem: with promises.
        policy: the policy.
        rng: seed or generator.
        most: steps of arms to play.
    """
    steps = problem.criterion.num_steps or int(np.clip(most / 20 / problem.num_arms, 20, 500))
    episodes = int(np.clip(most / (steps * problem.num_arms), 2, 200))
    run = simulate(problem, policy, episodes, steps, rng, keep_paths=True)
    assert run.states is not None and run.actions is not None
    broken, due = count_broken(problem, run.states, run.actions)
    share = broken.sum() / max(due.sum(), 1)
    return float(share), float(standard_errors((broken - share * due)[:, None])[0] / max(due.mean(), 1.0))
