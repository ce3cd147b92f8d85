"""`evenhand compare --report`: a page that needs nothing else, written wholly or not at all."""

import errno
import os
import re
from html.parser import HTMLParser

import pytest

from ..conftest import mentions

QUICK = ["--episodes", 20, "--horizon", 20]

FETCHING = {"src", "srcset", "data", "action", "poster", "background"}


class Links(HTMLParser):
    """What a page would fetch or run."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attributes):
        if tag in ("script", "iframe", "object", "embed", "base"):
            self.found.append(tag)
        for name, value in attributes:
            inside = (value or "").startswith(("#", "data:"))
            if (name in FETCHING or name.endswith("href")) and not inside:
                self.found.append(f"{tag} {name}={value}")


def outside(page):
    links = Links()
    links.feed(page)
    return links.found + re.findall(r"url\((?![\"']?(?:#|data:))[^)]*\)|@import[^;]*", page)


@pytest.fixture
def page(small, evenhand, files):
    told = evenhand("compare", small, *QUICK, "--report", "report.html")
    assert (told.code, told.err) == (0, "")
    assert "report.html" in told.out
    assert files() == ["report.html", "small.toml"]
    return (small.parent / "report.html").read_text(encoding="utf-8")


def test_the_page_is_whole_and_needs_nothing_else(page):
    assert page.lower().startswith("<!doctype html>")
    assert page.rstrip().endswith("</html>")
    assert outside(page) == []
    assert "<svg" in page


@pytest.mark.slow
def test_the_page_shows_the_figures_of_the_table(page, small, evenhand):
    found = evenhand("compare", small, *QUICK, "--json").json
    assert found["rows"]
    for row in found["rows"]:
        assert row["policy"] in page
    for name in ("machine", "pump", "gini:half=0.75"):
        assert name in page


@pytest.mark.slow
def test_the_page_shows_how_it_was_made(small, launch):
    assert launch("compare", small.name, *QUICK, "--seed", 5, "--report", "page.html").code == 0
    assert mentions("small.toml", 20)((small.parent / "page.html").read_text(encoding="utf-8"))


def test_json_stays_alone_on_standard_output(small, evenhand):
    told = evenhand("compare", small, *QUICK, "--report", "report.html", "--json")
    assert told.json["rows"]
    assert (small.parent / "report.html").exists()


def test_names_from_a_file_are_text_not_markup(small, evenhand):
    small.write_text(small.read_text().replace('"pump"', '"<script>alert(1)</script>"'))
    assert evenhand("compare", small, *QUICK, "--report", "report.html").code == 0
    page = (small.parent / "report.html").read_text(encoding="utf-8")
    assert "&lt;script&gt;" in page
    assert outside(page) == []


@pytest.mark.parametrize("report", ["nowhere/report.html", "taken"])
def test_a_page_that_cannot_be_written_is_reported_before_the_work(report, small, evenhand, monkeypatch, files):
    (small.parent / "taken").mkdir()

    def work(*_):
        raise AssertionError("the work should not have begun")

    monkeypatch.setattr("evenhand.planning.compare.compare", work)
    assert report in evenhand("compare", small, *QUICK, "--report", report).refusal
    assert files() == ["small.toml", "taken"]
    assert not any((small.parent / "taken").iterdir())


def test_a_full_disk_leaves_the_old_page(small, evenhand, monkeypatch, files):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    page = small.parent / "report.html"
    page.write_text("old")
    monkeypatch.setattr(os, "fsync", full)
    failed = evenhand("compare", small, *QUICK, "--report", page)
    assert failed.code == 1
    assert "No space left" in failed.err
    assert page.read_text() == "old"
    assert files() == ["report.html", "small.toml"]
