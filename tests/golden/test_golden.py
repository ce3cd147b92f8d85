"""Public results are the recorded numbers."""

import json

import pytest

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
