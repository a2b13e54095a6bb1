"""cuBLASMp through nvmath-python: ``nvmath.distributed.linalg.advanced.Matmul`` on the two layouts
for which cuBLASMp overlaps communication and GEMM."""

from contextlib import suppress

from drbench.arrays import numpy_type
from drbench.errors import MissingError
from drbench.host.blas import BlasInfo

from .base import ArrayBlas, host_type, installed
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
        self.refuse_shared_gpus(cupy.cuda.runtime.deviceGetPCIBusId(device_id))
        cupy.cuda.Device(device_id).use()
        with suppress(MissingError):  # nvmath lists the types that NumPy has when it is imported
            numpy_type("bfloat16")
        self._type = numpy_type(self.work.dtype)
        self.operands = [self._load(local).T for local in reversed(self.filled())]

        def plan():  # loads its libraries
            import nvmath.distributed as nvmath
            from nvmath.bindings import cublasMp
            from nvmath.distributed.distribution import Slab
            from nvmath.distributed.linalg.advanced import Matmul
            from nvmath.linalg import ComputeType

            if nvmath.get_context() is None:
                nvmath.initialize(device_id, self.topology.comm, backends=["nccl"])
            info = BlasInfo(f"cuBLASMp {cublasMp.get_version()}", "cuBLAS")
            self.blas = ArrayBlas(info, self._local_gemm, self._wait)
            slabs = (Slab.X, Slab.Y) if self.flow == "AG" else (Slab.Y, Slab.X)
            tf32 = {"compute_type": ComputeType.COMPUTE_32F_FAST_TF32}
            self._options = tf32 if self.compute == "tf32" else None
            self._multiply = Matmul(
                *self.operands, distributions=[*slabs, slabs[0]], options=self._options
            )
            self._multiply.plan()

        self.attempt(plan)
        name = cupy.cuda.runtime.getDeviceProperties(device_id)["name"].decode()
        self.resolved = {"dataflow": self.flow, "transport": "nccl", "backend": "cublasmp"}
        self.resolved |= {"device": name, "ranks_per_device": 1}

    def _load(self, local):
        """A NumPy array on the GPU, in the type of the operands."""
        return self._cupy.asarray(local.astype(self._type, copy=False))

    def _local_gemm(self, a, b, c):
        """A function that multiplies NumPy arrays on this rank's GPU (C is allocated anew)."""
        from nvmath.linalg.advanced import Matmul

        local = Matmul(self._load(a), self._load(b), options=self._options)
        local.plan()
        return local.execute

    def run(self):
        """Multiply, and wait for the end."""
        self.out = self._multiply.execute()
        self._wait()

    def result(self):
        """C row-major, from Cᵀ column-major, in a type that NumPy has."""
        return self._cupy.asnumpy(self.out.T).astype(host_type(self.work.dtype), copy=False)

    def close(self):
        """Release the plan, too."""
        super().close()
        self._multiply.free()


LIBRARY = CublasMp
