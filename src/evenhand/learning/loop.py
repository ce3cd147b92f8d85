"""The loop of a training run: model, copies, judge and checkpoints put together.

Rewards are centred and scaled for the learner, r' = (1 - gamma) (r - m) / d with m, d the mean and the spread of
single arms' rewards under random outputs, so that returns are of order one whatever the units and the number of arms.
"""

import dataclasses
import importlib.util
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper

from evenhand.checks import check_positive_int
from evenhand.display import heard
from evenhand.errors import InvalidInput, MissingExtra, NotApplicable
from evenhand.learning.checkpoints import own_randomness, put_model, read_checkpoint, take_model, write_checkpoint
from evenhand.learning.environments import BatchedCounts
from evenhand.learning.joint_copies import BatchedJoint
from evenhand.learning.judging import Judge, make_joint_judge, make_judge
from evenhand.learning.learners import Learner, find_learner, network_of
from evenhand.learning.settings import Budget, TrainingRun, TrainingSettings, settings
from evenhand.learning.training import Training
from evenhand.learning.worlds import Tasks
from evenhand.model.coupled import CoupledMDP
from evenhand.model.criterion import Discounted
from evenhand.model.simulator import Simulator
from evenhand.policies.network import CountNetworkPolicy, JointNetworkPolicy, Network
from evenhand.typing import Array, Progress

PROBES = 64
"""Steps at random that rewards are scaled by."""


class Scaled(VecEnvWrapper):
    """Centred and scaled rewards."""

    def __init__(self, venv: VecEnv, centre: float, scale: float) -> None:
        super().__init__(venv)
        self.centre, self.scale = centre, scale

    def reset(self) -> Any:
        """As inside."""
        return self.venv.reset()

    def step_wait(self) -> Any:
        """As inside, with other rewards."""
        observations, rewards, over, infos = self.venv.step_wait()
        torch.set_num_threads(1)  # compiled kernels share OpenMP with torch, and may have set more
        return observations, ((rewards - self.centre) * self.scale).astype(np.float32), over, infos


class _Watch(BaseCallback):
    """Judges the network now and then, remembers the best, writes checkpoints, tells progress."""

    def __init__(self, run: "_Run", judge: Judge, evaluations: int, progress: Progress | None) -> None:
        super().__init__()
        self.run, self.judge, self.every = run, judge, max(1, run.steps // evaluations)
        self.progress = progress
        self.curve: list[tuple[int, float]] = []
        self.best: Network | None = None
        self.score = -np.inf
        self.last_told = 0.0

    def _on_rollout_start(self) -> None:
        fresh = not self.curve or self.num_timesteps > self.curve[-1][0]  # a resumed run has looked here already
        # Looks are at multiples of `every`, the first before anything was learned.
        if fresh and self.num_timesteps >= len(self.curve) * self.every:
            self.look()
            # After a look, when the best network is up to date.
            if self.run.path is not None:
                self.run.save(self)
        if self.progress is not None and time.monotonic() - self.last_told > 0.1:
            self.last_told = time.monotonic()
            now = f"welfare {self.curve[-1][1]:.4f}, best {self.score:.4f}" if self.curve else "playing"
            self.progress(now, self.num_timesteps / self.run.steps)

    def look(self) -> None:
        """Judge the network as it is."""
        network = network_of(self.model)
        score = self.judge(network)
        torch.set_num_threads(1)
        self.curve.append((self.num_timesteps, score))
        self.logger.record("evenhand/welfare", score)
        if score > self.score:
            self.best, self.score = network, score

    def _on_step(self) -> bool:
        return True


@dataclass
class _Run:
    """One training run: its parts, and how they are saved and put back."""

    model: BaseAlgorithm
    env: BatchedCounts | BatchedJoint
    steps: int
    settings: dict[str, Any]
    signature: str
    path: Path | None
    started: float

    def save(self, watch: _Watch) -> None:
        assert self.path is not None
        assert watch.best is not None
        arrays, facts = take_model(self.model)
        arrays |= {f"env/{name}": array for name, array in self.env.state().items()}
        for layer, (weight, bias) in enumerate(zip(watch.best.weights, watch.best.biases, strict=True)):
            arrays |= {f"best/{layer}/weight": weight, f"best/{layer}/bias": bias}
        facts |= {
            "settings": self.settings,
            "problem": self.signature,
            "curve": watch.curve,
            "best": {"layers": len(watch.best.weights), "squash": watch.best.squash, "score": watch.score},
            "seconds": time.perf_counter() - self.started,
        }
        write_checkpoint(self.path, arrays, facts)

    def restore(self, watch: _Watch) -> None:
        assert self.path is not None
        arrays, facts = read_checkpoint(self.path)
        try:
            # Settings first: with others, the arrays need not even fit.
            _check_same(self.path, {"problem": facts["problem"], **facts["settings"]}, self)
            self._put_back(watch, arrays, facts)
        # Whatever does not fit is the file's fault; what is told by ourselves goes on as it is.
        except (KeyError, TypeError, ValueError, RuntimeError, AssertionError) as error:
            if isinstance(error, InvalidInput):
                raise
            raise InvalidInput(f"{self.path}: not a checkpoint that training can go on from ({error!r})") from None

    def _put_back(self, watch: _Watch, arrays: dict[str, Array], facts: dict[str, Any]) -> None:
        put_model(self.model, arrays, facts)
        self.env.restore(
            {name.removeprefix("env/"): array for name, array in arrays.items() if name.startswith("env/")}
        )
        layers = range(facts["best"]["layers"])
        weights = [arrays[f"best/{layer}/weight"] for layer in layers]
        biases = [arrays[f"best/{layer}/bias"] for layer in layers]
        watch.best, watch.score = Network(weights, biases, facts["best"]["squash"]), facts["best"]["score"]
        watch.curve = [(int(steps), float(score)) for steps, score in facts["curve"]]
        # Time goes on as if there had been no break.
        self.started -= facts["seconds"]


def _check_same(path: Path, before: dict[str, Any], run: _Run) -> None:
    """Refuse to go on with other settings than those the run began with."""
    now = {"problem": run.signature, **run.settings}
    differing = [name for name in now if before.get(name) != now[name]]
    if differing:
        details = "; ".join(f"{name} was {before.get(name)}, now {now[name]}" for name in differing)
        raise InvalidInput(f"{path}: belongs to another run ({details}). Resume with the same settings, or remove it.")


def run(problem: CoupledMDP | Simulator, asked: TrainingRun) -> Training:
    """Train; see `training.train`."""
    if asked.tensorboard is not None and importlib.util.find_spec("tensorboard") is None:
        raise MissingExtra("writing TensorBoard's logs", "tensorboard")
    checkpoint = None if asked.checkpoint is None else Path(asked.checkpoint)
    log = None if asked.tensorboard is None else str(asked.tensorboard)
    learner = find_learner(asked.algorithm)
    # Whole blocks: the learner updates after each.
    total = max(1, asked.steps // learner.block) * learner.block
    # From here on until the network is taken out, global generators are ours.
    with own_randomness():
        tasks = _tasks_of(problem, learner, asked)
        env, judge, exact = _prepare(problem, learner, asked, tasks)
        centre, scale = _scaling(env, problem.discount)
        model = learner.build(Scaled(env, centre, scale), problem.discount, asked.hidden, asked.seed, log)
        if log is None:
            model.set_logger(Logger(None, []))  # its own would leave a folder in the system's temporary one
        settings = as_record(asked, learner, tasks)
        run = _Run(model, env, total, settings, _signature(problem), checkpoint, time.perf_counter())
        watch = _Watch(run, judge, asked.evaluations, heard(asked.progress))
        if asked.resume and checkpoint is not None and checkpoint.exists():
            run.restore(watch)
        # A run that was resumed at its end has nothing to do.
        if model.num_timesteps < total:
            model.learn(
                total - model.num_timesteps,
                callback=watch,
                reset_num_timesteps=model.num_timesteps == 0,
                tb_log_name=learner.name,
            )
            # The last network is judged, too.
            watch.look()
            if checkpoint is not None:  # of a run that is over, too: it may be one of several
                run.save(watch)
        assert watch.best is not None
    policy: CountNetworkPolicy | JointNetworkPolicy
    if asked.architecture == "counts":
        policy = CountNetworkPolicy(problem, watch.best, asked.allocation)
    else:
        assert isinstance(problem, CoupledMDP)
        policy = JointNetworkPolicy(problem, watch.best)
    seconds = time.perf_counter() - run.started
    return Training(
        policy, float(watch.score), exact, watch.curve, int(model.num_timesteps), seconds, settings, problem
    )


def _tasks_of(problem: CoupledMDP | Simulator, learner: Learner, asked: TrainingSettings) -> Tasks | None:
    """The ranges that tasks are drawn from; None for a joint network, which has one task."""
    if asked.architecture == "counts":
        return read_tasks(problem, asked.num_arms, asked.budget)
    if isinstance(problem, Simulator):
        raise NotApplicable("the joint network is trained on a problem with matrices")
    several = asked.num_arms is not None or asked.budget is not None
    if learner.name != "ppo" or asked.allocation != "greedy" or several:
        raise NotApplicable("the joint network is trained by ppo, for one number of arms and one budget")
    return None


def _prepare(
    problem: CoupledMDP | Simulator, learner: Learner, asked: TrainingSettings, tasks: Tasks | None
) -> tuple[BatchedCounts | BatchedJoint, Judge, bool]:
    """The copies to play, the judge, and whether it is exact."""
    copies, horizon, seed = learner.num_copies, asked.horizon, asked.seed
    if tasks is None:
        assert isinstance(problem, CoupledMDP)
        joint = BatchedJoint(problem, copies, horizon, seed, asked.architecture == "joint-idle")
        return joint, *make_joint_judge(problem, seed)
    counts = BatchedCounts(problem, copies, horizon, asked.allocation, tasks, seed)
    return counts, *make_judge(problem, asked.allocation, tasks, seed)


def as_record(asked: TrainingSettings, learner: Learner, tasks: Tasks | None) -> dict[str, Any]:
    """The settings as checkpoints and manifests have them: plain values, what was left open filled in."""
    found = {setting.name: getattr(asked, setting.name) for setting in settings()}
    found |= {"algorithm": learner.name, "learner": dataclasses.asdict(learner), "hidden": list(asked.hidden)}
    if tasks is None:
        return {name: value for name, value in found.items() if name not in ("allocation", "num_arms", "budget")}
    return found | {"num_arms": list(tasks.num_arms), "budget": [list(ends) for ends in tasks.budget]}


def read_tasks(
    problem: CoupledMDP | Simulator,
    num_arms: tuple[int, int] | None,
    budget: Budget | None,
) -> Tasks:
    """The ranges of tasks; what is not given is the problem's own."""
    own = Tasks.of(problem)
    arms = own.num_arms if num_arms is None else _whole_range(num_arms)
    if budget is None:
        return Tasks(arms, own.budget)
    expected = f"budget: expected {len(own.budget)} ranges (least, most), one a resource, got {budget!r}"
    try:
        pairs = np.atleast_2d(np.asarray(budget, dtype=np.float64))
    except (TypeError, ValueError):
        raise InvalidInput(expected) from None
    if pairs.shape != (len(own.budget), 2):
        raise InvalidInput(expected)
    return Tasks(arms, tuple((float(least), float(most)) for least, most in pairs))


def _whole_range(num_arms: object) -> tuple[int, int]:
    """The fewest and the most arms."""
    ends = num_arms if isinstance(num_arms, (tuple, list)) else ()
    if len(ends) != 2:
        raise InvalidInput(f"num_arms: expected the fewest and the most arms, got {num_arms!r}")
    return check_positive_int(ends[0], "num_arms"), check_positive_int(ends[1], "num_arms")


def _scaling(env: BatchedCounts | BatchedJoint, discount: float) -> tuple[float, float]:
    """What to subtract from rewards and what to multiply them by; leaves the copies at their start."""
    rng = np.random.default_rng(0)
    # Probing uses up random numbers: the copies are put back to where they were.
    state = env.state()
    env.reset()
    moments = np.array([env.random_moments(rng) for _ in range(PROBES)]).mean(axis=0)
    env.restore(state)
    spread = float(np.sqrt(max(moments[1] - moments[0] ** 2, 0.0)))
    # Rewards that never differ are not scaled by what rounding leaves of their spread.
    is_constant = spread <= 1e-12 * max(abs(moments[0]), 1e-300)
    # (1 - gamma) / d of the head.
    return float(moments[0]), 1.0 if is_constant else Discounted(discount).rate / spread


def _signature(problem: CoupledMDP | Simulator) -> str:
    """The problem's fingerprint; of a simulator only what can be seen of it."""
    if isinstance(problem, CoupledMDP):
        return problem.signature
    return f"simulator {problem.usage.shape} {problem.num_arms} {list(problem.budget)} {problem.discount}"
