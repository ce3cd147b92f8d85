"""Page, tables and reports of a programme speak its own words, and none of the library's for them."""

import base64
import html
import re
from urllib.parse import urljoin

import pytest

from evenhand.programme import Programme

WORDS = {
    "arm": "yurt",
    "group": "steppe, steppes",
    "step": "moon",
    "value": "warm nights",
    "resources": {"hours": "yak"},
    "period": "month",
    "start": "2026-01-31",
}
TERM = re.compile(r"\b(arm|group|step)s?\b", re.IGNORECASE)
SHOWN = re.compile(r'(?:aria-label|placeholder|title|alt|data-head|data-found|content)="([^"]*)"')


@pytest.fixture
def worded(lived, tmp_path):
    copy = tmp_path / "yurts.db"
    copy.write_bytes(lived.read_bytes())
    with Programme.open(copy) as programme:
        programme.leave(["v1"], "sold")
        programme.set_words(WORDS)
        yield programme


def texts(answer):
    """What a reader sees or hears of an answer."""
    if "html" not in answer.headers["content-type"]:
        return answer.text
    images = [base64.b64decode(one).decode() for one in re.findall(r"base64,([\w+/=]+)", answer.text)]
    body = re.sub(r"<(script|style).*?</\1>", " ", answer.text, flags=re.DOTALL)
    parts = [*SHOWN.findall(body), re.sub(r"<[^>]*>", " ", body)]
    return html.unescape(" ".join([*parts, *(re.sub(r"<[^>]*>", " ", image) for image in images)]))


def no_terms(answer):
    found = texts(answer)
    terms = [found[max(0, one.start() - 60) : one.end() + 40] for one in TERM.finditer(found)]
    assert terms == [], answer.request.url
    return found


def test_no_view_table_or_report_has_the_terms_of_the_library(serving, worded):
    client = serving(worded)
    todo, seen = ["/", "/?of=last", "/fairness?first=2026-02-28&last=2026-04-30", "/arms?show=all"], {}
    while todo:
        address = todo.pop()
        if address in seen:
            continue
        seen[address] = no_terms(answer := client.get(address, headers={"accept": "text/html"}))
        assert answer.status_code == 200, address
        links = re.findall(r'href="(/[^"#]*)', answer.text) if "html" in answer.headers["content-type"] else []
        todo += [
            urljoin(address, html.unescape(link)) for link in links if "static" not in link and "sort=" not in link
        ]
    assert {"/", "/fairness", "/what-if", "/arms", "/model", "/settings"} <= set(seen)
    assert any(address.startswith("/fairness/report") for address in seen)
    assert any(address.endswith(".csv") for address in seen)
    assert "4 yurts share 3 yaks every moon" in " ".join(seen["/"].split())
    assert "moon of 30 September 2026" in seen["/"]
    assert seen["/today/conditions.csv"].startswith("yurt,type,steppe,condition")


REFUSED = [
    ("/today/conditions", {"text": "yurt,condition,moon\nb7,fine,\nb1,fine,2027-03-01\nb1,fine,x", "source": "a"}),
    ("/today/record", {"text": "yurt\nb1", "how": "table"}),
    ("/today/accept", {"plan": "1"}),
    ("/arms/join", {"text": "yurt,type,steppe\nb1,big,hill", "how": "table"}),
    ("/arms/join", {"arm": "v1", "kind": "0", "how": "one"}),
    ("/arms/seen", {"arm": "b1", "state": "fine", "step": "2027-01-01", "source": "a"}),
    ("/arms/leave", {"arm": "b1", "why": ""}),
    ("/settings/words", {"arm": "condition", "period": "week"}),
]


def test_refusals_have_the_words_and_tables_with_words_and_dates_are_read(serving, worded):
    client, origin = serving(worded), {"origin": "http://localhost"}
    for path, fields in REFUSED:
        answer = client.post(path, data=fields, headers=origin)
        assert answer.status_code in (409, 422)
        no_terms(answer)
    no_terms(client.get("/arms/one?arm=nobody", headers={"accept": "text/html"}))
    sent = {"text": "Yurt,Condition,Moon\nb1,broken,2026-08-31\nb2,worn,7\n", "source": "herders"}
    answer = client.post("/today/conditions", data=sent, headers=origin, follow_redirects=True)
    assert "2 conditions stored" in no_terms(answer)
    seen = [entry for entry in worded.history("b1") if entry.source == "herders"]
    assert [(entry.step, entry.state) for entry in seen] == [(7, "broken")]


def test_words_are_changed_on_the_page_and_by_the_api(serving, worded):
    client, origin = serving(worded), {"origin": "http://localhost"}
    form = {"arm": "ger, gers", "group": "valley", "step": "", "period": "", "start": "", "value": "", "who": "Ada"}
    answer = client.post("/settings/words", data=form, headers=origin, follow_redirects=True)
    assert answer.status_code == 200
    assert "4 gers share 3 hours every step" in " ".join(texts(client.get("/")).split())
    found = client.get("/v1/programme/words").json()
    assert (found["arm"], found["step"], found["start"], found["resources"]) == ("ger", "step", None, {})
    put = client.put("/v1/programme/words", json={"resources": {"hours": "yak"}, "who": "Ada"}, headers=origin)
    assert put.json() == found | {"resources": {"hours": "yak"}}
    refused = client.put("/v1/programme/words", json={"resources": {"days": "yak"}}, headers=origin)
    assert (refused.status_code, refused.json()["code"]) == (422, "unknown-name")
    assert worded.verify()
