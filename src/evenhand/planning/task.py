"""What is to be solved, and how closely: handed to every method."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from evenhand.kernels.compilation import seconds_getting_ready, work_clock
from evenhand.model.coupled import CoupledMDP
from evenhand.model.objective import Objective
from evenhand.model.policy import Policy, Starting
from evenhand.model.welfare import Welfare
from evenhand.parallel import Pool
from evenhand.solvers.count_dynamics import CountPlan
from evenhand.solvers.typed_counts import TypedPlan
from evenhand.typing import Progress, Rng

WORTH_TELLING = 0.01
"""Seconds of compiling, or of reading what was compiled, that are told as a stage of their own."""


@dataclass(frozen=True, eq=False)
class Task:
    """What is to be solved, and how closely."""

    problem: CoupledMDP
    """The problem, under its criterion and over what it says."""

    welfare: Welfare
    """How values are weighed."""

    tolerance: float
    """The relative gap to stop at."""

    progress: Progress | None
    """Told now and then how it goes."""

    reason: str = "asked for"
    """Why the method was chosen."""

    rng: Rng = 0
    """Of the simulations that some methods need."""

    plan: CountPlan | None = None
    """The dynamic program of identical arms, where it was planned to choose the method."""

    typed_plan: TypedPlan | None = None
    """The same for several types."""

    candidates: dict[str, Policy | Starting] = field(default_factory=dict)
    """Policies that compete with those of the method fluid."""

    seconds: float | None = None
    """For how long to look for better plans, where a method could go on; no limit when absent."""

    rotate: int | None = None
    """Steps after which a mixture is drawn anew; once and for all when absent."""

    sweep: Pool = field(default_factory=Pool)
    """Where policies are tried."""

    @property
    def by_types(self) -> Objective:
        """The objective with one value a type."""
        return Objective.of_types(self.problem, self.welfare)

    @property
    def by_arms(self) -> Objective:
        """The objective with one value an arm."""
        return Objective.of_arms(self.problem, self.welfare)

    def tell(self, what: str, share: float) -> None:
        """Pass on what is being done."""
        if self.progress is not None:
            self.progress(what, share)

    def tell_gap(self, what: str) -> Callable[[int, float], None]:
        """A callback that passes on a gap, on a logarithmic scale from 1 to the tolerance."""

        def tell(rounds: int, gap: float) -> None:
            self.tell(f"{what}, round {rounds}", gap_share(gap, self.tolerance))

        return tell


def gap_share(gap: float, tolerance: float) -> float:
    """How much of the way from a gap of 1 to the tolerance is done, on a logarithmic scale."""
    return float(abs(np.log(max(min(gap, 1.0), tolerance)) / np.log(tolerance)))


class Stopwatch:
    """Splits the time since it was made among the stages that are named; compiling is a stage of its own."""

    def __init__(self) -> None:
        self._last, self._ready = work_clock(), seconds_getting_ready()
        self.seconds: dict[str, float] = {"build": 0.0, "solve": 0.0}

    def lap(self, stage: str) -> None:
        """The time since the last lap was spent on this stage."""
        now, ready = work_clock(), seconds_getting_ready()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._last
        if ready - self._ready >= WORTH_TELLING:
            self.seconds["compile"] = self.seconds.get("compile", 0.0) + ready - self._ready
        self._last, self._ready = now, ready
