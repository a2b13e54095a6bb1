"""``drbench bounds``: what every algorithm and preset needs, beside the lower bound."""

import json

from drbench.errors import UsageError
from launch.host.files import check_output, rows_before
from launch.host.show import console, product_text, table
from launch.host.units import format_bytes

from ..options import (
    BYTES,
    FILE,
    MODELLED,
    arbitration_option,
    command,
    csv_option,
    json_option,
    modelled,
    of_case,
    option,
    ranks_list_option,
    ranks_option,
    reading,
)


@command("bounds")
@of_case("m", "n", "k")
@of_case("dtype", type=MODELLED)
@ranks_option()
@ranks_list_option()
@option(
    "--memory",
    type=BYTES,
    metavar="BYTES",
    help="Bytes of tiles and buffers a rank may use, as 60GiB: the bound depends on it, and the "
    "grid of preset optimal. [default: no limit]",
)
@option(
    "--machine",
    metavar="NAME|FILE",
    group="Machine model",
    help="Machine model by which preset optimal chooses its grid: the fastest, with as many ranks "
    "idle as that takes. [default: the grid that needs fewest bytes]",
)
@arbitration_option()
@csv_option()
@json_option()
@option(
    "--figure",
    type=FILE,
    metavar="FILE",
    group="Output",
    help="Draw what is needed over the bound against the ranks; .pdf, .png or .svg say the format, "
    "without a suffix .pdf and .png are written.",
)
def bounds_command(
    ranks, counts, memory, machine, arbitration, csv_path, as_json, figure, **values
):
    """Say what the busiest rank of every algorithm and preset needs, and how far that is from the
    lower bound.

    \b
      drbench bounds -m 4Ki -n 4Ki -k 4Ki -p 8
      drbench bounds -m 128Ki -n 512 -k 512 -p 12 --memory 64MiB
      drbench bounds -m 4Ki -n 4Ki -k 4Ki --ranks-list 2,4,8,16,32 --figure bounds.png

    Needed are the bytes of A, B and C that a rank stores, and those that its steps read, write or
    add elsewhere. The bound is that of every schedule that starts from one stored copy of A and B
    and ends with one of C (Kwasniewski et al., SC'19; Al Daas et al., SPAA'22). Above 64 ranks the
    first, the middle and the last rank are counted.
    """
    from launch.cases.case import Case
    from launch.models.needs import bounds_rows
    from plots.select.bounds_rows import read_rows, write_rows

    if not ranks and not counts:
        raise UsageError("-p is missing. Say how many ranks, or several with --ranks-list.")
    if ranks and counts:
        raise UsageError("-p and --ranks-list both say how many ranks. Leave one out.")
    for flag, path in (("--csv", csv_path), ("--figure", figure)):
        check_output(flag, path)
    before = rows_before(csv_path, read_rows) if csv_path else []
    if figure:
        from plots.registry import suffixes

        with reading():
            suffixes(figure)
    case, model = Case(**values), modelled(machine, arbitration)
    found = [bounds_rows(case, each, memory, model) for each in counts or (ranks,)]
    if csv_path:
        write_rows(csv_path, before + [row for rows in found for row in rows])
    if as_json:
        told = [_told(rows) for rows in found]
        print(json.dumps(told if counts else told[0]))
    else:
        console().print(
            f"{product_text(case)}, {case.dtype}"
            + ("" if memory is None else f", {format_bytes(memory)} of memory a rank")
            + ("" if model is None else f", optimal on the grid that is fastest on {model.name}"),
            markup=False,
            soft_wrap=True,
        )
        for rows in found:
            _show(rows)
    if figure:
        from plots.registry import draw

        drawn = draw("bounds", [row for rows in found for row in rows], figure)
        for line in () if as_json else [*drawn.notes, *(f"figure: {each}" for each in drawn.paths)]:
            console().print(line, markup=False)
    return 0


#: Of a row, those that are the same in all of a number of ranks.
_SHARED = ("m", "n", "k", "dtype", "ranks", "limit_bytes", "bound_bytes")


def _told(rows: list) -> dict:
    """What is said of one number of ranks as JSON."""
    first = rows[0]
    told = [
        {
            name: value
            for name, value in row._asdict().items()
            if name not in _SHARED and value not in (None, "")
        }
        | ({} if row.ratio is None else {"ratio": row.ratio})
        for row in rows
    ]
    return {name: getattr(first, name) for name in _SHARED} | {"rows": told}


def _show(rows: list) -> None:
    """Print one number of ranks."""
    from launch.models.needs import ALL_RANKS

    out, first = console(), rows[0]
    say = lambda text: out.print(text, markup=False, soft_wrap=True)
    whom = "all ranks" if first.ranks <= ALL_RANKS else "the first, the middle and the last rank"
    say(f"{first.ranks} ranks: some rank needs at least {format_bytes(round(first.bound_bytes))}")
    cells = [
        (
            row.name,
            row.how,
            format_bytes(row.needed_bytes),
            f"{row.ratio:.3f}",
            format_bytes(row.moved_bytes),
            f"{row.share:.2f}",
            format_bytes(row.memory_bytes),
        )
        for row in rows
        if not row.reason
    ]
    columns = "preset or algorithm|how|>needed|>over bound|>moved|>FLOPs of busiest|>memory"
    out.print(table(columns, cells))
    for row in rows:
        if row.reason:
            say(f"not {row.name}: {row.reason}")
    say(f"Counted on {whom}; FLOPs of busiest: over an even share.")
