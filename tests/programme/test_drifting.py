"""Drift: whether a model still fits, and what is done when it does not."""

import itertools
import json
import math
import tracemalloc

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.stats import dirichlet_multinomial, multinomial

from evenhand.cli import application, programme_output
from evenhand.errors import ConflictError, InvalidInputError, NotFoundError
from evenhand.programme import Programme, drift_test, roster

from ..conftest import mentions, slow_after

LAW = np.array([0.7, 0.3, 0.0])
ROW = ("pump", 0, (0,))


def moves_of(ends, law=LAW):
    """Moves of one row that ended so, one a step."""
    return drift_test.ObservedMoves(0, len(ends), {ROW: np.array(list(enumerate(ends)))}, {ROW: law})


def by_hand(ends, law, num_pairs):
    """E by its definition, with SciPy's laws."""
    share, total, n = 1 / (num_pairs + 1), 1 / (len(ends) + 1), len(ends)
    rates = [drift_test.ERRORS * 2**power for power in range(1, 7)]
    for k in range(n):
        counts = np.bincount(ends[k:], minlength=len(law))
        inside = counts[law > 0]
        p = law[law > 0]
        row = np.mean([
            dirichlet_multinomial.pmf(inside, c * p, inside.sum()) / multinomial.pmf(inside, inside.sum(), p)
            for c in drift_test.SCALES
        ])  # fmt: skip
        out = int(counts[law <= 0].sum())
        errors = np.mean(
            [(r / drift_test.ERRORS) ** out * ((1 - r) / (1 - drift_test.ERRORS)) ** (n - k - out) for r in rates]
        )
        total += (1 - share + share * row) * (1 - share + share * errors) / ((k + 1) * (k + 2))
    return total


@pytest.mark.parametrize("ends", [[0], [1], [0, 1, 1], [1] * 6, [2, 0, 2], [0, 0, 0, 1, 1, 1, 2]])
def test_evidence_is_as_defined(ends):
    assert drift_test.evidence(moves_of(ends), 9).total == pytest.approx(math.log(by_hand(ends, LAW, 9)), abs=1e-9)


@pytest.mark.parametrize("wrong", [0.0, drift_test.ERRORS / 2, drift_test.ERRORS])
def test_a_right_model_is_worth_no_evidence_on_average_at_any_time(wrong):
    """Summed over all that can happen, with errors of reporting up to the share that is granted."""
    law = np.array([0.7, 0.3, 0.0])
    true = (1 - wrong) * law + wrong * np.array([0.0, 0.0, 1.0])
    for n in (1, 3, 5):
        mean = sum(
            math.prod(true[list(ends)]) * math.exp(drift_test.evidence(moves_of(ends, law), 2).total)
            for ends in itertools.product(range(3), repeat=n)
            if math.prod(true[list(ends)])
        )
        assert mean <= 1 + 1e-9
        if wrong == drift_test.ERRORS:
            assert mean == pytest.approx(1.0, abs=1e-9)


def test_a_change_is_found_wherever_it_came():
    rng = np.random.default_rng(5)
    right, other = rng.choice(2, size=150, p=[0.7, 0.3]), rng.choice(2, size=150, p=[0.3, 0.7])
    assert drift_test.evidence(moves_of(right), 9).total < math.log(100)
    found = drift_test.evidence(moves_of(np.concatenate([right, other])), 9)
    assert found.total > math.log(100)
    assert 130 <= found.since <= 165
    assert found.rows[0][1] == ROW


def test_what_is_said_to_be_impossible_counts_beyond_errors_of_reporting():
    rng = np.random.default_rng(6)
    ends = rng.choice(2, size=200, p=[0.7, 0.3])
    ends[::100] = 2
    assert drift_test.evidence(moves_of(ends), 9).total < math.log(100)
    ends[::10] = 2
    found = drift_test.evidence(moves_of(ends), 9)
    assert found.total > math.log(100)
    assert found.excluded[1] > 0


def test_seldom_seen_arms_take_little_room():
    """Each of their moves is a row of its own: what was done in all the steps between was hardly ever done before."""
    rows = {("pump", 0, tuple(map(int, f"{number:09b}"))): np.array([[50 * number, 1]]) for number in range(300)}
    moves = drift_test.ObservedMoves(0, 15_000, rows, dict.fromkeys(rows, LAW))
    tracemalloc.start()
    try:
        assert len(drift_test.evidence(moves, 9).rows) == 300
        assert tracemalloc.get_traced_memory()[1] < 20e6  # a table of rows, steps and states would have 108 MB
    finally:
        tracemalloc.stop()


# In a programme


def live(programme, law_of, steps, rng, seldom=""):
    """Run a programme in a world; every arm is seen after every step but one, every second step."""
    arms = [arm.name for arm in programme.arms()]
    states = {"b1": 0, "b2": 2, "h1": 1, "h2": 2, "v1": 0}  # as the roster says
    for _ in range(steps):
        plan = programme.plan_of(programme.plan().plan)
        programme.accept(plan.id)
        for row in plan.rows:
            law = law_of(row.type, states[row.arm], ["run", "oil", "repair"].index(row.action))
            states[row.arm] = int(rng.choice(3, p=law))
        step = programme.status().step
        seen = [{"arm": arm, "state": states[arm]} for arm in arms if arm != seldom or step % 2 == 0]
        programme.observe(seen, "rounds")


def by_model(pumps, faster=0.0):
    """How pumps move; those that run may wear faster than the model says."""

    def law(kind, state, action):
        p = np.array(pumps.tables.transitions[0 if kind == "big" else 1, state, action])
        if action == 0 and state < 2 and faster:
            p[state], p[state + 1] = 1 - faster, faster
        return p

    return law


@pytest.fixture
def worn(programme, pumps):
    """A programme whose pumps wear much faster than its model says, and that asks early."""
    programme.set_bounds({"records": 20}, who="ann")
    live(programme, by_model(pumps, faster=0.9), 14, np.random.default_rng(2))
    return programme


@pytest.mark.parametrize("address", slow_after(1, ["sqlite", "postgresql"]), indirect=True)
def test_a_sound_model_stays(programme, pumps):
    programme.set_bounds({"records": 20})
    live(programme, by_model(pumps), 8, np.random.default_rng(1))
    drift = programme.model_drift()
    assert not drift.needed
    assert drift.moves > 20
    assert drift.chance > 0.01
    assert programme.question() is not None
    assert programme.offer_refit() == (drift, None)
    assert programme.offered() is None
    assert programme.refits() == []


def test_moves_are_what_was_seen_and_done(programme, pumps):
    live(programme, by_model(pumps), 4, np.random.default_rng(1), seldom="h1")
    with programme.store.reading() as tx:
        words, arms, step = programme.library.model(tx)[1], roster.arms_as_of(tx), programme.status().step
        moves = drift_test.moves_since(tx, words, arms, step, 0)
        assert drift_test.moves_since(tx, words, arms, step, programme.status().events) is None
        later = drift_test.moves_since(tx, words, arms, step, programme.status().events - 3)
    assert moves.number == 4 * 4 + 2  # h1 was seen at every second step only
    assert later.number == 4 + 1
    for (kind, start, actions), ends in moves.ends.items():
        law = np.eye(3)[start]
        for action in actions:
            law = law @ pumps.tables.transitions[0 if kind == "big" else 1, :, action]
        assert moves.distributions[kind, start, actions] == pytest.approx(law)
        assert (law[ends[:, 1]] > 0).all()


def test_weights_do_not_hang_on_when_reports_come(programme, pumps):
    """A late report on an early step must not move the weights of the others: whoever held it back would choose."""
    live(programme, by_model(pumps), 3, np.random.default_rng(1))
    event = programme.status().events
    live(programme, by_model(pumps), 3, np.random.default_rng(2), seldom="h1")

    def moves():
        with programme.store.reading() as tx:
            return drift_test.moves_since(
                tx, programme.library.model(tx)[1], roster.arms_as_of(tx), programme.status().step, event
            )

    before = moves()
    assert (before.first, before.horizon) == (3, 4)
    programme.observe(
        [{"arm": "h1", "step": 5, "state": "broken"}, {"arm": "v1", "step": 2, "state": "broken"}], "late"
    )
    after = moves()
    assert (after.first, after.horizon) == (3, 4)
    assert after.number == before.number + 2
    assert sorted(end for ends in after.ends.values() for end, _ in ends).count(0) == 1  # v1 of step 2, told later


@pytest.mark.parametrize("address", slow_after(1, ["postgresql", "sqlite"]), indirect=True)
def test_a_fit_is_offered_once_and_adopted_by_a_person(worn):
    drift = worn.model_drift()
    assert drift.needed
    assert drift.chance < 0.01
    assert '"fine" with run came to "worn"' in " ".join(drift.why)
    before = worn.status().model
    question = worn.question()
    assert question is not None
    _, fit = worn.offer_refit(who="server")
    assert worn.status().model == before
    assert fit.why == drift.why
    assert worn.offered().refit == fit.id
    assert worn.question() is None
    assert worn.offer_refit(who="server")[1] is None
    assert worn.refit(key=question.key) == fit  # who lost the race gets what the other made
    (event,) = [event for event in worn.events() if event.kind == "refitted"]
    assert (event.who, event.body["why"]) == ("server", list(drift.why))
    worn.adopt(fit.id, who="ann")
    assert worn.offered() is None
    now = worn.model_drift()
    assert (now.needed, now.reports) == (False, 0)
    assert worn.verify().event == worn.status().events


def test_what_speaks_against_one_model_is_not_said_of_another(worn, monkeypatch):
    """Somebody adopts another model while the one before is tested."""
    other = worn.refit()
    tested = worn.model_drift

    def slowly():
        found = tested()
        worn.adopt(other.id, who="ann")
        return found

    monkeypatch.setattr(worn.refitting, "model_drift", slowly)
    with pytest.raises(ConflictError):
        worn.offer_refit(who="server")
    assert worn.status().model == other.model
    assert worn.offered() is None


@pytest.mark.slow
def test_a_fit_is_declined_with_a_reason_and_not_offered_again(worn, pumps):
    _, fit = worn.offer_refit()
    with pytest.raises(InvalidInputError, check=mentions("why")):
        worn.decline(fit.id, " ")
    with pytest.raises(NotFoundError):
        worn.decline(9, "x")
    done = worn.decline(fit.id, "a bad winter", who="ann", key="d")
    assert worn.decline(fit.id, "a bad winter", key="d") == done
    with pytest.raises(ConflictError):
        worn.decline(fit.id, "again")
    assert worn.refits()[0].declined_event == done.declined_event == worn.status().events
    assert worn.offered() is None
    assert worn.question() is None
    assert not worn.model_drift().needed
    live(worn, by_model(pumps, faster=0.9), 12, np.random.default_rng(8))
    worn.set_bounds({"level": 0.5})  # twelve steps say little, and are to say it
    assert worn.model_drift().needed
    assert worn.offer_refit()[1].id == fit.id + 1
    assert worn.adopt(fit.id).adopted_event  # it was compared with the model in use, and may be taken after all


def test_bounds_are_stored_and_every_fault_is_reported(programme, address):
    usual = programme.bounds()
    assert (usual.change, usual.gap, usual.level, usual.records) == (0.1, 0.02, 0.01, 100)
    with pytest.raises(InvalidInputError) as error:
        programme.set_bounds({"change": -1, "level": 1.0, "records": 2.5, "speed": 1})
    assert all(name in str(error.value) for name in ("change", "level", "records", "speed"))
    programme.set_bounds({"change": 0.5}, who="ann")
    assert programme.events()[-1].kind == "bounded"
    with Programme.open(address) as other:
        assert other.set_bounds({"level": 0.05}).to_dict() == usual.to_dict() | {"change": 0.5, "level": 0.05}
    programme.solve()
    programme.join([{"arm": "b3", "type": "big"}])
    assert not programme.needs_solving().needed
    programme.set_bounds({"change": 0.1})
    assert programme.needs_solving().needed


@pytest.mark.parametrize("address", ["sqlite"], indirect=True)
def test_commands_tell_what_drifted_and_what_to_do(worn, address, monkeypatch):
    def run(*words):
        done = CliRunner().invoke(application, ["programme", words[0], address, *words[1:]])
        assert done.exit_code == 0, done.output
        return done.output

    reports = worn.model_drift().reports
    assert worn.model_drift(most=reports).needed
    assert worn.model_drift(most=reports - 1).moves == 0
    with monkeypatch.context() as patch:
        patch.setattr(programme_output, "MOST_TESTED", reports - 1)
        assert f"not tested against {reports} reports" in run("plan", "--quiet")
    told = run("plan", "--quiet")
    assert "drift: arms do not move as the model says" in told
    assert "evenhand programme refit" in told
    assert json.loads(run("status", "--json"))["model_drift"]["needed"]
    _, fit = worn.offer_refit()
    assert f"refit {fit.id} is offered" in run("status")
    assert any(f"refit {fit.id} is offered" in line for line in json.loads(run("plan", "--json"))["notices"])
    assert "offered" in run("refits")
    assert "why: arms do not move" in run("refits", str(fit.id))
    assert "declined" in run("decline", str(fit.id), "--why", "a bad winter")
    assert "declined" in run("refits")
    assert "0.3" in run("bounds", "--change", "0.3")
    assert json.loads(run("bounds", "--json"))["change"] == 0.3
    worn.join([{"arm": "b3", "type": "big"}, {"arm": "b4", "type": "big"}])
    assert "evenhand programme solve" in run("plan", "--quiet")


@pytest.mark.parametrize("address", ["sqlite"], indirect=True)
def test_no_command_shows_the_password_of_the_database(worn, address):
    """What is told goes into logs: the address is as the store tells it, not as it was typed."""
    _, fit = worn.offer_refit()
    for words in (["status"], ["plan", "--json"], ["plan", "--quiet"], ["refits"], ["events"], ["refit", "--quiet"]):
        done = CliRunner().invoke(application, ["programme", words[0], f"sqlite:///{address}", *words[1:]])
        assert done.exit_code == 0, done.output
        assert "sqlite:" not in done.output
    shown = CliRunner().invoke(application, ["programme", "refits", f"sqlite:///{address}", str(fit.id)]).output
    assert f"evenhand programme adopt {address} {fit.id}" in shown.replace("\n", "")


# How soon, and how often in error: the figures of docs/programmes.md


def worlds(rng, steps, change_at, factor):
    """Moves of forty arms of two types, of which those of the first wear faster from a step on."""

    def laws(wear):
        return np.array(
            [
                [1 - wear, wear, 0, 0],
                [0, 1 - 1.2 * wear, 1.2 * wear, 0],
                [0, 0, 1 - 1.5 * wear, 1.5 * wear],
                [0.2, 0, 0, 0.8],
            ]
        )

    wears, states = (0.16, 0.07), [np.zeros(20, int), np.zeros(20, int)]
    rows = {(str(kind), state, (0,)): laws(wear)[state] for kind, wear in enumerate(wears) for state in range(4)}
    ends = {row: [] for row in rows}
    for step in range(steps):
        for kind, wear in enumerate(wears):
            now = laws(wear * (factor if step >= change_at and kind == 0 else 1))
            new = np.array([rng.choice(4, p=now[state]) for state in states[kind]])
            for state, after in zip(states[kind], new, strict=True):
                ends[str(kind), state, (0,)].append((step, after))
            states[kind] = new
    return drift_test.ObservedMoves(0, steps, {row: np.array(found) for row, found in ends.items()}, rows)


def found_at(moves, level):
    """The first step at which the model is said not to fit, looked at after every step."""
    for step in range(1, moves.horizon + 1):
        seen = {row: found for row, ends in moves.ends.items() if len(found := ends[ends[:, 0] < step])}
        laws = {row: moves.distributions[row] for row in seen}
        if drift_test.evidence(drift_test.ObservedMoves(0, step, seen, laws), 24).total >= -math.log(level):
            return step
    return None


@pytest.mark.slow
def test_how_soon_a_change_is_found_and_how_often_in_error():
    rng = np.random.default_rng(0)
    right = [found_at(worlds(rng, 60, 60, 1.0), 0.05) for _ in range(60)]
    assert sum(step is not None for step in right) <= 6  # 3 are expected at most, and 7 come once in thirty times
    soon = [found_at(worlds(rng, 100, 40, 2.2), 0.01) for _ in range(12)]
    assert all(step is not None and 40 < step <= 70 for step in soon)
    slight = [found_at(worlds(rng, 100, 40, 1.5), 0.01) for _ in range(12)]
    assert any(step is not None and step > 40 for step in slight)
