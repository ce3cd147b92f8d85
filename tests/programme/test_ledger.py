import pytest

from evenhand.errors import ConflictError, InvalidInputError
from evenhand.programme import ledger

from ..conftest import mentions


def test_asked_again_under_a_key_it_answers_as_before_and_does_nothing_twice(programme):
    table = [{"arm": "b1", "state": "worn"}]
    ways = {
        "observe": lambda key: programme.observe(table, "inspection", key=key),
        "join": lambda key: programme.join([{"arm": "b3", "type": "big"}], key=key),
        "leave": lambda key: programme.leave(["v1"], "sold", key=key),
    }
    for name, way in ways.items():
        first, events = way(name), programme.verify().event
        assert way(name) == first
        assert programme.verify().event == events
    with pytest.raises(ConflictError):
        programme.observe([{"arm": "b1", "state": "fine"}], "inspection", key="observe")
    with pytest.raises(ConflictError):
        programme.leave(["b2"], "sold", key="join")
    assert programme.observe(table, "inspection").event == programme.verify().event


def test_what_was_refused_may_be_asked_again_under_its_key(programme):
    with pytest.raises(InvalidInputError, check=mentions("row 1", "woorn", "worn")):
        programme.observe([{"arm": "b1", "state": "woorn"}], "inspection", key="k")
    assert programme.observe([{"arm": "b1", "state": "worn"}], "inspection", key="k").observations == 1


@pytest.mark.parametrize("key", ["", "k" * 301, "a\nb"])
def test_keys_are_short_texts(programme, key):
    with pytest.raises(InvalidInputError, check=mentions("key")):
        programme.leave(["v1"], "sold", key=key)
    assert len(programme.arms()) == 5


def test_a_key_is_kept_only_with_what_was_done(programme):
    with pytest.raises(ZeroDivisionError), programme.store.writing() as tx:

        def do():
            return {"event": ledger.append(tx, "odd", "", {}), "number": 1 // 0}

        ledger.once(tx, "k", "odd", [], do)
    with programme.store.writing() as tx:
        assert ledger.once(tx, "k", "even", [], lambda: {"done": True}) == {"done": True}
    assert [event.kind for event in programme.events()] == ["created", "answered"]
    assert programme.verify().event == 2


@pytest.mark.parametrize("who", ["a\0b", "\ud800", "x" * 2001])
def test_who_does_something_is_a_text_on_both_databases(programme, who):
    with pytest.raises(InvalidInputError, check=mentions("who", 2000)):
        programme.observe([{"arm": "b1", "state": "worn"}], "rounds", who=who)
    assert programme.verify().event == 1


@pytest.mark.parametrize("text", ["", "  ", "a\0b", "\ud800", "x" * 2001, 3, None])
def test_texts_that_a_database_cannot_hold(text):
    with pytest.raises(InvalidInputError):
        ledger.check_text(text, "why")
