"""Results in README and docs are those of the committed records."""

import importlib.util
import re
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def results():
    source = importlib.util.spec_from_file_location("make_results", REPO / "docs" / "make_results.py")
    module = importlib.util.module_from_spec(source)
    source.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def texts(results):
    """With the figures that there are; that there are no others, the slow run asks, which draws them."""
    return results.tables([figure.stem for figure in results.FIGURES.glob("*.svg")])


def places_of(results):
    return {(page, name) for page in results.pages() for name in results.PLACE.findall(page.read_text("utf-8"))}


def test_pages_hold_what_the_records_say(results, texts):
    for page in results.pages():
        text = page.read_text(encoding="utf-8")
        assert results.fill(text, texts) == text, f"{page.name}: run python docs/make_results.py"


def test_every_result_has_its_place(results, texts):
    assert {name for _, name in places_of(results)} == set(texts)


def test_the_records_are_of_a_full_run_without_failures(results):
    from evenhand.experiments.records import read_run

    run = read_run(results.RECORDS)
    assert run.manifest["quick"] is False
    assert all(record["status"] == "done" for record in run.records.values())
    assert set(run.manifest["targets"]) == {path.stem for path in (REPO / "paper").glob("*.toml")}


@pytest.mark.slow
def test_figures_are_drawn_from_the_records(results, tmp_path):
    results.draw(tmp_path)
    fresh = {path.name: words_of(path) for path in tmp_path.glob("*.svg")}
    assert fresh
    assert fresh == {path.name: words_of(path) for path in results.FIGURES.glob("*.svg")}


def words_of(picture):
    """The words of a picture; shapes may differ in the last digit between machines."""
    return re.findall(r">([^<>]*\S[^<>]*)<", picture.read_text(encoding="utf-8"))
