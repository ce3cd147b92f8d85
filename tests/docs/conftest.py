"""What snippets and examples register holds for them alone."""

import pytest


@pytest.fixture(autouse=True)
def _registered_for_one_page(monkeypatch):
    monkeypatch.setattr("evenhand.model.welfare.text_form._registered", {})
