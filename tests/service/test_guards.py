"""What a client may not do."""

import asyncio
import json
import os

import pytest

from evenhand.errors import InvalidInputError
from evenhand.programme import RequestError, Settings, Tokens
from evenhand.programme.api import auth, middleware, telemetry

from ..conftest import make_token, mentions
from .conftest import run_alone

P = "/v1/programme"
SEEN = {"observations": [{"arm": "b1", "state": "fine"}], "source": "walk"}


@pytest.fixture
def tokens(tmp_path):
    """A file of tokens, and a token of each role."""
    file = tmp_path / "tokens"
    made = {role: make_token(file, role, f"may-{role}") for role in ("read", "write")}
    return file, made


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def sign_in(client, token):
    """The cookie of a session, as the header Cookie has it."""
    own = {"Origin": "http://localhost"}
    answer = client.post("/login", data={"token": token}, headers=own, follow_redirects=False)
    return answer.headers["set-cookie"].partition(";")[0]


# Hosts and origins


@pytest.mark.parametrize("host", ["localhost", "localhost:8000", "127.0.0.1:1", "[::1]:8000", "10.1.2.3"])
def test_known_hosts(client, host):
    assert client.get("/healthz", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io:80", "", "[::1].evil.example"]
)
def test_names_made_to_point_here(client, host):
    assert client.get(P, headers={"Host": host}).status_code == 421


def test_names_that_are_reported(programme, serving):
    client = serving(programme, names=("planner.example",))
    assert client.get(P, headers={"Host": "Planner.example:8000"}).status_code == 200


@pytest.mark.parametrize(
    "heads",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:9999"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Origin": "http://localhost"},
        {"Cookie": "evenhand_token=x"},
    ],
)
def test_other_pages_may_not_write(client, programme, heads):
    before = programme.status().events
    for method, address, body in [
        ("POST", "observations", SEEN),
        ("POST", "plan", {}),
        ("DELETE", "arms?arm=b1&why=x", None),
    ]:
        asked = {"json": body} if body is not None else {}
        assert client.request(method, f"{P}/{address}", headers=heads, **asked).status_code == 403
    assert programme.status().events == before


def test_the_own_page_may_write(client):
    heads = {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
    assert client.post(f"{P}/observations", json=SEEN, headers=heads).status_code == 200


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]
)
def test_what_forms_of_other_pages_send(client, kind):
    body = json.dumps(SEEN).encode()
    assert client.post(f"{P}/observations", content=body, headers={"Content-Type": kind}).status_code == 415


def test_no_answer_is_for_other_origins(client):
    asked = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    for answer in (client.options(P, headers=asked), client.get(P, headers=asked)):
        assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize("address", ["/healthz", P, "/nothing", "/openapi.json", "/metrics"])
def test_every_answer_has_the_headers(client, address):
    heads = client.get(address).headers
    for name, value in middleware.HEADERS.items():
        assert heads[name] == value
    policy = heads["content-security-policy"]
    assert "unsafe" not in policy
    assert "script-src 'self'" in policy
    assert "cache-control" in heads


# Tokens


def test_other_machines_need_a_token_and_tls(tokens):
    held = Tokens.read(tokens[0])
    for host in ("0.0.0.0", "::", "10.0.0.1", "planner.example"):
        with pytest.raises(InvalidInputError, check=mentions(host, "tokens")):
            Settings(host=host, insecure=True)
        with pytest.raises(InvalidInputError, check=mentions(host, "TLS")):
            Settings(host=host, tokens=held)
        for how in ({"insecure": True}, {"certificate": ("cert", "key")}, {"proxies": ("10.0.0.9",)}):
            Settings(host=host, tokens=held, **how)
    with pytest.raises(InvalidInputError, check=mentions("X-Remote-User")):
        Settings(tokens=held, sign_on="X-Remote-User")
    for host in ("127.0.0.1", "localhost", "::1", "127.8.8.8"):
        Settings(host=host)


def test_roles(programme, serving, tokens):
    file, made = tokens
    client = serving(programme, tokens=Tokens.read(file))
    assert client.get("/healthz").status_code == client.get("/readyz").status_code == 200
    for address in (P, "/metrics", "/openapi.json", "/v1/jobs", f"{P}/events"):
        answer = client.get(address)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert client.get(address, headers=bearer(made["read"])).status_code == 200
    assert client.post(f"{P}/observations", json=SEEN).status_code == 401
    assert client.post(f"{P}/observations", json=SEEN, headers=bearer(made["read"])).status_code == 403
    said = SEEN | {"who": "Ada", "source": "walk"}
    assert client.post(f"{P}/observations", json=said, headers=bearer(made["write"])).status_code == 200
    assert programme.events()[-1].who == "Ada (may-write)"


def test_an_unknown_token(programme, serving, tokens):
    client = serving(programme, tokens=Tokens.read(tokens[0]))
    answers = [client.get(P, headers=bearer(f"evenhand_{guess}")).status_code for guess in range(25)]
    assert answers[0] == 401
    assert answers[-1] == 429  # who guesses waits
    assert client.get("/healthz").status_code == 200
    assert (
        client.get(P, headers=bearer(tokens[1]["read"])).status_code == 200
    )  # who has a token, and their address, not


def test_guesses_in_the_form_are_slowed_down_too(programme, serving, tokens):
    client = serving(programme, tokens=Tokens.read(tokens[0]))
    own = {"Origin": "https://localhost"}
    answers = [
        client.post("/login", data={"token": f"evenhand_{guess}"}, headers=own).status_code for guess in range(25)
    ]
    assert (answers[0], answers[-1]) == (401, 429)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_cookies_that_came_by_tls_stay_there(programme, serving, tokens, scheme):
    """The browser tells by the origin that it came by TLS, to a proxy before this server."""
    client = serving(programme, tokens=Tokens.read(tokens[0]))
    own = {"Origin": f"{scheme}://localhost"}
    signed = client.post("/login", data={"token": tokens[1]["write"]}, headers=own, follow_redirects=False)
    assert signed.status_code == 303
    own |= {"Cookie": signed.headers["set-cookie"].partition(";")[0]}
    typed = {"text": "arm,state\nb1,worn", "who": "Ada", "source": "walk"}
    sent = client.post("/today/conditions", data=typed, headers=own, follow_redirects=False)
    assert sent.status_code == 303
    for answer in (signed, sent):
        words = answer.headers["set-cookie"].lower().split("; ")
        assert ("secure" in words) == (scheme == "https")
        assert {"httponly", "samesite=strict"} <= set(words)


def test_a_cookie_writes_only_from_the_own_page(programme, serving, tokens):
    file, made = tokens
    client = serving(programme, tokens=Tokens.read(file))
    cookie = {"Cookie": sign_in(client, made["write"])}
    client.cookies.clear()
    assert client.get(P, headers=cookie).status_code == 200
    assert client.post(f"{P}/observations", json=SEEN, headers=cookie).status_code == 403
    own = cookie | {"Origin": "http://localhost"}
    assert client.post(f"{P}/observations", json=SEEN, headers=own).status_code == 200


def test_the_cookie_is_a_session(programme, serving, tokens):
    """It is not the token, and ends at sign-out, whoever has a copy of it; readers sign out, too."""
    file, made = tokens
    client = serving(programme, tokens=Tokens.read(file))
    for role in ("read", "write"):
        cookie = {"Cookie": sign_in(client, made[role])}
        client.cookies.clear()
        assert made[role] not in cookie["Cookie"]
        assert client.get(P, headers=cookie).status_code == 200
        own = cookie | {"Origin": "http://localhost"}
        answer = client.post("/logout", headers=own, follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, "/login")
        assert "max-age=0" in answer.headers["set-cookie"].lower()
        assert client.get(P, headers=cookie).status_code == 401
        assert client.get(P, headers=bearer(made[role])).status_code == 200
    stolen = {"Cookie": f"{auth.COOKIE}={made['write']}"}
    assert client.get(P, headers=stolen).status_code == 401


def test_sessions_end(tokens):
    now, held = [0.0], Tokens.read(tokens[0])
    sessions = auth.Sessions(seconds=10.0, idle=6.0, most=2, clock=lambda: now[0])
    first, second = (sessions.open(tokens[1][role]) for role in ("read", "write"))
    assert [sessions.holder(name, held).name for name in (first, second)] == ["may-read", "may-write"]
    assert sessions.holder("", held) is None
    now[0] = 5.0
    third = sessions.open(tokens[1]["read"])
    assert sessions.holder(first, held) is None, "the oldest gives way"
    assert sessions.holder(second, held) is not None
    now[0] = 10.0
    assert sessions.holder(second, held) is None
    assert sessions.holder(third, held).name == "may-read"
    assert not any(name in str(sessions._open) for name in (second, third)), "names are stored by their digests"
    now[0] = 17.0
    assert sessions.holder(third, held) is None, "it was idle"


def test_a_removed_token_is_refused_at_once(programme, serving, tokens):
    file, made = tokens
    client = serving(programme, tokens=Tokens.read(file))
    cookie = {"Cookie": sign_in(client, made["write"])}
    client.cookies.clear()
    before = file.read_text()
    file.write_text("".join(line + "\n" for line in before.splitlines() if "may-write" not in line))
    assert client.get(P, headers=bearer(made["write"])).status_code == 401
    assert client.get(P, headers=cookie).status_code == 401
    assert client.get(P, headers=bearer(made["read"])).status_code == 200
    file.write_text("read a * 12\n")
    for asked in (bearer(made["read"]), cookie):
        answer = client.get(P, headers=asked)
        assert answer.status_code == 503, "a malformed file lets nobody in"
        assert str(file) not in answer.text
    own = {"Origin": "http://localhost"}
    assert client.post("/login", data={"token": made["read"]}, headers=own).status_code == 503
    file.unlink()
    assert client.get(P, headers=bearer(made["read"])).status_code == 503
    file.write_text(before)
    file.chmod(0o600)
    assert client.get(P, headers=bearer(made["write"])).status_code == 200
    assert client.get(P, headers=cookie).status_code == 200
    later = make_token(file, "write", "later")
    assert client.get(P, headers=bearer(later)).status_code == 200


@pytest.mark.parametrize(
    "foreign", ["a{b}=1", 'x="{"y": [1; 2]}"', "no value", "evenhand_token=x", "evenhand_session=x"]
)
def test_cookies_of_other_applications_are_ignored(programme, serving, tokens, foreign):
    """Cookies are of a host, whatever the port: those of all applications on it come along, however malformed."""
    client = serving(programme, tokens=Tokens.read(tokens[0]))
    cookie = sign_in(client, tokens[1]["read"])
    client.cookies.clear()
    for sent in (f"{foreign}; {cookie}", f"{cookie}; {foreign}"):
        assert client.get(P, headers={"Cookie": sent}).status_code == 200
    for _ in range(25):
        assert client.get(P, headers={"Cookie": foreign}).status_code == 401, "and no guess of a token"


def test_servers_on_one_host_have_cookies_of_their_own():
    names = {auth.cookie_name(host) for host in ("localhost", "localhost:8000", "localhost:8001", "[::1]:80", "[::1]")}
    assert names == {auth.COOKIE, f"{auth.COOKIE}_8000", f"{auth.COOKIE}_8001", f"{auth.COOKIE}_80"}


def test_token_files(tokens):
    file, made = tokens
    text = file.read_text()
    assert not any(token in text for token in made.values())
    assert file.stat().st_mode & 0o777 == 0o600
    read = Tokens.read(file)
    assert read.holder(made["read"]).roles == {"read"}
    assert read.holder(made["write"]).may("read")
    assert read.holder("") is None
    assert read.holder(made["read"] + "x") is None


def test_token_files_that_are_not_sound(tmp_path):
    file = tmp_path / "tokens"
    with pytest.raises(InvalidInputError, check=mentions(file)):
        Tokens.read(file)
    file.write_text("# nobody\n\n")
    file.chmod(0o600)
    with pytest.raises(InvalidInputError, check=mentions(file, "token")):
        Tokens.read(file)
    digest = "0" * 64
    file.write_text(f"read a * 12\nadmin b * {digest}\nread b * {digest}\nread,plan b * {digest}\nread c {digest}\n")
    with pytest.raises(InvalidInputError) as error:
        Tokens.read(file)
    assert [fault.line for fault in error.value.faults] == [1, 2, 4, 5]
    with pytest.raises(InvalidInputError, check=mentions("name", "two words", 64)):
        make_token(tmp_path / "new", "read", "two words")
    if os.name == "posix":
        file.chmod(0o666)
        with pytest.raises(InvalidInputError, check=mentions(file, "chmod 600")):
            Tokens.read(file)


# Sizes, times, rates


def test_bodies_are_bounded(programme, serving):
    client = serving(programme, largest_body=1000)
    heads = {"Content-Type": "application/json"}
    assert client.post(f"{P}/observations", content=b" " * 1001, headers=heads).status_code == 413

    def parts():
        for _ in range(100):
            yield b" " * 100

    assert client.post(f"{P}/observations", content=parts(), headers=heads).status_code == 413
    assert client.post(f"{P}/observations", json=SEEN).status_code == 200


def test_a_body_whose_head_lies():
    """More than the head says; as a server would hand it on that does not look."""
    bodies, sent = middleware.BodyLimit(_never, Settings(largest_body=10)), []

    async def receive():
        return {"type": "http.request", "body": b"x" * 8, "more_body": True}

    scope = posting((b"content-length", b"3"))
    with pytest.raises(RequestError) as refused:
        run_alone(bodies(scope, receive, sent.append))
    assert refused.value.status == 413


def too_large(parts, heads, settings=None):
    """How many of the parts of a body that is refused were read."""
    bodies, left = middleware.BodyLimit(_never, settings or Settings(largest_body=10)), list(parts)

    async def receive():
        part = left.pop(0)
        await asyncio.sleep(0 if part else 60)
        return {"type": "http.request", "body": part, "more_body": bool(left)}

    with pytest.raises(RequestError) as refused:
        run_alone(bodies(posting(*heads), receive, None))
    assert refused.value.status == 413
    return len(parts) - len(left)


def test_a_body_that_is_too_large_is_read_on_for_a_while():
    """Who still writes would not see the answer."""
    said = [(b"content-length", b"24")]
    assert too_large([b"x" * 8] * 3, said) == 3
    assert too_large([b"x" * 8] * 3, []) == 3
    assert too_large([b"x" * 8] * 10**3, []) == 11, "but not for ever"
    assert too_large([b"x" * 8] * 3, [*said, (b"expect", b"100-continue")]) == 0
    assert too_large([b"x" * 8, b"x" * 8, b"", b"x"], [], Settings(largest_body=10, slowest_body=0.05)) == 3


def test_a_body_that_does_not_come():
    bodies = middleware.BodyLimit(_never, Settings(slowest_body=0.05))

    async def receive():
        await asyncio.sleep(60)

    with pytest.raises(RequestError) as refused:
        run_alone(bodies(posting(), receive, None))
    assert refused.value.status == 408


def posting(*heads):
    return {"type": "http", "method": "POST", "path": "/v1/decide", "headers": heads, "state": {"requester": "Ada"}}


async def _never(scope, receive, send):
    raise AssertionError("the application was asked")


def test_too_many_requests_have_to_wait(programme, serving):
    client = serving(programme, rate=0.5, burst=3)
    answers = [client.get("/healthz") for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert answers[-1].headers["retry-after"] in ("1", "2")


def test_a_bucket_fills():
    now = [0.0]
    limit = middleware.RateLimit(rate=2.0, burst=2, most=2, clock=lambda: now[0])
    assert [limit.wait("a") for _ in range(3)] == [0.0, 0.0, 0.5]
    now[0] = 0.5
    assert limit.wait("a") == 0.0
    assert limit.wait("b") == limit.wait("c") == 0.0
    assert len(limit._buckets) == 2


# Logs and counts


def test_logs_contain_no_names(client, caplog):
    with caplog.at_level("INFO", logger="evenhand.programme.api"):
        client.get(f"{P}/arms", params={"step": 1})
        client.delete(f"{P}/arms", params={"arm": "Ada Lovelace", "why": "ill"})
        client.get("/Ada")
    lines = [telemetry.JsonFormatter().format(record) for record in caplog.records]
    assert any(json.loads(line).get("route") == f"{P}/arms" for line in lines)
    assert not any("Ada" in line or "ill" in line.split() for line in lines)


def test_what_is_counted(client):
    client.get(P)
    client.get("/made-up-by-somebody")
    text = client.get("/metrics").text
    assert 'evenhand_requests_total{method="GET",route="/v1/programme",status="200"} 1.0' in text
    assert "made-up" not in text
