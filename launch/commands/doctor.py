"""``drbench doctor``: what this machine offers, and what to change."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import click
import psutil
from rich.text import Text

from drbench.common import SHARED_MEMORY, shared_memory_free
from drbench.errors import EXIT_CODES, CaseTimeout, DrbenchError
from drbench.host.blas import load_blas
from drbench.host.cores import usable_cores
from drbench.measure.noise import LEAST_SHARE
from launch.host.kernels import measure_kernels, pinned, without_pins
from launch.host.mpi import find_mpiexec, launched, mpiexec_command
from launch.host.processes import running
from launch.host.show import console, table
from launch.host.units import format_bytes

from .guards import refuse_too_many
from .options import json_option, ranks_option

_PROBE_TIMEOUT_S = 60


@click.command()
@ranks_option(default=2, help="Ranks of the MPI self-test.")
@json_option()
def doctor(ranks, as_json):
    """Report what this machine offers (MPI, RMA, BLAS, cores and their peak, memory, GPUs) and what
    to change. About ten seconds.
    """
    refuse_too_many(ranks)
    return show_findings(ranks, as_json)


@dataclass(frozen=True)
class Finding:
    """One line of the report: ``ok``, ``advice`` (works, could be better) or ``missing`` (does not
    work)."""

    subject: str
    level: str
    text: str
    way_out: str = ""


def findings(ranks: int) -> list[Finding]:
    """Look at MPI, cores and their peak, BLAS, memory and GPUs."""
    here = [*_mpi(ranks), *_cores(ranks), *_blas()]
    return [*here, *_peak(), *_memory(), *_gpus()]


def show_findings(ranks: int, as_json: bool) -> int:
    """Print the report; exit code 3 if something is missing that a run needs."""
    here = launched()
    found = findings(ranks) if here is None or here.rank == 0 else []
    if found and as_json:
        print(json.dumps([asdict(each) for each in found]))
    elif found:
        style = {"ok": "green", "advice": "yellow", "missing": "red"}
        rows = [
            (
                each.subject,
                Text(each.level, style[each.level]),
                each.text + (f"\n-> {each.way_out}" if each.way_out else ""),
            )
            for each in found
        ]
        console().print(table("||~", rows))
    return EXIT_CODES["unsupported"] if any(each.level == "missing" for each in found) else 0


def _ok_if(fine, subject: str, text: str, *otherwise: str) -> Finding:
    """That a subject is fine, or else its level, text and way out."""
    return Finding(subject, "ok", text) if fine else Finding(subject, *otherwise)


def _mpi(ranks: int) -> Iterator[Finding]:
    """Start a few ranks and let them try what the transports need."""
    if launched() is not None:
        yield Finding(
            "MPI", "ok", "started by a launcher; run doctor without it for the MPI self-test"
        )
        return
    try:
        command = mpiexec_command(ranks)
    except DrbenchError as error:
        yield Finding("MPI launcher", "missing", str(error))
        return
    try:
        words = [*command, sys.executable, "-m", "mpi4py", "-m", "launch.ranks.doctor_probe"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
        with running("the self-test", words, **pipes) as process:
            text, _ = process.communicate(timeout=_PROBE_TIMEOUT_S)
        probe = json.loads(text.splitlines()[-1])
    except (CaseTimeout, ValueError, IndexError):
        yield Finding(
            "MPI",
            "missing",
            f"{ranks} ranks started with {find_mpiexec()} did not answer",
            "see that mpiexec and libmpi are of one MPI: python -m mpi4py --mpi-lib-version",
        )
        return
    if probe["size"] != ranks:
        yield Finding(
            "MPI",
            "missing",
            f"{find_mpiexec()} started {ranks} ranks and {probe['library']} sees {probe['size']}",
            "use the launcher of that library, or point MPI4PY_LIBMPI at the launcher's libmpi",
        )
        return
    yield Finding(
        "MPI", "ok", f"{probe['library']} (MPI {probe['standard']}), launcher {find_mpiexec()}"
    )
    yield _ok_if(
        probe["direct"],
        "windows",
        "ranks of a node read each other's tiles in place, unified memory model",
        "advice",
        "ranks of a node do not see each other's windows: every transfer is RMA",
        "use an MPI with shared windows (MPICH, Open MPI 5)",
    )
    yield _ok_if(
        probe["rma"],
        "RMA",
        "a product by gets and accumulates in one passive epoch is exact",
        "missing",
        "a small product by gets and accumulates is wrong",
        "use another MPI",
    )
    yield from _tcp(probe["tcp"])


def _tcp(settings: dict[str, tuple[str, str]]) -> Iterator[Finding]:
    """What UCX is told of TCP: by variable its value, and drbench's own."""
    if not settings:
        return
    said = " ".join(f"{name}={value}" for name, (value, _) in settings.items())
    ours = " ".join(f"{name}={own}" for name, (value, own) in settings.items() if value != own)
    whose = f"by the environment; drbench would say {ours}" if ours else "by drbench"
    text = f"between nodes UCX is told {said}, {whose}: bytes that one call of the system may move"
    yield Finding("TCP", "ok", text)


def _cores(ranks: int) -> Iterator[Finding]:
    cores, threads = usable_cores(), os.environ.get("OMP_NUM_THREADS", "")
    physical = psutil.cpu_count(logical=False) or cores
    text = (
        f"{cores} usable ({physical} physical); {ranks} ranks get {max(1, cores // ranks)} "
        "BLAS threads each by default"
    )
    if ranks > cores:
        way_out = f"use at most {cores} ranks: more share cores, and their times say little"
        yield Finding("cores", "advice", text, way_out)
    else:
        yield _ok_if(
            not threads.isdigit() or int(threads) * ranks <= cores,
            "cores",
            text,
            "advice",
            f"{text}; OMP_NUM_THREADS={threads}",
            "drbench sets BLAS threads itself (--threads); other libraries may not",
        )


def _blas() -> Iterator[Finding]:
    blas, now, pins = load_blas(), measure_kernels(), pinned()
    text = (
        f"{blas.info.library}, {now.name} kernels, {now.flops_per_s / 1e9:.0f} GFLOP/s on one "
        "thread (float32)"
    )
    if not pins or not blas.info.in_place:
        yield _ok_if(
            blas.info.in_place,
            "BLAS",
            text,
            "advice",
            f"{text}; its cblas_sgemm cannot be reached, products are copied",
            "use a NumPy wheel from PyPI",
        )
    if pins:
        names = " ".join(f"{name}={value}" for name, value in pins.items())
        free = measure_kernels(without_pins())
        yield _ok_if(
            free.flops_per_s <= 1.05 * now.flops_per_s,
            "BLAS",
            f"{text}; {names} is set and costs nothing here ({free.name} kernels without it: "
            f"{free.flops_per_s / 1e9:.0f} GFLOP/s)",
            "advice",
            f"{text}; {names} holds it below {free.name} kernels, which reach "
            f"{free.flops_per_s / 1e9:.0f} GFLOP/s: "
            f"{100 * (1 - now.flops_per_s / free.flops_per_s):.0f} % are lost",
            f"unset {' '.join(pins)}",
        )


def _peak() -> Iterator[Finding]:
    """What the cores multiply at most, by element type, to give as ``--peak``."""
    cores = usable_cores()
    for dtype in ("float32", "float64"):
        one = measure_kernels(dtype=dtype)
        every = measure_kernels(dtype=dtype, processes=cores)
        share = min(one.core_share, every.core_share)
        rate = every.flops_per_s / 1e9
        text = f"{one.flops_per_s / 1e9:.0f} GFLOP/s on one core, {rate:.0f} on each of {cores}"
        if share < LEAST_SHARE:
            text += f". But the processes had {100 * share:.0f} % of their cores"
            again = "measure again when nothing else runs; times would be as unsure"
            yield Finding(f"peak {dtype}", "advice", text, again)
        else:
            give = f"--peak {rate:.0f} for ranks of one core, if you like"
            yield Finding(f"peak {dtype}", "ok", text, give)


def _memory() -> Iterator[Finding]:
    free, subject = shared_memory_free(), "shared memory"
    yield Finding("memory", "ok", f"{format_bytes(psutil.virtual_memory().available)} available")
    if free is None:
        nowhere = f"no {SHARED_MEMORY}: windows live elsewhere"
        yield Finding(subject, "advice", nowhere, "mount a tmpfs there")
        return
    there = f"{SHARED_MEMORY} has {format_bytes(free)} free"
    yield _ok_if(
        free >= 1 << 30,
        subject,
        there,
        "advice",
        f"{there}: the tiles of a node must fit",
        f"enlarge it: mount -o remount,size=8G {SHARED_MEMORY} (containers: --shm-size=8g)",
    )


def _named(tool: str) -> str:
    """The GPUs that the driver's own tool sees."""
    done = subprocess.run(
        [tool, "--query-gpu=name,memory.total", "--format=csv,noheader"],
        capture_output=True,
        text=True,
    )
    return (
        "; ".join(line.strip() for line in done.stdout.splitlines() if line.strip())
        or "no GPU that the driver shows"
    )


def _gpus() -> Iterator[Finding]:
    """Asked of a process of its own: a driver that hangs, or CuPy of another CUDA, must not take
    doctor along."""
    tool = shutil.which("nvidia-smi")
    try:
        done = subprocess.run(
            [sys.executable, "-m", "launch.ranks.gpu_report"],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=_PROBE_TIMEOUT_S,
        )
        found = json.loads(done.stdout.splitlines()[-1])
    except (subprocess.TimeoutExpired, ValueError, IndexError):
        late = "looking for GPUs did not end in order"
        yield Finding("GPUs", "advice", late, "see python -m launch.ranks.gpu_report")
        return
    if "missing" in found:
        if tool is None:
            yield Finding("GPUs", "ok", "none found; every command runs on CPUs")
        else:
            text = f"{_named(tool)}; {found['missing']}"
            yield Finding("GPUs", "advice", text, found["way_out"])
        return
    devices = found["devices"]
    names = "; ".join(
        f"{device['index']}: {device['name']}, {format_bytes(device['bytes'])}, "
        f"{device['architecture']}"
        for device in devices
    )
    yield Finding(
        "GPUs",
        "ok",
        f"{names}; CuPy {found['cupy']}, {found['cublas']}, CUDA {found['runtime']}, driver "
        f"for CUDA {found['driver']}",
    )
    pairs = ", ".join(f"{a}-{b}" for a, b in found["no_peer_access"])
    if len(devices) > 1:
        yield _ok_if(
            not pairs,
            "peer access",
            "every GPU reads every other's memory",
            "advice",
            f"no GPU reads another's memory in {pairs}: staged through the host there",
        )
    yield _ok_if(
        found["ipc"],
        "GPU memory between ranks",
        "CUDA IPC handles can be made",
        "advice",
        "the driver makes no IPC handles: ranks reach each other through the host",
        "containers: --ipc=host",
    )
    yield _ok_if(
        not found["no_waits"],
        "signals between GPUs",
        "streams wait for flags in memory, one rank a GPU; hosts signal where ranks share one",
        "advice",
        f"hosts signal instead of streams: {found['no_waits']}",
        "programs of fused overlap run, slower",
    )
    yield _ok_if(
        found["nccl"],
        "NCCL",
        found["nccl"],
        "advice",
        found["no_nccl"],
        "pip install nvidia-nccl-cu12 (or -cu13); without it collectives are staged",
    )
    staged = "" if found["gpu_aware"] else ": staged through pinned host memory"
    yield Finding("MPI on GPU memory", "ok", found["mpi"] + staged)
    yield Finding(
        "ranks a GPU",
        "ok",
        f"ranks of a node take its {len(devices)} GPU(s) in turn; more ranks than GPUs share "
        "them in time slices, which proves results and not speed",
    )
