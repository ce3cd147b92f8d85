"""Run all benchmarks, or those named on the command line."""

import importlib
import sys

NAMES = (
    "startup",
    "fit",
    "simulation",
    "exact",
    "counts",
    "typed",
    "whittle",
    "fluid",
    "bounds",
    "information",
    "mixtures",
    "policies",
    "sampling",
    "service",
)

LEARNING = ("rl_speed", "sampling", "rl_random", "rl_scores")
"""What `make bench-rl` runs."""

OTHERS = ("rl_choice",)
"""Longer ones, run by name only."""


def main(names: list[str]) -> None:
    if names == ["rl"]:
        names = list(LEARNING)
    known = tuple(dict.fromkeys((*NAMES, *LEARNING, *OTHERS)))
    unknown = sorted(set(names) - set(known))
    if unknown:
        sys.exit(f"unknown: {', '.join(unknown)}; there are: rl (all of {', '.join(LEARNING)}), {', '.join(known)}")
    for name in names or NAMES:
        print(f"\n== {name} ==", flush=True)
        importlib.import_module(f"benchmarks.bench_{name}").main()


if __name__ == "__main__":
    main(sys.argv[1:])
