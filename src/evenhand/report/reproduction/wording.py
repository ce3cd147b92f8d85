"""How the numbers of a claim are told."""

from collections.abc import Callable

from evenhand.report.words import duration, number, number_text, percent, spelled

TINY = 0.001
"""Per cent. Less is told as less than this."""


class Figure(float):
    """A number that can be told in several ways; in braces after a colon."""

    def __format__(self, spec: str) -> str:
        return TOLD[spec](float(self))


def percent_text(value: float) -> str:
    """Per cent, with as many decimals as tell something."""
    if value < TINY:
        return f"less than {TINY:g}\u00a0%"
    return percent(value / 100, 1 if value >= 0.095 else 2 if value >= 0.0095 else 3)


def most_text(value: float) -> str:
    """`at most 1.2 %`."""
    return percent_text(value) if value < TINY else f"at most {percent_text(value)}"


def signed_text(value: float) -> str:
    """A difference with its sign; a rounded zero has none."""
    size = number_text(abs(value), 2 if abs(value) >= 0.095 else 3)
    return size if not size.strip("0.") else f"{'+' if value > 0 else '−'}{size}"


TOLD: dict[str, Callable[[float], str]] = {
    "": number,
    "percent": percent_text,
    "most": most_text,
    "signed": signed_text,
    "digits": lambda value: number(value, 2),
    "decimals2": lambda value: number_text(value, 2),
    "decimals3": lambda value: number_text(value, 3),
    "duration": duration,
    "count": lambda value: f"{value:,.0f}",
    "plain": lambda value: f"{value:g}",
}
"""The ways to tell a number."""


def in_cells(good: int, total: int, of: int | None, unit: str) -> str:
    """`in all eight cells`, `in 3 of 8 cells`; and how many there would be in a whole run."""
    if total == 1:
        told = f"in the one {unit}" if good else f"not in the one {unit}"
    elif good in (0, total):
        told = f"in {'all' if good else 'none of'} {spelled(total)} {unit}s"
    else:
        told = f"in {good} of {total} {unit}s"
    return told if of is None or of == total else f"{told} that {'was' if total == 1 else 'were'} run (of {of})"
