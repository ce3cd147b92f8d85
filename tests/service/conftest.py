"""A small programme, and servers for it in this process."""

import asyncio
import importlib.util
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import jsonschema_rs
import pytest
import uvicorn
from starlette.testclient import TestClient

from evenhand.model import CoupledMDP
from evenhand.programme import Programme, Settings, configuration, create_app, listen

_spec = importlib.util.spec_from_file_location("pumps", Path(__file__).parents[1] / "programme" / "conftest.py")
_pumps = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_pumps)
ROSTER = _pumps.ROSTER

QUIET = {"look_every": 3600.0, "judge_every": 3600.0, "improve_seconds": 0.0}
"""Nothing is looked at in the background: tests solve when they say so."""


@pytest.fixture(scope="session")
def pumps():
    """Big and small pumps; soon forgotten, so that they are solved quickly."""
    arms = [_pumps.pump("big", 0.3), _pumps.pump("small", 0.2), _pumps.pump("small", 0.2)]
    groups = ["", "hill", "valley"]
    return CoupledMDP(arms, [3.0], discount=0.5, counts=[1, 1, 1], resources=["hours"], groups=groups)


@pytest.fixture(scope="session")
def template(tmp_path_factory, pumps):
    """The file of a programme with a policy; copied, it is one more."""
    where = tmp_path_factory.mktemp("template") / "pumps.db"
    with Programme.create(where, pumps, ROSTER, name="pumps", welfare="utilitarian") as made:
        made.solve()
        with made.store.engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    return where


@pytest.fixture
def programme(template, tmp_path):
    """A programme with a policy, at its first step."""
    copy = tmp_path / "pumps.db"
    copy.write_bytes(template.read_bytes())
    with Programme.open(copy) as opened:
        yield opened


def described(app):
    """A hook that compares every JSON answer of the API with the description at /openapi.json."""
    document = app.openapi()
    paths = {re.compile(re.sub(r"{\w+}", "[^/]+", path)): found for path, found in document["paths"].items()}

    def check(answer):
        known = (found for path, found in paths.items() if path.fullmatch(answer.request.url.path))
        operation = next(known, {}).get(answer.request.method.lower())
        if operation is None or "json" not in answer.headers.get("content-type", ""):
            return
        answer.read()
        schema = operation["responses"][str(answer.status_code)]["content"][answer.headers["content-type"]]["schema"]
        jsonschema_rs.validate(schema | {"components": document["components"]}, answer.json())

    return check


@pytest.fixture
def serving():
    """Clients of servers in this process."""
    clients = []

    def serve(programme, **settings):
        app = create_app(programme, Settings(**(QUIET | settings)))
        client = TestClient(app, base_url="http://localhost", raise_server_exceptions=False)
        client.event_hooks["response"].append(described(app))
        client.__enter__()
        clients.append(client)
        return client

    yield serve
    for client in clients:
        client.__exit__(None, None, None)


def run_alone(coroutine):
    """Run it in a thread of its own: in this one a browser's event loop may run already."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


@contextmanager
def served_by_thread(programme, unread=60.0, **settings):
    """The address of a server in a thread of this process."""
    listener = listen("127.0.0.1", 0, unread)
    chosen = Settings(**(QUIET | settings))
    app = create_app(programme, chosen)
    server = uvicorn.Server(configuration(app, chosen))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])), daemon=True)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        app.state.service.stop_soon()
        server.should_exit = True
        thread.join(20)


@pytest.fixture(scope="session")
def served():
    """Servers with sockets, in threads of this process."""
    return served_by_thread


@pytest.fixture
def client(programme, serving):
    return serving(programme)


@pytest.fixture(scope="session")
def live():
    """Servers as processes, and clients for them."""
    spec = importlib.util.spec_from_file_location("live", Path(__file__).parent / "live.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def solved_at(pumps):
    """Makes a new programme with a policy at an address."""

    def make(where):
        with Programme.create(where, pumps, ROSTER, name="pumps", welfare="utilitarian") as made:
            made.solve()
        return where

    return make


@pytest.fixture
def programme_at(request, template, tmp_path, solved_at):
    """The address of a new programme with a policy, on one database or the other."""

    def make(database):
        if database == "sqlite":
            where = tmp_path / "pumps.db"
            where.write_bytes(template.read_bytes())
            return where
        return solved_at(request.getfixturevalue("postgresql").database())

    return make
