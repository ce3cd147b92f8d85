"""Training over several seeds: runs depend on their seed alone, and the best is selected on held-out episodes."""

import json
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

import evenhand as eh
from evenhand.errors import InvalidInputError, UnknownNameError
from evenhand.learning import NetworkJudge, PPOLearner, SeedRow, Tasks, TrainingRuns, checkpoint_of, loop
from evenhand.learning.network_evaluation import JUDGED
from evenhand.parallel import Pool

from ..conftest import mentions

pytestmark = pytest.mark.xdist_group("ray")

MACHINES = eh.problems.machine_replacement(num_arms=3)
SMALL = {
    "algorithm": PPOLearner(num_copies=8, rollout=16, batch=64),
    "steps": 512,
    "horizon": 20,
    "hidden": (16,),
    "evaluations": 2,
}


def bits(training):
    network = training.policy.network
    return [array.tobytes() for array in (*network.weights, *network.biases)], training.curve, training.score


@pytest.fixture(scope="module")
def three():
    return eh.train(MACHINES, seeds=3, **SMALL)


def test_every_run_is_that_of_its_seed_alone(three):
    assert [row.seed for row in three.rows] == [0, 1, 2]
    assert bits(three.runs[2]) == bits(eh.train(MACHINES, seed=2, **SMALL))
    (again,) = eh.train(MACHINES, seeds=[2], **SMALL).runs
    assert bits(three.runs[2]) == bits(again)
    assert bits(three.runs[0]) != bits(three.runs[1])


def test_the_best_run_is_saved_with_the_table_of_all(three, tmp_path):
    looks = [row.held_out for row in three.rows]
    assert three.best is three.runs[int(np.argmax(looks))] and three.policy is three.best.policy
    assert [row.score for row in three.rows] == pytest.approx(looks)  # exact, for three machines
    assert all(row.held_out_stderr == 0 for row in three.rows)
    file = tmp_path / "policy.zip"
    three.save(file, "typed")
    about = json.loads(zipfile.ZipFile(file).read("manifest.json"))["about"]
    assert [row["seed"] for row in about["seeds"]] == [0, 1, 2] and about["command"] == "typed"
    assert [row["seed"] for row in about["seeds"] if row["best"]] == [three.best.settings["seed"]]
    assert eh.evaluate(MACHINES, str(file)).welfare == pytest.approx(max(looks))
    assert three.to_frame("pandas")["held_out"].tolist() == looks
    assert repr(three).startswith("TrainingRuns(3 seeds, best")
    assert "all seeds" in three._repr_html_()


def test_of_equals_the_first_is_taken(three):
    rows = [SeedRow(seed, 1.0, value, 0.0, 1, 1.0) for seed, value in ((4, 2.0), (5, 2.0 + 1e-13), (6, 1.0))]
    assert TrainingRuns(three.runs, tuple(rows)).best is three.runs[0]


def test_held_out_values_use_a_separate_stream(three):
    """Simulated, not exact: the same world for all seeds, another than in training, and an error that is one."""
    judge = NetworkJudge(MACHINES, "greedy", Tasks.of(MACHINES), most_exact=0, copies=16)
    for training in three.runs:
        network, truth = training.policy.network, eh.evaluate(MACHINES, training.policy, method="exact").mean
        mean, error = judge.held_out(network)
        assert error > 0 and judge.held_out(network) == (mean, error)
        assert abs(mean - truth) < 5 * error + 2e-3 * truth  # what lies beyond is left out
        seen = [judge(network, (seed, JUDGED)) for seed in range(2)]
        assert len({mean, *seen}) == 3


def test_a_finished_seed_is_read_and_a_missing_one_is_trained(three, tmp_path, monkeypatch):
    file = tmp_path / "run"
    before = eh.train(MACHINES, seeds=2, checkpoint=file, **SMALL)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.seed-0", "run.seed-1"]
    checkpoint_of(file, 1).unlink()
    played = []
    learn = loop.Scaled.step_wait
    monkeypatch.setattr(loop.Scaled, "step_wait", lambda self: (played.append(1), learn(self))[1])
    again = eh.train(MACHINES, seeds=3, checkpoint=file, resume=True, **SMALL)
    assert [bits(run) for run in again.runs] == [bits(run) for run in three.runs]
    assert bits(before.runs[1]) == bits(again.runs[1])
    assert len(played) == 2 * 512 // 8  # of the second and the third: the first was over
    with pytest.raises(InvalidInputError, check=mentions("horizon", 20, 21)):
        eh.train(MACHINES, seeds=3, checkpoint=file, resume=True, **(SMALL | {"horizon": 21}))
    assert eh.train(MACHINES, seeds=1, checkpoint=file, **(SMALL | {"horizon": 21})).runs[0].settings["horizon"] == 21


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"seeds": 0}, "seeds"),
        ({"seeds": [1, 1]}, "different whole numbers"),
        ({"seeds": []}, "at least one"),
        ({"seeds": [1, -1]}, "different whole numbers"),
        ({"seeds": [[1], [2]]}, "different whole numbers"),
        ({"seed": "a"}, "seed: expected a whole number"),
        ({"seed": None}, "seed: expected a whole number"),
        ({"seed": True}, "seed: expected a whole number"),
        ({"seeds": 2, "seed": 2**32 - 1}, "seed: expected a whole number"),
        ({"resume": True}, "checkpoint"),
        ({"backend": "mars"}, "mars"),
        ({"stepps": 3}, "stepps"),
        ({"steps": 0}, "steps"),
    ],
)
def test_invalid_arguments_are_refused_before_any_run(asked, words):
    with pytest.raises((InvalidInputError, UnknownNameError), match=words):
        eh.train(MACHINES, **({"seeds": 2} | asked))


def test_a_simulator_that_cannot_be_sent_is_refused():
    lock = threading.Lock()

    def sample(states, actions, rng):
        with lock:
            return states, states * 0.0

    own = eh.Simulator(sample, lambda n, rng: rng.integers(0, 2, n), [[0], [1]], 2, 3, [1], 0.9)
    with pytest.raises(InvalidInputError, check=mentions("backend", "the problem")):
        eh.train(own, seeds=2, backend="processes:2", **SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["processes", "ray"])
def test_runs_are_identical_on_every_backend(kind, three, tmp_path, request):
    if kind == "ray":
        request.getfixturevalue("small_ray")
    with Pool("processes:2") if kind == "processes" else Pool("ray", num_workers=2) as executor:
        found = eh.train(MACHINES, seeds=3, backend=executor, checkpoint=tmp_path / "run", **SMALL)
    assert [bits(run) for run in found.runs] == [bits(run) for run in three.runs]
    assert [row[:5] for row in found.rows] == [row[:5] for row in three.rows]
    assert all(run.problem is MACHINES and run.policy.problem is MACHINES for run in found.runs)
    assert len(list(Path(tmp_path).iterdir())) == 3
