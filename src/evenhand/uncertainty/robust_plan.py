"""Plans over scenarios: credible intervals, value of information, and the plan with the best CVaR.

The plans to choose from are the plan for the model and its components, plans for some scenarios (exact if quick, else
the policies of the fluid relaxation) and named heuristics. With V_k[d] the values of plan k in scenario d, the shares
theta of a mixture, drawn once at the start, maximise

    tail_q  =  mean of the worst q D of   W(sum_k theta_k V_k[d]),   d = 1 .. D

which `cvar` does for given plans. Column generation adds plans: the optimum has scenario weights pi_d, and a plan helps
if it has a larger sum_d pi_d g_d.V[d]. The best such plan solves a problem with unknown transitions, so the oracle
solves the problem with mean transitions instead,

    P^pi = sum_d pi_d P_d

and the evaluation in all scenarios shows whether it helps. The result is never worse than any of the plans in the
scenarios on which it was chosen; held-out scenarios show how much of the gain remains.

No policy has a larger tail than the tail of the scenarios' own bounds: w_d <= u_d for all d implies
tail_q(w) <= tail_q(u), with u_d the fluid bound of scenario d.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from evenhand.checks import check_fraction
from evenhand.display import Shown, progress_or_none, with_progress_bar
from evenhand.errors import EvenhandError, InvalidInputError, NotApplicableError, TooLargeError
from evenhand.evaluation.evaluate import evaluate
from evenhand.kernels.compilation import work_clock
from evenhand.model import CoupledMDP, MixturePolicy, Policy, StatefulPolicy, Welfare
from evenhand.parallel import Pool
from evenhand.planning.plan_file import rebuilt
from evenhand.planning.policy_registry import REGISTRY
from evenhand.planning.relaxation import FLUID_TOLERANCE, build_policy
from evenhand.planning.solution import Part, Solution
from evenhand.planning.solve import choose_method, solve
from evenhand.planning.task import SolveMethod, Stopwatch
from evenhand.solvers.counts.reduction import num_count_states
from evenhand.solvers.fluid import solve_fluid
from evenhand.solvers.joint import num_joint_states
from evenhand.typing import Floats, Progress
from evenhand.uncertainty.cvar import TailOptimum, best_tail, tail_mean
from evenhand.uncertainty.scenario_evaluation import (
    EvaluationBudget,
    ScenarioComparison,
    ScenarioValues,
    evaluate_scenarios,
    flattened,
    mixture_values,
)
from evenhand.uncertainty.scenarios import Scenarios, episode_seed
from evenhand.uncertainty.value_of_information import ValueOfInformation, value_of_information


class PlanSearch(NamedTuple):
    """Effort of the search for plans.

    `num_scenario_plans`: scenarios for which plans are made. `max_exact_states`: states up to which these are exact.
    `heuristics`: whether named heuristics are added for a CVaR plan. `max_rounds`: rounds of column generation.
    `min_gain`: relative gain of the tail below which it ends. `evaluation`: effort per policy. `max_bound_size`:
    scenarios times the size of the types' tables up to which every scenario gets a bound. `seconds`: time after which
    no further plan is made or evaluated, and neither bounds nor held-out scenarios are computed.
    """

    num_scenario_plans: int = 6
    max_exact_states: int = 3_000
    heuristics: bool = True
    max_rounds: int = 5
    min_gain: float = 1e-5
    evaluation: EvaluationBudget = EvaluationBudget()
    max_bound_size: float = 2e5
    seconds: float | None = None


# -- results ---------------------------------------------------------------------------------------------------------


class Tradeoff(NamedTuple):
    """Mean welfare, over all and over the worst scenarios, of the plan for the model and of the CVaR plan."""

    plain_mean: float
    robust_mean: float
    plain_tail: float
    robust_tail: float

    @property
    def cost(self) -> float:
        """Relative loss in the mean; negative if it gains."""
        return _relative(self.plain_mean - self.robust_mean, self.plain_mean)

    @property
    def gain(self) -> float:
        """Relative gain in the worst scenarios."""
        return _relative(self.robust_tail - self.plain_tail, self.plain_tail)

    def to_dict(self) -> dict[str, float]:
        """Return the JSON form."""
        return {**self._asdict(), "cost": self.cost, "gain": self.gain}


def _relative(difference: float, whole: float) -> float:
    return difference / abs(whole) if whole else float(np.copysign(np.inf, difference)) if difference else 0.0


@dataclass(frozen=True, eq=False)
class CVaRResult(Shown):
    """Gain and cost of a plan with the best CVaR.

    `share`: share of the worst scenarios. `num_draws`: scenarios on which it was chosen. `seen`, `held_out`: trade-off
    in these and in further scenarios (None if there are none). `bound`: upper bound of the tail over all policies (None
    if it is expensive). `num_plans`, `rounds`: plans to choose from, rounds of column generation. `parts`: components,
    the largest share first.
    """

    share: float
    num_draws: int
    seen: Tradeoff
    held_out: Tradeoff | None
    bound: float | None
    num_plans: int
    rounds: int
    parts: tuple[Part, ...]

    def __repr__(self) -> str:
        return f"CVaRResult({self.words})"

    @property
    def words(self) -> str:
        """Cost and gain in a sentence."""
        if len(self.parts) == 1 and self.parts[0].name == "plan":
            return "no mixture is better in the worst scenarios than the plan for the model"
        tradeoff = self.seen if self.held_out is None else self.held_out
        where = "scenarios it was chosen on" if self.held_out is None else "held-out scenarios"
        mean = f"{'costs' if tradeoff.cost > 0 else 'gains'} {_percent(abs(tradeoff.cost))} on average"
        tail = f"{'gains' if tradeoff.gain >= 0 else 'loses'} {_percent(abs(tradeoff.gain))}"
        return f"{mean} and {tail} in the worst {_percent(self.share)} of scenarios (in {where})"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "share": self.share,
            "draws": self.num_draws,
            "seen": self.seen.to_dict(),
            "held_out": None if self.held_out is None else self.held_out.to_dict(),
            "upper_bound": self.bound,
            "plans": self.num_plans,
            "rounds": self.rounds,
            "parts": [{"policy": part.name, "share": part.share} for part in self.parts],
            "words": self.words,
        }


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %" if abs(share) >= 5e-6 else "0 %"


@dataclass(frozen=True, eq=False)
class ScenarioPlan(Shown):
    """A plan with its values over scenarios.

    `solution`: the plan; the CVaR plan if one was requested. `scenarios`: its values over scenarios, and those of the
    plan for the model. `information`: value of information. `robust`: gain and cost of the CVaR plan, else None.
    """

    solution: Solution
    scenarios: ScenarioComparison
    information: ValueOfInformation
    robust: CVaRResult | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form: that of the solution, with `draws`, `value_of_information` and `robust`."""
        found = {"draws": self.scenarios, "value_of_information": self.information, "robust": self.robust}
        return self.solution.to_dict() | {name: one.to_dict() for name, one in found.items() if one is not None}


# -- candidates ------------------------------------------------------------------------------------------------------


@dataclass
class _Candidates:
    """Plans with their values over scenarios."""

    scenarios: Scenarios
    welfare: Welfare
    seed: int
    search: PlanSearch
    sweep: Pool
    progress: Progress | None = None
    policies: dict[str, Policy | StatefulPolicy] = field(default_factory=dict)
    rows: dict[str, ScenarioValues] = field(default_factory=dict)
    begin: float = field(default_factory=work_clock)

    @property
    def is_late(self) -> bool:
        """Whether the time is over."""
        return self.search.seconds is not None and work_clock() - self.begin > self.search.seconds

    def evaluate(
        self, policies: Mapping[str, Policy | StatefulPolicy], scenarios: Scenarios, seed: int
    ) -> Mapping[str, ScenarioValues | EvenhandError]:
        """Return the values of policies in some scenarios."""
        effort = self.search.evaluation
        return evaluate_scenarios(scenarios, policies, self.welfare, seed, self.sweep, self.report, effort)

    def add(self, policies: Mapping[str, Policy | StatefulPolicy]) -> dict[str, EvenhandError]:
        """Evaluate and store policies, and the components of mixtures; return the errors of the others."""
        every = dict(policies)
        for name, policy in policies.items():
            parts = [part for part, _ in flattened(policy)]
            if parts != [policy]:
                every |= {f"{name}, part {i + 1}": part for i, part in enumerate(parts)}
        errors = {}
        # One after the other if time is limited; the plan for the model is always evaluated.
        parts_of_time = [every] if self.search.seconds is None else [{name: one} for name, one in every.items()]
        for some in parts_of_time:
            if self.rows and self.is_late:
                break
            for name, row in self.evaluate(some, self.scenarios, self.seed).items():
                if isinstance(row, EvenhandError):
                    errors[name] = row
                else:
                    self.policies[name], self.rows[name] = every[name], row
        return errors

    def add_plans(self, problems: Mapping[str, CoupledMDP]) -> None:
        """Add plans for other transitions, as policies of the model; none of a problem that cannot be solved."""
        if self.is_late:
            return
        tasks = [(problem, self.welfare, name, self.search.max_exact_states) for name, problem in problems.items()]
        found: dict[str, Policy | StatefulPolicy] = {}
        for plans in self.sweep.map(_plans, tasks, [f"planning for {name}" for name in problems], self.report):
            for name, policy in plans.items():
                with contextlib.suppress(EvenhandError):  # one plan less to choose from
                    found[name] = rebuilt(policy, self.scenarios.problem)
        self.add(found)

    def report(self, task: str, _: float = 0.5) -> None:
        """Report the current task; the amount of work is not known in advance."""
        if self.progress is not None:
            self.progress(task, 0.5)

    def same_units(self) -> list[ScenarioValues]:
        """Return all rows, per arm unless every row is per type."""
        rows, problem = list(self.rows.values()), self.scenarios.problem
        return rows if all(row.by_type for row in rows) else [row.by_arm(problem) for row in rows]

    def mixture(self, name: str, shares: Floats) -> ScenarioValues:
        """Return the values of a mixture of the plans."""
        chosen, rows = np.flatnonzero(shares > 0), list(self.rows.values())
        return mixture_values(name, [rows[i] for i in chosen], shares[chosen], self.scenarios.problem)

    def best_mixture(self, tail: float) -> TailOptimum:
        """Return the mixture of the plans with the best tail."""
        rows = self.same_units()
        objective = rows[0].objective
        values = np.stack([objective.members(row.values) for row in rows], axis=-1)
        return best_tail(values, self.welfare, objective.sizes, tail)


def _plans(
    task: tuple[CoupledMDP, Welfare, str, int], progress: Progress | None = None
) -> dict[str, Policy | StatefulPolicy]:
    """Return plans for a problem: an exact one if that is quick, else the policies of the fluid relaxation."""
    problem, welfare, name, limit = task
    states = min(num_count_states(problem), num_joint_states(problem)) * problem.criterion.num_layers
    found: dict[str, Policy | StatefulPolicy] = {}
    with contextlib.suppress(EvenhandError):  # one plan less to choose from
        if states <= limit and choose_method(problem)[0] != "fluid":
            return {f"plan for {name}": solve(problem, welfare, SolveMethod(tolerance=1e-6), progress=progress).policy}
        relaxed = solve_fluid(problem, welfare, FLUID_TOLERANCE)
        for kind in ("fair-index", "occupancy-priority"):
            with contextlib.suppress(NotApplicableError):
                found[f"{kind} for {name}"] = build_policy(problem, relaxed, kind)
    return found


def upper_bounds(scenarios: Scenarios, welfare: Welfare) -> Floats | None:
    """Return the (scenario,) fluid bounds of the welfare; None if one does not exist.

    Args:
        scenarios: the scenarios.
        welfare: the welfare.
    """
    try:
        every = (scenarios.scenario(number) for number in range(len(scenarios)))
        return np.array([solve_fluid(problem, welfare, 1e-3).upper_bound for problem in every])
    except EvenhandError:
        return None


# -- the plan --------------------------------------------------------------------------------------------------------


@with_progress_bar
def plan_scenarios(
    scenarios: Scenarios,
    solution: Solution,
    tail: float | None = None,
    progress: Progress | bool | None = None,
    backend: str | Pool | None = None,
    search: PlanSearch | None = None,
) -> ScenarioPlan:
    """Evaluate a plan over scenarios, with the value of information; or replace it by the plan with the best CVaR.

    Args:
        scenarios: the scenarios.
        solution: the plan for the model.
        tail: share of the worst scenarios whose mean welfare is maximised, such as 0.1; by default the plan stays.
        progress: True shows a bar; a function is called with the current task and the share done.
        backend: `processes:2`, `ray`, `ray://host:port` or a pool; this process by default. Results do not depend on
            it.
        search: effort of the search; see `PlanSearch`.

    Raises:
        NotApplicableError: a CVaR plan of a problem with floors.
    """
    check_tail(scenarios.problem, tail)
    watch, welfare, search = Stopwatch(), solution.objective.welfare, search or PlanSearch()
    with Pool(backend) as sweep:
        candidates = _Candidates(
            scenarios, welfare, episode_seed(scenarios.seed), search, sweep, progress_or_none(progress)
        )
        if (errors := candidates.add({"plan": solution.policy})) and "plan" in errors:
            raise errors["plan"]
        plain, robust = candidates.rows["plan"], None
        candidates.add_plans(_spread_scenarios(scenarios, plain.observed, search.num_scenario_plans))
        rows: tuple[ScenarioValues, ...] = (plain,)
        if tail is not None:
            policy, values, robust = _cvar_plan(candidates, tail)
            rows = (values, plain)
            solution = _with_policy(solution, policy, robust, scenarios.seed)
        information = value_of_information(scenarios, candidates.same_units())
    watch.lap("draws")
    solution = replace(solution, seconds=solution.seconds | {"draws": watch.seconds["draws"]})
    return ScenarioPlan(solution, ScenarioComparison(scenarios.problem, welfare, rows), information, robust)


def check_tail(problem: CoupledMDP, tail: float | None) -> None:
    """Raise if a tail is not above 0 and at most 1, or the problem has floors or promised waits."""
    if tail is None:
        return
    if check_fraction(tail, "robust") == 0:
        raise InvalidInputError("robust: must be above 0, such as 0.1 for the worst tenth of the scenarios, got 0")
    if problem.has_max_wait:
        raise NotApplicableError("robust: plans for scenarios cannot be mixed under promised waits")
    if problem.has_floors:
        raise NotApplicableError("robust: floors hold in the model only, so that plans for scenarios cannot be mixed")


def _spread_scenarios(scenarios: Scenarios, welfare: Floats, number: int) -> dict[str, CoupledMDP]:
    """Return some scenarios, from those in which the plan is worst to those in which it is best."""
    ranked = np.argsort(np.round(welfare / (np.abs(welfare).max() or 1.0), 10), kind="stable")
    places = np.unique(((np.arange(number) + 0.5) / number * len(ranked)).astype(np.int64))
    return {f"draw {draw}": scenarios.scenario(draw) for draw in ranked[places].tolist()}


def _cvar_plan(candidates: _Candidates, tail: float) -> tuple[Policy | StatefulPolicy, ScenarioValues, CVaRResult]:
    scenarios = candidates.scenarios
    if candidates.search.heuristics:
        heuristics = {}
        for entry in (entry for entry in REGISTRY if entry.is_heuristic):
            with contextlib.suppress(NotApplicableError, TooLargeError):
                heuristics[entry.name] = entry.build(scenarios.problem)
        candidates.add(heuristics)
    shares, rounds = _column_generation(candidates, tail)
    names, chosen = list(candidates.rows), np.flatnonzero(shares > 0).tolist()
    flat = (flattened(candidates.policies[names[i]], float(shares[i])) for i in chosen)
    components = [component for parts in flat for component in parts]
    policy, weights = components[0][0], np.array([own for _, own in components])
    if len(components) > 1:
        policy = MixturePolicy([part for part, _ in components], weights / weights.sum())
    values, bounds = candidates.mixture("robust plan", shares), None
    is_small = len(scenarios) * scenarios.problem.types.transitions.size <= candidates.search.max_bound_size
    if is_small and not candidates.is_late:
        candidates.report("bounds of the scenarios")
        bounds = upper_bounds(scenarios, candidates.welfare)
    plain = candidates.rows["plan"]
    result = CVaRResult(
        share=tail,
        num_draws=len(scenarios),
        seen=Tradeoff(plain.mean, values.mean, tail_mean(plain.observed, tail), tail_mean(values.observed, tail)),
        held_out=_held_out(candidates, policy, tail),
        bound=None if bounds is None else tail_mean(bounds, tail),
        num_plans=len(names),
        rounds=rounds,
        parts=tuple(Part(names[i], float(shares[i])) for i in sorted(chosen, key=lambda i: -shares[i])),
    )
    return policy, values, result


def _column_generation(candidates: _Candidates, tail: float) -> tuple[Floats, int]:
    """Return the (plan,) shares of the best mixture, and the rounds.

    Plans for the mean transitions of the optimum's weights are added until that gains nothing. Shares are rounded to
    four digits if nothing is lost; the plan for the model stays if nothing is gained.
    """
    search, optimum, rounds, gain = candidates.search, candidates.best_mixture(tail), 0, np.inf
    while rounds < search.max_rounds and gain > search.min_gain * abs(optimum.value) and not candidates.is_late:
        rounds, before = rounds + 1, len(candidates.rows)
        candidates.add_plans({f"the worst draws, round {rounds}": candidates.scenarios.mean(optimum.weights)})
        added = len(candidates.rows) - before
        found = candidates.best_mixture(tail) if added else optimum
        gain = found.value - optimum.value
        optimum = found if gain > 0 else optimum._replace(shares=np.pad(optimum.shares, (0, added)))
    alone = np.array([float(name == "plan") for name in candidates.rows])
    rounded = np.round(optimum.shares, 4)
    tried: list[Floats] = [alone, rounded / rounded.sum(), optimum.shares]
    tails = [tail_mean(candidates.mixture("", shares).observed, tail) for shares in tried]
    enough = search.min_gain * abs(tails[0])
    if max(tails[1:]) <= tails[0] + 1e-2 * enough:
        return alone, rounds
    return tried[1] if tails[1] >= tails[2] - enough and tails[1] > tails[0] else tried[2], rounds


def _held_out(candidates: _Candidates, policy: Policy | StatefulPolicy, tail: float) -> Tradeoff | None:
    """Return the trade-off in held-out scenarios, on other random numbers; None if there are none, or no time."""
    scenarios = candidates.scenarios.held_out
    if scenarios is None or candidates.is_late:
        return None
    policies = {"plan": candidates.policies["plan"], "robust plan": policy}
    rows = []
    for row in candidates.evaluate(policies, scenarios, candidates.seed + 1).values():
        if isinstance(row, EvenhandError):
            raise row
        rows.append(row)
    return Tradeoff(rows[0].mean, rows[1].mean, rows[0].tail(tail), rows[1].tail(tail))


def _with_policy(solution: Solution, policy: Policy | StatefulPolicy, result: CVaRResult, seed: int) -> Solution:
    """Return a solution with the CVaR plan, evaluated in the model."""
    if len(result.parts) == 1 and result.parts[0].name == "plan":
        return solution
    found = evaluate(solution.problem, policy, solution.objective.welfare, rng=seed)
    worst = f"the mean of the worst {100 * result.share:.3g} % of {result.num_draws} scenarios is maximised"
    return replace(
        solution,
        method="robust",
        reason=f"{worst}; {result.words}",
        objective=found.objective,
        welfare=found.welfare,
        welfare_stderr=found.welfare_stderr,
        unit_values=found.unit_values,
        unit_stderr=None if found.exact else found.unit_stderr,
        by_type=found.by_type,
        policy=policy,
        parts=result.parts,
        selection_bias=None,
        welfare_without_redraw=None,
        realised_gini=found.realised_gini_coefficient,
        realised_gini_stderr=found.realised_gini_stderr,
        samples=None,
        history=(),
    )
