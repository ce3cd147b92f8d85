"""Rewards and usage: against SciPy and NumPy by hand, a simulation, and faults of every kind."""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize

from evenhand.errors import InvalidInput, TableError
from evenhand.fitting.log import NOTHING, Log
from evenhand.fitting.rewards import check_known, from_file, from_words, rewards_of
from evenhand.fitting.usage import usage_of

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
    found = rewards_of(log_of(rows), pool=False)
    assert found is not None
    assert found.means[0, 0, 0] == 2 and found.means[1, 0, 0] == 5 and found.means[0, 1, 1] == 2
    assert found.numbers.sum() == 4  # no action, no reward: no row
    assert np.allclose(found.errors[[0, 1], 0, 0], [1.0, math.sqrt(2)])  # the variance of both rows is 2
    assert len(found.unknown) == 18 - 3
    with pytest.raises(TableError, match=r'type "Ford", state "good", action "fix" has no reward'):
        check_known(found, log_of(rows))


def test_pooling_is_the_random_effects_estimate() -> None:
    """The moments of DerSimonian and Laird, and the posterior by maximising the joint density."""
    rng = np.random.default_rng(3)
    sizes, truth = (40, 9, 3), (1.0, 2.0, 3.5)
    rows = [(t, 0, 0, float(y)) for t, (n, m) in enumerate(zip(sizes, truth, strict=True)) for y in rng.normal(m, 1, n)]
    log = log_of(rows)
    found = rewards_of(log)
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
    assert np.allclose(found.means[:, 0, 0], best[:3], atol=1e-5)
    curvature = np.diag(np.append(weights + 1 / tau2, 3 / tau2))  # half the Hessian: the precision of (r, common)
    curvature[3, :3] = curvature[:3, 3] = -1 / tau2
    assert np.allclose(found.errors[:, 0, 0] ** 2, np.diag(np.linalg.inv(curvature))[:3])


def test_a_type_without_rows_leans_on_the_others_and_says_so() -> None:
    rows = [(t, 0, 0, float(t + y)) for t, y in itertools.product((0, 1), (0.0, 0.5, 1.0))]
    found = rewards_of(log_of(rows))
    assert found is not None
    assert found.leaning.tolist() == [[2, 0, 0]]
    assert 0.5 < found.means[2, 0, 0] < 1.5
    assert found.errors[2, 0, 0] > found.errors[0, 0, 0]
    one = rewards_of(log_of(rows[:3]))
    assert one is not None and one.means[1, 0, 0] == 0.5 and math.isinf(one.errors[1, 0, 0])
    assert one.means[0, 0, 0] == 0.5 and np.isclose(one.errors[0, 0, 0] ** 2, 0.25 / 3)


def test_rewards_that_never_vary_are_taken_as_they_are() -> None:
    found = rewards_of(log_of([(t, 0, 0, float(t)) for t in (0, 0, 1, 1)]))
    assert found is not None and found.means[:2, 0, 0].tolist() == [0.0, 1.0]
    assert found.errors[:2, 0, 0].tolist() == [0.0, 0.0]


def test_errors_say_how_far_the_truth_is() -> None:
    rng, inside, number = np.random.default_rng(1), 0, 400
    for _ in range(number):
        truth = rng.normal(0, 0.5, 3)
        rows = [(t, 0, 0, float(rng.normal(truth[t]))) for t, n in enumerate((30, 10, 5)) for _ in range(n)]
        found = rewards_of(log_of(rows))
        assert found is not None
        inside += int((np.abs(found.means[:, 0, 0] - truth) < 2.2 * found.errors[:, 0, 0]).sum())
    assert 0.88 < inside / (3 * number) < 0.995  # three types tell little of how much they differ


# From files and words


@pytest.mark.parametrize("suffix", [".csv", ".json", ".toml"])
def test_a_file_says_rewards_by_names(suffix: str, tmp_path: Path) -> None:
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
    found = rewards_of(SILENT, file=str(file))
    assert found is not None and found.errors.max() == 0
    assert found.means[0].tolist() == [[1, 1], [0.3, -2], [0, 0]]
    assert found.means[1].tolist() == [[1, 1], [0.3, -3], [0, 0]]


def test_words_say_rewards_and_costs() -> None:
    words = "good=1, poor = 0.3,5, or more/less=-1e-1, 5, or more/less/fix=7"
    found = rewards_of(SILENT, words=words, costs="fix=0.25")
    assert found is not None
    assert np.allclose(found.means[2], [[1, 0.75], [0.3, 0.05], [-0.1, 6.75]])
    told = rewards_of(SILENT, words={"*": 0, "good": 1, "poor/fix": -1})
    assert told is not None and told.means[0].tolist() == [[1, 1], [0, -1], [0, 0]]


def test_costs_alone_are_rewards() -> None:
    found = rewards_of(SILENT, costs={"fix": 2})
    assert found is not None and found.means[0].tolist() == [[0, -2]] * 3
    assert rewards_of(SILENT) is None


def test_every_fault_of_a_file_is_told_at_once(tmp_path: Path) -> None:
    file = tmp_path / "rewards.csv"
    file.write_text("state,action,reward\ngod,,1\npoor,fixx,x\npoor,,inf\ngood,,\n")
    with pytest.raises(TableError) as told:
        from_file(SILENT, str(file))
    text = str(told.value)
    for part in (
        'line 2: the records have no state "god"; did you mean "good"?',
        'line 3: the records have no action "fixx"',
        "line 3, reward: 'x' is not a number",
        "line 4, reward: expected a finite number",
        "line 5, reward: has no number",
    ):
        assert part in text
    file.write_text("state,reward\ngood,1\npoor,2\ngood,3\n")
    with pytest.raises(TableError, match="line 4: speaks of the same as line 2"):
        from_file(SILENT, str(file))
    file.write_text("state,action,reward\ngood,,1\n,fix,3\n")
    with pytest.raises(TableError, match="line 3: speaks of the same as line 2, and names no more"):
        from_file(SILENT, str(file))
    file.write_text("state,gain\ngood,1\n")
    with pytest.raises(TableError, match="expected one column reward or cost"):
        from_file(SILENT, str(file))


NAMES = st.sampled_from([*STATES, "god", "", "*", "nobody"])
FIGURES = st.sampled_from(["1", "-0.5", "1e3", "x", "", "inf", "nan", "1e300"])


@given(st.lists(st.tuples(NAMES, st.sampled_from([*ACTIONS, "", "fixx"]), FIGURES), min_size=1, max_size=8))
def test_any_table_is_read_right_or_told_wrong(rows: list[tuple[str, str, str]]) -> None:
    """Which rows have faults is known without the reader; sound tables give what a plain loop gives."""
    columns = {"state": [r[0] for r in rows], "action": [r[1] for r in rows], "reward": [r[2] for r in rows]}
    bad_names = sum(r[0] not in (*STATES, "", "*") for r in rows) + sum(r[1] == "fixx" for r in rows)
    bad_figures = sum(r[2] in ("x", "", "inf", "nan", "1e300") for r in rows)
    if bad_names + bad_figures:
        with pytest.raises(TableError) as told:
            from_file(SILENT, columns)
        assert len(told.value.faults) == bad_names + bad_figures
        return
    cells: dict[tuple[int, int], dict[int, list[float]]] = {}
    for state, action, figure in rows:
        named = (state in STATES) + (action in ACTIONS)
        for s, a in itertools.product(range(3), range(2)):
            if state in ("", "*", STATES[s]) and action in ("", ACTIONS[a]):
                cells.setdefault((s, a), {}).setdefault(named, []).append(float(figure))
    if any(len(said) > 1 for cell in cells.values() for said in cell.values()):
        with pytest.raises(TableError, match="speaks of the same"):
            from_file(SILENT, columns)
        return
    found = from_file(SILENT, columns).means[0]
    for (s, a), cell in itertools.product(np.ndindex(3, 2), [cells]):
        said = cell.get((s, a))
        assert math.isnan(found[s, a]) if said is None else found[s, a] == said[max(said)][0]


@given(st.text(alphabet="godpr=,/*0.1- ", max_size=12))
def test_any_words_are_read_or_refused(words: str) -> None:
    try:
        found = from_words(SILENT, words)
    except InvalidInput as error:
        assert "--reward-of" in str(error)
    else:
        assert np.isfinite(found.means).any()


def test_two_sources_are_one_too_many() -> None:
    with pytest.raises(InvalidInput, match="a column of rewards and rewards in words; give one"):
        rewards_of(log_of([(0, 0, 0, 1.0)]), words="good=1")


# Usage


def test_usage_where_nothing_is_said() -> None:
    found = usage_of(SILENT)
    assert found.amounts.shape == (3, 3, 2, 1) and found.resources == ("services",)
    assert found.amounts[0, 0, :, 0].tolist() == [0, 1]
    with pytest.raises(InvalidInput, match="2 resources are named"):
        usage_of(SILENT, resources=("bays", "crews"))


def test_usage_in_words_and_files(tmp_path: Path) -> None:
    found = usage_of(SILENT, words="fix/crews=2,fix/bays=1", resources=("bays", "crews"))
    assert found.amounts[1, 2].tolist() == [[0, 0], [1, 2]] and found.resources == ("bays", "crews")
    assert usage_of(SILENT, words="fix=3").amounts[0, 0, :, 0].tolist() == [0, 3]
    file = tmp_path / "usage.csv"
    file.write_text("action,type,bays,crews\nfix,,1,2\nfix,Seat,1,3\n")
    told = usage_of(SILENT, file=str(file), resources=("crews", "bays"))
    assert told.amounts[0, 0, 1].tolist() == [2, 1] and told.amounts[2, 0, 1].tolist() == [3, 1]


@pytest.mark.parametrize(
    ("words", "resources", "complaint"),
    [
        ("idle=1,fix=1", (), 'the idle action "idle" uses something'),
        ("fix=-1", (), "uses -1 of services; at least 0"),
        ("idle=0", (), 'says nothing of the action "fix"; write fix=0'),
        ("fix=1", ("bays", "crews"), "of which resource"),
        ("fix/lifts=1", ("bays",), 'there is no resource "lifts"'),
        ("fxi=1", (), 'did you mean "fix"'),
    ],
)
def test_faults_of_usage(words: str, resources: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(TableError, match=complaint):
        usage_of(SILENT, words=words, resources=resources)


def test_usage_from_columns() -> None:
    rows = [(0, 0, 0, 0.0), (0, 0, 1, 0.0), (1, 1, 1, 0.0), (1, 1, 0, 0.0)]
    found = usage_of(log_of(rows, used=np.array([[0.0], [1.0], [3.0], [math.nan]])))
    assert found.amounts[2, 0, :, 0].tolist() == [0, 2] and found.varying == ("fix",)
    with pytest.raises(TableError, match='row 1: the idle action "idle" uses something'):
        usage_of(log_of(rows, used=np.array([[1.0], [1.0], [1.0], [0.0]])))
