"""What a policy is worth: exactly where that is possible, else by simulation with honest errors.

Monte Carlo. From M independent episodes the value of arm n is estimated by the mean return, and the welfare by

    plug-in:  W(mean_1, ..., mean_N)            the paper's figure; biased downwards where arms are equal, because a
                                                concave W punishes the estimation noise between them
    pooled:   W of the means over each type     used when the policy treats arms of one type alike; on a symmetric
                                                problem every Gini is then the overall mean, without bias

The standard error of the welfare is by the delta method: the spread over episodes of g . returns, where g are the
weights (a supergradient) that the welfare puts on the arms at the estimate. Episodes are cut off at the horizon T;
what lies beyond is at most gamma^T / (1 - gamma) max|r| and is reported as the truncation bound.
"""

import time
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from evenhand.checks import check_positive_int
from evenhand.errors import InvalidInput, NotApplicable, OutOfDomain, PolicyError, TooLarge
from evenhand.evaluation.exact import exact_values
from evenhand.evaluation.fairness import gini_coefficient, lorenz_curve, price_of_fairness
from evenhand.model.coupled import CoupledMDP
from evenhand.model.policy import Policy, Starting, is_exchangeable, plays_by_counts
from evenhand.model.welfare import Welfare, as_welfare
from evenhand.simulation.counts import simulate_counts
from evenhand.simulation.rollout import Rollout, share_of_budget, simulate
from evenhand.typing import Floats, Ints, Progress, Rng

Method = Literal["auto", "exact", "monte-carlo"]

FOLLOW_ARMS_UP_TO = 3e9
"""Arm-steps beyond which an exchangeable policy is simulated by counts instead of arm by arm."""

CONFIDENCE = 1.959963984540054
"""Standard errors on either side of a 95 % confidence interval."""


@dataclass(frozen=True)
class Evaluation:
    """What a policy is worth, and to whom."""

    welfare: float
    """The welfare of the arms' values."""

    welfare_stderr: float
    """Its standard error; 0 when exact."""

    plug_in_welfare: float | None
    """The paper's figure: the welfare of the arms' estimated means. None if arms were not followed one by one."""

    mean: float
    """Mean value over arms."""

    mean_stderr: float
    """Its standard error; 0 when exact."""

    group_values: Floats
    """(group,) value of an arm of each group; groups are types if the policy treats equal arms alike, else arms."""

    group_stderr: Floats
    """(group,) standard errors; 0 when exact."""

    group_counts: Ints
    """(group,) arms a group."""

    by_type: bool
    """Whether the groups are the types rather than the arms."""

    budget_used: Floats
    """(resource,) discounted mean share of the budget that is used."""

    exact: bool
    """Whether these are exact values rather than estimates."""

    truncation_bound: float
    """No value changes by more than this if episodes went on for ever; 0 when exact."""

    num_episodes: int | None
    """Episodes played; None when exact."""

    horizon: int | None
    """Steps an episode; None when exact."""

    seconds: float
    """How long it took."""

    problem: CoupledMDP = field(repr=False)
    """What it was evaluated on."""

    returns: Floats | None = None
    """(episode, arm) raw returns; (episode, type) where counts were simulated; None when exact."""

    @property
    def values(self) -> Floats:
        """(arm,) the value of each arm."""
        return self.group_values[self.problem.type_of_arm] if self.by_type else self.group_values

    @property
    def values_stderr(self) -> Floats:
        """(arm,) the standard error of each arm's value."""
        return self.group_stderr[self.problem.type_of_arm] if self.by_type else self.group_stderr

    @property
    def welfare_interval(self) -> tuple[float, float]:
        """A 95 % confidence interval of the welfare, horizon cut-off not included."""
        half = CONFIDENCE * self.welfare_stderr
        return self.welfare - half, self.welfare + half

    @property
    def worst(self) -> float:
        """The value of the worst-off arm."""
        return float(self.group_values.min())

    @property
    def gini_coefficient(self) -> float:
        """Inequality of the arms' values: 0 when all are equal."""
        return float(gini_coefficient(self.group_values, self.group_counts))

    @property
    def lorenz(self) -> tuple[Floats, Floats]:
        """The Lorenz curve: shares of arms, poorest first, and the shares of all value that they have."""
        return lorenz_curve(self.group_values, self.group_counts)

    def price_of_fairness(self, reference: "Evaluation") -> float:
        """The share of the reference's mean value that this policy gives up."""
        return float(price_of_fairness(self.mean, reference.mean))


def evaluate(
    policy: Policy | Starting,
    problem: CoupledMDP,
    welfare: str | Welfare = "gini:2",
    num_episodes: int = 1000,
    horizon: int = 300,
    rng: Rng = None,
    method: Method = "auto",
    progress: Progress | None = None,
) -> Evaluation:
    """Tell what a policy is worth.

    Args:
        policy: what acts.
        problem: where it acts.
        welfare: how the arms' values are weighed, as text or object.
        num_episodes: episodes to play, where it must be simulated.
        horizon: steps an episode.
        rng: seed or generator.
        method: "exact" (by a linear solve), "monte-carlo", or "auto": exact where policy and problem allow it.
        progress: called now and then with the share of the work that is done.
    """
    if method not in ("auto", "exact", "monte-carlo"):
        raise InvalidInput(f"method: expected 'auto', 'exact' or 'monte-carlo', got {method!r}")
    check_positive_int(num_episodes, "num_episodes")
    check_positive_int(horizon, "horizon")
    if not isinstance(policy, (Policy, Starting)):
        raise PolicyError(f"policy: {type(policy).__name__} has no method act(states, rng); see check_policy")
    measure = as_welfare(welfare, problem.num_arms)
    if method != "monte-carlo":
        try:
            return _exactly(policy, problem, measure)
        except (NotApplicable, TooLarge):
            if method == "exact":
                raise
    return _by_simulation(policy, problem, measure, num_episodes, horizon, rng, progress)


def _exactly(policy: object, problem: CoupledMDP, welfare: Welfare) -> Evaluation:
    start = time.perf_counter()
    found = exact_values(policy, problem)
    value = float(welfare(found.values, found.counts))
    return Evaluation(
        welfare=value,
        welfare_stderr=0.0,
        plug_in_welfare=value,
        mean=float(found.values @ found.counts / problem.num_arms),
        mean_stderr=0.0,
        group_values=found.values,
        group_stderr=np.zeros_like(found.values),
        group_counts=found.counts,
        by_type=found.by_type,
        budget_used=share_of_budget(problem, found.used, None),
        exact=True,
        truncation_bound=0.0,
        num_episodes=None,
        horizon=None,
        seconds=time.perf_counter() - start,
        problem=problem,
    )


def _by_simulation(
    policy: Policy | Starting,
    problem: CoupledMDP,
    welfare: Welfare,
    num_episodes: int,
    horizon: int,
    rng: Rng,
    progress: Progress | None,
) -> Evaluation:
    start = time.perf_counter()
    pooled = is_exchangeable(policy)
    many = num_episodes * horizon * problem.num_arms > FOLLOW_ARMS_UP_TO
    if by_counts := many and plays_by_counts(policy):
        rollout = simulate_counts(problem, policy, num_episodes, horizon, rng, progress)
        plug_in = None
    else:
        rollout = simulate(problem, policy, num_episodes, horizon, rng, progress)
        plug_in = _plug_in(welfare, rollout.returns.mean(axis=0))
    returns = _pool(problem, rollout.returns) if pooled and not by_counts else rollout.returns
    counts = problem.type_counts if pooled else np.ones(problem.num_arms, dtype=np.int64)
    return _summary(problem, welfare, rollout, returns, counts, plug_in, pooled, time.perf_counter() - start)


def _plug_in(welfare: Welfare, means: Floats) -> float | None:
    try:
        return float(welfare(means))
    except OutOfDomain:  # noise alone can push the mean of an arm out of the domain
        return None


def _pool(problem: CoupledMDP, returns: Floats) -> Floats:
    """(episode, type) mean return over the arms of each type."""
    order = np.argsort(problem.type_of_arm, kind="stable")
    starts = np.cumsum(problem.type_counts) - problem.type_counts
    return np.asarray(np.add.reduceat(returns[:, order], starts, axis=1) / problem.type_counts)


def _summary(
    problem: CoupledMDP,
    welfare: Welfare,
    rollout: Rollout,
    returns: Floats,
    counts: Ints,
    plug_in: float | None,
    pooled: bool,
    seconds: float,
) -> Evaluation:
    values = returns.mean(axis=0)
    means = returns @ counts / problem.num_arms
    largest = float(np.abs(problem.types.rewards).max())
    return Evaluation(
        welfare=float(welfare(values, counts)),
        welfare_stderr=standard_error(returns @ welfare.supergradient(values, counts)),
        plug_in_welfare=plug_in,
        mean=float(means.mean()),
        mean_stderr=standard_error(means),
        group_values=values,
        group_stderr=np.asarray(standard_errors(returns)),
        group_counts=counts,
        by_type=pooled,
        budget_used=rollout.used.mean(axis=0),
        exact=False,
        truncation_bound=problem.discount**rollout.horizon / (1 - problem.discount) * largest,
        num_episodes=len(returns),
        horizon=rollout.horizon,
        seconds=seconds,
        problem=problem,
        returns=rollout.returns,
    )


def standard_errors(samples: Floats) -> Floats:
    """(...,) standard errors of the means over the first axis; infinite for a single sample."""
    if len(samples) < 2:
        return np.full(samples.shape[1:], np.inf)
    return np.asarray(samples.std(axis=0, ddof=1) / np.sqrt(len(samples)))


def standard_error(samples: Floats) -> float:
    """The standard error of the mean of (sample,) numbers."""
    return float(standard_errors(samples))
