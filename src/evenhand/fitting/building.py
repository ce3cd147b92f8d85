"""From what was estimated to a problem: a block for each type, with the number of its arms.

Where arms begin (`initial`) is where they were last seen: of each type, the share of its arms whose records end in each
state. A plan made now begins there. A row of which nothing is known is refused: nothing is made up for it.
"""

from collections.abc import Mapping

import numpy as np

from evenhand.display import counted
from evenhand.errors import Fault, ModelError
from evenhand.fitting.log import Log
from evenhand.fitting.terms import Terms
from evenhand.model.arm import Arm
from evenhand.model.coupled import CoupledMDP
from evenhand.model.places import quoted
from evenhand.typing import Bools, Floats, Ints

SHOWN_PAIRS = 20
"""Pairs that are named one by one."""


def build_problem(log: Log, transitions: Floats, terms: Terms) -> CoupledMDP:
    """The problem that a model file describes.

    Args:
        log: who the arms are, and where.
        transitions: (type, state, action, next_state) probabilities, of which none may be unknown.
        terms: everything else.

    Raises:
        ModelError: rows are not known, or something does not go together; with every fault.
    """
    refuse_unknown(log, np.asarray(np.isnan(transitions).any(axis=-1)))
    refuse_worthless(log, np.isnan(terms.rewards))
    initial = last_seen(log)
    arms = [
        Arm(
            transitions=transitions[t],
            rewards=terms.rewards[t],
            usage=terms.usage[t],
            initial=initial[t],
            name=name,
            states=log.states,
            actions=log.actions,
        )
        for t, name in enumerate(log.types)
    ]
    named = isinstance(terms.budget, Mapping)
    problem = CoupledMDP(
        arms,
        budget=np.zeros(len(terms.resources)) if named else terms.budget,
        discount=terms.discount,
        counts=num_arms(log),
        resources=terms.resources,
        criterion=terms.criterion,  # type: ignore[arg-type]  # text is read
        over=terms.over,  # type: ignore[arg-type]
        welfare=terms.welfare,
    )
    return problem.with_budget(terms.budget) if named else problem


def num_arms(log: Log) -> Ints:
    """(type,) how many arms were seen of each."""
    return np.bincount(log.type_of, minlength=len(log.types)).astype(np.int64)


def last_seen(log: Log) -> Floats:
    """(type, state) the share of the arms of a type whose records end in each state."""
    last = log.is_last
    numbers = np.zeros((len(log.types), len(log.states)))
    np.add.at(numbers, (log.type_of[log.arm[last]], log.state[last]), 1.0)
    return np.asarray(numbers / np.maximum(numbers.sum(axis=1, keepdims=True), 1))


def pairs_in_words(log: Log, pairs: Bools, named: int = SHOWN_PAIRS) -> list[str]:
    """Pairs by their names, up to a limit: `type "Ford", state "poor", action "overhaul"`."""
    found = np.argwhere(pairs)
    single = len(log.types) == 1
    told = [
        f"{'' if single else f'type {quoted(log.types[t])}, '}state {quoted(log.states[s])}, action "
        f"{quoted(log.actions[a])}"
        for t, s, a in found[:named].tolist()
    ]
    return told + ([f"and {len(found) - named} more"] if len(found) > named else [])


def refuse_unknown(log: Log, unknown: Bools) -> None:
    """Raise ModelError if there are rows of which nothing is known: they need the user's word.

    Args:
        log: names them.
        unknown: (type, state, action) which.
    """
    if not unknown.any():
        return
    number = int(unknown.sum())
    title = f"{counted(number, 'pair was', 'pairs were')} never seen, and nothing is made up for them"
    how = "say what they do with --unseen idle (as the idle action does), --unseen forbid (never), or --unseen FILE"
    faults = [Fault("", f"{title}; {how}"), *(Fault("", told) for told in pairs_in_words(log, unknown))]
    raise ModelError(faults, "the records")


def refuse_worthless(log: Log, unknown: Bools) -> None:
    """Raise ModelError if there are pairs without a reward where others have one.

    Args:
        log: names them.
        unknown: (type, state, action) which.
    """
    if unknown.any():
        raise ModelError([Fault("", f"{told}: has no reward") for told in pairs_in_words(log, unknown)], "rewards")
