"""A server under load: 100 clients for a minute on loopback, how it answers one of them alone, and its memory.

One of the clients plans: it sees all arms, has the plan made, accepts it, and goes on to the next step. The others
read, decide by a model of their own, and report late on the step before: several who plan the same step would mostly
be refused, since what one sees makes the plans of the others old.
Clients and server share this machine. Each client asks, waits for the answer, and asks again, so with many of them the
time of an answer is mostly that of the queue: 100 clients at 500 answers a second wait 200 ms each.
"""

import asyncio
import json
import random
import sqlite3
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from time import perf_counter, sleep
from typing import Any

import numpy as np
import psutil
import uvicorn

from evenhand.problems import machine_replacement
from evenhand.programme.api.schemas import ObserveRequest
from evenhand.programme.api.server import configuration, listen
from evenhand.programme.api.server_settings import Settings
from evenhand.programme.programme import Programme

CLIENTS, SECONDS, REQUESTS, STEPS = 100, 60.0, 100_000, 30
P = "/v1/programme"


class Connection:
    """One client's connection: a request, and its answer, as bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        sent = b"" if body is None else json.dumps(body).encode()
        kind = "" if body is None else "Content-Type: application/json\r\n"
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{kind}Content-Length: {len(sent)}\r\n\r\n"
        self.writer.write(head.encode() + sent)
        line = await self.reader.readuntil(b"\r\n\r\n")
        heads = line.decode("latin-1").lower()
        size = int(heads.partition("content-length: ")[2].partition("\r\n")[0])
        return int(heads[9:12]), await self.reader.readexactly(size)


@contextmanager
def served(what: Path | list[str]) -> Iterator[tuple[int, psutil.Process]]:
    """The port of a server for a programme, or of a command, and its process."""
    command = [sys.executable, "-m", "evenhand", "serve", str(what), "--port", "0", "--json", "--quiet"]
    command = what if isinstance(what, list) else [*command, "--rate", "1000000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            address = json.loads(process.stdout.readline())["address"]
            yield int(address.rpartition(":")[2]), psutil.Process(process.pid)
        finally:
            process.terminate()


def programme_of(folder: Path, arms: int) -> Path:
    """A programme that is solved."""
    where = folder / f"machines-{arms}.db"
    model = machine_replacement(num_arms=arms, budget=max(1, arms // 10))
    roster = [{"arm": f"m{number}", "state": number % 3} for number in range(arms)]
    with Programme.create(where, model, roster, welfare="utilitarian") as programme:
        programme.solve(seconds=0.01)
    return where


def deciding(arms: int = 20) -> dict[str, object]:
    """A request to /v1/decide."""
    from evenhand.model.io import save

    with TemporaryDirectory() as folder:
        file = Path(folder) / "model.json"
        save(machine_replacement(num_arms=arms, budget=2), file)
        model = json.loads(file.read_text())
    states = [{"arm": f"m{number}", "state": number % 3} for number in range(arms)]
    return {"model": model, "states": states, "method": "whittle"}


class Clients:
    """Many clients, and how long each kind of request took."""

    def __init__(self, port: int, arms: int, process: psutil.Process | None = None) -> None:
        """Nobody asks yet.

        Args:
            port: of the server.
            arms: of its programme.
            process: of the server, where its processor time is told by kinds of requests: one client at a time.
        """
        self.port, self.arms, self.process = port, arms, process
        self.busy: dict[str, float] = defaultdict(float)
        self.decide = deciding()
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.statuses: dict[str, set[int]] = defaultdict(set)
        self.total, self.step, self.quick = 0, 0, False

    async def run(self, clients: int, until: float, most: int) -> None:
        await asyncio.gather(*(self._client(number, until, most) for number in range(clients)))

    async def _client(self, number: int, until: float, most: int) -> None:
        rng = random.Random(number)
        connection = Connection(*await asyncio.open_connection("127.0.0.1", self.port))
        does = self.plan_a_step if number == 0 and not self.quick else self._one
        while perf_counter() < until and self.total < most:
            await does(connection, rng)
        connection.writer.close()

    async def plan_a_step(self, connection: Connection, rng: random.Random) -> None:
        """What a planner does: nothing of the new plan is known before."""
        seen = [{"arm": f"m{number}", "state": rng.randrange(3)} for number in range(self.arms)]
        body = {"observations": seen, "source": "rounds"}
        await self._timed("observe all", connection, "POST", f"{P}/observations", body)
        _, answer = await self._timed("plan", connection, "POST", f"{P}/plan", {})
        await self._timed("read a plan", connection, "GET", f"{P}/plan")
        accepting = f"{P}/plan/{json.loads(answer)['id']}/accept"
        status, answer = await self._timed("accept", connection, "POST", accepting, {})
        if status == 200:
            self.step = json.loads(answer)["step"] + 1

    async def _one(self, connection: Connection, rng: random.Random) -> None:
        """Two of three are reads, a quarter decides, and some report late; quick ones are of the first two."""
        choice = rng.random() * (0.9 if self.quick or not self.step else 1.0)
        if choice < 0.65:
            await self._timed("read", connection, "GET", rng.choice([P, f"{P}/plans?most=5", f"{P}/events?most=5"]))
        elif choice < 0.9:
            await self._timed("decide", connection, "POST", "/v1/decide", self.decide)
        else:
            seen = [{"arm": f"m{rng.randrange(self.arms)}", "state": rng.randrange(3)}]
            body = {"observations": seen, "source": "load", "step": self.step - 1}
            await self._timed("observe", connection, "POST", f"{P}/observations", body)

    async def _timed(self, kind: str, connection: Connection, *asked: object) -> tuple[int, bytes]:
        before = busy(self.process) if self.process else 0.0
        begin = perf_counter()
        status, answer = await connection.ask(*asked)  # type: ignore[arg-type]
        self.seconds[kind].append(perf_counter() - begin)
        self.busy[kind] += (busy(self.process) if self.process else 0.0) - before
        self.statuses[kind].add(status)
        self.total += 1
        return status, answer

    def tell(self, passed: float) -> None:
        print(f"  {self.total / passed:8.0f} requests a second in all, {self.total} in {passed:.0f} s")
        for kind in sorted(self.seconds):
            times = 1000 * np.array(self.seconds[kind])
            p50, p99 = np.percentile(times, [50, 99])
            said = ", ".join(map(str, sorted(self.statuses[kind])))
            spent = f", {1000 * self.busy[kind] / len(times):.0f} ms of processor time each" if self.process else ""
            print(
                f"  {kind:11} {len(times) / passed:6.1f} a second, p50 {p50:6.1f} ms, p99 {p99:6.1f} ms; {said}{spent}"
            )


async def first_decision(port: int) -> None:
    """The first request for a model starts the process that computes, and has the model solved; all others find it."""
    connection = Connection(*await asyncio.open_connection("127.0.0.1", port))
    begin = perf_counter()
    status, _ = await connection.ask("POST", "/v1/decide", deciding())
    print(f"  the first decision, with its model solved: {perf_counter() - begin:.1f} s; answer {status}")
    connection.writer.close()


async def under_load(port: int, clients: int, seconds: float, most: int, quick: bool = False) -> Clients:
    load = Clients(port, 100)
    load.quick = quick
    begin = perf_counter()
    await load.run(clients, begin + seconds, most)
    load.tell(perf_counter() - begin)
    return load


# Beside a minimal endpoint


def minimal_app(file: str) -> Any:
    """The least that stores a report: FastAPI and one row of a SQLite file, with the durability of a programme."""
    from fastapi import FastAPI

    database, lock = sqlite3.connect(file, isolation_level=None, check_same_thread=False), Lock()
    for pragma in ("journal_mode = WAL", "synchronous = FULL"):
        database.execute(f"PRAGMA {pragma}")
    database.execute("CREATE TABLE IF NOT EXISTS seen (id INTEGER PRIMARY KEY, arm TEXT, state INTEGER, source TEXT)")
    app = FastAPI()

    @app.post("/seen")
    def observe(payload: ObserveRequest) -> dict[str, int]:
        with lock:
            database.execute("BEGIN IMMEDIATE")
            rows = [(row.arm, row.state, payload.source) for row in payload.observations]
            database.executemany("INSERT INTO seen (arm, state, source) VALUES (?, ?, ?)", rows)
            database.execute("COMMIT")
        return {"observations": len(rows)}

    @app.get("/seen")
    def status() -> dict[str, int]:
        with lock:
            return {"observations": database.execute("SELECT max(id) FROM seen").fetchone()[0] or 0}

    return app


def serve_minimal(file: str) -> None:
    """Serve the minimal endpoint with the settings of `evenhand serve`; its address goes to the console."""
    settings = Settings(rate=1e6)
    listener = listen("127.0.0.1", 0)
    print(json.dumps({"address": f"http://127.0.0.1:{listener.getsockname()[1]}"}), flush=True)
    uvicorn.Server(configuration(minimal_app(file), settings)).run(sockets=[listener])


async def rate_of(port: int, method: str, path: str, body: object, clients: int, seconds: float) -> float:
    """Answers per second to some clients, each of which repeats one request."""
    end, total = perf_counter() + seconds, 0

    async def repeat() -> None:
        nonlocal total
        connection = Connection(*await asyncio.open_connection("127.0.0.1", port))
        while perf_counter() < end:
            status, _ = await connection.ask(method, path, body)
            assert status == 200, status
            total += 1
        connection.writer.close()

    await asyncio.gather(*(repeat() for _ in range(clients)))
    return total / seconds


def beside_minimal(folder: Path, clients: int = 8, seconds: float = 3.0, rounds: int = 3) -> None:
    """Reports of one arm and statuses per second, in turns with those of the minimal endpoint."""
    body = {"observations": [{"arm": "m7", "state": 1}], "source": "load"}
    least = [sys.executable, "-m", "benchmarks.bench_service", str(folder / "minimal.db")]
    with served(programme_of(folder, 100)) as (port, process), served(least) as (other, its):
        for kind, method, ours, theirs, sent in (
            ("report of one arm", "POST", f"{P}/observations", "/seen", body),
            ("status", "GET", P, "/seen", None),
        ):
            settle(process)
            rates: dict[int, list[float]] = {port: [], other: []}
            spent: dict[int, float] = defaultdict(float)
            for _ in range(rounds):
                for place, path, server in ((port, ours, process), (other, theirs, its)):
                    begin = busy(server)
                    rates[place].append(asyncio.run(rate_of(place, method, path, sent, clients, seconds)))
                    spent[place] += (busy(server) - begin) / (rates[place][-1] * seconds * rounds)
            mine, its_own = max(rates[port]), max(rates[other])
            print(
                f"  {kind:18} {mine:6.0f} a second ({1000 * spent[port]:.2f} ms of processor time each), minimal "
                f"{its_own:6.0f} ({1000 * spent[other]:.2f} ms): {mine / its_own:.2f} of it"
            )


# Growth


def grown(folder: Path, arms: int, steps: int) -> Path:
    """A programme of some steps with reports, plans and records, and a plan for the next one."""
    where, rng = programme_of(folder, arms), np.random.default_rng(0)
    with Programme.open(where) as programme:
        for _ in range(steps):
            seen = [{"arm": f"m{n}", "state": int(rng.integers(3))} for n in range(arms) if rng.random() < 0.9]
            programme.observe(seen, "rounds")
            plan = programme.plan().plan
            programme.accept(plan)
            rows = programme.plan_of(plan).rows
            programme.record([{"arm": row.arm, "action": row.action} for row in rows], "sheets")
        programme.plan()
    return where


async def show_pages(port: int, process: psutil.Process) -> None:
    """Processor time of every page when it is first shown, shown again, and shown after a report of one arm."""
    print(f"  the start of the server took {1000 * settle(process):.0f} ms of processor time", flush=True)
    connection = Connection(*await asyncio.open_connection("127.0.0.1", port))

    async def spent(method: str, path: str, body: object = None) -> float:
        begin = busy(process)
        status, _ = await connection.ask(method, path, body)
        assert status == 200, (path, status)
        return 1000 * (busy(process) - begin)

    for path in (
        "/",
        "/?of=last",
        "/?q=m7&sort=arm",
        "/arms",
        "/arms/one?arm=m7",
        "/fairness",
        "/what-if",
        "/model",
        P,
    ):
        times = [await spent("GET", path) for _ in range(3)]
        body = {"observations": [{"arm": "m8", "state": 1}], "source": "load"}
        one = sum([await spent("POST", f"{P}/observations", body) for _ in range(20)]) / 20
        after = await spent("GET", path)
        print(
            f"  {path:18} first {times[0]:5.0f} ms, again {min(times):4.0f} ms, after a report {after:5.0f} ms; "
            f"one report of one arm {one:4.1f} ms of processor time",
            flush=True,
        )
    connection.writer.close()


def settle(process: psutil.Process) -> float:
    """Wait until a server that starts has filled its caches; the processor time that it took so far."""
    before, quiet = -1.0, 0
    while quiet < 3:  # a process that waits for the processor looks idle
        quiet = quiet + 1 if busy(process) - before < 0.02 else 0
        before = busy(process)
        sleep(1)
    return before


def busy(process: psutil.Process) -> float:
    """Seconds of the processor that a process took so far."""
    return float(process.cpu_times().user + process.cpu_times().system)


async def alone(port: int, arms: int, process: psutil.Process) -> None:
    """One client that plans, and the processor time of each kind of answer."""
    connection = Connection(*await asyncio.open_connection("127.0.0.1", port))
    load, rng = Clients(port, arms, process), random.Random(0)
    begin = perf_counter()
    for _ in range(STEPS):
        await load.plan_a_step(connection, rng)
    load.tell(perf_counter() - begin)
    connection.writer.close()


def main() -> None:
    with TemporaryDirectory() as folder:
        print("8 clients, beside a minimal endpoint (FastAPI and one row of SQLite) with the same server settings")
        beside_minimal(Path(folder))
    for arms, steps in ((50_000, 3), (100, 500)):
        with TemporaryDirectory() as folder:
            print(f"pages of a programme of {arms} arms after {steps} steps")
            with served(grown(Path(folder), arms, steps)) as (port, process):
                asyncio.run(show_pages(port, process))
    with TemporaryDirectory() as folder:
        print(
            "one client, a new plan for 1000 arms at every step; all of them are seen anew, and the answer has them all"
        )
        with served(programme_of(Path(folder), 1000)) as (port, process):
            asyncio.run(alone(port, 1000, process))
        with served(programme_of(Path(folder), 100)) as (port, process):
            print(f"{CLIENTS} clients for {SECONDS:.0f} s; a programme of 100 arms, decisions for 20")
            asyncio.run(first_decision(port))
            begin = busy(process)
            load = asyncio.run(under_load(port, CLIENTS, SECONDS, 10**9))
            print(f"  {1000 * (busy(process) - begin) / load.total:.1f} ms of the server's processor time a request")
            before = process.memory_info().rss / 2**20
            print(f"memory: {REQUESTS} requests more, reads and decisions")
            asyncio.run(under_load(port, 20, 7200.0, REQUESTS, quick=True))
            print(f"  {before:.1f} MiB before, {process.memory_info().rss / 2**20:.1f} MiB after", flush=True)


if __name__ == "__main__":
    serve_minimal(sys.argv[1]) if sys.argv[1:] else main()
