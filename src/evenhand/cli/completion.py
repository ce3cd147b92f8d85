"""Completion of the shell: names of problems, policies, welfares, and files.

Click has the machinery: `_EVENHAND_COMPLETE=bash_source evenhand` prints what Bash needs. Candidates are found by the
name of a parameter, so that a new command completes as the others do. A shell completes files by itself if a file is
allowed there; Bash does so only if nothing else fits, so files of the right kind are listed here, too.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

Found = Iterable[tuple[str, str]]
"""Values, each with a few words on it or nothing."""

MODELS, POLICIES, TABLES, PAGES = (".toml", ".json", ".npz"), (".zip",), (".csv", ".parquet", ".json"), (".html",)


def _problems(context: click.Context) -> Found:
    from evenhand.problems.catalog import CATALOG

    return [(entry.name, entry.summary) for entry in CATALOG]


def _policies(context: click.Context) -> Found:
    from evenhand.planning.policy_registry import REGISTRY

    return [(known.name, known.summary) for known in REGISTRY]


def _parameters(context: click.Context) -> Found:
    """Return KEY= of the problem that was typed before; KEY=VALUE if there are choices."""
    from evenhand.problems.catalog import CATALOG

    # An option whose value is still to come ends Click's reading, and what was read before is left in `args`.
    typed = (context.params.get("model"), context.params.get("name"), *context.args)
    for entry in CATALOG:
        for parameter in entry.parameters if entry.name in typed else ():
            values = [str(choice) for choice in parameter.choices] or [""]
            yield from ((f"{parameter.name}={value}", parameter.help) for value in values)


def _listed(*words: str | tuple[str, str]) -> Callable[[click.Context], Found]:
    return lambda context: [(word, "") if isinstance(word, str) else word for word in words]


_WELFARES = _listed(
    ("gini:half=0.75", "weights of which the worse-off half has 75 %"),
    ("gini:2", "weights that fall by a factor 2 from the worst-off on"),
    ("utilitarian", "the mean"),
    ("maximin", "the worst-off"),
    ("maximin:0.01", "the worst-off, and a little of the mean"),
    ("leximin", "the worst-off, then the next, and so on"),
    ("nash", "proportional fairness, the geometric mean"),
    ("alpha:2", "alpha-fairness"),
)
_CRITERIA = _listed("discounted", ("average", "the long-run mean"), ("finite:", "the first T steps"))
_METHODS = _listed("auto", "counts", "joint", "count-lp", "joint-lp", "whittle", "fluid")


class Completed(click.types.StringParamType):
    """Text, and the names and files that may be typed for it."""

    def __init__(self, names: Callable[[click.Context], Found] | None, files: tuple[str, ...] = (), many: bool = False):
        self.names, self.files, self.many = names, files, many

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the candidates that begin with the typed text; of names separated by commas, the last."""
        before, comma, last = incomplete.rpartition(",") if self.many else ("", "", incomplete)
        known = [(name, about) for name, about in (self.names(ctx) if self.names else ()) if name.startswith(last)]
        if self.files and os.environ.get("_EVENHAND_COMPLETE", "bash").startswith("bash"):
            known += [(name, "") for name in _files(last, self.files)]
        found = [CompletionItem(before + comma + name, help=about or None) for name, about in known]
        # First: Bash then drops earlier items.
        return [CompletionItem(incomplete, type="file"), *found] if self.files and not comma else found


def _files(start: str, suffixes: tuple[str, ...]) -> list[str]:
    """Return the files of some kinds that begin with the typed text; hidden ones if the dot was typed."""
    folder, slash, beginning = start.rpartition("/")
    try:
        names = sorted(entry.name for entry in Path(folder + slash).iterdir() if entry.is_file())
    except OSError:
        return []
    fitting = [name for name in names if name.startswith(beginning) and name.endswith(suffixes)]
    return [f"{folder}{slash}{name}" for name in fitting if beginning.startswith(".") or not name.startswith(".")]


COMPLETED: "dict[str, click.ParamType[Any]]" = {
    "model": Completed(_problems, MODELS),
    "name": Completed(_problems),
    "parameters": Completed(_parameters),
    "policy": Completed(_policies, POLICIES),
    "policies": Completed(_policies, POLICIES, many=True),
    "candidates": Completed(_policies, POLICIES),
    "plan": Completed(None, POLICIES),
    "states": Completed(None, TABLES),
    "initial": Completed(None, TABLES),
    "welfare": Completed(_WELFARES),
    "welfares": Completed(_WELFARES),
    "criterion": Completed(_CRITERIA),
    "over": Completed(_listed("arms", "groups")),
    "method": Completed(_METHODS),
    "out": Completed(None, (*MODELS, *POLICIES)),
    "report": Completed(None, PAGES),
    "tensorboard": click.Path(file_okay=False),
}
"""Completions of parameters that are texts, by name."""


class Commands(click.Group):
    """Group whose list of commands has whole sentences, and whose parameters a shell completes."""

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        """Add a command, whose parameters a shell can then complete by their names."""
        for parameter in cmd.params:
            if parameter.type is click.STRING and parameter.name in COMPLETED:
                parameter.type = COMPLETED[parameter.name]
        super().add_command(cmd, name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.listed_help(ctx, name)) for name in self.list_commands(ctx)])

    def listed_help(self, ctx: click.Context, name: str) -> str:
        """Return the line of a command in the list."""
        command = self.get_command(ctx, name)
        return "" if command is None else command.get_short_help_str(1000)
