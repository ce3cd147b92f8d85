"""Interface to HiGHS: a linear program as arrays, and its optimum or an error.

    maximise  gains.x    subject to    row_lower <= matrix x <= row_upper,    lower <= x <= upper

The duals are the rates at which the optimum grows with the right-hand sides: not negative for `<=` rows, not positive
for `>=` rows, of either sign for equations. No other module uses HiGHS, its options or its statuses.

Attempts. On degenerate programs a simplex method may cycle for hours where an interior point needs a second, and vice
versa. So each attempt but the last has a limit on its iterations, a multiple of the size of the program and not a time,
so that the result does not depend on the machine; if it ends without a proof, the next attempt begins.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from threading import Event, Thread
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from scipy import sparse

from evenhand.errors import EvenhandError, InfeasibleError, InvalidInputError, NotConvergedError, TooLargeError
from evenhand.typing import Bools, Floats, Ints

if TYPE_CHECKING:
    from highspy import Highs, HighsBasis, HighsLp

    from evenhand.kernels.dual_simplex import PivotTree

Algorithm: TypeAlias = Literal["simplex", "primal-simplex", "interior-point"]
"""Algorithm of HiGHS. The interior point ends at a vertex only if it would be imprecise otherwise."""

ALGORITHMS: dict[str, dict[str, Any]] = {
    "simplex": {"solver": "simplex"},
    "primal-simplex": {"solver": "simplex", "simplex_strategy": 4},
    "interior-point": {"solver": "ipm", "run_crossover": "choose"},
}
"""Options of HiGHS of each algorithm."""

ATTEMPTS: dict[str, tuple[dict[str, Any], ...]] = {
    "simplex": ({}, ALGORITHMS["interior-point"], ALGORITHMS["primal-simplex"] | {"presolve": "off"}),
    "primal-simplex": ({}, ALGORITHMS["interior-point"], ALGORITHMS["simplex"] | {"presolve": "off"}),
    "interior-point": ({}, ALGORITHMS["simplex"], ALGORITHMS["interior-point"] | {"presolve": "off"}),
}
"""Options of the attempts of each algorithm, in turn, that differ from its own."""

PATIENCE = 5
"""Simplex iterations per row before the next attempt; usual programs need one to three."""

MOST_CELLS, PATH_CELLS = 500_000, 5_000_000
"""Rows times columns of a repeated program up to which its table and pivots are stored, and so many times that it has
pivots before HiGHS takes over: there a pivot does not cost more with the size of the table."""

MOST_REMEMBERED = 1e8
"""Bytes of the pivots of a repeated program."""

REPORT_EVERY = 0.5
"""Seconds between two reports on a program that is still being solved."""

Waiting: TypeAlias = Callable[[float], None]
"""Called repeatedly with the seconds that a program has taken so far."""

MOST_ENTRIES = 2**31 - 1
"""Non-zeros of the largest program: HiGHS counts in 32 bits."""

STATUSES: dict[str, tuple[type[EvenhandError], str]] = {
    "kModelEmpty": (InvalidInputError, "has no variables"),
    "kModelError": (InvalidInputError, "is invalid: a number is not finite, or a lower bound exceeds its upper bound"),
    "kInfeasible": (InfeasibleError, "has no solution: its constraints contradict each other"),
    "kUnbounded": (InvalidInputError, "has no optimum: its objective grows without limit"),
    "kUnboundedOrInfeasible": (InvalidInputError, "has no optimum: it is unbounded, or infeasible"),
    "kTimeLimit": (NotConvergedError, "was not solved within the time limit"),
}
"""Error and message of each status; any other (but kOptimal) is NotConvergedError."""

_TRY_AGAIN = (
    "kNotset",
    "kIterationLimit",
    "kUnknown",
    "kSolveError",
    "kUnbounded",
    "kUnboundedOrInfeasible",
    "kPostsolveError",
)
"""Statuses after which another attempt may find the optimum; rounding can make a program look unbounded."""

_NO_LIMIT = 2**31 - 1


# -- a program and its optimum ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LinearProgram:
    """A linear program to be maximised; infinite bounds are absent ones."""

    gains: Floats
    """(column,) coefficients of the objective."""

    matrix: sparse.csc_array | sparse.csr_array
    """(row, column) coefficients, by columns or by rows: its arrays are passed on unchanged."""

    row_lower: Floats | float = -np.inf
    """(row,) lower bounds of the rows."""

    row_upper: Floats | float = np.inf
    """(row,) upper bounds of the rows."""

    lower: Floats | float = 0.0
    """(column,) lower bounds of the variables."""

    upper: Floats | float = np.inf
    """(column,) upper bounds of the variables."""

    @property
    def num_rows(self) -> int:
        """Number of constraints."""
        return int(self.matrix.shape[0])

    @property
    def num_columns(self) -> int:
        """Number of variables."""
        return len(self.gains)


@dataclass(frozen=True, eq=False)
class LinearOptimum:
    """The optimum of a linear program."""

    primal: Floats
    """(column,) the variables."""

    duals: Floats
    """(row,) derivatives of the objective by the right-hand sides."""

    objective: float
    """The optimal value."""


# -- solving ----------------------------------------------------------------------------------------------------------


def solve_program(
    program: LinearProgram,
    *,
    algorithm: Algorithm = "simplex",
    tolerance: float = 1e-8,
    time_limit: float | None = None,
    waiting: Waiting | None = None,
) -> LinearOptimum:
    """Solve a linear program to optimality.

    Args:
        program: the program.
        algorithm: first algorithm; others follow if it ends without an optimum.
        tolerance: feasibility tolerance of the program and of its dual; from 1e-9 on the simplex methods may stall.
        time_limit: seconds after which to raise NotConvergedError.
        waiting: called repeatedly with the seconds taken so far.

    Raises:
        InfeasibleError: its constraints contradict each other.
        InvalidInputError: the program is unbounded or invalid.
        NotConvergedError: HiGHS ended without an optimum in every attempt, or the time was over.
    """
    _check(program, algorithm, time_limit)
    from highspy import Highs  # a heavy import, needed only here

    begin, status, highs = perf_counter(), "kUnknown", Highs()
    options: dict[str, Any] = {
        "output_flag": False,
        "primal_feasibility_tolerance": tolerance,
        "dual_feasibility_tolerance": tolerance,
        "small_matrix_value": 1e-12,  # rare transitions must not be dropped
        **ALGORITHMS[algorithm],
    }
    _set_options(highs, options)
    if highs.passModel(_as_highs(program)).name == "kError":
        raise _error("kModelError")
    attempts = ATTEMPTS[algorithm]
    for number, other in enumerate(attempts):
        last = number == len(attempts) - 1
        limits: dict[str, Any] = {"simplex_iteration_limit": _NO_LIMIT if last else PATIENCE * program.num_rows + 1000}
        if time_limit is not None:
            # HiGHS counts from its first run on.
            limits["time_limit"] = max(time_limit - (perf_counter() - begin), 0.01) + highs.getRunTime()
        _set_options(highs, options | other | limits)
        if number:
            highs.clearSolver()
        _run(highs, waiting, begin)
        status = highs.getModelStatus().name
        if status == "kOptimal":
            # The program was minimised, so multipliers and objective change their signs.
            solution, objective = highs.getSolution(), -float(highs.getInfo().objective_function_value)
            return LinearOptimum(np.array(solution.col_value), -np.array(solution.row_dual), objective)
        # Infeasible, unsound, or out of time: another attempt would have the same result.
        if status not in _TRY_AGAIN:
            break
    raise _error(status)


class RepeatedProgram:
    """A program that is solved for many right-hand sides of its first rows, each time from the same basis.

    So the optimum depends on the right-hand side alone, and not on those before. Few pivots lead there, by the dual
    simplex method: a basis that was optimal stays dual feasible. Those of small programs are remembered
    (`kernels.dual_simplex`); others, and those whose pivots are too small, are solved by HiGHS.
    """

    def __init__(self, program: LinearProgram, right: Floats, often: bool = True) -> None:
        """Find the basis.

        Args:
            program: the program, with variables of at least 0; its first rows are equations, the others may be `<=`.
            right: (row,) right-hand side of the first rows at which the basis is optimal.
            often: whether it is solved so often that pivots are worth remembering, which takes two seconds to compile.
        """
        from highspy import Highs

        self._highs, self._program, self._rows = Highs(), program, np.arange(len(right), dtype=np.int32)
        self._is_stored = often and program.num_rows * program.num_columns <= MOST_CELLS
        options: dict[str, Any] = {"output_flag": False, "threads": 1, "small_matrix_value": 1e-12}
        options |= ALGORITHMS["simplex"] | {"presolve": "off"}  # a presolved program would begin without the basis
        _set_options(self._highs, options)
        if self._highs.passModel(_as_highs(program)).name == "kError":
            raise _error("kModelError")
        self.start_at(right)

    def start_at(self, right: Floats) -> Floats:
        """Return the optimal variables of a right-hand side, and start from its basis from now on.

        Args:
            right: (row,) right-hand side of the first rows.
        """
        self._basis: HighsBasis | None = None
        found = self._solve_anew(right)
        self._basis = self._highs.getBasis()
        self.__dict__.pop("_root", None)
        return found

    def solve(self, right: Floats) -> Floats:
        """Return the optimal variables.

        Args:
            right: (row,) right-hand side of the first rows.

        Raises:
            InfeasibleError: its constraints contradict each other.
            NotConvergedError: HiGHS ended without an optimum.
        """
        if self._root is None:
            return self._solve_anew(right)
        from evenhand.kernels.dual_simplex import find_basis

        own, rest, table, fixed, columns, tree = self._root
        beta, basis = own @ right + rest, np.arange(len(rest))
        tolerance = 1e-9 * max(1.0, np.abs(right).max())
        if not find_basis(beta, basis, table, fixed, tree, self._most_pivots, tolerance):
            return self._solve_anew(right)
        found = np.zeros(self._program.num_columns + len(rest))
        found[columns[basis]] = beta
        return found[: self._program.num_columns]

    @cached_property
    def _root(self) -> "tuple[Floats, Floats, Floats, Bools, Ints, PivotTree] | None":
        """Inverse of the basis for the first rows, and what the others add; table; fixed variables; their columns.

        None if pivots are not stored.
        """
        from evenhand.kernels.dual_simplex import make_tree

        program, basis = self._program, self._basis
        assert basis is not None
        number, wide = program.num_rows, program.num_columns
        if not self._is_stored:
            return None
        basic = np.array([status.value == 1 for status in [*basis.col_status, *basis.row_status]])
        columns = np.concatenate([np.flatnonzero(basic), np.flatnonzero(~basic)])
        matrix = np.hstack([program.matrix.toarray(), np.eye(number)])[:, columns]
        inverse = np.linalg.inv(matrix[:, :number])
        table = inverse @ matrix[:, number:]
        table[np.abs(table) < 1e-13] = 0.0
        gains = np.concatenate([program.gains, np.zeros(number)])[columns]
        costs = np.concatenate([np.zeros(number), np.maximum(gains[:number] @ table - gains[number:], 0.0)])
        equal = np.broadcast_to(program.row_lower, number) == np.broadcast_to(program.row_upper, number)
        fixed = np.concatenate([np.zeros(wide, dtype=np.bool_), equal])[columns]
        size = len(self._rows)
        rest = inverse[:, size:] @ np.broadcast_to(program.row_upper, number)[size:]
        tree = make_tree(costs, number, self._most_pivots, MOST_REMEMBERED)
        return inverse[:, :size].copy(), rest, table, fixed, columns, tree

    @property
    def _most_pivots(self) -> int:
        return min(PATH_CELLS // (self._program.num_rows * self._program.num_columns), self._program.num_rows)

    def _solve_anew(self, right: Floats) -> Floats:
        """Return the optimal variables, by HiGHS from the basis."""
        change: Any = self._highs.changeRowsBounds  # type: ignore[attr-defined]  # missing in its stubs
        change(len(right), self._rows, right, right)
        if self._basis is not None:
            self._highs.clearSolver()  # with the weights of its last run, it may end at another optimum
            self._highs.setBasis(self._basis)
        self._highs.run()
        status = self._highs.getModelStatus().name
        if status not in ("kOptimal", "kInfeasible"):  # from this basis it may lose its digits: begin anew
            self._highs.clearSolver()
            self._highs.run()
            status = self._highs.getModelStatus().name
        if status != "kOptimal":
            raise _error(status)
        return np.array(self._highs.getSolution().col_value)


# -- conversion -----------------------------------------------------------------------------------------------------


def _check(program: LinearProgram, algorithm: str, time_limit: float | None) -> None:
    if program.matrix.shape[1] == 0:
        raise _error("kModelEmpty")
    if program.matrix.nnz > MOST_ENTRIES:
        raise TooLargeError(f"the linear program has {program.matrix.nnz} non-zeros; at most {MOST_ENTRIES} can be")
    if not (np.isfinite(program.gains).all() and np.isfinite(program.matrix.data).all()):
        raise _error("kModelError")
    if algorithm not in ALGORITHMS:
        raise InvalidInputError(f"algorithm: expected one of {', '.join(ALGORITHMS)}, got {algorithm!r}")
    if time_limit is not None and not time_limit > 0:
        raise InvalidInputError(f"time_limit: expected a positive number of seconds, got {time_limit!r}")


def _set_options(highs: "Highs", options: dict[str, Any]) -> None:
    for name, value in options.items():
        if highs.setOptionValue(name, value).name == "kError":
            raise InvalidInputError(f"HiGHS does not take {value!r} for its option {name}")


def _as_highs(program: LinearProgram) -> "HighsLp":
    from highspy import HighsLp, MatrixFormat, ObjSense

    lp = HighsLp()
    lp.num_col_, lp.num_row_ = program.num_columns, program.num_rows
    # Minimised: without a basis, HiGHS 1.15 gives back duals of the wrong sign when it presolves a maximum.
    lp.sense_ = ObjSense.kMinimize
    lp.col_cost_ = -program.gains
    lp.col_lower_, lp.col_upper_ = (np.full(program.num_columns, bound) for bound in (program.lower, program.upper))
    lp.row_lower_, lp.row_upper_ = (
        np.full(program.num_rows, bound) for bound in (program.row_lower, program.row_upper)
    )
    by_rows = program.matrix.format == "csr"
    lp.a_matrix_.format_ = MatrixFormat.kRowwise if by_rows else MatrixFormat.kColwise
    lp.a_matrix_.num_col_, lp.a_matrix_.num_row_ = program.num_columns, program.num_rows
    lp.a_matrix_.start_ = program.matrix.indptr.astype(np.int32, copy=False)
    lp.a_matrix_.index_ = program.matrix.indices.astype(np.int32, copy=False)
    lp.a_matrix_.value_ = program.matrix.data
    return lp


def _run(highs: "Highs", waiting: Waiting | None, begin: float) -> None:
    """Run in a separate thread: it can be interrupted, and its number of threads binds no later run."""
    highs.HandleUserInterrupt = True
    done = Event()

    def run() -> None:
        try:
            highs.run()
        finally:
            done.set()

    worker = Thread(target=run, daemon=True)
    worker.start()
    try:
        while not done.wait(REPORT_EVERY):  # not join(): a join that was interrupted cannot be repeated
            if waiting is not None:
                waiting(perf_counter() - begin)
    except BaseException:  # an interrupt, or an error of `waiting`
        highs.cancelSolve()
        # The object must outlive the run.
        done.wait()
        raise
    finally:
        worker.join()


def _error(status: str) -> EvenhandError:
    error, words = STATUSES.get(status, (NotConvergedError, f"could not be solved (HiGHS says {status})"))
    return error(f"the linear program {words}")
