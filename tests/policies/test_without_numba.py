"""Policies play by NumPy where Numba is not installed: the same actions and values, and the same laws."""

import json
import subprocess
import sys

import numpy as np
import pytest

from evenhand.evaluation import evaluate
from evenhand.planning.policy_registry import find_policy
from evenhand.policies import CountNetworkPolicy
from evenhand.problems import machine_replacement
from evenhand.simulation import simulate

BODY = """
import json, sys
import numpy as np
from evenhand.evaluation import evaluate
from evenhand.planning.policy_registry import find_policy
from evenhand.policies import CountNetworkPolicy, Network
from evenhand.problems import machine_replacement
from evenhand.simulation import check_policy, simulate, simulate_counts

machines = machine_replacement(num_arms=10, budget=2)
shipped = find_policy("cp-drl").build(machines, "gini:2")
found = {"exact": evaluate(machines, shipped).welfare}
played = simulate(machines, shipped, 1000, 300, rng=3)  # large enough to be compiled where that is possible
found["returns"] = played.returns.mean(axis=0).tolist()
states = np.random.default_rng(0).integers(0, 3, (3000, 10)).astype(np.int32)
found["actions"] = shipped.act(states, np.random.default_rng(1)).tolist()
crowd = machine_replacement(num_arms=10_000, budget=2000)
found["crowd"] = simulate_counts(crowd, find_policy("cp-drl").build(crowd, "gini:2"), 200, 200, rng=4).returns.mean()

rng = np.random.default_rng(5)
shapes = [(4, 8), (8, 7)]
network = Network([rng.standard_normal(shape).astype(np.float32) for shape in shapes],
                  [np.zeros(size, dtype=np.float32) for _, size in shapes])
drawn = CountNetworkPolicy(machines, network, "priority-sampling")
check_policy(machines, drawn)
allocations = drawn.allocate(np.tile([[[4, 3, 3]]], (20_000, 1, 1)), np.random.default_rng(6))
found["drawn"] = allocations.mean(axis=(0, 1)).tolist()
assert "numba" not in sys.modules or not WALLED
print(json.dumps(found))
"""

WALL = """
import sys
WALLED = True
class Wall:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("numba", "llvmlite", "torch"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Wall())
"""


@pytest.fixture(scope="module")
def found():
    """What a process says that has Numba, and one that has not."""
    return {
        walled: json.loads(
            subprocess.run(
                [sys.executable, "-c", (WALL if walled else "WALLED = False\n") + BODY],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
        for walled in (True, False)
    }


@pytest.mark.slow
def test_the_network_that_ships_plays_the_same(found):
    assert found[True]["exact"] == pytest.approx(found[False]["exact"], rel=1e-12)
    assert found[True]["actions"] == found[False]["actions"]
    assert found[True]["returns"] == pytest.approx(found[False]["returns"], rel=1e-12)


def test_crowds_move_by_the_same_law(found):
    """200 episodes of 10 000 machines: the standard error of a mean value is below 2e-3."""
    assert found[True]["crowd"] == pytest.approx(found[False]["crowd"], abs=0.01)


def test_priorities_draw_by_the_same_law(found):
    """Means of 20 000 allocations of at most 4 arms: their standard errors are below 0.015."""
    assert np.abs(np.array(found[True]["drawn"]) - found[False]["drawn"]).max() < 0.06


def test_and_as_this_process_does(found):
    machines = machine_replacement(num_arms=10, budget=2)
    policy = find_policy("cp-drl").build(machines, "gini:2")
    assert isinstance(policy, CountNetworkPolicy)
    assert evaluate(machines, policy).welfare == pytest.approx(found[True]["exact"], rel=1e-12)
    assert simulate(machines, policy, 1000, 300, rng=3).returns.mean(axis=0) == pytest.approx(found[True]["returns"])
