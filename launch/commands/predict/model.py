"""``drbench simulate`` and ``calibrate``: machine models, used and made."""

import time
from collections import Counter
from functools import partial
from pathlib import Path

import click

from drbench.errors import UsageError
from drbench.measure.record_file import read_csv
from launch.host.files import check_csv, check_output, hand_over, made_folder, write_output
from launch.host.mpi import launched, run_ranks, started_by_us
from launch.host.units import plural

from ..guards import default_ranks, go_on, refuse_too_many
from ..options import (
    FILE,
    MODELLED,
    case_of,
    command,
    csv_option,
    json_option,
    label_option,
    machine_option,
    of_case,
    option,
    out_option,
    problem_options,
    ranks_option,
    save_option,
    take_options,
    timeout_option,
    yes_option,
)

_NAMES = ("mlp1", "mlp2")
#: Seconds of simulating after which the time of a whole sweep is estimated.
_LOOK_S = 20.0


@command("simulate")
@click.argument("sweep", required=False, metavar="[mlp1|mlp2|SWEEP|FILE]")
@problem_options(
    "prefetch",
    "compute",
    required=False,
    type=MODELLED,
    default=None,
    says="the machine's",
    help="Element type.",
)
@ranks_option()
@of_case("transport")
@of_case(
    "threads",
    help="BLAS threads a rank is to have. A calibrated machine predicts for those it was "
    "calibrated with, and says so if these are others.",
    says="the machine's",
)
@machine_option("machine")
@out_option(group="Output")
@option(
    "--replication",
    group="Sweeps",
    type=click.Choice(["equal", "paired", "all"]),
    default="paired",
    help="mlp1, mlp2: factors of A, B, C all equal, of A and B equal, or every triple.",
)
@option(
    "--lines-only",
    group="Sweeps",
    is_flag=True,
    help="mlp1, mlp2: only the six partitionings of the figures, Stationary B and C.",
)
@option(
    "--excerpt",
    group="Output",
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="Sweeps: also write the rows that figures and claims need to this folder.",
)
@csv_option()
@option(
    "--timeline",
    group="Output",
    type=FILE,
    metavar="FILE",
    help="One problem: write what each step did when, for chrome://tracing, ui.perfetto.dev "
    "or drbench plot timeline.",
)
@yes_option(group="Sweeps")
@json_option()
def simulate(
    sweep,
    ranks,
    machine,
    transport,
    out,
    replication,
    lines_only,
    excerpt,
    csv_path,
    timeline,
    as_json,
    yes,
    **values,
):
    """Predict times on a machine model: the same programs, in virtual time.

    \b
      drbench simulate -m 8192 -n 48Ki -k 12Ki --machine pvc12 --preset column -o chunk=none
      drbench simulate -m 8192 -n 48Ki -k 12Ki -p 8 --preset column
      drbench simulate mlp1 --machine h100x8 --out results/simulated
      drbench simulate lowering --machine h100x8 --out results/simulated

    mlp1 and mlp2 are the paper's figures: all triples of row, column and block, and traditional,
    with c_A = c_B and any c_C, Stationary A, B and C, four batch sizes. FILE is a sweep as drbench
    sweep takes it (a TOML file, or a name such as lowering; docs/sweeps.md), or a JSON list of
    cases. Simulated rows say so in column mode.
    """
    from launch.cases.machine_models import find_machine

    values["options"] = take_options(values)
    if machine is None:
        needs = [("sweeps", sweep)]
        needs += [("--csv", csv_path), ("--timeline", timeline)]
        return _count(needs, ranks, as_json, transport, values)
    model = find_machine(machine)
    if sweep is None:
        for name, given in (("--out", out), ("--excerpt", excerpt), ("--lines-only", lines_only)):
            if given:
                raise UsageError(
                    f"{name} belongs to sweeps. Name one (mlp1, mlp2 or a file), or leave it out."
                )
        return _one(model, ranks, transport, csv_path, timeline, as_json, values)
    for name, given in (
        ("-m, -n and -k", values["m"] or values["n"] or values["k"]),
        ("--csv", csv_path),
        ("--timeline", timeline),
        ("--json", as_json),
        ("-o compute", values["compute"]),
        *((f"--{name}", values[name]) for name in "threads transpose alpha beta".split()),
        *((f"--{name}", values[name]) for name in ("a", "b", "c", "preset")),
        ("--algorithm", values["algorithm"] != "universal"),
    ):
        if given:
            raise UsageError(
                f"{name} belong to one problem; the sweep {sweep} has partitions, algorithms and "
                "data movements of its own. Leave them out."
            )
    if out is None:
        raise UsageError(f"the sweep {sweep} needs --out DIR for its records.")
    return _sweep(
        sweep, model, ranks, out, replication, lines_only, excerpt, transport, values, yes
    )


def _count(needs, ranks, as_json, transport, values) -> int:
    """One problem without a machine: what can be counted. ``needs`` are (name, what is given) of
    what takes a machine."""
    import json

    from launch.cases.command_line import run_command
    from launch.cases.machine_models import CALIBRATE, machine_names
    from launch.host.show import console
    from launch.host.units import format_bytes
    from launch.models.counts import counted

    needs = [*needs, ("-o compute", values["compute"]), ("--threads", values["threads"])]
    for name, given in needs:
        if given:
            raise UsageError(
                f"{name} need{'' if name == 'sweeps' else 's'} a machine model. Name a --machine, "
                f"{', '.join(machine_names())} or a file: {CALIBRATE}."
            )
    _check_sizes(values)
    if ranks is None:
        raise UsageError("-p is missing. Say how many ranks, or name a --machine with devices.")
    values["dtype"] = values["dtype"] or "float32"
    values |= {"transport": transport, "machine": "here"}
    case = case_of(values, ranks)
    found = counted(case, ranks)
    told = found.loads._asdict() | {"memory_bytes": found.memory, "busiest_share": found.share}
    if as_json:
        print(json.dumps(told | {"machine": None, "command": run_command(case, ranks)}))
        return 0
    say = partial(console().print, markup=False, soft_wrap=True)
    say(
        f"No machine model, so no time. All {ranks} ranks move "
        f"{format_bytes(found.loads.moved_bytes)}; the busiest sends or receives "
        f"{format_bytes(found.loads.busiest_bytes)}, multiplies {found.share:.2f} times its share, "
        f"and the largest holds {format_bytes(found.memory)}."
    )
    say(f"For a time, add --machine mine.toml after: {CALIBRATE}")
    return 0


def _check_sizes(values) -> None:
    for name in "mnk":
        if values[name] is None:
            raise UsageError(
                f"-{name} is missing. Give -m, -n and -k, or the name of a sweep: "
                f"{', '.join(_NAMES)}."
            )


def _one(machine, ranks, transport, csv_path, timeline, as_json, values) -> int:
    from drbench.measure.timeline import chrome_trace
    from launch.cases.case import TOLD
    from launch.models.predict import predict_with, ranks_on, with_interval

    check_csv(csv_path)
    check_output("--timeline", timeline)
    values["dtype"] = values["dtype"] or machine.dtype
    _check_sizes(values)
    values |= {"transport": transport, "machine": machine.name}
    ranks = ranks_on(machine, ranks)
    case = case_of(values, ranks)
    record, found = predict_with(case, machine, ranks, timeline=bool(timeline), pool=True)
    record = with_interval(record, case, machine, ranks)
    code = hand_over(record, csv_path, as_json)
    if timeline and found:
        about = {name: getattr(record, name) for name in TOLD}
        write_output("--timeline", timeline, chrome_trace(found.timeline, about))
    return code


def _sweep(
    sweep, machine, ranks, out, replication, lines_only, keep, transport, values, yes
) -> int:
    from rich.console import Console

    from launch.models.predict import ranks_on
    from launch.models.simulate_sweeps import (
        excerpt,
        legend_cases,
        load_cases,
        run_simulations,
        sweep_cases,
    )
    from launch.sweeps.estimate import LONG_S
    from launch.sweeps.store import write_csv

    ranks = ranks_on(machine, ranks)
    options = values["options"]
    say = Console(highlight=False, soft_wrap=True)
    if sweep not in _NAMES:
        given = [
            name
            for name, differs in (
                ("options of the algorithm", options),
                ("--transport", transport != "auto"),
                ("-o prefetch", values["prefetch"] is not None),
                ("--dtype", values["dtype"]),
                ("--replication", replication != "paired"),
                ("--lines-only", lines_only),
            )
            if differs
        ]
        if given:
            raise UsageError(
                f"the cases of {sweep} say themselves what they are; {', '.join(given)} "
                f"{'is' if len(given) == 1 else 'are'} for mlp1 and mlp2."
            )
        cases = load_cases(sweep, ranks)
    else:
        made = legend_cases if lines_only else partial(sweep_cases, replication=replication)
        fields = {"prefetch": values["prefetch"], "dtype": values["dtype"] or machine.dtype}
        cases = list(made(sweep, ranks, options=options, transport=transport, **fields))
    folder = made_folder(out)
    if keep:
        keep = made_folder(keep, "--excerpt")
    path = folder / f"{Path(sweep).stem}-{machine.name}.csv"
    start, done, asked = time.monotonic(), 0, yes
    known = len(read_csv(path)) if path.exists() else 0

    def on_case(record):
        nonlocal done, asked
        done += 1
        spent = time.monotonic() - start
        if spent > _LOOK_S and not asked:
            asked, whole = True, spent / done * (len(cases) - known)
            what = f"{sweep}, of which {done} cases are done and kept,"
            go_on(whole if whole > LONG_S else 0, what, yes, "--lines-only, or fewer cases")
        if done % 1000 == 0:
            say.print(
                f"{done} cases in {time.monotonic() - start:.0f} s; {record.a} {record.b} "
                f"{record.c} S-{record.stationary} m={record.m}"
            )

    records = run_simulations(cases, machine, ranks, path, on_case)
    counts = Counter(record.status for record in records)
    told = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    say.print(
        f"{plural(len(records), 'case')} ({told}), {done} of them new, in "
        f"{time.monotonic() - start:.0f} s: {path}"
    )
    if keep:
        kept = excerpt(records)
        write_csv(keep / path.name, kept)
        say.print(f"{len(kept)} rows for figures and claims: {keep / path.name}")
    return 0


@command()
@ranks_option(
    type=click.IntRange(2),
)
@save_option(
    required=True,
)
@of_case("threads")
@label_option(help="Name of the machine in the file.")
@option(
    "--nodes",
    is_flag=True,
    help="The ranks are on several nodes, as many on each: measure the links between nodes too. "
    "Start it there: srun -N 2 drbench calibrate --nodes --save FILE.",
)
@option(
    "--rounds",
    type=click.IntRange(1),
    default=5,
    help="Measure everything this often; the best counts.",
)
@of_case("backend")
@timeout_option(default=600.0)
@yes_option()
@click.pass_obj
def calibrate(arguments, ranks, save, threads, machine, nodes, rounds, backend, timeout, yes):
    """Measure this machine, its cores or (--backend cupy) its GPUs, for simulate, tune and advise:
    products (on cores of float32 and float64, and what stands between those of chains), gets,
    accumulates, barriers, collectives, with --nodes the links between nodes too; then whole
    programs, whose distance from their predictions makes the intervals. About a minute; with
    --nodes a few.

    \b
      drbench calibrate -p 2 --save mine.toml
      srun -N 2 --ntasks-per-node=4 drbench calibrate --nodes --save mine.toml
      drbench simulate -m 2Ki -n 2Ki -k 2Ki -p 2 --machine mine.toml --transport throttled:0.2,50
    """
    if backend == "cupy" and threads is not None:
        raise UsageError(
            "--threads sets BLAS threads of cores, and the backend is cupy. Leave it out."
        )
    if backend != "numpy" and nodes:
        raise UsageError(
            f"--nodes measures cores of several nodes, and the backend is {backend} (our "
            "implementation). Measure the devices of one node, and copy the table [model.links] of "
            "its cores."
        )
    if launched() is None and not started_by_us():
        from launch.cases.machine_models import read_document
        from launch.host.kernels import pinned, without_pins

        ranks = ranks or max(2, default_ranks(threads, backend))
        refuse_too_many(ranks, threads, yes)
        check_output("--save", save)
        read_document(save)  # what it holds stays, so it must be readable
        if pinned():
            click.echo(
                f"{' and '.join(pinned())} unset for the measurement, as drbench mlp does", err=True
            )
        return run_ranks(ranks, list(arguments), timeout, without_pins())
    from mpi4py import MPI  # noqa: F401  (initialises)

    from launch.calibration.here import calibrate_here, cores
    from launch.calibration.programs import whole_programs
    from launch.models.predict import predict

    if nodes:
        from launch.calibration.nodes import nodes as between_nodes

        measure = partial(between_nodes, threads=threads)
    elif backend == "numpy":
        measure = partial(cores, threads=threads)
    else:
        from launch.calibration.devices import devices

        measure = partial(devices, threads=threads, backend=backend)
    predicted_s = lambda *what: predict(*what).best_s
    programs = whole_programs(backend, nodes)
    return calibrate_here(save, machine, rounds, measure, programs, predicted_s, nodes)
