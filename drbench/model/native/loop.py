"""The compiled event loop by ctypes: where it is found, how it is built, how it is called."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import inf
from pathlib import Path

from drbench.common import PHASES
from drbench.errors import MissingError, UsageError

#: Says which loop runs simulations: ``auto`` (the compiled one, if it is there), ``compiled`` or
#: ``python``.
VARIABLE = "DRBENCH_SIMULATOR"
_CHOICES = ("auto", "compiled", "python")
_ABI = 5
_HERE = Path(__file__).parent
SOURCE = _HERE / "events.c"
#: How the file is named that ``python -m drbench.model.native`` makes beside the source.
BUILT = _HERE / f"_events{sysconfig.get_config_var('EXT_SUFFIX') or '.so'}"
#: Products and sums of numbers stay apart, as Python rounds them.
FLAGS = ("-O2", "-ffp-contract=off", "-shared", "-fPIC")
WAY_OUT = "python -m drbench.model.native makes it, with a C compiler (cc)"

_OK, _STUCK, _BEYOND, _NO_MEMORY = range(4)

_INTS = ("ranks", "rows", "resources", "lanes", "values", "phases", "fair", "adds_on_core")
_POINTERS = (
    "first",
    "row",
    "input0",
    "inputs",
    "op",
    "sizes",
    "kind",
    "flags",
    "wait",
    "work",
    "lane",
)
_REALS = ("fence_s", "step_s", "signal_s", "accumulate_slowdown", "owner_slowdown")

#: Of group steps and kernels; a time below 0 is none.
MORE_INTS = ("seat", "group", "position", "by", "way", "flows", "kernel", "tiles", "workers")
MORE_REALS = ("fixed_s", "before_s", "after_s", "tile_s")


def _fields() -> Iterator[tuple]:
    whole, real = ctypes.c_int32, ctypes.c_double
    several = (*_INTS, "copy_engines", "waits", "seats", "groups", "ways")
    yield from ((name, whole) for name in several)
    yield "depth", ctypes.c_int64
    several = (*_POINTERS, "engine", "onto", "value", "resource0", *MORE_INTS)
    yield from ((name, ctypes.POINTER(whole)) for name in several)
    several = ("core_s", "link_s", "latency_s", "bytes_per_s", *MORE_REALS)
    yield from ((name, ctypes.POINTER(real)) for name in several)
    yield "on", ctypes.POINTER(whole)
    yield "shares", ctypes.POINTER(real)
    several = (*_REALS, "transfer_slowdown", "side_units", "units", "launch_s")
    yield from ((name, real) for name in (*several, "within_s", "time_s"))
    yield "phase_s", ctypes.POINTER(real)
    yield "events", ctypes.c_int64


class _Simulation(ctypes.Structure):
    """The structure of the same name in ``events.c``."""

    _fields_ = tuple(_fields())


@dataclass(frozen=True)
class Ran:
    """What the compiled loop found.

    Attributes
    ----------
    time_s : float
        When the last step of the last rank ended.
    phases : dict of str to float
        Seconds by phase, summed over the ranks.
    events : int
        Worked off.
    beyond : bool
        Given up at ``within_s``; then nothing else of this counts.
    """

    time_s: float
    phases: dict
    events: int
    beyond: bool


class Loop:
    """A compiled event loop.

    Parameters
    ----------
    path : Path
        Of the shared library.

    Raises
    ------
    MissingError
        If it cannot be loaded, or was made of another version of the source.
    """

    def __init__(self, path: Path):
        self.path = path
        try:
            library = ctypes.CDLL(str(path))
            abi = library.drbench_events_abi()
        except (OSError, AttributeError) as error:
            raise MissingError(f"{path} cannot be loaded ({error}); {WAY_OUT} anew") from None
        if abi != _ABI:
            raise MissingError(f"{path} is of version {abi}, wanted is {_ABI}; {WAY_OUT} anew")
        self._run = library.drbench_events_run

    def run(self, tables, prefetch: int | str, within_s: float = inf) -> Ran | None:
        """Work off the programs of the tables; None if steps are left that can never start, or
        memory does not suffice: the Python loop then says what is wrong.

        Parameters
        ----------
        tables : drbench.model.native.tables.Tables
        prefetch : int or str
            Look-ahead of :mod:`drbench.plan.schedule`.
        within_s : float
            Give up beyond this time.
        """
        machine, phase_s = tables.machine, (ctypes.c_double * len(PHASES))()
        one = _Simulation(
            ranks=tables.ranks,
            rows=len(tables.columns["kind"]),
            resources=tables.resources,
            lanes=tables.lanes,
            values=tables.values,
            seats=tables.seats,
            groups=len(tables.sizes),
            ways=tables.ways,
            phases=len(PHASES),
            fair=machine.arbitration == "fair",
            adds_on_core=machine.adds_on_core,
            copy_engines=machine.copy_engines,
            waits=PHASES.index("get_wait"),
            depth=-1 if prefetch == "all" else int(prefetch),
            fence_s=tables.fence_s,
            step_s=machine.step_s,
            signal_s=machine.signal_s,
            accumulate_slowdown=machine.accumulate_slowdown,
            owner_slowdown=machine.owner_slowdown,
            transfer_slowdown=machine.transfer_slowdown,
            side_units=machine.side_units,
            units=machine.compute.units,
            launch_s=machine.compute.launch_s,
            within_s=within_s,
            phase_s=phase_s,
        )
        several = ("first", "row", "input0", "inputs", "op", "sizes", "on", "shares")
        for name, values in [(name, getattr(tables, name)) for name in several] + [
            *tables.columns.items()
        ]:
            at, _ = values.buffer_info()
            kind = ctypes.c_double if values.typecode == "d" else ctypes.c_int32
            setattr(one, name, ctypes.cast(at, ctypes.POINTER(kind)))
        found = self._run(ctypes.byref(one))
        if found in (_STUCK, _NO_MEMORY):
            return None
        phases = dict(zip(PHASES, phase_s))
        return Ran(one.time_s, phases, one.events, found == _BEYOND)


def build(path: Path = BUILT) -> Path:
    """Compile the loop; the path.

    Raises
    ------
    MissingError
        If there is no C compiler, or it refuses the source.
    """
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        raise MissingError("no C compiler (cc) is on PATH. Install one, or set CC.")
    made = path.with_name(f"{path.name}.{os.getpid()}")  # whoever loads it sees it whole
    words = [*compiler.split(), *FLAGS, "-o", str(made), str(SOURCE)]
    ended = subprocess.run(words, capture_output=True, text=True)
    if ended.returncode:
        raise MissingError(f"{compiler} refuses {SOURCE.name}: {ended.stderr.strip()[:400]}")
    made.replace(path)
    return path


@cache
def _loaded(path: Path) -> Loop:
    return Loop(path)


def wanted() -> str:
    """What ``DRBENCH_SIMULATOR`` says.

    Raises
    ------
    UsageError
        If that is none of the choices.
    """
    choice = os.environ.get(VARIABLE) or "auto"
    if choice not in _CHOICES:
        raise UsageError(f"{VARIABLE} must be one of {', '.join(_CHOICES)}, got {choice!r}.")
    return choice


def find_loop() -> Loop | None:
    """The compiled loop; None where it is not there, cannot be loaded, or is not wanted.

    Raises
    ------
    MissingError
        If it is asked for, and not there.
    """
    choice = wanted()
    if choice == "python":
        return None
    try:
        if not BUILT.exists():
            raise MissingError(f"the compiled event loop is not there; {WAY_OUT}")
        return _loaded(BUILT)
    except MissingError:
        if choice == "compiled":
            raise
        return None
