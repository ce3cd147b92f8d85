"""Policies of someone's own as files: whoever reads them gives the class, and nothing in the file is run."""

import json
import zipfile

import numpy as np
import pytest

import evenhand as eh
from evenhand.errors import InvalidInputError, NotApplicableError, PolicyError
from evenhand.model import capabilities

from ..conftest import mentions

THREE = eh.problems.machine_replacement(num_arms=3)
STATES = np.array([[0, 1, 2], [2, 2, 0], [0, 0, 0], [1, 2, 1]])


class Worn:
    """Serves the first arm that is in one of given states."""

    kind = "worn"

    def __init__(self, problem, which):
        self.problem, self.which = problem, np.asarray(which, dtype=bool)

    def act(self, states, rng):
        worn = self.which[states]
        return (worn & (worn.cumsum(axis=1) == 1)).astype(np.int32)

    def to_arrays(self):
        return {"which": self.which}

    @classmethod
    def from_arrays(cls, problem, arrays):
        return cls(problem, arrays["which"])


class Scored(eh.policies.ExchangeablePriority):
    """Of a class of ours, and yet its own kind."""

    kind = "scored"

    def to_arrays(self):
        return {"scores": self.scores, "threshold": self.threshold}

    @classmethod
    def from_arrays(cls, problem, arrays):
        return cls(problem, arrays["scores"], float(arrays["threshold"]))


def broken(**changes):
    return type("Broken", (Worn,), changes)(THREE, [0, 1, 1])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "mine.zip"


@pytest.mark.parametrize("policy", [Worn(THREE, [False, True, True]), Scored(THREE, THREE.types.rewards, 0.1)])
def test_what_is_saved_is_read_again(path, policy):
    eh.save_policy(THREE, policy, path)
    again = eh.load_policy(path, THREE, kinds=[Scored, Worn])
    assert type(again) is type(policy) and again.problem == THREE
    assert np.array_equal(again.act(STATES, np.random.default_rng(0)), policy.act(STATES, np.random.default_rng(0)))
    plan = eh.load_plan(path, kinds=[Worn, Scored])
    assert type(plan.policy) is type(policy)


def test_a_mixture_may_have_parts_of_ones_own(path):
    whole = eh.MixturePolicy(
        [Worn(THREE, [0, 1, 1]), eh.policies.worst_first(THREE), Worn(THREE, [0, 0, 1])], [0.5, 0.2, 0.3]
    )
    eh.save_policy(THREE, whole, path)
    again = eh.load_policy(path, THREE, kinds=[Worn])
    assert [type(part).__name__ for part in again.parts] == ["Worn", "ExchangeablePriority", "Worn"]
    assert again.parts[2].which.tolist() == [False, False, True]
    assert np.array_equal(again.act(STATES, 5), whole.act(STATES, 5))
    with pytest.raises(PolicyError, check=mentions("worn")):
        eh.load_policy(path, THREE)


def test_what_solve_mixes_of_candidates_is_saved(path):
    people = eh.problems.health_outreach(num_arms=4, num_states=2, budget=1)
    mine = Scored(people, np.ones(people.types.valid.shape))
    solution = eh.solve(people, method=eh.SolveMethod(seconds=0.5, candidates={"mine": mine}), rng=0)
    eh.save_solution(solution, path)
    read = eh.load_policy(path, people, kinds=[Scored])
    assert type(read) is type(solution.policy)


def test_a_plan_of_it_says_whose_rule_it_is():
    shown = eh.Plan(Worn(THREE, [0, 1, 1]), THREE).show()
    assert "rule of Worn" in shown and "by a table" not in shown


def test_it_says_that_it_can_be_saved():
    assert capabilities(Worn(THREE, [0, 1, 1])).saves is not None
    assert capabilities(eh.policies.from_function(THREE, lambda states, rng: states)).saves is None


class TestReading:
    def test_without_its_class_it_is_refused(self, path):
        eh.save_policy(THREE, Worn(THREE, [0, 1, 1]), path)
        for read in (lambda: eh.load_policy(path, THREE), lambda: eh.load_policy(path, THREE, kinds=[Scored])):
            with pytest.raises(PolicyError, check=mentions("worn")):
                read()
        with pytest.raises(PolicyError, check=mentions("worn")):
            eh.evaluate(THREE, path)

    def test_another_problem_is_refused_before_the_class_is_asked(self, path):
        eh.save_policy(THREE, Worn(THREE, [0, 1, 1]), path)

        class Unasked(Worn):
            @classmethod
            def from_arrays(cls, problem, arrays):
                raise AssertionError

        with pytest.raises(PolicyError, check=mentions("num_arms", 3, 4)):
            eh.load_policy(path, eh.problems.machine_replacement(num_arms=4), kinds=[Unasked])

    def test_what_the_class_cannot_read_is_told(self, path):
        eh.save_policy(THREE, Worn(THREE, [0, 1, 1]), path)
        with pytest.raises(PolicyError, check=mentions("scores")):
            eh.load_policy(path, THREE, kinds=[type("Other", (Scored,), {"kind": "worn"})])
        nothing = type("Nothing", (), {"kind": "worn", "from_arrays": classmethod(lambda cls, problem, arrays: 3)})
        with pytest.raises(PolicyError, check=mentions("worn", "int")):
            eh.load_policy(path, THREE, kinds=[nothing])

    @pytest.mark.parametrize(
        ("kinds", "words"),
        [
            (Worn, "kinds"),
            ([int], "kind"),
            ([type("Mute", (), {"kind": "mute"})], "from_arrays"),
            ([Worn, type("Twin", (Worn,), {})], "worn"),
        ],
        ids=["bare", "int", "mute", "twins"],
    )
    def test_classes_that_will_not_do_are_told(self, path, kinds, words):
        eh.save_policy(THREE, eh.policies.worst_first(THREE), path)
        with pytest.raises(InvalidInputError, match=words):
            eh.load_policy(path, THREE, kinds=kinds)

    @pytest.mark.parametrize(
        "change",
        [
            {"kind": "os.system"},
            {"kind": None},
            {"kind": "../worn"},
            {"kind": "worn-out"},
            {"sha256": {}},
            {"sha256": {"../which.npy": ""}},
        ],
        ids=str,
    )
    def test_a_manifest_that_was_tampered_with_is_refused(self, path, tmp_path, change):
        eh.save_policy(THREE, Worn(THREE, [0, 1, 1]), path)
        other = tmp_path / "other.zip"
        with zipfile.ZipFile(path) as old, zipfile.ZipFile(other, "w") as new:
            for name in old.namelist():
                body = old.read(name)
                if name == "manifest.json":
                    body = json.dumps(json.loads(body) | change).encode()
                new.writestr(name, body)
        with pytest.raises(PolicyError, check=mentions("other.zip")):
            eh.load_policy(other, THREE, kinds=[Worn])


class TestWriting:
    @pytest.mark.parametrize(
        ("policy", "words"),
        [
            (broken(kind="Worn Out"), "kind"),
            (broken(kind=3), "kind"),
            (broken(to_arrays=lambda self: [1, 2]), "to_arrays"),
            (broken(to_arrays=lambda self: {"a b": 1}), "a b"),
            (broken(to_arrays=lambda self: {"a": "text"}), "'a'"),
            (broken(to_arrays=lambda self: {"a": np.array([object()])}), "'a'"),
            (broken(from_arrays=None), "from_arrays"),
        ],
        ids=["words", "a number", "a list", "a name", "text", "objects", "one way"],
    )
    def test_what_cannot_be_saved_is_told_and_nothing_is_written(self, path, policy, words):
        with pytest.raises(NotApplicableError, match=words):
            eh.save_policy(THREE, policy, path)
        assert not path.exists()

    def test_what_is_no_table_is_told_how_it_could_be_saved(self, path):
        class Plain:
            def act(self, states, rng):
                return np.zeros_like(states)

        with pytest.raises(NotApplicableError, check=mentions("Plain")):
            eh.save_policy(THREE, Plain(), path)

    def test_steps_may_be_of_ones_own(self, path):
        steps = [Worn(THREE, [0, 1, 1]), Worn(THREE, [0, 0, 1]), eh.policies.worst_first(THREE)]
        for parts in (steps, steps[:2]):
            eh.save_policy(THREE, eh.TimeVaryingPolicy(parts), path)
            again = eh.load_policy(path, THREE, kinds=[Worn])
            assert [type(part) for part in again.parts] == [type(part) for part in parts]
            assert again.parts[1].which.tolist() == [False, False, True]
