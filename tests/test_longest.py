"""The list of tests that are left to the slow run names tests that there are."""

import ast
from pathlib import Path

from .conftest import longest_tests

ROOT = Path(__file__).parents[1]


def functions_of(file):
    """Names of the tests of a file, with those of their classes."""
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield from (f"{node.name}::{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef))
        elif isinstance(node, ast.FunctionDef):
            yield node.name


def test_every_line_names_a_test():
    named = {tuple(line.partition("[")[0].split("::", 1)) for line in longest_tests()}
    assert named
    there = {(file, name) for file in {file for file, _ in named} for name in functions_of(file)}
    assert named <= there, named - there
