"""How long the exact optimum on counts takes, as the arms become many; QuantEcon beside it where its table fits.

    python -m benchmarks counts

Seconds are wall time of `plan_counts` and `solve_counts`, everything included but the compilation, which is done before
on a small problem; cpu is the work of all cores together, which other programs disturb less. QuantEcon's policy
iteration is given its matrices ready; building them is told beside it. Rows that end in a criterion are not discounted.
"""

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from benchmarks.timing import best_of, plot_growth
from evenhand.errors import TooLargeError
from evenhand.model.coupled import CoupledMDP
from evenhand.problems import literature
from evenhand.problems.machine_replacement import machine_replacement
from evenhand.problems.random_arms import random_coupled
from evenhand.solvers.counts import SMALL, CountOptimum, CountPlan, plan_counts, solve_counts

TOLERANCE = 1e-6


@dataclass(frozen=True)
class Case:
    """One problem to time."""

    name: str
    build: Callable[[], CoupledMDP]
    slow: bool = False


def machines(num_arms: int, **options: object) -> Case:
    """Machine replacement with a budget of a tenth of the machines."""
    words = ", ".join(f"{key}={value}" for key, value in options.items())
    budget = num_arms // 10
    name = f"machines N={num_arms} b={budget} {words}".strip()
    return Case(name, lambda: machine_replacement(num_arms, budget=budget, **options), slow=num_arms > 300)  # type: ignore[arg-type]


def under(criterion: str, case: Case) -> Case:
    """The same problem under another criterion."""
    return Case(f"{case.name} {criterion}", lambda: case.build().with_criterion(criterion), case.slow)


def unit_usage(problem: CoupledMDP) -> CoupledMDP:
    """The same problem, with one unit for each action that is not idle."""
    arms = problem.tables[0]
    usage = (arms.usage > 0).astype(float)
    arm = type(arms)(arms.transitions, arms.rewards, usage, arms.initial)
    return CoupledMDP([arm], problem.budget, problem.discount, problem.counts)


def dense(num_arms: int, num_states: int, budget: float, seed: int = 0, slow: bool = False, **more: int) -> Case:
    """A random problem without zeros in its transitions, each action one unit of what it uses."""
    words = "".join(f" {key}={value}" for key, value in more.items())
    name = f"dense N={num_arms} S={num_states} b={budget:g} seed={seed}{words}"
    return Case(
        name,
        lambda: unit_usage(random_coupled(num_arms, num_states, budget=budget, seed=seed, **more)),  # type: ignore[arg-type]
        slow,
    )


def three_states(example: Literal[1, 2, 3], num_arms: int = 100) -> Case:
    """An instance of the literature, with a budget of 0.4 N."""
    name = f"three-states N={num_arms} b={round(0.4 * num_arms)} example={example} average"
    return Case(name, lambda: literature.three_states(num_arms, example), slow=num_arms > 100)


GROWTH = [machines(n) for n in (10, 30, 60, 100, 200, 300, 500, 1000)]

OTHERS = [
    under("average", machines(100)),
    under("finite:50", machines(100)),
    under("average", machines(300)),
    under("finite:50", machines(300)),
    machines(30, num_states=5),
    machines(100, reset="pure"),
    machines(100, reset_probability=0.9),
    dense(30, 3, 3, num_actions=3, num_resources=2),
    dense(100, 3, 10, seed=0),
    dense(100, 3, 10, seed=1),
    dense(100, 3, 40, seed=0),
    under("average", dense(100, 3, 40, seed=0)),
    three_states(1),
    three_states(2),
    three_states(3),
    three_states(1, 300),
    three_states(2, 300),
    three_states(3, 300),
    dense(300, 3, 30, seed=0, slow=True),
    dense(300, 3, 120, seed=0, slow=True),
    dense(30, 4, 3, seed=0),
    dense(40, 4, 4, seed=1),
    dense(60, 4, 6, seed=0),
    dense(60, 4, 24, seed=0),
    dense(100, 4, 10, seed=0, slow=True),
]


def solve(problem: CoupledMDP, small: float = SMALL) -> tuple[CountOptimum, float, float]:
    """The optimum, the seconds it took, and the seconds that all cores together worked on it."""
    started, worked = time.perf_counter(), time.process_time()
    optimum = solve_counts(plan_counts(problem, small), problem.types.initial[0], TOLERANCE)
    return optimum, time.perf_counter() - started, time.process_time() - worked


def compile_all() -> None:
    """Compile every kernel on small problems, so that no timed run does."""
    for case in (machines(10), machines(10, reset="pure"), machines(60, num_states=2)):
        solve(case.build(), small=0)


def time_case(case: Case, repeats: int) -> tuple[int, float]:
    """Print a row of the table; the number of arms and the seconds."""
    problem = case.build()
    runs = [solve(problem) for _ in range(repeats)]
    optimum = runs[0][0]
    seconds, worked = min(run[1] for run in runs), min(run[2] for run in runs)
    gap = (optimum.upper_bound - optimum.lower_bound) / abs(optimum.upper_bound)
    print(
        f"{case.name:52s} {len(optimum.value_function):8d} {seconds:9.3f} {worked:9.3f} {gap:9.1e} "
        f"{optimum.upper_bound:11.6f}",
        flush=True,
    )
    return problem.num_arms, seconds


def sweep_times(num_arms: int) -> None:
    """A sweep, the maximum over all allocations, under each criterion; a finite horizon is one sweep a step, all in.

    All by the same kernels: what is as short as a finite horizon of few arms is else done without compiled code.
    """
    times = {}
    for criterion in ("discounted", "average", "finite:50"):
        problem = machines(num_arms).build().with_criterion(criterion)
        lattice = plan_counts(problem, small=0)
        if problem.criterion.num_steps is not None:
            times[criterion] = best_of(5, partial(solve, problem, 0)) / problem.criterion.num_steps
            continue
        value = solve_counts(lattice, problem.types.initial[0], TOLERANCE).value_function
        times[criterion] = best_of(20, partial(sweep, lattice, value))
    plain = times["discounted"]
    told = ", ".join(f"{name} {1e3 * spent:.2f} ms ({spent / plain:.2f} x)" for name, spent in times.items())
    print(f"N={num_arms}: a sweep {told}", flush=True)


def sweep(lattice: CountPlan, value: np.ndarray) -> None:
    """The maximum over all allocations, once."""
    lattice.chooser.improve(value, lattice.criterion.factor)


def against_quantecon(num_arms: int) -> None:
    """QuantEcon's policy iteration on the table of all pairs, beside ours."""
    from quantecon.markov import DiscreteDP
    from scipy import sparse

    from evenhand.solvers.counts.reduction import Counts

    problem = machines(num_arms).build()
    started = time.perf_counter()
    mdp = Counts(problem).mdp
    pairs = np.arange(mdp.num_pairs)
    actions = pairs - mdp.offsets[mdp.state_of_pair]
    matrix = sparse.csr_matrix(mdp.transitions)
    theirs = DiscreteDP(mdp.rewards[:, 0], matrix, mdp.criterion.factor, mdp.state_of_pair, actions)
    built = time.perf_counter() - started
    result = theirs.solve(method="policy_iteration")  # compiles or loads what it needs, as ours has done before
    seconds = best_of(3, lambda: theirs.solve(method="policy_iteration"))
    value = float(mdp.initial @ result.v)
    optimum, ours, _ = min((solve(problem) for _ in range(3)), key=lambda run: run[1])
    agree = optimum.lower_bound - 1e-9 <= value <= optimum.upper_bound + 1e-9
    print(
        f"N={num_arms}: {mdp.num_states} states, {mdp.num_pairs} pairs, {matrix.nnz} entries. "
        f"QuantEcon {seconds:.3f} s (and {built:.2f} s to build its table), ours {ours:.3f} s all in: "
        f"{seconds / ours:.0f} times faster; "
        f"value {value:.8f} {'within' if agree else 'OUTSIDE'} our bounds",
        flush=True,
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="leave out what takes longer")
    parser.add_argument("--no-quantecon", action="store_true", help="leave out the comparison")
    options = parser.parse_args([] if arguments is None else arguments)

    compile_all()
    print(f"{'problem':52s} {'states':>8s} {'seconds':>9s} {'cpu':>9s} {'gap':>9s} {'value':>11s}")
    growth = [time_case(case, 1 if case.slow else 3) for case in GROWTH if not (options.quick and case.slow)]
    for case in OTHERS:
        if options.quick and case.slow:
            continue
        try:
            time_case(case, 1 if case.slow else 2)
        except TooLargeError as error:
            print(f"{case.name:52s} {error}", flush=True)
    title = f"exact optimum of identical machines, budget N/10, relative gap {TOLERANCE:g}"
    print("growth is drawn in", plot_growth({"machines, S = 3": growth}, "counts-growth", title))
    for num_arms in (100, 300):
        sweep_times(num_arms)
    if not options.no_quantecon:
        for num_arms in (30, 60):
            against_quantecon(num_arms)


if __name__ == "__main__":
    main(sys.argv[1:])
