"""Task of a method: problem, welfare and settings."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from evenhand.checks import check_positive_int, is_number
from evenhand.errors import (
    InfeasibleError,
    InvalidInputError,
    NotApplicableError,
    NotConvergedError,
    OutOfDomainError,
    TooLargeError,
)
from evenhand.kernels.compilation import seconds_getting_ready, work_clock
from evenhand.model import CoupledMDP, Objective, Policy, StatefulPolicy, Welfare
from evenhand.parallel import Pool
from evenhand.typing import Progress, Rng

FAILURES = (NotApplicableError, InfeasibleError, TooLargeError, OutOfDomainError, NotConvergedError)
"""Errors by which a method has no plan or bound for a problem."""

REPORTED = 0.01
"""Seconds of compilation, or of loading compiled code, from which they are reported as a stage."""


DEFAULT_TOLERANCE = 1e-8
"""Relative gap at which exact methods stop."""


@dataclass(frozen=True)
class Effort:
    """Limits of simulation, search and exact methods."""

    arm_steps: float = 2e6
    """Arm-steps by which a candidate policy is evaluated during the search."""

    report_steps: float = 1.5e7
    """Arm-steps on which the plan is reported."""

    paired_steps: float = 5e6
    """Arm-steps on which each part of a plan is evaluated beside plans of other budgets."""

    inequality_steps: float = 2e6
    """Arm-steps on which the realised inequality is estimated."""

    exact_states: int = 500
    """Count states, over all steps, up to which candidates are evaluated exactly rather than simulated."""

    count_states: int = 20_000
    """States of the count space up to which `auto` solves it by tables: minutes, not hours."""

    joint_states: int = 70_000
    """States of the product space up to which `auto` solves it."""

    operations: float = 1e12
    """Operations up to which `auto` solves counts without tables."""

    tabulated_pairs: float = 25_000
    """Pairs of count states and decisions of several types, at all steps, up to which the explicit table is quicker."""

    tabulated_states: int = 6_000
    """Count states up to which an average that is refused without tables is tried by them."""

    optimum_states: int = 3_000
    """States of the count or product space up to which `compare` computes the optimum."""

    rounds: int = 30
    """Maximal number of rounds of column generation."""

    polish: float = 8.0
    """Arm-steps on which the parts of the mixture are evaluated again, as a multiple of `arm_steps`."""

    least_gap: float = 1e-4
    """Relative gap at which the search ends: policies of single arms do not come nearer."""

    least_gain: float = 2e-4
    """Gain of a few rounds together, as a share of the bound, below which the search ends."""

    least_share: float = 1e-2
    """Share below which a part is left out of the mixture; with floors 0.0001 of this, since they may need it."""

    memory: float = 0.25
    """Share of the free memory for evaluated policies."""


_effort: ContextVar[Effort] = ContextVar("effort", default=Effort())  # noqa: B039  # frozen


def current_effort() -> Effort:
    """Return the effort of this context."""
    return _effort.get()


@contextmanager
def limited_effort(**changes: Any) -> Iterator[None]:
    """Change fields of `Effort` within a `with` block.

    As in `with limited_effort(arm_steps=1e5): solve(problem)`.

    Args:
        changes: fields and their values.
    """
    token = _effort.set(replace(_effort.get(), **changes))
    try:
        yield
    finally:
        _effort.reset(token)


@dataclass(frozen=True, eq=False)
class SolveMethod:
    """Method of `solve` with its settings.

    Example:
        >>> import evenhand as eh
        >>> method = eh.SolveMethod("counts", tolerance=1e-4)
        >>> eh.solve(eh.problems.machine_replacement(num_arms=3), method=method).method
        'counts'
    """

    name: str = "auto"
    """counts, joint, count-lp, joint-lp, whittle, fluid, or auto: the exact method that fits, else fluid."""

    tolerance: float = DEFAULT_TOLERANCE
    """Relative gap to stop at. The linear programs end as close as HiGHS gets; for whittle and fluid it is the gap of
    the relaxation, at least 1e-5, and not that of the policy."""

    seconds: float | None = None
    """Time limit of the method fluid, exceeded at most about twice; by default it ends if nothing is gained. Half of it
    is for the search, the rest for the evaluation. Compilation does not count."""

    candidates: Mapping[str, Policy | StatefulPolicy] = field(default_factory=dict)
    """Policies by name, such as trained ones, that compete with those of the method fluid, which auto then takes."""

    redraw_every: int | None = None
    """Steps after which a mixture is drawn again; by default it is drawn once. The welfare is reported for both."""

    plans: Sequence[Any] = ()
    """With several budgets, existing plans from `solve` or `load_plan`. Each competes under every budget, and no budget
    that contains its own gets a worse one."""

    def __post_init__(self) -> None:
        if not is_number(self.tolerance) or not 0 < self.tolerance < 1:
            raise InvalidInputError(f"tolerance: expected a number between 0 and 1, got {self.tolerance!r}")
        if self.seconds is not None and (not is_number(self.seconds) or not self.seconds > 0):
            raise InvalidInputError(f"seconds: expected a positive number, got {self.seconds!r}")
        if self.redraw_every is not None:
            check_positive_int(self.redraw_every, "redraw_every")
        if not isinstance(self.candidates, Mapping):
            raise InvalidInputError(
                f"candidates: expected policies by name, as in {{'mine': policy}}, got {self.candidates!r}"
            )
        for name, policy in self.candidates.items():
            if not isinstance(policy, (Policy, StatefulPolicy)):
                raise InvalidInputError(f"candidates: {name!r} has no method act(states, rng): {policy!r}")
        if self.candidates and self.name not in ("auto", "fluid"):
            raise InvalidInputError(f"candidates compete with the policies of the method fluid, not with {self.name}")

    @classmethod
    def of(cls, method: "str | SolveMethod") -> "SolveMethod":
        """Return the method of a name, with default settings; or the method itself."""
        return method if isinstance(method, SolveMethod) else cls(method)


@dataclass(frozen=True, eq=False)
class Task:
    """Problem, welfare and settings."""

    problem: CoupledMDP
    """The problem, under its criterion and over what it says."""

    welfare: Welfare
    """The welfare."""

    method: SolveMethod
    """The method and its settings."""

    progress: Progress | None
    """Called with the current task and the share done."""

    reason: str = "requested"
    """Why the method was chosen."""

    rng: Rng = 0
    """Of the simulations that some methods need."""

    sweep: Pool = field(default_factory=Pool)
    """Backend on which policies are tried."""

    effort: Effort = field(default_factory=current_effort)
    """Limits of simulation and search."""

    @property
    def by_types(self) -> Objective:
        """The objective with one value per type."""
        return Objective.of_types(self.problem, self.welfare)

    @property
    def by_arms(self) -> Objective:
        """The objective with one value per arm."""
        return Objective.of_arms(self.problem, self.welfare)

    def tell(self, what: str, share: float) -> None:
        """Report the current task and the share done."""
        if self.progress is not None:
            self.progress(what, share)

    def tell_gap(self, what: str) -> Callable[[int, float], None]:
        """Return a callback that passes on a gap, on a logarithmic scale from 1 to the tolerance."""

        def tell(rounds: int, gap: float) -> None:
            self.tell(f"{what}, round {rounds}", gap_share(gap, self.method.tolerance))

        return tell


def gap_share(gap: float, tolerance: float) -> float:
    """Return the share of the way from a gap of 1 to the tolerance, on a logarithmic scale."""
    return float(abs(np.log(max(min(gap, 1.0), tolerance)) / np.log(tolerance)))


class Stopwatch:
    """Time by stage since it was made; compilation is a stage of its own."""

    def __init__(self) -> None:
        self._last, self._ready = work_clock(), seconds_getting_ready()
        self.seconds: dict[str, float] = {"build": 0.0, "solve": 0.0}

    def lap(self, stage: str) -> None:
        """Assign the time since the last lap to a stage."""
        now, ready = work_clock(), seconds_getting_ready()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._last
        if ready - self._ready >= REPORTED:
            self.seconds["compile"] = self.seconds.get("compile", 0.0) + ready - self._ready
        self._last, self._ready = now, ready
