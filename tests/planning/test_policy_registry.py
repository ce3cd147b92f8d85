"""Which policy is meant: names, files and objects, alone and mixed, in evaluate and in compare."""

from types import SimpleNamespace

import numpy as np
import pytest

import evenhand as eh
from evenhand import evaluation
from evenhand.errors import InvalidInputError, ModelError, NotApplicableError, PolicyError, UnknownNameError
from evenhand.planning import find_policy

from ..conftest import mentions

THREE = eh.problems.machine_replacement(num_arms=3)
QUICK = {"num_episodes": 30, "horizon": 20, "rng": 0}


class Idle:
    """As little as a policy needs."""

    def act(self, states, rng):
        return np.zeros_like(states)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "plan.zip"
    eh.save_policy(THREE, eh.policies.whittle(THREE), path)
    return path


class TestEvaluate:
    @pytest.mark.parametrize("name", ["oldest-first", "OFT", "oft", "fair-index"])
    def test_by_name(self, name):
        made = find_policy(name).build(THREE, "gini:2")
        assert eh.evaluate(THREE, name).welfare == evaluation.evaluate(THREE, made).welfare

    def test_a_name_is_made_for_what_is_asked(self):
        finite = THREE.with_criterion("finite:4")
        made = find_policy("oldest-first").build(finite, "maximin")
        found = eh.evaluate(policy="oldest-first", problem=THREE, criterion="finite:4", welfare="maximin")
        assert found.welfare == evaluation.evaluate(finite, made, "maximin").welfare and found.criterion == "finite:4"

    def test_by_file_and_by_what_has_a_policy(self, saved):
        expected = evaluation.evaluate(THREE, eh.policies.whittle(THREE)).welfare
        assert eh.evaluate(THREE, saved).welfare == eh.evaluate(THREE, str(saved)).welfare == expected
        assert eh.evaluate(THREE, SimpleNamespace(policy=eh.policies.whittle(THREE))).welfare == expected

    def test_what_is_none_is_told(self, tmp_path):
        with pytest.raises(UnknownNameError, check=mentions("oldest-first")):
            eh.evaluate(THREE, "oldest")
        with pytest.raises(PolicyError, check=mentions("nothing.zip")):
            eh.evaluate(THREE, tmp_path / "nothing.zip")
        with pytest.raises(PolicyError, check=mentions("Idle")):
            eh.evaluate(THREE, Idle)
        with pytest.raises(PolicyError, check=mentions("policies.from_function")):
            eh.evaluate(THREE, lambda states, rng: states * 0)
        with pytest.raises(PolicyError, check=mentions("int")):
            eh.evaluate(THREE, 3)

    def test_a_name_that_does_not_apply_says_why(self):
        with pytest.raises(NotApplicableError):
            eh.evaluate(eh.problems.crew_maintenance(num_arms=2, num_types=2), "whittle")

    def test_a_folder_does_not_hide_a_name(self, tmp_path, monkeypatch):
        (tmp_path / "random").mkdir()
        monkeypatch.chdir(tmp_path)
        assert eh.evaluate(THREE, "random").exact


def names_of(policies):
    return {row.policy for row in eh.compare(THREE, policies, **QUICK).rows}


class TestCompare:
    def test_one_of_each_kind(self, saved):
        solution = eh.solve(THREE)
        assert names_of(["WIP", saved, Idle(), solution]) == {"whittle", str(saved), "Idle", "Solution"}

    @pytest.mark.parametrize("policy", [Idle(), eh.policies.RoundRobin(THREE)], ids=["own", "ours"])
    def test_a_bare_policy(self, policy):
        assert names_of(policy) == {type(policy).__name__}

    def test_a_bare_name_and_a_bare_file(self, saved):
        assert names_of("random") == {"random"} and names_of(saved) == {str(saved)}

    def test_names_of_ones_own(self, saved):
        assert names_of({"a": Idle(), "b": "RDM", "c": saved}) == {"a", "b", "c"}

    def test_two_of_a_kind_are_told_apart_and_a_name_is_shown_once(self):
        assert names_of([Idle(), Idle(), "random", "RDM", Idle()]) == {"Idle", "Idle 2", "Idle 3", "random"}
        assert names_of(policy for policy in (Idle(), "random")) == {"Idle", "random"}

    def test_all_faults_come_at_once(self, tmp_path):
        with pytest.raises(ModelError) as caught:
            eh.compare(THREE, ["whitle", Idle(), tmp_path / "none.zip", 7], **QUICK)
        words = str(caught.value)
        for part in ("3 faults", "Did you mean 'whittle'", "none.zip: cannot be read", "got int"):
            assert part in words
        with pytest.raises(ModelError, check=mentions("mine", "whitle")):
            eh.compare(THREE, {"mine": "whitle", "other": 3}, **QUICK)

    @pytest.mark.parametrize(
        ("policies", "named"),
        [([], "policies"), ({}, "policies"), ({3: Idle()}, 3), (["whitle"], "whittle"), (3, "int"), ([Idle], "Idle")],
    )
    def test_each_fault_is_refused(self, policies, named):
        with pytest.raises(InvalidInputError, check=mentions(named)):
            eh.compare(THREE, policies, **QUICK)
