"""How many ranks are started, and what is refused that nobody may have meant."""

import json
import os
import sys

from drbench.errors import UsageError
from drbench.host.cores import usable_cores
from launch.host.processes import run_alone

#: More ranks than this are refused where they are also so many times the cores.
_MOST_RANKS, _MOST_A_CORE = 64, 16


def default_ranks(threads: int | None = None, backend: str | None = None, words: tuple = ()) -> int:
    """So many ranks that none shares a core, or a GPU, with another: what a command starts that is
    not told how many.

    Parameters
    ----------
    threads : int, optional
        Of each rank.
    backend : str, optional
        On GPUs there is a rank for each.
    words : tuple of str
        Of the launcher; what it starts ranks on is not known here.

    Raises
    ------
    UsageError
        If ranks are started elsewhere.
    """
    if words:
        raise UsageError(
            f"-p is missing: {words[0]} starts ranks on cores that this process cannot count."
        )
    if backend == "cupy":  # where none is seen, the ranks say what is missing
        return max(1, len((gpu_report() or {}).get("devices", ())))
    return max(1, usable_cores() // (threads or 1))


def gpu_report() -> dict | None:
    """What there is to know of this node's GPUs. Asked of a process of its own: a driver that
    hangs, or CuPy of another CUDA, must not take this one along; None then."""
    done = run_alone([sys.executable, "-m", "launch.ranks.gpu_report"], 60)
    try:
        return json.loads(done.stdout.splitlines()[-1])
    except (AttributeError, ValueError, IndexError):
        return None


def refuse_too_many(ranks: int | None, threads: int | None = None, yes: bool = False) -> None:
    """Refuse ranks that are far above the cores of this machine, unless ``--yes`` was given, and
    more BLAS threads a rank than it has cores, which no rank can use. (Ranks above the cores, or
    ranks × threads, are legitimate for what does not depend on time; records mark them.)

    Raises
    ------
    UsageError
    """
    here, all_cores = usable_cores(), os.cpu_count() or 1
    if threads is not None and threads > all_cores:
        raise UsageError(
            f"--threads {threads}: this machine has {all_cores} cores. Use at most {all_cores}, or "
            "leave it out."
        )
    if ranks and ranks > max(_MOST_RANKS, _MOST_A_CORE * here) and not yes:
        raise UsageError(
            f"-p {ranks}: this process has {here} cores, and every rank takes memory of its own. "
            f"Use -p {here}, drbench plan or drbench simulate; or add --yes to start them all."
        )
