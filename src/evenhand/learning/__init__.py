"""Learning: policies from simulation alone (extra "rl").

    settings         settings of a run, declared once for Python, the command line and files
    worlds           many copies of a problem with identical arms, stepped together
    environments     the same for Gymnasium and Stable-Baselines3: CountEnv, BatchedCounts
    joint_copies     the paper's Vanilla-DRL: raw joint states
    learners         PPO, SAC and TD3 with their settings
    bridges          a model of Stable-Baselines3 as a policy
    network_evaluation
                     value of a network, exactly or on a held-out stream
    checkpoints      Stable-Baselines3's zip with the progress of a run
    training         train(); loop is its heavy part
    training_runs    several runs with different seeds, and the best network on held-out episodes

The trained policy itself is in `policies.network`; it needs neither torch nor Numba.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from evenhand.errors import MissingExtraError

if TYPE_CHECKING:
    from evenhand.learning.bridges import from_stable_baselines3
    from evenhand.learning.environments import BatchedCounts, CountEnv
    from evenhand.learning.learners import PPOLearner, SACLearner, TD3Learner
    from evenhand.learning.training import Training, train
    from evenhand.learning.training_runs import TrainingRuns
    from evenhand.learning.worlds import Tasks

_HOMES = {
    "BatchedCounts": "environments",
    "CountEnv": "environments",
    "PPOLearner": "learners",
    "SACLearner": "learners",
    "TD3Learner": "learners",
    "Tasks": "worlds",
    "Training": "training",
    "TrainingRuns": "training_runs",
    "from_stable_baselines3": "bridges",
    "train": "training",
}

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
    if name not in _HOMES:
        raise AttributeError(f"module 'evenhand.learning' has no attribute {name!r}")
    try:
        return getattr(import_module(f"evenhand.learning.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name and error.name.split(".")[0] in ("torch", "stable_baselines3", "gymnasium"):
            raise MissingExtraError("learning", "rl") from None
        raise
