"""How failures are told: `error: ...` on standard error, and with --json one object on standard output, too."""

import pytest

from evenhand.cli import application
from evenhand.errors import InvalidInputError, TooLargeError

from ..conftest import mentions


@pytest.mark.parametrize("name", application.list_commands(None))
def test_a_wrong_option_of_every_command_is_reported_as_json(name, evenhand):
    told = evenhand(name, "--jsonn", "--json").failure
    assert told["exit_code"] == 2
    assert [fault["place"] for fault in told["faults"]] == ["--jsonn"]
    assert told["usage"].startswith(f"evenhand {name} ")


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        (["compare"], "MODEL"),
        (["evaluate", "machine-replacement"], "POLICY"),
        (["compare", "machine-replacement", "--episodes", "many"], "--episodes"),
        (["compare", "machine-replacement", "--seed"], "--seed"),
        (["compre"], ""),
        ([], "--json"),
        (["solve", "machine-replacement", "-p", "num_arms"], "-p"),
        (["solve", "machine-replacement", "--out", ""], "--out"),
        (["solve", ""], "MODEL"),
        (["solve", "machine-replacement", "--budget", "1,2"], "--budget"),
        (["solve", "machine-replacement", "--welfare", "ginny"], "--welfare"),
        (["solve", "machine-replacement", "--criterion", "avarage"], "--criterion"),
    ],
    ids=str,
)
def test_wrong_usage_as_json_names_what_it_is_about(arguments, place, evenhand):
    told = evenhand(*arguments, "--json")
    (fault,) = told.failure["faults"]
    assert fault["place"] == place
    assert fault["message"] in told.err


def test_every_fault_is_in_the_json_with_its_place(evenhand):
    told = evenhand("solve", "machine-replacement", "-p", "num_arm=4", "-p", "budget=lots", "--json").failure
    assert told["error"] == "machine-replacement: 2 faults"
    assert [fault["place"] for fault in told["faults"]] == ["num_arm", "budget"]
    assert mentions("num_arms")(told["faults"][0]["message"])
    assert "usage" not in told


def test_every_unknown_policy_is_a_fault_of_its_own(evenhand):
    told = evenhand("compare", "machine-replacement", "--policies", "radnom,random,oldst-first", "--json").failure
    assert told["error"] == "--policies: 2 faults"
    assert ["radnom" in told["faults"][0]["message"], "oldst" in told["faults"][1]["message"]] == [True, True]


@pytest.mark.parametrize(
    ("error", "code", "kind"),
    [
        (TooLargeError("too large"), 1, "too-large"),
        (InvalidInputError("no"), 2, "invalid-input"),
        (InvalidInputError("no", code="narrow"), 2, "narrow"),
        (MemoryError(), 1, "out-of-memory"),
    ],
)
def test_failures_are_printed_as_json_with_their_code(error, code, kind, evenhand, monkeypatch):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("evenhand.planning.solve.solve", fail)
    told = evenhand("solve", "machine-replacement", "--json")
    assert told.failure == {
        "error": str(error) or "MemoryError",
        "code": kind,
        "faults": [{"place": "", "message": str(error) or "MemoryError", "code": kind}],
        "exit_code": code,
    }
    assert evenhand("solve", "machine-replacement").out == ""


@pytest.mark.parametrize("arguments", [["compre"], ["compare"], ["compare", "nonsense"], ["solve", "x", "-z"]], ids=str)
def test_there_is_one_spelling(arguments, evenhand):
    told = evenhand(*arguments).refusal
    assert told.startswith("error: ")
    assert "Error:" not in told
    assert "Usage:" not in told


def test_wrong_usage_shows_how_it_is_called_and_where_the_help_is(evenhand):
    assert evenhand("compare").err.splitlines() == [
        "error: Missing argument 'MODEL'.",
        "usage: evenhand compare [OPTIONS] MODEL",
        "Try 'evenhand compare --help' for help.",
    ]
