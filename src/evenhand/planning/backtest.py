"""Backtest: the policy of the records in the model that was fitted to them, beside the recorded outcomes.

The policy is the shares of actions by type and state (`fitting.transition_counts`). `trajectory_forecast` follows every
arm under it from where it was first seen, exactly, and compares the expected with the recorded figures. Then the same
policy, and others, are evaluated as plans from where all arms were first seen: over as many steps as the longest record
of an arm, or by another criterion. The shares couple no arms and have no budget, so they are evaluated arm by arm
(`evaluation.exact`).

Intervals are about chance alone: how differently the same fleet could have fared under the same shares and the same
model. The shares and the model are estimates from these very records. So what is put to the test is not the level of
the figures but what was assumed: that the state is enough, and that neither wear nor policy changed over time.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from evenhand.checks import check_fraction
from evenhand.display import FrameLibrary, Shown, as_frame, counted, from_report
from evenhand.errors import InvalidInputError
from evenhand.evaluation.evaluate import Evaluation, evaluate
from evenhand.evaluation.exact import independent_values
from evenhand.evaluation.rollout import share_of_budget
from evenhand.fitting.log import Log
from evenhand.fitting.result import FitResult
from evenhand.fitting.transition_counts import BehaviourPolicy
from evenhand.model import CoupledMDP, Objective, Welfare, quoted
from evenhand.planning.compare import EvaluateOptions
from evenhand.planning.policy_registry import NamedPolicy, Several, read_policies
from evenhand.planning.trajectory_forecast import Course, Forecast, follow
from evenhand.typing import Floats, Ints

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Worth:
    """Value of a policy in the model, from where the arms were first seen."""

    policy: str
    """Its name; `records` for what is in the records."""

    welfare: float
    """Of the values of the arms, or of the groups."""

    welfare_stderr: float
    """Its standard error; 0 if it is exact."""

    values: dict[str, float]
    """The mean value of the arms of each type, under its name."""

    served: dict[str, float]
    """The share of time in which an arm of each type is served."""

    budget_used: dict[str, float]
    """Mean usage of each resource, as a share of the budget; records have none."""

    groups: dict[str, float]
    """The values of the groups, where welfare is over groups."""


@dataclass(frozen=True, eq=False)
class Backtest(Shown):
    """Recorded figures beside those of the behaviour policy in the model."""

    types: tuple[str, ...]
    """Names."""

    states: tuple[str, ...]
    """Names."""

    actions: tuple[str, ...]
    """Names, the idle action first."""

    shares: BehaviourPolicy
    """The policy of the records."""

    steps: Ints
    """(step,) the steps at which something was decided, since the earliest row."""

    present: Ints
    """(step,) arms of which a decision is recorded."""

    served: Forecast
    """(step, action) how many arms got each action; that of the idle one is left out."""

    so_far: Forecast
    """(step, action) the same, summed up from the first step."""

    rewards: Forecast
    """(step,) mean reward of an arm."""

    occupied: Forecast
    """(step, state) arms in each state, after their first rows."""

    totals: Forecast
    """(type, action) how often each action was taken in all; that of the idle one is left out."""

    total_rewards: Forecast
    """(type,) mean reward of a step."""

    used: Floats
    """(step, resource) what the records used."""

    problem: CoupledMDP
    """The model, with its budget."""

    criterion: str
    """Criterion of `worth`."""

    worth: tuple[Worth, ...]
    """The policy of the records, and others beside it, from where all arms began."""

    level: float = field(default=0.95, repr=False)
    """The probability of the intervals."""

    def __repr__(self) -> str:
        # Without any service there is nothing to count.
        fit = f"{100 * self.served.inside.mean():.0f} % of steps within" if self.served.inside.size else "none served"
        return f"Backtest({counted(len(self.steps), 'step')}, {counted(int(self.present.max()), 'arm')}, {fit})"

    @cached_property
    def over_budget(self) -> Ints:
        """(resource,) steps at which the records used more than the budget."""
        return np.asarray((self.used > self.problem.budget_limit).sum(axis=0))

    def to_frame(self, library: FrameLibrary | None = None) -> Any:
        """Return one row per step: arms, and how many got each action, recorded and expected, with its interval.

        Args:
            library: `pandas` or `polars`; by default pandas if it is installed, else polars.
        """
        columns: dict[str, Any] = {"step": self.steps, "arms": self.present}
        for place, action in enumerate(self.actions[1:]):
            for name in ("seen", "mean", "lower", "upper"):
                columns[f"{action} {name}"] = getattr(self.served, name)[:, place]
        for name in ("seen", "mean", "lower", "upper"):
            columns[f"reward {name}"] = getattr(self.rewards, name)
        return as_frame(columns, library)

    def plot(self) -> "Figure":
        """Return a figure: how often each action was taken so far, recorded and expected."""
        figure: Figure = from_report("fit_plots", "backtest_figure")(self)
        return figure

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "types": list(self.types),
            "states": list(self.states),
            "actions": list(self.actions),
            "level": self.level,
            "policy": {
                "constant_in_time": True,
                "shares": self.shares.shares.tolist(),
                "errors": _json(self.shares.errors),
                "decisions": self.shares.numbers.tolist(),
            },
            "steps": self.steps.tolist(),
            "arms": self.present.tolist(),
            **{
                name: {key: _json(values) for key, values in vars(getattr(self, name)).items()}
                for name in ("served", "so_far", "rewards", "occupied", "totals", "total_rewards")
            },
            "used": self.used.tolist(),
            "budget": self.problem.named_budget,
            "steps_over_budget": dict(zip(self.problem.resource_names, self.over_budget.tolist(), strict=True)),
            "criterion": self.criterion,
            "worth": [vars(one) for one in self.worth],
        }


def _json(values: Floats) -> Any:
    """Values as lists, with None for what is not a number."""
    found = values.astype(object)
    found[~np.isfinite(values)] = None
    return found.tolist()


def backtest(
    problem: CoupledMDP | FitResult,
    log: Log | None = None,
    policies: "Several | None" = None,
    *,
    welfare: str | Welfare | None = None,
    criterion: str | None = None,
    over: str | None = None,
    level: float = 0.95,
    **options: Unpack[EvaluateOptions],
) -> Backtest:
    """Simulate the behaviour policy of the records in a model, and compare it with the records.

    Args:
        problem: what `fit` returns, or a model; its blocks have the names of the types of the records.
        log: the records, as `fit(...).log` has them; by default those of the fit.
        policies: policies to compare with: names, files of plans, policies; by default none.
        welfare: the welfare; by default the problem's own.
        criterion: criterion of the policies; by default `finite:T` over the longest record of an arm.
        over: `arms` or `groups`; by default the problem's own.
        level: the probability of the intervals.
        options: `num_episodes` and `rng` of `evaluate`, for policies that are not evaluated exactly.

    Raises:
        TableError: the records have types, states or actions that the model does not have.

    Example:
        >>> import evenhand as eh
        >>> course = ["new", "new", "worn", "worn", "new", "worn", "new", "new"]
        >>> rows = [
        ...     {"bus": bus, "month": month, "engine": engine, "action": "keep" if engine == "new" else "replace"}
        ...     for bus in ("a", "b")
        ...     for month, engine in enumerate(course)
        ... ]
        >>> rows[2]["action"] = rows[13]["action"] = "keep"
        >>> rows[0]["action"] = "replace"
        >>> columns = {"arm": "bus", "time": "month", "state": "engine", "action": "action"}
        >>> fitted = eh.fit(rows, **columns, model={"rewards": "new=1,worn=0"})
        >>> eh.backtest(fitted)
        Backtest(7 steps, 2 arms, 100 % of steps within)
    """
    if isinstance(problem, FitResult):
        log, problem = log or problem.log, problem.problem
    if log is None:
        raise InvalidInputError(
            "backtest: expected what `fit` returns, or a problem and its records: backtest(problem, log)"
        )
    check_fraction(level, "level", below_one=True)  # intervals of probability 1 would be endless
    if not log.regular:
        raise InvalidInputError(
            "backtest: the times of the records are not whole steps apart, and a policy acts step by step"
        )
    course = Course(problem, log)
    forecast = follow(course, level)
    evaluated = _evaluated(course, criterion, over)
    worth = [_worth_of_records(evaluated, course, welfare)]
    for name, chosen in {} if policies is None else read_policies(policies, evaluated).items():
        policy = chosen.build(evaluated, welfare) if isinstance(chosen, NamedPolicy) else chosen
        worth.append(_worth_of(name, evaluated, evaluate(evaluated, policy, welfare, **options)))
    return Backtest(
        types=log.types,
        states=log.states,
        actions=log.actions,
        shares=course.shares,
        problem=problem,
        criterion=evaluated.criterion.name,
        worth=tuple(worth),
        level=level,
        **forecast,
    )


# -- the value of the policy of the records, and of others -----------------------------------------------------------


def _evaluated(course: Course, criterion: str | None, over: str | None) -> CoupledMDP:
    """The model with the arms of the records, each from its first row, for as long as the longest was recorded."""
    problem, log, arms = course.problem, course.log, course.log.arm[course.first]
    labels = problem.tables.labels
    # The block that a type was matched with gives the name that the model knows.
    names = [labels[course.blocks[kind][0]][0] if labels else "" for kind in course.type]
    rows: dict[str, list[Any]] = {
        "arm": [log.arms[arm] for arm in arms],
        "state": [log.states[state] for state in log.state[course.first]],
    }
    # With one type the column would say nothing, and its name may be another than the model's.
    if len(course.blocks) > 1 or not problem.is_symmetric:
        rows["type"] = names
    if log.group_of is not None:
        rows["group"] = [log.groups[log.group_of[arm]] for arm in arms]
    elif (over or problem.over) == "groups":  # the group of an arm affects its weight, so it is not guessed
        groups: dict[str, set[int]] = {}
        for label, group in zip(labels or (), problem.group_of_block.tolist(), strict=False):
            groups.setdefault(label[0], set()).add(group)
        if unclear := [name for name in dict.fromkeys(names) if len(groups.get(name, ())) > 1]:
            raise InvalidInputError(
                f"backtest: the model has arms {quoted(unclear[0])} in several groups: name the column of groups"
            )
    return problem.with_initial_states(rows).with_criterion(criterion or f"finite:{course.span}", over)


def _worth_of_records(evaluated: CoupledMDP, course: Course, welfare: str | Welfare | None) -> Worth:
    # (type, state, action) over the model's states: those that the records do not know are idle.
    shares = np.where(np.arange(evaluated.types.rewards.shape[2]) == evaluated.types.idle[..., None], 1.0, 0.0)
    named = {name: kind for kind, name in enumerate(course.log.types)}
    for t, name in enumerate(_type_names(evaluated)):
        kind = 0 if len(course.blocks) == 1 else named[name]
        _, states, actions = course.blocks[kind]
        shares[t, states] = 0.0
        shares[t][np.ix_(states, actions)] = course.shares.shares[kind]
    found, objective = independent_values(evaluated, shares), Objective.of_types(evaluated, welfare)
    used = share_of_budget(evaluated.budget, found.used, evaluated.criterion.total)
    members = objective.members(found.values).tolist()
    return Worth(
        "records",
        objective(found.values),
        0.0,
        _by_name(evaluated, found.values[evaluated.type_of_arm]),
        _by_name(evaluated, found.served[evaluated.type_of_arm]),
        dict(zip(evaluated.resource_names, used.tolist(), strict=True)),
        dict(zip(evaluated.group_names, members, strict=True)) if evaluated.over == "groups" else {},
    )


def _worth_of(name: str, evaluated: CoupledMDP, found: Evaluation) -> Worth:
    return Worth(
        name,
        found.welfare,
        found.welfare_stderr,
        _by_name(evaluated, found.values),
        _by_name(evaluated, found.unit_served[evaluated.type_of_arm] if found.by_type else found.unit_served),
        dict(zip(evaluated.resource_names, found.budget_used.tolist(), strict=True)),
        dict(found.groups or {}),
    )


def _type_names(problem: CoupledMDP) -> list[str]:
    return [label[0] for label in problem.types.labels] if problem.types.labels else [""] * problem.num_types


def _by_name(evaluated: CoupledMDP, figures: Floats) -> dict[str, float]:
    """Means of (arm,) figures by name: types that differ only in their initial states belong together."""
    names = _type_names(evaluated)
    unique = list(dict.fromkeys(names))
    place = np.array([unique.index(name) for name in names])[evaluated.type_of_arm]
    return dict(zip(unique, (np.bincount(place, weights=figures) / np.bincount(place)).tolist(), strict=True))
