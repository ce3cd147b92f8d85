"""Twelve mistakes that people make in a model file, each with its message: the place and the remedy.

docs/model-files.md shows the same ones, in one file as far as that is possible.
"""

import pytest

VANS = """\
discount = 0.95
budget = [1, 2]
resources = ["bays", "technicians"]

[[arms]]
name = "Ford"
states = ["good", "poor"]
actions = ["drive", "overhaul"]
count = 3
transitions = [
  [[0.8, 0.2], [1.0, 0.0]],
  [[0.0, 1.0], [0.7, 0.3]],
]
rewards = [[1, 0.5], [0.2, 0]]
usage = [[0, 0], [1, 2]]

[[arms]]
name = "Opel"
transitions = [[[0.8, 0.2], [1.0, 0.0]], [[0.0, 1.0], [0.7, 0.3]]]
rewards = [[1, 0.5], [0.2, 0]]
usage = [[0, 0], [1, 1]]
"""

MISTAKES = {
    "probabilities that do not sum to 1": (
        ("[0.7, 0.3]],\n]", "[0.7, 0.2]],\n]"),
        'arm "Ford", state "poor", action "overhaul": probabilities sum to 0.9, not 1',
    ),
    "a decimal comma": (
        ("discount = 0.95", "discount = 0,95"),
        "invalid TOML: Expected newline or end of document after a statement (at line 1, column 13)",
    ),
    "a decimal comma within a list": (
        ("[0.2, 0]]\nusage = [[0, 0], [1, 2]]", "[0,2, 0]]\nusage = [[0, 0], [1, 2]]"),
        'arm "Ford", rewards of state "poor": has 3 entries where the others have 2 (one per action); '
        "use '.' as the decimal separator, since ',' separates numbers",
    ),
    "a number in quotes": (
        ("[[1, 0.5], [0.2, 0]]", '[[1, "0.5"], [0.2, 0]]'),
        'arm "Ford", rewards of state "good", action "overhaul": expected a number, got \'0.5\'',
    ),
    "text without quotes": (
        ('name = "Ford"', "name = Ford"),
        "invalid TOML: Invalid value (at line 6, column 8)",
    ),
    "a key that is misspelt": (
        ("count = 3", "cout = 3"),
        "arm \"Ford\", cout: unknown key, did you mean 'count'?",
    ),
    "a key in the wrong place": (
        ("count = 3", "count = 3\ndiscount = 0.9"),
        'arm "Ford", discount: unknown key here; it belongs to the whole problem, above the first of the arms',
    ),
    "a key that is missing": (
        ("rewards = [[1, 0.5], [0.2, 0]]\nusage = [[0, 0], [1, 2]]", "usage = [[0, 0], [1, 2]]"),
        'arm "Ford", rewards: missing',
    ),
    "no idle action": (
        ("usage = [[0, 0], [1, 2]]", "usage = [[0, 1], [1, 2]]"),
        'arm "Ford", usage: no action is idle: one action must use nothing of any resource',
    ),
    "one label too few": (
        ('states = ["good", "poor"]', 'states = ["good"]'),
        'arm "Ford", states: has 1 label for 2 states',
    ),
    "a budget for a resource that nothing uses": (
        ("budget = [1, 2]", "budget = [1, 2, 4]"),
        "budget: has 3 entries where the arms' usage has 2 resources; use '.' as the decimal separator, "
        "since ',' separates numbers",
    ),
    "a discount of 1": (
        ("discount = 0.95", "discount = 1"),
        "discount: expected a number from 0 to below 1, got 1; a discount of 1 goes with the criteria average and "
        "finite:T",
    ),
}


def test_without_them_the_model_is_sound(folder, evenhand):
    (folder / "vans.toml").write_text(VANS)
    assert evenhand("check", "vans.toml", "--json").json["sound"]


@pytest.mark.parametrize("command", ["check", "solve"])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_once_with_place_and_remedy(mistake, command, folder, evenhand):
    (old, new), told = MISTAKES[mistake]
    assert VANS.count(old) >= 1
    (folder / "vans.toml").write_text(VANS.replace(old, new, 1))
    assert evenhand(command, "vans.toml").refusal == f"error: vans.toml: 1 fault\n  {told}\n"


def test_there_are_twelve():
    assert len(MISTAKES) == 12
