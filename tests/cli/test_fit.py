"""evenhand fit: a model from records, on the command line."""

import inspect
import json
from dataclasses import fields

import numpy as np
import pytest

import evenhand as eh
from evenhand.cli import application
from evenhand.fitting import LogOptions, ModelOptions, probability, probability_texts

from ..conftest import mentions

LOG = """van,week,condition,action,make,worth
v1,1,good,none,Ford,1
v1,2,poor,overhaul,Ford,0
v1,3,good,overhaul,Ford,1
v1,4,good,none,Ford,1
v1,5,poor,none,Ford,0
v1,6,poor,,Ford,
v2,1,poor,overhaul,VW,0
v2,2,good,none,VW,1
v2,3,poor,none,VW,0
v2,4,poor,overhaul,VW,0
v2,5,good,overhaul,VW,1
v2,6,good,none,VW,1
"""
COLUMNS = ("--arm", "van", "--time", "week", "--state", "condition", "--action", "action")
OPTIONS = (*COLUMNS, "--type", "make", "--quiet")


@pytest.fixture
def log(folder):
    (folder / "log.csv").write_text(LOG)
    return "log.csv"


def test_json_has_what_was_promised(log, evenhand):
    told = evenhand("fit", log, *OPTIONS, "--json")
    assert (told.code, told.err) == (0, "")
    found = json.loads(told.out)
    assert (found["states"], found["actions"]) == (["good", "poor"], ["none", "overhaul"])
    assert [(one["name"], one["arms"]) for one in found["types"]] == [("Ford", 1), ("VW", 1)]
    vw = found["types"][1]
    assert vw["counts"] == [[[0, 1], [1, 0]], [[0, 1], [2, 0]]]
    assert np.sum(vw["transitions"], axis=-1) == pytest.approx(np.ones((2, 2)))
    for key in ("counts", "transitions", "lower", "upper"):
        assert all(np.shape(one[key]) == (2, 2, 2) for one in found["types"])
    assert np.isfinite(found["log_likelihood"])
    assert found["unseen"] == []


def test_a_model_is_written_that_check_reads(log, folder, evenhand):
    told = evenhand("fit", log, *OPTIONS, "--reward", "worth", "--budget", "1", "--out", "vans.toml")
    assert told.code == 0, told.err
    assert sorted(file.name for file in folder.iterdir()) == ["log.csv", "vans.posterior.npz", "vans.toml"]
    assert evenhand("check", "vans.toml").code == 0
    assert eh.load("vans.toml").tables.rewards.tolist() == [[[1, 1], [0, 0]]] * 2


def test_standard_input_says_the_same(log, folder, evenhand, monkeypatch):
    import io
    import sys

    from_file = evenhand("fit", log, *OPTIONS, "--json")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(LOG.encode())))
    assert evenhand("fit", "-", *OPTIONS, "--format", "csv", "--json").out == from_file.out


@pytest.mark.parametrize(
    ("changed", "options", "words"),
    [
        (("v1,2,poor", "v1,1,poor"), (), 'line 3: arm "v1" is also in line 2 at time 1'),
        (("v2,3,poor,none", "v2,3,poor,"), (), "line 10: has no action"),
        (("condition", "conditoin"), (), "Did you mean conditoin?"),
        (("", ""), ("--idle", "nothing"), 'unknown action "nothing"'),
        (("", ""), ("--step", "month"), "step"),
        (("", ""), ("--bins", "10"), "state 'good' is not a number"),
        (("", ""), ("--states", "good"), 'unknown state "poor"'),
        (("", ""), ("--budget", "1,1"), "budget"),
        (("", ""), ("--welfare", "gyni:2"), "gyni"),
        (("", ""), ("--criterion", "forever"), "forever"),
        (("", ""), ("--discount", "2"), "discount"),
    ],
)
def test_faults_are_reported_and_nothing_is_written(log, folder, evenhand, changed, options, words):
    (folder / log).write_text(LOG.replace(*changed, 1) if changed[0] else LOG)
    told = evenhand("fit", log, *OPTIONS, *options, "--out", "vans.toml")
    assert told.code == 2
    assert words in told.err
    assert [file.name for file in folder.iterdir()] == [log]
    as_json = json.loads(evenhand("fit", log, *OPTIONS, *options, "--json", "--out", "vans.toml").out)
    assert as_json["exit_code"] == 2 and as_json["faults"]


def test_every_option_is_an_argument_of_the_function_and_back() -> None:
    own = {"log", "out", "report", "as_json", "quiet", "seed"}
    options = {parameter.name for parameter in application.get_command(None, "fit").params} - own
    arguments = set(inspect.signature(eh.fit).parameters) - {"log", "rng", "progress", "records", "model"}
    grouped = {field.name for kind in (LogOptions, ModelOptions) for field in fields(kind)}
    assert options == arguments | grouped


def test_files_that_were_written_are_reported_also_quietly(log, folder, evenhand):
    told = evenhand("fit", log, *OPTIONS, "--out", "vans.toml", "--report", "fit.html")
    assert told.code == 0 and "written to vans.toml" in told.out and "report: fit.html" in told.out


def test_one_of_each_is_reported_as_one(folder, evenhand):
    (folder / "one.csv").write_text("".join(line + "\n" for line in LOG.splitlines()[:6]))
    told = evenhand("fit", "one.csv", *OPTIONS, "--unseen", "idle")
    assert mentions("5 rows", "1 arm", "1 type", "2 states")(told.out)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--rewards", "good=1,poor=0,6"), "NAME=NUMBER"),
        (("--budget", "services=12,5"), "NAME=NUMBER"),
        (("--budget", "12,5"), "decimal separator"),
        (("--budget", "bays=1"), "there is no such resource"),
    ],
)
def test_faults_of_numbers_are_reported_without_a_file_to_write(log, evenhand, options, words):
    told = evenhand("fit", log, *OPTIONS, *options)
    assert told.code == 2 and words in told.err


@pytest.mark.parametrize(
    ("value", "told"),
    [(0.9, "0.90"), (0.0004, "0.0004"), (0.0032, "0.003"), (1e-6, "0"), (0.9991, "0.999"), (1.0, "1")],
)
def test_probabilities_near_0_and_1_have_more_digits(value, told):
    assert probability(value) == told


def test_printed_intervals_hold_their_estimates():
    rng = np.random.default_rng(0)
    for _ in range(2000):
        lower, mean, upper = np.sort(rng.beta(0.5, 0.5) + rng.uniform(-1, 1, 3) * 10.0 ** -rng.uniform(1, 5)).clip(0, 1)
        middle, low, high = map(float, probability_texts(mean, lower, upper))
        assert low <= middle <= high, (mean, lower, upper)


def test_types_of_arms_with_one_action_each_have_no_effects(folder, evenhand):
    """Treated and untreated arms, half of each wearing faster: no effect on a type is identified."""
    rng, rows = np.random.default_rng(0), ["van,week,condition,action"]
    for van in range(40):
        action, stay = ("none", "overhaul")[van % 2], (0.9, 0.3)[van // 2 % 2]
        poor = 0
        for week in range(20):
            rows.append(f"v{van},{week},{('good', 'poor')[poor]},{action}")
            poor = poor if rng.random() < stay else 1 - poor
    (folder / "trial.csv").write_text("\n".join(rows))
    options = ("fit", "trial.csv", *COLUMNS, "--clusters", "2", "--quiet")
    found = json.loads(evenhand(*options, "--json").out)
    assert found["diagnostics"]["effects"] is None and "effects" in found["diagnostics"]["left_out"]
    assert set(found["clusters"]) > {"log_likelihood", "bic", "weak"}
    assert found["clusters"]["identifies_effects"] is False
    told = evenhand(*options, "--report", "fit.html")
    page = (folder / "fit.html").read_text()
    for text in (told.out, page):
        assert "beside the idle" not in text  # the table of effects
        assert f"BIC {found['clusters']['bic']:.2f}" in text.replace("\xa0", " ")
        assert mentions(0.8)(text.replace("\xa0", " "))
