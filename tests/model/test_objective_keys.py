"""Criterion, groups, floors and names of resources in model files."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand import load, problems, save
from evenhand.errors import ModelError
from evenhand.model import Arm, CoupledMDP, Discounted, Finite, Gini, read_welfare

from ..conftest import mentions

IDLE_OR_NOT = Arm([[[1.0], [1.0]]], [[0.0, 1.0]], [[0.0, 0.0], [1.0, 0.5]], name="pump")
DOCUMENT = {
    "budget": [1, 1],
    "resources": ["crews", "parts"],
    "criterion": "average",
    "over": "groups",
    "arms": [
        {
            "group": "north",
            "floor": 0.25,
            "transitions": [[[1], [1]]],
            "rewards": [[0, 1]],
            "usage": [[0, 0], [1, 0.5]],
        },
        {"count": 2, "transitions": [[[1], [1]]], "rewards": [[0, 1]], "usage": [[0, 0], [1, 0.5]]},
    ],
}


def written(path, document):
    path.write_text(json.dumps(document))
    return path


def faults_of(tmp_path, **changes):
    with pytest.raises(ModelError) as caught:
        load(written(tmp_path / "model.json", {**DOCUMENT, **changes}))
    return [str(fault) for fault in caught.value.faults]


@given(
    criterion=st.sampled_from(["discounted", "average", "finite:1", "finite:52"]),
    over=st.sampled_from(["arms", "groups"]),
    groups=st.lists(st.sampled_from(["", "north", 'so "uth"', "öst"]), min_size=2, max_size=2),
    floors=st.lists(st.floats(0, 1), min_size=2, max_size=2),
    resources=st.sampled_from([(), ("crews", "spare parts")]),
    welfare=st.sampled_from([None, "gini:2", "gini:half=0.6", "leximin"]),
    suffix=st.sampled_from(["toml", "json", "npz"]),
)
def test_all_of_it_reads_back(tmp_path_factory, criterion, over, groups, floors, resources, welfare, suffix):
    problem = CoupledMDP(
        [IDLE_OR_NOT, IDLE_OR_NOT],
        [1, 1],
        0.9 if criterion == "discounted" else 1.0,
        [1, 3],
        resources=resources,
        groups=groups,
        floors=floors,
        criterion=criterion,
        over=over,
        welfare=welfare,
    )
    file = tmp_path_factory.mktemp("model") / f"model.{suffix}"
    save(problem, file)
    again = load(file)
    assert again == problem
    assert (again.criterion, again.over, again.groups) == (problem.criterion, over, problem.groups)
    assert again.welfare == welfare
    assert again.floors.tolist() == problem.floors.tolist() and again.resources == tuple(resources)


def test_a_file_says_it_all(tmp_path):
    problem = load(written(tmp_path / "model.json", DOCUMENT))
    assert problem.criterion.name == "average" and problem.over == "groups"
    assert problem.group_names == ("north", "arms[1]") and problem.resource_names == ("crews", "parts")
    assert problem.floors.tolist() == [0.25, 0] and problem.discount == 1


def test_defaults_are_not_written(tmp_path):
    save(CoupledMDP([IDLE_OR_NOT], [1, 1], 0.5), tmp_path / "model.toml")
    text = (tmp_path / "model.toml").read_text()
    assert not any(key in text for key in ("criterion", "over", "resources", "group", "floor", "welfare"))


def test_one_function_knows_the_default(tmp_path):
    """Asked for, else the model's own, else the same emphasis on the worse-off for any number of arms."""
    own = load(written(tmp_path / "model.json", {**DOCUMENT, "welfare": "gini:3"}))
    without = load(written(tmp_path / "model.json", DOCUMENT))
    assert [read_welfare(own, given).name for given in ("maximin", None)] == ["maximin", "gini:3"]
    assert read_welfare(without, None) == Gini.bottom_half(0.75)
    assert own != without
    for name, default in {"machine-replacement": "gini:2", "heterogeneous-machine-replacement": "gini:2"}.items():
        assert read_welfare(problems.build(name), None).name == default
    for name in ("random", "health-outreach", "crew-maintenance"):
        assert read_welfare(problems.build(name), None).name == "gini:half=0.75"


def test_a_default_with_weights_is_for_so_many_members():
    several = {"arms": [IDLE_OR_NOT, IDLE_OR_NOT], "budget": [1, 1], "discount": 0.9, "counts": [1, 2]}
    assert CoupledMDP(**several, welfare="gini:0.5,0.3,0.2").welfare == "gini:0.5,0.3,0.2"
    by_groups = CoupledMDP(**several, over="groups", welfare="gini:0.6,0.4")
    assert read_welfare(by_groups, None).name == "gini:0.6,0.4"
    with pytest.raises(ModelError, check=mentions("2 arms", 3)):
        CoupledMDP(**several, welfare="gini:0.6,0.4")


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"criterion": "finite"}, "criterion"),
        ({"criterion": "finite:0"}, "criterion"),
        ({"criterion": "average:3"}, "criterion"),
        ({"criterion": "avrage"}, "criterion"),
        ({"criterion": 3}, "criterion"),
        ({"criterion": "discounted"}, "discount"),
        ({"discount": 1.0, "criterion": "discounted"}, "discount"),
        ({"over": "arm"}, "over"),
        ({"welfare": "gnii:2"}, "welfare"),
        ({"welfare": 2}, "welfare"),
        ({"welfare": "gini:0.5,0.3,0.2"}, "welfare"),
        ({"resources": ["crews"]}, "resources"),
        ({"resources": ["crews", "crews"]}, "resources"),
        ({"resources": "crews"}, "resources"),
        ({"arms": [{**DOCUMENT["arms"][0], "group": 1}]}, "arms[0].group"),
        ({"arms": [{**DOCUMENT["arms"][0], "floor": 1.5}]}, "arms[0].floor"),
        ({"arms": [{**DOCUMENT["arms"][0], "floor": True}]}, "arms[0].floor"),
        ({"arms": [{**DOCUMENT["arms"][0], "gruop": "n"}]}, "arms[0].gruop"),
    ],
)
def test_each_mistake_has_its_place(tmp_path, changes, place):
    (found,) = faults_of(tmp_path, **changes)
    assert found.startswith(f"{place}: ")


def test_all_mistakes_at_once(tmp_path):
    arm = {**DOCUMENT["arms"][0], "group": [], "floor": -1}
    found = faults_of(tmp_path, criterion="finite:x", over=2, resources=[1], arms=[arm])
    assert len(found) == 5


def test_a_block_without_a_group_is_one_by_its_own_name():
    arms = [IDLE_OR_NOT, IDLE_OR_NOT, Arm([[[1.0]]], [[0.0]], [[0.0, 0.0]], name="north"), IDLE_OR_NOT]
    problem = CoupledMDP(arms, [1, 1], 0.5, groups=["north", "", "", "north"], over="groups")
    assert problem.group_names == ("north", "pump", "north (arms[2])")
    assert problem.group_of_block.tolist() == [0, 1, 2, 0]
    assert problem.num_types == 3 and problem.group_of_type.tolist() == [0, 1, 2]
    assert problem.with_criterion(over="arms").num_types == 2


def test_floors_keep_equal_arms_apart():
    problem = CoupledMDP([IDLE_OR_NOT, IDLE_OR_NOT], [1, 1], 0.5, floors=[0.0, 0.5])
    assert problem.num_types == 2 and problem.type_floors.tolist() == [0, 0.5]
    assert not problem.is_symmetric and problem.has_floors


def test_another_objective_is_the_same_arms():
    problem = CoupledMDP([IDLE_OR_NOT], [1, 1], 0.5, [4])
    assert problem.with_criterion() is problem and problem.with_criterion("discounted", "arms") is problem
    other = problem.with_criterion("finite:3", "groups")
    assert other.tables is problem.tables and other.signature == problem.signature and other != problem
    assert other.with_criterion("discounted", "arms") == problem
    np.testing.assert_array_equal(other.type_counts, [4])


def test_a_criterion_with_a_discount_of_its_own():
    problem = CoupledMDP([IDLE_OR_NOT], [1, 1], 0.5, [4])
    other = problem.with_criterion(Finite(3, 0.25))
    assert (other.discount, other.criterion.factor, problem.discount) == (0.25, 0.25, 0.5)
    assert other.signature != problem.signature and other.with_criterion("discounted").criterion == Discounted(0.25)
    with pytest.raises(ModelError, check=mentions("criterion", 0.25, 0.5)):
        CoupledMDP([IDLE_OR_NOT], [1, 1], 0.5, [4], criterion=Finite(3, 0.25))
