"""What is loaded when: nothing heavy by an import, and next to nothing by --help."""

import json
import subprocess
import sys

import pytest

HEAVY = {
    "torch", "numba", "llvmlite", "matplotlib", "gymnasium", "stable_baselines3", "fastapi", "flask", "starlette",
    "highspy", "cvxpy", "quantecon", "jinja2", "markupsafe",
}  # fmt: skip

NUMERIC = {"numpy", "scipy"}

REPORT = "\nimport json, sys\nprint(json.dumps(sorted(sys.modules)), file=sys.stderr)"


def loaded_by(code):
    """(packages, modules) that a fresh interpreter has loaded after the code."""
    done = subprocess.run([sys.executable, "-c", code + REPORT], capture_output=True, text=True, check=True)
    modules = set(json.loads(done.stderr.splitlines()[-1]))
    return {module.partition(".")[0] for module in modules}, modules


def test_importing_the_package_loads_next_to_nothing():
    packages, modules = loaded_by("import evenhand")
    assert not packages & (HEAVY | NUMERIC)
    assert {module for module in modules if module.startswith("evenhand")} == {"evenhand"}


def test_using_every_name_loads_nothing_heavy():
    packages, modules = loaded_by("from evenhand import *")
    assert "evenhand.model.welfare" in modules
    assert not packages & HEAVY


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], ["compare", "--help"], ["train", "--help"], ["evaluate", "-h"], []],
    ids=str,
)
def test_help_loads_no_numerics(arguments):
    packages, _ = loaded_by(f"from evenhand.cli.main import run\nrun({arguments!r})")
    assert "click" in packages
    assert not packages & (HEAVY | NUMERIC | {"rich"})


def test_a_refusal_loads_nothing_heavy():
    packages, _ = loaded_by("from evenhand.cli.main import run\nassert run(['problems', 'nonsense', '--json']) == 2")
    assert not packages & HEAVY


@pytest.mark.parametrize(
    "arguments",
    [
        *([name, "nonsense"] for name in ("solve", "compare", "indices", "train")),
        ["evaluate", "machine-replacment", "random"],
        ["compare", "machine-replacement", "--policies", "oldst-first"],
        ["solve", "machine-replacement", "-p", "num_arm=3", "--json"],
    ],
    ids=" ".join,
)
def test_a_refused_model_or_name_does_not_wait_for_what_solves(arguments):
    packages, modules = loaded_by(f"from evenhand.cli.main import run\nassert run({arguments!r}) == 2")
    assert not packages & (HEAVY | {"scipy"})
    assert not {"evenhand.planning.solve", "evenhand.evaluation.evaluate", "evenhand.learning.training"} & modules


@pytest.mark.parametrize("arguments", [["compare", "--json"], ["solve", "x", "--jsn"]], ids=" ".join)
def test_wrong_usage_loads_no_numerics(arguments):
    packages, _ = loaded_by(f"from evenhand.cli.main import run\nassert run({arguments!r}) == 2")
    assert not packages & (HEAVY | NUMERIC | {"rich"})


@pytest.mark.parametrize(
    ("arguments", "absent"),
    [
        (["programme", "status", "x.db"], "sqlalchemy"),
        (["serve", "x.db"], "sqlalchemy"),
        (["serve", "demo"], "uvicorn"),
        (["serve", "x.db"], "python_multipart"),
    ],
    ids=lambda given: given if isinstance(given, str) else " ".join(given),
)
def test_without_its_extra_a_command_says_what_to_install(arguments, absent):
    code = (
        f"import sys\nsys.modules[{absent!r}] = None\nfrom evenhand.cli.main import run\nsys.exit(run({arguments!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, "one line, and no traceback"
    assert "the extra service" in done.stderr and "pip install 'fastapi" in done.stderr
