"""A model that no longer fits: found in the background by one of several servers, offered, answered by a person."""

import importlib.util
import time
from dataclasses import replace
from pathlib import Path

import pytest

from evenhand.programme import Programme

from ..conftest import slow_after

P = "/v1/programme"
SOON = {"judge_every": 0.1, "refit_seconds": 0.1}

_spec = importlib.util.spec_from_file_location("pumps", Path(__file__).parents[1] / "programme" / "conftest.py")
_pumps = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_pumps)


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request, tmp_path):
    """Where a new programme may be, on each database in turn."""
    if request.param == "sqlite":
        return str(tmp_path / "new.db")
    return request.getfixturevalue("postgresql").database()


@pytest.fixture
def worn(address, pumps):
    """A programme whose pumps go round and round, which its model says cannot be; nothing is done for them."""
    with Programme.create(address, pumps, _pumps.ROSTER, name="pumps", welfare="utilitarian") as made:
        made.set_bounds({"records": 20, "level": 0.05})
        made.solve(seconds=0.1)
        for _ in range(8):
            plan = made.plan_of(made.plan().plan)
            made.accept(plan.id)
            after = {"fine": "worn", "worn": "broken", "broken": "fine"}
            made.record(
                [{"arm": r.arm, "action": "run", "next_state": after[r.state]} for r in plan.rows],
                "crew",
                confirmed=True,
            )
        yield made


def wait_for(check, seconds=60.0):
    """What a check gives, as soon as it gives something."""
    end = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)
    return found


@pytest.mark.parametrize("address", slow_after(1, ["postgresql", "sqlite"]), indirect=True)
def test_one_of_two_servers_offers_a_fit_and_a_person_answers(worn, address, serving):
    model = worn.status().model
    with Programme.open(address) as other:
        clients = [serving(programme, **SOON) for programme in (worn, other)]
        offers = [wait_for(lambda c=client: c.get(P).json()["offered"]) for client in clients]
        assert offers[0] == offers[1]
        fits = clients[1].get(f"{P}/refits").json()["refits"]
        assert [fit["id"] for fit in fits] == [offers[0]["refit"]]
        assert fits[0]["why"] == offers[0]["why"]
        time.sleep(0.5)  # they look again and again, and find it answered
        kinds = [event.kind for event in worn.events()]
        assert kinds.count("refitted") == 1
        assert "adopted" not in kinds
        assert worn.status().model == model
        where = f"{P}/refits/{offers[0]['refit']}/decline"
        assert clients[0].post(where, json={}).status_code == 422
        answers = [clients[n].post(where, json={"why": "winter"}, headers={"Idempotency-Key": "d"}) for n in (0, 1)]
        assert [answer.status_code for answer in answers] == [200, 200]
        assert answers[0].json() == answers[1].json()
        assert clients[1].post(where, json={"why": "winter"}).status_code == 409
        assert clients[1].get(P).json()["offered"] is None
        set_ = clients[0].post(f"{P}/bounds", json={"level": 0.2, "who": "ann"})
        assert set_.json() == {"change": 0.1, "gap": 0.02, "level": 0.2, "records": 20}
        assert clients[1].get(P).json()["bounds"] == set_.json()
        assert clients[1].post(f"{P}/bounds", json={"level": 2}).status_code == 422


@pytest.mark.slow
def test_the_certificate_is_that_of_the_present_roster_and_its_gap_is_looked_at(programme, serving):
    """One more pump in seven is within the bounds of numbers; the policy then is judged for the new roster."""
    programme.set_bounds({"change": 0.5})
    client = serving(programme)
    before = client.get(f"{P}/certificate").json()
    client.post(f"{P}/arms", json={"arms": [{"arm": "h9", "type": "small", "group": "hill"}]})
    wait_for(lambda: programme.uncertified() is None)
    found = programme.certificate()
    assert [list(row) for row in found.numbers] != before["numbers"]
    assert sum(row[2] for row in found.numbers) == 6
    with Programme.open(programme.store.full_address) as other:
        assert other.uncertified() == (found.policy, found.numbers)
        assert other.certificate() == found  # computed here, and not by the server's process
    kinds = [event.kind for event in programme.events()]
    assert "solved" not in kinds[kinds.index("joined") :]
    programme.learn_certificate(replace(found, gap=before["gap"] + 0.03))
    client.post(f"{P}/bounds", json={"gap": 0.04})
    assert not programme.needs_solving().needed
    client.post(f"{P}/bounds", json={"gap": 0.02})  # which wakes who looks
    wait_for(lambda: [event.kind for event in programme.events()][-1] == "solved")
    assert programme.events()[-1].who == "server"
    assert programme.certificate().for_roster
