"""Labels of types, states, actions and resources, and locations in a model by these labels.

A type is all blocks whose arms are identical, so it has the names of all of them. If several types have one name, their
initial state, their group, or else their number is added.

A *place* is the path of a value, `arms[2].transitions[0][1]`; if the model has labels, faults name the same location as
`arm "Ford", state "poor", action "overhaul"`.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from evenhand.display import counted
from evenhand.errors import Fault

if TYPE_CHECKING:  # they import this module
    from evenhand.model.arm import ArmTables
    from evenhand.model.coupled import CoupledMDP
    from evenhand.model.simulator import Problem

# -- words ------------------------------------------------------------------------------------------------------------


class Labels:
    """The words of one problem."""

    def __init__(self, problem: "CoupledMDP") -> None:
        self.problem = problem
        types = problem.types
        self._labels = types.labels or (("", (), ()),) * len(types)
        self._bases, self._types = base_names(problem), type_names(problem)
        self._times = Counter(self._bases)

    def type(self, kind: int) -> str:
        """`Ford`, or `type 2`."""
        return self._types[kind]

    def base(self, kind: int) -> str:
        """`Ford`, also where several types are called so."""
        return self._bases[kind] or self.type(kind)

    def types(self, kinds: Sequence[int]) -> str:
        """`Ford and Opel`; `Ford from new, fair` where only some of a name are meant, by where they start."""
        by_base: dict[str, list[int]] = {}
        for kind in kinds:
            by_base.setdefault(self.base(kind), []).append(kind)
        names = []
        for base, own in by_base.items():
            whole = len(own) == self._times[base] or len(own) == 1
            start = f"{base} from "
            if len(own) > 1 and whole:
                names.append(base)
            elif whole or not all(self.type(kind).startswith(start) for kind in own):
                names += [self.type(kind) for kind in own]
            else:
                names.append(start + ", ".join(self.type(kind).removeprefix(start) for kind in own))
        if len(names) > 6:
            return f"{len(kinds)} types ({names[0]}, ...)"
        return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"

    def state(self, kind: int, state: int) -> str:
        """`poor`, or `2`."""
        states = self._labels[kind][1]
        return states[state] if states else str(state)

    def action(self, kind: int, action: int) -> str:
        """`overhaul`, or `2`."""
        actions = self._labels[kind][2]
        return actions[action] if actions else str(action)

    def doing(self, kind: int, action: int) -> str:
        """`overhaul`, or `action 2`, as it stands in a sentence."""
        return self.action(kind, action) if self._labels[kind][2] else f"action {action}"

    def being(self, kind: int, state: int) -> str:
        """`in poor`, or `in state 2`."""
        return f"in {self.state(kind, state)}" if self._labels[kind][1] else f"in state {state}"

    def resources(self, which: list[int]) -> str:
        """`bays and technicians`."""
        names = [self.problem.resource_names[number] for number in which]
        return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def one_more(name: str) -> str:
    """`one more bay`; `one unit more of crew` if the name is not the plural of an English word."""
    single = singular(name)
    return f"one more {single}" if single else f"one unit more of {name}"


def singular(name: str) -> str | None:
    """The name of one of many; None where it is not the plural of an English word."""
    if not name.replace(" ", "").isalpha() or not name.endswith("s") or name.endswith(("ss", "us", "is")):
        return None
    if name.endswith("ies") and len(name) > 4:
        return name[:-3] + "y"
    return name[:-2] if name.endswith(("ches", "shes", "xes", "sses")) else name[:-1]


def amount_of(name: str, amount: float) -> str:
    """`3 bays`, `1 bay`; `2 units of resource 0` where the name is not of things that are counted."""
    single = singular(name)
    if single is None:
        return f"{quantity(amount)} {'unit' if amount == 1 else 'units'} of {name}"
    return f"{quantity(amount)} {single if amount == 1 else name}"


def listed(texts: Iterable[str]) -> str:
    """`Ford, Opel`; parted by semicolons where a comma stands in one of them, outside of brackets."""
    items = list(texts)
    return ("; " if any("," in re.sub(r"\([^)]*\)", "", text) for text in items) else ", ").join(items)


def quantity(amount: float) -> float | int:
    """A whole number as such."""
    return int(amount) if float(amount).is_integer() else float(amount)


def as_key(name: str) -> str:
    """The name of a resource as parameters of built-in problems are written."""
    return name.lower().replace(" ", "_").replace("-", "_")


# -- names of types, blocks and arms ---------------------------------------------------------------------------------


def base_names(problem: "Problem", most: int = 3) -> list[str]:
    """(type,) names of its blocks, as `Ford` or `Ford, Opel`; empty if they have none.

    Args:
        problem: the problem.
        most: number of blocks whose names are listed.
    """
    blocks: list[dict[str, None]] = [{} for _ in range(problem.num_types)]
    for kind, (name, _, _) in zip(problem.type_of_block.tolist(), problem.tables.labels, strict=False):
        if name:
            blocks[kind][name] = None
    return [", ".join(list(own)[:most]) + (", …" if len(own) > most else "") for own in blocks]


def own_names(problem: "Problem") -> list[str]:
    """(type,) names that distinguish types, as `Ford from poor`; empty if there is none.

    Args:
        problem: the problem.
    """
    names = _with_starts(base_names(problem), problem.types)
    shared = Counter(names)
    if problem.over == "groups" and max(shared.values()) > 1:
        groups = [problem.group_names[number] for number in problem.group_of_type]
        names = [f"{n} of {g}" if n and shared[n] > 1 else n for n, g in zip(names, groups, strict=True)]
        shared = Counter(names)
    return [name if shared[name] == 1 or not name else f"{name} (type {kind})" for kind, name in enumerate(names)]


def type_names(problem: "Problem") -> list[str]:
    """(type,) unique names; `type 2` if it has none.

    Args:
        problem: the problem.
    """
    names = [name or f"type {kind}" for kind, name in enumerate(own_names(problem))]
    times = Counter(names)  # a block may be called "type 2"
    return [name if times[name] == 1 else f"{name} ({kind})" for kind, name in enumerate(names)]


def arm_names(problem: "Problem") -> list[str]:
    """(arm,) name of the block of each arm, with its initial state if others of the name have another.

    Args:
        problem: the problem.
    """
    if not problem.tables.labels:  # as of a simulator
        return [""] * problem.num_arms
    blocks = zip(block_names(problem), problem.counts.tolist(), strict=True)  # type: ignore[union-attr, arg-type]
    return [name for name, count in blocks for _ in range(count)]


def block_names(problem: "CoupledMDP") -> list[str]:
    """(block,) name of each block, with its initial state if others of the name have another; may be empty.

    Args:
        problem: the problem.
    """
    tables = problem.tables
    return _with_starts([name for name, _, _ in tables.labels] or [""] * len(tables), tables)


def _with_starts(names: list[str], tables: "ArmTables") -> list[str]:
    """Add the initial state to names of types or blocks that start in different states with certainty."""
    if max(Counter(filter(None, names)).values(), default=1) == 1:
        return names
    starts: dict[str, set[bytes]] = {}
    for name, start in zip(names, tables.initial, strict=True):
        starts.setdefault(name, set()).add(start.tobytes())
    found = []
    for number, name in enumerate(names):
        start, states = tables.initial[number], tables.labels[number][1] if tables.labels else ()
        if not name or len(starts[name]) == 1 or start.max() < 1:
            found.append(name)
        else:
            found.append(f"{name} from {states[start.argmax()] if states else f'state {start.argmax()}'}")
    return found


# -- places in a model ------------------------------------------------------------------------------------------------

Path: TypeAlias = tuple[str | int, ...]

LONGEST_NAME = 60
"""Number of shown letters of a name."""


AXES = {
    "transitions": ("state", "action", "next state"),
    "rewards": ("state", "action"),
    "usage": ("state", "action", "resource"),
    "initial": ("state",),
}
"""Axes of the arrays of an arm."""


def path_of(place: str) -> Path | None:
    """Split a place into keys and indices; None if it contains an unusual key."""
    if not re.fullmatch(r"[\w-]+(\[\d+\]|\.[\w-]+)*", place):
        return None
    parts = re.findall(r"\[(\d+)\]|([\w-]+)", place)
    return tuple(int(index) if index else key for index, key in parts)


@dataclass(frozen=True)
class Names:
    """Names of an arm and its parts; empty if they have none."""

    name: str = ""
    """Name of the arm."""

    states: Sequence[str] = ()
    """A label for each state, or none."""

    actions: Sequence[str] = ()
    """A label for each action, or none."""

    by_state: bool = False
    """True if usage has an axis of states."""

    @classmethod
    def of(cls, arm: object) -> "Names":
        """Read the names of an arm, or of its table in a document; either may be invalid."""
        keys = ("name", "states", "actions", "usage")
        name, states, actions, usage = (
            arm.get(key) if isinstance(arm, dict) else getattr(arm, key, None) for key in keys
        )
        own = name if isinstance(name, str) else ""
        return cls(own, _texts(states), _texts(actions), by_state=depth_of(usage) > 2)


def depth_of(value: object) -> int:
    """Number of axes of nested lists, by their first entries."""
    depth = 0
    while isinstance(value, (list, tuple, np.ndarray)) and len(value):
        depth, value = depth + 1, value[0]
    return depth


def _texts(value: object) -> tuple[str, ...]:
    sound = isinstance(value, (list, tuple)) and all(isinstance(entry, str) for entry in value)
    return tuple(value) if sound else ()  # type: ignore[arg-type]  # a list, by the check above


def quoted(name: str) -> str:
    """Quote a name for a message: printable, and of limited length."""
    shown = name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 3] + "..."
    # JSON leaves some characters that terminals do not show.
    text = json.dumps(shown, ensure_ascii=False)
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def with_words(faults: Iterable[Fault], blocks: Sequence[Names], resources: object = ()) -> list[Fault]:
    """Add to each fault its place by the names of the model, if there are any.

    Args:
        faults: faults of a whole model.
        blocks: names of each of its arms.
        resources: names of its resources.
    """
    times, known = Counter(block.name for block in blocks), _texts(resources)
    return [replace(fault, words=_words(fault, blocks, times, known)) for fault in faults]


def with_words_of_arm(faults: Iterable[Fault], names: Names) -> list[Fault]:
    """Add names to the faults of one arm, whose places begin within it."""
    named = with_words([fault.within("arms[0]") for fault in faults], [names])
    return [
        replace(fault, words=full.words.removeprefix("arms[0], ")) for fault, full in zip(faults, named, strict=True)
    ]


def _words(fault: Fault, blocks: Sequence[Names], times: Counter[str], resources: tuple[str, ...]) -> str:
    path = path_of(fault.place) or ()
    # Two kinds of places have names: entries of the budget, and entries of an arm.
    if len(path) == 2 and path[0] == "budget" and (label := _label(resources, path[1])):
        return f"budget of {label}"
    if len(path) < 2 or path[0] != "arms" or not isinstance(path[1], int) or path[1] >= len(blocks):
        return ""
    names = blocks[path[1]]
    arm = called(names.name, path[1], times[names.name] > 1)
    if len(path) == 2:
        return arm if names.name else ""
    inside = _inside(path[2:], names, resources, fault.message)
    plain = fault.place.removeprefix(f"arms[{path[1]}].")
    return f"{arm}, {inside or plain}" if inside or names.name else ""


def called(name: str, index: int, ambiguous: bool = False) -> str:
    """Return `arm "Ford"`; its number if it has no name, both if the name is ambiguous."""
    number = f"arms[{index}]"
    return number if not name else f"arm {quoted(name)} ({number})" if ambiguous else f"arm {quoted(name)}"


def _inside(path: Path, names: Names, resources: tuple[str, ...], message: str) -> str:
    """Place within an arm by its labels; empty if it has none."""
    key, indices = path[0], path[1:]
    # Usage by action lacks the first axis.
    axes = AXES.get(str(key), ())[0 if names.by_state or key != "usage" else 1 :]
    known = {"state": names.states, "action": names.actions, "next state": names.states, "resource": resources}
    if not indices or len(indices) > len(axes):
        return ""
    labels = [_label(known[axis], index) for axis, index in zip(axes, indices, strict=False)]
    if not any(labels):
        return ""
    parts = [f"{axis} {label or index}" for axis, label, index in zip(axes, labels, indices, strict=False)]
    plain = key == "transitions" and message.startswith("probabilit")  # the message names it
    return ("" if plain else f"{key} of ") + ", ".join(parts)


def _label(labels: Sequence[str], index: str | int) -> str:
    # A label of two states is ambiguous.
    if not isinstance(index, int) or index >= len(labels) or labels.count(labels[index]) > 1:
        return ""
    return quoted(labels[index])


def promises_in_words(problem: "CoupledMDP", most: int = 5) -> list[str]:
    """One promise per line: `pump in broken: served after at most 4 steps`.

    Args:
        problem: the problem.
        most: types that a line names.
    """
    found: dict[tuple[str, int], list[str]] = {}
    for kind, name in enumerate(type_names(problem)):
        for promise in problem.waits_of(int(np.argmax(problem.type_of_block == kind))).items():
            found.setdefault(promise, []).append(name)
    texts = []
    for (state, steps), names in found.items():
        more = f" and {len(names) - most} more" if len(names) > most else ""
        who = "every arm" if len(names) == problem.num_types else ", ".join(names[:most]) + more
        when = f"after at most {counted(steps, 'step')}" if steps else "at every step"
        texts.append(f"{who} in {state}: served {when}")
    return texts
