"""Training over several seeds: the variation between runs, and the best network.

A run depends on the problem, the settings and its seed alone, so that networks are identical whether runs follow each
other in this process or are distributed over workers. Each run writes its own checkpoint; finished runs are read from
theirs when the work is resumed.

The best run is selected on held-out episodes (`network_evaluation.held_out`): the score of a run is the maximum of
its own evaluations, which is biased upwards. All networks are evaluated on the same episodes there.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from evenhand.checks import check_positive_int
from evenhand.display import FrameLibrary, Shown, as_frame, counted, telling
from evenhand.errors import InvalidInputError
from evenhand.learning.network_evaluation import held_out
from evenhand.learning.settings import TrainingRun
from evenhand.learning.training import Problem, Training, train_one
from evenhand.model.coupled import CoupledMDP
from evenhand.parallel import Pool
from evenhand.policies.network import CountNetworkPolicy, JointNetworkPolicy
from evenhand.typing import Progress

DIGITS = 9
"""Digits by which held-out values are compared; of equal ones the first seed is selected."""


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
        values = [float(f"{row.held_out:.{DIGITS}g}") for row in self.rows]
        return values.index(max(values))

    @property
    def policy(self) -> CountNetworkPolicy | JointNetworkPolicy:
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


def train_runs(problem: Problem, asked: TrainingRun, seeds: int | Sequence[int]) -> TrainingRuns:
    """Train once per seed; see `training.train`.

    Args:
        problem: identical arms, or a simulator of them.
        asked: settings of the runs.
        seeds: number of seeds, from `asked.seed` on; or the seeds themselves.
    """
    runs = [_run_of(seed, asked) for seed in read_seeds(seeds, asked.seed)]
    with Pool(asked.backend) as sweep, telling(asked.progress) as tell:
        sweep.check_picklable({"the problem": problem, "the algorithm": asked.algorithm})
        if not asked.resume:  # from here on a run whose worker dies continues from its own checkpoint
            for run in runs:
                if run.checkpoint is not None:
                    Path(run.checkpoint).unlink(missing_ok=True)
        found = sweep.map(_train_one, [(problem, run) for run in runs], [f"seed {run.seed}" for run in runs], tell)
    trained = tuple(_of_problem(training, problem) for training, _, _ in found)
    rows = [
        SeedRow(run.seed, one.score, mean, error, one.steps, one.seconds)
        for run, (one, mean, error) in zip(runs, found, strict=True)
    ]
    return TrainingRuns(trained, tuple(rows))


def read_seeds(seeds: int | Sequence[int], first: int) -> list[int]:
    """Return the seeds of several runs.

    Args:
        seeds: number of seeds, or the seeds themselves.
        first: first seed, if a number is given.
    """
    if not isinstance(seeds, Sequence) or isinstance(seeds, str):
        return [first + number for number in range(check_positive_int(seeds, "seeds"))]
    numbers = list(seeds)
    if not numbers or any(number in numbers[:place] for place, number in enumerate(numbers)):
        raise InvalidInputError(f"seeds: expected different whole numbers, at least one, got {seeds!r}")
    return numbers


def checkpoint_of(checkpoint: str | Path, seed: int) -> Path:
    """Return the checkpoint file of one seed."""
    return Path(f"{checkpoint}.seed-{seed}")


def _run_of(seed: int, asked: TrainingRun) -> TrainingRun:
    """Return the settings of one run."""
    checkpoint = None if asked.checkpoint is None else checkpoint_of(asked.checkpoint, seed)
    logs = None if asked.tensorboard is None else Path(asked.tensorboard) / f"seed-{seed}"
    own: dict[str, Any] = {
        "seed": seed,
        "checkpoint": checkpoint,
        "tensorboard": logs,
        "resume": checkpoint is not None,
    }
    return replace(asked, **own, seeds=None, backend=None, progress=None)


def _train_one(cell: tuple[Problem, TrainingRun], progress: Progress | None = None) -> tuple[Training, float, float]:
    """Return one run, and the value of its network on held-out episodes with its error."""
    problem, run = cell
    training = train_one(problem, replace(run, progress=progress))
    return training, *held_out(training.policy, problem, training.settings)


def _of_problem(training: Training, problem: Problem) -> Training:
    """Return a run with the caller's problem in place of the copy of a worker."""
    policy = training.policy
    if policy.problem is problem:
        return training
    if isinstance(policy, CountNetworkPolicy):
        return replace(training, problem=problem, policy=CountNetworkPolicy(problem, policy.network, policy.rule))
    assert isinstance(problem, CoupledMDP)
    return replace(training, problem=problem, policy=JointNetworkPolicy(problem, policy.network))
