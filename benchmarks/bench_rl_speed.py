"""How fast training is, end to end: steps of the environment a second, learning included.

    python -m benchmarks rl_speed

The peer is the way such experiments are usually run: one Gymnasium environment that simulates machine after machine
in Python, with Algorithms 1 and 2 of the paper as printed, under Stable-Baselines3's PPO with its own defaults.
"""

import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from stable_baselines3 import PPO

import evenhand as eh
from benchmarks.timing import best_of
from evenhand.policies.network import CountNetworkPolicy


class MachineByMachine(gymnasium.Env[Any, Any]):
    """The paper's environment, one machine at a time."""

    def __init__(self, problem: eh.CoupledMDP, horizon: int = 300) -> None:
        arm = problem.types
        self.p, self.r, self.d, self.mu = arm.transitions[0], arm.rewards[0], arm.usage[0], arm.initial[0]
        self.S, self.A, self.K = self.d.shape
        self.N, self.b, self.horizon = problem.num_arms, problem.budget, horizon
        self.observation_space = Box(0, 1, (self.S + self.K,), np.float32)
        self.action_space = Box(-1, 1, (self.S * self.A + self.K,), np.float32)

    def _seen(self) -> Any:
        return np.concatenate([self.x / self.N, self.b / (self.N * self.d.max(axis=(0, 1)))]).astype(np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.x = np.zeros(self.S, dtype=int)
        for _ in range(self.N):
            self.x[self.np_random.choice(self.S, p=self.mu)] += 1
        self.t = 0
        return self._seen(), {}

    def _sample_allocation(self, action: Any) -> Any:
        """Algorithm 1, draw by draw."""
        unit = (action + 1) / 2
        scores = np.maximum(unit[: self.S * self.A], 1e-3).reshape(self.S, self.A).astype(float)
        left = np.minimum(np.floor(unit[self.S * self.A :] * (self.b + 1)), self.b)
        x, u = self.x.copy(), np.zeros((self.S, self.A), dtype=int)
        scores[x == 0] = 0
        while scores.any():
            s, a = divmod(self.np_random.choice(self.S * self.A, p=(scores / scores.sum()).ravel()), self.A)
            if (self.d[s, a] <= left).all():
                u[s, a] += 1
                x[s] -= 1
                left = left - self.d[s, a]
                if x[s] == 0:
                    scores[s] = 0
            else:
                scores[s, a] = 0
        return u

    def step(self, action: Any) -> Any:
        """Algorithm 2, machine by machine."""
        u = self._sample_allocation(action)
        following, reward = np.zeros(self.S, dtype=int), 0.0
        for s in range(self.S):
            for a in range(self.A):
                for _ in range(u[s, a]):
                    following[self.np_random.choice(self.S, p=self.p[s, a])] += 1
                    reward += self.r[s, a] / self.N
        self.x, self.t = following, self.t + 1
        return self._seen(), reward, False, self.t >= self.horizon, {}


def ours(problem: eh.CoupledMDP, steps: int = 80_000) -> float:
    """Steps a second, judging included."""
    eh.train(problem, steps=8_000)  # compiles
    return max(steps / eh.train(problem, steps=steps, seed=seed).seconds for seed in range(2))


def theirs(problem: eh.CoupledMDP, steps: int) -> float:
    """Steps a second of the usual way."""
    model = PPO("MlpPolicy", MachineByMachine(problem), n_steps=steps, seed=0, device="cpu")
    start = time.perf_counter()
    model.learn(steps)
    return steps / (time.perf_counter() - start)


def decision(problem: eh.CoupledMDP, policy: CountNetworkPolicy) -> float:
    """Microseconds of one decision for one copy: the network and the allocation, without torch."""
    counts = np.array([[problem.num_arms, *[0] * (len(policy.usage) - 1)]])
    counts, rng = counts[:, None], np.random.default_rng(0)
    policy.allocate(counts, rng)
    return best_of(5, lambda: [policy.allocate(counts, rng) for _ in range(1_000)]) * 1e3


def main() -> None:
    print(f"{'N':>6} {'ours, steps/s':>15} {'one env, steps/s':>17} {'ratio':>7} {'decision, us':>13}")
    for num_arms, steps in ((5, 2048), (10_000, 64)):
        problem = eh.problems.machine_replacement(num_arms, budget=max(1, num_arms // 10), operating_cost="exponential")
        fast, slow = ours(problem), theirs(problem, steps)
        policy = eh.train(problem, steps=4_000).policy
        assert isinstance(policy, CountNetworkPolicy)
        each = decision(problem, policy)
        print(f"{num_arms:>6} {fast:>15.0f} {slow:>17.1f} {fast / slow:>7.0f} {each:>13.1f}", flush=True)


if __name__ == "__main__":
    main()
