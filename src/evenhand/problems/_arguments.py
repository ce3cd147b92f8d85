"""The arguments of a problem's factory, checked together so that a user sees every fault at once."""

import math
from collections.abc import Sequence
from numbers import Real

import numpy as np

from evenhand.checks import LARGEST, Faults, plain
from evenhand.errors import nearest


class Arguments(Faults):
    """Faults of arguments. Each check notes what is wrong and returns whether the value is sound."""

    def whole(self, name: str, value: object, least: int = 1, most: int | None = None, why: str = "") -> bool:
        """A whole number from `least` to `most`; `why` says where a limit comes from."""
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
            self.add(name, f"expected a whole number, got {value!r}")
            return False
        if value < least:
            self.add(name, f"expected at least {least}, got {value}")
            return False
        if most is not None and value > most:
            self.add(name, f"expected at most {most}{why and f' ({why})'}, got {value}")
            return False
        return True

    def number(
        self, name: str, value: object, least: float = 0.0, most: float = LARGEST, *, below: float = math.inf
    ) -> bool:
        """A number from `least` to `most`, and less than `below`."""
        number = _as_float(value)
        if number is not None and least <= number <= most and number < below:
            return True
        upper = f"below {plain(below)}" if below <= most else plain(most)
        open_ended = most == LARGEST and below == math.inf and not (number is not None and number > most)
        limits = f"of at least {plain(least)}" if open_ended else f"from {plain(least)} to {upper}"
        self.add(name, f"expected a number {limits}, got {repr(value) if number is None else plain(number)}")
        return False

    def boolean(self, name: str, value: object) -> bool:
        """True or False."""
        if not isinstance(value, (bool, np.bool_)):
            self.add(name, f"expected true or false, got {value!r}")
            return False
        return True

    def choice(self, name: str, value: object, options: Sequence[object]) -> bool:
        """One of a few values; a near miss gets a hint."""
        if any(type(value) is type(option) and value == option for option in options):
            return True
        near = nearest(str(value), map(str, options))
        hint = f"; did you mean {near}?" if near else ""
        self.add(name, f"expected one of {', '.join(str(option) for option in options)}, got {value!r}{hint}")
        return False


def _as_float(value: object) -> float | None:
    """The number as a double, or None when it is none."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (Real, np.number)):
        return None
    try:
        return float(value)
    except OverflowError:  # a whole number of hundreds of digits
        return math.inf
