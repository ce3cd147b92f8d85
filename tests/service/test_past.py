"""Looking back and learning by the API, and the command that serves."""

import json

import pytest

from evenhand.cli import run
from evenhand.programme import Tokens

P = "/v1/programme"


def live_through(client, steps):
    """Steps in which everybody is seen, and all is done as planned."""
    for step in range(steps):
        plan = client.post(f"{P}/plan").json()
        client.post(f"{P}/plan/{plan['id']}/accept", json={})
        moved = {"fine": "worn", "worn": "broken", "broken": "fine"}
        done = [
            {
                "arm": row["arm"],
                "action": row["action"],
                "next_state": moved[row["state"]] if step % 2 else row["state"],
            }
            for row in plan["rows"]
        ]
        assert client.post(f"{P}/records", json={"records": done, "source": "log"}).status_code == 200


def test_history_and_audit(client, programme):
    live_through(client, 4)
    answer = client.get(f"{P}/history", params={"arm": "b1"})
    assert [entry["kind"] for entry in answer.json()["entries"]][:3] == ["joined", "seen", "decided"]
    assert answer.json()["entries"] == [entry.to_dict() for entry in programme.history("b1")]
    missing = client.get(f"{P}/history", params={"arm": "b9"})
    assert missing.status_code == 404
    audit = client.get(f"{P}/audit", params={"first": 1, "last": 2})
    assert audit.status_code == 200, audit.text
    assert (audit.json()["first"], audit.json()["last"]) == (1, 2)
    assert len(audit.json()["arms"]) == 5
    assert client.get(f"{P}/audit", params={"first": 3, "last": 1}).status_code == 422


@pytest.mark.slow
def test_a_refit_is_looked_at_and_adopted(client, programme):
    live_through(client, 6)
    before = programme.status().model
    job = client.post(f"{P}/refits", json={"who": "Ada", "trust": 1e6})
    assert job.status_code == 202, job.text
    with client.stream("GET", f"/v1/jobs/{job.json()['id']}/events") as stream:
        last = "".join(stream.iter_text()).rstrip().split("\n")[-1]
    told = json.loads(last.removeprefix("data: "))
    assert told["status"] == "done", told
    assert all(abs(row["after"] - row["before"]) < 1e-3 for row in told["answer"]["moved"])
    listed = client.get(f"{P}/refits")
    assert [one["id"] for one in listed.json()["refits"]] == [told["answer"]["id"]]
    assert programme.status().model == before
    adopted = client.post(f"{P}/refits/{told['answer']['id']}/adopt", headers={"Idempotency-Key": "a"})
    assert programme.status().model == told["answer"]["model"] != before
    again = client.post(f"{P}/refits/{told['answer']['id']}/adopt", headers={"Idempotency-Key": "a"})
    assert again.json() == adopted.json()
    assert client.post(f"{P}/refits/{told['answer']['id']}/adopt").status_code == 409
    assert client.post(f"{P}/refits/77/adopt").status_code == 404


# The command


def test_what_the_command_refuses(tmp_path, template, capsys):
    assert run(["serve", str(template), "--host", "0.0.0.0"]) == 2
    assert "0.0.0.0" in capsys.readouterr().err
    assert run(["serve", str(tmp_path / "nothing.db"), "--json"]) == 2
    assert "nothing.db" in json.loads(capsys.readouterr().out)["error"]
    assert run(["serve"]) == run(["serve", str(template), "--keep", "x"]) == 2


def test_the_command_makes_rotates_and_revokes_tokens(tmp_path, capsys):
    file = tmp_path / "tokens"

    def said(*words):
        assert run(["token", words[0], str(file), *words[1:], "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    assert run(["token", "create", str(file), "ada"]) == run(["token", "rotate", str(file), "ada"]) == 2
    first = said("create", "ada", "--role", "read", "--role", "report", "--group", "the hill")["token"]
    assert said("create", "bob", "--role", "all", "--no-token")["token"] == ""
    ada = Tokens.read(file).holder(first)
    assert (ada.name, ada.roles, ada.groups) == ("ada", {"read", "report"}, {"the hill"})
    assert run(["token", "create", str(file), "ada", "--role", "read"]) == 2
    second = said("rotate", "ada")["token"]
    assert Tokens.read(file).holder(first) is None
    assert Tokens.read(file).holder(second) == ada
    capsys.readouterr()
    assert [row["name"] for row in said("list")["holders"]] == ["ada", "bob"]
    said("revoke", "ada")
    assert Tokens.read(file).holder(second) is None
    assert file.stat().st_mode & 0o777 == 0o600
    assert not any(token in file.read_text() for token in (first, second))


@pytest.mark.slow
def test_a_demonstration_is_served(live, tmp_path):
    """Made once, and kept where that is asked for."""
    kept = tmp_path / "lifts.db"
    server = live.Server("demo", "--keep", str(kept))
    try:
        told = server.ask("GET", P).json()
        assert told["step"] > 10
        assert told["plan"] is not None
        assert kept.exists()
    finally:
        assert server.stop()[0] == 0
