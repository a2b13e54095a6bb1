"""``drbench sweep``, ``unlock`` and ``mlp``: experiments of many cases."""

import json
import os
import re
import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path

import click
from rich.console import Console

from drbench.errors import UsageError
from drbench.measure.record_file import read_csv
from drbench.options import Option
from launch.cases.launchers import load_launcher
from launch.cases.sweep_values import scale_of, shipped
from launch.host.files import made_folder
from launch.host.kernels import without_weaker_pins
from launch.host.units import plural
from launch.peers import get_peer
from launch.sweeps.estimate import long_time
from launch.sweeps.progress import progress_console
from launch.sweeps.store import GOOD
from launch.sweeps.sweep import INTERRUPTED, SweepRequest, left_to_run, plan_cases, run_sweep

from .guards import default_ranks, go_on, refuse_too_many
from .options import (
    BYTES,
    TEXT,
    Value,
    command,
    label_beside_launcher,
    label_option,
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


def _part(text: str) -> tuple[int, int]:
    """The i-th of n, of ``i/n``."""
    found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text, re.ASCII)
    part = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= part[0] <= part[1]:
        raise UsageError(f"{text!r} is no part. Use for example 2/4, the second of four.")
    return part


@command()
@click.argument("sweep", type=TEXT, metavar="FILE|NAME")
@ranks_option()
@out_option()
@option(
    "--dry-run",
    is_flag=True,
    help="Print the cases, their number, memory and an estimate of the time; run nothing.",
)
@option(
    "--limit",
    type=click.IntRange(0),
    default=40,
    help="Cases that --dry-run lists; 0 for all.",
)
@option("--max-cases", type=click.IntRange(1), help="Run at most so many cases now.")
@timeout_option(type=click.FloatRange(0), default=120.0)
@option(
    "--fresh/--resume",
    default=False,
    help="Move what the folder holds aside and begin anew; or go on where it stands.",
)
@option("--retry", is_flag=True, help="Run cases again that are neither ok nor unsupported.")
@option(
    "--rerun-on-new-code",
    is_flag=True,
    help="Count rows of another version of the source as not done.",
)
@launcher_option()
@peak_option()
@label_beside_launcher()
@option(
    "--shuffle",
    type=int,
    default=None,
    is_flag=False,
    flag_value=0,
    metavar="[SEED]",
    help="Run in random order, the same for the same seed. [seed: 0]",
)
@option(
    "--mem-limit",
    type=BYTES,
    metavar="BYTES",
    help="Do not run what needs more memory than this on a node, as 16GiB; it becomes "
    "out_of_memory.",
)
@scale_option()
@of_case("iters", default=None, help="Timed repeats, at least, instead of the file's.")
@of_case("budget", default=None, says="the file's")
@of_case("threads")
@of_case("backend", default=None, says="the file's")
@option(
    "--part",
    type=Value(Option(check=_part)),
    default="1/1",
    metavar="I/N",
    help="Every N-th case, from the I-th: to share a sweep between jobs, each with its own --out.",
)
@option(
    "--stream",
    is_flag=True,
    help="Records to standard output as CSV, rows of earlier runs first; everything else to "
    "standard error.",
)
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
    help="With --jobs: share the sweep between so many jobs.",
)
def sweep(sweep, ranks, out, dry_run, limit, jobs, parts, **options):
    """Run every case of an experiment, resume it, lose nothing.

    \b
      drbench sweep mlp1-small -p 4 --out runs/mlp1
      drbench sweep mine.toml  -p 4 --out runs/mine --dry-run
      drbench sweep mlp1 -p 8 --out runs/mlp1 --launcher h100x8 --jobs slurm

    FILE is a TOML file (docs/sweeps.md), NAME one that comes with drbench: {names}. The same
    command again goes on where a killed one stopped.
    """
    refuse_ranks("sweep")
    if out is None and not dry_run:
        raise UsageError("--out is missing: the folder that gets the records.")
    options["label"] = options.pop("machine")
    words = ("Slurm",) if jobs else tuple(load_launcher(options["launcher"]).words)
    ranks = ranks or default_ranks(options["threads"], options["backend"], words)
    request = SweepRequest(sweep, ranks, out or "", **options)
    console = progress_console(stderr=request.stream)
    if jobs:
        from launch.sweeps.slurm import write_jobs

        return write_jobs(request, parts, console)
    if parts > 1:
        raise UsageError("--parts belongs to --jobs. Use --part I/N to run one part here.")
    if dry_run:
        from launch.sweeps.dry_run import dry_run as show

        return show(request, *plan_cases(request), limit, console)
    if load_launcher(request.launcher).words == ():
        refuse_too_many(ranks, request.threads, request.yes)
    long = long_time(left_to_run(request), ranks, request.threads)
    go_on(long, f"the sweep {sweep}", request.yes, "a smaller --scale, or --max-cases N")
    if load_launcher(request.launcher).words == ():
        environ = without_weaker_pins(partial(console.print, markup=False))
        request = replace(request, environ=environ)
    return run_sweep(request, console)


sweep.help = sweep.help.replace("{names}", ", ".join(shipped("sweeps")))


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False), metavar="DIR")
@click.option("--force", is_flag=True, help="Also if its holder may be alive.")
def unlock(folder, force):
    """Remove the lock that a dead sweep left on a folder (one on this host is recognised by
    itself)."""
    from launch.sweeps.lock import unlock as remove

    click.echo(remove(folder, force))


_HIDDEN = 12288


@command()
@ranks_option()
@scale_option(
    default="1/8",
)
@option(
    "--layer",
    type=click.Choice(["both", "mlp1", "mlp2"]),
    default="both",
    help="Which layer.",
)
@of_case("iters", default=5)
@of_case("budget", default=6.0)
@of_case("threads", says="cores // ranks")
@out_option(default="results/measured/here")
@label_option(help="Name of the machine in the records and figures.")
@yes_option()
@of_case("backend")
@peak_option()
@click.pass_obj
def mlp(arguments, ranks, scale, layer, iters, budget, threads, out, machine, backend, peak, yes):
    """Run MLP-1 and MLP-2 of the paper (§5.2.1) over its partitionings, verify each case, draw both
    figures.

    A run that was killed goes on. If every case was ok before, the figures are drawn again: give
    another --out to measure again. A complete run of other options, or with cases that were not ok,
    is moved aside.
    """
    refuse_ranks("mlp")
    ranks = ranks or default_ranks(threads, backend)
    refuse_too_many(ranks, threads, yes)
    hidden = int(_HIDDEN * scale_of(scale))
    if not hidden:
        raise UsageError(
            f"--scale {scale} leaves nothing of the hidden size {_HIDDEN}. Use 1/{_HIDDEN} or more."
        )
    say, folder = progress_console(), made_folder(out)
    layers = ("mlp1", "mlp2") if layer == "both" else (layer,)
    sweeps = {name: f"{name}-small" for name in layers}
    dtensor, without = get_peer("dtensor").available(), ""
    if backend != "numpy":
        without = "DTensor here multiplies on cores; drbench peers --backend cupy compares on GPUs"
    elif dtensor.ok:
        sweeps |= {f"{name}-dtensor": f"{name}-dtensor" for name in layers}
    else:
        without = f"{dtensor.what}. {dtensor.get}"
    worst, files, requests = 0, [], []
    for name, sweep in sweeps.items():
        place = folder / f"{name}-h{hidden}-p{ranks}"
        request = SweepRequest(
            sweep,
            ranks,
            os.fspath(place),
            scale,
            iters,
            budget,
            threads,
            machine,
            backend=None if backend == "numpy" else backend,
            peak=peak,
        )
        requests.append(replace(request, fresh=_moved_aside(request)))
        files.append(place / "records.csv")
    left = [case for request in requests for case in left_to_run(request)]
    go_on(long_time(left, ranks, threads), "drbench mlp", yes, "a smaller --scale")
    if without:
        say.print(f"without DT - Row and DT - Column: {without}", markup=False)
    if not any(map(_left, requests)):
        say.print(f"all measured before; to measure again give another --out than {out}")
    environ = without_weaker_pins(say.print)
    for request in requests:
        request = replace(request, environ=environ)
        code = run_sweep(request, say, shlex.join(["drbench", *arguments]))
        if code == INTERRUPTED:
            return code
        worst = max(worst, code)
    stem = folder / f"{'mlp' if layer == 'both' else layer}-h{hidden}-p{ranks}"
    records = [record for path in files for record in read_csv(path)]
    ok = sum(record.status == "ok" for record in records)
    say.print(f"{ok} of {plural(len(records), 'case')} ok, each verified")
    if ok:
        _draw(say, files, stem)
    return worst


def _left(request: SweepRequest) -> set[str]:
    """Identifiers of the cases that are not yet ok in the folder of a sweep."""
    ids = {name for name, _ in plan_cases(request)[2]}
    try:
        records = read_csv(Path(request.out) / "records.csv")
    except (OSError, ValueError):
        return ids
    return ids - {record.case for record in records if record.status in GOOD}


def _moved_aside(request: SweepRequest) -> bool:
    """Whether the folder of a sweep holds a complete run in which a case of this one is missing or
    not ok."""
    place = Path(request.out)
    try:
        done = {record.case for record in read_csv(place / "records.csv")}
        known = json.loads((place / "sweep.json").read_text())["cases"]
    except (OSError, ValueError, KeyError):
        return False
    return bool(known) and set(known) <= done and bool(_left(request))


def _draw(say: Console, files: list[Path], stem: Path) -> None:
    from plots.registry import draw

    drawn = draw("mlp", files, stem, (".pdf", ".png"))
    for line in drawn.notes:
        say.print(f"not drawn: {line}", markup=False)
    for path in drawn.paths:
        say.print(f"figure: {path}", markup=False)
