"""Long computations: told, waited for, cancelled, refused, done once."""

import asyncio
import json
import resource
import subprocess
import sys
import time
from contextlib import contextmanager

import psutil
import pytest

from evenhand.model import save
from evenhand.planning import load_plan, save_solution
from evenhand.planning.solve import solve
from evenhand.problems import machine_replacement
from evenhand.programme import Programme, Tokens
from evenhand.programme.api.service import repeat

from ..conftest import make_token
from .conftest import run_alone

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
            assert answer.json() == plan.act(asked["states"], 5).to_dict()
        text = client.get("/metrics").text
        assert 'evenhand_decide_models_total{cached="no"} 1.0' in text
        assert 'evenhand_decide_models_total{cached="yes"} 2.0' in text
        self.faults(client, model)
        self.failures(client, model)
        self.promises(client, model)

    def promises(self, client, model):
        states = model["arms"][0]["states"]
        asked = asking(model | {"max_wait": {states[2]: 2}}, (2, 2, 2), welfare="gini:2")
        for row, waiting in zip(asked["states"], (0, 2, 1), strict=True):
            row["waiting"] = waiting
        answer = client.post("/v1/decide", json=asked)
        assert answer.status_code == 200, answer.text
        assert [row["action"] for row in answer.json()["actions"]] == ["operate", "replace", "operate"]
        asked["model"]["max_wait"] = dict.fromkeys(states, 1)
        answer = client.post("/v1/decide", json=asked)
        assert answer.status_code == 422 and "2 steps" in answer.text

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
def test_only_so_many_models_are_stored(programme, serving, model):
    client = serving(programme, cached_models=1)
    for seed in (0, 1, 0):
        assert client.post("/v1/decide", json=asking(model, seed=seed, method="counts")).status_code == 200
    assert 'evenhand_decide_models_total{cached="no"} 3.0' in client.get("/metrics").text


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
    assert set(answer["difference"]) == {"welfare", "stderr", "measurable", "by_plan"}
    shares = [told["progress"] for _, told in stream]
    assert shares[0] == 0.0
    assert shares[-1] == 1.0
    listed = client.get("/v1/jobs")
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


@pytest.mark.slow
def test_readers_do_not_delay_writers(programme, serving, model, holders):
    """Nine jobs of one reader: so many as its share are taken, another reader waits, and a writer does not."""
    tokens, heads = holders
    client = serving(programme, tokens=tokens, patience=0.0, share=2)

    def decide(holder, seed):
        return client.post("/v1/decide", json=asking(long, seed=seed), headers=heads[holder])

    long = model | {"budget": [1.0]}
    with stopped(lambda: decide("read-1", 0)) as first:
        answers = [first, *(decide("read-1", seed) for seed in range(1, 9))]
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


def workers():
    """The worker processes of servers in this process."""
    return [one for one in psutil.Process().children() if "spawn_main" in " ".join(one.cmdline())]


@contextmanager
def stopped(decide):
    """The readers' worker does not go on after its first job has begun."""
    first = decide()
    (worker,) = wait_for(workers)
    worker.suspend()
    try:
        yield first
    finally:
        worker.resume()


@pytest.mark.slow
def test_a_job_has_so_much_time(programme, serving):
    client = serving(programme, job_seconds={"read": 0.02, "write": 0.02})
    long = client.post(f"{P}/what-if", json={"welfare": "gini:2", "seconds": 600.0, "budget": [2]}).json()["id"]
    told = ended(client, long)
    assert (told["status"], told["problem"]["status"]) == ("failed", 422)
    assert "0.02" in told["problem"]["detail"]
    client.app.state.service.settings.job_seconds["write"] = 600.0
    short = client.post(f"{P}/what-if", json={"budget": {"hours": 2}, "welfare": "maximin"}).json()["id"]
    assert ended(client, short)["status"] == "done"
    (worker,) = workers()
    if hasattr(resource, "prlimit"):
        most = resource.prlimit(worker.pid, resource.RLIMIT_DATA)[0]
        assert most == client.app.state.service.settings.job_memory


def test_a_worker_has_so_much_memory():
    """What does not fit raises an error that the job is answered with; the machine goes on."""
    code = """
import psutil
from evenhand.programme.api.jobs import limit_memory
limit_memory(psutil.Process().memory_info().data + 2**29)
bytearray(2**28)
print('fits')
bytearray(2**30)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "fits\n"
    assert done.stderr.endswith("MemoryError\n")


@pytest.mark.slow
def test_a_plan_waits_for_a_policy(tmp_path, pumps, serving):
    with Programme.create(tmp_path / "new.db", pumps, [{"arm": "b1", "type": "big", "state": 1}]) as programme:
        client = serving(programme, patience=0.0)
        first = client.post(f"{P}/plan", headers={"Idempotency-Key": "p"})
        assert first.status_code == 202
        assert ended(client, first.json()["id"])["status"] == "done"
        again = client.post(f"{P}/plan", headers={"Idempotency-Key": "p"})
        assert again.status_code == 200
        assert again.json()["rows"][0]["arm"] == "b1"
        assert [event.kind for event in programme.events()] == ["created", "solved", "planned"]


@pytest.mark.slow
def test_a_first_policy_is_improved_in_the_background(tmp_path, pumps, serving):
    roster = [{"arm": f"{kind}{number}", "type": kind} for kind in ("big", "small") for number in range(12)]
    roster = [row | ({"group": "hill"} if row["type"] == "small" else {}) for row in roster]
    with Programme.create(tmp_path / "new.db", pumps, roster, welfare="gini:2") as programme:
        client = serving(programme, first_seconds=1e-3, improve_seconds=5.0, look_every=0.2)
        begin = time.monotonic()
        while client.post(f"{P}/plan").status_code != 200:
            assert time.monotonic() < begin + 60
        wait_for(lambda: [event.kind for event in programme.events()].count("solved") == 2)
        drift = client.get(P).json()["drift"]
        assert not drift["improvable"] and not drift["needed"]
        solved = [event for event in programme.events() if event.kind == "solved"]
    first, better = (event.body["certificate"] for event in solved)
    assert better["policy"] == drift["policy"] and solved[1].who == "server"
    error = (first["stderr"] ** 2 + better["stderr"] ** 2) ** 0.5
    assert better["welfare"] >= first["welfare"] - 3 * error


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
def test_what_cannot_be_solved_is_reported(tmp_path, pumps, serving):
    from dataclasses import replace

    floors = replace(pumps, floors=[1.0, 1.0, 1.0])
    with Programme.create(
        tmp_path / "new.db", floors, [{"arm": f"b{n}", "type": "big"} for n in range(9)]
    ) as programme:
        client = serving(programme)
        answer = client.post(f"{P}/plan")
        assert answer.status_code == 422, answer.text


# Two servers


def test_two_servers_plan_a_step_once(tmp_path, pumps, serving):
    """Each server runs its own jobs; the transactions of the programme keep the plan single."""
    where = tmp_path / "new.db"
    roster = [{"arm": f"b{number}", "type": "big", "state": 1} for number in range(3)]
    with Programme.create(where, pumps, roster) as one, Programme.open(where) as other:
        clients = [serving(programme, patience=0.0) for programme in (one, other)]
        answers = [client.post(f"{P}/plan") for client in clients]
        assert [answer.status_code for answer in answers] == [202, 202]
        jobs = [answer.json()["id"] for answer in answers]
        assert jobs[0] == jobs[1]
        assert [ended(client, jobs[0])["status"] for client in clients] == ["done", "done"]
        plans = [client.post(f"{P}/plan").json() for client in clients]
        assert plans[0] == plans[1]
        assert [event.kind for event in one.events()].count("planned") == 1


def test_jobs_belong_to_one_server(programme, serving):
    clients = [serving(programme), serving(programme)]
    job = clients[0].post(f"{P}/what-if", json={"budget": [2], "welfare": "maximin"}).json()["id"]
    assert clients[1].get(f"/v1/jobs/{job}").status_code == 404
    assert clients[1].delete(f"/v1/jobs/{job}").status_code == 404
    assert ended(clients[0], job)["status"] == "done"


@pytest.mark.slow
def test_a_policy_is_solved_again_when_another_has_taken_its_place(programme, serving):
    client = serving(programme)
    solved = []
    for method in ("fluid", "counts", "fluid"):
        job = ended(client, client.post(f"{P}/solve", json={"method": method, "seconds": 0.5}).json()["id"])
        solved.append(job["answer"]["policy"])
        assert client.post(f"{P}/plan").json()["policy"] == solved[-1]
    assert solved[0] != solved[1]


def test_jobs_are_about_the_promises_in_force(programme, serving):
    client = serving(programme)
    paths = {"what-if": {"budget": [4], "seconds": 0.2}, "fairness": {"welfares": ["maximin"], "seconds": 0.2}}
    paths["changes/preview"] = {"budget": [4], "seconds": 0.2}

    def ask():
        jobs = {path: client.post(f"{P}/{path}", json=given).json()["id"] for path, given in paths.items()}
        assert [ended(client, jobs[path])["problem"] for path in paths] == [None, None, None]
        return jobs

    before = ask()
    assert before == ask()
    programme.change({"max_wait": [{"state": "broken", "steps": 9}]})
    programme.solve(seconds=0.2)
    after = ask()
    assert not set(before.values()) & set(after.values())


@pytest.mark.parametrize("turns", range(5))
def test_checks_end_if_a_wake_meets_their_end(turns):
    async def check():
        pass

    async def end_after_a_wake():
        wake = asyncio.Event()
        checks = asyncio.create_task(repeat(check, 60.0, wake, pause=0.0))
        await asyncio.sleep(0.01)
        wake.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        checks.cancel()
        return await asyncio.wait([checks], timeout=1.0)

    ended, going_on = run_alone(end_after_a_wake())
    assert ended and not going_on
