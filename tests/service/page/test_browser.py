"""The page in a real browser: a planner's whole day, with the keyboard only, without scripts, and for everybody."""

import pytest

from evenhand.programme import Programme

from ...conftest import mentions

VIEWS = ("/", "/fairness", "/what-if", "/arms", "/arms/one?arm=b1", "/model", "/settings", "/nothing", "/login")


def test_a_whole_day(opened, programme):
    page = opened
    page.goto("/")
    assert page.get_by_role("heading", level=1).inner_text() == "Step 0"
    faulty = {"name": "today.csv", "mimeType": "text/csv", "buffer": b"arm,state\nb1,worn\nb2,brokn\n"}
    page.get_by_label("A table").first.set_input_files(faulty)
    page.get_by_text("today.csv: 2 rows").wait_for()
    page.get_by_role("button", name="Send the conditions").click()
    page.get_by_role("heading", level=1, name="Check the table").wait_for()
    assert mentions("broken")(page.locator("main").inner_text())
    page.get_by_role("link", name="Store nothing").click()
    page.get_by_label("A table").first.set_input_files(faulty | {"buffer": b"arm,state\nb1,worn\nb2,broken\n"})
    page.get_by_label("Your name").first.fill("Ada")
    page.get_by_role("button", name="Send the conditions").click()
    page.get_by_text("2 conditions stored").wait_for()
    page.get_by_role("button", name="Make the plan").click()
    page.get_by_text("The plan for step 0 is made").wait_for()

    page.get_by_label("Search").fill("hill")
    page.locator('[data-found="2 of 5 arms"]').wait_for()
    page.get_by_role("link", name="Arm", exact=True).click()
    page.locator('th[aria-sort="ascending"]', has_text="Arm").wait_for()
    page.get_by_label("Search").fill("")
    page.locator('[data-found="5 of 5 arms"]').wait_for()

    plan = programme.current_plan()
    served = next(row.arm for row in plan.rows if row.served)
    page.get_by_role("button", name=f"Change {served}").click()
    page.get_by_label("Instead").select_option("run")
    page.get_by_role("button", name="Change it").click()
    assert page.get_by_role("dialog").is_visible(), "a change needs a reason"
    page.get_by_label("Why").fill("no key to the house")
    page.get_by_role("button", name="Change it").click()
    assert "no key to the house" in page.get_by_role("list", name="Changes to the plan").inner_text()
    assert mentions("run")(page.locator(f'tr[data-arm="{served}"]').inner_text())
    page.get_by_role("button", name="Accept the plan").click()
    page.get_by_text("accepted, with 1 change").wait_for()

    page.get_by_role("button", name="Done otherwise v1").click()
    page.get_by_label("Instead").select_option("oil")
    page.get_by_role("button", name="Change it").click()
    page.get_by_role("button", name="Record step 0").click()
    page.get_by_text("is recorded for 5 arms").wait_for()

    page.get_by_role("link", name="Fairness").click()
    assert "no key to the house" in page.get_by_role("region", name="overrides, highest cost first").inner_text()
    page.get_by_role("link", name=served).first.click()
    assert page.get_by_role("heading", level=1).inner_text() == served
    kept = programme.plan_of(plan.id)
    assert [(row.accepted, row.why, row.who) for row in kept.rows if row.arm == served] == [
        ("run", "no key to the house", "Ada")
    ]
    assert {row[0]: row[2] for row in programme.events()[-1].body["done"]}["v1"] == "oil"


def test_changes_that_were_typed_come_back_until_they_are_accepted(opened, programme):
    page = opened
    plan = programme.plan_of(programme.plan(who="Ada").plan)
    served = next(row.arm for row in plan.rows if row.served)
    page.goto("/?event=1")
    assert "event" not in page.url
    page.get_by_role("button", name=f"Change {served}").click()
    page.get_by_label("Instead").select_option("run")
    page.get_by_label("Why").fill("   ")
    page.get_by_role("button", name="Change it").click()
    assert page.get_by_role("dialog").is_visible(), "blanks are no reason"
    page.get_by_label("Why").fill("no key")
    page.get_by_role("button", name="Change it").click()
    page.get_by_text("used with the changes").wait_for()
    page.get_by_label("Show", exact=True).select_option("changed")
    page.locator('[data-found="1 of 5 arms"]').wait_for()
    page.get_by_role("link", name=served).click()
    page.go_back()
    page.locator("[data-drafted]", has_text="1 change not yet accepted").wait_for()
    page.get_by_label("or type the rows").first.fill("arm,state\nb1,blue")
    page.get_by_role("button", name="Send the conditions").click()
    page.get_by_role("alert").wait_for()
    page.reload()
    page.locator("[data-drafted]", has_text="1 change not yet accepted").wait_for()
    page.get_by_role("button", name="Accept the plan").click()
    page.get_by_text("accepted, with 1 change").wait_for()
    assert programme.plan_of(plan.id).status == "accepted"
    page.get_by_role("button", name="Done otherwise v1").click()
    assert mentions("v1")(page.get_by_role("dialog").inner_text())
    page.get_by_label("Instead").select_option("oil")
    page.get_by_role("button", name="Change it").click()
    page.locator("[data-drafted]", has_text="1 change not yet recorded").wait_for()
    page.get_by_role("button", name="Record step 0").click()
    page.get_by_text("is recorded for 5 arms").wait_for()
    assert page.locator("#record-form-changes li").count() == 0


def reach(page, wanted, most=80):
    """Go from field to field with the Tab key until one is reached."""
    for _ in range(most):
        page.keyboard.press("Tab")
        told = page.evaluate("[document.activeElement.id, document.activeElement.innerText || '']")
        if wanted in (told[0], told[1].replace("\n", " ").strip()):
            return
    raise AssertionError(f"{wanted} was not reached by the keyboard")


def test_a_whole_day_with_the_keyboard_only(opened, programme):
    page, keys = opened, opened.keyboard
    page.goto("/")
    keys.press("Tab")
    keys.press("Enter")
    assert page.evaluate("location.hash") == "#content"
    reach(page, "conditions-text")
    keys.type("arm,state\nb1,worn")
    reach(page, "who-conditions")
    keys.type("Ada")
    keys.press("Enter")
    page.get_by_text("1 condition stored").wait_for()
    reach(page, "Make the plan")
    keys.press("Enter")
    page.get_by_text("The plan for step 0 is made").wait_for()
    served = next(row.arm for row in programme.current_plan().rows if row.served)
    reach(page, f"Change {served}")
    keys.press("Enter")
    page.get_by_role("dialog").wait_for()
    keys.type("ru")
    reach(page, "change-why")
    keys.type("no key")
    keys.press("Escape")
    assert page.evaluate("document.activeElement.value") == served
    assert page.locator("#accept-changes li").count() == 0
    keys.press("Enter")
    keys.type("ru")
    reach(page, "change-why")
    keys.type("no key")
    keys.press("Enter")
    page.locator("#accept-changes li").wait_for()
    for _ in range(40):  # back to the top, by the same key
        keys.press("Shift+Tab")
        if page.evaluate("document.activeElement.id") == "who-accept":
            break
    keys.press("Enter")
    page.get_by_text("accepted, with 1 change").wait_for()
    reach(page, "Record step 0")
    keys.press("Enter")
    page.get_by_text("is recorded for 5 arms").wait_for()
    assert programme.status().step == 1


def test_a_whole_day_without_scripts(browser, programme, tools):
    with tools.served(programme) as address:
        context = browser.new_context(base_url=address, java_script_enabled=False)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.goto("/")
        page.get_by_label("or type the rows").first.fill("arm,state\nb1,worn")
        page.get_by_role("button", name="Send the conditions").click()
        page.get_by_role("button", name="Make the plan").click()
        served = next(row.arm for row in programme.current_plan().rows if row.served)
        page.get_by_role("button", name=f"Change {served}").click()
        page.get_by_label(f"{served} gets").select_option("run")
        page.get_by_label("Why").first.fill("no key")
        page.get_by_role("button", name="Accept the plan").click()
        page.get_by_text("accepted, with 1 change").wait_for()
        page.get_by_role("button", name="Record step 0").click()
        page.get_by_text("is recorded for 5 arms").wait_for()
        context.close()


SLOW = pytest.mark.slow


@pytest.mark.parametrize("mode", ["light", *(pytest.param(mode, marks=SLOW) for mode in ("dark", "phone", "print"))])
def test_every_view_is_accessible(browser, lived, tools, mode):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-core is not installed")
    width = 390 if mode == "phone" else 1200
    with Programme.open(lived) as programme, tools.served(programme) as address:
        context = browser.new_context(
            base_url=address,
            bypass_csp=True,  # axe is a script that is put into the page; the page's own are tested above
            color_scheme="dark" if mode == "dark" else "light",
            viewport={"width": width, "height": 900},
        )
        for path in VIEWS:
            page = context.new_page()
            if mode == "print":
                page.emulate_media(media="print")
            page.goto(path)
            page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
            found = axe.Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
            told = [(one["id"], one["impact"], one["nodes"][0]["html"][:200]) for one in found]
            assert [one for one in told if one[1] in ("serious", "critical")] == [], path
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
            page.close()
        context.close()


@pytest.mark.slow
def test_what_if_comes_by_events(browser, lived, tools):
    with Programme.open(lived) as programme, tools.served(programme) as address:
        context = browser.new_context(base_url=address)
        page, wrong = tools.watched(context)
        page.set_default_timeout(60_000)
        page.goto("/what-if")
        page.get_by_label("hours, by slider").fill("5")
        assert page.locator("#budget-1").input_value() == "5"
        page.get_by_role("button", name="Compute it").click()
        answer = page.get_by_role("region", name="The answer")
        answer.wait_for()
        assert mentions("5 hours", "hours", "today 3")(answer.inner_text())
        assert wrong == []
        context.close()


@pytest.mark.slow
def test_the_price_of_fairness_and_a_fit_come_by_events(browser, template, tools, lived, tmp_path):
    copy = tmp_path / "pumps.db"
    copy.write_bytes(lived.read_bytes())
    with Programme.open(copy) as programme, tools.served(programme) as address:
        context = browser.new_context(base_url=address)
        page, wrong = tools.watched(context)
        page.set_default_timeout(120_000)
        page.goto("/fairness")
        page.get_by_role("button", name="Compute it").click()
        table = page.get_by_role("region", name="The price of fairness")
        table.wait_for()
        assert "(today)" in table.inner_text()
        page.goto("/model")
        page.get_by_role("button", name="Fit the model to our records").click()
        page.get_by_role("region", name="Fitted probabilities").wait_for()
        page.get_by_label("Every plan from now on").first.check()
        page.get_by_role("button", name="Adopt this model").click()
        page.get_by_text("Fit 1 is in use").wait_for()
        assert programme.refits()[0].adopted_event is not None
        assert wrong == []
        context.close()
