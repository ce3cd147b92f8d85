"""The language check finds idiom, and leaves plain sentences alone."""

import pytest

from tests.language import find_words, without_code


@pytest.mark.parametrize(
    "sentence",
    [
        "One row an arm and step.",
        "The next row shows what became of it.",
        "Nobody has transition matrices.",
        "The bound is no proof of that.",
        "The action is to be\nchosen by hand.",
        "The server answers 200 requests a second.",
        "A type with few records leans on the others.",
        "It is what the planner asked for.",
        "What does not fit is refused.",
    ],
)
def test_idiom_is_found(sentence):
    assert list(find_words(sentence))


@pytest.mark.parametrize(
    "sentence",
    [
        "There is no server.",
        "The gap is no larger than 1e-8.",
        "One visit per day takes a second or two.",
        "What if the budget grows?",
        without_code("`told` is a name of the file."),
    ],
)
def test_plain_sentences_pass(sentence):
    assert not list(find_words(sentence))
