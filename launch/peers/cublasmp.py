"""cuBLASMp through nvmath-python: ``nvmath.distributed.linalg.advanced.Matmul`` on the two layouts
of which cuBLASMp overlaps communication and product."""

import importlib.util

from .base import Availability, Job, Peer, installed, refuse_alike
from .options import PEERS
from .symm_mem import SETTINGS, check_even, devices, filled, layout, moved, with_gpu

_GET = (
    "pip install 'nvmath-python[cu12-distributed]' cupy-cuda12x (or cu13 and cupy-cuda13x, as the "
    "driver has it)."
)


def _available() -> Availability:
    found = installed("nvmath", _GET, "nvmath-python")
    for package in ("cupy", "nccl"):  # in distributions named after the version of CUDA
        if found.ok and importlib.util.find_spec(package) is None:
            found = Availability(False, f"{package} is not installed", _GET)
    return with_gpu(found)


class CupyBlas:
    """cupy.matmul on one GPU, for the roof.

    Parameters
    ----------
    cupy : module
    version : str
        Of what multiplies.
    """

    def __init__(self, cupy, version: str):
        from drbench.host.blas import BlasInfo

        self._cupy, self._seen = cupy, {}
        self.info = BlasInfo(version, "cuBLAS", "none", True)

    def gemm(self, a, b, c, beta: float) -> None:
        """c = a·b of copies on the GPU, made when operands are seen first (``beta`` is 0)."""
        key = (a.ctypes.data, a.shape, b.shape)
        if key not in self._seen:
            self._seen = {key: tuple(self._cupy.asarray(x) for x in (a, b, c))}
        there = self._seen[key]
        self._cupy.matmul(there[0], there[1], out=there[2])
        self._cupy.cuda.runtime.deviceSynchronize()


class Multiplication(Job):
    """C = A·B as Cᵀ = Bᵀ·Aᵀ: cuBLASMp is column-major, and what lies by rows here lies by columns
    there, transposed.

    AG: B by columns and C by columns are row-wise there, and A by rows is column-wise, which is the
    operand that it gathers. RS: Bᵀ column-wise, Aᵀ row-wise, Cᵀ column-wise.
    """

    def __init__(self, problem, topology, fill, threads, options):
        import cupy

        self._cupy, self._flow = cupy, options.get("dataflow") or "AG"
        check_even("cublasmp", problem, self._flow, whole=True)
        comm, rank = topology.comm, topology.comm.rank
        device_id = topology.node.rank % devices()
        cupy.cuda.Device(device_id).use()

        def start():  # finds its libraries now
            import nvmath.distributed as nvmath
            from nvmath.bindings import cublasMp

            if nvmath.get_context() is None:  # once a process
                nvmath.initialize(device_id, comm, backends=["nccl"])
            self.blas = CupyBlas(cupy, f"cuBLASMp {cublasMp.get_version()}")

        refuse_alike(comm, "cublasmp", start)
        from nvmath.distributed.distribution import Slab
        from nvmath.distributed.linalg.advanced import Matmul

        self._c = problem.c.own_tiles(rank)
        self.operands, self._multiply = [], None
        for name in "BA":
            self.operands.append(cupy.asarray(filled(problem, topology, fill, name)).T)
        distributions = {
            "AG": [Slab.X, Slab.Y, Slab.X],
            "RS": [Slab.Y, Slab.X, Slab.Y],
        }[self._flow]

        def plan():
            self._multiply = Matmul(*self.operands, distributions=distributions)
            self._multiply.plan()
            self.run()

        refuse_alike(comm, "cublasmp", plan)
        self.moved = moved(problem, topology, self._flow)
        self.layouts = tuple(problem.texts.values())
        self.resolved = {
            "dataflow": self._flow,
            "transport": "nccl",
            "backend": "cublasmp",
        }

    def run(self) -> None:
        self.out = self._multiply.execute()
        self._cupy.cuda.runtime.deviceSynchronize()

    def parts(self):
        out = self._cupy.asnumpy(self.out.T)
        return 0, [(block.row0, block.col0, out) for block in self._c]

    def close(self) -> None:
        super().close()
        if self._multiply is not None:
            self._multiply.free()
            self._multiply = None


PEER = Peer(
    "cublasmp",
    "cuBLASMp through nvmath-python: all-gather + GEMM and GEMM + reduce-scatter, overlapped",
    _available,
    lambda nprocs: SETTINGS,
    layout("cublasmp"),
    Multiplication,
    options=PEERS["cublasmp"],
)
