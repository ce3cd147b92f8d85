"""LEARN: policies from a simulator alone (extra "rl").

    settings       what a run is asked for, declared once for Python, the command line, cells and files
    worlds         many copies of a problem with identical arms, stepped together
    environments   the same as Gymnasium and Stable-Baselines3 see it: CountEnv, BatchedCounts
    joint_copies   the paper's Vanilla-DRL: raw joint states
    learners       PPO, SAC and TD3 with their settings
    bridges        a model of Stable-Baselines3 as a policy
    judging        how good a network is, exactly or on a held-out stream
    checkpoints    a training run in one file that cannot run code
    training       train(), what a user calls; loop is its heavy part
    seeds          train_seeds(): several runs, as cells, and the best network by a look that no run has had

The trained policy itself is in `policies.network`; it needs neither torch nor Numba.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from evenhand.errors import MissingExtra

if TYPE_CHECKING:
    from evenhand.learning.bridges import from_stable_baselines3
    from evenhand.learning.environments import BatchedCounts, CountEnv
    from evenhand.learning.learners import PPOLearner, SACLearner, TD3Learner
    from evenhand.learning.seeds import Trainings, train_seeds
    from evenhand.learning.training import Training, train
    from evenhand.learning.worlds import Tasks

_HOMES = {
    "BatchedCounts": "environments",
    "CountEnv": "environments",
    "PPOLearner": "learners",
    "SACLearner": "learners",
    "TD3Learner": "learners",
    "Tasks": "worlds",
    "Training": "training",
    "Trainings": "seeds",
    "from_stable_baselines3": "bridges",
    "train": "training",
    "train_seeds": "seeds",
}

__all__ = [
    "BatchedCounts",
    "CountEnv",
    "PPOLearner",
    "SACLearner",
    "TD3Learner",
    "Tasks",
    "Training",
    "Trainings",
    "from_stable_baselines3",
    "train",
    "train_seeds",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'evenhand.learning' has no attribute {name!r}")
    try:
        return getattr(import_module(f"evenhand.learning.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name and error.name.split(".")[0] in ("torch", "stable_baselines3", "gymnasium"):
            raise MissingExtra("learning", "rl") from None
        raise
