"""Training: from a simulator to a policy, resumable at any moment.

The learner sees observations and rewards of copies of the problem (`environments`), nothing else. A few dozen times
during training the network is judged (`judging`); the best one is what training returns. Each time a checkpoint is
written where one is asked for, and a run resumed from it ends as if it had never stopped.

This file is light; torch and Stable-Baselines3 are loaded when training starts (`loop`).
"""

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeAlias

from evenhand.display import FrameLibrary, Shown, as_frame, counted, telling, told_by
from evenhand.errors import MissingExtra, NotApplicable
from evenhand.kernels.threads import idle_threads_sleep
from evenhand.learning.settings import TrainingRun, check_names
from evenhand.model.coupled import CoupledMDP
from evenhand.model.simulator import Simulator, check_problem
from evenhand.planning.plan_file import save_policy
from evenhand.policies.network import CountNetworkPolicy, JointNetworkPolicy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Problem: TypeAlias = CoupledMDP | Simulator

LIBRARIES = ("torch", "stable_baselines3", "gymnasium")
"""Libraries whose versions are recorded, if they took part."""

Asked = ParamSpec("Asked")


@dataclass(frozen=True)
class Training(Shown):
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

    def __repr__(self) -> str:
        sure = "exact" if self.exact else "estimated"
        asked = f"{counted(self.steps, 'step')} of {self.settings.get('algorithm', 'a learner')}"
        return f"Training(score {self.score:.6g} ({sure}), {asked}, {self.seconds:.1f} s)"

    def to_frame(self, library: FrameLibrary | None = None) -> Any:
        """The learning curve: one row a look at the network, with its steps and its score.

        Args:
            library: `pandas` or `polars`; when absent pandas if it is installed, else polars.
        """
        steps, scores = zip(*self.curve, strict=True)
        return as_frame({"steps": list(steps), "score": list(scores)}, library)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "algorithm": self.settings["algorithm"],
            "welfare": self.score if self.settings["architecture"] == "counts" else None,
            "mean": self.score,
            "exact": self.exact,
            "steps": self.steps,
            "seconds": self.seconds,
            "curve": [{"steps": steps, "mean": score} for steps, score in self.curve],
            "settings": self.settings,
        }

    def plot(self) -> "Figure":
        """A figure: the learning curve."""
        figure: Figure = told_by("plots", "training_figure")(self)
        return figure

    def save(self, path: str | Path, command: str = "", more: Mapping[str, Any] | None = None) -> None:
        """Write the policy; `load_policy` reads it, without torch.

        Args:
            path: where to.
            command: what was typed to train it, for the manifest.
            more: further facts for the manifest.
        """
        about = {"settings": self.settings, "score": self.score, "exact": self.exact, "curve": self.curve}
        about["versions"] = {name: str(sys.modules[name].__version__) for name in LIBRARIES if name in sys.modules}
        about |= more or {}
        if command:
            about["command"] = command
        save_policy(self.policy.problem, self.policy, path, about)


def _asked_by(
    run: Callable[Asked, TrainingRun],
) -> Callable[[Callable[[Problem, TrainingRun], Training]], Callable[Concatenate[Problem, Asked], Training]]:
    """Let a function be called with the arguments that make a run, by the types, defaults and help declared there."""

    def decorate(
        function: Callable[[Problem, TrainingRun], Training],
    ) -> Callable[Concatenate[Problem, Asked], Training]:
        @wraps(function)
        def called(problem: Problem, *arguments: Asked.args, **keywords: Asked.kwargs) -> Training:
            # Before the run is made: a misspelt setting gets the nearest name.
            check_names(keywords)
            return function(problem, run(*arguments, **keywords))

        # What `help` and editors show are the fields of the settings, declared once.
        asked = inspect.signature(TrainingRun).parameters.values()
        first = inspect.Parameter("problem", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Problem)
        called.__signature__ = inspect.Signature([first, *asked], return_annotation=Training)  # type: ignore[attr-defined]
        helps = [f"    {each.name}: {each.metadata['help']}" for each in fields(TrainingRun)]
        called.__doc__ = "\n    ".join([inspect.cleandoc(function.__doc__ or "").replace("\n", "\n    "), *helps, ""])
        return called  # type: ignore[return-value]  # `problem` may be given by name, too; no setting is called so

    return decorate


@_asked_by(TrainingRun)
def train(problem: Problem, run: TrainingRun) -> Training:  # noqa: D417  # told by the fields of TrainingRun
    """Learn a policy by trial and error.

    Example:
        >>> import evenhand as eh
        >>> problem = eh.problems.machine_replacement(num_arms=3)
        >>> training = eh.train(problem, steps=4_000, seed=0)
        >>> training.policy
        CountNetworkPolicy(for 3 arms, greedy, Network(4 → 64 → 64 → 6))

    Args:
        problem: identical arms, or a simulator of them; the learner sees only what it samples.
    """
    check_problem(problem)
    _check_objective(problem)
    with telling(run.progress) as tell:
        training: Training = learning_loop().run(problem, replace(run, progress=tell))
    return training


def _check_objective(problem: Problem) -> None:
    """Learners maximise discounted rewards and know no floors: anything else is refused before it is begun."""
    if problem.criterion.name != "discounted":
        raise NotApplicable(
            f"training is for the criterion discounted, and this problem's is {problem.criterion.name}. "
            "Train on problem.with_criterion('discounted'), and evaluate under any criterion."
        )
    if problem.has_floors:
        raise NotApplicable("training knows no floors. Use `solve`, or a model without them.")


def learning_loop() -> Any:
    """The heavy part, if what it needs is installed."""
    try:
        with idle_threads_sleep():  # torch brings an OpenMP of its own
            from evenhand.learning import loop
    except ModuleNotFoundError as error:
        # Other missing modules are a broken installation, and are told as they are.
        if (error.name or "").split(".")[0] in ("torch", "stable_baselines3", "gymnasium"):
            raise MissingExtra("training", "rl") from None
        raise
    return loop
