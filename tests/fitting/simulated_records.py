"""Records of known truth in every layout, as raw files.

Each function writes files into a folder and returns a `Case`: the options of `evenhand import` (none if `fit` reads the
file as it is) and of `evenhand fit`, and the transitions of a step that the fit should find.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy.linalg import expm

from tests.fitting.cleaning.clinic import STATES, TRUTH, messy_clinic

RATES = np.array([[-0.3, 0.25, 0.05], [0.2, -0.5, 0.3], [0.0, 0.0, 0.0]])
"""Illness and death: well, ill, dead; per unit of time."""

HEALTH = ("well", "ill", "dead")

WEEKLY = np.array([[[0.8, 0.2], [0.9, 0.1]], [[0.1, 0.9], [0.6, 0.4]]])
"""(state, action, next_state): good and poor, none and mend."""


@dataclass(frozen=True)
class Case:
    """Raw records, the commands that lead to a model, and the truth."""

    fit: tuple[str, ...]
    truth: dict[str, np.ndarray]
    """By action: (state, next_state) transitions of a step, in the order of `states`."""
    states: tuple[str, ...]
    records: tuple[str, ...] = ()
    """Files for `evenhand import`; none if it is not needed."""
    log: str = "log.csv"
    imported: tuple[str, ...] = field(default=())
    """Further options of `evenhand import`."""


def path_of(rng: np.random.Generator, rates: np.ndarray, until: float) -> list[tuple[float, int]]:
    """Times and states of a path from state 0; it ends in an absorbing state or at `until`."""
    time, state, path = 0.0, 0, [(0.0, 0)]
    while rates[state, state] < 0:
        time += rng.exponential(-1 / rates[state, state])
        if time >= until:
            break
        out = np.maximum(rates[state], 0)
        state = int(rng.choice(len(rates), p=out / out.sum()))
        path.append((time, state))
    return path


def state_at(path: list[tuple[float, int]], time: float) -> int:
    return [state for start, state in path if start <= time][-1]


def panel_with_exact_deaths(folder: Path, rng: np.random.Generator, num_arms: int = 150) -> Case:
    """Visits at irregular times, and deaths at their very times."""
    lines = ["patient,day,health"]
    for arm in range(num_arms):
        path = path_of(rng, RATES, 10.0)
        times = np.cumsum(rng.uniform(0.3, 2.0, size=12))
        dead = path[-1][0] if path[-1][1] == 2 else np.inf
        lines.append(f"p{arm},0,well")
        lines += [f"p{arm},{t:.5f},{HEALTH[state_at(path, t)]}" for t in times[times < min(dead, 10.0)]]
        lines += [f"p{arm},{dead:.5f},dead"] if dead < 10 else []
    (folder / "log.csv").write_text("\n".join(lines) + "\n")
    options = ("--arm", "patient", "--time", "day", "--state", "health", "--step", "1", "--exact", "dead")
    return Case((*options, "--absorbing", "dead", "--states", "well,ill,dead"), {"none": expm(RATES)}, HEALTH)


def event_history(folder: Path, rng: np.random.Generator, num_arms: int = 150) -> Case:
    """One row per change, and a blank one at the end of follow-up."""
    lines = ["patient,day,health"]
    for arm in range(num_arms):
        path = path_of(rng, RATES, 8.0)
        lines += [f"p{arm},{time:.6f},{HEALTH[state]}" for time, state in path]
        lines += [] if path[-1][1] == 2 else [f"p{arm},8.0,"]
    (folder / "log.csv").write_text("\n".join(lines) + "\n")
    options = ("--arm", "patient", "--time", "day", "--state", "health", "--step", "1", "--layout", "events")
    return Case((*options, "--absorbing", "dead", "--states", "well,ill,dead"), {"none": expm(RATES)}, HEALTH)


def stays(folder: Path, rng: np.random.Generator, num_arms: int = 150) -> Case:
    """Intervals (start, stop, from, to), of which `import` makes changes."""
    lines = ["id;start;stop;from;to"]
    for arm in range(num_arms):
        path = path_of(rng, RATES, 8.0)
        ends = [*path[1:], (8.0, None)]
        for (start, state), (stop, after) in zip(path, ends, strict=True):
            if state != 2:
                to = "" if after is None else HEALTH[after]
                lines.append(f"{arm};{start:.6f};{stop:.6f};{HEALTH[state]};{to}".replace(".", ","))
    (folder / "stays.csv").write_text("\n".join(lines) + "\n")
    options = ("--arm", "arm", "--time", "time", "--state", "state", "--step", "1", "--layout", "events")
    return Case(
        (*options, "--absorbing", "dead", "--states", "well,ill,dead"),
        {"none": expm(RATES)},
        HEALTH,
        records=("stays.csv",),
    )


def weekly_rows(rng: np.random.Generator, num_arms: int, num_weeks: int, each: bool = False):
    """Rows (arm, week, state, action) of weekly arms; with `each`, an arm has one action throughout."""
    for arm in range(num_arms):
        state, own = int(rng.integers(2)), arm % 2
        for week in range(num_weeks):
            action = own if each else int(rng.random() < 0.4)
            yield arm, week, state, action
            state = int(rng.random() < WEEKLY[state, action, 1])


def four_tables(folder: Path, rng: np.random.Generator, num_arms: int = 60, num_weeks: int = 30) -> Case:
    """States, failures, maintenance and a list of machines, joined by machine and day."""
    files = {
        "status.csv": ["machineID,date,status"],
        "failures.csv": ["machineID,date"],
        "maintenance.csv": ["machineID,date"],
        "machines.csv": ["machineID,model,age"],
    }
    for arm in range(num_arms):
        files["machines.csv"].append(f"{arm},m{arm % 2},{rng.integers(20)}")
    for arm, week, state, action in weekly_rows(rng, num_arms, num_weeks):
        date = str(np.datetime64("2025-01-06") + 7 * week)
        files["status.csv"].append(f"{arm},{date},good")
        if state:
            files["failures.csv"].append(f"{arm},{date}")
        if action:
            files["maintenance.csv"].append(f"{arm},{date}")
    for name, lines in files.items():
        (folder / name).write_text("\n".join(lines) + "\n")
    options = ("--arm", "arm", "--time", "time", "--state", "state", "--action", "action", "--idle", "none")
    return Case(
        (*options, "--states", "good,failures"),
        {"none": WEEKLY[:, 0], "maintenance": WEEKLY[:, 1]},
        ("good", "failures"),
        records=tuple(files),
    )


def ties_blanks_and_types(folder: Path, rng: np.random.Generator, num_arms: int = 60, num_weeks: int = 30) -> Case:
    """Weekly rows, some written twice with a wrong first entry, some without a state or type."""
    lines = ["van,week,condition,done,make"]
    names = ("good", "poor")
    for arm, week, state, action in weekly_rows(rng, num_arms, num_weeks):
        make = "" if rng.random() < 0.02 else ("Ford", "VW")[arm % 2]
        own = "?" if rng.random() < 0.05 else names[state]
        if rng.random() < 0.03:
            lines.append(f"v{arm},{week},{names[int(rng.integers(2))]},{('none', 'mend')[action]},{make}")
        lines.append(f"v{arm},{week},{own},{('none', 'mend')[action]},{make}")
    (folder / "vans.csv").write_text("\n".join(lines) + "\n")
    options = ("--arm", "arm", "--time", "time", "--state", "state", "--action", "action", "--states", "good,poor")
    truth = {"none": WEEKLY[:, 0], "mend": WEEKLY[:, 1]}
    return Case(options, truth, names, records=("vans.csv",))


def one_action_per_arm(folder: Path, rng: np.random.Generator, num_arms: int = 60, num_weeks: int = 30) -> Case:
    """Weekly rows of arms that get one action throughout."""
    lines = ["van,week,condition,done"]
    for arm, week, state, action in weekly_rows(rng, num_arms, num_weeks, each=True):
        lines.append(f"v{arm},{week},{('good', 'poor')[state]},{('none', 'mend')[action]}")
    (folder / "log.csv").write_text("\n".join(lines) + "\n")
    options = ("--arm", "van", "--time", "week", "--state", "condition", "--action", "done", "--states", "good,poor")
    return Case(options, {"none": WEEKLY[:, 0], "mend": WEEKLY[:, 1]}, ("good", "poor"))


def derived_ages(folder: Path, rng: np.random.Generator, num_arms: int = 80, num_weeks: int = 40) -> Case:
    """Vans that fail more often from two weeks after a service on: the state is the time since service, or failed."""
    risk = (0.05, 0.3)
    lines = ["van,week,condition,done"]
    for arm in range(num_arms):
        since, failed = 0, False
        for week in range(num_weeks):
            service = week == 0 or failed or rng.random() < 0.15
            lines.append(f"v{arm},{week},{'failed' if failed else 'fine'},{'service' if service else 'none'}")
            # Serviced in this week: one week since at the next row.
            chance = risk[0] if service else risk[since >= 2]
            since = 1 if service else since + 1
            failed = not service and rng.random() < chance
    (folder / "vans.csv").write_text("\n".join(lines) + "\n")
    (folder / "rules.toml").write_text(
        """
[[tables]]
file = "vans.csv"
arm = "van"
time = "week"
state = "condition"
action = "done"
times = ["number"]
[[derived]]
name = "age"
since = {action = "service"}
cuts = [2]
[state]
columns = ["state", "age"]
whole = ["failed"]
"""
    )
    states = ("fine / below 2", "fine / 2 and more", "failed")
    idle = np.array([[0, 1 - risk[0], risk[0]], [0, 1 - risk[1], risk[1]], [np.nan] * 3])
    options = ("--arm", "arm", "--time", "time", "--state", "state", "--action", "action", "--states", ",".join(states))
    return Case(
        (*options, "--unseen", "forbid"),
        {"none": idle},
        states,
        records=("vans.csv",),
        imported=("--rules", "rules.toml"),
    )


def clinic(folder: Path, rng: np.random.Generator) -> Case:
    """The messy clinic."""
    (folder / "clinic.csv").write_text(messy_clinic(int(rng.integers(2**31))).text, encoding="utf-8")
    options = ("--arm", "arm", "--time", "time", "--state", "state", "--action", "action", "--states", ",".join(STATES))
    truth = {action: TRUTH[:, number] for number, action in enumerate(("none", "call", "visit"))}
    return Case(options, truth, STATES, records=("clinic.csv",))


CASES: tuple[Callable[..., Case], ...] = (
    panel_with_exact_deaths,
    event_history,
    stays,
    four_tables,
    ties_blanks_and_types,
    one_action_per_arm,
    derived_ages,
    clinic,
)
