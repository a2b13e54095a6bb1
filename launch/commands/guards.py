"""The default number of ranks, and refusals of more ranks or threads than the machine can run."""

import json
import os

from drbench.errors import UsageError
from drbench.host.cores import usable_cores
from drbench.launch.host.mpi import launched, started_by_us
from drbench.launch.host.processes import run_alone
from drbench.model.machine import Machine

#: Ranks are refused above the first number if they are also above the second times the cores.
_MOST_RANKS, _MOST_A_CORE = 64, 16


def default_ranks(threads: int | None = None, backend: str | None = None, words: tuple = ()) -> int:
    """The number of ranks without ``-p``: so many that no two share a core or a GPU.

    Parameters
    ----------
    threads : int, optional
        BLAS threads of each rank.
    backend : str, optional
        With "cupy" there is one rank per GPU.
    words : tuple of str
        Command line of the launcher, if one starts the ranks.

    Raises
    ------
    UsageError
        If a launcher starts the ranks.
    """
    if words:
        raise UsageError(
            f"-p is missing: {words[0]} starts ranks on cores that this process cannot count."
        )
    if backend == "cupy":  # without a GPU the ranks report what is missing
        return max(1, len((gpu_report() or {}).get("devices", ())))
    return max(1, usable_cores() // (threads or 1))


def gpu_report() -> dict | None:
    """Describe the GPUs of this node, or return None. A separate process finds them, because a
    driver may hang and CuPy of another CUDA may crash."""
    text, _ = run_alone("-m", "drbench.launch.ranks.gpu_report")
    try:
        return json.loads(text.splitlines()[-1])
    except (ValueError, IndexError):
        return None


def given_ranks(ranks: int | None) -> int | None:
    """The number of ranks that a launcher, or drbench, has started this command on. None if it is
    to start them: without a launcher, and by ``-p`` also where one has started a single process, as
    the shell of ``srun --pty``.

    Raises
    ------
    UsageError
        For ``-p`` with another number of ranks than a launcher has started.
    """
    here = launched()
    if started_by_us() or here is None:
        return started_by_us() or None
    if ranks in (None, here.size):
        return here.size
    if here.size == 1:
        return None
    raise UsageError(
        f"-p {ranks}, but a launcher started this command on {here.size} "
        f"({here.variable}={here.size}). Leave -p out, or start drbench without the launcher."
    )


def refuse_threads(threads: int | None, model: Machine) -> None:
    """Refuse a number of BLAS threads on a machine model that does not depend on it.

    Raises
    ------
    UsageError
    """
    if threads and "threads" not in model.calibrated:
        raise UsageError(
            f"--threads applies to machines calibrated on cores; {model.name} is not. Leave it out."
        )


def refuse_too_many(ranks: int | None, threads: int | None = None, yes: bool = False) -> None:
    """Refuse far more ranks than cores of this machine, unless ``--yes`` was given, and more BLAS
    threads per rank than cores. (Smaller oversubscription is useful where time does not matter;
    records mark it.)

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
            f"-p {ranks}: this process has {here} cores, and every rank needs its own memory. "
            f"Use -p {here}, drbench plan or drbench simulate; or add --yes to start them all."
        )
