"""How times are written, and what a step is."""

import io
import random
from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import polars
import pytest

from evenhand.errors import InvalidInput, TableError
from evenhand.fitting.log import Log
from evenhand.fitting.records import read_log


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
        (["31.12.2024", "31.01.2025", "31.03.2025"], "month", 1, [0, 1, 3]),
        (["06/01/2025", "13/01/2025", "27/01/2025"], "day", 7, [0, 1, 3]),
        (["01/06/2025", "01/13/2025", "01/27/2025"], "day", 7, [0, 1, 3]),
        (["6/1/2025", "13/1/2025", "27/1/2025"], "day", 7, [0, 1, 3]),
        (["2020-01-01", "2021-01-01", "2023-01-01"], "month", 12, [0, 1, 3]),
        (["20250131", "20250228", "20250430"], "month", 1, [0, 1, 3]),
        (["202412", "202501", "202503"], "month", 1, [0, 1, 3]),
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
    with pytest.raises(InvalidInput, match=r"not whole steps apart.*--step '12 days'"):
        read_csv(IRREGULAR)
    log = read_csv(IRREGULAR, step="week")
    assert (log.regular, log.unit, log.step) == (False, "day", 7)
    assert log.time.tolist() == [0, 8, 21, 33]
    with pytest.raises(InvalidInput, match=r"--step 1\.1"):
        read_csv(["0", "1.1", "2.1037", "4"])
    assert read_csv(IRREGULAR, step=1).time.tolist() == [0, 8, 21, 33]  # whole days, if somebody says so
    assert read_csv(IRREGULAR, step=1).regular


@pytest.mark.parametrize(
    ("times", "step", "told"),
    [
        (["1", "2"], "7 days", "a number alone"),
        (["1", "2"], "-1", "expected a length"),
        (["1", "2"], "0", "expected a length"),
        (["1", "2"], "soon", "expected a length"),
        (["2026-01", "2026-02"], "week", "month, quarter, year"),
        (["2026-01-01T10:00", "2026-01-01T11:00"], "2", "with its unit"),
    ],
)
def test_steps_that_make_no_sense(times: list[str], step: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        read_csv(times, step=step)


def test_a_step_in_words_is_the_step() -> None:
    assert read_csv(["2026-01", "2026-04", "2026-10"], step="quarter").time.tolist() == [0, 1, 3]
    assert read_csv(["2026-01-01T10:00", "2026-01-01T22:00"], step="6 hours").time.tolist() == [0, 2]
    assert read_csv(["1", "3"], step=1).time.tolist() == [0, 2]


def test_a_time_unlike_the_others_is_told() -> None:
    with pytest.raises(TableError) as raised:
        read_csv(["2026-01", "2026-13", "2026-03", "May", "nan"])
    assert [str(fault) for fault in raised.value.faults] == [
        "line 3: '2026-13' is no time like the others (months such as 2026-05)",
        "line 5: 'May' is no time like the others (months such as 2026-05)",
        "line 6: has no time",
    ]
    with pytest.raises(TableError, match="is no time that can be read") as raised:
        read_csv(["May", "June"])
    assert "31/05/2026" in str(raised.value.faults[0])  # what can be


@pytest.mark.parametrize(
    "times", [[0, 1, 2**63], [0, 1, 2**64 - 1], [-(2**63), 0, 2**63 - 1], [0, 1, -(2**62)], [0.5, 1, 1e300]]
)
@pytest.mark.parametrize("typed", [True, False])
def test_numbers_too_large_for_a_time_are_told(times: list[float], typed: bool) -> None:
    columns = {"arm": ["a"] * 3, "time": times if typed else [str(time) for time in times], "state": ["x"] * 3}
    with pytest.raises(TableError, match=r"row 3: .*(too large|no time like the others)"):
        read_log({**columns, "action": ["none"] * 3}, arm="arm", time="time", state="state", action="action")


def test_a_day_that_no_calendar_has_is_told_as_such() -> None:
    with pytest.raises(TableError) as raised:
        read_csv(["24.02.2026", "31.02.2026", "10.03.2026", "17.13.2026"])
    assert [str(fault) for fault in raised.value.faults] == [
        "line 3: there is no day 31.02.2026: February 2026 has 28 days",
        "line 5: '17.13.2026' is no time like the others (dates such as 2026-05-31)",
    ]


def test_whether_the_day_or_the_month_comes_first_is_asked() -> None:
    with pytest.raises(TableError, match=r"is the day first in 03/11/2025, or the month\?"):
        read_csv(["03/11/2025", "10/11/2025", "11/11/2025"])
    far = [f"{1 + i % 12:02}/{1 + i // 12:02}/2025" for i in range(12)] + ["13/01/2025"]
    assert read_csv(far).unit == "day"


@pytest.mark.parametrize("scale", [1e-5, 1.0, 1e3, 1e7])
def test_the_step_that_is_proposed_is_accepted(scale: float) -> None:
    times = [0.0, 2.13, 5.55, 9.117, 12.3458, 17.77]
    with pytest.raises(InvalidInput) as asked:
        read([scale * time for time in times])
    proposed = str(asked.value).rpartition("--step ")[2]
    assert read([scale * time for time in times], step=proposed).step == pytest.approx(3.4 * scale, rel=0.1)
    assert read([scale * time for time in times], step=3.4 * scale).step == pytest.approx(3.4 * scale)
