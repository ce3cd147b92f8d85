"""Unobserved pairs, structural zeros and absorbing states, from records to a plan."""

import numpy as np
import pytest

import evenhand as eh
from evenhand.errors import InvalidInputError, ModelError, TableError, UnknownNameError
from evenhand.fitting import load_posterior, posterior_path
from tests.fitting.flat import drawn_problems, fit

from ..conftest import mentions

STATES = "good,fair,poor"
COLUMNS = {"arm": "van", "time": "week", "state": "condition", "action": "action"}


def rows_of(*histories, make="Ford"):
    """`good.none fair.mend poor`: the weeks of a van; a dash is a week without a row."""
    rows = []
    for number, history in enumerate(histories):
        for week, entry in enumerate(history.split()):
            if entry != "-":
                condition, _, action = entry.partition(".")
                van = f"{make}{number}"
                rows.append(
                    {"van": van, "week": week, "condition": condition, "action": action or "none", "make": make}
                )
    return rows


FORDS = rows_of(
    "good good fair poor.mend good fair fair poor poor poor.mend fair", "fair good.none good fair poor.mend good poor"
)


def fitted(rows=FORDS, **options):
    options = {"states": STATES, "rewards": "good=1,fair=0.6,poor=0", "budget": 1, "idle": "none"} | options
    return fit(rows, **COLUMNS, **options)


def test_unobserved_pairs_are_refused_without_a_statement(tmp_path):
    with pytest.raises(ModelError, check=mentions("2 pairs")) as caught:
        fitted().save(tmp_path / "model.toml")
    assert mentions("good", "mend")(str(caught.value))
    assert not list(tmp_path.iterdir())


def test_idle_pairs_move_as_the_idle_action_in_every_draw(tmp_path):
    found = fitted(unseen="idle")
    found.save(tmp_path / "model.toml")
    problem = eh.load(tmp_path / "model.toml")
    for drawn in drawn_problems(problem, load_posterior(posterior_path(tmp_path / "model.toml")), 3):
        rows = drawn.tables.transitions[0]
        assert (rows[:2, 1] == rows[:2, 0]).all() and not np.allclose(rows[2, 1], rows[2, 0])
    assert any("2 unobserved pairs" in note for note in found.notes)
    assert (problem.tables.usage[0, :, 1, 0] == 1).all()


def test_forbidden_pairs_are_never_taken_whatever_the_budget():
    problem = fitted(unseen="forbid").problem
    for budget in (1, 10, 1e9):
        rich = problem.with_budget(budget)
        policy = eh.solve(rich).policy
        states = np.array([[0, 0], [0, 1], [1, 1], [2, 0], [2, 2]])
        actions = policy.act(states, 0)
        assert (actions[states < 2] == 0).all()
    # The same plan is found where the action does nothing there and is free: prohibition costs nothing else.
    arm = problem.arms[0]
    usage = np.where(arm.usage > 1e6, 0.0, arm.usage)
    free = eh.CoupledMDP([eh.Arm(arm.transitions, arm.rewards, usage, arm.initial)], [1], 0.95, counts=[2])
    assert eh.solve(problem).welfare == pytest.approx(eh.solve(free).welfare, abs=1e-9)
    assert any(note.kind == "over-budget" for note in eh.check(problem).notes)


def test_a_table_states_rows_of_unobserved_pairs():
    table = [
        {"state": "good", "action": "mend", "next_state": "good", "probability": "0.75"},
        {"state": "good", "action": "mend", "next_state": "fair", "probability": "0.25"},
        {"state": "fair", "action": "mend", "next_state": "good", "probability": "1"},
    ]
    found = fitted(unseen=table)
    np.testing.assert_allclose(found.problem.arms[0].transitions[0, 1], [0.75, 0.25, 0])
    np.testing.assert_array_equal(found.posterior.draw(5)[:, 0, 0, 1], [[0.75, 0.25, 0]] * 5)


def test_every_fault_of_a_table_is_reported():
    observed = [{"state": "poor", "action": "mend", "next_state": "good", "probability": "1"}]
    with pytest.raises(TableError) as caught:
        fitted(unseen=[*observed, *the_row("mend", good=2)])
    assert [fault.place for fault in caught.value.faults] == ["row 1", "row 2"]
    with pytest.raises(TableError, check=mentions(0.7)):
        fitted(unseen=the_row("mend", good=0.7))
    with pytest.raises(TableError, check=mentions("probability")):
        fitted(unseen=[{"state": "good", "action": "mend", "next_state": "good"}])
    with pytest.raises(InvalidInputError, check=mentions("never")):
        fitted(unseen="never")


def test_the_idle_action_itself_needs_a_table_or_an_absorbing_state():
    rows = rows_of("good good.mend fair.none fair poor", "fair.mend good.none fair poor")
    with pytest.raises(ModelError, check=mentions("absorbing")) as caught:
        fitted(rows, unseen="forbid").problem  # noqa: B018  # computed on access
    assert "2 faults\n" in str(caught.value)
    notes = fitted(rows, unseen="forbid").notes
    assert any(mentions("poor", "none")(note) for note in notes)
    assert any(mentions("poor")(note) for note in notes)
    settled = fitted(rows, unseen="forbid", absorbing="poor")
    assert (settled.problem.arms[0].transitions[2] == [0, 0, 1]).all()
    assert not any("seen to leave" in note for note in settled.notes)


def test_a_state_that_is_left_is_not_absorbing():
    with pytest.raises(TableError, check=mentions("contradict")) as caught:
        fitted(absorbing=["poor"])
    assert len(caught.value.faults) == 3 and caught.value.faults[0].place == "row 5"
    with pytest.raises(UnknownNameError):
        fitted(absorbing="dead")


def test_states_that_only_get_worse():
    with pytest.raises(TableError, check=mentions("contradict")) as caught:  # fair to good, under none
        fitted(only_worse=True)
    assert len(caught.value.faults) == 1
    rows = rows_of("good good fair - poor.mend good - fair poor", "good fair.mend good.mend good fair fair poor poor")
    found = fitted(rows, only_worse=True, unseen="idle")
    below = np.tril(np.ones((3, 3), dtype=bool), -1)
    for told in (found.posterior.mean, *found.posterior.interval(), *found.posterior.draw(4)):
        assert (told[0, :, 0][below] == 0).all()
    with pytest.raises(TableError, check=mentions("2 steps")):  # no path of idle steps leads back
        fitted(rows_of("poor - good good fair.mend good"), only_worse=True)
    with pytest.raises(InvalidInputError, check=mentions("only_worse")):
        fitted(states=None, only_worse=True)


def test_a_mask_excludes_what_it_names(tmp_path):
    mask = tmp_path / "mask.csv"
    mask.write_text("state,action,next_state\ngood,none,poor\npoor,*,poor\n")
    with pytest.raises(TableError, check=mentions("contradict")) as caught:
        fitted(impossible=str(mask))
    assert len(caught.value.faults) == 3
    mask.write_text("state,action,next_state\ngood,,poor\n")
    rows = rows_of("good good fair poor.mend good fair")
    assert (fitted(rows, impossible=str(mask)).posterior.mean[0, 0, 0, 2] == 0).all()
    mask.write_text("state,next_state\ngod,poor\n")
    with pytest.raises(TableError, check=mentions("god")):
        fitted(rows, impossible=str(mask))
    mask.write_text("state,next_state\ngood,*\n")
    with pytest.raises(InvalidInputError, check=mentions("next")) as caught:
        fitted(rows, impossible=str(mask))
    assert len(caught.value.faults) == 2


def test_a_pair_unobserved_in_one_type_is_estimated_from_the_others():
    others = rows_of("good fair fair.mend good good.mend good poor.mend fair", "poor poor fair.none poor", make="VW")
    found = fitted(FORDS + others, type="make")
    assert not np.isnan(found.posterior.mean).any() and found.unseen.sum() == 2
    assert any(mentions("2 pairs")(note) for note in found.notes)
    apart = fitted(FORDS + others, type="make", prior=0)
    assert np.isnan(apart.posterior.mean).any(axis=-1).sum() == 2
    counts = apart.moves.counts
    np.testing.assert_allclose(np.nan_to_num(apart.posterior.mean * counts.sum(axis=-1, keepdims=True)), counts)


def test_missing_steps_are_summed_out_and_long_absences_reported():
    history = "good fair - poor.mend good - - fair poor.mend good " + "- " * 14 + "fair good"
    found = fitted(rows_of(history, "good good fair.none poor poor.mend fair fair"), unseen="forbid")
    assert any(mentions("1 time", "10 steps", "Ford0", "15 steps")(n) for n in found.notes)
    again = fitted(rows_of(history, "good good fair.none poor poor.mend fair fair"), unseen="forbid")
    np.testing.assert_array_equal(found.posterior.mean, again.posterior.mean)
    assert np.isfinite(found.log_likelihood) and found.problem.num_arms == 2


def test_contradictions_are_reported_by_line(tmp_path):
    log = tmp_path / "log.csv"
    log.write_text('van,week,condition,action,note\na,1,poor,none,"two"\na,2,good,mend,\na,3,good,none,\n')
    columns = {"arm": "van", "time": "week", "state": "condition", "action": "action", "states": "good,poor"}
    with pytest.raises(TableError) as caught:
        fit(str(log), **columns, only_worse=True)
    assert [fault.place for fault in caught.value.faults] == ["line 3"]


def test_an_arm_that_was_away_for_too_long_is_refused_with_its_row():
    """A year that was mistyped makes a gap of thousands of steps, which would be summed out for hours."""
    rows = {"van": ["a"] * 4, "week": [1, 2, 3, 10**6], "state": ["x", "y", "x", "x"], "action": ["none"] * 4}
    with pytest.raises(TableError, check=mentions("999,997")):
        fit(rows, arm="van", time="week", state="state", action="action")
    rows["week"][3] = 20
    fit(rows, arm="van", time="week", state="state", action="action")


def test_rows_that_name_too_little_are_reported():
    columns = {"state": ["good", "god", ""], "action": ["", "mend", "mend"], "next_state": ["good"] * 3}
    with pytest.raises(TableError) as caught:
        fitted(unseen={**columns, "probability": [1, 1, 1]})
    assert str(caught.value).count("must be named") == 2


def the_row(action, kind=None, **chances):
    """Rows of a file on what comes after `good`."""
    own = {} if kind is None else {"type": kind}
    return [
        {"state": "good", "action": action, "next_state": name, "probability": str(chance)} | own
        for name, chance in chances.items()
    ]


def test_statements_on_a_type_override_those_on_all_types():
    rows = [*FORDS, *rows_of("good fair poor.mend good fair.none good poor.mend fair", make="VW")]
    fair = [row | {"state": "fair"} for row in the_row("mend", good=1.0)]
    table = [{"type": "", **row} for row in (*the_row("mend", good=0.9, fair=0.1), *fair)]
    table += the_row("mend", "VW", good=0.5, poor=0.5)
    found = fitted(rows, type="make", unseen=table)
    np.testing.assert_allclose(found.posterior.mean[:, 0, 1], [[0.9, 0.1, 0], [0.5, 0, 0.5]])


def test_a_transition_stated_twice_is_reported_with_both_rows():
    with pytest.raises(TableError, check=mentions("row 1")) as caught:
        fitted(unseen=[*the_row("mend", good=0.5), *the_row("mend", good=0.5)])
    assert [fault.place for fault in caught.value.faults] == ["row 2"]
    with pytest.raises(TableError):
        fitted(unseen=the_row("meend", good=2))


@pytest.mark.parametrize("unseen", ["idle", the_row("mend", fair=1.0), "forbid"])
def test_stated_rows_must_be_possible(unseen):
    """The idle action comes from good to fair, which mending cannot; what is forbidden is never met."""
    options = {"unseen": unseen, "impossible": [{"state": "good", "action": "mend", "next_state": "fair"}]}
    if unseen == "forbid":
        fitted(**options)
        return
    with pytest.raises(TableError, check=mentions("impossible")):
        fitted(**options)


def test_a_row_with_one_possible_transition_needs_no_records():
    rows = rows_of("good good fair fair poor.mend good fair poor.mend", "fair.mend good good.mend fair poor.mend good")
    assert np.isnan(fitted(rows).posterior.mean[0, 2, 0]).all()  # nothing is known of poor under none
    found = fitted(rows, only_worse=True, unseen="idle")
    for known in (found.posterior.mean, *found.posterior.interval(), *found.posterior.draw(2)):
        assert (known[0, 2, 0] == [0, 0, 1]).all()
    assert any(mentions("poor", "none", "possible")(note) for note in found.notes)
