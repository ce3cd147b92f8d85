"""A small folder of targets, for tests that run it."""

from pathlib import Path

import pytest

SMALL = """
title = "Small"
source = "Table 1"
about = "A few machines."

[published]
instances = ["N=2", "N=3"]
[[published.series]]
method = "OPT"
quantity = "welfare"
values = [14.19, 14.08]

[sizes]
num_arms = [2, 3]
seed = [0, 1]
num_episodes = 20

[quick]
num_arms = [2]
seed = [0]

[[cells]]
method = "OPT"
instance = "N=$num_arms"
kind = "optimum"
each = ["num_arms"]
[cells.settings]
problem = "machine-replacement"
parameters = { num_arms = "$num_arms" }

[[cells]]
method = "RDM"
instance = "N=$num_arms"
kind = "named-policy"
each = ["num_arms", "seed"]
[cells.settings]
problem = "machine-replacement"
parameters = { num_arms = "$num_arms" }
policy = "random"
num_episodes = "$num_episodes"
seed = "$seed"
"""


@pytest.fixture
def small_text() -> str:
    return SMALL


@pytest.fixture
def paper(tmp_path) -> Path:
    """A folder with one target, `table-1`."""
    folder = tmp_path / "paper"
    folder.mkdir()
    (folder / "table-1.toml").write_text(SMALL)
    return folder
