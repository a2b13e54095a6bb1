"""cuBLASMp through nvmath-python: ``nvmath.distributed.linalg.advanced.Matmul`` on the two layouts
for which cuBLASMp overlaps communication and GEMM."""

from drbench.host.blas import BlasInfo

from .base import ArrayBlas, installed
from .fused import Fused, devices, with_gpu

_GET = (
    "pip install 'nvmath-python[cu12-distributed]' cupy-cuda12x (or cu13 and cupy-cuda13x, "
    "matching the driver)."
)


class CublasMp(Fused):
    """C = A·B as Cᵀ = Bᵀ·Aᵀ: cuBLASMp is column-major, so that a row-major array here is the
    transposed one there.

    AG: B by columns and C by columns are row-wise there, and A by rows is column-wise, which is the
    operand that it gathers. RS: Bᵀ column-wise, Aᵀ row-wise, Cᵀ column-wise.
    """

    name = "cublasmp"
    description = (
        "cuBLASMp through nvmath-python: all-gather + GEMM and GEMM + reduce-scatter, overlapped"
    )

    @staticmethod
    def available():
        """Whether nvmath-python, CuPy, NCCL and a GPU are available."""
        return with_gpu(installed(_GET, "nvmath", "cupy", "nccl"))

    def start(self):
        """Start nvmath's runtime, once per process; then make shards on the GPU, and a plan."""
        import cupy

        self._cupy, self._wait = cupy, cupy.cuda.runtime.deviceSynchronize
        self.check_even("m", "n" if self.flow == "AG" else "k")
        device_id = self.topology.node.rank % devices()
        cupy.cuda.Device(device_id).use()
        self.operands = [cupy.asarray(local).T for local in reversed(self.filled())]

        def plan():  # loads its libraries
            import nvmath.distributed as nvmath
            from nvmath.bindings import cublasMp
            from nvmath.distributed.distribution import Slab
            from nvmath.distributed.linalg.advanced import Matmul

            if nvmath.get_context() is None:
                nvmath.initialize(device_id, self.topology.comm, backends=["nccl"])
            info = BlasInfo(f"cuBLASMp {cublasMp.get_version()}", "cuBLAS")
            self.blas = ArrayBlas(info, cupy.matmul, cupy.asarray, self._wait)
            slabs = (Slab.X, Slab.Y) if self.flow == "AG" else (Slab.Y, Slab.X)
            self._multiply = Matmul(*self.operands, distributions=[*slabs, slabs[0]])
            self._multiply.plan()

        self.attempt(plan)
        self.resolved = {"dataflow": self.flow, "transport": "nccl", "backend": "cublasmp"}

    def run(self):
        """Multiply, and wait for the end."""
        self.out = self._multiply.execute()
        self._wait()

    def result(self):
        """C row-major, from Cᵀ column-major."""
        return self._cupy.asnumpy(self.out.T)

    def close(self):
        """Release the plan, too."""
        super().close()
        self._multiply.free()


LIBRARY = CublasMp
