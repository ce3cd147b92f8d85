"""A programme to look at: two years of the lifts of a town, made up, and the same for the same seed.

Fifty lifts or so stand in three districts. Every ten days the conditions that are known are reported, a plan is made
for the technicians and the parts that there are, it is accepted, now and then with an override and a reason,
and what was done is recorded. Reports are missing, come late or are corrected; lifts are torn down and built. The lifts
at the harbour wear faster than the model says: salt. An audit finds that out.

All of it goes through the methods of `Programme`, as if people had done it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.checks import as_seed
from evenhand.model import Arm, CoupledMDP
from evenhand.programme.decisions import PlanRow
from evenhand.programme.programme import Programme
from evenhand.typing import Floats, Progress

STATES = ("smooth", "noisy", "faulty", "stopped")
ACTIONS = ("run", "service", "repair")
DISTRICTS = {"harbour": (14, 8), "hill": (10, 6), "orchard": (5, 5)}
"""Old and new lifts of each district at first."""

WEAR = {"old lift": 0.16, "new lift": 0.07}
"""Probability of wear per step, by type."""

ARRIVALS = {20: ("hill 17", "hill"), 33: ("orchard 11", "orchard"), 50: ("harbour 23", "harbour"),
            51: ("hill 18", "hill")}  # fmt: skip
DEPARTURES = {28: ("harbour 05", "the house is torn down"), 61: ("hill 03", "sold to a private owner")}
"""Lifts that are built, with their districts, and torn down, with the reason, by step."""

WORDS = {"arm": "lift", "group": "district", "step": "round", "value": "rounds of smooth service",
         "resources": {"technicians": "technician", "parts": "part"}}  # fmt: skip

REASONS = (
    ("district office", "a resident in a wheelchair lives on the top floor"),
    ("dispatcher", "the key to the machine room is there only today"),
    ("dispatcher", "the technician is already in the next house"),
    ("district office", "the school is next door, and the holidays end"),
    ("night desk", "the caretaker called twice"),
    ("night desk", "firemen had to free a passenger here last week"),
)


def make_demo(address: str | Path, seed: int = 0, progress: Progress | None = None, steps: int = 72) -> Programme:
    """Make up a programme of two years.

    Args:
        address: the name of a new file, or `postgresql://...` of an empty database.
        seed: the same gives the same programme, but for the times at which it was written.
        progress: called with phase and share completed.
        steps: number of steps, of ten days each.

    Raises:
        InvalidInputError: there is something at the address.
    """
    rng = np.random.default_rng(as_seed(seed))
    roster = []
    for district, (old, new) in DISTRICTS.items():
        for number in range(old + new):
            state = "smooth" if rng.random() < 0.6 else STATES[int(rng.integers(3))]
            roster.append(
                _lift(f"{district} {number + 1:02}", district, "old lift" if number < old else "new lift", state)
            )
    programme = Programme.create(address, lifts(), roster, welfare="gini:2", name="Lifts of a town", seed=seed,
                                 words=WORDS, who="planning office")  # fmt: skip
    # A policy of the first round is good to a percent; the time is over before the first look at the clock, so that
    # the search is the same everywhere.
    programme.solve(seconds=1e-3, who="planning office")
    town = _Town(programme, roster, rng)
    for step in range(steps):
        town.live(step)
        if progress is not None:
            progress("two years of made-up lifts", (step + 1) / steps)
    town.look_around(steps)
    programme.plan(who="planning office")
    return programme


def lifts() -> CoupledMDP:
    """Old and new lifts in three districts; technicians and parts are short."""
    kinds = [(kind, district) for kind in WEAR for district in DISTRICTS]
    return CoupledMDP(
        [_model(kind) for kind, _ in kinds],
        budget=np.array([7.0, 2.0]),
        discount=0.9,
        counts=np.array([DISTRICTS[district][kind == "new lift"] for kind, district in kinds]),
        resources=["technicians", "parts"],
        groups=[district for _, district in kinds],
        over="groups",
    )


def _model(kind: str) -> Arm:
    return Arm(
        transitions=np.stack([_moves(WEAR[kind], action) for action in ACTIONS], axis=1),
        rewards=np.array([[1.0, 0.97, 0.9], [0.85, 0.82, 0.75], [0.5, 0.45, 0.4], [0.0, 0.0, 0.0]]),
        usage=np.array([[0.0, 0.0], [1.0, 0.0], [2.0, 1.0]]),
        initial=np.array([0.7, 0.2, 0.08, 0.02]),
        name=kind,
        states=STATES,
        actions=ACTIONS,
    )


def _moves(wear: float, action: str) -> Floats:
    """(state, next_state) of an action."""
    if action == "run":
        ahead = (wear, 1.2 * wear, 1.5 * wear)
        found = np.diag([*(1 - p for p in ahead), 1.0])
        found[range(3), range(1, 4)] = ahead
        return found
    if action == "service":
        return np.array([[0.97, 0.03, 0.0, 0.0], [0.75, 0.25, 0.0, 0.0], [0.1, 0.45, 0.4, 0.05], [0, 0, 0.1, 0.9]])
    return np.array([[1.0, 0.0, 0.0, 0.0], [0.95, 0.05, 0.0, 0.0], [0.85, 0.12, 0.03, 0.0], [0.8, 0.12, 0.05, 0.03]])


def _lift(name: str, district: str, kind: str, state: str) -> dict[str, Any]:
    return {"arm": name, "type": kind, "group": district, "state": state}


class _Town:
    """The lifts as they really are, and people who tell of them."""

    def __init__(self, programme: Programme, roster: Sequence[dict[str, Any]], rng: np.random.Generator) -> None:
        self.programme, self.rng = programme, rng
        self.lift = {row["arm"]: row for row in roster}
        self.state = {row["arm"]: STATES.index(row["state"]) for row in roster}
        self.moves = {  # salt
            (kind, district, action): _moves(wear * (2.2 if district == "harbour" else 1.0), action)
            for kind, wear in WEAR.items()
            for district in DISTRICTS
            for action in ACTIONS
        }
        self.owed: list[tuple[int, dict[str, Any]]] = []

    def live(self, step: int) -> None:
        """One step: reports, a plan, decisions, actions and outcomes."""
        self._come_and_go(step)
        self.look_around(step)
        planned = self.programme.plan(who="planning office")
        rows = self.programme.plan_of(planned.plan).rows
        overrides, who = self._override(rows)
        self.programme.accept(planned.plan, overrides, who=who)
        self._do(step, rows, {row["arm"]: row["action"] for row in overrides})

    def _come_and_go(self, step: int) -> None:
        if step in ARRIVALS:
            row = _lift(*ARRIVALS[step], "new lift", "smooth")
            self.programme.join([row], who="planning office")
            self.lift[row["arm"]], self.state[row["arm"]] = row, 0
        if step in DEPARTURES:
            name, why = DEPARTURES[step]
            self.programme.leave([name], why, who="planning office")
            del self.lift[name], self.state[name]

    def look_around(self, step: int) -> None:
        """Report conditions: most of today's, some of days ago, some of them wrong at first."""
        due = [row for at, row in self.owed if at <= step and row["arm"] in self.lift]
        self.owed = [(at, row) for at, row in self.owed if at > step]
        if due:
            self.programme.observe(due, "inspection, late", who="district office")
        content = []
        for name, state in self.state.items():
            row = {"arm": name, "state": STATES[state], "step": step}
            if step and self.rng.random() < 0.12:  # not reported in time
                if self.rng.random() < 0.4:  # but later on
                    self.owed.append((step + int(self.rng.integers(1, 4)), row))
                continue
            if self.rng.random() < 0.03:  # reported wrongly, and corrected
                self.owed.append((step + 1, row))
                row = row | {"state": STATES[min(state + 1, 3) if state < 3 else 2]}
            content.append(row)
        self.programme.observe(content, "caretakers", who="district office")

    def _override(self, rows: Sequence[PlanRow]) -> tuple[list[dict[str, str]], str]:
        """Override the plan now and then."""
        served = [row for row in rows if row.served]
        others = [row for row in rows if not row.served and row.state != "smooth"]
        if not served or not others or self.rng.random() >= 0.2:
            return [], "planning office"
        loser = served[int(self.rng.integers(len(served)))]
        winner = others[int(self.rng.integers(len(others)))]
        who, why = REASONS[int(self.rng.integers(len(REASONS)))]
        return [
            {"arm": loser.arm, "action": "run", "why": f"gives way to {winner.arm}"},
            {"arm": winner.arm, "action": loser.action, "why": why},
        ], who

    def _do(self, step: int, rows: Sequence[PlanRow], overrides: dict[str, str]) -> None:
        """Record the actions done; new lifts also report their reward."""
        content = []
        for row in rows:
            action = overrides.get(row.arm, row.action)
            if action != "run" and self.rng.random() < 0.03:  # not done
                action = "run"
            content.append({"arm": row.arm, "step": step, "action": action, "reward": self._measured(row.arm, action)})
            lift = self.lift[row.arm]
            distribution = self.moves[lift["type"], lift["group"], action][self.state[row.arm]]
            self.state[row.arm] = int(self.rng.choice(len(STATES), p=distribution))
        self.programme.record(content, "work sheets", who="dispatcher")

    def _measured(self, name: str, action: str) -> str:
        if self.lift[name]["type"] != "new lift":
            return ""
        usual = _model("new lift").rewards[self.state[name], ACTIONS.index(action)]
        return f"{usual + 0.04 * self.rng.standard_normal():.3f}"
