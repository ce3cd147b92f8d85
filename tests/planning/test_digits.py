"""Digits that rounding leaves: few where sums cancel, as many as ever where the large numbers are somebody else's."""

import json
from fractions import Fraction

import numpy as np
import pytest

import evenhand as eh
from evenhand.cli.main import run
from evenhand.planning.digits import certain_digits

MOVES = [[[0.8, 0.2], [0.9, 0.1]], [[0.3, 0.7], [0.9, 0.1]]]
POOR, RICH = (eh.Arm(MOVES, unit * np.array([[1.0, 0.5], [0.2, 0.4]]), [[0], [1]]) for unit in (1e-8, 1e8))


def deposit(interest):
    """An arm that pays 1e8 and gets it back with interest."""
    return eh.Arm([[[0, 1]], [[0, 1]]], [[-1e8], [1e8 + interest]], [[0]], [1, 0])


@pytest.mark.parametrize("interest", [1e-7, 1e-3, 0.1, 1e4])
def test_what_cancels_costs_digits(interest):
    found = eh.solve(eh.CoupledMDP([deposit(interest)], [1], 1.0, criterion="finite:2"), "utilitarian", "joint")
    exact = Fraction(1e8 + interest) - Fraction(1e8)
    assert found.digits <= max(0, 9 + np.log10(interest)) or interest > 1
    for figure in (found.welfare, found.upper_bound):
        assert abs(Fraction(figure) - exact) <= (Fraction(1, 10**found.digits) + Fraction(found.gap)) * abs(
            Fraction(found.upper_bound)
        )


@pytest.mark.parametrize("welfare", ["maximin", "leximin", "utilitarian"])
def test_the_size_of_who_does_not_count_costs_nothing(welfare):
    assert eh.solve(eh.CoupledMDP([POOR, RICH], [1], 0.9), welfare, "joint").digits >= 10


def test_rewards_that_nobody_gets_cost_nothing():
    stays = eh.Arm([[[1, 0], [1, 0]], [[0, 1], [0, 1]]], [[1e-8, 0], [1e8, 1e8]], [[0], [1]], [1, 0])
    assert eh.solve(eh.CoupledMDP([POOR, stays], [1], 0.9), "maximin", "joint").digits >= 10


def test_the_gap_of_the_poor_is_not_taken_for_rounding_of_the_rich():
    """It was 0 wherever welfare and bound were nearer than 1e-13 of the largest value of anybody."""
    found = eh.solve(eh.CoupledMDP([POOR, RICH], [1], 0.9), "maximin", "joint")
    assert found.gap == pytest.approx((found.upper_bound - found.welfare) / found.upper_bound, abs=1e-12)


def test_an_optimum_of_nothing_has_no_gap():
    found = eh.solve(eh.CoupledMDP([deposit(0.0)], [1], 1.0, criterion="finite:2"), "utilitarian", "joint")
    assert (found.gap, found.digits) == (0.0, 0)


@pytest.mark.parametrize(
    ("rounding", "bound", "digits"),
    [
        (0.0, 0.0, 15),
        (0.0, 1.0, 15),
        (1e-7, 0.0, 0),
        (np.inf, 1.0, 0),
        (0.9e-3, -1.0, 3),
        (2.0, 1.0, 0),
        (1e-30, 1, 15),
    ],
)
def test_digits(rounding, bound, digits):
    assert certain_digits(rounding, bound) == digits


def test_few_digits_are_told(tmp_path, capsys):
    eh.save(eh.CoupledMDP([deposit(1e-3)], [1], 1.0, criterion="finite:2"), tmp_path / "model.toml")
    command = ["solve", str(tmp_path / "model.toml"), "--welfare", "utilitarian", "--method", "joint"]
    assert run([*command, "--quiet"]) == 0
    assert "rounding leaves 2 of these: rewards are of very different sizes" in " ".join(
        capsys.readouterr().out.split()
    )
    assert run([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["welfare"]["digits"] == 2
