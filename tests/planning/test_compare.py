"""Policies side by side, in one world."""

import numpy as np
import pytest

from evenhand import compare, evaluate
from evenhand.errors import InvalidInputError, NotApplicableError, UnknownNameError
from evenhand.model import CoupledMDP, Gini, Policy, StatefulPolicy
from evenhand.planning import REGISTRY, find_policy
from evenhand.policies import never_act, random_feasible, worst_first
from evenhand.problems import machine_replacement

from ..conftest import mentions

THREE = machine_replacement(num_arms=3)
QUICK = {"num_episodes": 50, "horizon": 30, "rng": 0}
BASELINES = ["random", "oldest-first", "myopic", "never-act"]


class TestRoster:
    def test_names_are_found_by_name_and_abbreviation(self):
        for entry in REGISTRY:
            assert find_policy(entry.name) is find_policy(entry.abbreviation) is entry
            assert find_policy(entry.abbreviation.lower()) is find_policy(entry.name.upper()) is entry

    def test_names_are_distinct(self):
        names = [name.lower() for entry in REGISTRY for name in (entry.name, entry.abbreviation)]
        assert len(set(names)) == len(names)

    def test_the_papers_baselines_are_there(self):
        assert {"RDM", "OFT", "MYP", "EQR"} <= {entry.abbreviation for entry in REGISTRY}

    def test_every_entry_builds_a_policy_and_says_what_it_does(self):
        for entry in REGISTRY:
            problem = THREE.with_criterion("average") if entry.name in ("set-expansion", "two-set") else THREE
            assert isinstance(entry.build(problem), (Policy, StatefulPolicy))
            assert entry.summary

    def test_an_unknown_name_gets_the_nearest(self):
        with pytest.raises(UnknownNameError, check=mentions("myopik", "myopic")):
            find_policy("myopik")


class TestCompare:
    def test_rows_are_what_evaluate_finds_best_first(self):
        found = compare(THREE, BASELINES, **QUICK)
        assert {row.policy for row in found.rows} == set(BASELINES)
        welfares = [row.evaluation.welfare for row in found.rows]
        assert welfares == sorted(welfares, reverse=True)
        for row in found.rows:
            assert row.evaluation.welfare == pytest.approx(
                evaluate(THREE, find_policy(row.policy).build(THREE)).welfare
            )

    def test_all_policies_meet_the_same_world(self):
        """Two copies of one policy have the same returns; simulated, because exact values would agree anyway."""
        twins = {"one": random_feasible(THREE), "two": random_feasible(THREE), "idle": never_act(THREE)}
        rows = {row.policy: row.evaluation for row in compare(THREE, twins, method="monte-carlo", **QUICK).rows}
        assert np.array_equal(rows["one"].returns, rows["two"].returns)
        assert not rows["one"].exact

    def test_seeds_reproduce_and_differ(self):
        def returns(rng):
            options = QUICK | {"rng": rng}
            return compare(THREE, ["random"], method="monte-carlo", **options).rows[0].evaluation.returns

        assert np.array_equal(returns(3), returns(3)) and not np.array_equal(returns(3), returns(4))
        assert np.array_equal(returns(np.random.default_rng(3)), returns(np.random.default_rng(3)))

    def test_without_names_all_that_apply_are_there(self):
        found = compare(THREE, **QUICK)
        known = {entry.name for entry in REGISTRY}
        assert {row.policy for row in found.rows} | set(found.left_out) >= known - {"optimal"}
        assert {"random", "oldest-first", "equal-resources"} <= {row.policy for row in found.rows}

    def test_welfare_is_text_or_an_object(self):
        by_text, by_object = (compare(THREE, BASELINES, w, **QUICK) for w in ("gini:2", Gini.geometric(3)))
        assert by_text.welfare.name == by_object.welfare.name == "gini:2"
        for one, two in zip(by_text.rows, by_object.rows, strict=True):
            assert (one.policy, one.evaluation.welfare) == (two.policy, two.evaluation.welfare)

    def test_what_cannot_be_exact_is_left_out_with_the_reason(self):
        found = compare(THREE, method="exact", **QUICK)
        assert all(row.evaluation.exact for row in found.rows) and len(found.rows) >= 4
        assert "simulated" in found.left_out["equal-resources"]

    def test_a_single_policy_that_does_not_apply_is_an_error(self):
        with pytest.raises(NotApplicableError):
            compare(THREE, ["equal-resources"], method="exact", **QUICK)

    def test_an_unknown_name_is_an_error(self):
        with pytest.raises(UnknownNameError, check=mentions("random")):
            compare(THREE, ["randon"], **QUICK)

    def test_one_name_as_plain_text(self):
        try:
            found = compare(THREE, "myopic", **QUICK)
        except InvalidInputError as error:
            assert "policies" in str(error)  # a refusal that names the argument will do
        else:
            assert [row.policy for row in found.rows] == ["myopic"]

    def test_the_fluid_bound_if_the_optimum_takes_too_many_states(self, effort):
        effort(optimum_states=0)
        found = compare(THREE, BASELINES, **QUICK)
        assert found.upper_bound >= 14.0793 and found.bound_name == "fluid bound"

    @pytest.mark.parametrize(("num_arms", "optimum"), [(2, 14.1859), (3, 14.0793)])
    def test_the_optimum_stands_above_all(self, num_arms, optimum):
        problem = machine_replacement(num_arms=num_arms)
        found = compare(problem, **QUICK)
        assert found.bound_name == "optimum" and found.upper_bound == pytest.approx(optimum, abs=1e-4)
        assert found.rows[0].evaluation.welfare == pytest.approx(optimum, abs=1e-4)
        assert all(
            row.evaluation.welfare <= found.upper_bound + 4 * row.evaluation.welfare_stderr for row in found.rows
        )

    @pytest.mark.parametrize("criterion", ["average", "finite:5"])
    def test_rows_and_bound_are_for_the_criterion(self, criterion):
        options = QUICK | {"horizon": None, "criterion": criterion}
        found = compare(THREE, BASELINES, **options)
        assert found.problem == THREE.with_criterion(criterion)
        for row in found.rows:
            policy = find_policy(row.policy).build(THREE.with_criterion(criterion))
            expected = evaluate(THREE, policy, criterion=criterion, num_episodes=50, rng=0)
            assert row.evaluation.welfare == pytest.approx(expected.welfare)
            assert row.evaluation.welfare <= found.upper_bound + 4 * row.evaluation.welfare_stderr + 1e-9

    def test_another_horizon_than_the_finite_one_is_refused_before_any_work(self):
        told = []
        with pytest.raises(InvalidInputError, check=mentions("horizon", "criterion", "finite:5", "5 steps", 30)):
            compare(THREE, BASELINES, criterion="finite:5", progress=lambda *what: told.append(what), **QUICK)
        assert not told

    def test_policies_of_one_s_own_are_weighed_over_groups(self):
        machine = THREE.arms[0]
        problem = CoupledMDP([machine, machine], [1], 0.95, [2, 1], groups=["north", "south"])
        own = {"mine": random_feasible(problem), "idle": never_act(problem)}
        found = compare(problem, own, over="groups", **QUICK)
        assert found.problem.over == "groups"
        for row in found.rows:
            alone = evaluate(problem, own[row.policy]).values
            assert row.evaluation.groups == pytest.approx({"north": alone[0], "south": alone[2]})

    def test_progress_names_each_policy(self):
        told = []
        compare(
            THREE,
            {"mine": worst_first(THREE), "yours": never_act(THREE)},
            progress=lambda *what: told.append(what),
            **QUICK,
        )
        names = list(dict.fromkeys(name for name, _ in told))
        assert names[0] == "upper bound"
        assert names[-2:] == ["mine", "yours"]
        shares = [share for _, share in told]
        assert shares == sorted(shares) and 0 <= shares[0] < 0.1 and shares[-1] <= 1
