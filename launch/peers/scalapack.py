"""ScaLAPACK's ``p?gemm`` through ctypes, from a library built against an MPI of MPICH's ABI, such
as Debian's.

The library calls MPI itself, so its MPI has to be the one that mpi4py has started. MPICH's is made
global before the library is loaded, so that its calls are bound to it; where they really went is
read back before any of them is made.
"""

import ctypes
import os
import re
import sys
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path

import numpy as np
import threadpoolctl

from algorithms.mesh import MESH, parse_mesh
from drbench.errors import MissingError, UnsupportedError
from drbench.host.blas import BlasInfo, layout
from launch.host.processes import run_alone
from partitions import local_extent

from .base import Availability, Job, Peer, Setting, layout_of_its_own
from .loaded import call_slots, library_at, loaded_file, needed, slot_target
from .options import BLOCK, PEERS

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
#: What the names of its routines begin with, and the C type of their scalars, by dtype.
_REALS = {"float32": ("s", ctypes.c_float), "float64": ("d", ctypes.c_double)}
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
    folders = [*filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":")), *_FOLDERS]
    found = (sorted(Path(folder).glob(pattern)) for folder, pattern in product(folders, _PATTERNS))
    return next((str(paths[0]) for paths in found if paths), None)


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
    return Availability(True, f"{os.path.basename(os.path.realpath(path))} built for {wants[0]}")


def load():
    """The library, bound to the MPI of this process, and its slot of ``pilaenv_``, if it has one.

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
    panel = slots.get("pilaenv_")
    return library, panel and slot_target(base, panel)


def probe(comm) -> None:
    """Multiply 2 by 3 on one rank; whatever may crash crashes here."""
    library, _ = load()
    with _grid(library, comm, 1, 1) as context:
        a, b, c = (np.full((1, 1), value, "f8", order="F") for value in (2, 3, 0))
        _pgemm(library, (1, 1, 1), (a, b, c), (_descriptor(context, (1, 1), 1, c),) * 3)
        if c[0, 0] != 6:
            raise MissingError(f"ScaLAPACK says that 2·3 = {c[0, 0]:g}")


@contextmanager
def _grid(library, comm, rows: int, cols: int):
    """The context of a BLACS process grid on a communicator, ranks row-major."""
    handle = library.Csys2blacs_handle(ctypes.c_int(comm.py2f()))
    context = ctypes.c_int(handle)
    library.Cblacs_gridinit(ctypes.byref(context), b"Row", rows, cols)
    yield context.value
    library.Cblacs_gridexit(context.value)
    library.Cfree_blacs_system_handle(handle)


def _descriptor(context: int, shape, block: int, local: np.ndarray):
    return (ctypes.c_int * 9)(1, context, *shape, block, block, 0, 0, max(1, len(local)))


def _routine(library, name: str, dtype: np.dtype):
    """A routine for a dtype, and what makes its scalars."""
    letter, real = _REALS[dtype.name]
    return getattr(library, name.format(letter)), lambda value: ctypes.byref(real(value))


def _integers(values) -> list:
    """Integers as Fortran takes them."""
    return [ctypes.byref(ctypes.c_int(value)) for value in values]


def _addresses(arrays) -> list:
    return [ctypes.c_void_p(array.ctypes.data) for array in arrays]


def _pgemm(library, extents, arrays, descriptors, transpose: str = "") -> None:
    """C = op(A)·op(B) on block-cyclic column-major local arrays."""
    routine, real = _routine(library, "p{}gemm_", arrays[2].dtype)
    *mnk, one = _integers([*extents, 1])
    a, b, c = _addresses(arrays)
    da, db, dc = descriptors
    forms = [b"T" if name in transpose else b"N" for name in "ab"]
    routine(*forms, *mnk, real(1), a, one, one, da, b, one, one, db, real(0), c, one, one, dc)


_layout = layout_of_its_own(
    "scalapack deals square blocks to one process grid", "Use -o block and --mesh."
)


def _settings(nprocs: int) -> list[Setting]:
    """As it comes; then wider blocks, wider panels and other grids."""
    tuned = [
        Setting(
            f"{grid} b{width} p{width}",
            {"options": {"mesh": grid, "block": width, "panel": width}},
        )
        for grid, width in product(MESH.tried(nprocs), (128, 256, 512))
    ]
    return [Setting("as shipped", {}), *tuned]


class _Multiplication(Job):
    def __init__(self, problem, topology, fill, threads, options):
        comm = topology.comm
        self._mesh = rows, cols = parse_mesh(options.get("mesh"), comm.size)
        self._block = block = options.get("block") or BLOCK
        _ask_first(comm)
        self._library, slot = load()
        self._open = ExitStack()
        self._open.enter_context(_panel(slot, options.get("panel")))
        context = self._open.enter_context(_grid(self._library, comm, rows, cols))
        self._at = divmod(comm.rank, cols)
        self._extents = problem.m, problem.n, problem.k
        self._arrays, self._descriptors, self._transpose = [], [], problem.transpose
        for operand in problem.operands:
            name, shape, turned = operand.name, operand.stored.shape, operand.transposed
            local = [
                local_extent(extent, block, at, nprocs)
                for extent, at, nprocs in zip(shape, self._at, self._mesh)
            ]
            array = np.zeros(local, problem.dtype, order="F")
            self._arrays.append(array)
            self._descriptors.append(_descriptor(context, shape, block, array))
            for row, col, tile in self._tiles(array, shape) if name != "C" else ():
                fill.into(*((tile.T, name, col, row) if turned else (tile, name, row, col)))
        self.blas = _SystemBlas(threads)
        mesh = f"{rows}x{cols}"
        self.layouts = (f"tiles:{block}x{block}@{mesh}",) * 3
        self.resolved = {
            "block": block,
            "mesh": mesh,
            "transport": "mpi",
            "backend": "scalapack",
            "panel": options.get("panel"),
        }

    def _tiles(self, array, shape):
        """(global row, global column, view) of each block-cyclic tile of a local array."""
        block = self._block
        rows, cols = (
            enumerate(range(at * block, extent, nprocs * block))
            for extent, at, nprocs in zip(shape, self._at, self._mesh)
        )
        for (i, row), (j, col) in product(rows, cols):
            yield row, col, array[i * block :, j * block :][:block, :block]

    def spoil(self) -> None:
        self._arrays[2].fill(np.nan)  # beta is 0: what was there must not matter

    def run(self) -> None:
        how = self._arrays, self._descriptors, self._transpose
        _pgemm(self._library, self._extents, *how)

    def parts(self):
        return 0, list(self._tiles(self._arrays[2], self._extents[:2]))

    def close(self) -> None:
        self._open.close()
        self._arrays = []


@contextmanager
def _panel(slot, width: int | None):
    """A panel width for p?gemm, None for its own. ScaLAPACK asks its own ``pilaenv_`` for it, 32 as
    built; here another function answers."""
    if width is None:
        yield
        return
    if slot is None:
        raise UnsupportedError(
            "scalapack: this library asks nobody for its panel width (no call of pilaenv_). "
            "Leave -o panel out."
        )
    # kept here: C calls it as long as the slot points there
    answer = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(lambda *_: width)
    before = slot.value
    slot.value = ctypes.cast(answer, ctypes.c_void_p).value
    try:
        yield
    finally:
        slot.value = before


class _SystemBlas:
    """The ``libblas.so.3`` that ScaLAPACK multiplies with, on local row-major operands."""

    def __init__(self, threads: int):
        self._library = ctypes.CDLL("libblas.so.3")
        for pool in threadpoolctl.threadpool_info():
            if pool["user_api"] == "blas" and not re.search("numpy|scipy|torch", pool["filepath"]):
                name = f"{pool['internal_api']} {pool['version'] or ''}".strip()
                kernel, threading = pool.get("architecture") or "unknown", "system"
                break
        else:
            address = ctypes.cast(self._library.sgemm_, ctypes.c_void_p).value
            name = f"{os.path.basename(library_at(address) or 'libblas.so.3')} (one thread)"
            kernel, threading = "reference", "none"
        self.info = BlasInfo(name, kernel, threading, True)

    def gemm(self, a, b, c, beta: float) -> None:
        """c = beta·c + a·b; row-major operands are the transposed problem of a column-major
        BLAS, and operands stored transposed that of its transposed forms."""
        routine, real = _routine(self._library, "{}gemm_", c.dtype)
        (major_a, ld_a), (major_b, ld_b) = layout(a), layout(b)
        form_a, form_b = (b"N" if major == "row" else b"T" for major in (major_a, major_b))
        n, m, k, ld_a, ld_b = _integers((c.shape[1], *a.shape, ld_a, ld_b))
        a, b, c = _addresses((a, b, c))
        routine(form_b, form_a, n, m, k, real(1), b, ld_b, a, ld_a, real(beta), c, n)


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
    options=PEERS["scalapack"],
    transposes=True,
)
