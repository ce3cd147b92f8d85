"""Rewards, usage, budget and objective of a model: from columns of the records, or stated.

Defaults: rewards of 0; one unit of one resource for every action but the idle one; a budget of the most that was used
in one step of the records; a discount of 0.95. Notes report them.

Rewards from a column. y are the rewards of the rows of type t in state s with action a, n[t] of them with mean m[t].
Means are shrunk towards the other types by random effects (empirical Bayes; Efron and Morris, 1975):

    y = r[t] + noise of variance sigma^2,    r[t] ~ (r, tau^2)              for each pair (s, a)

    sigma^2 = pooled variance of rows within (t, s, a); of all pairs together if a pair has no two rows
    tau^2   = max(0, (sum_t n[t] (m[t] - m)^2 - (k - 1) sigma^2) / (N - sum_t n[t]^2 / N))        DerSimonian and Laird

over the k types with rows, N rows and overall mean m. With v[t] = sigma^2 / n[t] and B[t] = tau^2 / (tau^2 + v[t]):

    r^ = sum_t m[t] / (tau^2 + v[t]) / sum_t 1 / (tau^2 + v[t])
    reward[t] = B[t] m[t] + (1 - B[t]) r^;     r^ for types without rows

A pair without rows in any type has no reward: NaN. Usage from columns is the mean over all rows of an action.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evenhand.checks import Faults, plain
from evenhand.display import counted
from evenhand.errors import InvalidInputError
from evenhand.fitting.log import NOTHING, Log
from evenhand.fitting.options import ModelOptions
from evenhand.fitting.stated_values import (
    Names,
    broadcast,
    is_text,
    one_of,
    parse_statements,
    raise_faults,
    read_statements,
    source_name,
)
from evenhand.model.coupled import find_resource, read_amounts
from evenhand.model.places import quoted
from evenhand.typing import Bools, Floats

DISCOUNT = 0.95
"""Default discount."""

SERVICE = "services"
"""Default name of the one resource."""


@dataclass(frozen=True, eq=False)
class Terms:
    """Parts of a model besides its transitions."""

    rewards: Floats
    """(type, state, action) of a step; NaN if unknown."""

    usage: Floats
    """(type, state, action, resource) amounts."""

    resources: tuple[str, ...]
    """(resource,) names."""

    budget: Floats
    """(resource,) amounts per step."""

    discount: float = DISCOUNT
    """Discount per step."""

    criterion: str = "discounted"
    """Criterion, as text."""

    welfare: str | None = None
    """Welfare, as text."""

    over: str = "arms"
    """Whether welfare is over arms or groups."""

    notes: tuple[str, ...] = ()
    """Defaults that were taken."""


def read_terms(log: Log, unseen: Bools, stated: ModelOptions, pool: bool = True) -> Terms:
    """Rewards, usage, budget and objective.

    Args:
        log: the records.
        unseen: (type, state, action) unobserved pairs, whose rewards may be unknown too.
        stated: stated values.
        pool: whether sparse rewards of a column are shrunk towards the other types.
    """
    notes: list[str] = []
    amounts, names = read_usage(log, notes, stated.usage, stated.resources)
    spent = _budget(log, amounts, names, stated.budget, notes)
    if stated.discount is None and (stated.criterion or "discounted") == "discounted":
        notes.append(f"no discount is given: it is {DISCOUNT}")
    means = read_rewards(log, stated.rewards, pool)
    if means is None:
        notes.append("no rewards are given: all of them are 0")
        means = np.zeros(unseen.shape)
    unknown = np.isnan(means) & unseen & np.isfinite(means[:, :, :1])
    if unknown.any():
        pairs = counted(int(unknown.sum()), "unobserved pair has", "unobserved pairs have")
        notes.append(f"{pairs} no reward: that of {log.actions[0]} in the same state is taken")
    means = np.asarray(np.where(unknown, means[:, :, :1], means))
    objective = {name: getattr(stated, name) for name in ("discount", "criterion", "welfare", "over")}
    given = {name: value for name, value in objective.items() if value is not None}
    return Terms(means, amounts, names, spent, notes=tuple(notes), **given)


# Rewards


def read_rewards(log: Log, stated: Any = None, pool: bool = True) -> Floats | None:
    """(type, state, action) rewards, NaN if unknown; None if there are none at all.

    Args:
        log: the records; their column of rewards counts if they have one.
        stated: a file or table with the columns state, action, type (each optional) and reward or cost; or rewards of
            states and actions as text, `good=1,poor=0.3,poor/replace=-2`.
        pool: whether sparse means of a column are shrunk towards the other types.

    Raises:
        TableError: with every fault of the table or the text.
    """
    names = Names(log)
    if one_of("rewards", reward=log.reward, rewards=stated) is None:
        return None
    if log.reward is not None:
        return mean_per_pair(log, log.reward, pool)
    if is_text(stated):
        statements, _ = parse_statements(stated, names, ("state", "action"), "rewards")
        return broadcast(statements, names.shape[:3], "rewards")[..., 0]
    statements, (column,) = read_statements(stated, names, "rewards", ("reward", "cost"))
    means = broadcast(statements, names.shape[:3], source_name(stated))[..., 0]
    return means if column == "reward" else 0.0 - means


def mean_per_pair(log: Log, figures: Floats, pool: bool) -> Floats:
    """(type, state, action) means of a figure of the rows; NaN if unknown.

    Args:
        log: the records.
        figures: (row,) the figure, NaN if missing.
        pool: whether sparse means are shrunk towards the other types.
    """
    shape = len(log.types), len(log.states), len(log.actions)
    known = np.isfinite(figures) & (log.action != NOTHING)
    cells = np.ravel_multi_index((log.type_of[log.arm[known]], log.state[known], log.action[known]), shape)
    size = int(np.prod(shape))
    numbers = np.bincount(cells, minlength=size).reshape(shape)
    sums = np.bincount(cells, weights=figures[known], minlength=size).reshape(shape)
    means: Floats = np.where(numbers > 0, sums / np.maximum(numbers, 1), np.nan)
    if not pool or shape[0] == 1:
        return means
    residuals = figures[known] - means.reshape(-1)[cells]
    squares = np.bincount(cells, weights=residuals**2, minlength=size).reshape(shape)
    freedom = np.maximum(numbers - 1, 0).sum(axis=0)
    overall = squares.sum() / freedom.sum() if freedom.sum() else np.inf
    noise = np.where(freedom > 0, squares.sum(axis=0) / np.maximum(freedom, 1), overall)
    return _shrink(numbers.astype(np.float64), np.nan_to_num(means), noise)


def _shrink(numbers: Floats, means: Floats, noise: Floats) -> Floats:
    """(type, state, action) means shrunk towards the other types, by the equations of the head."""
    seen, total = numbers > 0, numbers.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = (numbers * (means - (numbers * means).sum(axis=0) / total) ** 2).sum(axis=0)
        kinds, room = seen.sum(axis=0), total - (numbers**2).sum(axis=0) / total
        tau = np.where(kinds > 1, np.maximum(apart - (kinds - 1) * noise, 0.0) / room, np.inf)
        variance = noise / numbers
        # Without noise, or with one type, each type keeps its own mean.
        shrinks = np.isfinite(tau + noise) & (tau + noise > 0)
        weights = np.where(seen, np.where(shrinks, 1 / (tau + variance), numbers), 0.0)
        common = (weights * means).sum(axis=0) / weights.sum(axis=0)
        own = np.where(shrinks, tau / (tau + variance), 1.0)
        return np.asarray(np.where(seen, own * means + (1 - own) * np.nan_to_num(common), common))


# Usage


def read_usage(
    log: Log, notes: list[str], stated: Any = None, resources: Sequence[str] = ()
) -> tuple[Floats, tuple[str, ...]]:
    """(type, state, action, resource) amounts, and the names of the resources.

    Args:
        log: the records; their columns of use count if they have some.
        notes: collects defaults that were taken.
        stated: a file or table with the columns action, state, type (each optional) and one column per resource; or
            text, `service=1,overhaul=2`, with resources `service/technicians=1,overhaul/bays=1`.
        resources: names of the resources, in the order of the budget; those of the source by default.

    Raises:
        TableError: with every fault.
    """
    source = one_of("usage", used=log.used, usage=stated)
    names = Names(log)
    if log.used is not None:
        amounts, found = _mean_use(log, notes), log.resources
    elif is_text(stated):
        amounts, found = _usage_of_text(stated, names, resources)
    elif stated is not None:
        statements, found = read_statements(stated, names, "usage")
        amounts = broadcast(statements, names.shape[:3], source_name(stated))
    elif len(resources) > 1:
        raise InvalidInputError(f"usage: {len(resources)} resources are named; state what actions use of each")
    else:
        amounts, found = np.ones((*names.shape[:3], 1)), tuple(resources) or (SERVICE,)
        amounts[:, :, 0] = 0.0
        notes.append(f"every action but {log.actions[0]} uses one unit of {found[0]}")
    amounts[:, :, 0] = np.nan_to_num(amounts[:, :, 0])
    _check_usage(log, amounts, found, source or "usage")
    if resources and sorted(resources) != sorted(found):
        raise InvalidInputError(
            f"resources: expected {', '.join(found)}, which {source} has, got {', '.join(resources)}"
        )
    order = [found.index(name) for name in resources or found]
    return amounts[..., order], tuple(found[i] for i in order)


def _usage_of_text(
    text: str | Mapping[str, float], names: Names, resources: Sequence[str]
) -> tuple[Floats, tuple[str, ...]]:
    statements, free = parse_statements(text, names, ("action", "resource"), "usage")
    listed = tuple(resources) or tuple(dict.fromkeys(filter(None, free))) or (SERVICE,)
    faults = Faults()
    for one, resource in zip(statements, free, strict=True):
        if resource not in listed and (resource or len(listed) > 1):
            faults.add(one.where, f"unknown resource {quoted(resource)}; known are {', '.join(listed)}")
    raise_faults(faults, "usage")
    amounts = [
        broadcast(
            [one for one, of in zip(statements, free, strict=True) if (of or listed[0]) == resource],
            names.shape[:3],
            "usage",
        )
        for resource in listed
    ]
    joined = np.concatenate(amounts, axis=-1)
    # An action that has an amount of one resource uses nothing of those that its statements leave out.
    return np.where(np.isnan(joined).all(axis=-1, keepdims=True), np.nan, np.nan_to_num(joined)), listed


def _mean_use(log: Log, notes: list[str]) -> Floats:
    assert log.used is not None
    known = np.isfinite(log.used).all(axis=1)
    amounts = np.full((len(log.types), len(log.states), len(log.actions), log.used.shape[1]), np.nan)
    faults = Faults()
    wrong = np.flatnonzero((log.action == 0) & (np.nan_to_num(log.used) != 0).any(axis=1))
    for where in log.row_names(log.row[wrong].tolist()):
        faults.add(where, f"the idle action {quoted(log.actions[0])} uses something")
    raise_faults(faults, "used")
    for action, name in enumerate(log.actions):
        rows = log.used[known & (log.action == action)]
        if action > 0 and len(rows):
            amounts[:, :, action] = rows.mean(axis=0)
            if (np.ptp(rows, axis=0) > 0).any():
                notes.append(f"the use of {name} varies; the mean is taken")
    return amounts


def _check_usage(log: Log, amounts: Floats, resources: Sequence[str], source: str) -> None:
    faults = Faults()
    for name in log.pair_names(np.asarray(np.isnan(amounts).any(axis=-1))):
        faults.add(name, "has no usage; state 0 if it uses nothing")
    for t, s, a, k in np.argwhere(amounts < 0).tolist():
        used = f"{plain(amounts[t, s, a, k])} of {resources[k]}"
        faults.add(log.pair_name(t, s, a), f"uses {used}; expected at least 0")
    if (amounts[:, :, 0] != 0).any():
        faults.add("", f"the idle action {quoted(log.actions[0])} uses something, and must not")
    raise_faults(faults, source)


# Budget


def _budget(log: Log, usage: Floats, resources: Sequence[str], given: Any, notes: list[str]) -> Floats:
    """(resource,) given amounts; by default the most that was used in a step."""
    stated = {} if given is None else given
    faults = Faults()
    amounts = read_amounts(stated, resources, most_used(log, usage), faults)
    faults.raise_if_any("budget")
    named = {find_resource(str(name), resources) for name in stated} if isinstance(stated, Mapping) else set(resources)
    silent = [name for name in resources if name not in named]
    if silent:
        of = "" if len(silent) == len(resources) else f" of {', '.join(silent)}"
        listed = ", ".join(f"{name} {plain(amounts[resources.index(name)])}" for name in silent)
        notes.append(f"no budget{of} is given: it is the most that was used in a step: {listed}")
    return amounts


def most_used(log: Log, usage: Floats) -> Floats:
    """(resource,) largest use in a step of the records; at least 1.

    Args:
        log: the records.
        usage: (type, state, action, resource) amounts.
    """
    done = np.flatnonzero(log.action > 0)
    step = np.floor(log.time[done] / (1 if log.regular else log.step)).astype(np.int64)
    amounts = usage[log.type_of[log.arm[done]], log.state[done], log.action[done]]
    sums = [np.bincount(step, weights=amount).max(initial=0.0) for amount in amounts.T]
    return np.asarray(np.maximum(np.array(sums), 1.0))
