"""Training runs side by side, two at a time."""

import os
from collections.abc import Iterable, Iterator
from multiprocessing import get_context
from typing import Any

import evenhand as eh

SEEDS = range(5)


def problem_of(name: str, parameters: dict[str, Any]) -> eh.CoupledMDP:
    """A built-in problem."""
    return eh.problems.build(name, parameters)


def train_once(job: dict[str, Any]) -> dict[str, Any]:
    """Train, and evaluate at every size that is asked for; the welfare of the greedy policy, exactly where possible."""
    from evenhand.policies.network import CountNetworkPolicy

    problem = problem_of(*job["problem"])
    training = eh.train(problem, **job["options"])
    welfare = {}
    for name, parameters in job.get("sizes", [job["problem"]]):
        size = problem_of(name, parameters)
        policy = CountNetworkPolicy(size, training.policy.network)
        found = eh.evaluate(size, policy, num_episodes=500, horizon=300, rng=0)
        welfare[size.num_arms] = found.welfare
    return {"key": job["key"], "welfare": welfare, "seconds": training.seconds, "steps": training.steps}


def run_all(jobs: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Results in the order of the jobs."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[name] = "1"
    with get_context("spawn").Pool(min(2, os.cpu_count() or 1)) as pool:
        yield from pool.imap(train_once, list(jobs))
