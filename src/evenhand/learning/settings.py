"""Settings of a training run, declared once.

`TrainingSettings` is all that a result depends on beside the problem. Each of its fields is at once

    a keyword of `train`             by `TrainingRun`, which adds checkpoints, seeds and progress
    an option of `evenhand train`    with the same default, choices and help
    a setting of `train`             in `paper/*.toml`
    an entry in checkpoints          a run is resumed only with the same settings
    and in manifests                 of saved networks

The command line reads this file for its help, so that it loads no numerics.
"""

from dataclasses import KW_ONLY, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from evenhand.errors import InvalidInputError, UnknownNameError
from evenhand.model.rules import ALLOCATION_RULES, AllocationRule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenhand.learning.learners import Learner
    from evenhand.parallel import Pool
    from evenhand.typing import Progress  # it loads NumPy

Architecture = Literal["counts", "joint", "joint-idle"]
ARCHITECTURES: tuple[Architecture, ...] = get_args(Architecture)

ALGORITHMS = ("ppo", "sac", "td3")
"""Names of the learners (`learners`)."""

LARGEST_SEED = 2**32 - 1
"""Largest seed of Stable-Baselines3."""

Range = tuple[float, float]
Budget = Range | tuple[Range, ...]
"""Smallest and largest amount of one resource, or of each."""


def _help(help: str, choices: tuple[str, ...] = ()) -> dict[str, Any]:
    """Metadata of a field: a sentence, and its choices if there are few."""
    return {"help": help, "choices": choices}


@dataclass(frozen=True)
class TrainingSettings:
    """Settings that a trained policy depends on, beside the problem.

    `algorithm` may also be a learner with settings of its own, `learners.PPOLearner(epochs=10)`; `budget` one range,
    or one for each resource.
    """

    algorithm: "str | Learner" = field(default="ppo", metadata=_help("Learning algorithm.", ALGORITHMS))
    steps: int = field(
        default=240_000,
        metadata=_help(
            "Simulated steps, over all copies of the problem; rounded down to whole rollouts, at least one (ppo: 4000)."
        ),
    )
    _: KW_ONLY
    architecture: Architecture = field(
        default="counts",
        metadata=_help(
            "counts: one network for any number of arms; joint: the paper's Vanilla-DRL, on the raw joint state, "
            "always using the budget; joint-idle: the same, free to idle.",
            ARCHITECTURES,
        ),
    )
    allocation: AllocationRule = field(
        default="greedy",
        metadata=_help(
            "Allocation by scores: the highest first, or the paper's Algorithm 1; for counts.",
            ALLOCATION_RULES,
        ),
    )
    num_arms: tuple[int, int] | None = field(
        default=None,
        metadata=_help("Smallest and largest number of arms, drawn per episode (several tasks); for counts."),
    )
    budget: Budget | None = field(
        default=None,
        metadata=_help(
            "Smallest and largest amount of each resource, drawn per episode; for counts. On the command line "
            "amounts, 4,4 or bays=4, replace the model's budget instead."
        ),
    )
    horizon: int = field(default=300, metadata=_help("Steps per episode."))
    hidden: tuple[int, ...] = field(default=(64, 64), metadata=_help("Units of the hidden layers."))
    seed: int = field(default=0, metadata=_help("Seed of all randomness; the same seed gives the same policy."))
    evaluations: int = field(
        default=30,
        metadata=_help("Number of evaluations of the network, for the learning curve and the choice of the best one."),
    )

    def __post_init__(self) -> None:
        from evenhand.checks import check_positive_int  # it loads NumPy

        for name in ("steps", "horizon", "evaluations"):
            check_positive_int(getattr(self, name), name)
        object.__setattr__(self, "hidden", tuple(self.hidden))
        for units in self.hidden:
            check_positive_int(units, "hidden")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or not 0 <= self.seed <= LARGEST_SEED:
            raise InvalidInputError(f"seed: expected a whole number from 0 to {LARGEST_SEED}, got {self.seed!r}")
        for name, known in (("architecture", ARCHITECTURES), ("allocation", ALLOCATION_RULES)):
            if getattr(self, name) not in known:
                raise InvalidInputError(f"{name}: expected one of {', '.join(known)}, got {getattr(self, name)!r}")


@dataclass(frozen=True, kw_only=True)
class TrainingRun(TrainingSettings):
    """Arguments of `train`: the settings of a run, its checkpoint, seeds and progress."""

    checkpoint: str | Path | None = field(
        default=None, metadata=_help("File from which the run can be resumed, written at each evaluation.")
    )
    resume: bool = field(default=False, metadata=_help("Continue from the checkpoint if it exists."))
    seeds: "int | Sequence[int] | None" = field(
        default=None,
        metadata=_help(
            "Number of runs with different seeds, from `seed` on, or the seeds; the result is then a TrainingRuns, "
            "each run with its own checkpoint, FILE.seed-0 and so on."
        ),
    )
    backend: "str | Pool | None" = field(
        default=None,
        metadata=_help("Backend of several runs: processes:2, ray, ray://host:port; by default this process."),
    )
    tensorboard: str | Path | None = field(default=None, metadata=_help("Folder for TensorBoard's logs."))
    progress: "Progress | bool | None" = field(
        default=None,
        metadata=_help("True shows a bar; a function is called with a text and the finished share."),
    )

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
