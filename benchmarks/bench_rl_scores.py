"""Count-proportion deep reinforcement learning against the optimum, seeds 0 to 4.

    python -m benchmarks rl_scores

Welfare is that of the greedy policy, by exact evaluation where the count space allows (up to N = 100), else by playing
500 episodes. "paper" is the published figure where there is one.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

import evenhand as eh
from benchmarks.training_runs import SEEDS, problem_of, run_all

PAPER = {
    ("exponential", "ppo"): (14.12, 13.95, 13.64, 12.96),
    ("quadratic", "ppo"): (16.14, 16.05, 15.94, 15.87),
    ("exponential", "mt"): (14.11, 13.89, 13.59, 13.28),
    ("quadratic", "mt"): (16.14, 16.05, 15.94, 15.86),
    ("exponential", "sac"): (14.00, 13.76, 13.50, 13.30),
    ("quadratic", "sac"): (16.06, 15.75, 15.69, 15.28),
    ("exponential", "td3"): (11.83, 12.30, 12.63, 12.62),
    ("quadratic", "td3"): (15.98, 15.75, 15.56, 15.51),
}
STEPS = {"ppo": 240_000, "sac": 120_000, "td3": 120_000}
SIZES = (2, 3, 4, 5)


def machines(kind: str, num_arms: int, budget: int = 1) -> tuple[str, dict[str, Any]]:
    return "machine-replacement", {"operating_cost": kind, "num_arms": num_arms, "budget": budget}


def optimum(problem: tuple[str, dict[str, Any]]) -> float:
    return eh.solve(problem_of(*problem), method="counts").welfare


def show(title: str, best: float, found: Sequence[float], paper: float | None, seconds: float) -> None:
    shares = 100 * np.array(found) / best
    published = f"{paper:>7.2f}" if paper is not None else "      -"
    print(
        f"{title:<34} {best:>9.4f} {published} {np.mean(found):>9.4f} {shares.mean():>9.3f} {shares.min():>9.3f} "
        f"{seconds:>8.1f}",
        flush=True,
    )


def head(title: str) -> None:
    print(f"\n{title}")
    columns = f"{'OPT':>9} {'paper':>7} {'mean':>9} {'mean %':>9} {'worst %':>9} {'s a run':>8}"
    print(f"{'':<34} {columns}")


def single_task(algorithm: str) -> None:
    head(f"{algorithm}, one network an instance, {STEPS[algorithm]} steps")
    for kind in ("exponential", "quadratic"):
        jobs = [
            {
                "key": n,
                "problem": machines(kind, n),
                "options": {"algorithm": algorithm, "steps": STEPS[algorithm], "seed": s},
            }
            for n in SIZES
            for s in SEEDS
        ]
        done = list(run_all(jobs))
        for n, paper in zip(SIZES, PAPER[kind, algorithm], strict=True):
            runs = [run for run in done if run["key"] == n]
            seconds = float(np.mean([run["seconds"] for run in runs]))
            show(f"{kind} N = {n}", optimum(machines(kind, n)), [run["welfare"][n] for run in runs], paper, seconds)


def multi_task() -> None:
    head("ppo, one network for N = 2 to 5, 600000 steps")
    for kind in ("exponential", "quadratic"):
        options = {"steps": 600_000, "num_arms": (2, 5)}
        sizes = [machines(kind, n) for n in SIZES]
        jobs = [{"key": s, "problem": sizes[-1], "sizes": sizes, "options": options | {"seed": s}} for s in SEEDS]
        done = list(run_all(jobs))
        seconds = float(np.mean([run["seconds"] for run in done]))
        for n, paper in zip(SIZES, PAPER[kind, "mt"], strict=True):
            show(f"{kind} N = {n}", optimum(machines(kind, n)), [run["welfare"][n] for run in done], paper, seconds)


def scale_transfer() -> None:
    head("ppo, trained at N = 10, b = 1, 240000 steps, played at N arms, b = N / 10 (exponential)")
    large = (10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 1000)
    sizes = [machines("exponential", n, n // 10) for n in large]
    jobs = [{"key": s, "problem": sizes[0], "sizes": sizes, "options": {"seed": s}} for s in SEEDS]
    done = list(run_all(jobs))
    seconds = float(np.mean([run["seconds"] for run in done]))
    for n, size in zip(large, sizes, strict=True):
        show(
            f"N = {n}" + (" (played)" if n > 100 else ""),
            optimum(size),
            [run["welfare"][n] for run in done],
            None,
            seconds,
        )


def several_actions() -> None:
    head("ppo, three actions and two resources, N = 10, 240000 steps")
    symmetric: list[tuple[str, dict[str, Any]]] = [("crew-maintenance", {"num_arms": 10, "num_types": 1})]
    options = {"num_arms": 10, "num_states": 3, "num_actions": 3, "num_resources": 2}
    symmetric += [("random", options | {"seed": seed}) for seed in range(3)]
    for name, parameters in symmetric:
        jobs = [{"key": s, "problem": (name, parameters), "options": {"seed": s}} for s in SEEDS]
        done = list(run_all(jobs))
        seconds = float(np.mean([run["seconds"] for run in done]))
        title = name + (f", seed {parameters['seed']}" if "seed" in parameters else "")
        show(title, optimum((name, parameters)), [run["welfare"][10] for run in done], None, seconds)


def main() -> None:
    single_task("ppo")
    multi_task()
    scale_transfer()
    several_actions()
    single_task("sac")
    single_task("td3")


if __name__ == "__main__":
    main()
