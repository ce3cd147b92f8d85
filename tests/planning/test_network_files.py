"""Trained networks as files: they come back as they went, play without torch, and nothing in them runs."""

import base64
import json
import os
import pickle
import struct
import subprocess
import sys
import tracemalloc
import warnings
import zipfile
from itertools import pairwise

import numpy as np
import pytest

from evenhand import checks, solve
from evenhand.errors import InvalidInputError, NotApplicableError, PolicyError
from evenhand.evaluation import evaluate, simulate
from evenhand.model import Arm, CoupledMDP, MixturePolicy, Simulator
from evenhand.planning import (
    OtherDynamicsWarning,
    SolveMethod,
    load_policy,
    manifests,
    save_policy,
    save_solution,
    shipped_network,
)
from evenhand.policies import CountNetworkPolicy, JointNetworkPolicy, Network, whittle
from evenhand.problems import machine_replacement

from ..conftest import mentions
from .test_plan_file import arrays_of, change_arrays, change_manifest, members, rewrite

WEIGHTS = "weight_0.npy"
MACHINES = machine_replacement(num_arms=4, budget=1)
HUGE = 16_000_000


def network(sizes, seed=0, squash=False):
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=pair).astype(np.float32) for pair in pairwise(sizes)]
    return Network(weights, [rng.normal(size=size).astype(np.float32) for size in sizes[1:]], squash)


POLICIES = {
    "greedy": lambda: CountNetworkPolicy(MACHINES, network([4, 8, 6])),
    "priority-sampling": lambda: CountNetworkPolicy(MACHINES, network([4, 8, 7], squash=True), "priority-sampling"),
    "joint": lambda: JointNetworkPolicy(MACHINES, network([4, 8, 4])),
}


@pytest.fixture(params=POLICIES)
def policy(request):
    return POLICIES[request.param]()


@pytest.fixture
def saved(tmp_path):
    """A sound file."""
    path = tmp_path / "policy.zip"
    save_policy(MACHINES, POLICIES["greedy"](), path, {"seed": 7})
    return path


def refused(path, problem=MACHINES):
    """What is said of a file that is refused."""
    with warnings.catch_warnings(), pytest.raises(PolicyError) as caught:
        warnings.simplefilter("error", OtherDynamicsWarning)
        load_policy(path, problem)
    assert str(path) in str(caught.value)
    return str(caught.value)


class TestRoundTrip:
    def test_what_comes_back_is_what_went_in(self, policy, tmp_path):
        path = tmp_path / "x.zip"
        save_policy(MACHINES, policy, path, {"seed": 3})
        again = load_policy(path, MACHINES)
        assert type(again) is type(policy)
        assert getattr(again, "allocation", None) == getattr(policy, "allocation", None)
        assert again.network.squash == policy.network.squash
        parts = ([*each.network.weights, *each.network.biases] for each in (policy, again))
        pairs = list(zip(*parts, strict=True))
        assert all(np.array_equal(*pair) and pair[0].dtype == pair[1].dtype for pair in pairs)
        states = np.random.default_rng(0).integers(0, 3, (300, 4)).astype(np.int32)
        assert np.array_equal(*(p.act(states, np.random.default_rng(1)) for p in (policy, again)))
        assert evaluate(MACHINES, again, "gini:2").welfare == evaluate(MACHINES, policy, "gini:2").welfare

    def test_the_manifest_says_what_it_is(self, saved):
        manifest = json.loads(members(saved)["manifest.json"])
        assert (manifest["format"], manifest["schema"], manifest["kind"]) == ("evenhand-policy", 1, "count-network")
        assert manifest["about"] == {"seed": 7}
        assert manifest["problem"]["signature"] == MACHINES.signature
        assert {"evenhand", "numpy"} <= set(manifest["versions"])

    def test_the_same_policy_is_the_same_file(self, saved, tmp_path):
        save_policy(MACHINES, POLICIES["greedy"](), tmp_path / "again.zip", {"seed": 7})
        assert saved.read_bytes() == (tmp_path / "again.zip").read_bytes()
        assert sorted(path.name for path in tmp_path.iterdir()) == ["again.zip", "policy.zip"]

    def test_they_play_without_torch(self, tmp_path):
        """In a process where torch, Stable-Baselines3 and Gymnasium cannot be imported."""
        states, expected = np.array([[0, 2, 1, 2], [1, 1, 0, 2]], dtype=np.int32), []
        for name, build in POLICIES.items():
            save_policy(MACHINES, policy := build(), tmp_path / name)
            actions = policy.act(states, np.random.default_rng(0)).tolist()
            expected.append(f"{name}: {actions} {evaluate(MACHINES, policy).welfare}")
        script = """
import sys
BLOCKED = ("torch", "stable_baselines3", "gymnasium")
class Wall:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Wall())
import numpy as np, evenhand as eh
problem = eh.problems.machine_replacement(num_arms=4, budget=1)
states = np.array([[0, 2, 1, 2], [1, 1, 0, 2]], dtype=np.int32)
for name in sys.argv[1:]:
    policy = eh.load_policy(name, problem)
    print(f"{name}: {policy.act(states, np.random.default_rng(0)).tolist()} {eh.evaluate(problem, policy).welfare}")
assert not any(name.split(".")[0] in BLOCKED for name in sys.modules)
"""
        done = subprocess.run(
            [sys.executable, "-c", script, *POLICIES], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines() == expected


class Bomb:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


@pytest.fixture
def mark(tmp_path):
    return tmp_path / "it-ran"


def stranger_zip(path, mark):
    """A file as Stable-Baselines3 saves it: JSON in which a pickled object stands, as its own reader expects."""
    serialized = base64.b64encode(pickle.dumps(Bomb(mark))).decode()
    data = {"policy_class": {":type:": "<class 'abc.ABCMeta'>", ":serialized:": serialized}}
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("data", json.dumps(data))
        file.writestr("_stable_baselines3_version", "2.9.2")


class TestNothingRuns:
    def test_the_bomb_works(self, mark):
        pickle.loads(pickle.dumps(Bomb(mark)))  # noqa: S301  # to show what it would do
        assert mark.exists()

    def test_stable_baselines3_runs_what_is_in_a_strangers_zip(self, tmp_path, mark):
        loading = pytest.importorskip("stable_baselines3.common.save_util")
        stranger_zip(tmp_path / "stranger.zip", mark)
        loading.load_from_zip_file(tmp_path / "stranger.zip", device="cpu")
        assert mark.exists()

    def test_here_it_is_refused(self, tmp_path, mark):
        path = tmp_path / "stranger.zip"
        stranger_zip(path, mark)
        refused(path)
        assert not mark.exists()

    def test_with_our_manifest_around_it(self, saved, mark):
        extra = members(saved)
        stranger_zip(saved, mark)
        rewrite(saved, extra | members(saved))
        assert "members" in refused(saved)
        assert not mark.exists()

    def test_a_whole_file_that_is_a_pickle(self, tmp_path, mark):
        path = tmp_path / "policy.zip"
        path.write_bytes(pickle.dumps(Bomb(mark)))
        refused(path)
        assert not mark.exists()


def lie_about_size(path, name, size):
    """Let a member claim another size, in its own header and in the directory."""
    body = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as file:
        offset = file.getinfo(name).header_offset
    struct.pack_into("<I", body, offset + 22, size)
    place = body.find(b"PK\x01\x02")
    while body[place + 46 : place + 46 + len(name)] != name.encode():
        place = body.find(b"PK\x01\x02", place + 1)
    struct.pack_into("<I", body, place + 24, size)
    path.write_bytes(bytes(body))


class TestDoctored:
    def test_one_bit_anywhere(self, saved):
        """Whichever bit of the file is turned, it is refused or, where it has no meaning, plays the same."""
        body, expected = saved.read_bytes(), load_policy(saved, MACHINES).network
        rng = np.random.default_rng(0)
        refusals = 0
        for place in rng.choice(len(body), 150, replace=False):
            broken = bytearray(body)
            broken[place] ^= 1 << int(rng.integers(8))
            saved.write_bytes(bytes(broken))
            try:
                found = load_policy(saved, MACHINES).network
                assert all(np.array_equal(*pair) for pair in zip(found.weights, expected.weights, strict=True))
            except PolicyError:
                refusals += 1
        assert refusals > 100

    @pytest.mark.parametrize("name", ["manifest.json", WEIGHTS])
    def test_a_huge_member(self, saved, name, monkeypatch):
        """It is refused before it is unpacked."""
        monkeypatch.setattr(checks, "available_memory", lambda: 1e7)
        rewrite(saved, members(saved) | {name: bytes(HUGE)})
        tracemalloc.start()
        refused(saved)
        assert tracemalloc.get_traced_memory()[1] < HUGE / 4
        tracemalloc.stop()

    @pytest.mark.parametrize("name", ["manifest.json", WEIGHTS])
    def test_a_huge_member_that_says_it_is_small(self, saved, name):
        """A member claims another size than its compressed stream has."""
        rewrite(saved, members(saved) | {name: bytes(3 * HUGE)})
        lie_about_size(saved, name, 1000)
        assert saved.stat().st_size < HUGE / 100
        tracemalloc.start()
        refused(saved)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < HUGE

    @pytest.mark.parametrize(
        "change",
        [
            lambda m: m.update(kind="count-table"),
            lambda m: m.update(kind="joint-network"),
            lambda m: m.pop("problem"),
            lambda m: m["problem"].pop("arm"),
            lambda m: m["problem"]["arm"].update(usage=[[[0]]]),
            lambda m: m.update(problem=[]),
        ],
    )
    def test_a_manifest_that_lies(self, saved, change):
        change_manifest(saved, change)
        refused(saved)

    @pytest.mark.parametrize(
        "change",
        [
            lambda t: {"weight_0": np.where(np.arange(8) == 0, np.nan, t["weight_0"]).astype(np.float32)},
            lambda t: {"bias_1": np.full_like(t["bias_1"], np.inf)},
            lambda t: {"weight_0": t["weight_0"].T.copy()},
            lambda t: {"bias_0": t["bias_0"][:-1].copy()},
            lambda t: {"weight_0": t["weight_0"].astype(np.float64)},
            lambda t: {"weight_0": t["weight_0"].astype(np.int32)},
            lambda t: {"weight_0": t["weight_0"].reshape(-1)},
            lambda t: {"weight_2": t["weight_1"]},
            lambda t: {"weight_1": t["weight_1"][:, :-1].copy(), "bias_1": t["bias_1"][:-1].copy()},
            lambda t: {"weight_0": np.ones((9, 8), np.float32)},
            lambda t: {"allocation": np.array(2)},
            lambda t: {"allocation": np.array(1)},
            lambda t: {"allocation": np.array(-1)},
            lambda t: {"squash": np.array(0.5)},
        ],
    )
    def test_arrays_of_another_network(self, saved, change):
        change_arrays(saved, **change(arrays_of(saved)))
        refused(saved)

    @pytest.mark.parametrize("outputs", [6, 7])
    def test_weights_so_large_that_outputs_overflow(self, saved, outputs):
        weights = [np.ones((4, 64), np.float32), np.full((64, outputs), 3e38, np.float32)]
        weights[1][::2] *= -1
        with pytest.raises(InvalidInputError, check=mentions("layer 1")):
            Network(weights, [np.full(64, 20, np.float32), np.zeros(outputs, np.float32)])
        change_arrays(saved, bias_0=np.full(8, 3e38, np.float32))
        assert "layer 0" in refused(saved)

    def test_a_good_file_is_not_refused_by_these_tools(self, saved):
        rewrite(saved, members(saved))
        change_manifest(saved, lambda m: None)
        change_arrays(saved, **arrays_of(saved))
        lie_about_size(saved, WEIGHTS, len(members(saved)[WEIGHTS]))
        assert isinstance(load_policy(saved, MACHINES), CountNetworkPolicy)


def arm(num_states=3, usage=((0,), (1,)), seed=0, states=(), actions=()):
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.ones(num_states), size=(num_states, len(usage)))
    return Arm(rows, rng.random((num_states, len(usage))), usage, states=states, actions=actions)


def crowd(num_arms=4, budget=(1,), **facts):
    return CoupledMDP([arm(**facts)], budget=list(budget), discount=0.9, counts=[num_arms])


WORDS = {"states": ("new", "worn", "broken"), "actions": ("wait", "replace")}


class TestOtherProblems:
    @pytest.fixture
    def file(self, tmp_path):
        path = tmp_path / "policy.zip"
        problem = crowd(**WORDS)
        save_policy(problem, CountNetworkPolicy(problem, network([4, 8, 6])), path)
        return path

    @pytest.mark.parametrize(
        ("facts", "reason"),
        [
            ({"num_states": 4}, "num_states was 3, here 4"),
            ({"usage": ((0,), (1,), (1,))}, "num_actions was 2, here 3"),
            ({"usage": ((0, 0), (1, 1)), "budget": (1, 1)}, "num_resources was 1, here 2"),
            ({"usage": ((0,), (2,))}, "other amounts"),
            ({"usage": ((1,), (0,))}, "other amounts"),
            (WORDS | {"states": ("new", "old", "broken")}, "states was ['new', 'worn', 'broken'], here"),
            (WORDS | {"actions": ("replace", "wait")}, "actions was"),
        ],
    )
    def test_another_kind_of_arm_is_refused_with_the_reason(self, file, facts, reason):
        assert reason in refused(file, crowd(**facts))

    def test_every_reason_is_told(self, file):
        told = refused(file, crowd(num_states=2, usage=((0,), (1,), (2,))))
        assert "num_states" in told and "num_actions" in told

    def test_arms_that_are_not_alike_are_refused(self, file):
        assert "2 types" in refused(file, CoupledMDP([arm(), arm(seed=1)], budget=[1], discount=0.9, counts=[2, 2]))

    def test_other_dynamics_play_with_a_warning(self, file):
        with pytest.warns(OtherDynamicsWarning, match="other transitions") as seen:
            policy = load_policy(file, crowd(seed=1))
        assert isinstance(policy, CountNetworkPolicy)
        assert seen[0].filename == __file__  # the line that asked for the policy is shown

    def test_a_warning_that_is_made_an_error_is_not_told_as_a_broken_file(self, file):
        with warnings.catch_warnings(), pytest.raises(OtherDynamicsWarning):
            warnings.simplefilter("error")
            load_policy(file, crowd(seed=1))

    @pytest.mark.parametrize("problem", [crowd(**WORDS), crowd(), crowd(num_arms=10**6, budget=(5000.5,), **WORDS)])
    def test_other_numbers_of_arms_and_budgets_play_without_one(self, file, problem):
        with warnings.catch_warnings():
            warnings.simplefilter("error", OtherDynamicsWarning)
            policy = load_policy(file, problem)
        counts = np.array([[[problem.num_arms - 2, 1, 1]]])
        found = policy.allocate(counts, np.random.default_rng(0))
        assert np.array_equal(found.sum(axis=3), counts) and found[..., 1].sum() <= problem.budget[0]

    def test_a_simulator(self, file, tmp_path):
        def simulator(usage):
            return Simulator(lambda s, a, r: (s, s * 1.0), lambda n, r: np.zeros(n, int), usage, 3, 5, [1], 0.9)

        policy = load_policy(file, simulator([[0], [1]]))
        save_policy(policy.problem, policy, tmp_path / "again.zip")
        assert isinstance(load_policy(tmp_path / "again.zip", crowd()), CountNetworkPolicy)
        assert "other amounts" in refused(file, simulator([[0], [3]]))
        save_policy(MACHINES, POLICIES["joint"](), tmp_path / "joint.zip")
        assert refused(tmp_path / "joint.zip", simulator([[0], [1]]))
        save_solution(solve(MACHINES), tmp_path / "table.policy")
        assert "table" in refused(tmp_path / "table.policy", simulator([[0], [1]]))

    def test_a_joint_network_is_for_one_number_of_arms(self, tmp_path):
        save_policy(MACHINES, POLICIES["joint"](), tmp_path / "joint.zip")
        assert "5 arms" in refused(tmp_path / "joint.zip", machine_replacement(num_arms=5, budget=1))


class TestShipped:
    @pytest.mark.parametrize("cost", ["exponential", "quadratic"])
    def test_the_machines_of_the_paper_have_one(self, cost):
        """One network for N = 2 to 5, worth what the paper's optimum is, but for a thousandth."""
        for num_arms in (2, 5):
            problem = machine_replacement(num_arms=num_arms, operating_cost=cost, budget=1)
            policy = shipped_network(problem)
            assert evaluate(problem, policy, method="exact").welfare >= 0.999 * solve(problem).welfare

    def test_others_are_told_how_to_train_one(self):
        with pytest.raises(NotApplicableError):
            shipped_network(machine_replacement(num_arms=3, stay_probability=0.7))
        with pytest.raises(NotApplicableError):
            shipped_network(machine_replacement(num_arms=3, discount=0.5))

    def test_their_manifests_say_how_they_were_made(self):
        assert len(manifests()) >= 2
        for path, manifest in manifests().items():
            assert manifest["about"]["command"].startswith("evenhand train machine-replacement"), path
            assert manifest["about"]["settings"]["seed"] >= 0 and "torch" in manifest["about"]["versions"]


class TestCandidates:
    def test_a_network_is_saved_as_part_of_a_mixture(self, saved, tmp_path):
        mixture = MixturePolicy([load_policy(saved, MACHINES), whittle(MACHINES)], [0.25, 0.75])
        save_policy(MACHINES, mixture, tmp_path / "mixture.zip")
        again = load_policy(tmp_path / "mixture.zip", MACHINES)
        first, second = (simulate(MACHINES, policy, 30, 20, 0).returns for policy in (mixture, again))
        np.testing.assert_array_equal(first, second)

    def test_a_loaded_network_competes(self, saved):
        policy = load_policy(saved, MACHINES)
        solution = solve(MACHINES, method=SolveMethod(candidates={"mine": policy}))
        assert solution.method == "fluid" and solution.reason.startswith("candidates compete")
        own = evaluate(MACHINES, policy).welfare
        assert own - 3 * solution.welfare_stderr - 1e-9 <= solution.welfare <= solution.upper_bound + 1e-9
