"""A server for an organisation: who may do and see what, and what databases and pages elsewhere cannot bring about."""

import csv
import io
import shutil
import ssl
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from sqlalchemy import event, text

from evenhand.errors import ConflictError, InvalidInputError
from evenhand.fitting import table_reader
from evenhand.model.io.text_table import csv_text, read_table
from evenhand.programme import Programme, Tokens
from evenhand.programme.api import middleware
from evenhand.programme.api.auth import ROLES

from ..conftest import make_token, require

P = "/v1/programme"
SEEN = {"observations": [{"arm": "b1", "state": "fine"}], "source": "walk"}
OWN = {"Origin": "http://localhost", "Accept": "text/html"}


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def held(tmp_path):
    """A token file, and makes the headers of a holder with a role."""
    file = tmp_path / "tokens"

    def make(name, role, groups=None):
        return bearer(make_token(file, role, name, groups))

    return file, make


# Roles


CHANGES = [
    ("report", "POST", f"{P}/observations", SEEN),
    ("report", "POST", f"{P}/records", {"records": [{"arm": "b1", "action": "run"}], "source": "log"}),
    ("plan", "POST", f"{P}/plan", {}),
    ("plan", "POST", f"{P}/arms", {"arms": [{"arm": "b9", "type": "big"}]}),
    ("plan", "DELETE", f"{P}/arms?arm=b9&why=sold", None),
    ("accept", "POST", f"{P}/plan/1/accept", {}),
    ("accept", "POST", f"{P}/plan/1/approve", {}),
    ("adopt", "POST", f"{P}/bounds", {"gap": 0.5}),
    ("adopt", "POST", f"{P}/refits/1/adopt", {}),
    ("administer", "POST", f"{P}/erase", {"arms": ["b1"]}),
    ("administer", "GET", f"{P}/views", None),
    ("read", "GET", f"{P}/events", None),
]


def test_every_change_has_its_role(programme, serving, held):
    """A holder of one role may do what needs it, and nothing else."""
    file, make = held
    heads = {role: make(role, role) for role in ROLES}
    client = serving(programme, tokens=Tokens.read(file))
    for needed, method, address, body in CHANGES:
        more = {} if body is None else {"json": body}
        for role in ROLES:
            status = client.request(method, address, headers=heads[role], **more).status_code
            assert (status == 403) == (role != needed), (needed, role, address, status)


def test_a_new_change_needs_an_administrator_until_it_has_a_role():
    planner = middleware.Holder("ada", frozenset(ROLES) - {"administer"})
    assert middleware.why_forbidden(planner, "POST", f"{P}/something-new")
    assert not middleware.why_forbidden(planner, "GET", f"{P}/something-new")


def test_addresses_with_a_line_feed_are_unknown(programme, serving, held):
    """A route's pattern matches them, and permissions and the addresses that compute do not list them."""
    file, make = held
    reader = make("ada", "read")
    client = serving(programme, tokens=Tokens.read(file))
    link = reader | {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert client.get(f"{P}/views%0A", headers=reader).status_code == 404
    assert client.get("/fairness%0A", headers=link).status_code == 404


def test_forms_that_may_not_be_sent_are_not_shown(programme, serving, held):
    file, make = held
    make("ada", "read")
    Tokens.read(file).create("rob", ["read", "report"])
    tokens = {name: Tokens.read(file).rotate(name) for name in ("ada", "rob")}
    programme.plan()
    client = serving(programme, tokens=Tokens.read(file))
    shown = {name: client.get("/", headers=bearer(token)).text for name, token in tokens.items()}
    assert 'action="/today/conditions"' in shown["rob"]
    for page in shown.values():
        assert 'action="/today/accept"' not in page
        assert 'form="accept"' not in page
        assert 'action="/today/plan"' not in page
    assert 'method="post"' not in shown["ada"]
    assert 'action="/logout"' in client.get("/", headers=signed_in(client, tokens["ada"])).text, "readers sign out"
    assert 'role="search"' in shown["ada"], "searching changes nothing"


def test_an_undo_needs_the_role_of_the_event(programme, serving, held):
    file, make = held
    heads = {role: make(role, role) for role in ROLES}
    client = serving(programme, tokens=Tokens.read(file))
    done = {
        "report": programme.observe([{"arm": "b1", "state": "worn"}], "walk").event,
        "plan": programme.join([{"arm": "n1", "type": "big"}]).event,
        "adopt": programme.change({"budget": [2.0]}).event,
        "accept": programme.accept(programme.plan().plan).event,
    }
    for needed in ("accept", "adopt", "plan", "report"):  # the last one first
        for role in sorted(ROLES, key=lambda role: role == needed):
            sent = client.post(f"{P}/events/{done[needed]}/undo", headers=heads[role])
            assert sent.status_code == (200 if role == needed else 403), (needed, role)
    event = programme.observe([{"arm": "b1", "state": "worn"}], "walk").event
    assert client.post("/undo", data={"event": str(event)}, headers=heads["accept"] | OWN).status_code == 403
    client.cookies.clear()
    Tokens.read(file).create("rita", ["read", "report"])
    rita = bearer(Tokens.read(file).rotate("rita")) | {"Accept": "text/html"}
    shown = client.get("/settings", headers=rita).text
    assert 'action="/undo"' in shown
    joined = programme.join([{"arm": "n2", "type": "big"}]).event
    assert f'name="event" value="{joined}"' not in client.get("/settings", headers=rita).text


# Sessions and tokens


def signed_in(client, token):
    answer = client.post("/login", data={"token": token}, headers=OWN, follow_redirects=False)
    client.cookies.clear()
    return OWN | {"Cookie": answer.headers["set-cookie"].partition(";")[0]}


def test_sign_out_everywhere_and_rotation(programme, serving, tmp_path):
    file = tmp_path / "tokens"
    ada, bob = (make_token(file, "write", name) for name in ("ada", "bob"))
    client = serving(programme, tokens=Tokens.read(file))
    here, there, other = signed_in(client, ada), signed_in(client, ada), signed_in(client, bob)
    assert client.post("/logout", headers=here, follow_redirects=False).status_code == 303
    assert [client.get(P, headers=one).status_code for one in (here, there, other)] == [401, 200, 200]
    here = signed_in(client, ada)
    assert 'name="everywhere"' in client.get("/", headers=here).text
    client.post("/logout", data={"everywhere": "1"}, headers=here)
    assert [client.get(P, headers=one).status_code for one in (here, there, other)] == [401, 401, 200]
    later, new = signed_in(client, ada), Tokens.read(file).rotate("ada")
    assert [client.get(P, headers=one).status_code for one in (later, bearer(ada), bearer(new))] == [401, 401, 200]
    Tokens.read(file).revoke("bob")
    assert [client.get(P, headers=one).status_code for one in (other, bearer(bob))] == [401, 401]


def test_keys_are_per_holder(programme, serving, held):
    file, make = held
    ada, bob = (make(name, "write") | {"Idempotency-Key": "monday"} for name in ("ada", "bob"))
    client = serving(programme, tokens=Tokens.read(file))
    first = client.post(f"{P}/observations", json=SEEN, headers=ada).json()
    other = SEEN | {"observations": [{"arm": "b2", "state": "worn"}, {"arm": "h1", "state": "worn"}]}
    second = client.post(f"{P}/observations", json=other, headers=bob)
    assert (second.status_code, second.json()["observations"]) == (200, 2)
    assert client.post(f"{P}/observations", json=SEEN, headers=ada).json() == first
    assert client.post(f"{P}/observations", json=SEEN, headers=bob).status_code == 409
    client.post(f"{P}/observations", json=SEEN | {"source": "x"}, headers=bearer("x") | ada)
    programme.verify()


# A second approval


def test_larger_budgets_need_two_people(programme, serving, held):
    file, make = held
    ada, bob = make("ada", "write"), make("bob", "write")
    client = serving(programme, tokens=Tokens.read(file))

    def accept(plan, by):
        return client.post(f"{P}/plan/{plan}/accept", json={"who": "somebody else"}, headers=by)

    def plan(hours):
        return client.post(f"{P}/plan", json={"budget": [hours]}, headers=ada).json()["id"]

    assert accept(plan(4.0), ada).status_code == 200, "not required"
    programme.safeguards.set_rules({"second_approval": True}, who="boss")
    assert accept(plan(3.0), ada).status_code == 200, "the usual budget"
    number = plan(4.0)
    refused = accept(number, ada)
    assert (refused.status_code, refused.json()["code"]) == (409, "not-approved")
    page = client.get("/", headers=ada).text
    assert 'action="/today/approve"' in page
    assert client.post(f"{P}/plan/{number}/approve", headers=ada).json()["by"] == "ada"
    assert accept(number, ada).status_code == 409, "the same person under another name"
    assert client.get(f"{P}/plan", headers=bob).json()["approved_by"] == "ada"
    assert accept(number, bob).status_code == 200
    assert client.post(f"{P}/plan/{number}/approve", headers=bob).status_code == 409
    programme.verify()


def test_two_people_at_the_command_line(programme):
    programme.safeguards.set_rules({"second_approval": True})
    number = programme.plan(budget=[4.0]).plan
    with pytest.raises(InvalidInputError):
        programme.approve(number)
    programme.approve(number, who="ann")
    for who in ("", "ann"):
        with pytest.raises(ConflictError):
            programme.accept(number, who=who)
    programme.accept(number, who="bob")


def test_names_at_the_command_line_differ_by_more_than_case_and_blanks(programme):
    programme.safeguards.set_rules({"second_approval": True})
    number = programme.plan(budget=[4.0]).plan
    with pytest.raises(InvalidInputError):
        programme.approve(number, who="  ")
    programme.approve(number, who="Ann ")
    for who in ("Ann", " ann", "A nn"):
        with pytest.raises(ConflictError):
            programme.accept(number, who=who)
    programme.accept(number, who="bob")


def test_lasting_raises_need_two_people(programme, serving, held):
    """A lasting raise is not usual for the one who made it, under whatever name, and is for others."""
    programme.change({"budget": [3.5]}, who="x (ada)")  # from before the rule
    programme.safeguards.set_rules({"second_approval": True}, who="boss")
    file, make = held
    ada, bob = make("ada", "write"), make("bob", "write")
    client = serving(programme, tokens=Tokens.read(file))

    def change(hours, by, who=None):
        assert client.post(f"{P}/changes", json={"budget": [hours], "who": who}, headers=by).status_code == 200

    def plan():
        programme.solve(seconds=0.1)
        return client.post(f"{P}/plan", headers=ada).json()["id"]

    def accept(plan, by):
        return client.post(f"{P}/plan/{plan}/accept", json={"who": "another"}, headers=by).status_code

    assert accept(plan(), ada) == 200
    change(4.0, ada, "Bob")
    number = plan()
    assert accept(number, ada) == 409
    assert 'action="/today/approve"' in client.get("/", headers=ada).text
    client.post(f"{P}/plan/{number}/approve", headers=ada)
    assert accept(number, ada) == 409
    client.post(f"{P}/plan/{number}/approve", headers=bob)
    assert accept(number, ada) == 200
    number = plan()
    assert accept(number, ada) == 409, "the raise is still that of one person"
    assert accept(number, bob) == 200, "and this is another one"
    change(2.0, ada)
    assert accept(plan(), ada) == 200
    change(4.0, bob)
    assert accept(plan(), ada) == 200
    programme.verify()


# Sign-on by a proxy


def test_sign_on_by_a_proxy(programme, serving, held):
    file, make = held
    make("ada", "write")
    Tokens.read(file).create("rob", ["read"], secret=False)
    trusted = {"tokens": Tokens.read(file), "sign_on": "X-Remote-User", "proxies": ("testclient",)}
    client = serving(programme, **trusted)
    assert client.get(P).status_code == 401
    assert client.get(P, headers={"X-Remote-User": "rob"}).status_code == 200
    assert client.post(f"{P}/observations", json=SEEN, headers={"X-Remote-User": "rob"}).status_code == 403
    assert client.post(f"{P}/observations", json=SEEN, headers={"X-Remote-User": "ada"}).status_code == 200
    assert programme.events()[-1].who == "ada"
    assert client.get(P, headers={"X-Remote-User": "eve"}).status_code == 403
    twice = [("X-Remote-User", "rob"), ("X-Remote-User", "ada")]
    assert client.get(P, headers=twice).status_code == 403
    forwarded = {"X-Remote-User": "rob", "X-Forwarded-For": "10.9.9.9"}
    assert client.get(P, headers=forwarded).status_code == 200, "the proxy itself counts, not the client before it"
    # From elsewhere the header is ignored, also if it claims to come from the proxy.
    client = serving(programme, **trusted | {"proxies": ("10.0.0.9",)})
    for heads in ({"X-Remote-User": "ada"}, {"X-Remote-User": "ada", "X-Forwarded-For": "10.0.0.9"}):
        assert client.get(P, headers=heads).status_code == 401
    client = serving(programme, **trusted, proxy_secret=b"a shared secret")
    assert client.get(P, headers={"X-Remote-User": "rob"}).status_code == 403
    assert client.get(P, headers={"X-Remote-User": "rob", "X-Proxy-Secret": "a shared secret"}).status_code == 200


def test_behind_a_proxy_others_reach_it_by_tls_alone(programme, serving, held):
    """Their tokens would cross the network in clear text."""
    file, make = held
    ada, behind = make("ada", "read"), {"tokens": Tokens.read(file), "host": "10.0.0.1"}
    direct = serving(programme, **behind, proxies=("10.0.0.9",))
    assert direct.get(P, headers=ada | {"X-Forwarded-For": "10.0.0.9"}).status_code == 403
    assert direct.get("/login").status_code == 403
    assert direct.get("/healthz").status_code == direct.get("/readyz").status_code == 200
    for more in (
        {"proxies": ("testclient",)},
        {"insecure": True},
        {"proxies": ("10.0.0.9",), "certificate": ("c", "k")},
    ):
        assert serving(programme, **behind, **more).get(P, headers=ada).status_code == 200


# Pages of others


@pytest.mark.parametrize(
    "address", ["/fairness", "/what-if", "/model", P, f"{P}/audit", f"{P}/certificate", "/plans/1.csv"]
)
def test_pages_of_others_cannot_make_it_compute(client, address):
    for site in ("cross-site", "same-site"):
        heads = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
        assert client.get(address, headers=heads).status_code == 403
    assert client.get(address, headers={"Sec-Fetch-Site": "same-origin"}).status_code != 403


def test_pages_of_others_may_link_and_not_embed(client):
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert client.get("/", headers=link).status_code == 200
    assert client.get("/", headers=link | {"Sec-Fetch-Dest": "iframe"}).status_code == 403
    assert client.get("/", headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}).status_code == 403
    assert client.get("/healthz", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200


# The database


def test_readiness_writes(programme, serving):
    client = serving(programme)
    before = programme.status().events
    assert client.get("/readyz").status_code == 200
    assert programme.status().events == before
    event.listen(programme.store.engine, "checkout", lambda one, *_: one.execute("PRAGMA query_only = ON"))
    assert client.get(P).status_code == 200
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert not any(word in answer.text for word in ("pumps", "readonly"))


def test_strangers_that_ask_for_readiness_hold_up_nobody(programme, served):
    """While the database is locked each of them would wait, in a thread that answers requests."""
    with served(programme) as address, ThreadPoolExecutor(30) as pool:
        with programme.store._turn():
            asked = [pool.submit(httpx.get, f"{address}/readyz", timeout=60) for _ in range(30)]
            time.sleep(0.5)
            assert httpx.get(f"{address}{P}", timeout=10).status_code == 200
        assert {one.result().status_code for one in asked} == {200}


def test_a_newer_schema_stops_writing(programme, serving):
    """Another server upgraded the database while this one runs."""
    client = serving(programme)
    with programme.store.engine.connect() as connection:
        connection.exec_driver_sql("UPDATE programme SET version = '4711'")
        connection.commit()
    answer = client.post(f"{P}/observations", json=SEEN)
    assert (answer.status_code, answer.json()["code"]) == (503, "schema-version")
    assert client.get("/readyz").status_code == 503
    with programme.store.engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM observations WHERE step = 0")).scalar() == 5


def test_statements_and_locks_end(postgresql, solved_at):
    with Programme.open(solved_at(postgresql.database())) as programme, programme.store.reading() as tx:
        limits = [tx.execute(text(f"SHOW {name}_timeout")).scalar() for name in ("lock", "statement")]
    assert limits == ["30s", "5min"]


def test_files_are_for_their_owner(tmp_path, pumps):
    from evenhand.programme import store

    where = tmp_path / "new.db"
    where.touch(0o644)
    with Programme.create(where, pumps, [{"arm": "b1", "type": "big"}]) as made:
        made.observe([{"arm": "b1", "state": "worn"}], "walk")
        store.backup(where, tmp_path / "copy.db")
        found = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
    assert set(found) == {"new.db", "new.db-wal", "new.db-shm", "copy.db"}
    assert set(found.values()) == {0o600}


# Tables and TLS


def test_tables_are_safe_in_spreadsheets_and_read_back(tmp_path, programme, client):
    safe = {"=1+1": "'=1+1", "+x": "'+x", "-x": "'-x", "@x": "'@x", "'x": "'x", "'=x": "''=x", "-5": "-5", "1e3": "1e3"}
    # Full-width signs count, too; and some spreadsheets take a semicolon or a tab for the end of a cell.
    safe |= {"\uff1d1": "'\uff1d1", "a;=1;'-1": "a;'=1;''-1", "a\n=1": "a\n'=1", "a\t=1": "a\t'=1", "plain": "plain"}
    text = csv_text([["arm", "value"], *([name, -1.5] for name in safe)])
    assert list(csv.reader(io.StringIO(text)))[1:] == [[cell, "-1.5"] for cell in safe.values()]
    (tmp_path / "x.csv").write_text(text)
    assert read_table(tmp_path / "x.csv").columns["arm"] == list(safe)
    assert table_reader.read_table(tmp_path / "x.csv").frame["arm"].to_list() == list(safe)
    programme.join([{"arm": "=HYPERLINK(1)", "type": "big", "state": "worn"}])
    assert "\r\n'=HYPERLINK(1)," in client.get("/today/conditions.csv").text


def test_tls(programme, served, tmp_path):
    files = [str(tmp_path / name) for name in ("cert.pem", "key.pem")]
    with pytest.raises(InvalidInputError), served(programme, certificate=tuple(files)):
        pass
    require(shutil.which("openssl"), "openssl")
    subprocess.run(
        f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 "
        f"-out {files[0]} -keyout {files[1]}".split(),
        capture_output=True,
        check=True,
    )
    with served(programme, certificate=tuple(files)) as address:
        secure = address.replace("http:", "https:")
        known = ssl.create_default_context(cafile=files[0])
        assert httpx.get(f"{secure}/readyz", verify=known).json() == {"status": "ok"}
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"{address}/readyz")


# Privacy


def test_a_holder_limited_to_groups(programme, serving, held):
    """It sees and reports on its own arms; everything else, also of pages to come, is refused."""
    file, make = held
    make("boss", "write")
    token = Tokens.read(file).create("hilda", ROLES, ["hill"])
    boss, hilda = bearer(Tokens.read(file).rotate("boss")), bearer(token)
    client = serving(programme, tokens=Tokens.read(file))
    number = client.post(f"{P}/plan", headers=boss).json()["id"]
    own, others = {"h1", "h2"}, {"b1", "b2", "v1"}
    rows = client.get(f"{P}/plan/{number}", headers=hilda).json()["rows"]
    assert {row["arm"] for row in rows} == own
    assert {row["arm"] for row in client.get(f"{P}/plan", headers=hilda).json()["rows"]} == own
    assert {row["arm"] for row in client.get(f"{P}/arms?gone=true", headers=hilda).json()["arms"]} == own
    assert {row["arm"] for row in client.get(f"{P}/arms?gone=true", headers=boss).json()["arms"]} == own | others
    assert client.get(f"{P}/history?arm=h1", headers=hilda).status_code == 200
    assert client.get(f"{P}/history?arm=b1", headers=hilda).status_code == 404
    for address in ("events", "audit", "refits", "plans", "certificate", "views", "something-new"):
        assert client.get(f"{P}/{address}", headers=hilda).status_code == 403
    refused = client.post(f"{P}/observations", json=SEEN, headers=hilda)
    assert refused.status_code == 422
    assert not any(f"{name!r}" in refused.text or f"“{name}”" in refused.text for name in others - {"b1"})
    mine = {"observations": [{"arm": "h1", "state": "worn"}], "source": "walk"}
    assert client.post(f"{P}/observations", json=mine, headers=hilda).status_code == 200
    assert client.delete(f"{P}/arms?arm=h1&why=x", headers=hilda).status_code == 403
    for address in (f"{P}/plan", f"{P}/arms", f"{P}/plan/{number}/accept", f"{P}/erase"):
        assert client.post(address, json={}, headers=hilda).status_code == 403
    for address in (
        "/",
        "/arms",
        "/arms?show=all",
        "/arms/one?arm=h1",
        "/today/conditions.csv",
        f"/plans/{number}.csv",
    ):
        page = client.get(address, headers=hilda | {"Accept": "text/html"})
        assert page.status_code == 200
        assert not any(f">{name}<" in page.text or f"\n{name}," in page.text for name in others), address
    assert client.get("/arms/one?arm=b1", headers=hilda | {"Accept": "text/html"}).status_code == 404
    number = client.post(f"{P}/plan", headers=boss).json()["id"]
    client.post(f"{P}/plan/{number}/accept", headers=boss)
    form = {"plan": str(number), "how": "accepted"}
    sent = client.post("/today/record", data=form, headers=hilda | OWN, follow_redirects=False)
    assert sent.status_code == 303
    assert {row[0] for row in programme.events()[-1].body["done"]} == own
    assert "is recorded" in client.get(sent.headers["location"], headers=hilda | {"Accept": "text/html"}).text


def test_a_limited_holder_reports_on_no_other_group(template, tmp_path, serving, held):
    """Neither under the programme's own heads, nor by a name that belonged to the group before."""
    copy = tmp_path / "own.db"
    copy.write_bytes(template.read_bytes())
    file, make = held
    make("boss", "write")
    hilda = bearer(Tokens.read(file).create("hilda", ["read", "report"], ["hill"])) | OWN
    with Programme.open(copy) as programme:
        programme.set_words({"arm": "person, people"})
        programme.accept(programme.plan().plan)
        programme.leave(["h2"], "moved")
        programme.join([{"arm": "h2", "type": "small", "group": "valley"}])
        client, before = serving(programme, tokens=Tokens.read(file)), programme.status().events

        def send(path, text):
            more = {"how": "table", "source": "x", "text": text}
            return client.post(path, data=more, headers=hilda, follow_redirects=False)

        for path, text in (
            ("/today/conditions", "person,state\nb1,broken\n"),
            ("/today/conditions", "Person,state\nh2,broken\n"),
            ("/today/conditions", "arm;state\nv1;broken\n"),
            ("/today/conditions", "arm,state\nh1,xyz\n"),
            ("/today/record", "person,action\nb1,oil\n"),
            ("/today/record", "person,action,step\nv1,oil,0\n"),
        ):
            answer = send(path, text)
            assert answer.status_code == 422, (text, answer.status_code)
            assert not any(f"{mark[0]}b2{mark[1]}" in answer.text for mark in ("><", "“”", "''"))
        rows = {"records": [{"arm": "h2", "action": "run", "step": 1}], "source": "w"}
        assert client.post(f"{P}/records", json=rows, headers=hilda).status_code == 422
        rows = {"observations": [{"arm": "h2", "state": "worn"}], "source": "w"}
        assert client.post(f"{P}/observations", json=rows, headers=hilda).status_code == 422
        for name in ("h2", "b1"):
            seen = client.post("/arms/seen", data={"arm": name, "state": "worn", "source": "x"}, headers=hilda)
            assert 400 <= seen.status_code < 500, (name, seen.status_code)
        assert programme.status().events == before
        assert send("/today/conditions", "person,state\nH1,broken\n").status_code == 303
        assert send("/today/conditions", "arm;state\nh1;brokn\n").status_code == 200, "a repair is proposed"
        programme.change({"transfer": [{"arm": "h1", "group": "valley"}]})
        assert send("/today/conditions", "person,state\nh1,fine\n").status_code == 422
        form = {"plan": "1", "how": "accepted"}
        client.post("/today/record", data=form, headers=hilda)
        assert [row[0] for row in programme.events()[-1].body["done"]] == ["h2"], "the one that left the hill"
        programme.verify()


def test_the_page_of_an_arm_shows_the_latest_entries_and_leads_to_all(programme, client, monkeypatch):
    monkeypatch.setattr("evenhand.programme.web.arms_page.LATEST", 2)
    for state in ("worn", "broken", "fine"):
        programme.observe([{"arm": "b1", "state": state}], f"round of {state}")
    shown, whole = (client.get(f"/arms/one?arm=b1{more}").text for more in ("", "&all=1"))
    assert "round of fine" in shown
    assert "round of worn" not in shown
    assert 'href="/arms/one?arm=b1&amp;all=1"' in shown
    assert "round of worn" in whole


def test_who_looked_at_whom(programme, serving, held):
    file, make = held
    ada = make("ada", "write")
    client = serving(programme, tokens=Tokens.read(file))
    client.get(f"{P}/history?arm=b1", headers=ada)
    assert programme.views() == [], "switched off"
    programme.safeguards.set_rules({"log_views": True})
    before = programme.status().events
    client.get(f"{P}/history?arm=b1", headers=ada)
    client.get("/arms/one?arm=h2", headers=ada)
    client.get(f"{P}/history?arm=nobody", headers=ada)
    assert [(view.who, view.arm) for view in programme.views()] == [("ada", "h2"), ("ada", "b1")]
    listed = client.get(f"{P}/views?arm=b1", headers=ada).json()["views"]
    assert [view["arm"] for view in listed] == ["b1"]
    assert programme.status().events == before, "looking changes nothing"
    with programme.store.engine.connect() as connection, pytest.raises(Exception, match="never changed"):
        connection.exec_driver_sql("DELETE FROM views")
    programme.verify()


def test_erased_names_are_in_no_answer(programme, serving):
    """Neither in what clients have of earlier answers, nor in those of jobs, also if another process erases."""
    client, name = serving(programme, look_every=0.05), "Zoraida"
    programme.join([{"arm": name, "type": "small", "group": "hill", "state": "worn"}])
    programme.solve(seconds=0.1)
    number = programme.plan().plan
    programme.accept(number)
    programme.record([{"arm": name, "action": "run", "next_state": "worn"}], "crew")
    transfer = {"transfer": [{"arm": name, "group": "valley"}], "seconds": 0.1}
    job = client.post(f"{P}/changes/preview", json=transfer).json()["id"]
    while client.get(f"/v1/jobs/{job}").json()["status"] != "done":
        time.sleep(0.05)
    what_if = client.post(f"{P}/what-if", json={"budget": [2.0], "seconds": 0.1}).json()["id"]
    while client.get(f"/v1/jobs/{what_if}").json()["status"] != "done":
        time.sleep(0.05)
    programme.leave([name], "moved")
    plan = f"{P}/plan/{number}"
    there = [plan, f"/plans/{number}.csv", "/arms?show=all", "/fairness", f"{P}/audit", f"{P}/events", "/v1/jobs"]
    answers = {address: client.get(address) for address in [*there, f"/v1/jobs/{job}", f"/settings?job={job}"]}
    assert all(name in answer.text for answer in answers.values())
    with Programme.open(programme.store.address) as elsewhere:
        elsewhere.erase([name])
    while client.get(f"/v1/jobs/{job}").status_code != 404:
        time.sleep(0.05)
    for address, before in answers.items():
        answer = client.get(address, headers={"If-None-Match": before.headers.get("etag", "")})
        assert answer.status_code != 304
        assert name not in answer.text, address
    assert client.get(f"/v1/jobs/{what_if}").json()["status"] == "done"


def test_erasure_by_the_api(programme, serving, held):
    file, make = held
    boss, ada = make("boss", "write"), make("ada", "plan")
    client = serving(programme, tokens=Tokens.read(file))
    client.delete(f"{P}/arms", params={"arm": "b1", "why": "moved"}, headers=ada)
    assert client.post(f"{P}/erase", json={"arms": ["b1"]}, headers=ada).status_code == 403
    assert client.post(f"{P}/erase", json={"arms": ["b2"]}, headers=boss).status_code == 422
    (alias,) = client.post(f"{P}/erase", json={"older_than": 0}, headers=boss).json()["arms"]
    names = [arm["arm"] for arm in client.get(f"{P}/arms?gone=true", headers=boss).json()["arms"]]
    assert alias in names
    assert "b1" not in names
    programme.verify()
