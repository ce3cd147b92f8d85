"""A programme's model: settled names, so that an arm is found by its type and group in any roster.

A model file may leave blocks without names or groups; they then go by their numbers, which change when a type has no
arm left. A *settled* model names every block and every group. How many arms there are is not in it: that is the
roster's to say (`of_roster`).
"""

import hashlib
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from evenhand.errors import Fault, ModelError, nearest
from evenhand.model import CoupledMDP, quoted
from evenhand.model.io import load, to_npz
from evenhand.typing import Array, Bools, Ints

if TYPE_CHECKING:
    from evenhand.programme.roster import RosterArm


def settle(problem: CoupledMDP) -> CoupledMDP:
    """The same arms, each block under a name and in a group, without welfare and names of arms.

    Raises:
        ModelError: blocks of one name and group differ, so that no table could tell them apart.
    """
    tables = problem.tables
    given = tables.labels or (("", (), ()),) * len(tables)
    labels = tuple(
        (name or str(kind), states, actions)
        for (name, states, actions), kind in zip(given, problem.type_of_block.tolist(), strict=True)
    )
    groups = [problem.group_names[number] for number in problem.group_of_block]
    settled = replace(
        problem,
        arms=replace(tables, labels=labels),
        resources=problem.resource_names,
        groups=groups,
        welfare=None,
        arm_names=(),
    )
    first: dict[tuple[str, str], int] = {}
    arrays: tuple[Array, ...] = (
        tables.transitions,
        tables.rewards,
        tables.usage,
        tables.num_states,
        tables.num_actions,
        problem.floors,
    )
    arrays = (*arrays, problem.max_waits)
    faults = []
    for block, name in enumerate(names_of(settled)):
        other = first.setdefault(name, block)
        if not all(np.array_equal(array[other], array[block]) for array in arrays):  # but for initial distributions
            content = f"is called {quoted(name[0])} as arms[{other}] is, in the same group, and differs from it"
            faults.append(Fault(f"arms[{block}]", f"{content}: a roster could not distinguish them"))
    if faults:
        raise ModelError(faults)
    return settled


def names_of(model: CoupledMDP) -> list[tuple[str, str]]:
    """(block,) the type and the group of each block of a settled model."""
    groups = [model.group_names[number] for number in model.group_of_block]
    return list(zip((label[0] for label in model.tables.labels), groups, strict=True))


def to_bytes(model: CoupledMDP) -> tuple[str, bytes]:
    """The digest and the bytes of a model, as an `.npz` file."""
    body = to_npz(model)
    return hashlib.sha256(body).hexdigest(), body


def from_bytes(body: bytes) -> CoupledMDP:
    """The model of some bytes."""
    return load(io.BytesIO(body), "npz")


def with_kinds(model: CoupledMDP, kinds: Iterable[Sequence[str]]) -> CoupledMDP:
    """Return the model with blocks of more groups, each with the tables of the same type in another group.

    Args:
        model: a settled one.
        kinds: (type, new group, group whose tables it takes); those that the model has are left out.
    """
    blocks = {name: block for block, name in reversed(list(enumerate(names_of(model))))}
    taken, groups = list(range(len(model.tables))), list(model.groups)
    for kind, group, other in kinds:
        if (kind, group) not in blocks:
            blocks[kind, group] = len(taken)
            taken.append(taken[blocks[kind, other]])
            groups.append(group)
    if len(taken) == len(model.tables):
        return model
    return replace(
        model,
        arms=model.tables.select(np.array(taken)),
        counts=model.counts[taken],
        groups=groups,
        floors=model.floors[taken],
        max_waits=model.max_waits[taken],
    )


def with_promises(model: CoupledMDP, promises: Iterable[Mapping[str, Any]]) -> CoupledMDP:
    """Return the model with promised waits, later ones over earlier ones.

    Args:
        model: a settled one.
        promises: each with a state, steps or None, and perhaps a type and a group.

    Raises:
        InvalidInputError: an unknown state, type or group, or steps that are not a whole number.
    """
    for row in promises:
        model = model.with_max_wait({row["state"]: row["steps"]}, type=row.get("type"), group=row.get("group"))
    return model


def of_roster(model: CoupledMDP, blocks: Sequence[int] | Ints, welfare: str | None = None) -> CoupledMDP:
    """The model with as many arms of each block as there are; blocks without any are left out.

    Args:
        model: a settled one.
        blocks: (arm,) the block of each arm that takes part.
        welfare: of the programme.
    """
    counts = np.bincount(np.asarray(blocks, dtype=np.int64), minlength=len(model.tables))
    nonempty = np.flatnonzero(counts)
    return replace(
        model,
        arms=model.tables.select(nonempty),
        counts=counts[nonempty],
        groups=[model.groups[block] for block in nonempty.tolist()],
        floors=model.floors[nonempty],
        max_waits=model.max_waits[nonempty],
        welfare=welfare,
    )


class Words:
    """The names of a settled model, and what they stand for."""

    def __init__(self, model: CoupledMDP) -> None:
        self.model = model
        self.blocks: dict[tuple[str, str], int] = {}
        for block, name in enumerate(names_of(model)):
            self.blocks.setdefault(name, block)  # of those that differ only in their start, the first
        labels, tables = model.tables.labels, model.tables
        self.states = [label[1] or _numbers(size) for label, size in zip(labels, tables.num_states, strict=True)]
        self.actions = [label[2] or _numbers(size) for label, size in zip(labels, tables.num_actions, strict=True)]

    def blocks_of(self, arms: "Sequence[RosterArm]") -> Ints:
        """(arm,) the block of each arm, whose type and group are known to be the model's."""
        return np.array([self.blocks[arm.type, arm.group] for arm in arms], dtype=np.int64)

    def actions_done(
        self, block: int, done: Mapping[tuple[int, int], str], arm: int, steps: Iterable[int]
    ) -> tuple[int | None, ...]:
        """Return the numbers of the actions done with an arm at some steps; None for idling."""
        names = (done.get((arm, step)) for step in steps)
        return tuple(None if name is None else self.actions[block].index(name) for name in names)

    @cached_property
    def fit_types(self) -> list[str]:
        """(block,) type of each block in a log: blocks of one name that move alike are one type."""
        tables = self.model.tables
        first: dict[str, int] = {}
        alike: dict[str, bool] = {}
        for (name, _), block in self.blocks.items():
            one = first.setdefault(name, block)
            alike[name] = alike.get(name, True) and np.array_equal(tables.transitions[one], tables.transitions[block])
        return [name if alike[name] else f"{name} ({group})" for name, group in names_of(self.model)]

    def idle_name(self, block: int) -> str:
        """Return the name of the idle action in the first state of a block."""
        return self.actions[block][int(self.model.tables.idle[block, 0])]

    def mask(self, names: Iterable[str]) -> Bools:
        """(block, state) states by name, in every type that has them, or in one as "type: state".

        Args:
            names: of the states; one that the model does not have selects nothing.
        """
        found = np.zeros(self.model.tables.rewards.shape[:2], dtype=np.bool_)
        wanted = set(names)
        for block, (label, states) in enumerate(zip(self.model.tables.labels, self.states, strict=True)):
            found[block, : len(states)] = [one in wanted or f"{label[0]}: {one}" in wanted for one in states]
        return found

    @cached_property
    def promised(self) -> list[str]:
        """States with a promised longest wait, as `mask` takes them: by type if there are several types."""
        types, found = [label[0] for label in self.model.tables.labels], list[str]()
        for kind, states, own in zip(types, self.states, self.model.max_waits.tolist(), strict=True):
            names = [name for name, wait in zip(states, own, strict=False) if wait >= 0]
            found += names if len(set(types)) == 1 else [f"{kind}: {name}" for name in names]
        return list(dict.fromkeys(found))

    def state(self, block: int, text: str, hint: bool = False) -> int | str:
        """The number of a state by its name or number; or what is wrong with it, perhaps with the nearest name."""
        return _find(text, self.states[block], "state", self.model.tables.labels[block][0], hint)

    def action(self, block: int, text: str, hint: bool = False) -> int | str:
        """The number of an action by its name or number; or what is wrong with it, perhaps with the nearest name."""
        return _find(text, self.actions[block], "action", self.model.tables.labels[block][0], hint)


def _numbers(size: int) -> tuple[str, ...]:
    return tuple(map(str, range(size)))


def _find(text: str, known: tuple[str, ...], what: str, kind: str, hint: bool) -> int | str:
    if text in known:
        return known.index(text)
    if text.isascii() and text.isdecimal() and len(text) < 10 and int(text) < len(known):
        return int(text)
    if not text:
        return f"has no {what}"
    alike = [number for number, name in enumerate(known) if name.casefold() == text.casefold()]
    if len(alike) == 1:
        return alike[0]
    near = nearest(text, known) if hint else None
    meant = f" Did you mean {quoted(near)}?" if near else ""
    return f"{quoted(text)} is an unknown {what} of type {quoted(kind)}.{meant} Known are {', '.join(known[:12])}"
