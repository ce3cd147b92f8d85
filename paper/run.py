"""Runs cells and records their results.

    OUT/records.jsonl   one line per finished cell: kind, settings, values, timings, seconds, code
    OUT/manifest.json   what was run, with which versions, on which machine

A cell whose record was written by the same code is not run again, so the same command continues a run.
"""

import hashlib
import json
import multiprocessing
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from functools import lru_cache
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Any

import evenhand
from evenhand.model.io import write_atomically
from paper.cells import KINDS, TIMED
from paper.targets import Cell, Target

Record = dict[str, Any]

PACKAGES = ("evenhand", "numpy", "scipy", "numba", "highspy", "torch", "stable_baselines3", "gymnasium")
PRESENTATION = ("cli", "report", "service", "programme")
"""Packages of the library on which no result depends."""


def read_records(folder: Path) -> dict[str, Record]:
    """The records of a run by the key of their cell; the last one counts."""
    path = folder / "records.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    records: dict[str, Record] = {}
    for line in lines:
        with suppress(ValueError):  # a killed run may cut a line
            record = json.loads(line)
            records[Cell("", "", record["kind"], record["settings"]).key] = record
    return records


def run(
    targets: Sequence[Target], folder: Path, quick: bool, jobs: int, progress: Callable[[str], None]
) -> list[tuple[Cell, str]]:
    """Run the cells of the targets that have no record yet; return those that failed, with their errors."""
    folder.mkdir(parents=True, exist_ok=True)
    code, known = code_digest(), read_records(folder)
    cells = {cell.key: cell for target in targets for cell in (target.quick if quick else target.full)}
    waiting = [cell for key, cell in cells.items() if key not in known or known[key]["code"] != code]
    progress(f"{len(cells)} cells: {len(cells) - len(waiting)} done, {len(waiting)} to run")
    _write(folder, known)
    start, failures = time.time(), []
    batch = [cell for cell in waiting if cell.kind not in TIMED]
    alone = [cell for cell in waiting if cell.kind in TIMED]
    with (folder / "records.jsonl").open("a", encoding="utf-8") as file:
        results = chain(_run_cells(batch, jobs), _run_cells(alone, 1))
        for finished, (cell, record, error) in enumerate(results, start=1):
            if error is None:
                file.write(json.dumps({**record, "code": code}, allow_nan=False) + "\n")
                file.flush()
            else:
                failures.append((cell, error))
            progress(f"{finished} of {len(waiting)}: {cell.method}, {cell.instance}" + (f": {error}" if error else ""))
    known = read_records(folder)
    _write(folder, {key: known[key] for key in cells if key in known})
    manifest = {
        "targets": [target.name for target in targets],
        "quick": quick,
        "jobs": jobs,
        "seconds": round(time.time() - start, 1),
        "versions": versions(),
        "machine": machine(),
    }
    write_atomically(folder / "manifest.json", (json.dumps(manifest, indent=1) + "\n").encode())
    return failures


def _run_cells(cells: Sequence[Cell], jobs: int) -> Iterator[tuple[Cell, Record, str | None]]:
    if not cells:
        return
    # Spawned, not forked: PyTorch and Numba do not survive a fork of a process with threads.
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(compute, cell.kind, cell.settings): cell for cell in cells}
        for future in as_completed(futures):
            yield futures[future], *future.result()


def compute(kind: str, settings: dict[str, Any]) -> tuple[Record, str | None]:
    """The record of a cell, and its error if it failed."""
    start = time.perf_counter()
    try:
        values, timings = KINDS[kind](**settings)
    except Exception as error:  # noqa: BLE001  # a cell may fail in any way, and the others go on
        return {}, f"{type(error).__name__}: {error}"
    seconds = time.perf_counter() - start
    record = {"kind": kind, "settings": settings, "values": _plain(values), "timings": timings, "seconds": seconds}
    return record, None


def _plain(value: Any) -> Any:
    """Values as JSON has them; null for what is infinite or not a number."""
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    if isinstance(value, float):
        return float(value) if abs(value) < float("inf") else None
    return value


def _write(folder: Path, records: Mapping[str, Record]) -> None:
    """Write records in the order of their keys, so that equal runs have equal files."""
    lines = [json.dumps(records[key], allow_nan=False) for key in sorted(records)]
    write_atomically(folder / "records.jsonl", "".join(f"{line}\n" for line in lines).encode())


@lru_cache(maxsize=1)
def code_digest() -> str:
    """Digest of the installed library without its presentation, and of the cells."""
    package = Path(evenhand.__file__).parent
    paths = [path for path in package.rglob("*.py") if path.relative_to(package).parts[0] not in PRESENTATION]
    content = b"".join(path.read_bytes() for path in (*sorted(paths), Path(__file__).parent / "cells.py"))
    return hashlib.sha256(content).hexdigest()[:16]


def versions() -> dict[str, str | None]:
    """Versions of Python and of the packages that results depend on; null for those that are not installed."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    return found


def machine() -> dict[str, Any]:
    """The processor, the number of cores and the system."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    system = f"{platform.system()} {platform.machine()}"
    return {"cpu": models[0] if models else platform.processor(), "cores": os.cpu_count(), "system": system}
