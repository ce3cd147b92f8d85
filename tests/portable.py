"""Run the numerically sensitive tests as other processors would: `make test-portable`.

The last bits of a sum differ with the order in which a processor adds, and with how many threads share the work. Each
setting below makes the libraries compute as they do elsewhere. What a processor lacks is left out, and said so.

    OPENBLAS_CORETYPE          the kernels of linear solves and matrix products
    NPY_DISABLE_CPU_FEATURES   NumPy's own loops: sums, logarithms, einsum
    NUMBA_CPU_NAME             what compiled loops may use
    *_NUM_THREADS              how work is shared

    python tests/portable.py [SETTING ...] [-- PYTEST OPTIONS]      settings by the start of their names; all if none
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
SENSITIVE = [
    "solvers", "policies", "planning", "kernels", "paper", "theorems", "evaluation", "contracts", "docs",
    "cli/test_compare.py", "cli/test_solve.py", "cli/test_evaluate.py", "cli/test_indices.py",
]  # fmt: skip
"""Folders and files of tests/ in which a result could hang on a last bit."""

ONE = {"OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
TWO = {"OPENBLAS_NUM_THREADS": "2", "NUMBA_NUM_THREADS": "2"}


def loops() -> str:
    """What NumPy's own loops use of this processor beyond the least that it asks for."""
    return " ".join(np.show_config(mode="dicts")["SIMD Extensions"].get("found", []))


def settings() -> dict[str, dict[str, str]]:
    """Names and the environment of each."""
    return {
        "Prescott, one thread": {"OPENBLAS_CORETYPE": "Prescott"} | ONE,
        "Haswell, one thread": {"OPENBLAS_CORETYPE": "Haswell"} | ONE,
        "Haswell, two threads": {"OPENBLAS_CORETYPE": "Haswell"} | TWO,
        "Zen, two threads": {"OPENBLAS_CORETYPE": "Zen"} | TWO,
        "SkylakeX, one thread": {"OPENBLAS_CORETYPE": "SkylakeX"} | ONE,
        "plain loops": {"NPY_DISABLE_CPU_FEATURES": loops(), "NUMBA_CPU_NAME": "generic"} | ONE,
    }


def works(environment: dict[str, str]) -> bool:
    """Whether this processor has what the setting asks for: linear algebra does not end in an illegal instruction."""
    script = "import numpy as np; a = np.eye(50) + np.ones((50, 50)); np.linalg.solve(a, a @ a)"
    return subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True).returncode == 0


def run(environment: dict[str, str], options: list[str]) -> tuple[int, str]:
    """The exit code and pytest's last line; failures are told as they come."""
    paths = [str(ROOT / "tests" / part) for part in SENSITIVE]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        "2",
        "--dist",
        "loadgroup",
        "-p",
        "no:cacheprovider",
        *paths,
        *options,
    ]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        print(done.stdout, done.stderr, sep="\n")
    return done.returncode, (done.stdout.strip().splitlines() or [""])[-1].strip("= ")


def main(arguments: list[str]) -> int:
    """The worst exit code of all settings."""
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    wanted, options = [name.lower() for name in arguments[:cut]], arguments[cut + 1 :]
    chosen = {name: env for name, env in settings().items() if not wanted or any(map(name.lower().startswith, wanted))}
    if not chosen:
        sys.exit(f"no such setting; there are: {'; '.join(settings())}")
    worst, lines = 0, []
    for name, changed in chosen.items():
        environment, begin = os.environ | changed, time.monotonic()
        code, told = run(environment, options) if works(environment) else (0, "left out: this processor lacks it")
        lines.append(f"  {name:22} {'passed' if not code else 'FAILED':8} {told}  ({time.monotonic() - begin:.0f} s)")
        print(lines[-1], flush=True)
        worst = max(worst, code)
    if worst:  # what failed was told at length in between
        print("\nin short:", *lines, sep="\n")
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
