"""Every command and option is explained by --help."""

import re

import click
import pytest
from command_line import COMMANDS

from drbench import __version__
from drbench.launch.commands.cli import cli


def test_the_help_names_every_command_and_exit_code(run_cli):
    printed = run_cli("--help").stdout
    for command in cli.list_commands(None):
        assert re.search(rf"^  {command} ", printed, re.MULTILINE)
    assert all(f" {code} " in " ".join(printed.split()) for code in range(7))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_and_its_options_have_a_help_text(run_cli, command):
    ended = run_cli(command, "--help")
    printed = " ".join(ended.stdout.split())
    assert (ended.returncode, ended.stderr) == (0, "") and len(COMMANDS[command].help) > 20
    for option in COMMANDS[command].params:
        if isinstance(option, click.Option):
            assert " ".join(option.help.split()[:4]) in printed, option.opts[0]
    assert run_cli(command, "-h").stdout == ended.stdout


def test_without_a_command_the_help_is_printed(run_cli):
    """With all its lines, not as a one-line error."""
    ended = run_cli()
    assert ended.returncode in (0, 2)
    assert re.search("^  run  ", ended.stdout + ended.stderr, re.MULTILINE)


def test_the_version_is_printed(run_cli):
    assert run_cli("--version").stdout.startswith(f"drbench, version {__version__}")
