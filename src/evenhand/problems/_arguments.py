"""Arguments of a problem's factory, checked together so that a user sees every fault at once."""

import math
from collections.abc import Sequence

import numpy as np

from evenhand.checks import LARGEST, Faults, number_fault, whole_fault
from evenhand.errors import nearest


class Arguments(Faults):
    """Faults of arguments. Each check adds its fault and returns whether the value is valid."""

    def whole(self, name: str, value: object, least: int = 1, most: int | None = None, why: str = "") -> bool:
        """Check for an integer from `least` to `most`; `why` is the reason of the limit."""
        message = whole_fault(value, least, most)
        return self._note(name, f"{message} ({why})" if message and why else message)

    def number(
        self, name: str, value: object, least: float = 0.0, most: float = LARGEST, *, below: float = math.inf
    ) -> bool:
        """Check for a number from `least` to `most`, and less than `below`."""
        return self._note(name, number_fault(value, least, most, below=below))

    def boolean(self, name: str, value: object) -> bool:
        """Check for True or False."""
        valid = isinstance(value, (bool, np.bool_))
        return self._note(name, "" if valid else f"expected true or false, got {value!r}")

    def choice(self, name: str, value: object, options: Sequence[object]) -> bool:
        """Check for one of a few values; a near miss gets a hint."""
        if any(type(value) is type(option) and value == option for option in options):
            return True
        near = nearest(str(value), map(str, options))
        hint = f"; did you mean {near}?" if near else ""
        return self._note(name, f"expected one of {', '.join(map(str, options))}, got {value!r}{hint}")

    def _note(self, name: str, message: str) -> bool:
        if message:
            self.add(name, message)
        return not message
