"""Saved policies by steps and mixtures, and policies made for another objective."""

import json
import zipfile

import numpy as np
import pytest

import evenhand as eh
from evenhand import solve
from evenhand.errors import NotApplicableError, PolicyError
from evenhand.model import Arm, CoupledMDP, MixturePolicy, TimeVaryingPolicy, begin
from evenhand.planning import REGISTRY, load_policy, relax, save_solution
from evenhand.policies import RoundRobin, never_act, whittle
from evenhand.solvers import CountChoices, Joint

from ..conftest import crossed, mentions
from ..oracles.problems import FIXED
from ..oracles.relaxation import fluid_policies
from .test_plan_file import change_arrays

STEPS = 3


def typed():
    return FIXED["typed"]()


def actions(policy, problem, steps=2 * STEPS + 1, episodes=40):
    """(step, episode, arm) what a policy does in states drawn at random."""
    rng, most = np.random.default_rng(0), problem.types.num_states[problem.type_of_arm]
    actor = begin(policy, episodes, np.random.default_rng(1))
    return np.stack(
        [
            actor.act(rng.integers(0, most, (episodes, problem.num_arms)).astype(np.int32), np.random.default_rng(t))
            for t in range(steps)
        ]
    )


def trip(policy, problem, path):
    eh.save_policy(problem, policy, path)
    return eh.load_policy(path, problem)


@pytest.mark.parametrize(
    ("over", "method", "name"),
    crossed(["arms", "groups"], ["counts", "joint", "count-lp", "fluid"], ["symmetric", "typed, groups across"]),
)
def test_a_plan_by_steps_comes_back(tmp_path, name, method, over):
    problem = FIXED[name]()
    solution = eh.solve(problem, "utilitarian", method, criterion=f"finite:{STEPS}", over=over)
    eh.save_solution(solution, tmp_path / "plan.zip")
    again = eh.load_policy(tmp_path / "plan.zip", problem)
    np.testing.assert_array_equal(actions(again, problem), actions(solution.policy, problem))
    if method != "fluid":
        worth = eh.evaluate(problem, again, "utilitarian", criterion=f"finite:{STEPS}", over=over)
        assert worth.exact and worth.welfare == pytest.approx(solution.welfare, rel=1e-9)


@pytest.mark.parametrize("criterion", ["discounted", "average", f"finite:{STEPS}"])
@pytest.mark.parametrize("name", ["occupancy-priority", "fair-index", "re-solving"])
def test_every_policy_of_the_relaxation_comes_back(tmp_path, name, criterion):
    problem = typed().with_criterion(criterion)
    policy = fluid_policies(problem, relax(problem, "gini:2"))[name]
    again = trip(policy, problem, tmp_path / "plan.zip")
    np.testing.assert_array_equal(actions(again, problem), actions(policy, problem))


def test_a_mixture_comes_back(tmp_path):
    problem = typed().with_criterion(f"finite:{STEPS}")
    parts = [eh.solve(problem, welfare).policy for welfare in ("maximin", "utilitarian")]
    mixture = MixturePolicy([*parts, whittle(problem)], [0.5, 0.25, 0.25])
    again = trip(mixture, problem, tmp_path / "plan.zip")
    assert isinstance(again, MixturePolicy) and again.shares.tolist() == [0.5, 0.25, 0.25]
    np.testing.assert_array_equal(actions(again, problem), actions(mixture, problem))


def test_an_average_drawn_at_the_start_comes_back(tmp_path):
    """Two clocks that no policy can bring into another phase are two closed classes; here each is a table."""
    problem = typed().with_criterion("average")
    tables = [Joint(problem).lift(_drawn(problem, seed)) for seed in range(2)]
    mixture = MixturePolicy(tables, [0.5, 0.5])
    again = trip(mixture, problem, tmp_path / "plan.zip")
    worth = [eh.evaluate(problem, policy, "maximin").welfare for policy in (mixture, again)]
    assert worth[0] == pytest.approx(worth[1], rel=1e-12)


def _drawn(problem, seed):
    mdp = Joint(problem).mdp
    weights = np.random.default_rng(seed).exponential(size=mdp.num_pairs)
    return weights / np.repeat(np.add.reduceat(weights, mdp.offsets[:-1]), np.diff(mdp.offsets))


def test_a_table_of_groups_plays_where_welfare_is_over_arms(tmp_path):
    """Types are cut at groups, so the file says over whom it was made, and is read so."""
    problem = FIXED["typed, groups across"]()
    solution = eh.solve(problem, "maximin", "counts", over="groups")
    assert solution.problem.num_types == 3 and problem.num_types == 2
    eh.save_solution(solution, tmp_path / "plan.zip")
    again = eh.load_policy(tmp_path / "plan.zip", problem)
    np.testing.assert_array_equal(actions(again, problem), actions(solution.policy, problem))
    assert eh.evaluate(problem, again, "maximin", over="groups").welfare == pytest.approx(solution.welfare, rel=1e-9)


@pytest.mark.parametrize("nested", [False, True], ids=["steps", "a mixture of mixtures"])
def test_composites_of_several_kinds_are_saved(tmp_path, nested):
    problem = typed()
    policy = TimeVaryingPolicy([never_act(problem), eh.solve(problem).policy, whittle(problem)])
    if nested:
        inner = MixturePolicy([never_act(problem), policy], [0.5, 0.5])
        policy = MixturePolicy([inner, whittle(problem), RoundRobin(problem)], [0.5, 0.2, 0.3])
    eh.save_policy(problem, policy, tmp_path / "plan.zip")
    again = eh.load_policy(tmp_path / "plan.zip", problem)
    first, second = (eh.simulate(problem, each, 40, 12, 0) for each in (policy, again))
    np.testing.assert_array_equal(first.returns, second.returns)


class OfAUser:
    def act(self, states, rng):
        return np.zeros_like(states)


@pytest.mark.parametrize("redraw_every", [None, 3])
def test_every_named_part_of_a_mixture_is_saved(tmp_path, redraw_every):
    problem = typed()
    parts = [entry.build(problem) for entry in REGISTRY if entry.is_heuristic and entry.name != "whittle"]
    mixture = MixturePolicy(parts, np.full(len(parts), 1 / len(parts)), redraw_every)
    eh.save_policy(problem, mixture, tmp_path / "plan.zip")
    again = eh.load_policy(tmp_path / "plan.zip", problem)
    assert again.redraw_every == redraw_every
    first, second = (eh.simulate(problem, policy, 40, 12, 0) for policy in (mixture, again))
    np.testing.assert_array_equal(first.returns, second.returns)


@pytest.mark.parametrize("redraw_every", [-1, 1.5, True, [2]], ids=str)
def test_an_invalid_redraw_period_is_refused(tmp_path, redraw_every):
    problem = typed()
    mixture = MixturePolicy([never_act(problem), RoundRobin(problem)], [0.5, 0.5], 2)
    eh.save_policy(problem, mixture, tmp_path / "plan.zip")
    change_arrays(tmp_path / "plan.zip", redraw_every=np.array(redraw_every))
    with pytest.raises(PolicyError, check=mentions("redraw_every")):
        eh.load_policy(tmp_path / "plan.zip", problem)


def test_what_cannot_be_saved_alone_cannot_as_a_part(tmp_path):
    problem = typed()
    own = OfAUser()
    for policy in (own, MixturePolicy([own, never_act(problem)], [0.5, 0.5])):
        with pytest.raises(NotApplicableError, match="cannot be saved"):
            eh.save_policy(problem, policy, tmp_path / "plan.zip")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "changes",
    [
        {"parts": 3},
        {"parts": "mixture"},
        {"parts": []},
        {"parts": [3]},
        {"parts": [{"kind": "mixture"}]},
        {"parts": [{"kind": "count-choices"}] * (STEPS - 1)},
        {"parts": [{"kind": "count-choices"}] * (STEPS + 1)},
        {"parts": [{"kind": "joint-table"}] * STEPS},
        {"parts": [{"kind": "by-steps", "parts": [{"kind": "by-steps"}]}] * STEPS},
        {"kind": "count-choices"},
        {"kind": "mixture"},
        {"problem": {"criterion": 3}},
    ],
    ids=str,
)
def test_manifests_that_make_no_sense_are_refused(tmp_path, changes):
    problem, path = FIXED["symmetric"](), tmp_path / "plan.zip"
    eh.save_solution(eh.solve(problem, criterion=f"finite:{STEPS}"), path)
    change_manifest(path, changes)
    with pytest.raises(PolicyError, check=mentions("plan.zip")):
        eh.load_policy(path, problem)


def change_manifest(path, changes):
    with zipfile.ZipFile(path) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    manifest = json.loads(parts["manifest.json"])
    for key, value in changes.items():
        manifest[key] = {**manifest[key], **value} if isinstance(value, dict) else value
    parts["manifest.json"] = json.dumps(manifest).encode()
    with zipfile.ZipFile(path, "w") as file:
        for name, body in parts.items():
            file.writestr(name, body)


def test_a_table_over_other_types_is_refused(tmp_path):
    """Groups and floors cut identical arms into types: as many of them, but of other arms, are another problem."""
    arm = Arm(np.full((2, 2, 2), 0.5), [[0.0, 0.5], [1.0, 0.9]], [[0], [1]])

    def cut(*groups):
        return CoupledMDP([arm] * 4, [1.0], 0.9, groups=groups, over="groups")

    path = tmp_path / "plan.policy"
    save_solution(solve(cut("n", "s", "n", "s"), "gini:2", "counts"), path)
    load_policy(path, cut("n", "s", "n", "s"))
    with pytest.raises(PolicyError, check=mentions("plan.policy", "floors")):
        load_policy(path, cut("n", "n", "s", "s"))


def test_choices_of_arms_that_are_not_there_are_refused_in_a_part_too(tmp_path):
    """Found by doctored files: an average of a mixture met negative counts deep within the evaluation."""
    problem, path = FIXED["symmetric"](), tmp_path / "plan.zip"
    table = eh.solve(problem, "utilitarian", "counts", criterion="average").policy
    swapped = CountChoices(problem, table.cells, table.base, table.amounts[::-1])
    eh.save_policy(problem.with_criterion("average"), MixturePolicy([table, swapped], [0.5, 0.5]), path)
    with pytest.raises(PolicyError, match="more arms in a state than there are"):
        eh.load_policy(path, problem)
