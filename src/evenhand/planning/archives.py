"""Zip archives with a manifest: read with suspicion, written as a whole.

An archive is opened only as far as its manifest until that is understood; its parts must be exactly those that are
expected, by plain names in no folder, and no larger than allowed. Nothing is unpacked to disk, and nothing is run.
"""

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from evenhand.checks import check_memory, human_bytes, why_unreadable
from evenhand.errors import EvenhandError, PolicyError
from evenhand.model.files import write_atomically

MOST_MANIFEST = 1_000_000
"""Bytes of the largest manifest that is read."""

HOW_TO_SAVE = "Policies are saved by `evenhand solve` and `evenhand train`."
"""What to do without a policy."""


def write_archive(path: Path, manifest: dict[str, Any], bodies: dict[str, bytes]) -> None:
    """Write a manifest and its parts; the same contents are the same file."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for name, body in {"manifest.json": json.dumps(manifest, indent=1).encode(), **bodies}.items():
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            file.writestr(entry, body)
    write_atomically(path, archive.getvalue())


def read_manifest(file: zipfile.ZipFile, formats: Sequence[str], schema: int) -> dict[str, Any]:
    """The manifest of an archive, if it is of a known format and schema."""
    if "manifest.json" not in file.namelist():
        raise PolicyError("it is not an evenhand policy: it has no manifest")
    if file.getinfo("manifest.json").file_size > MOST_MANIFEST:
        raise PolicyError("its manifest is too large")
    manifest = _parsed(_bounded(file, "manifest.json"), "manifest")
    if not isinstance(manifest, dict) or manifest.get("format") not in formats:
        raise PolicyError("it is not an evenhand policy")
    if manifest.get("schema") != schema:
        raise PolicyError(f"its schema is {manifest.get('schema')}; this version reads {schema}")
    if not isinstance(manifest.get("problem"), dict):
        raise PolicyError("its manifest does not say for which problem it was made")
    return manifest


def read_facts(manifest: dict[str, Any], name: str, facts: Mapping[str, type]) -> dict[str, Any]:
    """What the manifest says under a name, if it has all of the facts, each of its type."""
    found = manifest.get(name)
    if not isinstance(found, dict):
        raise PolicyError(f"its manifest does not describe its {name}")
    for fact, kind in facts.items():
        if not isinstance(found.get(fact), kind):
            raise PolicyError(f"its manifest does not say the {fact} of its {name}")
    return found


def read_json(file: zipfile.ZipFile, name: str, sha256: object, what: str) -> Any:
    """A part of an archive that is JSON."""
    return _parsed(read_part(file, name, sha256, what), what)


def _parsed(body: bytes, what: str) -> Any:
    try:
        return json.loads(body)
    except json.JSONDecodeError as error:
        raise PolicyError(f"its {what} is not JSON (line {error.lineno})") from None
    except (UnicodeDecodeError, RecursionError, ValueError):
        raise PolicyError(f"its {what} is not JSON that can be read") from None


def check_parts(file: zipfile.ZipFile, parts: Iterable[str], most: float | None = None) -> None:
    """Refuse an archive whose parts are not exactly the expected ones, or too large to be read."""
    expected = {"manifest.json", *parts}
    if set(file.namelist()) != expected or len(file.namelist()) != len(expected):
        raise PolicyError("its parts are not those its manifest lists")
    check_size(file, most)


def check_size(file: zipfile.ZipFile, most: float | None = None) -> None:
    """Refuse an archive that is too large to be read."""
    size = sum(entry.file_size for entry in file.infolist())
    if most is not None and size > most:
        raise PolicyError(f"it would unpack to {human_bytes(size)}, more than such a policy can need")
    check_memory(3.0 * size, str(file.filename), "It is not a policy of ours.")


def read_part(file: zipfile.ZipFile, name: str, sha256: object, what: str) -> bytes:
    """A part of an archive, if it is the one that the manifest describes."""
    body = _bounded(file, name)
    if hashlib.sha256(body).hexdigest() != sha256:
        raise PolicyError(f"its {what} is not the one its manifest describes (hash differs)")
    return body


def _bounded(file: zipfile.ZipFile, name: str) -> bytes:
    """A part, unpacked no further than the size it claims: a stream that goes on behind that is never followed."""
    entry = file.getinfo(name)
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise PolicyError(f"its part {name} is compressed in an unusual way")
    with file.open(entry) as stream:
        return stream.read(entry.file_size + 1)


def guarded(path: Path, read: Callable[[zipfile.ZipFile], Any]) -> Any:
    """Read an archive; whatever a stranger's file provokes is told as its fault."""
    try:
        with zipfile.ZipFile(path) as file:
            return read(file)
    except PolicyError as error:
        raise PolicyError(f"{path}: {error}") from None
    except Warning:  # where a user made them errors
        raise
    except EvenhandError as error:  # what is made of its parts refuses them, in words
        raise PolicyError(f"{path}: {error}") from None
    except OSError as error:
        why = why_unreadable(path, error)
        end = "" if why.endswith("?") else "."  # it may ask which file was meant
        raise PolicyError(f"{path}: cannot be read: {why}{end} {HOW_TO_SAVE}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError):
        raise PolicyError(f"{path}: cannot be read: it is not a policy file, or a damaged one. {HOW_TO_SAVE}") from None
    except Exception as error:  # noqa: BLE001  # the file is a stranger's
        raise PolicyError(f"{path}: not a policy file that can be read: {_in_words(error)}") from None


def _in_words(error: Exception) -> str:
    """What is wrong with a stranger's file that broke what reads it; names of classes tell a user nothing."""
    if isinstance(error, NotImplementedError):
        return "it is packed in a way that is not read here"
    if isinstance(error, RuntimeError) and "password" in str(error):
        return "it is encrypted"
    if isinstance(error, MemoryError):
        return "there is not enough memory for what it says it holds"
    return "its manifest and its parts do not fit together"
