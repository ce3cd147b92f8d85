"""What snippets and examples register holds for them alone."""

import pytest

from evenhand.model import welfare


@pytest.fixture(autouse=True)
def _registered_for_one_page(monkeypatch):
    monkeypatch.setattr(welfare, "_registered", {})
