"""Numbers and lists as text, the same on a terminal, in a notebook and on a page.

Numbers are plain ASCII but for powers of ten; signs and spaces are typeset by the renderer of HTML.
"""

import math
from collections.abc import Sequence

UNKNOWN = "–"
"""Text of an undefined number."""

_SMALL = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def fixed(value: float | None, decimals: int | None = 4) -> str:
    """Return a number with fixed decimals; None as decimals gives a power of ten.

    Args:
        value: any number; None and numbers that are not finite are unknown.
        decimals: digits after the point.
    """
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if decimals is None:
        mantissa, _, exponent = f"{value:.3e}".partition("e")
        return f"{mantissa} × 10{str(int(exponent)).translate(_SUPERSCRIPTS)}"
    text = f"{value:.{decimals}f}"
    return text.lstrip("-") if float(text) == 0 else text  # a rounded zero has no sign


def decimals_of(numbers: Sequence[float], digits: int = 4) -> int | None:
    """Return the decimals that give the largest number `digits` digits; None if only a power of ten is short."""
    largest = max((abs(number) for number in numbers if math.isfinite(number)), default=0.0)
    if largest == 0:
        return 0
    exponent = math.floor(math.log10(largest))
    return max(0, digits - 1 - exponent) if -4 <= exponent <= 8 else None


def number(value: float, digits: int = 4) -> str:
    """Return a number with about so many significant digits."""
    return fixed(value, decimals_of([value], digits))


def amount(value: float) -> str:
    """Return a number that was typed, such as a budget, without further digits."""
    return f"{value:.10g}"


def percent(share: float, decimals: int = 1) -> str:
    """Return a share as a percentage."""
    return f"{fixed(100 * share, decimals)} %" if math.isfinite(share) else UNKNOWN


def duration(seconds: float) -> str:
    """Return a time in a suitable unit."""
    if not math.isfinite(seconds):
        return UNKNOWN
    if seconds < 0.9995:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 1000:
        return f"{seconds:.1f} s"
    return f"{round(seconds / 60)} min" if seconds < 7200 else f"{round(seconds / 3600)} h"


def listed(items: Sequence[str], joint: str = "and") -> str:
    """Return `a`, `a and b`, or `a, b and c`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {joint} {items[-1]}" if items else ""


def few(items: Sequence[str], most: int = 8) -> list[str]:
    """Return the first items and the last, so that both ends of a scale are present."""
    return list(items) if len(items) <= most else [*items[: most - 2], "…", items[-1]]


def spelled(count: int) -> str:
    """Return `five`; digits above twelve."""
    return _SMALL[count] if count < len(_SMALL) else f"{count:,}"


def shortened(text: str, most: int) -> str:
    """Return the text on one line, cut with an ellipsis if it is longer than `most` letters."""
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def printable(value: object) -> str:
    """Return the text of a cell without control characters, which could move the cursor of a terminal."""
    text = "" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)
    return "".join(letter if letter.isprintable() else " " for letter in text)


def capitalised(text: str) -> str:
    """Return the text with a capital first letter."""
    return text[:1].upper() + text[1:]


def sentence(text: str) -> str:
    """Return the text as a sentence: with a capital first letter and one full stop, unless it ends in another mark."""
    return capitalised(text) + ("" if text.endswith((".", "!", "?", ":", "…")) else ".")
