"""Messy uploads, confirmed files, undo and lasting changes, on the page and by the API."""

import html
import io
import json
import re
import struct
import time
import zipfile

import openpyxl
import pytest

HTML = {"Accept": "text/html"}
P = "/v1/programme"


def send(client, path, data=None, files=None):
    heads = HTML | {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
    return client.post(path, data=data, files=files, headers=heads, follow_redirects=False)


def upload(client, name, body, path="/today/conditions", **fields):
    return send(client, path, {"source": "crew"} | fields, {"file": (name, body)})


def hidden(answer):
    """The fields of the form that confirms a proposal."""
    (text,) = re.findall(r"<textarea name=\"text\" hidden>(.*?)</textarea>", answer.text, re.S)
    (address,) = re.findall(r'<form class="panel no-print" method="post" action="([^"]*)"', answer.text)
    return address, {"text": text, "cleaned": "yes", "how": "table", "source": "crew"}


def seen(programme):
    return {row.arm: row.state for row in programme.plan_of(programme.plan().plan).rows if row.known == "seen"}


MESSY = "Rounds of Monday;;\nPump;Site;Condition\nB1;big;brokken\nh1;hill;\nv1;valley;Fine\n"


def test_a_messy_table_is_shown_and_stored_when_confirmed(client, programme):
    programme.accept(programme.plan().plan)
    events = programme.status().events
    shown = upload(client, "rounds.csv", MESSY.encode())
    assert shown.status_code == 200
    assert "brokken" in shown.text
    assert programme.status().events == events
    assert send(client, *hidden(shown)).status_code == 303
    assert seen(programme) == {"b1": "broken", "v1": "fine"}


def test_an_excel_file_is_read_and_its_size_is_checked_first(client, programme):
    book, stream = openpyxl.Workbook(), io.BytesIO()
    for row in (["Pump", "State"], ["b1", "worn"], ["b2", None]):
        book.active.append(row)
    book.save(stream)
    shown = upload(client, "rounds.xlsx", stream.getvalue())
    assert shown.status_code == 200
    assert hidden(shown)[1]["text"].split() == ["arm,state", "b1,worn", "b2,"]
    large = io.BytesIO()
    with zipfile.ZipFile(large, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/worksheets/sheet1.xml", b"0" * (65 * 2**20))
    for name, body in (("large.xlsx", large.getvalue()), ("x.csv.gz", b"\x1f\x8b" + b"0" * 50), ("x.xlsx", b"PK00")):
        assert upload(client, name, body).status_code == 422


@pytest.mark.parametrize(
    ("rows", "status", "message"),
    [
        ([["Pump", "How is it?"], ["b1", "Worn"], ["b2", "wornn"], ["v1", "broken"]], 200, "“wornn” is read as “worn”"),
        ([["Pump", "State"], ["b1", "worn"], ["zz9", "worn"]], 422, "zz9"),
        ([["Pump", "Remark"], ["b1", "see file"]], 422, "Remark"),
    ],
    ids=["column by its entries", "unknown arm", "no column"],
)
def test_a_sheet_is_read_by_its_entries_or_refused_for_what_is_wrong(client, rows, status, message):
    book, stream = openpyxl.Workbook(), io.BytesIO()
    for row in rows:
        book.active.append(row)
    book.save(stream)
    shown = upload(client, "rounds.xlsx", stream.getvalue())
    assert shown.status_code == status and message in html.unescape(shown.text)
    assert "UTF-8" not in shown.text


def sheet(*far):
    """An Excel file with two columns in its first row, and cells elsewhere."""
    book, stream = openpyxl.Workbook(), io.BytesIO()
    book.active.append(["arm", "state"])
    for cell in far:
        book.active[cell] = "x"
    book.save(stream)
    return stream.getvalue()


def padded(megabytes):
    """An Excel file with a long comment in its sheet, and its size as the directory of the archive has it."""
    stream, sent = io.BytesIO(), io.BytesIO()
    stream.write(sheet())
    with zipfile.ZipFile(stream) as old, zipfile.ZipFile(sent, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            text = old.read(name)
            if name.endswith("sheet1.xml"):
                text = text.replace(b"</sheetData>", b"<!--" + b" " * (megabytes * 2**20) + b"--></sheetData>")
                size = struct.pack("<I", len(text))
            new.writestr(name, text)
    return sent.getvalue(), size


@pytest.mark.parametrize("path", ["/today/conditions", "/settings/history"])
def test_hostile_excel_files_are_refused(client, path):
    packed, size = padded(70)
    lying = packed.replace(size, struct.pack("<I", 1000))
    assert lying != packed
    for body in (sheet("XFD1048576"), sheet("Z1000"), lying, b"AB" + packed):
        assert upload(client, "rounds.xlsx", body, path).status_code == 422
    assert client.get("/", headers=HTML).status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        b"arm,time,state\n" + b"b1,1,fine\n" * 200_002,
        b"arm,time,state\n" + b"b1,1,fine\r" * 200_002,
        b"arm,time,state\n" + b"b1,1,fine\n" * 200_002 + sheet(),
        b"arm,time,state" + b",x" * 500 + b"\nb1,1,fine\n",
        b"arm,time,state" + b',"\n"' * 20_000 + b"\nb1,1,fine\n",
        b"arm,time,state\n" + b"".join(b"b1,1,fi%dne\n" % number for number in range(2000)),
        b"arm,time,state\nb1,1,fi" + b"n" * 5000 + b"\nb1,2,fu" + b"n" * 5000 + b"\n",
    ],
    ids=["rows", "old-line-ends", "before-an-archive", "columns", "quoted-columns", "names", "long-names"],
)
def test_tables_beyond_the_bounds_are_refused_at_once(client, body):
    began = time.monotonic()
    for path in ("/settings/history", "/today/conditions"):
        answer = upload(client, "rounds.csv", body, path)
        assert answer.status_code == 422
        assert len(answer.content) < 200_000
    assert time.monotonic() - began < 20


def test_rows_that_repairs_do_not_help_are_refused_as_before(client, programme):
    answer = upload(client, "rounds.csv", b"arm,state\nb1,worn\nb9,worn\n")
    assert answer.status_code == 422
    assert "line 3" in answer.text
    assert "cleaned" not in answer.text


def test_the_file_of_the_week_before_is_confirmed_on_the_page(client, programme):
    names = ("b1", "b2", "h1", "h2", "v1")
    rows = "".join(["arm,state\n", *(f"{name},broken\n" for name in names)]).encode()
    assert upload(client, "rounds.csv", rows).status_code == 303
    programme.accept(programme.plan().plan)
    asked = upload(client, "rounds.csv", rows)
    assert asked.status_code == 409
    assert 'name="confirmed"' in asked.text
    assert (
        send(client, "/today/conditions", {"text": rows.decode(), "source": "crew", "confirmed": "yes"}).status_code
        == 303
    )
    body = {
        "observations": [{"arm": name, "state": "broken"} for name in ("b1", "b2", "h1", "h2", "v1")],
        "source": "x",
    }
    programme.accept(programme.plan().plan)
    refused = client.post(f"{P}/observations", json=body)
    assert (refused.status_code, refused.json()["code"]) == (409, "same-as-earlier")
    assert client.post(f"{P}/observations", json=body | {"confirmed": True}).status_code == 200


def test_undo_by_button_and_by_the_api(client, programme):
    answer = upload(client, "rounds.csv", b"arm,state\nb1,worn\n")
    page = client.get(answer.headers["location"], headers=HTML)
    (event,) = re.findall(r'action="/undo".*?name="event" value="(\d+)"', page.text)
    assert send(client, "/undo", {"event": event}).status_code == 303
    assert seen(programme)["b1"] == "fine"  # as the roster says
    assert f"undone by event {int(event) + 1}" in client.get("/settings", headers=HTML).text
    assert send(client, "/undo", {"event": event}).status_code == 409
    accepted = programme.accept(programme.plan().plan).event
    undone = client.post(f"{P}/events/{accepted}/undo", json={"why": "too early", "who": "Ana"})
    assert undone.json()["kind"] == "accepted"
    assert programme.status().step == 0
    assert client.post(f"{P}/events/9999/undo").status_code == 404
    assert client.post(f"{P}/events/{accepted}/undo").status_code == 409


def job_of(client, job, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = client.get(f"/v1/jobs/{job}").json()
        if found["status"] in ("done", "failed"):
            return found
        time.sleep(0.1)
    raise TimeoutError


def test_a_group_closes_on_the_page(client, programme):
    form = {"resource": "hours", "budget": "4", "close": "hill", "into": "valley", "start": "0"}
    where = send(client, "/settings/preview", form).headers["location"]
    assert job_of(client, where.partition("job=")[2])["status"] == "done"
    page = client.get(where, headers=HTML)
    given = re.findall(r'name="change" value="([^"]*)"', page.text)[0].replace("&#34;", '"')
    assert json.loads(given)["close"] == {"hill": "valley"}
    assert programme.status().groups["hill"] == 2
    assert send(client, "/settings/adopt", {"change": given, "why": "rent", "who": "Ana"}).status_code == 303
    status = programme.status()
    assert (status.groups, status.budget) == ({"big": 2, "valley": 3}, {"hours": 4.0})
    assert programme.events()[-1].body["why"] == "rent"
    wrong = send(client, "/settings/preview", form | {"close": "lake", "arm": "zz"}).headers["location"]
    job_of(client, wrong.partition("job=")[2])
    assert "zz" in client.get(wrong, headers=HTML).text
    assert send(client, "/settings/adopt", {"change": "{"}).status_code == 422


@pytest.mark.parametrize("steps", ["4 weeks", "-1", "4.5"])
def test_a_wait_that_is_no_number_does_not_end_a_promise(client, steps):
    form = {"resource": "hours", "budget": "4", "state": "broken", "steps": steps, "start": "0"}
    assert send(client, "/settings/preview", form).status_code == 422


def test_changes_and_history_by_the_api(client, programme):
    asked = {"budget": {"hours": 0}, "seconds": 1.0}
    found = job_of(client, client.post(f"{P}/changes/preview", json=asked).json()["id"])["answer"]
    assert found["difference"] < 0
    change = {"budget": [2], "start": 5, "why": "less"}
    assert client.post(f"{P}/changes", json=change).json()["change"]["budget"] == {"hours": 2.0}
    assert programme.status().budget == {"hours": 3.0}
    assert client.post(f"{P}/changes", json={"start": "never", "welfare": "maximin"}).status_code == 422
    rows = [{"arm": "B1", "time": 1, "state": "worn", "action": "repair"}, {"arm": "b2", "time": 2, "state": None}]
    imported = client.post(f"{P}/history", json={"records": rows, "source": "old system"})
    assert imported.json() | {"event": 0} == {"event": 0, "first": -2, "observations": 1, "records": 1, "left_out": 0}
    blank = {"observations": [{"arm": "b1", "state": None}, {"arm": "b2", "state": "worn"}], "source": "x"}
    assert client.post(f"{P}/observations", json=blank).json()["blank"] == 1


def test_past_records_are_shown_before_they_are_stored(client, programme):
    programme.set_words({"start": "2026-06-01", "period": "week"})
    body = b"Pump,Date,Condition,Work done\nB1,04/05/2026,worn,oil\nb2,12/05/2026,fine,run\nb2,19/05/2026,Fine,\n"
    shown = upload(client, "old.csv", body, "/settings/history")
    assert shown.status_code == 200
    assert send(client, *hidden(shown)).status_code == 303
    assert programme.events()[-1].body | {"source": ""} == {
        "source": "",
        "first": -4,
        "seen": 3,
        "done": 2,
        "left_out": 0,
    }


@pytest.mark.parametrize("path", ["/undo", "/settings/preview"])
def test_addresses_of_forms_lead_back(client, path):
    assert client.get(path, headers=HTML, follow_redirects=False).headers["location"] == "/settings"
