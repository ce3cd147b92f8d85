"""Values of policies over scenarios, with credible intervals.

Evaluation is exact if the state space is small, else simulated (`batched_values`), with the control variate of
`planning.policy_scoring` in each scenario. Its h_d = (I - gamma P_d^pi)^-1 r^pi are the values, in scenario d, of an
arm alone under the action frequencies pi(a | s) of the policy in the model itself. Any pi is unbiased; a good one
removes most of the variance. Under other criteria the rewards are simulated as they are.

In scenario d a policy has the welfare w_d. Credible intervals are quantiles of w_1, ..., w_D; the lower tail mean of a
share q (the conditional value at risk) is the mean of the lowest q D, one of them in part (`cvar.tail_mean`). If the
policy is simulated, the observed spread has two sources,

    var(observed w)  =  var(w) + sigma^2,      sigma^2 = mean_d var(e_d) / m,      e_d = g_d.(returns of an episode)

with m episodes per scenario and g_d the gradient of the welfare (delta method). The second is simulation error; it is
removed by shrinking towards the mean (nested simulation; Sun, Apley and Staum, Operations Research 59, 2011):

    mean + sqrt(max(0, 1 - sigma^2 / var(observed w))) (observed w_d - mean)

Differences between two policies are treated alike, after their common random numbers have cancelled. The probability
that A is better than B is the share of scenarios in which it is; ties count half. The value of a mixture that is drawn
at the start is the mean of the values of its components, which are evaluated one by one.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from evenhand.checks import check_memory, fits_in_memory
from evenhand.display import FrameLibrary, Shown, as_frame, counted, progress_or_none, with_progress_bar
from evenhand.errors import EvenhandError, NotApplicableError, OutOfDomainError, TooLargeError, UnknownNameError
from evenhand.evaluation.evaluate import Case, treats_alike
from evenhand.evaluation.long_run import mean_by_type, plain_steps, shares_of
from evenhand.evaluation.rollout import count_visits, simulate, step_weights
from evenhand.model import CoupledMDP, Objective, Policy, StatefulPolicy, Welfare, arm_names, read_welfare, type_names
from evenhand.model.composite import components_for_good
from evenhand.model.simulator import needs_tables
from evenhand.parallel import Pool
from evenhand.planning.policy_scoring import telescoped, values_alone
from evenhand.policies.resize import fitted
from evenhand.typing import Floats, Progress
from evenhand.uncertainty.batched_values import decision_rules, exact_scenario_values, simulate_scenarios
from evenhand.uncertainty.cvar import tail_mean
from evenhand.uncertainty.scenarios import Scenarios, episode_seed

OMITTED_TIME = 1e-3
"""Share of discounted time beyond the simulated horizon; the control variate knows its value nearly."""


class EvaluationBudget(NamedTuple):
    """Effort of an evaluation over scenarios.

    `max_exact_states`: states, over all steps, up to which evaluation is exact; a fifth under `average`. `arm_steps`:
    simulated arm-steps per policy over all scenarios. `control_variates`: whether to use them.
    """

    max_exact_states: int = 600
    arm_steps: float = 1.2e7
    control_variates: bool = True


# -- one policy ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ScenarioValues:
    """Values of one policy in every scenario.

    `policy`: name. `objective`: welfare, over the same units. `values`: (scenario, unit) value of an arm of each unit.
    `by_type`: whether units are types, else arms. `returns`: (scenario, episode, unit) estimates whose means the values
    are; None if exact.
    """

    policy: str
    objective: Objective = field(repr=False)
    values: Floats = field(repr=False)
    by_type: bool
    returns: Floats | None = field(default=None, repr=False)

    @property
    def exact(self) -> bool:
        """True if the values are exact in every scenario."""
        return self.returns is None

    @property
    def num_episodes(self) -> int | None:
        """Episodes per scenario; None if exact."""
        return None if self.returns is None else self.returns.shape[1]

    def by_arm(self, problem: CoupledMDP) -> "ScenarioValues":
        """Return the same values per arm."""
        if not self.by_type:
            return self
        kinds = problem.type_of_arm
        returns = None if self.returns is None else self.returns[..., kinds]
        objective = Objective.of_arms(problem, self.objective.welfare)
        return ScenarioValues(self.policy, objective, self.values[:, kinds], False, returns)

    @cached_property
    def observed(self) -> Floats:
        """(scenario,) welfare of the estimated values; nan outside the welfare's domain."""
        objective, members = self.objective, self.objective.members(self.values)
        try:
            return np.asarray(objective.welfare(members, objective.sizes))
        except OutOfDomainError:  # in some scenarios
            found = np.full(len(members), np.nan)
            for row, own in enumerate(self.values):
                with contextlib.suppress(OutOfDomainError):
                    found[row] = objective(own)
            return found

    @cached_property
    def errors(self) -> Floats | None:
        """(scenario, episode) first-order simulation error of the welfare in each episode; None if exact."""
        if self.returns is None:
            return None
        objective = self.objective
        slopes = objective.welfare.supergradient(objective.members(self.values), objective.sizes)
        return np.asarray(np.einsum("deu,du->de", self.returns - self.values[:, None], objective.spread(slopes)))

    @property
    def noise(self) -> float:
        """Standard error of the welfare in a single scenario; 0 if exact."""
        return float(np.sqrt(_error_variance(self.errors)))

    @cached_property
    def welfare(self) -> Floats:
        """(scenario,) welfare, without the spread of simulation errors."""
        return denoised(self.observed, self.errors)

    @cached_property
    def members(self) -> Floats:
        """(scenario, member) values of types, arms or groups, without the spread of simulation errors."""
        values = self.objective.members(self.values)
        if self.returns is None:
            return values
        errors = self.objective.members(self.returns) - values[:, None]
        return np.column_stack([denoised(values[:, i], errors[..., i]) for i in range(values.shape[1])])

    @property
    def mean(self) -> float:
        """Mean of the welfare over scenarios."""
        return float(self.observed.mean())

    @property
    def mean_stderr(self) -> float:
        """Standard error of the mean, due to the number of scenarios and to simulation."""
        return float(self.observed.std(ddof=1) / np.sqrt(len(self.observed))) if len(self.observed) > 1 else np.inf

    def quantile(self, share: float) -> float:
        """Return a quantile of the welfare."""
        return float(np.quantile(self.welfare, share))

    def interval(self, level: float = 0.9) -> tuple[float, float]:
        """Return the equal-tailed credible interval of the welfare at a level between 0 and 1."""
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)

    def tail(self, share: float = 0.1) -> float:
        """Return the mean welfare of the worst share of the scenarios."""
        return tail_mean(self.welfare, share)


def spread_of(samples: Floats) -> dict[str, float]:
    """Return mean, quantiles and lower tail mean (10 %) of a figure over scenarios."""
    quantiles = {f"q{round(100 * share):02d}": float(np.quantile(samples, share)) for share in (0.05, 0.5, 0.95)}
    return {"mean": float(samples.mean()), **quantiles, "tail10": tail_mean(samples, 0.1)}


def denoised(observed: Floats, errors: Floats | None) -> Floats:
    """Return (scenario,) figures shrunk towards their mean, to remove the spread of simulation errors.

    Args:
        observed: (scenario,) figures.
        errors: (scenario, episode) simulation errors, of mean 0; None if there are none.
    """
    spread = float(observed.var(ddof=1)) if len(observed) > 1 else 0.0
    if errors is None or len(observed) < 2:
        return observed
    share = max(0.0, 1.0 - _error_variance(errors) / spread) if spread > 0 else 0.0
    return np.asarray(observed.mean() + np.sqrt(share) * (observed - observed.mean()))


def _error_variance(errors: Floats | None) -> float:
    """Return the mean over scenarios of the variance of a mean over episodes."""
    if errors is None:
        return 0.0
    number = errors.shape[1]
    return float(np.square(errors).sum(axis=1).mean() / (number * max(number - 1, 1)))


def difference(one: ScenarioValues, other: ScenarioValues) -> Floats:
    """Return the (scenario,) difference of welfare, without the spread of simulation errors."""
    return denoised(one.observed - other.observed, _joint_errors(one.errors, other.errors))


def _joint_errors(one: Floats | None, other: Floats | None) -> Floats | None:
    if one is None or other is None:
        return other if one is None else one
    # Common random numbers: what both share cancels episode by episode.
    if one.shape == other.shape:
        return one - other
    # Errors of both means, scaled such that `_error_variance` returns the sum of their variances.
    errors = [own / np.sqrt(own.shape[1] * (own.shape[1] - 1)) for own in (one, other)]
    both = np.concatenate(errors, axis=1)
    return np.asarray(both * np.sqrt(both.shape[1] * (both.shape[1] - 1)))


def mixture_values(name: str, parts: Sequence[ScenarioValues], shares: Floats, problem: CoupledMDP) -> ScenarioValues:
    """Return the values of a mixture that is drawn at the start.

    Args:
        name: name of the mixture.
        parts: values of its components, simulated on the same random numbers.
        shares: (part,) shares that sum to 1.
        problem: the problem.
    """
    if not all(part.by_type for part in parts):
        parts = [part.by_arm(problem) for part in parts]
    values = np.asarray(sum(share * part.values for share, part in zip(shares.tolist(), parts, strict=True)))
    returns = None
    if not all(part.exact for part in parts):
        episodes = [part.values[:, None] if part.returns is None else part.returns for part in parts]
        returns = np.asarray(sum(share * own for share, own in zip(shares.tolist(), episodes, strict=True)))
    return replace(parts[0], policy=name, values=values, returns=returns)


def flattened(policy: Policy | StatefulPolicy, share: float = 1.0) -> Iterator[tuple[Policy | StatefulPolicy, float]]:
    """Yield the components of a mixture that is drawn at the start, nested ones too, and their shares."""
    parts, shares = components_for_good(policy)
    if parts == (policy,):
        yield policy, share
        return
    for part, own in zip(parts, shares.tolist(), strict=True):
        yield from flattened(part, share * own)


# -- several policies ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ScenarioComparison(Shown):
    """Policies over the same scenarios.

    `problem`: the model. `welfare`: the welfare. `rows`: one per policy, in the given order. `left_out`: policies
    without values, with reasons.
    """

    problem: CoupledMDP = field(repr=False)
    welfare: Welfare
    rows: tuple[ScenarioValues, ...]
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def num_draws(self) -> int:
        """Number of scenarios."""
        return len(self.rows[0].values)

    def __repr__(self) -> str:
        first = self.rows[0]
        low, high = first.interval()
        others = "" if len(self.rows) == 1 else f", {counted(len(self.rows) - 1, 'other policy', 'other policies')}"
        return (
            f"ScenarioComparison({counted(self.num_draws, 'scenario')}, {first.policy}: {self.welfare.name} "
            f"{first.mean:.6g}, 90 % between {low:.6g} and {high:.6g}{others})"
        )

    def __getitem__(self, policy: str) -> ScenarioValues:
        """Return the row of a policy."""
        for row in self.rows:
            if row.policy == policy:
                return row
        raise UnknownNameError("policy", policy, [row.policy for row in self.rows])

    def probability_better(self, policy: str, other: str) -> float:
        """Return the posterior probability that one policy is better than another; ties count half."""
        gains = difference(self[policy], self[other])
        scale = np.maximum(np.abs(self[policy].observed), np.abs(self[other].observed))
        return float(np.where(np.abs(gains) <= 1e-9 * scale, 0.5, gains > 0).mean())

    def member_names(self, row: ScenarioValues) -> tuple[str, ...]:
        """Return the names of the groups, types or arms of a row."""
        if self.problem.over == "groups":
            return self.problem.group_names
        if row.by_type:
            return tuple(type_names(self.problem))
        named = enumerate(arm_names(self.problem))
        return tuple(self.problem.arm_names) or tuple(f"arm {i} {name}".strip() for i, name in named)

    def to_frame(self, library: FrameLibrary | None = None) -> Any:
        """Return one row per policy for the welfare and for each member: mean, quantiles and lower tail mean.

        Args:
            library: `pandas` or `polars`; the one that is installed by default.
        """
        rows: list[dict[str, Any]] = []
        for row in self.rows:
            figures = zip(("welfare", *self.member_names(row)), (row.welfare, *row.members.T), strict=True)
            rows += [{"policy": row.policy, "of": name, **spread_of(samples)} for name, samples in figures]
        return as_frame({name: [row[name] for row in rows] for name in rows[0]}, library)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, with at most a thousand types, arms or groups."""
        kind = "groups" if self.problem.over == "groups" else "types" if self.rows[0].by_type else "arms"
        rows = []
        for row in self.rows:
            members = list(zip(self.member_names(row), row.members.T, strict=True))[:1000]
            others = [other.policy for other in self.rows if other is not row]
            rows.append(
                {
                    "policy": row.policy,
                    "exact": row.exact,
                    "episodes": row.num_episodes,
                    "noise": row.noise,
                    "mean_stderr": row.mean_stderr,
                    "welfare": spread_of(row.welfare),
                    kind: {name: spread_of(samples) for name, samples in members},
                    "better_than": {other: self.probability_better(row.policy, other) for other in others},
                }
            )
        return {"draws": self.num_draws, "rows": rows, "left_out": self.left_out}


@with_progress_bar
def compare_scenarios(
    scenarios: Scenarios,
    policies: Mapping[str, Policy | StatefulPolicy],
    welfare: str | Welfare | None = None,
    progress: Progress | bool | None = None,
    backend: str | Pool | None = None,
    effort: EvaluationBudget | None = None,
) -> ScenarioComparison:
    """Evaluate policies in every scenario, all on the same random numbers.

    Args:
        scenarios: the scenarios.
        policies: policies by name.
        welfare: the welfare, as text or object; the problem's by default.
        progress: True shows a bar; a function is called with the current task and the share done.
        backend: `processes:2`, `ray`, `ray://host:port` or a pool; this process by default. Results do not depend on
            it.
        effort: effort per policy; see `EvaluationBudget`.

    Raises:
        EvenhandError: no policy can be evaluated.
    """
    chosen = read_welfare(scenarios.problem, welfare)
    with Pool(backend) as sweep:
        sweep.check_picklable({f"the policy {name}": policy for name, policy in policies.items()})
        seed = episode_seed(scenarios.seed)
        found = evaluate_scenarios(scenarios, policies, chosen, seed, sweep, progress_or_none(progress), effort)
    rows = tuple(row for row in found.values() if isinstance(row, ScenarioValues))
    failed = {name: row for name, row in found.items() if isinstance(row, EvenhandError)}
    if not rows:
        raise next(iter(failed.values()))
    left_out = {name: str(error) for name, error in failed.items()}
    return ScenarioComparison(scenarios.problem, chosen, rows, left_out)


def evaluate_scenarios(
    scenarios: Scenarios,
    policies: Mapping[str, Policy | StatefulPolicy],
    welfare: Welfare,
    seed: int,
    sweep: Pool,
    progress: Progress | None = None,
    effort: EvaluationBudget | None = None,
) -> "dict[str, ScenarioValues | NotApplicableError | TooLargeError | OutOfDomainError]":
    """Return the values of each policy in every scenario, or the error that prevents it.

    Args:
        scenarios: the scenarios.
        policies: policies by name.
        welfare: the welfare.
        seed: seed of the episodes, common to all policies.
        sweep: backend on which policies are evaluated.
        progress: called with the current task and the share done.
        effort: effort per policy.
    """
    leaves = {name: list(flattened(policy)) for name, policy in policies.items()}
    tasks = [
        (leaf, scenarios, welfare, seed, effort or EvaluationBudget()) for own in leaves.values() for leaf, _ in own
    ]
    titles = [f"{name} over scenarios" for name, own in leaves.items() for _ in own]
    results = iter(sweep.map(_evaluate, tasks, titles, progress))
    found: dict[str, ScenarioValues | NotApplicableError | TooLargeError | OutOfDomainError] = {}
    for name, own in leaves.items():
        parts = [next(results) for _ in own]
        values = [part for part in parts if isinstance(part, ScenarioValues)]
        if len(values) < len(parts):
            found[name] = next(part for part in parts if not isinstance(part, ScenarioValues))
            continue
        shares = np.array([share for _, share in own])
        row = found[name] = mixture_values(name, values, shares, scenarios.problem)
        if undefined := int(np.isnan(row.observed).sum()):
            where = f"{undefined} of {len(scenarios)} scenarios, where a member has no positive value"
            found[name] = OutOfDomainError(f"{name}: the welfare {welfare.name} is not defined in {where}. Use gini:2.")
    return found


_Task = tuple[Policy | StatefulPolicy, Scenarios, Welfare, int, EvaluationBudget]


def _evaluate(task: _Task, progress: Progress | None = None) -> "ScenarioValues | NotApplicableError | TooLargeError":
    """Return the values of a policy, exact if possible; or the error that prevents it."""
    policy, scenarios, welfare, seed, effort = task
    try:
        policy = fitted(policy, scenarios.problem)
        case = Case.of(policy, scenarios.problem, welfare)
        played = needs_tables(case.played, "draws")
        # Equal arms must stay equal in every scenario for a table over types.
        if not scenarios.splits_types:
            with contextlib.suppress(NotApplicableError, TooLargeError):  # simulated instead
                case.check_types(policy)
                limit = effort.max_exact_states // (5 if played.criterion.fixed_steps(1) is None else 1)
                rules = decision_rules(policy, played, limit)
                columns, by_type = case.units(rules[0].by_type)
                transitions = scenarios.with_problem(played).type_transitions
                values = exact_scenario_values(rules, played, transitions)[:, columns]
                return ScenarioValues("", case.objective(by_type), values, by_type)
        return _simulated(policy, scenarios.with_problem(played), case, seed, effort)
    except (NotApplicableError, TooLargeError) as error:
        return error


# -- simulation ------------------------------------------------------------------------------------------------------


def _simulated(
    policy: Policy | StatefulPolicy, scenarios: Scenarios, case: Case, seed: int, effort: EvaluationBudget
) -> ScenarioValues:
    problem, transitions, criterion = scenarios.problem, scenarios.block_transitions, scenarios.problem.criterion
    control = _control_variate(policy, problem, transitions, seed) if effort.control_variates else None
    if control is not None:
        horizon = criterion.judging_steps(OMITTED_TIME)
    elif criterion.fixed_steps(1) is None:
        # The scenario in which arms stay longest mixes most slowly.
        slowest = scenarios.scenario(int(np.einsum("dbsas->d", scenarios.transitions).argmax()))
        horizon = max(plain_steps(one, policy, seed) for one in (problem, slowest))
    else:
        horizon = criterion.simulated_steps(None)
    episodes = int(np.clip(effort.arm_steps / (len(scenarios) * problem.num_arms * horizon), 4, 400))
    size = 24.0 * len(scenarios) * episodes * problem.num_arms
    check_memory(size, f"the returns of {episodes} episodes in each of {len(scenarios)} scenarios", "Use fewer draws.")
    rewards = None if control is None else control[0]
    returns = simulate_scenarios(problem, policy, transitions, rewards, episodes, horizon, seed)
    if control is not None:
        simulated = float(step_weights(problem, horizon).sum())
        known = control[1][:, np.repeat(np.arange(len(problem.counts)), problem.counts)]
        returns = returns * (criterion.total / simulated) + known[:, None]
    pooled = treats_alike(problem, policy) and not scenarios.splits_types
    if pooled:
        returns = mean_by_type(problem, returns)
    columns, by_type = case.units(pooled)
    units = returns[..., columns]
    return ScenarioValues("", case.objective(by_type), units.mean(axis=1), by_type, units)


def _control_variate(
    policy: Policy | StatefulPolicy, problem: CoupledMDP, transitions: Floats, seed: int
) -> tuple[Floats, Floats] | None:
    """Return A (scenario, block, state, action) and mu.h (scenario, block); None if it costs more than it saves."""
    criterion, tables = problem.criterion, problem.tables
    number, blocks, states, actions = transitions.shape[:4]
    horizon = criterion.judging_steps(OMITTED_TIME)
    discounted = criterion.is_stationary and 0 < criterion.factor < 1
    quick = number * blocks * float(states) ** 3 <= 2e10 and problem.num_arms * horizon <= 2e7
    if not (discounted and quick and fits_in_memory(32.0 * number * blocks * states * max(states, actions))):
        return None
    frequencies = _action_frequencies(policy, problem, horizon, seed)
    values = values_alone(tables, transitions, frequencies, criterion.factor)
    return telescoped(tables, transitions, values, criterion.factor)


def _action_frequencies(policy: Policy | StatefulPolicy, problem: CoupledMDP, horizon: int, seed: int) -> Floats:
    """Return the (block, state, action) frequencies of actions in the model; idling in states that do not occur."""
    episodes = int(np.clip(2e5 / (problem.num_arms * horizon), 1, 100))
    rollout = simulate(problem, policy, episodes, horizon, seed, keep_paths=True)
    assert rollout.states is not None and rollout.actions is not None
    return shares_of(problem, count_visits(problem, rollout.states, rollout.actions, 1.0))[problem.type_of_block]
