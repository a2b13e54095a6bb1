"""Groups of commands: their sections in the help, and modules that are imported when asked for."""

import importlib
from collections import UserDict

import click


class _Commands(UserDict):
    """Commands by name: commands as they are, or the module of each, imported when it is asked
    for."""

    def __getitem__(self, name):
        found = self.data[name]
        if isinstance(found, click.Command):
            return found
        module = importlib.import_module(f"{__package__}.{found}")
        commands = (each for each in vars(module).values() if isinstance(each, click.Command))
        return next(each for each in commands if each.name == name)


class Group(click.Group):
    """Commands whose help has sections.

    Parameters
    ----------
    sections : dict of str to dict
        heading -> name of a command -> its module in this package, or the command itself.
    hidden : dict
        Likewise, commands that the help does not show.
    """

    def __init__(self, *arguments, sections, hidden=(), **words):
        self.sections = sections
        found = {name: each for section in sections.values() for name, each in section.items()}
        commands = _Commands(found | dict(hidden))
        super().__init__(*arguments, commands=commands, **words)

    def list_commands(self, ctx):
        """In the order of the help."""
        return [name for section in self.sections.values() for name in section]

    def format_commands(self, ctx, formatter):
        """A section for each heading."""
        width = max(map(len, self.list_commands(ctx)))
        for heading, section in self.sections.items():
            rows = [
                (name.ljust(width), self.commands[name].get_short_help_str(limit=200))
                for name in section
            ]
            with formatter.section(heading):
                formatter.write_dl(rows)
