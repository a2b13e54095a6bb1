"""``drbench bounds``: what every algorithm and preset needs, beside the lower bound."""

import json

from launch.host.show import console, product_text, table
from launch.host.units import format_bytes

from ..options import BYTES, command, json_option, of_case, option, ranks_option


@command("bounds")
@of_case("m", "n", "k")
@of_case("dtype", type=("float32", "float64", "bfloat16"))
@ranks_option(required=True)
@option(
    "--memory",
    type=BYTES,
    metavar="BYTES",
    help="Bytes of tiles and buffers a rank may use, as 60GiB: the bound depends on it, and the "
    "grid of preset optimal. [default: no limit]",
)
@json_option("Print everything as one JSON object.")
def bounds_command(ranks, memory, as_json, **values):
    """Say what the busiest rank of every algorithm and preset needs, and how far that is from the
    lower bound.

    \b
      drbench bounds -m 4Ki -n 4Ki -k 4Ki -p 8
      drbench bounds -m 128Ki -n 512 -k 512 -p 12 --memory 64MiB

    Needed are the bytes of A, B and C that a rank stores, and those that its steps read, write or
    add elsewhere. The bound is that of every schedule that starts from one stored copy of A and B
    and ends with one of C (Kwasniewski et al., SC'19; Al Daas et al., SPAA'22). Above 64 ranks the
    first, the middle and the last rank are counted.
    """
    from launch.cases.case import Case
    from launch.models.needs import ALL_RANKS, bound_bytes, needs

    case = Case(**values)
    least = bound_bytes(case, ranks, memory)
    rows = needs(case, ranks, memory)
    if as_json:
        found = [
            {name: value for name, value in row._asdict().items() if value not in (None, "")}
            | ({} if row.needed is None else {"ratio": row.needed / least})
            for row in rows
        ]
        print(json.dumps({"bound_bytes": least, "ranks": ranks, "memory": memory, "rows": found}))
        return 0
    out = console()
    say = lambda text: out.print(text, markup=False, soft_wrap=True)
    whom = "all ranks" if ranks <= ALL_RANKS else "the first, the middle and the last rank"
    limit = "" if memory is None else f", {format_bytes(memory)} of memory a rank"
    say(
        f"{product_text(case)}, {case.dtype}, {ranks} ranks{limit}: some rank needs at least "
        f"{format_bytes(round(least))}"
    )
    cells = [
        (
            row.name,
            row.how,
            format_bytes(row.needed),
            f"{row.needed / least:.3f}",
            format_bytes(row.moved),
            f"{row.share:.2f}",
            format_bytes(row.memory),
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
    return 0
