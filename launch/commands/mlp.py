"""``drbench mlp``: the sweeps ``mlp1-small`` and ``mlp2-small`` (§5.2.1 of the paper),
``mlp1-dtensor`` and ``mlp2-dtensor`` where torch is, then their figure."""

from __future__ import annotations

import json
import os
from pathlib import Path

from rich.console import Console

from drbench.errors import UsageError
from drbench.measure.record import read_csv
from launch.host.kernels import pinned, weaker_pins, without_pins
from launch.peers import get_peer
from launch.sweeps.progress import progress_console
from launch.sweeps.sweep import INTERRUPTED, Request, plan_cases, run_sweep

__all__ = ["run_mlp"]

_HIDDEN = 12288


def run_mlp(
    ranks: int,
    scale: int,
    layer: str,
    iters: int,
    threads: int | None,
    out: str,
    machine: str,
    backend: str = "numpy",
) -> int:
    """Run, verify, record and draw; the exit code of the sweeps.

    A run that was killed goes on; one that is complete is moved aside and measured anew.
    """
    say, folder = progress_console(), Path(out)
    layers = ("mlp1", "mlp2") if layer == "both" else (layer,)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out {out}: {error.strerror}. Use a folder that can be made.") from None
    sweeps = {name: f"{name}-small" for name in layers}
    dtensor = get_peer("dtensor").available()
    if backend != "numpy":
        say.print(
            "without DT - Row and DT - Column: DTensor here multiplies on cores; drbench peers "
            "--backend cupy compares on GPUs"
        )
    elif dtensor.ok:
        sweeps |= {f"{name}-dtensor": f"{name}-dtensor" for name in layers}
    else:
        say.print(f"without DT - Row and DT - Column: {dtensor.what}. {dtensor.get}", markup=False)
    environ, worst, files = _environment(say), 0, []
    for name, sweep in sweeps.items():
        place = folder / f"{name}-h{_HIDDEN // scale}-p{ranks}"
        request = Request(
            sweep,
            ranks,
            os.fspath(place),
            f"1/{scale}",
            iters,
            threads,
            machine,
            environ=environ,
            backend=None if backend == "numpy" else backend,
        )
        request = Request(**{**request.__dict__, "fresh": _complete(request, place)})
        code = run_sweep(request, say)
        if code == INTERRUPTED:
            return code
        worst = max(worst, code)
        files.append(place / "records.csv")
    stem = folder / f"{'mlp' if layer == 'both' else layer}-h{_HIDDEN // scale}-p{ranks}"
    records = [record for path in files for record in read_csv(path)]
    ok = sum(record.status == "ok" for record in records)
    say.print(f"{ok} of {len(records)} cases ok, each verified")
    if ok:
        _draw(say, files, stem)
    return worst


def _complete(request: Request, place: Path) -> bool:
    """Whether every case of the sweep has its row already."""
    try:
        done = {record.case for record in read_csv(place / "records.csv")}
        known = json.loads((place / "sweep.json").read_text())["cases"]
    except (OSError, ValueError, KeyError):
        return False
    _, _, pairs = plan_cases(request)
    return set(known) == {name for name, _ in pairs} <= done


def _draw(say: Console, files: list[Path], stem: Path) -> None:
    from plots.figures.mlp import draw

    drawn = draw(files, stem)
    for line in drawn.missing:
        say.print(f"not drawn: {line}", markup=False)
    for path in drawn.paths:
        say.print(f"figure: {path}", markup=False)


def _environment(say: Console) -> dict:
    """The ranks' environment: without pins that hold the processor below its best kernels."""
    found = weaker_pins()
    if found is None:
        return dict(os.environ)
    held, free = found
    names = " and ".join(f"{name}={value}" for name, value in pinned().items())
    say.print(
        f"{names} holds this processor to {held.name} kernels ({held.flops_per_s / 1e9:.0f} "
        "GFLOP/s a thread); unset for this run: "
        f"{free.name} kernels reach {free.flops_per_s / 1e9:.0f} GFLOP/s"
    )
    return without_pins()
