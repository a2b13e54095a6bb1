"""The command line: reads the options; the modules that it calls do the work."""

import importlib
import sys
import traceback
from contextlib import suppress

import click

from drbench.errors import EXIT_CODES, DrbenchError, UsageError, as_ours, did_you_mean
from drbench.host.launcher import end_ranks
from drbench.launch.host.mpi import STRANGERS, is_rank, launched
from drbench.launch.host.streams import open_streams
from drbench.partitions import LayoutError
from drbench.version import read_version

#: For each command its module, seen from this package, and its line of the help. To add one: write
#: launch/commands/NAME.py (or in a folder, as predict/tune.py, or elsewhere, as chains/command.py)
#: with a ``@command("name")`` of options.py, and add a line here. A module is imported when its
#: command is called.
_COMMANDS = {
    "run": ("run", "Run one multiplication on MPI ranks, verify and time it."),
    "plan": ("plan", "Show a rank's program without running it: steps, bytes, memory."),
    "explain": ("predict.explain", "Write an HTML page that shows a run step by step."),
    "simulate": ("predict.model", "Predict the time of one multiplication on a machine model."),
    "tune": ("predict.tune", "Choose layouts, algorithm and options for a multiplication."),
    "chain": ("..chains.command", "Choose the sharding of a transformer layer or another chain."),
    "sweep": ("sweep", "Run every case of an experiment; resume it after a stop."),
    "report": ("results", "Write one HTML page about the folder of a sweep."),
    "plot": ("results", "Draw a figure from records."),
    "compare": ("results", "Compare records with earlier ones, case by case."),
    "history": ("history", "List cases over dates or commits, and mark steps."),
    "bandwidth": ("bandwidth", "Measure transfers between ranks by message size."),
    "calibrate": ("predict.model", "Measure this machine and write its machine model."),
    "doctor": ("doctor", "Report what this machine offers, and what to change."),
    "list": ("listing", "List algorithms, libraries, machines and more, and their options."),
    "artifact": ("artifact", "Check the artifact: its steps, records, and every claim."),
}
#: Commands that drbench starts its ranks with.
_HIDDEN = {"serve": "run", "serve-chain": "..chains.command"}
_INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code (0 ok, 1 wrong, 2 usage, 3 unsupported, 4
    timeout, 5 failed, 6 out of memory).

    Under a launcher every rank calls this. Rank 0 reports an error that all ranks find; an
    exception on one rank alone, SystemExit too, ends all ranks.
    """
    if arguments is None:  # those of this process
        open_streams()
        arguments = sys.argv[1:]
    try:
        code = cli.main(
            args=list(arguments), prog_name="drbench", standalone_mode=False, obj=tuple(arguments)
        )
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help())
        return EXIT_CODES["usage"]
    except click.ClickException as error:
        return _report(_one_line(error), EXIT_CODES["usage"])
    except (click.exceptions.Abort, KeyboardInterrupt):
        _abort(_INTERRUPTED)
        return _report("interrupted", _INTERRUPTED)
    except (Exception, SystemExit) as error:
        ours = UsageError(str(error)) if isinstance(error, LayoutError) else as_ours(error)
        if ours:
            module = sys.modules.get("drbench.launch.ranks.run_case")
            if module and not module.everyone_is_here():  # one of several running ranks, alone
                sys.stderr.write(f"drbench: {ours} (found by this rank alone)\n")
                _abort(ours.exit_code)
            return _report(str(ours), ours.exit_code)
        # a bug, or a failed rank: show it and end all ranks
        if isinstance(error, SystemExit) and (error.code == STRANGERS or not is_rank()):
            raise
        with suppress(DrbenchError):  # it cannot be written
            sys.stdout.flush()
        sys.stderr.write(traceback.format_exc())
        _abort(EXIT_CODES["failed"])
        return EXIT_CODES["failed"]


def _one_line(error: click.ClickException) -> str:
    text = " ".join(error.format_message().split())
    context = getattr(error, "ctx", None)
    if context is not None and isinstance(error, click.UsageError):
        takes = {parameter.name for parameter in context.command.params}
        if isinstance(error, click.NoSuchOption) and "option" in takes:
            text += " Options of an algorithm are given by -o, as -o chunk=256."
        return f"{text} See {context.command_path} --help."
    return text


def _report(message: str, code: int) -> int:
    """Print one line on standard error, on the first rank only, unless all is well, and return the
    exit code."""
    here = launched()
    if code and (here is None or here.rank == 0):
        sys.stderr.write(f"drbench: {' '.join(message.split())}\n")
    return code


def _abort(code: int) -> None:
    """End all ranks if this process is one of several, once the launcher has read its output; does
    nothing otherwise."""
    here = launched()
    if here is None or here.size == 1:
        return
    try:
        import mpi4py

        mpi4py.rc.initialize = False
        from mpi4py import MPI
    except (ImportError, RuntimeError):
        return  # no MPI, so no rank waits in it
    if not MPI.Is_initialized():  # other ranks may be in MPI_Init already, and would wait there
        MPI.Init()
    if not MPI.Is_finalized():
        end_ranks(MPI.COMM_WORLD, code)


class CommandGroup(click.Group):
    """The commands, each imported when it is called."""

    def list_commands(self, ctx):
        """The names of the commands, in the order of the help."""
        return list(_COMMANDS)

    def get_command(self, ctx, name):
        """The command of a name."""
        if ctx.resilient_parsing and name not in {*_HIDDEN, *_COMMANDS}:
            return None  # a shell completes the line, and prints nothing
        module = _HIDDEN.get(name) or _COMMANDS.get(name, ("",))[0]
        if not module:
            hint = did_you_mean(name, _COMMANDS)
            raise UsageError(f"there is no command {name!r}.{hint} See drbench --help.")
        members = vars(importlib.import_module(f".{module}", __package__)).values()
        return next(
            member
            for member in members
            if isinstance(member, click.Command) and member.name == name
        )

    def format_options(self, ctx, formatter):
        """Write a line per command without importing any; the epilogue has the group's options."""
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


class _Version:
    """The version and the commit; git is asked for it only if they are printed."""

    def __str__(self):
        state = read_version()
        commit = f", commit {state['commit']}" if state["commit"] else ""
        return state["version"] + commit + " with changes" * state["dirty"]


@click.group(
    cls=CommandGroup,
    options_metavar="[--plugin FILE]",
    subcommand_metavar="COMMAND ...",
    epilog="drbench COMMAND --help shows its options; --plugin FILE adds algorithms, layouts, "
    "libraries. Exit codes: 0 ok, 1 wrong result, 2 usage, 3 unsupported or missing, 4 timeout, "
    "5 failed, 6 out of memory.",
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 110,
        "show_default": True,
    },
)
@click.version_option(_Version(), prog_name="drbench")
@click.option("--plugin", "plugins", multiple=True, metavar="FILE", help="Load a plugin.")
def cli(plugins):
    """Run, predict and explain distributed dense matrix multiplication C = A·B."""
    from drbench.launch.host.plugins import load_plugins

    load_plugins(plugins)
