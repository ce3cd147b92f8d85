"""Training: from a simulator to a policy.

The learner sees observations and rewards of copies of the problem (`environments`), nothing else. A few dozen times
during training the network is evaluated (`network_evaluation`), and a checkpoint is written if one is requested;
training returns the best network.

torch and Stable-Baselines3 are loaded when training starts (`loop`).

Several seeds. A run depends on the problem, the settings and its seed alone, so that networks are identical whether
runs follow each other in this process or are distributed over workers. Each run writes its own checkpoint; finished
runs are read from theirs when the work is resumed. The best run is selected on held-out episodes
(`network_evaluation`): the score of a run is the maximum of its own evaluations, which is biased upwards. All
networks are evaluated on the same episodes there.
"""

import inspect
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from evenhand.checks import read_seeds
from evenhand.display import FrameLibrary, Shown, as_frame, counted, from_report, progress_callback
from evenhand.errors import NotApplicableError
from evenhand.learning.network_evaluation import NetworkJudge
from evenhand.learning.settings import HELPS, TrainingRun, check_names
from evenhand.learning.worlds import Tasks
from evenhand.model.composite import MixturePolicy
from evenhand.model.coupled import CoupledMDP
from evenhand.model.simulator import Simulator, check_problem, needs_tables
from evenhand.parallel import Pool
from evenhand.planning.plan_file import save_policy
from evenhand.policies.network import CountNetworkPolicy, JointNetworkPolicy, Network, usage_of
from evenhand.policies.type_network import TypeNetworkPolicy
from evenhand.typing import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Problem: TypeAlias = CoupledMDP | Simulator

LIBRARIES = ("torch", "stable_baselines3", "gymnasium")
"""Libraries whose versions are recorded, if they took part."""


@dataclass(frozen=True)
class Training(Shown):
    """Result of a training run."""

    policy: CountNetworkPolicy | JointNetworkPolicy | TypeNetworkPolicy | MixturePolicy
    """Best network, as a policy for the problem; of several types the best mixture of its policies."""

    score: float
    """Its mean value of an arm: the welfare of every Gini on identical arms. Of several types the welfare."""

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
        learner = f"{counted(self.steps, 'step')} of {self.settings.get('algorithm', 'a learner')}"
        return f"Training(score {self.score:.6g} ({sure}), {learner}, {self.seconds:.1f} s)"

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
            "welfare": self.score if self.settings["architecture"] in ("counts", "types") else None,
            "mean": self.score if self.settings["architecture"] != "types" else None,
            "exact": self.exact,
            "steps": self.steps,
            "seconds": self.seconds,
            "curve": [{"steps": steps, "mean": score} for steps, score in self.curve],
            "settings": self.settings,
        }

    def plot(self) -> "Figure":
        """Plot the learning curve."""
        figure: Figure = from_report("plots", "training_figure")(self)
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
        save_policy(self.problem, self.policy, path, about)


def train(problem: Problem, *settings: Any, **keywords: Any) -> "Training | TrainingRuns":  # noqa: D417  # see below
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
        problem: the problem, or a simulator of identical arms; the learner sees only what it samples.
    """
    check_names(keywords)
    run = TrainingRun(*settings, **keywords)
    check_problem(problem)
    if not problem.criterion.is_stationary:
        raise NotApplicableError(
            f"training is for the criteria discounted and average, and this problem's is {problem.criterion.name}. "
            "Train on problem.with_criterion('discounted'), and evaluate under any criterion."
        )
    if problem.has_floors or problem.has_max_wait:
        raise NotApplicableError("training knows no floors or promised waits. Use `solve`, or a model without them.")
    if run.architecture == "counts" and isinstance(problem, CoupledMDP) and not problem.is_symmetric:
        run = replace(run, architecture="types")
    if run.architecture == "types":
        _check_types(problem, run)
    else:
        usage_of(problem)  # refuses arms that are not identical
    if run.seeds is not None:
        return train_runs(problem, run, run.seeds)
    from evenhand.learning import run_training

    with progress_callback(run.progress) as tell:
        return run_training(problem, replace(run, progress=tell))


def _check_types(problem: Problem, run: TrainingRun) -> None:
    """Raise NotApplicableError for what training for several types does not know."""
    needs_tables(problem, "training for arms of several types")
    ranges = {"num_arms": run.num_arms, "budget": run.budget, "seeds": run.seeds}
    if given := [name for name, value in ranges.items() if value is not None]:
        raise NotApplicableError(
            f"{given[0]}: arms of several types are trained for one size and with one seed at a time"
        )
    if run.allocation != "greedy":
        raise NotApplicableError("allocation: arms of several types are served by the highest score")


# `help`, editors and tests see the fields of the settings, with their types, defaults and help.
train.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [
        inspect.Parameter("problem", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Problem),
        *inspect.signature(TrainingRun).parameters.values(),
    ]
)
train.__doc__ = "\n".join(
    [(train.__doc__ or "").rstrip(), *(f"        {name}: {text}" for name, text in HELPS.items())]
)


# -- several seeds ---------------------------------------------------------------------------------------------------


class SeedRow(NamedTuple):
    """One run of several."""

    seed: int
    """Seed of the run."""

    score: float
    """Best of its own evaluations."""

    held_out: float
    """Mean value of an arm on held-out episodes; exact if possible."""

    held_out_stderr: float
    """Standard error; 0 if exact."""

    steps: int
    """Simulated steps, over all copies."""

    seconds: float
    """Duration."""


@dataclass(frozen=True)
class TrainingRuns(Shown):
    """Training runs with several seeds."""

    runs: tuple[Training, ...]
    """One run per seed."""

    rows: tuple[SeedRow, ...]
    """Scores of each run."""

    @property
    def best(self) -> Training:
        """Run with the best held-out value."""
        return self.runs[self.place_of_best]

    @property
    def place_of_best(self) -> int:
        """Index of the best run."""
        values = [float(f"{row.held_out:.9g}") for row in self.rows]  # of equal ones the first seed
        return values.index(max(values))

    @property
    def policy(self) -> CountNetworkPolicy | JointNetworkPolicy | TypeNetworkPolicy | MixturePolicy:
        """Best network, as a policy for the problem."""
        return self.best.policy

    def __repr__(self) -> str:
        row = self.rows[self.place_of_best]
        sure = "exact" if self.best.exact else f"± {row.held_out_stderr:.2g}"
        return f"TrainingRuns({counted(len(self.rows), 'seed')}, best {row.seed} with {row.held_out:.6g} ({sure}))"

    def to_frame(self, library: FrameLibrary | None = None) -> Any:
        """Return a frame with one row per seed: score, held-out value and its error, steps and seconds.

        Args:
            library: `pandas` or `polars`; by default pandas if it is installed, else polars.
        """
        return as_frame({name: [getattr(row, name) for row in self.rows] for name in SeedRow._fields}, library)

    def to_dict(self) -> list[dict[str, Any]]:
        """Return the JSON form: one object per seed."""
        best = self.place_of_best
        return [{**row._asdict(), "best": place == best} for place, row in enumerate(self.rows)]

    def save(self, path: str | Path, command: str = "") -> None:
        """Write the best policy, with the table of all seeds in its manifest; `load_policy` reads it, without torch.

        Args:
            path: the file.
            command: command line of the training, for the manifest.
        """
        self.best.save(path, command, {"seeds": self.to_dict()})


def train_runs(problem: Problem, base: TrainingRun, seeds: int | Sequence[int]) -> TrainingRuns:
    """Train once per seed; see `training.train`.

    Args:
        problem: identical arms, or a simulator of them.
        base: settings of the runs.
        seeds: number of seeds, from `base.seed` on; or the seeds themselves.
    """
    runs = [_run_of(seed, base) for seed in read_seeds(seeds, base.seed)]
    with Pool(base.backend) as sweep, progress_callback(base.progress) as tell:
        sweep.check_picklable({"the problem": problem, "the algorithm": base.algorithm})
        if not base.resume:  # from here on a run whose worker dies continues from its own checkpoint
            for run in runs:
                if run.checkpoint is not None:
                    Path(run.checkpoint).unlink(missing_ok=True)
        found = sweep.map(_train_task, [(problem, run) for run in runs], [f"seed {run.seed}" for run in runs], tell)
    trained = tuple(_of_problem(training, problem) for training, _, _ in found)
    rows = [
        SeedRow(run.seed, one.score, mean, error, one.steps, one.seconds)
        for run, (one, mean, error) in zip(runs, found, strict=True)
    ]
    return TrainingRuns(trained, tuple(rows))


def checkpoint_of(checkpoint: str | Path, seed: int) -> Path:
    """Return the checkpoint file of one seed."""
    return Path(f"{checkpoint}.seed-{seed}")


def _run_of(seed: int, base: TrainingRun) -> TrainingRun:
    """Return the settings of one run."""
    checkpoint = None if base.checkpoint is None else checkpoint_of(base.checkpoint, seed)
    logs = None if base.tensorboard is None else Path(base.tensorboard) / f"seed-{seed}"
    alone = replace(base, seeds=None, backend=None, progress=None)
    return replace(alone, seed=seed, checkpoint=checkpoint, tensorboard=logs, resume=checkpoint is not None)


def _train_task(cell: tuple[Problem, TrainingRun], progress: Progress | None = None) -> tuple[Training, float, float]:
    """Return one run, and the value of its network on held-out episodes with its error."""
    from evenhand.learning import run_training

    problem, run = cell
    training = run_training(problem, replace(run, progress=progress))
    policy, known = training.policy, training.settings
    tasks = None
    if isinstance(policy, CountNetworkPolicy):
        tasks = Tasks(tuple(known["num_arms"]), tuple((least, most) for least, most in known["budget"]))
    assert isinstance(policy, (CountNetworkPolicy, JointNetworkPolicy)) and isinstance(policy.network, Network)
    return training, *NetworkJudge(problem, run.allocation, tasks).held_out(policy.network)


def _of_problem(training: Training, problem: Problem) -> Training:
    """Return a run with the caller's problem in place of the copy of a worker."""
    policy = training.policy
    assert isinstance(policy, (CountNetworkPolicy, JointNetworkPolicy))
    if policy.problem is problem:
        return training
    if isinstance(policy, CountNetworkPolicy):
        return replace(training, problem=problem, policy=CountNetworkPolicy(problem, policy.network, policy.rule))
    assert isinstance(problem, CoupledMDP) and isinstance(policy.network, Network)
    return replace(training, problem=problem, policy=JointNetworkPolicy(problem, policy.network))
