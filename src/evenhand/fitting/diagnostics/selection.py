"""Selection of arms for service: a comparison of served and idle arms.

Actions in records are rarely random. Effects compare arms in the same state, so a choice by the state alone
does no harm; one by more confounds effects. The condition before treatment counts: an
arm that is served all the time is better off because of it. So rows that directly follow a service of the arm are left
out, and of the others only those are compared that are as old, in rows of the arm, as some row in which a service
begins: in a trial that gives each arm one action throughout these are the first rows. Four tests (see `tables`) on
these rows, the outcome always the action:

    by_state   context the type,              groups the states: did the choice look at the state?
    by_before  context the type and state,    groups the states one step before: did it look at more?
    by_time    context the type and state,    groups early and late: did the rule change?
    by_type    context the state,             groups the types: had each type a rule of its own?
"""

from dataclasses import dataclass

import numpy as np

from evenhand.fitting.diagnostics.format import chance, first_largest, percent
from evenhand.fitting.diagnostics.homogeneity import LEVEL, HomogeneityTest, homogeneity
from evenhand.fitting.diagnostics.steps import follows, late, tally
from evenhand.fitting.log import NOTHING, Log
from evenhand.typing import Array, Floats, Ints

CANNOT = (
    "effects compare arms in the same recorded state; if the choice used more than the state, effects may be "
    "confounded, which records cannot show; some randomised choices would"
)
"""Limit of observational records, in words."""

FOUND = (
    "arms in the same state were served by where they had been before ({}): the choice depended on more than "
    "the state, so effects may be confounded",
    "in the same state the choice changed between early and late ({})",
    "in the same state types were served unlike ({})",
)
"""Sentences on the state before, time and type."""


@dataclass(frozen=True)
class Choices:
    """Selection of arms for service."""

    served: int
    """Rows in which a service begins: another action than the idle one, not after another service."""

    idle: int
    """Rows with the idle action, not after a service."""

    states: tuple[str, ...]
    """(state,) their names."""

    served_in: tuple[float, ...]
    """(state,) shares of the states among served rows."""

    idle_in: tuple[float, ...]
    """(state,) shares among those that were not."""

    worth: tuple[float, float] | None
    """Mean value of the states of served and of idle rows; None without rewards."""

    by_state: HomogeneityTest
    """Test whether the choice depended on the state."""

    by_before: HomogeneityTest | None
    """Test whether, in the same state, it depended on the state before; None if that was never recorded."""

    by_time: HomogeneityTest | None
    """Test whether, in the same state, it changed between the early and the late half; None for one time only."""

    by_type: HomogeneityTest | None
    """Test whether, in the same state, types were treated unlike; None for one type."""

    @property
    def words(self) -> tuple[str, ...]:
        """Sentences; the last says what cannot be concluded."""
        odds = chance(self.by_state.adjusted)
        said = [f"who got served was in the same states as who did not, as far as can be seen ({odds})"]
        if self.by_state.adjusted < LEVEL:
            state = first_largest(np.array(self.served_in) - np.array(self.idle_in))
            served, others = percent(self.served_in[state]), percent(self.idle_in[state])
            off = "not like the others"
            if self.worth is not None and abs(self.worth[0] - self.worth[1]) >= 1e-9 * max(map(abs, self.worth)):
                off = "worse off" if self.worth[0] < self.worth[1] else "better off"
            shares = f"{served} of the served were in {self.states[state]}, {others} of the others"
            said = [f"who got served was {off}: {shares} ({odds})"]
        for test, sentence in zip((self.by_before, self.by_time, self.by_type), FOUND, strict=True):
            if test and test.adjusted < LEVEL:
                said.append(sentence.format(chance(test.adjusted)))
        return (*said, CANNOT)


def choices(log: Log, worth: Floats | None, rng: np.random.Generator) -> Choices | str:
    """Compare who was served with who was not; or say why not.

    Args:
        log: the records.
        worth: (type, state) reward of a step under the idle action; None if unknown.
        rng: for tables that are drawn.
    """
    counts, halves = _counted(log)
    served, idle = counts[..., 1:].sum(axis=-1), counts[..., 0]
    if not served.any() or not idle.any():
        given = log.action[log.action != NOTHING] > 0
        some = "every row was served" if given.all() else "no arm was idle where others began to be served"
        return some if given.any() else "no action but the idle one was recorded"
    types, states = counts.shape[1], counts.shape[3]
    owns = (types * states, counts.shape[4])
    # (half, type, before, state, action): what is not a group or part of the context is summed over.
    by_before = np.moveaxis(counts[:, :, 1:].sum(axis=0), 1, 0).reshape(states, *owns)
    means = None
    if worth is not None:  # over (half, type, before, state) rows
        shares = [who.sum(axis=(0, 2)) / who.sum() for who in (served, idle)]
        means = float((worth * shares[0]).sum()), float((worth * shares[1]).sum())
    served_in, idle_in = (tuple((who.sum(axis=(0, 1, 2)) / who.sum()).tolist()) for who in (served, idle))
    by_state = homogeneity(np.moveaxis(counts.sum(axis=(0, 2)), 1, 0), rng)
    others = (
        homogeneity(by_before, rng) if by_before.any() else None,
        homogeneity(counts.sum(axis=2).reshape(2, *owns), rng) if halves else None,
        homogeneity(counts.sum(axis=(0, 2)), rng) if types > 1 else None,
    )
    numbers = int(served.sum()), int(idle.sum())
    return Choices(*numbers, log.states, served_in, idle_in, means, by_state, *others)


def _counted(log: Log) -> tuple[Ints, bool]:
    """(half, type, before, state, action) rows that are compared; and whether there are two halves of time.

    Compared are rows in which an action was chosen in a condition before treatment, at an age at which a service
    begins. The state before is numbered from 1; 0 where it was not recorded.
    """
    before = np.zeros(len(log.arm), dtype=np.int32)
    before[1:] = np.where(follows(log)[:-1], log.state[:-1] + 1, 0)
    first = np.append(True, log.arm[1:] != log.arm[:-1])
    age = np.arange(len(log.arm)) - np.flatnonzero(first)[np.cumsum(first) - 1]
    fresh = (log.action != NOTHING) & (first | (np.append(0, log.action[:-1]) <= 0))
    begins = np.bincount(age, fresh & (log.action > 0)) > 0
    untreated = fresh & begins[age]
    columns: list[Array] = [log.time, log.type_of[log.arm], before, log.state, log.action]
    time, *others = columns if untreated.all() else [column[untreated] for column in columns]
    is_late = late(time)
    half = np.zeros(len(time), dtype=np.bool_) if is_late is None else is_late
    shape = (2, len(log.types), len(log.states) + 1, len(log.states), len(log.actions))
    return tally([half, *others], shape), is_late is not None
