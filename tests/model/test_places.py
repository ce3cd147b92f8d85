"""Places: by the names of a model, and as lines of its text; no line rather than a wrong one."""

import json
import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.errors import Fault, ModelError
from evenhand.model.arm import Arm
from evenhand.model.coupled import CoupledMDP
from evenhand.model.files import load
from evenhand.model.places import Names, find_lines, path_of, quoted, with_words

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
        ("[0.7, 0.3]],\n]", "[0.7, 0.2]],\n]", '{poor}, action "overhaul" (line 12): probabilities sum to 0.9, not 1'),
        (
            "[[0.0, 1.0],      #",
            "[[0.5, -0.5],     #",
            '{poor}, action "drive", next state "poor" (line 11): probability -0.5 is negative',
        ),
        (
            "[0.2, 0]]",
            "[0.2, nan]]",
            'arm "Ford", rewards of state "poor", action "overhaul" (line 14): is nan, not a finite number',
        ),
        (
            "[1, 2]]",
            "[1, -2]]",
            'arm "Ford", usage of action "overhaul", resource "technicians" (line 15): -2 is negative',
        ),
        ("budget = [1, 2]", "budget = [1, -2]", 'budget of "technicians" (line 2): -2 is negative'),
        ("count = 3", "count = 0", 'arm "Opel", count (line 19): expected at least 1, got 0'),
        ("count = 3", "cout = 3", "arm \"Opel\", cout (line 19): unknown key, did you mean 'count'?"),
        ("discount = 0.95", "discount = 1.5", "discount: expected a number from 0 to below 1, got 1.5 (line 1)"),
        ("[0.7, 0.3]],\n]", "[0.7]],\n]", "{long}has 1 entries where the others have 2 (one for each next state)"),
        ('"good", "poor"', '"good", "good"', 'arm "Ford", states (line 7): has the same name twice'),
    ],
    ids=range(10),
)
def test_a_fault_has_the_names_of_the_model_and_its_line(tmp_path, old, new, fault):
    words = {
        "{poor}": 'arm "Ford", state "poor"',
        "{long}": 'arm "Ford", transitions of state "poor", action "overhaul" (line 12): ',
    }
    for mark, text in words.items():
        fault = fault.replace(mark, text)
    assert told(tmp_path, (old, new)) == [fault]


def test_a_missing_key_has_the_line_of_its_block(tmp_path):
    last = VANS.rindex("rewards")
    text = VANS[:last] + "# " + VANS[last:]
    assert told(tmp_path, text=text) == ['arm "Opel", rewards (line 17): missing']
    assert told(tmp_path, ("budget = [1, 2]\n", ""), text=text)[0] == "budget: missing"


def test_without_names_the_place_stays_and_the_line_comes_last(tmp_path):
    bare = "\n".join(line for line in VANS.splitlines() if not line.startswith(("name", "states", "actions", "resou")))
    assert told(tmp_path, ("[0.7, 0.3]],\n]", "[0.7, 0.2]],\n]"), ("[1, 2]", "[1, -2]"), text=bare) == [
        "arms[0].transitions[1][1]: probabilities sum to 0.9, not 1 (line 8)",
        "budget[1]: -2 is negative (line 2)",
    ]


def test_an_arm_without_a_name_may_have_labels(tmp_path):
    found = told(tmp_path, ('name = "Ford"\n', ""), ("[0.7, 0.3]],\n]", "[0.7, 0.2]],\n]"))
    assert found == ['arms[0], state "poor", action "overhaul" (line 11): probabilities sum to 0.9, not 1']


def test_names_that_are_not_the_only_ones_are_told_with_numbers(tmp_path):
    found = told(tmp_path, ("Opel", "Ford"), ("count = 3", "count = 0"))
    assert found == ['arm "Ford" (arms[1]), count (line 19): expected at least 1, got 0']


def test_a_budget_that_is_one_number(tmp_path):
    text = VANS.replace("[1, 2]\nresources", "-1\nresources")
    assert told(tmp_path, text=text)[0] == 'budget of "bays" (line 2): -1 is negative'


def test_json_has_names_and_lines_too(tmp_path):
    document = tomllib.loads(VANS)
    document["arms"][0]["transitions"][1][1] = [0.7, 0.2]
    text = json.dumps(document, indent=2)
    (fault,) = told(tmp_path, text=text, name="model.json")
    line = text[: text.index("0.7,\n            0.2")].count("\n")
    assert fault == f'arm "Ford", state "poor", action "overhaul" (line {line}): probabilities sum to 0.9, not 1'
    assert text.splitlines()[line - 1].strip() == "["


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
    with pytest.raises(ModelError, match=r'arm "Ford", state "poor", action "drive": probabilities sum to 0.9, not 1'):
        Arm([[[1, 0]], [[0.5, 0.4]]], [[0], [0]], [[0]], name="Ford", states=["good", "poor"], actions=["drive"])
    with pytest.raises(ModelError, match=r'  state "poor", action 0: probabilities'):
        Arm([[[1, 0]], [[0.5, 0.4]]], [[0], [0]], [[0]], states=["good", "poor"])
    arms = [Arm([[[1]]], [[0]], [[0]], name="Ford"), Arm([[[1]]], [[0]], [[0, 0]], name="Opel")]
    with pytest.raises(ModelError, match=r'arm "Opel", usage: has 2 resources where arm "Ford" has 1'):
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


def test_words_only_where_there_are_names():
    faults = [Fault("arms[0].rewards[0][0]", "x"), Fault("arms[7].count", "x"), Fault("qqq", "x"), Fault("", "x")]
    assert [fault.words for fault in with_words(faults, [Names()])] == ["", "", "", ""]
    assert with_words(faults, [Names("A")])[0].words == 'arm "A", rewards[0][0]'
    assert with_words(faults, [Names("A")], labelled=True)[0].words == ""


# Lines

TRICKY = '''\
# [[arms]]
"discount" = 0.95 # budget = [1]
budget = [
  1,   # one ]
  2,
]
text = """
[[arms]]
count = 7
\\""" """
other.inner = [ { a = 1, "b c" = [2,
  3] } ]
when = 2024-01-02T03:04:05

[[ arms ]]
count = 5
[arms.extra]
x = 1
[[arms.deep]]
y = 2
[[arms.deep]]
y = 3

[[arms]]
count = 6
[tail]
'key' = [[1], [], ['#', "]"]]
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("discount",), 2),
        (("budget",), 3),
        (("budget", 0), 4),
        (("budget", 1), 5),
        (("text",), 7),
        (("other", "inner"), 11),
        (("other", "inner", 0, "b c"), 11),
        (("other", "inner", 0, "b c", 1), 12),
        (("arms", 0), 15),
        (("arms", 0, "count"), 16),
        (("arms", 0, "extra", "x"), 18),
        (("arms", 0, "deep", 1, "y"), 22),
        (("arms", 1, "count"), 25),
        (("tail", "key", 2, 1), 27),
    ],
    ids=str,
)
def test_lines_in_a_tricky_text(path, line):
    document = tomllib.loads(TRICKY)
    assert find_lines(TRICKY, document, [path], toml=True) == {path: line}
    windows = TRICKY.replace("\n", "\r\n")
    assert find_lines(windows, document, [path], toml=True) == {path: line}


def test_a_text_that_is_not_understood_has_no_lines():
    text = "when = [2024-01-02 03:04:05, 1]\na = 1\n"
    document = tomllib.loads(text)
    assert find_lines(text, document, [("when", 1), ("a",)], toml=True) == {}
    assert find_lines("a = 1\n", {"a": 2}, [("a",)], toml=True) == {}, "another value stands there"
    assert find_lines("[1, 2", [1, 2], [(0,)], toml=False) == {}
    assert find_lines("[1, 2] 3", [1, 2], [(0,)], toml=False) == {}


def paths_of(value, path=()):
    """Every path to a number."""
    if isinstance(value, (list, dict)):
        items = enumerate(value) if isinstance(value, list) else value.items()
        return [found for key, entry in items for found in paths_of(entry, (*path, key))]
    return [path]


KEYS = st.text("ab c.\"'[]{}#=\\é\n", min_size=0, max_size=5)
DOCUMENTS = st.recursive(
    st.integers(0, 9) | st.booleans() | KEYS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None, max_examples=200)
@given(document=st.dictionaries(KEYS, DOCUMENTS, min_size=1, max_size=4), data=st.data())
def test_every_number_of_a_json_text_is_found_in_its_line(document, data):
    """A mark in the place of one entry tells where it stands, whatever the layout."""
    paths = paths_of(document)
    if not paths:
        return
    path = data.draw(st.sampled_from(paths))
    *above, last = path
    holder = document
    for part in above:
        holder = holder[part]
    holder[last] = 123454321
    layout = data.draw(st.sampled_from([{}, {"indent": 1}, {"indent": 0, "separators": (" ,", "\n:")}]))
    text = json.dumps(document, ensure_ascii=data.draw(st.booleans()), **layout)
    mark = text[: text.index("123454321")].count("\n") + 1
    key_above = layout.get("separators") is not None and isinstance(last, str)  # the line of the key counts
    found = find_lines(text, json.loads(text), [path], toml=False)
    assert found == {path: mark - key_above}


@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_numbers_of_a_toml_text_are_found_in_their_line(data):
    """Numbers that are all different, in lists with comments and ends of lines anywhere, under headers."""
    numbers = iter(range(1000, 2000))
    gap = st.sampled_from(["", " ", "\n", "# [[x]]\n", "\n\n  "])

    def write(depth):
        if depth == 0 or data.draw(st.integers(0, 4)) == 0:
            return str(next(numbers))
        parts = [data.draw(gap) + write(depth - 1) + data.draw(gap) for _ in range(data.draw(st.integers(0, 3)))]
        return "[" + ",".join(parts) + data.draw(gap) + "]"

    lines = []
    for _ in range(data.draw(st.integers(1, 3))):
        lines += [data.draw(st.sampled_from(["[[arms]]", "# [[arms]]\n[[arms]]", "[[ 'arms' ]]"]))]
        lines += [f"{key} = {write(3)}" for key in ("a", "b-c", '"d e"')]
    text = "\n".join(lines) + "\n"
    document = tomllib.loads(text)
    paths = paths_of(document)
    found = find_lines(text, document, paths, toml=True)
    for path in paths:
        value = document
        for part in path:
            value = value[part]
        assert str(value) in text.splitlines()[found[path] - 1].partition("#")[0]
