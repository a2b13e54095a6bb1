"""What commands are called: their groups in the help, and names of earlier releases, which are
accepted with a warning."""

import importlib
import sys
from collections import UserDict

import click

from launch.host.mpi import launched, started_by_us


def renamed(old: str, new: str) -> None:
    """Say on standard error that a name is one of an earlier release: once, also where many ranks
    read the same command line."""
    here = launched()
    if not started_by_us() and (here is None or here.rank == 0):
        line = f"drbench: {old} is now {new}; the old name goes with the next release"
        sys.stderr.write(f"{line}\n")


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
    old : dict of str to str
        Names of earlier releases -> the words to use instead.
    """

    def __init__(self, *arguments, sections, hidden=(), old=(), **words):
        self.sections, self.old = sections, dict(old)
        found = {name: each for section in sections.values() for name, each in section.items()}
        commands = _Commands(found | dict(hidden))
        super().__init__(*arguments, commands=commands, **words)

    def list_commands(self, ctx):
        """In the order of the help."""
        return [name for section in self.sections.values() for name in section]

    def resolve_command(self, ctx, args):
        """As click does, once an old name has been replaced."""
        if args and args[0] in self.old:
            new = self.old[args[0]]
            renamed(f"{ctx.command_path} {args[0]}", f"{ctx.command_path} {new}")
            args = [*new.split(), *args[1:]]
        return super().resolve_command(ctx, args)

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
