"""Settings: the words and the calendar of the programme."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from evenhand.programme.api.problem_details import ErrorView
from evenhand.programme.vocabulary import NOUNS, PERIODS
from evenhand.programme.web import layout
from evenhand.programme.web.forms import Form

router = APIRouter(include_in_schema=False)

FIELDS = (*NOUNS, "value", "start", "period")
"""Fields of the form, besides one per resource."""


@router.get("/settings")
def show_settings(request: Request) -> Response:
    """Show the words and the calendar."""
    return _settings(request)


def _settings(request: Request, form: Form | None = None, refusal: ErrorView | None = None) -> Response:
    programme = layout.programme_of(request)
    words, status = programme.vocabulary(), programme.status()
    typed = words.to_dict()
    typed["resources"] = {name: str(words.resource(name)) for name in status.budget}
    if form is not None:
        typed = _given(form)
    view = {"typed": typed, "periods": list(PERIODS), "step": status.step}
    return layout.show(request, "settings", "Settings", refusal, form, view=view)


def _given(form: Form) -> dict[str, Any]:
    own = dict(zip(form.texts("resource"), form.texts("word"), strict=False))
    return {name: form.text(name) for name in FIELDS} | {"resources": own}


@router.post("/settings/words")
def set_words(request: Request, form: layout.Sending) -> Response:
    """Change words and calendar."""
    programme, given = layout.programme_of(request), _given(form)
    given["resources"] = {name: word for name, word in given["resources"].items() if word and word != name}

    def write(**by: Any) -> int:
        programme.set_words(given, **by)
        return programme.status().events

    def again(refusal: ErrorView, _: Any) -> Response:
        return _settings(request, form, refusal)

    return layout.submit(request, form, "The words stay as they were", write, again, "/settings")
