"""Promised waits: feasibility, the best policy that keeps them, and their price in welfare (`policies.deadlines`).

    impossible   in the long run the promises need more than the budget, in expectation: refused, with the shortest wait
                 that the budget allows. At prices p the least use of an arm that keeps its promise is that of a single
                 arm on extended states; if the sum over arms exceeds p.budget for some p >= 0, no policy keeps them
    sure         the deadline rule keeps them whatever happens: at most m (K + 1) arms have a promise
    otherwise    they hold as long as no more than m (K + 1) arms are in promised states at once; how often one is
                 broken is found by simulation

Small problems are solved on extended states, among policies that surely keep the promise: of the joint or count states
in which all arms that are due can be served, those are removed, again and again, from which every action may lead out.
What is left is an ordinary problem, which column generation solves with its certificate. With a finite horizon, too, so
that the promises can be kept after the last step: plans without regard to it may have more. All others get the best of
two plans under the deadline rule: the plan without promises, and the index policy of the relaxation on extended states.
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
from evenhand.evaluation.evaluate import Evaluation
from evenhand.evaluation.long_run import mean_by_type
from evenhand.evaluation.rollout import simulate
from evenhand.evaluation.standard_errors import standard_errors
from evenhand.kernels.compilation import work_clock
from evenhand.model import CoupledMDP, MixturePolicy, Policy, StatefulPolicy, TabularMDP
from evenhand.model.composite import components_for_good
from evenhand.model.criterion import Average, Discounted
from evenhand.model.labels import Labels, promises_in_words
from evenhand.model.policy import described
from evenhand.planning.methods import by_mixture, play
from evenhand.planning.policy_scoring import step_cost
from evenhand.planning.relaxation import FLUID_TOLERANCE, relax
from evenhand.planning.solution import Part, PromiseReport, Solution
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
from evenhand.policies.fluid import fair_index
from evenhand.solvers.column_generation import best_shares
from evenhand.solvers.counts.reduction import Counts, num_count_states
from evenhand.solvers.fluid import model_of, solve_weighted
from evenhand.solvers.joint import Joint, num_joint_states
from evenhand.solvers.service import best_values
from evenhand.solvers.single_arm import action_values
from evenhand.solvers.welfare_cuts import Support
from evenhand.typing import Floats, Ints

# -- feasibility -------------------------------------------------------------------------------------------------------


def check_promises(problem: CoupledMDP) -> Deadlines:
    """Return what is known of the promised waits of a problem, if they are possible.

    Args:
        problem: a problem with promises (`CoupledMDP.with_max_wait`).

    Raises:
        InfeasibleError: no policy keeps them, with the code `promise-infeasible` and the shortest possible wait, or a
            possible one if the shortest is not known.
    """
    deadlines, labels = Deadlines(problem), Labels(problem)
    for kind, state in deadlines.unservable.tolist():
        raise InfeasibleError(
            f"the promised wait of {labels.type(kind)} {labels.being(kind, state)} cannot hold: every service there "
            "takes more than the whole budget of a step",
            code="promise-infeasible",
        )
    if deadlines.is_sure or _is_possible(problem) is not False:
        return deadlines

    def possible(wait: int) -> bool | None:
        """Return whether the budget allows waits of at least this, in the long run; None if it is not known."""
        return _is_possible(
            replace(problem, max_waits=np.where(problem.max_waits >= 0, np.maximum(problem.max_waits, wait), -1))
        )

    # From one that is too short to one that is possible, as a sure one is, then by halves between them.
    least, high = int(problem.max_waits[problem.max_waits >= 0].min()), deadlines.sure_wait
    middle, is_known, doubles = max(1, 2 * least), True, True
    while high - least > 1 and is_known:
        middle = min(middle, high - 1) if doubles else (least + high) // 2
        found = possible(middle)
        is_known = found is not None
        least, high = (least, middle) if found else (middle, high)
        middle, doubles = 2 * middle, doubles and found is False
    shortest = f"is {'' if is_known else 'at most '}{counted(high, 'step')}"
    always = f"; from {counted(deadlines.sure_wait, 'step')} on it always holds"
    raise InfeasibleError(
        "the promised waits need more than the budget in the long run: the shortest wait that the budget allows "
        f"{shortest}{always}. Promise longer waits, or raise the budget.",
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
    text = f"promised waits surely hold only while at most {most} are in such states at once"
    return [("promises-unsure", f"{text}; waits of {counted(found.sure_wait, 'step')} always do")]


def _is_possible(problem: CoupledMDP, most_cells: float = 1e7, at_once: float = 1e6) -> bool | None:
    """Return whether the budget is enough for the promises in the long run, at several prices; None if not known.

    Types are extended some at a time, those with the most arms first, until they need more than the budget. Types
    without promises need nothing: they can idle.

    Args:
        problem: with promises.
        most_cells: transitions of all types together, beyond which the rest of them is not known.
        at_once: transitions of the types that are extended together.
    """
    blocks = np.unique(problem.type_of_block, return_index=True)[1]
    counts, limits, tables = problem.type_counts, problem.type_max_waits, problem.tables
    cells = (tables.num_states[blocks] + np.maximum(limits, 0).sum(axis=1)).astype(np.float64) ** 2
    cells *= tables.rewards.shape[2]
    kinds = np.flatnonzero((limits >= 0).any(axis=1))
    kinds = kinds[np.argsort(-counts[kinds], kind="stable")]
    some = np.flatnonzero(problem.budget > 0)
    parts = {1: 1, 2: 20, 3: 6}.get(len(some), 1)
    grid = product(range(parts + 1), repeat=len(some)) if len(some) <= 3 else np.eye(len(some), dtype=int).tolist()
    shares = np.array([row for row in grid if sum(row) == parts]).reshape(-1, len(some))
    affordable = kinds[np.cumsum(cells[kinds]) * len(shares) <= most_cells]
    if not len(affordable):
        return None
    # Prices under which the whole budget costs 1.
    prices = np.zeros((len(shares), problem.num_resources))
    prices[:, some] = shares / parts / problem.budget[some]
    criterion = Average() if problem.criterion.is_stationary else problem.criterion
    use, is_known = np.zeros(len(prices)), len(affordable) == len(kinds)
    number = int(np.ceil(cells[affordable].max() * len(affordable) / at_once))
    for chosen in np.array_split(affordable, min(number, len(affordable))):
        rows = blocks[chosen]
        own = replace(
            problem,
            arms=tables.select(rows),
            counts=counts[chosen],
            groups=(),
            floors=np.zeros(len(rows)),
            over="arms",
            arm_names=(),
            max_waits=problem.max_waits[rows],
        )
        types = with_service_due(own, extend(own)).types
        for row, price in enumerate(prices):
            costs = -best_values(replace(types, rewards=-(types.usage @ price)), types.valid, criterion)
            is_known &= not np.isnan(costs).any()
            use[row] += float(np.nansum(costs * own.type_counts)) / criterion.total
        if use.max() > 1 + 1e-9:
            return False
    return True if is_known else None


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
        self.late = _sum_over_arms(space, is_late(problem, space.problem).astype(np.float64))
        keeps, alive = self.late == 0, np.ones(full.num_states, dtype=bool)
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
        # States that the plan does not reach, such as those of a service that was missed: due arms, then the best.
        types = self.space.problem.types
        worth = action_values(types, np.ones(len(types)), np.zeros(types.usage.shape[-1]), Discounted(0.95))
        score = _sum_over_arms(self.space, np.where(types.valid, worth, 0.0))
        best = np.lexsort((score, -self.late, full.state_of_pair))[full.offsets[1:] - 1]
        whole[..., np.delete(best, self.states)] = 1.0
        return DeadlinePolicy(self.problem, self.space.lift(whole), mode=2)


def _sum_over_arms(space: Joint | Counts, table: Floats) -> Floats:
    """(pair,) sums of a (type, state, action) table over the arms."""
    if isinstance(space, Counts):
        return np.asarray(np.einsum("ptsa,tsa->p", space.allocations, table))
    kinds, owner = space.problem.type_of_arm, space.mdp.state_of_pair
    return np.asarray(table[kinds, space.states[owner], space.actions].sum(axis=1))


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
    return replace(found, promise=report_promise(problem, found, base, "extended states", task, found.upper_bound))


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
    # A third of a time limit is for the plan without promises; a mixture is drawn again when promises are over it.
    begin, seconds = work_clock(), None if task.method.seconds is None else task.method.seconds / 3
    method = replace(task.method, candidates=given, seconds=seconds, redraw_every=None)
    base = solve_plain(replace(task, problem=plain, method=method))
    if name in ("auto", "counts", "joint") and not given:
        try:
            return _solve_extended(task, base)
        except FAILURES:
            if name != "auto":
                raise
    return _solve_by_rule(task, base, deadlines, begin)


def _solve_by_rule(
    task: Task, base: Solution, deadlines: Deadlines, begin: float, rounds: int = 6, trial: float = 1e6
) -> Solution:
    """Return the best mixture of plans under the deadline rule, reported on episodes on which nothing was chosen.

    Args:
        task: the task.
        base: the solution without promises.
        deadlines: of the problem.
        begin: when the time given began, by `work_clock`.
        rounds: rounds of column generation.
        trial: steps of arms that are played in any case.
    """
    problem, objective, watch, bound = task.problem, task.by_types, Stopwatch(), base.upper_bound
    seeds, seconds = np.random.default_rng(task.rng).integers(2**31, size=2).tolist(), task.method.seconds
    pace = 0.0  # steps of arms in a second

    def is_over(share: float = 0.6) -> bool:
        """Return whether a share of the time is over."""
        return seconds is not None and work_clock() - begin > share * seconds

    def evaluated(policy: Policy | StatefulPolicy, arm_steps: float, seed: int, share: float) -> Evaluation:
        """Evaluate a policy, in a share of the time; the first one is a trial of the pace."""
        nonlocal pace
        task.tell("promised waits: playing", 0.9)
        most = np.inf if seconds is None else max(share * seconds * pace, trial)
        started = work_clock()
        seen = play(replace(task, rng=seed), policy, arm_steps, most, thorough=share > 0.1)
        played = float(seen.num_episodes or 0) * problem.num_arms * problem.criterion.judging_steps()
        pace = max(pace, played / max(work_clock() - started, 1e-3))
        return seen

    tried, vectors = list[tuple[str, Policy | StatefulPolicy]](), list[Floats]()

    def add(name: str, policy: Policy | StatefulPolicy, mode: int = 0) -> None:
        """Play a policy under the promises, as a column of the mixture."""
        tried.append((name, keep_promises(problem, policy, mode)))
        seen = evaluated(tried[-1][1], 0.5 * task.effort.arm_steps, seeds[0], 0.05)
        values = seen.unit_values if seen.by_type else mean_by_type(problem, seen.unit_values)
        vectors.append(objective.members(values))

    def mix() -> tuple[Floats, Support]:
        """Return the best shares so far, and the weights that support them."""
        return best_shares(np.column_stack(vectors), task.welfare, objective.sizes, precision=1e-4)

    plans, shares = components_for_good(base.policy)
    names = [part.name for part in base.parts] or [base.method] * len(plans)
    order = np.argsort(-shares, kind="stable").tolist()
    for name, place in zip(names[:3], order, strict=False):
        if not (tried and is_over()):
            add(name, plans[place])
    with contextlib.suppress(*FAILURES):
        strict = with_service_due(problem, extend(problem))
        relaxed = relax(strict, task.welfare)
        bound, per_arm, model = min(bound, relaxed.upper_bound), relaxed.weights, model_of(strict)
        # Column generation; index policies know no floors, and the plan without promises is within them.
        for number in range(0 if problem.has_floors else rounds):
            if is_over():
                break
            add(f"fair-index, round {number}", fair_index(strict, per_arm, relaxed.prices), mode=1)
            weights = objective.spread(mix()[1].weights) / problem.type_counts
            per_arm = 0.5 * (per_arm + np.maximum(weights, 1e-6 * weights.max()))
            relaxed = solve_weighted(model, per_arm, None, FLUID_TOLERANCE)
    shares, _ = mix()
    used = np.flatnonzero(shares > 0.01).tolist()
    shares = shares[used] / shares[used].sum()
    policy = tried[used[0]][1] if len(used) == 1 else MixturePolicy([tried[i][1] for i in used], shares)
    found = evaluated(policy, task.effort.report_steps, seeds[1], 0.2)
    watch.lap("play")
    mixed = f"a mixture of {len(used)}" if len(used) > 1 else tried[used[0]][0]
    solution = replace(
        base,
        reason=f"{base.reason}; under promised waits {mixed} of {len(tried)} policies, by the deadline rule",
        objective=found.objective,
        welfare=found.welfare,
        welfare_stderr=found.welfare_stderr,
        upper_bound=min(base.upper_bound, bound) if deadlines.is_sure else base.upper_bound,
        unit_values=found.unit_values,
        unit_stderr=found.unit_stderr if found.unit_stderr.any() else None,
        by_type=found.by_type,
        policy=policy,
        problem=problem,
        seconds=base.seconds | {"play": base.seconds.get("play", 0.0) + watch.seconds["play"]},
        parts=tuple(Part(tried[i][0], float(share)) for i, share in zip(used, shares, strict=True)),
        selection_bias=None,
        samples=None,
        realised_gini=found.realised_gini_coefficient,
        realised_gini_stderr=found.realised_gini_stderr,
    )
    played = 4e6 if seconds is None else max(0.1 * seconds * pace, trial)
    return replace(solution, promise=report_promise(problem, solution, base, "deadline rule", task, bound, played))


def _plan_inside(policy: Policy | StatefulPolicy) -> Policy | StatefulPolicy:
    """The plan under the deadline rule, if it is one for states alone."""
    return policy.parts[0] if isinstance(policy, DeadlinePolicy) and policy.mode == 0 else policy


def report_promise(
    problem: CoupledMDP, found: Solution, base: Solution, how: str, task: Task, bound: float, arm_steps: float = 0.0
) -> PromiseReport:
    """Return what the promises of a solution cost, and how often they are broken.

    Args:
        problem: with promises.
        found: its solution.
        base: the solution without promises.
        how: `extended states` or `deadline rule`.
        task: the task.
        bound: of policies that keep the promises.
        arm_steps: steps of arms that are played, unless the promises are sure to hold.
    """
    deadlines = Deadlines(problem)
    sure = how == "extended states" or deadlines.is_sure
    broken, error = (0.0, 0.0) if sure else share_broken(problem, found.policy, task.rng, arm_steps)
    cost_error = float(np.hypot(found.welfare_stderr, base.welfare_stderr))
    return PromiseReport(
        promises=promises_in_words(problem),
        by=how,
        sure=sure,
        arms=deadlines.num_promised,
        most_at_once=deadlines.most_at_once,
        sure_wait=deadlines.sure_wait,
        broken=broken,
        broken_stderr=error,
        upper_bound=bound,
        cost=base.welfare - found.welfare,
        cost_stderr=cost_error,
    )


def share_broken(problem: CoupledMDP, policy: Policy | StatefulPolicy, rng: Any, most: float) -> tuple[float, float]:
    """Return the share of due services that are missed, by simulation, and its standard error.

    Args:
        problem: with promises.
        policy: the policy.
        rng: seed or generator.
        most: steps of arms to play.
    """
    # A share needs many decisions, also dear ones.
    width = step_cost(problem, described(policy).decision_cost / 100, problem.num_arms, most)
    steps = problem.criterion.num_steps or int(np.clip(most / 20 / width, 20, 500))
    episodes = int(np.clip(most / (steps * width), 2, 200))
    run = simulate(problem, policy, episodes, steps, rng, keep_paths=True)
    assert run.states is not None and run.actions is not None
    broken, due = count_broken(problem, run.states, run.actions)
    share = broken.sum() / max(due.sum(), 1)
    return float(share), float(standard_errors((broken - share * due)[:, None])[0] / max(due.mean(), 1.0))
