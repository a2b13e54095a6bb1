"""``drbench run``: one multiplication, ours or a peer's; ``serve``: the ranks of a sweep."""

from dataclasses import replace

import click

from drbench.errors import DrbenchError, UsageError
from launch.cases.case import Case, bound, case_keys, failure, refuse_our_options
from launch.host.files import check_csv, hand_over
from launch.host.mpi import launched, run_ranks, started_by_us
from launch.peers import PEERS, get_peer, present

from .options import (
    FILE,
    TEXT,
    command,
    csv_option,
    decide_stationary,
    json_option,
    machine_of,
    of_case,
    option,
    partitions,
    problem,
    problem_options,
    ranks_option,
    take_options,
)


@command()
@problem_options(type=("float32", "float64", "bfloat16:float32"))
@ranks_option(
    help="Start this many ranks with mpiexec; under mpirun, or without -p, the command runs as it "
    "is."
)
@of_case("threads", "transport", "get", "progress", "pool")
@option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    group="Ranks and data movement",
    help="With -p: kill the ranks after this many seconds (exit 4).",
)
@of_case("fill", "seed", "iters", "warmup", "check")
@of_case("roof", default=True)
@of_case("backend", "compute", "max_gemms", "max_accumulates", "accumulate_blocks", "collectives")
@of_case("trace", kind=FILE)
@csv_option("Append the record to this file.")
@json_option("Print the record as one JSON object instead of a table.")
@option(
    "--machine",
    type=TEXT,
    metavar="NAME|FILE",
    group="Output",
    help="Name of the machine in the record [default: here]; with --stationary auto:model the "
    "machine model it asks [default: here], with --schedule cost or exhaustive the one they go by "
    "[default: 100 FLOPs to a byte].",
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
    from launch.ranks.case import run_here

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
        from launch.ranks.case import run_here

        return run_here(values, partitions, csv_path, as_json)
    present(peer)
    case = Case(**values | partitions(values, ranks))
    refuse_our_options(case)
    bound(case, ranks)  # refused before any rank is started
    if peer.launch is None:
        return run_ranks(ranks, list(arguments), timeout)
    check_csv(csv_path)
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
    return hand_over(record, csv_path, as_json)


@click.command("serve", hidden=True)
def serve():
    """Run the cases that a supervisor sends, on the ranks this is started on."""
    from launch.ranks.worker import serve as serve_cases

    return serve_cases()
