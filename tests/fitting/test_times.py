"""How times are written, and what a step is."""

import io
import random
from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import polars
import pytest

from evenhand.errors import InvalidInputError, TableError
from evenhand.fitting import Log
from tests.fitting.flat import read_log

from ..conftest import mentions


def read(times: list[Any], **options: Any) -> Log:
    frame = {"a": ["v"] * len(times), "t": times, "s": list(range(len(times))), "x": ["none"] * len(times)}
    return read_log(frame, arm="a", time="t", state="s", action="x", **options)


def read_csv(times: list[str], **options: Any) -> Log:
    text = "a,t,s,x\n" + "".join(f"v,{time},{i},none\n" for i, time in enumerate(times))
    return read_log(io.BytesIO(text.encode()), arm="a", time="t", state="s", action="x", **options)


MONDAY = date(2024, 12, 30)


@pytest.mark.parametrize(
    ("times", "unit", "step", "steps"),
    [
        (["4", "6", "10"], "step", 2, [0, 1, 3]),
        (["-4", "-3", "0"], "step", 1, [0, 1, 4]),
        (["0.1", "0.2", "0.4"], "step", 0.1, [0, 1, 3]),
        ([str(i / 3) for i in (1, 2, 4)], "step", 1 / 3, [0, 1, 3]),
        (["1", "2.5", "5.5"], "step", 1.5, [0, 1, 3]),
        (["1983-12", "1984-01", "1984-03"], "month", 1, [0, 1, 3]),
        (["2026-Q1", "2026-Q2", "2026-Q4"], "month", 3, [0, 1, 3]),
        (["2024-12-31", "2025-01-31", "2025-03-31"], "month", 1, [0, 1, 3]),
        (["2025-01-31", "2025-02-28", "2025-04-30"], "month", 1, [0, 1, 3]),
        (["2020-01-01", "2021-01-01", "2023-01-01"], "month", 12, [0, 1, 3]),
        (["2024-12-30", "2025-01-06", "2025-01-20"], "day", 7, [0, 1, 3]),
        (["2024-12-30 06:00", "2025-01-06 06:00", "2025-01-20 06:00"], "day", 7, [0, 1, 3]),
        (["2026-03-28T00:00+01:00", "2026-03-29T00:00+01:00", "2026-03-31T00:00+02:00"], "day", 1, [0, 1, 3]),
        (["2026-03-29T01:00+01:00", "2026-03-29T03:00+02:00", "2026-03-29T03:00:00Z"], "hour", 1, [0, 1, 3]),
        (["2026-01-01T00:00:00.5", "2026-01-01T00:01:00.5", "2026-01-01T00:03:00.5"], "minute", 1, [0, 1, 3]),
        ([f"{y}-W{w:02d}" for y, w, _ in ((MONDAY + timedelta(7 * i)).isocalendar() for i in (-1, 0, 2))], "week", 1,
         [0, 1, 3]),
    ],
)  # fmt: skip
def test_steps_are_found(times: list[str], unit: str, step: float, steps: list[float]) -> None:
    log = read_csv(times)
    assert (log.unit, log.step, log.regular) == (unit, pytest.approx(step), True)
    assert log.time.tolist() == pytest.approx(steps)


def test_weeks_and_months_agree_with_the_calendar() -> None:
    draw = random.Random(0)
    days = sorted({date(1999, 1, 1) + timedelta(draw.randrange(20_000)) for _ in range(60)})
    weeks = sorted({tuple(day.isocalendar())[:2] for day in days})
    mondays = [date.fromisocalendar(year, week, 1) for year, week in weeks]
    read_weeks = read_csv([f"{year}-W{week:02d}" for year, week in weeks], step=1)
    assert read_weeks.time.tolist() == [(monday - mondays[0]).days / 7 for monday in mondays]
    months = sorted({(day.year, day.month) for day in days})
    first = months[0][0] * 12 + months[0][1]
    assert read_csv([f"{y}-{m:02d}" for y, m in months], step=1).time.tolist() == [
        y * 12 + m - first for y, m in months
    ]


def test_typed_columns_are_read_as_texts_are() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    midnights = [datetime(2026, 3, day, tzinfo=berlin) for day in (28, 29, 31)]
    assert (read(midnights).unit, read(midnights).time.tolist()) == ("day", [0, 1, 3])  # one of the days has 23 hours
    hours = [datetime(2026, 3, 29, hour, tzinfo=berlin) for hour in (1, 3, 5)]
    assert (read(hours).unit, read(hours).time.tolist()) == ("hour", [0, 1, 3])
    assert read([date(2026, 1, 1), date(2026, 1, 3), date(2026, 1, 7)]).step_in_words == "2 days"
    waits = polars.Series([timedelta(minutes=m) for m in (0, 30, 90)])
    assert read(waits.to_list()).step_in_words == "30 minutes"
    assert read([1.0, 2.0, 4.0]).time.tolist() == [0, 1, 3]


IRREGULAR = ["2026-01-01", "2026-01-09", "2026-01-22", "2026-02-03"]


def test_times_without_a_step_ask_for_one() -> None:
    with pytest.raises(InvalidInputError, check=mentions("12 days", "step")):
        read_csv(IRREGULAR)
    log = read_csv(IRREGULAR, step="week")
    assert (log.regular, log.unit, log.step) == (False, "day", 7)
    assert log.time.tolist() == [0, 8, 21, 33]
    with pytest.raises(InvalidInputError, check=mentions("step", "1.1")):
        read_csv(["0", "1.1", "2.1037", "4"])
    assert read_csv(IRREGULAR, step=1).time.tolist() == [0, 8, 21, 33]  # whole days, if somebody says so
    assert read_csv(IRREGULAR, step=1).regular


@pytest.mark.parametrize(
    ("times", "step"),
    [
        (["1", "2"], "7 days"),
        (["1", "2"], "-1"),
        (["1", "2"], "0"),
        (["1", "2"], "soon"),
        (["2026-01", "2026-02"], "week"),
        (["2026-01-01T10:00", "2026-01-01T11:00"], "2"),
    ],
)
def test_invalid_steps(times: list[str], step: str) -> None:
    with pytest.raises(InvalidInputError, check=mentions(step)):
        read_csv(times, step=step)


def test_a_step_in_words_is_the_step() -> None:
    assert read_csv(["2026-01", "2026-04", "2026-10"], step="quarter").time.tolist() == [0, 1, 3]
    assert read_csv(["2026-01-01T10:00", "2026-01-01T22:00"], step="6 hours").time.tolist() == [0, 2]
    assert read_csv(["1", "3"], step=1).time.tolist() == [0, 2]


@pytest.mark.parametrize(
    ("times", "wrong"),
    [
        (["2026-01", "2026-13", "2026-03", "May", "nan"], [3, 5, 6]),
        (["2026-02-24", "2026-02-31", "2026-03-10", "17.03.2026"], [3, 5]),
        (["24.02.2026", "03.03.2026"], [2, 3]),
        (["03/11/2025", "10/11/2025"], [2, 3]),
        (["May", "June"], [2, 3]),
    ],
)
def test_invalid_times_are_reported_by_line(times: list[str], wrong: list[int]) -> None:
    with pytest.raises(TableError) as raised:
        read_csv(times)
    assert [fault.place for fault in raised.value.faults if fault.place] == [f"line {number}" for number in wrong]


@pytest.mark.parametrize(
    "times", [[0, 1, 2**63], [0, 1, 2**64 - 1], [-(2**63), 0, 2**63 - 1], [0, 1, -(2**62)], [0.5, 1, 1e300]]
)
@pytest.mark.parametrize("typed", [True, False])
def test_numbers_too_large_for_a_time_are_faults(times: list[float], typed: bool) -> None:
    columns = {"arm": ["a"] * 3, "time": times if typed else [str(time) for time in times], "state": ["x"] * 3}
    with pytest.raises(TableError, check=mentions("row 3")):
        read_log({**columns, "action": ["none"] * 3}, arm="arm", time="time", state="state", action="action")


@pytest.mark.parametrize("scale", [1e-5, 1.0, 1e3, 1e7])
def test_the_step_that_is_proposed_is_accepted(scale: float) -> None:
    times = [0.0, 2.13, 5.55, 9.117, 12.3458, 17.77]
    with pytest.raises(InvalidInputError) as asked:
        read([scale * time for time in times])
    proposed = str(asked.value).rpartition("such as ")[2]
    assert read([scale * time for time in times], step=proposed).step == pytest.approx(3.4 * scale, rel=0.1)
    assert read([scale * time for time in times], step=3.4 * scale).step == pytest.approx(3.4 * scale)
