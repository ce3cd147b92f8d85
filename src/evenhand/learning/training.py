"""Training: from a simulator to a policy.

The learner sees observations and rewards of copies of the problem (`environments`), nothing else. A few dozen times
during training the network is evaluated (`network_evaluation`), and a checkpoint is written if one is requested;
training returns the best network.

torch and Stable-Baselines3 are loaded when training starts (`loop`).
"""

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from evenhand.display import FrameLibrary, Shown, as_frame, counted, telling, told_by
from evenhand.errors import MissingExtraError, NotApplicableError
from evenhand.kernels.threads import idle_threads_sleep
from evenhand.learning.settings import TrainingRun, check_names
from evenhand.model.coupled import CoupledMDP
from evenhand.model.simulator import Simulator, check_problem
from evenhand.planning.plan_file import save_policy
from evenhand.policies.network import CountNetworkPolicy, JointNetworkPolicy, usage_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from evenhand.learning.training_runs import TrainingRuns

Problem: TypeAlias = CoupledMDP | Simulator

LIBRARIES = ("torch", "stable_baselines3", "gymnasium")
"""Libraries whose versions are recorded, if they took part."""

Asked = ParamSpec("Asked")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Training(Shown):
    """Result of a training run."""

    policy: CountNetworkPolicy | JointNetworkPolicy
    """Best network, as a policy for the problem."""

    score: float
    """Its mean value of an arm: the welfare of every Gini on identical arms."""

    exact: bool
    """True if scores are exact, not estimates."""

    curve: list[tuple[int, float]]
    """(steps, score) of the network; the learning curve."""

    steps: int
    """Simulated steps, over all copies."""

    seconds: float
    """Duration, including interrupted runs that were resumed."""

    settings: dict[str, Any]
    """Settings: with the problem, all that the result depends on."""

    problem: CoupledMDP | Simulator
    """Problem of the training."""

    def __repr__(self) -> str:
        sure = "exact" if self.exact else "estimated"
        asked = f"{counted(self.steps, 'step')} of {self.settings.get('algorithm', 'a learner')}"
        return f"Training(score {self.score:.6g} ({sure}), {asked}, {self.seconds:.1f} s)"

    def to_frame(self, library: FrameLibrary | None = None) -> Any:
        """Return the learning curve: one row per evaluation, with its steps and its score.

        Args:
            library: `pandas` or `polars`; by default pandas if it is installed, else polars.
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
        """Plot the learning curve."""
        figure: Figure = told_by("plots", "training_figure")(self)
        return figure

    def save(self, path: str | Path, command: str = "", more: Mapping[str, Any] | None = None) -> None:
        """Write the policy; `load_policy` reads it, without torch.

        Args:
            path: the file.
            command: command line of the training, for the manifest.
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
) -> Callable[[Callable[[Problem, TrainingRun], Result]], Callable[Concatenate[Problem, Asked], Result]]:
    """Replace the settings of a function by keywords with the types, defaults and help of their fields."""

    def decorate(
        function: Callable[[Problem, TrainingRun], Result],
    ) -> Callable[Concatenate[Problem, Asked], Result]:
        @wraps(function)
        def called(problem: Problem, *arguments: Asked.args, **keywords: Asked.kwargs) -> Result:
            check_names(keywords)
            return function(problem, run(*arguments, **keywords))

        # `help` and editors show the fields of the settings.
        asked = inspect.signature(TrainingRun).parameters.values()
        first = inspect.Parameter("problem", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Problem)
        called.__signature__ = inspect.Signature([first, *asked], return_annotation=Training)  # type: ignore[attr-defined]
        helps = [f"    {each.name}: {each.metadata['help']}" for each in fields(TrainingRun)]
        called.__doc__ = "\n    ".join([inspect.cleandoc(function.__doc__ or "").replace("\n", "\n    "), *helps, ""])
        return called  # type: ignore[return-value]  # `problem` may be given by name, too; no setting is called so

    return decorate


@_asked_by(TrainingRun)
def train(problem: Problem, run: TrainingRun) -> "Training | TrainingRuns":  # noqa: D417  # the fields of TrainingRun
    """Learn a policy from simulation, once or with several seeds.

    Example:
        >>> import evenhand as eh
        >>> problem = eh.problems.machine_replacement(num_arms=3)
        >>> training = eh.train(problem, steps=4_000, seed=0)
        >>> training.policy
        CountNetworkPolicy(for 3 arms, greedy, Network(4 → 64 → 64 → 6))
        >>> runs = eh.train(problem, steps=4_000, seeds=2)
        >>> runs.best.score == max(row.score for row in runs.rows)
        True

    Args:
        problem: identical arms, or a simulator of them; the learner sees only what it samples.
    """
    check_problem(problem)
    _check_objective(problem)
    usage_of(problem)  # refuses arms that are not identical
    if run.seeds is not None:
        from evenhand.learning.training_runs import train_runs  # it imports this module

        return train_runs(problem, run, run.seeds)
    with telling(run.progress) as tell:
        return train_one(problem, replace(run, progress=tell))


def train_one(problem: Problem, run: TrainingRun) -> Training:
    """Train with one seed.

    Args:
        problem: identical arms, or a simulator of them.
        run: the settings.
    """
    training: Training = learning_loop().run(problem, run)
    return training


def _check_objective(problem: Problem) -> None:
    """Raise NotApplicableError unless the criterion is discounted and there are no floors."""
    if problem.criterion.name != "discounted":
        raise NotApplicableError(
            f"training is for the criterion discounted, and this problem's is {problem.criterion.name}. "
            "Train on problem.with_criterion('discounted'), and evaluate under any criterion."
        )
    if problem.has_floors:
        raise NotApplicableError("training does not support floors. Use `solve`, or a model without them.")


def learning_loop() -> Any:
    """Return the training loop, or raise MissingExtraError."""
    try:
        with idle_threads_sleep():  # torch has its own OpenMP
            from evenhand.learning import loop
    except ModuleNotFoundError as error:
        # Any other missing module is an error of the installation.
        if (error.name or "").split(".")[0] in ("torch", "stable_baselines3", "gymnasium"):
            raise MissingExtraError("training", "rl") from None
        raise
    return loop
