"""What a model needs beside its transitions: rewards, usage, budget, objective.

What nobody says is a plain default, and told: nothing is worth anything until rewards are given; every action but the
idle one uses one unit of one resource; the budget is what was used in the step of the records that used most.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evenhand.checks import Faults, plain
from evenhand.display import counted
from evenhand.fitting.log import Log
from evenhand.fitting.rewards import rewards_of
from evenhand.fitting.usage import Usage, usage_of
from evenhand.model.coupled import find_resource, read_amounts
from evenhand.typing import Bools, Floats

DISCOUNT = 0.95
"""Where nobody says another."""


@dataclass(frozen=True, eq=False)
class Terms:
    """What a model needs and records alone do not say."""

    rewards: Floats
    """(type, state, action) of a step; NaN where nothing says."""

    usage: Floats
    """(type, state, action, resource) amounts."""

    resources: tuple[str, ...]
    """(resource,) names."""

    budget: Floats
    """(resource,) what there is at every step."""

    discount: float = DISCOUNT
    """What a reward one step later is worth."""

    criterion: str = "discounted"
    """What rewards over time are worth."""

    welfare: str | None = None
    """How values are weighed."""

    over: str = "arms"
    """Whose values are weighed."""

    notes: tuple[str, ...] = ()
    """What was taken for granted, in words."""


def read_terms(
    log: Log,
    unseen: Bools,
    *,
    rewards: Any = None,
    reward_of: str | Mapping[str, float] | None = None,
    cost_of: str | Mapping[str, float] | None = None,
    usage: Any = None,
    usage_of_actions: str | Mapping[str, float] | None = None,
    resources: Sequence[str] = (),
    budget: Any = None,
    pool: bool = True,
    **objective: Any,
) -> Terms:
    """What the user and the records say of rewards, usage, budget and objective.

    Args:
        log: the records.
        unseen: (type, state, action) pairs that were never seen: what they are worth may be as unknown as what they do.
        rewards: a file or table of rewards.
        reward_of: rewards of states in words.
        cost_of: costs of actions in words.
        usage: a file or table of what actions use.
        usage_of_actions: the same in words.
        resources: names of the resources.
        budget: of each resource.
        pool: whether sparse rewards of a column lean on those of other types.
        objective: discount, criterion, welfare, over; None where nothing is said.
    """
    notes: list[str] = []
    used = usage_of(log, file=usage, words=usage_of_actions, resources=resources)
    if usage is None and usage_of_actions is None and log.used is None:
        notes.append(f"every action but {log.actions[0]} uses one unit of {used.resources[0]}")
    notes += [f"what {action} uses varies; the mean is taken" for action in used.varying]
    budget = _budget(log, used, budget, notes)
    if objective.get("discount") is None and (objective.get("criterion") or "discounted") == "discounted":
        notes.append(f"no discount is given: it is {DISCOUNT}")
    worth = _rewards(log, unseen, notes, file=rewards, words=reward_of, costs=cost_of, pool=pool)
    said = {key: value for key, value in objective.items() if value is not None}
    return Terms(worth, used.amounts, used.resources, budget, notes=tuple(notes), **said)


def _budget(log: Log, used: Usage, given: Any, notes: list[str]) -> Floats:
    """(resource,) what was said, and of resources that nobody spoke of the most that was used in a step."""
    most = most_used(log, used.amounts)
    said = {} if given is None else given
    faults = Faults()
    amounts = read_amounts(said, used.resources, most, faults)
    faults.raise_if_any("budget")
    silent = set(used.resources)
    if given is not None:
        named = [find_resource(str(name), used.resources) for name in said] if isinstance(said, Mapping) else silent
        silent = silent - set(named)
    if silent:
        of = "" if len(silent) == len(used.resources) else f" of {', '.join(n for n in used.resources if n in silent)}"
        listed = ", ".join(
            f"{name} {plain(b)}" for b, name in zip(amounts, used.resources, strict=True) if name in silent
        )
        notes.append(f"no budget{of} is given: it is the most that was used in a step: {listed}")
    return amounts


def _rewards(log: Log, unseen: Bools, notes: list[str], **said: Any) -> Floats:
    found = rewards_of(log, **said)
    if found is None:
        notes.append("no rewards are given: all of them are 0, and the model has to say what states are worth")
        return np.zeros(unseen.shape)
    unknown = np.isnan(found.means) & unseen & np.isfinite(found.means[:, :, :1])
    if unknown.any():
        told = counted(int(unknown.sum()), "pair that was never seen is", "pairs that were never seen are")
        notes.append(f"{told} taken to be worth what {log.actions[0]} is in the same state")
    return np.asarray(np.where(unknown, found.means[:, :, :1], found.means))


def most_used(log: Log, usage: Floats) -> Floats:
    """(resource,) what was used in the step of the records that used most; at least 1."""
    done = np.flatnonzero(log.action > 0)
    step = np.floor(log.time[done] / (1 if log.regular else log.step)).astype(np.int64)
    amounts = usage[log.type_of[log.arm[done]], log.state[done], log.action[done]]
    sums = [np.bincount(step, weights=amount).max(initial=0.0) for amount in amounts.T]
    return np.asarray(np.maximum(np.array(sums), 1.0))
