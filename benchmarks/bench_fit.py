"""From records to a model: logs of ten million rows, and a million arms of two rows each, as `evenhand fit` reads them.

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


def main() -> None:
    print("evenhand fit, from a CSV file to JSON, diagnostics included; wanted: below 30 s and 4 GB on two cores")
    with tempfile.TemporaryDirectory() as folder:
        for name, log in logs(Path(folder)):
            arguments = COMMAND.format(log=log).split()
            code = RUN.format(arguments=arguments)
            told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
            failed, wall, cpu, peak = (float(part) for part in told.split())
            assert not failed
            rows = sum(1 for _ in log.open("rb")) - 1
            print(f"  {name:28} {rows:12,} rows {wall:7.1f} s, processor {cpu:6.1f} s, peak {peak:.2f} GiB", flush=True)


if __name__ == "__main__":
    main()
