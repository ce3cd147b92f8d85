"""Times, amounts and figures in a planner's words."""

import math
import secrets
from datetime import UTC, datetime

from markupsafe import Markup

MINUS, THIN = "\N{MINUS SIGN}", "\N{NO-BREAK SPACE}"


def moment(at: str | None) -> Markup:
    """A time of the log, such as 17 November 2026, 09:12 UTC."""
    if not at:
        return Markup("")
    when = datetime.fromisoformat(at).astimezone(UTC)
    fields = f"{when.day}{THIN}{when:%B}{THIN}{when.year}, {when:%H:%M}{THIN}UTC"
    return Markup('<time datetime="{}">{}</time>').format(when.isoformat(), fields)


def amount(value: float) -> str:
    """Format an amount."""
    return f"{value:.6g}".replace("-", MINUS)


def plain(value: float) -> str:
    """A number as a field of a form takes it: all its digits, and no point where it is whole."""
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


def figure(value: float | None, digits: int = 4) -> str:
    """A figure to a few digits; a dash where there is none."""
    if value is None or not math.isfinite(value):
        return "–"
    if value and abs(value) < 10.0 ** (1 - digits):
        return f"{value:.2g}".replace("-", MINUS)
    places = max(0, digits - 1 - (math.floor(math.log10(abs(value))) if value else 0))
    return f"{value:.{min(places, 6)}f}".replace("-", MINUS)


def share(value: float, digits: int = 0) -> str:
    """A share, as so many of a hundred."""
    return f"{100 * value:.{digits}f}{THIN}%"


def ago(step: int, seen: int | None) -> str:
    """Describe the age of an observation."""
    if seen is None:
        return "never seen"
    if seen >= step:
        return "seen at this step"
    return "seen one step ago" if step - seen == 1 else f"seen {step - seen} steps ago"


def new_key() -> str:
    """A key under which a form does its work once, however often it is sent."""
    return f"page-{secrets.token_hex(12)}"
