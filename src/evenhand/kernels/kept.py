"""Compiled code stored in files, so that a machine compiles it once; treatment of invalid files.

Numba's own store keeps an index beside its files and believes what it reads. A file cut short then ends in a traceback
from deep inside, a flipped byte in machine code that runs, and two processes that write at once may leave an index that
names the other's file. Here every compiled function with its types is one file,

    mark, digest of the sources, digest of the content, content (the types, the processor, and Numba's own record)

written beside and renamed. It is named after the function, the types and the processor, so that processes that fill
the store at once write the same or different files, and a store on a shared disk serves several kinds of machine.
The sources are the function's file and what that imports from this folder, since code is inlined across files (Numba
asks for the function's own file only), with the versions of Numba and LLVM: what is older is compiled anew and
replaced. What does not have its digest, or cannot be read, is renamed to `*.damaged` and compiled anew. Where nothing
can be written, the code serves this process only. Either is said in one line, once in a process.

A file of the store is code: machine code, in a record of Numba's that is unpickled. A digest shows damage, not intent,
so it is read only if no other user could have written it: it belongs to this user, to the administrator, or to the
owner of the sources that it was compiled from (and could change those), and it is not world-writable.
"""

import hashlib
import os
import pickle
import re
import stat
import uuid
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core import caching, serialize

from evenhand.errors import CompiledAnew

FunctionCache: Any = caching.FunctionCache
NullCache: Any = caching.NullCache
dumps: Any = serialize.dumps

MARK = b"evenhand code 1\n"
_DIGEST = 32
"""Bytes of a SHA-256 digest."""

_IMPORTED = re.compile(rb"^from evenhand\.kernels(?:\.(\w+) import| import ([\w, ]+))", re.MULTILINE)
_NOT_INLINED = {"jit"}
_PARTS = ("check_cachable", "filename_base", "locator", "rebuild", "reduce")
"""Of Numba's own store, what is used here."""

_told: set[str] = set()


class DamagedError(Exception):
    """A file of the store is not what was written."""


# -- the store of one function ----------------------------------------------------------------------------------------


class KeptCode(FunctionCache):  # type: ignore[misc]
    """The store of one function."""

    def __init__(self, function: Any, alone: bool = False) -> None:
        """Open it.

        Args:
            function: the function whose code is stored.
            alone: whether its loops, which could be parallel, are compiled for one thread: other code.
        """
        super().__init__(function)
        self._alone = alone
        source = Path(function.__code__.co_filename)
        self._stamp, self._owners = stamp_of(source), _owners(source)

    def file_of(self, types: Any, codegen: Any) -> Path:
        """File of the code for these types and this processor."""
        key = self._index_key(types, codegen)
        # By the types and the processor, and whether loops are for one thread.
        name = hashlib.sha256(repr((str(types), *key[1:], *["alone"] * self._alone)).encode()).hexdigest()[:24]
        return Path(self.cache_path) / f"{self._impl.filename_base}-{name}.nbc"

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Code that was compiled earlier; None if none can be used. Called by Numba, as the next one."""
        target_context.refresh()
        codegen = target_context.codegen()
        file = self.file_of(sig, codegen)
        try:
            found = _read(file, self._stamp, self._index_key(sig, codegen), self._owners)
            return None if found is None else self._impl.rebuild(target_context, found)
        except FileNotFoundError:
            return None
        except Exception as error:  # noqa: BLE001  # whatever is wrong with it, it can be compiled anew
            _set_aside(file)
            _tell("read", f"compiled code in {file.parent} cannot be used ({_reason(error)}): compiling it anew")
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep what was compiled."""
        if not self._impl.check_cachable(data):
            return
        key, file = self._index_key(sig, data.codegen), self.file_of(sig, data.codegen)
        try:
            self._impl.locator.ensure_cache_path()
            _write(file, self._stamp, dumps((key, self._impl.reduce(data))))
        except OSError as error:
            _tell("write", _not_kept(f"{file.parent}: {error.strerror}"))

    def flush(self) -> None:
        """Delete the stored code of this function."""
        for file in Path(self.cache_path).glob(f"{self._impl.filename_base}-*.nbc"):
            file.unlink(missing_ok=True)


# -- opening a store --------------------------------------------------------------------------------------------------


def store_of(function: Any, alone: bool = False) -> Any:
    """The store of a function; one that keeps nothing, and says so, where no folder can be written."""
    try:
        store = KeptCode(function, alone)
        # Parts of Numba's own store are looked up now: one that lacks them is met here, not half-way.
        _ = store._index_key, *(getattr(store._impl, part) for part in _PARTS)
    except (RuntimeError, OSError):
        _tell("write", _not_kept("no folder for it can be written"))
        return NullCache()
    except (AttributeError, TypeError):
        _tell("write", _not_kept(f"how Numba {numba.__version__} does that is not known here"))
        return NullCache()
    return store


# -- whose sources ----------------------------------------------------------------------------------------------------


@cache
def stamp_of(file: Path) -> bytes:
    """A digest of a file of kernels, of those that it imports, and of the compiler's versions."""
    digest = hashlib.sha256(f"numba {numba.__version__} llvmlite {llvmlite.__version__}".encode())
    for source in sorted(_sources(file, set())):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.digest()


def _sources(file: Path, found: set[Path]) -> set[Path]:
    found.add(file)
    for one, several in _IMPORTED.findall(file.read_bytes()):
        for name in re.findall(r"\w+", (one or several).decode()):
            path = file.with_name(f"{name}.py")
            if name not in _NOT_INLINED and path not in found and path.exists():
                _sources(path, found)
    return found


# -- files ------------------------------------------------------------------------------------------------------------


def _owners(source: Path) -> frozenset[int]:
    """Users who may have written code that is run here; empty if files have no owners."""
    return frozenset({os.geteuid(), 0, source.stat().st_uid}) if hasattr(os, "geteuid") else frozenset()


def _read(file: Path, stamp: bytes, key: Any, owners: frozenset[int]) -> Any:
    """Numba's record; None if it is of other sources or versions."""
    # Look at the file that was opened, not at its name: it could be another by then.
    with file.open("rb") as opened:
        about = os.fstat(opened.fileno())
        if owners and (about.st_uid not in owners or about.st_mode & stat.S_IWOTH):
            raise DamagedError("others could have written it")
        text = opened.read()
    # Mark, digest of the sources, digest of the content, content.
    mark, rest = text[: len(MARK)], text[len(MARK) :]
    if mark != MARK or len(rest) < 2 * _DIGEST:
        raise DamagedError("it is not whole")
    # Of other sources: older, or newer. Not damaged, but of no use.
    if rest[:_DIGEST] != stamp:
        return None
    content = rest[2 * _DIGEST :]
    if hashlib.sha256(content).digest() != rest[_DIGEST : 2 * _DIGEST]:
        raise DamagedError("it was changed")
    of, found = pickle.loads(content)  # noqa: S301  # written by whom this process trusts anyway, and whole
    return found if of == key else None


def _write(file: Path, stamp: bytes, content: bytes) -> None:
    beside = file.with_name(f"{file.name}.tmp.{uuid.uuid4().hex[:16]}")
    try:
        # Under another name first: a concurrent reader finds all of it or nothing.
        beside.write_bytes(MARK + stamp + hashlib.sha256(content).digest() + content)
        beside.chmod(stat.S_IMODE(beside.stat().st_mode) & ~stat.S_IWOTH)  # or it would not be read again
        beside.replace(file)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _set_aside(file: Path) -> None:
    with suppress(OSError):  # in a folder that cannot be written it is met again by the next process, and said again
        file.replace(file.with_suffix(".damaged"))


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, DamagedError) else (getattr(error, "strerror", None) or "it cannot be read")


# -- what is said -----------------------------------------------------------------------------------------------------


def _not_kept(why: str) -> str:
    return (
        f"compiled code is not kept ({why}), and compiled again by every process; NUMBA_CACHE_DIR names another folder"
    )


def _tell(kind: str, words: str) -> None:
    """One line, once in a process for each kind: a store of many files is damaged or full as a whole."""
    if kind not in _told:
        _told.add(kind)
        warnings.warn_explicit(words, CompiledAnew, "evenhand", 0)
