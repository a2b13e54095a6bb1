"""--help is enough: every command and option is explained on one screen, and its examples can be
typed."""

import re

import click
import pytest
from command_line import COMMANDS

from algorithms import algorithms
from launch.commands.cli import cli

#: The numbers of commands and options; lower these when there are fewer.
MOST_COMMANDS, MOST_OPTIONS = 15, 214
#: Lines of 80 columns: of ``drbench --help`` without its commands (the goal is 8), of a command.
MOST_OTHER_LINES, MOST_LINES = 14, 60
#: Options with one help text in all commands.
SHARED = "--machine --ranks --json --csv --out --timeout --yes --peak --launcher --scale".split()


def options(command):
    return [each for each in COMMANDS[command].params if isinstance(each, click.Option)]


def test_commands_and_options_are_few_enough_to_know():
    shown = [command for command in COMMANDS if command.split()[0] in cli.list_commands(None)]
    count = sum(len(options(command)) for command in shown)
    print(f"{len(cli.list_commands(None))} commands, {count} options")
    assert len(cli.list_commands(None)) <= MOST_COMMANDS and count <= MOST_OPTIONS


def test_the_help_is_one_screen_and_names_every_command_and_exit_code(run_cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    printed = run_cli("--help").stdout
    commands = cli.list_commands(None)
    assert len(printed.splitlines()) <= len(commands) + MOST_OTHER_LINES
    assert max(map(len, printed.splitlines())) <= 80 and "..." not in printed.partition("\n")[2]
    for command in commands:
        assert re.search(rf"^  {command} ", printed, re.MULTILINE)
    codes = "0 ok, 1 wrong result, 2 usage, 3 unsupported or missing, 4 timeout, 5 failed"
    assert codes in " ".join(printed.split())


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_and_its_options_have_a_help_text(run_cli, command):
    printed = " ".join(run_cli(*command.split(), "--help").stdout.split())
    assert len(COMMANDS[command].help) > 20
    for option in options(command):
        assert option.help and len(option.help) > 8, f"{command} {option.opts[0]} has no help"
        assert " ".join(option.help.split()[:4]) in printed and not option.hidden
        named = [name for name in algorithms() if re.search(rf"\b{name}\b", option.help)]
        assert len(named) < 2, f"{command} {option.opts[0]} is about {named}"


@pytest.mark.parametrize("command", ["run", "plan", "explain"])
def test_the_help_of_a_command_is_short(run_cli, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    assert len(run_cli(command, "--help").stdout.splitlines()) <= MOST_LINES


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_of_a_command_fit_a_terminal(run_cli, command):
    printed = run_cli(*command.split(), "--help").stdout.splitlines()
    examples = [line for line in printed if re.match("    (drbench|mpirun|srun) ", line)]
    assert (examples or command.startswith("serve")) and max(map(len, examples), default=0) <= 80


@pytest.mark.parametrize("flag", SHARED)
def test_an_option_of_several_commands_has_one_help_text(flag):
    text = {
        option.help
        for command in ("run", "plan", "explain", "simulate", "chain", "bandwidth", "calibrate")
        for option in options(command)
        if flag in option.opts
    }
    assert len(text) <= 1, text


@pytest.mark.parametrize(
    "command, does",
    [("compare", "Write"), ("artifact", "Write"), ("sweep", "Write"), ("run", "Append")],
)
def test_the_help_of_a_file_that_is_written_anew_does_not_mention_appending(command, does):
    (text,) = (option.help for option in options(command) if "--csv" in option.opts)
    assert text.startswith(does)


@pytest.mark.parametrize("command, takes", [("run", True), ("list", False)])
def test_an_option_of_algorithms_is_refused_with_the_right_option(run_cli, command, takes):
    line = run_cli(command, "--chunk", 256).refusal()
    assert "--chunk" in line and ("are given by -o" in line) is takes


def test_short_and_long_help_are_the_same(run_cli):
    assert run_cli("run", "-h").stdout == run_cli("run", "--help").stdout


def test_without_a_command_the_help_is_printed(run_cli):
    """With all its lines, not as a one-line error."""
    ended = run_cli()
    assert ended.returncode in (0, 2)
    assert re.search("^  run  ", ended.stdout + ended.stderr, re.MULTILINE)


def test_the_version_is_printed(run_cli):
    from drbench import __version__

    assert run_cli("--version").stdout.startswith(f"drbench, version {__version__}")
