"""``drbench tune``: which partitioning, data movement or algorithm to use, by the model; and
``--measure-top`` to see whether it is so."""

import json
from itertools import zip_longest
from statistics import median_high

import click

from drbench.errors import EXIT_CODES, UsageError
from launch.host.files import add_records, check_csv
from launch.host.show import console, table
from launch.host.units import format_bytes, seconds

from ..options import (
    BYTES,
    TEXT,
    command,
    csv_option,
    json_option,
    of_case,
    option,
    ranks_option,
)


@command("tune")
@of_case("m", "n", "k")
@ranks_option(help="Ranks. [default: the machine's devices]")
@option(
    "--machine",
    default="here",
    metavar="NAME|FILE",
    help="Machine model, as in drbench simulate.",
)
@option(
    "--memory",
    type=BYTES,
    metavar="BYTES",
    help="Most bytes of tiles and buffers a rank may use, as 60GiB. [default: the device's memory]",
)
@of_case("a", says="", old=("--fixed-a",), help="A is partitioned so, and not otherwise.")
@of_case("b", old=("--fixed-b",), help="B, likewise.")
@of_case("c", old=("--fixed-c",), help="C, likewise.")
@option(
    "--only",
    "names",
    old=("--algorithms",),
    type=TEXT,
    metavar="A,B,...",
    help="Algorithms to try. [default: all]",
)
@option(
    "--replication",
    type=click.Choice(["none", "equal", "paired", "all"]),
    help="Replication factors to try: none, of A, B and C all equal, of A and B equal, or every "
    "triple. [default: all up to 16 ranks, else equal]",
)
@of_case("transport", "prefetch")
@of_case(
    "dtype",
    type=("float32", "float64", "bfloat16"),
    default=None,
    says="the machine's",
    help="Element type.",
)
@option("--top", type=click.IntRange(1), default=10, help="Places of the ranking.")
@option(
    "--measure-top",
    type=click.IntRange(1),
    metavar="N",
    help="Run the first N on MPI ranks of this machine, and show predicted against measured.",
)
@of_case("iters", default=5, help="With --measure-top: timed repeats, at least; see --budget.")
@of_case("budget")
@of_case("threads", help="With --measure-top: BLAS threads a rank.", says="cores // ranks")
@of_case("backend", default=None, help="With --measure-top: where products run.", says="numpy")
@csv_option("Append the records of the ranking to this file, measured ones too.")
@json_option("Print the ranking as one JSON object.")
def tune_command(
    ranks,
    machine,
    memory,
    names,
    replication,
    top,
    measure_top,
    csv_path,
    as_json,
    **values,
):
    """Choose partitions, replication and data movement, or a 2-D algorithm, mesh and slices, by a
    machine model.

    \b
      drbench tune -m 8192 -n 48Ki -k 12Ki -p 8 --machine h100x8 --memory 60GiB --b column
      drbench tune -m 2048 -n 2048 -k 2048 -p 2 --transport rma --replication none --measure-top 5

    Within the memory, more replicas of A and B mean less to move; how they get there is not part of
    the product and not counted.
    """
    from launch.cases.case import Case
    from launch.cases.machine_models import find_machine
    from launch.models.predict import ranks_on
    from launch.models.tune import TuneRequest, tune

    check_csv(csv_path)
    model = find_machine(machine)
    ranks = ranks_on(model, ranks)
    for name in ("threads", "backend"):
        if measure_top is None and values[name] is not None:
            raise UsageError(f"--{name} belongs to --measure-top. Give both, or leave it out.")
    values["backend"] = values["backend"] or "numpy"
    values["dtype"] = values["dtype"] or model.dtype
    if measure_top is not None and values["dtype"] == "bfloat16":
        raise UsageError(
            "bfloat16 products run on machine models only. Leave out --measure-top, or use "
            "--dtype float32."
        )
    chosen = tuple(name.strip() for name in names.split(",")) if names else None
    top = max(top, measure_top or 0)
    found = tune(TuneRequest(Case(**values), ranks, chosen, memory, replication, top), model)
    measured = _measure(found.ranking[:measure_top], ranks, as_json) if measure_top else []
    add_records(csv_path, *(place.record for place in found.ranking), *measured)
    if as_json:
        print(json.dumps(_as_json(found, measured)))
    else:
        _show(found, measured, model, ranks)
    return max((EXIT_CODES[record.status] for record in measured), default=0)


def describe(record) -> str:
    """Algorithm and options of a record, short.

    Examples
    --------
    >>> from drbench.measure.record import Record
    >>> describe(
    ...     Record(
    ...         mode="simulated",
    ...         algorithm="meshslice",
    ...         dataflow="OS",
    ...         mesh="2x4",
    ...         slices=8,
    ...         status="failed",
    ...         reason="-",
    ...     )
    ... )
    'meshslice OS 2x4 S=8'
    """
    words = [
        record.algorithm,
        record.stationary and f"S-{record.stationary}",
        record.dataflow,
        record.mesh,
        record.slices and f"S={record.slices}",
        record.unroll and record.unroll > 1 and f"unroll {record.unroll}",
        record.chunk and f"chunk {record.chunk}",
        record.options,
    ]
    return " ".join(str(word) for word in words if word)


def efficiency(record) -> float:
    """Percent: time of the best local product over the mean time of a rank's own products."""
    return 100 * record.local_gemm_s / record.phase_gemm_s if record.phase_gemm_s else 100.0


def exposed(record) -> float:
    """Seconds in which the mean rank does not multiply."""
    return max(0.0, record.best_s - record.phase_gemm_s)


def reasons(record, other) -> str:
    """Why one case is faster than another: the shares of products and of what is exposed in the
    difference.

    Examples
    --------
    >>> from drbench.measure.record import Record
    >>> make = lambda seconds, gemm, gets: Record(
    ...     mode="simulated",
    ...     algorithm="universal",
    ...     status="ok",
    ...     best_s=seconds,
    ...     phase_gemm_s=gemm,
    ...     local_gemm_s=1.0,
    ...     get_bytes=gets,
    ... )
    >>> for line in reasons(make(1.5, 1.0, 2**20), make(2.0, 1.25, 2**21)).split(", "):
    ...     print(line)
    33.3 % faster: exposed time 500 ms instead of 750 ms
    products 1 s instead of 1.25 s (100.0 % against 80.0 % of the best local product)
    1 MiB moved instead of 2 MiB
    """
    gains = [
        (
            exposed(other) - exposed(record),
            f"exposed time {seconds(exposed(record))} instead of {seconds(exposed(other))}",
        ),
        (
            other.phase_gemm_s - record.phase_gemm_s,
            f"products {seconds(record.phase_gemm_s)} instead of {seconds(other.phase_gemm_s)} "
            f"({efficiency(record):.1f} % against {efficiency(other):.1f} % of the best local "
            "product)",
        ),
    ]
    least = 1e-3 * record.best_s
    words = [text for gain, text in sorted(gains, key=lambda each: -each[0]) if abs(gain) >= least]
    moved, others = record.moved_bytes or 0, other.moved_bytes or 0
    words.append(
        f"{format_bytes(moved)} moved instead of {format_bytes(others)}"
        if moved != others
        else f"{format_bytes(moved)} moved by both"
    )
    gain = 100 * (other.best_s / record.best_s - 1)
    return (
        f"{f'{gain:.1f} % faster' if gain >= 0.05 else 'as fast within 0.05 %'}: {', '.join(words)}"
    )


def _as_json(found, measured) -> dict:
    places = []
    for at, (each, ran) in enumerate(zip_longest(found.ranking, measured), 1):
        place = {
            "place": at,
            "memory_bytes": each.memory,
            "equal": each.equals,
            "moved_bytes": each.record.moved_bytes or 0,
            "gemm_efficiency_percent": efficiency(each.record),
            "exposed_s": exposed(each.record),
            "record": each.record.to_json_dict(),
        }
        if ran is not None:
            place["measured"] = ran.to_json_dict()
        places.append(place)
    return {
        "tried": found.tried,
        "simulated": found.simulated,
        "refused": found.refused,
        "too_large": found.too_large,
        "ranking": places,
    }


def _outcome(ran) -> str:
    """Time of a measured record, or what became of it."""
    return "-" if ran is None else seconds(ran.best_s) if ran.status == "ok" else ran.status


def _show(found, measured, machine, ranks) -> None:
    out, best = console(), found.ranking[0].record
    out.print(
        f"C {best.m}x{best.n} = A {best.m}x{best.k} · B {best.k}x{best.n}, {best.dtype}, {ranks} "
        f"ranks of {machine.name}: {found.tried} candidates, "
        f"{found.refused} refused, {found.too_large} too large, {found.simulated} simulated, the "
        "others slower by their lower bound",
        markup=False,
    )
    rows = [
        (
            str(at),
            describe(record),
            record.a,
            record.b,
            record.c,
            seconds(record.best_s),
            *([_outcome(ran)] if measured else []),
            f"{record.percent_of_roof:.1f}",
            format_bytes(record.moved_bytes or 0),
            f"{efficiency(record):.1f} %",
            seconds(exposed(record)),
            format_bytes(memory),
            f"+{equals}" if equals else "",
        )
        for at, ((_, record, memory, equals), ran) in enumerate(
            zip_longest(found.ranking, measured), 1
        )
    ]
    columns = (
        f"|algorithm|A|B|C|>time|{'>measured|' if measured else ''}>% of roof|>moved|>GEMM eff.|"
        ">exposed|>memory|>equal"
    )
    out.print(table(columns, rows))
    for at, place in enumerate(found.ranking[1:3], 2):
        out.print(f"1 against {at}: {reasons(best, place.record)}", markup=False, soft_wrap=True)
    if measured and measured[0].status == "ok":
        ok = [
            (p.record.best_s, ran.best_s)
            for p, ran in zip(found.ranking, measured)
            if ran.status == "ok"
        ]
        fastest = min(time for _, time in ok)
        error = median_high(abs(predicted / time - 1) for predicted, time in ok)
        out.print(
            f"measured: the pick is {100 * (measured[0].best_s / fastest - 1):.1f} % above the "
            f"fastest of {len(ok)}; median error of the predictions {100 * error:.1f} %",
            markup=False,
        )


def _measure(places, ranks: int, quiet: bool) -> list:
    """Run the cases of these places in a folder that is not kept; their records."""
    from launch.sweeps.progress import progress_console
    from launch.sweeps.supervisor import Settings
    from launch.sweeps.sweep import run_listed

    settings = Settings(ranks)
    cases = [place.case for place in places]
    return run_listed(cases, "tune", settings, progress_console(stderr=quiet))
