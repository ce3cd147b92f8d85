"""A real nginx as reverse proxy with TLS: the very configuration of docs/service-security.md, but for its paths."""

import re
import shutil
import socket
import ssl
import subprocess
import time
from pathlib import Path

import httpx
import pytest

from ...conftest import make_token, require

DOCS = Path(__file__).parents[3] / "docs" / "service-security.md"
NAME, P = "planner.example", "/v1/programme"
FRAME = """
daemon off;
master_process off;
pid {folder}/pid;
error_log {folder}/errors;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/bodies;
    proxy_temp_path {folder}/proxied;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {server}
}}
"""
"""What a system has around the block of the docs: where a nginx that is not the system's keeps its things."""


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def configuration(folder, port, behind):
    """The server of the docs: every change to it must find its place."""
    server = re.search(r"```text\n(server \{.*?)```", DOCS.read_text(), re.DOTALL)[1]
    changes = [
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("/etc/ssl/planner.pem", f"{folder}/planner.pem"),
        ("/etc/ssl/planner.key", f"{folder}/planner.key"),
        ("http://127.0.0.1:8000", behind),
    ]
    for docs, here in changes:
        assert docs in server
        server = server.replace(docs, here)
    return FRAME.format(folder=folder, server=server)


def certify(folder):
    """A certificate by ourselves."""
    names = f"subjectAltName=DNS:{NAME},DNS:localhost"
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", f"{folder}/planner.key"]
    command = ["openssl", "req", "-x509", *key, "-out", f"{folder}/planner.pem", "-days", "2", "-subj", f"/CN={NAME}"]
    subprocess.run([*command, "-addext", names], check=True, capture_output=True)


class Proxied:
    """A server behind nginx, and clients of it."""

    def __init__(self, folder, port, token):
        self.folder, self.port, self.token = folder, port, token
        self.origin = f"https://{NAME}:{port}"

    def client(self, **headers):
        """A client that trusts the certificate, and asks for the server by its name."""
        trusting = ssl.create_default_context(cafile=f"{self.folder}/planner.pem")
        named = {"Host": f"{NAME}:{self.port}"} | headers
        return httpx.Client(base_url=f"https://127.0.0.1:{self.port}", verify=trusting, headers=named, timeout=60)

    def ask(self, client, method, path, **more):
        return client.request(method, path, extensions={"sni_hostname": NAME}, **more)


@pytest.fixture(scope="module")
def proxied(live, template, tmp_path_factory):
    nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    require(nginx and shutil.which("openssl"), "nginx-light openssl")
    folder = tmp_path_factory.mktemp("proxied")
    certify(folder)
    (folder / "pumps.db").write_bytes(template.read_bytes())
    token = make_token(folder / "tokens", "write", "ada")
    server = live.Server(
        folder / "pumps.db", "--token-file", str(folder / "tokens"), "--name", NAME, "--proxy", "127.0.0.1"
    )
    port = free_port()
    (folder / "nginx.conf").write_text(configuration(folder, port, server.address))
    proxy = subprocess.Popen([nginx, "-p", str(folder), "-e", "errors", "-c", str(folder / "nginx.conf")])
    try:
        wait_for(proxy, port, folder / "errors")
        yield Proxied(folder, port, token)
    finally:
        proxy.terminate()
        proxy.wait(30)
        assert server.stop()[0] == 0


def wait_for(proxy, port, errors):
    while True:
        assert proxy.poll() is None, errors.read_text()
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(0.02)
        else:
            return


def send(page, table):
    """Upload today's conditions."""
    form = page.locator("form", has=page.get_by_role("button", name="Send the conditions"))
    form.get_by_label("A table").set_input_files(table)
    form.get_by_role("button", name="Send the conditions").click()


@pytest.mark.slow
def test_the_page_behind_a_proxy(proxied, browser, tools):
    context = browser.new_context(base_url=f"https://localhost:{proxied.port}", ignore_https_errors=True)
    page, wrong = tools.watched(context)
    page.goto("/")
    assert page.url.endswith("/login")
    page.get_by_label("Token").fill(proxied.token)
    page.keyboard.press("Enter")
    page.get_by_role("heading", level=1).filter(has_text="Step").wait_for()
    table = {"name": "today.csv", "mimeType": "text/csv", "buffer": b"arm,state\nb1,worn\nb2,broken\n"}
    send(page, table)
    page.get_by_text("2 conditions stored").wait_for()
    page.get_by_role("button", name="Make the plan").click()
    page.get_by_role("button", name="Accept the plan").click()
    page.get_by_text("is accepted as it was").wait_for()
    page.goto("/what-if")
    page.get_by_label("hours, by slider").fill("5")
    page.get_by_role("button", name="Compute it").click()
    page.get_by_role("region", name="The answer").wait_for(timeout=120_000)
    assert wrong == []
    kept = context.cookies()
    assert {one["name"] for one in kept} == {f"evenhand_session_{proxied.port}", "evenhand_what_if"}
    assert {(one["secure"], one["httpOnly"], one["sameSite"]) for one in kept} == {(True, True, "Strict")}
    page.goto("/")
    large = b"arm,state\n" + b"b1,worn\n" * (2 * 2**20 + 2**17)
    send(page, table | {"buffer": large})
    page.get_by_text("several parts").wait_for()
    page.goto("/")
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("Token").wait_for()
    assert not [one for one in context.cookies() if one["name"].startswith("evenhand_session")]
    context.close()


@pytest.mark.slow
def test_the_api_behind_a_proxy(proxied):
    bearer = {"Authorization": f"Bearer {proxied.token}"}
    with proxied.client() as nobody:
        assert proxied.ask(nobody, "GET", "/healthz").status_code == 200
        assert proxied.ask(nobody, "GET", P).status_code == 401
    with proxied.client(**bearer) as client:
        seen = {"source": "walk", "observations": [{"arm": "b1", "state": "worn"}]}
        answer = proxied.ask(client, "POST", f"{P}/observations", json=seen, headers={"Origin": proxied.origin})
        assert answer.status_code == 200, answer.text
        for origin in ("https://elsewhere.example", f"https://{NAME}:1", "null"):
            answer = proxied.ask(client, "POST", f"{P}/plan", json={}, headers={"Origin": origin})
            assert answer.status_code == 403
        plan = proxied.ask(client, "POST", f"{P}/plan", headers={"Origin": proxied.origin}).json()
        assert proxied.ask(client, "POST", f"{P}/plan/{plan['id']}/accept").json()["step"] == plan["step"]
    with proxied.client(**bearer | {"Host": "elsewhere.example"}) as client:
        assert proxied.ask(client, "GET", P).status_code == 421


@pytest.mark.slow
def test_large_bodies_behind_a_proxy(proxied):
    with proxied.client(Authorization=f"Bearer {proxied.token}") as client:
        rows = [{"arm": "b1", "state": number % 3} for number in range(300_000)]
        answer = proxied.ask(client, "POST", f"{P}/observations", json={"source": "x", "observations": rows})
        assert answer.status_code == 422, "an arm was seen twice, which is told once all of it was read"
        kind = {"Content-Type": "application/json"}
        for body in (b" " * (16 * 2**20 + 1), b" " * (60 * 2**20), iter([b" " * 2**20] * 20)):
            answer = proxied.ask(client, "POST", f"{P}/observations", content=body, headers=kind)
            assert (answer.status_code, answer.json()["detail"]) == (413, "a body has at most 16777216 bytes")
        answer = proxied.ask(client, "POST", f"{P}/observations", content=b" " * (65 * 2**20), headers=kind)
        assert answer.status_code == 413, "by the proxy"


@pytest.mark.slow
def test_events_come_through_a_proxy_as_they_happen(proxied):
    with proxied.client(Authorization=f"Bearer {proxied.token}") as client:
        asked = {"welfare": "gini:2", "seconds": 60.0}
        job = proxied.ask(client, "POST", f"{P}/what-if", json=asked).json()["id"]
        trusted = {"sni_hostname": NAME}
        with client.stream("GET", f"/v1/jobs/{job}/events", extensions=trusted) as stream:
            lines = stream.iter_lines()
            assert next(lines) == "event: progress"
            assert '"status": "' in next(lines)
            assert proxied.ask(client, "DELETE", f"/v1/jobs/{job}").json()["status"] == "cancelled"
            assert "event: cancelled" in list(lines)
