"""``drbench sweep``: run experiments of many cases."""

import json
import re
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from drbench.errors import EXIT_CODES, UsageError
from drbench.launch.cases.launchers import load_launcher
from drbench.launch.cases.machine_models import find_machine
from drbench.launch.cases.sweep_file import find_sweep, most_threads, ranks_of
from drbench.launch.cases.sweep_values import shipped
from drbench.launch.host.files import (
    add_records,
    check_csv,
    check_output,
    refuse_os_errors,
)
from drbench.launch.host.kernels import without_weaker_pins
from drbench.launch.host.show import brief_record, console
from drbench.launch.sweeps.plan import SweepRequest, plan_cases
from drbench.launch.sweeps.sweep import INTERRUPTED, run_sweep
from drbench.measure.record_file import format_records

from .completion import names_of
from .guards import default_ranks, given_ranks, refuse_threads, refuse_too_many
from .options import (
    BYTES,
    FORM,
    SCALE,
    SCANNED,
    TEXT,
    allow_option,
    checked,
    choose_type,
    command,
    csv_option,
    expect_option,
    json_option,
    machine_option,
    of_case,
    option,
    out_option,
    pair,
    peak_option,
    plugins,
    problem_options,
    ranks_option,
    reading,
    timeout_option,
    yes_option,
)
from .results import check_references


def _part(text: str) -> str:
    """Check the text ``i/n``, the i-th part of n, and return it."""
    parts = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text, re.ASCII)
    if not (parts and 1 <= int(parts[1]) <= int(parts[2])):
        raise UsageError(f"{text!r} is not a part. Use for example 2/4, the second of four.")
    return text


@command(
    needs={
        "--limit": "--dry-run",
        "--parts": "--jobs",
        "--array": "--parts",
        "--machine": "--simulate",
        "--simulate": "--machine",
        "--allow": "--expect",
    },
    scans=True,
    useless={
        "--simulate": "--launcher --peak --mem-limit --timeout --jobs",
        "--jobs": "--part --dry-run --json --csv --stream --fresh --retry --expect",
        "--dry-run": "--json --csv --stream --fresh --retry --expect",
        "--stream": "--json",
    },
)
@click.argument(
    "sweep",
    type=TEXT,
    metavar="[FILE|NAME]",
    default="scan",
    shell_complete=names_of("sweeps", or_file=True),
)
@ranks_option()
@problem_options(
    required=False,
    pairs=option(
        "-o",
        "override",
        multiple=True,
        type=checked(partial(pair, form="KEY=VALUE", example="m=4Ki")),
        metavar="KEY=VALUE",
        help="Replace a key of the file, as m=4Ki, ranks=1,2,4 or preset=row. Repeatable.",
    ),
)
@of_case("threads", "transport", "backend")
@option(
    "--scale",
    type=SCALE,
    metavar="FACTOR",
    group="Problem",
    help="Multiply all extents by this, as 1/16 or 2/1.",
)
@out_option(
    help="Folder of the records and the other files of a sweep. [default: "
    "results/measured/here/NAME-KEYS-RANKS, or results/simulated/here]"
)
@option("--simulate", is_flag=True, help="Predict the cases on --machine; run nothing.")
@machine_option("machine")
@option(
    "--dry-run",
    is_flag=True,
    help="Print the cases, their number, memory and estimated time; run nothing.",
)
@option(
    "--limit",
    type=click.IntRange(0),
    default=20,
    help="Cases that --dry-run lists; 0 for all.",
)
@option("--max-cases", type=click.IntRange(1), help="Run at most this many cases now.")
@timeout_option(type=click.FloatRange(0), default=120.0)
@option(
    "--fresh/--resume",
    default=False,
    help="Move the folder's files to a backup and start again; or resume.",
)
@option("--retry", is_flag=True, help="Run cases again that are neither ok nor unsupported.")
@option(
    "--launcher",
    metavar="NAME|FILE",
    group="Ranks and data movement",
    type=TEXT,
    help="Launcher of the ranks: mpiexec, srun, ..., or a file; see drbench list launchers.",
    shell_complete=names_of("launchers", or_file=True),
)
@peak_option()
@of_case("label", default_text="the launcher file's, or here; that of the machine model")
@option(
    "--mem-limit",
    type=BYTES,
    metavar="BYTES",
    help="Do not run cases that need more memory per node than this, as 16GiB; they become "
    "out_of_memory.",
)
@option(
    "--part",
    type=checked(_part),
    default="1/1",
    metavar="I/N",
    help="Every N-th case, from the I-th: splits a sweep into jobs, each with its own --out.",
)
@option(
    "--stream",
    is_flag=True,
    help="Write records to standard output as CSV, earlier ones first, and everything else to "
    "standard error.",
)
@json_option(help="Print the tables as JSON, everything else to standard error.")
@csv_option(help="Write the rows of the tables to this file, which is replaced.")
@expect_option()
@allow_option()
@yes_option()
@option(
    "--jobs",
    type=click.Choice(["slurm"]),
    help="Write job scripts into DIR instead of running.",
)
@option(
    "--parts",
    type=click.IntRange(1, 999),
    default=1,
    help="With --jobs: the number of jobs.",
)
@option("--array", is_flag=True, help="With --parts: one job array, of which each is a task.")
def sweep(ranks, **options):
    """Run every case of an experiment, print its table and draw its figure.

    \b
      drbench sweep -p 2 -m 512:4096:*2 --preset row,column
      drbench sweep mlp
      drbench sweep scaling -o m=4Ki -o preset=row -o ranks=1,2,4
      drbench sweep libraries -p 2 -o m=1000 -o n=2000 -o k=512
      drbench sweep mine.toml -p 4 --out runs/mine --dry-run
      drbench sweep mlp1 -p 8 --out runs/mlp1 --launcher h100x8 --jobs slurm
      drbench sweep square --simulate --machine h100x8
      drbench sweep square -p 2 --out runs/tonight --expect bounds.csv
      mpirun -n 4 drbench sweep mlp1-small --out runs/mlp1

    FILE is a TOML file (docs/reference/sweep-files.md), NAME one that comes with drbench: {names}.
    Values of options replace those of the file; several are separated by commas, or a range of
    numbers as in the first line. After a stop, the same command resumes. Under mpirun or srun the
    cases run on the ranks that it started; cases of another number of ranks are left.
    """
    options = {name: options[name] for name in options.keys() - SCANNED}
    given = given_ranks(ranks)
    if given is None:
        return _sweep(ranks=ranks, given=None, **options)
    if options["launcher"] and not options["jobs"]:
        raise UsageError(
            f"--launcher starts ranks, but a launcher has started this command on {given}. Leave "
            "one of them out."
        )
    from drbench.launch.ranks.given import on_given_ranks

    work = lambda supervise: _sweep(ranks=None, given=given, supervise=supervise, **options)
    return on_given_ranks(work)


def scan(override: tuple, **how) -> int:
    """Run or predict the cases of some keys and values on the ranks of the current command, print
    one table of them, and return the largest exit code."""
    context = click.get_current_context()
    if context.params.get("timeline"):
        raise UsageError("--timeline is of one case, and these are several. Leave it out.")
    how |= {name: context.params[name] for name in ("ranks", "csv_path", "as_json")}
    return context.invoke(sweep, override=override, out=False, **how)


def _sweep(
    sweep,
    ranks,
    out,
    dry_run,
    limit,
    jobs,
    parts,
    array,
    as_json,
    csv_path,
    given,
    expect,
    allow,
    supervise=None,
    **options,
):
    """Run a sweep, on the ``given`` number of ranks that a launcher started, or on ranks that
    ``supervise`` starts. If ``out`` is False, print and append records, and keep nothing."""
    check_csv(csv_path) if out is False else check_output("--csv", csv_path)
    simulate, override = options["simulate"], options["override"]
    scale, model = options["scale"], options["machine"]
    launcher = load_launcher(options["launcher"])
    listed = ranks_of(sweep, None, override)
    doubling = listed == (1,)
    if listed and not doubling:
        if ranks and ranks != max(listed):
            raise UsageError(
                f"-p {ranks}, but ranks of {sweep} is {', '.join(map(str, listed))}. Leave -p out."
            )
        ranks = max(listed)
    if ranks is None and simulate:
        from drbench.launch.models.predict import ranks_on

        ranks = ranks_on(find_machine(model))
    keys = dict(override)
    threads = most_threads(override)
    if simulate:
        machine = find_machine(model)
        refuse_threads(threads, machine)
        if sweep == "scan" and "dtype" not in keys:  # as of drbench simulate
            dtype = choose_type(machine, keys.get("compute"))
            options["override"] = override = (*override, ("dtype", dtype))
    ranks = (
        ranks
        or given
        or default_ranks(threads, keys.get("backend"), ("Slurm",) if jobs else launcher.words)
    )
    name = _folder_name(sweep, ranks if not listed or doubling else None, scale, override)
    if simulate:
        name += f"-{Path(model).stem}"
    place = f"results/{'simulated' if simulate else 'measured'}/here/{name}"
    out = out if out is False else out or place
    request = SweepRequest(sweep, ranks, out or "", plugins=plugins(), **options)
    screen = console(stderr=request.stream or as_json or not out, soft_wrap=True)
    if jobs:
        from drbench.launch.sweeps.slurm import write_jobs

        return write_jobs(request, parts, array, screen)
    errors, run = console(stderr=True), None
    with errors.status("expanding the cases") if errors.is_terminal else nullcontext():
        plan = plan_cases(request)
    if dry_run:
        from drbench.launch.sweeps.dry_run import dry_run as show

        return show(request, plan, limit, screen)
    if expect:
        from drbench.plots.select.records import read_records
        from drbench.plots.select.references import read_references

        with reading():
            references = read_references(expect, {job.case.label or "here" for job in plan.mine})
    if simulate:
        from drbench.launch.models.simulate_sweeps import simulated

        run = partial(simulated, find_machine(model))
    elif not (launcher.words or given):
        refuse_too_many(ranks, threads, request.yes)
        environ = without_weaker_pins(screen.print)
        request = replace(request, environ=environ)
    if out:
        show, keep = partial(_show, plan.sweep, Path(out), screen, as_json, csv_path), None
    else:
        show, keep = partial(_show_records, as_json), partial(add_records, csv_path)
    code = run_sweep(plan, request, screen, run, show, given, supervise, keep)
    if not expect or code == INTERRUPTED:
        return code
    if FORM.get() == "csv":  # standard output has the table of the cases
        FORM.set(None)
        screen.stderr = True
    with reading():
        fails = check_references(references, read_records([request.out]), allow, screen)
    return max(fails, 0 if "failing" in allow else code)


sweep.help = (sweep.help or "").replace("{names}", ", ".join(shipped("sweeps")))


def _folder_name(sweep: str, ranks: int | None, scale: str | None, given) -> str:
    """The folder name of an experiment: its name, the given keys and the ranks."""
    words = [find_sweep(sweep).stem, *(f"{key}{value}" for key, value in given)]
    words += [f"scale{scale}"] * (scale is not None) + [f"p{ranks}"] * (ranks is not None)
    return re.sub(r"[^A-Za-z0-9.-]+", "_", "-".join(words).replace("/", "of"))[:120]


def draw_figure(name: str, rows: list, path: Path) -> list[str]:
    """Draw a figure of rows, and return its notes."""
    from drbench.plots.registry import draw

    drawn = draw(name, rows, path)
    return [*drawn.notes, *(f"figure: {path}" for path in drawn.paths)]


#: Rows of a table of which every row is an answer.
_MOST_ROWS = 20
#: Views that end with a figure of their name.
_DRAWN = ("mlp", "libraries", "algorithms")


def _show_records(form: str | None, runs: dict) -> int:
    """Print the table of cases that are not kept, and return the largest exit code."""
    from drbench.launch.views import pool_records, tables_of

    records = [pool_records(run.values()) for run in runs.values() if run]
    if form == "json":
        print(json.dumps([record.to_json_dict() for record in records]))
    elif form == "brief":
        print(*map(brief_record, records), sep="\n")
    elif FORM.get() == "csv":
        print(format_records(*records))
    else:
        tables_of("scan", runs)[0].show(console(), "", len(records), form == "verbose")
    return max(EXIT_CODES[record.status] for record in records)


def _show(sweep, out: Path, screen, as_json: bool, csv_path: str | None, runs: dict) -> None:
    """Print the tables of a sweep, or write them as JSON or CSV, and draw its figure."""
    from drbench.launch.views import joined, tables_of, write_tables

    shapes = {(row.m, row.n, row.k) for run in runs.values() for row in run.values()}
    alone = len(shapes) == sum(map(bool, runs.values()))  # every case is a separate problem
    view, print_line = sweep.view or "scan" * alone, screen.print
    tables = tables_of(view, runs)
    write_tables(tables, sweep.name, as_json, csv_path)
    whole = view in ("scaling", "scan")
    for table in joined(tables) if whole and not as_json else ():
        table.show(screen, out, _MOST_ROWS)
    if view == "scan":
        return
    from drbench.launch.views.problems import show_answer
    from drbench.plots.report.verdict import verdict
    from drbench.plots.select.cases import SelectionError
    from drbench.plots.select.records import read_records

    records = read_records([out])
    if not (as_json or whole):
        show_answer(verdict(records), tables, screen, out)
    ok = records[records.status == "ok"]
    kind = view if view in _DRAWN else ""
    if view == "scaling" and ok.ranks.nunique() > 1:
        kind = "weak" if ok["shape"].nunique() > 1 else "strong"
    if kind and len(ok):
        try:
            with refuse_os_errors(str(out / kind), "Use another --out."):
                drawn = draw_figure(kind, [out / "records.csv"], out / kind)
        except SelectionError as error:
            drawn = [f"no figure: {error}"]
        for line in drawn:
            print_line(line)
