"""Simulation: the cost of a step by counts against the number of arms, and arm-steps a second arm by arm."""

import numpy as np

import evenhand as eh
from benchmarks.timing import best_of
from evenhand import kernels
from evenhand.evaluation import rollout

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
        moves = best_of(20, lambda a=allocation, t=transitions, k=key: kernels.step_crowds(t, a, k, 0))
        times.append((whole, moves))
        print(f"{num_arms:>12.0e} {1000 * whole:>10.3f} {1000 * moves:>15.3f}")
    whole, moves = (max(column) / min(column) for column in zip(*times, strict=True))
    print(f"slowest / fastest: {whole:.2f} for a whole step, {moves:.2f} for the moves")


def arms_one_by_one() -> None:
    """Million arm-steps a second."""
    print("\narm by arm, 2000 episodes x 1000 arms x 20 steps, millions of arm-steps a second")
    problem = eh.problems.machine_replacement(num_arms=1000, budget=100)
    for name, policy in (
        ("never-act", Still()),
        ("oldest-first", eh.policies.worst_first(problem)),
        ("random", eh.policies.random_feasible(problem)),
    ):
        rollout.simulate(problem, policy, 2000, 2, rng=0)
        seconds = best_of(3, lambda p=policy: rollout.simulate(problem, p, 2000, 20, rng=0))
        print(f"{name:>16} {2000 * 1000 * 20 / seconds / 1e6:>10.1f}")


class Still:
    """Does nothing, at no cost: what remains is the simulator."""

    def act(self, states, rng):
        return np.zeros_like(states)


def main() -> None:
    counts_against_arms()
    arms_one_by_one()


if __name__ == "__main__":
    main()
