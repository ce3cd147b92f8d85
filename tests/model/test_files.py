"""Model files: what is written reads back to the last bit, every fault is told, and no write is left half done."""

import io
import json
import os
import stat
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.errors import InvalidInputError, ModelError
from evenhand.model import MOST_ARMS, Arm, CoupledMDP, load, save, write_atomically

from ..conftest import mentions

SUFFIXES = (".toml", ".json", ".npz")

SOUND = """
discount = 0.95
budget = [1]

[[arms]]
name = "machine"
count = 5
transitions = [[[0.8, 0.2], [1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]]]
rewards = [[1.0, 0.5], [0.0, 0.5]]
usage = [[0], [1]]
initial = [1.0, 0.0]
"""

ARRAYS = {
    "discount": np.array(0.95),
    "budget": np.array([1.0]),
    "count": np.array([5]),
    "transitions": np.array([[[[0.8, 0.2], [1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]]]]),
    "rewards": np.array([[[1.0, 0.5], [0.0, 0.5]]]),
    "usage": np.array([[[0.0], [1.0]]]),
    "initial": np.array([[1.0, 0.0]]),
    "labels": np.array(json.dumps([{"name": "machine"}])),
}


def machines():
    return CoupledMDP(
        arms=[
            Arm(
                transitions=[[[0.8, 0.2], [1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]]],
                rewards=[[1.0, 0.5], [0.0, 0.5]],
                usage=[[0], [1]],
                initial=[1.0, 0.0],
                name="machine",
            )
        ],
        budget=[1],
        discount=0.95,
        counts=[5],
    )


def sound_document():
    """The sound model as plain lists and tables, to be changed at will."""
    arm = machines().arms[0]
    return {
        "discount": 0.95,
        "budget": [1],
        "arms": [
            {
                "name": "machine",
                "count": 5,
                "transitions": arm.transitions.tolist(),
                "rewards": arm.rewards.tolist(),
                "usage": [[0], [1]],
                "initial": [1.0, 0.0],
            }
        ],
    }


def written(directory, content, name="model.toml"):
    path = directory / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def faults_in(path):
    with pytest.raises(ModelError) as caught:
        load(path)
    assert caught.value.source == str(path)
    assert str(caught.value).startswith(str(path))
    return [fault.place or fault.message for fault in caught.value.faults]


def toml_faults(tmp_path, text):
    return faults_in(written(tmp_path, text))


def json_faults(tmp_path, document):
    text = document if isinstance(document, str) else json.dumps(document)
    return faults_in(written(tmp_path, text, "model.json"))


def npz_faults(tmp_path, **changes):
    arrays = {key: value for key, value in {**ARRAYS, **changes}.items() if value is not None}
    np.savez(tmp_path / "model.npz", **arrays)
    return faults_in(tmp_path / "model.npz")


# Round trips

AMOUNTS = st.floats(0, 1e12)
REWARDS = st.floats(-1e12, 1e12)


def labels(number):
    return st.lists(st.text(), unique=True, min_size=number, max_size=number)


@st.composite
def arms(draw, num_resources):
    s, a = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    by_action = draw(st.booleans())
    usage = np.array(draw(st.lists(AMOUNTS, min_size=s * a * num_resources, max_size=s * a * num_resources)))
    usage = usage.reshape(s, a, num_resources)
    usage[np.arange(s), rng.integers(0, a, s)] = draw(st.sampled_from([0.0, -0.0]))
    return Arm(
        transitions=rng.dirichlet(np.full(s, 0.5), size=(s, a)),
        rewards=np.array(draw(st.lists(REWARDS, min_size=s * a, max_size=s * a))).reshape(s, a),
        usage=usage[0] if by_action else usage,
        initial=rng.dirichlet(np.ones(s)) if draw(st.booleans()) else None,
        name=draw(st.text()),
        states=draw(st.one_of(st.just([]), labels(s))),
        actions=draw(st.one_of(st.just([]), labels(a))),
    )


@st.composite
def problems(draw):
    num_resources = draw(st.integers(1, 3))
    blocks = draw(st.lists(arms(num_resources), min_size=1, max_size=4))
    most = MOST_ARMS // len(blocks)
    return CoupledMDP(
        arms=blocks,
        budget=draw(st.lists(AMOUNTS, min_size=num_resources, max_size=num_resources)),
        discount=draw(st.floats(0, 1, exclude_max=True)),
        counts=draw(st.lists(st.integers(1, most), min_size=len(blocks), max_size=len(blocks))),
    )


def bits(problem):
    tables = problem.tables
    arrays = (tables.transitions, tables.rewards, tables.usage, tables.initial, tables.num_states, tables.num_actions)
    return [(array.dtype, array.shape, array.tobytes()) for array in (*arrays, problem.budget, problem.counts)]


@pytest.mark.parametrize("suffix", SUFFIXES)
@given(problem=problems())
def test_a_model_reads_back_to_the_last_bit(tmp_path_factory, suffix, problem):
    path = tmp_path_factory.mktemp("trip") / f"model{suffix}"
    save(problem, path)
    again = load(path)
    assert again == problem
    assert bits(again) == bits(problem)
    assert (again.discount, again.tables.labels) == (problem.discount, problem.tables.labels)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_labels_that_need_care(tmp_path, suffix):
    awkward = 'quote " backslash \\ tab \t line \n\r\x0b delete \x7f null \0 next \x85 separator \u2028 é 漢 🎲 \ufeff'
    arm = Arm([[[1.0]]], [[0.0]], [[0]], name=awkward, states=["'''"], actions=['"""'])
    problem = CoupledMDP([arm], [0], 0.5)
    save(problem, tmp_path / f"model{suffix}")
    assert load(tmp_path / f"model{suffix}").tables.labels == ((awkward, ("'''",), ('"""',)),)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_label_that_is_not_text_is_not_written(tmp_path, suffix):
    problem = CoupledMDP([Arm([[[1.0]]], [[0.0]], [[0]], name="half \ud83d")], [0], 0.5)
    with pytest.raises(InvalidInputError, check=mentions(f"model{suffix}")):
        save(problem, tmp_path / f"model{suffix}")
    assert list(tmp_path.iterdir()) == []


def test_the_same_model_in_three_formats(tmp_path):
    toml = load(written(tmp_path, SOUND))
    json_ = load(written(tmp_path, json.dumps(sound_document()), "model.json"))
    np.savez(tmp_path / "model.npz", **ARRAYS)
    np.savez_compressed(tmp_path / "packed.npz", **ARRAYS)
    assert toml == json_ == load(tmp_path / "model.npz") == load(tmp_path / "packed.npz") == machines()
    assert load(str(tmp_path / "model.toml")) == machines()


def test_toml_is_written_for_people(tmp_path):
    save(machines(), tmp_path / "model.toml")
    assert (tmp_path / "model.toml").read_text() == (
        "discount = 0.95\n"
        "budget = [1.0]\n"
        "\n"
        "[[arms]]\n"
        'name = "machine"\n'
        "count = 5\n"
        "transitions = [[[0.8, 0.2], [1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]]]\n"
        "rewards = [[1.0, 0.5], [0.0, 0.5]]\n"
        "usage = [[0.0], [1.0]]\n"
        "initial = [1.0, 0.0]\n"
    )


def test_json_is_json(tmp_path):
    save(machines(), tmp_path / "model.json")
    assert json.loads((tmp_path / "model.json").read_text()) == sound_document()


def test_usage_that_depends_on_the_state_keeps_it(tmp_path):
    arm = Arm(np.full((2, 2, 2), 0.5), np.zeros((2, 2)), [[[0], [1]], [[0], [2]]])
    save(CoupledMDP([arm], [1], 0.5), tmp_path / "model.json")
    (block,) = json.loads((tmp_path / "model.json").read_text())["arms"]
    assert block["usage"] == [[[0], [1]], [[0], [2]]]


def test_optional_keys_may_be_absent(tmp_path):
    text = "\n".join(line for line in SOUND.splitlines() if not line.startswith(("name", "count", "initial")))
    problem = load(written(tmp_path, text))
    assert problem.num_arms == 1
    assert problem.arms[0].initial.tolist() == [0.5, 0.5]
    bare = {key: ARRAYS[key] for key in ("discount", "budget", "transitions", "rewards", "usage")}
    np.savez(tmp_path / "model.npz", **bare)
    assert load(tmp_path / "model.npz") == problem


def test_a_billion_arms_in_a_file(tmp_path):
    problem = load(written(tmp_path, SOUND.replace("count = 5", f"count = {MOST_ARMS}")))
    assert problem.num_arms == MOST_ARMS
    found = toml_faults(tmp_path, SOUND.replace("count = 5", f"count = {10**12}"))
    assert found == ["arms[0].count"]


def test_a_byte_order_mark_is_accepted(tmp_path):
    assert load(written(tmp_path, b"\xef\xbb\xbf" + SOUND.replace("\n", "\r\n").encode())) == machines()


# Files that are no models


@pytest.mark.parametrize("name", ["model.yaml", "model", "model.toml.bak"])
def test_unknown_kinds_of_file(tmp_path, name):
    for attempt in (lambda: load(tmp_path / name), lambda: save(machines(), tmp_path / name)):
        with pytest.raises(InvalidInputError, check=mentions(name, "toml", "json", "npz")):
            attempt()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_files_that_are_not_there(tmp_path, suffix):
    with pytest.raises(InvalidInputError, check=mentions(f"absent{suffix}")):
        load(tmp_path / f"absent{suffix}")
    (tmp_path / f"folder{suffix}").mkdir()
    with pytest.raises(InvalidInputError, check=mentions(f"folder{suffix}")):
        load(tmp_path / f"folder{suffix}")
    with pytest.raises(InvalidInputError, check=mentions("nul")):
        load(f"nul\0{suffix}")


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("model.toml", b"", "the file is empty"),
        ("model.toml", b" \n\n", "the file is empty"),
        ("model.json", b"", "the file is empty"),
        ("model.toml", b"discount = 0.9\nbudget = [1\n\nx", "invalid TOML"),
        (
            "model.toml",
            b"discount = 0.9\ndiscount = 0.8\n",
            "invalid TOML",
        ),
        ("model.json", b'{"discount": }', "invalid JSON"),
        ("model.toml", b"name = '\xff\xfe'", "not UTF-8"),
        ("model.json", b'{\n"name": "caf\xe9"}', "not UTF-8"),
        ("model.toml", b"\0\1\2\3", "invalid TOML"),
        ("model.toml", b"a = " + b"[" * 10**5, "nested too deeply"),
        ("model.toml", b"a = " + b"[" * 20 + b"]" * 20, "nested too deeply"),
        ("model.json", b"[" * 10**5, "nested too deeply"),
        ("model.json", b"[" * 900 + b"]" * 900, "nested too deeply"),
        ("model.json", b'{"a":' * 10**5, "nested too deeply"),
        ("model.toml", b"a = " + b"9" * 5000, "invalid TOML"),
        ("model.json", b"[1, 2]", "expected a table"),
        ("model.json", b"null", "expected a table"),
    ],
    ids=range(17),
)
def test_files_that_are_not_read_at_all(tmp_path, name, content, reason):
    (fault,) = faults_in(written(tmp_path, content, name))
    assert reason in fault


@given(st.data(), st.sampled_from(SUFFIXES))
def test_no_damage_ends_in_anything_but_faults(tmp_path_factory, data, suffix):
    """Any bytes of a sound file may change, vanish or repeat: it loads, or it says why not."""
    folder = tmp_path_factory.mktemp("damage")
    save(machines(), folder / f"sound{suffix}")
    content = bytearray((folder / f"sound{suffix}").read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(content)))
        stop = data.draw(st.integers(start, min(len(content), start + 20)))
        content[start:stop] = data.draw(st.one_of(st.binary(max_size=8), st.sampled_from([b"1e999", b"[", b"-", b'"'])))
    path = written(folder, bytes(content), f"damaged{suffix}")
    try:
        assert isinstance(load(path), CoupledMDP)
    except InvalidInputError as error:
        assert str(path) in str(error)


# Faults of TOML and JSON


def test_missing_keys(tmp_path):
    assert set(toml_faults(tmp_path, "# nothing yet\n")) == {"discount", "budget", "arms"}
    found = json_faults(tmp_path, {"discount": 0.9, "budget": [1], "arms": [{"usage": [[0], [1]]}]})
    assert found == ["arms[0].transitions", "arms[0].rewards"]


def test_present_keys_are_checked_beside_missing_ones(tmp_path):
    document = sound_document()
    del document["arms"][0]["rewards"]
    document["arms"][0]["usage"] = [[1], [1]]
    document["arms"][0]["transitions"][1][0] = [0.5, 0.4]
    assert set(json_faults(tmp_path, document)) == {
        "arms[0].rewards",
        "arms[0].usage",
        "arms[0].transitions[1][0]",
    }


def test_unknown_keys_and_what_was_meant(tmp_path):
    document = sound_document()
    block = document["arms"][0]
    document["arms"].append({("transision" if key == "transitions" else key): block[key] for key in block})
    document |= {"bugdet": [1], "qqq": 1, "count": 3, "odd key\n": 0}
    document["arms"][0]["discount"] = 0.9
    assert json_faults(tmp_path, document) == [
        "bugdet",
        "qqq",
        "count",
        "'odd key\\n'",
        "arms[0].discount",
        "arms[1].transision",
        "arms[1].transitions",
    ]


@pytest.mark.parametrize(
    ("arms", "fault"),
    [
        ([], "arms"),
        (3, "arms"),
        ({"a": 1}, "arms"),
        ([7], "arms[0]"),
    ],
)
def test_arms_of_the_wrong_kind(tmp_path, arms, fault):
    assert json_faults(tmp_path, sound_document() | {"arms": arms}) == [fault]


@pytest.mark.parametrize(
    ("key", "value", "place"),
    [
        ("transitions", "text", "arms[0].transitions"),
        ("rewards", [[1, None], [0, 0]], "arms[0].rewards[0][1]"),
        ("rewards", [[1, {"a": 1}], [0, 0]], "arms[0].rewards[0][1]"),
        ("rewards", None, "arms[0].rewards"),
        ("usage", [], "arms[0].usage"),
        ("initial", 1, "arms[0].initial"),
        ("name", ["a"], "arms[0].name"),
        ("states", "ab", "arms[0].states"),
        ("states", ["a"], "arms[0].states"),
        ("actions", ["a", 1], "arms[0].actions"),
        ("count", "5", "arms[0].count"),
        ("count", 5.0, "arms[0].count"),
        ("count", None, "arms[0].count"),
        ("count", 0, "arms[0].count"),
        ("name", "half \ud83d", "arms[0].name"),
    ],
)
def test_values_of_the_wrong_kind_inside_an_arm(tmp_path, key, value, place):
    document = sound_document()
    document["arms"][0][key] = value
    (fault,) = json_faults(tmp_path, document)
    assert fault == place


@pytest.mark.parametrize(
    ("key", "value", "place"),
    [
        ("discount", "0.9", "discount"),
        ("discount", 1, "discount"),
        ("discount", None, "discount"),
        ("discount", 10**250, "discount"),
        ("discount", 10**400, "discount"),
        ("budget", "1", "budget[0]"),
        ("budget", [-1], "budget[0]"),
        ("budget", [10**250], "budget[0]"),
        ("budget", [-(10**400)], "budget[0]"),
        ("budget", [[1], [1, 2]], "budget[0]"),
        ("budget", [], "budget"),
        ("budget", [1, 1], "budget"),
    ],
    ids=range(12),
)
def test_values_of_the_wrong_kind_at_the_top(tmp_path, key, value, place):
    assert json_faults(tmp_path, sound_document() | {key: value})[0] == place


def test_a_number_of_thousands_of_digits(tmp_path):
    text = json.dumps(sound_document()).replace("0.95", "9" * 5000)
    assert json_faults(tmp_path, text) == ["discount"]


def test_numbers_json_does_not_have(tmp_path):
    text = json.dumps(sound_document()).replace('"rewards": [[1.0, 0.5], [0.0, 0.5]]', '"rewards": REWARDS')
    found = json_faults(tmp_path, text.replace("REWARDS", "[[NaN, 1e999], [-Infinity, 0]]"))
    assert found == [
        "arms[0].rewards[0][0]",
        "arms[0].rewards[0][1]",
        "arms[0].rewards[1][0]",
    ]


def test_numbers_toml_writes_in_other_ways(tmp_path):
    found = toml_faults(tmp_path, SOUND.replace("[[1.0, 0.5], [0.0, 0.5]]", "[[nan, 2024-02-30T00:00:00], [0, 0]]"))
    assert found[0].startswith("invalid TOML")
    found = toml_faults(tmp_path, SOUND.replace("[[1.0, 0.5], [0.0, 0.5]]", "[[0.0, 2024-02-03], [0, inf]]"))
    assert "arms[0].rewards[0][1]" in found
    found = toml_faults(tmp_path, SOUND.replace("count = 5", f"count = 0x{'f' * 9000}"))
    assert found == ["arms[0].count"]


def test_keys_written_twice(tmp_path):
    text = json.dumps(sound_document())
    text = text.replace('"discount": 0.95', '"discount": 0.95, "discount": 0.9')
    text = text.replace('"count": 5', '"count": 5, "count": 6, "count": 7')
    assert json_faults(tmp_path, text) == [
        "discount",
        "arms[0].count",
    ]


def test_budget_is_compared_with_any_sound_arm(tmp_path):
    document = sound_document()
    sound = document["arms"][0]
    document["arms"] = [{**sound, "rewards": "none"}, sound, {**sound, "usage": [[0, 0], [1, 1]]}]
    document["budget"] = [1, 2, 3]
    found = json_faults(tmp_path, document)
    assert found == ["arms[0].rewards", "arms[2].usage", "budget"]


def test_a_file_with_many_faults_shows_all_of_them(tmp_path):
    found = toml_faults(
        tmp_path,
        """
        discount = 1.0
        budget = [-1]
        horizon = 300

        [[arms]]
        transision = 1
        rewards = [[1.0, "x"], [0.0, 0.5]]
        usage = [[0], [1]]

        [[arms]]
        count = 0
        transitions = [[[0.8, 0.17], [1.0, 0.0]], [[0.0, 1.0], [1.5, -0.5]]]
        rewards = [[1.0, 0.5], [0.0, inf]]
        usage = [[1], [1]]
        initial = [0.5, 0.4]
        states = ["same", "same"]
        """,
    )
    assert set(found) == {
        "horizon",
        "arms[0].transision",
        "arms[0].transitions",
        "arms[0].rewards[0][1]",
        "arms[1].transitions[0][0]",
        "arms[1].transitions[1][1][1]",
        "arms[1].rewards[1][1]",
        "arms[1].usage",
        "arms[1].initial",
        "arms[1].states",
        "arms[1].count",
        "budget[0]",
        "discount",
    }
    assert len(found) == 13


def test_text_too_large_for_this_machine(tmp_path, monkeypatch):
    monkeypatch.setattr("evenhand.checks.available_memory", lambda: 1000.0)
    monkeypatch.setattr("evenhand.checks.LITTLE", 0.0)
    (fault,) = toml_faults(tmp_path, SOUND)
    assert "would need" in fault


# Faults of arrays


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"rewards": None}, "rewards"),
        ({"discount": None}, "discount"),
        ({"discount": None, "criterion": np.array("discounted")}, "discount"),
        (
            {"discount": np.array([0.9]), "criterion": np.array("discounted")},
            "discount",
        ),
        ({"counts": np.array([5])}, "counts"),
        ({"rewards": np.array([[["a", "b"], ["c", "d"]]])}, "rewards"),
        ({"rewards": np.ones((1, 2, 2), dtype=bool)}, "rewards"),
        ({"rewards": np.ones((1, 2, 2), dtype=complex)}, "rewards"),
        ({"rewards": np.array([[[None, 1], [0, 0]]])}, "rewards"),
        ({"rewards": np.ones((2, 2))}, "rewards"),
        (
            {"usage": np.zeros((2, 1))},
            "usage",
        ),
        ({"rewards": np.ones((1, 3, 2))}, "rewards"),
        ({"transitions": np.ones((1, 2, 2, 3)) / 3}, "transitions"),
        ({"usage": np.zeros((1, 3, 1))}, "usage"),
        ({"initial": np.array([[1, 0], [1, 0]])}, "initial"),
        ({"count": np.array([5, 5])}, "counts"),
        ({"count": np.array([0])}, "arms[0].count"),
        ({"count": np.array([5.5])}, "arms[0].count"),
        ({"rewards": np.ones((1, 0, 2))}, "rewards"),
        ({"discount": np.array([0.9])}, "discount"),
        (
            {"discount": np.array(1.0)},
            "discount",
        ),
        ({"budget": np.array([1.0, 2.0])}, "budget"),
        ({"budget": np.array([np.nan])}, "budget[0]"),
        ({"rewards": np.array([[[1, np.inf], [0, 0]]])}, "arms[0].rewards[0][1]"),
        ({"initial": np.array([[0.5, 0.4]])}, "arms[0].initial"),
        ({"usage": np.array([[[[0.0], [-1.0]], [[0.0], [1.0]]]])}, "arms[0].usage[0][1][0]"),
        (
            {"usage": np.array([[[1.0], [1.0]]])},
            "arms[0].usage",
        ),
        (
            {"usage": np.array([[[[0.0], [1.0]], [[1.0], [1.0]]]])},
            "arms[0].usage[1]",
        ),
        ({"num_states": np.array([3])}, "num_states[0]"),
        ({"num_actions": np.array([0])}, "num_actions[0]"),
        ({"num_states": np.array([1.5])}, "num_states[0]"),
        ({"labels": np.array(3)}, "labels"),
        ({"labels": np.array(["[]"])}, "labels"),
        ({"labels": np.array("{}")}, "labels"),
        ({"labels": np.array("[{}, {}]")}, "labels"),
        ({"labels": np.array("[3]")}, "labels[0]"),
        ({"labels": np.array('[{"nme": "x"}]')}, "labels[0].nme"),
        ({"labels": np.array('[{"name": 1}]')}, "labels[0].name"),
        ({"labels": np.array('[{"states": ["a"]}]')}, "labels[0].states"),
        ({"labels": np.array('[{"actions": ["a", "a"]}]')}, "labels[0].actions"),
        ({"labels": np.array('[{"actions": "ab"}]')}, "labels[0].actions"),
    ],
)
def test_each_fault_of_arrays_is_reported_alone(tmp_path, changes, fault):
    assert npz_faults(tmp_path, **changes) == [fault]


@pytest.mark.parametrize("text", ["", "[", "[" * 10**5, b"\xff"])
def test_labels_that_are_not_json(tmp_path, text):
    (fault,) = npz_faults(tmp_path, labels=np.array(text))
    assert fault == "labels"


def test_faults_of_many_arrays_come_together(tmp_path):
    found = npz_faults(
        tmp_path,
        discount=np.array(2.0),
        budget=np.array([-1.0]),
        count=np.array([0]),
        rewards=np.array([[[np.nan, 0.0], [0.0, 0.0]]]),
        transitions=np.array([[[[0.8, 0.1], [1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]]]]),
        usage=np.array([[[2.0], [1.0]]]),
        horizon=np.array(3),
        labels=np.array("[3]"),
    )
    assert set(found) == {
        "horizon",
        "labels[0]",
        "arms[0].transitions[0][0]",
        "arms[0].rewards[0][0]",
        "arms[0].usage",
        "arms[0].count",
        "budget[0]",
        "discount",
    }


def ragged_arrays():
    """Two blocks: the sound one, and one of one state and one action behind its padding."""
    two = {
        key: np.concatenate([ARRAYS[key], np.zeros_like(ARRAYS[key])]) for key in ("transitions", "rewards", "usage")
    }
    two["transitions"][1, 0, 0, 0] = 1.0
    two["rewards"][1, 0, 0] = 0.25
    sizes = {"num_states": np.array([2, 1]), "num_actions": np.array([2, 1])}
    optional = {"count": None, "initial": None, "labels": None}
    return {**ARRAYS, **two, **sizes, **optional}


def test_padded_arms(tmp_path):
    np.savez(tmp_path / "model.npz", **{key: value for key, value in ragged_arrays().items() if value is not None})
    problem = load(tmp_path / "model.npz")
    assert problem.arms[1] == Arm([[[1.0]]], [[0.25]], [[0]])
    assert problem.tables.initial.tolist() == [[0.5, 0.5], [1.0, 0.0]]


def test_more_padding_than_needed_is_the_same_problem(tmp_path):
    wide = {key: value for key, value in ARRAYS.items() if key != "labels"}
    for key, widths in (
        ("transitions", (0, 3, 2, 3)),
        ("rewards", (0, 3, 2)),
        ("usage", (0, 2, 0)),
        ("initial", (0, 3)),
    ):
        wide[key] = np.pad(ARRAYS[key], [(0, width) for width in widths])
    np.savez(tmp_path / "model.npz", **wide, num_states=np.array([2]), num_actions=np.array([2]))
    assert load(tmp_path / "model.npz").signature == machines().signature


@pytest.mark.parametrize(
    ("key", "place"),
    [("transitions", (1, 0, 0, 1)), ("transitions", (1, 1, 0, 0)), ("rewards", (1, 0, 1)), ("usage", (1, 1, 0))],
)
def test_padding_is_zero(tmp_path, key, place):
    arrays = ragged_arrays()
    arrays[key][place] = np.nan if key == "rewards" else 0.5
    (fault, *_) = npz_faults(tmp_path, **arrays)
    assert fault.startswith(f"{key}[1]")


def test_files_that_are_not_archives(tmp_path):
    for content in (b"", b"garbage" * 100, b"PK\x03\x04" + b"\0" * 40):
        (fault,) = faults_in(written(tmp_path, content, "model.npz"))
        assert fault.startswith("not an .npz file, or a damaged one")


def test_a_damaged_member(tmp_path):
    np.savez(tmp_path / "model.npz", **ARRAYS)
    content = bytearray((tmp_path / "model.npz").read_bytes())
    at = content.index(ARRAYS["rewards"].tobytes())
    content[at] ^= 0xFF
    (fault, *_) = faults_in(written(tmp_path, bytes(content), "model.npz"))
    assert fault.startswith("rewards")


def test_a_header_that_promises_more_than_there_is(tmp_path):
    np.savez(tmp_path / "model.npz", **{key: value for key, value in ARRAYS.items() if key != "rewards"})
    header = io.BytesIO()
    shape = (10**9, 10**3, 10**3)
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(tmp_path / "model.npz", "a") as archive:
        archive.writestr("rewards.npy", header.getvalue())
    (fault,) = faults_in(tmp_path / "model.npz")
    assert fault.startswith("rewards")


def test_an_array_stored_twice(tmp_path):
    np.savez(tmp_path / "model.npz", **ARRAYS)
    with zipfile.ZipFile(tmp_path / "model.npz") as archive:
        content = archive.read("budget.npy")
    with zipfile.ZipFile(tmp_path / "model.npz", "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("budget.npy", content)
    assert faults_in(tmp_path / "model.npz") == ["budget"]


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    """Ten megabytes of zeros in ten kilobytes, on a machine with one megabyte free."""
    np.savez_compressed(tmp_path / "model.npz", **{**ARRAYS, "rewards": np.zeros((1, 1000, 1250))})
    assert (tmp_path / "model.npz").stat().st_size < 20_000
    monkeypatch.setattr("evenhand.checks.available_memory", lambda: 1e6)
    monkeypatch.setattr("numpy.lib.format.read_array", lambda *_, **__: pytest.fail("unpacked"))
    (fault,) = faults_in(tmp_path / "model.npz")
    assert "would need 40 MB" in fault


def test_fifty_thousand_different_arms(tmp_path):
    rng = np.random.default_rng(0)
    number = 50_000
    np.savez(
        tmp_path / "model.npz",
        discount=0.9,
        budget=np.array([10]),
        transitions=rng.dirichlet(np.ones(3), size=(number, 3, 2)),
        rewards=rng.random((number, 3, 2)),
        usage=np.repeat(np.array([[[0], [1]]], dtype=np.int8), number, axis=0),
    )
    problem = load(tmp_path / "model.npz")
    assert (problem.num_arms, problem.num_types) == (number, number)


# Writing wholly or not at all


def test_write_atomically_replaces(tmp_path):
    path = tmp_path / "notes.txt"
    write_atomically(path, b"one")
    write_atomically(str(path), b"two")
    assert path.read_bytes() == b"two"
    assert list(tmp_path.iterdir()) == [path]


def failing(*_, **__):
    raise OSError(28, "No space left on device")


def interrupted(*_, **__):
    raise KeyboardInterrupt


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("where", ["os.replace", "os.fsync", "shutil.copymode"])
@pytest.mark.parametrize("failure", [failing, interrupted])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, suffix, where, failure):
    path = written(tmp_path, "old", f"model{suffix}")
    with monkeypatch.context() as patch:
        patch.setattr(where, failure)
        with pytest.raises((OSError, KeyboardInterrupt)):
            save(machines(), path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    save(machines(), path)
    assert load(path) == machines()


def test_a_write_that_stops_midway_leaves_the_old_file(tmp_path, monkeypatch):
    path = written(tmp_path, "old", "model.npz")
    write = np.lib.format.write_array

    def write_some(stream, array, **options):
        write(stream, array, **options)
        if array.ndim == 4:
            failing()

    monkeypatch.setattr("numpy.lib.format.write_array", write_some)
    with pytest.raises(OSError, match="No space"):
        save(machines(), path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_permissions_are_those_of_the_file_before(tmp_path):
    path = tmp_path / "model.toml"
    umask = os.umask(0)
    os.umask(umask)
    save(machines(), path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask
    path.chmod(0o640)
    save(machines(), path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "model.toml", tmp_path / "link.toml"
    target.write_text("old")
    link.symlink_to(target)
    save(machines(), link)
    assert link.is_symlink()
    assert load(target) == machines()


def test_places_that_cannot_be_written(tmp_path):
    with pytest.raises(InvalidInputError, check=mentions("absent")):
        save(machines(), tmp_path / "absent" / "model.toml")
    with pytest.raises(InvalidInputError, check=mentions("folder.toml")):
        (tmp_path / "folder.toml").mkdir()
        save(machines(), tmp_path / "folder.toml")
    with pytest.raises(InvalidInputError, check=mentions("nul")):
        write_atomically("nul\0.toml", b"")


def test_empty_rows_are_faults():
    """Found by requests made from the description of the service: no row, and none expected."""
    arm = {"rewards": [[1.0, 2.0], [3.0]], "usage": [None, []], "transitions": [[], [[], [1.0]]]}
    with pytest.raises(ModelError, check=mentions("arms[0].transitions[0]", "arms[0].transitions[1]")):
        load(io.BytesIO(json.dumps({"discount": 0.9, "budget": [0.0], "arms": [arm]}).encode()), "json")
