"""Types are called by the names of all their blocks, and by what tells them apart."""

import numpy as np
import pytest

import evenhand as eh
from evenhand.model import Arm, CoupledMDP, arm_names, base_names, own_names, type_names
from evenhand.report import summarise


def van(name: str, reward: float, initial: tuple[float, float] = (1.0, 0.0)) -> Arm:
    moves = np.tile([[0.5, 0.5], [1.0, 0.0]], (2, 1, 1))
    states = ("sound", "poor")
    return Arm(moves, np.full((2, 2), reward), [[0.0], [1.0]], initial=initial, name=name, states=states)


def fleet(*blocks: Arm, **settings: object) -> CoupledMDP:
    return CoupledMDP(list(blocks), budget=np.ones(1), discount=0.5, **settings)


def test_a_type_has_the_names_of_all_its_blocks():
    problem = fleet(van("Ford", 1), van("", 2), van("Opel", 1), van("Fiat", 3), van("Fiat", 4))
    assert type_names(problem) == ["Ford, Opel", "type 1", "Fiat (type 2)", "Fiat (type 3)"]
    assert own_names(problem)[1] == ""
    assert arm_names(problem) == ["Ford", "", "Opel", "Fiat", "Fiat"]
    many = fleet(*(van(name, 1) for name in "abcd"))
    assert type_names(many) == ["a, b, c, …"]


def test_initial_states_distinguish_types_of_one_name():
    problem = fleet(van("Ford", 1), van("Ford", 1, (0, 1)), van("Opel", 2, (0, 1)), counts=np.array([2, 1, 3]))
    assert type_names(problem) == ["Ford from sound", "Ford from poor", "Opel"]
    assert base_names(problem) == ["Ford", "Ford", "Opel"]
    (table,) = summarise(problem).tables
    rows = [(row.name, row.cells[0].text) for row in table.rows]
    assert rows == [("Ford from sound", "2"), ("Ford from poor", "1"), ("Opel", "3")]


def test_groups_tell_types_of_one_name_apart_and_no_two_are_alike():
    problem = fleet(van("Ford", 1), van("Ford", 1), groups=("north", "south"), over="groups")
    assert type_names(problem) == ["Ford of north", "Ford of south"]
    assert type_names(fleet(van("type 1", 1), van("", 2))) == ["type 1 (0)", "type 1 (1)"]


def test_frames_and_indices_call_a_merged_type_by_all_its_names():
    pytest.importorskip("pandas")
    problem = fleet(van("Ford", 1), van("Opel", 1), van("Fiat", 3))
    assert eh.solve(problem).to_frame()["name"].tolist() == ["Ford, Opel", "Fiat"]
    assert set(eh.indices(problem).to_frame()["name"]) == {"Ford, Opel", "Fiat"}


def test_a_simulator_has_a_type_without_a_name():
    def sample(states, actions, rng):
        return states, states * 1.0

    pumps = eh.Simulator(
        sample,
        lambda number, rng: rng.integers(0, 3, number),
        usage=[[0], [1]],
        num_states=3,
        num_arms=4,
        budget=[1],
        discount=0.9,
    )
    assert type_names(pumps) == ["type 0"]
    assert arm_names(pumps) == [""] * 4
