"""Verdicts of audits: needs by hand, forecasts and power against playing, deviations, and reasons with evidence."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from evenhand.errors import InvalidInputError
from evenhand.fitting.fit import fit
from evenhand.model import Arm, CoupledMDP, MixturePolicy
from evenhand.planning import Plan
from evenhand.policies import ExchangeablePriority
from evenhand.programme import Programme, audit_report, audit_verdict, decisions, expectations, named_model

from ..conftest import mentions

WORDS = {"arm": "patient", "group": "clinic", "step": "week", "start": "2026-06-29", "period": "week"}


def clinic(budget=2.0):
    """Patients who stop; a visit brings them back. The stopped are dear, so that a plan may leave them."""
    arm = Arm(
        transitions=[[[0.8, 0.2], [0.95, 0.05]], [[0.02, 0.98], [0.5, 0.5]]],
        rewards=[[1.0, 1.0], [0.0, 0.0]],
        usage=[[0.0], [1.0]],
        initial=[0.7, 0.3],
        name="patient",
        states=["on", "stopped"],
        actions=["wait", "visit"],
    )
    return CoupledMDP([arm, arm], [budget], 0.9, counts=[5, 5], groups=["Port", "Hill"], resources=["visits"])


def roster():
    return [
        {"arm": f"{group} {n}", "type": "patient", "group": group, "state": "stopped" if n < 2 else "on"}
        for group in ("Port", "Hill")
        for n in range(5)
    ]


@pytest.fixture
def neglected(tmp_path):
    """Four weeks in which no stopped patient is visited, by overrides, records, and a week with less."""
    with Programme.create(
        tmp_path / "clinic.db", clinic(), roster(), words=WORDS | {"resources": {"visits": "visit"}}, need=["stopped"]
    ) as programme:
        for week in range(4):
            plan = programme.plan_of(programme.plan(budget=[1.0] if week == 2 else None).plan)
            served = [row for row in plan.rows if row.served]
            keep = [{"arm": row.arm, "action": "wait", "why": "no car"} for row in served if week != 3]
            programme.accept(plan.id, keep, who="ann")
            if week == 3:
                programme.record([{"arm": row.arm, "action": "wait"} for row in served], "sheets")
            programme.observe([{"arm": row["arm"], "state": row["state"]} for row in roster()], "rounds")
        yield programme


def test_who_was_in_need_and_not_served(neglected):
    found = neglected.audit()
    assert (found.need, found.need_by, found.in_need) == (("stopped",), "set", 4)
    assert [(row.arm, row.state, row.since, row.steps, row.lasts, row.served) for row in found.unserved] == [
        (f"{group} {n}", "stopped", 0, 4, True, 0) for group in ("Hill", "Port") for n in (0, 1)
    ]
    assert [
        (row.group, row.state, row.arms, row.unserved, row.steps, row.served, row.longest) for row in found.needs
    ] == [(group, "stopped", 2, 2, 8, 0, 4) for group in ("Hill", "Port")]
    first = found.verdict.need[0]
    assert mentions("4 of 4 patients", "4 weeks")(first)
    assert mentions("Hill 0", "Port 1")(" ".join(found.verdict.need))
    told = json.loads(json.dumps(found.to_dict()))
    assert told["unserved"][0]["arm"] == "Hill 0"
    assert told["verdict"]["need"][0] == first
    summary = audit_report.audit_summary(found, neglected.vocabulary(), "clinic")
    assert summary.facts[0][1] == first


def test_deviations_are_listed(neglected):
    found = neglected.audit()
    assert [(row.step, row.resource, row.usual, row.planned) for row in found.budgets] == [(2, "visits", 2.0, 1.0)]
    assert {row.step for row in found.overrides} == {0, 1, 2}
    assert {(row.step, row.accepted, row.done) for row in found.undone} == {(3, "visit", "wait")}
    assert [(row.planned, row.done) for row in found.services] != []
    assert sum(row.planned for row in found.services) == len(found.overrides) + len(found.undone)
    assert sum(row.done for row in found.services) == 0
    assert mentions("week of 13 July 2026", "1 visit")(found.verdict.deviations[0])
    assert len(found.verdict.deviations) == 3


def test_a_need_that_ends_by_service_or_by_itself():
    """Stretches by hand: served at once; served late; gone by itself and again, shorter; left while in need."""
    need = np.array([[1, 0, 0, 0, 0], [1, 1, 1, 0, 0], [1, 1, 0, 1, 1], [0, 1, 1, 0, 0]], dtype=bool)
    served = np.array([[1, 0, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0]], dtype=bool)
    present = np.ones((4, 5), dtype=bool)
    present[3, 3:] = False
    arms = tuple(SimpleNamespace(name=name, type="t", group="g") for name in "abcd")
    groups_then = ["g"], np.zeros((4, 5), dtype=int)
    span = SimpleNamespace(first=10, horizon=5, present=present, arms=arms, groups_then=groups_then)
    books = SimpleNamespace(span=span, state_names=["bad"])
    sums = {"need": need, "served": served, "state": np.zeros((4, 5), dtype=int)}
    many, rows, cells = audit_verdict.find_unserved(books, sums)
    assert many == 4
    assert [(row.arm, row.since, row.steps, row.lasts, row.served) for row in rows] == [
        ("c", 10, 2, False, 1), ("d", 11, 2, False, 0),
    ]  # fmt: skip
    (cell,) = cells
    assert (cell.arms, cell.unserved, cell.steps, cell.served, cell.longest) == (4, 2, 10, 3, 2)


def test_states_of_need_are_set_and_cleared(tmp_path):
    with Programme.create(tmp_path / "clinic.db", clinic(), roster(), welfare="utilitarian") as programme:
        assert programme.status().need == ()
        plan = programme.plan_of(programme.plan().plan)
        default = programme.in_need(plan.rows, 0)
        programme.accept(plan.id)
        assert programme.audit().need_by == "relaxation"
        before = programme.audit()
        programme.set_need(["patient: stopped"], who="ann", key="k")
        programme.set_need(["patient: stopped"], who="ann", key="k")
        assert programme.need() == programme.status().need == ("patient: stopped",)
        stopped = {row.arm_id: 1 for row in plan.rows if row.state == "stopped"}
        assert programme.in_need(plan.rows, 0) == stopped
        assert programme.audit().in_need == 4
        assert programme.audit(event=before.event) == before
        with pytest.raises(InvalidInputError, check=mentions("lost", "on")):
            programme.set_need(["lost", "stopped"])
        programme.set_need([])
        assert programme.in_need(plan.rows, 0) == default
        programme.verify()


# Forecasts


def played(tmp_path, seed, weeks=6):
    """The audit of a programme whose patients move by the model, and are all seen."""
    rng = np.random.default_rng(seed)
    model = clinic()
    moves = model.tables.transitions[0]
    with Programme.create(tmp_path / f"{seed}.db", model, roster(), seed=seed % 5) as programme:
        for _ in range(weeks):
            plan = programme.plan_of(programme.plan().plan)
            programme.accept(plan.id)
            rows = [(row.arm, ["on", "stopped"].index(row.state), row.action == "visit") for row in plan.rows]
            after = [
                (arm, "stopped" if rng.random() >= moves[state, int(act), 0] else "on") for arm, state, act in rows
            ]
            programme.observe([{"arm": arm, "state": state} for arm, state in after], "rounds")
        return programme.audit()


@pytest.mark.slow
def test_prediction_intervals_cover_what_is_done(tmp_path):
    """At least 95 % if the model is right and plans are followed; not much more, since they must be of use."""
    rows = [row for seed in range(60) for row in played(tmp_path, seed).services]
    inside = [row.lower <= row.done <= row.upper for row in rows]
    strictly = [row.lower < row.done < row.upper for row in rows]
    assert np.mean(inside) >= 0.92
    assert np.mean(strictly) < 0.95  # an interval that is narrower by one service at both ends is too narrow


def promising():
    """Ports are visited for the promise alone, which takes a part of the visits of hills; the dale is a hill."""
    kinds = [
        Arm(
            transitions=[[[1 - falls, falls], [1.0, 0.0]], [[0.0, 1.0], [rises, 1 - rises]]],
            rewards=[[1.0, 1.0], [0.0, 0.0]],
            usage=[[0.0], [1.0]],
            name=name,
            states=["up", "down"],
            actions=["wait", "visit"],
        )
        for name, falls, rises in (("port", 0.5, 0.05), ("hill", 0.4, 0.9))
    ]
    model = CoupledMDP(
        [*kinds, kinds[1]], [2.0], 0.9, counts=[3, 3, 1], groups=["Port", "Hill", "Dale"], resources=["visits"]
    )
    return model.with_max_wait({"down": 5}, type="port")


def ports_and_hills():
    places = [("port", "Port")] * 3 + [("hill", "Dale")] + [("hill", "Hill")] * 3
    return [{"arm": f"{k}{n}", "type": k, "group": g, "state": "down"} for n, (k, g) in enumerate(places)]


def test_a_forecast_is_that_of_playing(tmp_path):
    """Means of the forecast against plays one by one with waiting times, under promises and a changing roster."""
    rng, model = np.random.default_rng(5), promising()
    moves = {name: model.tables.transitions[block] for block, name in enumerate(("port", "hill"))}
    names, first, last = ["up", "down"], 5, 10

    def next_state(kind, state, action):
        return names[int(rng.random() >= moves[kind][names.index(state), int(action == "visit"), 0])]

    def next_waits(row, waits):
        waiting, unserved = waits.get(row.arm, (0, 0))
        promised = row.type == "port" and row.state == "down"
        return (0, 0) if row.action == "visit" else (waiting + 1 if promised else 0, unserved + 1)

    there = ports_and_hills()
    waits, rosters, start = {}, [], None
    with Programme.create(tmp_path / "a.db", model, there, seed=1) as programme:
        states = {row["arm"]: "down" for row in there}
        for step in range(last + 1):
            if step % 2:  # a guest, for one step or two
                programme.join([there[-1] | {"arm": f"x{step}"}])
                states[f"x{step}"] = "down"
            if step % 3 == 2 and (guests := [name for name in states if name[0] == "x"]):
                programme.leave(guests[:1], "moved")
                del states[guests[0]]
            plan = programme.plan_of(programme.plan().plan)
            rosters.append({row.arm: (row.type, row.group) for row in plan.rows})
            if step == first:
                start = dict(states), dict(waits)
            programme.accept(plan.id)
            waits = {row.arm: next_waits(row, waits) for row in plan.rows}
            states = {row.arm: next_state(row.type, row.state, row.action) for row in plan.rows}
            programme.observe([{"arm": a, "state": s} for a, s in states.items()], "rounds", confirmed=True)
        assert max(waiting for waiting, _ in start[1].values()) > 0
        books = programme.books(first, last)
    (policy,) = books.plans.values()
    counts = []
    for play in range(40):
        (states, waits), served = (dict(one) for one in start), dict.fromkeys(books.groups, 0)
        for step, present in enumerate(rosters[first:], first):
            table = [
                {
                    "arm": a,
                    "type": kind,
                    "group": group,
                    "state": states.get(a, "down"),
                    "waiting": waits.get(a, (0,))[0],
                }
                for a, (kind, group) in present.items()
            ]
            known = np.array([waits.get(a, (0, 0)) for a in present])
            for row in policy.act(table, play, step=step, waits=known).rows:
                served[present[row.arm][1]] += row.served
                waits[row.arm] = next_waits(row, waits)
                states[row.arm] = next_state(row.type, row.state, row.action)
        counts.append(list(served.values()))
    drawn, counts = audit_verdict.forecast(books), np.array(counts)
    error = np.sqrt(drawn.var(axis=0) * (1 / len(drawn) + 1 / len(counts)))
    assert (np.abs(drawn.mean(axis=0) - counts.mean(axis=0)) <= 4 * error + 1e-9).all()
    assert (np.abs(drawn.std(axis=0) - counts.std(axis=0)) <= 3 * error + 1e-9).all()
    assert (np.abs(np.diff(np.sort(drawn.mean(axis=0)))) > 0.5).all()  # no group can stand for another


def test_a_forecast_serves_the_longest_wait_first(tmp_path):
    """Equal arms of two groups take turns, also from the middle of a programme on: nothing is left to chance."""
    arm = Arm(np.ones((1, 2, 1)), [[0.0, 1.0]], [[0], [1]], name="bed", states=["here"], actions=["wait", "visit"])
    model = CoupledMDP([arm, arm], [1], 0.9, counts=[1, 1], groups=["Port", "Hill"], resources=["visits"])
    arms = [{"arm": group, "type": "bed", "group": group, "state": "here"} for group in ("Port", "Hill")]
    with Programme.create(tmp_path / "a.db", model, arms) as programme:
        for _ in range(6):
            programme.accept(programme.plan().plan)
        for first, last in ((1, 3), (2, 4), (1, 4)):
            found = programme.audit(first, last).services
            assert [(row.lower, row.upper) for row in found] == [(row.done, row.done) for row in found]
            assert {row.done for row in found} == ({2} if last - first == 3 else {1, 2})


def test_a_forecast_plays_the_part_that_the_programme_drew(tmp_path):
    """A mixture of a plan for each group, and a roster that changes: the part of every step is known."""
    with Programme.create(tmp_path / "a.db", promising().with_max_wait({"down": None}), ports_and_hills()) as programme:
        for step in range(3):
            programme.accept(programme.plan().plan)
            programme.join([{"arm": f"x{step}", "type": "hill", "group": "Hill", "state": "up"}])
        books = programme.books()
    (digest,) = books.plans
    problem = books.plans[digest].problem
    scores = np.full((2, 2, 2, 2), -1.0)  # part, type, state, action
    scores[[0, 1], [0, 1], :, 1] = 1.0
    mixture = MixturePolicy([ExchangeablePriority(problem, own, threshold=0.0) for own in scores], [0.6, 0.4])
    books.plans, first = {digest: Plan(mixture, problem)}, problem.group_names[problem.group_of_block[0]]
    for part in (1, 2):
        policies = tuple((policy, budget, part) for policy, budget, _ in books.span.policies)
        books.span = replace(books.span, policies=policies)
        drawn, own = audit_verdict.forecast(books, episodes=50), books.groups.index("Port")
        assert (drawn.sum(axis=1) == 6).all()
        assert (drawn[:, own] == (6 if (first == "Port") == (part == 1) else 0)).all()


def test_the_part_of_a_mixture_stays_and_says_so(tmp_path):
    rng = np.random.default_rng(0)
    kinds = [
        Arm(rng.dirichlet(np.ones(3), size=(3, 2)), rng.random((3, 2)), usage=[[0], [1]], name=f"t{k}",
            states=["a", "b", "c"], actions=["wait", "visit"])
        for k in range(3)
    ]  # fmt: skip
    model = CoupledMDP(kinds, [2], 0.9, [4] * 3, groups=["x", "y", "z"], resources=["visits"], welfare="maximin")
    arms = [
        {"arm": f"{g}{n}", "type": f"t{k}", "group": g, "state": "a"} for k, g in enumerate("xyz") for n in range(4)
    ]
    with Programme.create(tmp_path / "a.db", model, arms, seed=3) as programme:
        programme.solve(method="counts")
        plans = []
        for _ in range(6):
            plans.append(programme.plan_of(programme.plan().plan))
            programme.accept(plans[-1].id)
        numbers = [plan.part["number"] for plan in plans]
        assert len(set(numbers)) == 1
        assert [part for _, _, part in programme.books().span.policies] == numbers
    assert plans[-1].part["parts"] == 2
    assert mentions("two", f"stays variant {numbers[-1]}")(decisions.drawn_part(plans[-1].part))


def test_the_usual_budget_of_several_resources(tmp_path):
    """Resources are compared by name; no order of names is assumed."""
    both = Arm(
        transitions=[[[0.8, 0.2], [0.95, 0.05], [0.9, 0.1]], [[0.02, 0.98], [0.5, 0.5], [0.3, 0.7]]],
        rewards=[[1.0] * 3, [0.0] * 3],
        usage=[[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]],
        name="patient",
        states=["on", "stopped"],
        actions=["wait", "visit", "call"],
    )
    model = CoupledMDP([both], [2.0, 3.0], 0.9, counts=[4], resources=["visits", "calls"])
    arms = [{"arm": f"p{n}", "type": "patient", "state": "stopped"} for n in range(4)]
    with Programme.create(tmp_path / "a.db", model, arms) as programme:
        programme.accept(programme.plan().plan)
        programme.change({"budget": {"visits": 1.0, "calls": 4.0}})
        programme.accept(programme.plan().plan)
        programme.accept(programme.plan(budget={"visits": 1.0, "calls": 2.0}).plan)
        found = [(row.step, row.resource, row.usual, row.planned) for row in programme.audit().budgets]
    assert found == [(2, "calls", 4.0, 2.0)]


def test_power_is_the_share_of_audits_that_find_it():
    rng = np.random.default_rng(3)
    drawn = np.sort(rng.binomial(60, 0.4, 399))
    lower = int(drawn[9])
    share = audit_verdict.detectable_share(drawn, lower)
    for missed, expected in ((share, 1), (share - 0.02, 0)):
        audits = rng.binomial(rng.binomial(60, 0.4, 40_000), 1 - missed) < lower
        assert (audits.mean() >= 0.79) == bool(expected)
    assert audit_verdict.detectable_share(np.array([0, 0, 1, 2]), 0) is None


@pytest.mark.slow
def test_power_of_the_test_of_values_by_playing():
    """Normal sums that fall short by the stated amount are found in about 80 of 100 cases."""
    rng, variance, groups, level = np.random.default_rng(4), 2.5, 3, 0.05
    short = expectations.detectable_shortfall(variance, groups, level)
    steps = 400
    moves = rng.normal(-short / steps, np.sqrt(variance / steps), (4000, steps)).sum(axis=1)
    strengths = np.sqrt(2 * np.log(groups / level) / variance) * np.array([f for f, _ in expectations.STRENGTHS])
    evidence = -strengths * moves[:, None] - strengths**2 * variance / 2
    found = expectations.p_values(list(evidence)) <= level / groups
    assert found.mean() == pytest.approx(0.8, abs=0.02)
    assert expectations.detectable_shortfall(0.0, groups, level) == 0


def test_forecasts_beyond_their_size_are_left_out(neglected):
    books = neglected.books()
    assert audit_verdict.forecast(books, most=100) is None
    assert audit_verdict.forecast(books, episodes=50).shape == (50, 2)
    assert len(audit_verdict.forecast(neglected.books(level=0.998))) == 999


# Reasons


def records(rng, visits=62):
    """Records in which some of the stopped were visited, and few of those on treatment."""
    rows = []
    for n in range(80):
        state = "stopped" if n < visits else "on"
        action = "visit" if n < visits + 4 else "wait"
        for week in range(2):
            rows.append({"arm": f"a{n}", "week": week, "state": state, "action": action if week == 0 else "wait"})
            state = "on" if n >= visits or rng.random() < 0.55 else "stopped"
    for n in range(100):  # without a visit half of those on treatment stop, and stay so
        states = ("on", "on" if n % 4 == 1 else "stopped") if n % 2 else ("stopped", "stopped")
        rows += [{"arm": f"b{n}", "week": week, "state": s, "action": "wait"} for week, s in enumerate(states)]
    return rows


def test_reasons_state_the_evidence_of_a_fit(tmp_path):
    stated = {"rewards": "on=1,stopped=0", "budget": 3}
    log = records(np.random.default_rng(0))
    fitted = fit(log, arm="arm", time="week", state="state", action="action", records={"idle": "wait"}, model=stated)
    fitted.save(tmp_path / "clinic.toml")
    arms = [{"arm": f"p{n}", "state": "stopped" if n < 2 else "on"} for n in range(6)]
    with Programme.create(tmp_path / "a.db", tmp_path / "clinic.toml", arms, words=WORDS) as programme:
        plan = programme.plan_of(programme.plan().plan)
        stopped = [row for row in plan.rows if row.served and row.state == "stopped"]
        assert stopped
        assert all(mentions("62 observations")(row.reason) for row in stopped)
        few = [row for row in plan.rows if row.served and row.state == "on"]
        assert all(mentions("only 4 observations")(row.reason) for row in few)
        assert few
        assert len(plan.warnings) == 1
        programme.verify()
    with Programme.create(tmp_path / "b.db", fitted.problem, arms) as programme:
        plan = programme.plan_of(programme.plan().plan)
        assert plan.warnings == ()
        assert not any("observ" in row.reason for row in plan.rows)


def test_until_need_is_set_it_means_promised_waits():
    """States with a promised longest wait, by type if there are several."""
    model = named_model.settle(clinic())
    assert named_model.Words(model).promised == []
    parts = {name: getattr(model, name) for name in ("tables", "group_names", "group_of_block")}
    promising = SimpleNamespace(**parts, max_waits=np.array([[-1, 4], [-1, 4]]))
    assert named_model.Words(promising).promised == ["stopped"]
