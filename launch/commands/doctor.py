"""``drbench doctor``: report what this machine offers, and what to change."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress

import psutil
from rich.text import Text

from drbench.errors import EXIT_CODES, CaseTimeout, DrbenchError
from drbench.host.blas import load_blas
from drbench.host.cores import usable_cores
from drbench.host.launcher import SHARED_MEMORY, shared_memory_free
from drbench.launch.host.kernels import KernelSpeed, measure_kernels, pinned, without_pins
from drbench.launch.host.memory import available_memory
from drbench.launch.host.mpi import find_mpiexec, launched, mpiexec_command
from drbench.launch.host.processes import running
from drbench.launch.host.python import PYTHON
from drbench.launch.host.show import console, table
from drbench.launch.views.findings import (
    Finding,
    gpu_findings,
    make_finding,
    pair_findings,
    pair_tables,
    setting_findings,
)
from drbench.measure.noise import LEAST_SHARE
from drbench.measure.settings import SETTINGS, read_load, read_settings
from drbench.texts import bytes_text, plural

from .guards import gpu_report, refuse_too_many
from .options import command, json_option, ranks_option, verbose_option

#: Seconds for the self-test of MPI, and for that of GPUs.
_MPI_TIMEOUT_S, _GPUS_TIMEOUT_S = 60, 90
_OTHER_MPI = (
    "use the launcher of the MPI library, or point MPI4PY_LIBMPI at the launcher's libmpi (python "
    "-m mpi4py --mpi-lib-version)"
)
#: Most GPUs whose pairs are tried.
_MOST_GPUS = 8
#: What other load asks of what it disturbs.
_QUIET = "measure again when nothing else runs"
#: Findings that are shown with -v only, if they are ok.
_DETAILS = ("TCP", *(setting.subject for setting in SETTINGS.values()))


@command()
@ranks_option(default=2, help="Ranks of the MPI self-test.")
@json_option()
@verbose_option(help="Show settings that need no change, too.")
def doctor(ranks, as_json, verbose):
    """Report what this machine offers (MPI, RMA, BLAS, cores and their peak, memory, GPUs) and what
    to change. It takes about ten seconds, and with several GPUs half a minute.

    \b
      drbench doctor
      mpirun -n 4 drbench doctor
    """
    refuse_too_many(ranks)
    here, load = launched(), read_load()  # before the work of this command
    if here is not None and here.rank:
        return EXIT_CODES["ok"]
    given = here.size if here else 1  # a shell of srun is one process
    mpi, single = [*_mpi(ranks, given), *_cores(ranks)], measure_kernels()
    gpus, pairs = _gpus(given)
    peaks, share = _peaks(single)
    settings = setting_findings(read_settings())
    every = [*mpi, *_blas(single), *peaks, *_memory(), *gpus, *settings, _others(share, load)]
    if as_json:
        print(json.dumps([finding._asdict() for finding in every] + [pairs] * bool(pairs)))
    else:
        style = {"ok": "green", "advice": "yellow", "missing": "red", "unknown": "bright_black"}
        detail = lambda finding: finding.level == "ok" and finding.subject in _DETAILS
        shown = [finding for finding in every if verbose or not detail(finding)]
        rows = [
            (subject, Text(level, style[level]), text + (f"\n-> {remedy}" if remedy else ""))
            for subject, level, text, remedy in shown
        ]
        out = console()
        for shown in (table("|!|!~", rows, [x._asdict() for x in every]), *pair_tables(pairs)):
            out.print(shown)
        out.line(summary(every, ranks))
    return EXIT_CODES[
        "unsupported" if any(finding.level == "missing" for finding in every) else "ok"
    ]


def _mpi(ranks: int, given: int) -> Iterator[Finding]:
    """Start a few ranks and test what the transports need."""
    if given > 1:
        text = "started by a launcher; run doctor without it for the MPI self-test"
        yield Finding("MPI", "ok", text)
        return
    try:
        command, launcher = mpiexec_command(ranks), find_mpiexec()
    except DrbenchError as error:
        yield Finding("MPI launcher", "missing", str(error))
        return
    probe = _probe(command, "doctor_probe", _MPI_TIMEOUT_S)
    if isinstance(probe, str):
        yield Finding("MPI", "missing", f"{launcher}: {probe}", _OTHER_MPI)
        return
    if "failed" in probe:
        yield Finding("MPI", "missing", f"{launcher}: {probe['failed']}")
        return
    yield make_finding(
        probe["size"] == ranks,
        "MPI",
        f"{probe['library']} (MPI {probe['standard']}), launcher {launcher}",
        f"{launcher} started {ranks} ranks, of which {probe['library']} sees {probe['size']}",
        _OTHER_MPI,
        "missing",
    )
    if probe["size"] != ranks:
        return
    yield make_finding(
        probe.get("direct"),
        "windows",
        "ranks of a node read each other's tiles in place, unified memory model",
        "ranks of a node do not see each other's windows: every transfer is RMA",
        "use an MPI with shared windows (MPICH, Open MPI 5)",
    )
    yield make_finding(
        probe.get("rma"),
        "RMA",
        "a multiplication by gets and accumulates in one passive epoch is exact",
        "a small multiplication by gets and accumulates is wrong",
        "use another MPI",
        "missing",
    )
    by = "" if probe.get("reads") else ", without process_vm_readv (MPIR_CVAR_CH4_CMA_ENABLE=0)"
    yield make_finding(
        probe.get("large"),
        "messages",
        f"ranks exchange messages of 8 MiB{by}",
        "ranks cannot exchange messages of 8 MiB: MPI ends them",
        "set MPIR_CVAR_CH4_CMA_ENABLE=0 (MPICH): a container may refuse process_vm_readv",
        "missing",
    )
    if settings := probe["tcp"]:  # variable → (its value, drbench's default)
        described = _settings({name: value for name, (value, _) in settings.items()})
        ours = _settings({name: own for name, (value, own) in settings.items() if value != own})
        whose = f"by the environment; drbench would set {ours}" if ours else "by drbench"
        text = f"between nodes UCX uses {described}, set {whose}: bytes that one call may move"
        yield Finding("TCP", "ok", text)


def _probe(command: list[str], module: str, limit_s: float) -> dict | str:
    """The lines of JSON of a module of ``drbench.launch.ranks``, started by a launcher; or why
    there is none."""
    runner = "-m mpi4py -rc initialize=0 -m".split()  # MPI starts with the settings of drbench
    words = [*command, *PYTHON, *runner, f"drbench.launch.ranks.{module}"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    try:
        with running("the self-test", words, **pipes) as process:
            text, _ = process.communicate(timeout=limit_s)
    except CaseTimeout as error:
        return str(error)
    parts = {}
    for line in text.splitlines():
        with suppress(ValueError, TypeError):  # the line of a library
            parts |= json.loads(line)
    return parts or f"the self-test ended with {process.returncode}, without a result"


def _settings(values: dict[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items())


def _cores(ranks: int) -> Iterator[Finding]:
    cores, threads = usable_cores(), os.environ.get("OMP_NUM_THREADS", "")
    physical = psutil.cpu_count(logical=False) or cores
    text = (
        f"{cores} usable ({physical} physical); {ranks} ranks get {max(1, cores // ranks)} "
        "BLAS threads each by default"
    )
    if ranks > cores:
        remedy = f"use at most {cores} ranks: more would share cores, and times are unreliable"
        yield Finding("cores", "advice", text, remedy)
    else:
        yield make_finding(
            not threads.isdigit() or int(threads) * ranks <= cores,
            "cores",
            text,
            f"{text}; OMP_NUM_THREADS={threads}",
            "drbench sets BLAS threads itself (--threads); other libraries may not",
        )


def _blas(now: KernelSpeed) -> Iterator[Finding]:
    blas, pins = load_blas(), pinned()
    rate = lambda kernels: f"{kernels.flops_per_s / 1e9:.0f} GFLOP/s"
    text = f"{blas.info.library}, {now.name} kernels, {rate(now)} on one thread (float32)"
    if not pins or not blas.info.in_place:
        yield make_finding(
            blas.info.in_place,
            "BLAS",
            text,
            f"{text}; its cblas_sgemm cannot be called, results of local GEMMs are copied",
            "use a NumPy wheel from PyPI",
        )
    if pins:
        names, free = _settings(pins), measure_kernels(without_pins())
        lost = 1 - now.flops_per_s / free.flops_per_s
        yield make_finding(
            free.flops_per_s <= 1.05 * now.flops_per_s,
            "BLAS",
            f"{text}; {names} is set and loses no speed here ({free.name} kernels without it: "
            f"{rate(free)})",
            f"{text}; {names} excludes the {free.name} kernels, which reach {rate(free)}: "
            f"{100 * lost:.0f} % are lost",
            f"unset {' '.join(pins)}",
        )


def _peaks(single: KernelSpeed) -> tuple[list[Finding], float]:
    """The peak of the cores for each element type, as a value of ``--peak``, and the least share of
    its core that a process had; that of one core in float32 is known."""
    cores, shares, findings = usable_cores(), [single.core_share], []
    for dtype in ("float32", "float64"):
        core = single if dtype == "float32" else measure_kernels(dtype=dtype)
        every = measure_kernels(dtype=dtype, processes=cores)
        shares += [core.core_share, every.core_share]
        rate = every.flops_per_s / 1e9
        text = f"{core.flops_per_s / 1e9:.0f} GFLOP/s on one core, {rate:.0f} on each of {cores}"
        verdict = "ok", text, f"--peak {rate:.0f} for ranks of one core (optional)"
        if min(shares[-2:]) < LEAST_SHARE:
            verdict = "advice", f"{text}, while other processes ran", _QUIET
        findings.append(Finding(f"peak {dtype}", *verdict))
    return findings, min(shares)


def _others(share: float, load: dict[str, str]) -> Finding:
    """Whether other processes use the cores; ``load`` as it was before (:func:`read_load`)."""
    tasks = load.get("loadavg", "unknown").split()[0]
    return make_finding(
        share >= LEAST_SHARE,
        "other load",
        "none: the processes had their cores for themselves",
        f"processes had {100 * share:.0f} % of their cores: times will be wrong (load average "
        f"{tasks} on {usable_cores()} cores)",
        "stop other processes (top shows them), then measure",
    )


def summary(every: Sequence[Finding], ranks: int) -> str:
    """Whether this machine can run and measure, in one sentence.

    Examples
    --------
    >>> fine, busy = Finding("MPI", "ok", "-"), Finding("other load", "advice", "busy", "wait")
    >>> summary([fine], 2)
    'Ready: 2 ranks can run and be measured.'
    >>> summary([fine, busy], 2)
    'Ready, with 1 warning (other load: wait).'
    >>> summary([fine, Finding("MPI", "missing", "no mpiexec", "pip install mpich")], 2)
    'Not ready: MPI: no mpiexec; pip install mpich.'
    """
    missing = [finding for finding in every if finding.level == "missing"]
    advice = [
        finding for finding in every if finding.level == "advice" and finding.remedy != _QUIET
    ]
    named = lambda finding: f"{finding.subject}: {finding.remedy}"
    if missing:
        first = missing[0]
        more = f" (and {len(missing) - 1} more)" if missing[1:] else ""
        return f"Not ready: {first.subject}: {'; '.join(filter(None, first[2:]))}{more}."
    if advice:
        return f"Ready, with {plural(len(advice), 'warning')} ({'; '.join(map(named, advice))})."
    return f"Ready: {plural(ranks, 'rank')} can run and be measured."


def _memory() -> Iterator[Finding]:
    free, subject = shared_memory_free(), "shared memory"
    yield Finding("memory", "ok", f"{bytes_text(available_memory())} available")
    if free is None:
        nowhere = f"no {SHARED_MEMORY}: windows are allocated elsewhere"
        yield Finding(subject, "advice", nowhere, "mount a tmpfs there")
        return
    there = f"{SHARED_MEMORY} has {bytes_text(free)} free"
    yield make_finding(
        free >= 1 << 30,
        subject,
        there,
        f"{there}: the tiles of a node must fit",
        f"enlarge it: mount -o remount,size=8G {SHARED_MEMORY} (containers: --shm-size=8g)",
    )


def _gpus(given: int) -> tuple[list[Finding], dict]:
    """The findings on GPUs, and what is known of them: of each (``gpu_report``) and of every pair
    (``gpu_pairs``); empty if no pair was tried."""
    seen = gpu_report()
    if seen is None:
        late = "the search for GPUs did not finish"
        return [
            Finding("GPUs", "advice", late, "see python -m drbench.launch.ranks.gpu_report")
        ], {}
    if "missing" in seen:
        names = _names_of_driver()
        text, remedy = f"{names}; {seen['missing']}", seen["remedy"]
        nothing = "none found; every command runs on CPUs"
        return [make_finding(names is None, "GPUs", nothing, text, remedy)], {}
    findings = [*gpu_findings(seen, os.environ, given)]
    if given > 1:
        text = "started by a launcher; run doctor without it to try what GPUs do in pairs"
        return [*findings, Finding("GPU pairs", "ok", text)], {}
    try:
        command = mpiexec_command(max(2, min(len(seen["devices"]), _MOST_GPUS)))
    except DrbenchError:  # reported with MPI
        return findings, {}
    pairs = _probe(command, "gpu_pairs", _GPUS_TIMEOUT_S)
    pairs = {"failed": pairs} if isinstance(pairs, str) else pairs
    every = Finding("pairs", "ok", "every pair that was tried")._asdict()
    return [*findings, *pair_findings(pairs)], every | seen | pairs


def _names_of_driver() -> str | None:
    """The GPUs that the tool of the driver lists; None without the tool."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    query = [tool, "--query-gpu=name,memory.total", "--format=csv,noheader"]
    lines = subprocess.run(query, capture_output=True, text=True).stdout.strip().splitlines()
    return "; ".join(map(str.strip, lines)) or "the driver lists no GPU"
