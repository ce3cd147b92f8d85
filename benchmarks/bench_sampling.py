"""How long one allocation drawn by priorities takes: the paper's Algorithm 1 draw by draw, and the same law by blocks.

    python -m benchmarks sampling

Both are compiled, run on one thread, and read the same counters. The first makes one draw an arm, with the forbidden
set of the paper; the second is `evenhand.kernels.priority_sampling`. Microseconds are for one allocation of one copy,
the best of a few runs, compilation left out.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from benchmarks.timing import best_of, plot_growth
from evenhand.kernels.greedy_service import bits_at, uniform_at
from evenhand.kernels.priority_sampling import sample_one
from evenhand.typing import Floats, Ints

NUMBERS = (10, 10**2, 10**4, 10**6)
SHAPES = ((3, 2, 1), (4, 3, 2), (10, 2, 1))
"""States, actions, resources."""

DRAWS = 10**6
"""Arms that a timed run draws one by one, in all its allocations together."""

Instance = tuple[Floats, Ints, Floats, Floats]


@njit(error_model="numpy")
def sum_allowed(priorities, forbidden, sums):  # type: ignore[no-untyped-def]
    """Write the running sums of what is not forbidden; the whole sum."""
    total = 0.0
    for s in range(priorities.shape[0]):
        for a in range(priorities.shape[1]):
            if not forbidden[s, a]:
                total += priorities[s, a]
            sums[s, a] = total
    return total


@njit(error_model="numpy")
def find(sums, point):  # type: ignore[no-untyped-def]
    """The cell in which a point lies."""
    for s in range(sums.shape[0]):
        for a in range(sums.shape[1]):
            if point < sums[s, a]:
                return s, a
    return find(sums, np.nextafter(point, 0.0))  # rounded up to the whole sum


@njit(error_model="numpy")
def sample_in_order(priorities, counts, spend, usage, stream, out):  # type: ignore[no-untyped-def]
    """Algorithm 1, one draw after the other; sums of priorities are made anew only when the forbidden set grows."""
    forbidden = np.zeros(priorities.shape, dtype=np.bool_)
    sums, arms, left = np.empty(priorities.shape), counts.copy(), spend.copy()
    out[:] = 0
    for s in range(len(counts)):
        forbidden[s] = arms[s] == 0
    total = sum_allowed(priorities, forbidden, sums)
    place = np.uint64(0)
    while total > 0.0:
        state, action = find(sums, uniform_at(stream, place) * total)
        place += np.uint64(1)
        fits = True
        for k in range(len(left)):
            fits = fits and usage[state, action, k] <= left[k]
        if fits:
            out[state, action] += 1
            arms[state] -= 1
            for k in range(len(left)):
                left[k] -= usage[state, action, k]
            if arms[state] == 0:
                forbidden[state] = True
                total = sum_allowed(priorities, forbidden, sums)
        else:
            forbidden[state, action] = True
            total = sum_allowed(priorities, forbidden, sums)


@njit
def repeat_in_order(repeats, priorities, counts, spend, usage, out):  # type: ignore[no-untyped-def]
    for i in range(repeats):
        sample_in_order(priorities, counts, spend, usage, bits_at(np.uint64(1), np.uint64(i)), out)
    return out


@njit
def repeat_in_blocks(repeats, priorities, counts, spend, usage, out):  # type: ignore[no-untyped-def]
    for i in range(repeats):
        sample_one(priorities, counts, spend, usage, bits_at(np.uint64(1), np.uint64(i)), out)
    return out


def random_instance(num_arms: int, num_states: int, num_actions: int, num_resources: int) -> Instance:
    """Random priorities, usages of 1/2 to 2, arms spread evenly, and a tenth of an amount for each arm."""
    rng = np.random.default_rng(0)
    usage = rng.integers(1, 5, (num_states, num_actions, num_resources)) / 2
    usage[:, 0] = 0
    counts = num_arms // num_states + (np.arange(num_states) < num_arms % num_states)
    return 1 - rng.random((num_states, num_actions)), counts, np.full(num_resources, num_arms / 10), usage


def microseconds(repeat: Callable[..., Any], repeats: int, instance: Instance) -> float:
    """What one allocation takes."""
    out = np.zeros(instance[0].shape, dtype=np.int64)
    repeat(1, *instance, out)
    return 1e6 * best_of(5, lambda: repeat(repeats, *instance, out)) / repeats


def main() -> None:
    print(f"{'S':>3} {'A':>3} {'K':>3} {'N':>8} {'draw by draw, us':>17} {'by blocks, us':>14} {'ratio':>8}")
    curves: dict[str, list[tuple[int, float]]] = {}
    for shape in SHAPES:
        for number in NUMBERS:
            instance = random_instance(number, *shape)
            slow = microseconds(repeat_in_order, max(1, DRAWS // number), instance)
            fast = microseconds(repeat_in_blocks, max(1000, DRAWS // number), instance)
            sizes = " ".join(f"{size:>3}" for size in shape)
            print(f"{sizes} {number:>8} {slow:>17.2f} {fast:>14.2f} {slow / fast:>8.1f}", flush=True)
            curves.setdefault(f"draw by draw, S = {shape[0]}, A = {shape[1]}", []).append((number, slow / 1e6))
            curves.setdefault(f"by blocks, S = {shape[0]}, A = {shape[1]}", []).append((number, fast / 1e6))
    times = [points[-1][1] * 1e6 for label, points in curves.items() if label.startswith("by blocks")]
    print(f"one allocation of {NUMBERS[-1]} arms by blocks takes at most {max(times):.2f} us")
    print("growth is drawn in", plot_growth(curves, "sampling-growth", "one allocation drawn by priorities"))


if __name__ == "__main__":
    main()
