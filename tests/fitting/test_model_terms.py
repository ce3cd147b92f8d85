"""Rewards and usage: against SciPy and NumPy, and faults of every kind."""

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize

from evenhand.errors import InvalidInputError, TableError
from evenhand.fitting import NOTHING, Log
from evenhand.fitting.model_terms import read_rewards, read_usage

from ..conftest import mentions

STATES, ACTIONS, TYPES = ("good", "poor", "5, or more/less"), ("idle", "fix"), ("Ford", "Opel", "Seat")


def log_of(rows: list[tuple[int, int, int, float]], used: np.ndarray | None = None, **more: object) -> Log:
    """Rows of (type, state, action, reward), each of an arm of its own."""
    kind, state, action, reward = (np.array(column) for column in zip(*rows, strict=True))
    return Log(
        arms=tuple(str(i) for i in range(len(rows))),
        types=TYPES,
        states=STATES,
        actions=ACTIONS,
        type_of=kind.astype(np.int32),
        arm=np.arange(len(rows), dtype=np.int32),
        time=np.zeros(len(rows)),
        state=state.astype(np.int32),
        action=action.astype(np.int32),
        row=np.arange(len(rows)),
        reward=reward if more.get("rewards", True) else None,
        used=used,
        resources=("bays",) if used is not None else (),
    )


SILENT = log_of([(0, 0, 0, 0.0)], rewards=False)


# From a column


def test_means_without_pooling_are_those_of_the_rows() -> None:
    rows = [(0, 0, 0, 1.0), (0, 0, 0, 3.0), (1, 0, 0, 5.0), (0, 1, 1, 2.0), (0, 1, NOTHING, 9.0), (0, 2, 0, math.nan)]
    found = read_rewards(log_of(rows), pool=False)
    assert found is not None
    assert found[0, 0, 0] == 2 and found[1, 0, 0] == 5 and found[0, 1, 1] == 2
    assert np.isnan(found).sum() == 18 - 3


def test_pooling_is_the_random_effects_estimate() -> None:
    """Moments of DerSimonian and Laird, and the posterior mode by maximising the joint density."""
    rng = np.random.default_rng(3)
    sizes, truth = (40, 9, 3), (1.0, 2.0, 3.5)
    rows = [(t, 0, 0, float(y)) for t, (n, m) in enumerate(zip(sizes, truth, strict=True)) for y in rng.normal(m, 1, n)]
    log = log_of(rows)
    found = read_rewards(log)
    assert found is not None and log.reward is not None
    parts = [log.reward[log.type_of == t] for t in range(3)]
    means, n = np.array([part.mean() for part in parts]), np.array(sizes)
    noise = sum(((part - part.mean()) ** 2).sum() for part in parts) / (n.sum() - 3)
    weights = n / noise
    excess = (weights * (means - weights @ means / weights.sum()) ** 2).sum() - 2
    tau2 = max(excess, 0) / (weights.sum() - (weights**2).sum() / weights.sum())

    def density(x: np.ndarray) -> float:
        return float((weights * (means - x[:3]) ** 2).sum() + ((x[:3] - x[3]) ** 2).sum() / tau2)

    best = optimize.minimize(density, np.append(means, means.mean()), tol=1e-12).x
    assert np.allclose(found[:, 0, 0], best[:3], atol=1e-5)


def test_a_type_without_rows_takes_the_mean_of_the_others() -> None:
    rows = [(t, 0, 0, float(t + y)) for t, y in itertools.product((0, 1), (0.0, 0.5, 1.0))]
    found, one = read_rewards(log_of(rows)), read_rewards(log_of(rows[:3]))
    assert found is not None and 0.5 < found[2, 0, 0] < 1.5
    assert one is not None and one[:, 0, 0].tolist() == [0.5, 0.5, 0.5]


def test_rewards_that_never_vary_are_not_shrunk() -> None:
    found = read_rewards(log_of([(t, 0, 0, float(t)) for t in (0, 0, 1, 1)]))
    assert found is not None and found[:2, 0, 0].tolist() == [0.0, 1.0]


# Stated rewards


@pytest.mark.parametrize("suffix", [".csv", ".json", ".toml"])
def test_a_file_states_rewards_by_name(suffix: str, tmp_path: Path) -> None:
    said = [
        {"state": "good", "reward": 1},
        {"state": "poor", "reward": 0.3},
        {"state": "poor", "action": "fix", "reward": -2},
        {"state": "poor", "action": "fix", "type": "Opel", "reward": -3},
        {"state": "5, or more/less", "reward": 0},
    ]
    keys = ("state", "action", "type", "reward")
    texts = {
        ".csv": "\n".join([",".join(keys), *(",".join(f'"{row.get(key, "")}"' for key in keys) for row in said)]),
        ".json": json.dumps(said),
        ".toml": "".join("[[r]]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in row.items()) for row in said),
    }
    file = tmp_path / f"rewards{suffix}"
    file.write_text(texts[suffix])
    found = read_rewards(SILENT, str(file))
    assert found is not None
    assert found[0].tolist() == [[1, 1], [0.3, -2], [0, 0]]
    assert found[1].tolist() == [[1, 1], [0.3, -3], [0, 0]]


def test_rewards_as_text() -> None:
    words = "good=1, poor = 0.3,5, or more/less=-1e-1, 5, or more/less/fix=7"
    found = read_rewards(SILENT, words)
    assert found is not None
    assert np.allclose(found[2], [[1, 1], [0.3, 0.3], [-0.1, 7]])
    told = read_rewards(SILENT, {"*": 0, "good": 1, "poor/fix": -1})
    assert told is not None and told[0].tolist() == [[1, 1], [0, -1], [0, 0]]


def test_costs_are_negative_rewards() -> None:
    found = read_rewards(SILENT, {"action": ["", "fix"], "cost": [0, 2]})
    assert found is not None and found[0].tolist() == [[0, -2]] * 3
    assert read_rewards(SILENT) is None


def test_every_fault_of_a_file_is_reported_at_once(tmp_path: Path) -> None:
    file = tmp_path / "rewards.csv"

    def places(text: str) -> list[str]:
        file.write_text(text)
        with pytest.raises(TableError) as caught:
            read_rewards(SILENT, str(file))
        return [fault.place for fault in caught.value.faults]

    names = "state,action,reward\ngod,,1\npoor,fixx,x\npoor,,inf\ngood,,\n"
    assert places(names) == ["line 2", "line 3", "line 3", "line 4", "line 5"]
    assert places("state,reward\ngood,1\npoor,2\ngood,3\n") == ["line 4"]
    assert places("state,action,reward\ngood,,1\n,fix,3\n") == ["line 3"]
    assert places("state,gain\ngood,1\n") == ["", ""]


def stated(columns: object) -> np.ndarray:
    found = read_rewards(SILENT, columns)
    assert found is not None
    return found


NAMES = st.sampled_from([*STATES, "god", "", "*", "nobody"])
FIGURES = st.sampled_from(["1", "-0.5", "1e3", "x", "", "inf", "nan", "1e300"])


@given(st.lists(st.tuples(NAMES, st.sampled_from([*ACTIONS, "", "fixx"]), FIGURES), min_size=1, max_size=8))
def test_any_table_is_read_or_its_faults_are_reported(rows: list[tuple[str, str, str]]) -> None:
    """Which rows have faults is known without the reader; sound tables give what a plain loop gives."""
    columns = {"state": [r[0] for r in rows], "action": [r[1] for r in rows], "reward": [r[2] for r in rows]}
    bad_names = sum(r[0] not in (*STATES, "", "*") for r in rows) + sum(r[1] == "fixx" for r in rows)
    bad_figures = sum(r[2] in ("x", "", "inf", "nan", "1e300") for r in rows)
    if bad_names + bad_figures:
        with pytest.raises(TableError) as told:
            stated(columns)
        assert len(told.value.faults) == bad_names + bad_figures
        return
    cells: dict[tuple[int, int], dict[int, list[float]]] = {}
    for state, action, figure in rows:
        named = (state in STATES) + (action in ACTIONS)
        for s, a in itertools.product(range(3), range(2)):
            if state in ("", "*", STATES[s]) and action in ("", ACTIONS[a]):
                cells.setdefault((s, a), {}).setdefault(named, []).append(float(figure))
    if any(len(said) > 1 for cell in cells.values() for said in cell.values()):
        with pytest.raises(TableError):
            stated(columns)
        return
    found = stated(columns)[0]
    for (s, a), cell in itertools.product(np.ndindex(3, 2), [cells]):
        said = cell.get((s, a))
        assert math.isnan(found[s, a]) if said is None else found[s, a] == said[max(said)][0]


@given(st.text(alphabet="godpr=,/*0.1- ", max_size=12))
def test_any_words_are_read_or_refused(words: str) -> None:
    try:
        found = read_rewards(SILENT, words)
    except InvalidInputError as error:
        assert error.code
    else:
        assert found is not None and np.isfinite(found).any()


def test_two_sources_are_one_too_many() -> None:
    with pytest.raises(InvalidInputError, check=mentions("reward", "rewards")):
        read_rewards(log_of([(0, 0, 0, 1.0)]), "good=1")


# Usage


def usage(log: Log = SILENT, **options: Any) -> tuple[np.ndarray, tuple[str, ...], list[str]]:
    notes: list[str] = []
    return (*read_usage(log, notes, **options), notes)


def test_default_usage() -> None:
    amounts, resources, _ = usage()
    assert amounts.shape == (3, 3, 2, 1) and resources == ("services",)
    assert amounts[0, 0, :, 0].tolist() == [0, 1]
    with pytest.raises(InvalidInputError, check=mentions("2 resources", "resources")):
        usage(resources=("bays", "crews"))


def test_usage_as_text_and_table(tmp_path: Path) -> None:
    amounts, resources, _ = usage(stated="fix/crews=2,fix/bays=1", resources=("bays", "crews"))
    assert amounts[1, 2].tolist() == [[0, 0], [1, 2]] and resources == ("bays", "crews")
    assert usage(stated="fix=3")[0][0, 0, :, 0].tolist() == [0, 3]
    file = tmp_path / "usage.csv"
    file.write_text("action,type,bays,crews\nfix,,1,2\nfix,Seat,1,3\n")
    amounts, _, _ = usage(stated=str(file), resources=("crews", "bays"))
    assert amounts[0, 0, 1].tolist() == [2, 1] and amounts[2, 0, 1].tolist() == [3, 1]


@pytest.mark.parametrize(
    ("text", "resources", "complaint"),
    [
        ("idle=1,fix=1", (), '"idle" uses something'),
        ("fix=-1", (), "-1 of services"),
        ("idle=0", (), "no usage"),
        ("fix=1", ("bays", "crews"), "unknown resource"),
        ("fix/lifts=1", ("bays",), 'unknown resource "lifts"'),
        ("fxi=1", (), 'Did you mean "fix"'),
    ],
)
def test_faults_of_usage(text: str, resources: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(TableError, match=complaint):
        usage(stated=text, resources=resources)


def test_usage_from_columns() -> None:
    rows = [(0, 0, 0, 0.0), (0, 0, 1, 0.0), (1, 1, 1, 0.0), (1, 1, 0, 0.0)]
    amounts, _, notes = usage(log_of(rows, used=np.array([[0.0], [1.0], [3.0], [math.nan]])))
    assert amounts[2, 0, :, 0].tolist() == [0, 2] and any("fix varies" in note for note in notes)
    with pytest.raises(TableError, check=mentions("row 1")):
        usage(log_of(rows, used=np.array([[1.0], [1.0], [1.0], [0.0]])))
