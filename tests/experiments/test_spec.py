"""Targets: what is read from a file, and what is told of a faulty one."""

import re

import pytest

from evenhand.errors import InvalidInput
from evenhand.experiments.spec import choose, read_target, read_targets


def write(tmp_path, text, name="target.toml"):
    path = tmp_path / name
    path.write_text(text)
    return path


def faults_of(tmp_path, text):
    with pytest.raises(InvalidInput) as refusal:
        read_target(write(tmp_path, text))
    return str(refusal.value)


def test_every_combination_is_a_cell_with_its_label(tmp_path, small_text):
    target = read_target(write(tmp_path, small_text))
    labels = [(planned.method, planned.instance, planned.seed) for planned in target.full]
    assert labels == [
        ("OPT", "N=2", None), ("OPT", "N=3", None),
        ("RDM", "N=2", 0), ("RDM", "N=2", 1), ("RDM", "N=3", 0), ("RDM", "N=3", 1),
    ]  # fmt: skip


def test_settings_hold_the_sizes_and_every_default(tmp_path, small_text):
    last = read_target(write(tmp_path, small_text)).full[-1].cell
    assert last.settings == {
        "problem": "machine-replacement",
        "parameters": {"num_arms": 3},
        "policy": "random",
        "welfare": "gini:2",
        "num_episodes": 20,
        "horizon": 300,
        "seed": 1,
    }


def test_quick_replaces_sizes(tmp_path, small_text):
    target = read_target(write(tmp_path, small_text))
    assert [(planned.method, planned.instance, planned.seed) for planned in target.quick] == [
        ("OPT", "N=2", None),
        ("RDM", "N=2", 0),
    ]
    assert target.plan(True) == target.quick
    assert target.plan(False) == target.full


def test_a_target_may_be_about_learning_curves(tmp_path, small_text):
    assert read_target(write(tmp_path, small_text)).curves is False
    assert read_target(write(tmp_path, "curves = true\n" + small_text)).curves is True


def test_published_numbers_are_read(tmp_path, small_text):
    target = read_target(write(tmp_path, small_text))
    (series,) = target.published
    assert (target.instances, series.method, series.values, series.deviations) == (
        ("N=2", "N=3"),
        "OPT",
        (14.19, 14.08),
        None,
    )


def test_a_size_that_is_a_table_gives_its_entries(tmp_path, small_text):
    text = small_text.replace("num_arms = [2, 3]", "num_arms = [{ n = 2, b = 1 }, { n = 7, b = 3 }]")
    text = text.replace("num_arms = [2]\n", "").replace("N=$num_arms", "N=$num_arms.n")
    text = text.replace('{ num_arms = "$num_arms" }', '{ num_arms = "$num_arms.n", budget = "$num_arms.b" }')
    target = read_target(write(tmp_path, text))
    assert [planned.cell.settings["parameters"] for planned in target.full[:2]] == [
        {"num_arms": 2, "budget": 1},
        {"num_arms": 7, "budget": 3},
    ]
    assert target.full[1].instance == "N=7"


def test_all_faults_are_told_at_once_with_their_places(tmp_path, small_text):
    text = small_text.replace('title = "Small"', "title = 3")
    text = text.replace("values = [14.19, 14.08]", "values = [14.19]")
    text = text.replace('kind = "optimum"', 'kind = "optimun"')
    text = text.replace('policy = "random"', 'policy = "randon"')
    text = text.replace("[quick]", "[quick]\nstep = 3")
    text = text.replace('seed = "$seed"', 'seed = "$seeds"')
    told = faults_of(tmp_path, text)
    for place, reason in (
        ("title", "expected a text, got 3"),
        ("published.series[0].values", "expected 2 numbers, one an instance, got 1"),
        ("cells[0].kind", "Did you mean 'optimum'?"),
        ("cells[1].settings.policy", "Did you mean 'random'?"),
        ("quick.step", "replaces nothing"),
        ("cells[1].settings.seed", "did you mean seed?"),
    ):
        (line,) = (line for line in told.splitlines() if line.startswith(f"  {place}: "))
        assert reason in line


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('policy = "random"\n', "", "cells[1].settings: policy is missing: named-policy needs it"),
        (
            'policy = "random"',
            'policy = "random"\nhorizont = 3',
            "settings.horizont: is unknown; did you mean horizon?",
        ),
        ('num_episodes = "$num_episodes"', "num_episodes = 2.5", "num_episodes: expected a whole number"),
        ('"machine-replacement"', '"machine-replacemen"', "Did you mean 'machine-replacement'?"),
        ('{ num_arms = "$num_arms" }', "{ num_arms = 0 }", "settings.parameters.num_arms:"),
        ('each = ["num_arms"]', 'each = ["num_arm"]', "cells[0].each: num_arm: is unknown; did you mean num_arms?"),
        ('each = ["num_arms"]', 'each = ["num_episodes"]', "expected a list that is not empty"),
        ("[sizes]", "[size]", "size: is unknown; did you mean sizes?"),
        ("about", "abuot", "about: expected a text, got nothing"),
        ("[published]", "curves = 1\n[published]", "curves: expected true or false, got 1"),
    ],
)
def test_a_fault_is_told_in_the_users_words(old, new, told, tmp_path, small_text):
    assert old in small_text
    assert told in faults_of(tmp_path, small_text.replace(old, new))


def test_a_fault_of_many_cells_is_told_once(tmp_path, small_text):
    told = faults_of(tmp_path, small_text.replace('policy = "random"', 'policy = "randon"'))
    assert told.count("randon") == 1


def test_what_is_no_toml_is_told_with_its_line(tmp_path):
    assert re.search(r"target\.toml: 1 fault\n.*line 2", faults_of(tmp_path, 'title = "x"\nabout = \n'))


def test_faults_of_all_files_are_told(tmp_path):
    for name in ("a.toml", "b.toml"):
        write(tmp_path, "title = 1", name)
    with pytest.raises(InvalidInput) as refusal:
        read_targets(tmp_path)
    assert "a.toml" in str(refusal.value)
    assert "b.toml" in str(refusal.value)


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="found none"):
        read_targets(tmp_path)


NAMES = ["table-1", "table-10", "figure-1", "figure-2a", "figure-2b", "beyond-exact"]


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        (["table-1"], ["table-1"]),
        (["figure-2"], ["figure-2a", "figure-2b"]),
        (["figure"], ["figure-1", "figure-2a", "figure-2b"]),
        (["figure-2b", "table-1", "figure-2b"], ["table-1", "figure-2b"]),
        (["all"], NAMES),
    ],
)
def test_targets_are_chosen_by_name_or_beginning(asked, chosen):
    assert choose({name: name for name in NAMES}, asked) == chosen


def test_unknown_targets_are_all_told_with_the_nearest():
    with pytest.raises(InvalidInput) as refusal:
        choose({name: name for name in NAMES}, ["tabel-1", "table-1", "figure-3"])
    first, second = str(refusal.value).splitlines()
    assert "'tabel-1'. Did you mean 'table-1'?" in first
    assert "'figure-3'" in second
