"""The lowest versions that pyproject.toml allows, as requirements of exactly these versions.

    python tests/floors.py [EXTRA ...]

prints one line per package: those of the library, then those of the extras. A file of pytest's own requirements is not
part of it, as the tests themselves may run with newest versions.
"""

import re
import sys
import tomllib
from pathlib import Path

REQUIREMENT = re.compile(r"([\w.-]+(?:\[[\w,]+\])?)(?:>=|==)([\w.]+)$")


def floors(extras: list[str]) -> list[str]:
    """Return `name==version` of every requirement, that of an extra that names another extra included.

    Args:
        extras: extras of evenhand.
    """
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))["project"]
    lines = [*project["dependencies"], *(line for name in extras for line in project["optional-dependencies"][name])]
    return [f"{found[1]}=={found[2]}" for line in lines if (found := REQUIREMENT.fullmatch(line))]


if __name__ == "__main__":
    print("\n".join(floors(sys.argv[1:])))
