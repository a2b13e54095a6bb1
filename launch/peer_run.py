"""``drbench run --algorithm`` of a peer: refused before any rank is started, run as ranks or as a
program of its own."""

from __future__ import annotations

import json
from dataclasses import replace

import click

from drbench.errors import EXIT_CODES, DrbenchError, UsageError
from drbench.record import Record, RecordError, append_csv

from .case_fields import Case, case_keys
from .mpi import launched, run_ranks, started_by_us
from .peers import get_peer, present

__all__ = ["refuse_our_options", "run_peer_command"]

#: Fields of a case that choose how our own executor moves data, with the values that leave them
#: open.
_OURS = {
    "transport": "auto",
    "get": "view",
    "progress": "poll",
    "prefetch": 1,
    "pool": None,
    "trace": None,
}


def refuse_our_options(case: Case) -> None:
    """A peer moves its data itself: what only our executor obeys is a UsageError, not an option
    without effect.

    Examples
    --------
    >>> refuse_our_options(Case(8, 8, 8, algorithm="dtensor", prefetch=2))
    Traceback (most recent call last):
    drbench.errors.UsageError: dtensor moves its data itself and takes no --prefetch. Leave it out.
    """
    for name, value in _OURS.items():
        if getattr(case, name) != value:
            raise UsageError(
                f"{case.algorithm} moves its data itself and takes no --{name}. Leave it out."
            )


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
        from .run import run_here

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
        from .show import show_record

        show_record(record)
    return EXIT_CODES[record.status]
