"""`fit` from end to end: counts, the model, its files, and what is told."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pytest

import evenhand as eh
from evenhand.errors import InvalidInputError, ModelError, TableError
from evenhand.fitting import FitResult, load_posterior, matched, posterior_path
from tests.fitting.flat import fit

from ..conftest import mentions

STATES = ("good", "fair", "poor")
TRUE = np.array(
    [[[[0.7, 0.2, 0.1], [0.9, 0.1, 0.0]], [[0.1, 0.6, 0.3], [0.8, 0.2, 0.0]], [[0.0, 0.1, 0.9], [0.6, 0.2, 0.2]]]] * 2
)
TRUE[1, 0, 0] = [0.4, 0.4, 0.2]
COLUMNS = {"arm": "van", "time": "week", "state": "condition", "action": "action", "type": "make"}


def simulated(num_arms: int = 40, num_steps: int = 60, seed: int = 0) -> polars.DataFrame:
    rng = np.random.default_rng(seed)
    rows = []
    for arm in range(num_arms):
        state, kind = int(rng.integers(3)), arm % 2
        for week in range(num_steps):
            action = int(rng.random() < 0.4)
            rows.append((f"van{arm}", week, STATES[state], ("none", "overhaul")[action], ("Ford", "VW")[kind]))
            state = int(rng.choice(3, p=TRUE[kind, state, action]))
    return polars.DataFrame(rows, ["van", "week", "condition", "action", "make"], orient="row")


def fitted(frame: Any = None, **options: Any) -> FitResult:
    return fit(simulated() if frame is None else frame, **COLUMNS, **{"states": STATES} | options)


def test_the_transitions_are_those_of_the_world() -> None:
    found = fitted(simulated(60, 200))
    lower, upper = found.interval
    assert np.abs(found.posterior.mean - TRUE).max() < 0.05
    # What never happens is not known to be impossible: with equal tails left out, its interval begins just above 0.
    some = TRUE > 0
    assert np.mean((lower <= TRUE)[some] & (upper >= TRUE)[some]) > 0.8
    assert (lower[~some] < 1e-9).all() and (upper[~some] < 0.01).all()
    assert found.moves.counts.sum() == 60 * 199
    assert not found.unseen.any()


def test_the_problem_is_of_the_arms_where_they_were_last_seen() -> None:
    frame = simulated()
    problem = fitted(frame, budget=3, discount=0.9, welfare="maximin", over="groups").problem
    assert problem.num_arms == 40 and problem.counts.tolist() == [20, 20]
    assert (problem.discount, problem.welfare, problem.over) == (0.9, "maximin", "groups")
    last = frame.group_by("van").last().group_by("make", "condition").len()
    shares = {(make, state): number / 20 for make, state, number in last.iter_rows()}
    for t, make in enumerate(("Ford", "VW")):
        assert problem.tables.initial[t].tolist() == [shares.get((make, state), 0.0) for state in STATES]
    served = frame.filter(polars.col("action") == "overhaul").group_by("week").len()["len"].max()
    assert fitted(frame).problem.budget.tolist() == [served]


def test_rewards_usage_and_criterion_reach_the_model() -> None:
    rewards = "good=1,fair=0.5,poor=0,good/overhaul=0.75,fair/overhaul=0.25,poor/overhaul=-0.25"
    words = {"rewards": rewards, "usage": "overhaul/hours=2"}
    problem = fitted(**words, budget={"hours": 6}, criterion="average").problem
    assert problem.tables.rewards[0].tolist() == [[1, 0.75], [0.5, 0.25], [0, -0.25]]
    assert problem.resources == ("hours",) and problem.budget.tolist() == [6]
    assert problem.tables.usage[0, 0].tolist() == [[0], [2]]
    assert problem.criterion.name == "average"


def test_it_is_saved_with_what_is_known_and_read_back(tmp_path: Path) -> None:
    found = fitted(rewards="good=1,fair=0.5,poor=0")
    found.save(tmp_path / "vans.toml")
    problem = eh.load(tmp_path / "vans.toml")
    assert problem == found.problem
    assert matched(load_posterior(posterior_path(tmp_path / "vans.toml")), problem)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["vans.posterior.npz", "vans.toml"]
    assert eh.check(problem).problem is problem


def test_nothing_is_written_where_something_was_never_seen(tmp_path: Path) -> None:
    frame = simulated().filter(~((polars.col("condition") == "poor") & (polars.col("action") == "overhaul")))
    found = fitted(frame)
    assert [found.log.actions[a] for a in np.argwhere(found.unseen)[:, 2]] == ["overhaul"] * 2
    with pytest.raises(ModelError, check=mentions("poor", "overhaul")):
        found.save(tmp_path / "vans.toml")
    assert not list(tmp_path.iterdir())
    with pytest.raises(InvalidInputError, check=mentions("vans.xml", ".toml", "xml")):
        fitted().save(tmp_path / "vans.xml")
    assert not list(tmp_path.iterdir())


def test_a_pair_without_a_reward_is_reported() -> None:
    frame = simulated().with_columns(
        worth=polars.when(polars.col("condition") != "fair").then(1.0).otherwise(None)
    )  # fair is seen, and nothing says what it is worth
    with pytest.raises(ModelError, check=mentions("fair", "none", "reward")):
        _ = fitted(frame, reward="worth").problem


def test_every_transition_is_in_the_frame() -> None:
    found = fitted()
    for library, kind in (("pandas", pandas.DataFrame), ("polars", polars.DataFrame)):
        frame = found.to_frame(library)
        assert isinstance(frame, kind)
        assert list(frame["count"])[:2] == found.moves.counts[0, 0, 0, :2].tolist()
        assert sum(frame["probability"]) == pytest.approx(12)


def test_it_shows_itself() -> None:
    found = fitted()
    assert repr(found) == "FitResult(2,400 rows, 40 arms, 2 types, 3 states, 2 actions)"
    assert "<table" in found._repr_html_() and "overhaul" in found._repr_html_()


def test_progress_is_reported_and_rises() -> None:
    heard: list[float] = []
    fitted(progress=lambda doing, share: heard.append(share))
    assert len(heard) > 4 and heard == sorted(heard)


def test_faults_reach_the_user() -> None:
    frame = simulated().with_columns(condition=polars.lit("worn"))
    with pytest.raises(TableError, check=mentions("worn")):
        fitted(frame)


def test_rewards_do_not_lean_on_other_types_where_nothing_does() -> None:
    rows = [
        {"van": make, "week": week, "condition": "good", "action": "none", "make": make, "worth": worth + (-1) ** week}
        for make, worth in (("Ford", 1.0), ("VW", 1.2))
        for week in range(4)
    ]
    options = {"reward": "worth", "states": None}
    assert fitted(rows, prior=0, **options).problem.tables.rewards[:, 0, 0] == pytest.approx([1.0, 1.2])
    low, high = fitted(rows, **options).problem.tables.rewards[:, 0, 0]
    assert 1.0 < low <= high < 1.2  # noise says that the types are alike


def test_a_budget_of_one_resource_leaves_the_other_at_the_most_that_was_used() -> None:
    use = {"usage": "overhaul/hours=2,overhaul/loans=1"}
    most = fitted(**use).problem.budget
    found = fitted(**use, budget={"hours": 5})
    assert found.problem.budget.tolist() == [5, most[1]] and most[1] > 1
    assert any(mentions("budget")(note) for note in found.notes)
    assert not any("no budget" in note for note in fitted(**use, budget=[5, 1]).notes)


@pytest.mark.parametrize("budget", [{"bays": 1}, [1, 2], {"services": -1}, {"services": "much"}])
def test_a_budget_is_checked_before_the_model_is_built(budget: Any) -> None:
    with pytest.raises(ModelError, check=mentions("budget")):
        fitted(budget=budget)


def with_wards(frame: polars.DataFrame) -> polars.DataFrame:
    number = polars.col("van").str.extract(r"(\d+)").cast(polars.Int64)
    return frame.with_columns(ward=polars.when(number % 8 < 2).then(polars.lit("ICU")).otherwise(polars.lit("Ward 2")))


def test_groups_are_blocks_that_share_the_rows_of_their_type(tmp_path: Path) -> None:
    frame = with_wards(simulated())
    plain, found = fitted(frame), fitted(frame, group="ward", over="groups", rewards="good=1,fair=0.5,poor=0")
    np.testing.assert_array_equal(found.posterior.mean, plain.posterior.mean)
    problem = found.problem
    assert [label[0] for label in problem.tables.labels] == ["Ford", "Ford", "VW", "VW"]
    assert [problem.group_names[g] for g in problem.group_of_block] == ["ICU", "Ward 2"] * 2
    assert problem.counts.tolist() == [5, 15, 5, 15]
    assert found.to_dict()["blocks"][1] == {"type": "Ford", "group": "Ward 2", "arms": 15}
    for block in range(4):
        np.testing.assert_array_equal(problem.tables.transitions[block], found.posterior.mean[block // 2])
    found.save(tmp_path / "wards.toml")
    uncertain = matched(load_posterior(posterior_path(tmp_path / "wards.toml")), eh.load(tmp_path / "wards.toml"))
    assert uncertain.type_of_block.tolist() == [0, 0, 1, 1] and not uncertain.known
    rows = [
        {"arm": "van0", "type": "Ford", "group": "ICU", "state": "poor"},
        {"arm": "van2", "type": "Ford", "group": "Ward 2", "state": "fair"},
        {"arm": "van3", "type": "VW", "group": "Ward 2", "state": "fair"},
    ]
    here = problem.with_initial_states(rows)
    assert [here.group_names[g] for g in here.group_of_block] == ["ICU", "Ward 2", "Ward 2"]
    assert not [note for note in eh.check(problem).notes if note.kind == "same-name"]


def test_an_arm_is_of_the_group_of_its_last_row() -> None:
    frame = with_wards(simulated(8, 20)).with_columns(
        ward=polars.when((polars.col("van") == "van0") & (polars.col("week") > 5))
        .then(polars.lit("Ward 2"))
        .otherwise(polars.col("ward"))
    )
    found = fitted(frame, group="ward", unseen="idle")
    assert found.problem.counts.tolist() == [4, 1, 3]
    assert any(mentions("1 arm")(note) for note in found.notes)
    empty = frame.with_columns(ward=polars.when(polars.col("week") == 19).then(None).otherwise(polars.col("ward")))
    with pytest.raises(TableError, check=mentions("8 faults")):
        fitted(empty, group="ward")


def test_departed_arms_inform_the_model_and_are_not_counted() -> None:
    frame = simulated().filter((polars.col("van") != "van0") | (polars.col("week") < 40))
    left, counted = fitted(frame), fitted(frame, gone_after=float("inf"))
    assert counted.problem.counts.tolist() == [20, 20] and left.problem.counts.tolist() == [19, 20]
    assert any(mentions("1 arm", "van0")(note) for note in left.notes)
    assert not any("not counted" in note for note in counted.notes)
    np.testing.assert_array_equal(counted.posterior.mean, left.posterior.mean)
    assert fitted(frame, gone_after=20).problem.counts.tolist() == [20, 20]
    assert fitted(frame, gone_after=10).problem.counts.tolist() == [19, 20]
    for wrong in (-1, "long", float("nan")):
        with pytest.raises(InvalidInputError, check=mentions("gone_after")):
            fitted(frame, gone_after=wrong)


def test_no_arm_has_departed_by_its_own_clock() -> None:
    """Patients are recorded for different times since they came; on a calendar the same ends are departures."""
    last = {f"van{arm}": 20 + arm for arm in range(40)}
    frame = simulated().filter(polars.col("week") <= polars.col("van").replace_strict(last))
    assert fitted(frame).problem.counts.sum() == 40
    dated = frame.with_columns(week=pandas.Timestamp("2026-01-05") + polars.duration(weeks=polars.col("week")))
    assert fitted(dated).problem.counts.sum() == 11  # last seen at most 10 weeks before the end


def test_the_dead_are_not_counted() -> None:
    rows = [
        {"van": f"v{arm}", "week": week, "condition": state, "action": "none"}
        for arm in range(5)
        for week, state in enumerate(["good", "poor", "good", "dead" if arm < 2 else "poor"])
    ]
    found = fit(rows, **{**COLUMNS, "type": None}, absorbing="dead", budget=1)
    assert found.problem.counts.tolist() == [3]
    assert found.problem.arms[0].initial.tolist() == [0, 0, 1]
    assert any(mentions("2 arms", "dead")(note) for note in found.notes)
    # Also if no arm was seen to die.
    rows = [row for row in rows if row["van"] != "v1"] + [{"van": "v1", "week": 3, "condition": "dead", "action": ""}]
    rows = [row for row in rows if row["van"] != "v0"]
    assert fit(rows, **{**COLUMNS, "type": None}, absorbing="dead", budget=1).problem.counts.tolist() == [3]


def test_a_natural_history_has_one_action() -> None:
    frame = simulated().drop("action")
    found = fit(frame, arm="van", time="week", state="condition")
    assert found.log.actions == ("none",)
    assert found.posterior.mean.shape[2] == 1
    np.testing.assert_allclose(found.posterior.mean.sum(axis=-1), 1.0)


def test_allowed_transitions_are_the_only_ones() -> None:
    rows = [
        {"van": f"v{arm}", "week": week, "condition": state, "action": "none", "make": "Ford"}
        for arm in range(6)
        for week, state in enumerate(["good", "fair", "poor", "fair", "good", "good"])
    ]
    order = {"states": "good,fair,poor"}
    near = fitted(rows, allowed="neighbours", **order).posterior.mean[0, :, 0]
    assert near[0, 2] == near[2, 0] == 0 < near[1].min()
    table = {"state": ["good", "fair", "fair", "poor"], "next_state": ["fair", "poor", "good", "fair"]}
    np.testing.assert_array_equal(fitted(rows, allowed=table, **order).posterior.mean[0, :, 0], near)
    rows[1]["condition"] = "poor"
    with pytest.raises(TableError) as caught:
        fitted(rows, allowed="neighbours", **order)
    assert [fault.place for fault in caught.value.faults] == ["row 2"]
    with pytest.raises(InvalidInputError, check=lambda error: error.argument == "allowed"):
        fit(rows, **COLUMNS, allowed="neighbours")


def test_an_unobserved_recovery_is_noted() -> None:
    rows = [
        {"van": f"v{arm}", "week": week, "condition": state, "action": "none", "make": "Ford"}
        for arm in range(6)
        for week, state in enumerate(["good", "fair", "fair", "poor", "poor", "poor"])
    ]
    [note] = [note for note in fitted(rows).notes if "only_worse" in note]
    assert mentions("good", "24 moves")(note)
    assert not any("only_worse" in note for note in fitted(rows, only_worse=True).notes)
    assert not any("only_worse" in note for note in fitted(simulated()).notes)  # it was seen there
    gap = {"van": "v0", "week": 8, "condition": "poor", "action": "none", "make": "Ford"}
    assert any("only_worse" in note for note in fitted([*rows, gap]).notes)
    assert not any("only_worse" in note for note in fitted([*rows, gap | {"condition": "good"}]).notes)


def test_names_outside_the_given_ones_are_faults() -> None:
    frame = simulated().with_row_index()
    slip = frame.with_columns(
        action=polars.when(polars.col("index") == 0).then(polars.lit("overhau")).otherwise(polars.col("action")),
        condition=polars.when(polars.col("index") == 1).then(polars.lit("Poor")).otherwise(polars.col("condition")),
    )
    with pytest.raises(TableError) as caught:
        fitted(slip, actions="none,overhaul")
    assert [fault.place for fault in caught.value.faults] == ["row 1", "row 2"]
    assert fitted(actions="overhaul,none").log.actions == ("none", "overhaul")
