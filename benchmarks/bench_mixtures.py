"""Fair plans for arms that differ: the best policy of the relaxation by itself, the mixture, and the bound.

The single policy is what the method `fluid` was before there were mixtures: the best of fair-index, occupancy-priority
and re-solving, chosen and reported by as many simulated steps as then. Gaps are to the exact optimum where it is known,
else to the fluid bound. One problem or size is run by `python -m benchmarks mixtures`; the last takes minutes.
"""

import time
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

import evenhand as eh
from benchmarks.timing import RESULTS
from evenhand.evaluation.evaluate import evaluate
from evenhand.planning.relaxation import build_policy, relax
from evenhand.problems import health_outreach, heterogeneous_machine_replacement

OUTREACH = "health-outreach, {} people, {} groups, 2 states"
MACHINES = "machines that all differ, {}"


def small(num_arms: int, num_groups: int) -> eh.CoupledMDP:
    return health_outreach(num_arms=num_arms, num_states=2, num_groups=num_groups, budget=1)


def machines(num_arms: int, budget: float | None = None) -> eh.CoupledMDP:
    return heterogeneous_machine_replacement(num_arms=num_arms, budget=budget)


def van(wear: float, loss: float, mending: float) -> eh.Arm:
    """Four conditions; servicing takes a technician, an overhaul a bay and two technicians."""
    moves, rewards = np.zeros((4, 3, 4)), np.zeros((4, 3))
    for state in range(4):
        moves[state, 0, min(state + 1, 3)] += wear
        moves[state, 0, state] += 1 - wear
        moves[state, 1, max(state - 1, 0)] += mending
        moves[state, 1, state] += 1 - mending
        moves[state, 2, 0] += 0.95
        moves[state, 2, state] += 0.05
        rewards[state] = 1 - loss * (0, 0.2, 0.6, 1)[state] - np.array([0, 0.1, 0.3])
    return eh.Arm(moves, rewards, [[0, 0], [0, 1], [1, 2]], [1, 0, 0, 0])


def fleet(bays: int, technicians: int) -> eh.CoupledMDP:
    """Forty vans of three makes."""
    makes = [van(0.25, 0.9, 0.8), van(0.35, 0.7, 0.7), van(0.15, 1.0, 0.6)]
    return eh.CoupledMDP(makes, [bays, technicians], 0.97, counts=[15, 15, 10])


EXACT = [
    (OUTREACH.format(6, 3), small(6, 3), ("gini:2", "maximin")),
    (OUTREACH.format(8, 4), small(8, 4), ("gini:2", "maximin")),
    (MACHINES.format(6), machines(6), ("maximin", "gini:2")),
    (MACHINES.format(8), machines(8), ("maximin", "gini:2")),
]

LARGE = [
    ("health-outreach, 60 people, 3 groups, 3 states", health_outreach(num_arms=60), ("gini:2", "gini:1.1", "maximin")),
    ("40 vans of three makes, 3 bays, 5 technicians", fleet(3, 5), ("gini:2", "utilitarian")),
    ("40 vans of three makes, 4 bays, 12 technicians", fleet(4, 12), ("gini:2",)),
    (MACHINES.format("300, 16 a step"), machines(300, 16), ("gini:1.0234",)),
    (MACHINES.format("1000, 55 a step"), machines(1000, 55), ("gini:1.007",)),
    (MACHINES.format("10 000, 550 a step"), machines(10_000, 550), ("gini:1.0007",)),
]


def single(problem: eh.CoupledMDP, welfare: str) -> tuple[float, float]:
    """The welfare of the best policy of the relaxation by itself, and the seconds to find and report it."""
    begin = time.perf_counter()
    horizon = problem.criterion.judging_steps()
    most = int(np.clip(6e5 / horizon, 20, 2000))
    episodes = int(np.clip(3e7 / (problem.num_arms * horizon), 20, most))
    relaxed, names = relax(problem, welfare), ("occupancy-priority", "fair-index", "re-solving")
    found = {name: build_policy(problem, relaxed, name) for name in names}
    scores = {
        name: evaluate(problem, policy, welfare, max(20, episodes // 4), horizon, 1, method="monte-carlo").welfare
        for name, policy in found.items()
    }
    best = found[max(scores, key=lambda name: scores[name])]
    worth = evaluate(problem, best, welfare, episodes, horizon, 2, method="monte-carlo").welfare
    return worth, time.perf_counter() - begin


def row(name: str, problem: eh.CoupledMDP, welfare: str, best: float | None) -> list[tuple[int, float]]:
    """Print a line; the gaps to the bound, in percent, after so many policies."""
    alone, took = single(problem, welfare)
    begin, after = time.perf_counter(), {}

    def told(what: str, share: float) -> None:
        if what.startswith("mixing"):
            after[int(what.split()[1])] = time.perf_counter() - begin

    plan = eh.solve(problem, welfare, "fluid", progress=told)
    seconds = time.perf_counter() - begin
    reference = plan.upper_bound if best is None else best
    gaps = [f"{100 * (1 - value / reference):6.2f} %" for value in (alone, plan.welfare)]
    print(
        f"{name}, {welfare}: {'bound' if best is None else 'exact'} {reference:.4f}; alone {gaps[0]} below in "
        f"{took:.1f} s; mixture {gaps[1]} below (± {100 * plan.welfare_stderr / reference:.2f} %) in {seconds:.1f} s "
        f"({seconds / took:.1f} x), {len(plan.parts)} of {plan.history[-1][0]} policies",
        flush=True,
    )
    gaps_by_policies = [(columns, 100 * (1 - value / reference)) for columns, value in plan.history]
    if best is None:
        steps = [f"{columns} in {after[columns]:.0f} s: {gap:.2f} %" for columns, gap in gaps_by_policies[::4]]
        print(f"    gap by policies and time, as chosen: {', '.join(steps)}", flush=True)
    return gaps_by_policies


def main() -> None:
    for name, problem, welfares in EXACT:
        for welfare in welfares:
            row(name, problem, welfare, eh.solve(problem, welfare).welfare)
    curves = {}
    for name, problem, welfares in LARGE:
        for welfare in welfares:
            curves[f"{name}, {welfare}"] = row(name, problem, welfare, None)
    print(f"picture: {plot_gaps(curves)}")


def plot_gaps(curves: dict[str, list[tuple[int, float]]]) -> Path:
    """Draw gaps against the number of policies."""
    figure = Figure(figsize=(6.5, 4), layout="constrained")
    axes = figure.add_subplot()
    for label, points in curves.items():
        axes.plot(*zip(*points, strict=True), marker="o", markersize=3, label=label)
    axes.set(xlabel="policies tried", ylabel="below the bound, %", title="The best mixture, as it is chosen")
    axes.axhline(0, color="black", linewidth=0.5)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
    RESULTS.mkdir(exist_ok=True)
    FigureCanvasSVG(figure).print_svg(RESULTS / "mixtures-gap.svg", metadata={"Date": None})
    return RESULTS / "mixtures-gap.svg"
