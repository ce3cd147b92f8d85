"""The only door to HiGHS: a linear program goes in as arrays, its optimum comes out, or an error in plain words.

    maximise  gains.x    subject to    row_lower <= matrix x <= row_upper,    lower <= x <= upper

The duals are the rates at which the optimum grows with the right-hand sides: not negative for `<=` rows, not positive
for `>=` rows, of either sign for equations. No other module knows HiGHS, its options or its statuses.

Roads. On degenerate programs a simplex method may go round for hours where an interior point needs a second, and the
other way round. So each road but the last has a limit on its iterations, a multiple of the size of the program and not
a time, so that the answer does not depend on the machine; where it ends without a proof, the next road begins.
"""

from collections.abc import Callable
from dataclasses import dataclass
from threading import Event, Thread
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from scipy import sparse

from evenhand.checks import check_positive_int, check_shape
from evenhand.errors import EvenhandError, Infeasible, InvalidInput, NotConverged, TooLarge
from evenhand.typing import Array, Floats

if TYPE_CHECKING:
    from highspy import Highs, HighsLp

Algorithm: TypeAlias = Literal["simplex", "primal-simplex", "interior-point"]
"""How a program is solved. The interior point ends at a vertex only where it would be imprecise without."""

ALGORITHMS: dict[str, dict[str, Any]] = {
    "simplex": {"solver": "simplex"},
    "primal-simplex": {"solver": "simplex", "simplex_strategy": 4},
    "interior-point": {"solver": "ipm", "run_crossover": "choose"},
}
"""The options of HiGHS that each algorithm stands for."""

ROADS: dict[str, tuple[dict[str, Any], ...]] = {
    "simplex": ({}, ALGORITHMS["interior-point"], ALGORITHMS["primal-simplex"] | {"presolve": "off"}),
    "primal-simplex": ({}, ALGORITHMS["interior-point"], ALGORITHMS["simplex"] | {"presolve": "off"}),
    "interior-point": ({}, ALGORITHMS["simplex"], ALGORITHMS["interior-point"] | {"presolve": "off"}),
}
"""What is tried in turn where an algorithm ends without an answer: options that differ from its own."""

PATIENCE = 5
"""Simplex iterations a row after which another road is taken; usual programs need one to three."""

TELL_EVERY = 0.5
"""Seconds between two words about a program that is still being solved."""

Waiting: TypeAlias = Callable[[float], None]
"""Called now and then with the seconds that a program has taken so far."""

MOST_ENTRIES = 2**31 - 1
"""Non-zeros of the largest program: HiGHS counts in 32 bits."""

_BAD: type[EvenhandError] = InvalidInput
_UNFINISHED: type[EvenhandError] = NotConverged
STATUSES: dict[str, tuple[type[EvenhandError], str]] = {
    "kModelEmpty": (_BAD, "has no variables"),
    "kModelError": (_BAD, "is not sound: a number in it is not finite, or a bound is the wrong way round"),
    "kLoadError": (_BAD, "could not be read"),
    "kInfeasible": (Infeasible, "has no solution: its constraints contradict each other"),
    "kUnbounded": (_BAD, "has no optimum: its objective grows without limit"),
    "kUnboundedOrInfeasible": (_BAD, "has no optimum: it is unbounded, or its constraints contradict each other"),
    "kTimeLimit": (_UNFINISHED, "was not solved within the time limit"),
    "kIterationLimit": (_UNFINISHED, "was not solved within the limit on iterations"),
    "kMemoryLimit": (_UNFINISHED, "was not solved within the memory there is"),
    "kInterrupt": (_UNFINISHED, "was interrupted"),
    "kHighsInterrupt": (_UNFINISHED, "was interrupted"),
    "kUnknown": (_UNFINISHED, "was left without a proof that its solution is optimal"),
}
"""What each status means: the error and the words; whatever is not here (and not kOptimal) is NotConverged."""

_TRY_AGAIN = ("kIterationLimit", "kUnknown", "kSolveError", "kUnbounded", "kUnboundedOrInfeasible", "kPostsolveError")
"""Statuses after which another road may find the optimum; rounding can make a program look unbounded."""

_NO_LIMIT = 2**31 - 1


# -- a program and its optimum ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LinearProgram:
    """A linear program to be maximised; infinite bounds are absent ones."""

    gains: Floats
    """(column,) what one unit of each variable adds to the objective."""

    matrix: sparse.csc_array | sparse.csr_array
    """(row, column) coefficients, by columns or by rows: its arrays are handed over as they are."""

    row_lower: Floats
    """(row,) the least each row may be."""

    row_upper: Floats
    """(row,) the most each row may be."""

    lower: Floats
    """(column,) the least each variable may be."""

    upper: Floats
    """(column,) the most each variable may be."""

    @property
    def num_rows(self) -> int:
        """How many constraints there are."""
        return len(self.row_lower)

    @property
    def num_columns(self) -> int:
        """How many variables there are."""
        return len(self.gains)


@dataclass(frozen=True, eq=False)
class LinearOptimum:
    """The optimum of a linear program."""

    primal: Floats
    """(column,) the variables."""

    duals: Floats
    """(row,) what one unit more on each right-hand side adds to the objective."""

    objective: float
    """The optimal value."""

    seconds: float
    """How long HiGHS took, with handing the arrays over."""

    iterations: int
    """Of the simplex method, the interior point and the crossover together."""


# -- solving ----------------------------------------------------------------------------------------------------------


def solve_program(
    program: LinearProgram,
    *,
    algorithm: Algorithm = "simplex",
    tolerance: float = 1e-8,
    time_limit: float | None = None,
    threads: int | None = None,
    silent: bool = True,
    waiting: Waiting | None = None,
) -> LinearOptimum:
    """Solve a linear program to optimality.

    Args:
        program: what to maximise.
        algorithm: how; where it ends without an answer, others follow.
        tolerance: by how much a constraint, of the program or of its dual, may be broken; at 1e-9 the
            simplex methods may stall.
        time_limit: seconds after which to give up (NotConverged).
        threads: how many threads HiGHS may use; its own choice when absent.
        silent: whether HiGHS keeps its log to itself.
        waiting: called now and then with the seconds taken so far.

    Raises:
        Infeasible: its constraints contradict each other.
        InvalidInput: the program is unbounded, or not sound.
        NotConverged: HiGHS ended without an optimum on every road, or the time was over.
    """
    _check(program, algorithm, time_limit)
    options = _options(algorithm, tolerance, threads, silent)
    return WarmProgram(program, options, ROADS[algorithm], time_limit, waiting).solve()


class WarmProgram:
    """A program that is solved again with other gains and sides, from the basis at which it ended."""

    def __init__(
        self,
        program: LinearProgram,
        options: dict[str, Any] | None = None,
        roads: tuple[dict[str, Any], ...] = ROADS["simplex"],
        time_limit: float | None = None,
        waiting: Waiting | None = None,
    ) -> None:
        from highspy import Highs  # a heavy import, needed only here

        self._highs, self._roads = Highs(), roads
        self._options = options or _options("simplex", 1e-9, None, True)
        self._patience = PATIENCE * program.num_rows + 1000
        self._begin, self._limit, self._waiting = perf_counter(), time_limit, waiting
        self._columns = np.arange(program.num_columns, dtype=np.int32)
        self._rows = np.arange(program.num_rows, dtype=np.int32)
        _set_options(self._highs, self._options)
        if self._highs.passModel(_as_highs(program)).name == "kError":
            _raise("kModelError")

    def change(self, gains: Floats, rows: tuple[Floats, Floats], columns: tuple[Floats, Floats]) -> None:
        """Give it other gains, and other lower and upper sides of its rows and columns."""
        self._highs.changeColsCost(len(self._columns), self._columns, -gains)
        self._highs.changeColsBounds(len(self._columns), self._columns, *columns)
        # the stubs of highspy 1.15 lack it
        self._highs.changeRowsBounds(len(self._rows), self._rows, *rows)  # type: ignore[attr-defined]

    def solve(self, patient: bool = True) -> LinearOptimum:
        """Take the roads in turn until one ends with an answer; without patience only the first, and not far."""
        begin, status = perf_counter(), "kUnknown"
        roads = self._roads if patient else self._roads[:1]
        for number, other in enumerate(roads):
            # Without patience no road is the last one, so that even the first has its limit.
            last = patient and number == len(roads) - 1
            _set_options(self._highs, self._options | other | self._limits(last))
            if number:
                self._highs.clearSolver()  # where the last road got lost is no place to begin
            _run(self._highs, self._waiting, self._begin)
            status = self._highs.getModelStatus().name
            if status == "kOptimal":
                return _read(self._highs, perf_counter() - begin)
            # Infeasible, unsound, or out of time: another road would say the same.
            if status not in _TRY_AGAIN:
                break
        raise _error(status, perf_counter() - self._begin)

    def _limits(self, last: bool) -> dict[str, Any]:
        limits: dict[str, Any] = {"simplex_iteration_limit": _NO_LIMIT if last else self._patience}
        if self._limit is not None:
            # HiGHS counts from its first run on
            limits["time_limit"] = max(self._limit - (perf_counter() - self._begin), 0.01) + self._highs.getRunTime()
        return limits


# -- handing over, and reading back -----------------------------------------------------------------------------------


def _check(program: LinearProgram, algorithm: str, time_limit: float | None) -> None:
    rows, columns = program.matrix.shape
    if columns == 0:
        _raise("kModelEmpty")
    for name, axis, length in (
        ("gains", "column", columns),
        ("lower", "column", columns),
        ("upper", "column", columns),
        ("row_lower", "row", rows),
        ("row_upper", "row", rows),
    ):
        check_shape(getattr(program, name), {axis: length}, name)
    if program.matrix.nnz > MOST_ENTRIES:
        raise TooLarge(f"the linear program has {program.matrix.nnz} non-zeros; at most {MOST_ENTRIES} can be")
    if not (np.isfinite(program.gains).all() and np.isfinite(program.matrix.data).all()):
        _raise("kModelError")
    if algorithm not in ALGORITHMS:
        raise InvalidInput(f"algorithm: expected one of {', '.join(ALGORITHMS)}, got {algorithm!r}")
    if time_limit is not None and not time_limit > 0:
        raise InvalidInput(f"time_limit: expected a positive number of seconds, got {time_limit!r}")


def _options(algorithm: Algorithm, tolerance: float, threads: int | None, silent: bool) -> dict[str, Any]:
    options: dict[str, Any] = {
        "output_flag": not silent,
        "primal_feasibility_tolerance": tolerance,
        "dual_feasibility_tolerance": tolerance,
        "small_matrix_value": 1e-12,  # rare transitions are small, and must not be dropped
        **ALGORITHMS[algorithm],
    }
    if threads is not None:
        options["threads"] = check_positive_int(threads, "threads")
    return options


def _set_options(highs: "Highs", options: dict[str, Any]) -> None:
    for name, value in options.items():
        if highs.setOptionValue(name, value).name == "kError":
            raise InvalidInput(f"HiGHS does not take {value!r} for its option {name}")


def _as_highs(program: LinearProgram) -> "HighsLp":
    from highspy import HighsLp, MatrixFormat, ObjSense

    lp = HighsLp()
    lp.num_col_, lp.num_row_ = program.num_columns, program.num_rows
    # Minimised: without a basis, HiGHS 1.15 gives back duals of the wrong sign when it presolves a maximum.
    lp.sense_ = ObjSense.kMinimize
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = -program.gains, program.lower, program.upper
    lp.row_lower_, lp.row_upper_ = program.row_lower, program.row_upper
    by_rows = program.matrix.format == "csr"
    lp.a_matrix_.format_ = MatrixFormat.kRowwise if by_rows else MatrixFormat.kColwise
    lp.a_matrix_.num_col_, lp.a_matrix_.num_row_ = program.num_columns, program.num_rows
    lp.a_matrix_.start_ = _int32(program.matrix.indptr)
    lp.a_matrix_.index_ = _int32(program.matrix.indices)
    lp.a_matrix_.value_ = program.matrix.data
    return lp


def _int32(indices: Array) -> Array:
    return indices.astype(np.int32, copy=False)


def _run(highs: "Highs", waiting: Waiting | None, begin: float) -> None:
    """Run in a thread of its own: it can be interrupted, and its number of threads binds no later run."""
    highs.HandleUserInterrupt = True
    done = Event()
    worker = Thread(target=_run_and_tell, args=(highs, done), daemon=True)
    worker.start()
    try:
        while not done.wait(TELL_EVERY):  # not join(): a join that was interrupted cannot be repeated
            if waiting is not None:
                waiting(perf_counter() - begin)
    except BaseException:  # an interrupt, or whatever `waiting` raises to end it
        highs.cancelSolve()
        # Only when the run has ended may the object behind it go.
        done.wait()
        raise
    finally:
        worker.join()


def _run_and_tell(highs: "Highs", done: Event) -> None:
    try:
        highs.run()
    finally:
        done.set()


def _read(highs: "Highs", seconds: float) -> LinearOptimum:
    solution, info = highs.getSolution(), highs.getInfo()
    # HiGHS says -1 of a method that did not run.
    counts = (info.simplex_iteration_count, info.ipm_iteration_count, info.crossover_iteration_count)
    return LinearOptimum(
        primal=np.array(solution.col_value),
        # The program was minimised, so multipliers and objective change their signs.
        duals=-np.array(solution.row_dual),
        objective=-float(info.objective_function_value),
        seconds=seconds,
        iterations=sum(max(count, 0) for count in counts),
    )


def _raise(status: str) -> None:
    raise _error(status)


def _error(status: str, seconds: float | None = None) -> EvenhandError:
    error, words = STATUSES.get(status, (NotConverged, f"could not be solved (HiGHS says {status})"))
    spent = f" ({seconds:.3g} s)" if error is NotConverged and seconds is not None else ""
    return error(f"the linear program {words}{spent}")
