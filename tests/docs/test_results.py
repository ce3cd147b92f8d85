"""Results in README and docs are those of the committed records."""

import json
import re

import pytest

from paper.report import FIGURES, PLACE, REPO, docs_texts, draw, fill, pages, read_report
from paper.run import read_records
from paper.targets import read_targets

RECORDS = REPO / "paper" / "records"


@pytest.fixture(scope="module")
def texts():
    return docs_texts()


def test_pages_hold_the_figures_of_the_records(texts):
    for page in pages():
        text = page.read_text(encoding="utf-8")
        assert fill(text, texts) == text, f"{page.name}: run python -m paper --docs"


def test_every_result_has_its_place(texts):
    places = {name for page in pages() for name in PLACE.findall(page.read_text(encoding="utf-8"))}
    assert places == set(texts)


def test_the_records_are_of_a_full_run():
    assert json.loads((RECORDS / "manifest.json").read_text(encoding="utf-8"))["quick"] is False
    cells = {cell.key for target in read_targets().values() for cell in target.full}
    assert cells == set(read_records(RECORDS))


@pytest.mark.slow
def test_figures_are_drawn_from_the_records():
    targets = list(read_targets().values())
    report = read_report(RECORDS, targets)
    for target in targets:
        drawn = draw(target, report.tables[target.name])
        assert words_of(drawn) == words_of((FIGURES / f"{target.name}.svg").read_text(encoding="utf-8"))


def words_of(picture):
    """The texts of a figure; shapes may differ in the last digit between machines."""
    return re.findall(r">([^<>]*\S[^<>]*)<", picture)
