"""Run all benchmarks, or those named on the command line."""

import importlib
import sys

NAMES = ("startup", "simulation", "exact", "counts", "whittle", "fluid", "policies", "sampling")


def main(names: list[str]) -> None:
    unknown = sorted(set(names) - set(NAMES))
    if unknown:
        sys.exit(f"unknown: {', '.join(unknown)}; there are: {', '.join(NAMES)}")
    for name in names or NAMES:
        print(f"\n== {name} ==", flush=True)
        importlib.import_module(f"benchmarks.bench_{name}").main()


if __name__ == "__main__":
    main(sys.argv[1:])
