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
QUICK = {"num_episodes": 30, "horizon": 20, "rng": 0, "solve_up_to": 0}


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
        asked = {"criterion": "finite:4", "welfare": "maximin"}
        made = find_policy("oldest-first").build(THREE.with_criterion("finite:4"), "maximin")
        found = eh.evaluate(policy="oldest-first", problem=THREE, **asked)
        assert found.welfare == evaluation.evaluate(THREE, made, **asked).welfare and found.criterion == "finite:4"

    def test_by_file_and_by_what_has_a_policy(self, saved):
        expected = evaluation.evaluate(THREE, eh.policies.whittle(THREE)).welfare
        assert eh.evaluate(THREE, saved).welfare == eh.evaluate(THREE, str(saved)).welfare == expected
        assert eh.evaluate(THREE, SimpleNamespace(policy=eh.policies.whittle(THREE))).welfare == expected

    def test_what_is_none_is_told(self, tmp_path):
        with pytest.raises(UnknownNameError, match=r"unknown policy 'oldest'. Did you mean 'oldest-first'"):
            eh.evaluate(THREE, "oldest")
        with pytest.raises(PolicyError, match="there is no such file"):
            eh.evaluate(THREE, tmp_path / "nothing.zip")
        with pytest.raises(PolicyError, match="Idle is a class; make an object of it"):
            eh.evaluate(THREE, Idle)
        with pytest.raises(PolicyError, match=r"this is a function; policies\.from_function"):
            eh.evaluate(THREE, lambda states, rng: states * 0)
        with pytest.raises(PolicyError, match=r"expected a name, a file or an object with a method act.* got int"):
            eh.evaluate(THREE, 3)

    def test_a_name_that_does_not_apply_says_why(self):
        with pytest.raises(NotApplicableError, match="Whittle indices are for"):
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
        ("policies", "words"),
        [
            ([], "expected at least one"),
            ({}, "expected at least one"),
            ({3: Idle()}, "expected texts as names, got 3"),
            (["whitle"], "unknown policy 'whitle'"),
            (3, "got int"),
            ([Idle], "Idle is a class"),
        ],
        ids=["none", "none named", "a number as name", "unknown", "a number", "a class"],
    )
    def test_each_fault_has_its_words(self, policies, words):
        with pytest.raises(InvalidInputError, match=words):
            eh.compare(THREE, policies, **QUICK)
