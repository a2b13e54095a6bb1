"""``drbench simulate`` and ``calibrate``: predict with machine models, and measure them."""

import click

from drbench.errors import UsageError
from drbench.launch.host.files import check_csv, check_output, output_record, write_output
from drbench.launch.host.mpi import run_ranks

from ..guards import default_ranks, given_ranks, refuse_threads, refuse_too_many
from ..options import (
    FILE,
    case_of,
    command,
    csv_option,
    form_options,
    is_scan,
    machine_option,
    modelled,
    of_case,
    option,
    problem_options,
    ranks_option,
    save_option,
    take_options,
    timeout_option,
    yes_option,
)


@command("simulate", scans=True)
@problem_options(
    "prefetch",
    "compute",
    "max_gemms",
    "max_accumulates",
    "accumulate_blocks",
    default=None,
    default_text="the machine's",
    help="Element type.",
)
@ranks_option()
@of_case("transport")
@of_case(
    "threads",
    help="BLAS threads per rank. A calibrated machine predicts for its own number, and warns if "
    "this is another.",
    default_text="the machine's",
)
@machine_option("machine")
@csv_option()
@option(
    "--timeline",
    group="Output",
    type=FILE,
    metavar="FILE",
    help="Write the times of each step, for chrome://tracing, ui.perfetto.dev "
    "or drbench plot timeline.",
)
@form_options
def simulate(ranks, csv_path, timeline, as_json, override, **values):
    """Predict times on a machine model, by executing the same programs in virtual time.

    \b
      drbench simulate -m 8192 -n 48Ki -k 12Ki --machine pvc12 -o chunk=none
      drbench simulate -m 512:8192:*2 --preset row,column --machine h100x8

    Options take several values, or a range of numbers: the table has a row for each case. For
    hundreds: drbench sweep NAME --simulate --machine NAME.
    """
    from drbench.launch.cases.case import DESCRIPTION_FIELDS
    from drbench.launch.models.predict import predict_with
    from drbench.measure.timeline import chrome_trace

    if values["machine"] is None:
        raise UsageError(
            "--machine is missing: times come from a model. Use h100x8, or a file of drbench "
            "calibrate; drbench plan --rank all counts without one."
        )
    if is_scan(override):
        from ..sweep import scan

        return scan(override, simulate=True, machine=values["machine"])
    values["options"] = take_options(values)
    check_csv(csv_path)
    check_output("--timeline", timeline)
    model, ranks = modelled(values, ranks)
    refuse_threads(values["threads"], model)
    case = case_of(values, ranks)
    record, simulation = predict_with(
        case, model, ranks, timeline=bool(timeline), pool=True, interval=True
    )
    code = output_record(record, csv_path, as_json)
    if timeline and simulation:
        description = {name: getattr(record, name) for name in DESCRIPTION_FIELDS}
        write_output("--timeline", timeline, chrome_trace(simulation.timeline, description))
    return code


@command(
    needs={"--machine": "--from", "--link": "--from", "--from": "--machine"},
    useless={"--from": "--threads --nodes --rounds --backend --timeout"},
)
@ranks_option(
    type=click.IntRange(2),
)
@option(
    "--from",
    "files",
    multiple=True,
    type=FILE,
    metavar="FILE",
    help="Measure nothing: read output of nccl-tests, OSU micro-benchmarks or drbench bandwidth. "
    "Repeatable.",
)
@machine_option("machine", help="With --from: the model that has all other constants.")
@option("--link", metavar="NAME", help="With --from: the link of the pairs. [default: its first]")
@save_option(required=True, help="TOML file of the machine, to write or to update.")
@of_case("threads")
@of_case("label", default="here", default_text="", help="Name of the machine in the file.")
@option(
    "--nodes",
    is_flag=True,
    help="Measure links between nodes too. The ranks are on several nodes, the same number on "
    "each: srun -N 2 drbench calibrate --nodes --save FILE.",
)
@option(
    "--rounds",
    type=click.IntRange(1),
    default=5,
    help="Repeats of every measurement; the best is used.",
)
@of_case("backend")
@timeout_option(default=600.0)
@yes_option()
@click.pass_obj
def calibrate(arguments, ranks, save, threads, label, nodes, rounds, backend, timeout, yes, **read):
    """Measure this machine, its cores or (--backend cupy) its GPUs, and write a machine model for
    simulate, tune and chain.

    It measures local GEMMs, gets, accumulates, barriers and collectives, with --nodes the links
    between nodes too, and then whole programs, whose prediction errors give the intervals. That
    takes a minute, with --nodes a few.

    \b
      drbench calibrate -p 2 --save mine.toml
      srun -N 2 --ntasks-per-node=4 drbench calibrate --nodes --save mine.toml
      drbench calibrate --from osu_get_bw.txt --machine mine.toml --save cluster.toml
      drbench simulate -m 2Ki -n 2Ki -k 2Ki -p 2 --machine mine.toml
    """
    if read["files"]:
        from drbench.launch.studies.other_tools import import_constants

        check_output("--save", save)
        click.echo(import_constants(save=save, name=label, ranks=ranks, **read))
        return 0
    if backend == "cupy" and threads is not None:
        raise UsageError(
            "--threads sets BLAS threads on cores, but the backend is cupy. Leave it out."
        )
    if backend != "numpy" and nodes:
        raise UsageError(
            f"--nodes measures cores of several nodes, but the backend is {backend}. Measure the "
            "devices of one node, and copy the table [model.links] of its cores."
        )
    if not given_ranks(ranks):
        from drbench.launch.cases.machine_models import read_document
        from drbench.launch.host.kernels import pinned, without_pins

        ranks = ranks or max(2, default_ranks(threads, backend))
        refuse_too_many(ranks, threads, yes)
        check_output("--save", save)
        read_document(save)  # its other entries are kept, so it must be readable
        if pinned():
            click.echo(f"{' and '.join(pinned())} unset for the measurement", err=True)
        return run_ranks(ranks, list(arguments), timeout, without_pins())
    from drbench.launch.calibration.here import calibrate_here
    from drbench.launch.models.predict import predict

    predicted_s = lambda *what: predict(*what).best_s
    return calibrate_here(save, label, rounds, backend, threads, nodes, predicted_s)
