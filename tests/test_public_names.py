"""Public names: one line each in the stub, loaded when first used, at most fifty."""

import inspect
from importlib import import_module

import pytest

import evenhand
from evenhand import _HOMES


def test_names_are_few_and_listed():
    assert evenhand.__all__ == dir(evenhand) == sorted(_HOMES)
    assert len(evenhand.__all__) <= 50


@pytest.mark.parametrize("name", sorted(_HOMES))
def test_each_name_is_that_of_its_module(name):
    home = _HOMES[name]
    expected = import_module(f"evenhand.{name}") if home == "evenhand" else getattr(import_module(home), name)
    assert getattr(evenhand, name) is expected
    assert inspect.getdoc(expected)


def test_everything_can_be_imported_at_once():
    names = {}
    exec("from evenhand import *", names)
    assert set(_HOMES) <= set(names)


def test_version_is_the_one_of_the_package():
    from importlib.metadata import version

    assert evenhand.__version__ == version("evenhand")


@pytest.mark.parametrize("name", ["nothing", "Gin", "__wrapped__", ""])
def test_unknown_names_are_attribute_errors(name):
    with pytest.raises(AttributeError, check=lambda error: name in str(error)):
        getattr(evenhand, name)
    assert not hasattr(evenhand, name)


def test_unknown_names_cannot_be_imported():
    with pytest.raises(ImportError, check=lambda error: error.name == "evenhand"):
        exec("from evenhand import nothing")
