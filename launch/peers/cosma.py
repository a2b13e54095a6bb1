"""COSMA: its own benchmark program ``cosma_miniapp``, started on as many ranks; the times it prints
become a Record.

It fills its own matrices and prints whole milliseconds, sorted; C is not handed out. So it is asked
to verify itself, once for each strategy and shape: with ``--test`` it compares C with a product of
three plain loops on rank 0. Those take minutes at 2048 cubed, and longer than a case may take at
4096, so the largest extents are halved until they take a second (:func:`verified`). The record says
``its own`` in ``fill``, ``error`` is empty.
"""

import os
import re
import shutil
import subprocess
from functools import lru_cache
from itertools import chain, product
from math import prod

from drbench.common import Clock
from drbench.errors import CaseFailed, UnsupportedError, UsageError
from drbench.host.cores import usable_cores
from drbench.measure.noise import is_noisy, time_columns
from drbench.measure.record import Record
from partitions import divisors

from .base import Availability, Peer, Setting, layout_of_its_own
from .options import PEERS

_PROGRAM = "cosma_miniapp"
#: Multiplications in its own test: rank 0 makes 10**8 in a second or so.
_TESTED = 2**27
_GET = (
    "Build https://github.com/eth-cscs/COSMA (cmake -DCOSMA_BLAS=OPENBLAS -DCOSMA_SCALAPACK=OFF) "
    "with the MPI of drbench's mpiexec, "
    "and put cosma_miniapp on PATH."
)


def _available() -> Availability:
    path = shutil.which(_PROGRAM)
    if path is None:
        return Availability(False, f"no {_PROGRAM} on PATH", _GET)
    return Availability(True, path)


_layout = layout_of_its_own(
    "cosma chooses its own partitions", "Force its splits with -o variant, such as sm2,pk2."
)


def strategies(nprocs: int) -> list[str]:
    """Every way to split m, n and k in parallel over all ranks, as ``cosma_miniapp -s`` takes it.

    Examples
    --------
    >>> strategies(4)
    ['pk4', 'pn2,pk2', 'pn4', 'pm2,pk2', 'pm2,pn2', 'pm4']
    """
    small = divisors(nprocs)
    triples = [x for x in product(small, repeat=3) if prod(x) == nprocs]
    return [
        ",".join(f"p{axis}{parts}" for axis, parts in zip("mnk", triple) if parts > 1)
        for triple in triples
    ]


def _settings(nprocs: int) -> list[Setting]:
    """Its own choice; then that with overlap, and every parallel strategy with and without."""
    forced = [None, *(strategies(nprocs) if nprocs > 1 else [])]
    found = []
    for variant, overlap in product(forced, (False, True)):
        options = {"variant": variant} if variant else {}
        label = variant or "its own choice"
        if overlap:
            options, label = options | {"overlap": "on"}, f"{label}, overlap"
        found.append(Setting(label, {"options": options} if options else {}))
    return found


def read_times(text: str) -> list[float]:
    """Seconds of each repetition, from what cosma_miniapp prints.

    Raises
    ------
    CaseFailed
        If there is no line of times in it.

    Examples
    --------
    >>> read_times(
    ...     "Strategy = Matrix dimensions (m, n, k) = (64, 64, 64)\\nCOSMA TIMES [ms] = 12 13 \\n"
    ... )
    [0.012, 0.013]
    """
    found = re.search(r"COSMA TIMES \[ms\] =((?:\s+\d+(?:\.\d+)?)+)", text)
    if not found:
        last = (text.strip().splitlines() or ["nothing"])[-1]
        raise CaseFailed(f"{_PROGRAM} printed no times; its last line: {last[:200]}")
    return [float(word) / 1000 for word in found[1].split()]


def read_strategy(text: str) -> str:
    """The splits that it printed, as ``-s`` takes them.

    Examples
    --------
    >>> read_strategy("Divisions strategy: \\nparallel (n / 2)\\nsequential (k / 3)\\n")
    'pn2,sk3'
    """
    found = re.findall(r"^(parallel|sequential) \(([mnk]) / (\d+)\)", text, re.MULTILINE)
    return ",".join(f"{kind[0]}{axis}{parts}" for kind, axis, parts in dict.fromkeys(found))


def verified(m: int, n: int, k: int) -> tuple[int, int, int]:
    """The extents on which a strategy verifies itself: the largest is halved, again and again,
    until rank 0 has few enough products to make.

    Examples
    --------
    >>> (
    ...     verified(300, 400, 500),
    ...     verified(4096, 4096, 4096),
    ...     verified(256, 8192, 2048),
    ... )
    ((300, 400, 500), (512, 512, 512), (256, 512, 1024))
    """
    sizes = [m, n, k]
    while prod(sizes) > _TESTED:
        largest = max(range(3), key=sizes.__getitem__)
        sizes[largest] //= 2
    return sizes[0], sizes[1], sizes[2]


def _refusal(text: str) -> str:
    """Why it does not take a strategy, in its own words; empty if it does.

    Examples
    --------
    Two ranks say it:

    >>> said = "Splitting strategy not well defined.\\n"
    >>> _refusal(said + said + "Too many processors.\\n"), _refusal("COSMA TIMES [ms] = 1")
    ('Too many processors.', '')
    """
    said = "Splitting strategy not well defined."
    lines = iter([line.strip() for line in text.splitlines()])
    if said not in lines:  # reads on to it
        return ""
    return next((line for line in lines if line not in ("", said)), said)


def _said(command: tuple, environ: tuple, timeout: float | None) -> str:
    """What the program printed.

    Raises
    ------
    UnsupportedError
        If it refuses the strategy.
    """
    from launch.host.processes import running

    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with running(_PROGRAM, list(command), dict(environ), **pipes) as process:
        text, _ = process.communicate(timeout=timeout)
    if refusal := _refusal(text):
        raise UnsupportedError(f"cosma refuses: {refusal}")
    return text


@lru_cache(maxsize=256)
def _is_correct(command: tuple, environ: tuple, timeout: float | None) -> bool:
    """Whether its own test of these extents and this strategy passes.

    Raises
    ------
    CaseFailed
        If it says neither.
    """
    text = _said((*command, "--test"), environ, timeout)
    found = re.findall(r"Result is( NOT)? CORRECT!", text)
    if not found:
        last = (text.strip().splitlines() or ["nothing"])[-1]
        raise CaseFailed(
            f"{_PROGRAM} --test says nothing of its result; its last line: {last[:200]}"
        )
    return not any(found)


def _launch(case, keys: dict, ranks: int, timeout: float | None = None) -> Record:
    """Run cosma_miniapp on that many ranks; the Record of what it printed."""
    from launch.host.mpi import mpiexec_command

    options = PEER.pick(case.options)
    variant = options.get("variant")
    if variant and not re.fullmatch(r"[sp][mnk]\d+(,[sp][mnk]\d+)*", variant):
        raise UsageError(
            f"-o variant={variant!r} is no list of splits. Use s (sequential) or p (parallel), m, "
            "n or k, and a divisor: sm2,pk2."
        )

    def command(sizes: tuple, splits: str | None) -> tuple[str, ...]:
        words = [_PROGRAM, *chain(*zip(("-m", "-n", "-k"), sizes))]
        words += ["-t", {"float32": "float", "float64": "double"}[case.dtype]]
        words += ["-s", splits] if splits else []
        return tuple(map(str, [*mpiexec_command(ranks), *words]))

    cores = usable_cores()
    threads = case.threads or max(1, cores // ranks)
    pools = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    told = dict.fromkeys(pools, str(threads))
    if "overlap" in options:
        told["COSMA_OVERLAP_COMM_AND_COMP"] = options["overlap"].upper()
    environ = tuple({**os.environ, **told}.items())
    sizes = case.m, case.n, case.k
    repeats = "-r", str(case.iters + case.warmup)
    text = _said((*command(sizes, variant), *repeats), environ, timeout)
    samples = read_times(text)[: case.iters]  # sorted: the slowest ones count as warm-up
    if not min(samples):
        raise UnsupportedError(
            "cosma_miniapp rounds to whole milliseconds and printed 0 for "
            f"{case.m}x{case.n}x{case.k}. Use a larger problem."
        )
    splits = variant or read_strategy(text)
    correct = not case.check or _is_correct(command(verified(*sizes), splits), environ, timeout)
    keys = keys | {
        "mode": "measured",
        "budget_s": 0.0,
        "ranks": ranks,
        "threads": threads,
        "fill": "its own",
        "dataflow": splits or "its own choice",
        "transport": "mpi",
        "backend": "cosma",
        "blas": "of cosma's build",
        "timestamp": Clock.date(),
    }
    # of its own making, or no question to it
    keys |= dict.fromkeys(("prefetch", "get", "progress", "seed", "a", "b", "c"))
    measured = time_columns(samples)
    return Record(
        **keys,
        status="ok" if correct else "wrong",
        reason=None if correct else f"{_PROGRAM} --test says that its result is not correct",
        **measured,
        noisy=is_noisy(samples),
        oversubscribed=ranks * threads > cores,
        gflops=2 * case.m * case.n * case.k / measured["median_s"] / 1e9,
    )


PEER = Peer(
    "cosma",
    "COSMA's own benchmark program, on its own choice of partitions",
    _available,
    _settings,
    _layout,
    launch=_launch,
    options=PEERS["cosma"],
)
