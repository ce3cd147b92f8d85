"""What an index or priority policy is worth on a table of arms, by shards.

Values are means over the episodes, row by row: the arms of a row are alike to the policy. The driver has one number a
row to weigh them, and the sums behind the errors are exact, so that every figure is the same for any number of shards
and on any executor. The error of the welfare is by the delta method; kinks, which `evaluate` looks at, are not.
"""

import math
import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from evenhand.checks import check_memory
from evenhand.display import Shown, counted, heard, shows_bar
from evenhand.errors import InvalidInput
from evenhand.evaluation.shards.driving import Play
from evenhand.evaluation.shards.naming import named
from evenhand.evaluation.shards.resident import Outcome, groups_of, outcome, values_of, weighed
from evenhand.evaluation.shards.scoring import Rule
from evenhand.evaluation.shards.weighing import weigh
from evenhand.evaluation.standard_errors import standard_error
from evenhand.execution.places import opened
from evenhand.execution.protocol import Executor
from evenhand.kernels.compilation import work_clock
from evenhand.kernels.exact_sums import UNIT
from evenhand.model.criterion import Criterion
from evenhand.model.objective import Objective
from evenhand.model.parquet.reading import StoredArms, open_arms
from evenhand.model.parquet.writing import TableWriter
from evenhand.model.welfare import DEFAULT, Welfare, as_welfare
from evenhand.typing import Floats, Indices, Ints, Progress, Rng

ROWS_WRITTEN = 65_536
"""Rows that are written at once."""


@dataclass(frozen=True)
class ArmsEvaluation(Shown):
    """What a policy is worth on a table of arms, and to whom."""

    welfare: float
    """The welfare of the members' values."""

    welfare_stderr: float
    """Its standard error, by the delta method."""

    mean: float
    """Mean value over the members: the arms, or the groups."""

    mean_stderr: float
    """Its standard error."""

    gini_coefficient: float
    """Inequality of the members' values: 0 when all are equal."""

    values: Floats = field(repr=False)
    """(row,) value of an arm of each row."""

    budget_used: Floats
    """(resource,) mean share of the budget that is used."""

    truncation_bound: float | None
    """No value changes by more than this if episodes went on; None if that cannot be told."""

    num_episodes: int
    """Episodes played."""

    horizon: int
    """Steps an episode."""

    seconds: float
    """How long it took, without the time in which code was compiled."""

    objective: Objective = field(repr=False)
    """How values are weighed."""

    arms: StoredArms = field(repr=False)
    """The table, under the criterion and over the members that were asked for."""

    on: str
    """Where it ran."""

    group_names: tuple[str, ...] = ()
    """The names of the groups, where welfare is over them."""

    def __repr__(self) -> str:
        episodes = f"{counted(self.num_episodes, 'episode')} of {counted(self.horizon, 'step')}"
        return (
            f"ArmsEvaluation({self.objective.welfare.name} {self.welfare:.6g} ± {self.welfare_stderr:.2g}, "
            f"mean {self.mean:.6g}, worst {self.worst:.6g}, {counted(self.arms.num_arms, 'arm')}, {episodes})"
        )

    @property
    def members(self) -> Floats:
        """(member,) what welfare weighs: the values of the rows, or of the groups."""
        return self.objective.members(self.values)

    @property
    def groups(self) -> dict[str, float]:
        """The value of each group, where welfare is over groups; else empty."""
        return dict(zip(self.group_names, self.members.tolist(), strict=True)) if self.group_names else {}

    @property
    def worst(self) -> float:
        """The value of the worst-off member."""
        return float(self.members.min())


@shows_bar
def evaluate_arms(
    policy: str | Rule,
    arms: "StoredArms | str | os.PathLike[str]",
    welfare: str | Welfare | None = None,
    num_episodes: int = 10,
    horizon: int | None = None,
    rng: Rng = 0,
    on: str | Executor | None = None,
    progress: Progress | bool | None = None,
    criterion: str | Criterion | None = None,
    over: Any = None,
    values: "str | os.PathLike[str] | None" = None,
    weights: Floats | None = None,
    num_shards: int | None = None,
) -> ArmsEvaluation:
    """Play an index or priority policy on a table of arms that stays where it is.

    States, actions and returns are those of `simulate` on the same problem in memory, to the last bit, whatever `on`
    and `num_shards` are.

    Args:
        policy: `whittle`, `random`, `never-act`; or a rule with the relaxation's prices, `fair-index`.
        arms: the table, or its file or folder.
        welfare: how the members' values are weighed, as text or object; the table's own when absent.
        num_episodes: episodes to play.
        horizon: steps an episode; the criterion's own when absent.
        rng: seed or generator; 0 when absent.
        on: where to run: `local`, `local:2`, `ray`, `ray://host:port`, or an executor; this process when absent.
        progress: True shows a bar; a function is called now and then with what is being done and the share done.
        criterion: `discounted` or `average`; the table's own when absent.
        over: whose values are weighed, `arms` or `groups`; the table's own when absent.
        values: a file `.parquet` or a folder to write each row's value, error and share of time served to.
        weights: (row,) the relaxation's welfare weights, for `fair-index`.
        num_shards: into how many parts the table is cut; as many as are good when absent.

    Example:
        >>> import evenhand as eh
        >>> eh.save(eh.problems.machine_replacement(num_arms=5), "machines.parquet")
        >>> found = eh.evaluate_arms("whittle", "machines.parquet", "gini:2", num_episodes=20, horizon=50)
        >>> found.num_episodes, round(found.mean, 3) == round(found.welfare, 3)
        (20, True)
    """
    start = work_clock()
    table = (arms if isinstance(arms, StoredArms) else open_arms(arms)).with_criterion(criterion, over)
    if table.criterion.is_average and horizon is None:
        raise InvalidInput(
            "horizon: give the steps per episode, several times as many as the slowest arm takes to forget its start; "
            "for tables of arms they are not found automatically under the criterion average"
        )
    steps = table.criterion.simulated_steps(horizon)
    time_weights = table.criterion.time_weights(steps)
    rule = policy if isinstance(policy, Rule) else Rule(policy)
    with opened(on) as executor:
        play = Play(table, rule, executor, weights, num_shards)
        try:
            _check_room(play, num_episodes)
            used = play.run(num_episodes, time_weights, rng, heard(progress))
            found = _summary(play, welfare, used, time_weights, num_episodes, start, values)
        finally:
            play.close()
    return found


def _check_room(play: Play, num_episodes: int) -> None:
    """What this process would hold must fit; what workers elsewhere hold is theirs."""
    if play.executor.name.startswith("local"):
        size = 16.0 * num_episodes * play.arms.num_arms
        what = f"the returns of {num_episodes} episodes of {play.arms.num_arms} arms"
        check_memory(size, what, "Use fewer episodes, or a cluster.")


def _summary(
    play: Play,
    welfare: str | Welfare | None,
    used: Floats,
    time_weights: Floats,
    num_episodes: int,
    start: float,
    path: Any,
) -> ArmsEvaluation:
    table, total = play.arms, float(time_weights.sum())
    values = np.concatenate(play.ask(values_of))
    objective, names = objective_of(play, welfare)
    if path is not None:
        _write(path, play, num_episodes, total)
    worth, gradient, inequality = weigh(objective, values)
    worth_error = math.inf if gradient is None else _error(play, gradient)
    del gradient
    shares = objective.spread(objective.sizes / objective.sizes.sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(table.budget > 0, used / (table.budget * total), 0.0)
    beyond = table.criterion.beyond(len(time_weights))
    return ArmsEvaluation(
        welfare=worth,
        welfare_stderr=worth_error,
        mean=float(shares @ values),
        mean_stderr=_error(play, shares),
        gini_coefficient=inequality,
        values=values,
        budget_used=share.mean(axis=0),
        truncation_bound=None if beyond is None else beyond * play.largest_reward,
        num_episodes=num_episodes,
        horizon=len(time_weights),
        seconds=work_clock() - start,
        objective=objective,
        arms=table,
        on=play.executor.name,
        group_names=names,
    )


def objective_of(play: Play, welfare: str | Welfare | None) -> tuple[Objective, tuple[str, ...]]:
    """How the values of the rows are weighed, and the names of groups where welfare is over them."""
    table = play.arms
    groups, names = _groups(play) if table.over == "groups" else (None, ())
    number = len(names) if groups is not None else table.num_arms
    weighs = as_welfare(welfare if welfare is not None else table.welfare or DEFAULT, number)
    floors = np.broadcast_to(0.0, table.num_rows)  # what is played is not held to them
    return Objective(table.criterion, weighs, row_counts(table), groups, floors), names


def row_counts(table: StoredArms) -> Ints:
    """(row,) how many arms each row stands for."""
    if table.ends is None:
        return np.broadcast_to(np.int64(1), table.num_rows)
    return np.diff(table.ends, prepend=0)


def _groups(play: Play) -> tuple[Indices, tuple[str, ...]]:
    """(row,) the group of each row, and the names of all; a row without one is a group of its own."""
    numbers: dict[str, int] = {}
    parts = []
    for rows, (names, codes) in zip(play.rows, play.shards.ask(groups_of), strict=True):
        known = np.array([numbers.setdefault(name, len(numbers)) if name else -1 for name in names], dtype=np.int32)
        mine = known[codes]
        for row in np.flatnonzero(mine < 0).tolist():
            mine[row] = numbers.setdefault(f"row {rows.first_row + row + 1}", len(numbers))
        parts.append(mine)
    return np.concatenate(parts), tuple(numbers)


def _error(play: Play, weights: Floats) -> float:
    """The standard error of a weighted sum of values: its spread over the episodes, summed exactly."""
    each = [(weights[rows.first_row : rows.first_row + len(rows)],) for rows in play.rows]
    sums = [sum(parts) / UNIT for parts in zip(*play.ask(weighed, each=each), strict=True)]
    return standard_error(np.array(sums))


def _write(path: Any, play: Play, num_episodes: int, total: float) -> None:
    """Values by row as Parquet, with names where rows have them, one shard at a time."""
    import pyarrow as pa

    with TableWriter(path) as writer:
        names = named(play.arms)
        for number in range(len(play.rows)):
            part: Outcome = play.ask(outcome, number)[number]
            scale = 1 / (num_episodes * (num_episodes - 1)) if num_episodes > 1 else math.inf
            with np.errstate(invalid="ignore"):
                stderr = np.sqrt(part.squares * scale) if num_episodes > 1 else np.full(len(part.values), math.inf)
            for at in range(0, len(part.values), ROWS_WRITTEN):
                rows = slice(at, at + ROWS_WRITTEN)
                figures = {"value": part.values[rows], "stderr": stderr[rows], "served": part.served[rows] / total}
                writer.write(
                    names.take(len(figures["value"])) | {key: pa.array(column) for key, column in figures.items()}
                )
