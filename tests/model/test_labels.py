"""Locations of faults by the names of a model."""

import json
import tomllib

import pytest

from evenhand.errors import Fault, ModelError
from evenhand.model import Arm, CoupledMDP, Names, load, path_of, quoted, with_words

from ..conftest import mentions

VANS = """\
discount = 0.95
budget = [1, 2]
resources = ["bays", "technicians"]

[[arms]]
name = "Ford"
states = ["good", "poor"]
actions = ["drive", "overhaul"]
transitions = [
  [[0.8, 0.2], [1.0, 0.0]],
  [[0.0, 1.0],      # a comment with ] and "
   [0.7, 0.3]],
]
rewards = [[1, 0.5], [0.2, 0]]
usage = [[0, 0], [1, 2]]

[[arms]]
name = "Opel"
count = 3
transitions = [[[0.8, 0.2], [1.0, 0.0]], [[0.0, 1.0], [0.7, 0.3]]]
rewards = [[1, 0.5], [0.2, 0]]
usage = [[0, 0], [1, 2]]
"""


def told(tmp_path, *changes, text=VANS, name="model.toml"):
    """The faults of the vans with some of their text changed, as they are printed."""
    for old, new in changes:
        assert text.count(old) >= 1, old
        text = text.replace(old, new, 1)
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(ModelError) as caught:
        load(tmp_path / name)
    assert str(caught.value).splitlines()[1:] == [f"  {fault}" for fault in caught.value.faults]
    return [str(fault) for fault in caught.value.faults]


def test_the_vans_are_sound(tmp_path):
    (tmp_path / "model.toml").write_text(VANS)
    assert load(tmp_path / "model.toml").num_arms == 4


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("[0.7, 0.3]],\n]", "[0.7, 0.2]],\n]", '{poor}, action "overhaul": probabilities sum to 0.9, not 1'),
        (
            "[[0.0, 1.0],      #",
            "[[0.5, -0.5],     #",
            '{poor}, action "drive", next state "poor": probability -0.5 is negative',
        ),
        (
            "[0.2, 0]]",
            "[0.2, nan]]",
            'arm "Ford", rewards of state "poor", action "overhaul": is nan, not a finite number',
        ),
        (
            "[1, 2]]",
            "[1, -2]]",
            'arm "Ford", usage of action "overhaul", resource "technicians": -2 is negative',
        ),
        ("budget = [1, 2]", "budget = [1, -2]", 'budget of "technicians": -2 is negative'),
        ("count = 3", "count = 0", 'arm "Opel", count: expected at least 1, got 0'),
        ("count = 3", "cout = 3", "arm \"Opel\", cout: unknown key, did you mean 'count'?"),
        ("discount = 0.95", "discount = 1.5", "discount: expected a number from 0 to below 1, got 1.5"),
        ("[0.7, 0.3]],\n]", "[0.7]],\n]", "{long}has 1 entries where the others have 2 (one per next state)"),
        ('"good", "poor"', '"good", "good"', 'arm "Ford", states: has the same name twice'),
    ],
    ids=range(10),
)
def test_a_fault_has_the_names_of_the_model(tmp_path, old, new, fault):
    words = {
        "{poor}": 'arm "Ford", state "poor"',
        "{long}": 'arm "Ford", transitions of state "poor", action "overhaul": ',
    }
    for mark, text in words.items():
        fault = fault.replace(mark, text)
    assert told(tmp_path, (old, new)) == [fault]


def test_a_missing_key_names_its_block(tmp_path):
    last = VANS.rindex("rewards")
    text = VANS[:last] + "# " + VANS[last:]
    assert told(tmp_path, text=text) == ['arm "Opel", rewards: missing']
    assert told(tmp_path, ("budget = [1, 2]\n", ""), text=text)[0] == "budget: missing"


def test_without_names_the_place_stays(tmp_path):
    bare = "\n".join(line for line in VANS.splitlines() if not line.startswith(("name", "states", "actions", "resou")))
    assert told(tmp_path, ("[0.7, 0.3]],\n]", "[0.7, 0.2]],\n]"), ("[1, 2]", "[1, -2]"), text=bare) == [
        "arms[0].transitions[1][1]: probabilities sum to 0.9, not 1",
        "budget[1]: -2 is negative",
    ]


def test_an_arm_without_a_name_may_have_labels(tmp_path):
    found = told(tmp_path, ('name = "Ford"\n', ""), ("[0.7, 0.3]],\n]", "[0.7, 0.2]],\n]"))
    assert found == ['arms[0], state "poor", action "overhaul": probabilities sum to 0.9, not 1']


def test_ambiguous_names_are_reported_with_numbers(tmp_path):
    found = told(tmp_path, ("Opel", "Ford"), ("count = 3", "count = 0"))
    assert found == ['arm "Ford" (arms[1]), count: expected at least 1, got 0']


def test_a_budget_that_is_one_number(tmp_path):
    text = VANS.replace("[1, 2]\nresources", "-1\nresources")
    assert told(tmp_path, text=text)[0] == 'budget of "bays": -1 is negative'


def test_json_has_names_too(tmp_path):
    document = tomllib.loads(VANS)
    document["arms"][0]["transitions"][1][1] = [0.7, 0.2]
    (fault,) = told(tmp_path, text=json.dumps(document), name="model.json")
    assert fault == 'arm "Ford", state "poor", action "overhaul": probabilities sum to 0.9, not 1'


@pytest.mark.parametrize("odd", ["a\x1b[2Jb", "a\x9bb", "a\u202eb", "a\u2028b", "a\rb"])
def test_names_do_nothing_to_a_terminal(odd):
    shown = quoted(odd)
    assert shown.isprintable()
    assert shown.startswith('"a\\') and shown.endswith('b"')
    assert quoted("Köln 漢") == '"Köln 漢"'


def test_odd_names_do_not_break_a_line(tmp_path):
    (fault,) = told(tmp_path, ("Opel", "O\\n\\u0007" + "p" * 100), ("count = 3", "count = 0"))
    assert fault.startswith('arm "O\\n\\u0007pppp')
    assert len(fault) < 130
    assert "\n" not in fault


def test_arms_made_in_python_speak_their_names():
    with pytest.raises(ModelError, check=mentions('arm "Ford"', 'state "poor"', 'action "drive"', 0.9)):
        Arm([[[1, 0]], [[0.5, 0.4]]], [[0], [0]], [[0]], name="Ford", states=["good", "poor"], actions=["drive"])
    with pytest.raises(ModelError, check=mentions('state "poor"', "action 0")):
        Arm([[[1, 0]], [[0.5, 0.4]]], [[0], [0]], [[0]], states=["good", "poor"])
    arms = [Arm([[[1]]], [[0]], [[0]], name="Ford"), Arm([[[1]]], [[0]], [[0, 0]], name="Opel")]
    with pytest.raises(ModelError, check=mentions('arm "Opel"', "usage", 2, 'arm "Ford"', 1)):
        CoupledMDP(arms, [1], 0.9)


@pytest.mark.parametrize(
    ("place", "path"),
    [
        ("arms[2].transitions[0][1]", ("arms", 2, "transitions", 0, 1)),
        ("discount", ("discount",)),
        ("arms", ("arms",)),
        ("'odd key\\n'", None),
        ("arms[0].'a b'", None),
        ("", None),
    ],
)
def test_places_in_parts(place, path):
    assert path_of(place) == path


def test_words_only_if_there_are_names():
    faults = [Fault("arms[0].rewards[0][0]", "x"), Fault("arms[7].count", "x"), Fault("qqq", "x"), Fault("", "x")]
    assert [fault.words for fault in with_words(faults, [Names()])] == ["", "", "", ""]
    assert with_words(faults, [Names("A")])[0].words == 'arm "A", rewards[0][0]'
