import pytest

from evenhand.errors import InvalidInputError, ModelError, TableError
from evenhand.model import Arm, CoupledMDP
from evenhand.problems import machine_replacement
from evenhand.programme import Programme, certificates, named_model

from ..conftest import mentions


def names(programme, **which):
    return [arm.name for arm in programme.arms(**which)]


def test_arms_come_and_go(programme):
    new = [{"arm": "b3", "type": "big", "state": "worn"}, {"arm": "h3", "type": "small", "group": "hill"}]
    assert programme.join(new).arms == ("b3", "h3")
    assert programme.join([{"arm": "later", "type": "big"}], step=4).step == 4
    assert names(programme) == ["b1", "b2", "h1", "h2", "v1", "b3", "h3"]
    assert names(programme, step=4)[-1] == "later"
    programme.leave(["h1", "b3"], "sold")
    assert names(programme) == ["b1", "b2", "h2", "v1", "h3"]
    programme.join([{"arm": "h1", "type": "big"}])
    back = [arm for arm in programme.arms(gone=True) if arm.name == "h1"]
    assert [(arm.type, arm.left_why) for arm in back] == [("small", "sold"), ("big", None)]
    assert programme.status().observed == 4
    assert programme.verify().event == 5
    assert certificates.numbers_of(programme.arms(step=4))[0] == ("big", "big", 4)


def test_all_faults_of_a_roster_are_reported(programme):
    rows = [{"arm": "x", "type": "bigg"}, {"arm": "y", "type": "big", "state": "rusty"}, {"type": "big"}]
    with pytest.raises(TableError) as raised:
        programme.join(rows)
    told = str(raised.value)
    for words in ("roster: 3 faults", 'Did you mean "big"?', 'row 2: "rusty"', "row 3: has no arm"):
        assert words in told
    with pytest.raises(TableError, check=mentions("b1")):
        programme.join([{"arm": "b1", "type": "big"}])
    with pytest.raises(TableError):
        programme.join([{"arm": "x" * 201, "type": "big"}])
    assert programme.verify().event == 1


def test_a_roster_with_states_under_another_name_is_refused(programme):
    rows = [{"arm": "x", "type": "big", "zustand": "worn"}, {"arm": "y", "type": "big", "zustand": ""}]
    with pytest.raises(TableError, check=mentions("zustand")):
        programme.join(rows)
    programme.join([{"arm": "x", "type": "big", "site": "mill"}])


def test_who_does_not_take_part_cannot_leave(programme):
    with pytest.raises(TableError) as raised:
        programme.leave(["b11", "b1", "b1"], "sold")
    assert 'there is no arm "b11".' in str(raised.value)
    assert "nearest" not in str(raised.value)  # b1 is another pump, not a typing error
    assert 'arm "b1" is given twice' in str(raised.value)
    with pytest.raises(InvalidInputError, check=mentions("why", 2000)):
        programme.leave(["b1"], " ")
    with pytest.raises(TableError, check=mentions("arms")):
        programme.leave([], "sold")
    assert len(programme.arms()) == 5


def test_types_without_names_retain_their_numbers(tmp_path):
    plain = Arm([[[1.0], [1.0]]], [[0.0, 1.0]], [[0], [1]])
    richer = Arm([[[1.0], [1.0]]], [[0.0, 2.0]], [[0], [1]])
    model = CoupledMDP([plain, richer], budget=[1], discount=0.9, counts=[3, 3])
    settled = named_model.settle(model)
    problem = named_model.of_roster(named_model.from_bytes(named_model.to_bytes(settled)[1]), [1, 1])
    assert problem.tables.labels[0][0] == "1"
    assert problem.group_names == ("arms[1]",)
    with Programme.create(tmp_path / "x.db", model, [{"arm": "only", "type": "1"}]) as made:
        assert [(arm.type, arm.group) for arm in made.arms()] == [("1", "arms[1]")]


def test_blocks_that_no_roster_could_tell_apart_are_refused():
    one, other = (Arm([[[1.0], [1.0]]], [[0.0, gain]], [[0], [1]], name="van") for gain in (1.0, 2.0))
    with pytest.raises(ModelError, check=mentions("arms[1]", "arms[0]")):
        named_model.settle(CoupledMDP([one, other], budget=[1], discount=0.9, groups=["north", "north"]))
    named_model.settle(CoupledMDP([one, other], budget=[1], discount=0.9, groups=["north", "south"]))


def test_the_welfare_is_for_the_roster_not_for_the_model(tmp_path):
    model = machine_replacement(num_arms=7)
    rows = [{"arm": name} for name in "abc"]
    with Programme.create(tmp_path / "x.db", model.with_criterion("average"), rows, welfare="gini:0.5,0.3,0.2") as made:
        assert (made.status().welfare, made.status().criterion) == ("gini:0.5,0.3,0.2", "average")
    with pytest.raises(InvalidInputError, check=mentions("gini:0.5,0.5", 2, 3)):
        Programme.create(tmp_path / "y.db", model, rows, welfare="gini:0.5,0.5")
    with pytest.raises(InvalidInputError, check=mentions("seed")):
        Programme.create(tmp_path / "y.db", model, rows, seed=-1)
    assert not (tmp_path / "y.db").exists()
