"""The peaks of this machine's cores: one core alone, then all of them at once, each a rank."""

import json
import subprocess
import sys
from dataclasses import dataclass

from drbench.common import Clock
from drbench.errors import CaseTimeout, MissingError
from drbench.host.cores import usable_cores
from launch.host.mpi import mpiexec_command
from launch.host.processes import running

from .peaks import Peak

DTYPES = ("float32", "float64")
#: Seconds for each element type, on one core and on all.
_BUDGET_S = 0.7
_TIMEOUT_S = 120
#: A best sample this far above the median of its shape is the mark of a machine with other work.
_UNSURE = 1.05


@dataclass(frozen=True)
class CorePeak:
    """What was measured of one element type.

    Attributes
    ----------
    peak : Peak
        Of a core, and of all together.
    cores : int
        How many those are.
    below : float
        How far the medians of the best shapes lie below their best samples: the larger of one core
        and of all, as a part.
    """

    peak: Peak
    cores: int
    below: float

    @property
    def sure(self) -> bool:
        """Whether the machine had nothing else to do."""
        return self.below <= 1 - 1 / _UNSURE

    def __str__(self) -> str:
        """The peak in words.

        Examples
        --------
        >>> print(CorePeak(Peak("core", 80.0, "-", 150.0), 2, 0.012))
        80 GFLOP/s on one core, 150 on all 2 at once (75 a core); medians 1.2 % lower
        """
        one, every = self.peak.gflops, self.peak.node_gflops
        return (
            f"{one:.0f} GFLOP/s on one core, {every:.0f} on all {self.cores} at once "
            f"({every / self.cores:.0f} a core); medians {100 * self.below:.1f} % lower"
        )


def measure_core_peaks(cores: int | None = None) -> dict[str, CorePeak]:
    """Measure by element type; a few seconds.

    Parameters
    ----------
    cores : int, optional
        By default all that this process may use.

    Raises
    ------
    MissingError
        If there is no launcher, or its ranks do not answer.
    """
    cores = cores or usable_cores()
    alone, together = _on_ranks(1), _on_ranks(cores)
    found = {}
    for dtype in DTYPES:
        one, every = alone[dtype], together[dtype]
        source = (
            f"measured by drbench doctor, {Clock.date()[:10]}: best of many GEMM shapes on one "
            f"core, and on all {cores} at once; {one['library']}"
        )
        node = cores * every["rank_gflops"]
        # alone it had the core's best clock; less than in company is a sample that came to nothing
        core = max(one["rank_gflops"], every["rank_gflops"])
        below = max(1 - each["median_gflops"] / each["rank_gflops"] for each in (one, every))
        found[dtype] = CorePeak(Peak("core", core, source, node), cores, below)
    return found


def _on_ranks(ranks: int) -> dict:
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
