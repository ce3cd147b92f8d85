"""Backtest: the policy of the records in the model that was fitted to them, beside what really came.

The policy is the shares of actions by type and state (`fitting.shares`). `planning.courses` follows every arm under it
from where it was first seen, exactly, and compares the expected with the recorded figures. Then the same
policy, and others, are evaluated as plans from where all arms were first seen: over as many steps as the longest record
of an arm, or by another criterion. The shares couple no arms and keep no budget, so they are evaluated arm by arm
(`evaluation.independent`).

Intervals are about chance alone: how differently the same fleet could have fared under the same shares and the same
model. The shares and the model are estimates from these very records. So what is put to the test is not the level of
the figures but what was assumed: that the state is enough, and that neither wear nor policy changed over time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from evenhand.checks import check_fraction
from evenhand.display import FrameLibrary, Shown, as_frame, counted, told_by
from evenhand.errors import InvalidInputError
from evenhand.evaluation.evaluate import Evaluation
from evenhand.evaluation.evaluate import evaluate as evaluate_policy
from evenhand.evaluation.independent import independent_values
from evenhand.fitting.behaviour_policy import BehaviourPolicy
from evenhand.fitting.log import Log
from evenhand.fitting.result import FitResult
from evenhand.model.coupled import CoupledMDP
from evenhand.model.objective import Objective
from evenhand.model.places import quoted
from evenhand.model.policy import Policy, StatefulPolicy
from evenhand.model.welfare import Welfare
from evenhand.planning.plan import load_plan
from evenhand.planning.policy_argument import Several, read_policies
from evenhand.planning.policy_registry import NamedPolicy, is_file
from evenhand.planning.trajectory_forecast import Course, Forecast, follow
from evenhand.typing import Floats, Ints, Rng

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
    """Its standard error; 0 where it is exact."""

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
        """One row a step: arms, and how many got each action, seen and expected, with its interval.

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
        """A figure: how often each action was taken so far, as it came and as it was to be expected."""
        figure: Figure = told_by("fit_plots", "backtest_figure")(self)
        return figure

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "types": list(self.types),
            "states": list(self.states),
            "actions": list(self.actions),
            "level": self.level,
            "policy": {
                "constant_in_time": True,
                "shares": self.shares.shares.tolist(),
                "errors": _without_nan(self.shares.errors),
                "decisions": self.shares.numbers.tolist(),
            },
            "steps": self.steps.tolist(),
            "arms": self.present.tolist(),
            **{
                name: _forecast_as_dict(getattr(self, name))
                for name in ("served", "so_far", "rewards", "occupied", "totals", "total_rewards")
            },
            "used": self.used.tolist(),
            "budget": self.problem.named_budget,
            "steps_over_budget": dict(zip(self.problem.resource_names, self.over_budget.tolist(), strict=True)),
            "criterion": self.criterion,
            "worth": [vars(one) for one in self.worth],
        }


def _read(problem: CoupledMDP | FitResult, log: Log | None) -> tuple[CoupledMDP, Log]:
    if isinstance(problem, FitResult):
        return problem.problem, problem.log if log is None else log
    if log is None:
        raise InvalidInputError(
            "backtest: expected what `fit` returns, or a problem and its records: backtest(problem, log)"
        )
    return problem, log


def _forecast_as_dict(found: Forecast) -> dict[str, Any]:
    return {name: _without_nan(getattr(found, name)) for name in ("seen", "mean", "lower", "upper")}


def _without_nan(values: Floats) -> Any:
    # JSON has no word for not-a-number.
    found = values.astype(object)
    found[~np.isfinite(values)] = None
    return found.tolist()


def backtest(
    problem: CoupledMDP | FitResult,
    log: Log | None = None,
    policies: Several | None = None,
    *,
    welfare: str | Welfare | None = None,
    criterion: str | None = None,
    over: str | None = None,
    level: float = 0.95,
    num_episodes: int = 1000,
    rng: Rng = 0,
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
        num_episodes: how often other policies are played, where they are not evaluated exactly.
        rng: seed of the playing, or a generator.

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
    # The records, as a course for each arm; then what they are worth, and what others would be.
    problem, log = _read(problem, log)
    # Intervals of probability 1 would be endless.
    check_fraction(level, "level", below_one=True)
    if not log.regular:
        raise InvalidInputError(
            "backtest: the times of the records are not whole steps apart, and a policy acts step by step"
        )
    course = Course(problem, log)
    # Expected and seen, step by step; then values from where all arms began.
    forecast = follow(course, level)
    evaluated = _judged(course, criterion, over)
    beside = [] if policies is None else _beside(evaluated, policies, welfare, num_episodes, rng)
    return Backtest(
        types=log.types,
        states=log.states,
        actions=log.actions,
        shares=course.shares,
        problem=problem,
        criterion=evaluated.criterion.name,
        worth=(_worth_of_shares(evaluated, course, welfare), *beside),
        level=level,
        **forecast,
    )


# What it is worth


def _judged(course: Course, criterion: str | None, over: str | None) -> CoupledMDP:
    """The model with the arms of the records, each from its first row, for as long as the longest was recorded."""
    log = course.log
    # (arm,) each by its first row.
    arms = log.arm[course.first]
    kinds = log.type_of[arms]
    names = [
        # The block that the type was matched with gives the name that the model knows.
        course.problem.tables.labels[course.blocks[kind][0]][0] if course.problem.tables.labels else ""
        for kind in kinds
    ]
    rows: dict[str, list[Any]] = {
        "arm": [log.arms[arm] for arm in arms],
        "state": [log.states[state] for state in log.state[course.first]],
    }
    # With one type the column would say nothing, and its name may be another than the model's.
    if len(course.blocks) > 1 or not course.problem.is_symmetric:
        rows["type"] = names
    if log.group_of is None:
        # The group of an arm affects its weight, so it is not guessed.
        _refuse_unsaid_groups(course.problem, names, over)
    else:
        rows["group"] = [log.groups[log.group_of[arm]] for arm in arms]
    return course.problem.with_initial_states(rows).with_criterion(criterion or f"finite:{course.span}", over)


def _refuse_unsaid_groups(problem: CoupledMDP, names: list[str], over: str | None) -> None:
    """Raise where an arm may be of several groups of the model, and its group matters."""
    if (over or problem.over) != "groups" or not problem.tables.labels:
        return
    for name in dict.fromkeys(names):
        blocks = [block for block, label in enumerate(problem.tables.labels) if label[0] == name]
        if len({int(problem.group_of_block[block]) for block in blocks}) > 1:
            raise InvalidInputError(
                f"backtest: the model has arms {quoted(name)} in several groups: name the column of groups"
            )


def _worth_of_shares(evaluated: CoupledMDP, course: Course, welfare: str | Welfare | None) -> Worth:
    # (type, state, action) over the model's states: those that the records do not know are idle.
    shares = np.zeros(evaluated.types.rewards.shape)
    named = {course.log.types[kind]: kind for kind in range(len(course.blocks))}
    # A single type needs no name to be found.
    only = 0 if len(course.blocks) == 1 else None
    for t in range(evaluated.num_types):
        kind = named.get(_type_name(evaluated, t), only)
        assert kind is not None
        _, states, actions = course.blocks[kind]
        idle = _idle(evaluated, t)
        shares[t, np.arange(evaluated.types.num_states[t]), idle] = 1.0
        # In the states of the records, their own shares take the place of idling.
        shares[t, states] = 0.0
        shares[t][np.ix_(states, actions)] = course.shares.shares[kind]
    found = independent_values(evaluated, shares)
    objective = Objective.of_types(evaluated, welfare)
    # `used` is over all time; the budget is a step's.
    return _worth(evaluated, "records", objective, found.values, found.served, found.used / evaluated.criterion.total)


def _idle(evaluated: CoupledMDP, kind: int) -> Ints:
    """(state,) the first action that uses nothing."""
    s, a = evaluated.types.num_states[kind], evaluated.types.num_actions[kind]
    return np.asarray(np.argmax((evaluated.types.usage[kind, :s, :a] == 0).all(axis=-1), axis=-1))


def _type_name(problem: CoupledMDP, kind: int) -> str:
    return problem.types.labels[kind][0] if problem.types.labels else ""


def _worth(
    evaluated: CoupledMDP, name: str, objective: Objective, values: Floats, served: Floats, used: Floats
) -> Worth:
    with np.errstate(divide="ignore", invalid="ignore"):
        # A resource without a budget counts as unused.
        shares = np.where(evaluated.budget > 0, used / evaluated.budget, 0.0)
    groups = (
        dict(zip(evaluated.group_names, objective.members(values).tolist(), strict=True))
        if evaluated.over == "groups"
        else {}
    )
    return Worth(
        name,
        objective(values),
        0.0,
        _by_name(evaluated, values),
        _by_name(evaluated, served),
        dict(zip(evaluated.resource_names, shares.tolist(), strict=True)),
        groups,
    )


def _by_name(evaluated: CoupledMDP, figures: Floats) -> dict[str, float]:
    """Means over the arms of each name: types that differ only in where they start belong together."""
    sums: dict[str, tuple[float, int]] = {}
    # Weighted by the number of arms: types of one name differ in size.
    for t, (figure, count) in enumerate(zip(figures.tolist(), evaluated.type_counts.tolist(), strict=True)):
        total, number = sums.get(_type_name(evaluated, t), (0.0, 0))
        sums[_type_name(evaluated, t)] = total + count * figure, number + count
    return {name: total / number for name, (total, number) in sums.items()}


def _beside(
    evaluated: CoupledMDP, policies: Several, welfare: str | Welfare | None, num_episodes: int, rng: Rng
) -> list[Worth]:
    """Other policies, for the same arms from the same states."""
    found = []
    # Plans from files are fitted to these arms first; names are made for them.
    for name, chosen in read_policies(_opened(policies, evaluated), evaluated).items():
        policy = chosen.build(evaluated, welfare) if isinstance(chosen, NamedPolicy) else chosen
        judgement = evaluate_policy(evaluated, policy, welfare, num_episodes=num_episodes, rng=rng)
        found.append(_of_evaluation(name, evaluated, judgement))
    return found


def _opened(policies: Any, evaluated: CoupledMDP) -> Several:
    """The same, with saved plans made to fit: they are for the same kinds of arms, but begin elsewhere."""
    if isinstance(policies, Mapping):
        return {name: _open(one, evaluated) for name, one in policies.items()}
    if isinstance(policies, (str, PathLike)):
        policies = [policies]
    if not isinstance(policies, (list, tuple)):
        return policies  # type: ignore[no-any-return]  # one policy, or what has one
    named = {str(one): _open(one, evaluated) for one in policies if isinstance(one, (str, PathLike))}
    # Under the names that the user typed, if all were typed; else as `read_policies` calls them.
    return named if len(named) == len(policies) else [_open(one, evaluated) for one in policies]


def _open(policy: Any, evaluated: CoupledMDP) -> "Policy | StatefulPolicy | Any":
    is_saved = isinstance(policy, PathLike) or (isinstance(policy, str) and is_file(policy))
    return load_plan(policy).fitted(evaluated) if is_saved else policy


def _of_evaluation(name: str, evaluated: CoupledMDP, found: Evaluation) -> Worth:
    values, served = found.unit_values, found.unit_served
    if not found.by_type:
        kinds, counts = evaluated.type_of_arm, evaluated.type_counts
        # By arm: means over the arms of each type.
        values, served = (np.bincount(kinds, weights=figure) / counts for figure in (values, served))
    return Worth(
        name,
        found.welfare,
        found.welfare_stderr,
        _by_name(evaluated, values),
        _by_name(evaluated, served),
        dict(zip(evaluated.resource_names, found.budget_used.tolist(), strict=True)),
        dict(found.groups) if found.groups else {},
    )
