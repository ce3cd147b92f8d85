"""Programs beyond the solver's tolerance, the roads that follow a stall, and words about a program that takes long."""

from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse

import evenhand as eh
from evenhand.errors import Infeasible, NotConverged
from evenhand.reductions.joint import Joint
from evenhand.solvers import _highs
from evenhand.solvers._highs import LinearProgram, solve_program
from evenhand.solvers.linear_programs import gini_lp
from evenhand.solvers.refinement import solve_precisely

from ..conftest import mentions


def level_program(values: np.ndarray) -> LinearProgram:
    """The largest level that a mixture of the columns reaches in every row."""
    rows, columns = values.shape
    matrix = np.vstack([np.column_stack([values, -np.ones(rows)]), np.append(np.ones(columns), 0.0)])
    return LinearProgram(
        gains=np.append(np.zeros(columns), 1.0),
        matrix=sparse.csc_array(matrix),
        row_lower=np.append(np.zeros(rows), 1.0),
        row_upper=np.append(np.full(rows, np.inf), 1.0),
        lower=np.append(np.zeros(columns), -np.inf),
        upper=np.full(columns + 1, np.inf),
    )


def gap_of(values: np.ndarray, optimum: _highs.LinearOptimum) -> Fraction:
    """How far the multipliers leave the level from the best, in exact arithmetic."""
    shares = np.maximum(optimum.primal[:-1], 0.0)
    weights = np.maximum(-optimum.duals[:-1], 0.0)
    exact = [[Fraction(float(x)) for x in row] for row in values]
    theta = [Fraction(float(x)) / sum(map(Fraction, map(float, shares))) for x in shares]
    y = [Fraction(float(x)) / sum(map(Fraction, map(float, weights))) for x in weights]
    level = min(sum(a * b for a, b in zip(row, theta, strict=True)) for row in exact)
    best = max(sum(y[i] * exact[i][j] for i in range(len(y))) for j in range(len(theta)))
    return best - level


def nearly_alike(seed: int) -> np.ndarray:
    """Columns that differ by less than the solver's tolerance."""
    rng = np.random.default_rng(seed)
    return 1.0 + 1e-3 * rng.random((4, 1)) + 1e-9 * rng.normal(size=(4, 30))


@pytest.mark.parametrize("seed", range(5))
def test_what_differs_by_less_than_the_tolerance_is_told_apart(seed: int) -> None:
    values = nearly_alike(seed)
    plain, precise = solve_program(level_program(values), tolerance=1e-8), solve_precisely(level_program(values))
    assert float(gap_of(values, precise)) <= 1e-14
    assert float(gap_of(values, precise)) <= float(gap_of(values, plain))


def test_the_tolerance_alone_does_not_tell_them_apart() -> None:
    """Else the refinement would be tested by nothing."""
    gaps = [float(gap_of(values, solve_program(level_program(values)))) for values in map(nearly_alike, range(5))]
    assert max(gaps) > 1e-12


def test_contradictions_are_told() -> None:
    """Shares cannot sum to less than nothing."""
    program = level_program(np.ones((2, 2)))
    sides = np.append(np.zeros(2), -1.0), np.append(np.full(2, np.inf), -1.0)
    with pytest.raises(Infeasible):
        solve_precisely(LinearProgram(program.gains, program.matrix, *sides, program.lower, program.upper))


def test_another_road_follows_where_one_stalls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two iterations are too few for the simplex method; the interior point counts its own."""
    values = np.random.default_rng(0).random((30, 40))
    best = solve_program(level_program(values))
    monkeypatch.setattr(_highs, "PATIENCE", 0)
    monkeypatch.setattr(_highs.WarmProgram, "_limits", lambda self, last: {"simplex_iteration_limit": 2})
    found = solve_program(level_program(values), algorithm="primal-simplex")
    assert found.objective == pytest.approx(best.objective, abs=1e-6)
    monkeypatch.setattr(_highs, "ROADS", {"primal-simplex": ({},)})
    with pytest.raises(NotConverged):
        solve_program(level_program(values), algorithm="primal-simplex")


@pytest.mark.slow
def test_a_degenerate_program_of_many_transitions_ends() -> None:
    """The simplex methods stalled on it for more than twenty minutes."""
    problem = eh.problems.random_coupled(num_arms=4, num_states=4)
    mdp = Joint(problem).mdp
    solution = gini_lp(mdp, [1.0, 0.0, 0.0, 0.0])
    assert solution.gap <= 1e-6 * solution.upper_bound
    # Identical arms: the best mean is the best of every welfare.
    assert solution.lower_bound == pytest.approx(eh.solve(problem, "utilitarian", "counts").welfare, rel=1e-6)


def test_a_long_program_says_how_long_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_highs, "TELL_EVERY", 1e-4)
    told: list[tuple[str, float]] = []
    eh.solve(
        eh.problems.random_coupled(num_arms=3, num_states=4, num_types=3),
        "maximin",
        "joint-lp",
        progress=lambda what, share: told.append((what, share)),
    )
    assert any("joint-lp: solving, " in what and mentions(3600)(what) for what, _ in told)
