"""ScaLAPACK's ``p?gemm`` through ctypes, from a library built against an MPI of MPICH's ABI, such
as Debian's.

The library calls MPI itself, so its MPI has to be the one that mpi4py has started. MPICH's is made
global before the library is loaded, so that its calls are bound to it; where they really went is
read back before any of them is made.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import glob
import os
import re
import sys

import numpy as np
import threadpoolctl

from algorithms.mesh import MESH
from algorithms.registry import Option, named
from drbench.errors import MissingError, UnsupportedError, UsageError
from drbench.host.blas import BlasInfo
from launch.host.processes import run_alone
from partitions import divisors, near_square

from .base import Availability, Job, Peer, Setting, layout_of_its_own
from .loaded import call_slots, library_at, loaded_file, needed, slot_target

__all__ = ["PEER"]

_GET = (
    "On Debian: apt-get install libscalapack-mpich2.2 libopenblas0-pthread (or set "
    "DRBENCH_SCALAPACK to a library built for MPICH's ABI)."
)
_PATTERNS = ("libscalapack-mpich.so.2*", "libscalapack-mpich.so*", "libscalapack.so*")
_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64/mpich/lib",
    "/usr/lib",
    "/usr/local/lib",
)
#: File names of MPI libraries with MPICH's ABI.
_ABI = ("libmpich.so.12", "libmpi.so.12")
_BLOCK = 64
#: Tries the smallest product in a process of its own: whatever is wrong there costs a line, not the
#: run.
_PROBE = """
import mpi4py
mpi4py.rc.thread_level = "multiple"
from mpi4py import MPI
from launch.peers.scalapack import probe
probe(MPI.COMM_SELF)
print("works")
"""


def find_library() -> str | None:
    """Path of the ScaLAPACK to use: $DRBENCH_SCALAPACK, else the usual folders."""
    chosen = os.environ.get("DRBENCH_SCALAPACK")
    if chosen:
        return chosen if os.path.exists(chosen) else None
    for folder in [*filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":")), *_FOLDERS]:
        for pattern in _PATTERNS:
            found = sorted(glob.glob(os.path.join(glob.escape(folder), pattern)))
            if found:
                return found[0]
    return None


def _available() -> Availability:
    chosen, path = os.environ.get("DRBENCH_SCALAPACK"), find_library()
    if path is None:
        return Availability(
            False,
            f"no ScaLAPACK at DRBENCH_SCALAPACK={chosen}"
            if chosen
            else "no ScaLAPACK library for MPICH found",
            _GET,
        )
    try:
        wants = [name for name in needed(path) if name.startswith(("libmpi", "libmsmpi"))]
    except (OSError, ValueError, IndexError) as error:
        return Availability(False, f"{path} is no shared library ({error})", _GET)
    if not all(name.startswith(_ABI) for name in wants) or not wants:
        return Availability(
            False,
            f"{path} calls {', '.join(wants) or 'no MPI library'}, which is not of MPICH's ABI",
            _GET,
        )
    return Availability(
        True, f"{os.path.basename(os.path.realpath(path))} built for {wants[0]}", _GET
    )


def load(comm):
    """The library, bound to the MPI that ``comm`` belongs to.

    Raises
    ------
    MissingError
        If the MPI of this process is not of MPICH's ABI, or some MPI call of the library would go
        to another MPI.
    """
    ours = loaded_file("libmpi.so.12") or loaded_file("libmpich.so.12")
    if ours is None:
        from mpi4py import MPI

        library = " ".join(MPI.Get_library_version().split()[:3])
        raise MissingError(
            f"this ScaLAPACK is built for MPICH's ABI, but mpi4py runs on {library}. Use "
            "drbench[mpich], or set DRBENCH_SCALAPACK."
        )
    path = find_library()
    # before the library's own choice in the search for symbols
    ctypes.CDLL(ours[0], ctypes.RTLD_GLOBAL)
    try:
        # its BLAS stays its own: a global one would catch torch's calls
        library = ctypes.CDLL(path, os.RTLD_NOW)
    except OSError as error:
        raise MissingError(f"{path} cannot be loaded: {error}. {_GET}") from None
    file, base = loaded_file(os.path.basename(os.path.realpath(path)))
    slots = call_slots(file)
    for name, offset in slots.items():
        if name.startswith("MPI_"):
            target = library_at(slot_target(base, offset).value)
            if target is None or not os.path.samefile(target, ours[0]):
                raise MissingError(
                    f"{name} of {path} is bound to {target}, but MPI runs on {ours[0]}. Set "
                    f"LD_PRELOAD={ours[0]}."
                )
    return library, {
        name: slot_target(base, offset) for name, offset in slots.items() if name == "pilaenv_"
    }


def probe(comm) -> None:
    """Multiply 2 by 3 on one rank; whatever may crash crashes here."""
    library, _ = load(comm)
    context = _Grid(library, comm, 1, 1)
    a, b, c = (np.full((1, 1), value, "f8", order="F") for value in (2, 3, 0))
    descriptor = context.descriptor(1, 1, 1, 1)
    _pgemm(library, "float64", (1, 1, 1), (a, b, c), (descriptor,) * 3)
    if c[0, 0] != 6:
        raise MissingError(f"ScaLAPACK says that 2·3 = {c[0, 0]:g}")
    context.close()


class _Grid:
    """A BLACS process grid on a communicator, ranks row-major."""

    def __init__(self, library, comm, rows: int, cols: int):
        self._library = library
        self._handle = library.Csys2blacs_handle(ctypes.c_int(comm.py2f()))
        context = ctypes.c_int(self._handle)
        library.Cblacs_gridinit(ctypes.byref(context), b"Row", rows, cols)
        self.context = context.value

    def descriptor(self, rows: int, cols: int, block: int, local_rows: int):
        return (ctypes.c_int * 9)(
            1, self.context, rows, cols, block, block, 0, 0, max(1, local_rows)
        )

    def close(self) -> None:
        self._library.Cblacs_gridexit(self.context)
        self._library.Cfree_blacs_system_handle(self._handle)


def _pgemm(library, dtype, extents, arrays, descriptors) -> None:
    """C = A·B on block-cyclic column-major local arrays."""
    routine, real = {
        "float32": (library.psgemm_, ctypes.c_float),
        "float64": (library.pdgemm_, ctypes.c_double),
    }[dtype]
    m, n, k = (ctypes.byref(ctypes.c_int(extent)) for extent in extents)
    one, plus, zero = ctypes.byref(ctypes.c_int(1)), ctypes.byref(real(1)), ctypes.byref(real(0))
    a, b, c = (ctypes.c_void_p(array.ctypes.data) for array in arrays)
    da, db, dc = descriptors
    routine(b"N", b"N", m, n, k, plus, a, one, one, da, b, one, one, db, zero, c, one, one, dc)


_layout = layout_of_its_own(
    "scalapack deals square blocks to one process grid", "Use --block and --mesh."
)


def _settings(nprocs: int) -> list[Setting]:
    """As it comes; then wider blocks, wider panels and other grids."""
    grids = [f"{rows}x{nprocs // rows}" for rows in divisors(nprocs)]
    tuned = [
        Setting(
            f"{grid} b{block} p{panel}", {"options": {"mesh": grid, "block": block, "panel": panel}}
        )
        for grid in grids
        for block, panel in ((128, 128), (256, 256), (512, 512))
    ]
    return [Setting("as shipped", {}), *tuned]


def grid_of(text: str | None, nprocs: int) -> tuple[int, int]:
    """The process grid of ``--mesh``, near-square by default.

    Examples
    --------
    >>> grid_of(None, 4), grid_of("4x1", 4)
    ((2, 2), (4, 1))
    """
    if text is None:
        return near_square(nprocs)
    found = re.fullmatch(r"(\d{1,6})x(\d{1,6})", text.strip().lower())
    if not found or int(found[1]) * int(found[2]) != nprocs:
        rows, cols = near_square(nprocs)
        raise UsageError(
            f"--mesh {text!r} is no process grid of {nprocs} ranks. Use for example {rows}x{cols}."
        )
    return int(found[1]), int(found[2])


class _Multiplication(Job):
    def __init__(self, problem, topology, fill, threads, options):
        super().__init__()
        comm = topology.comm
        self._rows, self._cols = grid_of(options.get("mesh"), comm.size)
        self._block = block = options.get("block") or _BLOCK
        _ask_first(comm)
        self._library, slots = load(comm)
        self._panel = _Panel(slots, options.get("panel"))
        self._grid = _Grid(self._library, comm, self._rows, self._cols)
        self._row, self._col = divmod(comm.rank, self._cols)
        self._dtype, self._extents = problem.dtype, (problem.m, problem.n, problem.k)
        self._arrays, self._descriptors = [], []
        for rows, cols in ((problem.m, problem.k), (problem.k, problem.n), (problem.m, problem.n)):
            local = (
                sum(stop - start for start, stop in dealt(rows, block, self._row, self._rows)),
                sum(stop - start for start, stop in dealt(cols, block, self._col, self._cols)),
            )
            self._arrays.append(np.zeros(local, problem.dtype, order="F"))
            self._descriptors.append(self._grid.descriptor(rows, cols, block, local[0]))
        for name, array, shape in zip(
            "AB", self._arrays, ((problem.m, problem.k), (problem.k, problem.n))
        ):
            for row, col, tile in self._tiles(array, shape):
                fill.into(tile, name, row, col)
        self._shape = problem.m, problem.n
        self.blas = _SystemBlas(threads)
        text = f"tiles:{block}x{block}@{self._rows}x{self._cols}"
        self.layouts = (text, text, text)
        self.settled = {
            "block": block,
            "mesh": f"{self._rows}x{self._cols}",
            "transport": "mpi",
            "backend": "scalapack",
            "panel": options.get("panel"),
        }

    def _tiles(self, array, shape):
        """(global row, global column, view) of each block-cyclic tile of a local array."""
        top = 0
        for row0, row1 in dealt(shape[0], self._block, self._row, self._rows):
            left = 0
            for col0, col1 in dealt(shape[1], self._block, self._col, self._cols):
                yield row0, col0, array[top : top + row1 - row0, left : left + col1 - col0]
                left += col1 - col0
            top += row1 - row0

    def prepare(self) -> None:
        self._arrays[2].fill(np.nan)  # beta is 0: what was there must not matter

    def run(self) -> None:
        _pgemm(self._library, self._dtype, self._extents, self._arrays, self._descriptors)

    def parts(self):
        return 0, list(self._tiles(self._arrays[2], self._shape))

    def close(self) -> None:
        self._grid.close()
        self._panel.close()
        self._arrays = []


def dealt(extent: int, block: int, position: int, nprocs: int) -> list[tuple[int, int]]:
    """The ranges of one block-cyclic dimension that one process owns, half-open.

    Examples
    --------
    >>> dealt(10, 3, 0, 2), dealt(10, 3, 1, 2)
    ([(0, 3), (6, 9)], [(3, 6), (9, 10)])
    """
    return [
        (start, min(start + block, extent))
        for start in range(position * block, extent, nprocs * block)
    ]


class _Panel:
    """The panel width of p?gemm. ScaLAPACK asks its own ``pilaenv_`` for it, 32 as built; here
    another function answers."""

    def __init__(self, slots: dict, width: int | None):
        self._slot, self._before = slots.get("pilaenv_"), None
        if width is None:
            return
        if self._slot is None:
            raise UnsupportedError(
                "scalapack: this library asks nobody for its panel width (no call of pilaenv_). "
                "Leave --panel out."
            )
        answer = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
        # kept: C calls it as long as the slot points there
        self._answer = answer(lambda context, precision: width)
        self._before = self._slot.value
        self._slot.value = ctypes.cast(self._answer, ctypes.c_void_p).value

    def close(self) -> None:
        if self._before is not None:
            self._slot.value = self._before


class _SystemBlas:
    """The ``libblas.so.3`` that ScaLAPACK multiplies with, on local row-major operands."""

    def __init__(self, threads: int):
        library = ctypes.CDLL("libblas.so.3")
        self._routines = {
            "f": (library.sgemm_, ctypes.c_float),
            "d": (library.dgemm_, ctypes.c_double),
        }
        pools = [
            pool
            for pool in threadpoolctl.threadpool_info()
            if pool["user_api"] == "blas"
            and "numpy" not in pool["filepath"]
            and "scipy" not in pool["filepath"]
            and "torch" not in pool["filepath"]
        ]
        if pools:
            found = pools[0]
            self.info = BlasInfo(
                f"{found['internal_api']} {found['version'] or ''}".strip(),
                found.get("architecture") or "unknown",
                "system",
                True,
            )
        else:
            address = ctypes.cast(library.sgemm_, ctypes.c_void_p).value
            self.info = BlasInfo(
                f"{os.path.basename(library_at(address) or 'libblas.so.3')} (one thread)",
                "reference",
                "none",
                True,
            )

    def gemm(self, a, b, c, beta: float) -> None:
        """c = beta·c + a·b; row-major operands are the transposed problem of a column-major
        BLAS."""
        routine, real = self._routines[c.dtype.char]
        (m, n), k = c.shape, a.shape[1]
        i, data = lambda x: ctypes.byref(ctypes.c_int(x)), lambda x: ctypes.c_void_p(x.ctypes.data)
        routine(
            b"N",
            b"N",
            i(n),
            i(m),
            i(k),
            ctypes.byref(real(1)),
            data(b),
            i(n),
            data(a),
            i(k),
            ctypes.byref(real(beta)),
            data(c),
            i(n),
        )


def _ask_first(comm) -> None:
    """Let rank 0 try the smallest product in a process of its own; raise on every rank if that
    fails (collective)."""
    said = None
    if comm.rank == 0 and not loaded_file(os.path.basename(os.path.realpath(find_library()))):
        done = run_alone([sys.executable, "-c", _PROBE], 60)
        if done is None:
            said = "a product of 1x1 matrices does not end"
        elif "works" not in done.stdout:
            last = (done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1]
            said = f"a product of 1x1 matrices fails: {last}"
    said = comm.bcast(said)
    if said:
        raise MissingError(f"scalapack does not work here: {said}. {_GET}")


PEER = Peer(
    "scalapack",
    "ScaLAPACK p?gemm on block-cyclic tiles, through ctypes",
    _available,
    _settings,
    _layout,
    _Multiplication,
    options=named(
        Option(
            "block",
            int,
            least=1,
            unit="elements",
            help="rows and columns of a block-cyclic tile.",
            says=str(_BLOCK),
        ),
        MESH,
        Option(
            "panel",
            int,
            least=1,
            unit="elements",
            help="width of the panels that p?gemm broadcasts.",
            says="as built",
        ),
    ),
)
