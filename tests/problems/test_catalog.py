import subprocess
import sys

import numpy as np
import pytest

from evenhand.errors import ModelError, UnknownNameError
from evenhand.model import CoupledMDP
from evenhand.problems import CATALOG, build, find, machine_replacement, names, random_coupled

from ..conftest import mentions

EVERY_PARAMETER = [(entry.name, parameter) for entry in CATALOG for parameter in entry.parameters]


def label(value):
    return value if isinstance(value, str) else value.name


def parameter(problem, name):
    return next(parameter for parameter in find(problem).parameters if parameter.name == name)


def faults_of(name, parameters):
    with pytest.raises(ModelError) as caught:
        build(name, parameters)
    assert caught.value.source == name
    return {fault.place: fault.message for fault in caught.value.faults}


def test_names_are_in_fixed_order():
    assert names() == (
        "machine-replacement",
        "heterogeneous-machine-replacement",
        "random",
        "health-outreach",
        "crew-maintenance",
        "three-states",
        "eight-states",
        "non-sa",
        "non-indexable",
        "equitable",
        "three-machines",
        "bayesian-bandit",
    )


@pytest.mark.parametrize("name", names())
def test_every_problem_builds_with_its_defaults(name):
    problem = build(name)
    assert isinstance(problem, CoupledMDP)
    assert not problem.tables.find_faults()
    assert (problem.tables.rewards >= 0).all()
    assert (problem.tables.rewards <= 1).all()
    most = problem.counts @ problem.tables.usage.max(axis=(1, 2))
    assert (problem.budget < most).all(), "a budget that never binds is no coupling"
    assert (problem.tables.usage[problem.tables.usage > 0].min() <= problem.budget).all()


@pytest.mark.parametrize("name", names())
def test_defaults_as_text_are_the_defaults(name):
    texts = {parameter.name: str(parameter.default) for parameter in find(name).parameters}
    assert build(name, texts) == build(name)


@pytest.mark.parametrize("entry", CATALOG, ids=label)
def test_every_entry_speaks(entry):
    assert entry.summary.endswith(".")
    for each in entry.parameters:
        assert len(each.help) > 10
        assert "\n" not in each.help
        assert each.default in each.choices or not each.choices or (each.optional and each.default is None)


@pytest.mark.parametrize(("problem", "parameter"), EVERY_PARAMETER, ids=label)
def test_no_parameter_takes_nonsense(problem, parameter):
    assert set(faults_of(problem, {parameter.name: "nonsense"})) == {parameter.name}


@pytest.mark.parametrize(("problem", "parameter"), EVERY_PARAMETER, ids=label)
def test_only_optional_parameters_may_be_none(problem, parameter):
    if parameter.optional:
        assert build(problem, {parameter.name: "none"}).num_arms > 0
    else:
        assert set(faults_of(problem, {parameter.name: "none"})) == {parameter.name}


def test_parameters_come_from_the_signature():
    num_arms = parameter("machine-replacement", "num_arms")
    assert (num_arms.type, num_arms.default, num_arms.choices, num_arms.optional) == (int, 5, (), False)
    assert num_arms.help == "number of machines."
    preset = parameter("machine-replacement", "preset")
    assert (preset.type, preset.default, preset.optional) == (str, None, True)
    assert preset.choices == ("exponential-rccc", "quadratic-rccc")
    states = parameter("health-outreach", "num_states")
    assert (states.type, states.choices) == (int, (2, 3))
    assert parameter("random", "integer_usage").type is bool
    budget = parameter("random", "budget")
    assert (budget.type, budget.optional) == (float, True)


def test_help_of_several_lines_becomes_one():
    assert parameter("crew-maintenance", "parts").help.endswith("and at least what one replacement takes.")


@pytest.mark.parametrize(
    ("problem", "name", "text", "value"),
    [
        ("random", "num_arms", "7", 7),
        ("random", "num_arms", " 7 ", 7),
        ("random", "num_arms", "1_000", 1000),
        ("random", "num_arms", "1e6", 1_000_000),
        ("random", "num_arms", "7.5", "7.5"),
        ("random", "num_arms", "1e400", "1e400"),
        ("random", "seed", "123456789012345678901", 123456789012345678901),
        ("random", "budget", "2.5", 2.5),
        ("random", "budget", "None", None),
        ("random", "integer_usage", "false", False),
        ("random", "integer_usage", "Yes", True),
        ("random", "integer_usage", "0", False),
        ("random", "integer_usage", "maybe", "maybe"),
        ("random", "num_arms", 4, 4),
        ("health-outreach", "num_states", "2", 2),
        ("health-outreach", "num_states", "5", "5"),
        ("machine-replacement", "reset", "pure", "pure"),
        ("machine-replacement", "preset", "none", None),
    ],
)
def test_reading_text(problem, name, text, value):
    read = parameter(problem, name).read(text)
    assert read == value
    assert type(read) is type(value)


def test_build_is_the_factory():
    texts = {
        "num-arms": "3",
        "operating_cost": "quadratic",
        "budget": "2",
        "stay-probability": "0.6",
        "reset": "pure",
    }
    expected = machine_replacement(num_arms=3, operating_cost="quadratic", budget=2, stay_probability=0.6, reset="pure")
    assert build("machine-replacement", texts) == expected
    assert build("random", {"num_types": 2, "integer-usage": "no"}) == random_coupled(num_types=2, integer_usage=False)


def test_unknown_problem():
    with pytest.raises(UnknownNameError, check=mentions("machine-replacement")):
        build("machine-replacment", {})


def test_all_bad_parameters_at_once():
    faults = faults_of(
        "machine-replacement",
        {
            "num-arm": "3",
            "zzz": "1",
            "num_states": "three",
            "operating_cost": "exponental",
            "discount": "1.2",
        },
    )
    assert list(faults) == ["num-arm", "zzz", "operating_cost", "num_states", "discount"]
    assert mentions("num_arms")(faults["num-arm"])
    assert "known: num_arms, num_states" in faults["zzz"]
    assert mentions("three")(faults["num_states"])
    assert "did you mean exponential?" in faults["operating_cost"]
    assert mentions(0, 1)(faults["discount"])


def test_unknown_names_alone_are_faults():
    assert set(faults_of("random", {"arms": "3"})) == {"arms"}


def test_unknown_names_come_before_what_does_not_fit():
    assert set(faults_of("random", {"arms": "3", "num_states": "10_000_000"})) == {"arms"}


def test_a_parameter_given_twice():
    assert faults_of("random", {"num_arms": "3", "num-arms": "4"}) == {"num-arms": "is given twice"}


def test_import_is_light():
    heavy = "{'numba', 'matplotlib', 'torch', 'scipy', 'highspy'}"
    code = f"import sys, evenhand.problems; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_functions_are_not_hidden_by_their_modules():
    import evenhand.problems as problems

    problem = problems.machine_replacement(num_arms=5, operating_cost="exponential", budget=1)
    np.testing.assert_array_equal(problem.budget, [1])
    assert problems.health_outreach(num_arms=10).num_arms == 10
