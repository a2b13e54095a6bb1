"""The peaks of this machine's cores: one core alone, then all of them at once, each a rank."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from drbench.errors import CaseTimeout, MissingError
from drbench.host.cores import usable_cores
from drbench.measure.noise import LEAST_SHARE
from launch.host.mpi import mpiexec_command
from launch.host.processes import running

DTYPES = ("float32", "float64")
#: Seconds for each element type, on one core and on all.
_BUDGET_S = 0.7
_TIMEOUT_S = 120
#: A best sample this far above the median of its shape is the mark of a machine with other work.
_UNSURE = 1.10


@dataclass(frozen=True)
class CorePeak:
    """What was measured of one element type.

    Attributes
    ----------
    core_gflops, node_gflops : float
        Of one core alone, and of all together.
    cores : int
        How many those are.
    below : float
        How far the medians of the best shapes lie below their best samples: the larger of one core
        and of all, as a part.
    core_share : float
        The share of their cores that the ranks had: the smaller of one core and of all.
    """

    core_gflops: float
    node_gflops: float
    cores: int
    below: float
    core_share: float

    def __str__(self) -> str:
        """The peak in words.

        Examples
        --------
        >>> print(CorePeak(80.0, 150.0, 2, 0.012, 1.0))
        80 GFLOP/s on one core, 150 on all 2 at once (75 a core); medians 1.2 % lower
        """
        return (
            f"{self.core_gflops:.0f} GFLOP/s on one core, {self.node_gflops:.0f} on all "
            f"{self.cores} at once ({self.node_gflops / self.cores:.0f} a core); medians "
            f"{100 * self.below:.1f} % lower"
        )


def list_doubts(found: Mapping[str, CorePeak], load: float, machine_cores: int) -> list[str]:
    """What speaks against peaks of one machine, each in a few words; nothing if it had nothing
    else to do.

    Parameters
    ----------
    found : mapping of str to CorePeak
        By element type.
    load : float
        Processes that wanted a core of the machine before anything was measured.
    machine_cores : int
        Cores of the machine, those included that this process may not use.

    Examples
    --------
    >>> quiet = CorePeak(80.0, 150.0, 2, 0.01, 1.0)
    >>> slow = CorePeak(37.0, 17.0, 2, 0.0, 0.97)
    >>> list_doubts({"float32": quiet}, 0.4, 2)
    []
    >>> for each in list_doubts({"float32": slow, "float64": quiet}, 17.0, 2):
    ...     print(each)
    the load was 17.0 on 2 cores
    float32: all cores at once were slower than one alone
    float64 was faster than float32
    """
    doubts = [f"the load was {load:.1f} on {machine_cores} cores"] if load > machine_cores else []
    for dtype, each in found.items():
        if each.core_share < LEAST_SHARE:
            doubts.append(f"{dtype}: the ranks had {100 * each.core_share:.0f} % of their cores")
        if each.below > 1 - 1 / _UNSURE:
            doubts.append(f"{dtype}: the samples differ")
        if each.cores > 1 and each.node_gflops < each.core_gflops:
            doubts.append(f"{dtype}: all cores at once were slower than one alone")
    single, double = found.get("float32"), found.get("float64")
    if single and double:
        slower = single.core_gflops < double.core_gflops or single.node_gflops < double.node_gflops
        doubts += ["float64 was faster than float32"] * slower
    return doubts


def measure_core_peaks() -> tuple[dict[str, CorePeak], list[str]]:
    """Measure by element type on all cores that this process may use, a few seconds; and what
    speaks against it (:func:`list_doubts`).

    Raises
    ------
    MissingError
        If there is no launcher, or its ranks do not answer.
    """
    cores, load = usable_cores(), os.getloadavg()[0]
    alone, together = _measure_on_ranks(1), _measure_on_ranks(cores)
    found = {}
    for dtype in DTYPES:
        one, every = alone[dtype], together[dtype]
        below = max(1 - each["median_gflops"] / each["gflops"] for each in (one, every))
        share = min(one["core_share"], every["core_share"])
        found[dtype] = CorePeak(one["gflops"], every["gflops"], cores, below, share)
    return found, list_doubts(found, load, os.cpu_count() or cores)


def _measure_on_ranks(ranks: int) -> dict:
    """What so many ranks of one thread measure."""
    words = [*mpiexec_command(ranks), sys.executable, "-m", "mpi4py", "-m", "launch.ranks.peak"]
    words += [",".join(DTYPES), str(_BUDGET_S)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    try:
        with running("measuring the peak", words, **pipes) as process:
            text, _ = process.communicate(timeout=_TIMEOUT_S)
        return json.loads(text.splitlines()[-1])
    except (CaseTimeout, ValueError, IndexError):
        raise MissingError(
            f"the peak of {ranks} cores could not be measured: the ranks did not answer. See "
            "drbench doctor."
        ) from None
