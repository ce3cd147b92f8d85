"""Atomic writes: a new file is written beside the old one and renamed, so that no write leaves half a file."""

import contextlib
import glob
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, TypeAlias

from evenhand.errors import InvalidInputError

Location: TypeAlias = str | os.PathLike[str]


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
    try:
        target = Path(os.path.realpath(path))  # a link stays, and its target is replaced
        if target.exists() and not target.is_file():
            raise InvalidInputError(f"{path}: cannot be written: it is not a file")
        sweep(target)
        # The process number in the name lets `sweep` check whether the writer still runs. In the same folder, since a
        # file is renamed in one step only within a file system.
        beside = target.with_name(f".evenhand-{target.name}-{os.getpid()}-{secrets.token_hex(4)}.tmp")
        stream = beside.open("xb")
    except (FileNotFoundError, NotADirectoryError):
        raise InvalidInputError(f"{path}: cannot be written: the directory {path.parent} does not exist") from None
    except PermissionError:
        raise InvalidInputError(f"{path}: cannot be written: permission denied") from None
    try:
        with stream:
            yield stream
            # To the disk before the renaming: otherwise a crash might leave the new name with no content.
            stream.flush()
            os.fsync(stream.fileno())
        if target.exists():
            shutil.copymode(target, beside)
        beside.replace(target)
    except BaseException:  # an interrupt, too, must not leave the temporary file
        beside.unlink(missing_ok=True)
        raise


def sweep(target: Path) -> None:
    """Remove temporary files of a file or folder whose writers were killed."""
    for left in target.parent.glob(f".evenhand-{glob.escape(target.name)}-*-*.tmp"):
        with contextlib.suppress(ValueError, OSError):
            if not _is_running(int(left.stem.split("-")[-2])):
                shutil.rmtree(left) if left.is_dir() else left.unlink()


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)  # signal 0 tests whether the process exists
    except ProcessLookupError:
        return False
    except OSError:  # a process of another user
        return True
    return True
