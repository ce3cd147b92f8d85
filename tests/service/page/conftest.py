"""A browser for the whole session, and a server of this process for it."""

import shutil

import pytest

from evenhand.programme import Programme

from ...conftest import require

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def browser():
    """Chromium as the system has it."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright for Python is not installed")
    found = next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), ""
    )
    require(found, "chromium")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=found, args=ARGUMENTS)
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def lived(template, tmp_path_factory):
    """The file of a programme that has been running for some steps, with a plan that is open; nobody changes it."""
    where = tmp_path_factory.mktemp("lived") / "pumps.db"
    where.write_bytes(template.read_bytes())
    states = ("fine", "worn", "broken")
    with Programme.open(where) as programme:
        for step in range(8):
            seen = [
                {"arm": arm.name, "state": states[(step + place) % 3]} for place, arm in enumerate(programme.arms())
            ]
            programme.observe(seen[step % 2 :], "inspection", who="Ada")
            plan = programme.plan_of(programme.plan(who="Ada").plan)
            served_ = next(row for row in plan.rows if row.served)
            change = [{"arm": served_.arm, "action": "run", "why": "no key"}] if step == 3 else []
            programme.accept(plan.id, change, who="Ada")
            programme.record([{"arm": row.arm, "action": row.action} for row in plan.rows], "crew")
        programme.plan(who="Ada")
        with programme.store.engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    return where


@pytest.fixture
def opened(browser, programme, served):
    """A page of a fresh programme, and what went wrong on it: nothing must."""
    with served(programme) as address:
        context = browser.new_context(base_url=address, viewport={"width": 1200, "height": 900})
        page, wrong = watched(context)
        page.set_default_timeout(10_000)
        yield page
        context.close()
    assert wrong == []


def watched(context):
    """A new page, and a list of what its console says is wrong, policies of content security among it.

    That a form was refused (422) the browser says itself; that is no fault of the page.
    """
    page, wrong = context.new_page(), []

    def hear(told):
        if told.type in ("error", "warning") and "status of 422" not in told.text:
            wrong.append(told.text)

    page.on("console", hear)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    return page, wrong


@pytest.fixture(scope="session")
def tools(served):
    """What tests of the browser use beside fixtures."""
    return type("Tools", (), {"served": staticmethod(served), "watched": staticmethod(watched)})
