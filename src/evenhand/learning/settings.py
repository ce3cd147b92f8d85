"""What a training run is asked for, declared once.

`TrainingSettings` is all that a result depends on beside the problem. Each of its fields is at once

    a keyword of `train`             by `TrainingRun`, which adds where the run is kept and who hears of it
    an option of `evenhand train`    with the same default, choices and help
    a setting of a cell `train`      in `paper/*.toml`
    a line in checkpoints            a run is resumed only with the settings it began with
    and in manifests                 of the networks that are saved

so that a new one is written here and nowhere else. The file is light: `--help` reads it, and loads no numerics.
"""

from dataclasses import KW_ONLY, Field, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from evenhand.errors import InvalidInput, UnknownName
from evenhand.model.rules import ALLOCATION_RULES, AllocationRule

if TYPE_CHECKING:
    from evenhand.learning.learners import Learner
    from evenhand.typing import Progress  # it loads NumPy

Architecture = Literal["counts", "joint", "joint-idle"]
ARCHITECTURES: tuple[Architecture, ...] = get_args(Architecture)

ALGORITHMS = ("ppo", "sac", "td3")
"""The learners that have a name; they live in `learners`."""

LARGEST_SEED = 2**32 - 1
"""What Stable-Baselines3 takes."""

Range = tuple[float, float]
Budget = Range | tuple[Range, ...]
"""The least and the most of one resource, or of each."""


def _told(help: str, choices: tuple[str, ...] = ()) -> dict[str, Any]:
    """What is said of a field: a sentence and, where it is one of a few words, these words."""
    return {"help": help, "choices": choices}


@dataclass(frozen=True)
class TrainingSettings:
    """What a trained policy depends on, beside the problem.

    `algorithm` may also be a learner with settings of its own, `learners.PPOLearner(epochs=10)`; `budget` one range,
    or one for each resource.
    """

    algorithm: "str | Learner" = field(default="ppo", metadata=_told("Who learns.", ALGORITHMS))
    steps: int = field(
        default=240_000,
        metadata=_told(
            "Steps to play, over all copies of the problem; rounded down to whole rollouts, at least one (ppo: 4000)."
        ),
    )
    _: KW_ONLY
    architecture: Architecture = field(
        default="counts",
        metadata=_told(
            "counts: one network for any number of arms; joint: the paper's Vanilla-DRL, on the raw joint state, "
            "always spending; joint-idle: the same, free not to.",
            ARCHITECTURES,
        ),
    )
    allocation: AllocationRule = field(
        default="greedy",
        metadata=_told(
            "How scores become an allocation: the highest first, or the paper's Algorithm 1; for counts.",
            ALLOCATION_RULES,
        ),
    )
    num_arms: tuple[int, int] | None = field(
        default=None,
        metadata=_told("The fewest and the most arms, drawn anew for each episode (several tasks); for counts."),
    )
    budget: Budget | None = field(
        default=None,
        metadata=_told(
            "The least and the most of a resource, drawn anew for each episode, once for each; for counts. On the "
            "command line amounts, 4,4 or bays=4, replace the model's budget instead."
        ),
    )
    horizon: int = field(default=300, metadata=_told("Steps an episode."))
    hidden: tuple[int, ...] = field(default=(64, 64), metadata=_told("Units of the hidden layers."))
    seed: int = field(default=0, metadata=_told("Where all randomness starts; the same seed gives the same policy."))
    evaluations: int = field(
        default=30,
        metadata=_told("How often the network is judged, for the learning curve and to keep the best network."),
    )

    def __post_init__(self) -> None:
        from evenhand.checks import check_positive_int  # it loads NumPy

        for name in ("steps", "horizon", "evaluations"):
            check_positive_int(getattr(self, name), name)
        object.__setattr__(self, "hidden", tuple(self.hidden))
        for units in self.hidden:
            check_positive_int(units, "hidden")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or not 0 <= self.seed <= LARGEST_SEED:
            raise InvalidInput(f"seed: expected a whole number from 0 to {LARGEST_SEED}, got {self.seed!r}")
        for name, known in (("architecture", ARCHITECTURES), ("allocation", ALLOCATION_RULES)):
            if getattr(self, name) not in known:
                raise InvalidInput(f"{name}: expected one of {', '.join(known)}, got {getattr(self, name)!r}")


@dataclass(frozen=True, kw_only=True)
class TrainingRun(TrainingSettings):
    """The settings of a run, where it is kept, and who hears of it: what `train` takes. None of it changes a result."""

    checkpoint: str | Path | None = field(
        default=None, metadata=_told("A file that is kept up to date, so that the run can be resumed.")
    )
    resume: bool = field(default=False, metadata=_told("Go on from the checkpoint if it exists."))
    tensorboard: str | Path | None = field(default=None, metadata=_told("A folder for TensorBoard's logs."))
    progress: "Progress | bool | None" = field(
        default=None,
        metadata=_told("True shows a bar; a function is called now and then with how it goes and the share done."),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.resume and self.checkpoint is None:
            raise InvalidInput("resume: name the checkpoint to go on from")


def settings() -> tuple[Field[Any], ...]:
    """The fields that a result depends on, in order."""
    return fields(TrainingSettings)


def check_names(names: dict[str, Any]) -> None:
    """Refuse a keyword that `train` does not know, with the nearest one that it does."""
    known = [setting.name for setting in fields(TrainingRun)]
    for name in names:
        if name not in known:
            raise UnknownName("setting of train", name, known)
