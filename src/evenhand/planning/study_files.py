"""Files of a study: one per finished cell, named by a digest of all that the cell depends on.

The digest is that of the content of the arguments: numbers, arrays, texts; of functions their code, defaults, closures
and the globals that they name; of a user's classes their source. It does not depend on file names, line numbers or
caches, so that a study continues in a new process or notebook. Contents that are not found again are computed again.
"""

import dataclasses
import hashlib
import inspect
import io
import json
import pickle
import sys
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from evenhand._version import __version__
from evenhand.errors import InvalidInputError
from evenhand.model import BasePolicy, CoupledMDP
from evenhand.model.io import write_atomically

FORMAT = "evenhand-study-1"


class StudyFolder(NamedTuple):
    """Folder of finished cells."""

    path: Path

    @classmethod
    def open(cls, path: Path) -> "StudyFolder":
        """Return the folder, made if it does not exist.

        Raises:
            InvalidInputError: it is no folder, or contains other files.
        """
        if path.exists() and not path.is_dir():
            raise InvalidInputError(f"path: {path} is a file; a study needs a folder of its own")
        path.mkdir(parents=True, exist_ok=True)
        own = ("cell-", ".evenhand-cell-")
        if foreign := sorted(entry.name for entry in path.iterdir() if not entry.name.startswith(own)):
            raise InvalidInputError(f"path: {path} contains {foreign[0]!r}, which no study wrote; give an empty folder")
        return cls(path)

    def read(self, key: str) -> dict[str, Any]:
        """Return the figures of a cell; empty if it is not finished.

        Raises:
            InvalidInputError: the file is damaged.
        """
        file = self.path / f"cell-{key}.json"
        if not file.exists():
            return {}
        try:
            stored = json.loads(file.read_text(encoding="utf-8"))
            figures: dict[str, Any] = stored["figures"]
            sound = (stored["format"], stored["key"], stored["sha256"]) == (FORMAT, key, _sum(figures))
        except (ValueError, KeyError, TypeError):
            sound = False
        if not sound:
            raise InvalidInputError(f"path: {file} is damaged or was not written by a study; delete it to compute it")
        return figures

    def write(self, key: str, figures: dict[str, Any]) -> None:
        """Write the figures of a cell, completely or not at all."""
        stored = {"format": FORMAT, "key": key, "sha256": _sum(figures), "figures": figures}
        write_atomically(self.path / f"cell-{key}.json", json.dumps(stored, indent=1).encode())


def _sum(figures: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(figures, sort_keys=True).encode()).hexdigest()


def digest(*things: object) -> str:
    """Return a digest of the content of some arguments, and of the version of the library.

    Raises:
        InvalidInputError: something has no content that can be read.
    """
    parts = [__version__]
    for thing in things:
        stream = io.BytesIO()
        try:
            _Content(stream, protocol=5).dump(thing)
        except (pickle.PicklingError, TypeError, AttributeError, OSError, RecursionError) as error:
            raise InvalidInputError(f"path: {thing!r} cannot be recognised in a file: {error}") from None
        parts.append(hashlib.sha256(stream.getvalue()).hexdigest())
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:32]


class _Content(pickle.Pickler):
    """Pickles of contents, only to be compared: functions by their code, problems and policies without caches."""

    def reducer_override(self, thing: Any) -> Any:
        """Return what is pickled in place of an object."""
        if isinstance(thing, CodeType):
            constants = [sorted(map(repr, c)) if isinstance(c, frozenset) else c for c in thing.co_consts]
            return tuple, ((thing.co_code, constants, thing.co_names, thing.co_varnames, thing.co_freevars),)
        if isinstance(thing, FunctionType) and (_is_own(thing) or "<" in thing.__qualname__):
            closure = [cell.cell_contents for cell in thing.__closure__ or ()]
            named = {name: thing.__globals__[name] for name in _names(thing.__code__) if name in thing.__globals__}
            state = [thing.__defaults__, thing.__kwdefaults__, closure, named]
            return list, (), state, [thing.__code__].__iter__()
        if isinstance(thing, ModuleType):
            return str, (thing.__name__,)
        if isinstance(thing, type) and _is_own(thing):
            return str, (inspect.getsource(thing),)
        if isinstance(thing, CoupledMDP):
            same = ("signature", "over", "groups", "resources", "spend", "arm_names")
            facts = [str(getattr(thing, name)) for name in same] + [thing.floors.tolist(), thing.max_waits.tolist()]
            return list, (), [thing.criterion, thing.welfare, json.dumps(facts)]
        if isinstance(thing, BasePolicy) and hasattr(thing, "to_arrays"):
            return list, (), [type(thing), getattr(thing, "problem", None), thing.to_arrays()]
        if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
            return (
                list,
                (),
                [type(thing), {field.name: getattr(thing, field.name) for field in dataclasses.fields(thing)}],
            )
        return NotImplemented


def _names(code: CodeType) -> list[str]:
    """Names of globals and attributes in a function and in those defined within."""
    inner = [_names(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    return sorted(set(code.co_names).union(*inner))


def _is_own(thing: Any) -> bool:
    """Return whether a function or class is a user's own, which may change between two calls."""
    root = str(thing.__module__).partition(".")[0]
    file = str(getattr(sys.modules.get(root), "__file__", "") or "")
    return not (root in (*sys.stdlib_module_names, "evenhand") or "site-packages" in file) or root == "__main__"
