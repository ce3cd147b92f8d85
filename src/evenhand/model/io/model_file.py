"""Model files by format: TOML and JSON (`document`), arrays (`npz`), tables of arms (`model/parquet`).

Files are written atomically: beside the old one and renamed, so that no write leaves half a file.
"""

import contextlib
import glob
import io
import os
import secrets
import shutil
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias

from evenhand.checks import collected_notices, why_unreadable
from evenhand.errors import Fault, InvalidInputError, ModelError, NormalisationWarning, TooLargeError
from evenhand.model.coupled import CoupledMDP
from evenhand.model.criterion import parse_criterion
from evenhand.model.io.document import read_json, read_toml, write_json, write_toml
from evenhand.model.io.npz import read_npz, write_npz
from evenhand.model.simulator import needs_tables

Location: TypeAlias = str | os.PathLike[str]
Format: TypeAlias = Literal["toml", "json", "npz"]

FORMATS: tuple[Format, ...] = ("toml", "json", "npz")
"""Formats of files and streams; a model in Parquet is a file or a folder, never a stream (`model/parquet`)."""


@dataclass(frozen=True, eq=False)
class Loaded:
    """A problem and its source."""

    problem: CoupledMDP
    """Problem of the file."""

    rows: tuple[Fault, ...] = ()
    """Normalised rows, each with its sum."""

    name: str = ""
    """Name of the file in messages."""


def load(path: Location | BinaryIO, format: Format | None = None, criterion: str | None = None) -> CoupledMDP:
    """Read a model file.

    Probabilities that nearly sum to 1, such as thirds written 0.3333333, are divided by their sum; the warning
    `errors.NormalisationWarning` lists them.

    Args:
        path: a `.toml`, `.json`, `.npz` or `.parquet` file, or a folder of the latter; or a binary stream, such as
            `sys.stdin.buffer`.
        format: `toml`, `json` or `npz`, required for a stream; by default the suffix of the file name.
        criterion: `discounted`, `average` or `finite:T`, instead of the file's own; a file needs no discount if this
            needs none.

    Raises:
        ModelError: with every fault of the file.
        InvalidInputError: the file does not exist, or its format is unknown.

    Example:
        >>> import evenhand as eh
        >>> problem = eh.problems.machine_replacement(num_arms=3)
        >>> eh.save(problem, "machines.toml")
        >>> eh.load("machines.toml")
        CoupledMDP(3 arms, identical, 1 resource, discount 0.95)
    """
    loaded = load_noting(path, format, criterion)
    if loaded.rows:
        warnings.warn(NormalisationWarning(loaded.rows, loaded.name), stacklevel=2)
    return loaded.problem


def load_noting(path: Location | BinaryIO, format: Format | None = None, criterion: str | None = None) -> Loaded:
    """Read a model file as `load` does, and return the normalised rows instead of a warning."""
    if criterion is not None:
        parse_criterion(criterion, 0.0)  # an invalid argument is not a fault of the file
    file = as_path(path) if isinstance(path, (str, os.PathLike)) else None
    name = getattr(path, "name", None) if file is None else str(file)
    name = "standard input" if name == "<stdin>" else name if isinstance(name, str) else "the stream"
    with collected_notices() as rows:
        if file is not None and format is None and is_stored(file):
            from evenhand.model.parquet import open_arms  # it imports this module

            problem = open_arms(file).problem().with_criterion(criterion)
        else:
            problem = _read(path, file, _format_of(name, format, file), criterion, name)
    return Loaded(problem, tuple(rows), name)


def _read(path: Any, file: Path | None, format: Format, criterion: str | None, name: str) -> CoupledMDP:
    read = {"toml": read_toml, "json": read_json, "npz": read_npz}[format]
    try:
        # A stream that the caller opened is the caller's to close.
        with file.open("rb") if file is not None else contextlib.nullcontext(path) as stream:
            return read(stream if stream.seekable() else io.BytesIO(stream.read()), criterion)
    except ModelError as error:
        raise ModelError(error.faults, name) from None
    except TooLargeError as error:
        raise ModelError([Fault("", str(error))], name) from None
    except OSError as error:
        suffixes = [f".{known}" for known in FORMATS]
        reason = why_unreadable(file, error, suffixes) if file is not None else error.strerror or error
        raise InvalidInputError(f"{name}: cannot be read: {reason}") from None


def save(problem: CoupledMDP, path: Location) -> None:
    """Write a model file that reads back as an equal problem, completely or not at all.

    Args:
        problem: the problem.
        path: a `.toml`, `.json`, `.npz` or `.parquet` file; an existing one is replaced.

    Example:
        >>> import evenhand as eh
        >>> problem = eh.problems.machine_replacement(num_arms=3)
        >>> eh.save(problem, "machines.toml")
        >>> eh.load("machines.toml") == problem
        True
    """
    problem = needs_tables(problem, "a model file")
    file = as_path(path)
    if file.suffix.lower() == ".parquet":
        from evenhand.model.parquet import save_parquet  # it imports this module

        save_parquet(problem, file)
        return
    write = {"toml": write_toml, "json": write_json, "npz": write_npz}[_format_of(str(file), None, file)]
    try:
        with replacing(file) as stream:
            write(problem, stream)
    except UnicodeEncodeError as error:
        broken = error.object[error.start : error.end]
        raise InvalidInputError(
            f"{file}: not written: a label contains {broken!r}, which is not Unicode text"
        ) from None


def is_stored(path: object) -> bool:
    """Return whether a name is that of a model in Parquet: a `.parquet` file, or a folder of them."""
    if not isinstance(path, (str, os.PathLike)) or "\0" in os.fspath(path):
        return False
    place = Path(path)
    return place.suffix.lower() == ".parquet" or (place.is_dir() and any(place.glob("*.parquet")))


def _format_of(name: str, format: str | None, file: Path | None) -> Format:
    """Return the given format, or that of the file's suffix."""
    found = file.suffix.lower().removeprefix(".") if format is None and file is not None else format
    if found not in FORMATS:
        raise InvalidInputError(f"{name}: format: expected .{', .'.join(FORMATS)}, got {found!r}")
    return found


# -- atomic writes ---------------------------------------------------------------------------------------------------


def write_atomically(path: Location, data: bytes) -> None:
    """Write a file completely or not at all.

    Args:
        path: the file; an existing one is replaced, and its permissions stay.
        data: its new content.
    """
    with replacing(as_path(path)) as stream:
        stream.write(data)


def as_path(path: Location) -> Path:
    """Return the path of a file name, or raise InvalidInputError."""
    if "\0" in os.fspath(path):
        raise InvalidInputError(f"{os.fspath(path)!r} is not a valid file name")
    return Path(path)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a new file that replaces `path` when the block ends normally, and is removed when it does not."""
    with _beside(path, folder=False) as (target, beside), beside.open("xb") as stream:
        yield stream
        # To the disk before the renaming: otherwise a crash might leave the new name with no content.
        stream.flush()
        os.fsync(stream.fileno())
        stream.close()
        if target.exists():
            shutil.copymode(target, beside)
        beside.replace(target)


@contextlib.contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Make a new folder of Parquet files that replaces `path` when the block ends normally, else is removed."""
    with _beside(path, folder=True) as (target, beside):
        beside.mkdir()
        yield beside
        before = beside.with_name(f"{beside.stem}-old.tmp")
        if target.exists():
            target.rename(before)
        beside.rename(target)
        shutil.rmtree(before, ignore_errors=True)


@contextlib.contextmanager
def _beside(path: Path, folder: bool) -> Iterator[tuple[Path, Path]]:
    """The target of a path, and a name in its folder that is removed if the block fails.

    A link stays, and its target is replaced. In the same folder, since a file is renamed in one step only within a file
    system. The process number in the name lets `sweep` check whether the writer still runs.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not (target.is_dir() if folder else target.is_file()):
        raise InvalidInputError(f"{path}: cannot be written: it is not a {'folder' if folder else 'file'}")
    if folder and target.is_dir() and any(entry.suffix != ".parquet" for entry in target.iterdir()):
        raise InvalidInputError(f"{path}: cannot be written: the folder contains other files than Parquet")
    if not target.parent.is_dir():
        raise InvalidInputError(f"{path}: cannot be written: the directory {path.parent} does not exist")
    sweep(target)
    beside = target.with_name(f".evenhand-{target.name}-{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        yield target, beside
    except BaseException as error:  # an interrupt, too, must not leave the temporary file
        with contextlib.suppress(OSError):
            shutil.rmtree(beside) if folder else beside.unlink(missing_ok=True)
        if isinstance(error, PermissionError):
            raise InvalidInputError(f"{path}: cannot be written: permission denied") from None
        raise


def sweep(target: Path) -> None:
    """Remove temporary files of a file or folder whose writers were killed."""
    for left in target.parent.glob(f".evenhand-{glob.escape(target.name)}-*-*.tmp"):
        import psutil

        with contextlib.suppress(ValueError, OSError):
            if not psutil.pid_exists(int(left.stem.split("-")[-2])):
                shutil.rmtree(left) if left.is_dir() else left.unlink()
