"""The command line. Options are read here; the work is done by the modules this one calls."""

import importlib
import sys
import traceback
from collections import UserDict

import click

from drbench import __version__
from drbench.common import until_heard
from drbench.errors import EXIT_CODES, DrbenchError, exit_code_of
from launch.host.mpi import launched
from partitions import LayoutError

#: The commands by purpose: heading of the help -> command -> module in launch/commands that holds
#: it. To add one: write launch/commands/NAME.py (or a folder's NAME, as predict/tune.py) with a
#: ``@command("name")`` of options.py, and put a line here. Its module is imported when the command,
#: or the help, is asked for; the first sentence of its docstring is its line in the help.
_SECTIONS = {
    "One multiplication": {
        "run": "run",
        "plan": "plan",
        "explain": "predict.explain",
        "doctor": "doctor",
    },
    "Many cases": {
        "sweep": "sweep",
        "report": "results",
        "plot": "results",
        "compare": "results",
    },
    "Choose and predict": {
        "advise": "predict.advise",
        "tune": "predict.tune",
        "bounds": "predict.bounds",
        "chain": "predict.chain",
        "simulate": "predict.model",
        "calibrate": "predict.model",
        "ledger": "predict.ledger",
    },
    "Compare": {
        "peers": "peers",
        "compare-algorithms": "compare_algorithms",
        "scaling": "scaling",
        "bandwidth": "bandwidth",
    },
    "The paper": {"mlp": "sweep", "artifact": "artifact", "paper": None},
    "Also": {"list": "listing", "unlock": "sweep"},
}
_PAPER = {
    "check-claims": "paper.claims",
    "llm-study": "paper.llm",
    "overlap-study": "paper.overlap",
    "tune-llm": "paper.llm",
}
_INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit code (0 ok, 1 wrong, 2 usage, 3 unsupported, 4 timeout, 5
    failed, 6 out of memory).

    Under a launcher every rank comes here. Errors that all ranks find alike are said once, by rank
    0; an exception on one rank alone ends all ranks.
    """
    try:
        arguments = list(sys.argv[1:] if arguments is None else arguments)
        code = cli.main(
            args=arguments, prog_name="drbench", standalone_mode=False, obj=tuple(arguments)
        )
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help())
        return EXIT_CODES["usage"]
    except click.NoSuchOption as error:
        return _say(_instead(error, arguments) or _one_line(error), EXIT_CODES["usage"])
    except click.ClickException as error:
        return _say(_one_line(error), EXIT_CODES["usage"])
    except (click.exceptions.Abort, KeyboardInterrupt):
        _abort(_INTERRUPTED)
        return _say("interrupted", _INTERRUPTED)
    except (LayoutError, DrbenchError) as error:
        code = EXIT_CODES["usage"] if isinstance(error, LayoutError) else error.exit_code
        if not _everyone_is_here():
            sys.stderr.write(f"drbench: {error} (found by this rank alone)\n")
            _abort(code)
        return _say(str(error), code)
    except (
        Exception
    ) as error:  # a bug, or a rank that broke: show it, and take the other ranks along
        sys.stdout.flush()
        sys.stderr.write(traceback.format_exc())
        code = exit_code_of(error)
        _abort(code)
        return code


def _one_line(error: click.ClickException) -> str:
    text = " ".join(error.format_message().split())
    context = getattr(error, "ctx", None)
    if context is not None and isinstance(error, click.UsageError):
        return f"{text} See {context.command_path} --help."
    return text


def _instead(error: click.NoSuchOption, arguments: list[str]) -> str | None:
    """What to use instead of an option that is a pair of ``-o`` now."""
    command = error.ctx.command if error.ctx else None
    if not command or all(
        "-o" not in each.opts or each.name != "option" for each in command.params
    ):
        return None
    from .options import instead_of

    now = instead_of(error.option_name, arguments)
    return now and f"{error.option_name} is no option by itself: use {now}."


def _say(message: str, code: int) -> int:
    """One line on standard error, from the first rank only."""
    here = launched()
    if here is None or here.rank == 0:
        sys.stderr.write(f"drbench: {' '.join(message.split())}\n")
    return code


def _everyone_is_here() -> bool:
    """True unless this is one of several running ranks and the others do not come to the same
    point."""
    module = sys.modules.get("launch.ranks.run_case")
    return module is None or module.everyone_is_here()


def _abort(code: int) -> None:
    """End all ranks if this process is one of several, after what it said has reached the launcher;
    does nothing otherwise."""
    here = launched()
    if here is None or here.size == 1:
        return
    try:
        import mpi4py

        mpi4py.rc.initialize = False
        from mpi4py import MPI
    except (ImportError, RuntimeError):
        return  # no MPI at all: nobody waits in it
    if not MPI.Is_initialized():  # the others may be in MPI_Init already, and would stay there
        MPI.Init()
    if not MPI.Is_finalized():
        until_heard()
        MPI.COMM_WORLD.Abort(code)


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


_SECTIONS["The paper"]["paper"] = Group(
    "paper",
    sections={"Commands": _PAPER},
    help="Claims and studies of the papers: check-claims, llm-study, overlap-study, tune-llm.",
)


@click.group(
    cls=Group,
    sections=_SECTIONS,
    hidden={"serve": "run", "serve-chain": "predict.chain"},
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 110,
        "show_default": True,
    },
)
@click.version_option(__version__, prog_name="drbench")
def cli():
    """Run, predict and explain distributed dense matrix multiplication C = A·B.

    C is m×n, A is m×k, B is k×n, each with any partitioning and replication:

    \b
      row, column, block      one tile a rank (block: near-square process grid)
      block:3x2, block:3x2:col   the same on a given grid, row- or column-major
      tiles:128x96@2x3        tiles of 128x96 dealt cyclically on a 2x3 grid
      traditional             tiles of A, B and C aligned on one grid
      .../cN                  N replicas, as in row/c2
      S(0), S(1), R, "S(0),R@2x3"  DTensor placements; P leaves the sum of C pending

    Exit codes: 0 ok, 1 wrong result, 2 usage, 3 unsupported or missing, 4 timeout, 5 failed, 6 out
    of memory.
    """
