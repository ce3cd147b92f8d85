"""The endpoints of a programme do what its methods do, and say so in the shapes that they promise."""

import json
import random

import pytest
from sqlalchemy import select

from evenhand.cli import run
from evenhand.programme import schema

P = "/v1/programme"


def told(answer, status=200):
    """The JSON of an answer, if it has the status; that it has its shape the client checks."""
    assert answer.status_code == status, answer.text
    return answer.json()


def refused(answer, status):
    """The problem of an answer; its faults as `place: message`."""
    problem = told(answer, status)
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem["status"] == status
    return problem, [f"{fault['place']}: {fault['message']}" for fault in problem["faults"]]


def test_where_it_stands(client, programme):
    answer = told(client.get(P))
    assert answer["plan"] is None
    assert answer["drift"]["policy"]
    status = programme.status().to_dict()
    assert {key: answer[key] for key in status} == status


def test_a_whole_step(client, programme):
    seen = {"observations": [{"arm": "b1", "state": "worn"}, {"arm": "v1", "state": 1}], "source": "walk"}
    assert told(client.post(f"{P}/observations", json=seen))["corrected"] == 2
    plan = told(client.post(f"{P}/plan"))
    assert [row["arm"] for row in plan["rows"]] == ["b1", "b2", "h1", "h2", "v1"]
    assert told(client.get(P))["plan"] == plan["id"]
    assert told(client.get(f"{P}/plan")) == plan
    assert told(client.get(f"{P}/plan/{plan['id']}")) == plan
    idle = next(row["arm"] for row in plan["rows"] if row["served"])
    wish = {"overrides": [{"arm": idle, "action": "run", "why": "nobody there"}], "who": "Ada"}
    accepted = told(client.post(f"{P}/plan/{plan['id']}/accept", json=wish))
    assert (accepted["step"], accepted["overridden"]) == (0, 1)
    closed = told(client.get(f"{P}/plan/{plan['id']}"))
    assert closed["status"] == "accepted"
    assert {row["arm"]: row["why"] for row in closed["rows"]}[idle] == "nobody there"
    done = {"records": [{"arm": "b1", "action": "run", "reward": 0.5, "next_state": "fine"}], "source": "log"}
    assert told(client.post(f"{P}/records", json=done))["observations"] == 1
    assert [one["id"] for one in told(client.get(f"{P}/plans?status=accepted"))["plans"]] == [1]
    events = told(client.get(f"{P}/events"))["events"]
    assert [event["kind"] for event in events] == ["created", "solved", "observed", "planned", "accepted", "recorded"]
    assert events[4]["who"] == "Ada"
    assert told(client.get(f"{P}/events?after=3&most=2"))["events"] == events[3:5]
    assert programme.verify().event == 6
    assert told(client.get(f"{P}/certificate"))["for_roster"]


def test_need_and_the_verdict_of_an_audit(client, programme):
    said = told(client.post(f"{P}/need", json={"states": ["broken"], "who": "Ada"}, headers={"Idempotency-Key": "n"}))
    assert said["states"] == ["broken"]
    assert told(client.get(P))["need"] == ["broken"]
    plan = told(client.post(f"{P}/plan"))
    assert plan["warnings"] == []
    told(client.post(f"{P}/plan/{plan['id']}/accept", json={}))
    found = told(client.get(f"{P}/audit"))
    assert (found["need"], found["need_by"], found["in_need"]) == (["broken"], "set", 2)
    served = {row["arm"] for row in plan["rows"] if row["served"]}
    assert {row["arm"] for row in found["unserved"]} == {"b2", "h2"} - served
    assert {row["group"] for row in found["services"]} == {row["group"] for row in plan["rows"]}
    assert found["verdict"]["need"]
    _, faults = refused(client.post(f"{P}/need", json={"states": ["lost", "gone"]}), 422)
    assert len(faults) == 2


def test_arms_come_and_go(client):
    new = {"arms": [{"arm": "v2", "type": "small", "group": "valley"}, {"arm": "b3", "type": "big", "state": 2}]}
    assert told(client.post(f"{P}/arms", json=new))["arms"] == ["v2", "b3"]
    gone = client.delete(f"{P}/arms", params={"arm": ["v1", "b3"], "why": "sold"})
    assert told(gone)["step"] == 0
    names = [arm["arm"] for arm in told(client.get(f"{P}/arms"))["arms"]]
    assert names == ["b1", "b2", "h1", "h2", "v2"]
    everybody = told(client.get(f"{P}/arms?gone=true"))["arms"]
    assert next(arm for arm in everybody if arm["arm"] == "v1")["why"] == "sold"
    assert told(client.get(f"{P}/arms?step=7"))["arms"]


def test_a_plan_is_what_act_says(client, programme, tmp_path):
    plan = client.post(f"{P}/plan", json={"budget": {"hours": 2}}).json()
    with programme.store.reading() as tx:
        policy = programme.library.policy(tx, plan["policy"])
    states = [{key: row[key] for key in KINDS} | {"arm": str(n)} for n, row in enumerate(plan["rows"], start=1)]
    acted = policy.act(states, plan["seed"], budget=[2.0], step=plan["step"])
    assert [row.action for row in acted.rows] == [row["action"] for row in plan["rows"]]
    assert plan["used"] == acted.used


def test_every_fault_is_reported(client, programme):
    before = programme.status().events
    wrong = {"observations": [{"arm": "b9", "state": "fine"}, {"arm": "b2", "state": "broke"}], "source": "walk"}
    problem, faults = refused(client.post(f"{P}/observations", json=wrong), 422)
    assert problem["type"] == "urn:evenhand:invalid-input"
    assert len(faults) == 2
    assert 'Did you mean "broken"?' in faults[1]
    _, faults = refused(client.post(f"{P}/observations", json={"observations": [{"arm": 3}], "more": 1}), 422)
    places = {fault.partition(":")[0] for fault in faults}
    assert places == {"observations[0].arm", "observations[0].state", "source", "more"}
    _, faults = refused(client.get(f"{P}/events?after=x&most=0"), 422)
    assert {fault.partition(":")[0] for fault in faults} == {"query after", "query most"}
    assert programme.status().events == before


@pytest.mark.parametrize("value", ["1.0", "+1", "1_0", " 1", "-1", "١", "1e1", "true"])
def test_numbers_in_addresses_are_digits(client, value):
    refused(client.get(f"{P}/events", params={"after": value}), 422)


@pytest.mark.parametrize("step", [True, "0", 0.5, None])
def test_nothing_is_converted(client, step):
    body = {"observations": [{"arm": "b1", "state": "fine"}], "source": "walk", "step": step}
    answer = client.post(f"{P}/observations", json=body)
    assert answer.status_code == (200 if step is None else 422)


def test_what_is_not_there(client):
    for address in (f"{P}/plan", f"{P}/plan/9", "/v1/jobs/nothing", "/v1/nothing", "/v1/jobs/nothing/events"):
        refused(client.get(address), 404)
    refused(client.post(f"{P}/plan/9/accept"), 404)
    refused(client.get(f"{P}/plan/{10**12}"), 422)
    problem, _ = refused(client.put(P, json={}), 405)
    assert problem["title"]


def test_an_outdated_plan_is_refused_with_what_changed(client):
    plan = client.post(f"{P}/plan").json()
    client.post(f"{P}/observations", json={"observations": [{"arm": "b2", "state": "fine"}], "source": "walk"})
    client.post(f"{P}/arms", json={"arms": [{"arm": "v2", "type": "small", "group": "valley"}]})
    problem, faults = refused(client.post(f"{P}/plan/{plan['id']}/accept"), 409)
    assert problem["type"] == "urn:evenhand:conflict"
    assert any(fault.startswith("v2: joined") for fault in faults)
    assert any(fault.startswith("b2: ") for fault in faults)
    again = client.post(f"{P}/plan").json()
    assert again["id"] != plan["id"]
    told(client.post(f"{P}/plan/{again['id']}/accept"))
    refused(client.post(f"{P}/plan/{again['id']}/accept"), 409)
    refused(client.post(f"{P}/plan", json={"step": 0}), 409)


WRITES = {
    "join": ("POST", f"{P}/arms", {"arms": [{"arm": "v2", "type": "small", "group": "valley"}]}),
    "leave": ("DELETE", f"{P}/arms?arm=v1&why=sold", None),
    "observe": ("POST", f"{P}/observations", {"observations": [{"arm": "b1", "state": 2}], "source": "walk"}),
    "plan": ("POST", f"{P}/plan", {}),
    "accept": ("POST", f"{P}/plan/1/accept", {}),
    "record": ("POST", f"{P}/records", {"records": [{"arm": "b1", "action": "oil"}], "source": "log"}),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_key_is_answered_once(client, programme, write):
    if write in ("accept", "record"):
        client.post(f"{P}/plan")
    if write == "record":
        client.post(f"{P}/plan/1/accept")
    method, address, body = WRITES[write]
    ask = {"json": body} if body is not None else {}
    first = client.request(method, address, headers={"Idempotency-Key": "k1"}, **ask)
    assert first.status_code == 200, first.text
    events = programme.status().events
    again = client.request(method, address, headers={"Idempotency-Key": "k1"}, **ask)
    assert again.json() == first.json()
    assert programme.status().events == events
    other = {"observations": [{"arm": "h1", "state": 0}], "source": "another"}
    refused(client.post(f"{P}/observations", json=other, headers={"Idempotency-Key": "k1"}), 409)
    refused(client.request(method, address, headers={"Idempotency-Key": "k" * 201}, **ask), 422)


@pytest.mark.parametrize("address", [P, f"{P}/arms", f"{P}/plan"])
def test_the_newest_version_is_not_sent_again(client, address):
    client.post(f"{P}/plan")
    first = client.get(address)
    tag = first.headers["etag"]
    same = client.get(address, headers={"If-None-Match": f'W/"x", {tag}'})
    assert (same.status_code, same.content) == (304, b"")
    client.post(f"{P}/arms", json={"arms": [{"arm": "v2", "type": "small", "group": "valley"}]})
    client.post(f"{P}/plan")
    assert client.get(address, headers={"If-None-Match": tag}).status_code == 200


def test_what_the_store_says_is_reported(client, programme, monkeypatch):
    from evenhand.errors import UnavailableError

    def gone():
        raise UnavailableError("pumps.db: the disk is full. Nothing was changed")

    monkeypatch.setattr(programme, "overview", gone)
    answer = client.get(P)
    refused(answer, 503)
    assert int(answer.headers["retry-after"]) > 0
    monkeypatch.setattr(programme.store, "check_writable", gone)
    problem, _ = refused(client.get("/readyz"), 503)
    assert not any(word in json.dumps(problem) for word in ("pumps", "disk")), "strangers see nothing of the database"
    assert client.get("/healthz").json() == {"status": "ok"}


def test_unexpected_errors_are_not_shown(client, programme, monkeypatch, caplog):
    def broken():
        raise RuntimeError("secret of Ada")

    monkeypatch.setattr(programme, "overview", broken)
    problem, _ = refused(client.get(P), 500)
    assert "Ada" not in json.dumps(problem)
    assert "Traceback" not in json.dumps(problem)


KINDS = ("type", "group", "state")


def acted(capsys, folder, plan):
    """What the command `evenhand act` says of a plan's arms, which go by their numbers, by the file of its policy."""
    rows = [[str(number), *(row[key] for key in KINDS)] for number, row in enumerate(plan["rows"], start=1)]
    table = [",".join(row) for row in [["arm", *KINDS], *rows]]
    (folder / "states.csv").write_text("\n".join(table) + "\n")
    budget = ",".join(str(amount) for amount in plan["budget"].values())
    options = ["--seed", str(plan["seed"]), "--step", str(plan["step"]), "--budget", budget, "--json"]
    capsys.readouterr()
    assert run(["act", str(folder / "plan.zip"), str(folder / "states.csv"), *options]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_service_plans_as_the_command_acts(client, programme, tmp_path, capsys):
    """On days of all kinds: arms that are not seen, other budgets, a plan of the day before that was changed."""
    rng = random.Random(3)
    for _ in range(8):
        arms = [arm["arm"] for arm in client.get(f"{P}/arms").json()["arms"]]
        seen = [{"arm": arm, "state": rng.randrange(3)} for arm in rng.sample(arms, rng.randrange(1, len(arms) + 1))]
        client.post(f"{P}/observations", json={"observations": seen, "source": "walk"})
        plan = told(client.post(f"{P}/plan", json={"budget": {"hours": rng.randrange(0, 7)}}))
        with programme.store.reading() as tx:
            policy = select(schema.policies.c.body).where(schema.policies.c.digest == plan["policy"])
            (tmp_path / "plan.zip").write_bytes(tx.execute(policy).scalar())
        said = acted(capsys, tmp_path, plan)
        for name in ("type", "state", "action", "reason"):
            assert [row[name] for row in said["actions"]] == [row[name] for row in plan["rows"]]
        assert (said["used"], said["budget"]) == (plan["used"], plan["budget"])
        changed = [{"arm": rng.choice(arms), "action": "run", "why": "no key"}]
        assert client.post(f"{P}/plan/{plan['id']}/accept", json={"overrides": changed}).status_code == 200
