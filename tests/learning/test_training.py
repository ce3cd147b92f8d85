"""Training runs: reproducible, resumable, and evaluated on a held-out stream."""

import json
import random
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from functools import cache
from itertools import count
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("stable_baselines3")
import torch

import evenhand as eh
from evenhand import learning, load_policy, solve
from evenhand.cli.main import run as cli
from evenhand.errors import InvalidInputError, MissingExtraError, NotApplicableError, UnknownNameError
from evenhand.evaluation import evaluate, exact_values
from evenhand.learning import (
    Checkpoint,
    NetworkJudge,
    PPOLearner,
    SACLearner,
    Tasks,
    TD3Learner,
    Training,
    read_checkpoint,
    resized,
    sampled,
    train,
)
from evenhand.model import Arm, CoupledMDP, Simulator
from evenhand.policies import CountNetworkPolicy, JointNetworkPolicy
from evenhand.problems import machine_replacement

from ..conftest import mentions, slow_after, two_types

MACHINES = machine_replacement(num_arms=3, budget=1)
PPO = PPOLearner(num_copies=8, rollout=16, batch=64)
SAC = SACLearner(num_copies=4, batch=32, first_steps=60, memory=150)
TD3 = TD3Learner(num_copies=4, batch=32, first_steps=60, memory=150)

RUNS = {
    "ppo": {"algorithm": PPO, "steps": 1024},
    "ppo, sampling": {"algorithm": PPO, "steps": 1024, "allocation": "priority-sampling"},
    "ppo, tasks": {"algorithm": PPO, "steps": 1024, "num_arms": (2, 4), "budget": (1, 2)},
    "sac": {"algorithm": SAC, "steps": 300},
    "td3": {"algorithm": TD3, "steps": 300},
    "joint": {"algorithm": PPO, "steps": 1024, "architecture": "joint"},
    "joint-idle": {"algorithm": PPO, "steps": 1024, "architecture": "joint-idle"},
}
SMALL = {"horizon": 20, "hidden": (16,), "evaluations": 4}


def run(name, **options) -> Training:
    return train(MACHINES, **(RUNS[name] | SMALL | options))


@cache
def finished(name) -> tuple[Training, bytes]:
    """A run that is never interrupted, and its last checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        training = run(name, checkpoint=Path(folder) / "x")
        return training, (Path(folder) / "x").read_bytes()


def whole(name) -> Training:
    return finished(name)[0]


def last_checkpoint(name, file):
    """The last checkpoint of a run that is never interrupted, as a file."""
    file.write_bytes(finished(name)[1])
    return file


def bits(training):
    network = training.policy.network
    return [array.tobytes() for array in [*network.weights, *network.biases]]


def same(one, two):
    """Return whether the results of two runs are equal to the last bit."""
    assert bits(one) == bits(two)
    assert one.curve == two.curve and one.score == two.score and one.steps == two.steps
    return True


class Stop(Exception):
    pass


def interrupt_after(share):
    """Tells a run to stop once this much is done."""

    def told(text, done):
        if done >= share:
            raise Stop

    return told


def always_told(monkeypatch):
    """Report progress at every step instead of every tenth of a second."""
    ticks = count(1)
    monkeypatch.setattr("evenhand.learning.loop.time.monotonic", lambda: float(next(ticks)))


class TestReproducible:
    @pytest.mark.parametrize("name", slow_after(1, RUNS))
    def test_the_same_seed_is_the_same_policy(self, name):
        """Run with checkpoints, as the stored one, or without."""
        assert same(whole(name), run(name))

    def test_another_seed_is_another_one(self):
        assert bits(whole("ppo")) != bits(run("ppo", seed=1))

    def test_what_was_drawn_before_does_not_matter(self):
        one = whole("td3")
        np.random.seed(5), torch.manual_seed(5), random.seed(5)  # noqa: NPY002
        assert same(one, run("td3"))

    @pytest.mark.parametrize("name", ["ppo", "td3"])
    def test_global_generators_are_left_as_they_were(self, name):
        np.random.seed(3), torch.manual_seed(4)  # noqa: NPY002
        before = np.random.get_state(), torch.get_rng_state(), torch.get_num_threads()  # noqa: NPY002
        run(name)
        after = np.random.get_state(), torch.get_rng_state(), torch.get_num_threads()  # noqa: NPY002
        assert all(np.array_equal(*pair) for pair in zip(before[0], after[0], strict=True))
        assert torch.equal(before[1], after[1]) and before[2] == after[2]

    def test_so_is_the_generator_of_the_standard_library(self):
        random.seed(3)
        before = random.getstate()
        run("ppo")
        assert random.getstate() == before

    def test_nothing_is_left_in_the_temporary_folder(self, tmp_path, monkeypatch):
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        run("ppo")
        assert not list(tmp_path.glob("SB3*"))  # torch has a cache of its own there

    def test_also_after_a_failure(self, monkeypatch):
        always_told(monkeypatch)
        before = torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
        with pytest.raises(Stop):
            run("ppo", progress=interrupt_after(0.3))
        assert torch.equal(before[0], torch.get_rng_state())
        assert np.array_equal(before[1][1], np.random.get_state()[1])  # noqa: NPY002


class TestResume:
    @pytest.mark.parametrize("name", slow_after(1, RUNS))
    def test_a_run_continues_from_its_checkpoint(self, name, tmp_path, monkeypatch):
        always_told(monkeypatch)
        file = tmp_path / "run.checkpoint"
        with pytest.raises(Stop):
            run(name, checkpoint=file, progress=interrupt_after(0.6))
        assert [path.name for path in tmp_path.iterdir()] == [file.name]
        before = read_checkpoint(file)
        resumed = run(name, checkpoint=file, resume=True)
        number = len(before.facts["curve"])
        assert 1 < number < len(whole(name).curve)
        assert resumed.curve[:number] == whole(name).curve[:number]  # until there it is the unbroken run
        assert [steps for steps, _ in resumed.curve] == [steps for steps, _ in whole(name).curve]
        assert resumed.steps == whole(name).steps and resumed.settings == whole(name).settings
        assert resumed.score == max(score for _, score in resumed.curve) >= before.facts["score"]

    def test_parameters_and_optimisers_are_those_of_the_checkpoint(self, tmp_path, monkeypatch):
        """Parameters outside of modules, too."""
        always_told(monkeypatch)
        file, played = tmp_path / "run.checkpoint", []
        with pytest.raises(Stop):
            run("sac", checkpoint=file, progress=interrupt_after(0.6))
        before, restore = read_checkpoint(file), Checkpoint.restore
        monkeypatch.setattr(Checkpoint, "restore", lambda self, model: (restore(self, model), played.append(model)))
        run("sac", checkpoint=file, resume=True)
        assert len(played) == 1 and before.variables.keys() == {"log_ent_coef"}
        assert "actor.optimizer" in before.parameters and before.parameters["actor.optimizer"]["state"]

    def test_a_finished_run_resumes_to_the_same_end(self, tmp_path):
        file = last_checkpoint("ppo", tmp_path / "run.checkpoint")
        assert same(whole("ppo"), run("ppo", checkpoint=file, resume=True))

    def test_without_a_checkpoint_it_starts_anew(self, tmp_path):
        assert same(whole("ppo"), run("ppo", checkpoint=tmp_path / "x", resume=True))

    @pytest.mark.parametrize(
        ("other", "named"),
        [
            ({"steps": 2048}, "steps"),
            ({"seed": 5}, "seed"),
            ({"horizon": 21}, "horizon"),
            ({"hidden": (8,)}, "hidden"),
            ({"evaluations": 5}, "evaluations"),
            ({"num_arms": (2, 3)}, "num_arms"),
            ({"budget": (1, 2)}, "budget"),
            ({"allocation": "priority-sampling"}, "allocation"),
            ({"algorithm": "sac"}, "algorithm"),
            ({"algorithm": PPOLearner(num_copies=8, rollout=16, batch=32)}, "learner"),
            ({"architecture": "joint"}, "architecture"),
        ],
        ids=str,
    )
    def test_other_settings_are_refused_by_name(self, other, named, tmp_path):
        file = last_checkpoint("ppo", tmp_path / "run.checkpoint")
        before = file.read_bytes()
        with pytest.raises(InvalidInputError, match=f"{named} was"):
            run("ppo", checkpoint=file, resume=True, **other)
        assert file.read_bytes() == before

    def test_another_problem_is_refused(self, tmp_path):
        file = last_checkpoint("ppo", tmp_path / "run.checkpoint")
        with pytest.raises(InvalidInputError, check=mentions("problem")):
            train(
                machine_replacement(num_arms=3, stay_probability=0.7), PPO, 1024, checkpoint=file, resume=True, **SMALL
            )

    @pytest.mark.parametrize("damage", ["empty", "truncated", "bit", "text", "other zip", "no tensors", "policy"])
    def test_a_damaged_checkpoint_is_refused(self, damage, tmp_path):
        file = last_checkpoint("ppo", tmp_path / "run.checkpoint")
        body = file.read_bytes()
        with zipfile.ZipFile(file) as archive:
            facts = archive.read("evenhand.json")
        broken = bytearray(body)
        broken[len(body) // 2] ^= 1
        wholes = {"empty": b"", "truncated": body[: len(body) // 2], "bit": bytes(broken), "text": b"hello"}
        if damage in wholes:
            file.write_bytes(wholes[damage])
        elif damage == "policy":
            whole("ppo").save(file)
        else:
            with zipfile.ZipFile(file, "w") as archive:
                archive.writestr("x" if damage == "other zip" else "evenhand.json", facts)
        before = file.read_bytes()
        with pytest.raises(InvalidInputError, check=mentions("run.checkpoint")):
            run("ppo", checkpoint=file, resume=True)
        assert file.read_bytes() == before

    def test_missing_facts_are_damage(self, tmp_path):
        file = last_checkpoint("ppo", tmp_path / "run.checkpoint")
        with zipfile.ZipFile(file) as archive:
            parts = {name: archive.read(name) for name in archive.namelist()}
        facts = json.loads(parts["evenhand.json"])
        del facts["curve"]
        with zipfile.ZipFile(file, "w") as archive:
            for name, body in (parts | {"evenhand.json": json.dumps(facts)}).items():
                archive.writestr(name, body)
        with pytest.raises(InvalidInputError, check=mentions(file)):
            run("ppo", checkpoint=file, resume=True)

    def test_resuming_needs_a_checkpoint(self):
        with pytest.raises(InvalidInputError, check=mentions("resume")):
            run("ppo", resume=True)


COMMAND = [
    "train", "machine-replacement", "-p", "num_arms=3", "--steps", "12000", "--horizon", "20", "--seed", "3", "--json",
    "--out", "policy.zip",
]  # fmt: skip


def start(folder, *options):
    command = [sys.executable, "-m", "evenhand", *COMMAND, *options]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def finish(process):
    out, err = process.communicate(timeout=900)  # only one that hangs takes that long
    assert process.returncode == 0, err.decode()
    return json.loads(out)


def await_new(file, process):
    """Waits until there is another version of a file, or the process has ended."""
    before = file.stat().st_mtime_ns if file.exists() else None
    while process.poll() is None and (not file.exists() or file.stat().st_mtime_ns == before):
        time.sleep(0.005)


class TestKilled:
    @pytest.mark.slow
    def test_a_killed_run_can_be_resumed_at_any_time(self, tmp_path):
        """SIGKILL as soon as the first checkpoint is there, and again a little later; then to the end."""
        for wait in (0.0, 0.15):
            process = start(tmp_path, "--resume")
            await_new(tmp_path / "policy.zip.checkpoint", process)
            time.sleep(wait)
            process.send_signal(signal.SIGKILL)
            process.communicate()
            for whole_file in tmp_path.glob("policy.zip*"):
                assert zipfile.ZipFile(whole_file).testzip() is None
        found = finish(start(tmp_path, "--resume"))
        one = train(MACHINES, steps=12_000, horizon=20, seed=3)
        assert (found["welfare"], found["steps"], found["settings"]) == (one.score, one.steps, one.settings)
        assert [(point["steps"], point["mean"]) for point in found["curve"]][-1] == one.curve[-1]
        assert bits(one) == bits(Training(load_policy(tmp_path / "policy.zip", MACHINES), *[None] * 7))
        # what may be left of a file that was being written is asked for below
        assert [path.name for path in tmp_path.iterdir() if path.suffix != ".tmp"] == ["policy.zip"]

    @pytest.mark.slow
    def test_in_the_middle_of_writing_a_checkpoint(self, tmp_path, monkeypatch):
        """The one before stays whole, and what was half written is gone when the run has ended."""
        script = """
import os, signal, sys
from evenhand.cli import run
flush, number = os.fsync, 0
def killed(descriptor):
    global number
    number += 1
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    flush(descriptor)
os.fsync = killed
run(sys.argv[1:])
"""
        process = subprocess.Popen([sys.executable, "-c", script, *COMMAND], cwd=tmp_path, stderr=subprocess.PIPE)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert zipfile.ZipFile(tmp_path / "policy.zip.checkpoint").testzip() is None
        monkeypatch.chdir(tmp_path)
        assert cli([*COMMAND, "--resume"]) == 0
        assert sorted(path.name for path in tmp_path.iterdir()) == ["policy.zip"]


class TestResult:
    def test_the_curve_is_recorded_and_the_best_is_chosen(self):
        training = run("ppo", steps=2048, evaluations=8)
        assert [steps for steps, _ in training.curve] == list(range(0, 2049, 256))
        assert training.steps == 2048 and training.exact
        assert training.score == max(score for _, score in training.curve)
        assert exact_values(MACHINES, training.policy).values[0] == pytest.approx(training.score, rel=1e-12)
        assert evaluate(MACHINES, training.policy, "gini:2").welfare == pytest.approx(training.score)
        assert len({score for _, score in training.curve}) > 1

    def test_the_best_network_is_stored_if_later_ones_are_worse(self, monkeypatch):
        """A judge that likes the second network best, and the first one of equals."""
        seen = []

        def judge(self, network, stream):
            seen.append(network)
            return [1.0, 5.0, 3.0, 5.0, 4.0][len(seen) - 1]

        monkeypatch.setattr(NetworkJudge, "__call__", judge)
        training = run("ppo")
        assert [score for _, score in training.curve] == [1.0, 5.0, 3.0, 5.0, 4.0]
        assert training.score == 5.0 and training.policy.network is seen[1]

    def test_steps_are_rounded_down_to_whole_rollouts(self):
        assert run("ppo", steps=300).steps == 256
        assert run("ppo", steps=3).steps == 128

    def test_progress_is_reported(self, monkeypatch):
        always_told(monkeypatch)
        told = []
        run("ppo", progress=lambda text, share: told.append((text, share)))
        assert all("welfare" in text for text, _ in told[1:])
        shares = [share for _, share in told]
        assert shares == sorted(shares) and shares[0] >= 0 and shares[-1] <= 1 and len(shares) == 8

    def test_the_file_remembers_the_run(self, tmp_path):
        training = whole("ppo")
        training.save(tmp_path / "policy.zip", command="evenhand train x")
        with zipfile.ZipFile(tmp_path / "policy.zip") as file:
            about = json.loads(file.read("manifest.json"))["about"]
        assert about["command"] == "evenhand train x" and about["score"] == training.score
        assert about["settings"]["seed"] == 0 and about["settings"]["algorithm"] == "ppo"
        assert [tuple(point) for point in about["curve"]] == training.curve
        again = load_policy(tmp_path / "policy.zip", MACHINES)
        assert evaluate(MACHINES, again, "gini:2").welfare == pytest.approx(training.score)

    def test_tensorboard_has_the_curve(self, tmp_path):
        pytest.importorskip("tensorboard")
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        training = run("ppo", tensorboard=tmp_path)
        (folder,) = tmp_path.iterdir()
        events = EventAccumulator(str(folder)).Reload()
        seen = [event.value for event in events.Scalars("evenhand/welfare")]
        assert seen and all(any(abs(value - score) < 1e-4 for _, score in training.curve) for value in seen)

    def test_machines_are_learned(self):
        """The paper's problem at N = 3, by default settings but for the steps."""
        training = train(MACHINES, steps=12_000, evaluations=3)
        assert training.curve[-1][1] >= 0.999 * solve(MACHINES).welfare


class TestOtherWorlds:
    @pytest.mark.slow
    def test_a_simulator_without_matrices_comes_to_the_same(self):
        """The learner sees what is sampled only; the policy is then judged on the matrices it never saw."""
        problem = machine_replacement(num_arms=3, budget=1, discount=0.9)
        training = train(sampled(problem), steps=12_000, evaluations=3)
        assert not training.exact
        learned = CountNetworkPolicy(problem, training.policy.network)
        exact = float(exact_values(problem, learned).values[0])
        assert exact >= 0.995 * solve(problem).welfare
        assert training.score == pytest.approx(exact, rel=0.02)

    def test_a_simulator_is_called_within_its_states_and_actions(self):
        asked = set()

        def sample(states, actions, rng):
            asked.update(zip(states.tolist(), actions.tolist(), strict=True))
            return rng.integers(0, 2, len(states)), states + actions + rng.normal(size=len(states))

        own = Simulator(sample, lambda n, rng: rng.integers(0, 2, n), [[0], [1], [2]], 2, 4, [3], 0.8)
        training = train(own, PPO, 512, **SMALL)
        assert asked <= {(s, a) for s in range(2) for a in range(3)} and len(asked) == 6
        assert isinstance(training.policy, CountNetworkPolicy) and np.isfinite(training.score)

    @pytest.mark.slow
    def test_a_simulator_resumes_too(self, tmp_path, monkeypatch):
        always_told(monkeypatch)
        own, file = sampled(MACHINES), tmp_path / "x"
        with pytest.raises(Stop):
            train(own, PPO, 1024, checkpoint=file, progress=interrupt_after(0.5), **SMALL)
        assert train(own, PPO, 1024, checkpoint=file, resume=True, **SMALL).steps == 1024

    @pytest.mark.slow
    def test_several_tasks_make_one_network_for_all(self):
        training = train(MACHINES, steps=16_000, num_arms=(2, 4), evaluations=4)
        for num_arms in (2, 3, 4):
            problem = machine_replacement(num_arms=num_arms, budget=1)
            policy = CountNetworkPolicy(problem, training.policy.network)
            assert exact_values(problem, policy).values[0] >= 0.99 * solve(problem).welfare
        assert training.settings["num_arms"] == [2, 4] and training.settings["budget"] == [[1.0, 1.0]]

    def test_the_value_of_several_tasks_is_their_mean(self):
        network = whole("ppo").policy.network
        judge = NetworkJudge(MACHINES, "greedy", Tasks((2, 4), ((1, 1),)))
        each = [
            exact_values(problem, CountNetworkPolicy(problem, network)).values[0]
            for problem in (machine_replacement(num_arms=n, budget=1) for n in (2, 3, 4))
        ]
        assert judge.exact and judge(network, ()) == pytest.approx(np.mean(each))

    @pytest.mark.slow
    def test_the_judge_can_tell_networks_apart_when_the_budget_varies(self):
        """With budgets from 0 to 1 the untrained network must not pass for the best."""
        training = train(MACHINES, PPO, 2048, budget=(0, 1), **SMALL)
        assert len({score for _, score in training.curve}) > 1

    @pytest.mark.slow
    def test_a_simulated_value_is_near_the_exact_one(self):
        problem = machine_replacement(num_arms=40, budget=4, discount=0.9)
        network = whole("ppo").policy.network
        judge = NetworkJudge(sampled(problem), "greedy", Tasks.of(problem))
        value = exact_values(problem, CountNetworkPolicy(problem, network)).values[0]
        assert not judge.exact and judge(network, (0, 1)) == judge(network, (0, 1))
        assert judge(network, (0, 1)) == pytest.approx(value, rel=0.01)

    def test_resized_keeps_the_arms(self):
        other = resized(MACHINES, 7, np.array([2.0]))
        assert other.signature == machine_replacement(num_arms=7, budget=2).signature

    @pytest.mark.parametrize("architecture", ["joint", pytest.param("joint-idle", marks=pytest.mark.slow)])
    @pytest.mark.slow
    def test_joint_networks_learn(self, architecture, brute_force):
        """Of all that serve one arm always, or one at most: the best is found by value iteration."""
        problem = machine_replacement(num_arms=2, budget=1, discount=0.9)
        product = brute_force(problem)
        choices = [(1, 0), (0, 1), (0, 0)][: 3 if architecture == "joint-idle" else 2]
        gains = np.array([[product.rewards(x, a).mean() for a in choices] for x in product.states])
        rows = np.array([[product.row(x, a) for a in choices] for x in product.states])
        values = np.zeros(len(product.states))
        for _ in range(300):
            values = (gains + 0.9 * rows @ values).max(axis=1)
        best = float(product.initial @ values)
        training = train(
            problem, PPOLearner(num_copies=32, batch=128), 12_288, architecture=architecture, evaluations=4
        )
        assert isinstance(training.policy, JointNetworkPolicy) and training.exact
        assert exact_values(problem, training.policy).values.mean() == pytest.approx(training.score)
        assert 0.97 * best <= training.score <= best + 1e-6
        assert training.curve[0][1] < training.score

    @pytest.mark.slow
    def test_scale_transfer(self):
        training = train(machine_replacement(num_arms=10, budget=1), steps=16_000, evaluations=4)
        large = machine_replacement(num_arms=40, budget=4)
        assert exact_values(large, CountNetworkPolicy(large, training.policy.network)).values[0] >= (
            0.99 * solve(large).welfare
        )

    def test_rewards_of_any_size_are_learned_alike(self):
        """Rewards are centred and scaled for the learner: a million times as much, and a shift, change nothing."""
        types = MACHINES.types
        arm = Arm(types.transitions[0], 1e6 * types.rewards[0] - 5e7, types.usage[0], initial=types.initial[0])
        large = CoupledMDP([arm], budget=[1], discount=MACHINES.discount, counts=[3])
        optimum, shift = 1e6 * solve(MACHINES).welfare, 5e7 / (1 - MACHINES.discount)
        training = train(large, steps=8_000, evaluations=2)
        assert training.curve[-1][1] + shift >= 0.99 * optimum


class TestRefused:
    @pytest.mark.parametrize(
        ("options", "error", "told"),
        [
            ({"algorithm": "pppo"}, UnknownNameError, "Did you mean 'ppo'"),
            ({"allocation": "greddy"}, InvalidInputError, "allocation"),
            ({"architecture": "raw"}, InvalidInputError, "architecture"),
            ({"steps": 0}, InvalidInputError, "steps"),
            ({"steps": 10.5}, InvalidInputError, "steps"),
            ({"horizon": 0}, InvalidInputError, "horizon"),
            ({"evaluations": 0}, InvalidInputError, "evaluations"),
            ({"hidden": (0,)}, InvalidInputError, "hidden"),
            ({"num_arms": (3, 2)}, InvalidInputError, "num_arms"),
            ({"num_arms": (0, 2)}, InvalidInputError, "num_arms"),
            ({"budget": (2, 1)}, InvalidInputError, "budget"),
            ({"budget": ((1, 1), (1, 1))}, InvalidInputError, "budget"),
            ({"budget": (np.nan, 1)}, InvalidInputError, "budget"),
            ({"architecture": "joint", "algorithm": SAC}, NotApplicableError, "ppo"),
            ({"architecture": "joint", "num_arms": (2, 3)}, NotApplicableError, "one number of arms"),
        ],
        ids=str,
    )
    def test_what_makes_no_sense(self, options, error, told):
        with pytest.raises(error, match=told):
            run("ppo", **options)

    @pytest.mark.parametrize(
        "options",
        [
            {"num_arms": (2.7, 5)},
            {"num_arms": (1, 10**30)},
            {"num_arms": 5},
            {"num_arms": (2,)},
            {"budget": ("a", "b")},
            {"seed": -1},
            {"seed": 2**32},
        ],
        ids=str,
    )
    def test_invalid_numbers_are_reported_by_name(self, options):
        with pytest.raises(InvalidInputError, match=next(iter(options))):
            run("ppo", **options)

    def test_arms_that_are_not_alike(self):
        with pytest.raises(NotApplicableError, check=mentions("2 types")):
            train(two_types(), PPO, 128, architecture="joint")

    def test_a_joint_network_for_a_simulator(self):
        with pytest.raises(NotApplicableError, check=mentions("matrices")):
            train(sampled(MACHINES), PPO, 128, architecture="joint")

    @pytest.mark.parametrize("absent", ["torch", "stable_baselines3", "gymnasium"])
    def test_a_missing_extra_is_named(self, absent, monkeypatch, capsys):
        """As if it were not installed: it is not found, and nothing that needs it has been loaded.

        Stable-Baselines3 needs the other two.
        """
        for name in list(sys.modules):
            package, _, part = name.rpartition(".")
            if package == "evenhand.learning":
                monkeypatch.delattr(learning, part)
            if package == "evenhand.learning" or name.split(".")[0] in (absent, "stable_baselines3"):
                monkeypatch.delitem(sys.modules, name)
        monkeypatch.setattr(sys, "meta_path", [Wall(absent), *sys.meta_path])
        for use in (lambda: eh.train(MACHINES), lambda: learning.CountEnv):
            with pytest.raises(MissingExtraError, check=mentions("extra rl", "'torch==")):
                use()
        assert cli(["train", "machine-replacement"]) == 1
        told = capsys.readouterr()
        assert told.out == "" and "'torch==" in told.err and "Traceback" not in told.err


class Wall:
    """Finds no module of a package."""

    def __init__(self, package):
        self.package = package

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == self.package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
