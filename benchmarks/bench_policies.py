"""Policies on problems too large to solve: welfare against the fluid bound, and exact gaps where the optimum is known.

    python -m benchmarks policies

Of a gap between bound and policy some belongs to the bound (what no policy can reach) and some to the policy. Small
problems, whose optimum is known, tell the two apart.
"""

import time

import evenhand as eh
from evenhand.errors import NotApplicableError
from evenhand.planning.policy_registry import REGISTRY
from evenhand.policies.index import whittle
from evenhand.policies.look_ahead import LookAhead

EPISODES, HORIZON = 50, 225
"""For the named policies; the method fluid decides for itself."""


def show(name: str, value: float, error: float, bound: float, seconds: float) -> None:
    written = f"{error:9.4f}" if error else "    exact"
    print(
        f"{name:>20} {value:>10.4f} {written} {bound:>10.4f} {100 * (1 - value / bound):>7.2f} % {seconds:>8.2f}",
        flush=True,
    )


def named_policies(problem: eh.CoupledMDP, welfare: str, bound: float) -> None:
    """Every policy of the roster that applies, on the same episodes."""
    for entry in REGISTRY:
        if entry.name == "optimal":
            continue
        start = time.perf_counter()
        try:
            policy = entry.build(problem, welfare)
        except NotApplicableError as error:
            print(f"{entry.name:>20} {error}")
            continue
        found = eh.evaluate(problem, policy, welfare, EPISODES, HORIZON, rng=0)
        show(entry.name, found.welfare, found.welfare_stderr, bound, time.perf_counter() - start)


def many_arms(title: str, problem: eh.CoupledMDP, welfare: str) -> None:
    """The method fluid, and all policies that have a name."""
    print(
        f"\n{title}, {problem.num_arms} arms, welfare {welfare}; {EPISODES} episodes of {HORIZON} steps for named ones"
    )
    print(f"{'policy':>20} {'welfare':>10} {'±':>9} {'bound':>10} {'gap':>9} {'seconds':>8}")
    start = time.perf_counter()
    solution = eh.solve(problem, welfare, "fluid")
    show("method fluid", solution.welfare, solution.welfare_stderr, solution.upper_bound, time.perf_counter() - start)
    named_policies(problem, welfare, solution.upper_bound)
    print(f"  ({solution.reason})")


def identical_machines(preset: str) -> None:
    """Whittle indices against the optimum, both by counts."""
    print(f"\n{preset}, b = max(1, N // 10): the Whittle policy against the optimum")
    print(f"{'N':>4} {'b':>3} {'OPT':>10} {'whittle':>10} {'gap':>9} {'':>12}")
    for num_arms in (2, 3, 4, 5, 10, 20, 50, 100):
        problem = eh.problems.machine_replacement(num_arms, budget=max(1, num_arms // 10), preset=preset)
        best = eh.solve(problem, method="counts")
        found = eh.evaluate(problem, whittle(problem), num_episodes=4000, horizon=300, rng=0)
        note = "exact" if found.exact else f"± {found.welfare_stderr:.4f}"
        gap = round(100 * (1 - found.welfare / best.welfare), 3) + 0.0
        row = f"{num_arms:>4} {problem.budget[0]:>3.0f} {best.welfare:>10.4f} {found.welfare:>10.4f}"
        print(f"{row} {gap:>7.3f} % {note:>12}", flush=True)


def programs() -> None:
    """Look-ahead programs per second of the processor, each solved once per new counts of the arms."""
    print("\nlp-update: linear programs over the next 24 steps, at most the budget")
    print(f"{'instance':>14} {'N':>5} {'columns':>8} {'programs':>9} {'per second':>11}")
    makers = {"three-states": eh.problems.three_states, "eight-states": eh.problems.eight_states}
    for name, make in (makers | {"non-sa": eh.problems.non_sa}).items():
        for num_arms in (100, 1000):
            problem = make(num_arms)
            policy = eh.make_policy(problem, "lp-update", "utilitarian")
            assert isinstance(policy, LookAhead)
            eh.simulate_counts(problem, policy, 1, 5)  # finds the first basis
            known, start = policy.num_solved, time.process_time()
            eh.simulate_counts(problem, policy, 5, 400, rng=1)
            seconds, solved = time.process_time() - start, policy.num_solved - known
            print(f"{name:>14} {num_arms:>5} {policy.num_columns:>8} {solved:>9} {solved / seconds:>11.0f}", flush=True)


def whose_gap() -> None:
    """Heterogeneous machines, b = 1: of the gap, what is the bound's and what is the policy's."""
    print("\nheterogeneous machines, b = 1: gap of the method fluid, split at the optimum (method joint)")
    names = {"N": 3, "welfare": 12, "policy": 9, "±": 8, "optimum": 9, "bound": 9, "gap": 8}
    print(" ".join(f"{name:>{width}}" for name, width in (names | {"of bound": 9, "of policy": 9}).items()))
    for num_arms in (5, 6, 7):
        problem = eh.problems.heterogeneous_machine_replacement(num_arms, budget=1)
        for welfare in ("utilitarian", "gini:2", "maximin", "nash"):
            best = eh.solve(problem, welfare, eh.SolveMethod("joint", tolerance=1e-6))
            found = eh.solve(problem, welfare, "fluid")
            bound = found.upper_bound
            shares = [100 * (bound - x) / bound for x in (found.welfare, best.welfare)]
            print(
                f"{num_arms:>3} {welfare:>12} {found.welfare:>9.4f} {found.welfare_stderr:>8.4f} {best.welfare:>9.4f} "
                f"{bound:>9.4f} {shares[0]:>6.2f} % {shares[1]:>7.2f} % {shares[0] - shares[1]:>7.2f} %",
                flush=True,
            )


def main() -> None:
    for preset in ("exponential-rccc", "quadratic-rccc"):
        identical_machines(preset)
    whose_gap()
    programs()
    for num_arms in (100, 1000):
        problem = eh.problems.heterogeneous_machine_replacement(num_arms, budget=num_arms // 10)
        many_arms("heterogeneous machines", problem, f"gini:{2 ** (10 / num_arms):.6g}")
    many_arms("crew maintenance", eh.problems.crew_maintenance(num_arms=100), f"gini:{2 ** (10 / 100):.6g}")


if __name__ == "__main__":
    main()
