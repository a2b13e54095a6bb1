"""One name, one meaning, in every command; and names of earlier releases, which go on working with
a warning."""

import click
import pytest
from command_line import COMMANDS

from drbench.errors import UsageError
from launch.cases.sweep_values import scale_of
from launch.commands.cli import cli

#: What an option is wherever it is: its metavar.
MEANS = {
    "--out": "DIR",
    "--save": "FILE",
    "--label": "TEXT",
    "--launcher": "NAME|FILE",
    "--scale": "FACTOR",
    "--timeline": "FILE",
    "--ranks": "N",
    "--timeout": "SECONDS",
}
SMALL = ["-m", 8, "-n", 8, "-k", 8, "-p", 2]
#: Old words, and what says that they were understood as the new ones: of the old name, the new.
OLD = [
    (["check-claims", "nowhere"], "paper check-claims", "nowhere"),
    (["llm-study", "nothing"], "paper llm-study", "nothing"),
    (["tune-llm", "--model", "gpt3", "-p", 7], "paper tune-llm", "no mesh of 7"),
    (["paper", "tune-llm", "--model", "gpt3", "--chips", 7], "-p/--ranks", "no mesh of 7"),
    (["calibrate", "--out", "/no/x.toml"], "-o/--save", "--save /no/x.toml"),
    (["calibrate", "--save", "/no/x.toml", "--name", "x"], "--label", "--save /no/x.toml"),
    (["calibrate", "--save", "/no/x.toml", "--trials=3"], "--rounds", "--save /no/x.toml"),
    (["report", ".", "--out", "/no/x.html"], "-o/--save", "/no/x.html"),
    (["plot", "mlp1", "--out", "x.pdf"], "-o/--save", "what shall mlp1 be drawn from?"),
    (["run", *SMALL, "--trace", "/no/x.json"], "--timeline", "--timeline /no/x.json"),
    (["tune", *SMALL, "--fixed-b", "colum", "--machine", "pvc12"], "--b", "colum"),
    (["tune", *SMALL, "--algorithms", "canon", "--machine", "pvc12"], "--only", "canon"),
    (["sweep", "mlp1", "--machine", "./no.toml", "--dry-run"], "--launcher", "no.toml"),
    (["sweep", "none-such", "--machine", "box", "--dry-run"], "--label", "none-such"),
    (["peers", "--machine", "./no.toml"], "--launcher", "no.toml"),
    (["peers", "--machine", "box", "--only", "x"], "--label", "--only"),
    (["mlp", "--machine", "box", "--scale", 16], "--label", "16/1"),
    (["compare-algorithms", "--machine", "box", "--mesh", "3x3"], "--label", "3x3"),
]


def options(command):
    return [each for each in COMMANDS[command].params if isinstance(each, click.Option)]


@pytest.mark.parametrize("command", COMMANDS)
def test_an_option_is_the_same_in_every_command(command):
    for option in options(command):
        for name in set(option.opts) & MEANS.keys():
            assert option.metavar == MEANS[name], f"{command} {name}"
        if "--save" in option.opts:
            assert "-o" in option.opts
        if "--ranks" in option.opts:
            assert "-p" in option.opts


def test_no_old_name_is_a_name_of_another_option_or_in_the_help(say):
    for command in COMMANDS:
        names = {name for option in options(command) for name in option.opts}
        old = {name for option in options(command) for name in getattr(option, "old", ())}
        assert not old & names, command
        help_text = say(*command.split(), "--help").stdout.split()
        assert not [name for name in old if name in help_text], command


@pytest.mark.parametrize(
    "words, new, understood", OLD, ids=[" ".join(map(str, words)) for words, *_ in OLD]
)
def test_an_old_name_is_the_new_one_with_a_warning(say, monkeypatch, words, new, understood):
    monkeypatch.setattr(
        "launch.commands.run.run_ranks", lambda *_: pytest.fail("ranks were started")
    )
    warning, line = say(*words).stderr.splitlines()
    assert warning.startswith("drbench: ") and f" is now {new}" in warning.replace("drbench p", "p")
    assert understood in line, line


def test_an_old_name_beside_the_new_one_is_refused(say):
    line = say("paper", "tune-llm", "--model", "gpt3", "--chips", 4, "-p", 8).refusal()
    assert "--chips is now -p/--ranks, which is given too" in line


def test_a_label_is_no_model_and_a_run_says_so(say, monkeypatch):
    """Of ``run --machine box``: once the label of its record."""
    monkeypatch.setattr("launch.commands.run.run_ranks", lambda *_: 0)
    assert "--machine box, which is no model, is now --label" in (
        say("run", *SMALL, "--machine", "box").stderr
    )
    assert say("run", *SMALL, "--machine", "pvc12", "--label", "box").stderr == ""
    words = ["run", *SMALL, "--machine", "box", "--schedule", "cost"]
    assert "no machine model 'box'" in say(*words).refusal()


@pytest.mark.mpi
def test_under_a_launcher_one_rank_says_it(under_mpiexec, mpich):
    ended = under_mpiexec(3, "run", "-m", 8, "-n", 8, "-k", 8, "--trace", "no/x.json")
    assert ended.stderr.count("is now --timeline") == 1 and ended.codes == (2, 2, 2)


@pytest.mark.mpi
def test_ranks_do_not_say_it_again(drbench, mpich, tmp_path):
    ended = drbench("run", *SMALL, "--no-roof", "--iters", 1, "--trace", tmp_path / "x.json")
    assert ended.stderr.count("is now --timeline") == 1 and (tmp_path / "x.json").exists()


@pytest.mark.parametrize("text", ["16", "2", "1e3", "16.0", 16])
def test_a_bare_whole_number_is_no_scale(text):
    with pytest.raises(UsageError, match=r"write 1/\d+ .* or \d+/1"):
        scale_of(text)


@pytest.mark.parametrize(
    "command",
    [["sweep", "mlp1", "--dry-run"], ["mlp"], ["peers"]],
    ids=["sweep", "mlp", "peers"],
)
@pytest.mark.parametrize("scale, says", [("16", "16/1"), ("x", "1/16"), ("-1/2", "1/16")])
def test_scale_means_one_thing(say, command, scale, says):
    assert says in say(*command, "--scale", scale).refusal()


def test_the_help_has_a_section_for_each_purpose(say):
    printed = say("--help").stdout
    for heading, commands in cli.sections.items():
        section = printed.partition(f"\n{heading}:\n")[2].partition("\n\n")[0]
        for command in commands:
            assert f"  {command} " in section
