"""A wrong file of many rows holds nobody up: names are compared for the faults that are shown, outside the lock."""

import difflib
import re

import pytest

from evenhand.errors import TableError
from evenhand.model import SHOWN_FAULTS
from evenhand.programme import Programme, store

MANY = 3000


@pytest.fixture
def where(tmp_path, pumps, roster):
    with Programme.create(tmp_path / "pumps.db", pumps, roster, welfare="utilitarian") as programme:
        programme.accept(programme.plan(seconds=1e-3).plan)
        programme.plan()
    return tmp_path / "pumps.db"


@pytest.fixture
def compared(where, monkeypatch):
    """How often names were compared; each time somebody else changes the programme, which fails under its lock."""
    monkeypatch.setattr(store, "WAIT", 0.2)
    with Programme.open(where) as other:
        calls, compare = [], difflib.get_close_matches

        def watched(*arguments, **options):
            if len(calls) % 10 == 0:
                other.observe([{"arm": "b1", "state": "worn"}], f"report {len(calls)}")
            calls.append(arguments[0])
            return compare(*arguments, **options)

        monkeypatch.setattr(difflib, "get_close_matches", watched)
        yield calls


NAMES = [f"b1{chr(0x4E00 + number)}" for number in range(MANY)]
"""Names near that of b1, with the same digits: others are never proposed."""


def wrong_names(**more):
    return [{"arm": name} | more for name in NAMES]


REQUESTS = {
    "names of observations": lambda one: one.observe(wrong_names(state="worn"), "crew"),
    "states of observations": lambda one: one.observe(
        [{"arm": "b1", "step": number, "state": f"worm{number}"} for number in range(MANY)], "crew"
    ),
    "names of records": lambda one: one.record(wrong_names(action="run"), "crew"),
    "actions of records": lambda one: one.record(
        [{"arm": "b1", "step": number, "action": f"runn{number}"} for number in range(MANY)], "crew"
    ),
    "types of newcomers": lambda one: one.join([{"arm": f"n{n}", "type": f"bigg{n}"} for n in range(MANY)]),
    "states of newcomers": lambda one: one.join(
        [{"arm": f"n{n}", "type": "big", "state": f"worm{n}"} for n in range(MANY)]
    ),
    "names of those who leave": lambda one: one.leave(NAMES, "sold"),
    "names of overrides": lambda one: one.accept(2, wrong_names(action="run", why="no key")),
}


@pytest.mark.parametrize("wrong", REQUESTS)
def test_names_are_compared_for_what_is_shown_and_outside_the_lock(where, compared, wrong):
    with Programme.open(where) as programme:
        with pytest.raises(TableError) as told:
            REQUESTS[wrong](programme)
        assert 0 < len(compared) <= SHOWN_FAULTS
        assert sum(fault.stands_for for fault in told.value.faults) >= MANY
        hinted = [fault for fault in told.value.faults if re.search("Did you mean|nearest", fault.message)]
        assert 0 < len(hinted) <= len(compared)
        reports = [event for event in programme.events() if event.kind == "observed"]
    assert len(reports) == -(-len(compared) // 10)


def test_the_first_rows_have_hints_whichever_fault_they_have(where, compared):
    """Names are read before states, and the faults are told in the order of the rows."""
    rows = [{"arm": "b1", "step": 0, "state": "worm"}, *wrong_names(state="worn")]
    with Programme.open(where) as programme, pytest.raises(TableError) as told:
        programme.observe(rows, "crew")
    assert "Did you mean" in told.value.faults[0].message
    assert len(compared) <= 2 * SHOWN_FAULTS


def test_what_was_answered_under_a_key_is_answered_again_though_it_would_be_wrong_now(where):
    with Programme.open(where) as programme:
        first = programme.leave(["b1"], "sold", key="k1")
        assert programme.leave(["b1"], "sold", key="k1") == first


def test_what_became_wrong_before_the_lock_is_noticed_under_it(where, monkeypatch):
    with Programme.open(where) as programme, Programme.open(where) as other:
        writing = programme.store.writing

        def after_another(*arguments):
            other.leave(["b1"], "sold")
            return writing(*arguments)

        monkeypatch.setattr(programme.store, "writing", after_another)
        with pytest.raises(TableError):
            programme.leave(["b1"], "sold")
