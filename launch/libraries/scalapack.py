"""ScaLAPACK's ``p?gemm`` through ctypes, from a library built against an MPI of MPICH's ABI, such
as Debian's.

The library calls MPI itself, so its MPI must be the one that mpi4py has started. MPICH's symbols
are made global before the library is loaded, so that its calls are bound to them; the bindings are
checked before the first call.
"""

import ctypes
import itertools
import os
import re
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

from drbench.algorithms.mesh import MESH, parse_mesh
from drbench.errors import MissingError, UnsupportedError
from drbench.host.blas import Blas, blas_in, blas_pools
from drbench.launch.host.processes import run_alone

from .base import Availability, Library
from .loaded import call_slots, library_at, loaded_file, slot_target
from .options import BLOCK

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
#: Names of MPI libraries in a file, and those with MPICH's ABI.
_MPI, _ABI = rb"lib(?:ms)?mpi\w*\.so[.\d]*(?=\0)", (b"libmpich.so.12", b"libmpi.so.12")
#: Prefix of its routines, by dtype.
_LETTERS = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}
#: Tests the smallest multiplication in a separate process, so that a crash there does not end the
#: run.
_PROBE = """
import mpi4py
mpi4py.rc.thread_level = "multiple"
from mpi4py import MPI
from drbench.launch.libraries.scalapack import probe
probe(MPI.COMM_SELF)
"""


def find_library() -> str | None:
    """The path of ScaLAPACK: $DRBENCH_SCALAPACK, else from the usual folders."""
    chosen = os.environ.get("DRBENCH_SCALAPACK")
    if chosen:
        return chosen if os.path.exists(chosen) else None
    folders = [*filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":")), *_FOLDERS]
    pairs = itertools.product(folders, _PATTERNS)
    matches = (sorted(Path(folder).glob(pattern)) for folder, pattern in pairs)
    return next((str(paths[0]) for paths in matches if paths), None)


class Scalapack(Library):
    """p?gemm on block-cyclic column-major local arrays."""

    name = "scalapack"
    description = "ScaLAPACK p?gemm on block-cyclic tiles, through ctypes"
    transposes = True
    dtypes = tuple(_LETTERS)
    instead = "Use -o block and --mesh."
    order = "F"
    pads = True

    @staticmethod
    def available():
        """Whether a library that calls an MPI of MPICH's ABI is found."""
        path = find_library()
        if path is None:
            chosen = os.environ.get("DRBENCH_SCALAPACK", "not set")
            what = f"no ScaLAPACK for MPICH found, and DRBENCH_SCALAPACK is {chosen}"
            return Availability(False, what, _GET)
        data = Path(path).read_bytes()
        if not data.startswith(b"\x7fELF"):
            return Availability(False, f"{path} is not a shared library", _GET)
        wants = re.findall(_MPI, data)
        if not wants or not all(name.startswith(_ABI) for name in wants):
            names = b", ".join(wants).decode() or "no MPI library"
            return Availability(False, f"{path} calls {names}, not one of MPICH's ABI", _GET)
        name = os.path.basename(os.path.realpath(path))
        return Availability(True, f"{name} built for {wants[0].decode()}")

    @staticmethod
    def settings(nprocs):
        """The default; then wider blocks, wider panels and other grids."""
        return [{}] + [
            {"options": {"mesh": mesh, "block": width, "panel": width}}
            for mesh, width in itertools.product(MESH.tried(nprocs), (128, 256, 512))
        ]

    @staticmethod
    def layout(nprocs, given, block=BLOCK, mesh=None, panel=None):
        """Square tiles, block-cyclic on one process grid."""
        rows, cols = parse_mesh(mesh, nprocs)
        return (f"tiles:{block}x{block}@{rows}x{cols}",) * 3

    def prepare(self, options):
        """Load the library, and make its process grid and three arrays with descriptors."""
        _ask_first(self.topology.comm)
        self._library, slot = load()
        grid, block = self.work.c.partition.grid, options.get("block", BLOCK)
        self._open = ExitStack()
        self._open.enter_context(_panel(slot, options.get("panel")))
        context = self._open.enter_context(
            _grid(self._library, self.topology.comm, grid.rows, grid.cols)
        )
        self.operands = [*self.filled(), self.local(self.work.c)]
        self._descriptors = [
            _descriptor(context, operand.stored.shape, block, array)
            for operand, array in zip(self.work.operands, self.operands)
        ]
        self.blas = _own_blas()
        self.resolved = {
            "block": block,
            "mesh": str(grid),
            "transport": "mpi",
            "backend": "scalapack",
            "panel": options.get("panel"),
        }

    def poison(self):
        """Poison C with NaN: beta is 0, so that the old values must not matter."""
        self.operands[2].fill(np.nan)

    def run(self):
        """Call p?gemm once."""
        work = self.work
        extents = work.m, work.n, work.k
        _pgemm(self._library, extents, self.operands, self._descriptors, work.transpose)

    def result(self):
        """The array of C that p?gemm wrote."""
        return self.operands[2]

    def close(self):
        """Release the process grid, too."""
        self._open.close()
        super().close()


def load():
    """The library, bound to the MPI of this process, and its slot of ``pilaenv_``, if it has one.

    Raises
    ------
    MissingError
        If the MPI of this process has not MPICH's ABI, or an MPI call of the library is bound to
        another MPI.
    """
    ours = loaded_file("libmpi.so.12") or loaded_file("libmpich.so.12")
    if ours is None:
        from mpi4py import MPI

        library = " ".join(MPI.Get_library_version().split()[:3])
        raise MissingError(
            f"this ScaLAPACK is built for MPICH's ABI, but mpi4py runs on {library}. Use "
            "MPICH (pip install '.[mpich]' from a checkout), or set DRBENCH_SCALAPACK."
        )
    path = find_library()
    # searched for symbols before the library's own MPI
    ctypes.CDLL(ours[0], ctypes.RTLD_GLOBAL)
    try:
        # its BLAS is not global: a global one would receive torch's calls
        library = ctypes.CDLL(path, os.RTLD_NOW)
    except OSError as error:
        raise MissingError(f"{path} cannot be loaded: {error}. {_GET}") from None
    file, base = loaded_file(os.path.basename(os.path.realpath(path)))
    slots = {name: slot_target(base, offset) for name, offset in call_slots(file).items()}
    for name, slot in slots.items():
        target = library_at(slot.value) if name.startswith("MPI_") else ours[0]
        if target is None or not os.path.samefile(target, ours[0]):
            raise MissingError(
                f"{name} of {path} is bound to {target}, but MPI runs on {ours[0]}. Set "
                f"LD_PRELOAD={ours[0]}."
            )
    return library, slots.get("pilaenv_")


def probe(comm) -> None:
    """Multiply 2 by 3 on one rank; this may crash."""
    library, _ = load()
    with _grid(library, comm, 1, 1) as context:
        arrays = [np.full((1, 1), value, "f8", order="F") for value in (2, 3, 0)]
        _pgemm(library, (1, 1, 1), arrays, [_descriptor(context, (1, 1), 1, arrays[2])] * 3)
        if arrays[2][0, 0] != 6:
            raise MissingError(f"ScaLAPACK computes 2·3 = {arrays[2][0, 0]:g}")


def _ask_first(comm) -> None:
    """Test the smallest multiplication on rank 0 in a separate process; raise on every rank if it
    fails (collective)."""
    failure = ""
    if comm.rank == 0 and not loaded_file(os.path.basename(os.path.realpath(find_library()))):
        _, failure = run_alone("-c", _PROBE)
    failure = comm.bcast(failure)
    if failure:
        raise MissingError(
            f"scalapack does not work here: a multiplication of 1x1 matrices {failure}. {_GET}"
        )


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
    leading = max(1, len(local), local.strides[1] // local.itemsize)
    return (ctypes.c_int * 9)(1, context, *shape, block, block, 0, 0, leading)


def _pgemm(library, extents, arrays, descriptors, transpose: str = "") -> None:
    """C = op(A)·op(B) on block-cyclic column-major local arrays."""
    dtype = arrays[2].dtype
    m, n, k, first = (ctypes.byref(ctypes.c_int(value)) for value in (*extents, 1))
    factors = np.array([1, 0], dtype)
    alpha, beta = (ctypes.c_void_p(factor.ctypes.data) for factor in (factors[:1], factors[1:]))
    a, b, c = (
        (ctypes.c_void_p(array.ctypes.data), first, first, descriptor)
        for array, descriptor in zip(arrays, descriptors)
    )
    forms = [b"T" if name in transpose else b"N" for name in "ab"]
    getattr(library, f"p{_LETTERS[dtype.name]}gemm_")(*forms, m, n, k, alpha, *a, *b, beta, *c)


@contextmanager
def _panel(slot, width: int | None):
    """A context that sets the panel width of p?gemm; None for its default. ScaLAPACK calls its
    function ``pilaenv_`` for it (32 as built), which is replaced."""
    if width is None:
        yield
        return
    if slot is None:
        raise UnsupportedError(
            "scalapack: the panel width of this library is fixed (no call of pilaenv_). "
            "Leave -o panel out."
        )
    # keep a reference while the slot points to it
    answer = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(lambda *_: width)
    before = slot.value
    slot.value = ctypes.cast(answer, ctypes.c_void_p).value
    try:
        yield
    finally:
        slot.value = before


def _own_blas() -> Blas:
    """The ``libblas.so.3`` that ScaLAPACK multiplies with.

    Raises
    ------
    MissingError
        If it has no cblas, by which GEMM-only speed is measured.
    """
    reference = {"internal_api": "libblas.so.3", "version": "(one thread)", "architecture": "plain"}
    loaded = [pool for pool in blas_pools() if not re.search("numpy|scipy|torch", pool["filepath"])]
    pool = (loaded or [reference | {"filepath": "libblas.so.3"}])[0]
    blas = blas_in(pool["filepath"], pool)
    if blas is None:
        raise MissingError(f"{pool['filepath']} of ScaLAPACK has no cblas_sgemm. {_GET}")
    return blas


LIBRARY = Scalapack
