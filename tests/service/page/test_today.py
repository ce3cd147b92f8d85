"""The view of today by plain HTTP: what is recorded stays recorded, and what is typed is not lost without a word."""

import re
from dataclasses import replace
from html import unescape

import pytest

from evenhand.programme import Programme
from evenhand.programme.web import render, today_page

HTML = {"Accept": "text/html"}


def send(client, path, data=None, files=None):
    heads = HTML | {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
    return client.post(path, data=data, files=files, headers=heads, follow_redirects=False)


def words(answer):
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", answer.text)).split())


def look(client, path="/"):
    return client.get(path, headers=HTML)


def row_of(answer, arm):
    return re.search(rf'<tr data-arm="{arm}".*?</tr>', answer.text, re.S).group()


@pytest.fixture
def accepted(programme):
    """The number of a plan that was just accepted."""
    plan = programme.plan(who="Ada").plan
    programme.accept(plan, [], who="Ada")
    return plan


def last_done(programme):
    return {row[0]: row[2] for row in programme.events()[-1].body["done"]}


def test_recording_again_writes_only_what_is_new(client, programme, accepted):
    programme.record([{"arm": "v1", "action": "oil", "reward": 0.5}], "another tab")
    assert send(client, "/today/record", {"plan": accepted, "how": "accepted"}).status_code == 303
    assert set(last_done(programme)) == {"b1", "b2", "h1", "h2"}
    again = {"plan": accepted, "how": "accepted", "change-arm": "b1", "change-action": "oil"}
    assert send(client, "/today/record", again).status_code == 303
    assert last_done(programme) == {"b1": "oil"}
    other = again | {"change-arm": "v1", "change-action": "run"}
    assert send(client, "/today/record", other).status_code == 303
    assert programme.events()[-1].body["done"] == [["v1", 0, "run", 0.5, None]]
    assert sorted(programme.recorded(0).values()).count("oil") >= 1


def test_recording_what_is_recorded_is_refused_and_writes_nothing(client, programme, accepted):
    for _ in range(2):
        kept = send(client, "/today/record", {"plan": accepted, "how": "accepted", "key": "page-7"})
        assert kept.status_code == 303
    before = programme.status().events
    answer = send(client, "/today/record", {"plan": accepted, "how": "accepted"})
    assert answer.status_code == 409
    assert "recorded already" in words(answer)
    assert programme.status().events == before
    unknown = {"plan": accepted, "how": "accepted", "change-arm": "b7", "change-action": "oil"}
    assert "b7" in words(send(client, "/today/record", unknown))


def test_only_accepted_plans_are_recorded(client, programme):
    plan = programme.plan().plan
    answer = send(client, "/today/record", {"plan": plan, "how": "accepted"})
    assert answer.status_code == 409
    assert "is not accepted" in words(answer)


def test_today_shows_what_was_recorded(client, programme, accepted):
    assert "Then record that" in words(look(client))
    programme.record([{"arm": "v1", "action": "oil"}], "crew")
    page = look(client)
    assert "1 of 5" in words(page)
    assert "done otherwise: oil" in row_of(page, "v1") or "recorded as done" in row_of(page, "v1")
    assert 'data-action="oil"' in row_of(page, "v1")
    assert "recorded as done" not in row_of(page, "b1")
    send(client, "/today/record", {"plan": accepted, "how": "accepted"})
    page = look(client)
    assert "recorded as done" in row_of(page, "b1")
    assert "done as accepted?" not in words(page)
    assert "Record the corrections" in words(page)


def test_steps_that_were_never_recorded_stay_in_sight(client, programme, accepted):
    assert "Not recorded yet" not in words(look(client))
    programme.record([{"arm": "v1", "action": "oil"}], "crew")
    programme.accept(programme.plan().plan, [])
    assert "Step 0: 4" in words(look(client))
    assert send(client, "/today/record", {"plan": accepted, "how": "accepted"}).status_code == 303
    assert "Not recorded yet" not in words(look(client))
    assert programme.recorded(0).keys() == {row.arm_id for row in programme.plan_of(accepted).rows}


def test_the_budget_of_this_step_is_not_forgotten(client, programme):
    assert 'name="budget" type="number" min="0" step="any" value="3"' in look(client).text
    send(client, "/today/plan", {"resource": "hours", "budget": "1"})
    page = look(client)
    assert "the budget is 1 hour." in words(page)
    assert 'name="budget" type="number" min="0" step="any" value="1"' in page.text
    waiting = look(client, "/?ready=1&there=2.5")
    assert 'step="any" value="2.5"' in waiting.text
    assert look(client, "/?there=many").status_code == 200


@pytest.mark.parametrize("form", ["", "/conditions", "/plan", "/changes", "/accept", "/record"])
def test_the_address_of_a_form_leads_to_today(client, form):
    answer = client.get(f"/today{form}", headers=HTML, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")


def test_the_second_acceptance_reports_the_first_and_what_was_discarded(client, programme, accepted):
    form = {"plan": accepted, "change-arm": "b1", "change-action": "oil", "change-why": "noise", "who": "Bob"}
    answer = send(client, "/today/accept", form)
    assert answer.status_code == 409
    assert "already by Ada" in words(answer)
    assert "gets oil (noise)" in words(answer)


def test_a_plan_that_is_out_of_date_says_so(client, programme):
    programme.plan()
    assert "out of date" not in words(look(client))
    programme.observe([{"arm": "v1", "state": "broken"}], "phone")
    programme.join([{"arm": "b9", "type": "big", "state": "fine"}])
    page = look(client)
    told = re.search(r'id="stale".*?</div>', page.text, re.S).group()
    assert "v1" in told
    assert "b9: joined since" in unescape(told)
    assert '<button class="main" id="accept-button"' not in page.text
    assert re.search(r'<li class="now" aria-current="step">.*?</li>', page.text, re.S).group().count("out of date") == 1


def test_bars_and_the_filter_know_changes_that_are_typed(client, programme):
    plan = programme.plan_of(programme.plan().plan)
    served = next(row for row in plan.rows if row.served)
    form = {
        "plan": plan.id,
        "place": "accept",
        "change-arm": served.arm,
        "change-action": "run",
        "change-why": "no key",
    }
    assert "with the changes" in words(send(client, "/today/changes", form))
    assert "with the changes" not in words(look(client))
    found = look(client, f"/?show=changed&mine={served.arm}")
    assert re.findall(r'<tr data-arm="(\w+)"', found.text) == [served.arm]


def test_a_blank_reason_is_refused(client, programme):
    plan = programme.plan().plan
    form = {"plan": plan, "change-arm": "b1", "change-action": "oil", "change-why": "   "}
    assert "b1: has no reason" in words(send(client, "/today/accept", form))
    assert 'pattern=".*\\S.*"' in look(client).text


def test_the_accepted_list_goes_by_what_was_accepted(client, programme):
    plan = programme.plan_of(programme.plan().plan)
    served = next(row for row in plan.rows if row.served)
    programme.accept(plan.id, [{"arm": served.arm, "action": "run", "why": "no key"}], who="Ada")
    row = row_of(look(client), served.arm)
    assert "by hand: no key" in unescape(row)
    assert served.reason not in unescape(row)
    shown = re.findall(r'<tr data-arm="(\w+)"', look(client, "/?show=served").text)
    assert set(shown) == {row.arm for row in plan.rows if row.served} - {served.arm}


def test_heads_name_the_step_of_the_work(client, programme):
    programme.plan()
    assert "not yet accepted" in words(look(client)).casefold()
    programme.accept(programme.current_plan_number(), [], who="Ada")
    page = look(client)
    assert "<title>Step 0 ·" in page.text
    assert '<span class="print-only">Step 0</span>' in page.text
    assert page.text.count("☐") == 5


def test_the_last_step_is_corrected_while_a_plan_is_open(client, programme, accepted):
    send(client, "/today/record", {"plan": accepted, "how": "accepted"})
    programme.plan()
    assert 'href="/?of=last"' in look(client).text
    page = look(client, "/?of=last")
    assert "1 is open" in words(page)
    assert "Done otherwise" in row_of(page, "v1")
    added = send(client, "/today/changes", {"plan": accepted, "place": "record-form", "add": "v1"})
    assert "v1 got" in words(added)


def test_blanks_of_the_list_were_not_seen(client, programme):
    table = "arm,type,group,state\nb1,big,valley,Worn\nb2,big,valley,\n"
    assert send(client, "/today/conditions", {"text": table, "source": "Ada"}).status_code == 303
    assert programme.events()[-1].body["seen"] == [["b1", 0, "worn"]]
    blank = send(client, "/today/conditions", {"text": "arm,state\nb1,\n", "source": "Ada"})
    assert blank.status_code == 422


def test_only_a_plan_that_is_open_must_be_made_again(client, programme):
    def joins(name):
        event = programme.join([{"arm": name, "type": "big", "state": "fine"}]).event
        return words(look(client, f"/?event={event}"))

    assert "be made again" not in joins("n1")
    programme.plan()
    assert "be made again" in joins("n2")


@pytest.mark.parametrize("path", ["/today/record", "/today/conditions"])
def test_all_faults_of_a_table_come_at_once(client, programme, accepted, path):
    before = programme.status().events
    column = "action" if path.endswith("record") else "state"
    table = f"arm,{column}\nb1,blue\nb2,fine,fine,fine\nb7,oil\n"
    answer = send(client, path, {"how": "table", "text": table, "source": "Ada", "plan": accepted})
    faults = [" ".join(row.split()) for row in re.findall(r'<tr class="fault">(.*?)</tr>', answer.text, re.S)]
    assert len(faults) == 3
    assert "has 4 entries" in faults[1]
    assert programme.status().events == before
    only = send(client, path, {"how": "table", "text": f"arm,{column}\nb2,1,2\n", "source": "Ada"})
    assert "has 3 entries" in words(only)
    sound = send(client, path, {"how": "table", "text": f"arm,{column}\nb1,0\nb2,1,2\n", "source": "Ada"})
    assert sound.status_code == 422
    assert programme.status().events == before


def test_who_joins_by_a_table_with_a_row_too_long_does_not(client, programme):
    before = programme.status().events
    table = "arm,type,group,state\nn1,small,hill,fine\nn2,small,hill,fine,fine\n"
    assert send(client, "/arms/join", {"how": "table"}, {"file": ("new.csv", table.encode())}).status_code == 422
    assert programme.status().events == before


def test_today_shows_when_arms_were_last_served(client, programme, accepted):
    plan = programme.plan_of(accepted)
    served = next(row.arm for row in plan.rows if row.served)
    idle = next(row.arm for row in plan.rows if not row.served)
    programme.record_rest(accepted, {served: "run"}, "crew")
    programme.plan()
    assert "not so far" in row_of(look(client), served)
    programme.record([{"arm": served, "action": "oil"}], "crew")
    assert "1 step ago" in row_of(look(client), served)
    assert "not so far" in row_of(look(client), idle)


def test_today_shows_for_how_long_arms_are_in_need(client, programme):
    """As the audit counts it at the end of the step before, and one more: here all are in need, and some are served."""
    for served in ("", "b1", "b2"):
        plan = programme.plan_of(programme.plan().plan)
        done = [{"arm": row.arm, "action": "oil" if row.arm == served else "run"} for row in plan.rows]
        programme.accept(plan.id, [row | {"why": "strike"} for row in done])
        programme.record(
            [row | {"next_state": before.state} for row, before in zip(done, plan.rows, strict=True)], "crew"
        )
    told = {row.arm: row.in_need for row in programme.audit().arms}
    assert told == {"b1": 1, "b2": 0, "h1": 3, "h2": 3, "v1": 3}
    plan = programme.plan_of(programme.plan().plan)
    found = programme.in_need(plan.rows, plan.step)
    assert {row.arm: found[row.arm_id] for row in plan.rows} == {arm: steps + 1 for arm, steps in told.items()}
    assert set(programme.in_need(plan.rows, plan.step, most=1).values()) == {1, 2}
    page = look(client)
    for arm, said in (("b1", "2 steps"), ("b2", "new"), ("h2", "4 steps")):
        assert f'<td data-head="In need for">{said}</td>' in row_of(page, arm)


def test_it_is_shown_where_floors_can_no_longer_be_met(pumps, tmp_path):
    """Then there is no fair relaxation to say who is in need; a plan is there all the same."""
    few = [{"arm": "b1", "type": "big"}, {"arm": "h1", "type": "small", "group": "hill"}]
    more = [{"arm": f"h{number}", "type": "small", "group": "hill"} for number in range(2, 30)]
    with Programme.create(tmp_path / "floors.db", replace(pumps, floors=[0.2, 0.2, 0.2]), few) as programme:
        programme.solve(seconds=0.1)
        programme.plan()
        assert set(today_page.show_today(programme, render.TableQuery("/", {}))["needs"].values()) <= {1}
        programme.join(more)
        plan = programme.plan_of(programme.plan().plan)
        assert len(plan.rows) == 30
        assert programme.in_need(plan.rows, plan.step) is None
        assert today_page.show_today(programme, render.TableQuery("/", {}))["needs"] is None
