"""What the package exports: one list, kept in four places, and they agree."""

import ast
import inspect
from importlib import import_module
from pathlib import Path

import pytest

import evenhand
from evenhand import _HOMES

from .conftest import mentions

PUBLIC = sorted([*_HOMES, "__version__"])


def seen_by_type_checkers():
    """Each name that the TYPE_CHECKING block imports, with the module it is from as _HOMES writes it."""
    tree = ast.parse(Path(inspect.getfile(evenhand)).read_text())
    blocks = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    (block,) = blocks
    assert all(isinstance(line, ast.ImportFrom) for line in block.body)
    return {
        alias.asname or alias.name: line.module.removeprefix("evenhand").removeprefix(".")
        for line in block.body
        for alias in line.names
    }


def test_all_is_what_is_exported():
    assert sorted(evenhand.__all__) == PUBLIC


def test_nothing_is_listed_twice():
    assert len(set(evenhand.__all__)) == len(evenhand.__all__)


def test_dir_is_what_is_exported():
    assert dir(evenhand) == PUBLIC


def test_type_checkers_see_the_same_names_from_the_same_modules():
    assert seen_by_type_checkers() == _HOMES


@pytest.mark.parametrize("name", sorted(_HOMES))
def test_each_name_resolves_to_what_its_home_has(name):
    home = _HOMES[name]
    expected = getattr(import_module(f"evenhand.{home}"), name) if home else import_module(f"evenhand.{name}")
    assert getattr(evenhand, name) is expected


@pytest.mark.parametrize("name", sorted(name for name, home in _HOMES.items() if home))
def test_each_name_speaks(name):
    assert inspect.getdoc(getattr(evenhand, name))


def test_everything_can_be_imported_at_once():
    names = {}
    exec("from evenhand import *", names)
    assert set(PUBLIC) <= set(names)


def test_version_is_the_one_of_the_package():
    from importlib.metadata import version

    assert evenhand.__version__ == version("evenhand")


@pytest.mark.parametrize("name", ["nothing", "Gin", "__wrapped__", ""])
def test_unknown_names_are_attribute_errors(name):
    with pytest.raises(AttributeError, check=mentions("evenhand", name)):
        getattr(evenhand, name)
    assert not hasattr(evenhand, name)


def test_unknown_names_cannot_be_imported():
    with pytest.raises(ImportError, check=mentions("nothing")):
        exec("from evenhand import nothing")
