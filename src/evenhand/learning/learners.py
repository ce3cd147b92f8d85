"""The learning algorithms of Stable-Baselines3, with settings chosen by measurement.

Each learner is a small record of what may be set, and builds its Stable-Baselines3 model. All of them have the paper's
network, tanh layers of 64 units for the actor and, apart, for the critic. `python -m benchmarks rl_choice` prints
the figures that PPO's settings were chosen by: percent of the optimum on random problems that no table here shows.

A model that was trained elsewhere, on CountEnv or BatchedCounts, becomes a policy by `from_stable_baselines3`. The
policy calls the model as the environment would: observations go in, the output of `predict(..., deterministic=True)`
comes out, and the same rule makes an allocation of it. So it plays what was trained, whatever algorithm and network.
Which rule it is shows in the number of outputs: S A scores are greedy, S A + K are priority-sampling.
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

from evenhand.errors import InvalidInputError, NotApplicableError, PolicyError, UnknownNameError
from evenhand.model.coupled import CoupledMDP
from evenhand.model.rules import ALLOCATION_RULES
from evenhand.model.simulator import Simulator
from evenhand.policies.network import CountNetworkPolicy, Network, num_outputs, usage_of
from evenhand.typing import Singles


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
class _OffPolicyLearner:
    """Settings of learners with a replay memory."""

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

    def options(self, discount: float, hidden: tuple[int, ...], seed: int, log: str | None) -> dict[str, Any]:
        """Arguments of the model that all these learners share."""
        return {
            "learning_rate": _falling(self.learning_rate),
            "buffer_size": self.memory,
            "learning_starts": self.first_steps,
            "batch_size": self.batch,
            "gamma": discount,
            "train_freq": 1,
            "gradient_steps": self.updates,
            "policy_kwargs": {"net_arch": list(hidden), "activation_fn": nn.Tanh},
            "tensorboard_log": log,
            "seed": seed,
            "device": "cpu",
        }


@dataclass(frozen=True)
class SACLearner(_OffPolicyLearner):
    """Soft actor-critic."""

    name: ClassVar[str] = "sac"
    """Name of the learner."""

    def build(self, env: VecEnv, discount: float, hidden: tuple[int, ...], seed: int, log: str | None) -> BaseAlgorithm:
        """The model."""
        return SAC("MlpPolicy", env, **self.options(discount, hidden, seed, log))


@dataclass(frozen=True)
class TD3Learner(_OffPolicyLearner):
    """Twin delayed deep deterministic policy gradients."""

    name: ClassVar[str] = "td3"
    """Name of the learner."""

    learning_rate: float = 3e-4
    """At the start; it falls to 0 in a straight line."""

    first_steps: int = 10_000
    """Steps at random before learning starts."""

    noise: float = 0.6
    """Standard deviation of the noise that explores."""

    def build(self, env: VecEnv, discount: float, hidden: tuple[int, ...], seed: int, log: str | None) -> BaseAlgorithm:
        """The model."""
        size = env.action_space.shape
        assert size is not None
        noise = NormalActionNoise(np.zeros(size), np.full(size, self.noise))
        return TD3("MlpPolicy", env, action_noise=noise, **self.options(discount, hidden, seed, log))


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


# -- models of Stable-Baselines3 as policies -------------------------------------------------------------------------


class ModelAnswers:
    """Output of a model, in place of a network."""

    def __init__(self, model: Any) -> None:
        """Look at what the model takes and gives.

        Args:
            model: with `predict`, an `observation_space` and an `action_space`, both of them boxes.
        """
        spaces = [getattr(model, name, None) for name in ("observation_space", "action_space")]
        shapes: list[tuple[int, ...]] = [getattr(space, "shape", None) or () for space in spaces]
        if not callable(getattr(model, "predict", None)) or any(len(shape) != 1 for shape in shapes):
            raise InvalidInputError(
                f"model: expected one of Stable-Baselines3 that was trained on CountEnv or BatchedCounts, with vectors "
                f"for observations and actions, got {type(model).__name__}"
            )
        self.model = model
        self.num_inputs, self.num_outputs = (int(shape[0]) for shape in shapes)
        find = getattr(model, "get_vec_normalize_env", None)
        self._scaled = None if find is None else find()

    def __repr__(self) -> str:
        return f"{type(self.model).__name__}({self.num_inputs} → {self.num_outputs})"

    def __call__(self, inputs: Singles) -> Singles:
        """(batch, output) from (batch, input); observations are normalised as they were in training."""
        seen = inputs if self._scaled is None else self._scaled.normalize_obs(inputs)
        outputs, _ = self.model.predict(seen, deterministic=True)
        return np.asarray(outputs, dtype=np.float32)


def from_stable_baselines3(model: Any, problem: CoupledMDP | Simulator) -> CountNetworkPolicy:
    """Return the policy of a model of Stable-Baselines3; `evaluate`, `compare` and `solve` take it like any other.

    It is evaluated exactly where the problem is small, plays at any number of arms, and needs torch while it plays. To
    keep it, save the model; `train` makes policies that are files of their own.

    Args:
        model: PPO, SAC, TD3 or another with vectors of actions, trained on `CountEnv` or `BatchedCounts`.
        problem: identical arms, or a simulator of them: those it was trained on, or others with as many states, actions
            and resources.

    Raises:
        PolicyError: the model has other inputs or outputs than this problem needs.

    Example:
        >>> import evenhand as eh
        >>> from evenhand.learning import CountEnv, from_stable_baselines3
        >>> from stable_baselines3 import PPO
        >>> problem = eh.problems.machine_replacement(num_arms=3)
        >>> model = PPO("MlpPolicy", CountEnv(problem), device="cpu", seed=0)  # then model.learn(...)
        >>> from_stable_baselines3(model, problem)
        CountNetworkPolicy(for 3 arms, greedy, PPO(4 → 6))
    """
    answers, usage = ModelAnswers(model), usage_of(problem)
    expected = {rule: num_outputs(rule, usage) for rule in ALLOCATION_RULES}
    for rule, number in expected.items():
        if answers.num_outputs == number:
            return CountNetworkPolicy(problem, answers, rule)
    outputs = " or ".join(f"{number} ({rule})" for rule, number in expected.items())
    raise PolicyError(
        f"the model has {answers.num_inputs} inputs and {answers.num_outputs} outputs; this problem needs "
        f"{usage.shape[0] + usage.shape[2]} inputs and {outputs} outputs"
    )
