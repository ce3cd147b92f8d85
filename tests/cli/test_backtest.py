"""`evenhand backtest`: what it prints, its JSON, and what it refuses."""

import json

import pytest

from ..conftest import mentions

COLUMNS = ["--arm", "bus", "--time", "month", "--state", "engine", "--action", "action"]
COURSE = ["new", "new", "worn", "worn", "new", "worn", "new", "worn", "new", "new"]


@pytest.fixture
def fitted(evenhand, tmp_path, monkeypatch):
    """A log, and a model fitted to it."""
    monkeypatch.chdir(tmp_path)
    lines = ["bus,month,engine,action"]
    for bus in range(4):
        for month, engine in enumerate(COURSE):
            replaced = (engine == "worn" and month != 2 and (bus + month) % 3) or month == bus == 0
            lines.append(f"{bus},{month},{engine},{'replace' if replaced else 'keep'}")
    (tmp_path / "log.csv").write_text("\n".join(lines))
    words = ["--rewards", "new=1,worn=0,new/replace=0.5,worn/replace=-0.5", "--budget", "1"]
    assert evenhand("fit", "log.csv", *COLUMNS, *words, "--out", "model.toml", "--quiet").code == 0
    return evenhand


def test_words_and_json(fitted):
    told = fitted("backtest", "model.toml", "log.csv", *COLUMNS, "--policies", "fair-index", "--quiet")
    assert told.code == 0, told
    assert mentions("finite:9")(told.out)
    found = json.loads(
        fitted("backtest", "model.toml", "log.csv", *COLUMNS, "--policies", "fair-index", "--json", "--quiet").out
    )
    assert [row["policy"] for row in found["worth"]] == ["records", "fair-index"]
    assert found["totals"]["seen"][0][0] == sum(map(sum, found["served"]["seen"]))
    assert found["steps_over_budget"]["services"] > 0
    more = json.loads(fitted("backtest", "model.toml", "log.csv", *COLUMNS, "--budget", "4", "--json").out)
    assert more["steps_over_budget"]["services"] == 0


def test_the_criterion_of_the_policies(fitted):
    words = ["backtest", "model.toml", "log.csv", *COLUMNS, "--criterion", "average", "--over", "groups", "--json"]
    found = json.loads(fitted(*words).out)
    assert found["criterion"] == "average"


def test_what_is_refused(fitted):
    assert fitted("backtest", "model.toml", "-", *COLUMNS).code == 2
    told = fitted("backtest", "machine-replacement", "log.csv", *COLUMNS)
    assert told.code == 2 and "the model has no state" in told.err
    assert fitted("backtest", "model.toml", "log.csv", *COLUMNS, "--level", "1.5").code == 2


def test_a_log_of_changes_needs_its_layout(evenhand, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = ["bus,month,engine,action"]
    for bus in range(8):
        times = [0, 3 + bus % 3, 5 + bus, 9 + bus, 20, 24]
        lines += [f"{bus},{month},{('new', 'worn')[k % 2]},keep" for k, month in enumerate(times)]
        lines += [f"{bus},30,worn,replace"]
    (tmp_path / "log.csv").write_text("\n".join(lines))
    fit = ["fit", "log.csv", *COLUMNS, "--out", "model.toml", "--unseen", "idle", "--quiet"]
    assert "layout" in evenhand(*fit).refusal
    assert evenhand(*fit, "--layout", "events").code == 0
    backtest = ["backtest", "model.toml", "log.csv", *COLUMNS, "--quiet"]
    assert "layout" in evenhand(*backtest).refusal
    assert evenhand(*backtest, "--layout", "events").code == 0
