"""Driver and workers run the same code: else answers might differ, and a proof would be no proof.

Code is told by the version and by a digest of the package's sources, since two checkouts of one version may differ.
"""

import hashlib
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from evenhand._version import __version__
from evenhand.errors import ClusterError

Versions = tuple[str, str, str, str]
"""Of evenhand, the digest of its sources, of Python and of NumPy."""

_NAMES = ("evenhand", "sources of evenhand", "Python", "NumPy")


@cache
def ours() -> Versions:
    """What runs here."""
    python = ".".join(map(str, sys.version_info[:2]))
    return __version__, _digest(Path(__file__).parents[1]), python, np.__version__


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(f"{path.relative_to(folder).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def check(theirs: Sequence[str], worker: str) -> None:
    """Raise ClusterError unless a worker runs what runs here.

    Args:
        theirs: its versions.
        worker: what it is called.
    """
    pairs = zip(_NAMES, ours(), theirs, strict=True)
    differ = [f"{name} {there} instead of {here}" for name, here, there in pairs if here != there]
    if differ:
        raise ClusterError(
            f"{worker} runs {', '.join(differ)}: driver and workers must run the same, or answers could differ. "
            "Install the same versions on all machines."
        )
