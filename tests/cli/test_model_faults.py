"""Model files that are not sound: every fault with its place, exit code 2, no traceback, nothing written."""

import pytest

from ..conftest import mentions

SOUND = {
    "discount": "0.95",
    "budget": "[1]",
    "count": "2",
    "transitions": "[[[0.8, 0.2], [1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]]]",
    "rewards": "[[1.0, 0.5], [0.0, 0.5]]",
    "usage": "[[0], [1]]",
    "initial": "[1.0, 0.0]",
}

TOP = ("discount", "budget")

FAULTS = {
    "a row does not sum to one": (
        {"transitions": "[[[0.8, 0.17], [1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]]]"},
        "arms[0].transitions[0][0]: probabilities sum to 0.97, not 1",
    ),
    "a negative probability": (
        {"transitions": "[[[0.8, 0.2], [1.2, -0.2]], [[0.0, 1.0], [1.0, 0.0]]]"},
        "arms[0].transitions[0][1][1]: probability -0.2 is negative",
    ),
    "a reward that is no number": ({"rewards": "[[1.0, nan], [0.0, 0.5]]"}, "arms[0].rewards[0][1]: is nan"),
    "an infinite reward": ({"rewards": "[[1.0, 0.5], [-inf, 0.5]]"}, "arms[0].rewards[1][0]: is -inf"),
    "an absurd reward": ({"rewards": "[[1.0, 0.5], [0.0, 1e300]]"}, "arms[0].rewards[1][1]: 1e+300 is too large"),
    "a whole number beyond all doubles": (
        {"rewards": f"[[1.0, 0.5], [0.0, {10**400}]]"},
        "arms[0].rewards[1][1]: is inf",
    ),
    "a number of thousands of digits": ({"budget": f"[{'9' * 5000}]"}, "digits"),
    "no idle action": ({"usage": "[[1], [2]]"}, "arms[0].usage: no action is idle"),
    "a negative usage": ({"usage": "[[0], [-1]]"}, "arms[0].usage"),
    "a budget of the wrong length": ({"budget": "[1, 2]"}, "budget: "),
    "a negative budget": ({"budget": "[-1]"}, "budget[0]: "),
    "an infinite budget": ({"budget": "[inf]"}, "budget[0]: "),
    "states that disagree in number": (
        {"rewards": "[[1.0, 0.5], [0.0, 0.5], [0.0, 0.5]]"},
        "arms[0].rewards: has 3 states where transitions has 2",
    ),
    "a ragged list": ({"rewards": "[[1.0, 0.5], [0.0]]"}, "arms[0].rewards"),
    "text for numbers": ({"rewards": '[["a", 0.5], [0.0, 0.5]]'}, "arms[0].rewards"),
    "an unknown key": ({"colour": '"red"'}, "arms[0].colour: unknown key"),
    "a misspelt key": ({"rewads": "1"}, "arms[0].rewads: unknown key, did you mean 'rewards'?"),
    "a key that is missing": ({"rewards": None}, "arms[0].rewards: missing"),
    "a discount of one": (
        {"discount": "1.0"},
        "discount: expected a number from 0 to below 1, got 1; a discount of 1 goes with",
    ),
    "a discount that is no number": ({"discount": "nan"}, "discount: "),
    "no discount": ({"discount": None}, "discount: missing"),
    "far too many arms": ({"count": "1_000_000_000_000"}, "arms[0].count: expected at most 1000000000"),
    "a count beyond 64 bits": ({"count": f"{10**30}"}, "arms[0].count: "),
    "no arms": ({"count": "0"}, "arms[0].count: expected at least 1, got 0"),
    "half an arm": ({"count": "0.5"}, "arms[0].count: "),
    "an initial law that does not sum to one": ({"initial": "[0.5, 0.4]"}, "arms[0].initial: probabilities sum to 0.9"),
}

NO_MODELS = {
    "no TOML": (b"hello world", "invalid TOML"),
    "half a TOML": (b"discount = 0.95\nbudget = [", "invalid TOML"),
    "an empty file": (b"", "the file is empty"),
    "blanks": (b" \n\n", "the file is empty"),
    "another TOML": (b"[tool.ruff]\nline-length = 110\n", "tool: unknown key"),
    "binary garbage": (bytes(range(256)) * 4, "not UTF-8"),
    "zeros": (bytes(1000), "invalid TOML"),
    "an archive": (b"PK\x03\x04" + bytes(100), "invalid TOML"),
    "lists within lists": (b"discount = " + b"[" * 100_000, "too deep"),
    "arms that are no tables": (b"discount = 0.9\nbudget = [1]\narms = [1, 2]\n", "arms[0]: expected a table, got 1"),
    "one table of arms": (b"discount = 0.9\nbudget = [1]\n[arms]\ncount = 1\n", "[[arms]]"),
}


def model(changes):
    values = SOUND | changes
    top = [f"{key} = {values[key]}" for key in TOP if values[key] is not None]
    arm = [f"{key} = {value}" for key, value in values.items() if key not in TOP and value is not None]
    return "\n".join([*top, "[[arms]]", *arm, ""])


@pytest.fixture
def refused(folder, evenhand, files):
    """What is told of a file whose refusal leaves everything as it was."""

    def refused(content, name="model.toml"):
        (folder / name).write_bytes(content)
        told = evenhand("compare", name, "--report", "report.html", "--json").refusal
        assert told.startswith(f"error: {name}: ")
        assert files() == [name]
        assert (folder / name).read_bytes() == content
        return told

    return refused


def test_the_sound_model_is_sound(folder, evenhand):
    """Otherwise every test below could pass for the wrong reason."""
    (folder / "model.toml").write_text(model({}))
    assert evenhand("compare", "model.toml", "--episodes", 10, "--json").json["rows"]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_reported_with_its_place(fault, refused):
    changes, told = FAULTS[fault]
    assert told in refused(model(changes).encode())


@pytest.mark.parametrize("content", NO_MODELS)
def test_an_invalid_model_is_reported(content, refused):
    data, told = NO_MODELS[content]
    assert told in refused(data)


def test_many_faults_come_all_at_once(refused):
    told = refused(
        b"""
discount = 1.5
budget = [1, 2]
colour = "red"

[[arms]]
count = 1_000_000_000_000
transitions = [[[0.8, 0.17], [1.2, -0.2]], [[0.0, 1.0], [1.0, 0.0]]]
rewards = [[nan, 0.5], [inf, 1e300]]
usage = [[0], [1]]

[[arms]]
transitions = [[[0.8, 0.2], [1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]]]
rewards = [[1.0, 0.5], [1.0, 0.5], [1.0, 0.5]]
usage = [[1], [1]]
initial = [0.5, 0.4]

[[arms]]
transitions = [[[0.8, 0.2], [1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]]]
rewards = [[1.0, 0.5], [0.0, 0.5]]
usage = [[0], [1]]
reward = 1
"""
    )
    places = [line.strip().partition(": ")[0] for line in told.splitlines()[1:]]
    assert f"{len(places)} faults" in told.splitlines()[0]
    assert set(places) >= {
        "discount",
        "budget",
        "colour",
        "arms[0].count",
        "arms[0].transitions[0][0]",
        "arms[0].transitions[0][1][1]",
        "arms[0].rewards[0][0]",
        "arms[0].rewards[1][0]",
        "arms[0].rewards[1][1]",
        "arms[1].rewards",
        "arms[1].usage",
        "arms[1].initial",
        "arms[2].reward",
    }


@pytest.mark.parametrize("name", ["model.txt", "model.TOML.bak", "model"])
def test_another_kind_of_file_is_reported(name, refused):
    told = refused(model({}).encode(), name)
    assert all(suffix in told for suffix in (".toml", ".json", ".npz"))


@pytest.mark.parametrize(
    ("name", "content"), [("model.json", b"{"), ("model.json", b"[1]"), ("model.npz", b"{}"), ("model.npz", b"")]
)
def test_other_kinds_are_read_as_carefully(name, content, refused):
    refused(content, name)


def test_a_directory_is_reported(folder, evenhand):
    (folder / "model.toml").mkdir()
    assert mentions("model.toml")(evenhand("compare", "model.toml").refusal)


def test_a_process_ends_with_2_and_no_traceback(folder, launch, files):
    (folder / "model.toml").write_text(model({"discount": "2", "budget": "[-1]", "count": "0"}))
    told = launch("compare", "model.toml", "--json").refusal
    assert all(place in told for place in ("3 faults", "discount: ", "budget[0]: ", "arms[0].count: "))
    assert files() == ["model.toml"]


def test_what_was_normalised_is_reported_in_one_line(folder, launch):
    text = model({"transitions": "[[[0.8, 0.2], [1.0, 0.0]], [[0.3333, 0.6666], [1.0, 0.0]]]", "name": '"van"'})
    (folder / "model.toml").write_text(text)
    done = launch("indices", "model.toml", "--json")
    assert done.json["arms"]
    assert mentions("van", "model.toml", 1, "transitions[1][0]", 0.9999)(done.err)


def test_a_discount_may_be_missing_where_the_criterion_needs_none(folder, evenhand):
    (folder / "model.toml").write_text(model({"discount": None}))
    assert evenhand("solve", "model.toml", "--criterion", "average", "--json").json["criterion"] == "average"
    assert evenhand("indices", "model.toml", "--criterion", "finite:3", "--json").json["criterion"] == "finite:3"
    assert "discount: missing" in evenhand("solve", "model.toml").refusal
