"""``drbench run``: one multiplication, ours or a peer's; ``serve``: the ranks of a sweep."""

from __future__ import annotations

import json
from dataclasses import replace

import click

from drbench.errors import EXIT_CODES, DrbenchError, UsageError
from drbench.measure.record import RecordError, append_csv
from launch.cases.case import Case, case_keys, failure, refuse_our_options
from launch.host.mpi import launched, run_ranks, started_by_us
from launch.peers import PEERS, get_peer, present

from .options import (
    BYTES,
    FILE,
    TEXT,
    TRANSPORT,
    decide_stationary,
    device_options,
    machine_of,
    partitions,
    problem,
    problem_options,
    take_options,
)

__all__ = ["run", "serve"]


@click.command()
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
    if values["algorithm"] in PEERS:
        return _run_peer(arguments, ranks, csv_path, as_json, timeout, values)
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


def _run_peer(arguments, ranks, csv_path, as_json, timeout, values: dict) -> int:
    """Run one case of a peer; the exit code.

    Raises
    ------
    MissingError, UsageError
        If the peer is not here, or the case makes no sense for it: before any rank is started.
    """
    peer = get_peer(values["algorithm"])
    if ranks is None or launched() is not None or started_by_us():
        from launch.ranks.run import run_here

        return run_here(values, partitions, csv_path, as_json)
    present(peer)
    case = Case(**values | partitions(values, ranks))
    refuse_our_options(case)
    options = peer.pick(case.options)
    peer.problem(case.m, case.n, case.k, ranks, case.a, case.b, case.c, case.dtype, **options)
    if peer.launch is None:
        return run_ranks(ranks, list(arguments), timeout)
    if case.roof:
        if (
            click.get_current_context().get_parameter_source("roof")
            is not click.core.ParameterSource.DEFAULT
        ):
            raise UsageError(
                f"{peer.name} is a program of its own, and does not say which BLAS it calls: "
                "leave --roof out."
            )
        case = replace(case, roof=False)
    try:
        record = peer.launch(case, case_keys(case), ranks, timeout)
    except UsageError:
        raise
    except DrbenchError as error:
        record = failure(case, ranks, error.status, str(error))
    try:
        if csv_path:
            append_csv(csv_path, record)
    except (OSError, RecordError) as error:
        raise UsageError(f"--csv: {error}") from None
    if as_json:
        print(json.dumps(record.to_json_dict()))
    else:
        from launch.host.show import show_record

        show_record(record)
    return EXIT_CODES[record.status]


@click.command("serve", hidden=True)
def serve():
    """Run the cases that a supervisor sends, on the ranks this is started on."""
    from launch.ranks.worker import serve as serve_cases

    return serve_cases()
