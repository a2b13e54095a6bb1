"""The command line. Options are read here; the work is done by the modules this one calls."""

from __future__ import annotations

import sys
import traceback

import click

from drbench import __version__
from drbench.errors import EXIT_CODES, DrbenchError, UsageError, exit_code_of
from launch.host.mpi import launched, run_ranks, started_by_us
from partitions import LayoutError

from .calibrate import calibrate
from .claims import check_claims
from .compare import compare
from .compare_algorithms import compare_algorithms
from .device_options import BACKEND, device_options
from .llm_study import llm_study_command
from .options import (
    decide_stationary,
    machine_of,
    partitions,
    problem,
    problem_options,
    take_options,
)
from .params import BYTES, FILE, RANK, TEXT, TRANSPORT
from .peers import peers
from .plot import plot
from .report import report
from .simulate import simulate_command
from .sweep import sweep, unlock
from .tune import tune_command
from .tune_llm import tune_llm_command

__all__ = ["cli", "main"]

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
    except click.ClickException as error:
        return _say(_one_line(error), EXIT_CODES["usage"])
    except (click.exceptions.Abort, KeyboardInterrupt):
        _abort(_INTERRUPTED)
        return _say("interrupted", _INTERRUPTED)
    except (LayoutError, DrbenchError) as error:
        code = EXIT_CODES["usage"] if isinstance(error, LayoutError) else error.exit_code
        if not _everyone_is_here():
            sys.stderr.write(f"drbench: {error} (found by this rank alone)\n")
            sys.stderr.flush()
            _abort(code)
        return _say(str(error), code)
    except (
        Exception
    ) as error:  # a bug, or a rank that broke: show it, and take the other ranks along
        sys.stdout.flush()
        traceback.print_exc()
        sys.stderr.flush()
        code = exit_code_of(error)
        _abort(code)
        return code


def _one_line(error: click.ClickException) -> str:
    text = " ".join(error.format_message().split())
    context = getattr(error, "ctx", None)
    if context is not None and isinstance(error, click.UsageError):
        return f"{text} See {context.command_path} --help."
    return text


def _say(message: str, code: int) -> int:
    """One line on standard error, from the first rank only."""
    here = launched()
    if here is None or here.rank == 0:
        sys.stderr.write(f"drbench: {' '.join(message.split())}\n")
    return code


def _everyone_is_here() -> bool:
    """True unless this is one of several running ranks and the others do not come to the same
    point."""
    module = sys.modules.get("launch.ranks.together")
    return module is None or module.everyone_is_here()


def _abort(code: int) -> None:
    """End all ranks if this process is one of several; does nothing otherwise."""
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
        MPI.COMM_WORLD.Abort(code)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
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
      S(0), S(1), R, "S(0),S(1)"   DTensor placements

    Exit codes: 0 ok, 1 wrong result, 2 usage, 3 unsupported or missing, 4 timeout, 5 failed, 6 out
    of memory.
    """


@cli.command()
@problem_options
@click.option(
    "-p",
    "--ranks",
    type=click.IntRange(1),
    default=None,
    help="Start this many ranks with mpiexec; under mpirun, or without -p, the command runs as it "
    "is.",
)
@click.option(
    "--iters", type=click.IntRange(1), default=10, show_default=True, help="Timed repeats."
)
@click.option(
    "--warmup",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="Repeats before the clock starts.",
)
@click.option(
    "--fill",
    type=click.Choice(["integer", "uniform"]),
    default="integer",
    show_default=True,
    help="integer: every sum is exact, C is checked without tolerance; uniform: checked against "
    "an elementwise bound.",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Seed of the matrix elements.",
)
@click.option(
    "--get",
    type=click.Choice(["view", "copy"]),
    default=None,
    help="view: read tiles of ranks on this node in place; copy: copy them first. [default: view; "
    "on devices copy]",
)
@device_options
@click.option(
    "--transport",
    type=TRANSPORT,
    default="auto",
    show_default=True,
    metavar="auto|direct|rma|throttled:GBps,us",
    help="auto: in place on a node, RMA between nodes; direct: in place or not at all; rma: RMA "
    "even on a node; "
    "throttled:GBps,us: in place, each transfer completing by a timer (for experiments).",
)
@click.option(
    "--progress",
    type=click.Choice(["poll", "thread", "none"]),
    default="poll",
    show_default=True,
    help="Who drives RMA while a rank computes: polls between pieces of a product, a thread, or "
    "nobody.",
)
@click.option(
    "--threads",
    type=click.IntRange(1),
    default=None,
    help="BLAS threads a rank. [default: cores of the node // ranks on it]",
)
@click.option(
    "--pool",
    type=BYTES,
    default=None,
    metavar="BYTES",
    help="Most receive and scratch memory a rank may use, as 64MiB. [default: what the plan needs]",
)
@click.option(
    "--check/--no-check", default=True, show_default=True, help="Verify C after the repeats."
)
@click.option(
    "--roof/--no-roof",
    default=True,
    show_default=True,
    help="Measure between the repeats the same work without communication, for the ratio to it "
    "and the effective communication time, and on a "
    "layout of the 2-D algorithms collective, for the overlap efficiency.",
)
@click.option(
    "--trace",
    type=FILE,
    default=None,
    help="Write what each step of one more repeat did when, for chrome://tracing, ui.perfetto.dev "
    "or drbench plot timeline.",
)
@click.option("--csv", "csv_path", type=FILE, default=None, help="Append the record to this file.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the record as one JSON object instead of a table.",
)
@click.option(
    "--machine",
    type=TEXT,
    default=None,
    metavar="NAME|FILE",
    help="Name of the machine in the record [default: here]; with --stationary auto:model the "
    "machine model it asks [default: here], with --schedule "
    "cost or exhaustive the one they go by [default: 100 FLOPs to a byte].",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=None,
    help="With -p: kill the ranks after this many seconds (exit 4).",
)
@click.pass_obj
def run(arguments, ranks, csv_path, as_json, timeout, **values):
    """Run one multiplication on MPI ranks, verify and time it.

    \b
      drbench run -p 4 -m 1024 -n 3072 -k 768 --preset column --stationary C --roof
      mpirun -n 4 drbench run -m 1024 -n 3072 -k 768 --a row --b column --c block/c2
    """
    values["options"] = take_options(values)
    model, values["machine"], values["model"] = machine_of(
        values["machine"], values["options"], values["transport"]
    )
    from launch.peers import PEERS

    if values["algorithm"] in PEERS:
        from .peer_run import run_peer_command

        return run_peer_command(arguments, ranks, csv_path, as_json, timeout, values, partitions)
    if ranks is not None and launched() is None and not started_by_us():
        values["options"] = decide_stationary(
            values, values["options"], ranks, model, values["transport"]
        )
        problem(
            values, values["options"], ranks
        )  # refuse what does not fit before any rank is started
        return run_ranks(ranks, list(arguments), timeout)
    here = launched()
    values["options"] = decide_stationary(
        values, values["options"], here.size if here else 1, model, values["transport"]
    )
    from launch.ranks.run import run_here

    return run_here(values, partitions, csv_path, as_json)


@cli.command()
@problem_options
@click.option("-p", "--ranks", type=click.IntRange(1), required=True, help="Ranks to plan for.")
@click.option(
    "--rank",
    "rank",
    type=RANK,
    default=0,
    show_default=True,
    metavar="RANK|all",
    help="Whose program to show; all: the sums over all ranks.",
)
@click.option(
    "--limit",
    type=click.IntRange(0),
    default=40,
    show_default=True,
    help="Steps of the program to list.",
)
@click.option(
    "--machine",
    type=TEXT,
    default=None,
    metavar="NAME|FILE",
    help="Machine model that --stationary auto:model asks [default: here], and --schedule cost "
    "and exhaustive [default: 100 FLOPs to a byte].",
)
@click.option("--json", "as_json", is_flag=True, help="Print counts as one JSON object.")
def plan(ranks, rank, limit, machine, as_json, **values):
    """Show the program of a rank without running it: steps, bytes by kind and by peer, FLOPs,
    memory, a drawing.

    \b
      drbench plan -m 4Ki -n 4Ki -k 4Ki -p 12 --a row --b column --c block/c2 --stationary B --rank
      3
    """
    from launch.peers import PEERS

    from .plan import show_plan

    if values["algorithm"] in PEERS:
        raise UsageError(
            f"{values['algorithm']} is a peer and plans its own way: there is no program to "
            "show. Run it; drbench list --peers says more."
        )
    options = take_options(values)
    asked, _, model = machine_of(machine, options)
    options = decide_stationary(values, options, ranks, asked)
    described = problem(values, options, ranks)
    show_plan(
        values["algorithm"], described, options, rank, values["prefetch"], as_json, limit, model
    )


@cli.command("list")
@click.option(
    "--peers",
    "peers_",
    is_flag=True,
    help="Which other libraries can be run on the same work here, and how to get the others.",
)
def list_(peers_):
    """List algorithms, partitions, presets, transports and machines; with --peers, peers."""
    if peers_:
        from .peer_listing import show_peers

        return show_peers()
    from .listing import show_listing

    show_listing()


@cli.command()
@click.option(
    "-p",
    "--ranks",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    help="Ranks of the MPI self-test.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as one JSON object.")
def doctor(ranks, as_json):
    """Report what this machine offers (MPI, RMA, BLAS, cores, memory, GPUs) and what to change."""
    from .doctor import show_findings

    return show_findings(ranks, as_json)


@cli.command()
@click.option(
    "-p", "--ranks", type=click.IntRange(1), default=4, show_default=True, help="MPI ranks."
)
@click.option(
    "--scale",
    type=click.IntRange(1, 12288),
    default=16,
    show_default=True,
    help="Divide the paper's hidden size 12288 and batch sizes by this.",
)
@click.option(
    "--layer",
    type=click.Choice(["both", "mlp1", "mlp2"]),
    default="both",
    show_default=True,
    help="Which layer.",
)
@click.option(
    "--iters",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="Timed repeats of each case.",
)
@click.option(
    "--threads",
    type=click.IntRange(1),
    default=None,
    help="BLAS threads a rank. [default: cores // ranks]",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False),
    default="results/measured/here",
    show_default=True,
    help="Folder of the CSV file and the figures.",
)
@click.option(
    "--machine",
    default="here",
    show_default=True,
    help="Name of the machine in the records and figures.",
)
@BACKEND
def mlp(ranks, scale, layer, iters, threads, out, machine, backend):
    """Run MLP-1 and MLP-2 of the paper (§5.2.1) over its partitionings, verify each case, draw both
    figures."""
    here = launched()
    if here is not None and here.size > 1:
        raise UsageError(
            "drbench mlp starts its own ranks. Run it without mpirun, with -p for their number."
        )
    from .mlp import run_mlp

    return run_mlp(ranks, scale, layer, iters, threads, out, machine, backend)


@cli.command("serve", hidden=True)
def serve():
    """Run the cases that a supervisor sends, on the ranks this is started on."""
    from launch.ranks.worker import serve as serve_cases

    return serve_cases()


cli.add_command(compare)
cli.add_command(compare_algorithms)
cli.add_command(plot)
cli.add_command(report)
cli.add_command(sweep)
cli.add_command(unlock)
cli.add_command(simulate_command(problem_options))
cli.add_command(calibrate)
cli.add_command(check_claims)
cli.add_command(peers)
cli.add_command(tune_command)
cli.add_command(tune_llm_command)
cli.add_command(llm_study_command)
