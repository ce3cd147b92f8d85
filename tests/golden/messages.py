"""Messages of refused input: the only place where tests compare wording.

    python -m tests.golden.messages     write messages.json anew, to be read in the diff

Every other test compares the class of an error, its code, the places of its faults, and names and numbers in it.
"""

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import evenhand as eh

FILE = Path(__file__).parent / "messages.json"

MODEL = """
discount = 0.95
budget = [1]

[[arms]]
name = "machine"
states = ["good", "poor"]
actions = ["wait", "repair"]
transitions = [[[0.8, 0.2], [0.9, 0.1]], [[0.0, 1.0], [0.7, 0.27]]]
rewards = [[1.0, 0.5], [0.0, -0.5]]
usage = [[0], [1]]
"""


def machines(**parameters):
    return eh.problems.machine_replacement(**{"num_arms": 3} | parameters)


def arm(rewards=((1.0, 0.5), (0.0, 0.2)), usage=((0.0,), (1.0,))):
    return eh.Arm(np.full((2, 2, 2), 0.5), rewards, usage)


def load(text):
    """Read a model from text."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.toml"
        path.write_text(text, encoding="utf-8")
        try:
            eh.load(path)
        except eh.errors.EvenhandError as error:
            error.args = (str(error).replace(str(path), "model.toml"), *error.args[1:])
            raise


REFUSED: dict[str, Callable[[], object]] = {
    "model: rows that do not sum to 1": lambda: load(MODEL),
    "model: unknown key": lambda: load(MODEL.replace("0.27", "0.3").replace("discount", "discuont")),
    "model: no idle action": lambda: load(MODEL.replace("0.27", "0.3").replace("[[0], [1]]", "[[1], [1]]")),
    "model: invalid TOML": lambda: load("discount = = 1"),
    "model: discount": lambda: eh.CoupledMDP([arm()], [1.0], 1.5),
    "model: budget": lambda: eh.CoupledMDP([arm()], [1.0, 2.0], 0.5),
    "model: criterion": lambda: eh.CoupledMDP([arm()], [1.0], 0.5, criterion="avrage"),
    "model: negative usage": lambda: arm(usage=((0.0,), (-1.0,))),
    "model: rewards that are not finite": lambda: arm(rewards=((1.0, float("nan")), (0.0, 0.2))),
    "problem: unknown parameter value": lambda: machines(operating_cost="exponental"),
    "problem: num_arms": lambda: machines(num_arms=0),
    "welfare: unknown name": lambda: eh.solve(machines(), "gni:2"),
    "welfare: ratio": lambda: eh.solve(machines(), "gini:0.5"),
    "welfare: number of weights": lambda: eh.solve(machines(), "gini:0.5,0.5"),
    "welfare: domain": lambda: eh.solve(eh.CoupledMDP([arm(((-1.0, -2.0), (-1.0, -1.0)))], [1.0], 0.5), "nash"),
    "solve: unknown method": lambda: eh.solve(machines(), "gini:2", "count"),
    "solve: tolerance": lambda: eh.solve(machines(), "gini:2", eh.SolveMethod(tolerance=2.0)),
    "solve: method that does not apply": lambda: eh.solve(machines(), "nash", "joint-lp"),
    "solve: too many joint states": lambda: eh.solve(machines(num_arms=30), "gini:2", "joint"),
    "solve: infeasible floors": lambda: eh.solve(
        eh.CoupledMDP([arm()], [1.0], 0.5, counts=[4], floors=[0.9]), "gini:2"
    ),
    "load: missing file": lambda: eh.load("no-such-model.toml"),
    "fit: missing column": lambda: eh.fit({"van": ["a"]}, arm="van", time="week", state="state", action="action"),
}
"""Calls that are refused, by name."""


def messages() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield class, code and text of every refusal."""
    for name, call in REFUSED.items():
        try:
            call()
        except eh.errors.EvenhandError as error:
            yield name, {"class": type(error).__name__, "code": error.code, "text": str(error)}


if __name__ == "__main__":
    FILE.write_text(json.dumps(dict(messages()), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
