"""A policy of one's own: checked against the rules, then measured beside the others.

A policy is any object with `act(states, rng)`. This one replaces worn-out machines only, the first ones first, and
leaves the budget unspent when there is none.
"""
# ruff: noqa: T201  # an example tells its results

import numpy as np

import evenhand as eh


class WornOutOnly:
    """Replaces machines in the last state, as many as the budget allows."""

    def __init__(self, problem: eh.CoupledMDP) -> None:
        self.last = problem.types.num_states[0] - 1
        self.most = int(problem.budget[0])

    def act(self, states: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """(episode, arm) 1 for the machines that are replaced."""
        worn_out = states == self.last
        return (worn_out & (worn_out.cumsum(axis=1) <= self.most)).astype(np.int32)


def main() -> None:
    """Print what the policy is worth beside three others, all in the same world."""
    problem = eh.problems.machine_replacement(num_arms=5)
    own = WornOutOnly(problem)
    eh.check_policy(problem, own)
    others = {"oldest-first": eh.policies.worst_first(problem), "random": eh.policies.random_feasible(problem)}
    table = eh.compare(problem, {"worn-out-only": own, **others}, welfare="gini:2", num_episodes=500, rng=0)
    for row in table.rows:
        found = row.evaluation
        how = "exact" if found.exact else f"± {found.welfare_stderr:.4f}"
        print(f"{row.policy:14} {found.welfare:8.4f}  {how:9} worst arm {found.worst:8.4f}")


if __name__ == "__main__":
    main()
