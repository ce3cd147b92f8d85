"""Policies of a solution of the relaxation, by name."""

import contextlib

from evenhand.errors import NotApplicableError, TooLargeError
from evenhand.planning import build_policy


def fluid_policies(problem, relaxed):
    """Return the policies that apply."""
    found = {}
    for name in ("occupancy-priority", "fair-index", "re-solving"):
        with contextlib.suppress(NotApplicableError, TooLargeError):
            found[name] = build_policy(problem, relaxed, name)
    return found
