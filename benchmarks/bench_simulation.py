"""Simulation: the cost of a step by counts against the number of arms, and arm-steps a second arm by arm."""

import numpy as np

import evenhand as eh
from benchmarks.timing import best_of
from evenhand.kernels import crowds
from evenhand.simulation import rollout

EPISODES, HORIZON = 1000, 50


def counts_against_arms() -> None:
    """A whole simulated step (choice, rewards, moves) of 1000 episodes, for crowds of any size."""
    print(f"simulation by counts, {EPISODES} episodes, oldest-first on machine replacement, budget N / 10")
    print(f"{'arms':>12} {'ms a step':>10} {'moves only, ms':>15}")
    times = []
    for num_arms in (10**2, 10**4, 10**6, 10**8):
        problem = eh.problems.machine_replacement(num_arms=num_arms, budget=num_arms // 10)
        policy = eh.policies.worst_first(problem)

        def play(problem=problem, policy=policy):
            return eh.simulate_counts(problem, policy, EPISODES, HORIZON, rng=0)

        play()
        whole = best_of(5, play) / HORIZON
        counts = np.full((EPISODES, 1, 3), num_arms // 3)
        counts[:, 0, 0] += num_arms - counts.sum(axis=(1, 2))
        allocation = policy.allocate(counts, np.random.default_rng(0))
        transitions, key = problem.types.transitions, np.uint64(1)
        moves = best_of(20, lambda a=allocation, t=transitions, k=key: crowds.step_crowds_fast(t, a, k, 0))
        times.append((whole, moves))
        print(f"{num_arms:>12.0e} {1000 * whole:>10.3f} {1000 * moves:>15.3f}")
    whole, moves = (max(column) / min(column) for column in zip(*times, strict=True))
    print(f"slowest / fastest: {whole:.2f} for a whole step, {moves:.2f} for the moves")


def arms_one_by_one() -> None:
    """Million arm-steps a second, compiled and in NumPy."""
    print("\narm by arm, 2000 episodes x 1000 arms x 20 steps, millions of arm-steps a second")
    print(f"{'policy':>16} {'compiled':>10} {'NumPy':>8} {'ratio':>6}")
    problem = eh.problems.machine_replacement(num_arms=1000, budget=100)
    for name, policy in (
        ("never-act", Still()),
        ("oldest-first", eh.policies.worst_first(problem)),
        ("random", eh.policies.random_feasible(problem)),
    ):
        rates = []
        for path in ("compiled", "NumPy"):
            episodes, steps = (2000, 20) if path == "compiled" else (200, 2)
            with forced(path):
                rollout.simulate(problem, policy, episodes, steps, rng=0)
                seconds = best_of(3, lambda p=policy, e=episodes, s=steps: rollout.simulate(problem, p, e, s, rng=0))
            rates.append(episodes * 1000 * steps / seconds / 1e6)
        print(f"{name:>16} {rates[0]:>10.1f} {rates[1]:>8.2f} {rates[0] / rates[1]:>6.1f}")


class Still:
    """Does nothing, at no cost: what remains is the simulator."""

    def act(self, states, rng):
        return np.zeros_like(states)


class forced:  # noqa: N801  # reads as a phrase
    """Within it, both the simulator and the policies take one path."""

    def __init__(self, path: str) -> None:
        self.threshold = 0 if path == "compiled" else 1 << 62

    def __enter__(self) -> None:
        from evenhand.policies import priority

        self.saved = rollout.COMPILE_FROM, priority.COMPILE_FROM
        rollout.COMPILE_FROM = priority.COMPILE_FROM = self.threshold

    def __exit__(self, *_: object) -> None:
        from evenhand.policies import priority

        rollout.COMPILE_FROM, priority.COMPILE_FROM = self.saved


def main() -> None:
    counts_against_arms()
    arms_one_by_one()


if __name__ == "__main__":
    main()
