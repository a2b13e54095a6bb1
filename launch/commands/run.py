"""``drbench run``: one multiplication, ours or a library's; ``serve``: the ranks of a sweep."""

import json
import os
from functools import partial

import click

from drbench.errors import UsageError
from drbench.launch.cases.case import FIELDS, bind_case, refuse_our_options, run_program
from drbench.launch.cases.peaks import read_peaks, with_peak
from drbench.launch.host.files import check_csv, check_output, output_record
from drbench.launch.host.kernels import pinned, without_weaker_pins
from drbench.launch.host.memory import available_memory
from drbench.launch.host.mpi import run_ranks
from drbench.launch.host.python import PYTHON, importable
from drbench.launch.libraries import LIBRARIES, get_library, require_library
from drbench.program.problem import RUN_TYPES

from .guards import default_ranks, given_ranks, refuse_too_many
from .options import (
    FILE,
    case_of,
    command,
    csv_option,
    form_options,
    is_scan,
    machine_of,
    machine_option,
    of_case,
    peak_option,
    problem_options,
    ranks_option,
    take_options,
    timeout_option,
    yes_option,
)

#: Fields of a case that ``-o`` sets: all without a heading in the help.
_FINE_TUNING = tuple(name for name, described in FIELDS.items() if not described.group)

_UNUSED = "--machine {}: this run uses neither its times nor its peak. Leave it out."


def _gives_peak(machine: str, on_cores: bool) -> bool:
    """Whether a machine file has the peak of a rank, or of what the ranks compute with."""
    kinds = {peak.per for peak in read_peaks(None, (), machine).values()}
    return bool(kinds & {"rank", "core" if on_cores else "device"})


@command(scans=True)
@problem_options(*_FINE_TUNING, type=RUN_TYPES)
@ranks_option()
@of_case("threads", "transport")
@timeout_option()
@of_case("iters", "budget")
@peak_option()
@of_case("backend")
@of_case("timeline", kind=FILE)
@csv_option()
@form_options
@of_case("label")
@yes_option(group="Ranks and data movement")
@machine_option("machine")
@click.pass_obj
def run(arguments, ranks, csv_path, as_json, timeout, peak, yes, override, **values):
    """Run one multiplication on MPI ranks, verify and time it.

    \b
      drbench run -p 4 -m 1024 -n 3072 -k 768 --preset column --stationary C
      mpirun -n 4 drbench run -m 1Ki -n 3Ki -k 768 --a row --b column --c row
      drbench run -p 2 -m 512:8192:*2 --threads 1,2

    -p starts the ranks with mpiexec; leave it out under mpirun. Options take several values, or a
    range of numbers as in the last line: the table has a row for each case.
    """
    if is_scan(override):
        from drbench.launch.cases.sweep_file import uses_model

        from .sweep import scan

        if machine := values["machine"]:
            asked = [(key, word.strip()) for key, text in override for word in text.split(",")]
            plans = any(uses_model(machine, {key: word}) for key, word in asked)
            override += (("machine", json.dumps([machine])),) * plans  # it may have a comma
            on = {word for key, word in asked if key in ("backend", "device")} or {"numpy"}
            on_cores = {word not in ("cupy", "cuda") for word in on}
            gives_peak = not peak and any(_gives_peak(machine, cores) for cores in on_cores)
            if not plans and not gives_peak:
                raise UsageError(_UNUSED.format(machine))
            peak = machine.partition(",")[0] if gives_peak else peak
        return scan(override, timeout=timeout, peak=peak, yes=yes, label=values["label"])
    values["gemm_only"] = None  # measured if possible, unless given
    values["options"] = take_options(values)
    asked, values["gemm_only"] = values["gemm_only"], values["gemm_only"] is not False
    named, values["machine"] = machine_of(values)
    on_cores = values["backend"] == "numpy" and values["options"].get("device") != "cuda"
    if named and not values["machine"] and (peak or not _gives_peak(named, on_cores)):
        raise UsageError(_UNUSED.format(named))
    given = given_ranks(ranks)
    refuse_too_many(None if given else ranks, values["threads"], yes)
    if ranks is None and not given:
        ranks = default_ranks(values["threads"], values["backend"])
        if ranks == 1:
            ranks = None  # this process is the only rank
    environ = dict(os.environ)
    if not given and values["backend"] == "numpy" and pinned():
        environ = without_weaker_pins(partial(click.echo, err=True))
        if ranks is None and environ != os.environ:  # NumPy has chosen its kernels: restart
            os.execve(PYTHON[0], [*PYTHON, "-m", "drbench", *arguments], importable(environ))
    if ranks is None or given:
        from drbench.launch.ranks.run_case import run_here

        peaks_of = lambda case: read_peaks(peak, [case], named)
        return run_here(lambda size: case_of(values, size), csv_path, as_json, peaks_of)
    # refuse what does not fit before any rank starts
    if values["algorithm"] in LIBRARIES:
        require_library(get_library(values["algorithm"]))
    case = case_of(values, ranks)
    if case.algorithm in LIBRARIES:
        refuse_our_options(case)
    check_csv(csv_path)
    check_output("--timeline", case.timeline)
    algorithm_or_library, problem, options = bind_case(case, ranks)
    if case.algorithm not in LIBRARIES:
        needed = sum(sum(problem.tile_bytes(rank).values()) for rank in range(ranks))
        if needed < available_memory():  # else ranks record what is missing, before they plan
            algorithm_or_library.resolve(problem, **options)
    elif algorithm_or_library.launch is not None:
        if asked:
            raise UsageError(
                f"{case.algorithm} is a separate program with an unknown BLAS: "
                "leave -o gemm_only out."
            )
        record = run_program(case, ranks, timeout)
        return output_record(with_peak(record, read_peaks(peak, [case], named)), csv_path, as_json)
    return run_ranks(ranks, list(arguments), timeout, environ)


@click.command("serve", hidden=True)
def serve():
    """Run the cases that a supervisor sends, on the ranks of this process."""
    from drbench.launch.ranks.worker import serve as serve_cases

    return serve_cases()
