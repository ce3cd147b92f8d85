"""The loop of a training run: model, copies of the problem, evaluation and checkpoints.

Rewards are centred and scaled for the learner, r' = (1 - gamma) (r - m) / d with m, d the mean and the spread of
single arms' rewards under random outputs, so that returns are of order one whatever the units and the number of arms.
Under `average` the learner discounts by 1 - 3 / horizon: the best policy for a discount near 1 is nearly the best for
the average. Networks are evaluated, and the best is chosen, by the average itself.

A checkpoint is the zip of Stable-Baselines3, with the progress of the run in it:

    *.pth            parameters and optimisers, as Stable-Baselines3 writes them
    evenhand.json    settings, problem, scaling of rewards, learning curve, counters
    best.npz         the best network so far

Only tensors, arrays and JSON are read, so that a checkpoint cannot run code. A resumed run continues with the
parameters and optimisers of the checkpoint on new episodes; the replay memory of SAC and TD3 starts empty.
"""

import dataclasses
import importlib.util
import io
import json
import random
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.save_util import load_from_zip_file, save_to_zip_file
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper

from evenhand.checks import check_positive_int
from evenhand.display import progress_or_none
from evenhand.errors import InvalidInputError, MissingExtraError, NotApplicableError
from evenhand.learning.environments import BatchedCounts, BatchedJoint, BatchedTypes
from evenhand.learning.learners import Learner, find_learner, network_of
from evenhand.learning.network_evaluation import JUDGED, NetworkJudge
from evenhand.learning.settings import Budget, TrainingRun, TrainingSettings
from evenhand.learning.training import Training
from evenhand.learning.typed import TypeJudge
from evenhand.learning.worlds import Tasks
from evenhand.model.composite import MixturePolicy
from evenhand.model.coupled import CoupledMDP
from evenhand.model.criterion import Discounted
from evenhand.model.io import write_atomically
from evenhand.model.objective import read_welfare
from evenhand.model.simulator import Simulator
from evenhand.policies.network import CountNetworkPolicy, JointNetworkPolicy, Network
from evenhand.policies.type_network import TypeNetworkPolicy

# -- checkpoints -----------------------------------------------------------------------------------------------------


class Checkpoint(NamedTuple):
    """Content of a checkpoint."""

    facts: dict[str, Any]
    """Settings and progress of the run."""

    best: Network
    """Best network so far."""

    parameters: dict[str, Any]
    """Parameters and optimisers by module."""

    variables: dict[str, torch.Tensor]
    """Parameters outside of modules, such as the entropy coefficient of SAC."""

    def restore(self, model: BaseAlgorithm) -> None:
        """Set the parameters, optimisers and counters of a model."""
        model.set_parameters(self.parameters, exact_match=True, device="cpu")
        for name, tensor in self.variables.items():
            getattr(model, name).data = tensor.data
        model.num_timesteps, model._n_updates = self.facts["steps"], self.facts["updates"]


def write_checkpoint(path: Path, model: BaseAlgorithm, best: Network, facts: dict[str, Any]) -> None:
    """Write a checkpoint completely or not at all.

    Args:
        path: the file.
        model: the model in training.
        best: best network so far.
        facts: settings and progress of the run.
    """
    found = {name: getattr(model, name) for name in model._get_torch_save_params()[1]}
    variables = {name: tensor for name, tensor in found.items() if isinstance(tensor, torch.Tensor)}
    facts = facts | {"steps": model.num_timesteps, "updates": model._n_updates}
    archive, network = io.BytesIO(), io.BytesIO()
    np.savez(network, **best.to_arrays())  # type: ignore[arg-type]  # no array is called allow_pickle
    save_to_zip_file(archive, params=model.get_parameters(), pytorch_variables=variables or None)
    with zipfile.ZipFile(archive, "a") as file:
        file.writestr("evenhand.json", json.dumps(facts))
        file.writestr("best.npz", network.getvalue())
    write_atomically(path, archive.getvalue())


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint.

    Raises:
        InvalidInputError: the file is not a checkpoint, or is damaged.
    """
    try:
        data = path.read_bytes()
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            if file.testzip() is not None:
                raise ValueError("a checksum differs")
            facts = json.loads(file.read("evenhand.json"))
            best = Network.from_arrays(dict(np.load(io.BytesIO(file.read("best.npz")))))
        _, parameters, variables = load_from_zip_file(io.BytesIO(data), load_data=False, device="cpu")
        return Checkpoint(facts, best, parameters, variables or {})
    except OSError as error:
        raise InvalidInputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except Exception as error:  # noqa: BLE001  # a damaged file raises errors of many kinds
        raise InvalidInputError(f"{path}: not a checkpoint of training ({error!r})") from None


# -- the loop --------------------------------------------------------------------------------------------------------


class Scaled(VecEnvWrapper):
    """Centred and scaled rewards."""

    def __init__(self, venv: VecEnv, centre: float, scale: float) -> None:
        super().__init__(venv)
        self.centre, self.scale = centre, scale

    def reset(self) -> Any:
        """Reset the copies."""
        return self.venv.reset()

    def step_wait(self) -> Any:
        """Step the copies, and scale their rewards."""
        observations, rewards, over, infos = self.venv.step_wait()
        torch.set_num_threads(1)  # compiled kernels share OpenMP with torch, and may have set more
        return observations, ((rewards - self.centre) * self.scale).astype(np.float32), over, infos


class _Monitor(BaseCallback):
    """Evaluates the network at intervals, stores the best one, writes checkpoints, reports progress."""

    def __init__(self, run: TrainingRun, judge: NetworkJudge | TypeJudge, total: int, facts: dict[str, Any]) -> None:
        super().__init__()
        self.run, self.judge, self.total, self.facts = run, judge, total, facts
        self.every, self.progress = max(1, total // run.evaluations), progress_or_none(run.progress)
        self.curve: list[tuple[int, float]] = []
        self.best: Network | None = None
        self.score = -np.inf
        self.started, self.last_report = time.perf_counter(), 0.0

    def restore(self, checkpoint: Checkpoint) -> None:
        """Continue the learning curve of a checkpoint."""
        facts = checkpoint.facts
        self.best, self.score = checkpoint.best, facts["score"]
        self.curve = [(int(steps), float(score)) for steps, score in facts["curve"]]
        self.started -= facts["seconds"]

    def _on_rollout_start(self) -> None:
        # Evaluations are at multiples of `every`, the first before any learning; a resumed run has made some.
        fresh = not self.curve or self.num_timesteps > self.curve[-1][0]
        if fresh and self.num_timesteps >= len(self.curve) * self.every:
            self.evaluate()
        if self.progress is not None and time.monotonic() - self.last_report > 0.1:
            self.last_report = time.monotonic()
            text = f"welfare {self.curve[-1][1]:.4f}, best {self.score:.4f}" if self.curve else "simulating"
            self.progress(text, self.num_timesteps / self.total)

    def evaluate(self) -> None:
        """Evaluate the network, and write a checkpoint if one is requested."""
        network = network_of(self.model)
        score = self.judge(network, (self.run.seed, JUDGED))
        torch.set_num_threads(1)
        self.curve.append((self.num_timesteps, score))
        self.logger.record("evenhand/welfare", score)
        if score > self.score:
            self.best, self.score = network, score
        if self.run.checkpoint is not None:
            assert self.best is not None
            progress = {"curve": self.curve, "score": self.score, "seconds": self.seconds}
            write_checkpoint(Path(self.run.checkpoint), self.model, self.best, self.facts | progress)

    @property
    def seconds(self) -> float:
        """Duration, including that of interrupted runs."""
        return time.perf_counter() - self.started

    def _on_step(self) -> bool:
        return True


@contextmanager
def own_randomness() -> Iterator[None]:
    """Restore the global generators, from which Stable-Baselines3 draws, at the end; use one thread of torch."""
    numpy_state = np.random.get_state(legacy=False)  # noqa: NPY002  # the global generator is restored
    torch_state, threads, python_state = torch.get_rng_state(), torch.get_num_threads(), random.getstate()
    torch.set_num_threads(1)  # these networks are too small for two, and sums must not depend on the machine
    try:
        yield
    finally:
        np.random.set_state(numpy_state)  # noqa: NPY002
        torch.set_rng_state(torch_state)
        random.setstate(python_state)
        torch.set_num_threads(threads)


def _found(run: TrainingRun, settings: dict[str, Any]) -> Checkpoint | None:
    """Return the checkpoint to resume from, if there is one; raise InvalidInputError if it is of another run."""
    if not run.resume or run.checkpoint is None or not Path(run.checkpoint).exists():
        return None
    checkpoint = read_checkpoint(Path(run.checkpoint))
    before = checkpoint.facts.get("settings", {})
    if differing := [name for name in settings if before.get(name) != settings[name]]:
        details = "; ".join(f"{name} was {before.get(name)}, now {settings[name]}" for name in differing)
        raise InvalidInputError(
            f"{run.checkpoint}: belongs to another run ({details}). Resume with the same settings, or remove it."
        )
    return checkpoint


def run_training(problem: CoupledMDP | Simulator, run: TrainingRun) -> Training:
    """Train; see `training.train`."""
    if run.tensorboard is not None and importlib.util.find_spec("tensorboard") is None:
        raise MissingExtraError("writing TensorBoard's logs", "tensorboard")
    log = None if run.tensorboard is None else str(run.tensorboard)
    learner = find_learner(run.algorithm)
    total = max(1, run.steps // learner.block) * learner.block  # the learner updates after each block
    with own_randomness():
        tasks = _tasks_of(problem, learner, run)
        settings = as_record(run, learner, tasks)
        known = settings | {"problem": _signature(problem)}
        checkpoint = _found(run, json.loads(json.dumps(known)))
        judge: NetworkJudge | TypeJudge = NetworkJudge(problem, run.allocation, tasks)
        if run.architecture == "types":
            assert isinstance(problem, CoupledMDP)
            judge = TypeJudge(problem, read_welfare(problem, run.welfare))
            settings["welfare"] = judge.welfare.name
            known = settings | {"problem": _signature(problem)}
        # A resumed run continues on other episodes.
        seed = run.seed
        if checkpoint is not None:
            seed = int(np.random.SeedSequence([run.seed, checkpoint.facts["steps"]]).generate_state(1)[0])
        first = _copies(problem, learner, run, judge, run.seed)
        discount = learning_discount(problem, run.horizon)
        centre, scale = checkpoint.facts["scaling"] if checkpoint is not None else _scaling(first, discount)
        env = Scaled(_copies(problem, learner, run, judge, seed), centre, scale)
        model = learner.build(env, discount, run.hidden, seed, log)
        if log is None:
            model.set_logger(Logger(None, []))  # the default would leave a folder in the system's temporary one
        monitor = _Monitor(run, judge, total, {"settings": known, "scaling": [centre, scale]})
        if checkpoint is not None:
            try:
                checkpoint.restore(model)
                monitor.restore(checkpoint)
            except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
                raise InvalidInputError(f"{run.checkpoint}: not a checkpoint of training ({error!r})") from None
        if model.num_timesteps < total:
            fresh = model.num_timesteps == 0
            model.learn(
                total - model.num_timesteps, callback=monitor, reset_num_timesteps=fresh, tb_log_name=learner.name
            )
            monitor.evaluate()
        assert monitor.best is not None
    policy: CountNetworkPolicy | JointNetworkPolicy | TypeNetworkPolicy | MixturePolicy
    if isinstance(judge, TypeJudge):
        policy = judge.mixture(monitor.best, (run.seed, JUDGED))[1]
    elif run.architecture == "counts":
        policy = CountNetworkPolicy(problem, monitor.best, run.allocation)
    else:
        assert isinstance(problem, CoupledMDP)
        policy = JointNetworkPolicy(problem, monitor.best)
    steps = int(model.num_timesteps)
    return Training(policy, float(monitor.score), judge.exact, monitor.curve, steps, monitor.seconds, settings, problem)


def learning_discount(problem: CoupledMDP | Simulator, horizon: int) -> float:
    """Return the discount of the learner; under `average` one that looks a third of an episode ahead.

    Args:
        problem: the problem.
        horizon: steps per episode.
    """
    return problem.criterion.factor if problem.criterion.contracts else max(0.0, 1 - 3 / horizon)


def _tasks_of(problem: CoupledMDP | Simulator, learner: Learner, run: TrainingSettings) -> Tasks | None:
    """Return the ranges of tasks; None for a joint network, which has one task."""
    if run.architecture == "counts":
        return read_tasks(problem, run.num_arms, run.budget)
    if run.architecture == "types":
        return None
    if isinstance(problem, Simulator):
        raise NotApplicableError("the joint network is trained on a problem with matrices")
    several = run.num_arms is not None or run.budget is not None
    if learner.name != "ppo" or run.allocation != "greedy" or several:
        raise NotApplicableError("the joint network is trained by ppo, for one number of arms and one budget")
    return None


def _copies(
    problem: CoupledMDP | Simulator, learner: Learner, run: TrainingSettings, judge: NetworkJudge | TypeJudge, seed: int
) -> BatchedCounts | BatchedJoint | BatchedTypes:
    """Create the copies of the problem to simulate."""
    if isinstance(judge, TypeJudge):
        return BatchedTypes(judge.problem, learner.num_copies, run.horizon, judge.centre, seed)
    tasks = judge.tasks
    if tasks is None:
        assert isinstance(problem, CoupledMDP)
        return BatchedJoint(problem, learner.num_copies, run.horizon, seed, run.architecture == "joint-idle")
    return BatchedCounts(problem, learner.num_copies, run.horizon, run.allocation, tasks, seed)


def as_record(run: TrainingSettings, learner: Learner, tasks: Tasks | None) -> dict[str, Any]:
    """Return the settings for checkpoints and manifests: plain values, with defaults filled in."""
    found = {setting.name: getattr(run, setting.name) for setting in dataclasses.fields(TrainingSettings)}
    found |= {"algorithm": learner.name, "learner": dataclasses.asdict(learner), "hidden": list(run.hidden)}
    if tasks is None:
        return {name: value for name, value in found.items() if name not in ("allocation", "num_arms", "budget")}
    return found | {"num_arms": list(tasks.num_arms), "budget": [list(ends) for ends in tasks.budget]}


def read_tasks(problem: CoupledMDP | Simulator, num_arms: tuple[int, int] | None, budget: Budget | None) -> Tasks:
    """Return the ranges of tasks; by default the problem's own."""
    own = Tasks.of(problem)
    ends = own.num_arms if num_arms is None else num_arms
    if not isinstance(ends, (tuple, list)) or len(ends) != 2:
        raise InvalidInputError(f"num_arms: expected the smallest and the largest number of arms, got {num_arms!r}")
    arms = check_positive_int(ends[0], "num_arms"), check_positive_int(ends[1], "num_arms")
    try:
        pairs = np.atleast_2d(np.asarray(own.budget if budget is None else budget, dtype=np.float64))
    except (TypeError, ValueError):
        pairs = np.zeros(0)
    if pairs.shape != (len(own.budget), 2):
        raise InvalidInputError(
            f"budget: expected {len(own.budget)} ranges (least, most), one per resource, got {budget!r}"
        )
    return Tasks(arms, tuple((float(least), float(most)) for least, most in pairs))


def _scaling(env: BatchedCounts | BatchedJoint | BatchedTypes, discount: float, steps: int = 64) -> tuple[float, float]:
    """Return the centre and the factor of rewards, from some random steps."""
    rng = np.random.default_rng(0)
    env.reset()
    moments = np.array([env.random_moments(rng) for _ in range(steps)]).mean(axis=0)
    spread = float(np.sqrt(max(moments[1] - moments[0] ** 2, 0.0)))
    # Constant rewards are not scaled by rounding errors.
    is_constant = spread <= 1e-12 * max(abs(moments[0]), 1e-300)
    return float(moments[0]), 1.0 if is_constant else Discounted(discount).rate / spread


def _signature(problem: CoupledMDP | Simulator) -> str:
    """Fingerprint of the problem; of a simulator, of its sizes only."""
    if isinstance(problem, CoupledMDP):
        return problem.signature
    return f"simulator {problem.usage.shape} {problem.num_arms} {list(problem.budget)} {problem.discount}"
