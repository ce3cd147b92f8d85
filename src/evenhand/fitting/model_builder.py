"""Problems from estimates: one block per type, or per type and group.

Blocks of one type have its name and its rows, in any group. The initial distribution of a block is that of the last
recorded states of its arms. Unknown rows are refused.
"""

from dataclasses import dataclass

import numpy as np

from evenhand.display import counted
from evenhand.errors import Fault, ModelError
from evenhand.fitting.log import Log
from evenhand.fitting.model_terms import Terms
from evenhand.model.arm import Arm
from evenhand.model.coupled import CoupledMDP
from evenhand.model.places import quoted
from evenhand.typing import Bools, Floats, Ints


def build_problem(log: Log, transitions: Floats, terms: Terms) -> CoupledMDP:
    """Build the problem.

    Args:
        log: the records.
        transitions: (type, state, action, next_state) probabilities; none may be NaN.
        terms: rewards, usage, budget and objective.

    Raises:
        ModelError: rows are unknown, or the parts are inconsistent; with every fault.
    """
    refuse_unknown(log, np.asarray(np.isnan(transitions).any(axis=-1)))
    refuse_unrewarded(log, np.isnan(terms.rewards))
    blocks = blocks_of(log)
    arms = [
        Arm(
            transitions=transitions[t],
            rewards=terms.rewards[t],
            usage=terms.usage[t],
            initial=initial,
            name=log.types[t],
            states=log.states,
            actions=log.actions,
        )
        for t, initial in zip(blocks.type.tolist(), blocks.initial, strict=True)
    ]
    return CoupledMDP(
        arms,
        budget=terms.budget,
        discount=terms.discount,
        counts=blocks.counts,
        resources=terms.resources,
        groups=[log.groups[g] for g in blocks.group.tolist()] if log.groups else (),
        criterion=terms.criterion,  # type: ignore[arg-type]  # text is read
        over=terms.over,  # type: ignore[arg-type]
        welfare=terms.welfare,
    )


@dataclass(frozen=True, eq=False)
class Blocks:
    """Active arms: one block per type, or per type and group."""

    type: Ints
    """(block,) its type."""

    group: Ints
    """(block,) its group; 0 if the records have none."""

    counts: Ints
    """(block,) number of arms."""

    initial: Floats
    """(block, state) shares of last recorded states."""


def blocks_of(log: Log) -> Blocks:
    """Blocks by type, then by group; those without arms are left out.

    Args:
        log: the records.
    """
    stays = np.ones(log.num_arms, dtype=bool) if log.left is None else ~log.left
    group = np.zeros(log.num_arms, dtype=np.int64) if log.group_of is None else log.group_of.astype(np.int64)
    cells, block = np.unique(np.stack([log.type_of, group], axis=1)[stays], axis=0, return_inverse=True)
    block = block.reshape(-1)
    numbers = np.zeros((len(cells), len(log.states)))
    np.add.at(numbers, (block, log.state[log.is_last][stays]), 1.0)
    counts = numbers.sum(axis=1)
    return Blocks(
        cells[:, 0].astype(np.int64), cells[:, 1], counts.astype(np.int64), np.asarray(numbers / counts[:, None])
    )


def num_arms(log: Log) -> Ints:
    """(type,) number of active arms."""
    blocks = blocks_of(log)
    return np.bincount(blocks.type, weights=blocks.counts, minlength=len(log.types)).astype(np.int64)


def refuse_unknown(log: Log, unknown: Bools) -> None:
    """Raise ModelError if there are unknown rows.

    Args:
        log: the records, with the names.
        unknown: (type, state, action) mask.
    """
    if not unknown.any():
        return
    number = int(unknown.sum())
    title = f"{counted(number, 'pair has', 'pairs have')} no records"
    how = 'give `unseen`: "idle" (as the idle action), "forbid" (never chosen), or a table of rows'
    idle = f"for the idle action, {quoted(log.actions[0])}, give `unseen` as a table, or the state as `absorbing`"
    ways = [how] * bool(unknown[:, :, 1:].any()) + [idle] * bool(unknown[:, :, 0].any())
    faults = [
        Fault("", "; ".join([title, *ways]), stands_for=0),
        *(Fault("", name) for name in log.pair_names(unknown)),
    ]
    raise ModelError(faults, "the records")


def refuse_unrewarded(log: Log, unknown: Bools) -> None:
    """Raise ModelError if there are pairs without a reward.

    Args:
        log: the records, with the names.
        unknown: (type, state, action) mask.
    """
    if unknown.any():
        raise ModelError([Fault("", f"{name}: has no reward") for name in log.pair_names(unknown)], "rewards")
