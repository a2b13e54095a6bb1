"""``drbench bandwidth``: the time of each type of transfer, by message size."""

import json
from dataclasses import replace

import click

from drbench.errors import EXIT_CODES
from drbench.launch.cases.case import Case, check_case
from drbench.launch.host.files import check_output, rows_before
from drbench.launch.host.mpi import run_ranks
from drbench.launch.studies.bandwidth import (
    bandwidth_answer,
    bandwidth_notes,
    bandwidth_table,
    operations_of,
    sizes_of,
)

from .guards import given_ranks
from .options import (
    TEXT,
    checked,
    command,
    csv_option,
    json_option,
    of_case,
    option,
    pairs_option,
    printing,
    ranks_option,
    take_options,
    timeout_option,
)


@command("bandwidth")
@ranks_option(
    type=click.IntRange(2),
)
@option(
    "--sizes",
    type=checked(sizes_of),
    default="4KiB:64MiB:*4",
    metavar="SIZES",
    group="Measurement",
    help="Bytes per transfer: a range as the default, or a list as 64KiB,1MiB.",
)
@option(
    "--only",
    type=TEXT,
    metavar="NAMES",
    group="Measurement",
    help="Only these, as get,put,accumulate,broadcast,allgather,reduce,reducescatter,shift.",
)
@of_case("transport")
@of_case("dtype", type=("float32", "float64"), help="Element type.")
@of_case("backend")
@pairs_option("progress", "collectives", help="progress or collectives, as of run. Repeatable.")
@timeout_option(default=600.0)
@of_case("label", default="here", default_text="")
@csv_option()
@json_option()
@click.pass_obj
def bandwidth(arguments, ranks, sizes, only, timeout, csv_path, as_json, **values):
    """Measure get, put, accumulate and each collective by message size, in GB/s, and for
    comparison a copy in memory.

    \b
      drbench bandwidth -p 2
      drbench bandwidth -p 4 --transport rma --only get,put --csv rma.csv
      drbench plot bandwidth rma.csv --save rma.png

    It uses the windows, steps and executor of the algorithms, with get=copy. All ranks transfer at
    once; get, put, accumulate and shift are to or from the next rank. Every element that arrives
    is checked.
    """
    take_options(values)
    case, names = Case(1, 1, 1, **values), operations_of(only)
    case = replace(case, get="copy")
    check_case(case)
    check_output("--csv", csv_path)
    from drbench.plots.select.bandwidth_rows import ROWS, row_of

    if csv_path:
        rows_before(csv_path, ROWS.read)
    if not given_ranks(ranks):
        return run_ranks(ranks or 2, list(arguments), timeout)
    from drbench.launch.ranks.bandwidth import measure_here

    description, measured = measure_here(case, sizes, names)
    if not description.pop("first"):
        return EXIT_CODES["ok"]
    description |= {"label": case.label, "backend": case.backend, "dtype": case.dtype}
    rows = [row_of(transfer, **description) for transfer in measured]
    if csv_path:
        ROWS.write(csv_path, [*rows_before(csv_path, ROWS.read), *rows])
    if as_json:
        print(json.dumps([row._asdict() for row in rows]), flush=True)
    else:
        out, print_line = printing()
        print_line(bandwidth_answer(rows))
        out.print(bandwidth_table(rows))
        for line in bandwidth_notes(rows):
            print_line(line)
    return EXIT_CODES["ok"]
