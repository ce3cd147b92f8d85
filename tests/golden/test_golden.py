"""Public results are the recorded numbers, and messages the recorded ones."""

import json

import pytest

from .messages import FILE as MESSAGES
from .messages import REFUSED, messages
from .numbers import FILE, GROUPS

RECORDED = json.loads(FILE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("group", GROUPS)
def test_results_are_the_recorded_numbers(group):
    found = dict(GROUPS[group]())
    assert found
    wrong = {name: (value, RECORDED.get(name)) for name, value in found.items() if not agree(value, RECORDED.get(name))}
    assert not wrong


def agree(value, recorded):
    return recorded is not None and value == pytest.approx(recorded, rel=2e-7, abs=1e-9)


def test_messages_are_the_recorded_ones():
    """After a deliberate rewording: `python -m tests.golden.messages`."""
    found = dict(messages())
    assert set(found) == set(REFUSED)
    assert found == json.loads(MESSAGES.read_text(encoding="utf-8"))
