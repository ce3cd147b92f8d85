"""Runs cells: skips those that are done, several at a time, and writes a record when one ends.

Cells run in worker processes, or on a Ray cluster (`execution`), each with one thread for linear algebra and compiled
loops, so that a result does not depend on how many there are. Only this process writes; a record is whole or absent, so
that a run that was killed at any moment goes on where it was. A cell that fails, or whose worker dies, is recorded as
failed and runs again next time; the others go on. TIMED cells come last, one at a time, so that nothing else is timed
with them.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evenhand.errors import EvenhandError
from evenhand.execution import Executor, Lost, opened
from evenhand.experiments.cells import TIMED, find_kind
from evenhand.experiments.records import Store, identify
from evenhand.experiments.spec import Cell, Planned, Target
from evenhand.typing import Progress

SECONDS_PER_STEP = {"ppo": 5e-5, "sac": 1.3e-4, "td3": 1.2e-4}
"""A first guess at how long training takes; corrected by what is seen."""

PATIENCE = 5.0
"""Seconds after which progress is told even if no cell ended."""


# -- what comes of it ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """What came of a cell."""

    values: dict[str, Any] = field(default_factory=dict)
    timings: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    error: str | None = None


@dataclass(frozen=True)
class Failure:
    """A cell that failed."""

    planned: Planned
    error: str


@dataclass(frozen=True)
class Reproduction:
    """What came of a run."""

    folder: Path
    """Where the records are."""

    ran: int
    """Cells that ran now, failed ones too."""

    skipped: int
    """Cells that were done before."""

    failures: tuple[Failure, ...]
    """Those that failed, each with the first target that asks for it."""

    seconds: float
    """How long it took."""


class Work:
    """The cells of some targets, and which of them are still to do."""

    def __init__(self, targets: Sequence[Target], folder: Path, quick: bool = False, code: str | None = None) -> None:
        """Look at what is there.

        Args:
            targets: what to reproduce.
            folder: where records are kept.
            quick: whether at reduced size.
            code: the digest of the code; that of the package when absent.
        """
        self.targets, self.quick = tuple(targets), quick
        self.store = Store(folder, code)
        self.plans = {target.name: target.plan(quick) for target in targets}
        self.cells: dict[str, Planned] = {}
        for plan in self.plans.values():
            for planned in plan:
                # A cell that several targets ask for runs once, and is told with the first.
                self.cells.setdefault(self.identify(planned.cell), planned)
        self.to_do = [planned for planned in self.cells.values() if not self.store.is_done(planned.cell)]

    def identify(self, cell: Cell) -> str:
        """The id of a cell."""
        return identify(cell, self.store.code)

    @property
    def num_done(self) -> int:
        """Cells that are done already."""
        return len(self.cells) - len(self.to_do)

    def run(
        self,
        jobs: int = 1,
        command: str = "",
        progress: Progress | None = None,
        on: str | Executor | None = None,
    ) -> Reproduction:
        """Run what is to do.

        Args:
            jobs: how many cells at a time, in processes of this machine.
            command: what was typed, for the manifest.
            progress: called now and then with how it goes and the share of the work that is done.
            on: where cells run, instead: `local:2`, `ray`, `ray://host:port`, or an executor. TIMED cells stay here.
        """
        # Timed cells last and alone: neighbours would be timed with them.
        timed = [planned for planned in self.to_do if planned.cell.kind in TIMED]
        others = [planned for planned in self.to_do if planned.cell.kind not in TIMED]
        log = _Log(self, jobs, command, progress)
        # Before the first cell: a run that is killed leaves a manifest all the same.
        log.gather()
        if others:
            with opened(on or f"local:{min(jobs, len(others))}") as executor:
                # What really runs at a time, for the guess of what is left.
                log.jobs = executor.num_workers
                _run_batch(others, executor, log)
        if timed:
            with opened("local:1") as executor:
                _run_batch(timed, executor, log)
        log.gather(finished=True)
        seconds = time.monotonic() - log.start
        return Reproduction(self.store.folder, len(self.to_do), self.num_done, tuple(log.failures), seconds)


# -- records as cells end --------------------------------------------------------------------------------------------


class _Log:
    """Writes records as cells end, gathers them when a target is complete, and tells progress."""

    def __init__(self, work: Work, jobs: int, command: str, progress: Progress | None) -> None:
        self.work, self.jobs, self.command, self.progress = work, jobs, command, progress
        self.failures: list[Failure] = []
        self.left = {work.identify(planned.cell): expected_seconds(planned.cell) for planned in work.to_do}
        self.spent, self.expected = 0.0, 0.0
        self.start, self.started = time.monotonic(), _now()

    def finish(self, planned: Planned, answer: Answer) -> None:
        """Record what came of a cell."""
        self.work.store.write(planned.cell, answer.values, answer.timings, answer.seconds, answer.error)
        if answer.error is not None:
            self.failures.append(Failure(planned, answer.error))
        identity = self.work.identify(planned.cell)
        # Seconds of cells, not of the clock: several run at a time.
        self.spent += answer.seconds
        self.expected += self.left.pop(identity)
        # A target that is complete can be reported while others still run.
        for plan in self.work.plans.values():
            ids = {self.work.identify(one.cell) for one in plan}
            if identity in ids and not ids & self.left.keys():
                self.gather()

    def gather(self, finished: bool = False) -> None:
        """Write the records of all targets, and the manifest."""
        store, work = self.work.store, self.work
        cells = [planned.cell for planned in work.cells.values()]
        store.write_records(cells)
        known = [record for record in map(store.read, cells) if record is not None]
        store.write_manifest(
            {
                "command": self.command,
                "quick": work.quick,
                "jobs": self.jobs,
                "started": self.started,
                "ended": _now(),
                "seconds": time.monotonic() - self.start,
                "cell_seconds": sum(record["seconds"] for record in known),
                "targets": {
                    name: [{"id": work.identify(planned.cell), **planned.label} for planned in plan]
                    for name, plan in work.plans.items()
                },
                "finished": finished,
            }
        )

    def tell(self, running: int) -> None:
        """Tell how it goes."""
        if self.progress is None:
            return
        # How far off the guesses were so far.
        pace = self.spent / self.expected if self.expected else 1.0
        # Several cells at a time, so that the clock runs less than the sum.
        left = pace * sum(self.left.values()) / self.jobs
        gone = time.monotonic() - self.start
        done, total = len(self.work.cells) - len(self.left), len(self.work.cells)
        self.progress(f"{done} of {total} cells done, {running} running, {_in_words(left)} left", gone / (gone + left))


def expected_seconds(cell: Cell) -> float:
    """A guess at how long a cell takes, before any like it has been seen."""
    settings = cell.settings
    if cell.kind == "train":
        return 1.0 + SECONDS_PER_STEP[settings["algorithm"]] * float(settings["steps"])
    if cell.kind == "lp" and settings["program"] == "gini":
        return float(settings["repeats"] * 0.005 * 2.5 ** settings["parameters"].get("num_arms", 5))
    return 1.0


def _in_words(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


# -- the cells themselves --------------------------------------------------------------------------------------------


def _run_batch(batch: Sequence[Planned], executor: Executor, log: _Log) -> None:
    """Run cells until all have ended, and record each when it ends."""
    left = len(batch)
    log.tell(min(left, executor.num_workers))
    for ended in executor.run(run_cell, [planned.cell for planned in batch], PATIENCE):
        if ended is not None:
            place, found = ended
            if isinstance(found, Lost):
                found = Answer(seconds=found.seconds, error=found.words)
            log.finish(batch[place], found)
            left -= 1
        log.tell(min(left, executor.num_workers))


def run_cell(cell: Cell) -> Answer:
    """Run a cell here and now; what it raises becomes its error."""
    start = time.perf_counter()
    try:
        outcome = find_kind(cell.kind)(**cell.settings)
    except Exception as error:  # noqa: BLE001  # a cell may fail in any way, and the others go on
        return Answer(seconds=time.perf_counter() - start, error=_explain(error))
    return Answer(asdict(outcome.values), dict(outcome.timings), time.perf_counter() - start)


def _explain(error: Exception) -> str:
    # Our own errors are sentences already.
    if isinstance(error, EvenhandError):
        return str(error)
    # The innermost frame: where it happened.
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    place = "" if frame is None else f" ({Path(frame.tb_frame.f_code.co_filename).name}, line {frame.tb_lineno})"
    return f"{type(error).__name__}: {error}{place}"
