"""The description at /openapi.json is true: whatever it allows or not, no 500, and only answers it describes."""

import threading

import pytest
import requests
import schemathesis
import uvicorn
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import load_all_checks
from schemathesis.specs.openapi.checks import (
    missing_required_header,
    positive_data_acceptance,
    unsupported_method,
)

from evenhand.programme import Programme, Settings, create_app, listen

UNLIKE_THEM = [
    positive_data_acceptance,  # what a model or a roster must be besides, no schema can say
    missing_required_header,
    unsupported_method,
]
COMPUTING = (
    "/v1/programme/solve",
    "/v1/programme/what-if",
    "/v1/programme/fairness",
    "/v1/programme/refits",
    "/v1/decide",
    "/v1/programme/changes/preview",
)
"""What starts a process; tried by the slow run only."""

load_all_checks()


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def server(request, template, tmp_path_factory, pumps):
    """A server in a thread, with a plan that is accepted and one that is proposed."""
    if request.param == "sqlite":
        where = tmp_path_factory.mktemp("openapi") / "pumps.db"
        where.write_bytes(template.read_bytes())
        programme = Programme.open(where)
    else:
        where = request.getfixturevalue("postgresql").database()
        roster = [{"arm": name, "type": "big", "state": 1} for name in ("b1", "b2")]
        programme = Programme.create(where, pumps, roster, welfare="utilitarian")
        programme.solve()
    programme.accept(programme.plan().plan)
    programme.plan()
    quick = Settings(rate=1e6, burst=10**6, queue=1, patience=0.0, look_every=3600.0)
    app = create_app(programme, quick)
    listener = listen("127.0.0.1", 0)
    running = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on"))
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
    thread.start()
    yield app, f"http://127.0.0.1:{listener.getsockname()[1]}", programme
    running.should_exit = True
    thread.join(30)
    programme.close()


def cases(app, slow):
    """Requests that the description allows, and some that it does not."""
    schema = schemathesis.openapi.from_dict(app.openapi())
    found = [result.ok() for result in schema.get_all_operations()]
    modes = schemathesis.GenerationMode
    chosen = [one for one in found if slow or not (one.method == "post" and one.path in COMPUTING)]
    return st.one_of(
        [one.as_strategy(generation_mode=mode) for one in chosen for mode in (modes.POSITIVE, modes.NEGATIVE)]
    )


def try_many(server, number, slow):
    app, address, programme = server
    session = requests.Session()

    @settings(max_examples=number, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(case=cases(app, slow))
    def check(case):
        case.call_and_validate(base_url=address, session=session, excluded_checks=UNLIKE_THEM, timeout=30)

    check()
    assert programme.verify().event == programme.status().events


def test_what_is_described_is_true(server):
    try_many(server, 60, slow=False)


@pytest.mark.slow
def test_what_is_described_is_true_at_length(server):
    try_many(server, 1000, slow=True)
