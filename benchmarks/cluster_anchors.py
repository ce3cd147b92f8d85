"""What else there is: one linear program by HiGHS (simplex, interior point, PDLP), and per-arm Lagrangian code.

The program is the relaxation as it stands: occupancy measures of all arms, one budget row, and for a rank-weighted
welfare the dual of its permutahedron, which takes N^2 rows in general; so programs are given the mean, the easiest
case, and we solve both. Per-arm Lagrangian code, as in the restless-bandit literature, bisects one price with value
iteration of every arm; it is for the mean, and has no notion of who is worst off.
"""

import tempfile
import time
from typing import Any

import highspy
import numpy as np
from scipy import sparse

import evenhand as eh
from evenhand.model.coupled import CoupledMDP
from evenhand.problems.random_arms import random_coupled
from evenhand.solvers.fluid import solve_blocks

LIMIT = 30.0
"""Seconds after which a program is stopped."""


def program_of(problem: CoupledMDP) -> tuple[sparse.csc_array, Any, Any, Any]:
    """Rows, their values, gains and the budget row's allowance of the mean."""
    types, N = problem.types, problem.num_types
    S, A = types.rewards.shape[1:]
    arm, s, a, j = np.meshgrid(*map(np.arange, (N, S, A, S)), indexing="ij")
    column = (arm * S + s) * A + a
    rows = [(arm * S + j).ravel(), (np.arange(N * S * A) // A), np.full(N * S * A, N * S)]
    columns = [column.ravel(), np.arange(N * S * A), np.arange(N * S * A)]
    entries = [-problem.discount * types.transitions.ravel(), np.ones(N * S * A), types.usage[..., 0].ravel()]
    matrix = sparse.csc_array(
        (np.concatenate(entries), (np.concatenate(rows), np.concatenate(columns))), shape=(N * S + 1, N * S * A)
    )
    matrix.sum_duplicates()
    allowance = float(problem.budget[0]) * problem.criterion.total
    return matrix, np.append(types.initial.ravel(), allowance), types.rewards.ravel() / N, allowance


def by_program(problem: CoupledMDP, solver: str) -> tuple[float, float, str]:
    """The mean of the relaxation by one program: value, seconds, how it ended."""
    matrix, right, gains, _ = program_of(problem)
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("solver", solver)
    highs.setOptionValue("time_limit", LIMIT)
    if solver == "pdlp":
        highs.setOptionValue("pdlp_optimality_tolerance", 1e-4)  # the gap that we stop at
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = matrix.shape[1], matrix.shape[0]
    lp.col_cost_, lp.sense_ = gains, highspy.ObjSense.kMaximize
    lp.col_lower_, lp.col_upper_ = np.zeros(matrix.shape[1]), np.full(matrix.shape[1], highspy.kHighsInf)
    lower = right.copy()
    lower[-1] = -highspy.kHighsInf
    lp.row_lower_, lp.row_upper_ = lower, right
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = matrix.indptr, matrix.indices, matrix.data
    begin = time.perf_counter()
    highs.passModel(lp)
    highs.run()
    ended = highs.modelStatusToString(highs.getModelStatus())
    return highs.getInfo().objective_function_value, time.perf_counter() - begin, ended


def by_lagrangian(problem: CoupledMDP) -> tuple[float, float]:
    """The bound of the mean by bisection of one price over value iteration of all arms: value and seconds."""
    types, begin = problem.types, time.perf_counter()
    allowance, values = float(problem.budget[0]) * problem.criterion.total, None

    def dual(price: float) -> tuple[float, float]:
        nonlocal values
        gains = types.rewards - price * types.usage[..., 0]
        values = np.zeros(types.initial.shape) if values is None else values
        while True:
            worth = gains + problem.discount * np.einsum("tsaj,tj->tsa", types.transitions, values)
            new = worth.max(axis=-1)
            if np.abs(new - values).max() < 1e-6:
                break
            values = new
        more = 1e-4
        nudged = gains - more * types.usage[..., 0]
        ahead = nudged + problem.discount * np.einsum("tsaj,tj->tsa", types.transitions, values)
        use = ((types.initial * (new - ahead.max(axis=-1))).sum()) / more
        return float((types.initial * new).sum() + price * allowance) / problem.num_arms, use

    low, high = 0.0, float(np.abs(types.rewards).max()) / (1 - problem.discount)
    for _ in range(30):  # the dual is convex in the price
        thirds = low + (high - low) / 3, high - (high - low) / 3
        first, second = dual(thirds[0])[0], dual(thirds[1])[0]
        low, high = (low, thirds[1]) if first <= second else (thirds[0], high)
    return dual(low)[0], time.perf_counter() - begin


def run() -> list[dict[str, Any]]:
    """A row for each size: until nobody else ends within the limit."""
    rows = []
    print(f"{'arms':>8} {'simplex s':>10} {'ipm s':>10} {'pdlp s':>10} {'lagrange s':>10} {'ours s':>8} {'fair s':>8}")
    running = {"simplex", "ipm", "pdlp", "lagrange"}
    for number in (10**2, 10**3, 10**4, 10**5):
        problem = random_coupled(number, 3, num_types=number)
        row: dict[str, Any] = {"arms": number}
        for solver in ("simplex", "ipm", "pdlp"):
            if solver in running:
                value, seconds, ended = by_program(problem, solver)
                row[solver] = {"value": value, "seconds": seconds, "ended": ended}
                if seconds >= LIMIT:
                    running.discard(solver)
        if "lagrange" in running:
            value, seconds = by_lagrangian(problem)
            row["lagrange"] = {"value": value, "seconds": seconds, "ended": "Optimal"}
            if seconds > LIMIT:
                running.discard("lagrange")
        for name, welfare in (("ours", "utilitarian"), ("fair", "gini:half=0.75")):
            with tempfile.TemporaryDirectory() as folder:
                eh.save(problem, f"{folder}/arms.parquet")
                begin = time.perf_counter()
                found = solve_blocks(eh.open_arms(f"{folder}/arms.parquet"), welfare)
            row[name] = {"value": found.welfare, "bound": found.upper_bound, "seconds": time.perf_counter() - begin}
        told = [_told(row.get(name)) for name in ("simplex", "ipm", "pdlp", "lagrange")]
        print(f"{number:>8} {' '.join(f'{one:>10}' for one in told)} "
              f"{row['ours']['seconds']:8.2f} {row['fair']['seconds']:8.2f}", flush=True)  # fmt: skip
        rows.append(row)
    return rows


def _told(found: dict[str, Any] | None) -> str:
    if found is None:
        return "-"
    return f"{found['seconds']:.2f}" if found["seconds"] < LIMIT else f"> {LIMIT:.0f}"
