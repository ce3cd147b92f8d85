"""`check`: what a model says, and each thing that looks odd, with its place; and nothing odd where nothing is."""

import dataclasses

import numpy as np
import pytest

import evenhand as eh
from evenhand.errors import InvalidInputError, ModelError
from evenhand.model import ArmTables
from evenhand.planning import SHOWN, look_alike

from ..conftest import mentions

MOVES = [[[0.8, 0.2], [1.0, 0.0]], [[0.0, 1.0], [0.7, 0.3]]]


def arm(**changes):
    plain = {"transitions": MOVES, "rewards": [[1, 1], [0, 0]], "usage": [[0], [1]]}
    return eh.Arm(**(plain | changes))


def problem(*arms, **changes):
    return eh.CoupledMDP(
        **({"arms": arms or [arm(name="van")], "budget": [1], "discount": 0.95, "counts": None} | changes)
    )


def odd(model, **asked):
    """The kinds of what looks odd."""
    return [note.kind for note in eh.check(model, **asked).notes]


def only(model, kind, **asked):
    """The one note, of the kind that is expected."""
    (note,) = eh.check(model, **asked).notes
    assert note.kind == kind
    return note


@pytest.mark.parametrize("name", eh.problems.names())
def test_nothing_is_odd_about_the_built_in_problems(name):
    """But for the machines at random costs: they are many of one name, and some are as well left alone."""
    known = {"same-name", "never-helped"} if name == "heterogeneous-machine-replacement" else set()
    assert set(odd(eh.problems.build(name, {}), welfare="utilitarian")) == known


def test_what_the_model_says():
    vans = problem(
        arm(name="Ford", states=["good", "poor"], actions=["drive", "repair"], initial=[1, 0]),
        arm(name="Opel", rewards=[[2, 2], [0, 0]]),
        counts=[3, 2],
        resources=["bays"],
        groups=["north", "south"],
        floors=[0.125, 0],
    )
    found = eh.check(vans, welfare="gini:3")
    assert found.problem is vans
    ford, opel = found.types
    assert dataclasses.asdict(ford) | {"service_worth": None} == {
        "name": "Ford",
        "block": 0,
        "count": 3,
        "states": ("good", "poor"),
        "actions": ("drive", "repair"),
        "starts_in": ("good",),
        "unreached": (),
        "served_by": ("repair",),
        "service_worth": None,
        "group": "north",
        "floor": 0.125,
    }
    idle = 1 / (1 - 0.95 * 0.8)  # until it breaks
    assert ford.service_worth == pytest.approx(20 - idle)
    assert (opel.states, opel.starts_in, opel.count, opel.group) == (("0", "1"), ("0", "1"), 2, "south")
    assert [dataclasses.astuple(resource) for resource in found.resources] == [("bays", 1.0, 1.0)]
    assert found.groups == {"north": 3, "south": 2}
    assert found.weight_of_worst == (1, pytest.approx(1 / (1 + 1 / 3 + 1 / 9 + 1 / 27 + 1 / 81)))
    assert found.notes == ()
    assert mentions("north", 3, "south", 2)(dict(found.facts)["groups"])
    assert repr(found) == "Check(the model is sound; nothing looks odd)"


def test_blocks_of_one_name():
    other = arm(name="van", rewards=[[2, 1], [0, 0]])
    note = only(problem(arm(name="van"), other), "same-name")
    assert note.places == ("arms[0].name", "arms[1].name")
    assert odd(problem(arm(name="van"), arm(name="van"))) == ["identical-blocks"]
    assert odd(problem(arm(), arm(rewards=[[2, 1], [0, 0]]))) == [], "no name is no name twice"


def test_identical_blocks():
    note = only(problem(arm(name="a"), arm(name="b"), arm(name="c")), "identical-blocks")
    assert mentions("a", "b")(note.message)
    apart = problem(arm(name="a"), arm(name="b"), groups=["x", "y"], over="groups")
    assert odd(apart) == []


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("North", "north", True),
        ("north", "nroth", True),
        ("north", "norh", True),
        ("north", "northh", True),
        ("north", "nort h", True),
        ("old town", "old_town", True),
        ("old town", "old towm", True),
        ("north", "south", False),
        ("east", "west", False),
        ("group 1", "group 2", False),
        ("group 1", "group 11", False),
        ("team a", "team b", False),
        ("cat", "car", False),
        ("A", "B", False),
        ("ward2a", "ward2b", False),
        ("north", "north east", False),
    ],
)
def test_names_that_look_alike(one, other, alike):
    assert look_alike(one, other) == look_alike(other, one) == alike
    model = problem(arm(name="a"), arm(name="b", rewards=[[2, 2], [0, 0]]), groups=[one, other])
    assert odd(model) == (["alike-groups"] if alike else [])


def test_blocks_without_a_group():
    arms = [arm(name="a"), arm(name="b", rewards=[[2, 2], [0, 0]])]
    note = only(problem(*arms, groups=["x", ""], over="groups"), "no-group")
    assert mentions("b")(note.message)
    assert odd(problem(*arms, groups=["x", ""])) == []
    assert odd(problem(*arms, over="groups")) == []


def two_resources(usage, budget, **changes):
    return problem(arm(name="van", usage=usage), budget=budget, resources=["bays", "bolts"], **changes)


def test_resources_that_are_unused_or_missing():
    assert odd(two_resources([[0, 0], [1, 0]], [1, 3], counts=[2])) == ["unused-resource"]
    assert odd(two_resources([[0, 0], [1, 1]], [1, 0], counts=[2])) == ["no-budget", "never-served"]


def test_a_budget_that_never_binds():
    assert odd(problem(counts=[5], budget=[5])) == ["never-binding"]
    assert odd(problem(counts=[5], budget=[4.9])) == []
    note = only(two_resources([[0, 0], [1, 2]], [1, 7], counts=[3]), "never-binding")
    assert mentions("bolts", 7, 6)(note.message)
    dear = arm(usage=[[0], [9]], name="dear")
    assert odd(problem(arm(name="van", rewards=[[2, 2], [0, 0]]), dear, counts=[3, 1], budget=[4])) == [
        "never-binding",  # what cannot be afforded does not count
        "over-budget",
        "never-served",
    ]


def test_actions_that_no_budget_allows():
    moves = [[[0.8, 0.2], [1, 0], [1, 0]], [[0, 1], [0.7, 0.3], [1, 0]]]
    van = {"transitions": moves, "rewards": np.eye(2, 3), "name": "van", "actions": ["drive", "repair", "replace"]}
    note = only(problem(arm(**van, usage=[[0], [1], [2]]), counts=[3]), "over-budget")
    assert mentions("van", "replace", "takes 2", "resource 0", 1)(note.message)
    assert note.places == ("arms[0].usage[2]",)
    by_state = arm(**van, usage=[[[0], [1], [1]], [[0], [1], [2]]])
    note = only(problem(by_state, counts=[3]), "over-budget")
    assert mentions("takes 2", "resource 0", "state 1", 1)(note.message)
    assert note.places == ("arms[0].usage[1][2]",)
    assert eh.check(problem(by_state, counts=[3])).types[0].served_by == ("repair", "replace")
    forbidden = arm(**van, usage=[[[0], [1], [1]], [[0], [1], [1e12]]])  # as `fit` with unseen="forbid" writes it
    note = only(problem(forbidden, counts=[3]), "over-budget")
    assert mentions("van", "replace", "forbidden", "state 1")(note.message)


def test_arms_that_can_never_be_served():
    idle = eh.Arm([[[1.0]]], [[1.0]], [[0]], name="idle")
    note = only(problem(arm(name="van"), idle, counts=[2, 1]), "never-served")
    assert mentions("idle")(note.message)
    usage = [[[0], [9]], [[0], [1]]]  # within the budget only where it never is
    stays = eh.Arm(np.eye(2)[[[0, 0], [1, 1]]], np.ones((2, 2)), usage, [1, 0], name="stays")
    notes = eh.check(problem(arm(name="van"), stays, counts=[2, 1])).notes
    (note,) = (note for note in notes if note.kind == "never-served")
    assert note.message.endswith("where some action that uses something is within the budget, it never gets")
    assert mentions("idle")(dict(eh.check(problem(arm(), idle, counts=[2, 1])).facts)["can be served"])


@pytest.mark.parametrize("criterion", ["discounted", "average", "finite:9"])
def test_arms_that_gain_nothing(criterion):
    worse = arm(name="worse", transitions=[[[0.8, 0.2], [0.5, 0.5]], [[0, 1], [0, 1]]])
    paid = arm(name="paid", transitions=[[[0.8, 0.2], [0.8, 0.2]], [[0, 1], [0, 1]]], rewards=[[1, 1.001], [0, 0]])
    found = eh.check(problem(worse, paid), criterion=criterion)
    assert [note.message.partition(":")[0] for note in found.notes] == ['arm "worse"'] + (
        ['arm "paid"'] if criterion == "average" else []  # in the long run it is where service pays nothing
    )
    assert {note.kind for note in found.notes} == {"never-helped"}


def test_rewards_that_are_large_do_not_hide_what_helps():
    offset = arm(name="van", rewards=[[1e9 + 1, 1e9 + 1], [1e9, 1e9]])
    assert odd(problem(offset, counts=[2])) == []


def test_states_that_are_never_reached():
    moves = [[[0.8, 0.2, 0], [1, 0, 0]], [[0, 1, 0], [0.7, 0.3, 0]], [[0, 0, 1], [1, 0, 0]]]
    van = {"transitions": moves, "rewards": [[1, 1], [0, 0], [0, 0]], "states": ["good", "poor", "wreck"]}
    model = problem(arm(**van, name="van", initial=[1, 0, 0]), counts=[2])
    note = only(model, "unreached")
    assert mentions("van", "wreck")(note.message)
    assert eh.check(model).types[0].unreached == ("wreck",)
    assert odd(problem(arm(**van, name="van"), counts=[2])) == []
    note = next(note for note in eh.check(model, criterion="finite:1").notes if note.kind == "unreached")
    assert mentions("poor", "wreck", "1 steps")(note.message)


def test_a_discount_near_one():
    near = problem(counts=[2], discount=0.9999)
    assert mentions("10,000")(only(near, "discount").message)
    assert odd(near, criterion="average") == []
    assert odd(problem(counts=[2], discount=0.99)) == []


def test_maximin_in_disguise():
    forty = problem(counts=[40])
    message = only(forty, "nearly-maximin", welfare="gini:2").message
    assert mentions("gini", "gini:2", 4, "40 arms", "arms 94", "maximin")(message)
    for welfare in ("gini:1.05", "utilitarian", "maximin", "leximin", "maximin:0.001", "alpha:2"):
        assert odd(forty, welfare=welfare) == []
    assert odd(forty) == [], "the default is the same for any number of arms"
    own = problem(counts=[40], welfare="gini:2")
    assert only(own, "nearly-maximin").places == ("welfare",)
    assert odd(own, welfare="gini:1.05") == []
    assert "over 99 %" in only(problem(counts=[100]), "nearly-maximin", welfare="gini:2").message
    assert odd(problem(counts=[5]), welfare="gini:20") == [], "of five, the worst-off one is no tenth"


@pytest.mark.parametrize("criterion", ["discounted", "average", "finite:9"])
def test_floors_that_cannot_be_met(criterion):
    note = only(problem(counts=[3], floors=[0.5]), "floors", criterion=criterion)
    assert mentions(0.3333)(note.message)
    assert note.places == ("arms[0].floor",)
    assert odd(problem(counts=[3], floors=[0.25]), criterion=criterion) == []


def test_a_file_with_several_oddities(tmp_path):
    file = tmp_path / "vans.toml"
    file.write_text(
        """discount = 0.95
budget = [1]
[[arms]]
name = "van"
count = 3
transitions = [[[0.8, 0.2], [1, 0]],
  [[0.0, 1.0], [0.6666667, 0.3333334]]]
rewards = [[1, 1], [0, 0]]
usage = [[0], [1]]
[[arms]]
name = "van"
transitions = [[[0.8, 0.2], [1, 0]], [[0.0, 1.0], [0.7, 0.3]]]
rewards = [[1, 1], [0, 0]]
usage = [[0], [2]]
"""
    )
    found = eh.check(file)
    assert [note.kind for note in found.notes] == ["normalised", "same-name", "over-budget", "never-served"]
    assert found.source == str(file)


def test_a_file_that_is_not_sound_is_refused(tmp_path):
    (tmp_path / "bad.toml").write_text("budget = [1]\n")
    with pytest.raises(ModelError, check=mentions("2 faults")):
        eh.check(tmp_path / "bad.toml")


def test_an_invalid_model_is_refused():
    simulator = eh.Simulator(max, min, [[0], [1]], num_states=3, num_arms=9, budget=[2], discount=0.9)
    with pytest.raises(InvalidInputError, check=mentions("Simulator")):
        eh.check(simulator)


def test_many_notes_of_a_kind_are_summed_up():
    rng = np.random.default_rng(0)
    arms = [arm(name=f"van {i}", usage=[[0], [2]], rewards=rng.random((2, 2))) for i in range(SHOWN + 5)]
    found = eh.check(problem(arm(name="last"), *arms), welfare="utilitarian")
    kinds = [note.kind for note in found.notes]
    assert kinds.count("over-budget") == kinds.count("never-served") == SHOWN + 1
    last = [note for note in found.notes if note.kind == "over-budget"][-1]
    assert mentions(5)(last.message)
    assert len(last.places) == 5


def test_thousands_of_types_are_looked_at_together():
    rng = np.random.default_rng(0)
    number = 3000
    moves = rng.dirichlet(np.ones(3), size=(number, 3, 2))
    sizes = np.full(number, 3, dtype=np.int32), np.full(number, 2, dtype=np.int32)
    usage = np.zeros((number, 3, 2, 1))
    usage[:, :, 1] = 1
    tables = ArmTables(moves, rng.random((number, 3, 2)), usage, np.full((number, 3), 1 / 3), *sizes)
    found = eh.check(eh.CoupledMDP(tables, [10], 0.9), welfare="utilitarian")
    assert len(found.types) == number
    assert all(facts.service_worth >= 0 for facts in found.types)
