"""Where the targets of `evenhand reproduce` are."""

from pathlib import Path

import evenhand
from evenhand.errors import InvalidInput


def targets_folder(paper: str | None) -> Path:
    """Where the targets are: given, in the package, or beside its sources."""
    if paper is not None:
        if not Path(paper).is_dir():
            raise InvalidInput(f"--paper: there is no folder {paper}")
        return Path(paper)
    package = Path(evenhand.__file__).parent
    for folder in (package / "paper", package.parent.parent / "paper"):
        if folder.is_dir():
            return folder
    raise InvalidInput("the targets are not part of this installation; name their folder with --paper")
