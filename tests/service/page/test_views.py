"""The page without a browser: every view, every form as plain HTML sends it, and what is refused."""

import re
import time
from html import unescape

import pytest

from evenhand.programme import Programme, Tokens

from ...conftest import make_token

HTML = {"Accept": "text/html"}
VIEWS = ("/", "/fairness", "/what-if", "/arms", "/arms/one?arm=b1", "/model", "/settings")


def send(client, path, data=None, files=None, **more):
    """As a browser does: from the page itself."""
    heads = HTML | {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
    return client.post(path, data=data, files=files, headers=heads, follow_redirects=False, **more)


def words(answer):
    """What a page says, without its tags."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", answer.text)).split())


def conditions(client, text, name="today.csv"):
    return send(client, "/today/conditions", {"source": "inspection", "who": "Ada"}, {"file": (name, text.encode())})


@pytest.mark.parametrize("path", VIEWS)
def test_every_view_is_whole_at_the_first_step(client, path):
    answer = client.get(path, headers=HTML)
    assert answer.status_code == 200
    assert answer.text.count("<h1") == 1
    assert "<style" not in answer.text
    assert not re.search(r"<[^>]+\s(style|on\w+)=", answer.text)
    assert not re.search(r"<script(?! src=)", answer.text)


def test_a_day_by_plain_forms(client, programme):
    told = client.get(conditions(client, "arm,state\nb1,worn\nb2,fine\n").headers["location"], headers=HTML)
    assert "from inspection" in words(told)
    made = send(client, "/today/plan", {"who": "Ada"})
    assert made.status_code == 303
    plan = programme.current_plan()
    served = next(row for row in plan.rows if row.served)
    first = send(client, "/today/changes", {"plan": plan.id, "place": "accept", "add": served.arm})
    assert f"{served.arm} gets" in words(first)
    form = {"plan": plan.id, "change-arm": served.arm, "change-action": "run", "change-why": "no key", "who": "Ada"}
    done = send(client, "/today/accept", form)
    assert done.status_code == 303
    page = client.get(done.headers["location"], headers=HTML)
    assert "with 1 change" in words(page)
    assert "changed from" in words(page)
    recorded = send(
        client, "/today/record", {"plan": plan.id, "how": "accepted", "change-arm": "b1", "change-action": "oil"}
    )
    assert "for 5 arms" in words(client.get(recorded.headers["location"], headers=HTML))
    kept = {row[0]: row[2] for row in programme.events()[-1].body["done"]}
    assert kept["b1"] == "oil"
    assert kept[served.arm] == ("oil" if served.arm == "b1" else "run")
    assert programme.plan_of(plan.id).accepted_by == "Ada"
    looked = client.get("/fairness", headers=HTML)
    assert "overrides by person" in words(looked)
    assert "no key" in words(client.get(f"/arms/one?arm={served.arm}", headers=HTML))


def test_a_form_that_is_sent_twice_does_its_work_once(client, programme):
    before = programme.status().events
    for _ in range(2):
        done = send(client, "/today/conditions", {"text": "arm,state\nb1,worn", "source": "me", "key": "page-1"})
        assert done.status_code == 303
    assert programme.status().events == before + 1


def test_faults_are_shown_in_their_rows_and_nothing_is_stored(client, programme):
    before = programme.status().events
    answer = conditions(client, "arm,state\nb1,worn\nb7,fine\nb2,wron\n")
    assert answer.status_code == 422
    rows = re.findall(r'<tr class="fault">(.*?)</tr>', answer.text, re.S)
    assert ["b7" in row for row in rows] == [True, False]
    assert "Did you mean" in unescape(rows[1])
    assert "Nothing was stored" in words(answer)
    assert programme.status().events == before


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "choose a file"), ("arm,state\n", "empty"), ("arm\nb1\n", "state"), ("\xff", "CSV")],
)
def test_an_invalid_table_is_refused(client, text, said):
    answer = send(client, "/today/conditions", {"source": "me"}, {"file": ("a.csv", text.encode("latin-1"))})
    assert answer.status_code == 422
    assert said in words(answer)


def test_a_change_without_a_reason_is_refused_and_not_forgotten(client, programme):
    send(client, "/today/plan")
    plan = programme.current_plan()
    served = next(row for row in plan.rows if row.served)
    form = {"plan": plan.id, "change-arm": served.arm, "change-action": "run", "change-why": ""}
    answer = send(client, "/today/accept", form)
    assert answer.status_code == 422
    assert f"{served.arm}: has no reason" in words(answer)
    assert f'name="change-arm" value="{served.arm}"' in answer.text
    assert programme.current_plan().status == "proposed"


def test_more_than_the_budget_is_refused(client, programme):
    send(client, "/today/plan")
    plan = programme.current_plan()
    idle = [row for row in plan.rows if not row.served and row.state == "broken"] or [
        row for row in plan.rows if not row.served
    ]
    form = {"plan": plan.id, "change-arm": [row.arm for row in idle], "change-action": ["repair"] * len(idle)}
    answer = send(client, "/today/accept", form | {"change-why": ["why not"] * len(idle)})
    assert answer.status_code == 422
    assert "hours" in words(answer)


def test_a_plan_that_knows_less_is_refused_with_what_changed(client, programme):
    send(client, "/today/plan")
    plan = programme.current_plan()
    programme.observe([{"arm": "v1", "state": "broken"}], "phone")
    answer = send(client, "/today/accept", {"plan": plan.id})
    assert answer.status_code == 409
    assert "v1" in words(answer)
    assert "the plan again" in words(answer)


def test_another_budget_for_one_step(client, programme):
    done = send(client, "/today/plan", {"resource": "hours", "budget": "1"})
    assert done.status_code == 303
    assert programme.current_plan().budget == {"hours": 1.0}
    assert "expected a number" in words(send(client, "/today/plan", {"resource": "hours", "budget": "many"}))


def test_the_table_is_sorted_filtered_searched_and_cut(client, programme):
    send(client, "/today/plan")

    def arms(query):
        return re.findall(r'<tr data-arm="(\w+)"', client.get(f"/?{query}", headers=HTML).text)

    assert arms("sort=arm") == ["b1", "b2", "h1", "h2", "v1"]
    assert arms("sort=arm&down=1") == ["v1", "h2", "h1", "b2", "b1"]
    assert arms("group=hill&sort=arm") == ["h1", "h2"]
    assert arms("q=broken&sort=arm") == ["b2", "h2"]
    assert set(arms("show=served")) == {row.arm for row in programme.current_plan().rows if row.served}
    assert arms("page=999&sort=arm") == arms("sort=arm")
    assert arms("sort=nothing&page=-1&q=") == arms("")


def test_names_are_never_markup(client, programme):
    nasty = '<b onclick="x()">&amp;'
    form = {"how": "one", "arm": nasty, "kind": "0", "state": "fine", "who": "<i>"}
    told = send(client, "/arms/join", form)
    assert told.status_code == 303
    for path in ("/", "/arms", f"/arms/one?arm={nasty.replace('&', '%26')}"):
        send(client, "/today/plan")
        answer = client.get(path, headers=HTML)
        assert answer.status_code == 200
        assert "<b onclick" not in answer.text
        assert nasty in words(answer) or nasty in unescape(answer.text)


def test_arms_join_and_leave(client, programme):
    table = "arm,type,group,state\nn1,small,hill,fine\nn2,small,moon,fine\n"
    refused = send(client, "/arms/join", {"how": "table"}, {"file": ("new.csv", table.encode())})
    assert refused.status_code == 422
    assert "n2" in re.findall(r'<tr class="fault">(.*?)</tr>', refused.text, re.S)[0]
    told = send(client, "/arms/join", {"how": "one", "arm": "n1", "kind": "1", "state": "fine"})
    assert "1 arm joined" in words(client.get(told.headers["location"], headers=HTML))
    gone = send(client, "/arms/leave", {"arm": "n1", "why": "sold"})
    assert "n1 left" in words(client.get(gone.headers["location"], headers=HTML))
    assert "n1" in words(client.get("/arms?show=gone", headers=HTML))
    assert send(client, "/arms/leave", {"arm": "b1", "why": ""}).status_code == 422


def test_one_arm_is_reported_late_and_both_reports_are_stored(client, programme):
    told = send(client, "/arms/seen", {"arm": "b1", "state": "worn", "step": "0", "source": "phone"})
    page = words(client.get(told.headers["location"], headers=HTML))
    assert "seen in fine" in page
    assert "seen in worn" in page
    assert send(client, "/arms/seen", {"arm": "b1", "state": "blue", "source": "phone"}).status_code == 422


@pytest.mark.parametrize(
    "path", ["/nothing", "/arms/one?arm=nobody", "/plans/99.csv", "/static/page.py", "/plans/x.csv"]
)
def test_what_is_not_there_is_reported_as_a_page(client, path):
    answer = client.get(path, headers=HTML)
    assert answer.status_code in (404, 422)
    assert answer.headers["content-type"].startswith("text/html")
    assert "Content-Security-Policy" in answer.headers
    assert client.get(path).headers["content-type"] == "application/problem+json"


def test_pages_of_others_cannot_send_forms(client, programme):
    before = programme.status().events
    heads = HTML | {"Origin": "http://elsewhere.example", "Sec-Fetch-Site": "cross-site"}
    answer = client.post("/today/plan", data={"who": "Eve"}, headers=heads)
    assert answer.status_code == 403
    assert programme.status().events == before


def test_signing_in_and_out(programme, serving, tmp_path):
    writes, reads = (make_token(tmp_path / "tokens", role, role) for role in ("write", "read"))
    client = serving(programme, tokens=Tokens.read(tmp_path / "tokens"))
    assert client.get("/", headers=HTML, follow_redirects=False).headers["location"] == "/login"
    assert client.get("/static/page.css").status_code == 200
    refused = send(client, "/login", {"token": "evenhand_wrong"})
    assert refused.status_code == 401
    assert "invalid" in words(refused)
    done = send(client, "/login", {"token": reads})
    kept = done.headers["set-cookie"].lower()
    assert "httponly" in kept
    assert "samesite=strict" in kept
    assert "change nothing" in words(client.get("/", headers=HTML))
    refused = send(client, "/today/plan")
    assert refused.status_code == 403
    assert "role plan" in words(refused)
    send(client, "/login", {"token": writes})
    assert send(client, "/today/plan").status_code == 303
    assert programme.events()[-1].who == "write"
    send(client, "/logout")
    assert client.get("/", headers=HTML, follow_redirects=False).status_code == 303


def test_files_to_take_along_are_read_back(client, programme):
    blank = client.get("/today/conditions.csv").text
    filled = "\n".join(line + ("fine" if number else "") for number, line in enumerate(blank.split("\r\n")) if line)
    assert conditions(client, filled).status_code == 303
    send(client, "/today/plan")
    plan = programme.current_plan()
    send(client, "/today/accept", {"plan": plan.id})
    table = client.get(f"/plans/{plan.id}.csv").content
    done = send(client, "/today/record", {"how": "table", "plan": plan.id}, {"file": ("done.csv", table)})
    assert done.status_code == 303
    assert len(programme.events()[-1].body["done"]) == 5


def test_an_unsound_supposition_is_refused_at_once(client):
    wrong = {"resource": "hours", "budget": "-1", "welfare": "utilitarian"}
    assert send(client, "/what-if", wrong).status_code == 422
    assert "welfare" in words(send(client, "/what-if", {"resource": "hours", "budget": "3", "welfare": "nice"}))


def test_stopping_leads_to_no_other_server(client):
    for back in ("//elsewhere.example", "https://elsewhere.example", "/\\elsewhere.example"):
        assert send(client, "/computing/none/stop", {"back": back}).headers["location"] == "/"


def test_no_arm_takes_part(pumps, tmp_path, serving):
    with Programme.create(tmp_path / "one.db", pumps, [{"arm": "b1", "type": "big"}]) as programme:
        programme.leave(["b1"], "sold")
        client = serving(programme)
        for path in ("/", "/arms", "/fairness"):
            assert client.get(path, headers=HTML).status_code == 200
        for path in ("/model", "/what-if"):
            answer = client.get(path, headers=HTML)
            assert "arm takes part" in words(answer) or answer.status_code == 200
        assert "arm takes part" in words(send(client, "/today/plan"))


@pytest.mark.slow
def test_the_first_plan_waits_for_a_policy_in_the_background(pumps, tmp_path, serving):
    roster = [{"arm": f"b{number}", "type": "big", "state": "worn"} for number in range(200)]
    with Programme.create(tmp_path / "new.db", pumps, roster) as programme:
        client = serving(programme)
        where = send(client, "/today/plan", {"who": "Ada"}).headers["location"]
        for _ in range(600):
            answer = client.get(where, headers=HTML, follow_redirects=False)
            if "job=" not in where or answer.status_code == 303:
                break
            assert "data-job=" in answer.text
            time.sleep(0.1)
        assert send(client, "/today/plan", {"who": "Ada"}).status_code == 303
        assert programme.current_plan().arms == 200
