"""Training over several seeds: what one run owes to luck, and the best network of all.

A run is a task (`parallel`): it depends on the problem, the settings and its seed alone, so that a network has
the same bits whether runs follow each other in this process or are spread over workers. Each run keeps its own
checkpoint, and one that was finished is read from it when the work is resumed.

The best is chosen by a look that no run has had (`judging.held_out`): the score of a run is that of the best of its own
looks, and the luckiest of several runs would be flattered twice. All networks meet the same world there.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from evenhand.checks import check_positive_int
from evenhand.display import FrameLibrary, Shown, as_frame, counted, telling
from evenhand.errors import InvalidInput
from evenhand.learning.judging import held_out
from evenhand.learning.settings import TrainingRun, check_names
from evenhand.learning.training import Problem, Training, train
from evenhand.model.coupled import CoupledMDP
from evenhand.model.simulator import check_problem
from evenhand.parallel import Pool
from evenhand.policies.network import CountNetworkPolicy, JointNetworkPolicy
from evenhand.typing import Progress

DIGITS = 9
"""Digits by which looks are compared; of equals the first seed is taken."""


class SeedRow(NamedTuple):
    """One run of several."""

    seed: int
    """Where its randomness started."""

    score: float
    """The best of its own looks."""

    held_out: float
    """The mean value of an arm on a stream that no run has seen; exact where that is possible."""

    held_out_stderr: float
    """Its standard error; 0 where it is exact."""

    steps: int
    """Steps of copies that were played."""

    seconds: float
    """How long it took."""


@dataclass(frozen=True)
class Trainings(Shown):
    """What came of training over several seeds."""

    runs: tuple[Training, ...]
    """One a seed, in their order."""

    rows: tuple[SeedRow, ...]
    """The same in figures."""

    @property
    def best(self) -> Training:
        """The run with the best held-out look; of equals the first."""
        return self.runs[self.place_of_best]

    @property
    def place_of_best(self) -> int:
        """Its place among the seeds."""
        looks = [float(f"{row.held_out:.{DIGITS}g}") for row in self.rows]
        return looks.index(max(looks))

    @property
    def policy(self) -> CountNetworkPolicy | JointNetworkPolicy:
        """The best network, as a policy for the problem."""
        return self.best.policy

    def __repr__(self) -> str:
        row = self.rows[self.place_of_best]
        sure = "exact" if self.best.exact else f"± {row.held_out_stderr:.2g}"
        return f"Trainings({counted(len(self.rows), 'seed')}, best {row.seed} with {row.held_out:.6g} ({sure}))"

    def to_frame(self, library: FrameLibrary | None = None) -> Any:
        """One row a seed: its score, its held-out look with the error, steps and seconds.

        Args:
            library: `pandas` or `polars`; when absent pandas if it is installed, else polars.
        """
        return as_frame({name: [getattr(row, name) for row in self.rows] for name in SeedRow._fields}, library)

    def to_dict(self) -> list[dict[str, Any]]:
        """The JSON form: one object a seed."""
        best = self.place_of_best
        return [{**row._asdict(), "best": place == best} for place, row in enumerate(self.rows)]

    def save(self, path: str | Path, command: str = "") -> None:
        """Write the best policy, with the table of all seeds in its manifest; `load_policy` reads it, without torch.

        Args:
            path: where to.
            command: what was typed to train it, for the manifest.
        """
        self.best.save(path, command, {"seeds": self.to_dict()})


def train_seeds(
    problem: Problem,
    seeds: int | Sequence[int] = 5,
    *,
    backend: str | Pool | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    tensorboard: str | Path | None = None,
    progress: Progress | bool | None = None,
    **settings: Any,
) -> Trainings:
    """Train once for each of several seeds, and tell the best network by a look that no run has had.

    Args:
        problem: identical arms, or a simulator of them; the learner sees only what it samples.
        seeds: how many, counted from the setting `seed` (0 when absent); or the seeds themselves.
        backend: where runs execute: `threads:2`, `processes:2`, `ray`, `ray://host:port`, or a pool; this process, one
            after the other, by default. Results do not depend on it.
        checkpoint: where runs are kept, one file a seed: `FILE.seed-0`, and so on. Whoever trains writes it, so that
            all machines of a cluster must see the folder under the same path.
        resume: go on from the checkpoints that exist; without it they are removed at the start.
        tensorboard: a folder for TensorBoard's logs, with a folder for each seed in it.
        progress: True shows a bar; a function is called now and then with how it goes and the share done.
        settings: those of `train`: algorithm, steps, architecture, allocation, num_arms, budget, horizon, hidden,
            evaluations.

    Example:
        >>> import evenhand as eh
        >>> problem = eh.problems.machine_replacement(num_arms=3)
        >>> found = eh.train_seeds(problem, seeds=2, steps=4_000)
        >>> [row.seed for row in found.rows]
        [0, 1]
        >>> found.best.score == max(row.score for row in found.rows)
        True
    """
    check_problem(problem)
    check_names(settings)
    numbers = read_seeds(seeds, settings)
    if resume and checkpoint is None:
        raise InvalidInput("resume: name the checkpoint to go on from")
    runs = [_run_of(number, settings, checkpoint, tensorboard) for number in numbers]
    with Pool(backend) as sweep, telling(progress) as tell:
        sweep.check_picklable({"the problem": problem, "the algorithm": runs[0].algorithm})
        if not resume:  # from here on every run goes on from what it finds, also one whose worker died
            for run in runs:
                _forget(run)
        found = sweep.map(_train_one, [(problem, run) for run in runs], [f"seed {number}" for number in numbers], tell)
    trained = tuple(_of_problem(training, problem) for training, _, _ in found)
    rows = [
        SeedRow(number, one.score, mean, error, one.steps, one.seconds)
        for number, (one, mean, error) in zip(numbers, found, strict=True)
    ]
    return Trainings(trained, tuple(rows))


def read_seeds(seeds: int | Sequence[int], settings: dict[str, Any]) -> list[int]:
    """The seeds that are meant.

    Args:
        seeds: how many, or which.
        settings: of `train`; the first seed is among them, if only a number is given.
    """
    if isinstance(seeds, Sequence) and not isinstance(seeds, str):
        if "seed" in settings:
            raise InvalidInput("seed: the seeds are listed already; leave it out, or give how many there are")
        numbers = list(seeds)
        if not numbers or any(number in numbers[:place] for place, number in enumerate(numbers)):
            raise InvalidInput(f"seeds: expected different whole numbers, at least one, got {seeds!r}")
        return numbers
    first = TrainingRun(**settings).seed  # checked: what is no number cannot be counted from
    return [first + number for number in range(check_positive_int(seeds, "seeds"))]


def checkpoint_of(checkpoint: str | Path, seed: int) -> Path:
    """Where the run of a seed is kept.

    Args:
        checkpoint: what was asked for.
        seed: which run.
    """
    return Path(f"{checkpoint}.seed-{seed}")


def _run_of(
    seed: int, settings: dict[str, Any], checkpoint: str | Path | None, tensorboard: str | Path | None
) -> TrainingRun:
    """One run, checked before any of them begins."""
    kept = None if checkpoint is None else checkpoint_of(checkpoint, seed)
    logs = None if tensorboard is None else Path(tensorboard) / f"seed-{seed}"
    asked = {**settings, "seed": seed, "checkpoint": kept, "tensorboard": logs, "resume": kept is not None}
    return TrainingRun(**asked)


def _forget(run: TrainingRun) -> None:
    if run.checkpoint is not None:
        Path(run.checkpoint).unlink(missing_ok=True)


def _train_one(cell: tuple[Problem, TrainingRun], progress: Progress | None = None) -> tuple[Training, float, float]:
    """A cell: one run, and what its network is worth on a stream that no run has seen, with the error."""
    problem, run = cell
    asked = {name: value for name, value in vars(run).items() if name != "progress"}
    training = train(problem, **asked, progress=progress)
    return training, *held_out(training.policy, problem, training.settings)


def _of_problem(training: Training, problem: Problem) -> Training:
    """The same for the very problem that was asked about, which a run elsewhere has a copy of."""
    policy = training.policy
    if policy.problem is problem:
        return training
    if isinstance(policy, CountNetworkPolicy):
        return replace(training, problem=problem, policy=CountNetworkPolicy(problem, policy.network, policy.rule))
    assert isinstance(problem, CoupledMDP)
    return replace(training, problem=problem, policy=JointNetworkPolicy(problem, policy.network))
