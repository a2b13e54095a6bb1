"""``drbench run --algorithm`` of a peer: refused before any rank is started, run as ranks or as a
program of its own."""

from __future__ import annotations

import json
from dataclasses import replace

import click

from drbench.errors import EXIT_CODES, DrbenchError, UsageError
from drbench.measure.record import Record, RecordError, append_csv
from launch.cases.case import Case, case_keys
from launch.host.mpi import launched, run_ranks, started_by_us
from launch.peers import get_peer, present
from launch.peers.base import refuse_our_options

__all__ = ["run_peer_command"]


def run_peer_command(
    arguments, ranks, csv_path, as_json, timeout, values: dict, partitions_of
) -> int:
    """Run one case of a peer; the exit code.

    Raises
    ------
    MissingError, UsageError
        If the peer is not here, or the case makes no sense for it: before any rank is started.
    """
    peer = get_peer(values["algorithm"])
    if ranks is None or launched() is not None or started_by_us():
        from launch.ranks.run import run_here

        return run_here(values, partitions_of, csv_path, as_json)
    present(peer)
    case = Case(**values | partitions_of(values, ranks))
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
        record = peer.launch(case, ranks, timeout)
    except UsageError:
        raise
    except DrbenchError as error:
        record = Record(
            mode="measured", ranks=ranks, status=error.status, reason=str(error), **case_keys(case)
        )
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
