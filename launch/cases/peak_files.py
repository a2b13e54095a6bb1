"""Where peaks are given: by ``--peak``, or in a machine file.

It has them in the tables ``[peak.DTYPE]``, each with its ``source``: ``core_gflops``,
``device_gflops``, or ``rank_gflops`` of whatever a rank has. ``drbench doctor`` measures those of
this machine's cores. A machine model whose peak is a vendor's gives it too.
"""

import os
from collections.abc import Iterable
from math import inf
from pathlib import Path

from drbench.errors import UsageError
from drbench.model.machine import Machine
from drbench.model.machine_file import ARITHMETICS

from .machine_models import machine_names
from .peaks import Peak, Peaks, arithmetic
from .sweep_values import check_keys, check_text, read_toml, require, shipped

#: Element types that a peak may be of; bfloat16 also stands for products of it summed in float32.
DTYPES = ARITHMETICS
_UNITS = ("core", "device", "rank")


def read_peaks(text: str | None, cases: Iterable, machine: str | None = None) -> Peaks:
    """The peaks that ``--peak`` gives, for some cases; empty if it is not given and the machine's
    file holds none.

    Parameters
    ----------
    text : str or None
        GFLOP/s of one rank, a machine by name or file, or ``none``; None for what the ``machine``
        file holds.
    cases : iterable of Case
        What is to be run.

    Raises
    ------
    UsageError
        If it is none of these, or a number stands for several element types.

    Examples
    --------
    >>> from launch.cases.case import Case
    >>> read_peaks("80.5", [Case(8, 8, 8)])
    {'float32': Peak(per='rank', gflops=80.5, source='given: --peak 80.5 of one rank')}
    >>> read_peaks("h100x8", [])["float32"].gflops, read_peaks(None, [])
    (67000.0, {})
    """
    if text is None:
        return _of_file(machine.partition(",")[0]) if machine else {}
    if text == "none":
        return {}
    try:
        gflops = float(text)
    except ValueError:
        return _of_machine(text)
    if not 0 < gflops < inf:
        raise UsageError(f"--peak {text}: must be above 0, in GFLOP/s of one rank.")
    kinds = sorted({arithmetic(case.dtype, case.compute) for case in cases})
    if len(kinds) > 1:
        raise UsageError(
            f"--peak {text}: the cases are of {' and '.join(kinds)}, which have peaks of their "
            "own. Give a machine file with a table [peak.DTYPE] for each."
        )
    source = f"given: --peak {text} of one rank"
    return {kind: Peak("rank", gflops, source) for kind in kinds}


def check_peak(text: str) -> str:
    """What ``--peak`` takes, read once to see that it can be.

    Raises
    ------
    UsageError
    """
    read_peaks(text, ())
    return text


def _of_machine(name: str) -> Peaks:
    """The peaks of a machine by name, or of a file."""
    path = Path(name)
    if name.endswith(".toml") or "/" in name:
        found = _of_file(name)
    elif name in shipped("machines"):
        found = _of_file(shipped("machines")[name])
    else:
        raise UsageError(
            f"--peak {name!r}: is no number of GFLOP/s of one rank, none, a file (.toml) "
            f"nor one of {', '.join(machine_names())}."
        )
    if not found:
        raise UsageError(
            f"--peak {path.name}: holds no table [peak.DTYPE], nor a model with a vendor's peak. "
            f"drbench doctor measures this machine's."
        )
    return found


def _of_file(path: str | os.PathLike) -> Peaks:
    """The peaks that a machine file holds, a vendor's in its model included; empty if there are
    none, or it is no file but a label."""
    path = shipped("machines").get(os.fspath(path), Path(path))
    if path.suffix != ".toml":
        return {}
    document = read_toml(path)
    tables = document.get("peak", {})
    where = f"{path.name}: peak"
    require(isinstance(tables, dict), where, "tables, as [peak.float32]", tables)
    check_keys(tables, DTYPES, f"{where}.")
    return _of_model(document.get("model"), path.stem) | {
        dtype: _peak(table, f"{where}.{dtype}") for dtype, table in tables.items()
    }


def _of_model(section, name: str) -> Peaks:
    """The peaks of a machine model, if they are not rates that products were fitted with."""
    compute = section.get("compute", {}) if isinstance(section, dict) else {}
    if "peak_flops" not in compute or compute.get("peak_measured"):
        return {}
    dtype = section.get("dtype", Machine.dtype)
    source = f"model.compute.peak_flops of {name}"
    found = {dtype: Peak("device", compute["peak_flops"] / 1e9, source)}
    for other, own in section.get("dtypes", {}).items():
        source = f"model.dtypes.{other}.peak_flops of {name}"
        found[other] = Peak("device", own["peak_flops"] / 1e9, source)
    return found


def _peak(table, where: str) -> Peak:
    require(isinstance(table, dict), where, "a table", table)
    check_keys(table, (*(f"{unit}_gflops" for unit in _UNITS), "source"), f"{where}.")
    given = [unit for unit in _UNITS if f"{unit}_gflops" in table]
    what = f"one of {', '.join(f'{unit}_gflops' for unit in _UNITS)}"
    require(len(given) == 1, where, f"a table with {what}", table)
    require("source" in table, where, "a table with its source, a text", table)
    key = f"{given[0]}_gflops"
    gflops = table[key]
    fits = type(gflops) in (int, float) and 0 < gflops < inf
    require(fits, f"{where}.{key}", "a number above 0", gflops)
    return Peak(given[0], float(gflops), check_text(table["source"], f"{where}.source"))
