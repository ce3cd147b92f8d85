"""Probabilities that nearly sum to 1: divided by their sum and noted, up to 1e-4; refused beyond."""

import warnings

import numpy as np
import pytest

from evenhand.errors import ModelError, NormalisationWarning
from evenhand.model import Arm, ArmTables, CoupledMDP, load, save

from ..conftest import mentions

THIRDS = """\
budget = [1]
criterion = "average"
[[arms]]
name = "die"
states = ["a", "b", "c"]
transitions = [
  [[0.3333333, 0.3333333, 0.3333333]],
  [[0.33334, 0.33333, 0.33334]],
  [[0.2, 0.3, 0.5]],
]
rewards = [[0], [1], [2]]
usage = [[0]]
initial = [0.3333, 0.3333, 0.3333]
"""


def die(row, **changes):
    return Arm([[row]] * 3, [[0], [1], [2]], [[0]], **changes)


def test_a_file_of_thirds_is_read_and_noted(tmp_path):
    (tmp_path / "die.toml").write_text(THIRDS)
    with pytest.warns(NormalisationWarning) as told:
        problem = load(tmp_path / "die.toml")
    (warning,) = told
    assert warning.filename == __file__
    places = ["arms[0].transitions[0][0]", "arms[0].transitions[1][0]", "arms[0].initial"]
    assert [row.place for row in warning.message.rows] == places
    assert "die.toml: 3 rows of probabilities did not quite sum to 1" in str(warning.message)
    assert 'arm "die", state "a", action 0: probabilities sum to 0.9999999, not 1; and 2 more' in str(warning.message)
    assert problem.tables.transitions.sum(axis=-1) == pytest.approx(1.0, abs=1e-15)
    assert problem.tables.transitions[0, 0, 0].tolist() == pytest.approx([1 / 3] * 3, abs=1e-15)
    assert problem.tables.initial[0].sum() == pytest.approx(1.0, abs=1e-15)


@pytest.mark.parametrize("suffix", [".toml", ".json", ".npz"])
def test_what_was_normalised_is_written_so_and_read_without_a_word(tmp_path, suffix):
    (tmp_path / "die.toml").write_text(THIRDS)
    with pytest.warns(NormalisationWarning):
        problem = load(tmp_path / "die.toml")
    save(problem, tmp_path / f"again{suffix}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load(tmp_path / f"again{suffix}") == problem


@pytest.mark.parametrize("off", [9e-5, 1e-4, -1e-4, 1e-6])
def test_rows_within_a_ten_thousandth_are_divided_by_their_sum(off):
    row = np.array([0.5 + off, 0.25, 0.25])
    with pytest.warns(NormalisationWarning, match="3 rows") as told:
        arm = die(row.tolist())
    assert told[0].filename == __file__
    assert np.allclose(arm.transitions[0, 0], row / row.sum(), rtol=0, atol=1e-16)


@pytest.mark.parametrize("off", [1.01e-4, -2e-4, 1e-3])
def test_rows_further_off_are_refused(off):
    with pytest.raises(ModelError, check=mentions("transitions")):
        die([0.5 + off, 0.25, 0.25])
    with pytest.raises(ModelError, check=mentions("initial")):
        die([0.5, 0.25, 0.25], initial=[1 + off, 0, 0])


def test_rounding_is_not_reported():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        die([0.1 + 0.2, 0.3, 0.4])
        die([1 / 3 + 1e-9, 1 / 3, 1 / 3])


def tables(rows):
    """Two arms whose first rows are as given; the second has padding."""
    moves = np.zeros((2, 3, 1, 3))
    moves[0, :, 0] = [0.2, 0.3, 0.5]
    moves[1, :2, 0, :2] = [0.4, 0.6]
    moves[0, 1, 0], moves[1, 1, 0, :2] = rows
    start = np.array([[1.0, 0, 0], [1.0, 0, 0]])
    sizes = np.array([3, 2], dtype=np.int32), np.array([1, 1], dtype=np.int32)
    return ArmTables(moves, np.zeros((2, 3, 1)), np.zeros((2, 3, 1, 1)), start, *sizes)


def test_arrays_are_treated_alike(tmp_path):
    with pytest.warns(NormalisationWarning) as told:
        problem = CoupledMDP(tables([[0.3333333] * 3, [0.49999, 0.49999]]), [1], 0.9)
    assert [row.place for row in told[0].message.rows] == ["arms[0].transitions[1][0]", "arms[1].transitions[1][0]"]
    assert problem.tables.transitions[1, 1, 0].tolist() == [0.5, 0.5, 0.0]
    with pytest.raises(ModelError, check=mentions("arms[1].transitions[1][0]", 0.9)):
        CoupledMDP(tables([[0.3333333] * 3, [0.4, 0.5]]), [1], 0.9)


def test_rows_of_an_archive_are_named(tmp_path):
    source = tables([[0.3333333] * 3, [0.5, 0.5]])
    names = ("transitions", "rewards", "usage", "num_states", "num_actions")
    np.savez(tmp_path / "m.npz", discount=0.9, budget=[1], **{name: getattr(source, name) for name in names})
    with pytest.warns(NormalisationWarning, match=r"arms\[0\]\.transitions\[1\]\[0\]"):
        load(tmp_path / "m.npz")


def test_many_arms_that_nearly_sum_to_one_are_accepted():
    """More than are shown one by one: all of them are sound."""
    moves = np.full((100, 3, 1, 3), 0.333333)
    sizes = np.full(100, 3, dtype=np.int32), np.full(100, 1, dtype=np.int32)
    arms = ArmTables(moves, np.zeros((100, 3, 1)), np.zeros((100, 3, 1, 1)), np.full((100, 3), 1 / 3), *sizes)
    with pytest.warns(NormalisationWarning, match="300 rows"):
        assert CoupledMDP(arms, [1], 0.9).num_types == 1


def test_a_criterion_that_needs_no_discount_makes_up_for_it(tmp_path):
    text = THIRDS.replace('criterion = "average"\n', "").replace("0.3333333, 0.3333333, 0.3333333", "0.2, 0.3, 0.5")
    text = text.replace("0.33334, 0.33333, 0.33334", "0, 0, 1").replace("0.3333, 0.3333, 0.3333", "1, 0, 0")
    (tmp_path / "die.toml").write_text(text)
    with pytest.raises(ModelError, check=mentions("discount")):
        load(tmp_path / "die.toml")
    for name in ("average", "finite:7"):
        assert load(tmp_path / "die.toml", criterion=name).criterion.name == name
    save(load(tmp_path / "die.toml", criterion="average"), tmp_path / "die.npz")
    assert load(tmp_path / "die.npz", criterion="finite:7").criterion.name == "finite:7"
    (tmp_path / "die.toml").write_text('criterion = "avrage"\n' + text)
    with pytest.raises(ModelError, check=mentions("average")):
        load(tmp_path / "die.toml", criterion="average")
    with pytest.raises(ValueError, check=mentions("mean")):
        load(tmp_path / "die.toml", criterion="mean")
