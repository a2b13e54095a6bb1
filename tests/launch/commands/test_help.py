"""--help is enough: every command and option explains itself, and what it names can be typed."""

import re

import click
import pytest
from command_line import COMMANDS

from launch.cases.case import Case
from launch.cases.sweep_values import shipped
from launch.commands.cli import cli

#: What the issue asks for.
ISSUE = {
    "run": [
        "-m",
        "-n",
        "-k",
        "-p",
        "--a",
        "--b",
        "--c",
        "--stationary",
        "--iters",
        "--warmup",
        "--preset",
        "--dtype",
        "--fill",
        "--get",
        "--transport",
        "--prefetch",
        "--csv",
        "--json",
        "--check",
        "--no-check",
        "--roof",
        "--seed",
        "--threads",
        "--replicate-result",
    ],
    "plan": ["-m", "-n", "-k", "-p", "--a", "--b", "--c", "--stationary", "--rank", "--json"],
    "list": [],
    "doctor": [],
}


def options(command):
    return [
        parameter for parameter in COMMANDS[command].params if isinstance(parameter, click.Option)
    ]


@pytest.mark.parametrize(
    "command, name",
    [(command, name) for command, names in ISSUE.items() for name in ["--help", *names]],
)
def test_every_option_of_the_issue_is_in_the_help(say, command, name):
    ended = say(command, "--help")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert re.search(rf"(^|[ ,/]){re.escape(name)}\b", ended.stdout, re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_says_what_it_does(say, command):
    everything = (
        "--help-all" if "--help-all" in say(*command.split(), "--help").stdout else "--help"
    )
    printed = " ".join(say(*command.split(), everything).stdout.split())
    for option in options(command):
        assert option.help and len(option.help) > 8, f"{command} {option.opts[0]} has no help"
        assert " ".join(option.help.split()[:4]) in printed
        assert not option.hidden


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_says_what_it_does(command):
    assert len(COMMANDS[command].help) > 20


def test_the_help_lists_every_command_and_the_exit_codes(say):
    printed = say("--help").stdout
    for command in cli.list_commands(None):
        assert re.search(rf"^  {command} ", printed, re.MULTILINE)
    for code in (
        "0 ok",
        "1 wrong",
        "2 usage",
        "3 unsupported",
        "4 timeout",
        "5 failed",
        "6 out of memory",
    ):
        assert code in " ".join(printed.split())


@pytest.mark.parametrize("command", ["run", "plan", "simulate"])
def test_the_help_of_a_command_with_many_options_shows_the_common_ones(say, command):
    short, whole = (say(command, word).stdout for word in ("--help", "--help-all"))
    assert len(short.splitlines()) <= min(130, len(whole.splitlines()) - 20)
    assert "--mesh" not in short and "--stationary" in short and "--mesh" in whole


def test_the_help_of_sweep_names_every_sweep_that_comes_with_drbench(say):
    printed = " ".join(say("sweep", "--help").stdout.split())
    assert ", ".join(shipped("sweeps")) in printed


def test_short_and_long_help_are_the_same(say):
    assert say("run", "-h").stdout == say("run", "--help").stdout


def test_the_defaults_are_those_of_the_issue():
    defaults = {option.name: option.default for option in options("run")} | {
        "get": Case(8, 8, 8).get,
        "prefetch": Case(8, 8, 8).look_ahead,
    }
    assert Case(8, 8, 8, backend="cupy").get == "copy"
    assert {
        name: defaults[name]
        for name in (
            "iters",
            "warmup",
            "dtype",
            "fill",
            "get",
            "transport",
            "prefetch",
            "check",
            "seed",
        )
    } == {
        "iters": 10,
        "warmup": 1,
        "dtype": "float32",
        "fill": "integer",
        "get": "view",
        "transport": "auto",
        "prefetch": 1,
        "check": True,
        "seed": 0,
    }


@pytest.mark.parametrize(
    "option, words",
    [
        ("chunk", ["auto", "none"]),
        ("transport", ["auto", "direct", "rma", "throttled:GBps,us"]),
        ("rank", ["all"]),
    ],
)
def test_the_help_spells_words_as_they_must_be_typed(say, option, words):
    """Not in capitals, as click puts a type's name: ``--chunk AUTO`` is refused."""
    command = "plan" if option == "rank" else "run"
    metavar = re.search(rf"^ +--{option} (\S+)", say(command, "--help").stdout, re.MULTILINE)[1]
    assert set(words) <= set(metavar.split("|")), metavar


def test_without_a_command_the_help_comes_as_it_is(say):
    """Line by line, not as one line of an error."""
    ended = say()
    assert ended.returncode in (0, 2)
    assert re.search("^Many cases:$", ended.stdout + ended.stderr, re.MULTILINE)


def test_the_version_is_said(say):
    from drbench import __version__

    assert say("--version").stdout == f"drbench, version {__version__}\n"
