"""``drbench peers``: the comparison, its tables, and DTensor triple by triple."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click

from drbench.errors import UsageError
from launch.host.show import console, table
from launch.studies.peers.placements import placement_lines, placement_rows
from launch.studies.peers.tables import best_settings, libraries, lines, summary, table_rows
from launch.studies.peers.triples import ACTIONS, triple_rows

from .guards import default_ranks, go_on, refuse_too_many
from .options import (
    command,
    label_beside_launcher,
    launcher_option,
    of_case,
    option,
    out_option,
    peak_option,
    ranks_option,
    refuse_ranks,
    scale_option,
    timeout_option,
    yes_option,
)


@command()
@ranks_option()
@option(
    "--shapes",
    "kinds",
    default="square,mlp1,mlp2",
    help="Which problems: 4096 cubed, MLP-1 and MLP-2 with hidden size 2048; mlp1:1024 is the "
    "one of m = 1024.",
)
@scale_option(default="1")
@of_case("threads", says="1; none on GPUs")
@option(
    "--rounds",
    type=click.IntRange(1),
    default=6,
    help="How often all of it is run, in turn; an interval of the paired ratios needs six.",
)
@of_case("iters", default=3, help="Timed repeats of each case and round, at least; see --budget.")
@of_case("budget", default=1.0)
@of_case("dtype", type=("float32", "float64"), help="Element type.")
@of_case("transpose")
@option(
    "--settings",
    type=click.Choice(["default", "best", "all"]),
    default="default",
    help="default: what each peer does by itself; all: every setting of it; best: all in the first "
    "round, then each one's default and its fastest setting of that round.",
)
@option("--only", metavar="NAMES", help="Only these, as drbench,dtensor,cosma:pk2.")
@out_option(
    type=click.Path(file_okay=False, path_type=Path),
    default="results/measured/here",
)
@timeout_option(type=click.FloatRange(0), default=300.0)
@launcher_option()
@label_beside_launcher()
@peak_option()
@option(
    "--fresh", is_flag=True, help="Move what is there aside and begin anew; else it is continued."
)
@option(
    "--show",
    is_flag=True,
    help="Only print the tables, and draw the figure, of the records that are there.",
)
@option("--markdown", is_flag=True, help="Print the tables as Markdown.")
@of_case("backend")
@yes_option()
@option(
    "--triples",
    is_flag=True,
    help="Instead: what DTensor and drbench do with each partitioning and replication of A, B and "
    "C.",
)
@option(
    "--placements",
    is_flag=True,
    help="Instead: DTensor and DTensor on drbench product by product, one repeat a round, until "
    "the ratio is known or --budget seconds a product are over; CPU time too.",
)
def peers(
    ranks,
    kinds,
    scale,
    rounds,
    settings,
    only,
    out,
    timeout,
    peak,
    fresh,
    show,
    markdown,
    triples,
    placements,
    launcher,
    yes,
    **values,
):
    """Compare drbench with other libraries on the same work: DTensor, ScaLAPACK, COSMA, pylops-mpi,
    HeAT; and DTensor with drbench under it (dtensor+drbench) with them all.

    \b
      drbench peers -p 2 --shapes square,mlp1 --scale 1/8
      drbench peers -p 2 --show --markdown
      drbench peers -p 4 --triples
      drbench peers -p 2 --placements --shapes square --scale 1/2 --budget 30

    Everybody runs with the same threads, elements, repeats and clock, in rounds; every result that
    is handed out is verified. A run that was ended is continued where it stopped. drbench list
    libraries says who is here.
    """
    refuse_ranks("peers")
    from launch.cases.case import Case
    from launch.cases.launchers import load_launcher
    from launch.cases.peak_files import read_peaks
    from launch.cases.sweep_values import scale_of
    from launch.studies.peers.bench import contenders, only_of, peers_environ, run_peers, shapes
    from launch.studies.peers.placements import both_here, product_cases, run_placements
    from launch.studies.peers.triples import run_triples
    from launch.sweeps.estimate import long_time
    from launch.sweeps.run_rounds import ROUNDS
    from launch.sweeps.supervisor import Settings

    which = _which(triples, placements)
    chosen = shapes(kinds, scale_of(scale, "--scale"))
    where = load_launcher(launcher)
    values["machine"] = values["machine"] or where.name
    ranks = ranks or default_ranks(values["threads"], values["backend"], tuple(where.words))
    names = only_of(only, ranks) if only else None
    folder = out / f"{which}-p{ranks}"
    path, timeout, code = folder / "records.csv", timeout or None, 0
    if placements:
        path = folder / ROUNDS / "records.csv"
    if show and not path.exists():
        raise UsageError(f"no {path} to show. Run without --show first.")
    if not show and not where.words:
        refuse_too_many(ranks, values["threads"], yes)
    if triples and not show:
        code = run_triples(ranks, folder, values["machine"], timeout, fresh, where)
    elif not show:
        values["threads"] = values["threads"] or (None if values["backend"] == "cupy" else 1)
        if placements:
            both_here()
            values["iters"] = rounds
        base = Case(1, 1, 1, roof=True, **values)
        if values["backend"] == "numpy" and not where.words:
            shapes_of = [replace(base, m=m, n=n, k=k) for _, m, n, k in chosen]
            first = shapes_of * len(contenders(ranks, settings != "default", names))
            later = shapes_of * len(contenders(ranks, settings == "all", names)) * (rounds - 1)
            if placements:  # the first round, and those that are timed only
                first = [case for group in product_cases(base, chosen) for case in group]
                later = [replace(case, roof=False) for case in first]
            long = long_time(first + later, ranks, base.threads)
            go_on(long, "drbench peers", yes, "a smaller --scale, --shapes or --rounds")
        peaks = read_peaks(peak, [base], launcher)
        ran = Settings(ranks, where, timeout, environ=peers_environ(), peaks=peaks)
        if placements:
            code = run_placements(base, chosen, ran, folder, fresh)
        else:
            code = run_peers(base, chosen, rounds, settings, names, ran, folder, fresh)
    for title, header, rows in _TABLES[which](path):
        if markdown:
            print(f"{title}\n\n{markdown_table(header, rows)}\n")
        else:
            console().print(table("|".join(header), rows, title))
    if which == "peers":
        draw_bars(path, folder)
    return code


def _which(triples: bool, placements: bool) -> str:
    """What is compared, which is also what its folder is called after.

    Raises
    ------
    UsageError
        If an option is given that has no meaning there.
    """
    if triples and placements:
        raise UsageError("--triples and --placements are two comparisons. Run one after the other.")
    which = "triples" if triples else "placements" if placements else "peers"
    context = click.get_current_context()
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name)
        if parameter.name in _NOT_WITH[which] and given is click.core.ParameterSource.COMMANDLINE:
            raise UsageError(
                f"--{which} takes no {parameter.opts[0]}: {_NOT_WITH[which][parameter.name]}. "
                "Leave it out."
            )
    return which


_BYTES = "it counts bytes, each triple once, of one small problem"
_TWO = "it runs dtensor and dtensor+drbench, in the placements that it names"
#: Options that have no meaning in a comparison, and why.
_NOT_WITH = {
    "peers": {},
    "triples": dict.fromkeys(
        "kinds scale threads rounds iters budget dtype transpose settings only peak".split(), _BYTES
    )
    | {"backend": "it counts bytes, which are the same on every backend"},
    "placements": {
        "settings": _TWO,
        "only": _TWO,
        "backend": "its products run on cores",
        "iters": "a turn is one repeat; --rounds says how many turns at least",
    },
}


def markdown_table(header, rows) -> str:
    """A Markdown table.

    Examples
    --------
    >>> print(markdown_table(("a", "b"), [("1", "x|y")]))
    | a | b |
    |---|---|
    | 1 | x\\|y |
    """
    row = lambda cells: "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    return "\n".join([row(header), "|" + "---|" * len(header), *map(row, rows)])


def tables_of_peers(path: Path) -> Iterator[tuple]:
    """The summary, every contender, and the best setting of each library where several were run:
    title, header, rows."""
    from plots.select.records import read_records

    found = lines(read_records([path]))
    if not found:
        return
    yield (
        "Median time, and its ratio to the best peer's default, paired in rounds (95 % interval)",
        *summary(found),
    )
    yield "Libraries", *libraries(found)
    yield "All contenders", *table_rows(found)
    theirs = [line for line in found if line.who != "drbench"]
    if len({line.label for line in theirs}) > len({line.who for line in theirs}):
        yield (
            "The best setting of each (of those that move anything)",
            *table_rows(best_settings(found)),
        )


def tables_of_triples(path: Path) -> Iterator[tuple]:
    """Triple by triple without replication, then counted over all replication factors, likewise."""
    from plots.select.records import read_records

    single, counted = triple_rows(read_records([path]))
    yield (
        "Without replication (bytes: all ranks together)",
        ("A", "B", "C", "DTensor", "its steps", "its bytes", "drbench", "its bytes"),
        single,
    )
    yield (
        "Over all replication factors: how often DTensor does what; where its ranks repeat no "
        "products, how often drbench moves fewer / as many / more bytes",
        ("A", "B", "C", *ACTIONS, "repeats products", "drbench runs", "fewer / same / more"),
        counted,
    )


def tables_of_placements(path: Path) -> Iterator[tuple]:
    """Product by product, likewise."""
    from drbench.measure.record_file import read_csv

    yield (
        "DTensor beside DTensor on drbench: median times; stock over drbench in time and CPU time, "
        "paired in rounds (95 % interval); of torch's roof; MiB moved by all ranks",
        *placement_rows(placement_lines(read_csv(path))),
    )


_TABLES = {
    "peers": tables_of_peers,
    "triples": tables_of_triples,
    "placements": tables_of_placements,
}


def draw_bars(csv_path: Path, out: Path) -> None:
    """The figure of ``drbench plot peers`` as ``out`` with .pdf and .png, and what is not in it."""
    from plots.registry import draw
    from plots.select.cases import SelectionError

    try:
        drawn = draw("peers", [csv_path], out)
    except SelectionError as error:
        print(f"no figure: {error}")
        return
    for line in [*drawn.notes, *(f"figure: {path}" for path in drawn.paths)]:
        print(line)
