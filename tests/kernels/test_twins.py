"""Constants that twins write down twice, because a cache of compiled code heeds changes of its own file alone."""

import pytest

from evenhand.kernels import compiled_fluid, fluid_sweeps


@pytest.mark.parametrize("name", ["ADVANTAGE", "SAME"])
def test_the_fluid_twins_have_the_same(name):
    assert getattr(compiled_fluid, name) == getattr(fluid_sweeps, name)
