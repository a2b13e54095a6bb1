"""The base class of libraries on torch: torch itself, its threads, its device and its GEMM. torch
is imported when it is used."""

import functools
import logging
import re

from drbench.host.blas import BlasInfo
from drbench.program.problem import RUN_TYPES

from .base import ArrayBlas, Availability, Library, host_type, installed

GET_TORCH = (
    "Install it, from a checkout: pip install '.[torch]' (CPU build: pip install torch --index-url "
    "https://download.pytorch.org/whl/cpu)."
)


class TorchLibrary(Library):
    """A library whose operands are torch tensors on the CPU, or on the GPU of this rank."""

    dtypes = RUN_TYPES

    @staticmethod
    def on_gpu(options: dict) -> bool:
        """Whether the operands are on GPUs."""
        return options.get("device") == "cuda"

    @staticmethod
    def available() -> Availability:
        """Whether torch with torch.distributed.tensor is available."""
        return installed(GET_TORCH, "torch", least="2.5")

    def prepare(self, options: dict) -> None:
        """Set up torch, its threads, this rank's device, and the process group (collective)."""
        import torch

        from drbench.torch.ranks import start_process_group

        self.torch, self.type = torch, getattr(torch, self.work.dtype)
        torch.set_num_threads(self.threads)
        torch.set_float32_matmul_precision("high" if self.compute == "tf32" else "highest")
        self.torch_device = self.find_device(options.get("device", "cpu"))
        on_gpu = self.torch_device.type == "cuda"
        transport = "nccl" if on_gpu else "gloo"
        # records show how data moves, not stderr
        logging.getLogger("torch.distributed.tensor").setLevel(logging.ERROR)
        start_process_group(self.topology.comm, self.topology.nodes, transport)
        self.wait = torch.cuda.synchronize if on_gpu else lambda: None
        info = BlasInfo(*_library(torch, self.torch_device))
        self.blas = ArrayBlas(info, self._local_gemm, self.wait)
        self.resolved = {"transport": transport, "backend": f"torch-{self.torch_device.type}"}
        if on_gpu:
            self.resolved |= {"device": info.kernel, "ranks_per_device": 1}

    def load(self, array):
        """A NumPy array as a tensor: the same memory on the CPU, if it has the type of the
        operands; else a copy."""
        return self.torch.from_numpy(array).to(self.torch_device, self.type)

    def _local_gemm(self, a, b, c):
        """A function that multiplies NumPy arrays as tensors."""
        return functools.partial(self.torch.matmul, self.load(a), self.load(b), out=self.load(c))

    def find_device(self, kind: str):
        """The torch.device of this rank: the CPU, or the GPU numbered like the rank on its node.

        Raises
        ------
        MissingError
            If a GPU is requested, but some rank has none of its own.
        """
        cuda = self.torch.cuda
        if kind == "cpu":
            return self.torch.device(kind)
        count = cuda.device_count() if cuda.is_available() else 0
        index = self.topology.node.rank % count if count else 0  # a rank may see only its own GPU
        self.refuse_shared_gpus(str(cuda.get_device_properties(index).uuid) if count else None)
        cuda.set_device(index)
        return self.torch.device(kind, index)

    def result(self):
        """This rank's array of C, from a tensor."""
        return self.to_numpy(self.out)

    def to_numpy(self, tensor):
        """A tensor as an array on the host, in a type that NumPy has."""
        return tensor.detach().to("cpu", getattr(self.torch, host_type(self.work.dtype))).numpy()


def _library(torch, device) -> tuple[str, str]:
    """(name with version, kernels) of the BLAS."""
    if device.type != "cpu":
        cublas = f"torch {torch.__version__} cublas {torch.version.cuda}"
        return cublas, torch.cuda.get_device_name(device)
    config = torch.__config__.show()
    mkl = re.search(r"Math Kernel Library Version ([\d.]+)", config)
    other = "openblas" if "BLAS_INFO=open" in config else "its own BLAS"
    library = f"mkl {mkl[1]}" if mkl else other
    return f"torch {torch.__version__} {library}", torch.backends.cpu.get_cpu_capability()
