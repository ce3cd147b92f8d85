"""What each kind of cell computes.

A cell is (kind, settings). The kind names a function of this file, the settings are its arguments as JSON, and hold
all that the result depends on. What comes of a cell is split in two: `values` are the same in every run, `timings` are
seconds and never are; `outcomes` declares both for every kind. All problems are built-in ones, `problem` with
`parameters`; the welfare is `gini:2` unless said.

    kind          settings beside problem, parameters, welfare      what it finds
    optimum       method: counts, or another of `solve`             the best policy
    fluid                                                           the bound of the fair fluid relaxation
    named-policy  policy: a name of the roster, or whittle-paper    its welfare, exactly where that is possible, and by
                  num_episodes, horizon, seed: the protocol         the paper's protocol; or that it does not apply
    train         algorithm: ppo, sac, td3                          the score and the learning curve, and the welfare of
                  architecture: counts, joint, joint-idle           the best network on every size of `evaluate`
                  allocation: greedy, priority-sampling
                  steps, horizon, seed, evaluations (of the curve)
                  num_arms: [fewest, most] or null (multi-task)
                  budget: [least, most] or null
                  evaluate: [{num_arms, budget}, ...] on which
                  the network is evaluated by
                  num_episodes, evaluation_horizon
    timing        who: whittle-evaluation, cp-drl-training,         seconds an episode takes
                  cp-drl-evaluation
                  num_episodes, horizon, repeats, seed
    lp            program: gini (GGF-LP), count (count dual LP)     its size, ours and as the paper counts; its optimum;
                  repeats                                           seconds of every stage
    fairness      welfare: what is maximised                        the best policy, who gets what, and the result
                  measures: welfares the result is weighed by       weighed by other ideas of fairness
                  seed

In `train`, `evaluate` may hold `budget` as a number (one resource) or a list (one number a resource).

`timing` plays episodes in batches, as this library does, and divides by their number; compilation and the first batch
are not counted. Training is timed over num_episodes * horizon steps of PPO, without judging the learning curve; for
evaluation the network's weights do not matter, so it is an untrained one.

`timing` and `lp` are TIMED: `run` gives them the machine alone.
"""

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from evenhand.errors import NotApplicable, OutOfDomain, TooLarge, UnknownName
from evenhand.evaluation.evaluate import Evaluation, evaluate, standard_error
from evenhand.evaluation.fairness import gini_coefficient
from evenhand.experiments.outcomes import (
    FairnessValues,
    FluidValues,
    Group,
    NotForProblem,
    OptimumValues,
    Outcome,
    PolicyValues,
    ProgramValues,
    SizeFigures,
    TimingValues,
    TrainValues,
)
from evenhand.learning.judging import resized
from evenhand.learning.settings import settings as training_settings
from evenhand.model.coupled import CoupledMDP
from evenhand.model.policy import Policy, Starting
from evenhand.model.tabular import TabularMDP
from evenhand.model.welfare import as_welfare
from evenhand.planning.relaxed import relax
from evenhand.planning.roster import ROSTER, find_policy
from evenhand.planning.solution import Solution
from evenhand.planning.solve import METHODS, solve
from evenhand.policies.index import whittle
from evenhand.policies.network import CountNetworkPolicy, Network
from evenhand.problems import catalog
from evenhand.reductions.counts import Counts, num_count_states
from evenhand.reductions.joint import Joint, num_joint_states
from evenhand.simulation.rollout import simulate
from evenhand.solvers.linear_programs import (
    LinearProgramSolution,
    ProgramSize,
    count_lp,
    gini_lp,
    paper_count_lp_size,
    paper_gini_lp_size,
)
from evenhand.typing import Floats

Parameters = Mapping[str, Any]
"""Parameters of a built-in problem."""

EXACT_METHODS = ("counts", "joint", "count-lp", "joint-lp")
"""Methods of `solve` that prove their optimum."""


# -- kinds: what is solved, bounded and played -----------------------------------------------------------------------


def optimum(*, problem: str, parameters: Parameters, welfare: str = "gini:2", method: str = "counts") -> Outcome:
    """The best policy, by one method."""
    coupled = catalog.build(problem, parameters)
    start = time.perf_counter()
    solution = solve(coupled, welfare, method)
    total = time.perf_counter() - start
    # Of the space that the method works on.
    states = num_joint_states(coupled) if method.startswith("joint") else num_count_states(coupled)
    values = OptimumValues(
        welfare=solution.welfare, upper_bound=solution.upper_bound, states=int(states), method=solution.method
    )
    return Outcome(values, {**solution.seconds, "total": total})


def fluid(*, problem: str, parameters: Parameters, welfare: str = "gini:2") -> Outcome:
    """The fair fluid bound."""
    coupled = catalog.build(problem, parameters)
    start = time.perf_counter()
    bound = relax(coupled, as_welfare(welfare, coupled.num_arms)).upper_bound
    return Outcome(FluidValues(upper_bound=bound), {"total": time.perf_counter() - start})


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
    """A policy that has a name, exactly and by the paper's protocol."""
    coupled = catalog.build(problem, parameters)
    # A policy that is not for the problem is an answer, not a failure.
    try:
        acting = build_policy(policy, coupled, welfare)
    except (NotApplicable, TooLarge) as error:
        return Outcome(NotForProblem(reason=str(error)))
    found, played = _evaluate_twice(acting, coupled, welfare, num_episodes, horizon, seed)
    values = PolicyValues(
        **_figures(found, played, welfare),
        gini_coefficient=found.gini_coefficient,
        budget_used=tuple(float(share) for share in found.budget_used),
    )
    return Outcome(values, {"evaluate": found.seconds, "simulate": played.seconds})


def build_policy(name: str, problem: CoupledMDP, welfare: str) -> Policy | Starting:
    """A policy of the roster, or Whittle's with the paper's truncated indices."""
    if name == "whittle-paper":
        return whittle(problem, paper_compat=True)
    return find_policy(name).build(problem, welfare)


def _evaluate_twice(
    policy: Policy | Starting, problem: CoupledMDP, welfare: str, num_episodes: int, horizon: int, seed: int
) -> tuple[Evaluation, Evaluation]:
    """As well as possible, and simulated."""
    # Simulated always: the paper's figure is of that.
    played = evaluate(policy, problem, welfare, num_episodes, horizon, seed, method="monte-carlo")
    try:
        return evaluate(policy, problem, welfare, num_episodes, horizon, seed, method="exact"), played
    except (NotApplicable, TooLarge):
        return played, played


def _figures(found: Evaluation, played: Evaluation, welfare: str) -> dict[str, Any]:
    """The fields of `Figures`."""
    return {
        "welfare": found.welfare,
        "exact": found.exact,
        "stderr": found.welfare_stderr,
        "plug_in": played.plug_in_welfare,
        "plug_in_stderr": _plug_in_error(played, welfare),
        "mean": found.mean,
        "worst": found.worst,
    }


def _plug_in_error(played: Evaluation, welfare: str) -> float | None:
    """The standard error of the welfare of the arms' means, by the delta method."""
    returns = played.returns
    # Played by counts there are no arms whose means could be weighed.
    if returns is None or played.plug_in_welfare is None:
        return None
    # The supergradient at the estimate: what an error of each arm does to the welfare.
    weights = as_welfare(welfare, returns.shape[1]).supergradient(returns.mean(axis=0))
    return standard_error(returns @ weights)


# -- kinds: learning -------------------------------------------------------------------------------------------------


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
    """Learn, and evaluate the best network on one or several sizes."""
    from evenhand.learning.training import train as learn

    coupled = catalog.build(problem, parameters)
    training = learn(coupled, **settings)
    start = time.perf_counter()
    found = []
    for size in evaluate:
        other = resized(coupled, size["num_arms"], np.atleast_1d(np.asarray(size["budget"], dtype=np.float64)))
        policy = training.policy
        # The network plays any size, but must be told which.
        if isinstance(policy, CountNetworkPolicy):
            policy = CountNetworkPolicy(other, policy.network, policy.rule)
        pair = _evaluate_twice(policy, other, welfare, num_episodes, evaluation_horizon, training.settings["seed"])
        amounts = size["budget"]
        # A list is a budget of several resources; JSON has no tuples.
        own = {"num_arms": size["num_arms"], "budget": tuple(amounts) if isinstance(amounts, list) else amounts}
        found.append(SizeFigures(**own, **_figures(*pair, welfare)))
    values = TrainValues(
        score=training.score,
        exact=training.exact,
        curve=tuple((steps, score) for steps, score in training.curve),
        steps=training.steps,
        evaluations=tuple(found),
    )
    return Outcome(values, {"train": training.seconds, "evaluate": time.perf_counter() - start})


def _declare_training() -> inspect.Signature:
    """The settings of a training cell: its own, and those of `train`. The network is always the paper's."""
    own = inspect.signature(train).parameters.values()
    asked = [
        inspect.Parameter(
            setting.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=setting.default,
            annotation=str if setting.metadata["choices"] else setting.type,
        )
        for setting in training_settings()
        if setting.name != "hidden"
    ]
    return inspect.Signature([*(one for one in own if one.kind is inspect.Parameter.KEYWORD_ONLY), *asked])


# The settings of `train` are declared once, in `learning.settings`, and read off here.
train.__signature__ = _declare_training()  # type: ignore[attr-defined]


# -- kinds: timing ---------------------------------------------------------------------------------------------------


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
    """Seconds an episode takes."""
    coupled = catalog.build(problem, parameters)
    once = _CLOCKS[who](coupled, num_episodes, horizon, seed)
    # The first time compiles and fills caches; it is not counted.
    once()
    seconds = [once() / num_episodes for _ in range(repeats)]
    values = TimingValues(episodes=num_episodes, horizon=horizon, repeats=repeats)
    return Outcome(values, {"per_episode": float(np.median(seconds)), "per_episode_deviation": float(np.std(seconds))})


def _clock_playing(policy: Policy | Starting, problem: CoupledMDP, episodes: int, horizon: int, seed: int) -> float:
    start = time.perf_counter()
    simulate(problem, policy, episodes, horizon, seed)
    return time.perf_counter() - start


def _clock_whittle(problem: CoupledMDP, episodes: int, horizon: int, seed: int) -> Callable[[], float]:
    policy = whittle(problem)
    return lambda: _clock_playing(policy, problem, episodes, horizon, seed)


def _clock_network(problem: CoupledMDP, episodes: int, horizon: int, seed: int) -> Callable[[], float]:
    policy = CountNetworkPolicy(problem, untrained_network(problem, seed))
    return lambda: _clock_playing(policy, problem, episodes, horizon, seed)


def _clock_training(problem: CoupledMDP, episodes: int, horizon: int, seed: int) -> Callable[[], float]:
    from evenhand.learning.training import train as learn

    def once() -> float:
        moments: list[tuple[float, float]] = []
        training = learn(
            problem,
            steps=episodes * horizon,
            horizon=horizon,
            seed=seed,
            evaluations=1,
            progress=lambda what, share: moments.append((share, time.perf_counter())),
        )
        # From the first to the last time that progress was told: loading and judging are left out.
        (first, start), (last, end) = moments[0], moments[-1]
        return (end - start) / (last - first) if last > first else training.seconds

    return once


_CLOCKS: dict[str, Callable[[CoupledMDP, int, int, int], Callable[[], float]]] = {
    "whittle-evaluation": _clock_whittle,
    "cp-drl-training": _clock_training,
    "cp-drl-evaluation": _clock_network,
}


def untrained_network(problem: CoupledMDP, seed: int) -> Network:
    """A network of the usual shape with random weights."""
    rng = np.random.default_rng(seed)
    # The widths are the usual ones; weights are scaled so that outputs are of size 1.
    num_states, num_actions, num_resources = problem.types.usage.shape[1:]
    sizes = [num_states + num_resources, 64, 64, num_states * num_actions]
    shapes = list(pairwise(sizes))
    weights = [(rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32) for shape in shapes]
    return Network(weights, [np.zeros(shape[1], dtype=np.float32) for shape in shapes])


# -- kinds: the paper's linear programs ------------------------------------------------------------------------------

Timed = tuple[ProgramValues, dict[str, float]]
"""A program that was solved once, and the seconds of its stages."""


def _gini_program(problem: CoupledMDP, welfare: str) -> Timed:
    weights = as_welfare(welfare, problem.num_arms).rank_weights(problem.num_arms)  # type: ignore[attr-defined]
    return _clock_program(lambda: Joint(problem).mdp, lambda mdp: gini_lp(mdp, weights), paper_gini_lp_size, problem)


def _count_program(problem: CoupledMDP, welfare: str) -> Timed:
    return _clock_program(lambda: Counts(problem).mdp, count_lp, paper_count_lp_size, problem)


def _clock_program(
    build: Callable[[], TabularMDP],
    solve_it: Callable[[TabularMDP], LinearProgramSolution],
    paper_size: Callable[[int, int], ProgramSize],
    problem: CoupledMDP,
) -> Timed:
    start = time.perf_counter()
    mdp = build()
    data = time.perf_counter() - start
    found = solve_it(mdp)
    seconds = {"data": data, **{name: found.seconds[name] for name in ("build", "solve", "extract")}}
    # By the paper's own formulas.
    paper = paper_size(problem.num_arms, int(problem.types.num_states[0]))
    values = ProgramValues(
        constraints=found.num_rows,
        variables=found.num_columns,
        paper_constraints=paper.num_rows,
        paper_variables=paper.num_columns,
        welfare=found.lower_bound,
        upper_bound=found.upper_bound,
        repeats=1,
    )
    return values, {**seconds, "total": sum(seconds.values())}


_PROGRAMS: dict[str, Callable[[CoupledMDP, str], Timed]] = {"gini": _gini_program, "count": _count_program}


def lp(*, problem: str, parameters: Parameters, program: str, welfare: str = "gini:2", repeats: int = 5) -> Outcome:
    """One of the paper's linear programs: its size, its optimum, and the time of every stage."""
    coupled = catalog.build(problem, parameters)
    _PROGRAMS[program](catalog.build(problem, {**parameters, "num_arms": 2}), welfare)  # loads the solver
    runs = [_PROGRAMS[program](coupled, welfare) for _ in range(repeats)]
    # Stage by stage over the repeats.
    stages = {name: [seconds[name] for _, seconds in runs] for name in runs[0][1]}
    means = {name: float(np.mean(seconds)) for name, seconds in stages.items()}
    deviations = {f"{name}_deviation": float(np.std(seconds)) for name, seconds in stages.items()}
    return Outcome(replace(runs[0][0], repeats=repeats), means | deviations)


# -- kinds: ideas of fairness ----------------------------------------------------------------------------------------


def fairness(*, problem: str, parameters: Parameters, welfare: str, measures: Sequence[str], seed: int = 0) -> Outcome:
    """The best policy for one idea of fairness, weighed by others, and who gets what."""
    coupled = catalog.build(problem, parameters)
    start = time.perf_counter()
    solution = solve(coupled, welfare, rng=seed)
    total = time.perf_counter() - start
    values = solution.values
    found = FairnessValues(
        method=solution.method,
        # By method: fluid plans are estimates, however close.
        exact=solution.method in EXACT_METHODS,
        welfare=solution.welfare,
        upper_bound=solution.upper_bound,
        stderr=solution.welfare_stderr,
        mean=float(values.mean()),
        worst=float(values.min()),
        gini_coefficient=float(gini_coefficient(values)),
        groups=_groups(solution),
        measures={measure: _weigh(measure, values) for measure in measures},
    )
    return Outcome(found, {"total": total})


def _groups(solution: Solution) -> tuple[Group, ...]:
    problem = solution.problem
    counts = problem.type_counts if solution.by_type else np.ones(problem.num_arms, dtype=np.int64)
    kinds = range(problem.num_types) if solution.by_type else problem.type_of_arm
    labels = problem.types.labels
    # Without labels nobody has a name.
    names = [labels[kind][0] if len(labels) == problem.num_types else "" for kind in kinds]
    rows = zip(names, counts, solution.unit_values, strict=True)
    return tuple(Group(name, int(count), float(value)) for name, count, value in rows)


def _weigh(measure: str, values: Floats) -> float | None:
    try:
        return float(as_welfare(measure, len(values))(values))
    except OutOfDomain:
        return None


# -- all kinds -------------------------------------------------------------------------------------------------------

KINDS: dict[str, Callable[..., Outcome]] = {
    "optimum": optimum,
    "fluid": fluid,
    "named-policy": named_policy,
    "train": train,
    "timing": timing,
    "lp": lp,
    "fairness": fairness,
}
"""Every kind of cell."""

TIMED = ("timing", "lp")
"""Kinds whose point is their timings: they get the machine alone."""

CHOICES: dict[str, tuple[str, ...]] = {
    **{one.name: one.metadata["choices"] for one in training_settings() if one.metadata["choices"]},
    "method": ("auto", *METHODS),
    "policy": ("whittle-paper", *(entry.name for entry in ROSTER)),
    "program": tuple(_PROGRAMS),
    "who": tuple(_CLOCKS),
}
"""Settings that are one of a few words."""


def find_kind(name: str) -> Callable[..., Outcome]:
    """The function of a kind; raises UnknownName with the nearest one if there is none."""
    if name not in KINDS:
        raise UnknownName("kind", name, KINDS)
    return KINDS[name]
