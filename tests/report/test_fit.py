"""The page of a fit: whole for any log, safe, the same every time."""

from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from evenhand.fitting import Dirichlet, FitResult, Log, Terms, diagnose, find_clusters, probability_texts
from evenhand.planning.backtest import backtest
from evenhand.report import fit_report, page, write_page

from ..conftest import mentions
from ..fitting.diagnostics.simulated import WEAR, by_state, counted_moves, simulated

EVIL = "<b>x</b> & $y_1$ \"'><img src=x onerror=y>"


def fitted(log: Log, worth: list[float] | None = None, prior: float = 0.2) -> FitResult:
    moves = counted_moves(log)
    shape = moves.counts.shape[:3]
    rewards = np.zeros(shape) if worth is None else np.broadcast_to(np.array(worth)[None, :, None], shape)
    usage = np.ones((*shape, 1))
    usage[:, :, 0] = 0
    terms = Terms(rewards, usage, ("services",), 1.0, notes=("nothing was said",))
    return FitResult(log, moves, Dirichlet(moves.counts + prior), terms, log_likelihood=-123.4)


@pytest.fixture(scope="module")
def vans() -> FitResult:
    types = ("Ford", EVIL, "VW")
    log = simulated(np.stack([WEAR] * 3), 60, 20, 0, by_state([0.05, 0.2, 0.7]), types=types)
    return fitted(replace(log, states=("good", EVIL + "2", "poor")), [1.0, 0.6, 0.0])


@pytest.fixture(scope="module")
def shown(vans: FitResult) -> str:
    return page(fit_report(vans, source=EVIL), "evenhand fit <log>")


class Reader(HTMLParser):
    """Checks that tags nest, and keeps tags, attributes and text."""

    def __init__(self, shown: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(shown)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += "" if self.open[-1:] == ["style"] else data


def test_the_page_stands_alone_and_escapes_every_name(shown: str) -> None:
    reader = Reader(shown)
    assert not {"script", "link", "img", "iframe", "image", "b>"} & reader.tags
    assert "http:" not in shown
    assert "https:" not in shown
    assert all(
        (value or "").startswith("#") for key, value in reader.attributes if key in ("href", "src", "xlink:href")
    )
    assert not [key for key, _ in reader.attributes if key.startswith("on")]
    assert "onerror=y" in reader.text  # told, as text
    identities = [value for key, value in reader.attributes if key == "id"]
    assert len(identities) == len(set(identities))
    assert shown.count("<svg") == 3
    assert [label for key, label in reader.attributes if key == "aria-label"]


def _spaces(text: str) -> str:
    return " ".join(text.replace("−", "-").split()).lower()


def test_it_shows_what_was_found(vans: FitResult, shown: str) -> None:
    text = " ".join(Reader(shown).text.split())
    for _, said in vans.diagnostics.words:
        assert _spaces(said) in _spaces(text)
    for section in ("Effects of actions", "Arms that were served", "Shares of states over time", "Transitions"):
        assert section in text
    assert "evenhand fit <log>" in text
    assert "−123.4" in text
    assert "Nothing was said" in text


def test_rows_are_listed_with_their_probabilities(vans: FitResult, shown: str) -> None:
    text = Reader(shown).text
    lower, upper = vans.interval
    for place in np.ndindex(*vans.posterior.mean.shape[:3]):
        k = int(vans.posterior.mean[place].argmax())
        middle, low, high = probability_texts(*(array[place][k] for array in (vans.posterior.mean, lower, upper)))
        assert f"{vans.log.states[k]} {middle} ({low}–{high})" in text


def test_the_same_bytes_and_whole_files(vans: FitResult, shown: str, tmp_path: Path) -> None:
    write_page(fit_report(vans, source=EVIL), tmp_path / "fit.html", "evenhand fit <log>")
    assert (tmp_path / "fit.html").read_text(encoding="utf-8") == shown
    assert [file.name for file in tmp_path.iterdir()] == ["fit.html"]


def test_unrequested_diagnostics_have_no_section() -> None:
    log = simulated(WEAR, 5, 3, 0)
    found = fitted(replace(log, regular=False, actions=("wait", "serve")), prior=0.0)
    text = Reader(page(fit_report(found))).text
    assert "Effects of actions" not in text
    assert "Shares of states" not in text
    assert "Times are irregular" in text or "times are irregular" in text
    assert "never seen" in text
    assert "nan" not in text.lower().split()


@pytest.mark.slow
def test_many_rows_and_states_are_cut_and_counted() -> None:
    states = tuple(f"s{number}" for number in range(12))
    rows = np.random.default_rng(0).dirichlet(np.ones(12), size=(4, 12, 2))
    log = simulated(rows, 40, 12, 0, by_state([0.5] * 12), states=states, types=("a", "b", "c", "d"))
    shown = page(fit_report(fitted(log)))
    text = Reader(shown).text
    assert mentions(36)(text)


def test_a_notebook_shows_the_sentences(vans: FitResult) -> None:
    reader = Reader(vans.diagnostics._repr_html_())
    assert not {"img", "script"} & reader.tags
    assert all(_spaces(said) in _spaces(reader.text) for _, said in vans.diagnostics.words)
    assert mentions("Diagnostics(7", "4 tests")(repr(vans.diagnostics))


def test_a_backtest_has_a_cell_and_a_figure() -> None:
    log = simulated(WEAR, 20, 8, 0, by_state([0.1, 0.3, 0.8]))
    found = backtest(fitted(log, [1.0, 0.6, 0.0]))
    text = Reader(found._repr_html_()).text
    assert "Backtest" in text
    assert "in their intervals" in text
    assert len(found.plot().axes) == len(found.actions) - 1


@pytest.mark.slow
def test_types_that_were_found_have_their_curve_and_are_not_tested() -> None:
    other = WEAR.copy()
    other[0, 0], other[1, 0] = [0.2, 0.8, 0.0], [0.0, 0.1, 0.9]
    log = simulated(np.stack([WEAR, other]), 40, 20, 0, by_state([0.1, 0.3, 0.8]), types=("a", "b"))
    clusters = find_clusters(log)
    found = replace(fitted(clusters.relabelled(log)), clusters=clusters)
    shown = page(fit_report(found))
    text = Reader(shown).text
    assert mentions("1 type")(shown)
    assert "mean probability" in text
    assert "test would find" in text
    assert found.diagnostics.between_types is None


def test_diagnostics_are_stored_and_in_the_json_form(vans: FitResult) -> None:
    assert vans.diagnostics is vans.diagnostics
    found = vans.to_dict()["diagnostics"]
    assert [said["said"] for said in found["words"]] == [said for _, said in vans.diagnostics.words]
    assert set(found) >= {"state", "before", "in_time", "between_types", "shares", "effects", "choices", "left_out"}
    assert found["effects"]["each"][0]["unit"] == "reward"
    again = diagnose(vans.log, vans.moves, vans.posterior, worth=vans.terms.rewards[:, :, 0])
    assert again.words == vans.diagnostics.words
