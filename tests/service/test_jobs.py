"""Long computations: told, waited for, cancelled, refused, done once."""

import asyncio
import json
import resource
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest

from evenhand.model.files import save
from evenhand.planning.plan import load_plan, save_solution
from evenhand.planning.solve import solve
from evenhand.problems import machine_replacement
from evenhand.programme import schema
from evenhand.programme.programme import Programme
from evenhand.service import shapes
from evenhand.service.tokens import Tokens, make_token

P = "/v1/programme"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model as JSON."""
    file = tmp_path_factory.mktemp("models") / "model.json"
    save(machine_replacement(num_arms=3), file)
    return json.loads(file.read_text())


def asking(model, states=(0, 2, 1), **more):
    rows = [{"arm": f"m{number}", "state": state} for number, state in enumerate(states)]
    return {"model": model, "states": rows, **more}


def wait_for(check, seconds=60.0):
    """What a check gives, as soon as it gives something."""
    end = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
    return found


def ended(client, job):
    def look():
        told = client.get(f"/v1/jobs/{job}").json()
        return told if told["status"] not in ("waiting", "running") else None

    return wait_for(look)


def events_of(client, job):
    """The events of a stream: what they are, and what they say."""
    with client.stream("GET", f"/v1/jobs/{job}/events") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        text = "".join(stream.iter_text())
    blocks = [block.split("\n") for block in text.split("\n\n") if block.startswith("event")]
    return [(kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for kind, data in blocks]


class TestDeciding:
    """One server for all of them: what it computes with takes a second to start."""

    def test_decide_is_act(self, client, model, tmp_path):
        problem = machine_replacement(num_arms=3)
        save_solution(solve(problem, welfare="gini:2", rng=5), tmp_path / "plan.zip")
        plan = load_plan(tmp_path / "plan.zip")
        for states in ((0, 2, 1), (2, 2, 2), (1, 0, 0)):
            asked = asking(model, states, welfare="gini:2", seed=5)
            answer = client.post("/v1/decide", json=asked)
            assert answer.status_code == 200, answer.text
            shapes.Decided.model_validate_json(answer.content)
            assert answer.json() == plan.act(asked["states"], 5).as_dict()
        text = client.get("/metrics").text
        assert 'evenhand_decide_models_total{kept="no"} 1.0' in text
        assert 'evenhand_decide_models_total{kept="yes"} 2.0' in text
        self.faults(client, model)
        self.failures(client, model)

    def faults(self, client, model):
        broken = json.loads(json.dumps(model))
        broken["arms"][0]["transitions"][0][0][0] += 0.5
        broken["budget"] = "much"
        answer = client.post("/v1/decide", json=asking(broken))
        assert answer.status_code == 422
        places = {fault["place"] for fault in answer.json()["faults"]}
        assert places == {"arms[0].transitions[0][0]", "budget[0]"}
        answer = client.post("/v1/decide", json=asking(model, (0, 9, "old"), welfare="gini:2", seed=5))
        assert answer.status_code == 422
        assert len(answer.json()["faults"]) == 2

    def failures(self, client, model):
        for wrong in ({"welfare": "envy"}, {"criterion": "soon"}, {"method": "whittle", "over": "groups", "part": 3}):
            assert client.post("/v1/decide", json=asking(model, **wrong)).status_code == 422


@pytest.mark.slow
def test_only_so_many_models_are_kept(programme, serving, model):
    client = serving(programme, kept_models=1)
    for seed in (0, 1, 0):
        assert client.post("/v1/decide", json=asking(model, seed=seed, method="counts")).status_code == 200
    assert 'evenhand_decide_models_total{kept="no"} 3.0' in client.get("/metrics").text


def test_progress_cancelling_and_a_full_queue(programme, serving):
    """One story, since computing takes a while to start."""
    client = serving(programme, queue=1, patience=0.0)
    long = {"welfare": "gini:2", "seconds": 60.0}
    first = client.post(f"{P}/what-if", json=long | {"budget": [2]})
    assert first.status_code == 202
    job = first.json()["id"]
    assert first.headers["location"] == f"/v1/jobs/{job}"
    wait_for(lambda: client.get(f"/v1/jobs/{job}").json()["status"] == "running")
    assert client.post(f"{P}/what-if", json=long | {"budget": [2]}).json()["id"] == job
    second = client.post(f"{P}/what-if", json=long | {"budget": [1]}).json()["id"]
    full = client.post(f"{P}/what-if", json=long | {"budget": [4]})
    assert full.status_code == 429
    assert int(full.headers["retry-after"]) >= 1
    assert full.json()["type"] == "urn:evenhand:busy"
    waiting = client.delete(f"/v1/jobs/{second}").json()
    assert waiting["status"] == "cancelled"
    wait_for(lambda: client.get(f"/v1/jobs/{job}").json()["progress"] > 0)
    assert client.delete(f"/v1/jobs/{job}").json()["status"] == "cancelled"
    assert events_of(client, job)[-1][0] == "cancelled"
    short = client.post(f"{P}/what-if", json={"budget": {"hours": 2}, "welfare": "maximin"}).json()["id"]
    stream = events_of(client, short)
    assert [kind for kind, _ in stream[:-1]] == ["progress"] * (len(stream) - 1)
    assert stream[-1][0] == "done"
    answer = stream[-1][1]["answer"]
    shapes.Certificate.model_validate(
        {name: answer[name] for name in shapes.Certificate.model_fields} | {"numbers": []}
    )
    assert set(answer["difference"]) == {"welfare", "stderr", "measurable"}
    shares = [told["progress"] for _, told in stream]
    assert shares[0] == 0.0
    assert shares[-1] == 1.0
    listed = client.get("/v1/jobs")
    shapes.JobList.model_validate_json(listed.content)
    assert {one["status"] for one in listed.json()["jobs"]} == {"done", "cancelled"}
    wrong = client.post(f"{P}/what-if", json={"welfare": "envy"}).json()["id"]
    told = ended(client, wrong)
    assert told["status"] == "failed"
    assert told["problem"]["status"] == 422


# Shares


@pytest.fixture
def holders(tmp_path):
    """A file of tokens, and the headers of two readers and a writer."""
    file = tmp_path / "tokens"
    made = {name: make_token(file, name.split("-")[0], name) for name in ("read-1", "read-2", "write")}
    return Tokens.read(file), {name: {"Authorization": f"Bearer {token}"} for name, token in made.items()}


def test_readers_do_not_delay_writers(programme, serving, model, holders):
    """Nine jobs of one reader: so many as its share are taken, another reader waits, and a writer does not."""
    tokens, heads = holders
    client = serving(programme, tokens=tokens, patience=0.0, share=2)

    def decide(holder, seed):
        return client.post("/v1/decide", json=asking(long, seed=seed), headers=heads[holder])

    long = model | {"budget": [1.0]}
    with stopped(client):
        answers = [decide("read-1", seed) for seed in range(9)]
        assert [answer.status_code for answer in answers] == [202] * 2 + [429] * 7
        jobs = [answer.json()["id"] for answer in answers[:2]]
        other = decide("read-2", 9).json()["id"]
        assert client.post(f"{P}/what-if", json={"budget": [2]}, headers=heads["read-1"]).status_code == 403
        own = client.post(f"{P}/what-if", json={"budget": [2], "welfare": "maximin"}, headers=heads["write"]).json()
        statuses = {job: client.get(f"/v1/jobs/{job}", headers=heads["read-1"]).json()["status"] for job in jobs}
        assert "waiting" in statuses.values()
        assert client.delete(f"/v1/jobs/{other}", headers=heads["read-1"]).status_code == 403
        assert client.delete(f"/v1/jobs/{own['id']}", headers=heads["read-1"]).status_code == 403
        assert client.delete(f"/v1/jobs/{jobs[1]}", headers=heads["read-1"]).json()["status"] == "cancelled"
        assert decide("read-1", 1).status_code == 202, "there is room again"
        wait_for(lambda: client.get(f"/v1/jobs/{own['id']}", headers=heads["write"]).json()["status"] == "done")
        shared = decide("write", 1).json()["id"]
        assert shared == jobs[1]
        wait_for(lambda: client.get(f"/v1/jobs/{shared}", headers=heads["write"]).json()["status"] == "done")
        told = client.get(f"/v1/jobs/{jobs[0]}", headers=heads["read-1"]).json()
        assert told["status"] == "running", "readers' jobs are held up, and not writers'"


@contextmanager
def stopped(client):
    """Readers' jobs do not go on: each is held before its worker is asked."""
    jobs, go_on = client.app.state.service.jobs, threading.Event()
    do = jobs._do

    async def held(job, role):
        if role == "read":
            job.change(status="running")
            while not go_on.is_set():
                await asyncio.sleep(0.02)
        await do(job, role)

    jobs._do = held
    try:
        yield
    finally:
        go_on.set()


def test_a_job_has_so_much_time(programme, serving):
    client = serving(programme, job_seconds={"read": 1.0, "write": 1.0})
    long = client.post(f"{P}/what-if", json={"welfare": "gini:2", "seconds": 600.0, "budget": [2]}).json()["id"]
    told = ended(client, long)
    assert (told["status"], told["problem"]["status"]) == ("failed", 422)
    assert told["problem"]["detail"].startswith("it took longer than 1 second")
    client.app.state.service.settings.job_seconds["write"] = 600.0
    short = client.post(f"{P}/what-if", json={"budget": {"hours": 2}, "welfare": "maximin"}).json()["id"]
    assert ended(client, short)["status"] == "done"
    (worker,) = client.app.state.service.jobs._workers.values()
    if hasattr(resource, "prlimit"):
        most = resource.prlimit(worker._process.pid, resource.RLIMIT_DATA)[0]
        assert most == client.app.state.service.settings.job_memory


def test_a_worker_has_so_much_memory():
    """What does not fit raises an error that the job is answered with; the machine goes on."""
    steps = ["from evenhand.service import worker", "worker._limit_memory(2**29)", "bytearray(2**28)", "print('fits')"]
    code = "\n".join([*steps, "bytearray(2**30)"])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "fits\n"
    assert done.stderr.endswith("MemoryError\n")


@pytest.mark.slow
def test_a_plan_waits_for_a_policy(tmp_path, pumps, serving):
    with Programme.create(tmp_path / "new.db", pumps, [{"arm": "b1", "type": "big", "state": 1}]) as programme:
        client = serving(programme, patience=0.0)
        first = client.post(f"{P}/plan", headers={"Idempotency-Key": "p"})
        assert first.status_code == 202
        shapes.JobShape.model_validate_json(first.content)
        assert ended(client, first.json()["id"])["status"] == "done"
        again = client.post(f"{P}/plan", headers={"Idempotency-Key": "p"})
        assert again.status_code == 200
        assert again.json()["rows"][0]["arm"] == "b1"
        assert [event.kind for event in programme.events()] == ["created", "solved", "planned"]


@pytest.mark.slow
def test_a_drifted_roster_is_solved_in_the_background(programme, serving):
    client = serving(programme, look_every=3600.0)
    policy = client.get(P).json()["drift"]["policy"]
    new = {"arms": [{"arm": f"v{number}", "type": "small", "group": "valley"} for number in range(2, 5)]}
    client.post(f"{P}/arms", json=new)
    wait_for(lambda: not (told := client.get(P).json()["drift"])["needed"] and told["policy"] != policy)
    assert programme.events()[-1].kind == "solved"
    assert programme.events()[-1].who == "server"


@pytest.mark.slow
def test_what_cannot_be_solved_is_told(tmp_path, pumps, serving):
    from dataclasses import replace

    floors = replace(pumps, floors=[1.0, 1.0, 1.0])
    with Programme.create(
        tmp_path / "new.db", floors, [{"arm": f"b{n}", "type": "big"} for n in range(9)]
    ) as programme:
        client = serving(programme)
        answer = client.post(f"{P}/plan")
        assert answer.status_code == 422, answer.text
        shapes.Problem.model_validate_json(answer.content)


# Two servers


def test_two_servers_solve_once(tmp_path, pumps, serving):
    """The second follows what the first says of it, to the end."""
    where = tmp_path / "new.db"
    roster = [{"arm": f"b{number}", "type": "big", "state": 1} for number in range(3)]
    with Programme.create(where, pumps, roster) as one, Programme.open(where) as other:
        clients = [serving(programme, patience=0.0) for programme in (one, other)]
        answers = [client.post(f"{P}/plan") for client in clients]
        assert [answer.status_code for answer in answers] == [202, 202]
        jobs = [answer.json() for answer in answers]
        assert jobs[0]["id"] == jobs[1]["id"]
        assert events_of(clients[1], jobs[0]["id"])[-1][0] == "done"
        plans = [client.post(f"{P}/plan").json() for client in clients]
        assert plans[0] == plans[1]
        assert [event.kind for event in one.events()] == ["created", "solved", "planned"]


def _put_on_board(programme, job, worker):
    row = {"id": job, "kind": "solve", "status": "running", "request_json": "{}", "progress": 0.5, "message": "far"}
    with programme.store.writing() as tx:
        tx.execute(schema.jobs.insert().values(**row, worker=worker, asked_at="then", seen_at="then"))


def test_a_job_of_another_server_is_cancelled_there(programme, serving):
    client = serving(programme)
    _put_on_board(programme, "solve-elsewhere", "elsewhere:1:x")
    told = client.get("/v1/jobs/solve-elsewhere").json()
    assert (told["status"], told["progress"]) == ("running", 0.5)
    assert client.delete("/v1/jobs/solve-elsewhere").json()["status"] == "cancelled"
    with programme.store.reading() as tx:
        assert tx.execute(schema.jobs.select()).one().status == "cancelled"


def test_a_silent_server_is_followed_no_longer(programme, serving, monkeypatch):
    from evenhand.service import board

    monkeypatch.setattr(board, "SILENT", 0.3)
    monkeypatch.setattr(board, "WATCH", 0.05)
    client = serving(programme)
    _put_on_board(programme, "solve-silent", "elsewhere:1:x")
    assert client.get("/v1/jobs/solve-silent").json()["status"] == "running"
    assert events_of(client, "solve-silent")[-1][0] == "cancelled"


@pytest.mark.slow
def test_a_policy_is_solved_again_when_another_has_taken_its_place(programme, serving):
    client = serving(programme)
    solved = []
    for method in ("fluid", "counts", "fluid"):
        job = ended(client, client.post(f"{P}/solve", json={"method": method, "seconds": 0.5}).json()["id"])
        solved.append(job["answer"]["policy"])
        assert client.post(f"{P}/plan").json()["policy"] == solved[-1]
    assert solved[0] != solved[1]


def test_a_server_that_is_gone_leaves_its_job(programme, serving):
    import socket

    client = serving(programme)
    asked = {"method": "fluid", "seconds": None}
    job = client.portal.call(_name_of_solve, client.app.state.service, asked)
    _put_on_board(programme, job, f"{socket.gethostname()}:999999999:x")
    told = client.post(f"{P}/solve").json()
    assert told["id"] == job
    assert ended(client, job)["status"] == "done"


async def _name_of_solve(service, asked):
    return service.solver._name(asked, service.programme.needs_solving())
