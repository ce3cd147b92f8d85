"""The world as Gymnasium and Stable-Baselines3 see it.

    observation   count proportions and budget shares, S + K numbers in [0, 1]
    action        output of the network, in [-1, 1]: S A scores, and K shares for priority-sampling
    reward        the mean reward of the arms
    info          allocation (state, action): number of arms that got each action, and so each reward.
                  CountEnv, which follows arms, also has (arm,) states, arm_rewards and arm_returns: where each arm
                  is now, what it got in this step, and what it has had so far, discounted

Episodes are cut off at a horizon: they are truncated, never terminated, so that learners bootstrap there.

Gymnasium knows CountEnv as `evenhand/CountEnv-v0` once this module is imported, which `from evenhand.learning import
CountEnv` does. It has no plugins; `evenhand.learning.environments:evenhand/CountEnv-v0` imports the module by itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium.spaces import Box, MultiDiscrete, Space
from stable_baselines3.common.vec_env import VecEnv

from evenhand.checks import check_positive_int
from evenhand.display import counted, from_report
from evenhand.errors import InvalidInputError
from evenhand.learning.typed import TypeWorld
from evenhand.learning.worlds import ArmWorld, CountWorld, JointWorld, Step, Tasks, sampled, world_of
from evenhand.model.coupled import CoupledMDP
from evenhand.model.rules import AllocationRule
from evenhand.model.simulator import Simulator
from evenhand.policies.network import num_draws, num_outputs, usage_of
from evenhand.typing import Array, ArrayLike, Bools, Floats, Ints, Singles


def spaces(problem: CoupledMDP | Simulator, rule: AllocationRule) -> tuple[Box, Box]:
    """The observation space and the action space."""
    usage = usage_of(problem)
    observation = Box(0.0, 1.0, (usage.shape[0] + usage.shape[2],), np.float32)
    return observation, Box(-1.0, 1.0, (num_outputs(rule, usage),), np.float32)


class CountEnv(gymnasium.Env[Singles, Singles]):
    """One copy of a problem, whose arms are followed one by one."""

    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}  # noqa: RUF012  # Gymnasium's own

    def __init__(
        self,
        problem: CoupledMDP | Simulator,
        horizon: int = 300,
        rule: AllocationRule = "greedy",
        tasks: Tasks | None = None,
        render_mode: Literal["ansi", "rgb_array"] | None = None,
    ) -> None:
        """Prepare a copy.

        Args:
            problem: identical arms, or a simulator of them.
            horizon: steps until an episode is cut off.
            rule: how outputs become an allocation.
            tasks: ranges of arms and budgets to draw from at every reset; by default the problem itself.
            render_mode: what `render` gives, `ansi` (text) or `rgb_array` (a picture); by default nothing.
        """
        check_positive_int(horizon, "horizon")
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise InvalidInputError(f"render_mode: expected 'ansi' or 'rgb_array', got {render_mode!r}")
        self.problem, self.render_mode = problem, render_mode
        # A problem with matrices becomes a simulator of them: arms are followed here.
        simulator = problem if isinstance(problem, Simulator) else sampled(problem)
        self.world = ArmWorld(simulator, 1, rule, tasks)
        self.horizon, self.age = horizon, 0
        self.observation_space, self.action_space = spaces(problem, rule)  # type: ignore[assignment]
        self.returns: Floats = np.zeros(0)
        self.last: Step | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Singles, dict[str, Any]]:
        """Begin an episode; options are not used."""
        super().reset(seed=seed)
        # A seed begins anew; without one the stream goes on from episode to episode.
        if seed is not None:
            self.world.seed(self.np_random)
        self.world.restart(np.ones(1, dtype=np.bool_))
        self.age, self.returns, self.last = 0, np.zeros(int(self.world.num_arms[0])), None
        return self.world.observe()[0], {"states": self.world.states.copy(), "arm_returns": self.returns.copy()}

    def step(self, action: Singles) -> tuple[Singles, float, bool, bool, dict[str, Any]]:
        """Allocate by the network's output, and move every arm."""
        done = self.world.step(self._checked(action)[None])
        # Discounted from the start of the episode.
        self.returns = self.returns + self.world.discount**self.age * done.arm_rewards
        self.age += 1
        self.last = done
        info = {
            "allocation": done.facts["allocation"][0],
            "states": self.world.states.copy(),
            "arm_rewards": done.arm_rewards,
            "arm_returns": self.returns,
        }
        # Never terminated: there is more to come, and learners bootstrap.
        return self.world.observe()[0], float(done.rewards[0]), False, self.age >= self.horizon, info

    def _checked(self, action: ArrayLike) -> Singles:
        """The action as an array, if there is an episode and the action is one of the space, or beyond its ends."""
        # Before the first reset there are no arms.
        if not self.returns.size:
            raise InvalidInputError("step: no episode has begun; call reset() first")
        try:
            given = np.asarray(action, dtype=np.float32)
        except (TypeError, ValueError):
            given = np.full(1, np.nan)
        if given.shape != self.action_space.shape or not np.isfinite(given).all():
            expected = f"finite numbers of shape {self.action_space.shape}"
            raise InvalidInputError(f"action: expected {expected}, got {action!r} of shape {given.shape}")
        return given

    def render(self) -> Any:
        """Render the states and the last actions: text, or a (height, width, 3) picture; None without a mode."""
        if self.render_mode is None:
            return None
        scene = Scene.of(self)
        return scene.as_text() if self.render_mode == "ansi" else from_report("plots", "scene_pixels")(scene)


# -- rendering -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scene:
    """Visible state of a copy: number of arms in each state, and that got each action at the last step."""

    title: str
    """The step, the number of arms, the last reward."""

    states: list[str]
    """(state,) what each is called."""

    actions: list[str]
    """(action,) what each is called."""

    counts: Ints
    """(state,) arms that are there now."""

    allocation: Ints
    """(state, action) arms that got each action in the state they were in; zeros before the first step."""

    @classmethod
    def of(cls, env: CountEnv) -> "Scene":
        """The copy as it is."""
        world, last = env.world, env.last
        num_states, num_actions, _ = world.usage.shape
        labels = env.problem.types.labels if isinstance(env.problem, CoupledMDP) else ()
        _, states, actions = labels[0] if labels else ("", (), ())
        reward = "" if last is None else f", reward {last.rewards[0]:.4g}"
        return cls(
            f"step {env.age} of {env.horizon}, {counted(int(world.num_arms[0]), 'arm')}{reward}",
            list(states) or [f"state {state}" for state in range(num_states)],
            list(actions) or [f"action {action}" for action in range(num_actions)],
            world.counts[0].copy(),
            np.zeros((num_states, num_actions), dtype=np.int64) if last is None else last.facts["allocation"][0],
        )

    def as_text(self, width: int = 30) -> str:
        """A line a state.

        Args:
            width: letters that the longest bar may take.
        """
        longest, most = max(map(len, self.states)), max(1, int(self.counts.max()))
        wide = min(width, most)
        lines = [self.title]
        for name, count, served in zip(self.states, self.counts.tolist(), self.allocation, strict=True):
            done = ", ".join(f"{action} {n}" for action, n in zip(self.actions, served.tolist(), strict=True) if n)
            # Bars are relative to the fullest state.
            bar = "█" * round(wide * count / most)
            before = f"   before: {done}" if done else ""
            lines.append(f"{name:{longest}}  {bar:{wide}} {count:>{len(str(most))}}{before}")
        return "\n".join(lines) + "\n"


# -- many copies, for Stable-Baselines3 ------------------------------------------------------------------------------


class Copies(VecEnv):
    """Copies of a problem that are stepped together and share everything but their arrays.

    The copies' first episodes have different lengths, so that they are not all cut off at the same step.
    """

    render_mode = None

    def __init__(
        self, world: CountWorld | ArmWorld | JointWorld | TypeWorld, num_copies: int, horizon: int, *spaces: Space[Any]
    ):
        """Prepare the copies.

        Args:
            world: simulation of the copies.
            num_copies: copies to step together.
            horizon: steps until an episode is cut off.
            *spaces: space of observations, and of actions.
        """
        self.world, self.horizon = world, check_positive_int(horizon, "horizon")
        self.age, self.played = np.zeros((2, num_copies), dtype=np.int64)
        self.sums = np.zeros((2, num_copies))
        self.outputs: Array = np.zeros(0, dtype=np.float32)
        super().__init__(num_copies, *spaces)

    def reset(self) -> Singles:
        """Begin an episode in every copy."""
        # Seeds given before a reset hold for it alone.
        if self._seeds[0] is not None:
            self.world.seed(np.random.default_rng(self._seeds[0]))
            self._reset_seeds()
        self.world.restart(np.ones(self.num_envs, dtype=np.bool_))
        # Staggered: otherwise all copies would end at once, and a rollout see beginnings only or ends only.
        self.age = np.arange(self.num_envs) * self.horizon // self.num_envs
        self.played[:], self.sums[:] = 0, 0.0
        return self.world.observe()

    def step_async(self, actions: Array) -> None:
        """Store the outputs for `step_wait`."""
        self.outputs = np.asarray(actions, dtype=self.action_space.dtype)

    def step_wait(self) -> tuple[Singles, Singles, Bools, list[dict[str, Any]]]:
        """Step every copy; those that reach the horizon begin anew."""
        done = self.world.step(self.outputs)
        infos: list[dict[str, Any]] = [
            {name: fact[copy] for name, fact in done.facts.items()} for copy in range(self.num_envs)
        ]
        # Undiscounted for the log, discounted to compare with values.
        self.sums += (done.rewards, self.world.discount**self.played * done.rewards)
        self.age += 1
        self.played += 1
        observations, over = self.world.observe(), self.age >= self.horizon
        # Final observations are stored for bootstrapping, then the copies begin anew.
        if over.any():
            for copy in np.flatnonzero(over):
                infos[copy] |= {
                    "TimeLimit.truncated": True,
                    "terminal_observation": observations[copy],
                    "episode": {"r": self.sums[0, copy], "l": int(self.played[copy]), "discounted": self.sums[1, copy]},
                }
            self.world.restart(over)
            self.age[over], self.played[over], self.sums[:, over] = 0, 0, 0.0
            observations = self.world.observe()
        return observations, done.rewards.astype(np.float32), over, infos

    def random_moments(self, rng: np.random.Generator) -> tuple[float, float]:
        """Step by random outputs: the mean of single arms' rewards, and of their squares."""
        space, size = self.action_space, (self.num_envs, *self.action_space.shape)  # type: ignore[misc]
        drawn = rng.integers(0, space.nvec[0], size) if isinstance(space, MultiDiscrete) else rng.uniform(-1, 1, size)
        self.step_async(drawn)
        return self.world.step(self.outputs).moments

    def close(self) -> None:
        """Nothing to close."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """An attribute, the same for every copy."""
        return [getattr(self, attr_name)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute for all copies; they have nothing of their own."""
        # Attributes are shared: setting one for some copies would set it for all.
        if len(list(self._get_indices(indices))) != self.num_envs:
            raise AttributeError("the copies share their attributes; set them for all copies at once")
        setattr(self, attr_name, value)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        """Call a method once, for all copies."""
        return [getattr(self, method_name)(*args, **kwargs)] * len(list(self._get_indices(indices)))

    def env_is_wrapped(self, wrapper_class: type[Any], indices: Any = None) -> Sequence[bool]:  # type: ignore[override]
        """No copy is wrapped."""
        return [False] * len(list(self._get_indices(indices)))


class BatchedCounts(Copies):
    """Many copies of a problem for Stable-Baselines3, stepped together in one compiled call."""

    def __init__(
        self,
        problem: CoupledMDP | Simulator,
        num_copies: int = 128,
        horizon: int = 300,
        rule: AllocationRule = "greedy",
        tasks: Tasks | None = None,
        rng: np.random.Generator | int | None = None,
    ) -> None:
        """Prepare the copies.

        Args:
            problem: identical arms (stored as counts), or a simulator of them (every arm is followed).
            num_copies: copies to step together.
            horizon: steps until an episode is cut off.
            rule: how outputs become an allocation.
            tasks: ranges of arms and budgets to draw from at every restart; by default the problem itself.
            rng: seed or generator.
        """
        check_positive_int(num_copies, "num_copies")
        world = world_of(problem, num_copies, rule, tasks, rng)
        super().__init__(world, num_copies, horizon, *spaces(problem, rule))


class BatchedTypes(Copies):
    """Many copies of a problem with arms of several types, at weights drawn per episode."""

    def __init__(
        self, problem: CoupledMDP, num_copies: int, horizon: int, centre: Floats, rng: int | np.random.Generator
    ) -> None:
        """Prepare the copies.

        Args:
            problem: the problem.
            num_copies: copies to step together.
            horizon: steps until an episode is cut off.
            centre: (type,) weights around which those of the episodes are drawn.
            rng: seed or generator.
        """
        world = TypeWorld(problem, num_copies, centre, rng)
        num_types, num_states, num_actions = problem.types.valid.shape
        inputs = num_types * (num_states + 1) + problem.num_resources
        observation = Box(0.0, 1.0, (inputs,), np.float32)
        super().__init__(
            world, num_copies, horizon, observation, Box(-1.0, 1.0, (num_types * num_states * num_actions,), np.float32)
        )


class BatchedJoint(Copies):
    """The paper's Vanilla-DRL for Stable-Baselines3: raw joint states in, arms to serve out.

    The observation is the state of every arm, s / (S - 1); the action, for each of the b units of the budget, the arm
    that gets it: a softmax over arms each. An arm that is drawn twice is served once. As in the paper no output stands
    for idling, and the budget is always spent; with `idling` the softmax has one entry more, which serves no arm.
    """

    def __init__(
        self, problem: CoupledMDP, num_copies: int, horizon: int, rng: int | np.random.Generator, idling: bool = False
    ) -> None:
        """Prepare the copies.

        Args:
            problem: identical arms with two actions and one resource.
            num_copies: copies to step together.
            horizon: steps until an episode is cut off.
            rng: seed or generator.
            idling: whether a unit of the budget may be left.
        """
        arms = problem.num_arms
        choices = MultiDiscrete(np.full(num_draws(problem), arms + 1 if idling else arms))
        world = JointWorld(problem, num_copies, rng)
        super().__init__(world, num_copies, horizon, Box(0.0, 1.0, (arms,), np.float32), choices)


ENV_ID = "evenhand/CountEnv-v0"
"""Name in Gymnasium's registry."""

if ENV_ID not in gymnasium.registry:
    gymnasium.register(ENV_ID, entry_point="evenhand.learning.environments:CountEnv")
