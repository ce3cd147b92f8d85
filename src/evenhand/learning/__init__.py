"""Learning: policies from simulation alone (extra "rl").

    settings              settings of a run, declared once for Python, the command line and files
    worlds                many copies of a problem with identical arms, stepped together
    environments          the same for Gymnasium and Stable-Baselines3: CountEnv, BatchedCounts, BatchedJoint
    learners              PPO, SAC and TD3 with their settings; a model of Stable-Baselines3 as a policy
    network_evaluation    value of a network, exactly or on a held-out stream
    training              train(), with one seed or several; loop is its heavy part, with checkpoints

The trained policy itself is in `policies.network`; it needs neither torch nor Numba.
"""

from typing import TYPE_CHECKING

from evenhand._lazy import attach
from evenhand.errors import MissingExtraError

if TYPE_CHECKING:
    from evenhand.learning.environments import ENV_ID, BatchedCounts, BatchedJoint, CountEnv
    from evenhand.learning.learners import LEARNERS, PPOLearner, SACLearner, TD3Learner, from_stable_baselines3
    from evenhand.learning.loop import Checkpoint, read_checkpoint, run_training
    from evenhand.learning.network_evaluation import NetworkJudge, resized
    from evenhand.learning.settings import ALGORITHMS, TrainingRun, TrainingSettings
    from evenhand.learning.training import SeedRow, Training, TrainingRuns, checkpoint_of, train
    from evenhand.learning.worlds import ArmWorld, CountWorld, Tasks, assign_arms, sampled

_load, __dir__ = attach(__name__, __file__)

__all__ = [
    "BatchedCounts",
    "CountEnv",
    "PPOLearner",
    "SACLearner",
    "TD3Learner",
    "Tasks",
    "Training",
    "TrainingRuns",
    "from_stable_baselines3",
    "train",
]


def __getattr__(name: str) -> object:
    try:
        return _load(name)
    except ModuleNotFoundError as error:
        if error.name and error.name.split(".")[0] in ("torch", "stable_baselines3", "gymnasium"):
            raise MissingExtraError("training", "rl") from None
        raise
