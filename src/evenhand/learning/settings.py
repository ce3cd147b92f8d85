"""Settings of a training run, declared once.

`TrainingSettings` is all that a result depends on beside the problem. Each of its fields is at once

    a keyword of `train`             by `TrainingRun`, which adds checkpoints, seeds and progress
    an option of `evenhand train`    with the same default, choices and help
    a setting of `train`             in `paper/*.toml`
    an entry in checkpoints          a run is resumed only with the same settings
    and in manifests                 of saved networks

The command line reads this file for its help, so that it loads no numerics.
"""

from dataclasses import KW_ONLY, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from evenhand.display import argument_helps
from evenhand.errors import InvalidInputError, UnknownNameError
from evenhand.model.rules import ALLOCATION_RULES, AllocationRule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenhand.learning.learners import Learner
    from evenhand.model.welfare import Welfare
    from evenhand.parallel import Pool
    from evenhand.typing import Progress  # it loads NumPy

Architecture = Literal["counts", "types", "joint", "joint-idle"]
ARCHITECTURES: tuple[Architecture, ...] = get_args(Architecture)

ALGORITHMS = ("ppo", "sac", "td3")
"""Names of the learners (`learners`)."""

LARGEST_SEED = 2**32 - 1
"""Largest seed of Stable-Baselines3."""

Range = tuple[float, float]
Budget = Range | tuple[Range, ...]
"""Smallest and largest amount of one resource, or of each."""


CHOICES: dict[str, tuple[str, ...]] = {
    "algorithm": ALGORITHMS,
    "architecture": ARCHITECTURES,
    "allocation": ALLOCATION_RULES,
}
"""Choices of the settings that have a few."""


@dataclass(frozen=True)
class TrainingSettings:
    """Settings that a trained policy depends on, beside the problem.

    `algorithm` may also be a learner with settings of its own, `learners.PPOLearner(epochs=10)`; `budget` one range,
    or one for each resource.

    Args:
        algorithm: Learning algorithm.
        steps: Simulated steps, over all copies of the problem; rounded down to whole rollouts, at least one (ppo:
            4000).
        architecture: counts: one network for any number of arms; types: one for arms of several types, which counts
            becomes if they are; joint: the paper's Vanilla-DRL, on the raw joint state, always using the budget;
            joint-idle: the same, free to idle.
        allocation: Allocation by scores: the highest first, or the paper's Algorithm 1; for counts.
        num_arms: Smallest and largest number of arms, drawn per episode (several tasks); for counts.
        budget: Smallest and largest amount of each resource, drawn per episode; for counts. On the command line
            amounts, 4,4 or bays=4, replace the model's budget instead.
        horizon: Steps per episode.
        hidden: Units of the hidden layers.
        seed: Seed of all randomness; the same seed gives the same policy.
        evaluations: Number of evaluations of the network, for the learning curve and the choice of the best one.
    """

    algorithm: "str | Learner" = "ppo"
    steps: int = 240_000
    _: KW_ONLY
    architecture: Architecture = "counts"
    allocation: AllocationRule = "greedy"
    num_arms: tuple[int, int] | None = None
    budget: Budget | None = None
    horizon: int = 300
    hidden: tuple[int, ...] = (64, 64)
    seed: int = 0
    evaluations: int = 30

    def __post_init__(self) -> None:
        from evenhand.checks import check_positive_int  # it loads NumPy

        for name in ("steps", "horizon", "evaluations"):
            check_positive_int(getattr(self, name), name)
        object.__setattr__(self, "hidden", tuple(self.hidden))
        for units in self.hidden:
            check_positive_int(units, "hidden")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or not 0 <= self.seed <= LARGEST_SEED:
            raise InvalidInputError(f"seed: expected a whole number from 0 to {LARGEST_SEED}, got {self.seed!r}")
        for name in ("architecture", "allocation"):
            if getattr(self, name) not in CHOICES[name]:
                expected = ", ".join(CHOICES[name])
                raise InvalidInputError(f"{name}: expected one of {expected}, got {getattr(self, name)!r}")


@dataclass(frozen=True, kw_only=True)
class TrainingRun(TrainingSettings):
    """Arguments of `train`: the settings of a run, its checkpoint, seeds and progress.

    Args:
        checkpoint: File from which the run can be resumed, written at each evaluation.
        resume: Continue from the checkpoint if it exists.
        seeds: Number of runs with different seeds, from `seed` on, or the seeds; the result is then a TrainingRuns,
            each run with its own checkpoint, FILE.seed-0 and so on.
        backend: Backend of several runs: processes:2, ray, ray://host:port; by default this process.
        tensorboard: Folder for TensorBoard's logs.
        welfare: Welfare that arms of several types are trained for, as text or object; by default the problem's own.
            On identical arms every welfare of equal values is their value.
        progress: True shows a bar; a function is called with a text and the finished share.
    """

    checkpoint: str | Path | None = None
    resume: bool = False
    seeds: "int | Sequence[int] | None" = None
    backend: "str | Pool | None" = None
    tensorboard: str | Path | None = None
    welfare: "str | Welfare | None" = None
    progress: "Progress | bool | None" = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.resume and self.checkpoint is None:
            raise InvalidInputError("resume: a checkpoint is required")


def check_names(names: dict[str, Any]) -> None:
    """Raise UnknownNameError for an unknown keyword of `train`, with the nearest known one."""
    known = [setting.name for setting in fields(TrainingRun)]
    for name in names:
        if name not in known:
            raise UnknownNameError("setting of train", name, known)


HELPS = argument_helps(TrainingSettings) | argument_helps(TrainingRun)
"""Help of each argument of `train`."""
