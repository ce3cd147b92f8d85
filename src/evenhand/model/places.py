"""Locations in a model by the names that its user gave.

A *place* is the path of a value, `arms[2].transitions[0][1]`; if the model has labels, faults name the same location as
`arm "Ford", state "poor", action "overhaul"`.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from evenhand.errors import Fault

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
