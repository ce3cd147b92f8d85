"""The settings of training: declared once, and the same to Python, the command line, checkpoints, manifests."""

import inspect
from dataclasses import fields
from pathlib import Path

import pytest

from evenhand import train
from evenhand.cli import application
from evenhand.cli.commands.train import read_settings
from evenhand.errors import InvalidInputError, UnknownNameError
from evenhand.learning import ALGORITHMS, TrainingRun, TrainingSettings
from evenhand.learning.settings import CHOICES, HELPS
from evenhand.planning.shipped import manifests
from evenhand.problems import machine_replacement

from ..conftest import mentions

MACHINES = machine_replacement(num_arms=3, budget=1)
OLD = Path(__file__).parent / "data"
"""Files of a run as it was before its settings were one object, written half-way by ppo of two copies, and whole."""

NAMES = [setting.name for setting in fields(TrainingSettings)]


class TestTheSameEverywhere:
    def test_in_python(self):
        asked = inspect.signature(train).parameters
        assert list(asked) == ["problem", *(each.name for each in fields(TrainingRun))]
        assert all(asked[each.name].default == each.default for each in fields(TrainingRun))
        assert all(f"{each.name}: {HELPS[each.name]}" in inspect.getdoc(train) for each in fields(TrainingRun))

    def test_on_the_command_line(self):
        options = {option.name: option for option in application.get_command(None, "train").params}
        for setting in fields(TrainingSettings):
            option = options[setting.name]
            assert option.help == HELPS[setting.name] and option.help
            assert tuple(getattr(option.type, "choices", ())) == CHOICES.get(setting.name, ())
        typed = {name: option.default for name, option in options.items() if name in NAMES} | {"budget": ()}
        assert TrainingSettings(**read_settings(typed)) == TrainingSettings()

    def test_the_learners_are_those_that_are_named(self):
        pytest.importorskip("stable_baselines3")
        from evenhand.learning import LEARNERS

        assert tuple(LEARNERS) == ALGORITHMS

    def test_in_the_networks_that_ship(self):
        for manifest in manifests().values():
            assert manifest["about"]["settings"].keys() == {*NAMES, "learner"}


class TestRefused:
    def test_a_name_that_is_nearly_right(self):
        with pytest.raises(UnknownNameError, check=mentions("horizn", "horizon")):
            train(MACHINES, horizn=20)

    def test_before_anything_heavy_is_loaded(self):
        for wrong in ({"steps": 0}, {"seed": True}, {"architecture": "raw"}, {"hidden": [3, 0]}):
            with pytest.raises(InvalidInputError, match=next(iter(wrong))):
                TrainingSettings(**wrong)

    def test_they_cannot_be_changed(self):
        with pytest.raises(AttributeError):
            TrainingSettings().steps = 3

    def test_lists_equal_tuples(self):
        assert TrainingSettings(hidden=[8, 8]) == TrainingSettings(hidden=(8, 8))
