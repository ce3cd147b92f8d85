"""The names of targets: known from the names of their files, before anything heavy is loaded."""

from collections.abc import Sequence
from pathlib import Path

from evenhand.errors import InvalidInput, UnknownName

ORDER = ("table", "figure", "beyond")
"""How groups of targets are listed; others follow."""


def target_paths(folder: Path) -> dict[str, Path]:
    """The files of all targets of a folder by name, in order.

    Args:
        folder: where they are.

    Raises:
        InvalidInput: there are none.
    """
    paths = sorted(folder.glob("*.toml"), key=lambda path: _rank(path.stem))
    if not paths:
        raise InvalidInput(f"{folder}: expected files *.toml with targets, found none")
    return {path.stem: path for path in paths}


def _rank(name: str) -> tuple[int, str]:
    group = name.partition("-")[0]
    return ORDER.index(group) if group in ORDER else len(ORDER), name


def choose_names(known: Sequence[str], asked: Sequence[str]) -> list[str]:
    """The names that were asked for, in order: `all`, a name, or the beginning of several such as `figure-2`.

    Args:
        known: all names.
        asked: what was typed.

    Raises:
        InvalidInput: some names fit nothing; tells all of them, with the nearest names.
    """
    chosen, faults = set(), []
    for name in asked:
        found = [one for one in known if name == "all" or _fits(name, one)]
        chosen.update([name] if name in known else found)
        if not found:
            faults.append(str(UnknownName("target", name, ["all", *known])))
    if faults:
        raise InvalidInput("\n".join(faults))
    return [name for name in known if name in chosen]


def _fits(name: str, known: str) -> bool:
    """Whether a target is of this name or group: table is of table-1, figure-2 of figure-2a."""
    if known == name or known.startswith(f"{name}-"):
        return True
    return bool(name) and known.startswith(name) and known[len(name) :].isalpha() and name[-1].isdigit()
