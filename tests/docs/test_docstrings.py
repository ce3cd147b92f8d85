"""What `help` says: every public class and field is described, every public name has an example, and examples run."""

import ast
import doctest
import inspect
import textwrap
from dataclasses import fields, is_dataclass

import numpy as np
import pytest

import evenhand as eh
from evenhand import learning
from evenhand.evaluation import lorenz_curve
from evenhand.planning import Comparison

ROOMS = {"eh": eh, "eh.problems": eh.problems, "eh.policies": eh.policies, "learning": learning}
LONG = {"eh.train"}
"""Examples that train: run by `make test-slow`."""

FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def public(kind):
    """Everything that a user may call by name, of one kind, under its name."""
    found = {}
    for room, module in ROOMS.items():
        for name in module.__all__:
            thing = getattr(module, name)
            if kind(thing) and getattr(thing, "__module__", "").startswith("evenhand"):
                found.setdefault(f"{room}.{name}", thing)
    return {
        name: thing for name, thing in found.items() if list(found.values()).index(thing) == list(found).index(name)
    }


FUNCTIONS, CLASSES = public(inspect.isfunction), public(inspect.isclass)
EVERYTHING = FUNCTIONS | CLASSES
NAMED = {f"eh.{name}": getattr(eh, name) for name in eh.__all__ if name != "__version__"} | FUNCTIONS
"""Public names, the namespaces among them, and functions of the namespaces: all have an example."""
WITH_EXAMPLES = {name: thing for name, thing in (EVERYTHING | NAMED).items() if ">>>" in (inspect.getdoc(thing) or "")}


@pytest.mark.parametrize("name", NAMED)
def test_every_name_has_an_example(name):
    assert ">>>" in inspect.getdoc(NAMED[name])


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in LONG else ()) for name in WITH_EXAMPLES]
)
def test_examples_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    test = doctest.DocTestParser().get_doctest(inspect.getdoc(WITH_EXAMPLES[name]), {"np": np}, name, name, 0)
    out = []
    doctest.DocTestRunner(optionflags=FLAGS).run(test, out=out.append)
    assert not out, "".join(out)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_argument_is_described(name):
    described = inspect.getdoc(FUNCTIONS[name])
    missing = [p for p in inspect.signature(FUNCTIONS[name]).parameters if f"\n    {p}: " not in described]
    assert not missing


def undescribed_fields(thing):
    """The annotated fields of a class without a sentence below them."""
    body = ast.parse(textwrap.dedent(inspect.getsource(thing))).body[0].body
    fields = [
        (node.target.id, after)
        for node, after in zip(body, [*body[1:], None], strict=True)
        if isinstance(node, ast.AnnAssign) and not node.target.id.startswith("_")
    ]
    return [
        name
        for name, after in fields
        if not (
            isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str)
        )
    ]


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_and_field_is_described(name):
    thing = CLASSES[name]
    assert not (thing.__doc__ or f"{thing.__name__}(").startswith(f"{thing.__name__}("), "only what dataclass wrote"
    if is_dataclass(thing) and not any("help" in field.metadata for field in thing.__dataclass_fields__.values()):
        assert undescribed_fields(thing) == []


@pytest.mark.parametrize(
    "thing", [eh.Arm, eh.CoupledMDP, eh.Solution, eh.Evaluation, Comparison, learning.Training, eh.Plan]
)
def test_help_shows_fields(thing):
    told = inspect.getdoc(thing)
    assert told.startswith(
        textwrap.dedent(ast.get_docstring(ast.parse(inspect.getsource(thing)).body[0])).splitlines()[0]
    )
    assert not [each.name for each in fields(thing) if f"\n    {each.name}: " not in told]


@pytest.mark.parametrize("name", CLASSES)
def test_every_method_is_described(name):
    for method, value in vars(CLASSES[name]).items():
        if not method.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
            assert inspect.getdoc(value), method


@pytest.mark.parametrize("name", EVERYTHING)
def test_signatures_can_be_read(name):
    if EVERYTHING[name] in (eh.Policy, eh.Welfare):
        return
    text = str(inspect.signature(EVERYTHING[name]))
    assert "ndarray" not in text and "_SupportsArray" not in text and "dtype" not in text


def test_arrays_go_by_their_names():
    told = str(inspect.signature(lorenz_curve))
    assert told == "(values: ArrayLike, counts: Optional[ArrayLike] = None) -> tuple[Floats, Floats]"
    assert "rng: Rng = 0" in str(inspect.signature(eh.simulate))
