"""Records: what came of each cell, one JSON file each, and the manifest of a run.

    OUT/cells/<id>.json   written whole when the cell ends; the id is a digest of kind, settings and code
    OUT/records.jsonl     all cells of the last run, one a line, sorted by kind and settings
    OUT/manifest.json     what was run, by what, on what, and which cell is what in which target

A record: {"schema": 1, "id", "kind", "settings", "code", "status": "done" or "failed", "error": null or text,
"values": {...}, "timings": {...}, "seconds"}; see `outcomes` for values and timings.
The manifest: {"schema": 1, "evenhand", "code", "versions": {package: version or null}, "machine": {"cpu", "cores",
"memory_bytes", "system"}, "command", "quick", "jobs", "started", "ended", "seconds" (of this run), "cell_seconds" (of
all its cells, whenever they ran), "targets": {target: [{"id", "target", "instance", "method", "seed"}, ...]},
"finished"}. Times are in UTC.
"""

import hashlib
import json
import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

import evenhand
from evenhand._version import __version__
from evenhand.errors import InvalidInput
from evenhand.experiments.outcomes import Outcome, read_outcome
from evenhand.experiments.spec import Cell
from evenhand.model.files import as_json, write_atomically

SCHEMA = 1
CELLS, RECORDS, MANIFEST = "cells", "records.jsonl", "manifest.json"
PACKAGES = ("numpy", "scipy", "numba", "highspy", "torch", "stable_baselines3", "gymnasium", "matplotlib")
NOT_CODE = ("cli", "report", "service", "programme", "paper", "__pycache__")
"""Folders of the package that no result depends on."""

Record = dict[str, Any]
"""One cell's record."""


# -- a run, read -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """What is in the folder of a run."""

    manifest: dict[str, Any]
    """What was run."""

    records: dict[str, Record]
    """The records by id."""


def read_run(folder: Path) -> Run:
    """The manifest and the records of a folder.

    Raises:
        InvalidInput: it does not hold a run of this schema.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        lines = (folder / RECORDS).read_text(encoding="utf-8").splitlines()
        # By id: the report looks cells up.
        records = {record["id"]: record for record in map(json.loads, lines)}
    except (OSError, ValueError, KeyError) as error:
        raise InvalidInput(f"{folder}: holds no finished run: {error}") from None
    if manifest.get("schema") != SCHEMA:
        raise InvalidInput(f"{folder / MANIFEST}: expected schema {SCHEMA}, got {manifest.get('schema')!r}")
    return Run(manifest, records)


def outcome_of(record: Record) -> Outcome:
    """What the record of a done cell holds.

    Raises:
        InvalidInput: it is not what is declared for its kind.
    """
    return read_outcome(str(record.get("kind")), record.get("values"), record.get("timings"))


# -- what a record is filed under ------------------------------------------------------------------------------------


def canonical(value: Any) -> str:
    """JSON with sorted keys and nothing to choose."""
    # The same content is the same text, and so the same digest.
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def identify(cell: Cell, code: str) -> str:
    """The id of a cell: a digest of what its result depends on."""
    content = canonical({"kind": cell.kind, "settings": cell.settings, "code": code})
    # Sixteen digits are 64 bits: enough for any number of cells.
    return hashlib.sha256(content.encode()).hexdigest()[:16]


@lru_cache(maxsize=1)
def code_digest() -> str:
    """A digest of the installed package, without what only tells results."""
    return digest_of(Path(evenhand.__file__).parent)


def digest_of(package: Path) -> str:
    """A digest of a package's files, by relative path."""
    digest = hashlib.sha256()
    # Sorted, so that the digest does not hang on the file system.
    for path in sorted(package.rglob("*")):
        inner = path.relative_to(package)
        # Pictures and pages do not change a result, and must not make it be computed again.
        if path.is_file() and not set(inner.parts[:-1]) & set(NOT_CODE):
            digest.update(f"{inner.as_posix()}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


# -- a folder of them ------------------------------------------------------------------------------------------------


class Store:
    """The records of a folder."""

    def __init__(self, folder: Path, code: str | None = None) -> None:
        """Open a folder.

        Args:
            folder: where; made when the first record is written.
            code: the digest of the code; that of the package when absent.
        """
        self.folder = folder
        self.code = code_digest() if code is None else code

    def path(self, cell: Cell) -> Path:
        """Where a cell's record is."""
        # The code is in the id: another version of it has other files, and the old ones stay.
        return self.folder / CELLS / f"{identify(cell, self.code)}.json"

    def read(self, cell: Cell) -> Record | None:
        """A cell's record; None if there is none that can be read."""
        try:
            record = json.loads(self.path(cell).read_bytes())
        except (OSError, ValueError):
            return None
        # A record that cannot be read or is of another schema is as good as none: the cell runs again.
        return record if isinstance(record, dict) and _is_sound(record, cell) else None

    def is_done(self, cell: Cell) -> bool:
        """Whether a cell need not run any more."""
        record = self.read(cell)
        return record is not None and record["status"] == "done"

    def write(
        self,
        cell: Cell,
        values: Mapping[str, Any],
        timings: Mapping[str, float],
        seconds: float,
        error: str | None = None,
    ) -> Record:
        """Write a cell's record."""
        record = {
            "schema": SCHEMA,
            "id": identify(cell, self.code),
            "kind": cell.kind,
            "settings": cell.settings,
            "code": self.code,
            "status": "done" if error is None else "failed",
            "error": error,
            "values": as_json(values),
            "timings": as_json(timings),
            "seconds": seconds,
        }
        path = self.path(cell)
        path.parent.mkdir(parents=True, exist_ok=True)
        # `allow_nan=False`: what is not JSON must not be written as if it were.
        write_atomically(path, (json.dumps(record, ensure_ascii=False, indent=1, allow_nan=False) + "\n").encode())
        return record

    def write_records(self, cells: Iterable[Cell]) -> None:
        """Gather the records of these cells, those that there are, in one file."""
        records = [record for record in map(self.read, cells) if record is not None]
        # Sorted by content, so that equal runs have equal files.
        records.sort(key=lambda record: (record["kind"], canonical(record["settings"])))
        # Two targets may ask for the same cell.
        unique = {record["id"]: json.dumps(record, ensure_ascii=False, allow_nan=False) for record in records}
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self.folder / RECORDS, "".join(f"{line}\n" for line in unique.values()).encode())

    def write_manifest(self, facts: Mapping[str, Any]) -> None:
        """Write the manifest, with what this machine and these packages are."""
        manifest = {
            "schema": SCHEMA,
            "evenhand": __version__,
            "code": self.code,
            "versions": versions(),
            "machine": machine(),
            **facts,
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        content = json.dumps(as_json(manifest), ensure_ascii=False, indent=1, allow_nan=False) + "\n"
        write_atomically(self.folder / MANIFEST, content.encode())


def _is_sound(record: Record, cell: Cell) -> bool:
    """Whether a record is of this cell and schema, and whole if it is done."""
    if (record.get("schema"), record.get("kind"), record.get("settings")) != (SCHEMA, cell.kind, cell.settings):
        return False
    # A failed cell has no values to check.
    if record.get("status") != "done":
        return True
    try:
        outcome_of(record)
    except InvalidInput:
        return False
    return True


# -- what it ran on --------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def versions() -> dict[str, str | None]:
    """Python's version and those of the packages; None for what is not installed."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        # Extras need not be installed.
        except metadata.PackageNotFoundError:
            found[package] = None
    return found


@lru_cache(maxsize=1)
def machine() -> dict[str, Any]:
    """What it ran on; no names."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else None,
        "system": f"{platform.system()} {platform.machine()}",
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
