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
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from evenhand.checks import Faults, plain
from evenhand.display import counted
from evenhand.errors import Fault, InvalidInputError
from evenhand.fitting.log import NOTHING, Log
from evenhand.fitting.options import ModelOptions
from evenhand.fitting.stated_values import is_text, read_statements, rows_of_text
from evenhand.model.coupled import find_resource, read_amounts
from evenhand.model.io.text_table import raise_faults
from evenhand.model.labels import quoted
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

    objective: Mapping[str, Any] = field(default_factory=lambda: {"discount": DISCOUNT})
    """Discount, and if stated criterion, welfare and over."""

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
    objective = {"discount": DISCOUNT}
    for name in ("discount", "criterion", "welfare", "over"):
        if (value := getattr(stated, name)) is not None:
            objective[name] = value
    return Terms(means, amounts, names, spent, objective, tuple(notes))


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
    if log.reward is not None and stated is not None:
        raise InvalidInputError("rewards: give one of reward and rewards")
    if log.reward is not None:
        return mean_per_pair(log, log.reward, pool)
    if stated is None:
        return None
    if is_text(stated):
        rows = rows_of_text(stated, log.states, "rewards")
        stated = [{"state": state, "action": action, "reward": value} for state, action, value in rows]
    table = read_statements(stated, log, "rewards", ("reward", "cost"))
    means = table.values(log.shape)[..., 0]
    return means if table.figures == ("reward",) else 0.0 - means


def mean_per_pair(log: Log, figures: Floats, pool: bool) -> Floats:
    """(type, state, action) means of a figure of the rows; NaN if unknown.

    Args:
        log: the records.
        figures: (row,) the figure, NaN if missing.
        pool: whether sparse means are shrunk towards the other types, by the equations of the head.
    """
    shape, known = log.shape, np.isfinite(figures) & (log.action != NOTHING)
    cells = np.ravel_multi_index((log.type_at[known], log.state[known], log.action[known]), shape)

    def sums(weights: Floats | None = None) -> Floats:
        return np.bincount(cells, weights, int(np.prod(shape))).reshape(shape).astype(np.float64)

    numbers = sums()
    means: Floats = np.where(numbers > 0, sums(figures[known]) / np.maximum(numbers, 1), np.nan)
    if not pool or shape[0] == 1:
        return means
    squares = sums((figures[known] - means.reshape(-1)[cells]) ** 2)
    freedom = np.maximum(numbers - 1, 0).sum(axis=0)
    overall = squares.sum() / freedom.sum() if freedom.sum() else np.inf
    noise = np.where(freedom > 0, squares.sum(axis=0) / np.maximum(freedom, 1), overall)
    seen, total, means = numbers > 0, numbers.sum(axis=0), np.nan_to_num(means)
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
    source = "usage"
    if log.used is not None and stated is not None:
        raise InvalidInputError("usage: give one of used and usage")
    if log.used is not None:
        amounts, found, source = _mean_use(log, notes), log.resources, "used"
    elif stated is not None:
        table = read_statements(_usage_rows(stated, log, resources) if is_text(stated) else stated, log, "usage")
        amounts, found, source = table.values(log.shape), table.figures, table.source
    elif len(resources) > 1:
        raise InvalidInputError(f"usage: {len(resources)} resources are named; state what actions use of each")
    else:
        amounts, found = np.ones((*log.shape, 1)), tuple(resources) or (SERVICE,)
        amounts[:, :, 0] = 0.0
        notes.append(f"every action but {log.actions[0]} uses one unit of {found[0]}")
    amounts[:, :, 0] = np.nan_to_num(amounts[:, :, 0])
    missing = log.pair_names(np.asarray(np.isnan(amounts).any(axis=-1)))
    faults = [Fault(name, "has no usage; state 0 if it uses nothing") for name in missing]
    for t, s, a, k in np.argwhere(amounts < 0).tolist():
        amount = f"{plain(amounts[t, s, a, k])} of {found[k]}"
        faults.append(Fault(log.pair_name(t, s, a), f"uses {amount}; expected at least 0"))
    if (amounts[:, :, 0] != 0).any():
        faults.append(Fault("", f"the idle action {quoted(log.actions[0])} uses something, and must not"))
    raise_faults(faults, source)
    if resources and sorted(resources) != sorted(found):
        raise InvalidInputError(f"resources: expected {', '.join(found)}, as in {source}, got {', '.join(resources)}")
    order = [found.index(name) for name in resources or found]
    return amounts[..., order], tuple(found[i] for i in order)


def _usage_rows(text: str | Mapping[str, float], log: Log, resources: Sequence[str]) -> list[dict[str, str]]:
    """One row per action: of resources that its terms leave out it uses nothing."""
    terms = rows_of_text(text, log.actions, "usage")
    listed = tuple(resources) or tuple(dict.fromkeys(of for _, of, _ in terms if of)) or (SERVICE,)
    unknown = [(action, of) for action, of, _ in terms if of not in listed and (of or len(listed) > 1)]
    known = ", ".join(listed)
    raise_faults([Fault(quoted(a), f"unknown resource {quoted(of)}; known are {known}") for a, of in unknown], "usage")
    rows: dict[str, dict[str, str]] = {}
    for action, resource, value in terms:
        row = rows.setdefault(action, {"action": action, **dict.fromkeys(listed, "0")})
        row[resource or listed[0]] = value
    return list(rows.values())


def _mean_use(log: Log, notes: list[str]) -> Floats:
    assert log.used is not None
    known = np.isfinite(log.used).all(axis=1)
    amounts = np.full((*log.shape, log.used.shape[1]), np.nan)
    faults = log.faults("used")
    idle_use = (log.action == 0) & (np.nan_to_num(log.used) != 0).any(axis=1)
    faults.flag(idle_use, f"the idle action {quoted(log.actions[0])} uses something")
    faults.raise_if_any()
    for action, name in enumerate(log.actions):
        rows = log.used[known & (log.action == action)]
        if action > 0 and len(rows):
            amounts[:, :, action] = rows.mean(axis=0)
            if (np.ptp(rows, axis=0) > 0).any():
                notes.append(f"the use of {name} varies; the mean is taken")
    return amounts


def _budget(log: Log, usage: Floats, resources: Sequence[str], given: Any, notes: list[str]) -> Floats:
    """(resource,) given amounts; by default the most that was used in a step of the records, at least 1."""
    done = np.flatnonzero(log.action > 0)
    step = np.floor(log.time[done] / (1 if log.regular else log.step)).astype(np.int64)
    used = usage[log.type_at[done], log.state[done], log.action[done]]
    most = np.array([max(np.bincount(step, weights=amount).max(initial=0.0), 1.0) for amount in used.T])
    stated = {} if given is None else given
    faults = Faults()
    amounts = read_amounts(stated, resources, most, faults)
    faults.raise_if_any("budget")
    named = {find_resource(str(name), resources) for name in stated} if isinstance(stated, Mapping) else set(resources)
    silent = [name for name in resources if name not in named]
    if silent:
        of = "" if len(silent) == len(resources) else f" of {', '.join(silent)}"
        listed = ", ".join(f"{name} {plain(amounts[resources.index(name)])}" for name in silent)
        notes.append(f"no budget{of} is given: it is the most that was used in a step: {listed}")
    return amounts
