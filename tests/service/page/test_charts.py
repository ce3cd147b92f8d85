"""Drawings are sound SVG, carry every text escaped, and no colour or style of their own."""

import math
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from evenhand.service.page import charts

NASTY = '<script>alert("1")</script>&'


def drawings():
    points = tuple(charts.Point(step, 0.5 + step / 10, 0.4, 1.6, 0.7) for step in range(5))
    spots = [charts.Spot(NASTY, 1.0, 2.0, True), charts.Spot("other", 1.0, 2.0), charts.Spot("third", 0.9, 2.1)]
    visits = [charts.Visit(0, "fine", True), charts.Visit(1, "worn", False, NASTY), charts.Visit(2, "gone", True)]
    return {
        "bar": charts.budget_bar(2, 3, NASTY),
        "empty bar": charts.budget_bar(0, 0, "nothing"),
        "series": charts.over_time([charts.Series(NASTY, points), charts.Series("b", points[:1])], "value", NASTY),
        "no series": charts.over_time([], "value", "nothing"),
        "frontier": charts.frontier(spots, "mean", "worst", NASTY),
        "pairs": charts.side_by_side([charts.Pair(NASTY * 9, 1.0, 1.0)], "now", "then", NASTY),
        "course": charts.course(visits, ("fine", "worn"), NASTY),
        "no course": charts.course([], ("fine",), "nothing"),
        "interval": charts.interval_bar(0.5, 0.0, 1.0, NASTY),
    }


@pytest.mark.parametrize("name", drawings())
def test_a_drawing_is_sound_and_tells_itself(name):
    drawn = str(drawings()[name])
    root = ElementTree.fromstring(drawn)
    assert root.tag == "svg"
    assert root.get("role") == "img"
    assert root.get("aria-label")
    assert "<script" not in drawn
    assert "nan" not in drawn
    for element in root.iter():
        assert not {"style", "fill", "stroke", "onload"} & set(element.attrib)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3.2, 17.0), (0.997, 1.0), (5.0, 5.0), (1e6, 3e6)])
def test_ticks_span_what_they_are_for(low, high):
    marks = charts.ticks(low, high)
    assert marks[0] <= low + 1e-9
    assert high <= marks[-1] + 1e-9
    assert len(marks) <= 9
    assert all(math.isclose(b - a, marks[1] - marks[0]) for a, b in pairwise(marks))


def test_names_of_spots_do_not_lie_upon_each_other():
    spots = [charts.Spot(f"idea {number}", 1.0, 1.0) for number in range(5)]
    root = ElementTree.fromstring(str(charts.frontier(spots, "mean", "worst", "five")))
    places = [(text.get("x"), text.get("y")) for text in root.iter("text") if (text.text or "").startswith("idea")]
    assert len(places) == 5
    assert len(set(places)) == 5
