"""What is known of a policy's worth where the model is fitted: its spread over draws of the posterior.

In draw d a policy has the welfare w_d. Credible intervals are quantiles of w_1, ..., w_D; the *tail* of a share q is
the mean of the worst q D draws (the conditional value at risk, a draw that is cut counts in part):

    tail_q(w) = max_z  z - sum_d (z - w_d)_+ / (q D)

Where a policy is played, its values in a draw are estimates, and what is seen has two sources of spread,

    var(seen w)  =  var(w) + sigma^2,      sigma^2 = mean_d var(e_d) / m,      e_d = g_d.(returns of an episode)

with m episodes a draw and g_d the welfare's weights there (delta method). The second is no ignorance about the world,
so it is taken out: draws are drawn together towards their mean, by the root of the share of the spread that is not
chance (nested simulation; Sun, Apley and Staum, Operations Research 59, 2011), and quantiles are of

    mean + sqrt(max(0, 1 - sigma^2 / var(seen w))) (seen w_d - mean)

Differences between two policies are treated in the same way, with the chance that they share gone before: both are
played on the same random numbers. The chance that A is better than B is the share of draws in which it is; ties count
half. A concave welfare of noisy values is a little too low (`evaluate`): the more so, the larger `noise`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from evenhand.display import FrameLibrary, Shown, as_frame, counted
from evenhand.errors import EvenhandError, OutOfDomain, UnknownName
from evenhand.evaluation.worlds import Worlds, WorldValues, weigh
from evenhand.model.coupled import CoupledMDP
from evenhand.model.naming import arm_names, type_names
from evenhand.model.objective import Objective
from evenhand.model.policy import Policy, Starting
from evenhand.model.welfare import Welfare
from evenhand.parallel import Pool
from evenhand.solvers.mixtures.tail import tail_mean
from evenhand.typing import Floats, Progress

QUANTILES = (0.05, 0.5, 0.95)
"""What is told of a spread."""

MOST_TOLD = 1000
"""Types, arms or groups that JSON tells one by one."""

ALIKE = 1e-9
"""Welfares that differ by less than this share of themselves are ties."""


# -- one policy ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PolicyDraws:
    """One policy over all draws."""

    policy: str
    """Its name."""

    found: WorldValues = field(repr=False)
    """Its values in every draw, as they were seen."""

    objective: Objective = field(repr=False)
    """How they are weighed."""

    @property
    def exact(self) -> bool:
        """Whether it was weighed exactly in every draw, rather than played."""
        return self.found.exact

    @property
    def num_episodes(self) -> int | None:
        """Episodes a draw; None where it is exact."""
        return None if self.found.returns is None else self.found.returns.shape[1]

    @cached_property
    def seen(self) -> Floats:
        """(draw,) the welfare of the values as they were seen."""
        objective, members = self.objective, self.objective.members(self.found.values)
        # All draws in one call; where some are out of the domain, one by one.
        try:
            return np.asarray(objective.welfare(members, objective.sizes))
        except OutOfDomain:  # of some draws: they are told one by one
            return np.array([_welfare(objective, values) for values in self.found.values])

    @cached_property
    def chances(self) -> Floats | None:
        """(draw, episode) what chance adds to the welfare in each episode, but for curvature; None where exact."""
        if self.found.returns is None:
            return None
        # How far each episode lies from the mean of its draw.
        apart = self.found.returns - self.found.values[:, None]
        objective = self.objective
        # To first order, a change of values changes the welfare by the slopes.
        slopes = objective.welfare.supergradient(objective.members(self.found.values), objective.sizes)
        # `spread` turns slopes by members into slopes by units.
        return np.asarray(np.einsum("deu,du->de", apart, objective.spread(slopes)))

    @property
    def noise(self) -> float:
        """The standard error of the welfare in a single draw, by chance alone; 0 where it is exact."""
        return float(np.sqrt(_noise(self.chances)))

    @cached_property
    def welfare(self) -> Floats:
        """(draw,) the welfare, with the spread that is due to chance taken out."""
        return denoised(self.seen, self.chances)

    @cached_property
    def members(self) -> Floats:
        """(draw, member) the values that welfare weighs: of types, arms or groups; what is due to chance taken out."""
        values = self.objective.members(self.found.values)
        if self.found.returns is None:
            return values
        chances = self.objective.members(self.found.returns) - values[:, None]
        columns = [denoised(values[:, i], chances[..., i]) for i in range(values.shape[1])]
        return np.column_stack(columns)

    @property
    def mean(self) -> float:
        """The mean of the welfare over draws."""
        # As seen: chance has mean 0, and drawing together towards the mean leaves it.
        return float(self.seen.mean())

    @property
    def mean_stderr(self) -> float:
        """Its standard error: there are only so many draws, each with its noise."""
        return float(self.seen.std(ddof=1) / np.sqrt(len(self.seen))) if len(self.seen) > 1 else np.inf

    def quantile(self, share: float) -> float:
        """The welfare that a share of the draws stays below."""
        return float(np.quantile(self.welfare, share))

    def interval(self, level: float = 0.9) -> tuple[float, float]:
        """A credible interval of the welfare: equal tails are left out.

        Args:
            level: between 0 and 1.
        """
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)

    def tail(self, share: float = 0.1) -> float:
        """The mean welfare of the worst draws.

        Args:
            share: of the draws.
        """
        return tail_mean(self.welfare, share)


# -- several, side by side -------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class UnderDraws(Shown):
    """Policies over draws of what the records allow."""

    problem: CoupledMDP = field(repr=False)
    """The model, in which the policies were found."""

    welfare: Welfare
    """How values are weighed."""

    rows: tuple[PolicyDraws, ...]
    """One a policy, in the order in which they came."""

    @property
    def num_draws(self) -> int:
        """How many draws there are."""
        return len(self.rows[0].seen)

    def __repr__(self) -> str:
        first = self.rows[0]
        low, high = first.interval()
        others = "" if len(self.rows) == 1 else f", {counted(len(self.rows) - 1, 'other policy', 'other policies')}"
        return (
            f"UnderDraws({counted(self.num_draws, 'draw')}, {first.policy}: {self.welfare.name} {first.mean:.6g}, "
            f"90 % between {low:.6g} and {high:.6g}{others})"
        )

    def __getitem__(self, policy: str) -> PolicyDraws:
        """The row of a policy."""
        for row in self.rows:
            if row.policy == policy:
                return row
        raise UnknownName("policy", policy, [row.policy for row in self.rows])

    def chance_better(self, policy: str, other: str) -> float:
        """How likely one policy is better than another, by what the records tell; ties count half.

        Args:
            policy: the name of one.
            other: the name of the other.
        """
        gains = difference(self[policy], self[other])
        # Exact ties are common: two policies may do the same in most draws.
        tie = np.abs(gains) <= ALIKE * np.maximum(np.abs(self[policy].seen), np.abs(self[other].seen))
        return float(np.where(tie, 0.5, gains > 0).mean())

    @property
    def member_names(self) -> tuple[str, ...]:
        """What the groups, types or arms of the first policy are called."""
        return member_names(self.problem, self.rows[0].found.by_type)

    def to_frame(self, library: FrameLibrary | None = None) -> Any:
        """One row for the welfare and each type, arm or group of each policy: mean, quantiles and the worst tenth.

        Args:
            library: `pandas` or `polars`; when absent pandas if it is installed, else polars.
        """
        told: list[dict[str, Any]] = []
        for row in self.rows:
            names = member_names(self.problem, row.found.by_type)
            # The welfare first, then whom it weighs.
            for name, draws in zip(("welfare", *names), (row.welfare, *row.members.T), strict=True):
                told.append({"policy": row.policy, "of": name, **spread_of(draws)})
        return as_frame({name: [line[name] for line in told] for name in told[0]}, library)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: of each policy the spread of welfare and of values, and how likely it beats each other."""
        kind = "groups" if self.problem.over == "groups" else "types" if self.rows[0].found.by_type else "arms"
        return {"draws": self.num_draws, "rows": [self._row_as_dict(row, kind) for row in self.rows]}

    def _row_as_dict(self, row: PolicyDraws, kind: str) -> dict[str, Any]:
        names = member_names(self.problem, row.found.by_type)
        told = {name: spread_of(draws) for name, draws in zip(names[:MOST_TOLD], row.members.T, strict=False)}
        others = [other.policy for other in self.rows if other is not row]
        return {
            "policy": row.policy,
            "exact": row.exact,
            "episodes": row.num_episodes,
            "noise": row.noise,
            "mean_stderr": row.mean_stderr,
            "welfare": spread_of(row.welfare),
            kind: told,
            "better_than": {other: self.chance_better(row.policy, other) for other in others},
        }


# -- figures, and what chance adds to them ---------------------------------------------------------------------------


def spread_of(draws: Floats) -> dict[str, float]:
    """What is told of a figure over draws: its mean, quantiles, and the mean of its worst tenth.

    Args:
        draws: (draw,) the figure.
    """
    names = [f"q{round(100 * share):02d}" for share in QUANTILES]
    quantiles = dict(zip(names, np.quantile(draws, QUANTILES).tolist(), strict=True))
    return {"mean": float(draws.mean()), **quantiles, "tail10": tail_mean(draws, 0.1)}


def member_names(problem: CoupledMDP, by_type: bool) -> tuple[str, ...]:
    """What the members of welfare are called: groups, or types, or arms.

    Args:
        problem: whose they are.
        by_type: whether values are by type rather than by arm.
    """
    if problem.over == "groups":
        return problem.group_names
    if by_type:
        return tuple(type_names(problem))
    return tuple(problem.arm_names) or tuple(f"arm {i} {name}".strip() for i, name in enumerate(arm_names(problem)))


def difference(one: PolicyDraws, other: PolicyDraws) -> Floats:
    """(draw,) how much more welfare one policy has than another, with the spread that is due to chance taken out."""
    return denoised(one.seen - other.seen, _together(one.chances, other.chances))


def _together(one: Floats | None, other: Floats | None) -> Floats | None:
    """(draw, episode) the chance in a difference; of unequal numbers of episodes none is shared."""
    # An exact policy adds no chance.
    if one is None or other is None:
        return other if one is None else one
    # Episode by episode: both met the same random numbers, so what they share is gone.
    if one.shape == other.shape:
        return one - other
    # Different numbers: errors of both means side by side, scaled so that `_noise` gives the sum of their variances.
    errors = [chance / np.sqrt(chance.shape[1] * (chance.shape[1] - 1)) for chance in (one, other)]
    both = np.concatenate(errors, axis=1)
    return np.asarray(both * np.sqrt(both.shape[1] * (both.shape[1] - 1)))


def denoised(seen: Floats, chances: Floats | None) -> Floats:
    """(draw,) figures drawn together towards their mean, so that the spread due to chance is gone.

    Args:
        seen: (draw,) a figure of each draw.
        chances: (draw, episode) what chance added in each episode, of mean 0; None where there was none.
    """
    # From one draw no spread can be told.
    if chances is None or len(seen) < 2:
        return seen
    spread = float(seen.var(ddof=1))
    # The share of the spread that is not chance.
    kept = max(0.0, 1.0 - _noise(chances) / spread) if spread > 0 else 0.0
    return np.asarray(seen.mean() + np.sqrt(kept) * (seen - seen.mean()))


def _noise(chances: Floats | None) -> float:
    """The mean over draws of the variance of a mean over episodes."""
    if chances is None:
        return 0.0
    number = chances.shape[1]
    return float(np.square(chances).sum(axis=1).mean() / (number * max(number - 1, 1)))


def _welfare(objective: Objective, values: Floats) -> float:
    try:
        return objective(values)
    except OutOfDomain:
        return np.nan


def draws_of(name: str, found: WorldValues, problem: CoupledMDP, welfare: Welfare) -> PolicyDraws:
    """A policy's draws, ready to be asked.

    Args:
        name: of the policy.
        found: its values in every world.
        problem: under the criterion and over the members that were asked for.
        welfare: how values are weighed.

    Raises:
        OutOfDomain: the welfare is not defined in some draws.
    """
    make = Objective.of_types if found.by_type else Objective.of_arms
    row = PolicyDraws(name, found, make(problem, welfare))
    if (lost := int(np.isnan(row.seen).sum())) > 0:
        raise OutOfDomain(
            f"{name}: the welfare {welfare.name} is not defined in {lost} of {len(row.seen)} draws, where someone has "
            "no positive value. Use gini:2 or maximin, which are defined everywhere."
        )
    return row


def weigh_policies(
    policies: Mapping[str, Policy | Starting],
    worlds: Worlds,
    welfare: Welfare,
    seed: int = 0,
    progress: Progress | None = None,
    sweep: Pool | None = None,
) -> UnderDraws:
    """What some policies are worth over draws, all on the same random numbers.

    Args:
        policies: under their names.
        worlds: the draws.
        welfare: how values are weighed.
        seed: of the episodes, where they must be played.
        progress: called now and then with what is being done and the share done.
        sweep: where they are weighed; in this process when absent.

    Raises:
        OutOfDomain: the welfare is not defined in some draw.
    """
    found = rows_over_draws(policies, worlds, welfare, seed, progress, Pool() if sweep is None else sweep)
    for row in found.values():
        if isinstance(row, EvenhandError):
            raise row
    rows = [row for row in found.values() if isinstance(row, PolicyDraws)]
    return UnderDraws(worlds.problem, welfare, tuple(rows))


def rows_over_draws(
    policies: Mapping[str, Policy | Starting],
    worlds: Worlds,
    welfare: Welfare,
    seed: int,
    progress: Progress | None,
    sweep: Pool,
) -> dict[str, PolicyDraws | EvenhandError]:
    """The same policy by policy, with the reason where there is nothing to tell of one.

    Args:
        policies: under their names.
        worlds: the draws.
        welfare: how values are weighed.
        seed: of the episodes, where they must be played.
        progress: called now and then with what is being done and the share done.
        sweep: where they are weighed.
    """
    told = [f"{name} over draws" for name in policies]
    found = weigh(list(policies.values()), worlds, welfare, seed, sweep, told, progress)
    rows: dict[str, PolicyDraws | EvenhandError] = {}
    for name, values in zip(policies, found, strict=True):
        try:
            rows[name] = (
                values if isinstance(values, EvenhandError) else draws_of(name, values, worlds.problem, welfare)
            )
        except OutOfDomain as error:
            rows[name] = error
    return rows
