"""From a model of Stable-Baselines3, trained on CountEnv or BatchedCounts, to a policy.

The policy asks the model as the environment would: observations go in, the answer of `predict(..., deterministic=True)`
comes out, and the same rule makes an allocation of it. So it plays what was trained, whatever algorithm and network.
Which rule it is shows in the number of outputs: S A scores are greedy, S A + K are priority-sampling.
"""

from typing import Any

import numpy as np

from evenhand.errors import InvalidInputError, PolicyError
from evenhand.model.coupled import CoupledMDP
from evenhand.model.rules import ALLOCATION_RULES, AllocationRule
from evenhand.model.simulator import Simulator
from evenhand.policies.network import CountNetworkPolicy, num_outputs, usage_of
from evenhand.typing import Singles


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
    """A policy that asks a model of Stable-Baselines3; `evaluate`, `compare` and `solve` take it like any other.

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
    answers = ModelAnswers(model)
    return CountNetworkPolicy(problem, answers, _rule_of(answers, problem))


def _rule_of(answers: ModelAnswers, problem: CoupledMDP | Simulator) -> AllocationRule:
    """The rule whose number of outputs the model has."""
    usage = usage_of(problem)
    expected = {rule: num_outputs(rule, usage) for rule in ALLOCATION_RULES}
    for rule, number in expected.items():
        if answers.num_outputs == number:
            return rule
    outputs = " or ".join(f"{number} ({rule})" for rule, number in expected.items())
    raise PolicyError(
        f"the model has {answers.num_inputs} inputs and {answers.num_outputs} outputs; this problem needs "
        f"{usage.shape[0] + usage.shape[2]} inputs and {outputs} outputs"
    )
