"""Servers as processes, clients that never give up, and what must be true of a programme afterwards."""

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter

import httpx

P = "/v1/programme"


class Server:
    """`evenhand serve`, as a process of its own."""

    def __init__(self, address, *options, environment=None):
        """Start it, and wait until it says where it is.

        Args:
            address: of a programme.
            options: of the command.
            environment: variables beside those of this process.
        """
        command = [sys.executable, "-m", "evenhand", "serve", str(address), "--port", "0", "--rate", "100000"]
        self.process = subprocess.Popen(
            [*command, "--json", "--quiet", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | (environment or {}),
        )
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        self.address = json.loads(line)["address"]

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self._close()

    def stop(self, number=signal.SIGTERM):
        """The exit code, and what was written to standard error."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors

    def _close(self):
        self.process.stdout.close()
        self.process.stderr.close()

    def ask(self, method, path, **more):
        return httpx.request(method, self.address + path, timeout=60, **more)


class Load:
    """Clients that observe, plan and accept, and ask again under the same key until they have an answer."""

    def __init__(self, addresses, clients=2, seed=0, pause=0.05):
        """Begin.

        Args:
            addresses: a function that gives the addresses of servers; they may change.
            clients: how many.
            seed: of what they do; those of another seed have other keys.
            pause: seconds between what a client does.
        """
        self.addresses, self.seed, self.pause, self.over = addresses, seed, pause, threading.Event()
        self.accepted, self.seen, self.odd = [], [], []
        self.statuses, self.numbers = Counter(), itertools.count()
        self.lock = threading.Lock()
        self.threads = [
            threading.Thread(target=self._run, args=(random.Random(f"{seed}-{n}"), n)) for n in range(clients)
        ]
        for thread in self.threads:
            thread.start()

    def end(self):
        self.over.set()
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive(), "a client is still waiting"

    def wait_for_steps(self, steps, seconds=60):
        end = time.monotonic() + seconds
        while len(self.accepted) < steps:
            assert time.monotonic() < end, f"too slow: {self.statuses}"
            time.sleep(0.01)

    def wait_for(self, status, more=1, seconds=60):
        """Until so many more answers have had a status."""
        end, wanted = time.monotonic() + seconds, self.statuses[status] + more
        while self.statuses[status] < wanted:
            assert time.monotonic() < end, f"nothing was answered by {status}: {self.statuses}"
            time.sleep(0.01)

    def _run(self, rng, number):
        with httpx.Client(timeout=20) as client:
            while not self.over.is_set():
                self._observe(client, rng, number)
                self._accept(client, rng)
                time.sleep(self.pause)

    def _observe(self, client, rng, number):
        source = f"client {number} report {next(self.numbers)}"
        rows = [{"arm": arm, "state": rng.randrange(3)} for arm in rng.sample(["b1", "b2", "h1", "h2", "v1"], 2)]
        answer = self._insist(client, rng, f"{P}/observations", {"observations": rows, "source": source}, source)
        if answer is not None and answer.status_code == 200:
            self.seen.append(source)

    def _accept(self, client, rng):
        plan = self._insist(client, rng, f"{P}/plan", {}, f"plan {next(self.numbers)}")
        if plan is None or plan.status_code != 200:
            return
        key, told = f"accept {next(self.numbers)}", plan.json()
        arms = rng.sample([row["arm"] for row in told["rows"]], rng.randrange(3))
        changed = [{"arm": arm, "action": rng.choice(["run", "oil", "repair"]), "why": "load"} for arm in arms]
        answer = self._insist(client, rng, f"{P}/plan/{told['id']}/accept", {"overrides": changed}, key)
        if answer is not None and answer.status_code == 200:
            with self.lock:
                self.accepted.append(answer.json())

    def _insist(self, client, rng, path, body, key):
        """Ask until there is an answer that is one; None if it came to nothing before the end."""
        key = f"{self.seed}-{key.replace(' ', '-')}"
        for _ in range(2000):
            try:
                answer = client.post(rng.choice(self.addresses()) + path, json=body, headers={"Idempotency-Key": key})
            except httpx.TransportError as error:
                self.statuses["nobody there" if isinstance(error, httpx.ConnectError) else "cut off"] += 1
                time.sleep(0.2)
            else:
                self.statuses[answer.status_code] += 1
                too_much = answer.status_code == 422 and "would be used" in answer.text
                if answer.status_code not in (200, 202, 409, 429, 503) and not too_much:
                    self.odd.append(answer.text)
                if answer.status_code in (200, 404, 409, 422, 500):  # a plan that a restored copy lacks stays unknown
                    return answer
            if self.over.is_set() and rng.random() < 0.05:
                return None
            time.sleep(0.05)
        return None


def check_whole(programme, load):
    """No accepted decision lost, none doubled, budgets kept, the log whole, plans as they were computed."""
    print(f"\n{len(load.accepted)} steps accepted, answers by status: {dict(load.statuses)}")
    assert not load.odd, load.odd
    assert programme.verify().event == programme.status().events
    plans = {plan.id: plan for plan in programme.plans(status="accepted")}
    steps = sorted(plan.step for plan in plans.values())
    assert steps == list(range(len(steps)))
    events = programme.events()
    told = [event.body["plan"] for event in events if event.kind == "accepted"]
    assert sorted(told) == sorted(plans)
    for answer in load.accepted:
        assert plans[answer["plan"]].accepted_event == answer["event"]
        assert plans[answer["plan"]].step == answer["step"]
    assert len({answer["plan"] for answer in load.accepted}) == len(load.accepted)
    times = Counter(event.body["source"] for event in events if event.kind == "observed")
    assert max(times.values(), default=1) == 1
    assert all(times[source] == 1 for source in load.seen)
    for number in plans:
        plan = programme.plan_of(number)
        assert all(row.accepted for row in plan.rows)
        assert all(plan.accepted_used[name] <= plan.budget[name] + 1e-9 for name in plan.budget)
    if plans:
        programme.recompute(max(plans))


def is_running(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
