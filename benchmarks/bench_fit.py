"""From records to a model, as `evenhand fit` reads them.

Logs of ten million rows, a million arms of two rows each, and twenty states at irregular times.
Each run is a process of its own, from the CSV file to the answer as JSON, with the diagnostics. Wall time depends on
who else uses the machine; processor time does not.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

ROWS = 10_000_000
COMMAND = "fit {log} --arm arm --time time --state state --action action --type type --json --quiet"
RUN = """
import contextlib, io, time
from benchmarks.timing import peak_memory
from evenhand.cli import run
began = time.perf_counter()
with contextlib.redirect_stdout(io.StringIO()):
    code = run({arguments!r})
print(code, time.perf_counter() - began, time.process_time(), peak_memory())
"""


def logs(folder: Path) -> Iterator[tuple[str, Path]]:
    """Names of logs and where they are; each is there until the next is asked for."""
    import polars

    rng = np.random.default_rng(0)
    for name, arms, steps in (("100 000 arms, in order", 100_000, 100), ("a million arms of two rows", 1_000_000, 2)):
        number = arms * steps
        frame = polars.DataFrame(
            {
                "arm": "van" + polars.Series(np.repeat(np.arange(arms), steps)).cast(polars.String),
                "time": np.tile(np.arange(steps), arms),
                "state": np.array(["good", "fair", "poor"])[rng.integers(0, 3, number)],
                "action": np.array(["none", "repair"])[rng.integers(0, 2, number)],
                "type": np.array(["Ford", "VW", "Fiat"])[np.repeat(np.arange(arms) % 3, steps)],
            }
        )
        file = folder / "log.csv"
        frame.write_csv(file)
        yield name, file
        if steps > 2:
            frame.sample(fraction=1.0, shuffle=True, seed=1).write_csv(file)
            yield "100 000 arms, shuffled", file


def irregular(folder: Path, arms: int = 1000, visits: int = 20, states: int = 20) -> Path:
    """A log of chains in continuous time, simulated by uniformisation: an action acts for one step, then arms idle."""
    import polars

    rng = np.random.default_rng(0)
    rates = rng.gamma(0.5, 0.05, size=(2, states, states)) * (1 - np.eye(states))
    fastest = rates.sum(axis=-1).max()
    rows = np.cumsum(rates / fastest, axis=-1)  # of jumps; what is missing to 1 stays
    times = np.cumsum(rng.exponential(1.0, (arms, visits)).round(4) + 0.01, axis=1)
    actions = (rng.random((arms, visits)) < 0.4).astype(int)
    state = np.empty((arms, visits), int)
    state[:, 0] = rng.integers(states, size=arms)
    for visit in range(visits - 1):
        now, pause = state[:, visit].copy(), times[:, visit + 1] - times[:, visit]
        for action, time in (
            (actions[:, visit], np.minimum(pause, 1)),
            (np.zeros(arms, int), np.maximum(pause - 1, 0)),
        ):
            number = rng.poisson(fastest * time)
            for turn in range(number.max()):
                after = (rows[action, now] < rng.random((arms, 1))).sum(axis=1)
                now = np.where((turn < number) & (after < states), after, now)
        state[:, visit + 1] = now
    columns = {"arm": np.repeat(np.arange(arms), visits), "time": times.ravel(), "state": state.ravel()}
    frame = polars.DataFrame(
        columns | {"action": np.array(["none", "repair"])[actions.ravel()], "type": ["van"] * times.size}
    )
    frame.write_csv(folder / "irregular.csv")
    return folder / "irregular.csv"


def main() -> None:
    print("evenhand fit, from a CSV file to JSON with diagnostics; wanted on two cores: 4 GB and 30 s, irregular 60 s")
    with tempfile.TemporaryDirectory() as folder:
        _measure("20 states, irregular times", irregular(Path(folder)), " --step 1")
        for name, log in logs(Path(folder)):
            _measure(name, log)


def _measure(name: str, log: Path, more: str = "") -> None:
    code = RUN.format(arguments=(COMMAND.format(log=log) + more).split())
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    failed, wall, cpu, peak = (float(part) for part in told.split())
    assert not failed
    rows = sum(1 for _ in log.open("rb")) - 1
    print(f"  {name:28} {rows:12,} rows {wall:7.1f} s, processor {cpu:6.1f} s, peak {peak:.2f} GiB", flush=True)


if __name__ == "__main__":
    main()
