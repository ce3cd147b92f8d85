"""Training: from a simulator to a policy, resumable at any moment.

The learner sees observations and rewards of copies of the problem (`environments`), nothing else. A few dozen times
during training the network is judged (`judging`); the best one is what training returns. Each time a checkpoint is
written where one is asked for, and a run resumed from it ends as if it had never stopped.

This file is light; torch and Stable-Baselines3 are loaded when training starts (`loop`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from evenhand.checks import check_positive_int
from evenhand.errors import InvalidInput, MissingExtra
from evenhand.model.coupled import CoupledMDP
from evenhand.model.simulator import Simulator
from evenhand.planning.networks import save_network
from evenhand.policies.network import ALLOCATIONS, Allocation, CountNetworkPolicy, JointNetworkPolicy

if TYPE_CHECKING:
    from evenhand.learning.learners import Learner

Told = Callable[[str, float], None]
"""Told what is being done, and the share of all the work that is done."""

Architecture = Literal["counts", "joint", "joint-idle"]
ARCHITECTURES: tuple[Architecture, ...] = ("counts", "joint", "joint-idle")

Budget = tuple[float, float] | tuple[tuple[float, float], ...]
"""The least and the most of one resource, or of each."""


@dataclass(frozen=True)
class Training:
    """What came of a training run."""

    policy: CountNetworkPolicy | JointNetworkPolicy
    """The best network that was seen, as a policy for the problem."""

    score: float
    """Its mean value of an arm, as judged: the welfare of every Gini on identical arms."""

    exact: bool
    """Whether scores are exact rather than estimates."""

    curve: list[tuple[int, float]]
    """(steps, score) of the network at that moment; the learning curve."""

    steps: int
    """Steps of copies that were played."""

    seconds: float
    """How long it took, all parts of a resumed run together."""

    settings: dict[str, Any]
    """What was asked for: with the problem and the seed, all that the result depends on."""

    problem: CoupledMDP | Simulator
    """What it was trained on."""

    def save(self, path: str | Path, command: str = "") -> None:
        """Write the policy; `load_policy` reads it, without torch.

        Args:
            path: where to.
            command: what was typed to train it, for the manifest.
        """
        about = {"settings": self.settings, "score": self.score, "exact": self.exact, "curve": self.curve}
        if command:
            about["command"] = command
        save_network(self.policy, path, about)


def train(
    problem: CoupledMDP | Simulator,
    algorithm: "str | Learner" = "ppo",
    steps: int = 240_000,
    *,
    architecture: Architecture = "counts",
    allocation: Allocation = "greedy",
    num_arms: tuple[int, int] | None = None,
    budget: Budget | None = None,
    horizon: int = 300,
    hidden: tuple[int, ...] = (64, 64),
    seed: int = 0,
    evaluations: int = 30,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    tensorboard: str | Path | None = None,
    told: Told | None = None,
) -> Training:
    """Learn a policy by trial and error.

    Args:
        problem: identical arms, or a simulator of them; the learner sees only what it samples.
        algorithm: ppo, sac, td3, or a learner with settings of its own.
        steps: steps to play, over all copies of the problem; rounded down to whole rollouts of the learner.
        architecture: counts (one network for any number of arms), joint (the paper's Vanilla-DRL, which always
            spends its budget), or joint-idle (the same with an output for serving nobody).
        allocation: greedy, or priority-sampling (the paper's); for counts.
        num_arms: the fewest and the most arms, drawn anew for each episode (multi-task); for counts.
        budget: the least and the most of each resource, drawn anew for each episode; for counts.
        horizon: steps an episode.
        hidden: units of the hidden layers.
        seed: where all randomness starts; the same seed gives the same policy.
        evaluations: how often the network is judged, for the learning curve and the best network.
        checkpoint: a file that is kept up to date, so that the run can be resumed.
        resume: go on from the checkpoint if it exists.
        tensorboard: a folder for TensorBoard's logs.
        told: called now and then with how it goes and the share of the work that is done.
    """
    for name, value in {"steps": steps, "horizon": horizon, "evaluations": evaluations}.items():
        check_positive_int(value, name)
    for units in hidden:
        check_positive_int(units, "hidden")
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise InvalidInput(f"seed: expected a whole number from 0 to {2**32 - 1}, got {seed!r}")
    if resume and checkpoint is None:
        raise InvalidInput("resume: name the checkpoint to go on from")
    if architecture not in ARCHITECTURES:
        raise InvalidInput(f"architecture: expected one of {', '.join(ARCHITECTURES)}, got {architecture!r}")
    if allocation not in ALLOCATIONS:
        raise InvalidInput(f"allocation: expected one of {', '.join(ALLOCATIONS)}, got {allocation!r}")
    training: Training = learning_loop().run(
        problem,
        algorithm,
        steps,
        architecture=architecture,
        allocation=allocation,
        num_arms=num_arms,
        budget=budget,
        horizon=horizon,
        hidden=tuple(hidden),
        seed=seed,
        evaluations=evaluations,
        checkpoint=None if checkpoint is None else Path(checkpoint),
        resume=resume,
        tensorboard=None if tensorboard is None else str(tensorboard),
        told=told,
    )
    return training


def learning_loop() -> Any:
    """The heavy part, if what it needs is installed."""
    try:
        from evenhand.learning import loop
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in ("torch", "stable_baselines3", "gymnasium"):
            raise MissingExtra("training", "rl") from None
        raise
    return loop
