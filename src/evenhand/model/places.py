"""Where in a model something stands: by the names that its user gave, and as a line of the file.

A *place* is how faults are noted, `arms[2].transitions[0][1]`; a *path* is the same in parts, ("arms", 2,
"transitions", 0, 1).

    in words    arm "Ford", state "poor", action "overhaul"          where the model has these names
    as a line   17

The readers of TOML and JSON give values without their positions. Here the text is walked once more, along the paths
that are asked for and past everything else. What the walk does not understand ends it, and a line is told only if the
text that stands there, read by itself, is the value that the document has under the path: no line rather than a wrong
one.
"""

import json
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from evenhand.errors import Fault

Path: TypeAlias = tuple[str | int, ...]

MOST_SEARCHED = 50_000_000
"""Characters of the longest text in which lines are looked for."""

LONGEST_NAME = 60
"""Letters of a name that are shown."""


def path_of(place: str) -> Path | None:
    """A place in parts; None where it holds a key that is not plain."""
    # Anything else in a place came from a strange key of the file, and leads nowhere.
    if not re.fullmatch(r"[\w-]+(\[\d+\]|\.[\w-]+)*", place):
        return None
    parts = re.findall(r"\[(\d+)\]|([\w-]+)", place)
    return tuple(int(index) if index else key for index, key in parts)


# In words


@dataclass(frozen=True)
class Names:
    """What a user called an arm and its parts; empty where they have no names."""

    name: str = ""
    """Of the arm."""

    states: Sequence[str] = ()
    """A label for each state, or none."""

    actions: Sequence[str] = ()
    """A label for each action, or none."""

    by_state: bool = False
    """Whether usage depends on the state, and so has an axis more."""

    @classmethod
    def of_block(cls, block: object) -> "Names":
        """As a document has them, sound or not.

        Args:
            block: one of its arms.
        """
        if not isinstance(block, dict):
            return cls()
        name, depth, usage = block.get("name"), 0, block.get("usage")
        # Depth by the first entries: usage by action is a list of lists, usage by state has one level more.
        while isinstance(usage, list) and usage:
            depth, usage = depth + 1, usage[0]
        states, actions = (_texts(block.get(key)) for key in ("states", "actions"))
        return cls(name if isinstance(name, str) else "", states, actions, by_state=depth > 2)


def _texts(value: object) -> tuple[str, ...]:
    sound = isinstance(value, (list, tuple)) and all(isinstance(entry, str) for entry in value)
    return tuple(value) if sound else ()  # type: ignore[arg-type]  # a list, as was just seen


def quoted(name: str) -> str:
    """A name in quotes, without what would break a line, and not too long."""
    shown = name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 3] + "..."
    # Quoting as JSON does; then what JSON leaves alone but terminals do not show.
    text = json.dumps(shown, ensure_ascii=False)
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def with_words(
    faults: Iterable[Fault], blocks: Sequence[Names], resources: object = (), labelled: bool = False
) -> list[Fault]:
    """The same faults, each with its place by the names of the model where there are any.

    Args:
        faults: faults of a whole model.
        blocks: the names of each of its arms.
        resources: the names of its resources.
        labelled: only where what is within an arm has a label, too.
    """
    times, known = Counter(block.name for block in blocks), _texts(resources)
    return [replace(fault, words=_words(fault, blocks, times, known, labelled)) for fault in faults]


def with_words_of_arm(faults: Iterable[Fault], names: Names) -> list[Fault]:
    """The same for the faults of one arm, whose places begin within it."""
    named = with_words([fault.within("arms[0]") for fault in faults], [names])
    return [
        replace(fault, words=full.words.removeprefix("arms[0], ")) for fault, full in zip(faults, named, strict=True)
    ]


def _words(
    fault: Fault, blocks: Sequence[Names], times: Counter[str], resources: tuple[str, ...], labelled: bool
) -> str:
    path = path_of(fault.place) or ()
    # Only two kinds of places have names: entries of the budget, and what lies in an arm.
    if len(path) == 2 and path[0] == "budget" and (label := _label(resources, path[1])):
        return f"budget of {label}"
    if len(path) < 2 or path[0] != "arms" or not isinstance(path[1], int) or path[1] >= len(blocks):
        return ""
    names = blocks[path[1]]
    arm = called(names.name, path[1], times[names.name] > 1)
    if len(path) == 2:
        return arm if names.name else ""
    inside = _inside(path[2:], names, resources, fault.message)
    # Without labels inside, the arm's name alone says which of many it is; the place within it stays as it is.
    plain = fault.place.removeprefix(f"arms[{path[1]}].")
    return f"{arm}, {inside or plain}" if inside or (names.name and not labelled) else ""


def called(name: str, index: int, ambiguous: bool = False) -> str:
    """An arm as people call it: `arm "Ford"`; by its number where it has no name, or is not the only one of it."""
    number = f"arms[{index}]"
    return number if not name else f"arm {quoted(name)} ({number})" if ambiguous else f"arm {quoted(name)}"


def _inside(path: Path, names: Names, resources: tuple[str, ...], message: str) -> str:
    """What stands within an arm, by its labels; empty where it has none."""
    key, indices = path[0], path[1:]
    # Usage by action lacks the first axis.
    axes = _AXES.get(str(key), ())[0 if names.by_state or key != "usage" else 1 :]
    known = {"state": names.states, "action": names.actions, "next state": names.states, "resource": resources}
    if not indices or len(indices) > len(axes):
        return ""
    labels = [_label(known[axis], index) for axis, index in zip(axes, indices, strict=False)]
    if not any(labels):
        return ""
    parts = [f"{axis} {label or index}" for axis, label, index in zip(axes, labels, indices, strict=False)]
    plain = key == "transitions" and message.startswith("probabilit")  # then it goes without saying
    return ("" if plain else f"{key} of ") + ", ".join(parts)


_AXES = {
    "transitions": ("state", "action", "next state"),
    "rewards": ("state", "action"),
    "usage": ("state", "action", "resource"),
    "initial": ("state",),
}


def _label(labels: Sequence[str], index: str | int) -> str:
    # A label that stands for two states tells nothing.
    if not isinstance(index, int) or index >= len(labels) or labels.count(labels[index]) > 1:
        return ""
    return quoted(labels[index])


# As a line


def with_lines(faults: Iterable[Fault], text: str, document: object, toml: bool) -> list[Fault]:
    """The same faults, each with the line where it stands, if that can be told.

    Args:
        faults: faults of the document.
        text: the text of the file.
        document: what was read of it.
        toml: whether it is TOML; else it is JSON.
    """
    paths = [(fault, _existing(path_of(fault.place) or (), document)) for fault in faults]
    # A list of tables of TOML, [[arms]] by [[arms]], has no line of its own: it begins with its first table.
    wanted = [either for _, path in paths if path for either in (path, (*path, 0))]
    lines = find_lines(text, document, wanted, toml)
    return [replace(fault, line=lines.get(path, lines.get((*path, 0)) if path else None)) for fault, path in paths]


def _existing(path: Path, document: object) -> Path:
    """As much of a path as there is: of a missing key, the table that lacks it; of a number that is no list, itself."""
    for depth, part in enumerate(path):
        known = range(len(document)) if isinstance(document, list) else document
        if not isinstance(known, (range, dict)) or part not in known:
            return path[:depth]
        document = document[part]  # type: ignore[index]  # a list or a table that has it
    return path


def find_lines(text: str, document: object, paths: Iterable[Path], toml: bool) -> dict[Path, int]:
    """The line of each path, counted from 1, where it can be told.

    Args:
        text: the text of the file.
        document: what was read of it.
        paths: keys, and entries of lists.
        toml: whether it is TOML; else it is JSON.
    """
    wanted = set(paths)
    # The walk is written in Python, and slow; a larger file is told without lines.
    if not wanted or len(text) > MOST_SEARCHED:
        return {}
    walk = _Walk(text, wanted, toml)
    try:
        walk.all()
    # Running off the end of the text is being lost, too.
    except (_Lost, IndexError, RecursionError):
        return {}
    read = _read_toml if toml else json.loads
    # A line is told only where the text there reads as the very value that was found wrong.
    return {
        path: text.count("\n", 0, spot.key) + 1
        for path, spot in walk.found.items()
        if path in wanted and _is_there(text[spot.start : spot.stop], _value_at(path, document), read)
    }


def _read_toml(text: str) -> object:
    return tomllib.loads(f"x = {text}")["x"]


def _value_at(path: Path, document: Any) -> object:
    for part in path:
        document = document[part]
    return document


def _is_there(text: str, value: object, read: Callable[[str], object]) -> bool:
    """Whether a text is the value; tables of TOML have no text of their own."""
    if not text:
        return isinstance(value, dict)
    try:
        # By repr: not-a-number equals itself then, and 1 is not 1.0.
        return repr(read(text)) == repr(value)
    except ValueError:
        return False


class _Lost(Exception):
    """The text is not what the walk expects."""


@dataclass(frozen=True)
class _Spot:
    """Where a value stands in the text."""

    key: int
    """Where its key begins; the value itself, where it is an entry of a list."""

    start: int
    stop: int


# Three quotes before one: the first pattern that matches wins. True is TOML.
_STRINGS = {
    True: r'"""(?:[^"\\]|\\.|"{1,2}(?!"))*"{3,5}'
    r"|'''(?:[^']|'{1,2}(?!'))*'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'",
    False: r'"(?:[^"\\]|\\.)*"',
}
_COMMENT = {True: r"|\#[^\n]*", False: ""}


class _Walk:
    """One walk through a text of TOML or JSON, which notes where the wanted paths are."""

    def __init__(self, text: str, wanted: set[Path], toml: bool) -> None:
        self.text, self.toml, self.wanted = text, toml, wanted
        # Every beginning of a wanted path. A list or table that is none of these is skipped as a whole.
        self.leads = {path[:depth] for path in wanted for depth in range(len(path))}
        self.found: dict[Path, _Spot] = {}
        self.number: dict[Path, int] = {}  # of the last table of each list of tables
        self._gap = re.compile(rf"(?:[ \t\r\n]{_COMMENT[toml]})*", re.DOTALL)
        self._string = re.compile(_STRINGS[toml], re.DOTALL)
        # Within what is skipped, only brackets count; strings and comments are passed whole, for they may hold some.
        self._step = re.compile(rf"{_STRINGS[toml]}{_COMMENT[toml]}|[\[\]{{}}]", re.DOTALL)

    def all(self) -> None:
        """The whole text."""
        pos = self.gap(0)
        if not self.toml:
            pos = self.gap(self.value((), pos))
            if pos < len(self.text):
                raise _Lost
            return
        base: Path = ()
        while pos < len(self.text):
            if self.text[pos] == "[":
                base, pos = self.header(pos)
            else:
                pos = self.item(base, pos)
            pos = self.gap(pos)

    def gap(self, pos: int) -> int:
        """Past blanks, ends of lines, and comments."""
        match = self._gap.match(self.text, pos)
        assert match is not None
        return match.end()

    def match(self, pattern: re.Pattern[str], pos: int) -> re.Match[str]:
        """What stands here, if it is what is expected."""
        match = pattern.match(self.text, pos)
        if match is None:
            raise _Lost
        return match

    def expect(self, mark: str, pos: int) -> int:
        """Past a mark."""
        if not self.text.startswith(mark, pos):
            raise _Lost
        return pos + len(mark)

    def note(self, path: Path, key: int, start: int, stop: int) -> None:
        """Keep where a path is, if it is wanted."""
        if path in self.wanted:
            self.found[path] = _Spot(key, start, stop)

    def header(self, pos: int) -> tuple[Path, int]:
        """`[table]` or `[[table of a list]]`: its path, and what comes after it."""
        several = self.text.startswith("[[", pos)
        keys, end = self.keys(self.gap(pos + 1 + several))
        end = self.expect("]]" if several else "]", end)
        path: Path = ()
        for depth, key in enumerate(keys):
            # Every list of tables on the way means its last table so far: the rule of TOML for [arms.x] after [[arms]].
            path = (*path, key)
            if several and depth == len(keys) - 1:
                self.number[path] = self.number.get(path, -1) + 1
            if path in self.number:
                path = (*path, self.number[path])
        # A header has no value of its own: an empty stretch of text stands for it.
        self.note(path, pos, pos, pos)
        return path, end

    def item(self, base: Path, pos: int) -> int:
        """`key = value`, or `"key": value`."""
        keys, end = self.keys(pos)
        start = self.gap(self.expect("=" if self.toml else ":", end))
        path = (*base, *keys)
        stop = self.value(path, start)
        self.note(path, pos, start, stop)
        return stop

    def keys(self, pos: int) -> tuple[Path, int]:
        """A key, or several with points between them, and what comes after it."""
        keys: list[str] = []
        while True:
            match = self.match(_PLAIN_KEY if self.toml and self.text[pos] not in "\"'" else self._string, pos)
            try:
                # The readers themselves undo the quotes and escapes of a key. TOML gives a table, whose one key is the
                # key.
                keys.append(*(tomllib.loads(f"{match[0]} = 1") if self.toml else [json.loads(match[0])]))
            except ValueError:
                raise _Lost from None
            pos = self.gap(match.end())
            if not (self.toml and self.text[pos] == "."):
                return tuple(keys), pos
            pos = self.gap(pos + 1)

    def value(self, path: Path, pos: int) -> int:
        """A value, whose end is returned."""
        mark = self.text[pos]
        if mark in "[{":
            return self.entries(path, pos, mark) if path in self.leads else self.skip(pos)
        return self.match(self._string if mark in "\"'" else _PLAIN_VALUE, pos).end()

    def entries(self, path: Path, pos: int, mark: str) -> int:
        """The entries of a list or a table."""
        close, index = {"[": "]", "{": "}"}[mark], 0
        pos = self.gap(pos + 1)
        while self.text[pos] != close:
            if mark == "{":
                pos = self.item(path, pos)
            else:
                stop = self.value((*path, index), pos)
                self.note((*path, index), pos, pos, stop)
                pos = stop
            pos, index = self.gap(pos), index + 1
            if self.text[pos] != close:
                pos = self.gap(self.expect(",", pos))
        return pos + 1

    def skip(self, pos: int) -> int:
        """Past a list or a table that nobody asks for."""
        depth = 0
        while True:
            step = self._step.search(self.text, pos)
            if step is None:
                raise _Lost
            depth, pos = depth + {"[": 1, "{": 1, "]": -1, "}": -1}.get(step[0], 0), step.end()
            if depth == 0:
                return pos


_PLAIN_KEY = re.compile(r"[\w-]+")
_PLAIN_VALUE = re.compile(r"[^\s,\[\]{}#\"']+")
