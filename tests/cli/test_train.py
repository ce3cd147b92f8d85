"""`evenhand train`: learn, save, and play what was learned."""

import json
import shutil
import signal
import zipfile

import pytest

pytest.importorskip("stable_baselines3")

from evenhand.cli import run

from ..conftest import mentions

MODEL = ["machine-replacement", "-p", "num_arms=3"]
QUICK = ["--steps", 8000, "--horizon", 50]


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory):
    file = tmp_path_factory.mktemp("trained") / "policy.zip"
    assert run([*map(str, ["train", *MODEL, *QUICK, "--out", file, "--quiet"])]) == 0
    return file


@pytest.fixture
def trained(trained_once, folder):
    """What was learned, in the current directory."""
    return shutil.copy(trained_once, folder / "policy.zip")


def test_json(folder, evenhand, files):
    found = evenhand("train", *MODEL, *QUICK, "--json").json
    assert set(found) == {"algorithm", "welfare", "mean", "exact", "steps", "seconds", "curve", "settings", "policy"}
    assert (found["algorithm"], found["exact"], found["steps"], found["policy"]) == ("ppo", True, 8000, None)
    assert found["welfare"] == found["mean"] == max(point["mean"] for point in found["curve"])
    assert [point["steps"] for point in found["curve"]] == [0, 4000, 8000]
    assert 13 < found["welfare"] <= 14.0794
    assert files() == []


@pytest.mark.slow
def test_the_same_seed_is_the_same_policy(folder, evenhand, timeless):
    one, again, other = (
        timeless(evenhand("train", *MODEL, "--steps", 4000, "--seed", seed, "--out", f"{number}.zip", "--json").json)
        for number, seed in enumerate((3, 3, 4))
    )
    bodies = [zipfile.ZipFile(f"{number}.zip").read("weight_0.npy") for number in range(3)]
    assert bodies[0] == bodies[1] != bodies[2]
    assert one | {"policy": None} == again | {"policy": None} != other | {"policy": None}


@pytest.mark.slow
def test_text(folder, evenhand, files):
    shown = evenhand("train", *MODEL, "--steps", 4000, "--out", "my policy.zip")
    assert shown.code == 0
    assert "welfare" in shown.out and "exact" in shown.out and "ppo, seed 0" in shown.out
    assert mentions("my policy.zip", "num_arms=3")(shown.out)
    assert files() == ["my policy.zip"]


@pytest.mark.slow
def test_progress_shows_the_current_welfare(folder, evenhand, talkative):
    shown = evenhand("train", *MODEL, *QUICK)
    assert shown.code == 0 and "welfare" in shown.err and "not saved" in shown.out
    quiet = evenhand("train", *MODEL, "--steps", 4000, "--quiet")
    assert quiet.code == 0 and quiet.err == "" and "not saved" in quiet.out


@pytest.mark.slow
def test_what_was_learned_is_played_by_every_command(trained, evenhand, files):
    about = json.loads(zipfile.ZipFile(trained).read("manifest.json"))["about"]
    alone = evenhand("evaluate", *MODEL, "policy.zip", "--json").json
    assert alone["exact"] and alone["welfare"] == pytest.approx(about["score"])
    rows = evenhand("compare", *MODEL, "--policies", "optimal,whittle,policy.zip", "--json").json["rows"]
    (row,) = (row for row in rows if "policy.zip" in row["policy"])
    assert row["welfare"] == pytest.approx(about["score"])
    best = evenhand("solve", *MODEL, "--candidate", "policy.zip", "--out", "best.zip", "--json").json
    assert best["method"] == "fluid" and best["reason"].startswith("candidates compete")
    assert best["welfare"]["value"] >= 0.99 * about["score"]
    large = evenhand("evaluate", "machine-replacement", "-p", "num_arms=60", "-p", "budget=20", "policy.zip", "--json")
    assert large.json["welfare"] > 0
    assert files() == ["best.zip", "policy.zip"]


@pytest.mark.slow
def test_a_candidate_that_wins_is_saved(trained, evenhand):
    """A network trained where the fluid policies are not optimal, or as good as they are, is written as a network."""
    found = evenhand("solve", *MODEL, "--candidate", "policy.zip", "--out", "best.zip", "--json").json
    kind = json.loads(zipfile.ZipFile("best.zip").read("manifest.json"))["kind"]
    assert (kind == "count-network") == found["reason"].endswith(": policy.zip")


def test_a_policy_for_other_arms_is_refused(trained, evenhand):
    told = evenhand("evaluate", "machine-replacement", "-p", "num_arms=3", "-p", "num_states=4", "policy.zip").refusal
    assert mentions("num_states", 3, "here 4")(told)
    assert "num_actions" in evenhand("evaluate", "crew-maintenance", "-p", "num_types=1", "policy.zip").refusal


@pytest.mark.slow
def test_multi_task_and_joint(folder, evenhand):
    options = ["--steps", 4000, "--json"]
    found = evenhand("train", *MODEL, "--num-arms", "2:5", "--budget", "1:2", *options).json
    assert found["settings"]["num_arms"] == [2, 5] and found["settings"]["budget"] == [[1, 2]]
    found = evenhand("train", *MODEL[:3], "--num-arms", "4", "--budget", "2", *options).json
    assert found["settings"]["num_arms"] == [4, 4]
    found = evenhand("train", *MODEL, "--network", "joint", "--out", "joint.zip", *options).json
    assert found["settings"]["architecture"] == "joint" and found["welfare"] is None
    assert evenhand("evaluate", *MODEL, "joint.zip", "--json").json["mean"] == pytest.approx(found["mean"])


def test_every_setting_can_be_given(folder, evenhand):
    typed = ["--steps", 4000, "--horizon", 20, "--hidden", "8,4", "--evaluations", 2, "--seed", 3]
    found = evenhand("train", *MODEL, *typed, "--json").json["settings"]
    assert {name: found[name] for name in ("steps", "horizon", "hidden", "evaluations", "seed")} == {
        "steps": 4000, "horizon": 20, "hidden": [8, 4], "evaluations": 2, "seed": 3,
    }  # fmt: skip


def test_a_finished_run_leaves_no_checkpoint(folder, evenhand, files):
    arguments = ["train", *MODEL, "--steps", 4000, "--out", "policy.zip", "--json"]
    first = evenhand(*arguments).json
    assert files() == ["policy.zip"]
    again = evenhand(*arguments, "--resume").json
    assert again["welfare"] == first["welfare"] and files() == ["policy.zip"]


@pytest.mark.slow
def test_an_interrupt_keeps_the_checkpoint(folder, start, evenhand, files, timeless):
    """The default run asks it of shorter runs within one process, in `tests/learning`."""
    arguments = ["train", *MODEL, "--steps", 40_000, "--out", "policy.zip"]
    with start(*arguments) as process:
        for line in iter(process.stderr.readline, b""):
            if (folder / "policy.zip.checkpoint").exists() and b"welfare" in line:
                break
        process.send_signal(signal.SIGINT)
        _, told = process.communicate()  # ended by the watchdog, if the interrupt is not heard
    assert process.returncode == 130 and b"Traceback" not in told
    assert files() == ["policy.zip.checkpoint"]
    told = evenhand("train", *MODEL, "--steps", 40_001, "--out", "policy.zip", "--resume").refusal
    assert mentions(40000, 40001)(told)
    resumed = timeless(evenhand(*arguments, "--resume", "--json").json)
    assert files() == ["policy.zip"]
    whole = timeless(evenhand(*arguments, "--json").json)
    assert resumed | {"curve": whole["curve"]} == whole and resumed["curve"][-1] == whole["curve"][-1]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--num-arms", "2:3:4"], "--num-arms"),
        (["--num-arms", "two"], "--num-arms"),
        (["--num-arms", "2.5"], "--num-arms"),
        (["--num-arms", ""], "--num-arms"),
        (["--num-arms", "nan"], "--num-arms"),
        (["--num-arms", "5:2"], "num_arms"),
        (["--num-arms", "0:2"], "num_arms"),
        pytest.param(["--num-arms", "1e30"], "num"),
        (["--budget", "x"], "--budget"),
        (["--budget", "3:1"], "budget"),
        (["--budget", "-1:1"], "budget"),
        (["--budget", "nan"], "budget"),
        (["--budget", "1,2"], "--budget 1,2"),
        (["--budget", "1:inf"], "budget"),
        (["--budget", "1", "--budget", "1"], "budget"),
        (["--hidden", "8,x"], "--hidden"),
        (["--hidden", "8,0"], "hidden"),
        (["--evaluations", "0"], "--evaluations"),
        (["--resume"], "--resume"),
        (["--steps", "0"], "--steps"),
        (["--steps", "many"], "--steps"),
        (["--horizon", "0"], "--horizon"),
        (["--algorithm", "dqn"], "--algorithm"),
        (["--allocation", "best"], "--allocation"),
        (["--network", "joint", "--algorithm", "sac"], "ppo"),
        (["--seed", "-1"], "--seed"),
        pytest.param(["--seed", "4294967296"], "seed"),
        (["--out", "missing/policy.zip"], "--out"),
        (["--out", "."], "--out"),
        (["-p", "num_arms=0"], "num_arms"),
    ],
    ids=str,
)
def test_bad_input_is_reported(options, told, folder, evenhand, files):
    assert told in evenhand("train", "machine-replacement", *options, "--json").refusal
    assert files() == []


def test_seeds_of_several_types_are_refused(small, evenhand, files):
    assert "several types" in evenhand("train", small, "--seeds", 2, "--out", "policy.zip").refusal
    assert files() == [small.name]


def test_a_damaged_checkpoint_is_reported(folder, evenhand, files):
    (folder / "policy.zip.checkpoint").write_bytes(b"not a checkpoint")
    told = evenhand("train", *MODEL, "--steps", 4000, "--out", "policy.zip", "--resume").refusal
    assert "policy.zip.checkpoint" in told
    assert files() == ["policy.zip.checkpoint"]


class TestSeeds:
    SMALL = (*MODEL, "--steps", 4000, "--horizon", 20, "--evaluations", 2)

    def test_the_best_of_several_is_saved_with_a_table(self, folder, evenhand, files):
        told = evenhand("train", *self.SMALL, "--seed", 3, "--seeds", 2, "--out", "policy.zip", "--json").json
        assert [row["seed"] for row in told["seeds"]] == [3, 4]
        (best,) = [row for row in told["seeds"] if row["best"]]
        assert best["held_out"] == max(row["held_out"] for row in told["seeds"]) == told["mean"]
        assert told["settings"]["seed"] == best["seed"]
        about = json.loads(zipfile.ZipFile("policy.zip").read("manifest.json"))["about"]
        assert about["seeds"] == told["seeds"] and "--seeds 2" not in str(about["settings"])
        assert files() == ["policy.zip"]

    def test_text(self, folder, evenhand):
        shown = evenhand("train", *self.SMALL, "--seeds", 2).out
        assert "all seeds" in shown and "held out" in shown and "not saved" in shown

    def test_a_place_needs_several_runs(self, folder, evenhand):
        assert "--seeds N" in evenhand("train", *MODEL, "--backend", "ray").refusal
        assert "moon" in evenhand("train", *MODEL, "--seeds", 2, "--backend", "moon").refusal
