"""Every command of the command line, by the words it is called with, hidden ones too."""

import click

from drbench.launch.commands.cli import cli

_CONTEXT = click.Context(cli)
COMMANDS = {
    name: cli.get_command(_CONTEXT, name)
    for name in (*cli.list_commands(_CONTEXT), "serve", "serve-chain")
}
