"""A cluster by Ray's client: a head in processes of its own, on loopback, with a token of its own."""

import os
import secrets
import signal
import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest

import evenhand as eh
from evenhand.errors import ClusterError
from evenhand.parallel import connect_ray

pytest.importorskip("ray")

SOLVE = """
import sys
import evenhand as eh
model = eh.open_arms(sys.argv[1], in_memory_rows=0)
found = eh.solve(model, "gini:half=0.75", backend=sys.argv[2])
found.save(sys.argv[3])
print(found.backend, found.welfare.hex(), found.upper_bound.hex())
"""


def free_port():
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        return door.getsockname()[1]


@pytest.fixture
def head(tmp_path_factory):
    """The address of a head for Ray's client, and the environment in which it answers."""
    around = os.environ | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    around["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    port, folder = free_port(), tmp_path_factory.mktemp("r")
    words = [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--disable-usage-stats"),
        *("--node-ip-address=127.0.0.1", f"--port={free_port()}", f"--ray-client-server-port={port}"),
        *("--num-cpus=2", "--include-dashboard=false", "--object-store-memory=100000000", f"--temp-dir={folder}"),
    ]
    with (folder / "said").open("w") as said:
        process = subprocess.Popen(words, env=around, stdout=said, stderr=said, start_new_session=True)
    try:
        yield f"ray://127.0.0.1:{port}", around
    finally:
        process.send_signal(signal.SIGTERM)  # it ends what it started
        process.wait(timeout=60)


@pytest.mark.slow  # a head and a client of it take half a minute
def test_a_cluster_by_its_client_gives_the_same_bits(head, tmp_path):
    address, around = head
    eh.save(eh.problems.random_coupled(num_arms=60, num_types=30, budget=6), tmp_path / "fleet.parquet")
    words = [sys.executable, "-c", SOLVE, str(tmp_path / "fleet.parquet"), address, str(tmp_path / "plan.parquet")]
    done = subprocess.run(words, env=around, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    here = eh.solve(eh.open_arms(tmp_path / "fleet.parquet", in_memory_rows=0), "gini:half=0.75")
    assert done.stdout.split() == [address, here.welfare.hex(), here.upper_bound.hex()]
    assert (tmp_path / "plan.parquet").exists()


@pytest.mark.parametrize(("address", "mode", "told"), [
    ("ray://127.0.0.1:1", None, True), ("ray://127.0.0.1:1", "token", False), ("127.0.0.1:1", None, False),
])  # fmt: skip
def test_a_failed_client_connection_hints_at_the_token(address, mode, told, monkeypatch):
    def refuse(address, **rest):
        raise ConnectionError("ray client connection timeout")

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=refuse, is_initialized=lambda: False))
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    if mode:
        monkeypatch.setenv("RAY_AUTH_MODE", mode)
    with pytest.raises(ClusterError, match="connection timeout") as refused:
        connect_ray(address)
    assert ("RAY_AUTH_TOKEN" in str(refused.value)) == told
