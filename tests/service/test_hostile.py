"""Clients that mean harm or misbehave: others are answered meanwhile. All of them are on this machine, and bounded."""

import resource
import select
import socket
import threading
import time
from contextlib import ExitStack

import httpx
import psutil
import pytest

from evenhand.programme import Tokens, read_form

from ..conftest import make_token

FORM, JSON = "application/x-www-form-urlencoded", "application/json"

WAIT = 60.0
"""Seconds after which something that must happen has not."""


def where(address):
    host, _, port = address.removeprefix("http://").partition(":")
    return host, int(port)


def connect(address):
    return socket.create_connection(where(address), timeout=WAIT)


def is_closed(connection):
    """Whether the server closes a connection before a generous time has passed."""
    connection.settimeout(WAIT)
    try:
        while connection.recv(2**16):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


def drip(connection, data, every):
    """Send byte by byte until the connection is closed or nothing is left; how many were sent."""
    for place in range(len(data)):
        try:
            connection.sendall(data[place : place + 1])
        except OSError:
            return place
        time.sleep(every)
    return len(data)


@pytest.fixture
def tokens(tmp_path):
    """A file of tokens, and a token of each role."""
    file = tmp_path / "tokens"
    made = {role: make_token(file, role, role) for role in ("read", "write")}
    return Tokens.read(file), made


def nested(size):
    """Parts within parts, each announcing the next."""
    text, depth = b"", 0
    while len(text) < size:
        text += b"--%d\r\nContent-Type: multipart/mixed; boundary=%d\r\n\r\n" % (depth, depth + 1)
        depth += 1
    return text


def test_nested_parts_stop_nothing(served, programme, tokens):
    """345 kB to `/login`, without a token: it took 69 seconds of the event loop."""
    heads, statuses = {"Content-Type": "multipart/form-data; boundary=0"}, []
    with served(programme, tokens=tokens[0]) as address:

        def attack():
            try:
                statuses.append(httpx.post(f"{address}/login", content=nested(345_000), headers=heads, timeout=WAIT))
            except httpx.TransportError:  # it was refused while it was still writing
                statuses.append(None)

        thread = threading.Thread(target=attack)
        thread.start()
        while thread.is_alive():
            assert httpx.get(f"{address}/healthz", timeout=WAIT / 2).status_code == 200
        assert statuses[0] is None or statuses[0].status_code == 413


def test_forms_are_parsed_beside_the_event_loop(served, programme, monkeypatch):
    begun, go_on = threading.Event(), threading.Event()

    def parse(body, kind):
        begun.set()
        assert go_on.wait(WAIT)
        return read_form(body, kind)

    monkeypatch.setattr("evenhand.programme.web.layout.read_form", parse)
    with served(programme) as address:
        heads = {"Content-Type": FORM, "Origin": address}
        sending = threading.Thread(
            target=httpx.post, args=(f"{address}/today/changes",), kwargs={"content": b"a=b", "headers": heads}
        )
        sending.start()
        assert begun.wait(WAIT)
        assert httpx.get(f"{address}/healthz", timeout=WAIT / 2).status_code == 200
        go_on.set()
        sending.join(WAIT)


def test_bodies_without_a_token_are_small(served, programme, tokens):
    with served(programme, tokens=tokens[0]) as address:
        for size, status in ((4096, 401), (4097, 413)):
            answer = httpx.post(f"{address}/login", content=b"a" * size, headers={"Content-Type": FORM}, timeout=WAIT)
            assert answer.status_code == status
        write = {"Authorization": f"Bearer {tokens[1]['write']}", "Content-Type": "application/json"}
        assert httpx.post(f"{address}/v1/decide", content=b" " * 4097, headers=write).status_code in (400, 422)


def test_bodies_of_one_client_share_a_bound(served, programme, tokens):
    """Ten bodies that never end, of which each would be small enough; another client is served."""
    bounds = {"largest_body": 1000, "held_bodies": 2500, "slowest_body": WAIT}
    with served(programme, tokens=tokens[0], **bounds) as address, ExitStack() as stack:
        opened = [stack.enter_context(connect(address)) for _ in range(10)]
        for connection in opened:
            connection.sendall(head(tokens[1]["read"]) + b" " * 900)
        end = time.monotonic() + WAIT
        while len(answered := select.select(opened, [], [], 0.1)[0]) < 8:
            assert time.monotonic() < end, "two of them fit into the bound"
        assert all(b" 429 " in first_line(one, WAIT) for one in answered)
        write = {"Authorization": f"Bearer {tokens[1]['write']}"}
        answer = httpx.post(f"{address}/v1/decide", content=b" " * 900, headers=write | {"Content-Type": JSON})
        assert answer.status_code in (400, 422)


def head(token, size=999):
    lines = ["POST /v1/decide HTTP/1.1", "Host: localhost", f"Authorization: Bearer {token}"]
    lines += [f"Content-Type: {JSON}", f"Content-Length: {size}", "", ""]
    return "\r\n".join(lines).encode()


def first_line(connection, seconds):
    connection.settimeout(seconds)
    try:
        return connection.recv(4096).partition(b"\r\n")[0]
    except TimeoutError:
        return b""


def test_slow_heads_and_bodies_are_cut_off(served, programme, tokens):
    with served(programme, tokens=tokens[0], slowest_head=0.5, slowest_body=0.5) as address:
        with connect(address) as silent:
            assert is_closed(silent)
        with connect(address) as slow:
            assert drip(slow, b"GET / HTTP/1.1\r\nX: " + b"y" * 600, 0.1) < 600
        with connect(address) as slow:
            slow.sendall(b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Type: %b\r\n" % FORM.encode())
            slow.sendall(b"Content-Length: 1000\r\n\r\na")
            assert b" 408 " in first_line(slow, WAIT)
            assert is_closed(slow)
        with connect(address) as refused:  # the rest of a body that is refused at once
            refused.sendall(head("evenhand_wrong", 10**6))
            assert b" 401 " in first_line(refused, WAIT)
            assert drip(refused, b" " * 600, 0.1) < 600


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the system has no such timeout")
def test_a_client_that_does_not_read_is_cut_off(served, programme):
    with served(programme, unread=1.0, slowest_head=2 * WAIT) as address, socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.settimeout(1.0)
        deaf.connect(where(address))
        try:
            while True:  # until the server is stuck with its answers, and takes no more
                deaf.sendall(b"GET /static/page.css HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100)
        except OSError:
            pass
        end, own = time.monotonic() + WAIT, where(address)
        while [one for one in psutil.Process().net_connections() if one.laddr == own and one.raddr]:
            assert time.monotonic() < end, "it is still there"
            time.sleep(0.1)


def test_a_connection_is_used_again(served, programme):
    """Waiting for the next request is no slow head."""
    with served(programme, slowest_head=0.3) as address, connect(address) as kept:
        for _ in range(3):
            kept.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = b""
            while not answer.endswith(b"}"):
                part = kept.recv(4096)
                assert part, "it was closed"
                answer += part
            time.sleep(1.0)


@pytest.mark.slow
def test_idle_connections_block_no_client(live, programme_at):
    """1005 of them locked everybody out, from whatever address."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1200:
        pytest.skip("this process may not open 1200 files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
    server = live.Server(programme_at("sqlite"))
    try:
        with ExitStack() as stack:
            for _ in range(1005):
                stack.enter_context(connect(server.address))
            assert [server.ask("GET", "/healthz").status_code for _ in range(3)] == [200, 200, 200]
    finally:
        server.stop()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_unfinished_bodies_lock_nobody_out(served, programme, tokens):
    """Connections of the same address, each with a request whose body does not come."""
    head = f"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Type: {FORM}\r\nContent-Length: 9\r\n\r\nx".encode()
    with served(programme, tokens=tokens[0], connections_per_address=4) as address, ExitStack() as opened:
        for _ in range(8):
            opened.enter_context(connect(address)).sendall(head)
        assert [httpx.get(f"{address}/healthz").status_code for _ in range(3)] == [200] * 3


@pytest.mark.parametrize("proxies", [(), ("127.0.0.1",)])
def test_an_address_displaces_its_own_idle_connections(served, programme, proxies):
    """The one that has been idle for the longest; a busy one stays, and a trusted proxy has no bound of its own."""
    bounds = {"connections": 8, "connections_per_address": 4, "proxies": proxies}
    with served(programme, slowest_body=WAIT, slowest_head=WAIT, **bounds) as address, ExitStack() as stack:
        busy = stack.enter_context(connect(address))
        busy.sendall(head("x", 5) + b"{")
        idle = []
        for _ in range(3):
            idle.append(stack.enter_context(connect(address)))
            time.sleep(0.1)
        for place in range(4):
            stack.enter_context(connect(address))
            if not proxies and place < 3:
                assert is_closed(idle[place])
        assert httpx.get(f"{address}/healthz").status_code == 200
        busy.sendall(b"    ")
        assert b" 4" in first_line(busy, WAIT), "the body is no request, and it is answered"
        if proxies:
            assert is_closed(idle[0])
            idle[2].sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b" 200 " in first_line(idle[2], WAIT)


@pytest.mark.parametrize("proxies", [(), ("127.0.0.1",)])
def test_a_forwarded_address_is_believed_of_a_trusted_proxy_only(served, programme, proxies):
    with served(programme, proxies=proxies, rate=0.001, burst=2) as address:
        answers = [
            httpx.get(f"{address}/healthz", headers={"X-Forwarded-For": f"10.0.0.{number}"}).status_code
            for number in (1, 1, 2, 2, 2)
        ]
    assert answers == ([200, 200, 200, 200, 429] if proxies else [200, 200, 429, 429, 429])
