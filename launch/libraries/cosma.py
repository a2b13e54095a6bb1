"""COSMA: its own benchmark program ``cosma_miniapp``, started on the same number of ranks; a Record
of the times that it prints.

It fills its own matrices and prints whole milliseconds, sorted; C is not accessible. So it verifies
itself, once for each strategy and shape: with ``--test`` it compares C with three plain loops on
rank 0. These take minutes at 2048³, and more than the time limit at 4096³, so extents of the test
are at most 512. In the record ``fill`` is ``its own`` and ``error`` is empty.
"""

import itertools
import os
import re
import shutil
import subprocess
from functools import lru_cache
from math import prod

from drbench.clock import Clock
from drbench.errors import CaseFailed, UnsupportedError, UsageError
from drbench.host.cores import usable_cores
from drbench.launch.host.kernels import ONE_THREAD
from drbench.launch.host.mpi import mpiexec_command
from drbench.launch.host.processes import last_line, running
from drbench.measure.noise import is_noisy, time_columns
from drbench.measure.record import Record
from drbench.partitions import divisors
from drbench.program.problem import product_flops

from .base import Availability, Library

_PROGRAM = "cosma_miniapp"
#: Largest extents of its own test: rank 0 multiplies 10**8 pairs of elements in about a second.
_TESTED = 512
_TYPES = {
    "float32": "float",
    "float64": "double",
    "complex64": "zfloat",
    "complex128": "zdouble",
}
#: Its test of complex numbers of single precision has the tolerance of double precision.
_TESTED_AS = {"complex64": "complex128"}
_NOT_DEFINED = "Splitting strategy not well defined."
_GET = (
    "Build https://github.com/eth-cscs/COSMA (cmake -DCOSMA_BLAS=OPENBLAS -DCOSMA_SCALAPACK=OFF) "
    "with the MPI of drbench's mpiexec, "
    "and put cosma_miniapp on PATH."
)


class Cosma(Library):
    """COSMA as a separate program."""

    name = "cosma"
    description = "COSMA's own benchmark program, on its own choice of partitions"
    dtypes = tuple(_TYPES)

    @staticmethod
    def available():
        """Whether its program is on PATH."""
        path = shutil.which(_PROGRAM)
        return Availability(path is not None, path or f"no {_PROGRAM} on PATH", _GET)

    @staticmethod
    def settings(nprocs):
        """Its own choice; the same with overlap; and every parallel strategy with and without
        overlap."""
        variants = [{}, *({"variant": variant} for variant in strategies(nprocs))]
        overlaps = {}, {"overlap": "on"}
        return [
            {"options": forced | more} for forced, more in itertools.product(variants, overlaps)
        ]

    @staticmethod
    def layout(nprocs, given, **options):
        """A placeholder: the layout is unknown and not used."""
        for text in filter(None, given):
            raise UsageError(
                f"cosma chooses its own partitions; got the partition {text!r}. Force its splits "
                "with -o variant, such as sm2,pk2."
            )
        return "block", "block", "block"

    @staticmethod
    def launch(case, keys: dict, ranks: int, timeout: float | None = None) -> Record:
        """Run cosma_miniapp on ``ranks`` ranks; the Record of its output."""
        Cosma.check_arithmetic(case.dtype, case.compute, {})
        options = Cosma.pick(case.options)
        variant, overlap = options.get("variant"), options.get("overlap")
        start, sizes = mpiexec_command(ranks), (case.m, case.n, case.k)

        def command(m: int, n: int, k: int, splits: str | None, dtype=case.dtype) -> tuple:
            words = f"{_PROGRAM} -m {m} -n {n} -k {k} -t {_TYPES[dtype]}".split()
            return *start, *words, *(("-s", splits) if splits else ())

        cores = usable_cores()
        threads = case.threads or max(1, cores // ranks)
        environ = os.environ | dict.fromkeys(ONE_THREAD, str(threads))
        if overlap:
            environ["COSMA_OVERLAP_COMM_AND_COMP"] = overlap.upper()
        how = tuple(environ.items()), timeout
        repeats = "-r", str(case.iters + case.warmup)
        text = _printed((*command(*sizes, variant), *repeats), *how)
        samples = read_times(text)[: case.iters]  # sorted: the slowest ones count as warm-up
        if not min(samples):
            raise UnsupportedError(
                "cosma_miniapp rounds to whole milliseconds and printed 0 for "
                f"{case.m}x{case.n}x{case.k}. Use a larger problem."
            )
        splits = variant or read_strategy(text)
        extents = (min(size, _TESTED) for size in sizes)
        small = command(*extents, splits, _TESTED_AS.get(case.dtype, case.dtype))
        wrong = f"{_PROGRAM} --test reports a wrong result"
        reason = wrong if case.check and not _is_correct(small, *how) else None
        measured = time_columns(samples)
        # of its own making, or no question to it
        keys |= dict.fromkeys(("prefetch", "get", "progress", "seed", "a", "b", "c"))
        keys |= measured | {
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
        return Record(
            **keys,
            status="wrong" if reason else "ok",
            reason=reason,
            noisy=is_noisy(samples),
            oversubscribed=ranks * threads > cores,
            gflops=product_flops(case.dtype) * prod(sizes) / measured["median_s"] / 1e9,
        )


def strategies(nprocs: int) -> list[str]:
    """Every way to split m, n and k in parallel over all ranks, for ``cosma_miniapp -s``.

    Examples
    --------
    >>> strategies(4), strategies(1)
    (['pk4', 'pn2,pk2', 'pn4', 'pm2,pk2', 'pm2,pn2', 'pm4'], [])
    """
    triples = (x for x in itertools.product(divisors(nprocs), repeat=3) if prod(x) == nprocs > 1)
    return [
        ",".join(f"p{axis}{parts}" for axis, parts in zip("mnk", triple) if parts > 1)
        for triple in triples
    ]


def read_times(text: str) -> list[float]:
    """Seconds of each repetition, from the output of cosma_miniapp.

    Raises
    ------
    CaseFailed
        If it has no line of times.

    Examples
    --------
    >>> read_times(
    ...     "Strategy = Matrix dimensions (m, n, k) = (64, 64, 64)\\nCOSMA TIMES [ms] = 12 13 \\n"
    ... )
    [0.012, 0.013]
    """
    line = re.search(r"COSMA TIMES \[ms\] =((?:\s+\d+(?:\.\d+)?)+)", text)
    if not line:
        raise CaseFailed(f"{_PROGRAM} printed no times; its last line: {last_line(text)}")
    return [float(word) / 1000 for word in line[1].split()]


def read_strategy(text: str) -> str:
    """The splits in its output, as for ``-s``.

    Examples
    --------
    >>> read_strategy("Divisions strategy: \\nparallel (n / 2)\\nsequential (k / 3)\\n")
    'pn2,sk3'
    """
    splits = re.findall(r"^(parallel|sequential) \(([mnk]) / (\d+)\)", text, re.MULTILINE)
    return ",".join(f"{kind[0]}{axis}{parts}" for kind, axis, parts in dict.fromkeys(splits))


def _printed(command: tuple, environ: tuple, timeout: float | None) -> str:
    """Run the program and return its output.

    Raises
    ------
    UnsupportedError
        If it refuses the strategy, in its own words.
    """
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with running(_PROGRAM, list(command), dict(environ), **pipes) as process:
        text, _ = process.communicate(timeout=timeout)
    _, refused, why = text.partition(_NOT_DEFINED)
    if refused:  # several ranks may print it
        lines = filter(None, why.replace(_NOT_DEFINED, "").splitlines())
        raise UnsupportedError(f"cosma refuses: {next(lines, _NOT_DEFINED).strip()}")
    return text


@lru_cache(maxsize=256)
def _is_correct(command: tuple, environ: tuple, timeout: float | None) -> bool:
    """Whether its own test of these extents and this strategy passes.

    Raises
    ------
    CaseFailed
        If it reports neither result.
    """
    text = _printed((*command, "--test"), environ, timeout)
    results = re.findall(r"Result is( NOT)? CORRECT!", text)
    if not results:
        raise CaseFailed(f"{_PROGRAM} --test reports no result; its last line: {last_line(text)}")
    return not any(results)


LIBRARY = Cosma
