"""From templates to HTML: every text is escaped, and an undefined name in a template is an error.

Tables are sorted, filtered, searched and cut into pages on the server, so that all works without scripts. A script only
makes it quicker: it requests the same address and takes the table out of the response.
"""

import base64
import hashlib
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from html import unescape
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import urlencode

from markupsafe import Markup

from evenhand._version import __version__
from evenhand.display import counted
from evenhand.programme.vocabulary import Vocabulary
from evenhand.report.format import amount, capitalised, number, percent
from evenhand.report.html import typeset

if TYPE_CHECKING:
    from jinja2 import Environment
    from matplotlib.figure import Figure

MEDIA_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
"""Media types of the files of `static`."""


VIEWS = (
    ("/", "Today"),
    ("/fairness", "Fairness"),
    ("/what-if", "What if"),
    ("/arms", "Arms"),
    ("/model", "Model"),
    ("/settings", "Settings"),
)
"""The views, in the order of their names in the head of the page."""


@dataclass(frozen=True)
class Frame:
    """Frame of every view."""

    name: str
    """Of the programme."""
    view: str
    views: tuple[tuple[str, str], ...] = VIEWS
    holder: str = ""
    """Name of the token; empty if none is required."""
    roles: frozenset[str] = frozenset()
    """Roles of the holder; forms that need another one are not shown."""
    rights: str = ""
    """What the holder sees and may do, if that is not everything."""
    has_session: bool = False
    """Whether the holder signed in here, and can sign out."""
    events: int = 0
    has_plan: bool = False
    """Whether a plan is open."""
    label: str = ""
    """Notice about this server, such as that it is a demonstration."""
    offered: int | None = None
    """The number of a fit that is offered, since the model no longer fits what is seen."""


@lru_cache(maxsize=1)
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("evenhand.programme.web", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"moment": moment, "amount": amount, "number": number, "percent": percent, "plain": plain}
    made.filters |= {"image": image, "typeset": typeset, "capital": capitalised}
    made.globals |= {"static": static_address, "counted": counted, "version": __version__, "key": new_key}
    return made


def prepare() -> None:
    """Compile the templates and draw a figure: the first pages would wait for that."""
    from evenhand.report.plots import Plot, svg

    templates = _environment()
    for name in templates.list_templates():
        templates.get_template(name)

    def draw(figure: "Figure") -> None:
        """Draw empty axes."""
        figure.subplots()

    svg("first", "", Plot(1.0, draw))


def render(template: str, facts: Mapping[str, Any]) -> str:
    """Render a template.

    Args:
        template: file name.
        facts: values of the template, with the programme's `words`; texts are escaped.
    """
    words: Vocabulary = facts.get("words", Vocabulary())
    said = {"words": words, "count_arms": words.arm.counted, "step_name": words.name}
    return _environment().get_template(template).render(**said | dict(facts))


def without_forms(page: str, why_forbidden: Callable[[str], str]) -> str:
    """Return a page whose forms that may not be sent are replaced by the reason.

    Args:
        page: HTML of a template, in which all texts are escaped.
        why_forbidden: returns why an address may not be sent to; empty if it may.
    """
    gone: list[str] = []
    reasons: set[str] = set()

    def replace(form: re.Match[str]) -> str:
        """Return a form, or a note in its place if the holder may not send it."""
        is_sent = 'method="post"' in form[0].partition(">")[0]
        why = why_forbidden(form["action"]) if is_sent else ""
        if not why:
            return form[0]
        gone.extend(re.findall(r'^<form[^>]* id="([^"]+)"', form[0]))
        if why in reasons:
            return ""
        reasons.add(why)
        return str(Markup('<p class="quiet no-print">{}.</p>').format(capitalised(why)))

    page = re.sub(r'<form\b[^>]* action="(?P<action>/[^"?]*)[^>]*>.*?</form>', replace, page, flags=re.DOTALL)
    for name in gone:
        page = re.sub(rf'<button\b[^>]* form="{re.escape(name)}".*?</button>', "", page, flags=re.DOTALL)
    return page


@lru_cache(maxsize=1)
def static_files() -> dict[str, bytes]:
    """The files of `static`, by name: read once, and nothing else is ever served from there."""
    folder = files("evenhand.programme.web") / "static"
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name.rpartition(".")[2] in MEDIA_TYPES}


@lru_cache(maxsize=32)
def static_address(name: str) -> str:
    """Return the address of a file of `static`, with a digest so that browsers may cache it."""
    return f"/static/{name}?v={hashlib.sha256(static_files()[name]).hexdigest()[:12]}"


def image(svg: str) -> Markup:
    """Return an SVG element of `report.plots.svg` as an image with its label.

    The content security policy forbids inline styles, which matplotlib writes; an image may contain them.
    """
    root = (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" font-family="sans-serif" '
    )
    label = unescape(svg.partition('aria-label="')[2].partition('"')[0])
    data = base64.b64encode(svg.replace("<svg ", root, 1).encode()).decode()
    return Markup('<img src="data:image/svg+xml;base64,{}" alt="{}">').format(data, label)


def moment(at: str | None) -> Markup:
    """Return a time of the log, such as 17 November 2026, 09:12 UTC."""
    if not at:
        return Markup("")
    when = datetime.fromisoformat(at).astimezone(UTC)
    text = f"{when.day} {when:%B} {when.year}, {when:%H:%M} UTC".replace(" ", "\N{NO-BREAK SPACE}")
    return Markup('<time datetime="{}">{}</time>').format(when.isoformat(), text)


def plain(value: float) -> str:
    """Return a number as a form field takes it: all digits, and no point if it is an integer."""
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


def new_key() -> str:
    """Return a new idempotency key for a form."""
    return f"page-{secrets.token_hex(12)}"


def age_of(words: Vocabulary, step: int, seen: int | None) -> str:
    """Describe the age of an observation."""
    if seen is None:
        return "never seen"
    return f"seen {words.now}" if seen >= step else f"seen {words.step.counted(step - seen)} ago"


# Tables


Row = TypeVar("Row")

_DIGITS = re.compile(r"\d+")


def natural(name: str) -> str:
    """A key by which `van 2` stands before `van 10`."""
    return _DIGITS.sub(lambda digits: digits[0].zfill(20), name.casefold())


@dataclass(frozen=True)
class TableQuery:
    """Query of a table in an address."""

    path: str
    given: Mapping[str, str]

    def text(self, name: str) -> str:
        """A part of the address."""
        return self.given.get(name, "")[:200]


@dataclass(frozen=True)
class Listing(Generic[Row]):
    """One page of a table."""

    query: TableQuery
    rows: tuple[Row, ...]
    found: int
    """Number of rows on all pages."""
    total: int
    """Number of rows without filters."""
    sort: str
    down: bool
    page: int
    last: int

    def address(self, **changes: Any) -> str:
        """The address of the same table with something changed."""
        query = dict(self.query.given) | {key: _word(value) for key, value in changes.items()}
        given = {key: value for key, value in query.items() if value and key not in ("event", "job")}
        return f"{self.query.path}?{urlencode(given)}" if given else self.query.path


def _word(value: object) -> str:
    return "1" if value is True else "" if value in (False, 1) else str(value)


def list_rows(
    query: TableQuery,
    rows: Sequence[Row],
    keys: Mapping[str, Callable[[Row], tuple[Any, ...]]],
    keep: Callable[[Row], bool],
    usual: str,
    name: Callable[[Row], str],
    size: int = 100,
) -> Listing[Row]:
    """Return a page of rows.

    Args:
        query: of the address.
        rows: all of them.
        keys: sort keys by name; equal rows are sorted by their own names.
        keep: whether a row passes the filters.
        usual: default sort key.
        name: name of a row.
        size: of a page.
    """
    sort, down = query.text("sort") if query.text("sort") in keys else usual, query.text("down") == "1"
    found = sorted(filter(keep, rows), key=lambda row: (*keys[sort](row), natural(name(row))), reverse=down)
    last = max(1, -(-len(found) // size))
    text = query.text("page")
    page = min(max(1, int(text)), last) if text.isascii() and text.isdecimal() and len(text) < 8 else 1
    shown = tuple(found[(page - 1) * size : page * size])
    return Listing(query, shown, len(found), len(rows), sort, down, page, last)


def matches(words: str, *texts: str) -> bool:
    """Return whether some texts contain all words of a search."""
    inside = " ".join(texts).casefold() if words else ""
    return all(word in inside for word in words.casefold().split())
