"""Groups of commands."""

import click

from evenhand.cli.completion import complete


class Commands(click.Group):
    """A group whose list of commands says whole sentences, however long, and that a shell completes."""

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        """Add a command, whose parameters a shell can then complete by their names."""
        complete(cmd)
        super().add_command(cmd, name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [
            (name, command.get_short_help_str(1000)) for name, command in commands if command and not command.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
