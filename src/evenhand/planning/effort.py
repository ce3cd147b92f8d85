"""Simulation effort of the method fluid: how long it searches, and on how many steps a plan is reported.

with limited_effort(arm_steps=1e5, rounds=3):
    solve(problem, method="fluid")
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Effort:
    """Numbers of simulated arm-steps and of rounds."""

    arm_steps: float = 2e6
    """Arm-steps by which a candidate policy is evaluated during the search."""

    report_steps: float = 1.5e7
    """Arm-steps on which the plan is reported."""

    inequality_steps: float = 2e6
    """Arm-steps on which the realised inequality is estimated."""

    exact_states: int = 500
    """Count states, over all steps, up to which candidates are evaluated exactly rather than simulated."""

    rounds: int = 30
    """Maximal number of rounds of column generation."""


_effort: ContextVar[Effort] = ContextVar("effort", default=Effort())  # noqa: B039  # frozen


def current_effort() -> Effort:
    """Return the effort of this context."""
    return _effort.get()


@contextmanager
def limited_effort(**changes: Any) -> Iterator[None]:
    """Change fields of `Effort` within a `with` block.

    Args:
        changes: fields and their values.
    """
    token = _effort.set(replace(_effort.get(), **changes))
    try:
        yield
    finally:
        _effort.reset(token)
