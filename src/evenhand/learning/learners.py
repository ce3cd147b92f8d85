"""The learning algorithms of Stable-Baselines3, with settings chosen by measurement.

Each learner is a small record of what may be set, and builds its Stable-Baselines3 model. All of them have the paper's
network, tanh layers of 64 units for the actor and, apart, for the critic. `python -m benchmarks rl_choice` prints
the figures that PPO's settings were chosen by: percent of the optimum on random problems that no table here shows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
import torch
from gymnasium.spaces import Box
from stable_baselines3 import PPO, SAC, TD3
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import VecEnv
from torch import nn

from evenhand.errors import NotApplicableError, UnknownNameError
from evenhand.policies.network import Network


@dataclass(frozen=True)
class PPOLearner:
    """Proximal policy optimisation."""

    name: ClassVar[str] = "ppo"
    """Name of the learner."""

    num_copies: int = 125
    """Copies of the problem that are played together."""

    rollout: int = 32
    """Steps of every copy between two updates."""

    batch: int = 500
    """Steps in a gradient step."""

    epochs: int = 5
    """Passes over what was played."""

    learning_rate: float = 1e-3
    """At the start; it falls to 0 in a straight line."""

    gae_lambda: float = 0.95
    """Decay of generalised advantages."""

    log_std: float = -0.5
    """Logarithm of the first standard deviation of the outputs; they live in [-1, 1]."""

    @property
    def block(self) -> int:
        """Steps between two looks at how far it is."""
        return self.num_copies * self.rollout

    def build(self, env: VecEnv, discount: float, hidden: tuple[int, ...], seed: int, log: str | None) -> BaseAlgorithm:
        """The model."""
        options: dict[str, Any] = {"net_arch": list(hidden), "activation_fn": nn.Tanh}
        # Discrete outputs have no standard deviation.
        if isinstance(env.action_space, Box):
            options["log_std_init"] = self.log_std
        return PPO(
            "MlpPolicy",
            env,
            learning_rate=_falling(self.learning_rate),
            n_steps=self.rollout,
            # Small settings may play less than a batch.
            batch_size=min(self.batch, self.rollout * env.num_envs),
            n_epochs=self.epochs,
            gamma=discount,
            gae_lambda=self.gae_lambda,
            policy_kwargs=options,
            tensorboard_log=log,
            seed=seed,
            device="cpu",
        )


@dataclass(frozen=True)
class SACLearner:
    """Soft actor-critic."""

    name: ClassVar[str] = "sac"
    """Name of the learner."""

    num_copies: int = 64
    """Copies of the problem that are played together."""

    learning_rate: float = 1e-3
    """At the start; it falls to 0 in a straight line."""

    batch: int = 256
    """Steps in a gradient step, drawn from all that was played."""

    updates: int = 1
    """Gradient steps after one step of every copy."""

    first_steps: int = 2_000
    """Steps at random before learning starts."""

    memory: int = 300_000
    """Steps that are remembered."""

    @property
    def block(self) -> int:
        """Steps between two looks at how far it is."""
        return self.num_copies

    def build(self, env: VecEnv, discount: float, hidden: tuple[int, ...], seed: int, log: str | None) -> BaseAlgorithm:
        """The model."""
        return SAC("MlpPolicy", env, **_off_policy(self, discount, hidden, seed, log))


@dataclass(frozen=True)
class TD3Learner:
    """Twin delayed deep deterministic policy gradients."""

    name: ClassVar[str] = "td3"
    """Name of the learner."""

    num_copies: int = 64
    """Copies of the problem that are played together."""

    learning_rate: float = 3e-4
    """At the start; it falls to 0 in a straight line."""

    batch: int = 256
    """Steps in a gradient step, drawn from all that was played."""

    updates: int = 1
    """Gradient steps after one step of every copy."""

    first_steps: int = 10_000
    """Steps at random before learning starts."""

    memory: int = 300_000
    """Steps that are remembered."""

    noise: float = 0.6
    """Standard deviation of the noise that explores."""

    @property
    def block(self) -> int:
        """Steps between two looks at how far it is."""
        return self.num_copies

    def build(self, env: VecEnv, discount: float, hidden: tuple[int, ...], seed: int, log: str | None) -> BaseAlgorithm:
        """The model."""
        size = env.action_space.shape
        assert size is not None
        noise = NormalActionNoise(np.zeros(size), np.full(size, self.noise))
        return TD3("MlpPolicy", env, action_noise=noise, **_off_policy(self, discount, hidden, seed, log))


def _off_policy(
    learner: SACLearner | TD3Learner, discount: float, hidden: tuple[int, ...], seed: int, log: str | None
) -> dict[str, Any]:
    # What all learners with a memory have in common.
    return {
        "learning_rate": _falling(learner.learning_rate),
        "buffer_size": learner.memory,
        "learning_starts": learner.first_steps,
        "batch_size": learner.batch,
        "gamma": discount,
        "train_freq": 1,
        "gradient_steps": learner.updates,
        "policy_kwargs": {"net_arch": list(hidden), "activation_fn": nn.Tanh},
        "tensorboard_log": log,
        "seed": seed,
        "device": "cpu",
    }


def _falling(rate: float) -> Callable[[float], float]:
    # `left` is the share of training that is still to come.
    return lambda left: rate * left


# -- which of them, and what comes out -------------------------------------------------------------------------------

Learner: TypeAlias = PPOLearner | SACLearner | TD3Learner

LEARNERS: dict[str, type[PPOLearner] | type[SACLearner] | type[TD3Learner]] = {
    learner.name: learner for learner in (PPOLearner, SACLearner, TD3Learner)
}
"""Every learner that has a name."""


def find_learner(algorithm: str | Learner) -> Learner:
    """The learner of a name, with its default settings; or the one that is given."""
    if not isinstance(algorithm, str):
        return algorithm
    if algorithm.lower() not in LEARNERS:
        raise UnknownNameError("algorithm", algorithm, LEARNERS)
    return LEARNERS[algorithm.lower()]()


def network_of(model: BaseAlgorithm) -> Network:
    """The actor's mean output as a network that needs no torch."""
    if isinstance(model, PPO):
        parts: list[Any] = [model.policy.mlp_extractor.policy_net, model.policy.action_net]
    elif isinstance(model, SAC):
        parts = [model.actor.latent_pi, model.actor.mu]
    elif isinstance(model, TD3):
        parts = [model.actor.mu]
    else:
        raise NotApplicableError(f"no network can be taken out of {type(model).__name__}")
    # In the order in which the network is applied: the hidden layers, then the output.
    layers = [layer for part in parts for layer in part.modules() if isinstance(layer, nn.Linear)]
    with torch.no_grad():
        # Torch keeps (output, input); here it is (input, output).
        weights = [layer.weight.T.contiguous().numpy().copy() for layer in layers]
        biases = [layer.bias.numpy().copy() for layer in layers]
    # PPO's outputs are cut by the space, SAC's and TD3's go through tanh.
    return Network(weights, biases, squash=not isinstance(model, PPO))
