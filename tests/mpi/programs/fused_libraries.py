"""The fused GEMMs of other libraries without a GPU: ``fused_libraries.py nvmath|torch
CASES.json``; each case's record.

``nvmath``: CuPy is NumPy, and nvmath-python a made-up one with the signatures that 1.0 documents,
which multiplies the ranks' arrays by their distributions. ``torch``: the operations are
torch's own fall-backs, on the CPU under gloo.
"""

import json
import sys
import types
from types import SimpleNamespace

import numpy as np
from harness import answer, ranks

from drbench.launch.libraries import Availability, cublasmp, symm_mem
from drbench.launch.ranks.run_case import Case, run_case

PART = {}  # of this process: its communicator, once nvmath is initialised
calls = []


class Slab:
    """Rows (X) or columns (Y) of a matrix in as many equal parts as there are ranks."""

    def __init__(self, partition_dim):
        self.partition_dim = partition_dim


Slab.X, Slab.Y = Slab(0), Slab(1)


class Matmul:
    def __init__(
        self,
        a,
        b,
        /,
        c=None,
        *,
        distributions,
        alpha=None,
        beta=None,
        qualifiers=None,
        quantization_scales=None,
        options=None,
        stream=None,
    ):
        assert PART, "nvmath.distributed has not been initialized"
        assert c is None and len(distributions) == 3
        assert a.dtype == b.dtype
        self.rounded = arithmetic_of(a, options)
        for operand in (a, b):
            assert operand.flags.f_contiguous, "cuBLASMp is column-major"
        self.operands, self.distributions, self.planned = (a, b), distributions, False

    def plan(self, *, preferences=None, epilog=None, epilog_inputs=None, stream=None):
        # the two cases in which cuBLASMp overlaps, operands not transposed: 3 and 2 of nvmath's
        # _infer_algo
        dims = [each.partition_dim for each in self.distributions]
        calls.append({(0, 1, 0): "AG+GEMM", (1, 0, 1): "GEMM+RS"}[tuple(dims)])
        calls.append(self.rounded)
        self.planned = True

    def execute(self, *, release_workspace=False, stream=None):
        assert self.planned
        comm = PART["comm"]
        a, b = (
            np.concatenate(comm.allgather(np.ascontiguousarray(operand)), each.partition_dim)
            for operand, each in zip(self.operands, self.distributions)
        )
        whole, dim = multiplied(a, b), self.distributions[2].partition_dim
        return np.asfortranarray(np.split(whole, comm.size, dim)[comm.rank])

    def free(self):
        calls.append("free")


class LocalMatmul:
    """The GEMM of one GPU, which nvmath calls Matmul too."""

    def __init__(self, a, b, /, c=None, *, options=None):
        self.operands, self.planned = (a, b), False
        calls.append(("local", arithmetic_of(a, options)))

    def plan(self):
        self.planned = True

    def execute(self):
        assert self.planned
        return multiplied(*self.operands)


def multiplied(a, b):
    """A·B, summed in float32 or float64, in the type of A, as cuBLAS returns it by default."""
    wide = np.float64 if a.dtype == np.float64 else np.float32
    return (a.astype(wide) @ b.astype(wide)).astype(a.dtype)


def arithmetic_of(a, options):
    """The arithmetic that nvmath 1.0 chooses for operands and options."""
    if not options:
        return a.dtype.name
    assert a.dtype == np.float32 and list(options) == ["compute_type"], options
    return options["compute_type"]


def initialize(device_id, process_group, backends):
    assert isinstance(device_id, int) and list(backends) == ["nccl"] and not PART
    PART["comm"] = process_group


def made_up_nvmath(count):
    """Fakes of the functions of CuPy and nvmath-python that the adapter uses."""
    distributed = types.ModuleType("nvmath.distributed")
    distributed.get_context = lambda: PART or None
    distributed.initialize = initialize
    modules = {
        "nvmath": types.ModuleType("nvmath"),
        "nvmath.distributed": distributed,
        "nvmath.distributed.distribution": SimpleNamespace(Slab=Slab),
        "nvmath.distributed.linalg": types.ModuleType("linalg"),
        "nvmath.distributed.linalg.advanced": SimpleNamespace(Matmul=Matmul),
        "nvmath.linalg": SimpleNamespace(
            ComputeType=SimpleNamespace(COMPUTE_32F_FAST_TF32="tf32"),
        ),
        "nvmath.linalg.advanced": SimpleNamespace(Matmul=LocalMatmul),
        "nvmath.bindings": SimpleNamespace(cublasMp=SimpleNamespace(get_version=lambda: 801)),
        "cupy": SimpleNamespace(
            asarray=np.array,
            asnumpy=np.ascontiguousarray,
            cuda=SimpleNamespace(
                Device=lambda index: SimpleNamespace(use=lambda: calls.append(index)),
                runtime=SimpleNamespace(
                    deviceSynchronize=lambda: None,
                    deviceGetPCIBusId=lambda index: f"0000:{index:02x}:00.0",
                    getDeviceProperties=lambda index: {"name": b"made-up GPU"},
                ),
            ),
        ),
    }
    modules["nvmath"].distributed = distributed
    sys.modules |= modules
    cublasmp.devices = lambda: count
    here = Availability(True, "nvmath-python 1.0.0")
    cublasmp.LIBRARY.available = lambda: here


def torch_on_the_cpu():
    """Torch's fall-backs of both operations, for tensors of the CPU."""
    import torch
    import torch.distributed._symmetric_memory as symmetric

    implementations = torch.library.Library("symm_mem", "IMPL")
    for name in ("fused_all_gather_matmul", "fused_matmul_reduce_scatter"):
        implementations.impl(name, getattr(symmetric, f"_{name}_fallback"), "CPU")

    def find_device(self, kind):
        calls.append(torch.get_float32_matmul_precision())
        return torch.device("cpu")

    symm_mem.LIBRARY.find_device = find_device
    here = Availability(True, f"torch {torch.__version__}")
    symm_mem.LIBRARY.available = lambda: here
    return implementations


def main():
    library, path = sys.argv[1:]
    with open(path) as file:
        cases = json.load(file)
    with ranks() as comm:
        kept = torch_on_the_cpu() if library == "torch" else made_up_nvmath(comm.size)
        once = {"iters": 2, "budget": 0, "warmup": 0, "threads": 1}
        records = [run_case(Case(**once | case), comm).to_json_dict() for case in cases]
        answer(comm, {"records": records, "calls": calls})
        del kept


if __name__ == "__main__":
    main()
