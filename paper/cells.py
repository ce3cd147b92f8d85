"""The kinds of cells: what each computes.

    optimum       the best policy by one method of `solve`
    fluid         the upper bound of the fair fluid relaxation
    named-policy  a registered policy (or whittle-paper), exactly if possible, and by the paper's protocol
    train         count-proportion deep RL: score, learning curve, and the welfare on every size of `evaluate`
    timing        seconds per episode, in batches; compilation and the first batch are not counted
    lp            one of the paper's linear programs: its size, its optimum, and the seconds of every stage
    fairness      the best policy per welfare, measured by other welfares

Each function returns (values, timings). Values are the same in every run, timings are in seconds. The welfare is gini:2
by default. `timing` and `lp` measure times, so `run` gives them the machine alone.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from evenhand.errors import NotApplicableError, OutOfDomainError, TooLargeError
from evenhand.evaluation.evaluate import Evaluation, evaluate
from evenhand.evaluation.inequality import gini_coefficient
from evenhand.evaluation.rollout import simulate
from evenhand.evaluation.standard_errors import standard_errors
from evenhand.learning.network_evaluation import resized
from evenhand.model.coupled import CoupledMDP
from evenhand.model.policy import Policy, StatefulPolicy
from evenhand.model.tabular import TabularMDP
from evenhand.model.welfare import as_welfare
from evenhand.planning.policy_registry import find_policy
from evenhand.planning.relaxation import relax
from evenhand.planning.solution import Solution
from evenhand.planning.solve import solve
from evenhand.policies.index import whittle
from evenhand.policies.network import CountNetworkPolicy, Network
from evenhand.problems import catalog
from evenhand.solvers.counts.reduction import Counts, num_count_states
from evenhand.solvers.joint import Joint, num_joint_states
from evenhand.solvers.linear_programs import count_lp, gini_lp
from paper.program_sizes import paper_count_lp_size, paper_gini_lp_size

Parameters = Mapping[str, Any]
Outcome = tuple[dict[str, Any], dict[str, float]]

EXACT_METHODS = ("counts", "joint", "count-lp", "joint-lp")


def optimum(*, problem: str, parameters: Parameters, welfare: str = "gini:2", method: str = "counts") -> Outcome:
    """The best policy, by one method."""
    coupled = catalog.build(problem, parameters)
    start = time.perf_counter()
    solution = solve(coupled, welfare, method)
    total = time.perf_counter() - start
    states = num_joint_states(coupled) if method.startswith("joint") else num_count_states(coupled)
    values = {
        "welfare": solution.welfare,
        "upper_bound": solution.upper_bound,
        "states": int(states),
        "method": solution.method,
    }
    return values, {**solution.seconds, "total": total}


def fluid(*, problem: str, parameters: Parameters, welfare: str = "gini:2") -> Outcome:
    """The upper bound of the fair fluid relaxation."""
    coupled = catalog.build(problem, parameters)
    start = time.perf_counter()
    bound = relax(coupled, as_welfare(welfare, coupled.num_arms)).upper_bound
    return {"upper_bound": bound}, {"total": time.perf_counter() - start}


def named_policy(
    *,
    problem: str,
    parameters: Parameters,
    policy: str,
    welfare: str = "gini:2",
    num_episodes: int = 1000,
    horizon: int = 300,
    seed: int = 0,
) -> Outcome:
    """A registered policy; `whittle-paper` has the paper's truncated indices."""
    coupled = catalog.build(problem, parameters)
    try:  # a policy that does not apply to the problem is a result, not a failure
        if policy == "whittle-paper":
            built = whittle(coupled, paper_compat=True)
        else:
            built = find_policy(policy).build(coupled, welfare)
    except (NotApplicableError, TooLargeError) as error:
        return {"applies": False, "reason": str(error)}, {}
    return evaluate_twice(built, coupled, welfare, num_episodes, horizon, seed)


def evaluate_twice(
    policy: Policy | StatefulPolicy, problem: CoupledMDP, welfare: str, num_episodes: int, horizon: int, seed: int
) -> Outcome:
    """The welfare of a policy, exactly if possible, and its plug-in estimate by the paper's protocol."""
    simulated = evaluate(problem, policy, welfare, num_episodes, horizon, seed, method="monte-carlo")
    try:
        best = evaluate(problem, policy, welfare, num_episodes, horizon, seed, method="exact")
    except (NotApplicableError, TooLargeError):
        best = simulated
    values = {
        "welfare": best.welfare,
        "exact": best.exact,
        "stderr": best.welfare_stderr,
        "plug_in": simulated.plug_in_welfare,
        "plug_in_stderr": _plug_in_stderr(simulated, welfare),
        "mean": best.mean,
        "worst": best.worst,
        "gini_coefficient": best.gini_coefficient,
        "budget_used": [float(share) for share in best.budget_used],
    }
    return values, {"evaluate": best.seconds, "simulate": simulated.seconds}


def _plug_in_stderr(simulated: Evaluation, welfare: str) -> float | None:
    """Standard error of the welfare of the arms' means, by the delta method."""
    returns = simulated.returns
    if returns is None or simulated.plug_in_welfare is None:
        return None
    weights = as_welfare(welfare, returns.shape[1]).supergradient(returns.mean(axis=0))
    return float(standard_errors(returns @ weights))


def train(
    *,
    problem: str,
    parameters: Parameters,
    evaluate: Sequence[Parameters],
    welfare: str = "gini:2",
    num_episodes: int = 1000,
    evaluation_horizon: int = 300,
    **settings: Any,
) -> Outcome:
    """Train a network, and evaluate the best one on one or several sizes."""
    from evenhand.learning.training import train as learn

    coupled = catalog.build(problem, parameters)
    training = learn(coupled, **settings)
    start = time.perf_counter()
    evaluations = []
    for size in evaluate:
        other = resized(coupled, size["num_arms"], np.atleast_1d(np.asarray(size["budget"], dtype=np.float64)))
        policy = training.policy
        if isinstance(policy, CountNetworkPolicy):  # one network plays any size
            policy = CountNetworkPolicy(other, policy.network, policy.rule)
        seed = training.settings["seed"]
        values, _ = evaluate_twice(policy, other, welfare, num_episodes, evaluation_horizon, seed)
        evaluations.append({**size, **values})
    values = {
        "score": training.score,
        "exact": training.exact,
        "curve": [[steps, score] for steps, score in training.curve],
        "horizon": training.settings["horizon"],
        "steps": training.steps,
        "evaluations": evaluations,
    }
    return values, {"train": training.seconds, "evaluate": time.perf_counter() - start}


def timing(
    *,
    problem: str,
    parameters: Parameters,
    who: str,
    num_episodes: int = 200,
    horizon: int = 300,
    repeats: int = 3,
    seed: int = 0,
) -> Outcome:
    """Seconds per episode of simulation or training."""
    coupled = catalog.build(problem, parameters)
    once = _CLOCKS[who](coupled, num_episodes, horizon, seed)
    once()  # compiles and fills caches
    seconds = [once() / num_episodes for _ in range(repeats)]
    values = {"episodes": num_episodes, "horizon": horizon, "repeats": repeats}
    return values, {"per_episode": float(np.median(seconds)), "per_episode_deviation": float(np.std(seconds))}


def _simulation_clock(
    build: Callable[[CoupledMDP, int], Policy | StatefulPolicy],
) -> Callable[..., Callable[[], float]]:
    def clock(problem: CoupledMDP, episodes: int, horizon: int, seed: int) -> Callable[[], float]:
        policy = build(problem, seed)

        def once() -> float:
            start = time.perf_counter()
            simulate(problem, policy, episodes, horizon, seed)
            return time.perf_counter() - start

        return once

    return clock


def _training_clock(problem: CoupledMDP, episodes: int, horizon: int, seed: int) -> Callable[[], float]:
    from evenhand.learning.training import train as learn

    def once() -> float:
        reports: list[tuple[float, float]] = []

        def note(what: str, share: float) -> None:
            reports.append((share, time.perf_counter()))

        training = learn(problem, steps=episodes * horizon, horizon=horizon, seed=seed, evaluations=1, progress=note)
        # Between the first and the last report of progress: loading and evaluation are left out.
        (first, start), (last, end) = reports[0], reports[-1]
        return (end - start) / (last - first) if last > first else training.seconds

    return once


def untrained_network(problem: CoupledMDP, seed: int) -> Network:
    """A network of the usual shape with random weights, whose time per decision is that of a trained one."""
    rng = np.random.default_rng(seed)
    num_states, num_actions, num_resources = problem.types.usage.shape[1:]
    shapes = list(pairwise([num_states + num_resources, 64, 64, num_states * num_actions]))
    weights = [(rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32) for shape in shapes]
    return Network(weights, [np.zeros(shape[1], dtype=np.float32) for shape in shapes])


_CLOCKS = {
    "whittle-evaluation": _simulation_clock(lambda problem, seed: whittle(problem)),
    "cp-drl-evaluation": _simulation_clock(
        lambda problem, seed: CountNetworkPolicy(problem, untrained_network(problem, seed))
    ),
    "cp-drl-training": _training_clock,
}


def lp(*, problem: str, parameters: Parameters, program: str, welfare: str = "gini:2", repeats: int = 5) -> Outcome:
    """One of the paper's linear programs, `gini` (GGF-LP) or `count` (count dual LP)."""
    coupled = catalog.build(problem, parameters)
    _solve_program(catalog.build(problem, {**parameters, "num_arms": 2}), program, welfare)  # loads the solver
    runs = [_solve_program(coupled, program, welfare) for _ in range(repeats)]
    stages = {name: [seconds[name] for _, seconds in runs] for name in runs[0][1]}
    means = {name: float(np.mean(seconds)) for name, seconds in stages.items()}
    deviations = {f"{name}_deviation": float(np.std(seconds)) for name, seconds in stages.items()}
    return {**runs[0][0], "repeats": repeats}, means | deviations


def _solve_program(problem: CoupledMDP, program: str, welfare: str) -> Outcome:
    start = time.perf_counter()
    mdp: TabularMDP = Joint(problem).mdp if program == "gini" else Counts(problem).mdp
    seconds = {"data": time.perf_counter() - start}
    if program == "gini":
        weights = as_welfare(welfare, problem.num_arms).rank_weights(problem.num_arms)  # type: ignore[attr-defined]
        solution, size_of = gini_lp(mdp, weights), paper_gini_lp_size
    else:
        solution, size_of = count_lp(mdp), paper_count_lp_size
    seconds |= {name: solution.seconds[name] for name in ("build", "solve", "extract")}
    paper = size_of(problem.num_arms, int(problem.types.num_states[0]))
    values = {
        "constraints": solution.num_rows,
        "variables": solution.num_columns,
        "paper_constraints": paper.num_rows,
        "paper_variables": paper.num_columns,
        "welfare": solution.lower_bound,
        "upper_bound": solution.upper_bound,
    }
    return values, {**seconds, "total": sum(seconds.values())}


def fairness(*, problem: str, parameters: Parameters, welfare: str, measures: Sequence[str], seed: int = 0) -> Outcome:
    """The best policy for one welfare, measured by others, with the value of every type or arm."""
    coupled = catalog.build(problem, parameters)
    start = time.perf_counter()
    solution = solve(coupled, welfare, rng=seed)
    total = time.perf_counter() - start
    arms = solution.values
    values = {
        "method": solution.method,
        "exact": solution.method in EXACT_METHODS,
        "welfare": solution.welfare,
        "upper_bound": solution.upper_bound,
        "stderr": solution.welfare_stderr,
        "mean": float(arms.mean()),
        "worst": float(arms.min()),
        "gini_coefficient": float(gini_coefficient(arms)),
        "groups": _groups(solution),
        "measures": {measure: _measure(measure, arms) for measure in measures},
    }
    return values, {"total": total}


def _groups(solution: Solution) -> list[dict[str, Any]]:
    problem = solution.problem
    counts = problem.type_counts if solution.by_type else np.ones(problem.num_arms, dtype=np.int64)
    types = range(problem.num_types) if solution.by_type else problem.type_of_arm
    labels = problem.types.labels
    names = [labels[one][0] if len(labels) == problem.num_types else "" for one in types]
    rows = zip(names, counts, solution.unit_values, strict=True)
    return [{"name": name, "count": int(count), "value": float(value)} for name, count, value in rows]


def _measure(welfare: str, values: np.ndarray) -> float | None:
    try:
        return float(as_welfare(welfare, len(values))(values))
    except OutOfDomainError:
        return None


KINDS: dict[str, Callable[..., Outcome]] = {
    "optimum": optimum,
    "fluid": fluid,
    "named-policy": named_policy,
    "train": train,
    "timing": timing,
    "lp": lp,
    "fairness": fairness,
}

TIMED = ("timing", "lp")
"""Kinds that measure times: they run last, alone."""
