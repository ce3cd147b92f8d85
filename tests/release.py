"""The built distributions, installed outside of the repository as a user would.

    python tests/release.py

builds the wheel and the sdist, checks their contents and metadata, installs the wheel in new environments on every
supported Python of this machine, without extras and with each, and runs a command and a few lines of Python in a
folder of its own. Further runs install the sdist, and the lowest versions of pyproject.toml with a selection of tests.
What cannot be tried is named, with its reason. It ends with 1 if anything failed.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from functools import partial
from pathlib import Path

from floors import floors

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.11", "3.12", "3.13")

SOLVE = """
import evenhand as eh
problem = eh.problems.machine_replacement(num_arms=3)
assert eh.solve(problem).gap < 1e-6
assert len(eh.compare(problem, ["optimal", "myopic"]).rows) == 2
"""
RECORDS = """
import evenhand as eh, random, polars
random.seed(0)
pick = random.choice
rows = [(arm, t, pick(["good", "worn"]), pick(["wait", "fix"])) for arm in "abcdef" for t in range(30)]
table = polars.DataFrame(rows, schema=["arm", "time", "state", "action"], orient="row")
table.write_csv("log.csv")
table.write_parquet("log.parquet")
columns = {name: name for name in ("arm", "time", "state", "action")}
assert eh.fit("log.parquet", **columns).log_likelihood == eh.fit("log.csv", **columns).log_likelihood
"""
SERVE = """
import json, subprocess, sys, time, urllib.request
server = subprocess.Popen([sys.executable, "-m", "evenhand", "serve", "demo", "--port", "18437"])
try:
    for attempt in range(240):
        try:
            assert urllib.request.urlopen("http://127.0.0.1:18437/healthz", timeout=5).status == 200
            break
        except OSError:
            assert server.poll() is None and attempt < 239
            time.sleep(0.5)
finally:
    server.terminate()
    server.wait(300)
"""
TRAIN = """
import evenhand as eh
training = eh.train(eh.problems.machine_replacement(num_arms=3), steps=256)
assert training.policy is not None
"""
MODEL = ["machine-replacement", "-p", "num_arms=3"]

TRIALS = {
    "": (SOLVE, [["compare", *MODEL, "--policies", "optimal,random", "--report", "report.html"]]),
    "data": (
        RECORDS,
        [
            [
                "fit",
                "log.csv",
                *[
                    "--arm",
                    "arm",
                    "--time",
                    "time",
                    "--state",
                    "state",
                    "--action",
                    "action",
                    "--idle",
                    "wait",
                    "--out",
                    "model.toml",
                ],
            ]
        ],
    ),
    "service": (SERVE, [["programme", "--help"]]),
    "cluster": ("import ray", [["compare", *MODEL, "--policies", "optimal,random", "--backend", "ray"]]),
    "rl": (TRAIN, [["train", *MODEL, "--steps", "256", "--out", "policy.zip"]]),
}
"""Python and commands per extra; without an extra first."""

SELECTION = ["tests/model", "tests/policies", "tests/theorems", "tests/report"]
"""Tests that run with the lowest versions."""

SHIPPED = (
    "planning/shipped/exponential-rccc.zip", "planning/shipped/quadratic-rccc.zip", "report/templates/page.html",
    "programme/web/templates/today.html", "programme/web/static/page.js", "__init__.pyi", "py.typed",
)  # fmt: skip
JUNK = re.compile(r"__pycache__|\.py[co]$|\.nb[ic]$|/\.|(^|/)(paper|benchmarks)/")


class Check:
    """A folder for environments, and what was found."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.failed = folder, 0
        names = {"PYTHONPATH", "VIRTUAL_ENV", "PIP_CONSTRAINT", "PYTHONDONTWRITEBYTECODE"}
        self.environment = {name: value for name, value in os.environ.items() if name not in names}
        self.environment |= {"NUMBA_CACHE_DIR": str(folder / "numba"), "OPENBLAS_NUM_THREADS": "1"}

    def run(self, *command: object, where: Path | None = None) -> str:
        """Return the output; raise with the end of what it said."""
        line = [str(part) for part in command]
        done = subprocess.run(
            line,
            cwd=where or self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(
                f"{' '.join(line)[:200]} ended with {done.returncode}\n{(done.stdout + done.stderr)[-2000:]}"
            )
        return done.stdout

    def step(self, name: str, work) -> None:
        """Run one part, and print a line."""
        begun = time.perf_counter()
        try:
            said = work() or "ok"
        except (RuntimeError, AssertionError, OSError, subprocess.TimeoutExpired) as error:
            self.failed, said = self.failed + 1, f"FAILED: {error}"
        print(f"{name:32} {time.perf_counter() - begun:6.1f} s  {said}", flush=True)

    def make(self, python: str, *what: object) -> Path:
        """Return a new environment, of Python `python`, with these requirements and no file of constraints."""
        home = Path(tempfile.mkdtemp(dir=self.folder))
        self.run(python, "-m", "venv", home)
        self.run(home / "bin/python", "-m", "pip", "install", "-q", "--no-cache-dir", *what)
        return home


def python_of(version: str) -> str | None:
    """Return the interpreter of a version, from the path or from pyenv."""
    pyenv = sorted((Path.home() / ".pyenv/versions").glob(f"{version}.*/bin/python"))
    for found in (*map(str, pyenv), shutil.which(f"python{version}")):
        if (
            found
            and not subprocess.run([found, "-c", "import venv, ensurepip"], capture_output=True, check=False).returncode
        ):
            return found
    return None


def check_contents(wheel: Path, sdist: Path) -> str:
    """Check that the wheel has what is shipped, and that neither has junk."""
    names = zipfile.ZipFile(wheel).namelist()
    missing = [name for name in SHIPPED if f"evenhand/{name}" not in names]
    assert not missing, f"not in the wheel: {missing}"
    assert any(name.endswith("licenses/LICENSE") for name in names), "no licence file in the wheel"
    with tarfile.open(sdist) as archive:
        sources = archive.getnames()
    junk = [name for name in (*names, *(name.partition("/")[2] for name in sources)) if JUNK.search("/" + name)]
    junk = [name for name in junk if name != ".gitignore"]
    assert not junk, f"junk: {junk[:5]}"
    return f"wheel {wheel.stat().st_size // 1024} KB, sdist {sdist.stat().st_size // 1024} KB"


def brings_gpu(check: Check, home: Path, wheel: Path) -> bool:
    """Return whether pip would install packages for a GPU, of several gigabytes."""
    said = check.run(home / "bin/python", "-m", "pip", "install", "--dry-run", "--no-cache-dir", f"{wheel}[rl]")
    return "nvidia-" in said


def try_extra(check: Check, python: str | None, wheel: Path, extra: str) -> str:
    """Install with an extra, run its command and its Python outside of the repository, and remove all."""
    if python is None:
        return "skipped: this Python is not installed here"
    home = check.make(python, wheel if extra == "rl" else f"{wheel}[{extra}]" if extra else wheel)
    try:
        if extra == "rl":
            if brings_gpu(check, home, wheel):
                return "skipped: pip would install packages for a GPU; install a CPU build of torch first"
            check.run(home / "bin/python", "-m", "pip", "install", "-q", "--no-cache-dir", f"{wheel}[rl]")
        work = home / "work"
        work.mkdir()
        snippet, commands = TRIALS[extra]
        check.run(home / "bin/python", "-c", snippet, where=work)
        for command in commands:
            check.run(home / "bin/evenhand", *command, where=work)
        return ""
    finally:
        shutil.rmtree(home)


def try_lowest(check: Check, python: str, wheel: Path) -> str:
    """Install the lowest versions, and run a selection of the tests against the wheel."""
    beside = ("pytest", "pytest-xdist", "hypothesis", "httpx", "pandas", "cvxpy")
    home = check.make(python, *floors(["data", "service"]), wheel, *beside)
    work = home / "work"
    shutil.copytree(ROOT / "tests", work / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", work)
    try:
        said = check.run(home / "bin/python", "-m", "pytest", "-n", "2", "--dist", "loadgroup", *SELECTION, where=work)
        return said.strip().splitlines()[-1]
    finally:
        shutil.rmtree(home)


def main() -> int:
    parser = argparse.ArgumentParser(description="Build, install and try the distributions.")
    parser.add_argument("parts", nargs="*", help="build, sdist, lowest, 3.11, 3.12-rl, ...; by default all")
    parts = parser.parse_args().parts
    wanted = lambda name: not parts or name in parts  # noqa: E731
    with tempfile.TemporaryDirectory(prefix="evenhand-release-") as folder:
        check, dist = Check(Path(folder)), ROOT / "dist"
        shutil.rmtree(dist, ignore_errors=True)
        tools = check.make(sys.executable, "build", "twine")
        check.step("build", lambda: check.run(tools / "bin/python", "-m", "build", "-o", dist, ROOT) and "")
        if check.failed:
            return 1
        (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
        check.step("contents", lambda: check_contents(wheel, sdist))
        check.step("metadata", lambda: check.run(tools / "bin/twine", "check", "--strict", wheel, sdist) and "")
        for version in PYTHONS:
            python = python_of(version)
            for extra in TRIALS:
                name = f"{version}-{extra}" if extra else version
                if wanted(name):
                    check.step(
                        f"Python {version}, {extra or 'no extra'}", partial(try_extra, check, python, wheel, extra)
                    )
        first = python_of("3.11") or sys.executable
        if wanted("sdist"):
            check.step("sdist", lambda: try_extra(check, first, sdist, ""))
        if wanted("lowest"):
            check.step("lowest versions, Python 3.11", lambda: try_lowest(check, first, wheel))
    return int(check.failed > 0)


if __name__ == "__main__":
    sys.exit(main())
